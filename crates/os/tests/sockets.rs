//! Making connections, over IPv4 and IPv6 on the loopback interface.

mod common;

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use common::{V4, connect, loopbacks, pair, ready};
use ripstop_os::{Connect, Interest, Keepalive, PortRange, Socket, Spare};
use ripstop_types::Errno;

#[test]
fn both_ends_know_each_other() {
    for on in loopbacks() {
        let listener = Socket::tcp_listener(&on, None, 8).unwrap();
        let addr = listener.local_addr().unwrap();
        assert_eq!(addr.ip(), on.ip());
        assert_ne!(addr.port(), 0);
        assert!(listener.accept().unwrap().is_none());

        let client = connect(&addr, None).unwrap();
        ready(&listener, Interest::READ);
        let (server, peer) = listener.accept().unwrap().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        assert_eq!(server.peer_addr(), Ok(peer));
        assert_eq!(server.local_addr(), Ok(addr));
        assert_eq!(client.peer_addr(), Ok(addr));
        assert!(listener.accept().unwrap().is_none());
    }
}

/// The address of a port on which nobody listens.
fn dead_port(on: &SocketAddr) -> (Socket, SocketAddr) {
    // Bound without listening, so that nobody else gets the port meanwhile.
    let holder = Socket::tcp_bound(on, None).unwrap();
    let addr = holder.local_addr().unwrap();
    (holder, addr)
}

#[test]
fn nobody_listens() {
    for on in loopbacks() {
        let (_holder, addr) = dead_port(&on);
        assert_eq!(connect(&addr, None).err(), Some(Errno::ECONNREFUSED));
    }
}

#[test]
fn an_error_is_taken_once() {
    let (_holder, addr) = dead_port(&V4);
    // A refusal may come at once instead.
    if let Ok((socket, Connect::Connecting)) = Socket::connect(&addr, None) {
        ready(&socket, Interest::WRITE);
        assert_eq!(socket.take_error(), Err(Errno::ECONNREFUSED));
        assert_eq!(socket.take_error(), Ok(()));
        assert_eq!(socket.peer_addr(), Err(Errno::ENOTCONN));
    }
}

#[test]
fn the_source_can_be_chosen() {
    let listener = Socket::tcp_listener(&V4, None, 8).unwrap();
    let addr = listener.local_addr().unwrap();
    let source: SocketAddr = "127.0.0.5:0".parse().unwrap();
    let client = connect(&addr, Some(source)).unwrap();
    let local = client.local_addr().unwrap();
    assert_eq!(local.ip(), source.ip());
    assert_ne!(local.port(), 0);

    let (_holder, fixed) = dead_port(&source);
    let client = connect(&addr, Some(fixed)).unwrap();
    assert_eq!(client.local_addr(), Ok(fixed));
}

#[test]
fn foreign_addresses_cannot_be_bound() {
    // 192.0.2.0/24 and 2001:db8::/32 are for documentation; .77 is nobody's.
    let foreign: SocketAddr = "192.0.2.77:0".parse().unwrap();
    let result = Socket::tcp_bound(&foreign, None);
    assert_eq!(result.err(), Some(Errno::EADDRNOTAVAIL));
    let (_holder, addr) = dead_port(&V4);
    let result = Socket::connect(&addr, Some(foreign));
    assert_eq!(result.err(), Some(Errno::EADDRNOTAVAIL));
}

#[test]
fn a_port_has_one_listener() {
    let first = Socket::tcp_listener(&V4, None, 1).unwrap();
    let addr = first.local_addr().unwrap();
    let second = Socket::tcp_listener(&addr, None, 1);
    assert_eq!(second.err(), Some(Errno::EADDRINUSE));
}

mod port_ranges {
    use super::*;

    #[test]
    fn only_real_ranges() {
        assert!(PortRange::new(0, 5).is_none());
        assert!(PortRange::new(9, 8).is_none());
        let range = PortRange::new(9, 9).unwrap();
        assert_eq!((range.low(), range.high()), (9, 9));
        assert!(PortRange::new(1, u16::MAX).is_some());
    }

    /// The `count` ports from the `at`-th on of the 40 that are this process's own: below the
    /// ephemeral ports and away from those of another run of these tests.
    fn range(at: u16, count: u16) -> PortRange {
        let low = 12_000 + (std::process::id() % 480) as u16 * 40 + at;
        PortRange::new(low, low + count - 1).unwrap()
    }

    #[test]
    fn every_port_is_used_then_none_is_left() {
        let range = range(0, 5);
        let mut listeners = Vec::new();
        let mut ports = Vec::new();
        while ports.len() < 6 {
            // Half of them only bound: two of those must not share a port either.
            let socket = Socket::tcp_bound(&V4, Some(range));
            let Ok(socket) = socket else { break };
            if ports.len() % 2 == 0 {
                socket.listen(1).unwrap();
            }
            ports.push(socket.local_addr().unwrap().port());
            listeners.push(socket);
        }
        ports.sort_unstable();
        ports.dedup();
        let all: Vec<u16> = (range.low()..=range.high()).collect();
        assert_eq!(ports, all, "one port each, all of the range");
    }

    #[test]
    fn a_range_full_of_listeners_is_an_error() {
        let range = range(5, 3);
        let listen = || Socket::tcp_listener(&V4, Some(range), 1);
        let _full = [listen().unwrap(), listen().unwrap(), listen().unwrap()];
        assert_eq!(listen().err(), Some(Errno::EADDRNOTAVAIL));
    }

    #[test]
    fn the_start_is_random() {
        let range = range(10, 20);
        let port = || {
            let socket = Socket::tcp_bound(&V4, Some(range)).unwrap();
            socket.local_addr().unwrap().port()
        };
        let first = port();
        assert!((0..20).any(|_| port() != first));
    }

    /// A server that restarts gets its port back, though connections of the old one linger.
    #[test]
    fn a_port_can_be_used_again_at_once() {
        for on in loopbacks() {
            let only = range(35, 1);
            let listener = Socket::tcp_listener(&on, Some(only), 1).unwrap();
            let addr = listener.local_addr().unwrap();
            let client = connect(&addr, None).unwrap();
            ready(&listener, Interest::READ);
            let server = listener.accept().unwrap().unwrap();
            // The side that closes first lingers.
            drop((server, listener));
            drop(client);
            drop(Socket::tcp_listener(&addr, None, 1).unwrap());
            drop(Socket::tcp_listener(&on, Some(only), 1).unwrap());
        }
    }

    #[test]
    fn a_port_of_ones_own_wins() {
        let mut addr = V4;
        addr.set_port(range(30, 1).low());
        let socket = Socket::tcp_bound(&addr, Some(range(31, 4))).unwrap();
        assert_eq!(socket.local_addr(), Ok(addr));
    }
}

#[test]
fn options_are_taken() {
    for on in loopbacks() {
        let (client, _server) = pair(&on);
        client.set_nodelay(true).unwrap();
        client.set_tos(0x10).unwrap();
        let keepalive = Keepalive {
            idle: Duration::from_secs(2),
            interval: Duration::from_secs(1),
            count: 3,
        };
        client.set_keepalive(Some(keepalive)).unwrap();
        client.set_keepalive(None).unwrap();
        let never = Keepalive {
            count: u32::MAX,
            ..keepalive
        };
        assert_eq!(client.set_keepalive(Some(never)), Err(Errno::EINVAL));
    }
}

#[test]
fn the_options_reach_the_kernel() {
    use rustix::net::sockopt;
    let (client, _server) = pair(&V4);
    client.set_nodelay(true).unwrap();
    client.set_tos(0x10).unwrap();
    client
        .set_keepalive(Some(Keepalive {
            idle: Duration::from_secs(7),
            interval: Duration::from_secs(2),
            count: 3,
        }))
        .unwrap();
    assert_eq!(sockopt::tcp_nodelay(&client), Ok(true));
    assert_eq!(sockopt::ip_tos(&client), Ok(0x10));
    assert_eq!(sockopt::socket_keepalive(&client), Ok(true));
    assert_eq!(sockopt::tcp_keepidle(&client), Ok(Duration::from_secs(7)));
    assert_eq!(sockopt::tcp_keepintvl(&client), Ok(Duration::from_secs(2)));
    assert_eq!(sockopt::tcp_keepcnt(&client), Ok(3));
}

#[test]
fn congestion_control_is_chosen_by_name() {
    let listener = Socket::tcp_listener(&V4, None, 8).unwrap();
    listener.set_congestion("reno").unwrap();
    assert_eq!(listener.congestion().as_deref(), Ok("reno"));
    let _client = connect(&listener.local_addr().unwrap(), None).unwrap();
    let (accepted, _) = listener.accept().unwrap().unwrap();
    assert_eq!(accepted.congestion().as_deref(), Ok("reno"));
    assert_eq!(accepted.set_congestion("no such thing"), Err(Errno::ENOENT));
}

#[test]
fn the_descriptor_can_be_given_away() {
    let socket = Socket::tcp_bound(&V4, None).unwrap();
    let raw = socket.as_fd().as_raw_fd();
    assert_eq!(OwnedFd::from(socket).as_raw_fd(), raw);
}

#[test]
fn a_spare_descriptor_turns_a_connection_away() {
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = Socket::tcp_listener(&any, None, 8).unwrap();
    let mut spare = Spare::new().unwrap();
    assert_eq!(spare.turn_away(&listener), None);
    let peer = connect(&listener.local_addr().unwrap(), None).unwrap();
    ready(&listener, Interest::READ);
    assert_eq!(spare.turn_away(&listener), peer.local_addr().ok());
    // The end of the stream is there for the peer to read.
    ready(&peer, Interest::READ);
    let mut byte = [0];
    assert_eq!(peer.recv(&mut byte), Ok(0));
    assert!(listener.accept().unwrap().is_none());
}
