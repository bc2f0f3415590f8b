//! Regions that are taken away from peers, and what peers are refused.

use std::time::Duration;

use ripstop_engine::id::MrId;
use ripstop_engine::stream::{Refusal, RmaKind};
use ripstop_types::RmaIov;

use crate::state::State;
use crate::system::System as _;
use crate::transport::Transport;

/// How long a region that is closed waits for what peers do there, once for those that have mapped
/// it and once for those that have not.
pub(crate) const MAX_CLOSE_WAIT: Duration = Duration::from_secs(1);

impl<T: Transport> State<T> {
    /// Tells the target's user of operations that were refused.
    pub(crate) fn log_refusals(&mut self) {
        while let Some(refusal) = self.engine.pop_refusal() {
            self.log_refusal(&refusal);
        }
    }

    #[cold]
    fn log_refusal(&mut self, refusal: &Refusal) {
        let Some(peer) = self
            .connection(refusal.conn)
            .map(|connection| connection.peer.clone())
        else {
            return;
        };
        let what = match refusal.kind {
            RmaKind::Read => "read",
            RmaKind::Write => "write",
            RmaKind::Atomic => "atomic",
        };
        let RmaIov { addr, len, key } = refusal.iov;
        log_warn!(
            T::EpData,
            "{peer}: refused a {what} of {len} bytes at {addr:#x} with key {key:#x}: {}",
            refusal.reason
        );
    }

    /// Takes a region away from peers: what they do there now ends first, unless it takes too
    /// long.
    pub(crate) fn close_mr(&mut self, id: MrId) {
        let end = T::System::now() + MAX_CLOSE_WAIT;
        while !self.try_close_mr(id, T::System::now() >= end) {
            self.progress();
            self.poll_all();
            if self.engine.mr_is_busy(id) {
                T::System::sleep(Duration::from_micros(100));
            } else {
                T::System::yield_now();
            }
        }
    }

    /// Takes a region away from peers if none is at work there, or with `evict` in any case;
    /// returns whether it is gone. From the first attempt on, no peer begins to reach it directly. Memory where a peer is
    /// at work in spite of that [is abandoned](ripstop_os::is_abandoned).
    pub(crate) fn try_close_mr(&mut self, id: MrId, evict: bool) -> bool {
        self.withdraw(id);
        let reached = self.is_reached(id);
        if (reached || self.engine.mr_is_busy(id)) && !evict {
            return false;
        }
        if reached {
            self.stop_waiting_for(id);
        }
        self.forget_withdrawn(id);
        self.engine.close_mr(id);
        self.after();
        true
    }
}
