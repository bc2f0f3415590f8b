//! Blocking reads and wait objects, in one thread. Waking others is with the threads.

use std::time::{Duration, Instant};

use ripstop_types::{Errno, Progress, WaitObj};

use super::super::c_edge;
use crate::case::{Cx, Outcome, Step, Stop, cases, offered, ready, refused};
use crate::ensure;
use crate::pace::{bound, soon};
use crate::rig::{A, B, Rig, Spec, offer};
use crate::subject::{Completion, CqAttr, Fid, Post};

cases! {
    pub(super) const CASES;
    fi_cq {
        both wait_objects: "queues open with every wait object";
        both sread_timeout: "a blocking read of nothing ends with its time";
        both sread_yield: "FI_WAIT_YIELD waits as the others do";
        both sread_zero: "a blocking read without time returns at once", timed();
        both sread_ready: "a blocking read of what is there does not block";
        both sread_progress: "a blocking read makes the progress it waits for";
        both sread_error: "a blocking read ends for an error";
        both sread_none: "a queue without wait object refuses blocking reads";
        both signal_before: "a signal before the read wakes it";
    }
    fi_poll {
        both trywait: "trywait says FI_EAGAIN while there is something to read";
        both fd: "the descriptor wakes for each message, many times";
        both fd_quiet: "the descriptor of an idle queue is not readable";
        both fd_send: "the descriptor wakes for transmits as well";
        both fd_signal: "a signal makes the descriptor readable";
        both pollfd: "the descriptors of FI_WAIT_POLLFD wake for each message, many times";
        both pollfd_counter: "those of a counter wake when it counts";
    }
}

/// How long an idle wait lasts here.
const SHORT: Duration = Duration::from_millis(60);

fn queue(cx: &Cx<'_>, wait: WaitObj) -> Step<(Fid, Fid)> {
    let info = offer(cx, &Spec::default())?;
    let fabric = cx.s.fabric(&info)?;
    let domain = cx.s.domain(fabric, &info)?;
    let attr = CqAttr {
        wait,
        ..CqAttr::default()
    };
    let cq = offered(
        cx.s.cq(domain, attr),
        &[Errno::ENOSYS],
        &format!("{wait:?}"),
    )?;
    Ok((fabric, cq))
}

fn wait_objects(cx: &Cx<'_>) -> Outcome {
    for wait in [
        WaitObj::None,
        WaitObj::Unspec,
        WaitObj::Fd,
        WaitObj::MutexCond,
        WaitObj::Yield,
    ] {
        let (_, cq) = queue(cx, wait)?;
        refused(
            cx.s.cq_read(cq, 1),
            &[Errno::EAGAIN],
            &format!("{wait:?}: reading nothing"),
        )?;
        cx.s.close(cq)?;
    }
    Ok(())
}

fn timed(cx: &Cx<'_>, cq: Fid, timeout: Duration) -> Step<Duration> {
    let start = Instant::now();
    refused(
        cx.s.cq_sread(cq, 1, timeout),
        &[Errno::EAGAIN],
        "a blocking read of nothing",
    )?;
    Ok(start.elapsed())
}

fn sread_timeout(cx: &Cx<'_>) -> Outcome {
    for wait in [WaitObj::Unspec, WaitObj::Fd] {
        let (_, cq) = queue(cx, wait)?;
        let took = timed(cx, cq, SHORT)?;
        ensure!(
            took >= SHORT - Duration::from_millis(5),
            "{wait:?}: back after {took:?}"
        );
        ensure!(took < soon(), "{wait:?}: back only after {took:?}");
    }
    Ok(())
}

fn sread_yield(cx: &Cx<'_>) -> Outcome {
    let (_, cq) = queue(cx, WaitObj::Yield)?;
    let took = timed(cx, cq, SHORT)?;
    ensure!(
        took >= SHORT - Duration::from_millis(5) && took < soon(),
        "back after {took:?}"
    );
    let rig = Rig::open(cx, &Spec::default().wait(WaitObj::Yield))?;
    rig.exchange(A, B, b"first")?;
    let recv = rig.post(B, Post::recv(8))?;
    rig.post(A, Post::send(*b"yield"))?;
    blocked(&rig, recv)?;
    Ok(())
}

fn sread_zero(cx: &Cx<'_>) -> Outcome {
    let (_, cq) = queue(cx, WaitObj::Unspec)?;
    let took = timed(cx, cq, Duration::ZERO)?;
    ensure!(
        took < bound(Duration::from_millis(500)),
        "back after {took:?}"
    );
    Ok(())
}

/// Blocks on B's queue until an operation is done; reads A's for progress.
fn blocked(rig: &Rig<'_>, token: u64) -> Step<Completion> {
    let start = Instant::now();
    while start.elapsed() < soon() {
        match rig
            .s
            .cq_sread(rig.sides[B].cq, 1, Duration::from_millis(20))
        {
            Ok(read) => {
                for done in read {
                    if done.token == Some(token) {
                        return Ok(done);
                    }
                }
            }
            Err(e) if e.is(Errno::EAGAIN) => drop(rig.s.cq_read(rig.sides[A].cq, 0)),
            Err(e) => return Err(e.into()),
        }
    }
    Err(Stop::fail("blocking reads did not see the message"))
}

fn sread_ready(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().wait(WaitObj::Unspec))?;
    rig.exchange(A, B, b"first")?;
    let recv = rig.post(B, Post::recv(8))?;
    let send = rig.post(A, Post::send(*b"ready"))?;
    rig.sent(A, send)?;
    let start = Instant::now();
    let read = rig.s.cq_sread(rig.sides[B].cq, 1, soon())?;
    ensure!(
        read.iter().any(|c| c.token == Some(recv)),
        "another completion"
    );
    ensure!(
        start.elapsed() < soon() / 2,
        "back only after {:?}",
        start.elapsed()
    );
    Ok(())
}

fn sread_progress(cx: &Cx<'_>) -> Outcome {
    for wait in [WaitObj::Unspec, WaitObj::Fd] {
        let rig = Rig::open(cx, &Spec::default().wait(wait).progress(Progress::Manual))?;
        rig.exchange(A, B, b"first")?;
        for len in [1, 200_000] {
            let recv = rig.post(B, Post::recv(len))?;
            rig.post(A, Post::send(vec![1; len]))?;
            blocked(&rig, recv)?;
        }
    }
    Ok(())
}

fn sread_error(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().wait(WaitObj::Unspec))?;
    rig.exchange(A, B, b"first")?;
    rig.post(B, Post::recv(1))?;
    let send = rig.post(A, Post::send(*b"too long"))?;
    rig.sent(A, send)?;
    let start = Instant::now();
    refused(
        rig.s.cq_sread(rig.sides[B].cq, 1, soon()),
        &[Errno::EAVAIL],
        "a blocking read",
    )?;
    ensure!(
        start.elapsed() < soon() / 2,
        "back only after {:?}",
        start.elapsed()
    );
    Ok(())
}

fn sread_none(cx: &Cx<'_>) -> Outcome {
    let (_, cq) = queue(cx, WaitObj::None)?;
    let reasons = [Errno::EINVAL, Errno::ENOSYS, Errno::EOPNOTSUPP];
    refused(
        cx.s.cq_sread(cq, 1, SHORT),
        &reasons,
        "a blocking read without wait object",
    )
}

fn signal_before(cx: &Cx<'_>) -> Outcome {
    for wait in [WaitObj::Unspec, WaitObj::Fd] {
        let (_, cq) = queue(cx, wait)?;
        cx.s.cq_signal(cq)?;
        let took = timed(cx, cq, soon())?;
        ensure!(
            took < soon() / 2,
            "{wait:?}: not woken, back after {took:?}"
        );
        // It wakes one read.
        let took = timed(cx, cq, SHORT)?;
        ensure!(took >= SHORT / 2, "{wait:?}: woken twice by one signal");
    }
    Ok(())
}

fn trywait(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().wait(WaitObj::Fd))?;
    rig.exchange(A, B, b"first")?;
    let cq = rig.sides[B].cq;
    let recv = rig.post(B, Post::recv(8))?;
    let send = rig.post(A, Post::send(*b"wait"))?;
    rig.sent(A, send)?;
    refused(
        rig.s.trywait(rig.fabric, &[cq]),
        &[Errno::EAGAIN],
        "trywait with something to read",
    )?;
    let read = rig.s.cq_read(cq, 1)?;
    ensure!(read[0].token == Some(recv), "another completion");
    rig.watch("trywait of an empty queue", || {
        ready(rig.s.trywait(rig.fabric, &[cq]))
    })
}

/// Waits on a side's queue as programs do: trywait, poll, read; until an operation is done.
fn polled(rig: &Rig<'_>, side: usize, token: u64) -> Outcome {
    let cq = rig.sides[side].cq;
    let start = Instant::now();
    while start.elapsed() < soon() {
        match rig.s.trywait(rig.fabric, &[cq]) {
            Ok(()) => {
                ensure!(
                    rig.s.poll_fd(cq, soon())?,
                    "the descriptor stayed quiet for {:?} with a message on its way",
                    soon()
                );
            }
            Err(e) if e.is(Errno::EAGAIN) => {}
            Err(e) => return Err(e.into()),
        }
        match rig.s.cq_read(cq, 16) {
            Ok(read) if read.iter().any(|c| c.token == Some(token)) => return Ok(()),
            Ok(_) => {}
            Err(e) if e.is(Errno::EAGAIN) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(Stop::fail(
        "waits on the descriptor did not see the message",
    ))
}

fn fd(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(
        cx,
        &Spec::default()
            .wait(WaitObj::Fd)
            .progress(Progress::Manual)
            .two_domains(true),
    )?;
    rig.exchange(A, B, b"first")?;
    rig.exchange(B, A, b"first")?;
    for i in 0..50_u8 {
        let recv = rig.post(B, Post::recv(8))?;
        let send = rig.post(A, Post::send([i]))?;
        polled(&rig, B, recv)?;
        rig.done(A, send)?;
    }
    Ok(())
}

/// As [`polled`], of an object with `FI_WAIT_POLLFD`; `there` says whether what it waits for is there.
fn poll_round(
    cx: &Cx<'_>,
    rig: &Rig<'_>,
    fid: Fid,
    mut there: impl FnMut() -> Step<bool>,
) -> Outcome {
    let edge = c_edge(cx)?;
    let start = Instant::now();
    while start.elapsed() < soon() {
        match rig.s.trywait(rig.fabric, &[fid]) {
            Ok(()) => {
                let woken = edge.poll_fds(fid, soon());
                let woken = offered(woken, &[Errno::ENOSYS], "FI_GETWAIT of that")?;
                ensure!(woken, "the descriptors stayed quiet for {:?}", soon());
            }
            Err(e) if e.is(Errno::EAGAIN) => {}
            Err(e) => return Err(e.into()),
        }
        if there()? {
            return Ok(());
        }
    }
    Err(Stop::fail("waits on the descriptors did not see it"))
}

fn pollfd(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default().wait(WaitObj::PollFd);
    let spec = spec.progress(Progress::Manual).two_domains(true);
    c_edge(cx)?;
    queue(cx, WaitObj::PollFd)?;
    let rig = Rig::open(cx, &spec)?;
    rig.exchange(A, B, b"first")?;
    rig.exchange(B, A, b"first")?;
    let cq = rig.sides[B].cq;
    for i in 0..50_u8 {
        let recv = rig.post(B, Post::recv(8))?;
        let send = rig.post(A, Post::send([i]))?;
        poll_round(cx, &rig, cq, || {
            let read = ready(rig.s.cq_read(cq, 16))?.unwrap_or_default();
            Ok(read.iter().any(|c| c.token == Some(recv)))
        })?;
        rig.done(A, send)?;
    }
    Ok(())
}

fn pollfd_counter(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default().counters(Some(WaitObj::PollFd));
    c_edge(cx)?;
    let info = offer(cx, &Spec::default())?;
    let domain = cx.s.domain(cx.s.fabric(&info)?, &info)?;
    let counter = cx.s.cntr(domain, WaitObj::PollFd);
    offered(counter, &[Errno::ENOSYS], "FI_WAIT_POLLFD of a counter")?;
    let rig = Rig::open(cx, &spec.progress(Progress::Manual).two_domains(true))?;
    let counter = rig.sides[B].rx_cntr;
    let counter = counter.ok_or_else(|| Stop::not_offered("counters"))?;
    rig.exchange(A, B, b"first")?;
    for i in 0..20_u8 {
        let before = rig.s.cntr_read(counter)?;
        let recv = rig.post(B, Post::recv(8))?;
        let send = rig.post(A, Post::send([i]))?;
        poll_round(cx, &rig, counter, || Ok(rig.s.cntr_read(counter)? > before))?;
        rig.done(A, send)?;
        rig.done(B, recv)?;
    }
    Ok(())
}

fn fd_quiet(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().wait(WaitObj::Fd))?;
    rig.exchange(A, B, b"first")?;
    let cq = rig.sides[B].cq;
    // What woke it before may take a few rounds to be cleared.
    for _ in 0..20 {
        rig.pump()?;
        match rig.s.trywait(rig.fabric, &[cq]) {
            Ok(()) if !rig.s.poll_fd(cq, Duration::from_millis(20))? => return Ok(()),
            Ok(()) => {}
            Err(e) if e.is(Errno::EAGAIN) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(Stop::fail("readable 20 times with nothing to read"))
}

fn fd_send(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().wait(WaitObj::Fd))?;
    rig.exchange(A, B, b"first")?;
    let recv = rig.post(B, Post::recv(8))?;
    let send = rig.post(A, Post::send(*b"sent"))?;
    polled(&rig, A, send)?;
    rig.done(B, recv)?;
    Ok(())
}

fn fd_signal(cx: &Cx<'_>) -> Outcome {
    let (fabric, cq) = queue(cx, WaitObj::Fd)?;
    cx.s.trywait(fabric, &[cq])?;
    ensure!(
        !cx.s.poll_fd(cq, Duration::ZERO)?,
        "readable with nothing to read"
    );
    cx.s.cq_signal(cq)?;
    ensure!(cx.s.poll_fd(cq, soon())?, "not readable after a signal");
    Ok(())
}
