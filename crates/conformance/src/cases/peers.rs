//! Peers of reliable datagram endpoints: first contact, loss, return. The rules are those of
//! `fi_endpoint`(3), `fi_msg`(3) and `fi_av`(3); the times are those the README of the providers
//! states.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use ripstop_core::{Address, Hints, Info};
use ripstop_types::{AddrFormat, Errno, FiAddr, Flags, Progress, WaitObj};

use crate::case::{Cx, Outcome, Step, Stop, cases};
use crate::ensure;
use crate::pace::bound;
use crate::rig::{A, B, Rig, Side, Spec, bare, free, of_provider, pattern};
use crate::subject::{Inject, Post, Query};

cases! {
    pub(super) const CASES;
    fi_endpoint {
        rdm self_send: "an endpoint sends to itself";
        rdm self_first:
            "what an endpoint sends to itself comes before what a peer sends because of what the endpoint did next";
        rdm self_unexpected: "messages to oneself wait like others";
        rdm both_connect:
            "two endpoints that speak at once for the first time both get through", within(20);
        rdm all_to_all: "every endpoint of a group speaks to every other";
        rdm peer_restarts:
            "a peer that closes and opens again at its address is reached again",
                timed(), within(20);
        rdm peer_restarts_and_speaks: "a peer that came back is heard", timed(), within(20);
        rdm nobody_there: "sends to an address where nobody listens fail within 5.5 s", timed();
        rdm cancel_to_nobody: "a send to nobody that is cancelled ends as cancelled", timed();
        rdm nobody_then_somebody:
            "an address that refused is reached once somebody listens", timed(), within(20);
        rdm peer_comes_late:
            "a message to a peer that starts a moment later arrives, or fails and can be repeated";
        rdm silent_peer:
            "sends to a peer that never answers fail after FI_TCP_ANSWER_TIMEOUT",
                timed(), with(super::cm::ANSWER), within(15);
        rdm silent_peer_waits:
            "by default, sends wait for a peer that computes before it answers",
                timed(), within(15);
        rdm peer_closes_in_transfer:
            "transfers that a closing peer interrupts end", timed(), within(20);
        rdm others_go_on: "the loss of one peer disturbs no other", within(15);
        rdm directed_recv_of_lost_peer:
            "a receive from a lost peer only ends with an error", timed(), within(25);
        rdm inject_then_close: "what was injected before closing arrives";
        rdm unknown_address: "sends to what is not in the address vector are refused";
    }
}

fn self_rig<'a>(cx: &Cx<'a>) -> Step<Rig<'a>> {
    let spec = Spec::tagged();
    let mut rig = bare(cx, &spec)?;
    let domain = cx.s.domain(rig.fabric, &rig.info)?;
    let side = rig.add(&spec, domain)?;
    rig.sides.push(side);
    let name = rig.sides[A].name.clone();
    rig.sides[A].peer = rig.insert(A, name.as_ref())?;
    Ok(rig)
}

fn self_send(cx: &Cx<'_>) -> Outcome {
    let rig = self_rig(cx)?;
    for len in [0, 8, 5000, 400_000, 2 << 20] {
        let bytes = pattern(len, len);
        let recv = rig.post(A, Post::recv(len))?;
        rig.complete(A, Post::send(&bytes[..]))?;
        rig.done(A, recv)?.carries(&bytes)?;
        let recv = rig.post(A, Post::trecv(7, 0, len))?;
        rig.complete(A, Post::tsend(7, &bytes[..]))?;
        rig.done(A, recv)?.carries(&bytes)?;
    }
    let recv = rig.post(A, Post::recv(8))?;
    rig.inject(A, b"me", None, None)?;
    rig.done(A, recv)?.carries(b"me")?;
    rig.finish()
}

fn self_first(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default().two_domains(true).progress(Progress::Manual);
    let rig = Rig::open(cx, &spec)?;
    rig.exchange(A, B, b"first")?;
    let own = rig.insert(A, rig.sides[A].name.as_ref())?;
    let recv = rig.post(A, Post::recv(8))?;
    rig.complete(A, Post::send(&b"own"[..]).with(own))?;
    rig.done(A, recv)?.carries(b"own")?;
    let injected = Inject {
        bytes: b"own",
        tag: None,
        data: None,
        addr: own,
    };
    for round in 0..60 {
        // The peer is whom the endpoint has heard last.
        rig.exchange(B, A, b"before")?;
        let count = 1 + round % 3;
        let recvs = rig.post_all(A, (0..=count).map(|_| Post::recv(8)))?;
        let asked = rig.post(B, Post::recv(8))?;
        let mut sends = Vec::new();
        for _ in 0..count {
            match round % 2 {
                0 => rig.retry("a message is injected", || {
                    rig.s.inject(rig.sides[A].ep, injected)
                })?,
                _ => sends.push(rig.post(A, Post::send(&b"own"[..]).with(own))?),
            }
        }
        sends.push(rig.post(A, Post::send(&b"go"[..]))?);
        for _ in 0..50 {
            rig.pump_side(B)?;
        }
        let answer = rig.post(B, Post::send(&b"answer"[..]))?;
        for _ in 0..50 {
            rig.pump_side(B)?;
        }
        for (index, recv) in recvs.into_iter().enumerate() {
            let expected = if index < count {
                &b"own"[..]
            } else {
                b"answer"
            };
            rig.done(A, recv)?.carries(expected)?;
        }
        rig.done(B, asked)?.carries(b"go")?;
        rig.done(B, answer)?;
        rig.all_done(A, sends)?;
    }
    rig.finish()
}

fn self_unexpected(cx: &Cx<'_>) -> Outcome {
    let rig = self_rig(cx)?;
    let sends = rig.post_all(
        A,
        (0..10).map(|tag| Post::tsend(tag, pattern(10_000, tag as usize))),
    )?;
    rig.pump_times(50)?;
    for tag in (0..10).rev() {
        rig.complete(A, Post::trecv(tag, 0, 10_000))?
            .carries(pattern(10_000, tag as usize))?;
    }
    rig.all_done(A, sends)?;
    rig.finish()
}

fn both_connect(cx: &Cx<'_>) -> Outcome {
    for round in 0..20 {
        let rig = Rig::open(cx, &Spec::default().two_domains(round % 2 == 1))?;
        let len = [1, 100, 60_000][round % 3];
        let mut open = Vec::new();
        for side in [A, B] {
            let recv = rig.post(side, Post::recv(len))?;
            open.push((side, recv));
        }
        // No progress between the two, so that each connects of its own accord.
        let mut sends = [None, None];
        let start = Instant::now();
        while sends.contains(&None) {
            for side in [A, B] {
                if sends[side].is_none() {
                    match rig.try_post(side, Post::send(pattern(len, side))) {
                        Ok(send) => sends[side] = Some(send),
                        Err(e) if e.is(Errno::EAGAIN) => {}
                        Err(e) => return Err(e.into()),
                    }
                }
            }
            if sends.contains(&None) {
                rig.pump()?;
            }
            // Whether it takes the time of a failed attempt is tried in virtual time (`sim`).
            ensure!(
                start.elapsed() < bound(Duration::from_secs(5)),
                "round {round}: FI_EAGAIN for 5 s"
            );
        }
        for (side, recv) in open {
            rig.done(side, recv)?.carries(pattern(len, 1 - side))?;
            if let Some(send) = sends[side] {
                rig.done(side, send)?;
            }
        }
        rig.quiet()?;
        rig.close()?;
    }
    Ok(())
}

fn all_to_all(cx: &Cx<'_>) -> Outcome {
    const COUNT: usize = 8;
    let spec = Spec::tagged().one_av(true);
    let mut rig = Rig::open(cx, &spec)?;
    let domain = rig.sides[A].domain;
    while rig.sides.len() < COUNT {
        let side = rig.add(&spec, domain)?;
        rig.sides.push(side);
    }
    let mut addrs = Vec::new();
    for side in 0..COUNT {
        let name = rig.sides[side].name.clone();
        addrs.push(rig.insert(A, name.as_ref())?);
    }
    let mut open = Vec::new();
    for from in 0..COUNT {
        for (to, addr) in addrs.iter().enumerate() {
            let (tag, bytes) = ((from * COUNT + to) as u64, pattern(300, from * COUNT + to));
            let recv = rig.post(to, Post::trecv(tag, 0, 300))?;
            let send = rig.post(from, Post::tsend(tag, &bytes[..]).with(*addr))?;
            open.push((from, send, to, recv, bytes));
        }
    }
    for (from, send, to, recv, bytes) in open {
        rig.done(from, send)?;
        rig.done(to, recv)?.carries(&bytes)?;
    }
    rig.finish()
}

/// An info whose endpoints open at an address.
fn info_at(cx: &Cx<'_>, rig: &Rig<'_>, addr: &Address) -> Step<Info> {
    let (node, service) = match addr {
        Address::Ip(ip) => (ip.ip().to_string(), Some(ip.port().to_string())),
        // The provider puts a number behind it.
        Address::Str(text) if text.starts_with("fi_shm://") => {
            return Err(Stop::not_offered("endpoints get names of their own"));
        }
        Address::Str(text) => (text.clone(), None),
        Address::Raw(..) => return Err(Stop::not_offered("addresses are not of IP")),
    };
    let mut hints = Hints::from(rig.info.clone());
    hints.handle = None;
    hints.src_addr = None;
    let query = Query {
        node: Some(node),
        service,
        flags: Flags::SOURCE,
        hints: Some(hints),
        ..Query::default()
    };
    let infos = of_provider(cx, cx.s.getinfo(&query))?;
    infos
        .into_iter()
        .next()
        .ok_or_else(|| Stop::fail("no answer"))
}

/// Opens a side at an address, in place of a closed one.
fn reopen(cx: &Cx<'_>, rig: &mut Rig<'_>, spec: &Spec, addr: &Address) -> Step<Side> {
    let info = info_at(cx, rig, addr)?;
    let domain = cx.s.domain(rig.fabric, &info)?;
    let old = std::mem::replace(&mut rig.info, info);
    let side = rig.add(spec, domain);
    rig.info = old;
    let side = side?;
    ensure!(
        side.name.as_ref() == Some(addr),
        "opened at {:?}, not {addr}",
        side.name
    );
    Ok(side)
}

fn name_of(rig: &Rig<'_>, side: usize) -> Step<Address> {
    let name = rig.sides[side].name.clone();
    name.ok_or_else(|| Stop::fail("no address"))
}

/// Gives B an address that it gets again: a process makes up others for endpoints that do not
/// ask for one, and a port that the system gave may be another's before B is back.
fn settle(cx: &Cx<'_>, rig: &mut Rig<'_>, spec: &Spec) -> Outcome {
    let side = reopen(cx, rig, spec, &free(rig.info.addr_format)?)?;
    rig.s.close(rig.sides[B].ep)?;
    rig.sides[B] = side;
    for (side, peer) in [(A, B), (B, A)] {
        let name = name_of(rig, peer)?;
        rig.sides[side].peer = rig.insert(side, Some(&name))?;
    }
    Ok(())
}

/// Closes B and opens it again at its address; it knows A.
fn restart<'a>(cx: &Cx<'a>) -> Step<Rig<'a>> {
    let spec = Spec::default().two_domains(true);
    let mut rig = Rig::open(cx, &spec)?;
    settle(cx, &mut rig, &spec)?;
    rig.exchange(A, B, b"before")?;
    rig.exchange(B, A, b"before")?;
    let addr = name_of(&rig, B)?;
    rig.s.close(rig.sides[B].ep)?;
    let side = reopen(cx, &mut rig, &spec, &addr)?;
    rig.sides[B] = side;
    let name = rig.sides[A].name.clone();
    rig.sides[B].peer = rig.insert(B, name.as_ref())?;
    Ok(rig)
}

/// Sends from A until it succeeds: what was under way when the peer closed may fail.
fn reaches(rig: &Rig<'_>, bytes: &[u8]) -> Outcome {
    let start = Instant::now();
    loop {
        let send = rig.post(A, Post::send(bytes))?;
        match rig.end_within(lost(), A, send)? {
            Ok(_) => return Ok(()),
            Err(e) => {
                let elapsed = start.elapsed();
                let name = e.err.name();
                ensure!(
                    elapsed < bound(Duration::from_secs(8)),
                    "still {name} after {elapsed:?}"
                );
            }
        }
    }
}

fn peer_restarts(cx: &Cx<'_>) -> Outcome {
    let rig = restart(cx)?;
    let recv = rig.post(B, Post::recv(16))?;
    reaches(&rig, b"after")?;
    // A message sent into the old connection may be lost without an error at the sender.
    let start = Instant::now();
    let got = loop {
        if let Some(got) = rig.take_done(B, recv) {
            break got;
        }
        ensure!(
            start.elapsed() < bound(Duration::from_secs(6)),
            "nothing arrives at the new peer"
        );
        rig.pump()?;
        if start.elapsed() > Duration::from_millis(500) {
            reaches(&rig, b"after")?;
        }
    };
    got.carries(b"after")?;
    Ok(())
}

fn peer_restarts_and_speaks(cx: &Cx<'_>) -> Outcome {
    let rig = restart(cx)?;
    let recv = rig.post(A, Post::recv(16))?;
    let send = rig.post(B, Post::send(*b"back again"))?;
    rig.end_within(lost(), B, send)?
        .map_err(|e| Stop::fail(format!("the new peer's send failed: {}", e.err.name())))?;
    rig.done(A, recv)?.carries(b"back again")?;
    // And now the other way, over the same connection or a new one.
    let recv = rig.post(B, Post::recv(16))?;
    reaches(&rig, b"welcome")?;
    rig.arrives(recv, b"welcome")?;
    Ok(())
}

/// Posts where the queue may stay full while nothing connects.
fn posted(rig: &Rig<'_>, post: impl Fn() -> Post, bound: Duration) -> Step<Option<u64>> {
    let start = Instant::now();
    while start.elapsed() < bound {
        match rig.try_post(A, post()) {
            Ok(token) => return Ok(Some(token)),
            Err(e) if e.is(Errno::EAGAIN) => rig.pump()?,
            // A refusal that names the reason is an end as well.
            Err(e) if e.errno().is_some() => return Ok(None),
            Err(e) => return Err(e.into()),
        }
    }
    Err(Stop::fail(format!(
        "FI_EAGAIN for {bound:?}, with nobody there"
    )))
}

/// Within which an implementation gives up on a peer that is not there.
fn lost() -> Duration {
    bound(Duration::from_millis(5500))
}

fn nobody_there(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let nobody = rig.insert(A, Some(&free(rig.info.addr_format)?))?;
    let start = Instant::now();
    let mut open = Vec::new();
    open.extend(posted(
        &rig,
        || Post::send(*b"anybody?").with(nobody),
        lost(),
    )?);
    open.extend(posted(
        &rig,
        || Post::tsend(1, *b"anybody?").with(nobody),
        lost(),
    )?);
    open.extend(posted(
        &rig,
        || Post::send(vec![1; 1 << 20]).with(nobody),
        lost(),
    )?);
    for token in open {
        let left = lost().saturating_sub(start.elapsed());
        match rig.end_within(left, A, token)? {
            Err(e) => ensure!(
                e.err == Errno::ECONNREFUSED,
                "the error is {}",
                e.err.name()
            ),
            Ok(_) => return Err(Stop::fail("a send to nobody succeeded")),
        }
    }
    // Others are still reached.
    rig.exchange(A, B, b"you there")?;
    Ok(())
}

fn cancel_to_nobody(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let nobody = rig.insert(A, Some(&free(rig.info.addr_format)?))?;
    for len in [8, 1 << 20] {
        let post = || Post::send(pattern(len, len)).with(nobody);
        let Some(send) = posted(&rig, post, lost())? else {
            continue;
        };
        // Whether it was in time or not: it has failed, or will fail.
        match rig.s.cancel(rig.sides[A].ep, send) {
            Ok(()) => {}
            Err(e) if e.is(Errno::ENOENT) => {}
            Err(e) => return Err(e.into()),
        }
        match rig.end_within(lost(), A, send)? {
            Err(e) => ensure!(e.err == Errno::ECANCELED, "the error is {}", e.err.name()),
            Ok(_) => return Err(Stop::fail("a send to nobody succeeded")),
        }
    }
    rig.exchange(A, B, b"you there")?;
    rig.finish()
}

fn nobody_then_somebody(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let mut rig = Rig::open(cx, &spec)?;
    let addr = free(rig.info.addr_format)?;
    let late = rig.insert(A, Some(&addr))?;
    if let Some(token) = posted(&rig, || Post::send(*b"anybody?").with(late), lost())? {
        match rig.end_within(lost(), A, token)? {
            Err(_) => {}
            Ok(_) => return Err(Stop::fail("a send to nobody succeeded")),
        }
    }
    let side = reopen(cx, &mut rig, &spec, &addr)?;
    rig.sides.push(side);
    rig.sides[A].peer = late;
    let recv = rig.post(2, Post::recv(16))?;
    reaches(&rig, b"now")?;
    rig.done(2, recv)?.carries(b"now")?;
    Ok(())
}

fn peer_comes_late(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let mut rig = Rig::open(cx, &spec)?;
    let addr = free(rig.info.addr_format)?;
    rig.sides[A].peer = rig.insert(A, Some(&addr))?;
    let early = rig.try_post(A, Post::send(*b"early"));
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(200) {
        rig.pump()?;
    }
    let side = reopen(cx, &mut rig, &spec, &addr)?;
    rig.sides.push(side);
    let recv = rig.post(2, Post::recv(16))?;
    let arrived = match early {
        Ok(token) => rig.end_within(lost(), A, token)?.is_ok(),
        Err(e) if e.is(Errno::EAGAIN) => false,
        Err(e) => return Err(e.into()),
    };
    if !arrived {
        reaches(&rig, b"early")?;
    }
    rig.done(2, recv)?.carries(b"early")?;
    Ok(())
}

/// A rig whose `A` knows a stranger too, which takes connections and says nothing.
fn with_stranger<'a>(cx: &Cx<'a>) -> Step<(Rig<'a>, FiAddr, TcpListener)> {
    let rig = Rig::open(cx, &Spec::default())?;
    if rig.info.addr_format == AddrFormat::Str {
        return Err(Stop::not_offered("strangers cannot take an address"));
    }
    let stranger = TcpListener::bind("127.0.0.1:0").map_err(Stop::fail)?;
    let addr = stranger.local_addr().map_err(Stop::fail)?;
    let silent = rig.insert(A, Some(&Address::Ip(addr)))?;
    Ok((rig, silent, stranger))
}

fn silent_peer_waits(cx: &Cx<'_>) -> Outcome {
    let (rig, silent, _stranger) = with_stranger(cx)?;
    let start = Instant::now();
    let mut sent = None;
    while start.elapsed() < super::cm::WAITED {
        let after = start.elapsed();
        match sent {
            None => match rig.try_post(A, Post::send(*b"hello?").with(silent)) {
                Ok(token) => sent = Some(token),
                Err(e) if e.is(Errno::EAGAIN) => {}
                Err(e) => return Err(Stop::fail(format!("{e} after {after:?}"))),
            },
            Some(token) => {
                if let Some(error) = rig.take_failed(A, token) {
                    let name = error.err.name();
                    return Err(Stop::fail(format!("{name} after {after:?}")));
                }
            }
        }
        rig.pump()?;
    }
    rig.exchange(A, B, b"you there")?;
    Ok(())
}

fn silent_peer(cx: &Cx<'_>) -> Outcome {
    let (rig, silent, _stranger) = with_stranger(cx)?;
    let bound = bound(Duration::from_secs(10));
    let start = Instant::now();
    if let Some(token) = posted(&rig, || Post::send(*b"hello?").with(silent), bound)? {
        let left = bound.saturating_sub(start.elapsed());
        match rig.end_within(left, A, token)? {
            Err(_) => {}
            Ok(_) => return Err(Stop::fail("a send to a silent peer succeeded")),
        }
    }
    rig.exchange(A, B, b"you there")?;
    Ok(())
}

fn peer_closes_in_transfer(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::tagged().two_domains(true);
    for (len, tagged) in [(64, false), (4 << 20, false), (4 << 20, true)] {
        let rig = Rig::open(cx, &spec)?;
        rig.exchange(A, B, b"first")?;
        let mut open = Vec::new();
        for _ in 0..20 {
            let post = match tagged {
                true => Post::tsend(1, vec![1; len]),
                false => Post::send(vec![1; len]),
            };
            match rig.try_post(A, post.flags(Flags::DELIVERY_COMPLETE)) {
                Ok(token) => open.push(token),
                Err(e) if e.is(Errno::EAGAIN) => break,
                Err(e) => return Err(e.into()),
            }
        }
        // One is being received when the peer goes.
        let recv = match tagged {
            true => Post::trecv(1, 0, len),
            false => Post::recv(len),
        };
        rig.post(B, recv)?;
        rig.pump_times(5)?;
        rig.s.close(rig.sides[B].ep)?;
        let start = Instant::now();
        for token in open {
            let left = bound(Duration::from_secs(7)).saturating_sub(start.elapsed());
            // Delivered before the end, or failed.
            drop(rig.end_within(left, A, token)?);
        }
    }
    Ok(())
}

fn others_go_on(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let mut rig = Rig::open(cx, &spec)?;
    let domain = rig.sides[A].domain;
    let side = rig.add(&spec, domain)?;
    rig.sides.push(side);
    let name = rig.sides[2].name.clone();
    let third = rig.insert(A, name.as_ref())?;
    let recv = rig.post(2, Post::recv(8))?;
    rig.complete(A, Post::send(*b"third").with(third))?;
    rig.done(2, recv)?;
    rig.s.close(rig.sides[2].ep)?;
    for i in 0..50 {
        // What goes to the lost one may fail; what goes to the other must not.
        if i % 10 == 0 {
            let _ = rig.try_post(A, Post::send(*b"lost").with(third));
        }
        rig.exchange(A, B, &pattern(1000, i))?;
        rig.exchange(B, A, &pattern(1000, i))?;
    }
    Ok(())
}

fn directed_recv_of_lost_peer(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged().caps(Flags::DIRECTED_RECV))?;
    rig.exchange(A, B, b"first")?;
    let from = rig.sides[B].peer;
    let recv = rig.post(B, Post::trecv(1, 0, 8).with(from))?;
    let any = rig.post(B, Post::trecv(2, 0, 8))?;
    rig.s.close(rig.sides[A].ep)?;
    match rig.end_within(bound(Duration::from_secs(15)), B, recv)? {
        Err(e) => ensure!(e.err != Errno::ECANCELED, "the error is {}", e.err.name()),
        Ok(_) => return Err(Stop::fail("a receive from a lost peer succeeded")),
    }
    // What anybody may fill goes on waiting.
    ensure!(
        rig.take_failed(B, any).is_none(),
        "a receive from anybody ended as well"
    );
    Ok(())
}

fn inject_then_close(cx: &Cx<'_>) -> Outcome {
    let spec = || Spec::default().two_domains(true);
    // These may need the peer to say that it has them.
    let delivered = || Spec {
        tx_op_flags: Flags::DELIVERY_COMPLETE,
        counters: Some(WaitObj::None),
        ..spec().progress(Progress::Auto)
    };
    let mut runs = vec![(spec(), 1), (spec(), 20)];
    // Without a lock a domain of the Rust model makes no progress of its own.
    if cx.is_safe() || cx.setup.is_automatic {
        runs.extend([(delivered(), 1), (delivered(), 20)]);
    }
    for (spec, count) in runs {
        let rig = Rig::open(cx, &spec)?;
        rig.exchange(A, B, b"first")?;
        let recvs = rig.post_all(B, (0..count).map(|_| Post::recv(64)))?;
        let Side { ep, peer, .. } = rig.sides[A];
        for i in 0..count {
            let inject = Inject {
                bytes: &pattern(64, i),
                tag: None,
                data: None,
                addr: peer,
            };
            rig.s.inject(ep, inject)?;
        }
        rig.s.close(ep)?;
        for (i, recv) in recvs.into_iter().enumerate() {
            rig.arrives(recv, pattern(64, i))?;
        }
    }
    Ok(())
}

fn unknown_address(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    rig.exchange(A, B, b"first")?;
    let reasons = [Errno::EINVAL, Errno::EADDRNOTAVAIL];
    for addr in [FiAddr(77), FiAddr(1 << 33), FiAddr(u64::MAX - 1)] {
        let sent = rig.try_post(A, Post::send(*b"nowhere").with(addr));
        crate::case::refused(sent, &reasons, &format!("a send to {addr:?}"))?;
    }
    rig.exchange(A, B, b"after")?;
    Ok(())
}
