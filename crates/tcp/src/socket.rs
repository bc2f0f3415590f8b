//! TCP as a transport.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ripstop_os::{Connect, IoVec, IoVecMut, Shutdown, Socket, Spare, clock};
use ripstop_stream::{
    Account, EpollOnly, HandshakeError, Link, Listener, Origin, Os, Traffic, Transport, bind, xnet,
};
use ripstop_types::Result;
use ripstop_wire::xnet::rdm::Greeting;

use crate::params::{KEEPALIVE, NAME, Params, SILENCE};
use crate::row;

/// TCP, over IPv4 and IPv6.
#[derive(Debug)]
pub struct Tcp;

/// A socket: one end of a connection, or a listener.
#[derive(Debug)]
pub struct TcpSocket(pub(crate) Socket);

impl AsFd for TcpSocket {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Transport for Tcp {
    const NAME: &'static str = NAME;
    const AFTER_READS: bool = false;
    const KNOWS_FIREWALLS: bool = true;
    type Params = Params;
    type Addr = SocketAddr;
    type Link = TcpSocket;
    type Listener = TcpSocket;
    type System = Os;
    type Readiness = EpollOnly;

    fn is_firewalled(params: &Params) -> bool {
        params.firewall_addr
    }

    fn default_source(params: &Params) -> SocketAddr {
        let all = params.addresses().unwrap_or_default();
        let first = all.first().map(|local| local.addr);
        first.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    fn bind(params: &Params, addr: &SocketAddr) -> Result<TcpSocket> {
        let socket = Socket::tcp_bound(addr, params.range_for(addr))?;
        // What is accepted here comes from this machine.
        if addr.ip().is_loopback() {
            use_reno(&socket);
        }
        Ok(TcpSocket(socket))
    }

    fn bind_contexts(params: &Params, addr: &SocketAddr, count: usize) -> Result<Vec<TcpSocket>> {
        let first = || bind::<Self>(params, addr).map(|socket| socket.0);
        let row = row::bind_contexts(addr, count, first)?;
        Ok(row.into_iter().map(TcpSocket).collect())
    }

    fn connect(_: &Params, to: &SocketAddr, from: Origin<Self>) -> Result<(TcpSocket, Connect)> {
        connect(to, from)
    }

    fn prepare(params: &Params, link: &TcpSocket, dscp: Option<u8>) -> Result<()> {
        if let Some(dscp) = dscp {
            // The lower two bits are for congestion notification.
            link.0.set_tos(dscp << 2)?;
        }
        if params.nodelay {
            link.0.set_nodelay(true)?;
        }
        link.0.set_keepalive(Some(KEEPALIVE))
    }

    fn request_data(
        _: &Params,
        _: &mut EpollOnly,
        _: &TcpSocket,
        own: &SocketAddr,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        Ok(xnet::request_data(own, greeting))
    }

    fn read_request(
        _: &Params,
        _: &mut EpollOnly,
        _: &TcpSocket,
        from: &SocketAddr,
        data: &[u8],
    ) -> core::result::Result<(Greeting, SocketAddr), HandshakeError> {
        xnet::read_request(from, data)
    }
}

/// [`Transport::connect`] of all transports over these sockets.
pub(crate) fn connect<T>(to: &SocketAddr, from: Origin<T>) -> Result<(TcpSocket, Connect)>
where
    T: Transport<Addr = SocketAddr, Listener = TcpSocket>,
{
    let near = |source: SocketAddr| {
        let fits = !source.ip().is_unspecified() && source.is_ipv4() == to.is_ipv4();
        fits.then_some(source)
    };
    let socket = match from {
        Origin::Bound(TcpSocket(socket)) => socket,
        Origin::Listening(at) => Socket::tcp_for(to, near(SocketAddr::new(at.ip(), 0)))?,
        Origin::Address(source) => Socket::tcp_for(to, source.and_then(near))?,
    };
    tune_if_local(&socket, to);
    let (socket, progress) = socket.connect_to(to)?;
    Ok((TcpSocket(socket), progress))
}

/// Reads at most that drop what a socket to be closed still holds.
const MAX_DRAIN_READS: u32 = 64;

impl Link for TcpSocket {
    type InPlace = ();
    type Direct = ();
    type Joint = ();
    type Registering = ();

    type Addr = SocketAddr;

    const CHECKS_PEER: bool = true;

    fn is_unanswered(&self) -> bool {
        self.0.is_unanswered(SILENCE)
    }

    fn account(&self) -> Account {
        let Ok(known) = self.0.account() else {
            return Account::default();
        };
        Account {
            traffic: Some(Traffic {
                unit: "bytes",
                sent: known.acknowledged,
                received: known.received,
            }),
            silence: known.silence,
        }
    }

    #[inline(always)]
    fn send(&self, bytes: &[u8]) -> Result<usize> {
        self.0.send(bytes)
    }

    #[inline(always)]
    fn send_held(&self, bytes: &[u8]) -> Result<usize> {
        self.0.send_held(bytes)
    }

    fn has_room(&self) -> bool {
        // What cannot be asked shows when it is written.
        self.0.has_room().unwrap_or(true)
    }

    fn push(&self) {
        // It fails only where the socket is gone, which the next read tells.
        let _ = self.0.push();
    }

    #[inline(always)]
    fn sendv(&self, vecs: &[IoVec<'_>]) -> Result<usize> {
        self.0.sendv(vecs)
    }

    #[inline(always)]
    fn recv(&self, bytes: &mut [u8]) -> Result<usize> {
        self.0.recv(bytes)
    }

    #[inline(always)]
    fn recv_once(&self, bytes: &mut [u8]) -> Result<usize> {
        self.0.recv_once(bytes)
    }

    #[inline(always)]
    fn recvv(&self, vecs: &mut [IoVecMut<'_>]) -> Result<usize> {
        self.0.recvv(vecs)
    }

    /// Closing a socket with bytes that were not read resets the connection, and what the peer's
    /// system has not taken by then is lost.
    fn await_delivery(&self, end: Duration, scrap: &mut [u8]) {
        while self.0.not_sent().is_ok_and(|bytes| bytes > 0) && clock::now() < end {
            let waits = !matches!(self.0.recv(scrap), Ok(1..));
            if waits {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        for _ in 0..MAX_DRAIN_READS {
            if !matches!(self.0.recv(scrap), Ok(1..)) {
                break;
            }
        }
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        self.0.shutdown(how)
    }

    fn take_error(&self) -> Result<()> {
        self.0.take_error()
    }

    fn is_connected(&self) -> bool {
        self.0.peer_addr().is_ok()
    }

    fn local_addr(&self) -> Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Listener for TcpSocket {
    type Link = Self;
    type Addr = SocketAddr;

    fn local_addr(&self) -> Result<SocketAddr> {
        self.0.local_addr()
    }

    fn listen(&self, backlog: i32) -> Result<()> {
        self.0.listen(backlog)
    }

    fn stop(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }

    fn accept(&self) -> Result<Option<(Self, SocketAddr)>> {
        let accepted = self.0.accept()?;
        Ok(accepted.map(|(socket, peer)| {
            tune_if_local(&socket, &peer);
            (Self(socket), peer)
        }))
    }

    fn turn_away(&self, spare: &mut Spare) -> Option<SocketAddr> {
        spare.turn_away(&self.0)
    }
}

/// Has a socket use the congestion control `reno`. Between processes of one machine there is no network whose load is to be found out. What the
/// system chooses for those that have one may pace the sender by a timer and keep its window
/// small: with `bbr`, parts of a large message then leave when the receiver's acknowledgements
/// come, on the processor of the receiver, in another order than they were written, and some
/// twice. How much varies by run, and so does the bandwidth.
fn use_reno(socket: &Socket) {
    // Where the system lacks it, its default stays.
    let _ = socket.set_congestion("reno");
}

/// See [`use_reno`]: for a socket that is or will be connected to `peer`.
fn tune_if_local(socket: &Socket, peer: &SocketAddr) {
    let peer = peer.ip();
    let is_here = |own: SocketAddr| own.ip() == peer;
    if peer.is_loopback() || socket.local_addr().is_ok_and(is_here) {
        use_reno(socket);
    }
}

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
#[cfg(test)]
mod polled_tests;
#[cfg(test)]
mod tests;
