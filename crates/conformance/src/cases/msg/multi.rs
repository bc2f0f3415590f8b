//! Multi-receive buffers.

use ripstop_types::{Errno, Flags};

use crate::case::{Cx, Outcome, Step, Stop, cases, flagged};
use crate::rig::{A, B, Rig, Spec, pattern};
use crate::subject::{Completion, EpOption, Post, Token};
use crate::{ensure, ensure_eq};

cases! {
    pub(super) const CASES;
    fi_msg {
        both multi_recv: "one buffer takes many messages, each named by its place";
        both multi_recv_release: "the buffer is released when less than the minimum is left";
        both multi_recv_next: "a message too long for what is left goes to the next buffer";
        both multi_recv_unexpected: "messages that waited fill the buffer too";
        both multi_recv_data: "CQ data comes with each message" = data;
        both multi_recv_cancel: "a canceled buffer is released" = cancel;
        both multi_recv_default: "as a default it is not for tagged receives" = default;
        both multi_recv_option: "FI_OPT_MIN_MULTI_RECV is read back" = option;
    }
}

fn spec() -> Spec {
    Spec::default().caps(Flags::MULTI_RECV)
}

fn open<'a>(cx: &Cx<'a>, min: usize) -> Step<Rig<'a>> {
    let rig = Rig::open(cx, &spec())?;
    rig.s
        .set_option(rig.sides[B].ep, EpOption::MinMultiRecv, min)?;
    Ok(rig)
}

fn buffer(len: usize) -> Post {
    Post::recv(len).flags(Flags::MULTI_RECV)
}

/// The next message out of a multi-receive buffer, and whether the buffer is released with or
/// after it.
fn piece(rig: &Rig<'_>, token: Token) -> Step<Completion> {
    let got = rig.done(B, token)?;
    if got.piece.is_none() {
        return Err(Stop::fail("a completion without its place in the buffer"));
    }
    Ok(got)
}

fn check(got: &Completion, i: usize, len: usize) -> Outcome {
    ensure_eq!(got.len, len, "message {i}");
    let bytes = got.piece.as_deref().unwrap_or_default();
    ensure!(bytes == pattern(len, i), "message {i} arrived damaged");
    flagged(got.flags, Flags::RECV, &format!("message {i}"))?;
    Ok(())
}

fn multi_recv(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, 64)?;
    let token = rig.post(B, buffer(1 << 20))?;
    for i in 0..100 {
        rig.complete(A, Post::send(pattern(10 + i * 7, i)))?;
    }
    for i in 0..100 {
        let got = piece(&rig, token)?;
        check(&got, i, 10 + i * 7)?;
        flagged(!got.flags, Flags::MULTI_RECV, "released with room left")?;
    }
    rig.finish()
}

/// Waits for the release, with or after the last message.
fn released(rig: &Rig<'_>, token: Token, last: &Completion) -> Outcome {
    if last.flags.contains(Flags::MULTI_RECV) {
        return Ok(());
    }
    let end = rig.done(B, token)?;
    flagged(end.flags, Flags::MULTI_RECV, "no release")?;
    ensure!(
        !end.flags.contains(Flags::RECV),
        "one message too many: {:?}",
        end.flags
    );
    Ok(())
}

fn multi_recv_release(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, 100)?;
    // Four messages of 100 leave 99.
    let token = rig.post(B, buffer(499))?;
    for i in 0..4 {
        rig.complete(A, Post::send(pattern(100, i)))?;
    }
    for i in 0..3 {
        let got = piece(&rig, token)?;
        check(&got, i, 100)?;
        ensure!(
            !got.flags.contains(Flags::MULTI_RECV),
            "released after {} messages",
            i + 1
        );
    }
    let got = piece(&rig, token)?;
    check(&got, 3, 100)?;
    released(&rig, token, &got)?;
    // What comes now needs another buffer.
    rig.exchange(A, B, b"after")?;
    rig.finish()
}

fn multi_recv_next(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, 8)?;
    let first = rig.post(B, buffer(1000))?;
    let second = rig.post(B, buffer(1000))?;
    rig.complete(A, Post::send(pattern(900, 0)))?;
    let got = piece(&rig, first)?;
    check(&got, 0, 900)?;
    rig.complete(A, Post::send(pattern(900, 1)))?;
    // It does not fit: either the first buffer is released and the second takes it, or the
    // message is cut off in the first and reported.
    let got = rig.until("the second message or an error", || {
        if let Some(got) = rig.take_done(B, second) {
            return Ok(Some(Ok(got)));
        }
        Ok(rig.take_failed(B, first).map(Err))
    })?;
    match got {
        Ok(got) => check(&got, 1, 900),
        Err(error) => {
            ensure_eq!(error.err, Errno::ETRUNC, "the error");
            ensure!(error.olen == 800, "olen is {}", error.olen);
            Ok(())
        }
    }
}

fn multi_recv_unexpected(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, 64)?;
    rig.exchange(A, B, b"first")?;
    let sends = rig.post_all(A, (0..20).map(|i| Post::send(pattern(200, i))))?;
    rig.pump_times(100)?;
    let token = rig.post(B, buffer(100_000))?;
    for i in 0..20 {
        check(&piece(&rig, token)?, i, 200)?;
    }
    rig.all_done(A, sends)?;
    rig.finish()
}

fn data(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, 64)?;
    let token = rig.post(B, buffer(100_000))?;
    for i in 0..10_usize {
        let post = Post::send(pattern(50, i));
        let post = if i % 2 == 0 {
            post.data(i as u64)
        } else {
            post
        };
        rig.complete(A, post)?;
    }
    for i in 0..10_usize {
        let got = piece(&rig, token)?;
        check(&got, i, 50)?;
        let flagged = got.flags.contains(Flags::REMOTE_CQ_DATA);
        ensure!(
            flagged == (i % 2 == 0),
            "message {i} has flags {:?}",
            got.flags
        );
        ensure!(
            !flagged || got.data == i as u64,
            "message {i} has data {}",
            got.data
        );
    }
    rig.close()
}

fn cancel(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, 64)?;
    let token = rig.post(B, buffer(10_000))?;
    rig.complete(A, Post::send(pattern(50, 0)))?;
    check(&piece(&rig, token)?, 0, 50)?;
    rig.s.cancel(rig.sides[B].ep, token)?;
    let error = rig.failed(B, token)?;
    ensure_eq!(error.err, Errno::ECANCELED, "the error");
    rig.exchange(A, B, b"after")?;
    rig.finish()
}

fn option(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    let ep = rig.sides[B].ep;
    for value in [1, 64, 4096] {
        rig.s.set_option(ep, EpOption::MinMultiRecv, value)?;
        let read = rig.s.option(ep, EpOption::MinMultiRecv)?;
        ensure!(read == value, "set to {value}, read as {read}");
    }
    Ok(())
}

fn default(cx: &Cx<'_>) -> Outcome {
    let spec = spec().caps(Flags::TAGGED);
    let rig = Rig::open(cx, &spec.rx_op_flags(Flags::MULTI_RECV))?;
    let tagged = rig.post(B, Post::trecv(7, 0, 16))?;
    rig.complete(A, Post::tsend(7, *b"with a tag"))?;
    rig.arrives(tagged, b"with a tag")?;
    rig.finish()
}
