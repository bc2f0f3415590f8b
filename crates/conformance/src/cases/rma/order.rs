//! The order of what follows a read (`FI_ORDER_WAR`, `FI_ORDER_SAR`), `fi_endpoint`(3).

use ripstop_types::{AtomicKind, AtomicOp, Datatype, Flags, MsgOrder};

use super::{OPEN, ordered};
use crate::case::{Cx, Outcome, Step, cases};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, Target, offer, pattern};
use crate::subject::{Post, Token};

cases! {
    pub(super) const CASES;
    fi_endpoint {
        both war_size: "an interface with FI_ORDER_WAR says for which length it holds";
    }
    fi_rma {
        both read_then_write: "with FI_ORDER_WAR a write does not change what a read before it fetches";
        both read_then_send: "with FI_ORDER_SAR a message does not overtake the read before it";
        both read_then_inject: "with FI_ORDER_SAR an injected message does not overtake the read before it";
        both reads_then_writes: "with FI_ORDER_WAR many reads and writes in turns each find what was there";
    }
    fi_atomic {
        both read_then_atomic: "with FI_ORDER_WAR an atomic does not change what a read before it fetches";
    }
}

/// Lengths on both sides of what providers treat apart.
const LENGTHS: [usize; 5] = [8, 1000, 20_000, 300_000, 4 << 20];

/// The data of a read is that of the memory before what was posted behind it, as far as the interface
/// says that this holds.
fn fetched(rig: &Rig<'_>, read: Token, before: &[u8]) -> Outcome {
    let found = rig.done(A, read)?.bufs.concat();
    let size = rig.info.ep.max_order_war_size;
    let whole = before.len() > size || found == before;
    ensure!(
        whole,
        "a read of {} bytes sees what follows it",
        before.len()
    );
    Ok(())
}

fn exposed(rig: &Rig<'_>, len: usize) -> Step<(Vec<u8>, Target)> {
    let before = pattern(len, 3);
    let target = rig.expose(B, &before, OPEN)?;
    Ok((before, target))
}

fn war_size(cx: &Cx<'_>) -> Outcome {
    let info = offer(cx, &Spec::rma().order(MsgOrder::WAR))?;
    ensure!(
        info.tx.msg_order.contains(MsgOrder::WAR),
        "the answer has {:?}",
        info.tx.msg_order
    );
    ensure!(info.ep.max_order_war_size > 0, "it holds for no length");
    Ok(())
}

fn read_then_write(cx: &Cx<'_>) -> Outcome {
    let rig = ordered(cx, MsgOrder::WAR)?;
    for len in LENGTHS {
        let (before, target) = exposed(&rig, len)?;
        let read = rig.post(A, Post::read(target.at(0, len)))?;
        let write = rig.post(A, Post::write(vec![0xff; len], target.at(0, len)))?;
        fetched(&rig, read, &before)?;
        rig.done(A, write)?;
        rig.holds(&target, &vec![0xff; len])?;
        rig.revoke(&target)?;
    }
    rig.finish()
}

fn read_then_atomic(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::rma().caps(Flags::ATOMIC).order(MsgOrder::WAR);
    let rig = Rig::open(cx, &spec)?;
    for len in LENGTHS {
        let (before, target) = exposed(&rig, len)?;
        let read = rig.post(A, Post::read(target.at(0, len)))?;
        let swap = (Datatype::Uint64, AtomicOp::AtomicWrite);
        let last = target.at(len - len % 8 - 8, 8);
        let atomic = Post::atomic(AtomicKind::Plain, swap, [&[0xff; 8], &[]], last);
        let atomic = rig.post(A, atomic.flags(Flags::DELIVERY_COMPLETE))?;
        fetched(&rig, read, &before)?;
        rig.done(A, atomic)?;
        rig.revoke(&target)?;
    }
    rig.finish()
}

/// The target changes the memory as soon as it has the message.
fn overtaken(rig: &Rig<'_>, send: impl Fn(&Rig<'_>) -> Step<Option<Token>>) -> Outcome {
    for len in LENGTHS {
        let (before, target) = exposed(rig, len)?;
        let recv = rig.post(B, Post::recv(8))?;
        let read = rig.post(A, Post::read(target.at(0, len)))?;
        let sent = send(rig)?;
        rig.arrives(recv, b"read")?;
        rig.s.memory_write(target.memory, 0, &vec![0xff; len])?;
        fetched(rig, read, &before)?;
        if let Some(sent) = sent {
            rig.done(A, sent)?;
        }
        rig.revoke(&target)?;
    }
    Ok(())
}

fn read_then_send(cx: &Cx<'_>) -> Outcome {
    let rig = ordered(cx, MsgOrder::SAR | MsgOrder::WAR)?;
    overtaken(&rig, |rig| rig.post(A, Post::send(*b"read")).map(Some))?;
    rig.finish()
}

fn read_then_inject(cx: &Cx<'_>) -> Outcome {
    let rig = ordered(cx, MsgOrder::SAR | MsgOrder::WAR)?;
    overtaken(&rig, |rig| {
        rig.inject(A, b"read", None, None).map(|()| None)
    })?;
    rig.finish()
}

fn reads_then_writes(cx: &Cx<'_>) -> Outcome {
    let rig = ordered(cx, MsgOrder::WAR | MsgOrder::RAW)?;
    let len = 30_000;
    let (mut there, target) = exposed(&rig, len)?;
    for round in 0..10 {
        let mut open = Vec::new();
        for turn in 0..8 {
            let reads = [0, 1].map(|_| rig.post(A, Post::read(target.at(0, len))));
            let next = pattern(len, 100 + round * 8 + turn);
            let write = rig.post(A, Post::write(&next[..], target.at(0, len)))?;
            for read in reads {
                open.push((read?, there.clone()));
            }
            open.push((write, Vec::new()));
            there = next;
        }
        for (token, before) in open {
            match before.is_empty() {
                true => drop(rig.done(A, token)?),
                false => fetched(&rig, token, &before)?,
            }
        }
    }
    rig.holds(&target, &there)?;
    rig.finish()
}
