//! `FI_FENCE`, and durable writes.

use ripstop_types::{AtomicKind, AtomicOp, Datatype, Flags};

use super::{OPEN, overlaid};
use crate::case::{Cx, Outcome, Step, cases, ready};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, pattern};
use crate::subject::{MrAttr, Post, Token};

cases! {
    pub(super) const CASES;
    fi_rma {
        both fence_message: "a fenced message waits for the read before it";
        both fence_tagged: "a fenced tagged message waits for the read before it";
        both fence_write: "a fenced write does not change what an operation before it fetches";
        both fence_read: "a fenced read waits for the read before it";
    }
    fi_atomic {
        both fence: "a fenced atomic of each kind waits for the read before it";
    }
    fi_rma {
        both fence_first: "a fenced operation with nothing before it is done as any other";
        both commit: "a write that is commit complete is in the peer's memory";
    }
    fi_mr {
        both pmem: "memory registered with FI_RMA_PMEM is written and read like any other";
    }
}

/// Messages, reads and writes that can be fenced.
fn spec() -> Spec {
    Spec::rma().caps(Flags::TAGGED | Flags::FENCE)
}

/// The next tokens that complete at A, in order; B makes progress meanwhile.
fn in_order(rig: &Rig<'_>, count: usize) -> Step<Vec<Token>> {
    let mut tokens = Vec::new();
    rig.watch("completions at A", || {
        let done = ready(rig.s.cq_read(rig.sides[A].cq, 16))?.unwrap_or_default();
        tokens.extend(done.iter().filter_map(|c| c.token));
        Ok((tokens.len() >= count).then_some(()))
    })?;
    Ok(tokens)
}

/// A fenced operation completes behind the read before it.
fn behind_a_read(rig: &Rig<'_>, fenced: Post) -> Outcome {
    let bytes = pattern(1 << 20, 3);
    let target = rig.expose(B, &bytes, OPEN)?;
    let read = rig.post(A, Post::read(target.at(0, bytes.len())))?;
    let fenced = rig.post(A, fenced.flags(Flags::FENCE))?;
    let order = in_order(rig, 2)?;
    ensure!(order == [read, fenced], "completed {order:?}");
    rig.revoke(&target)
}

fn fence_message(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    for len in [1, 100, 20_000, 500_000] {
        let text = pattern(len, len);
        let recv = rig.post(B, Post::recv(len))?;
        behind_a_read(&rig, Post::send(&text[..]))?;
        rig.arrives(recv, &text)?;
    }
    rig.finish()
}

fn fence_tagged(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    for len in [1, 100, 20_000, 500_000] {
        let text = pattern(len, len);
        let recv = rig.post(B, Post::trecv(4, 0, len))?;
        behind_a_read(&rig, Post::tsend(4, &text[..]))?;
        rig.arrives(recv, &text)?;
    }
    rig.finish()
}

fn fence_read(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    let target = rig.expose(B, &[9; 64], OPEN)?;
    for _ in 0..3 {
        behind_a_read(&rig, Post::read(target.at(0, 64)))?;
    }
    rig.finish()
}

fn fence_write(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec().caps(Flags::ATOMIC))?;
    let target = rig.expose(B, &[0; 16], OPEN)?;
    let add = (Datatype::Uint64, AtomicOp::Sum);
    let one = 1_u64.to_ne_bytes();
    let fetches = (0..10).map(|_| {
        let fetch = Post::atomic(AtomicKind::Fetch, add, [&one, &[]], target.at(8, 8));
        rig.post(A, fetch)
    });
    let fetches = fetches.collect::<Step<Vec<_>>>()?;
    let write = Post::write([0xff; 8], target.at(8, 8));
    let write = write.flags(Flags::FENCE | Flags::DELIVERY_COMPLETE);
    let write = rig.post(A, write)?;
    for (n, token) in fetches.into_iter().enumerate() {
        let done = rig.done(A, token)?;
        ensure!(
            done.bufs.last().is_some_and(|b| b[..] == n.to_ne_bytes()),
            "fetch {n} gave {:?}",
            done.bufs
        );
    }
    rig.done(A, write)?;
    rig.holds(&target, &overlaid(&[0; 16], 8, &[0xff; 8]))?;
    rig.finish()
}

fn fence(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec().caps(Flags::ATOMIC))?;
    let target = rig.expose(B, &[0; 8], OPEN)?;
    let [zero, one, nine] = [0_u64, 1, 9].map(u64::to_ne_bytes);
    let what = |op| (Datatype::Uint64, op);
    let place = target.at(0, 8);
    for (kind, op, operand, left) in [
        (AtomicKind::Plain, AtomicOp::Sum, &one, one),
        (AtomicKind::Fetch, AtomicOp::AtomicWrite, &nine, nine),
        (AtomicKind::Compare, AtomicOp::CswapNe, &one, one),
    ] {
        let atomic = Post::atomic(kind, what(op), [operand, &zero], place);
        behind_a_read(&rig, atomic.flags(Flags::DELIVERY_COMPLETE))?;
        rig.holds(&target, &left)?;
    }
    rig.finish()
}

fn fence_first(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    let target = rig.expose(B, &[0; 8], OPEN)?;
    rig.deliver(Post::recv(5), Post::send(*b"first").flags(Flags::FENCE))?
        .carries(b"first")?;
    let write = Post::write([1; 8], target.at(0, 8)).flags(Flags::FENCE);
    rig.complete(A, write)?;
    rig.holds(&target, &[1; 8])?;
    rig.finish()
}

fn commit(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma().caps(Flags::RMA_PMEM))?;
    for len in [1, 100, 5000, 1 << 20] {
        let bytes = pattern(len, len + 1);
        let target = rig.expose(B, &vec![0; len], OPEN)?;
        let write = Post::write(&bytes[..], target.at(0, len));
        rig.complete(A, write.flags(Flags::COMMIT_COMPLETE))?;
        ensure!(
            rig.s.memory_read(target.memory)? == bytes,
            "{len} bytes were not there"
        );
        rig.revoke(&target)?;
    }
    rig.finish()
}

fn pmem(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma().caps(Flags::RMA_PMEM))?;
    let attr = MrAttr {
        access: OPEN,
        key: 0x55,
        flags: Flags::RMA_PMEM,
        ..MrAttr::default()
    };
    let target = rig.expose_as(B, &[7; 4096], &attr)?;
    for flags in [
        Flags::COMMIT_COMPLETE,
        Flags::DELIVERY_COMPLETE,
        Flags::TRANSMIT_COMPLETE,
    ] {
        let write = Post::write([3; 100], target.at(50, 100)).flags(flags);
        rig.complete(A, write)?;
        rig.holds(&target, &overlaid(&[7; 4096], 50, &[3; 100]))?;
    }
    let done = rig.complete(A, Post::read(target.at(0, 4096)))?;
    ensure!(
        done.bufs.concat() == overlaid(&[7; 4096], 50, &[3; 100]),
        "read otherwise than written"
    );
    rig.close()
}
