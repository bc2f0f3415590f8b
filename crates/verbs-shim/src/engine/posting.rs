//! Posting lists of requests to a queue pair.

use std::sync::Arc;

use parking_lot::MutexGuard;
use ripstop_mem::Parked;
use ripstop_types::{Errno, Result};

use crate::device::MAX_MSG;
use crate::engine::mr::resolve;
use crate::engine::qp::{MTU, State};
use crate::engine::request::{Asked, Op, Recv, Send};
use crate::engine::{Engine, Inner};
use crate::log::{self, Subsys, refuse};
use crate::sys::{
    IBV_SEND_FENCE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR,
    IBV_WC_LOC_QP_OP_ERR, ibv_sge,
};

/// A queue pair to which a list of requests is posted.
pub(crate) struct Posting<'a> {
    pub(super) engine: &'a Arc<Engine>,
    pub(super) inner: MutexGuard<'a, Inner>,
    pub(super) qp: usize,
}

impl Posting<'_> {
    /// Whether so many requests to send can be posted.
    ///
    /// # Errors
    /// `ENOMEM` where the queue has less room.
    pub(crate) fn has_room_for(&mut self, count: usize) -> Result<()> {
        let (qp, _, _) = self.inner.qp(self.qp)?;
        match count <= qp.room() {
            true => Ok(()),
            false => Err(Errno::ENOMEM),
        }
    }

    /// Posts a request to send; `inline` is what it points to, if it is to be copied.
    ///
    /// # Errors
    /// `EINVAL` for a state or request that `ibv_post_send(3)` does not allow, `EOPNOTSUPP` for one that
    /// this device does not do, `ENOMEM` when the queue is full.
    pub(crate) fn send(
        &mut self,
        wr: &Asked,
        list: &[ibv_sge],
        inline: Option<Vec<u8>>,
    ) -> Result<()> {
        let (qp, cqs, mrs) = self.inner.qp(self.qp)?;
        if !matches!(qp.state, State::Rts | State::Err) {
            let why = format_args!("a send in state {:?}", qp.state);
            return Err(refuse(Subsys::EpData, Errno::EINVAL, why));
        }
        if list.len() > qp.cap.max_send_sge.max(1) as usize {
            let (count, most) = (list.len(), qp.cap.max_send_sge);
            let why = format_args!("{count} elements, where the queue pair has {most}");
            return Err(refuse(Subsys::EpData, Errno::EINVAL, why));
        }
        let op = wr.op;
        qp.check(wr)?;
        let mut send = Send::new(wr.wr_id, op);
        send.signaled = wr.flags & IBV_SEND_SIGNALED != 0;
        send.solicited = wr.flags & IBV_SEND_SOLICITED != 0;
        send.fence = wr.flags & IBV_SEND_FENCE != 0;
        let inlined = matches!(op, Op::Send { .. } | Op::Write { .. });
        match inline {
            Some(data) if inlined => {
                let most = qp.cap.max_inline_data;
                if data.len() > most as usize {
                    let len = data.len();
                    let why = format_args!("{len} bytes inline, where the queue pair has {most}");
                    return Err(refuse(Subsys::EpData, Errno::EINVAL, why));
                }
                send.lent = Some(Parked::park(data));
            }
            Some(_) => {
                let why = format_args!("reads and atomics are not inline");
                return Err(refuse(Subsys::EpData, Errno::EINVAL, why));
            }
            None => {
                let most = if qp.is_ud() { MTU as u64 } else { MAX_MSG };
                let writes = matches!(op, Op::Read { .. } | Op::Atomic { .. });
                let found = resolve(list, qp.pd, writes, |key| mrs.get(&key));
                send.sges = match found {
                    None => {
                        let why = format_args!(
                            "queue pair {:#08x}: request {:#x} names memory that is not registered so",
                            qp.num, wr.wr_id
                        );
                        log::warn(Subsys::EpData, why);
                        Err(IBV_WC_LOC_PROT_ERR)
                    }
                    Some(sges) if sges.len() > most => Err(IBV_WC_LOC_LEN_ERR),
                    Some(sges) => match op {
                        Op::Atomic { .. } if sges.len() != 8 || sges.bufs().len() != 1 => {
                            Err(IBV_WC_LOC_QP_OP_ERR)
                        }
                        _ => Ok(sges),
                    },
                };
            }
        }
        if matches!(op, Op::Atomic { .. }) {
            send.lent = Some(Parked::park(
                wr.operands
                    .iter()
                    .flat_map(|word| word.to_ne_bytes())
                    .collect(),
            ));
        }
        send.to = wr.to.map(|to| qp.route(to, &*self.engine.net));
        qp.post_send(send, cqs)
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// As for [`Posting::send`].
    pub(crate) fn recv(&mut self, wr_id: u64, list: &[ibv_sge]) -> Result<()> {
        let (qp, cqs, mrs) = self.inner.qp(self.qp)?;
        if qp.srq.is_some() {
            let why = format_args!("a receive of a queue pair that has a shared receive queue");
            return Err(refuse(Subsys::EpData, Errno::EINVAL, why));
        }
        if qp.state == State::Reset {
            let why = format_args!("a receive in state {:?}", qp.state);
            return Err(refuse(Subsys::EpData, Errno::EINVAL, why));
        }
        if list.len() > qp.cap.max_recv_sge.max(1) as usize {
            let (count, most) = (list.len(), qp.cap.max_recv_sge);
            let why = format_args!("{count} elements, where the queue pair has {most}");
            return Err(refuse(Subsys::EpData, Errno::EINVAL, why));
        }
        let found = resolve(list, qp.pd, true, |key| mrs.get(&key));
        if found.is_none() {
            let why = format_args!(
                "queue pair {:#08x}: receive {wr_id:#x} names memory that is not registered so",
                qp.num
            );
            log::warn(Subsys::EpData, why);
        }
        qp.post_recv(Recv::new(wr_id, found.ok_or(IBV_WC_LOC_PROT_ERR)), cqs)
    }
}

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        self.engine.posted(&mut self.inner, self.qp);
    }
}
