//! Reads and writes of a peer's memory, and the regions that peers reach.

use std::time::Duration;

use ripstop_core::provider::RmaCall;
use ripstop_engine::Iov;
use ripstop_engine::pool::NIL;
use ripstop_engine::xnet::{Level, Refusal, Rma, RmaKind, RmaPlan};
use ripstop_mem::UserBuf;
use ripstop_os::clock;
use ripstop_types::{Errno, FiAddr, Flags, Result, RmaIov};
use ripstop_wire::xnet::base::{MAX_HEADER, RmaIovs};

use crate::state::State;

/// How long a region that is closed waits for what peers do there.
const CLOSING: Duration = Duration::from_secs(1);

impl State {
    /// Posts a read or write.
    pub(crate) fn post_rma(
        &mut self,
        ep: u32,
        kind: RmaKind,
        iov: Iov<UserBuf>,
        call: &RmaCall<'_>,
    ) -> Result<()> {
        let state = self.ep(ep).ok_or(Errno::EOPBADSTATE)?;
        if !state.has_tx {
            return Err(Errno::EOPBADSTATE);
        }
        if !state.has_rma {
            return Err(Errno::ENOSYS);
        }
        let given = call.flags.unwrap_or(state.tx_flags);
        if iov.len() > state.max_msg_size as u64 {
            return Err(Errno::EMSGSIZE);
        }
        let inject = kind == RmaKind::Write && given.contains(Flags::INJECT);
        if inject && iov.len() > state.inject_size as u64 {
            return Err(Errno::EMSGSIZE);
        }
        let rma = Rma {
            kind,
            iov,
            remote: RmaIovs::new(call.remote).map_err(|_| Errno::EINVAL)?,
            data: call.data,
            context: call.context,
            completion: !state.tx_selective || given.contains(Flags::COMPLETION),
            inject,
            level: level(kind, given),
            fence: given.contains(Flags::FENCE),
        };
        self.start_rma(ep, call.peer, &rma, given.contains(Flags::MORE))
    }

    /// Posts a small write whose buffer is free at once.
    pub(crate) fn inject_write(
        &mut self,
        ep: u32,
        buf: UserBuf,
        remote: RmaIov,
        data: Option<u64>,
        peer: FiAddr,
    ) -> Result<()> {
        let state = self.ep(ep).ok_or(Errno::EOPBADSTATE)?;
        if !state.has_tx {
            return Err(Errno::EOPBADSTATE);
        }
        if !state.has_rma {
            return Err(Errno::ENOSYS);
        }
        if buf.len() > state.inject_size {
            return Err(Errno::EMSGSIZE);
        }
        let rma = Rma {
            kind: RmaKind::Write,
            iov: Iov::one(buf),
            remote: RmaIovs::one(remote),
            data,
            context: 0,
            completion: false,
            inject: true,
            level: Level::Sent,
            fence: false,
        };
        self.start_rma(ep, peer, &rma, false)
    }

    fn start_rma(&mut self, ep: u32, peer: FiAddr, rma: &Rma<UserBuf>, more: bool) -> Result<()> {
        let mut id = self.ep(ep).map_or(NIL, |state| state.route(peer));
        if id == NIL {
            id = self.open_route(ep, peer)?;
        }
        let mut header = [0; MAX_HEADER];
        let plan = match self.engine.rma(id, rma, &mut header) {
            Err(Errno::EAGAIN) => {
                // The queue may be full only because writing was put off.
                self.flush_dirty();
                match self.engine.rma(id, rma, &mut header) {
                    Err(Errno::EAGAIN) => {
                        self.progress();
                        return Err(Errno::EAGAIN);
                    }
                    plan => plan?,
                }
            }
            plan => plan?,
        };
        let staged = match plan {
            RmaPlan::Stage(staged) => staged,
            RmaPlan::Defer { slot } => return self.defer(id, &rma.iov, slot),
        };
        let Some(Some(stream)) = self.streams.get_mut(id as usize) else {
            return Err(Errno::ENOTCONN);
        };
        let payload = if staged.inline {
            rma.iov.len() as usize
        } else {
            0
        };
        if let Err(error) = stream.stage.reserve(MAX_HEADER + payload) {
            self.lost(id, error);
            // As for a message: reported once.
            let silent = rma.inject && !rma.completion;
            return if silent { Err(error) } else { Ok(()) };
        }
        stream
            .stage
            .push(header.get(..staged.header_len).unwrap_or_default());
        if staged.inline {
            stream.stage.push_user(rma.iov.segments());
        }
        let small = staged.inline || rma.kind == RmaKind::Read;
        self.write_out(id, small, more);
        Ok(())
    }

    /// Tells the target's user of operations that were refused.
    pub(crate) fn log_refusals(&mut self) {
        while let Some(refusal) = self.engine.pop_refusal() {
            self.log_refusal(&refusal);
        }
    }

    #[cold]
    fn log_refusal(&mut self, refusal: &Refusal) {
        let Some(peer) = self.stream(refusal.conn).map(|stream| stream.peer) else {
            return;
        };
        let what = match refusal.kind {
            RmaKind::Read => "read",
            RmaKind::Write => "write",
        };
        let RmaIov { addr, len, key } = refusal.iov;
        log_warn!(
            EpData,
            "{peer}: refused a {what} of {len} bytes at {addr:#x} with key {key:#x}: {}",
            refusal.reason
        );
    }

    /// Takes a region away from peers: what they do there now ends first, unless it takes too
    /// long.
    pub(crate) fn close_mr(&mut self, id: u32) {
        let end = clock::now() + CLOSING;
        while self.engine.mr_is_busy(id) && clock::now() < end {
            self.progress();
            self.poll();
            if self.engine.mr_is_busy(id) {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        self.engine.close_mr(id);
        self.after();
    }
}

/// The level that flags ask for. A read is done when its data is here.
fn level(kind: RmaKind, flags: Flags) -> Level {
    if kind == RmaKind::Read {
        Level::Sent
    } else if flags.contains(Flags::COMMIT_COMPLETE) {
        Level::Committed
    } else if flags.intersects(Flags::DELIVERY_COMPLETE | Flags::TRANSMIT_COMPLETE) {
        Level::Delivered
    } else {
        Level::Sent
    }
}
