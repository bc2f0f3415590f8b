//! `fi_cm`(3).

mod failing;

use std::time::Duration;

use ripstop_core::Address;
use ripstop_types::{Errno, WaitObj};

use crate::case::{Case, Cx, Outcome, Step, Stop, cases, offered, refused};
use crate::rig::{A, B, Rig, Spec, bare, free, listener, listening, pattern, prepare};
use crate::subject::{EpOption, Event, Fid, Post};
use crate::{ensure, ensure_eq};

/// The parameter of a rule about a process that is connected and does not answer: 5 s.
pub(super) const ANSWER: &[(&str, &str)] = &[
    ("FI_TCP_ANSWER_TIMEOUT", "5000"),
    ("FI_SHM_ANSWER_TIMEOUT", "5000"),
    ("FI_LNX_ANSWER_TIMEOUT", "5000"),
];

/// Beyond this, a process that is connected and does not answer is still waited for by default, as
/// it may compute: the longest of the other bounds on connecting is 5 s.
pub(super) const WAITED: Duration = Duration::from_secs(7);

pub(super) fn cases() -> Vec<Case> {
    [OWN, failing::CASES].concat()
}

cases! {
    const OWN;
    fi_cm {
        msg connect:
            "request, acceptance and connection are reported in order, on the right objects";
        msg connect_data: "up to FI_OPT_CM_DATA_SIZE bytes go with a request";
        msg accept_data: "as many go with an acceptance";
        msg data_too_long: "one byte more is refused by every call";
        msg reject: "a rejected request ends with FI_ECONNREFUSED";
        msg reject_data: "the data of a rejection arrives";
        msg shutdown: "a shutdown is reported once, to the peer";
        msg close_is_shutdown: "closing an endpoint is reported to the peer";
        msg shutdown_after_data: "what was sent before a shutdown arrives before it";
        msg shutdown_both: "both sides may end the connection at once";
        msg shutdown_ends_receives:
            "receives that wait end when the peer is gone, or are dropped, and none succeeds";
        msg after_shutdown: "sends on an ended connection fail, and none hangs";
        msg receive_after_shutdown:
            "a receive posted on an ended connection is taken, and fails in the queue";
        msg arrived_before_shutdown:
            "what had arrived before the end of a connection fills a receive posted after it";
        msg receive_before_connect: "receives posted before the connection are filled";
        msg names: "each side knows its own and its peer's address";
        msg setname: "a passive endpoint listens at the address it is given";
        msg name_short: "a name that does not fit says FI_ETOOSMALL and the length";
        msg many: "many connections to one listener work side by side";
        msg any_order: "requests may be answered in any order";
        msg again: "connections come and go at one listener";
        msg backlog: "the backlog can be set before listening";
        msg ipv6: "connections work over IPv6";
        rdm name_rdm: "an enabled endpoint has an address with a port";
        rdm name_short_rdm: "a name that does not fit says FI_ETOOSMALL and the length";
        rdm setname_rdm: "an endpoint takes the address it is given";
    }
}

/// Bytes of connection data that are offered.
fn limit(rig: &Rig<'_>) -> Step<usize> {
    let pep = rig.listener()?;
    let size = rig.s.option(pep, EpOption::CmDataSize)?;
    ensure!(size >= 16, "FI_OPT_CM_DATA_SIZE is {size}");
    Ok(size)
}

fn connect(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let (mut rig, name) = listening(cx, &spec)?;
    rig.dial(&spec, &name, &[])?;
    let eq = rig.eqs[B];
    let (request, data) = match rig.event(eq)? {
        Ok(Event::ConnReq { pep, info, data }) => {
            ensure!(Some(pep) == rig.pep, "the request is reported on {pep:?}");
            (info, data)
        }
        other => return Err(Stop::fail(format!("expected FI_CONNREQ, got {other:?}"))),
    };
    ensure!(data.is_empty(), "{} bytes of data out of none", data.len());
    ensure!(
        request.ep.ep_type == cx.ep_type,
        "a request for {:?}",
        request.ep.ep_type
    );
    rig.answer(&spec, &request, &[])?;
    rig.connected(A)?;
    rig.connected(B)?;
    rig.exchange(A, B, b"there")?;
    rig.exchange(B, A, b"and back")?;
    rig.finish()
}

fn connect_data(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let (mut rig, name) = listening(cx, &spec)?;
    let limit = limit(&rig)?;
    for len in [1, 16, limit - 1, limit] {
        let bytes = pattern(len, len);
        let dialed = rig.dial(&spec, &name, &bytes)?;
        let (request, data) = rig.request(rig.eqs[B])?;
        ensure!(data == bytes, "{len} bytes arrived as {}", data.len());
        let answered = rig.answer(&spec, &request, &[])?;
        let data = rig.connected(dialed)?;
        ensure!(data.is_empty(), "{} bytes of data out of none", data.len());
        rig.connected(answered)?;
    }
    rig.close()
}

fn accept_data(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let (mut rig, name) = listening(cx, &spec)?;
    let limit = limit(&rig)?;
    for len in [1, 16, limit - 1, limit] {
        let bytes = pattern(len, len);
        let dialed = rig.dial(&spec, &name, b"hello")?;
        let (request, _) = rig.request(rig.eqs[B])?;
        let answered = rig.answer(&spec, &request, &bytes)?;
        let data = rig.connected(dialed)?;
        ensure!(data == bytes, "{len} bytes arrived as {}", data.len());
        rig.connected(answered)?;
    }
    rig.close()
}

fn data_too_long(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let (mut rig, name) = listening(cx, &spec)?;
    let bytes = vec![1; limit(&rig)? + 1];
    let s = rig.s;
    let domain = s.domain(rig.fabric, &rig.info)?;
    let side = prepare(s, &spec, domain, &rig.info)?;
    s.bind(side.ep, rig.eqs[A], ripstop_types::Flags::empty())?;
    s.enable(side.ep)?;
    refused(
        s.connect(side.ep, &name, &bytes),
        &[Errno::EINVAL],
        "too much data for a request",
    )?;

    rig.dial(&spec, &name, &[])?;
    let (request, _) = rig.request(rig.eqs[B])?;
    let domain = rig.sides[A].domain;
    let side = prepare(s, &spec, domain, &request)?;
    s.bind(side.ep, rig.eqs[B], ripstop_types::Flags::empty())?;
    s.enable(side.ep)?;
    refused(
        s.accept(side.ep, &bytes),
        &[Errno::EINVAL],
        "too much data for an acceptance",
    )
}

/// Waits for a failed connection of a side: the reason and the data.
fn fails(rig: &Rig<'_>, side: usize) -> Step<(Errno, Vec<u8>)> {
    match rig.event(rig.eqs[A])? {
        Err(error) => {
            let ep = rig.sides[side].ep;
            ensure!(error.fid == Some(ep), "the error is of {:?}", error.fid);
            Ok((error.err, error.data))
        }
        Ok(event) => Err(Stop::fail(format!("expected an error, got {event:?}"))),
    }
}

fn reject(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let (mut rig, name) = listening(cx, &spec)?;
    let dialed = rig.dial(&spec, &name, &[])?;
    let (request, _) = rig.request(rig.eqs[B])?;
    let pep = rig.listener()?;
    rig.s.reject(pep, &request, &[])?;
    let (err, data) = fails(&rig, dialed)?;
    ensure!(err == Errno::ECONNREFUSED, "the error is {}", err.name());
    ensure!(data.is_empty(), "{} bytes of data out of none", data.len());
    // The listener goes on.
    let dialed = rig.dial(&spec, &name, &[])?;
    let (request, _) = rig.request(rig.eqs[B])?;
    let answered = rig.answer(&spec, &request, &[])?;
    rig.connected(dialed)?;
    rig.connected(answered)?;
    rig.finish()
}

fn reject_data(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let (mut rig, name) = listening(cx, &spec)?;
    let limit = limit(&rig)?;
    for len in [1, 16, limit] {
        let bytes = pattern(len, len);
        let dialed = rig.dial(&spec, &name, &[])?;
        let (request, _) = rig.request(rig.eqs[B])?;
        let pep = rig.listener()?;
        rig.s.reject(pep, &request, &bytes)?;
        let (err, data) = fails(&rig, dialed)?;
        ensure!(err == Errno::ECONNREFUSED, "the error is {}", err.name());
        ensure!(data == bytes, "{len} bytes arrived as {}", data.len());
    }
    rig.quiet()
}

/// Waits for the report that a side's peer has gone.
fn gone(rig: &Rig<'_>, side: usize) -> Outcome {
    let ep = rig.sides[side].ep;
    match rig.event(rig.eqs[side])? {
        Ok(Event::Shutdown { ep: of }) if of == ep => Ok(()),
        other => Err(Stop::fail(format!("expected FI_SHUTDOWN, got {other:?}"))),
    }
}

fn shutdown(cx: &Cx<'_>) -> Outcome {
    for side in [A, B] {
        let rig = Rig::open(cx, &Spec::default())?;
        rig.exchange(A, B, b"first")?;
        rig.s.shutdown(rig.sides[side].ep)?;
        gone(&rig, 1 - side)?;
        rig.pump_times(100)?;
        rig.close()?;
    }
    Ok(())
}

fn close_is_shutdown(cx: &Cx<'_>) -> Outcome {
    for side in [A, B] {
        let rig = Rig::open(cx, &Spec::default())?;
        rig.exchange(A, B, b"first")?;
        rig.s.close(rig.sides[side].ep)?;
        gone(&rig, 1 - side)?;
    }
    Ok(())
}

fn shutdown_after_data(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let recvs = rig.post_all(B, (0..10).map(|_| Post::recv(20_000)))?;
    for i in 0..10 {
        rig.complete(A, Post::send(pattern(20_000, i)))?;
    }
    rig.s.shutdown(rig.sides[A].ep)?;
    for (i, recv) in recvs.into_iter().enumerate() {
        rig.arrives(recv, pattern(20_000, i))?;
    }
    gone(&rig, B)
}

fn shutdown_both(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    rig.s.shutdown(rig.sides[A].ep)?;
    // The other may have heard of it already.
    match rig.s.shutdown(rig.sides[B].ep) {
        Ok(()) => {}
        Err(e) if e.errno().is_some() => {}
        Err(e) => return Err(e.into()),
    }
    rig.pump_times(100)?;
    rig.close()
}

fn shutdown_ends_receives(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    rig.exchange(A, B, b"first")?;
    let recvs = rig.post_all(B, (0..5).map(|_| Post::recv(8)))?;
    rig.s.shutdown(rig.sides[A].ep)?;
    gone(&rig, B)?;
    rig.pump_times(100)?;
    for recv in recvs {
        ensure!(rig.take_done(B, recv).is_none(), "a receive succeeded");
    }
    rig.close()
}

fn after_shutdown(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    rig.exchange(A, B, b"first")?;
    rig.s.shutdown(rig.sides[A].ep)?;
    gone(&rig, B)?;
    for side in [A, B] {
        for _ in 0..3 {
            match rig.try_post(side, Post::send(*b"late")) {
                Ok(send) => drop(rig.failed(side, send)?),
                Err(e) if e.is(Errno::EAGAIN) => {
                    return Err(Stop::fail(
                        "a send on an ended connection says FI_EAGAIN for ever",
                    ));
                }
                Err(e) if e.errno().is_some() => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    rig.close()
}

/// A program may post before it has read of the end: it hears of it where it hears of the end of
/// the receives that were posted before.
fn receive_after_shutdown(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    rig.exchange(A, B, b"first")?;
    rig.s.shutdown(rig.sides[A].ep)?;
    gone(&rig, B)?;
    for _ in 0..3 {
        let late = rig.post(B, Post::recv(8))?;
        let error = rig.failed(B, late)?;
        ensure_eq!(error.err, Errno::ENOTCONN, "the error");
    }
    rig.close()
}

fn arrived_before_shutdown(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    rig.exchange(A, B, b"first")?;
    let send = rig.post(A, Post::send(*b"last"))?;
    rig.sent(A, send)?;
    rig.s.shutdown(rig.sides[A].ep)?;
    rig.pump_times(100)?;
    rig.complete(B, Post::recv(8))?.carries(b"last")?;
    gone(&rig, B)?;
    rig.close()
}

fn receive_before_connect(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let (mut rig, name) = listening(cx, &spec)?;
    rig.dial(&spec, &name, &[])?;
    let early = rig.post(A, Post::recv(16))?;
    let (request, _) = rig.request(rig.eqs[B])?;
    rig.answer(&spec, &request, &[])?;
    rig.connected(A)?;
    rig.connected(B)?;
    rig.complete(B, Post::send(*b"early bird"))?;
    rig.done(A, early)?.carries(b"early bird")?;
    rig.finish()
}

fn names(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let (s, a, b) = (rig.s, rig.sides[A].ep, rig.sides[B].ep);
    let pep = rig.listener()?;
    let (a_name, a_peer) = (s.name(a)?, s.peer(a)?);
    let b_peer = s.peer(b)?;
    ensure!(
        a_peer == s.name(pep)?,
        "A's peer is {a_peer}, the listener {}",
        s.name(pep)?
    );
    ensure!(b_peer == a_name, "B's peer is {b_peer}, A is {a_name}");
    Ok(())
}

fn setname(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let mut rig = bare(cx, &spec)?;
    rig.eqs = vec![
        cx.s.eq(rig.fabric, WaitObj::None)?,
        cx.s.eq(rig.fabric, WaitObj::None)?,
    ];
    let pep = cx.s.passive_ep(rig.fabric, &rig.info)?;
    cx.s.bind(pep, rig.eqs[B], ripstop_types::Flags::empty())?;
    // A port the system has just given out and taken back.
    let addr = free(rig.info.addr_format)?;
    offered(cx.s.set_name(pep, &addr), &[Errno::ENOSYS], "fi_setname")?;
    cx.s.listen(pep)?;
    let name = cx.s.name(pep)?;
    ensure!(name == addr, "set to {addr}, it is {name}");
    rig.pep = Some(pep);
    rig.dial(&spec, &addr, &[])?;
    let (request, _) = rig.request(rig.eqs[B])?;
    rig.answer(&spec, &request, &[])?;
    rig.connected(A)?;
    rig.connected(B)?;
    rig.close()
}

fn short(cx: &Cx<'_>, fid: Fid) -> Outcome {
    let edge = super::c_edge(cx)?;
    let whole = cx.s.name(fid)?.to_bytes().len();
    for len in [0, 1, whole - 1] {
        let (answer, need) = edge.name_into(fid, len);
        refused(
            answer,
            &[Errno::ETOOSMALL],
            &format!("a name into {len} bytes"),
        )?;
        ensure!(
            need == whole,
            "{len} bytes: told to need {need}, not {whole}"
        );
    }
    for len in [whole, whole + 20] {
        let (answer, need) = edge.name_into(fid, len);
        answer?;
        ensure!(need == whole, "{len} bytes: told {need}, not {whole}");
    }
    Ok(())
}

fn name_short(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let pep = rig.listener()?;
    short(cx, pep)?;
    short(cx, rig.sides[A].ep)
}

fn name_short_rdm(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    short(cx, rig.sides[A].ep)
}

fn name_rdm(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    for side in &rig.sides {
        match &side.name {
            Some(Address::Ip(addr)) => ensure!(addr.port() != 0, "the address is {addr}"),
            Some(other) => ensure!(!other.is_empty(), "an empty address"),
            None => return Err(Stop::fail("no address")),
        }
    }
    ensure!(
        rig.sides[A].name != rig.sides[B].name,
        "two endpoints with one address"
    );
    Ok(())
}

fn setname_rdm(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let info = crate::rig::offer(cx, &spec)?;
    let fabric = cx.s.fabric(&info)?;
    let domain = cx.s.domain(fabric, &info)?;
    let side = prepare(cx.s, &spec, domain, &info)?;
    let av = cx.s.av(domain, spec.av)?;
    cx.s.bind(side.ep, av, ripstop_types::Flags::empty())?;
    let addr = free(info.addr_format)?;
    offered(
        cx.s.set_name(side.ep, &addr),
        &[Errno::ENOSYS],
        "fi_setname",
    )?;
    cx.s.enable(side.ep)?;
    let name = cx.s.name(side.ep)?;
    ensure!(name == addr, "set to {addr}, it is {name}");
    Ok(())
}

fn many(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let (mut rig, name) = listening(cx, &spec)?;
    let mut pairs = Vec::new();
    for i in 0..20_u8 {
        let dialed = rig.dial(&spec, &name, &[i])?;
        let (request, data) = rig.request(rig.eqs[B])?;
        ensure!(data == [i], "request {i} has data {data:?}");
        let answered = rig.answer(&spec, &request, &[])?;
        rig.connected(dialed)?;
        rig.connected(answered)?;
        pairs.push((dialed, answered));
    }
    for (i, (a, b)) in pairs.iter().enumerate() {
        rig.exchange(*a, *b, &pattern(100 + i, i))?;
        rig.exchange(*b, *a, &pattern(200 + i, i))?;
    }
    rig.finish()
}

fn any_order(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let (mut rig, name) = listening(cx, &spec)?;
    let mut dialed = Vec::new();
    let mut requests = Vec::new();
    for i in 0..4_u8 {
        dialed.push(rig.dial(&spec, &name, &[i])?);
        requests.push(rig.request(rig.eqs[B])?);
    }
    for (request, data) in requests.iter().rev() {
        let answered = rig.answer(&spec, request, data)?;
        rig.connected(answered)?;
        let side = dialed[usize::from(data[0])];
        let back = rig.connected(side)?;
        ensure!(back == *data, "request {data:?} was answered with {back:?}");
        rig.exchange(side, answered, data)?;
    }
    rig.finish()
}

fn again(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let (mut rig, name) = listening(cx, &spec)?;
    for i in 0..30 {
        let dialed = rig.dial(&spec, &name, &[])?;
        let (request, _) = rig.request(rig.eqs[B])?;
        let answered = rig.answer(&spec, &request, &[])?;
        rig.connected(dialed)?;
        rig.connected(answered)?;
        rig.exchange(dialed, answered, &pattern(50, i))?;
        let (a, b) = (rig.sides[dialed].ep, rig.sides[answered].ep);
        rig.s.close(a)?;
        match rig.event(rig.eqs[B])? {
            Ok(Event::Shutdown { ep }) if ep == b => {}
            other => return Err(Stop::fail(format!("expected FI_SHUTDOWN, got {other:?}"))),
        }
        rig.s.close(b)?;
    }
    Ok(())
}

fn backlog(cx: &Cx<'_>) -> Outcome {
    let edge = super::c_edge(cx)?;
    let rig = bare(cx, &Spec::default())?;
    let eq = cx.s.eq(rig.fabric, WaitObj::None)?;
    let pep = cx.s.passive_ep(rig.fabric, &rig.info)?;
    edge.backlog(pep, 5)?;
    cx.s.bind(pep, eq, ripstop_types::Flags::empty())?;
    cx.s.listen(pep)?;
    Ok(())
}

fn ipv6(cx: &Cx<'_>) -> Outcome {
    super::has_ipv6()?;
    let query = crate::subject::Query {
        node: Some("::1".to_owned()),
        flags: ripstop_types::Flags::SOURCE,
        hints: Some(crate::rig::hints(cx)),
        ..crate::subject::Query::default()
    };
    let infos = crate::rig::of_provider(cx, cx.s.getinfo(&query));
    let infos = offered(infos, &[Errno::ENODATA], "IPv6")?;
    let spec = Spec::default();
    let (mut rig, _) = listening(cx, &spec)?;
    rig.info = infos[0].clone();
    rig.fabric = cx.s.fabric(&rig.info)?;
    rig.eqs = vec![
        cx.s.eq(rig.fabric, WaitObj::None)?,
        cx.s.eq(rig.fabric, WaitObj::None)?,
    ];
    let (pep, name) = listener(cx.s, rig.fabric, &rig.info, rig.eqs[B])?;
    rig.pep = Some(pep);
    ensure!(
        name.ip().is_some_and(|a| a.is_ipv6()),
        "it listens on {name}"
    );
    rig.dial(&spec, &name, &[])?;
    let (request, _) = rig.request(rig.eqs[B])?;
    rig.answer(&spec, &request, &[])?;
    rig.connected(A)?;
    rig.connected(B)?;
    rig.exchange(A, B, b"over IPv6")?;
    Ok(())
}
