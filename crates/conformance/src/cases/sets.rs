//! `fi_poll`(3): poll sets and wait sets.

use std::time::{Duration, Instant};

use ripstop_types::{Errno, Flags, WaitObj};

use super::c_edge;
use crate::case::{Cx, Outcome, Step, cases, in_use, offered, refused};
use crate::ensure;
use crate::pace::soon;
use crate::rig::{A, B, Rig, Spec};
use crate::subject::{CqAttr, Fid, Post};

cases! {
    pub(super) const CASES;
    fi_poll {
        both queues:
            "a poll set makes progress, and names the queues with entries as long as they have some";
        both counters: "a poll set names a counter once a change";
        both members: "a member does not close, one that was taken out does, and is not named";
        both room:
            "no more members are named than there is room for, and all where there is enough";
        both not_a_member:
            "an address vector is not for a poll set, nor is taking out what is not in";
    }
    fi_wait {
        both wakes: "a wait set wakes for a completion in one of its queues, and times out without";
        both counter: "a wait set wakes for a counter";
        both event:
            "a wait set wakes for an event, also where queues and counters share it"
                = wakes_for_event;
        both busy: "a wait set does not close under its queues";
    }
}

fn poll_set(cx: &Cx<'_>, domain: Fid) -> Step<Fid> {
    let opened = c_edge(cx)?.poll_set(domain);
    offered(opened, &[Errno::ENOSYS], "fi_poll_open")
}

fn wait_set(cx: &Cx<'_>, fabric: Fid) -> Step<Fid> {
    let opened = c_edge(cx)?.wait_set(fabric, WaitObj::Unspec);
    offered(opened, &[Errno::ENOSYS], "fi_wait_open")
}

fn queues(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    rig.exchange(A, B, b"first")?;
    let set = poll_set(cx, rig.sides[A].domain)?;
    edge.poll_add(set, rig.sides[B].cq)?;
    ensure!(edge.poll_all(set, 4)?.is_empty(), "an empty queue is named");
    let recv = rig.try_post(B, Post::recv(10))?;
    let send = rig.try_post(A, Post::send(*b"to be told"))?;
    // Nothing else makes progress at B.
    let end = Instant::now() + soon();
    while edge.poll_all(set, 4)? != [rig.sides[B].cq] {
        ensure!(
            Instant::now() < end,
            "the queue with a message is not named"
        );
        match rig.s.cq_read(rig.sides[A].cq, 0) {
            Ok(_) => {}
            Err(e) if e.is(Errno::EAGAIN) => {}
            Err(e) => return Err(e.into()),
        }
    }
    ensure!(
        edge.poll_all(set, 4)? == [rig.sides[B].cq],
        "it is named only once"
    );
    rig.arrives(recv, b"to be told")?;
    rig.done(A, send)?;
    ensure!(
        edge.poll_all(set, 4)?.is_empty(),
        "a queue that was read is named"
    );
    rig.s.close(set)?;
    rig.close()
}

fn counters(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    let domain = rig.sides[A].domain;
    let set = poll_set(cx, domain)?;
    let [one, two] = [
        rig.s.cntr(domain, WaitObj::None)?,
        rig.s.cntr(domain, WaitObj::None)?,
    ];
    edge.poll_add(set, one)?;
    edge.poll_add(set, two)?;
    ensure!(
        edge.poll_all(set, 4)?.is_empty(),
        "counters at rest are named"
    );
    for add in [true, false] {
        match add {
            true => rig.s.cntr_add(two, 3)?,
            false => rig.s.cntr_adderr(two, 1)?,
        }
        rig.until("the name of a counter that changed", || {
            let named = edge.poll_all(set, 4)?;
            ensure!(!named.contains(&one), "the wrong counter is named");
            Ok(named.contains(&two).then_some(()))
        })?;
        ensure!(edge.poll_all(set, 4)?.is_empty(), "it is named again");
    }
    for fid in [set, one, two] {
        rig.s.close(fid)?;
    }
    rig.close()
}

fn members(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    let domain = rig.sides[A].domain;
    let set = poll_set(cx, domain)?;
    let cntr = rig.s.cntr(domain, WaitObj::None)?;
    edge.poll_add(set, cntr)?;
    in_use(rig.s.close(cntr), "a member")?;
    edge.poll_del(set, cntr)?;
    rig.s.cntr_add(cntr, 1)?;
    ensure!(
        edge.poll_all(set, 4)?.is_empty(),
        "what was taken out is named"
    );
    rig.s.close(cntr)?;
    rig.s.close(set)?;
    rig.close()
}

fn room(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    let domain = rig.sides[A].domain;
    let set = poll_set(cx, domain)?;
    let mut all = Vec::new();
    for _ in 0..5 {
        let cntr = rig.s.cntr(domain, WaitObj::None)?;
        edge.poll_add(set, cntr)?;
        all.push(cntr);
    }
    for cntr in &all {
        rig.s.cntr_add(*cntr, 1)?;
    }
    let some = edge.poll_all(set, 2)?;
    ensure!(some.len() <= 2, "{} named in room for 2", some.len());
    for cntr in &all {
        rig.s.cntr_adderr(*cntr, 1)?;
    }
    let mut named = edge.poll_all(set, 8)?;
    named.sort_unstable();
    ensure!(named == all, "named {named:?} of {all:?}");
    rig.s.close(set)?;
    for cntr in all {
        rig.s.close(cntr)?;
    }
    rig.close()
}

fn not_a_member(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    let domain = rig.sides[A].domain;
    let set = poll_set(cx, domain)?;
    let no = [Errno::EINVAL];
    if let Some(av) = rig.sides[A].av {
        refused(edge.poll_add(set, av), &no, "adding an address vector")?;
    }
    let removed = edge.poll_del(set, rig.sides[A].cq);
    refused(removed, &no, "taking out what is not in")?;
    rig.s.close(set)?;
    rig.close()
}

/// Waits with a bound; whether the set woke.
fn woken(cx: &Cx<'_>, set: Fid, timeout: Duration) -> Step<bool> {
    match c_edge(cx)?.wait_for(set, timeout) {
        Ok(()) => Ok(true),
        Err(e) if e.is(Errno::ETIMEDOUT) || e.is(Errno::EAGAIN) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

fn wakes(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    let domain = rig.sides[A].domain;
    let set = wait_set(cx, rig.fabric)?;
    let cq = edge.cq_in(domain, set, CqAttr::default())?;
    // An endpoint that reports there, beside the two of the rig.
    if !cx.is_rdm() {
        rig.s.close(cq)?;
        rig.s.close(set)?;
        return rig.close();
    }
    let ep = rig.s.endpoint(domain, &rig.info)?;
    rig.s.bind(ep, cq, Flags::SEND | Flags::RECV)?;
    let av = rig.s.av(domain, Default::default())?;
    rig.s.bind(ep, av, Flags::empty())?;
    rig.s.enable(ep)?;
    let start = Instant::now();
    let bound = Duration::from_millis(30);
    ensure!(!woken(cx, set, bound)?, "it woke for nothing");
    ensure!(start.elapsed() >= bound, "it did not wait");
    let name = rig.s.name(ep)?;
    let to = rig.insert(A, Some(&name))?;
    let mut recv = Post::recv(10);
    recv.token = rig.token();
    rig.s.post(ep, &recv)?;
    let send = rig.post(A, Post::send(*b"wake up").with(to))?;
    let end = Instant::now() + soon();
    loop {
        // The sender's progress is its own.
        rig.pump()?;
        match rig.s.cq_read(cq, 1) {
            Ok(done) => {
                ensure!(done[0].bytes() == b"wake up", "got {done:?}");
                break;
            }
            Err(e) if e.is(Errno::EAGAIN) => {}
            Err(e) => return Err(e.into()),
        }
        ensure!(Instant::now() < end, "the message did not come");
        woken(cx, set, Duration::from_millis(50))?;
    }
    rig.done(A, send)?;
    // A message that is there wakes at once.
    let mut recv = Post::recv(10);
    recv.token = rig.token();
    rig.s.post(ep, &recv)?;
    rig.complete(A, Post::send(*b"again").with(to))?;
    ensure!(woken(cx, set, soon())?, "it slept through a message");
    let done = crate::rig::again(|| rig.s.cq_read(cq, 1))?;
    ensure!(done[0].bytes() == b"again", "got {done:?}");
    for fid in [ep, cq, av, set] {
        rig.s.close(fid)?;
    }
    rig.close()
}

fn counter(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    let set = wait_set(cx, rig.fabric)?;
    let opened = edge.cntr_in(rig.sides[A].domain, set);
    let cntr = offered(opened, &[Errno::ENOSYS], "a counter in a wait set")?;
    ensure!(
        !woken(cx, set, Duration::from_millis(20))?,
        "it woke for nothing"
    );
    rig.s.cntr_add(cntr, 1)?;
    ensure!(woken(cx, set, soon())?, "it slept through a change");
    rig.s.close(cntr)?;
    rig.s.close(set)?;
    rig.close()
}

fn wakes_for_event(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    let set = wait_set(cx, rig.fabric)?;
    let domain = rig.sides[A].domain;
    let opened = edge.eq_in(rig.fabric, set);
    let eq = offered(opened, &[Errno::ENOSYS], "an event queue in a wait set")?;
    let others = [
        edge.cq_in(domain, set, CqAttr::default())?,
        edge.cntr_in(domain, set)?,
    ];
    let short = Duration::from_millis(20);
    ensure!(!woken(cx, set, short)?, "it woke for nothing");
    for data in [7, 8] {
        edge.eq_write(eq, 99, data)?;
        ensure!(woken(cx, set, soon())?, "it slept through an event");
        let (event, found, _) = edge.eq_read_written(eq, 24, Flags::empty())?;
        ensure!((event, found) == (99, data), "{event} with {found}");
    }
    for fid in [eq].into_iter().chain(others).chain([set]) {
        rig.s.close(fid)?;
    }
    rig.close()
}

fn busy(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    let set = wait_set(cx, rig.fabric)?;
    let cq = edge.cq_in(rig.sides[A].domain, set, CqAttr::default())?;
    in_use(rig.s.close(set), "a set in use")?;
    rig.s.close(cq)?;
    let eq = edge.eq_in(rig.fabric, set)?;
    in_use(rig.s.close(set), "a set in use")?;
    rig.s.close(eq)?;
    rig.s.close(set)?;
    rig.close()
}
