//! Looking at waiting messages, reserving and dropping them.

use ripstop_types::{Errno, Flags, Progress};

use crate::case::{Cx, Outcome, Step, Stop, cases, flagged};
use crate::rig::{A, B, Rig, Spec, pattern};
use crate::subject::{Completion, Post, Token};
use crate::{ensure, ensure_eq};

cases! {
    pub(super) const CASES;
    fi_tagged {
        both peek_none: "a peek that finds nothing ends with FI_ENOMSG";
        both peek: "a peek describes the message and leaves it" = leaves;
        both peek_is_of_the_moment:
            "a peek finds what came before it, and a later one what came since";
        both peek_large: "a peek describes a large message and leaves it";
        both peek_mask: "a peek matches by tag and mask";
        both peek_discard: "a peek with FI_DISCARD drops the message";
        both claim: "a claimed message goes to its claimer only";
        both claim_large: "a large claimed message arrives whole";
        both claim_discard: "a claimed message can be dropped";
        both peek_cq_data: "a peek shows the CQ data";
    }
}

fn peek(rig: &Rig<'_>, tag: u64, ignore: u64, flags: Flags) -> Step<Token> {
    let mut post = Post::trecv(tag, ignore, 0);
    post.token = rig.token();
    rig.s.peek(rig.sides[B].ep, &post, flags)?;
    Ok(post.token)
}

/// Peeks again and again until the message is there.
fn find(rig: &Rig<'_>, tag: u64, ignore: u64, flags: Flags) -> Step<(Token, Completion)> {
    rig.until("the message at the peer", || {
        let token = peek(rig, tag, ignore, flags)?;
        match rig.end(B, token)? {
            Ok(found) => Ok(Some((token, found))),
            Err(e) if e.err == Errno::ENOMSG => Ok(None),
            Err(e) => Err(Stop::fail(format!("the peek failed with {}", e.err.name()))),
        }
    })
}

/// No message with this tag is there.
fn gone(rig: &Rig<'_>, tag: u64) -> Outcome {
    rig.pump_times(50)?;
    let token = peek(rig, tag, 0, Flags::empty())?;
    let error = rig.failed(B, token)?;
    ensure_eq!(error.err, Errno::ENOMSG, "the error");
    Ok(())
}

fn take(rig: &Rig<'_>, tag: u64, bytes: &[u8]) -> Outcome {
    rig.complete(B, Post::trecv(tag, 0, bytes.len()))?
        .carries(bytes)?;
    Ok(())
}

fn peek_none(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    for flags in [Flags::empty(), Flags::DISCARD, Flags::CLAIM] {
        let token = peek(&rig, 1, 0, flags)?;
        let error = rig.failed(B, token)?;
        ensure_eq!(error.err, Errno::ENOMSG, "{flags:?}: the error");
    }
    rig.finish()
}

fn leaves(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let send = rig.post(A, Post::tsend(9, *b"look"))?;
    for _ in 0..2 {
        let (_, found) = find(&rig, 9, 0, Flags::empty())?;
        ensure!(found.len == 4, "the length is {}", found.len);
        ensure!(found.tag == 9, "the tag is {}", found.tag);
        flagged(found.flags, Flags::RECV | Flags::TAGGED, "the completion")?;
    }
    take(&rig, 9, b"look")?;
    rig.done(A, send)?;
    gone(&rig, 9)?;
    rig.finish()
}

/// A program that looks in two places, first elsewhere and then here (MPICH does, for messages of
/// any source), would take what came in between out of turn.
fn peek_is_of_the_moment(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(
        cx,
        &Spec::tagged().two_domains(true).progress(Progress::Manual),
    )?;
    // They have met.
    let send = rig.post(A, Post::tsend(9, *b"look"))?;
    take(&rig, 9, b"look")?;
    rig.done(A, send)?;
    for _ in 0..10 {
        rig.inject(A, b"look", Some(9), None)?;
        let token = peek(&rig, 9, 0, Flags::empty())?;
        let error = rig.failed(B, token)?;
        ensure!(error.err == Errno::ENOMSG, "the error is {:?}", error.err);
        find(&rig, 9, 0, Flags::empty())?;
        take(&rig, 9, b"look")?;
    }
    rig.finish()
}

fn peek_large(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let bytes = pattern(1 << 20, 1);
    let send = rig.post(A, Post::tsend(9, &bytes[..]))?;
    let (_, found) = find(&rig, 9, 0, Flags::empty())?;
    ensure!(found.len == 1 << 20, "the length is {}", found.len);
    take(&rig, 9, &bytes)?;
    rig.done(A, send)?;
    rig.finish()
}

fn peek_mask(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let one = rig.post(A, Post::tsend(0x10, *b"one"))?;
    let two = rig.post(A, Post::tsend(0x21, *b"two"))?;
    let (_, found) = find(&rig, 0x2f, 0xf, Flags::empty())?;
    ensure!(found.tag == 0x21, "the tag is {:#x}", found.tag);
    let (_, found) = find(&rig, 0, u64::MAX, Flags::empty())?;
    ensure!(found.tag == 0x10, "the first of all is {:#x}", found.tag);
    gone(&rig, 0x22)?;
    take(&rig, 0x10, b"one")?;
    take(&rig, 0x21, b"two")?;
    rig.all_done(A, [one, two])?;
    rig.finish()
}

fn peek_discard(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    for len in [4, 300_000] {
        let one = rig.post(A, Post::tsend(9, pattern(len, 1)))?;
        let two = rig.post(A, Post::tsend(9, pattern(len, 2)))?;
        find(&rig, 9, 0, Flags::DISCARD)?;
        take(&rig, 9, &pattern(len, 2))?;
        rig.all_done(A, [one, two])?;
        gone(&rig, 9)?;
    }
    rig.finish()
}

fn claim(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let one = rig.post(A, Post::tsend(9, *b"first"))?;
    let two = rig.post(A, Post::tsend(9, *b"second"))?;
    let (claimed, found) = find(&rig, 9, 0, Flags::CLAIM)?;
    ensure!(found.len == 5, "the length is {}", found.len);
    // The claimed message is nobody else's.
    take(&rig, 9, b"second")?;
    gone(&rig, 9)?;
    let recv = rig.claim(B, claimed, Post::trecv(9, 0, 8))?;
    rig.arrives(recv, b"first")?;
    rig.all_done(A, [one, two])?;
    rig.finish()
}

fn claim_large(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let bytes = pattern(1 << 20, 1);
    let send = rig.post(A, Post::tsend(9, &bytes[..]))?;
    let (claimed, _) = find(&rig, 9, 0, Flags::CLAIM)?;
    let recv = rig.claim(B, claimed, Post::trecv(9, 0, 1 << 20))?;
    rig.arrives(recv, &bytes)?;
    rig.done(A, send)?;
    rig.finish()
}

fn claim_discard(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    for len in [4, 300_000] {
        let one = rig.post(A, Post::tsend(9, pattern(len, 1)))?;
        let (claimed, _) = find(&rig, 9, 0, Flags::CLAIM)?;
        let drop = rig.claim(B, claimed, Post::trecv(9, 0, 0).iov(Vec::new()))?;
        rig.done(B, drop)?;
        rig.done(A, one)?;
        gone(&rig, 9)?;
    }
    rig.finish()
}

fn peek_cq_data(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let send = rig.post(A, Post::tsend(9, *b"look").data(42))?;
    let (_, found) = find(&rig, 9, 0, Flags::empty())?;
    flagged(found.flags, Flags::REMOTE_CQ_DATA, "the completion")?;
    ensure!(found.data == 42, "the data is {}", found.data);
    take(&rig, 9, b"look")?;
    rig.done(A, send)?;
    rig.close()
}
