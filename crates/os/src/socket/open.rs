//! Listening, accepting and connecting.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::SocketAddr;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::IpBindAddressNoPort;
use ripstop_types::{Errno, Result};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use super::{Socket, inet};
use crate::errno::errno;

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// The ports a listener may use, both ends included (`FI_TCP_PORT_LOW_RANGE` and
/// `FI_TCP_PORT_HIGH_RANGE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    low: u16,
    high: u16,
}

impl PortRange {
    /// The ports from `low` to `high`, or `None` if `low` is 0 or above `high`.
    #[must_use]
    pub const fn new(low: u16, high: u16) -> Option<Self> {
        if low == 0 || low > high {
            return None;
        }
        Some(Self { low, high })
    }

    /// The lowest port.
    #[must_use]
    pub const fn low(self) -> u16 {
        self.low
    }

    /// The highest port.
    #[must_use]
    pub const fn high(self) -> u16 {
        self.high
    }

    /// Every port once, from a random one upwards and around.
    fn ports(self) -> impl Iterator<Item = u16> {
        let count = u64::from(self.high - self.low) + 1;
        // A hasher with fresh random keys is the standard library's source of randomness.
        let start = RandomState::new().hash_one(()) % count;
        (0..count).map(move |i| self.low + ((start + i) % count) as u16)
    }
}

/// How far [`Socket::connect`] has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connect {
    /// The attempt goes on: it has ended when the socket is writable, and
    /// [`Socket::take_error`] says how.
    Connecting,
    /// The connection is made.
    Connected,
}

impl Socket {
    /// A socket bound to `addr`, ready for [`listen`](Self::listen). With port 0 in `addr` the
    /// port comes from `range`, or from the kernel if there is none.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if the port is taken, `EADDRNOTAVAIL` if every port of the range is or the
    /// address is not of this machine, `EACCES` for a privileged port, `EMFILE`, and the others
    /// of `bind(2)`.
    pub fn tcp_bound(addr: &SocketAddr, range: Option<PortRange>) -> Result<Self> {
        match range {
            Some(range) if addr.port() == 0 => Self::bound_in(*addr, range),
            _ => Self::bound_at(addr, true),
        }
    }

    /// A bound and listening socket: [`tcp_bound`](Self::tcp_bound) and
    /// [`listen`](Self::listen).
    ///
    /// # Errors
    ///
    /// Those of the two.
    pub fn tcp_listener(addr: &SocketAddr, range: Option<PortRange>, backlog: i32) -> Result<Self> {
        let socket = Self::tcp_bound(addr, range)?;
        socket.listen(backlog)?;
        Ok(socket)
    }

    /// Starts to take connections; up to `backlog` of them wait for [`accept`](Self::accept)
    /// (the kernel's `somaxconn` caps it).
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if another socket listens on the port, and the others of `listen(2)`.
    pub fn listen(&self, backlog: i32) -> Result<()> {
        net::listen(&self.0, backlog).map_err(errno)
    }

    /// Takes a connection that waits, with the peer's address, or `None` if none does.
    /// Connections that broke while they waited are passed over.
    ///
    /// # Errors
    ///
    /// `EMFILE` or `ENFILE` without a free descriptor, `ENOMEM`, `ENOBUFS`: the connection goes
    /// on waiting. `EINVAL` if the socket does not listen.
    pub fn accept(&self) -> Result<Option<(Self, SocketAddr)>> {
        use rustix::io::Errno as E;
        loop {
            match net::acceptfrom_with(&self.0, FLAGS) {
                Ok((fd, Some(addr))) => return Ok(Some((Self(fd), inet(addr)?))),
                Err(E::AGAIN) => return Ok(None),
                // No address: the peer is gone again. The others are errors of the new
                // connection, which accept(2) says to treat like a wait.
                Ok((_, None))
                | Err(E::INTR | E::CONNABORTED | E::PROTO | E::NETDOWN | E::NOPROTOOPT)
                | Err(E::HOSTDOWN | E::NONET | E::HOSTUNREACH | E::OPNOTSUPP | E::NETUNREACH) => {}
                Err(err) => return Err(errno(err)),
            }
        }
    }

    /// Starts a connection to `dest`, from `bind` if given. Port 0 in `bind` is chosen for this
    /// destination, so that sockets to other destinations may share it.
    ///
    /// # Errors
    ///
    /// What the kernel knows at once: `ENETUNREACH`, `ECONNREFUSED`, `EADDRNOTAVAIL`, `EMFILE`
    /// and the others of `socket(2)`, `bind(2)` and `connect(2)`.
    pub fn connect(dest: &SocketAddr, bind: Option<SocketAddr>) -> Result<(Self, Connect)> {
        Self::tcp_for(dest, bind)?.connect_to(dest)
    }

    /// A socket to connect to `dest`, bound as [`connect`](Self::connect) does it.
    ///
    /// # Errors
    ///
    /// Those of `socket(2)` and `bind(2)`.
    pub fn tcp_for(dest: &SocketAddr, bind: Option<SocketAddr>) -> Result<Self> {
        let socket = Self::stream(dest)?;
        if let Some(addr) = bind {
            if addr.port() == 0 {
                // The port is chosen by `connect`; without that, a machine has as many connections
                // as ephemeral ports. Kernels before 4.2 lack it: no error.
                let _ = setsockopt(&socket.0, IpBindAddressNoPort, &true);
            } else {
                sockopt::set_socket_reuseaddr(&socket.0, true).map_err(errno)?;
            }
            net::bind(&socket.0, &addr).map_err(errno)?;
        }
        Ok(socket)
    }

    /// Starts a connection from a socket that is there already ([`tcp_bound`](Self::tcp_bound),
    /// [`tcp_for`](Self::tcp_for)) and does not listen.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), and `EISCONN` if it listens.
    pub fn connect_to(self, dest: &SocketAddr) -> Result<(Self, Connect)> {
        match net::connect(&self.0, dest) {
            Ok(()) => Ok((self, Connect::Connected)),
            // An interrupted connect goes on in the background, as a non-blocking one does.
            Err(rustix::io::Errno::INPROGRESS | rustix::io::Errno::INTR) => {
                Ok((self, Connect::Connecting))
            }
            Err(err) => Err(errno(err)),
        }
    }

    /// An unbound stream socket of the family of `addr`.
    fn stream(addr: &SocketAddr) -> Result<Self> {
        let family = match addr {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        net::socket_with(family, SocketType::STREAM, FLAGS, Some(ipproto::TCP))
            .map(Self)
            .map_err(errno)
    }

    /// A socket bound to exactly `addr`. With `reuse`, connections that linger from an earlier
    /// listener on the port do not matter.
    fn bound_at(addr: &SocketAddr, reuse: bool) -> Result<Self> {
        let socket = Self::stream(addr)?;
        if reuse {
            sockopt::set_socket_reuseaddr(&socket.0, true).map_err(errno)?;
        }
        net::bind(&socket.0, addr).map_err(errno)?;
        // What lingers of this listener's connections must not block its successor either.
        sockopt::set_socket_reuseaddr(&socket.0, true).map_err(errno)?;
        Ok(socket)
    }

    /// A socket bound to a free port of `range`. Ports that are quite free come first: with
    /// address reuse, the kernel would let two sockets have one port until both listen.
    fn bound_in(mut addr: SocketAddr, range: PortRange) -> Result<Self> {
        for reuse in [false, true] {
            for port in range.ports() {
                addr.set_port(port);
                match Self::bound_at(&addr, reuse) {
                    Err(Errno::EADDRINUSE) => {}
                    result => return result,
                }
            }
        }
        Err(Errno::EADDRNOTAVAIL)
    }
}
