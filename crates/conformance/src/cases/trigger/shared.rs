//! Operations that wait for a counter, on shared receive contexts.

use ripstop_types::{Errno, Flags};

use super::{Ground, with};
use crate::case::{Cx, Outcome, Step, Stop, cases, in_use, offered, refused};
use crate::ensure;
use crate::rig::{A, B, Spec};
use crate::subject::{Fid, Post, Token, When, WorkOp};

cases! {
    pub(super) const CASES;
    fi_trigger {
        both shared_receives:
            "a triggered receive of a shared context takes no message before its time";
        both shared_work:
            "deferred receives of a shared context start in order, and are told to their counter";
        both shared_waiting: "a deferred receive takes what has come to the shared context before";
        both shared_cancel:
            "what waits at a shared context is cancelled as at an endpoint" = cancel;
        both shared_sends: "a shared receive context starts nothing but receives" = sends;
        both shared_closes:
            "a shared context closes with what waits there, and the counters after it";
        both shared_domain:
            "deferred receives of a shared context of another domain are FI_EDOMAIN";
    }
}

/// Two endpoints that receive through shared contexts, and that of `B`.
fn ground<'a>(cx: &Cx<'a>) -> Step<(Ground<'a>, Fid)> {
    let spec = Spec::tagged().shared_rx(true);
    let g = with(cx, spec)?;
    let srx = g.rig.sides[B].srx;
    Ok((
        g,
        srx.ok_or_else(|| Stop::not_offered("no shared context"))?,
    ))
}

/// Posts a triggered receive.
#[track_caller]
fn trigger(g: &Ground<'_>, srx: Fid, post: Post, threshold: u64) -> Step<Token> {
    let post = g.rig.filled(B, post);
    let cntr = g.go;
    let posted = g.rig.s.trigger(srx, &post, When { cntr, threshold });
    offered(posted, &[Errno::ENOSYS], "FI_TRIGGER")?;
    Ok(post.token)
}

/// Queues a receive that is told to `done`.
#[track_caller]
fn put_off(g: &Ground<'_>, srx: Fid, post: Post, threshold: u64) -> Step<Token> {
    let post = g.rig.filled(B, post);
    let op = WorkOp::Post {
        ep: srx,
        post: &post,
        done: Some(g.done),
    };
    g.queue(g.go, threshold, &op)?;
    Ok(post.token)
}

fn shared_receives(cx: &Cx<'_>) -> Outcome {
    let (g, srx) = ground(cx)?;
    let late = trigger(&g, srx, Post::recv(8), 1)?;
    let later = trigger(&g, srx, Post::trecv(4, 0, 8), 2)?;
    let mut early = Post::recv(8);
    early.token = g.rig.token();
    g.rig.s.post(srx, &early)?;
    let sends = [
        g.rig.post(A, Post::send(*b"1"))?,
        g.rig.post(A, Post::send(*b"2"))?,
        g.rig.post(A, Post::tsend(4, *b"tagged"))?,
    ];
    for send in sends {
        g.rig.done(A, send)?;
    }
    let first = g.rig.done(B, early.token)?.bytes();
    ensure!(first == b"1", "{first:?} came first");
    g.rests(0)?;
    g.go(1)?;
    let second = g.rig.done(B, late)?.bytes();
    ensure!(second == b"2", "{second:?} came second");
    g.rests(0)?;
    g.go(1)?;
    let third = g.rig.done(B, later)?.bytes();
    ensure!(third == b"tagged", "{third:?} came third");
    g.close()
}

fn shared_domain(cx: &Cx<'_>) -> Outcome {
    let (g, _) = ground(cx)?;
    let s = g.rig.s;
    g.queue(g.go, 5, &WorkOp::Add(g.done, 1))?;
    let domain = s.domain(g.rig.fabric, &g.rig.info)?;
    let theirs = s.shared_rx(domain, &g.rig.info)?;
    let post = g.rig.filled(A, Post::recv(8));
    let op = WorkOp::Post {
        ep: theirs,
        post: &post,
        done: Some(g.done),
    };
    let when = When {
        cntr: g.go,
        threshold: 0,
    };
    let queued = s.queue_work(g.domain(), when, &op);
    refused(
        queued,
        &[Errno::EDOMAIN],
        "a shared context of another domain",
    )?;
    g.rests(0)?;
    s.close(theirs)?;
    s.close(domain)?;
    g.close()
}

fn shared_work(cx: &Cx<'_>) -> Outcome {
    let (g, srx) = ground(cx)?;
    let told = |post: Post| post.flags(Flags::COMPLETION);
    // In the order of thresholds, and then as they were queued.
    let second = put_off(&g, srx, told(Post::recv(8)), 2)?;
    let third = put_off(&g, srx, told(Post::recv(8)), 2)?;
    let first = put_off(&g, srx, told(Post::recv(8)), 1)?;
    put_off(&g, srx, Post::trecv(3, 0, 8), 2)?;
    g.rests(0)?;
    g.go(2)?;
    for (token, bytes) in [(first, b"1"), (second, b"2"), (third, b"3")] {
        g.rig.complete(A, Post::send(*bytes))?;
        let got = g.rig.done(B, token)?.bytes();
        ensure!(got == bytes, "{got:?} arrived");
    }
    g.rig.complete(A, Post::tsend(3, *b"silent"))?;
    g.becomes(g.done, 4, 0)?;
    // What does not fit is an error of the counter.
    put_off(&g, srx, Post::recv(2), 2)?;
    g.rig.complete(A, Post::send(*b"too long"))?;
    g.becomes(g.done, 4, 1)?;
    g.rests(4)?;
    g.close()
}

fn shared_waiting(cx: &Cx<'_>) -> Outcome {
    let (g, srx) = ground(cx)?;
    for bytes in [b"1", b"2"] {
        let send = g.rig.post(A, Post::send(*bytes))?;
        g.rig.sent(A, send)?;
    }
    let told = |post: Post| post.flags(Flags::COMPLETION);
    let tokens = [
        put_off(&g, srx, told(Post::recv(8)), 1)?,
        put_off(&g, srx, told(Post::recv(8)), 1)?,
    ];
    g.rests(0)?;
    g.go(1)?;
    for (token, bytes) in tokens.into_iter().zip([b"1", b"2"]) {
        let got = g.rig.done(B, token)?.bytes();
        ensure!(got == bytes, "{got:?} arrived");
    }
    g.becomes(g.done, 2, 0)?;
    g.close()
}

fn cancel(cx: &Cx<'_>) -> Outcome {
    let (g, srx) = ground(cx)?;
    let s = g.rig.s;
    let recv = trigger(&g, srx, Post::recv(8), 1)?;
    s.cancel(srx, recv)?;
    let failed = g.rig.failed(B, recv)?;
    let name = failed.err.name();
    ensure!(failed.err == Errno::ECANCELED, "cancelled with {name}");
    let post = g.rig.filled(B, Post::recv(8));
    let op = WorkOp::Post {
        ep: srx,
        post: &post,
        done: Some(g.done),
    };
    let first = g.queue(g.go, 1, &op)?;
    s.cancel_work(g.domain(), first)?;
    let again = s.cancel_work(g.domain(), first);
    refused(again, &[Errno::ENOENT], "cancelling twice")?;
    put_off(&g, srx, Post::recv(8), 1)?;
    s.flush_work(g.domain(), Some(g.go))?;
    g.go(1)?;
    let send = g.rig.post(A, Post::send(*b"nobody"))?;
    g.rig.sent(A, send)?;
    g.rests(0)?;
    g.close()
}

fn sends(cx: &Cx<'_>) -> Outcome {
    let (g, srx) = ground(cx)?;
    // Only where there are triggered receives at all.
    let recv = trigger(&g, srx, Post::recv(8), 5)?;
    for post in [Post::send(*b"no"), Post::tsend(1, *b"no")] {
        let post = g.rig.filled(B, post);
        let op = WorkOp::Post {
            ep: srx,
            post: &post,
            done: Some(g.done),
        };
        let when = When {
            cntr: g.go,
            threshold: 1,
        };
        let queued = g.rig.s.queue_work(g.domain(), when, &op);
        let reasons = [Errno::EINVAL, Errno::ENOSYS];
        refused(queued, &reasons, "a deferred send of a receive context")?;
    }
    g.go(1)?;
    g.rests(0)?;
    g.rig.s.cancel(srx, recv)?;
    g.rig.failed(B, recv)?;
    g.close()
}

fn shared_closes(cx: &Cx<'_>) -> Outcome {
    let (g, srx) = ground(cx)?;
    put_off(&g, srx, Post::recv(8), 1)?;
    put_off(&g, srx, Post::recv(8), 9)?;
    trigger(&g, srx, Post::recv(8), 9)?;
    // The first has started, and has no message yet.
    g.go(1)?;
    g.rests(0)?;
    let Ground { rig, go, done } = g;
    let s = rig.s;
    for side in [A, B] {
        s.close(rig.sides[side].ep)?;
    }
    in_use(s.close(done), "a counter in use")?;
    s.close(srx)?;
    let told = (s.cntr_read(done)?, s.cntr_readerr(done)?);
    ensure!(told == (0, 1), "the counter has {told:?}");
    for cntr in [go, done] {
        s.close(cntr)?;
    }
    Ok(())
}
