//! The cases, by man page.

mod atomic;
mod av;
mod buffers;
mod careless;
mod cm;
mod cntr;
mod collective;
mod contexts;
mod controls;
mod cq;
mod device;
mod dgram;
mod directions;
mod eq;
mod five;
mod getinfo;
mod levels;
mod mr;
mod msg;
mod objects;
mod peers;
mod rma;
mod sets;
mod tagged;
mod tclass;
mod threads;
mod trigger;

use std::net::{TcpListener, UdpSocket};

use crate::case::{Case, Cx, Outcome, Step, Stop};
use crate::subject::CEdge;

/// Every case, in the order they run.
#[must_use]
pub fn all() -> Vec<Case> {
    [
        getinfo::cases(),
        av::cases(),
        cm::cases(),
        eq::CASES.to_vec(),
        device::CASES.to_vec(),
        objects::cases(),
        contexts::CASES.to_vec(),
        cq::cases(),
        cntr::CASES.to_vec(),
        levels::CASES.to_vec(),
        sets::CASES.to_vec(),
        msg::cases(),
        dgram::CASES.to_vec(),
        tagged::cases(),
        rma::cases(),
        atomic::cases(),
        buffers::cases(),
        five::CASES.to_vec(),
        directions::CASES.to_vec(),
        mr::CASES.to_vec(),
        trigger::cases(),
        collective::cases(),
        careless::CASES.to_vec(),
        controls::CASES.to_vec(),
        peers::CASES.to_vec(),
        tclass::CASES.to_vec(),
        threads::cases(),
    ]
    .concat()
}

/// The calls that only the C interface has.
fn c_edge<'a>(cx: &Cx<'a>) -> Step<&'a dyn CEdge> {
    let edge = cx.s.c_edge();
    edge.ok_or_else(|| Stop::not_offered("only the C interface has this call"))
}

/// Ends the case where IPv6 is switched off.
fn has_ipv6() -> Outcome {
    match TcpListener::bind("[::1]:0") {
        Ok(_) => Ok(()),
        Err(_) => Err(Stop::not_here("this machine has no IPv6 loopback address")),
    }
}

/// Whether there is a network beyond this machine. Nothing is sent to find out.
fn has_network() -> bool {
    let outside = ("192.0.2.1", 9);
    UdpSocket::bind(("0.0.0.0", 0)).is_ok_and(|socket| socket.connect(outside).is_ok())
}
