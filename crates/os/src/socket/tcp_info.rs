#![allow(unsafe_code)]
//! Peers whose machine says nothing any more.

use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::Socket;

/// So many repetitions, each after twice the time of the one before, are lost by a network that
/// drops a packet now and then once in a blue moon.
const REPEATED: u8 = 4;

/// Questions for room at a peer that had none, which a peer that lives answers.
const ASKED: u8 = 3;

impl Socket {
    /// Whether bytes were sent again and again, or room for them was asked for, and the other machine
    /// has acknowledged nothing for `time` (`TCP_INFO`). Keep-alive does not see that: its probes
    /// are sent only while nothing else waits for an answer. A peer that lives and does not read
    /// acknowledges what the system asks; `TCP_USER_TIMEOUT` would end that as well.
    #[must_use]
    pub fn is_unanswered(&self, time: Duration) -> bool {
        let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
        let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: `info` is writable for `len` bytes and outlives the call.
        let code = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        if code != 0 {
            return false;
        }
        // SAFETY: zeroes are a value of it, and so is what the system has written over them.
        let info = unsafe { info.assume_init() };
        let asked = info.tcpi_retransmits >= REPEATED || info.tcpi_probes >= ASKED;
        asked && Duration::from_millis(info.tcpi_last_ack_recv.into()) >= time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_with_nothing_to_answer_is_not_unanswered() {
        let listener = Socket::tcp_listener(&([127, 0, 0, 1], 0).into(), None, 1).unwrap();
        let (socket, _) = Socket::connect(&listener.local_addr().unwrap(), None).unwrap();
        assert!(!socket.is_unanswered(Duration::ZERO));
    }
}
