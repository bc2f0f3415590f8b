//! `fi_eq`(3). Connection events are with connection management.

use std::time::{Duration, Instant};

use ripstop_types::{Errno, Flags, WaitObj};

use crate::case::{Cx, Outcome, Step, Stop, cases, in_use, offered, refused};
use crate::ensure;
use crate::pace::soon;
use crate::rig::{B, Rig, Spec, bare, listener, listening};
use crate::subject::{Event, Fid};

cases! {
    pub(super) const CASES;
    fi_eq {
        both empty: "an empty queue says FI_EAGAIN, to read and to readerr";
        both wait_objects: "queues open with every wait object";
        both sread_timeout: "a blocking read of nothing ends with its time";
        both sread_none: "a queue without wait object refuses blocking reads";
        msg sread_event: "a blocking read gives the event it waited for";
        msg fd: "the descriptor wakes for an event";
        both write: "an event a program writes is read back";
        both write_order: "events are read in the order written, hundreds of them";
        both peek: "FI_PEEK shows an event and leaves it";
        both short: "a buffer that is too short says FI_ETOOSMALL and keeps the event";
        msg busy: "a bound event queue does not close";
        both fd_quiet: "the descriptor of an idle queue is not readable";
    }
}

fn open<'a>(cx: &Cx<'a>, wait: WaitObj) -> Step<(Rig<'a>, Fid)> {
    let rig = bare(cx, &Spec::default())?;
    let eq = offered(
        cx.s.eq(rig.fabric, wait),
        &[Errno::ENOSYS],
        &format!("{wait:?}"),
    )?;
    Ok((rig, eq))
}

fn empty(cx: &Cx<'_>) -> Outcome {
    let (rig, eq) = open(cx, WaitObj::None)?;
    refused(cx.s.eq_read(eq), &[Errno::EAGAIN], "reading an empty queue")?;
    refused(
        cx.s.eq_readerr(eq),
        &[Errno::EAGAIN],
        "reading an error that is not there",
    )?;
    cx.s.close(eq)?;
    cx.s.close(rig.fabric)?;
    Ok(())
}

fn wait_objects(cx: &Cx<'_>) -> Outcome {
    for wait in [
        WaitObj::None,
        WaitObj::Unspec,
        WaitObj::Fd,
        WaitObj::MutexCond,
        WaitObj::Yield,
    ] {
        let (_, eq) = open(cx, wait)?;
        refused(
            cx.s.eq_read(eq),
            &[Errno::EAGAIN],
            &format!("{wait:?}: reading nothing"),
        )?;
        cx.s.close(eq)?;
    }
    Ok(())
}

fn sread_timeout(cx: &Cx<'_>) -> Outcome {
    for wait in [WaitObj::Unspec, WaitObj::Fd] {
        let (_, eq) = open(cx, wait)?;
        for millis in [0, 60] {
            let timeout = Duration::from_millis(millis);
            let start = Instant::now();
            refused(
                cx.s.eq_sread(eq, timeout),
                &[Errno::EAGAIN],
                "a blocking read of nothing",
            )?;
            let took = start.elapsed();
            ensure!(
                took + Duration::from_millis(5) >= timeout,
                "{wait:?}: back after {took:?}"
            );
            ensure!(took < soon(), "{wait:?}: back only after {took:?}");
        }
    }
    Ok(())
}

fn sread_none(cx: &Cx<'_>) -> Outcome {
    let (_, eq) = open(cx, WaitObj::None)?;
    let reasons = [Errno::EINVAL, Errno::ENOSYS, Errno::EOPNOTSUPP];
    let read = cx.s.eq_sread(eq, Duration::from_millis(50));
    refused(read, &reasons, "a blocking read without wait object")
}

fn sread_event(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let (mut rig, name) = listening(cx, &spec)?;
    rig.dial(&spec, &name, &[])?;
    let start = Instant::now();
    while start.elapsed() < soon() {
        match rig.s.eq_sread(rig.eqs[B], Duration::from_millis(20)) {
            Ok(Event::ConnReq { .. }) => return Ok(()),
            Ok(event) => return Err(Stop::fail(format!("expected FI_CONNREQ, got {event:?}"))),
            // The client's progress is ours to make.
            Err(e) if e.is(Errno::EAGAIN) => rig.nudge()?,
            Err(e) => return Err(e.into()),
        }
        rig.pump_eq(rig.eqs[0])?;
    }
    Err(Stop::fail("blocking reads did not see the request"))
}

fn fd(cx: &Cx<'_>) -> Outcome {
    let spec = Spec {
        eq_wait: WaitObj::Fd,
        ..Spec::default()
    };
    let (mut rig, name) = listening(cx, &spec)?;
    let eq = rig.eqs[B];
    for _ in 0..5 {
        rig.dial(&spec, &name, &[])?;
        let start = Instant::now();
        loop {
            match rig.s.trywait(rig.fabric, &[eq]) {
                Ok(()) => drop(rig.s.poll_fd(eq, Duration::from_millis(20))?),
                Err(e) if e.is(Errno::EAGAIN) => {}
                Err(e) => return Err(e.into()),
            }
            match rig.s.eq_read(eq) {
                Ok(Event::ConnReq { .. }) => break,
                Ok(event) => return Err(Stop::fail(format!("expected FI_CONNREQ: {event:?}"))),
                Err(e) if e.is(Errno::EAGAIN) => {}
                Err(e) => return Err(e.into()),
            }
            rig.nudge()?;
            rig.pump_eq(rig.eqs[0])?;
            ensure!(start.elapsed() < soon(), "no request seen by waiting");
        }
    }
    Ok(())
}

fn writable(cx: &Cx<'_>) -> Step<Fid> {
    let edge = super::c_edge(cx)?;
    let rig = bare(cx, &Spec::default())?;
    let eq = edge.eq_for_writing(rig.fabric, WaitObj::Unspec);
    offered(eq, &[Errno::ENOSYS], "FI_WRITE")
}

fn write(cx: &Cx<'_>) -> Outcome {
    let edge = super::c_edge(cx)?;
    let eq = writable(cx)?;
    for data in [1, 0xdead_beef_0000_0001] {
        offered(edge.eq_write(eq, 0, data), &[Errno::ENOSYS], "fi_eq_write")?;
        let (event, read, _) = edge.eq_read_written(eq, 64, Flags::empty())?;
        ensure!(event == 0 && read == data, "event {event}, data {read:#x}");
    }
    refused(cx.s.eq_read(eq), &[Errno::EAGAIN], "reading once more")
}

fn write_order(cx: &Cx<'_>) -> Outcome {
    let edge = super::c_edge(cx)?;
    let eq = writable(cx)?;
    for data in 0..300 {
        offered(edge.eq_write(eq, 0, data), &[Errno::ENOSYS], "fi_eq_write")?;
    }
    for data in 0..300 {
        let (_, read, _) = edge.eq_read_written(eq, 64, Flags::empty())?;
        ensure!(read == data, "event {data} has data {read}");
    }
    Ok(())
}

fn peek(cx: &Cx<'_>) -> Outcome {
    let edge = super::c_edge(cx)?;
    let eq = writable(cx)?;
    offered(edge.eq_write(eq, 0, 5), &[Errno::ENOSYS], "fi_eq_write")?;
    for flags in [Flags::PEEK, Flags::PEEK, Flags::empty()] {
        let (_, read, _) = edge.eq_read_written(eq, 64, flags)?;
        ensure!(read == 5, "{flags:?}: data {read}");
    }
    refused(cx.s.eq_read(eq), &[Errno::EAGAIN], "reading once more")
}

fn short(cx: &Cx<'_>) -> Outcome {
    let edge = super::c_edge(cx)?;
    let eq = writable(cx)?;
    offered(edge.eq_write(eq, 0, 5), &[Errno::ENOSYS], "fi_eq_write")?;
    let read = edge.eq_read_written(eq, 4, Flags::empty());
    refused(read, &[Errno::ETOOSMALL], "reading an event into 4 bytes")?;
    let (_, read, _) = edge.eq_read_written(eq, 64, Flags::empty())?;
    ensure!(read == 5, "data {read}");
    Ok(())
}

fn busy(cx: &Cx<'_>) -> Outcome {
    let rig = bare(cx, &Spec::default())?;
    let eq = cx.s.eq(rig.fabric, WaitObj::None)?;
    let (pep, _) = listener(cx.s, rig.fabric, &rig.info, eq)?;
    in_use(cx.s.close(eq), "an event queue of a listener")?;
    cx.s.close(pep)?;
    let domain = cx.s.domain(rig.fabric, &rig.info)?;
    let ep = cx.s.endpoint(domain, &rig.info)?;
    cx.s.bind(ep, eq, Flags::empty())?;
    in_use(cx.s.close(eq), "an event queue of an endpoint")?;
    cx.s.close(ep)?;
    cx.s.close(eq)?;
    Ok(())
}

fn fd_quiet(cx: &Cx<'_>) -> Outcome {
    let (rig, eq) = open(cx, WaitObj::Fd)?;
    cx.s.trywait(rig.fabric, &[eq])?;
    let ready = cx.s.poll_fd(eq, Duration::from_millis(30))?;
    ensure!(!ready, "readable with nothing to read");
    Ok(())
}
