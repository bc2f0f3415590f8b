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
}
