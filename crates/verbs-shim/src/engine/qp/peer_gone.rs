//! Connected queue pairs whose peer is gone: when the program is told.
//!
//! A device repeats a request until the queue pair's timeout has passed `retry_cnt` + 1 times, and only then reports
//! `IBV_WC_RETRY_EXC_ERR`. Programs end within that time without waiting for a request that they do not need
//! (`ibv_srq_pingpong` does). The provider knows at once, so what it says is held back for that time.

use std::time::{Duration, Instant};

use slab::Slab;

use super::{Failure, PATIENCE, Qp};
use crate::engine::cq::Cq;
use crate::sys::{IBV_WC_RETRY_EXC_ERR, ibv_qp_attr};

/// For how long a device would repeat a request of a queue pair with these attributes (`ibv_modify_qp(3)`), at most
/// [`PATIENCE`]. A timeout of 0, with which it would never end, is that.
pub(super) fn patience(attr: &ibv_qp_attr) -> Duration {
    if attr.timeout == 0 {
        return PATIENCE;
    }
    // 4.096 us times 2 to the power of the timeout, which has 5 bits.
    let once = Duration::from_nanos(4096 << (attr.timeout & 0x1f));
    (once * (u32::from(attr.retry_cnt & 7) + 1)).min(PATIENCE)
}

impl Failure {
    /// Whether it says that the peer is gone.
    const fn is_of_peer(self) -> bool {
        matches!(self, Self::PeerGone | Self::Send(_, IBV_WC_RETRY_EXC_ERR))
    }
}

impl Qp {
    /// Fails, now or, where the peer is gone, once a device would say so.
    pub(super) fn fail_in_time(&mut self, failure: Failure, cqs: &mut Slab<Cq>) {
        if self.is_ud() || !failure.is_of_peer() {
            return self.fail(failure, cqs);
        }
        self.failing = None;
        let until = || Instant::now() + patience(&self.attr);
        self.give_up_at.get_or_insert_with(until);
        self.retire(cqs);
    }

    /// Whether its peer is gone and the program was not told yet.
    pub(crate) const fn is_peer_gone(&self) -> bool {
        self.give_up_at.is_some()
    }

    /// Tells the program that the peer is gone, if it is time: the oldest request to send has
    /// failed, and all behind it is flushed.
    pub(crate) fn give_up(&mut self, now: Instant, cqs: &mut Slab<Cq>) {
        if self.give_up_at.is_some_and(|until| until <= now) {
            self.fail(Failure::PeerGone, cqs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_that_of_a_device_up_to_a_second() {
        let of = |timeout, retry_cnt| {
            patience(&ibv_qp_attr {
                timeout,
                retry_cnt,
                ..ibv_qp_attr::default()
            })
        };
        assert_eq!(of(14, 7), Duration::from_nanos(8 * (4096 << 14)));
        assert_eq!(of(1, 0), Duration::from_nanos(8192));
        assert_eq!(of(0, 0), PATIENCE);
        assert_eq!(of(31, 7), PATIENCE);
        assert_eq!(of(u8::MAX, u8::MAX), PATIENCE);
    }
}
