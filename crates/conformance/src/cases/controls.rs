//! Controls of sockets, `fi_tcp`(7).

use std::net::TcpStream;

use ripstop_core::Address;
use ripstop_types::{Errno, Flags};

use super::c_edge;
use crate::case::{Cx, Outcome, Stop, cases, offered, refused};
use crate::rig::{A, B, Rig, Spec, listening, prepare};
use crate::subject::Event;
use crate::{ensure, ensure_eq};

cases! {
    pub(super) const CASES;
    fi_endpoint {
        msg get_fd: "FI_GET_FD gives the socket of an endpoint, where options hold that were set before it connects";
        rdm get_fd_rdm: "a reliable datagram endpoint has no socket for FI_GET_FD";
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
