//! When a transmit completes (`fi_cq`(3), completion event semantics), and whether it reports.

use std::time::{Duration, Instant};

use ripstop_types::{Flags, Progress};

use super::set_default;
use crate::case::{Cx, Outcome, Stop, cases};
use crate::pace::soon;
use crate::rig::{A, B, Rig, Spec, pattern};
use crate::subject::{Direction, Post};
use crate::{ensure, ensure_eq};

cases! {
    pub(super) const CASES;
    fi_cq {
        both levels: "each completion level completes";
        both level_by_default: "the level in the hints holds for calls without flags";
        both delivery_complete: "delivery complete waits until the peer has processed the message";
        both delivery_placed: "after delivery complete the posted buffer holds the data";
        both transmit_complete_leaves:
            "a message whose send has completed needs nothing more of the sender";
        both inject_complete_unreceived: "inject complete does not wait for a receive";
    }
    fi_endpoint {
        both selective_completion:
            "with FI_SELECTIVE_COMPLETION only flagged operations report" = selective;
        both selective_recv: "receives can be selective as well";
        both selective_error: "an operation that fails reports though it asked for no completion";
        both op_flags: "FI_SETOPSFLAG changes what calls without flags do";
    }
}

const LEVELS: [Flags; 3] = [
    Flags::INJECT_COMPLETE,
    Flags::TRANSMIT_COMPLETE,
    Flags::DELIVERY_COMPLETE,
];

fn levels(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    for level in LEVELS {
        for len in [0, 8, 1000, 300_000] {
            let bytes = pattern(len, 1);
            rig.deliver(Post::recv(len), Post::send(&bytes[..]).flags(level))?
                .carries(&bytes)?;
        }
    }
    rig.finish()
}

fn level_by_default(cx: &Cx<'_>) -> Outcome {
    for level in LEVELS {
        let rig = Rig::open(cx, &Spec::default().tx_op_flags(level))?;
        rig.exchange(A, B, &pattern(50, 1))?;
        rig.exchange(B, A, &pattern(50_000, 2))?;
        let recv = rig.post(B, Post::recv(8))?;
        rig.inject(A, b"inject", None, None)?;
        rig.done(B, recv)?;
        rig.quiet()?;
        rig.close()?;
    }
    Ok(())
}

/// Sides that make no progress unless their own queue is read.
fn apart(level: Flags) -> Spec {
    Spec::default()
        .two_domains(true)
        .progress(Progress::Manual)
        .tx_op_flags(level)
}

/// Reads A's queue alone for a while and counts what comes.
fn only_a(rig: &Rig<'_>) -> Result<usize, Stop> {
    let end = Instant::now() + Duration::from_millis(60);
    let mut count = 0;
    while Instant::now() < end {
        match rig.s.cq_read(rig.sides[A].cq, 16) {
            Ok(read) => count += read.len(),
            Err(e) if e.is(ripstop_types::Errno::EAGAIN) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(count)
}

fn delivery_complete(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &apart(Flags::DELIVERY_COMPLETE))?;
    rig.exchange(A, B, b"first")?;
    for len in [8, 20_000] {
        let recv = rig.post(B, Post::recv(len))?;
        let send = rig.post(A, Post::send(pattern(len, 1)))?;
        let early = only_a(&rig)?;
        ensure!(early == 0, "{len} B: complete before the peer has looked");
        rig.done(B, recv)?;
        rig.done(A, send)?;
    }
    rig.finish()
}

fn delivery_placed(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &apart(Flags::DELIVERY_COMPLETE))?;
    rig.exchange(A, B, b"first")?;
    for len in [0, 8, 5000, 500_000] {
        let recv = rig.post(B, Post::recv(len))?;
        rig.complete(A, Post::send(pattern(len, 1)))?;
        // The receive has completed by now: one look must do.
        let got = rig.until_within(Duration::ZERO, "the receive's completion", || {
            rig.pump()?;
            Ok(rig.take_done(B, recv))
        })?;
        got.carries(pattern(len, 1))?;
    }
    rig.close()
}

/// Posts a send at A and reads its completion, and nothing else at A.
fn completed(rig: &Rig<'_>, post: Post) -> Outcome {
    let send = rig.try_post(A, post)?;
    let end = Instant::now() + soon();
    while Instant::now() < end {
        match rig.s.cq_read(rig.sides[A].cq, 1) {
            Ok(read) if read.iter().any(|c| c.token == Some(send)) => return Ok(()),
            Ok(_) => {}
            Err(e) if e.is(ripstop_types::Errno::EAGAIN) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(Stop::fail("a small send did not complete in time"))
}

fn transmit_complete_leaves(cx: &Cx<'_>) -> Outcome {
    // Without a level in hints or flags. With one, the peer's acknowledgement may be needed.
    let rig = Rig::open(cx, &apart(Flags::empty()))?;
    rig.exchange(A, B, b"first")?;
    for i in 0..5 {
        let mut recvs = Vec::new();
        for _ in 0..=i {
            recvs.push(rig.post(B, Post::recv(64))?);
            completed(&rig, Post::send(pattern(64, i)))?;
        }
        // From here on the sender does nothing.
        for recv in recvs {
            alone(&rig, recv)?;
        }
    }
    rig.close()
}

/// Waits for a receive at B, reading B's queue only.
fn alone(rig: &Rig<'_>, recv: u64) -> Outcome {
    let end = Instant::now() + soon();
    while Instant::now() < end {
        match rig.s.cq_read(rig.sides[B].cq, 1) {
            Ok(read) if read.iter().any(|c| c.token == Some(recv)) => return Ok(()),
            Ok(_) => {}
            Err(e) if e.is(ripstop_types::Errno::EAGAIN) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(Stop::fail(
        "a message whose send has completed did not arrive within a second",
    ))
}

fn inject_complete_unreceived(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    rig.exchange(A, B, b"first")?;
    let post = Post::send(pattern(64, 1)).flags(Flags::INJECT_COMPLETE);
    rig.complete(A, post)?;
    rig.complete(B, Post::recv(64))?;
    rig.finish()
}

fn selective(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().selective(Flags::SEND))?;
    let recvs = rig.post_all(B, (0..4).map(|_| Post::recv(8)))?;
    rig.post(A, Post::send(*b"silent"))?;
    rig.post(A, Post::send(*b"silent").flags(Flags::TRANSMIT_COMPLETE))?;
    rig.inject(A, b"silent", None, None)?;
    rig.complete(A, Post::send(*b"loud").flags(Flags::COMPLETION))?;
    rig.all_done(B, recvs)?;
    // A completion of a silent send would be one too many.
    rig.finish()
}

fn selective_recv(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().selective(Flags::SEND | Flags::RECV))?;
    rig.post(B, Post::recv(8))?;
    let loud = rig.post(B, Post::recv(8).flags(Flags::COMPLETION))?;
    rig.post(A, Post::send(*b"silent"))?;
    rig.post(A, Post::send(*b"loud"))?;
    rig.arrives(loud, b"loud")?;
    rig.finish()
}

fn selective_error(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().selective(Flags::SEND | Flags::RECV))?;
    let recv = rig.post(B, Post::recv(4))?;
    rig.post(A, Post::send(*b"too long"))?;
    let error = rig.failed(B, recv)?;
    ensure_eq!(error.err, ripstop_types::Errno::ETRUNC, "the error");
    Ok(())
}

fn op_flags(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().selective(Flags::SEND))?;
    let recvs = rig.post_all(B, (0..2).map(|_| Post::recv(8)))?;
    set_default(&rig, A, Flags::COMPLETION | Flags::INJECT_COMPLETE)?;
    let flags = rig.s.op_flags(rig.sides[A].ep, Direction::Tx)?;
    let wanted = Flags::COMPLETION | Flags::INJECT_COMPLETE;
    ensure!(flags == wanted, "FI_GETOPSFLAG gives {flags:?}");
    rig.complete(A, Post::send(*b"loud"))?;
    set_default(&rig, A, Flags::empty())?;
    rig.post(A, Post::send(*b"silent"))?;
    rig.all_done(B, recvs)?;
    rig.finish()
}
