//! Receives, from the post of the caller to a match or the queue of posted ones.

use ripstop_core::provider::RecvKind;
use ripstop_engine::Iov;
use ripstop_engine::id::{CqId, EpId, RecvId, SrxId, WorkId};
use ripstop_engine::matching::{Recv, Want};
use ripstop_engine::stream::{CopyOut, RecvFlags};
use ripstop_mem::UserBuf;
use ripstop_types::{Context, Errno, FiAddr, Flags, Result};

use crate::state::State;
use crate::state::ep::PeerContext;
use crate::state::fast_path::{SLOW_RECV_FLAGS, off_fast_path};
use crate::transport::Transport;

impl<T: Transport> State<T> {
    /// Posts a receive on an endpoint.
    #[inline(never)]
    pub(crate) fn recv(
        &mut self,
        ep: EpId,
        kind: RecvKind,
        iov: Iov<UserBuf>,
        src: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        self.recv_for(ep, new_recv(kind, iov, src, context), flags, None)
    }

    /// As [`State::recv`], for deferred work if its id is given.
    #[inline(always)]
    pub(crate) fn recv_for(
        &mut self,
        ep: EpId,
        mut recv: Recv<UserBuf>,
        flags: Option<Flags>,
        work: Option<WorkId>,
    ) -> Result<()> {
        let Some(state) = self.eps.get(ep) else {
            return Err(Errno::EOPBADSTATE);
        };
        let given = flags.unwrap_or_else(|| recv_flags(state.rx_flags, &recv));
        recv.completion = !state.rx_selective || given.contains(Flags::COMPLETION);
        if let Some(rdm) = &state.rdm {
            recv.want.src = PeerContext::source(recv.want.src, rdm.ctx_bits);
        }
        if let Some(work) = work {
            recv = recv.for_work(work);
        }
        if !state.has_rx {
            return self.recv_late(ep, recv, given);
        }
        let srx = state.srx;
        if given.intersects(SLOW_RECV_FLAGS | Flags::TRIGGER) {
            let config = self.engine.ep(ep).ok_or(Errno::EOPBADSTATE)?;
            let (cq, source) = (config.rx_cq, config.source);
            return self.recv_with_flags(srx, cq, source, recv, given);
        }
        self.post_recv(srx, recv)
    }

    /// Receives what had arrived whole before the connection ended; nothing else will come.
    #[cold]
    #[inline(never)]
    fn recv_late(&mut self, ep: EpId, recv: Recv<UserBuf>, flags: Flags) -> Result<()> {
        let Some(state) = self.ep(ep) else {
            return Err(Errno::EOPBADSTATE);
        };
        if !state.msg.ended {
            return Err(state.lost.unwrap_or(Errno::EOPBADSTATE));
        }
        let (srx, context) = (state.srx, recv.context);
        if state.shared_srx || flags.intersects(SLOW_RECV_FLAGS) {
            return Err(Errno::ENOTCONN);
        }
        self.post_recv(srx, recv)?;
        // The end of the connection has left no other receive there. A program may not know of
        // the end yet: where nothing had arrived, the receive fails as those do that were posted
        // before it.
        let rx_cq = self.engine.ep(ep).and_then(|config| config.rx_cq);
        let ended = self.engine.end_recv(srx, rx_cq, context, Errno::ENOTCONN);
        if ended.is_ok() {
            self.after();
        }
        Ok(())
    }

    /// Posts a receive on a receive context.
    #[inline]
    pub(crate) fn post_recv(&mut self, srx: SrxId, recv: Recv<UserBuf>) -> Result<()> {
        if let Some(id) = self.engine.post_recv(srx, recv)? {
            self.match_waiting(srx, id);
        }
        Ok(())
    }

    /// Matches a receive with the unexpected messages that wait for it: several, if it is multi-receive.
    #[cold]
    #[inline(never)]
    fn match_waiting(&mut self, srx: SrxId, recv: RecvId) {
        // Nobody else takes a message from between those of this receive.
        let busy = std::mem::replace(&mut self.works.busy, true);
        while let Some(copy) = self.engine.next_match(srx, recv) {
            self.copy_kept(&copy);
            self.after();
        }
        self.works.busy = busy;
        self.after();
    }

    /// Copies the payload of a kept message to the receive that it has met.
    pub(crate) fn copy_kept(&mut self, copy: &CopyOut<UserBuf>) {
        let kept = self.slots.get(copy.slot);
        let len = (copy.len as usize).min(kept.len());
        crate::state::place::copy_user(&copy.iov, copy.at, len as u64, &kept[..len]);
    }

    /// Posts a receive with [`SLOW_RECV_FLAGS`], or looks at the unexpected messages of its context (`FI_PEEK`,
    /// `FI_CLAIM`, `FI_DISCARD`), which is reported to `cq`, with the source where `source` says so.
    #[inline(never)]
    pub(crate) fn recv_with_flags(
        &mut self,
        srx: SrxId,
        cq: Option<CqId>,
        source: bool,
        mut recv: Recv<UserBuf>,
        flags: Flags,
    ) -> Result<()> {
        if flags.contains(Flags::TRIGGER) {
            // As for a send.
            return Err(Errno::EINVAL);
        }
        let asked = RecvFlags {
            peek: flags.contains(Flags::PEEK),
            claim: flags.contains(Flags::CLAIM),
            discard: flags.contains(Flags::DISCARD),
        };
        if asked.peek {
            // It says what has come so far. A program that also looks elsewhere, first there and
            // then here, must not find here what came after it looked there.
            let found = self
                .engine
                .peek_in(srx, cq, source, recv.want, recv.context, asked)?;
            if !found {
                self.make_room();
            }
        } else if asked.claim {
            if let Some(copy) = self.engine.claim_in(srx, cq, source, recv, asked)? {
                self.copy_kept(&copy);
            }
        } else if asked.discard {
            return Err(Errno::EINVAL);
        } else {
            if flags.contains(Flags::MULTI_RECV) {
                if recv.want.tag.is_some() || recv.iov.segments().len() > 1 {
                    return Err(Errno::EINVAL);
                }
                recv.multi = true;
            }
            return self.post_recv(srx, recv);
        }
        self.after();
        Ok(())
    }

    /// Posts a receive of one buffer on an endpoint.
    #[inline(always)]
    pub(crate) fn recv_one(
        &mut self,
        ep: EpId,
        kind: RecvKind,
        buf: UserBuf,
        src: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        if flags.is_none()
            && let Some(state) = self.eps.get(ep)
            && state.fast.plain_recv
        {
            let (want, completes) = (want(kind, src), state.fast.recv_completes);
            let posted = self
                .engine
                .post_one(state.srx, buf, want, context, completes);
            match posted {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => return Err(error),
            }
        }
        off_fast_path(move || self.recv(ep, kind, Iov::one(buf), src, context, flags))
    }
}

/// The flags of a receive that was posted without any, from those of its context: `FI_MULTI_RECV` is for receives without a tag.
#[inline]
pub(crate) fn recv_flags(of_context: Flags, recv: &Recv<UserBuf>) -> Flags {
    match recv.want.tag {
        None => of_context,
        Some(_) => of_context - Flags::MULTI_RECV,
    }
}

/// A receive as the engine takes it.
#[inline]
pub(crate) fn new_recv(
    kind: RecvKind,
    iov: Iov<UserBuf>,
    src: FiAddr,
    context: Context,
) -> Recv<UserBuf> {
    Recv::new(iov, want(kind, src), context)
}

/// The messages that a receive matches.
#[inline(always)]
const fn want(kind: RecvKind, src: FiAddr) -> Want {
    let tag = match kind {
        RecvKind::Msg => None,
        RecvKind::Tagged { tag, ignore } => Some((tag, ignore)),
    };
    Want { tag, src }
}
