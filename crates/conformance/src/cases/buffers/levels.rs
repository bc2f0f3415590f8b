//! What a completion of each level gives back, and a counter.

use ripstop_types::{AtomicKind, Errno, Flags, WaitObj};

use super::remote::{self, KINDS, OPEN, Work, words};
use super::{LOOKS, What, apart, arrives, lands, lengths};
use crate::case::{Cx, Outcome, Step, Stop, cases};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, Target, pattern};
use crate::subject::{Completion, Fid, Post, Token};

cases! {
    pub(super) const CASES;
    fi_msg {
        both completion_gives_back:
            "messages of every length arrive as they were when their completion of any level was read"
                = |cx| messages(cx, What::Msg), within(20);
    }
    fi_tagged {
        both completion_gives_back:
            "tagged messages of every length arrive as they were when their completion of any level \
         was read" = |cx| messages(cx, What::Tagged), within(20);
    }
    fi_rma {
        both completion_gives_back:
            "writes of every length arrive as they were when their completion of any level was read"
                = writes, within(20);
    }
    fi_msg {
        both count_gives_back:
            "messages without a completion arrive as they were when they were counted"
                = |cx| counted(cx, What::Msg);
    }
    fi_tagged {
        both count_gives_back:
            "tagged messages without a completion arrive as they were when they were counted"
                = |cx| counted(cx, What::Tagged);
    }
    fi_rma {
        both count_gives_back:
            "writes without a completion arrive as they were when they were counted"
                = counted_writes;
    }
    fi_atomic {
        both completion_gives_back:
            "atomics of every kind and length are done as they were posted when their completion of \
         any level was read, and their results are there" = atomics, within(20);
        both count_gives_back:
            "atomics without a completion are done as they were posted when they were counted"
                = counted_atomics;
    }
}

/// The levels of a completion; that of the endpoint first.
const LEVELS: [Option<Flags>; 5] = [
    None,
    Some(Flags::INJECT_COMPLETE),
    Some(Flags::TRANSMIT_COMPLETE),
    Some(Flags::DELIVERY_COMPLETE),
    Some(Flags::MATCH_COMPLETE),
];

/// Posts with a level, if it is offered.
fn put(rig: &Rig<'_>, post: Post, level: Option<Flags>) -> Step<Option<Token>> {
    let post = match level {
        Some(level) => post.flags(level),
        None => post,
    };
    let refusals = [Errno::EINVAL, Errno::EBADFLAGS, Errno::EOPNOTSUPP];
    rig.until("a full queue takes another operation", || {
        match rig.try_post(A, post.clone()) {
            Ok(token) => Ok(Some(Some(token))),
            Err(e) if e.is(Errno::EAGAIN) => Ok(None),
            // `fi_cq`(3): many providers may not support it.
            Err(e)
                if level == Some(Flags::MATCH_COMPLETE)
                    && refusals.iter().any(|errno| e.is(*errno)) =>
            {
                Ok(Some(None))
            }
            Err(e) => Err(e.into()),
        }
    })
}

/// Looks for a completion of A while B does nothing.
fn early(rig: &Rig<'_>, token: Token) -> Step<Option<Completion>> {
    for _ in 0..LOOKS {
        rig.pump_side(A)?;
        if let Some(done) = rig.take_done(A, token) {
            return Ok(Some(done));
        }
    }
    Ok(None)
}

fn messages(cx: &Cx<'_>, what: What) -> Outcome {
    for spec in [what.spec(), apart(what.spec())] {
        let rig = Rig::open(cx, &spec)?;
        rig.exchange(A, B, b"first")?;
        for level in LEVELS {
            for (seed, len) in (1..).zip(lengths(&rig.info)) {
                let bytes = pattern(len, seed);
                for is_posted in [true, false] {
                    let posted = match is_posted {
                        true => Some(rig.post(B, what.recv(len))?),
                        false => None,
                    };
                    let Some(send) = put(&rig, what.send(&bytes), level)? else {
                        // Nobody fills it.
                        if let Some(recv) = posted {
                            rig.s.cancel(rig.sides[B].ep, recv)?;
                            rig.failed(B, recv)?;
                        }
                        break;
                    };
                    let is_done = early(&rig, send)?.is_some();
                    let recv = match posted {
                        Some(recv) => recv,
                        None => rig.post(B, what.recv(len))?,
                    };
                    if !is_done {
                        rig.done(A, send)?;
                    }
                    arrives(&rig, recv, &bytes)?;
                }
            }
        }
        rig.quiet()?;
        rig.close()?;
    }
    Ok(())
}

/// The bytes are in the peer's memory. That a write of none is through, a message behind it tells:
/// where the region is closed under it, C libfabric loses the write that comes next.
#[track_caller]
fn reaches(rig: &Rig<'_>, target: &Target, bytes: &[u8]) -> Outcome {
    match bytes {
        [] => rig.exchange(A, B, b"behind it").map(drop),
        bytes => lands(rig, target, bytes),
    }
}

fn writes(cx: &Cx<'_>) -> Outcome {
    for spec in [Spec::rma(), apart(Spec::rma())] {
        let rig = Rig::open(cx, &spec)?;
        rig.exchange(A, B, b"first")?;
        for (seed, len) in (1..).zip(lengths(&rig.info)) {
            let access = Flags::REMOTE_READ | Flags::REMOTE_WRITE;
            let target = rig.expose(B, &vec![0; len.max(1)], access)?;
            for (turn, level) in LEVELS.into_iter().enumerate() {
                let bytes = pattern(len, seed + turn);
                let post = Post::write(&bytes[..], target.at(0, len));
                let Some(write) = put(&rig, post, level)? else {
                    continue;
                };
                if early(&rig, write)?.is_none() {
                    rig.done(A, write)?;
                }
                reaches(&rig, &target, &bytes)?;
            }
            rig.revoke(&target)?;
        }
        rig.quiet()?;
        rig.close()?;
    }
    Ok(())
}

/// Waits until a counter has counted another one, B doing nothing as long as it is not needed.
fn counts(rig: &Rig<'_>, cntr: Fid, value: u64) -> Outcome {
    for _ in 0..LOOKS {
        rig.pump_side(A)?;
        if rig.s.cntr_read(cntr)? >= value {
            return Ok(());
        }
    }
    rig.until("a count of the operation", || {
        Ok((rig.s.cntr_read(cntr)? >= value).then_some(()))
    })
}

fn counted(cx: &Cx<'_>, what: What) -> Outcome {
    let rig = Rig::open(
        cx,
        &Spec {
            counters: Some(WaitObj::None),
            selective: Flags::SEND,
            ..apart(what.spec())
        },
    )?;
    let cntr = rig.sides[A].tx_cntr;
    let cntr = cntr.ok_or_else(|| Stop::fail("the suite opened no counters"))?;
    let ep = rig.sides[A].ep;
    let mut value = 0;
    for (seed, len) in (1..).zip(lengths(&rig.info)) {
        let bytes = pattern(len, seed);
        let recv = rig.post(B, what.recv(len))?;
        let send = rig.post(A, what.send(&bytes))?;
        value += 1;
        counts(&rig, cntr, value)?;
        rig.s.overwrite(ep, send)?;
        arrives(&rig, recv, &bytes)?;
    }
    rig.finish()
}

fn counted_writes(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(
        cx,
        &Spec {
            rma_counters: true,
            selective: Flags::SEND,
            ..apart(Spec::rma())
        },
    )?;
    let cntr = rig.sides[A].rma_cntrs.map(|cntrs| cntrs.writes);
    let cntr = cntr.ok_or_else(|| Stop::fail("the suite opened no counters"))?;
    let ep = rig.sides[A].ep;
    let mut value = 0;
    for (seed, len) in (1..).zip(lengths(&rig.info)) {
        let bytes = pattern(len.max(1), seed);
        let access = Flags::REMOTE_READ | Flags::REMOTE_WRITE;
        let target = rig.expose(B, &vec![0; bytes.len()], access)?;
        let write = rig.post(A, Post::write(&bytes[..], target.at(0, bytes.len())))?;
        value += 1;
        counts(&rig, cntr, value)?;
        rig.s.overwrite(ep, write)?;
        lands(&rig, &target, &bytes)?;
        rig.revoke(&target)?;
    }
    rig.finish()
}

/// Words that an atomic acts on, before it does.
fn cells(count: usize) -> Vec<u64> {
    (0..).map(|n| 5 + n * 3).take(count).collect()
}

fn atomics(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::rma().caps(Flags::ATOMIC);
    for spec in [spec.clone(), apart(spec)] {
        let rig = Rig::open(cx, &spec)?;
        rig.exchange(A, B, b"first")?;
        for kind in KINDS {
            for count in remote::counts(&rig, kind)? {
                let mut old = cells(count);
                let target = rig.expose(B, &words(old.iter().copied()), OPEN)?;
                for level in LEVELS {
                    let Work {
                        post,
                        fetched,
                        after,
                    } = remote::work(kind, &old, &target, 1);
                    let sources = post.sources();
                    let Some(token) = put(&rig, post, level)? else {
                        continue;
                    };
                    let done = match early(&rig, token)? {
                        Some(done) => done,
                        None => rig.done(A, token)?,
                    };
                    let found = done.bufs.get(sources..).unwrap_or_default().concat();
                    ensure!(found == fetched, "{found:?} fetched, not {fetched:?}");
                    lands(&rig, &target, &words(after.iter().copied()))?;
                    old = after;
                }
                rig.revoke(&target)?;
            }
        }
        rig.quiet()?;
        rig.close()?;
    }
    Ok(())
}

fn counted_atomics(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(
        cx,
        &Spec {
            rma_counters: true,
            selective: Flags::SEND,
            ..apart(Spec::rma().caps(Flags::ATOMIC))
        },
    )?;
    let cntrs = rig.sides[A].rma_cntrs.as_ref();
    let cntrs = cntrs.ok_or_else(|| Stop::fail("the suite opened no counters"))?;
    let ep = rig.sides[A].ep;
    let (mut reads, mut writes) = (0, 0);
    for kind in KINDS {
        for count in remote::counts(&rig, kind)? {
            let old = cells(count);
            let target = rig.expose(B, &words(old.iter().copied()), OPEN)?;
            let work = remote::work(kind, &old, &target, 1);
            let token = rig.post(A, work.post)?;
            // `fi_cntr`(3): one that fetches is a read.
            let (cntr, value) = match kind {
                AtomicKind::Plain => (cntrs.writes, &mut writes),
                _ => (cntrs.reads, &mut reads),
            };
            *value += 1;
            counts(&rig, cntr, *value)?;
            rig.s.overwrite(ep, token)?;
            lands(&rig, &target, &words(work.after))?;
            rig.revoke(&target)?;
        }
    }
    rig.finish()
}
