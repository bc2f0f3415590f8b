//! Connections over the loopback interface, for the socket tests.
#![allow(dead_code)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ripstop_os::{Connect, Epoll, Events, Interest, Socket};

pub(crate) const V4: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
pub(crate) const V6: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 0);

/// The loopback addresses this machine has.
pub(crate) fn loopbacks() -> Vec<SocketAddr> {
    let mut addrs = vec![V4];
    if Socket::tcp_bound(&V6, None).is_ok() {
        addrs.push(V6);
    } else {
        eprintln!("no IPv6 on the loopback interface: IPv4 only");
    }
    addrs
}

/// Waits until `socket` is ready for `interest`, at most a minute.
pub(crate) fn ready(socket: &Socket, interest: Interest) {
    let epoll = Epoll::new().unwrap();
    epoll.add(socket, 1, interest).unwrap();
    let mut events = Events::with_capacity(1);
    let n = epoll.wait(&mut events, Some(Duration::from_secs(60)));
    assert_eq!(n, Ok(1), "nothing happened");
}

/// Connects to `addr` and waits until the attempt has ended.
pub(crate) fn connect(
    addr: &SocketAddr,
    bind: Option<SocketAddr>,
) -> ripstop_types::Result<Socket> {
    let (socket, state) = Socket::connect(addr, bind)?;
    if state == Connect::Connecting {
        ready(&socket, Interest::WRITE);
    }
    socket.take_error().map(|()| socket)
}

/// The two ends of a connection: the one that asked and the one that accepted.
pub(crate) fn pair(on: &SocketAddr) -> (Socket, Socket) {
    let listener = Socket::tcp_listener(on, None, 8).unwrap();
    let client = connect(&listener.local_addr().unwrap(), None).unwrap();
    ready(&listener, Interest::READ);
    let (server, _) = listener.accept().unwrap().unwrap();
    (client, server)
}
