//! Several threads, and progress without calls: `fi_domain`(3), threading and progress.

mod levels;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ripstop_types::{Errno, FiAddr, Flags, Progress, WaitObj};

use crate::case::{Case, Cx, Outcome, Step, Stop, cases, offered};
use crate::ensure;
use crate::pace::{bound, soon};
use crate::rig::{A, B, Rig, Spec, bare, listening, pattern};
use crate::subject::{Completion, Fid, Inject, Post, Subject};

pub(super) fn cases() -> Vec<Case> {
    [OWN, levels::CASES].concat()
}

cases! {
    const OWN;
    fi_domain {
        both read_wakes_for_message: "a thread blocked in fi_cq_sread wakes for a message";
        both read_wakes_for_send: "a thread blocked in fi_cq_sread wakes for another thread's send";
        both read_wakes_for_signal: "a thread blocked in fi_cq_sread wakes for a signal";
        both cntr_wakes: "a thread blocked in fi_cntr_wait wakes when enough has completed";
        both cntr_wakes_for_error: "a thread blocked in fi_cntr_wait wakes for an error";
        both cntr_wakes_for_add: "a thread blocked in fi_cntr_wait wakes when another adds";
        msg eq_wakes: "a thread blocked in fi_eq_sread wakes for a request";
        both threads_share_endpoint:
            "threads send through one endpoint, and nothing is lost or repeated", within(20);
        both threads_share_queue:
            "threads read one queue, and each completion comes once", within(20);
        rdm threads_inject: "threads inject through one endpoint", within(20);
        both threads_own_endpoints:
            "threads use endpoints of their own at the same time", within(20);
        both threads_open_close:
            "threads open and close objects of one domain at the same time", within(20);
        both progress_auto_receive: "with automatic progress a sleeping peer receives";
        both progress_auto_send: "with automatic progress a sleeping sender sends";
        rdm progress_auto_rendezvous:
            "with automatic progress a large tagged message needs neither side awake", timed();
        rdm progress_auto_first_contact:
            "with automatic progress a sleeping peer answers its first message";
    }
}

/// How long a thread sleeps before it wakes another.
const NAP: Duration = Duration::from_millis(50);

type Shared<'a> = &'a (dyn Subject + Sync);

/// Posts, and makes progress by reading a queue while the endpoint is busy.
fn post(s: Shared<'_>, ep: Fid, post: &Post) -> Outcome {
    let start = Instant::now();
    loop {
        match s.post(ep, post) {
            Ok(()) => return Ok(()),
            Err(e) if e.is(Errno::EAGAIN) && start.elapsed() < soon() => thread::yield_now(),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Reads a queue until an operation is done; others are dropped.
fn wait(s: Shared<'_>, cq: Fid, token: u64) -> Step<Completion> {
    let start = Instant::now();
    while start.elapsed() < soon() {
        match s.cq_read(cq, 16) {
            Ok(read) => {
                if let Some(done) = read.into_iter().find(|c| c.token == Some(token)) {
                    return Ok(done);
                }
            }
            Err(e) if e.is(Errno::EAGAIN) => thread::yield_now(),
            Err(e) => return Err(e.into()),
        }
    }
    Err(Stop::fail(format!(
        "no completion of operation {token} within {:?}",
        soon()
    )))
}

/// A thread's result.
fn join<T>(handle: thread::ScopedJoinHandle<'_, Step<T>>) -> Step<T> {
    handle
        .join()
        .unwrap_or_else(|_| Err(Stop::fail("a thread panicked")))
}

fn token(mut post: Post, token: u64, to: FiAddr) -> Post {
    post.token = token;
    if !post.kind.receives() {
        post.addr = to;
    }
    post
}

/// Blocks in a queue until something completes; gives how long it took.
fn block(s: Shared<'_>, cq: Fid) -> Step<(Duration, usize)> {
    let start = Instant::now();
    let read = s.cq_sread(cq, 1, soon())?;
    Ok((start.elapsed(), read.len()))
}

fn read_wakes_for_message(cx: &Cx<'_>) -> Outcome {
    let s = cx.threads()?;
    for wait_obj in [WaitObj::Unspec, WaitObj::Fd] {
        let rig = Rig::open(cx, &Spec::default().wait(wait_obj).two_domains(true))?;
        rig.exchange(A, B, b"first")?;
        rig.post(B, Post::recv(16))?;
        let (cq, ep, to, send_cq) = (
            rig.sides[B].cq,
            rig.sides[A].ep,
            rig.sides[A].peer,
            rig.sides[A].cq,
        );
        thread::scope(|scope| {
            let reader = scope.spawn(move || block(s, cq));
            thread::sleep(NAP);
            post(s, ep, &token(Post::send(*b"wake up"), 900, to))?;
            wait(s, send_cq, 900)?;
            let (took, count) = join(reader)?;
            ensure!(count == 1, "{count} completions");
            ensure!(took < soon() / 2, "{wait_obj:?}: woken only after {took:?}");
            Ok(())
        })?;
    }
    Ok(())
}

fn read_wakes_for_send(cx: &Cx<'_>) -> Outcome {
    let s = cx.threads()?;
    let rig = Rig::open(cx, &Spec::default().wait(WaitObj::Unspec))?;
    rig.exchange(A, B, b"first")?;
    rig.post(B, Post::recv(16))?;
    let (cq, ep, to) = (rig.sides[A].cq, rig.sides[A].ep, rig.sides[A].peer);
    thread::scope(|scope| {
        let reader = scope.spawn(move || block(s, cq));
        thread::sleep(NAP);
        post(s, ep, &token(Post::send(*b"sent"), 900, to))?;
        let (took, count) = join(reader)?;
        ensure!(count == 1, "{count} completions");
        ensure!(took < soon() / 2, "woken only after {took:?}");
        Ok(())
    })
}

fn read_wakes_for_signal(cx: &Cx<'_>) -> Outcome {
    let s = cx.threads()?;
    for wait_obj in [WaitObj::Unspec, WaitObj::Fd] {
        let rig = Rig::open(cx, &Spec::default().wait(wait_obj))?;
        let cq = rig.sides[A].cq;
        thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let start = Instant::now();
                match s.cq_sread(cq, 1, soon()) {
                    Err(e) if e.is(Errno::EAGAIN) => Ok(start.elapsed()),
                    Err(e) => Err(e.into()),
                    Ok(read) => Err(Stop::fail(format!("{} completions", read.len()))),
                }
            });
            thread::sleep(NAP);
            s.cq_signal(cq)?;
            let took = join(reader)?;
            ensure!(took < soon() / 2, "{wait_obj:?}: woken only after {took:?}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Blocks in a counter; gives how long, and what the call said.
fn block_cntr(s: Shared<'_>, cntr: Fid, threshold: u64) -> Step<(Duration, Option<Errno>)> {
    let start = Instant::now();
    match s.cntr_wait(cntr, threshold, soon()) {
        Ok(()) => Ok((start.elapsed(), None)),
        Err(e) if e.errno().is_some() => Ok((start.elapsed(), e.errno())),
        Err(e) => Err(e.into()),
    }
}

fn counted<'a>(cx: &Cx<'a>) -> Step<Rig<'a>> {
    let rig = bare(cx, &Spec::default())?;
    let domain = cx.s.domain(rig.fabric, &rig.info)?;
    offered(
        cx.s.cntr(domain, WaitObj::Unspec),
        &[Errno::ENOSYS],
        "fi_cntr_open",
    )?;
    let spec = Spec::default()
        .counters(Some(WaitObj::Unspec))
        .two_domains(true);
    Rig::open(cx, &spec)
}

fn rx_cntr(rig: &Rig<'_>) -> Step<Fid> {
    rig.sides[B].rx_cntr.ok_or_else(|| Stop::fail("no counter"))
}

fn cntr_wakes(cx: &Cx<'_>) -> Outcome {
    let s = cx.threads()?;
    let rig = counted(cx)?;
    rig.exchange(A, B, b"first")?;
    for _ in 0..3 {
        rig.post(B, Post::recv(16))?;
    }
    let (cntr, ep, to, cq) = (
        rx_cntr(&rig)?,
        rig.sides[A].ep,
        rig.sides[A].peer,
        rig.sides[A].cq,
    );
    thread::scope(|scope| {
        let waiter = scope.spawn(move || block_cntr(s, cntr, 4));
        thread::sleep(NAP);
        for i in 0..3 {
            post(s, ep, &token(Post::send([i]), 900 + u64::from(i), to))?;
        }
        // All of them leave.
        wait(s, cq, 902)?;
        let (took, said) = join(waiter)?;
        ensure!(said.is_none(), "the wait said {said:?}");
        ensure!(took < soon() / 2, "woken only after {took:?}");
        Ok(())
    })
}

fn cntr_wakes_for_error(cx: &Cx<'_>) -> Outcome {
    let s = cx.threads()?;
    let rig = counted(cx)?;
    rig.exchange(A, B, b"first")?;
    let (cntr, ep, to, cq) = (
        rx_cntr(&rig)?,
        rig.sides[A].ep,
        rig.sides[A].peer,
        rig.sides[A].cq,
    );
    const ERRORS: u64 = 20;
    for _ in 0..ERRORS {
        rig.post(B, Post::recv(1))?;
    }
    thread::scope(|scope| {
        let waiter = scope.spawn(move || block_cntr(s, cntr, 100));
        // Only what goes wrong while the thread waits wakes it, and nobody knows when it does.
        for error in 0..ERRORS {
            thread::sleep(NAP);
            if waiter.is_finished() {
                break;
            }
            post(s, ep, &token(Post::send(*b"too long"), 900 + error, to))?;
            wait(s, cq, 900 + error)?;
        }
        let (took, said) = join(waiter)?;
        ensure!(said == Some(Errno::EAVAIL), "the wait said {said:?}");
        ensure!(took < soon() / 2, "woken only after {took:?}");
        Ok(())
    })
}

fn cntr_wakes_for_add(cx: &Cx<'_>) -> Outcome {
    let s = cx.threads()?;
    let rig = counted(cx)?;
    let cntr = rx_cntr(&rig)?;
    thread::scope(|scope| {
        let waiter = scope.spawn(move || block_cntr(s, cntr, 10));
        thread::sleep(NAP);
        s.cntr_add(cntr, 10)?;
        let (took, said) = join(waiter)?;
        ensure!(said.is_none(), "the wait said {said:?}");
        ensure!(took < soon() / 2, "woken only after {took:?}");
        Ok(())
    })
}

fn eq_wakes(cx: &Cx<'_>) -> Outcome {
    let s = cx.threads()?;
    let spec = Spec::default();
    let (mut rig, name) = listening(cx, &spec)?;
    let eq = rig.eqs[B];
    thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            let start = Instant::now();
            drop(s.eq_sread(eq, soon())?);
            Ok(start.elapsed())
        });
        thread::sleep(NAP);
        rig.dial(&spec, &name, &[])?;
        // The client's progress.
        let start = Instant::now();
        while !waiter.is_finished() && start.elapsed() < soon() {
            rig.nudge()?;
            rig.pump_eq(rig.eqs[A])?;
        }
        let took = join(waiter)?;
        ensure!(took < soon() / 2, "woken only after {took:?}");
        Ok(())
    })
}

const THREADS: usize = 4;
const EACH: usize = 100;

/// Messages in [`threads_share_endpoint`].
const ALL: usize = THREADS * EACH;

/// One read of a queue; nothing when it is empty. After too long it fails with what was done so far.
fn read_once(s: Shared<'_>, cq: Fid, start: Instant, so_far: &str) -> Step<Vec<Completion>> {
    ensure!(start.elapsed() < 3 * soon(), "{so_far}");
    match s.cq_read(cq, 16) {
        Ok(read) => Ok(read),
        Err(e) if e.is(Errno::EAGAIN) => {
            thread::yield_now();
            Ok(Vec::new())
        }
        Err(e) => Err(e.into()),
    }
}

/// Receives [`ALL`] messages; gives how often each number came.
fn receive_all(s: Shared<'_>, ep: Fid, cq: Fid) -> Step<Vec<usize>> {
    let mut tokens = 10_000_u64..;
    let mut post_next = || {
        let next = tokens.next().unwrap_or_default();
        post(s, ep, &token(Post::recv(8), next, FiAddr::UNSPEC))
    };
    for _ in 0..32 {
        post_next()?;
    }
    let (start, mut count) = (Instant::now(), 0);
    let mut seen = vec![0_usize; ALL];
    while count < ALL {
        let so_far = format!("{count} of {ALL} messages arrived");
        for got in read_once(s, cq, start, &so_far)? {
            let bytes: [u8; 8] = got.bytes().try_into().unwrap_or_default();
            seen[usize::from_le_bytes(bytes) % ALL] += 1;
            count += 1;
            post_next()?;
        }
    }
    Ok(seen)
}

/// Reads the completions of all senders, which also makes their progress, until all messages are
/// received; gives how many there were.
fn reap_all(s: Shared<'_>, cq: Fid, received: &AtomicBool) -> Step<usize> {
    let (start, mut count) = (Instant::now(), 0);
    while count < ALL || !received.load(Ordering::Acquire) {
        let so_far = format!("{count} of {ALL} sends completed");
        count += read_once(s, cq, start, &so_far)?.len();
    }
    Ok(count)
}

fn threads_share_endpoint(cx: &Cx<'_>) -> Outcome {
    let s = cx.threads()?;
    let rig = Rig::open(cx, &Spec::default())?;
    rig.exchange(A, B, b"first")?;
    let (a, b) = (&rig.sides[A], &rig.sides[B]);
    let (ep, cq, to, recv_ep, recv_cq) = (a.ep, a.cq, a.peer, b.ep, b.cq);
    let received = &AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let seen = receive_all(s, recv_ep, recv_cq)?;
            received.store(true, Ordering::Release);
            Ok(seen)
        });
        let reaper = scope.spawn(move || reap_all(s, cq, received));
        let sender = |thread: usize| {
            scope.spawn(move || {
                (thread * EACH..(thread + 1) * EACH).try_for_each(|number| {
                    let send = Post::send(number.to_le_bytes());
                    post(s, ep, &token(send, 20_000 + number as u64, to))
                })
            })
        };
        let senders: Vec<_> = (0..THREADS).map(sender).collect();
        senders.into_iter().try_for_each(join)?;
        let count = join(reaper)?;
        ensure!(count == ALL, "{count} completions of {ALL} sends");
        join(receiver)
    })?;
    let odd = seen.iter().position(|n| *n != 1);
    ensure!(
        odd.is_none(),
        "message {odd:?} arrived {:?} times",
        odd.map(|i| seen[i])
    );
    Ok(())
}

fn threads_share_queue(cx: &Cx<'_>) -> Outcome {
    let s = cx.threads()?;
    let rig = Rig::open(cx, &Spec::default())?;
    rig.exchange(A, B, b"first")?;
    let count = 200.min(rig.info.rx.size);
    for _ in 0..count {
        rig.post(B, Post::recv(8))?;
    }
    let cq = rig.sides[B].cq;
    let seen = AtomicUsize::new(0);
    let seen = &seen;
    thread::scope(|scope| {
        let mut readers = Vec::new();
        for _ in 0..3 {
            readers.push(scope.spawn(move || {
                let start = Instant::now();
                let mut own = Vec::new();
                while seen.load(Ordering::Acquire) < count {
                    ensure!(start.elapsed() < 2 * soon(), "not all completions came");
                    match s.cq_read(cq, 4) {
                        Ok(read) => {
                            seen.fetch_add(read.len(), Ordering::AcqRel);
                            own.extend(read.into_iter().filter_map(|c| c.token));
                        }
                        Err(e) if e.is(Errno::EAGAIN) => thread::yield_now(),
                        Err(e) => return Err(e.into()),
                    }
                }
                Ok(own)
            }));
        }
        let side = &rig.sides[A];
        for i in 0..count {
            post(
                s,
                side.ep,
                &token(Post::send(i.to_le_bytes()), 30_000 + i as u64, side.peer),
            )?;
            wait(s, side.cq, 30_000 + i as u64)?;
        }
        let mut all = Vec::new();
        for reader in readers {
            all.extend(join(reader)?);
        }
        let total = all.len();
        all.sort_unstable();
        all.dedup();
        ensure!(
            all.len() == count && total == count,
            "{total} completions, {} different",
            all.len()
        );
        Ok(())
    })
}

fn threads_inject(cx: &Cx<'_>) -> Outcome {
    let s = cx.threads()?;
    let rig = Rig::open(cx, &Spec::tagged())?;
    rig.exchange(A, B, b"first")?;
    let recvs = rig.post_all(
        B,
        (0..(THREADS * 50) as u64).map(|tag| Post::trecv(tag, 0, 8)),
    )?;
    let (ep, to) = (rig.sides[A].ep, rig.sides[A].peer);
    let stop = AtomicBool::new(false);
    let stop = &stop;
    let cq = rig.sides[A].cq;
    thread::scope(|scope| {
        let progress = scope.spawn(move || {
            while !stop.load(Ordering::Acquire) {
                match s.cq_read(cq, 0) {
                    Ok(_) => {}
                    Err(e) if e.is(Errno::EAGAIN) => thread::yield_now(),
                    Err(e) => return Err(e.into()),
                }
            }
            Ok(())
        });
        let mut senders = Vec::new();
        for thread in 0..THREADS {
            senders.push(scope.spawn(move || {
                for i in 0..50 {
                    let tag = (thread * 50 + i) as u64;
                    let start = Instant::now();
                    let bytes = tag.to_le_bytes();
                    let inject = Inject {
                        bytes: &bytes,
                        tag: Some(tag),
                        data: None,
                        addr: to,
                    };
                    while let Err(e) = s.inject(ep, inject) {
                        let again = e.is(Errno::EAGAIN) && start.elapsed() < soon();
                        ensure!(again, "{e}");
                        thread::yield_now();
                    }
                }
                Ok(())
            }));
        }
        let sent = senders.into_iter().try_for_each(join);
        for (tag, recv) in (0_u64..).zip(&recvs) {
            let got = rig.done(B, *recv);
            match got {
                Ok(got) if got.bytes() == tag.to_le_bytes() => {}
                other => {
                    stop.store(true, Ordering::Release);
                    let other = other?;
                    return Err(Stop::fail(format!("tag {tag} got {:?}", other.bytes())));
                }
            }
        }
        stop.store(true, Ordering::Release);
        sent?;
        join(progress)
    })
}

fn threads_own_endpoints(cx: &Cx<'_>) -> Outcome {
    let s = cx.threads()?;
    thread::scope(|scope| {
        let mut pairs = Vec::new();
        for thread in 0..THREADS {
            let (setup, ep_type) = (cx.setup, cx.ep_type);
            pairs.push(scope.spawn(move || {
                let cx = Cx {
                    s,
                    threads: Some(s),
                    setup,
                    ep_type,
                };
                let rig = Rig::open(&cx, &Spec::default())?;
                for i in 0..50 {
                    rig.exchange(A, B, &pattern(100 * i, thread))?;
                    rig.exchange(B, A, &pattern(100 * i, thread + 1))?;
                }
                rig.finish()
            }));
        }
        pairs.into_iter().try_for_each(join)
    })
}

fn threads_open_close(cx: &Cx<'_>) -> Outcome {
    let s = cx.threads()?;
    let rig = Rig::open(cx, &Spec::default())?;
    let (domain, info) = (rig.sides[A].domain, &rig.info);
    thread::scope(|scope| {
        let mut openers = Vec::new();
        for _ in 0..THREADS {
            openers.push(scope.spawn(move || {
                for _ in 0..20 {
                    let cq = s.cq(domain, crate::subject::CqAttr::default())?;
                    let ep = s.endpoint(domain, info)?;
                    s.bind(ep, cq, Flags::SEND | Flags::RECV)?;
                    s.close(ep)?;
                    s.close(cq)?;
                }
                Ok(())
            }));
        }
        // Traffic goes on meanwhile.
        let mut result = Ok(());
        for i in 0..50 {
            result = result.and_then(|()| rig.exchange(A, B, &pattern(1000, i)).map(drop));
        }
        openers.into_iter().try_for_each(join)?;
        result
    })?;
    rig.quiet()
}

/// Sides of their own domains with automatic progress, that have met.
fn automatic<'a>(cx: &Cx<'a>, spec: Spec) -> Step<Rig<'a>> {
    cx.threads()?;
    let spec = spec.two_domains(true).progress(Progress::Auto);
    let rig = Rig::open(cx, &spec)?;
    ensure!(
        rig.info.domain.progress == Progress::Auto,
        "{:?}",
        rig.info.domain.progress
    );
    Ok(rig)
}

/// Waits for an operation by reading one side's queue only.
fn alone(rig: &Rig<'_>, side: usize, token: u64) -> Step<Completion> {
    let start = Instant::now();
    while start.elapsed() < soon() {
        match rig.s.cq_read(rig.sides[side].cq, 16) {
            Ok(read) => {
                if let Some(done) = read.into_iter().find(|c| c.token == Some(token)) {
                    return Ok(done);
                }
            }
            Err(e) if e.is(Errno::EAGAIN) => thread::sleep(Duration::from_millis(1)),
            Err(e) => return Err(e.into()),
        }
    }
    Err(Stop::fail("nothing happens while the other side sleeps"))
}

fn progress_auto_receive(cx: &Cx<'_>) -> Outcome {
    let rig = automatic(cx, Spec::default())?;
    rig.exchange(A, B, b"first")?;
    for len in [8, 4 << 20] {
        let recv = rig.post(B, Post::recv(len))?;
        let post = Post::send(pattern(len, 1)).flags(Flags::DELIVERY_COMPLETE);
        let send = rig.post(A, post)?;
        // B makes no call until A knows that the message is there.
        alone(&rig, A, send)?;
        rig.arrives(recv, pattern(len, 1))?;
    }
    Ok(())
}

fn progress_auto_send(cx: &Cx<'_>) -> Outcome {
    let rig = automatic(cx, Spec::default())?;
    rig.exchange(A, B, b"first")?;
    for len in [8, 4 << 20] {
        let recv = rig.post(B, Post::recv(len))?;
        let send = rig.post(A, Post::send(pattern(len, 1)))?;
        // A makes no call until B has it all.
        let got = alone(&rig, B, recv)?;
        got.carries(pattern(len, 1))?;
        rig.done(A, send)?;
    }
    Ok(())
}

fn progress_auto_rendezvous(cx: &Cx<'_>) -> Outcome {
    let rig = automatic(cx, Spec::tagged())?;
    rig.exchange(A, B, b"first")?;
    let bytes = pattern(4 << 20, 1);
    let recv = rig.post(B, Post::trecv(1, 0, 4 << 20))?;
    let send = rig.post(A, Post::tsend(1, &bytes[..]))?;
    // Neither makes a call.
    thread::sleep(Duration::from_millis(700));
    let start = Instant::now();
    alone(&rig, B, recv)?.carries(&bytes)?;
    let took = start.elapsed();
    ensure!(
        took < bound(Duration::from_millis(500)),
        "it took {took:?} more once a call was made"
    );
    rig.done(A, send)?;
    Ok(())
}

fn progress_auto_first_contact(cx: &Cx<'_>) -> Outcome {
    let rig = automatic(cx, Spec::default())?;
    let recv = rig.post(B, Post::recv(8))?;
    let start = Instant::now();
    let post = || Post::send(*b"hello").flags(Flags::DELIVERY_COMPLETE);
    let send = loop {
        match rig.try_post(A, post()) {
            Ok(send) => break send,
            Err(e) if e.is(Errno::EAGAIN) && start.elapsed() < soon() => {
                drop(rig.s.cq_read(rig.sides[A].cq, 0));
            }
            Err(e) => return Err(e.into()),
        }
    };
    alone(&rig, A, send)?;
    rig.arrives(recv, b"hello")?;
    Ok(())
}
