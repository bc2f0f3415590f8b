#![allow(unsafe_code)]
//! What the kernel knows of a connection (`TCP_INFO`), which neither `rustix` nor `nix` has.

use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::time::Duration;

use ripstop_types::Result;

use super::Socket;
use crate::errno::last_errno;

/// So many repetitions, each after twice the time of the one before, are lost by a network that
/// drops a packet now and then once in a blue moon.
const REPEATED: u8 = 4;

/// Repetitions, or questions, upon none of which anything came: told of, nothing ends by it.
const SUSPECT: u8 = 2;

/// Questions for room at a peer that had none, which a peer that lives answers.
const ASKED: u8 = 3;

/// The kernel's account of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpAccount {
    /// Bytes that the peer's system has acknowledged since the connection was made.
    pub acknowledged: u64,
    /// Bytes that have come from it.
    pub received: u64,
    /// For how long nothing has come from the other machine, although bytes or probes were sent again
    /// and again: the network does not carry them. `None` as long as it seems to.
    pub silence: Option<Duration>,
}

impl Socket {
    /// Bytes that the kernel has taken and not sent yet, because the peer's system has no room for
    /// them or the network is not that fast.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt(2)`.
    pub fn not_sent(&self) -> Result<usize> {
        Ok(self.tcp_info()?.tcpi_notsent_bytes as usize)
    }

    /// Whether bytes were sent again and again, or room for them was asked for, and the other machine
    /// has acknowledged nothing for `time`. Keep-alive does not see that: its probes are sent only
    /// while nothing else waits for an answer. A peer that lives and does not read acknowledges what
    /// the system asks; `TCP_USER_TIMEOUT` would end that as well.
    #[must_use]
    pub fn is_unanswered(&self, time: Duration) -> bool {
        self.tcp_info().is_ok_and(|info| {
            let asked = info.tcpi_retransmits >= REPEATED || info.tcpi_probes >= ASKED;
            asked && Duration::from_millis(info.tcpi_last_ack_recv.into()) >= time
        })
    }

    /// What has gone over the connection, and whether the network still carries it.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt(2)`.
    pub fn account(&self) -> Result<TcpAccount> {
        let info = self.tcp_info()?;
        let asked = info.tcpi_retransmits >= SUSPECT || info.tcpi_probes >= SUSPECT;
        let silence = || Duration::from_millis(info.tcpi_last_ack_recv.into());
        Ok(TcpAccount {
            acknowledged: info.tcpi_bytes_acked,
            received: info.tcpi_bytes_received,
            silence: asked.then(silence),
        })
    }

    /// The kernel's account; what an older one leaves out is 0.
    fn tcp_info(&self) -> Result<libc::tcp_info> {
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
            return Err(last_errno());
        }
        // SAFETY: zeroes are a value of it, and so is what the system has written over them.
        Ok(unsafe { info.assume_init() })
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
        assert_eq!(socket.account().unwrap().silence, None);
    }

    #[test]
    fn the_account_counts_what_has_gone_each_way() {
        let listener = Socket::tcp_listener(&([127, 0, 0, 1], 0).into(), None, 1).unwrap();
        let (near, _) = Socket::connect(&listener.local_addr().unwrap(), None).unwrap();
        let accepted = std::iter::repeat_with(|| listener.accept().unwrap());
        let (far, _) = accepted.flatten().next().unwrap();
        let before = near.account().unwrap();
        assert_eq!(far.send(&[0; 100]), Ok(100));
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while far.account().unwrap().acknowledged < 100 {
            assert!(std::time::Instant::now() < end, "the kernel has it");
        }
        let after = near.account().unwrap();
        assert_eq!(after.received - before.received, 100);
    }
}
