//! `fi_trigger`(3).

mod shared;

use std::time::{Duration, Instant};

use ripstop_types::{AtomicKind, AtomicOp, Datatype, Errno, Flags, WaitObj};

use crate::case::{Case, Cx, Outcome, Step, Stop, cases, flagged, in_use, offered, refused};
use crate::pace::soon;
use crate::rig::{A, B, Rig, Spec, prepare};
use crate::subject::{Fid, Post, Token, When, WorkId, WorkOp};
use crate::{ensure, ensure_eq};

pub(super) fn cases() -> Vec<Case> {
    [OWN, shared::CASES].concat()
}

cases! {
    const OWN;
    fi_trigger {
        both messages:
            "deferred messages and receives, tagged or not, start when the counter has come so far";
        both rma: "deferred writes and reads start one after the other";
        both atomics: "deferred atomics of all three kinds are carried out";
        both counters: "deferred work sets counters and adds to them, and so starts other work";
        both chain: "a chain of many deferred additions comes to its end", within(30);
        both silent: "deferred work is counted by its own counter and by nothing else";
        both reached: "what has come far enough when it is queued starts at once";
        both order:
            "triggered messages start in the order of thresholds, and then as they were posted";
        both receives: "a triggered receive takes no message before its time";
        both triggered_rma: "triggered writes and reads are reported like any others";
        both cancel:
            "work that is cancelled does not start, work that has started is not cancelled";
        both flush: "a flush takes back what waits for one counter, or all that waits";
        both cancel_operation: "fi_cancel ends a triggered operation that waits";
        both errors: "errors count towards the threshold of deferred work";
        both denied:
            "work that fails raises the error value of its counter, which starts what waits for it";
        both busy: "a counter that work waits for, or will change, does not close";
        both endpoint_closes:
            "an endpoint closes with work that waits for it, and the counters after it";
        both other_domain: "counters and endpoints of another domain are FI_EDOMAIN";
        both high_threshold: "the highest threshold is queued and not reached";
        both wraps: "work waits for the highest values of a counter, which goes on from there to 0";
        both wakes: "a change by deferred work ends a wait for its counter in time";
    }
}

/// Two endpoints, a counter that work waits for, and one that is told of its end.
struct Ground<'a> {
    rig: Rig<'a>,
    go: Fid,
    done: Fid,
}

fn ground<'a>(cx: &Cx<'a>) -> Step<Ground<'a>> {
    with(cx, Spec::tagged())
}

fn with<'a>(cx: &Cx<'a>, spec: Spec) -> Step<Ground<'a>> {
    let rig = Rig::open(cx, &spec.caps(Flags::TRIGGER | Flags::RMA | Flags::ATOMIC))?;
    let domain = rig.sides[A].domain;
    let open = || {
        offered(
            rig.s.cntr(domain, WaitObj::Unspec),
            &[Errno::ENOSYS],
            "a counter",
        )
    };
    let (go, done) = (open()?, open()?);
    Ok(Ground { rig, go, done })
}

impl Ground<'_> {
    fn domain(&self) -> Fid {
        self.rig.sides[A].domain
    }

    /// Queues work, if the provider has that.
    #[track_caller]
    fn queue(&self, cntr: Fid, threshold: u64, op: &WorkOp<'_>) -> Step<WorkId> {
        let when = When { cntr, threshold };
        let queued = self.rig.s.queue_work(self.domain(), when, op);
        offered(queued, &[Errno::ENOSYS], "FI_QUEUE_WORK")
    }

    /// Queues a data transfer that is told to `done`; with `FI_COMPLETION` its token comes back.
    #[track_caller]
    fn put_off(&self, side: usize, post: Post, cntr: Fid, threshold: u64) -> Step<Token> {
        let post = self.rig.filled(side, post);
        let op = WorkOp::Post {
            ep: self.rig.sides[side].ep,
            post: &post,
            done: Some(self.done),
        };
        self.queue(cntr, threshold, &op)?;
        Ok(post.token)
    }

    /// Posts a triggered operation.
    #[track_caller]
    fn trigger(&self, side: usize, post: Post, threshold: u64) -> Step<Token> {
        let post = self.rig.filled(side, post);
        let (ep, cntr) = (self.rig.sides[side].ep, self.go);
        let posted = self.rig.s.trigger(ep, &post, When { cntr, threshold });
        offered(posted, &[Errno::ENOSYS], "FI_TRIGGER")?;
        Ok(post.token)
    }

    #[track_caller]
    fn becomes(&self, cntr: Fid, value: u64, errors: u64) -> Outcome {
        let s = self.rig.s;
        self.rig.until(&format!("{value} and {errors} errors"), || {
            let now = (s.cntr_read(cntr)?, s.cntr_readerr(cntr)?);
            Ok((now == (value, errors)).then_some(()))
        })
    }

    fn go(&self, value: u64) -> Outcome {
        Ok(self.rig.s.cntr_add(self.go, value)?)
    }

    /// Nothing happens for a while.
    #[track_caller]
    fn rests(&self, value: u64) -> Outcome {
        self.rig.quiet()?;
        let now = self.rig.s.cntr_read(self.done)?;
        ensure!(now == value, "{now} have ended, expected {value}");
        Ok(())
    }

    /// Closes all: the endpoints before what counts for them.
    #[track_caller]
    fn close(self) -> Outcome {
        let s = self.rig.s;
        s.flush_work(self.domain(), None)?;
        for cntr in [self.go, self.done] {
            s.close(cntr)?;
        }
        self.rig.close()
    }
}

fn messages(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    let told = |post: Post| post.flags(Flags::COMPLETION);
    let recv = g.put_off(B, told(Post::recv(8)), g.go, 1)?;
    let send = g.put_off(A, told(Post::send(*b"plain")), g.go, 2)?;
    let trecv = g.put_off(B, told(Post::trecv(7, 0, 8)), g.done, 2)?;
    let tsend = g.put_off(A, told(Post::tsend(7, *b"tagged")), g.done, 2)?;
    g.rests(0)?;
    g.go(1)?;
    g.rests(0)?;
    g.go(1)?;
    g.rig.done(A, send)?;
    let got = g.rig.done(B, recv)?.bytes();
    ensure!(got == b"plain", "{got:?} arrived");
    g.rig.done(A, tsend)?;
    let got = g.rig.done(B, trecv)?.bytes();
    ensure!(got == b"tagged", "{got:?} arrived");
    g.becomes(g.done, 4, 0)?;
    g.close()
}

fn rma(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    let target = g
        .rig
        .expose(B, &[0; 64], Flags::REMOTE_READ | Flags::REMOTE_WRITE)?;
    let read = Post::read(target.at(0, 8)).flags(Flags::COMPLETION);
    let read = g.put_off(A, read, g.done, 1)?;
    g.put_off(A, Post::write(*b"deferred", target.at(0, 8)), g.go, 1)?;
    g.rests(0)?;
    g.rig.unchanged(&target, &[0; 64])?;
    g.go(1)?;
    let got = g.rig.done(A, read)?;
    ensure!(got.bufs.concat() == b"deferred", "{got:?} was read");
    g.becomes(g.done, 2, 0)?;
    g.close()
}

fn atomics(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    let [one, two, five] = [1_u64, 2, 5].map(u64::to_ne_bytes);
    let target = g
        .rig
        .expose(B, &one, Flags::REMOTE_READ | Flags::REMOTE_WRITE)?;
    let atomic = |kind, op, operands| {
        let what = (Datatype::Uint64, op);
        Post::atomic(kind, what, operands, target.at(0, 8)).flags(Flags::COMPLETION)
    };
    let plain = atomic(AtomicKind::Plain, AtomicOp::Sum, [&one, &[]]);
    let fetch = atomic(AtomicKind::Fetch, AtomicOp::Sum, [&one, &[]]);
    let compare = atomic(AtomicKind::Compare, AtomicOp::CswapNe, [&five, &two]);
    let plain = g.put_off(A, plain, g.go, 1)?;
    let fetch = g.put_off(A, fetch, g.done, 1)?;
    let compare = g.put_off(A, compare, g.done, 2)?;
    g.rests(0)?;
    g.go(1)?;
    g.rig.done(A, plain)?;
    for (token, was) in [(fetch, 2), (compare, 3_u64)] {
        let bufs = g.rig.done(A, token)?.bufs;
        let found = bufs.last().is_some_and(|buf| **buf == was.to_ne_bytes());
        ensure!(found, "fetched {bufs:?}, expected {was}");
    }
    g.becomes(g.done, 3, 0)?;
    g.rig.holds(&target, &five)?;
    g.close()
}

fn counters(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    g.queue(g.done, 50, &WorkOp::Add(g.go, 1000))?;
    g.queue(g.go, 2, &WorkOp::Set(g.done, 40))?;
    g.queue(g.go, 2, &WorkOp::Add(g.done, 10))?;
    g.go(1)?;
    g.rests(0)?;
    g.go(1)?;
    g.becomes(g.done, 50, 0)?;
    g.becomes(g.go, 1002, 0)?;
    g.close()
}

fn chain(cx: &Cx<'_>) -> Outcome {
    const LONG: u64 = 20_000;
    let g = ground(cx)?;
    for step in 1..=LONG {
        g.queue(g.go, step, &WorkOp::Add(g.done, 1))?;
        g.queue(g.done, step, &WorkOp::Add(g.go, 1))?;
    }
    g.go(1)?;
    g.becomes(g.done, LONG, 0)?;
    g.becomes(g.go, LONG + 1, 0)?;
    g.close()
}

fn silent(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::tagged().counters(Some(WaitObj::Unspec));
    let g = with(cx, spec)?;
    g.put_off(B, Post::recv(8), g.go, 1)?;
    g.put_off(A, Post::send(*b"silent"), g.go, 1)?;
    g.go(1)?;
    g.becomes(g.done, 2, 0)?;
    g.rests(2)?;
    let own = [g.rig.sides[A].tx_cntr, g.rig.sides[B].rx_cntr];
    for cntr in own.into_iter().flatten() {
        let counted = g.rig.s.cntr_read(cntr)?;
        ensure!(counted == 0, "the endpoint's counter has {counted}");
    }
    // The endpoint's counter may be the one that is told, and is told once.
    let post = g.rig.filled(B, Post::recv(8));
    let op = WorkOp::Post {
        ep: g.rig.sides[B].ep,
        post: &post,
        done: g.rig.sides[B].rx_cntr,
    };
    g.queue(g.go, 1, &op)?;
    g.put_off(A, Post::send(*b"told"), g.go, 1)?;
    if let Some(cntr) = g.rig.sides[B].rx_cntr {
        g.becomes(cntr, 1, 0)?;
    }
    g.becomes(g.done, 3, 0)?;
    g.close()
}

fn reached(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    g.go(5)?;
    g.queue(g.go, 5, &WorkOp::Add(g.done, 3))?;
    g.becomes(g.done, 3, 0)?;
    let recv = g.rig.post(B, Post::recv(8))?;
    let send = g.trigger(A, Post::send(*b"at once"), 0)?;
    g.rig.done(A, send)?;
    g.rig.done(B, recv)?;
    g.close()
}

fn order(cx: &Cx<'_>) -> Outcome {
    let g = with(cx, Spec::tagged().counters(Some(WaitObj::Unspec)))?;
    let recvs = g.rig.post_all(B, (0..6).map(|_| Post::recv(1)))?;
    let mut sends = Vec::new();
    for (byte, threshold) in [(5, 9), (2, 3), (0, 1), (3, 3), (4, 4), (1, 2)] {
        sends.push(g.trigger(A, Post::send([byte]), threshold)?);
    }
    g.rests(0)?;
    // Errors are no successes.
    g.rig.s.cntr_adderr(g.go, 20)?;
    g.rests(0)?;
    g.go(9)?;
    for send in sends {
        g.rig.done(A, send)?;
    }
    for (byte, recv) in (0..6_u8).zip(recvs) {
        let got = g.rig.done(B, recv)?.bytes();
        ensure!(got == [byte], "{got:?} arrived, expected {byte}");
    }
    // Unlike deferred work, they are the endpoint's.
    if let Some(cntr) = g.rig.sides[A].tx_cntr {
        g.becomes(cntr, 6, 0)?;
    }
    g.close()
}

fn receives(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    let late = g.trigger(B, Post::recv(8), 1)?;
    let early = g.rig.post(B, Post::recv(8))?;
    let sends = [
        g.rig.post(A, Post::send(*b"1"))?,
        g.rig.post(A, Post::send(*b"2"))?,
    ];
    let first = g.rig.done(B, early)?.bytes();
    ensure!(first == b"1", "{first:?} came first");
    ensure!(g.rig.take_done(B, late).is_none(), "received too early");
    g.go(1)?;
    let second = g.rig.done(B, late)?.bytes();
    ensure!(second == b"2", "{second:?} came second");
    for send in sends {
        g.rig.done(A, send)?;
    }
    g.close()
}

fn triggered_rma(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    let target = g
        .rig
        .expose(B, &[0; 8], Flags::REMOTE_READ | Flags::REMOTE_WRITE)?;
    let write = Post::write(*b"trigger!", target.at(0, 8)).flags(Flags::DELIVERY_COMPLETE);
    let write = g.trigger(A, write, 1)?;
    let read = g.trigger(A, Post::read(target.at(0, 8)), 2)?;
    g.rests(0)?;
    g.go(1)?;
    let done = g.rig.done(A, write)?;
    ensure!(done.flags.contains(Flags::WRITE), "{:?}", done.flags);
    g.go(1)?;
    let got = g.rig.done(A, read)?;
    ensure!(got.bufs.concat() == b"trigger!", "{got:?} was read");
    g.close()
}

fn cancel(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    let s = g.rig.s;
    let first = g.queue(g.go, 1, &WorkOp::Add(g.done, 1))?;
    let second = g.queue(g.go, 1, &WorkOp::Add(g.done, 10))?;
    s.cancel_work(g.domain(), first)?;
    let again = s.cancel_work(g.domain(), first);
    refused(again, &[Errno::ENOENT], "cancelling twice")?;
    g.go(1)?;
    g.becomes(g.done, 10, 0)?;
    let late = s.cancel_work(g.domain(), second);
    refused(late, &[Errno::ENOENT], "cancelling what has started")?;
    g.rests(10)?;
    g.close()
}

fn flush(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    let s = g.rig.s;
    let other = s.cntr(g.domain(), WaitObj::Unspec)?;
    let first = g.queue(g.go, 1, &WorkOp::Add(g.done, 1))?;
    g.queue(other, 1, &WorkOp::Add(g.done, 10))?;
    g.queue(other, 2, &WorkOp::Add(g.done, 100))?;
    s.flush_work(g.domain(), Some(g.go))?;
    let gone = s.cancel_work(g.domain(), first);
    refused(gone, &[Errno::ENOENT], "cancelling what was flushed")?;
    g.go(1)?;
    s.cntr_add(other, 1)?;
    g.becomes(g.done, 10, 0)?;
    s.flush_work(g.domain(), None)?;
    s.cntr_add(other, 1)?;
    g.rests(10)?;
    s.close(other)?;
    g.close()
}

fn cancel_operation(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    let send = g.trigger(A, Post::send(*b"never"), 1)?;
    let recv = g.trigger(B, Post::recv(8), 1)?;
    for (side, token, flag) in [(A, send, Flags::SEND), (B, recv, Flags::RECV)] {
        let cancel = || g.rig.s.cancel(g.rig.sides[side].ep, token);
        cancel()?;
        let failed = g.rig.failed(side, token)?;
        ensure_eq!(failed.err, Errno::ECANCELED, "the error");
        flagged(failed.entry.flags, flag | Flags::MSG, "its entry")?;
        // Through the C interface that is no error.
        match cancel() {
            Err(again) if !again.is(Errno::ENOENT) => return Err(again.into()),
            _ => {}
        }
        g.rig.quiet()?;
    }
    g.go(1)?;
    g.rests(0)?;
    g.close()
}

fn errors(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    g.queue(g.go, 3, &WorkOp::Add(g.done, 1))?;
    g.go(1)?;
    g.rig.s.cntr_adderr(g.go, 1)?;
    g.rests(0)?;
    g.rig.s.cntr_seterr(g.go, 2)?;
    g.becomes(g.done, 1, 0)?;
    g.close()
}

fn denied(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    let target = g.rig.expose(B, &[7; 8], Flags::REMOTE_READ)?;
    g.put_off(A, Post::write([1; 8], target.at(0, 8)), g.go, 1)?;
    g.put_off(A, Post::read(target.at(4, 8)), g.go, 1)?;
    g.queue(g.done, 2, &WorkOp::Set(g.go, 99))?;
    g.go(1)?;
    g.becomes(g.done, 0, 2)?;
    g.becomes(g.go, 99, 0)?;
    g.rig.unchanged(&target, &[7; 8])?;
    g.rig.quiet()?;
    g.close()
}

fn busy(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    let s = g.rig.s;
    g.queue(g.go, 1, &WorkOp::Add(g.done, 1))?;
    for cntr in [g.go, g.done] {
        in_use(s.close(cntr), "a counter with work")?;
    }
    g.go(1)?;
    g.becomes(g.done, 1, 0)?;
    // Receives that have started still are to be told.
    g.put_off(B, Post::recv(8), g.go, 1)?;
    in_use(s.close(g.done), "a counter with a receive")?;
    g.rig.post(A, Post::send(*b"now"))?;
    g.becomes(g.done, 2, 0)?;
    g.close()
}

fn endpoint_closes(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    g.put_off(B, Post::recv(8), g.go, 1)?;
    g.put_off(A, Post::send(*b"late"), g.go, 1)?;
    g.trigger(A, Post::send(*b"later"), 1)?;
    // Endpoints first, then what they are bound to, then the counters.
    let Ground { rig, go, done } = g;
    let (s, eps) = (rig.s, [rig.sides[A].ep, rig.sides[B].ep]);
    for ep in eps {
        s.close(ep)?;
    }
    s.cntr_add(go, 1)?;
    let end = Instant::now() + Duration::from_millis(20);
    while Instant::now() < end {
        let told = s.cntr_read(done)?;
        ensure!(told == 0, "{told} have ended without their endpoint");
    }
    for cntr in [go, done] {
        s.close(cntr)?;
    }
    Ok(())
}

fn other_domain(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    let s = g.rig.s;
    let domain = s.domain(g.rig.fabric, &g.rig.info)?;
    let theirs = s.cntr(domain, WaitObj::Unspec)?;
    g.queue(g.go, 5, &WorkOp::Add(g.done, 1))?;
    let post = g.rig.filled(A, Post::send(*b"no"));
    let work = |ep, done| WorkOp::Post {
        ep,
        post: &post,
        done: Some(done),
    };
    let side = prepare(s, &Spec::tagged(), domain, &g.rig.info)?;
    let (send, theirs_to_do) = (|done| work(g.rig.sides[A].ep, done), work(side.ep, g.done));
    for (cntr, op) in [
        (theirs, WorkOp::Add(g.done, 1)),
        (g.go, WorkOp::Add(theirs, 1)),
        (g.go, WorkOp::Set(theirs, 1)),
        (g.go, send(theirs)),
        (theirs, send(g.done)),
        (g.go, theirs_to_do),
    ] {
        let when = When { cntr, threshold: 0 };
        let queued = s.queue_work(g.domain(), when, &op);
        refused(queued, &[Errno::EDOMAIN], "another domain's counter")?;
    }
    let when = When {
        cntr: theirs,
        threshold: 0,
    };
    let post = g.rig.filled(A, Post::send(*b"no"));
    let posted = s.trigger(g.rig.sides[A].ep, &post, when);
    refused(posted, &[Errno::EDOMAIN], "another domain's counter")?;
    let flushed = s.flush_work(g.domain(), Some(theirs));
    refused(flushed, &[Errno::EDOMAIN], "flushing another domain's")?;
    g.rests(0)?;
    for fid in [side.ep, side.cq].into_iter().chain(side.av) {
        s.close(fid)?;
    }
    s.close(theirs)?;
    s.close(domain)?;
    g.close()
}

fn high_threshold(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    g.queue(g.go, u64::MAX, &WorkOp::Add(g.done, 1))?;
    g.rig.s.cntr_set(g.go, 1 << 40)?;
    g.rests(0)?;
    g.close()
}

fn wakes(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    let s = g.rig.s;
    g.queue(g.go, 1, &WorkOp::Add(g.done, 2))?;
    let short = s.cntr_wait(g.done, 2, Duration::from_millis(20));
    refused(short, &[Errno::ETIMEDOUT], "a wait for what does not come")?;
    g.go(1)?;
    s.cntr_wait(g.done, 2, soon())?;
    let Ok(threads) = cx.threads() else {
        return g.close();
    };
    let (go, done) = (g.go, g.done);
    g.queue(go, 2, &WorkOp::Add(done, 3))?;
    g.queue(go, 3, &WorkOp::Set(done, 9))?;
    for value in [5, 9] {
        let (woken, added) = std::thread::scope(|scope| {
            let waiter = scope.spawn(move || {
                let start = Instant::now();
                (threads.cntr_wait(done, value, soon()), start.elapsed())
            });
            std::thread::sleep(Duration::from_millis(50));
            let added = threads.cntr_add(go, 1);
            (waiter.join(), added)
        });
        added?;
        let (waited, took) = woken.map_err(|_| Stop::fail("the waiting thread panicked"))?;
        waited?;
        ensure!(took < soon(), "woken after {took:?}");
    }
    g.close()
}

fn wraps(cx: &Cx<'_>) -> Outcome {
    let g = ground(cx)?;
    let s = g.rig.s;
    s.cntr_set(g.go, u64::MAX - 4)?;
    s.cntr_set(g.done, u64::MAX - 2)?;
    for threshold in [u64::MAX, u64::MAX - 1, u64::MAX - 2] {
        g.queue(g.go, threshold, &WorkOp::Add(g.done, 1))?;
    }
    g.go(1)?;
    g.rests(u64::MAX - 2)?;
    // What work counts wraps too.
    for done in [u64::MAX - 1, u64::MAX, 0] {
        g.go(1)?;
        g.becomes(g.done, done, 0)?;
        g.rests(done)?;
    }
    // From the start, with work that is queued before and after.
    g.queue(g.go, 2, &WorkOp::Add(g.done, 10))?;
    g.becomes(g.done, 10, 0)?;
    g.go(1)?;
    g.becomes(g.go, 0, 0)?;
    g.queue(g.go, 2, &WorkOp::Add(g.done, 10))?;
    g.go(1)?;
    g.rests(10)?;
    g.go(1)?;
    g.becomes(g.done, 20, 0)?;
    // With errors there is as much as there can be, not what is left of the sum.
    s.cntr_set(g.go, u64::MAX - 1)?;
    g.queue(g.go, u64::MAX, &WorkOp::Add(g.done, 10))?;
    g.rests(20)?;
    s.cntr_adderr(g.go, 5)?;
    g.becomes(g.done, 30, 0)?;
    g.close()
}
