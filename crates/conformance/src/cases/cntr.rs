//! `fi_cntr`(3).

use std::time::{Duration, Instant};

use ripstop_types::{Errno, Flags, WaitObj};

use crate::case::{Cx, Outcome, Step, cases, in_use, offered, refused};
use crate::ensure;
use crate::pace::soon;
use crate::rig::{A, B, Rig, Spec, offer};
use crate::subject::{Fid, Post};

cases! {
    pub(super) const CASES;
    fi_cntr {
        both values: "set, add and the error value are read back";
        both counts_sends: "sends are counted when they complete";
        both counts_receives: "receives are counted when they complete";
        both counts_silent: "operations without a completion entry are counted";
        both counts_inject: "injects are counted";
        rdm counts_tagged: "tagged messages are counted" = tagged;
        both counts_errors: "operations that fail raise the error value, not the value";
        both progress: "reading a counter makes progress";
        both wait_reached: "a wait for what is reached returns at once";
        both wait_timeout: "a wait for what is not reached ends with FI_ETIMEDOUT in time";
        both wait_counts: "a wait ends when enough operations have completed";
        both wait_none: "a wait on a counter without wait object ends with an error";
        both wait_objects: "counters open with every wait object";
        both shared: "one counter counts both directions of both sides";
        both wraps: "a counter goes on from its highest value to 0, and waits hold what is there";
        both trywait:
            "trywait says FI_EAGAIN as long as either value is another than the program has read";
        both busy: "a bound counter does not close";
    }
}

fn open(cx: &Cx<'_>, wait: WaitObj) -> Step<Fid> {
    let info = offer(cx, &Spec::default())?;
    let fabric = cx.s.fabric(&info)?;
    let domain = cx.s.domain(fabric, &info)?;
    offered(cx.s.cntr(domain, wait), &[Errno::ENOSYS], "fi_cntr_open")
}

/// A rig with a counter of A's sends and one of B's receives.
fn counted<'a>(cx: &Cx<'a>, spec: Spec, wait: WaitObj) -> Step<(Rig<'a>, Fid, Fid)> {
    open(cx, wait)?;
    let spec = spec.counters(Some(wait));
    let rig = Rig::open(cx, &spec)?;
    let tx = rig.sides[A].tx_cntr;
    let rx = rig.sides[B].rx_cntr;
    match (tx, rx) {
        (Some(tx), Some(rx)) => Ok((rig, tx, rx)),
        _ => Err(crate::case::Stop::fail("the suite opened no counters")),
    }
}

/// A counter's value becomes this.
fn becomes(rig: &Rig<'_>, cntr: Fid, value: u64) -> Outcome {
    rig.until(&format!("a count of {value}"), || {
        let now = rig.s.cntr_read(cntr)?;
        ensure!(now <= value, "counted {now}, expected {value}");
        Ok((now == value).then_some(()))
    })
}

fn values(cx: &Cx<'_>) -> Outcome {
    let cntr = open(cx, WaitObj::None)?;
    let s = cx.s;
    let eventually =
        |what: &str, read: &dyn Fn() -> crate::subject::Result<u64>, value| -> Outcome {
            let start = Instant::now();
            loop {
                let now = read()?;
                if now == value {
                    return Ok(());
                }
                ensure!(start.elapsed() < soon(), "{what} is {now}, not {value}");
            }
        };
    let value = || s.cntr_read(cntr);
    let error = || s.cntr_readerr(cntr);
    eventually("a new counter", &value, 0)?;
    eventually("a new error value", &error, 0)?;
    s.cntr_set(cntr, 1000)?;
    eventually("the value after set", &value, 1000)?;
    s.cntr_add(cntr, 234)?;
    eventually("the value after add", &value, 1234)?;
    s.cntr_adderr(cntr, 7)?;
    eventually("the error value after add", &error, 7)?;
    s.cntr_seterr(cntr, 2)?;
    eventually("the error value after set", &error, 2)?;
    eventually("the value after all", &value, 1234)
}

fn counts_sends(cx: &Cx<'_>) -> Outcome {
    let (rig, tx, rx) = counted(cx, Spec::default(), WaitObj::None)?;
    for i in 1..=20 {
        rig.exchange(A, B, &[1; 100])?;
        becomes(&rig, tx, i)?;
        becomes(&rig, rx, i)?;
    }
    rig.close()
}

fn counts_receives(cx: &Cx<'_>) -> Outcome {
    let (rig, _, rx) = counted(cx, Spec::default(), WaitObj::None)?;
    let recvs = rig.post_all(B, (0..10).map(|_| Post::recv(8)))?;
    becomes(&rig, rx, 0)?;
    for i in 0..10_u8 {
        rig.complete(A, Post::send([i]))?;
    }
    rig.all_done(B, recvs)?;
    becomes(&rig, rx, 10)?;
    rig.close()
}

fn counts_silent(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default().selective(Flags::SEND | Flags::RECV);
    let (rig, tx, rx) = counted(cx, spec, WaitObj::None)?;
    for _ in 0..10 {
        rig.post(B, Post::recv(8))?;
        rig.post(A, Post::send(*b"silent"))?;
    }
    becomes(&rig, tx, 10)?;
    becomes(&rig, rx, 10)?;
    rig.finish()
}

fn counts_inject(cx: &Cx<'_>) -> Outcome {
    let (rig, tx, rx) = counted(cx, Spec::default(), WaitObj::None)?;
    for _ in 0..10 {
        let recv = rig.post(B, Post::recv(8))?;
        rig.inject(A, b"inject", None, None)?;
        rig.done(B, recv)?;
    }
    becomes(&rig, tx, 10)?;
    becomes(&rig, rx, 10)?;
    rig.close()
}

fn tagged(cx: &Cx<'_>) -> Outcome {
    let (rig, tx, rx) = counted(cx, Spec::tagged(), WaitObj::None)?;
    for (i, len) in (1..).zip([0, 100, 300_000]) {
        rig.deliver(Post::trecv(1, 0, len), Post::tsend(1, vec![1; len]))?;
        becomes(&rig, tx, i)?;
        becomes(&rig, rx, i)?;
    }
    rig.close()
}

fn counts_errors(cx: &Cx<'_>) -> Outcome {
    let (rig, _, rx) = counted(cx, Spec::default(), WaitObj::None)?;
    rig.exchange(A, B, b"first")?;
    becomes(&rig, rx, 1)?;
    let recv = rig.post(B, Post::recv(1))?;
    rig.post(A, Post::send(*b"too long"))?;
    rig.failed(B, recv)?;
    rig.until("an error count of 1", || {
        Ok((rig.s.cntr_readerr(rx)? == 1).then_some(()))
    })?;
    becomes(&rig, rx, 1)?;
    rig.close()
}

fn progress(cx: &Cx<'_>) -> Outcome {
    let (rig, tx, rx) = counted(cx, Spec::default(), WaitObj::None)?;
    rig.exchange(A, B, b"first")?;
    for i in 2..10 {
        rig.post(B, Post::recv(50_000))?;
        rig.post(A, Post::send(vec![1; 50_000]))?;
        let start = Instant::now();
        // Only the counters are read.
        while rig.s.cntr_read(tx)?.min(rig.s.cntr_read(rx)?) < i {
            ensure!(
                start.elapsed() < soon(),
                "no progress without reading the queues"
            );
        }
    }
    Ok(())
}

fn wait_reached(cx: &Cx<'_>) -> Outcome {
    let cntr = open(cx, WaitObj::Unspec)?;
    cx.s.cntr_set(cntr, 5)?;
    for threshold in [0, 4, 5] {
        let start = Instant::now();
        cx.s.cntr_wait(cntr, threshold, soon())?;
        ensure!(
            start.elapsed() < soon() / 2,
            "back only after {:?}",
            start.elapsed()
        );
    }
    Ok(())
}

fn wait_timeout(cx: &Cx<'_>) -> Outcome {
    for wait in [WaitObj::Unspec, WaitObj::Fd] {
        let cntr = open(cx, wait)?;
        for millis in [0, 60] {
            let timeout = Duration::from_millis(millis);
            let start = Instant::now();
            let waited = cx.s.cntr_wait(cntr, 1, timeout);
            refused(waited, &[Errno::ETIMEDOUT], "a wait for more than there is")?;
            let took = start.elapsed();
            ensure!(
                took + Duration::from_millis(5) >= timeout,
                "back after {took:?}"
            );
            ensure!(took < soon(), "back only after {took:?}");
        }
        ensure!(
            cx.s.cntr_readerr(cntr)? == 0,
            "the timeout counts as an error"
        );
    }
    Ok(())
}

fn wait_counts(cx: &Cx<'_>) -> Outcome {
    let (rig, tx, rx) = counted(cx, Spec::default(), WaitObj::Unspec)?;
    rig.exchange(A, B, b"first")?;
    for _ in 0..5 {
        rig.post(B, Post::recv(8))?;
        rig.post(A, Post::send(*b"counted"))?;
    }
    rig.s.cntr_wait(tx, 6, soon())?;
    // The sender's progress may still be needed.
    let start = Instant::now();
    loop {
        match rig.s.cntr_wait(rx, 6, Duration::from_millis(20)) {
            Ok(()) => break,
            Err(e) if e.is(Errno::ETIMEDOUT) && start.elapsed() < soon() => {
                rig.s.cntr_read(tx)?;
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn wait_none(cx: &Cx<'_>) -> Outcome {
    let cntr = open(cx, WaitObj::None)?;
    let waited = cx.s.cntr_wait(cntr, 1, Duration::from_millis(50));
    let reasons = [
        Errno::EINVAL,
        Errno::ENOSYS,
        Errno::EOPNOTSUPP,
        Errno::ETIMEDOUT,
    ];
    refused(waited, &reasons, "a wait without wait object")
}

fn wait_objects(cx: &Cx<'_>) -> Outcome {
    for wait in [
        WaitObj::None,
        WaitObj::Unspec,
        WaitObj::Fd,
        WaitObj::MutexCond,
        WaitObj::Yield,
    ] {
        let cntr = open(cx, wait)?;
        cx.s.cntr_add(cntr, 1)?;
        cx.s.close(cntr)?;
    }
    Ok(())
}

fn shared(cx: &Cx<'_>) -> Outcome {
    let spec = Spec {
        counters: Some(WaitObj::None),
        one_cntr: true,
        ..Spec::default()
    };
    open(cx, WaitObj::None)?;
    let rig = Rig::open(cx, &spec)?;
    let Some(cntr) = rig.sides[A].tx_cntr else {
        return Err(crate::case::Stop::fail("the suite opened no counter"));
    };
    for i in 1..=5 {
        rig.exchange(A, B, b"ping")?;
        rig.exchange(B, A, b"pong")?;
        becomes(&rig, cntr, 4 * i)?;
    }
    rig.close()
}

fn busy(cx: &Cx<'_>) -> Outcome {
    let (rig, tx, _) = counted(cx, Spec::default(), WaitObj::None)?;
    in_use(rig.s.close(tx), "a bound counter")?;
    rig.exchange(A, B, b"still counted")?;
    becomes(&rig, tx, 1)?;
    rig.close()
}

fn wraps(cx: &Cx<'_>) -> Outcome {
    let (rig, tx, rx) = counted(cx, Spec::default(), WaitObj::Unspec)?;
    let short = Duration::from_millis(20);
    let counts = |value: u64| {
        rig.until(&format!("a count of {value}"), || {
            let now = [rig.s.cntr_read(tx)?, rig.s.cntr_read(rx)?];
            Ok((now == [value; 2]).then_some(()))
        })
    };
    rig.exchange(A, B, b"first")?;
    counts(1)?;
    for cntr in [tx, rx] {
        rig.s.cntr_set(cntr, u64::MAX - 2)?;
        rig.s.cntr_seterr(cntr, u64::MAX)?;
    }
    counts(u64::MAX - 2)?;
    for value in [u64::MAX - 1, u64::MAX] {
        for cntr in [tx, rx] {
            let early = rig.s.cntr_wait(cntr, value, short);
            refused(early, &[Errno::ETIMEDOUT], "a wait for what is not there")?;
        }
        rig.exchange(A, B, b"near the end")?;
        counts(value)?;
        for cntr in [tx, rx] {
            rig.s.cntr_wait(cntr, value, soon())?;
        }
    }
    for value in 0..3 {
        rig.exchange(A, B, b"from the start")?;
        counts(value)?;
        for cntr in [tx, rx] {
            rig.s.cntr_wait(cntr, value, soon())?;
            let early = rig.s.cntr_wait(cntr, value + 1, short);
            refused(early, &[Errno::ETIMEDOUT], "a wait for what is not there")?;
        }
    }
    rig.s.cntr_adderr(tx, 3)?;
    rig.until("an error count of 2", || {
        Ok((rig.s.cntr_readerr(tx)? == 2).then_some(()))
    })?;
    counts(2)?;
    rig.close()
}

fn trywait(cx: &Cx<'_>) -> Outcome {
    let info = offer(cx, &Spec::default())?;
    let s = cx.s;
    let fabric = s.fabric(&info)?;
    let domain = s.domain(fabric, &info)?;
    let cntr = offered(
        s.cntr(domain, WaitObj::Fd),
        &[Errno::ENOSYS],
        "fi_cntr_open",
    )?;
    let calm = || -> Outcome {
        let start = Instant::now();
        loop {
            s.cntr_read(cntr)?;
            s.cntr_readerr(cntr)?;
            match s.trywait(fabric, &[cntr]) {
                Ok(()) => return Ok(()),
                Err(e) if e.is(Errno::EAGAIN) && start.elapsed() < soon() => {}
                Err(e) => return Err(e.into()),
            }
        }
    };
    let news = |what: &str| refused(s.trywait(fabric, &[cntr]), &[Errno::EAGAIN], what);
    calm()?;
    s.cntr_set(cntr, 5)?;
    news("trywait after a change")?;
    calm()?;
    // As many more errors as there are fewer successes.
    s.cntr_set(cntr, 4)?;
    s.cntr_adderr(cntr, 1)?;
    news("trywait after a change of both values")?;
    calm()?;
    s.cntr_add(cntr, 1)?;
    s.cntr_readerr(cntr)?;
    news("trywait with a value that was not read")?;
    calm()?;
    s.cntr_adderr(cntr, 1)?;
    s.cntr_read(cntr)?;
    news("trywait with an error value that was not read")?;
    calm()?;
    Ok(())
}
