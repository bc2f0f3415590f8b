//! Controls and options of sockets and firewalls, `fi_tcp`(7), `fi_av`(3).

use std::net::TcpStream;

use ripstop_core::Address;
use ripstop_types::{Errno, Flags};

use super::c_edge;
use crate::case::{Cx, Outcome, Step, Stop, cases, offered, refused};
use crate::rig::{A, B, Rig, Spec, listening, prepare};
use crate::subject::{CEdge, EpOption, Event, Post};
use crate::{ensure, ensure_eq};

cases! {
    pub(super) const CASES;
    fi_endpoint {
        msg get_fd: "FI_GET_FD gives the socket of an endpoint, where options hold that were set before it connects";
        rdm get_fd_rdm: "a reliable datagram endpoint has no socket for FI_GET_FD";
        rdm option_firewall: "FI_OPT_FIREWALL_ADDR is an int, and 0 unless something says otherwise";
    }
    fi_av {
        rdm firewall: "a peer behind a firewall is not connected to, and reached over the connection it makes";
    }
}

/// The time to live of packets that no system has by default.
const HOPS: u32 = 33;

fn get_fd(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let spec = Spec::default();
    let (mut rig, name) = listening(cx, &spec)?;
    let s = rig.s;
    let domain = s.domain(rig.fabric, &rig.info)?;
    let side = prepare(s, &spec, domain, &rig.info)?;
    s.bind(side.ep, rig.eqs[A], Flags::empty())?;
    s.enable(side.ep)?;
    let socket = offered(edge.socket(side.ep), &[Errno::ENOSYS], "FI_GET_FD")?;
    let set = TcpStream::from(socket).set_ttl(HOPS);
    ensure!(set.is_ok(), "an option before the connection: {set:?}");

    s.connect(side.ep, &name, &[])?;
    let (request, _) = rig.request(rig.eqs[B])?;
    let answered = rig.answer(&spec, &request, &[])?;
    rig.connected(answered)?;
    match rig.event(rig.eqs[A])? {
        Ok(Event::Connected { ep, .. }) if ep == side.ep => {}
        other => return Err(Stop::fail(format!("expected FI_CONNECTED, got {other:?}"))),
    }
    let socket = TcpStream::from(edge.socket(side.ep)?);
    ensure_eq!(socket.ttl().ok(), Some(HOPS), "the option after it");
    let peer = socket.peer_addr().map(Address::Ip).ok();
    ensure_eq!(peer, Some(name), "the peer of the socket");
    let accepted = TcpStream::from(edge.socket(rig.sides[answered].ep)?);
    let (theirs, ours) = (accepted.peer_addr().ok(), socket.local_addr().ok());
    ensure_eq!(theirs, ours, "the peer of the socket that was accepted");
    Ok(())
}

fn get_fd_rdm(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    refused(edge.socket(rig.sides[A].ep), &[Errno::ENOSYS], "FI_GET_FD")?;
    rig.close()
}

/// What is known of firewalls shows in an option.
fn knows_firewalls(rig: &Rig<'_>, edge: &dyn CEdge) -> Step<usize> {
    let ep = rig.sides[A].ep;
    let (said, need) = edge.option_into(ep, EpOption::FirewallAddr, 4);
    offered(said, &[Errno::ENOPROTOOPT], "FI_OPT_FIREWALL_ADDR")?;
    Ok(need)
}

fn option_firewall(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    ensure_eq!(knows_firewalls(&rig, edge)?, 4, "its length");
    let ep = rig.sides[A].ep;
    for len in [0, 3] {
        let (said, need) = edge.option_into(ep, EpOption::FirewallAddr, len);
        refused(said, &[Errno::ETOOSMALL], "an option of 4 bytes")?;
        ensure_eq!(need, 4, "what it needs");
    }
    let set = edge.set_option_bytes(ep, EpOption::FirewallAddr, &[0; 4]);
    refused(set, &[Errno::ENOPROTOOPT], "setting it")?;
    rig.close()
}

fn firewall(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let mut rig = Rig::open(cx, &Spec::default())?;
    knows_firewalls(&rig, edge)?;
    let av = rig.av(A)?;
    let name = rig.sides[B].name.clone();
    let name = name.ok_or_else(|| Stop::fail("no name"))?;
    rig.s.av_remove(av, &[rig.sides[A].peer])?;
    rig.sides[A].peer = edge.insert_flagged(av, &name, Flags::FIREWALL_ADDR)?;
    for post in [Post::send(*b"early"), Post::send(vec![1; 100_000])] {
        let post = rig.filled(A, post);
        refused(
            rig.s.post(rig.sides[A].ep, &post),
            &[Errno::EFIREWALLADDR],
            "a message without a connection",
        )?;
    }
    rig.exchange(B, A, b"hello")?;
    rig.exchange(A, B, b"and back")?;
    rig.exchange(A, B, &vec![7; 100_000])?;
    rig.close()
}
