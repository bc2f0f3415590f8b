//! Stream sockets: never blocking, closed on `exec` and on drop.

mod data;
mod open;
mod options;
mod spare;
mod tcp_info;
mod unix;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ripstop_types::{Errno, Result};
use rustix::net::SocketAddrAny;

use crate::errno::{errno, retry};

/// Which direction of a connection to close: after `Write` the peer reads the end of the stream.
pub use rustix::net::Shutdown;

pub use open::{Connect, PortRange};
pub use options::Keepalive;
pub use spare::Spare;
pub use tcp_info::TcpAccount;
pub use unix::{MAX_DESCRIPTORS, MAX_UNIX_NAME, Peer};

/// A non-blocking stream socket, TCP over IPv4 or IPv6 or within the machine: a listener, a
/// connection, or on its way to be one.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// The address it is bound to.
    ///
    /// # Errors
    ///
    /// Those of `getsockname(2)`.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        inet(rustix::net::getsockname(&self.0).map_err(errno)?)
    }

    /// The address it is connected to.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if it is not connected, and the others of `getpeername(2)`.
    pub fn peer_addr(&self) -> Result<SocketAddr> {
        let addr = rustix::net::getpeername(&self.0).map_err(errno)?;
        inet(addr.ok_or(Errno::ENOTCONN)?)
    }

    /// Takes the error that has happened in the background, as an error: how a connection
    /// attempt ended, or why the connection was lost.
    ///
    /// # Errors
    ///
    /// The error taken (`ECONNREFUSED`, `ETIMEDOUT`, ...); taking it clears it.
    pub fn take_error(&self) -> Result<()> {
        rustix::net::sockopt::socket_error(&self.0)
            .map_err(errno)?
            .map_err(errno)
    }

    /// Closes one direction or both; the descriptor stays open until the drop.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if it is not connected (any more).
    pub fn shutdown(&self, how: Shutdown) -> Result<()> {
        retry(|| rustix::net::shutdown(&self.0, how))
    }
}

/// The Internet address in an answer of the kernel.
fn inet(addr: SocketAddrAny) -> Result<SocketAddr> {
    SocketAddr::try_from(addr).map_err(|_| Errno::EAFNOSUPPORT)
}

impl AsFd for Socket {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.0
    }
}
