//! Which connection an RDM endpoint uses for a peer, when either side may start one.
//!
//! Both sides may connect at once, a peer may restart under its old address, and an endpoint
//! may send to itself. The rules are those of the C library, so that both ends of a mixed
//! pair come to the same answer: of two simultaneous requests the one of the higher address
//! (as the C library compares addresses) survives; a request from the process at the other
//! end of a connection in use is refused; a request from another process replaces it.

use core::cmp::Ordering;

/// How far the connection to a peer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is none.
    None,
    /// This side asked, and has no answer yet.
    Asking,
    /// It is up. The peer's process id, if it is known.
    Up {
        /// Process id of the peer at the other end.
        pid: Option<u32>,
    },
}

/// What to do with a connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Accept it; there is nothing in its way.
    Accept,
    /// Accept it and drop this side's own attempt; what waits for that goes over to it.
    AcceptInstead,
    /// Accept it and close the old connection, whose peer is gone.
    Replace,
    /// Accept it as the receiving end of a connection to this endpoint itself.
    Loopback,
    /// Refuse it: this side's connection is the one to be used.
    Refuse,
}

/// Decides on a request from `peer_pid`. `peer_to_self` compares the peer's address with this
/// endpoint's own.
#[must_use]
pub fn decide(progress: Progress, peer_to_self: Ordering, peer_pid: u32) -> Decision {
    match (progress, peer_to_self) {
        (Progress::None, _) => Decision::Accept,
        (Progress::Asking, Ordering::Less) => Decision::Refuse,
        (Progress::Asking, Ordering::Greater) => Decision::AcceptInstead,
        (Progress::Asking, Ordering::Equal) => Decision::Loopback,
        (Progress::Up { pid }, _) => match pid {
            None => Decision::Refuse,
            Some(pid) if pid == peer_pid => Decision::Refuse,
            Some(_) => Decision::Replace,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_of_two_simultaneous_requests_survives() {
        for (a, b) in [(1, 2), (2, 1)] {
            let at_b = decide(Progress::Asking, a.cmp(&b), 10);
            let at_a = decide(Progress::Asking, b.cmp(&a), 11);
            assert_ne!(at_a, at_b);
            assert!([at_a, at_b].contains(&Decision::Refuse));
            assert!([at_a, at_b].contains(&Decision::AcceptInstead));
        }
    }

    #[test]
    fn a_restarted_peer_replaces_its_old_connection() {
        let up = Progress::Up { pid: Some(7) };
        assert_eq!(decide(up, Ordering::Less, 8), Decision::Replace);
        assert_eq!(decide(up, Ordering::Less, 7), Decision::Refuse);
    }

    #[test]
    fn an_endpoint_may_connect_to_itself() {
        assert_eq!(
            decide(Progress::Asking, Ordering::Equal, 7),
            Decision::Loopback
        );
    }
}
