//! Options of a socket.

use std::time::Duration;

use ripstop_types::Result;
use rustix::net::{AddressFamily, sockopt};

use super::Socket;
use crate::errno::errno;

/// When a silent peer is probed, and when it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe; whole seconds, at least 1.
    pub idle: Duration,
    /// Time between probes; whole seconds, at least 1.
    pub interval: Duration,
    /// Probes without an answer before the connection is lost with `ETIMEDOUT`.
    pub count: u32,
}

impl Socket {
    /// Sends small messages at once instead of collecting them (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// Those of `setsockopt(2)`.
    pub fn set_nodelay(&self, on: bool) -> Result<()> {
        sockopt::set_tcp_nodelay(&self.0, on).map_err(errno)
    }

    /// Probes a silent peer, or does not (`SO_KEEPALIVE`).
    ///
    /// # Errors
    ///
    /// `EINVAL` for times or counts the kernel does not take, and the others of
    /// `setsockopt(2)`.
    pub fn set_keepalive(&self, keepalive: Option<Keepalive>) -> Result<()> {
        if let Some(keepalive) = keepalive {
            sockopt::set_tcp_keepidle(&self.0, keepalive.idle).map_err(errno)?;
            sockopt::set_tcp_keepintvl(&self.0, keepalive.interval).map_err(errno)?;
            sockopt::set_tcp_keepcnt(&self.0, keepalive.count).map_err(errno)?;
        }
        sockopt::set_socket_keepalive(&self.0, keepalive.is_some()).map_err(errno)
    }

    /// How long sent bytes may stay unacknowledged before the connection is lost with
    /// `ETIMEDOUT`; zero is the kernel's default (`TCP_USER_TIMEOUT`, milliseconds).
    ///
    /// # Errors
    ///
    /// Those of `setsockopt(2)`.
    pub fn set_user_timeout(&self, timeout: Duration) -> Result<()> {
        let millis = u32::try_from(timeout.as_millis()).unwrap_or(i32::MAX as u32);
        sockopt::set_tcp_user_timeout(&self.0, millis).map_err(errno)
    }

    /// The type of service of the packets: `IP_TOS`, or the traffic class of IPv6.
    ///
    /// # Errors
    ///
    /// Those of `setsockopt(2)`.
    pub fn set_tos(&self, tos: u8) -> Result<()> {
        match sockopt::socket_domain(&self.0).map_err(errno)? {
            AddressFamily::INET6 => sockopt::set_ipv6_tclass(&self.0, tos.into()),
            _ => sockopt::set_ip_tos(&self.0, tos),
        }
        .map_err(errno)
    }

    /// What [`Socket::set_tos`] has set.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt(2)`.
    pub fn tos(&self) -> Result<u8> {
        match sockopt::socket_domain(&self.0).map_err(errno)? {
            AddressFamily::INET6 => {
                sockopt::ipv6_tclass(&self.0).map(|class| u8::try_from(class).unwrap_or(u8::MAX))
            }
            _ => sockopt::ip_tos(&self.0),
        }
        .map_err(errno)
    }

    /// How the kernel finds out what the network bears (`TCP_CONGESTION`): `reno`, which every
    /// kernel has and everybody may choose, or another name that it knows. Connections that a
    /// listening socket accepts start with its choice.
    ///
    /// # Errors
    ///
    /// `ENOENT` for one that is not there, `EPERM` for one that not everybody may choose, and the
    /// others of `setsockopt(2)`.
    pub fn set_congestion(&self, name: &str) -> Result<()> {
        sockopt::set_tcp_congestion(&self.0, name).map_err(errno)
    }

    /// What [`Socket::set_congestion`] has set, or the system's choice.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt(2)`.
    pub fn congestion(&self) -> Result<String> {
        sockopt::tcp_congestion(&self.0).map_err(errno)
    }

    /// Asks for `bytes` of room to send (`SO_SNDBUF`). The kernel keeps to its own limits and
    /// no longer adapts the size itself.
    ///
    /// # Errors
    ///
    /// Those of `setsockopt(2)`.
    pub fn set_send_buffer(&self, bytes: usize) -> Result<()> {
        sockopt::set_socket_send_buffer_size(&self.0, clamp(bytes)).map_err(errno)
    }

    /// Asks for `bytes` of room to receive (`SO_RCVBUF`). The kernel keeps to its own limits
    /// and no longer adapts the size itself.
    ///
    /// # Errors
    ///
    /// Those of `setsockopt(2)`.
    pub fn set_recv_buffer(&self, bytes: usize) -> Result<()> {
        sockopt::set_socket_recv_buffer_size(&self.0, clamp(bytes)).map_err(errno)
    }

    /// The room to send, in bytes, as the kernel counts it.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt(2)`.
    pub fn send_buffer(&self) -> Result<usize> {
        sockopt::socket_send_buffer_size(&self.0).map_err(errno)
    }

    /// The room to receive, in bytes, as the kernel counts it.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt(2)`.
    pub fn recv_buffer(&self) -> Result<usize> {
        sockopt::socket_recv_buffer_size(&self.0).map_err(errno)
    }
}

/// The kernel takes sizes as a C `int`.
fn clamp(bytes: usize) -> usize {
    bytes.min(i32::MAX as usize)
}
