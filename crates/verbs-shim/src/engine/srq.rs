//! Shared receive queues: receives that the messages of several queue pairs take, each the next one.
//!
//! The provider has all of them in one receive context, for any tag and any peer. What a message is for, and who sent
//! it, its tag says: one that is not of a connected peer gives its receive back.

use std::collections::VecDeque;
use std::sync::Arc;

use ripstop_types::{Errno, Result};
use slab::Slab;

use crate::device::{MAX_QP_WR, MAX_SGE, MAX_SRQ};
use crate::engine::mr::resolve;
use crate::engine::qp::{Failure, State, ends_of};
use crate::engine::request::Recv;
use crate::engine::{Engine, Inner};
use crate::log::{self, Subsys, refuse};
use crate::net::{Ended, Shared};
use crate::sys::{IBV_WC_LOC_LEN_ERR, ibv_sge};

/// Marks the context of a shared receive.
pub(super) const MARK: usize = 1 << 62;

/// A shared receive queue.
pub(crate) struct Srq {
    pub(super) pd: u32,
    generation: u16,
    max_wr: u32,
    max_sge: u32,
    /// Dropped when no queue pair has it any more.
    pub(super) shared: Box<dyn Shared>,
    recvs: Slab<Recv>,
    /// Those that the provider does not have, oldest first.
    waiting: VecDeque<usize>,
    /// Queue pairs that receive here.
    pub(super) users: usize,
}

/// What a shared receive queue has: requests, and elements of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SrqCap {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
}

impl Srq {
    /// Whether a receive uses the region with this key.
    pub(super) fn uses(&self, key: u32) -> bool {
        let mut recvs = self.recvs.iter();
        recvs.any(|(_, recv)| recv.sges.as_ref().is_ok_and(|sges| sges.uses(key)))
    }

    /// Whether something waits for the provider to take it.
    pub(super) fn is_stalled(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Gives the provider what it can take.
    pub(super) fn advance(&mut self, slot: usize) {
        while let Some(at) = self.waiting.front().copied() {
            let sges = self.recvs.get(at).map(|recv| &recv.sges);
            let Some(Ok(sges)) = sges else {
                self.waiting.pop_front();
                continue;
            };
            let context = MARK | slot << 47 | usize::from(self.generation & 0x7fff) << 32 | at;
            match self.shared.recv(sges.bufs(), context) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(Errno::EAGAIN) => break,
                Err(error) => {
                    // It is tried again, since nothing of verbs says that a shared queue has failed.
                    log::info(
                        Subsys::EpData,
                        format_args!("a shared receive is refused: {error}"),
                    );
                    break;
                }
            }
        }
    }
}

/// Checks the sizes of a queue.
fn sizes(cap: SrqCap) -> Result<()> {
    let fits = (1..=MAX_QP_WR).contains(&cap.max_wr) && cap.max_sge <= MAX_SGE as u32;
    if !fits {
        let why = format_args!(
            "a shared receive queue with {cap:?}: 1 to {MAX_QP_WR} requests of at most {MAX_SGE} elements"
        );
        return Err(refuse(Subsys::EpCtrl, Errno::EINVAL, why));
    }
    Ok(())
}

impl Engine {
    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// `EINVAL` for more than the device has, `ENOMEM` for too many; of the provider.
    pub(crate) fn create_srq(&self, pd: u32, cap: SrqCap) -> Result<usize> {
        sizes(cap)?;
        let shared = self.net.shared()?;
        let mut inner = self.inner.lock();
        if inner.srqs.len() >= MAX_SRQ {
            let why = format_args!("there are {MAX_SRQ} shared receive queues");
            return Err(refuse(Subsys::EpCtrl, Errno::ENOMEM, why));
        }
        let generation = inner.next_generation();
        Ok(inner.srqs.insert(Srq {
            pd,
            generation,
            max_wr: cap.max_wr,
            max_sge: cap.max_sge,
            shared,
            recvs: Slab::new(),
            waiting: VecDeque::new(),
            users: 0,
        }))
    }

    /// What it has.
    ///
    /// # Errors
    /// `EINVAL` for one that there is not.
    pub(crate) fn query_srq(&self, srq: usize) -> Result<SrqCap> {
        let inner = self.inner.lock();
        let Srq {
            max_wr, max_sge, ..
        } = inner.srqs.get(srq).ok_or(Errno::EINVAL)?;
        Ok(SrqCap {
            max_wr: *max_wr,
            max_sge: *max_sge,
        })
    }

    /// Sets how many requests it has.
    ///
    /// # Errors
    /// `EINVAL` for fewer than are posted, or more than the device has.
    pub(crate) fn resize_srq(&self, srq: usize, max_wr: u32) -> Result<()> {
        let mut inner = self.inner.lock();
        let srq = inner.srqs.get_mut(srq).ok_or(Errno::EINVAL)?;
        sizes(SrqCap {
            max_wr,
            max_sge: srq.max_sge,
        })?;
        if srq.recvs.len() > max_wr as usize {
            return Err(Errno::EINVAL);
        }
        srq.max_wr = max_wr;
        Ok(())
    }

    /// Destroys it: its receives are gone.
    ///
    /// # Errors
    /// `EBUSY` while queue pairs receive there.
    pub(crate) fn destroy_srq(&self, srq: usize) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.srqs.get(srq).ok_or(Errno::EINVAL)?.users > 0 {
            let why = format_args!("the shared receive queue has queue pairs");
            return Err(refuse(Subsys::EpCtrl, Errno::EBUSY, why));
        }
        let gone = inner.srqs.remove(srq);
        drop(inner);
        drop(gone);
        Ok(())
    }

    /// Posts receives, one after the other as `each` gives them; it is asked again when one is taken.
    ///
    /// # Errors
    /// `EINVAL` for one that names more elements than the queue has, or memory that is not registered so;
    /// `ENOMEM` when the queue is full.
    pub(crate) fn post_srq<'a>(
        self: &Arc<Self>,
        id: usize,
        each: impl FnMut() -> Option<(u64, &'a [ibv_sge])>,
    ) -> Result<()> {
        let mut inner = self.inner.lock();
        let posted = std::iter::from_fn(each).try_for_each(|(wr_id, list)| {
            let Inner { srqs, mrs, .. } = &mut *inner;
            let srq = srqs.get_mut(id).ok_or(Errno::EINVAL)?;
            if list.len() > srq.max_sge.max(1) as usize {
                let (count, most) = (list.len(), srq.max_sge);
                let why =
                    format_args!("{count} elements, where the shared receive queue has {most}");
                return Err(refuse(Subsys::EpData, Errno::EINVAL, why));
            }
            if srq.recvs.len() >= srq.max_wr as usize {
                return Err(Errno::ENOMEM);
            }
            // No queue pair could fail for it, so it is refused at once.
            let sges = resolve(list, srq.pd, true, |key| mrs.get(&key)).ok_or_else(|| {
                let why = format_args!(
                    "shared receive {wr_id:#x} names memory that is not registered so"
                );
                refuse(Subsys::EpData, Errno::EINVAL, why)
            })?;
            let at = srq.recvs.insert(Recv::new(wr_id, Ok(sges)));
            srq.waiting.push_back(at);
            Ok(())
        });
        if let Some(srq) = inner.srqs.get_mut(id) {
            srq.advance(id);
            if srq.is_stalled() {
                inner.stalled = true;
                // Without a thread, what waits goes on when the program polls.
                let _ = self.serve(&mut inner);
            }
        }
        posted
    }
}

/// Whether a message has used up the receive that ended so: it is there, or was longer than the receive.
const fn is_taken(result: Result<()>) -> bool {
    matches!(result, Ok(()) | Err(Errno::ETRUNC))
}

impl Inner {
    /// Takes the end of a shared receive.
    pub(super) fn shared_ended(&mut self, ended: &Ended) {
        let slot = ended.context >> 47 & 0x7fff;
        let generation = (ended.context >> 32 & 0x7fff) as u16;
        let at = ended.context as u32 as usize;
        let known = self.srqs.get(slot);
        if known.is_none_or(|srq| srq.generation != generation || !srq.recvs.contains(at)) {
            return;
        }
        let (to, from) = ends_of(ended.tag);
        let qp = self
            .qps
            .iter_mut()
            .map(|(_, qp)| qp)
            .find(|qp| qp.srq == Some(slot) && qp.num == to);
        match qp {
            // The peer is ready before this side is.
            Some(qp) if matches!(qp.state, State::Reset | State::Init) && ended.result.is_ok() => {
                qp.early.push(*ended);
            }
            Some(qp) if qp.peer_num() == from && is_taken(ended.result) => {
                let Some(srq) = self.srqs.get_mut(slot) else {
                    return;
                };
                let recv = srq.recvs.remove(at);
                let failure = match ended.result {
                    Ok(()) => qp.shared_recv(&recv, ended, &mut self.cqs),
                    Err(_) => {
                        qp.shared_recv_failed(&recv, IBV_WC_LOC_LEN_ERR, &mut self.cqs);
                        Some(Failure::Commanded)
                    }
                };
                if let Some(failure) = failure.filter(|_| qp.state != State::Err) {
                    qp.fail(failure, &mut self.cqs);
                }
            }
            // A device, too, ends no shared receive for a message that its sender did not finish.
            Some(qp) if qp.peer_num() == from => {
                if let Err(error) = ended.result {
                    log::info(
                        Subsys::EpData,
                        format_args!(
                            "queue pair {to:#08x}: its peer is gone in the middle of a message, whose receive is free again: {error}"
                        ),
                    );
                }
                self.give_back(slot, at);
            }
            _ => {
                log::warn(
                    Subsys::EpData,
                    format_args!(
                        "a message from queue pair {from:#08x} to {to:#08x}, which are not connected, is dropped"
                    ),
                );
                self.give_back(slot, at);
            }
        }
    }

    /// Posts a shared receive again.
    fn give_back(&mut self, slot: usize, at: usize) {
        if let Some(srq) = self.srqs.get_mut(slot) {
            srq.waiting.push_back(at);
            srq.advance(slot);
            self.stalled |= srq.is_stalled();
        }
    }

    /// What came early for a queue pair that is connected now, or that forgets it: messages of its peer complete.
    pub(super) fn take_early(&mut self, early: Vec<Ended>) {
        early.iter().for_each(|ended| self.shared_ended(ended));
    }

    /// What came early for a queue pair that is destroyed or reset: the receives are free again.
    pub(super) fn drop_early(&mut self, early: Vec<Ended>) {
        for ended in early {
            self.give_back(ended.context >> 47 & 0x7fff, ended.context as u32 as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::QpInit;
    use crate::engine::qp::tag;
    use crate::sys::{
        IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_STATE, IBV_QPS_INIT, IBV_QPS_RTR, IBV_WC_SUCCESS,
        ibv_qp_attr, ibv_qp_cap, ibv_wc,
    };

    #[test]
    fn a_message_that_its_sender_did_not_finish_gives_its_receive_back() {
        let engine = Engine::open().expect("a device");
        let pd = engine.alloc_pd();
        let cq = engine.create_cq(4, None).expect("a queue");
        let cap = SrqCap {
            max_wr: 1,
            max_sge: 1,
        };
        let srq = engine.create_srq(pd, cap).expect("a shared queue");
        let init = QpInit {
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: Some(srq),
            all_signaled: true,
            cap: ibv_qp_cap::default(),
            ud: false,
        };
        let (qp, to, _) = engine.create_qp(&init).expect("a queue pair");
        let from = to ^ 1;
        let mut attr = ibv_qp_attr {
            dest_qp_num: from,
            ..ibv_qp_attr::default()
        };
        (attr.ah_attr.dgid, attr.ah_attr.is_global) = (engine.gid(), 1);
        for (state, mask) in [
            (IBV_QPS_INIT, 0),
            (IBV_QPS_RTR, IBV_QP_AV | IBV_QP_DEST_QPN),
        ] {
            attr.qp_state = state;
            let changed = engine.modify_qp(qp, &attr, mask | IBV_QP_STATE);
            changed.expect("a change of state");
        }
        let mut recvs = [(7, &[][..])].into_iter();
        engine.post_srq(srq, || recvs.next()).expect("a receive");

        let ends = |result| {
            let mut inner = engine.inner.lock();
            let generation = usize::from(inner.srqs[srq].generation);
            inner.ended(&Ended {
                context: MARK | srq << 47 | generation << 32,
                tag: tag(to, from),
                len: 0,
                data: 0,
                result,
            });
            drop(inner);
            let mut found = [ibv_wc::default(); 4];
            let count = engine.poll(cq, &mut found).expect("a queue");
            let found = found.iter().take(count);
            found.map(|wc| (wc.wr_id, wc.status)).collect::<Vec<_>>()
        };
        assert_eq!(ends(Err(Errno::ECONNRESET)), []);
        let (attr, _) = engine.query_qp(qp).expect("a queue pair");
        assert_eq!(attr.qp_state, IBV_QPS_RTR);
        assert_eq!(ends(Ok(())), [(7, IBV_WC_SUCCESS)]);
        engine.destroy_qp(qp).expect("a queue pair");
        engine.destroy_srq(srq).expect("a shared queue");
    }
}
