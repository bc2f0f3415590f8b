//! Connections that do not come about, and strangers at the door.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ripstop_core::Address;
use ripstop_types::{Errno, Flags};

use crate::case::{Cx, Outcome, Step, Stop, cases, refused};
use crate::ensure;
use crate::pace::bound;
use crate::rig::{A, B, Rig, Spec, bare, free_port, listening, prepare};
use crate::subject::{Event, Post};

cases! {
    pub(super) const CASES;
    fi_cm {
        msg refused: "a connection to nobody fails within 5 s" = nobody, timed();
        msg silent:
            "a connection to a peer that does not answer fails after FI_TCP_ANSWER_TIMEOUT",
                timed(), with(super::ANSWER), within(15);
        msg silent_waits:
            "by default, a connection waits for a peer that computes before it answers",
                timed(), within(15);
        msg no_eq: "an endpoint without event queue does not connect";
        msg listen_no_eq: "a passive endpoint without event queue does not listen";
        msg address_in_use: "a second listener at one address is refused";
        msg send_before_connect: "a send before the connection is refused";
        msg connect_twice: "an endpoint connects once in its life";
        msg peer_not_connected: "an endpoint without connection has no peer";
        msg listener_closes: "requests that nobody answered end when the listener closes";
        msg client_gone:
            "a request whose sender has gone can be accepted or rejected without harm", timed();
        both garbage: "a stranger that sends garbage is dropped and disturbs nobody";
        both half_header: "a stranger that stops in mid-header disturbs nobody";
        both stranger_closes: "strangers that connect and close disturb nobody";
    }
}

/// A connection of A fails within a bound.
fn fails_within(rig: &Rig<'_>, bound: Duration) -> Step<Errno> {
    let start = Instant::now();
    match rig.event_within(bound, rig.eqs[A])? {
        Err(error) => {
            ensure!(start.elapsed() < bound, "only after {:?}", start.elapsed());
            ensure!(
                error.fid == Some(rig.sides[A].ep),
                "the error is of {:?}",
                error.fid
            );
            Ok(error.err)
        }
        // An end of the connection is a failure as well.
        Ok(Event::Shutdown { .. }) => Ok(Errno::ESHUTDOWN),
        Ok(event) => Err(Stop::fail(format!("expected an error, got {event:?}"))),
    }
}

fn nobody(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let (mut rig, _) = listening(cx, &spec)?;
    rig.dial(&spec, &Address::Ip(free_port()), &[])?;
    let err = fails_within(&rig, bound(Duration::from_millis(5500)))?;
    ensure!(err == Errno::ECONNREFUSED, "the error is {}", err.name());
    Ok(())
}

/// A connection to a stranger, which accepts the socket and says nothing, and when it was begun.
fn dialed_stranger<'a>(cx: &Cx<'a>) -> Step<(Rig<'a>, (TcpListener, TcpStream), Instant)> {
    let spec = Spec::default();
    let (mut rig, _) = listening(cx, &spec)?;
    let stranger = TcpListener::bind("127.0.0.1:0").map_err(Stop::fail)?;
    let addr = stranger.local_addr().map_err(Stop::fail)?;
    let start = Instant::now();
    rig.dial(&spec, &Address::Ip(addr), &[])?;
    let (accepted, _) = stranger.accept().map_err(Stop::fail)?;
    Ok((rig, (stranger, accepted), start))
}

fn silent(cx: &Cx<'_>) -> Outcome {
    let (rig, sockets, start) = dialed_stranger(cx)?;
    fails_within(&rig, bound(Duration::from_secs(10)))?;
    ensure!(
        start.elapsed() > Duration::from_secs(4),
        "after {:?} already, not the 5 s of the parameter",
        start.elapsed()
    );
    drop(sockets);
    Ok(())
}

fn silent_waits(cx: &Cx<'_>) -> Outcome {
    let (rig, sockets, start) = dialed_stranger(cx)?;
    while start.elapsed() < super::WAITED {
        rig.pump()?;
        if let Some(happened) = rig.take_event(rig.eqs[A]) {
            let after = start.elapsed();
            return Err(Stop::fail(format!("{happened:?} after {after:?}")));
        }
    }
    drop(sockets);
    Ok(())
}

fn no_eq(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let (rig, name) = listening(cx, &spec)?;
    let domain = cx.s.domain(rig.fabric, &rig.info)?;
    let side = prepare(cx.s, &spec, domain, &rig.info)?;
    refused(
        cx.s.connect(side.ep, &name, &[]),
        &[Errno::ENOEQ],
        "connecting without event queue",
    )
}

fn listen_no_eq(cx: &Cx<'_>) -> Outcome {
    let rig = bare(cx, &Spec::default())?;
    let pep = cx.s.passive_ep(rig.fabric, &rig.info)?;
    refused(
        cx.s.listen(pep),
        &[Errno::ENOEQ],
        "listening without event queue",
    )
}

fn address_in_use(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let (rig, name) = listening(cx, &spec)?;
    let second = || {
        let pep = cx.s.passive_ep(rig.fabric, &rig.info)?;
        cx.s.bind(pep, rig.eqs[B], Flags::empty())?;
        cx.s.set_name(pep, &name)?;
        cx.s.listen(pep)
    };
    refused(
        second(),
        &[Errno::EADDRINUSE],
        "listening at a taken address",
    )
}

fn send_before_connect(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let (mut rig, name) = listening(cx, &spec)?;
    rig.dial(&spec, &name, &[])?;
    let sent = rig.try_post(A, Post::send(*b"early"));
    let reasons = [Errno::ENOTCONN, Errno::EOPBADSTATE, Errno::EAGAIN];
    refused(sent, &reasons, "a send before FI_CONNECTED")
}

fn connect_twice(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let pep = rig.listener()?;
    let name = rig.s.name(pep)?;
    let reasons = [
        Errno::EISCONN,
        Errno::EOPBADSTATE,
        Errno::EINVAL,
        Errno::EALREADY,
        Errno::EBUSY,
    ];
    refused(
        rig.s.connect(rig.sides[A].ep, &name, &[]),
        &reasons,
        "a second fi_connect",
    )?;
    rig.exchange(A, B, b"still connected")?;
    Ok(())
}

fn peer_not_connected(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let rig = bare(cx, &spec)?;
    let domain = cx.s.domain(rig.fabric, &rig.info)?;
    let side = prepare(cx.s, &spec, domain, &rig.info)?;
    let reasons = [
        Errno::ENOTCONN,
        Errno::EOPBADSTATE,
        Errno::EINVAL,
        Errno::ENODATA,
    ];
    refused(
        cx.s.peer(side.ep),
        &reasons,
        "fi_getpeer without connection",
    )
}

fn listener_closes(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let (mut rig, name) = listening(cx, &spec)?;
    rig.dial(&spec, &name, &[])?;
    let (request, _) = rig.request(rig.eqs[B])?;
    let Some(pep) = rig.pep.take() else {
        return Err(Stop::fail("no passive endpoint"));
    };
    // One request is read, one may still be in the queue.
    rig.dial(&spec, &name, &[])?;
    rig.s.reject(pep, &request, &[])?;
    rig.s.close(pep)?;
    for _ in 0..2 {
        match rig.event_within(bound(Duration::from_millis(5500)), rig.eqs[A])? {
            Err(_) | Ok(Event::Shutdown { .. }) => {}
            Ok(event) => return Err(Stop::fail(format!("expected an error, got {event:?}"))),
        }
    }
    Ok(())
}

/// Waits for a request. The end of an endpoint that is closed by now may be reported before.
fn next_request(rig: &Rig<'_>) -> Step<ripstop_core::Info> {
    loop {
        match rig.event(rig.eqs[B])? {
            Ok(Event::ConnReq { info, .. }) => return Ok(*info),
            Ok(Event::Shutdown { .. }) | Err(_) => {}
            Ok(event) => return Err(Stop::fail(format!("expected FI_CONNREQ, got {event:?}"))),
        }
    }
}

fn client_gone(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default().two_domains(true);
    let (mut rig, name) = listening(cx, &spec)?;
    for accept in [true, false] {
        let dialed = rig.dial(&spec, &name, &[])?;
        let request = next_request(&rig)?;
        let gone = rig.sides.remove(dialed);
        rig.s.close(gone.ep)?;
        if accept {
            let s = rig.s;
            let domain = s.domain(rig.fabric, &request)?;
            let side = prepare(s, &spec, domain, &request)?;
            s.bind(side.ep, rig.eqs[B], Flags::empty())?;
            s.enable(side.ep)?;
            // It may notice at once, or with an event.
            match s.accept(side.ep, &[]) {
                Ok(()) => drop(rig.event(rig.eqs[B])?),
                Err(e) if e.errno().is_some() => {}
                Err(e) => return Err(e.into()),
            }
            rig.pump_times(50)?;
            s.close(side.ep)?;
        } else if let Some(pep) = rig.pep {
            match rig.s.reject(pep, &request, &[]) {
                Ok(()) => {}
                Err(e) if e.errno().is_some() => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    let spec = Spec::default();
    let dialed = rig.dial(&spec, &name, &[])?;
    let request = next_request(&rig)?;
    let answered = rig.answer(&spec, &request, &[])?;
    rig.connected(dialed)?;
    rig.connected(answered)?;
    rig.exchange(dialed, answered, b"after")?;
    Ok(())
}

/// The rig, and an address of it that strangers reach.
fn with_door<'a>(cx: &Cx<'a>) -> Step<(Rig<'a>, SocketAddr)> {
    let rig = Rig::open(cx, &Spec::default())?;
    let door = match rig.pep {
        Some(pep) => rig.s.name(pep)?,
        None => rig.s.name(rig.sides[B].ep)?,
    };
    match door.ip() {
        Some(addr) => Ok((rig, addr)),
        None => Err(Stop::not_offered("strangers cannot reach this provider")),
    }
}

/// Makes progress, and messages flow.
fn undisturbed(rig: &Rig<'_>) -> Outcome {
    rig.pump_times(100)?;
    for i in 0..5 {
        rig.exchange(A, B, &[i; 1000])?;
        rig.exchange(B, A, &[i; 1000])?;
    }
    rig.quiet()
}

fn garbage(cx: &Cx<'_>) -> Outcome {
    let (rig, door) = with_door(cx)?;
    let noise: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nHost: fabric\r\n\r\n",
        &[0xff; 4096],
        &[0; 4096],
        &[
            1, 3, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        ],
        &[5; 1 << 16],
    ];
    for bytes in noise {
        let mut stranger = TcpStream::connect(door).map_err(Stop::fail)?;
        // It may be thrown out while it is still talking.
        drop(stranger.write_all(bytes));
        undisturbed(&rig)?;
        // Thrown out: the stranger sees the end, not silence.
        stranger.set_nonblocking(true).map_err(Stop::fail)?;
        let mut answer = [0; 1024];
        rig.until_within(
            bound(Duration::from_secs(6)),
            "the stranger is thrown out",
            || match stranger.read(&mut answer) {
                Ok(0) => Ok(Some(())),
                Ok(_) => Ok(None),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
                Err(_) => Ok(Some(())),
            },
        )?;
    }
    rig.close()
}

fn half_header(cx: &Cx<'_>) -> Outcome {
    let (rig, door) = with_door(cx)?;
    let mut strangers = Vec::new();
    for len in [0, 1, 3, 7] {
        let mut stranger = TcpStream::connect(door).map_err(Stop::fail)?;
        stranger.write_all(&vec![1; len]).map_err(Stop::fail)?;
        strangers.push(stranger);
        undisturbed(&rig)?;
    }
    // A new connection comes about as well.
    if cx.is_rdm() {
        let other = Rig::open(cx, &Spec::default())?;
        other.exchange(A, B, b"new")?;
    }
    drop(strangers);
    undisturbed(&rig)?;
    rig.close()
}

fn stranger_closes(cx: &Cx<'_>) -> Outcome {
    let (rig, door) = with_door(cx)?;
    for _ in 0..30 {
        drop(TcpStream::connect(door).map_err(Stop::fail)?);
    }
    undisturbed(&rig)?;
    rig.close()
}
