//! Memory from `memfd_create`(2) that nobody can make shorter, and that peers on the machine may
//! therefore map. Whether they do is the provider's affair, and nobody can tell by what happens
//! there: it is memory like any other.

use ripstop_types::{AtomicKind, AtomicOp, Datatype, Errno, Flags, MsgOrder, WaitObj};

use super::denied::{denied, lives_behind_inject};
use super::events::{announced, counted, counts_to};
use super::{OPEN, inject_at, many_between, ordered, overlaid, pieces};
use crate::case::{Cx, Outcome, Step, cases, offered};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, Target, pattern};
use crate::subject::{MrAttr, Post};

cases! {
    pub(super) const CASES;
    fi_rma {
        both memfd:
            "writes and reads of memory from memfd_create arrive whole and touch nothing else"
                = whole;
        both memfd_offsets: "they start at any byte of it";
        both memfd_iov: "they are of several pieces on either side" = iov;
        both memfd_inject: "injected writes to it arrive, without a completion";
        both memfd_delivered: "after delivery complete the bytes are in it";
        both memfd_writedata:
            "a write to it with remote CQ data is announced when the bytes are there";
        both memfd_many: "hundreds of writes and reads in flight both ways lose nothing";
        both memfd_write_then_write:
            "with FI_ORDER_RMA_WAW the last of writes of different kinds to a place of it stays";
        both memfd_write_then_read:
            "with FI_ORDER_RMA_RAW a read of it sees the write before it, of whatever kind";
        both memfd_write_then_send:
            "with FI_ORDER_SAW a message arrives after the write to it before the message";
        both memfd_beyond: "not a byte is written or read outside a region in the middle of it";
    }
    fi_mr {
        both memfd_closed: "a closed region of it is out of reach, though it was reached before";
        both memfd_closed_meanwhile:
            "a region of it closes while peers write there, and then nothing changes";
        both memfd_key_again: "its key may name other memory when it is closed";
    }
    fi_cntr {
        both memfd_counts: "reads and writes of it are counted at home";
        both memfd_counts_remote:
            "with FI_RMA_EVENT reads and writes of it are counted at the target";
    }
    fi_mr {
        both memfd_counts_writes: "a counter bound to a region of it counts the writes to it";
    }
    fi_atomic {
        both memfd: "atomics on it change it, and give what was there before" = atomic;
        both memfd_together:
            "of additions by the peer and its owner's endpoint at the same time none is lost";
    }
}

/// Bytes of most memory here: what is shorter is hardly worth mapping.
const LEN: usize = 20_000;

/// Lets the sides meet and all be told that there is to tell.
#[track_caller]
fn settle(rig: &Rig<'_>) -> Outcome {
    rig.exchange(A, B, b"first")?;
    rig.exchange(B, A, b"second")?;
    rig.pump_times(1000)?;
    Ok(())
}

/// Two sides that have met, with a domain of its own each as two processes have.
#[track_caller]
fn open<'a>(cx: &Cx<'a>, spec: Spec) -> Step<Rig<'a>> {
    let rig = Rig::open(
        cx,
        &Spec {
            two_domains: true,
            ..spec
        },
    )?;
    settle(&rig)?;
    Ok(rig)
}

/// Memory of B that A knows of.
#[track_caller]
fn exposed(rig: &Rig<'_>, bytes: &[u8]) -> Step<Target> {
    let target = rig.expose_memfd(B, bytes)?;
    settle(rig)?;
    Ok(target)
}

/// Writes a part of the memory and reads it back; `before` is what is there.
fn both_ways(
    rig: &Rig<'_>,
    target: &Target,
    at: usize,
    before: &mut Vec<u8>,
    bytes: &[u8],
) -> Outcome {
    let place = target.at(at, bytes.len());
    let done = rig.complete(A, Post::write(bytes, place))?;
    let wanted = Flags::RMA | Flags::WRITE;
    ensure!(done.flags.contains(wanted), "flags are {:?}", done.flags);
    *before = overlaid(before, at, bytes);
    rig.holds(target, before)?;
    let done = rig.complete(A, Post::read(place))?;
    let wanted = Flags::RMA | Flags::READ;
    ensure!(done.flags.contains(wanted), "flags are {:?}", done.flags);
    ensure!(
        done.bufs.concat() == bytes,
        "{} bytes at {at} were read otherwise than written",
        bytes.len()
    );
    Ok(())
}

fn whole(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, Spec::rma())?;
    for len in [0, 1, 8, 1000, 4097, 65_537, 4 << 20] {
        let mut before = pattern(len + LEN, 1);
        let target = exposed(&rig, &before)?;
        for round in 0..3 {
            both_ways(&rig, &target, 32, &mut before, &pattern(len, len + round))?;
        }
        rig.revoke(&target)?;
    }
    rig.finish()
}

fn memfd_offsets(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, Spec::rma())?;
    let mut before = vec![0; LEN];
    let target = exposed(&rig, &before)?;
    for (at, len) in [
        (0, 1),
        (1, 1),
        (3, 8),
        (4095, 2),
        (4096, 4096),
        (LEN - 1, 1),
        (0, LEN),
    ] {
        both_ways(&rig, &target, at, &mut before, &pattern(len, at + 1))?;
    }
    rig.finish()
}

fn iov(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, Spec::rma())?;
    let tx = &rig.info.tx;
    let (local, remote) = (tx.iov_limit.clamp(1, 8), tx.rma_iov_limit.clamp(1, 8));
    let target = exposed(&rig, &[0; LEN])?;
    for count in [1, local] {
        let bytes = pattern(9000, count + 1);
        let token = rig.post(
            A,
            Post::write(&bytes[..], target.at(77, 9000)).iov(pieces(&bytes, count)),
        )?;
        rig.done(A, token)?;
        rig.holds(&target, &overlaid(&[0; LEN], 77, &bytes))?;
        let room = pieces(&vec![0; 9000], count);
        let done = rig.complete(A, Post::read(target.at(77, 9000)).iov(room))?;
        ensure!(done.bufs.concat() == bytes, "read otherwise");
    }
    let bytes = pattern(1000 * remote, 5);
    let places = |i| target.at(2000 * i, 1000);
    let write = Post::write(&bytes[..], places(0)).remote((0..remote).map(places).collect());
    rig.complete(A, write.flags(Flags::DELIVERY_COMPLETE))?;
    let found = rig.s.memory_read(target.memory)?;
    let parts = (0..remote).flat_map(|i| &found[2000 * i..2000 * i + 1000]);
    ensure!(parts.eq(&bytes), "pieces at the target are others");
    rig.finish()
}

fn memfd_inject(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, Spec::rma())?;
    let limit = rig.info.tx.inject_size;
    let mut before = vec![0; LEN + limit];
    let target = exposed(&rig, &before)?;
    for len in [1, 8, limit / 2, limit] {
        let bytes = pattern(len, len + 1);
        inject_at(&rig, &target, 9, &bytes, None)?;
        before = overlaid(&before, 9, &bytes);
        rig.holds(&target, &before)?;
    }
    rig.finish()
}

fn memfd_delivered(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, Spec::rma())?;
    let target = exposed(&rig, &[0; LEN])?;
    for (round, len) in [8, 3000, LEN, 64].into_iter().enumerate() {
        let bytes = pattern(len, round + 3);
        let write = Post::write(&bytes[..], target.at(0, len));
        rig.complete(A, write.flags(Flags::DELIVERY_COMPLETE))?;
        let found = rig.s.memory_read(target.memory)?;
        ensure!(found[..len] == bytes[..], "{len} bytes are not there yet");
    }
    rig.finish()
}

fn memfd_writedata(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, Spec::rma())?;
    let target = exposed(&rig, &[0; LEN])?;
    for (round, len) in [8, LEN, 0, 100].into_iter().enumerate() {
        let bytes = pattern(len, round + 3);
        let write = Post::write(&bytes[..], target.at(0, len)).data(7);
        let token = rig.post(A, write)?;
        announced(&rig, 7)?;
        let found = rig.s.memory_read(target.memory)?;
        ensure!(found[..len] == bytes[..], "announced before it came");
        rig.done(A, token)?;
    }
    rig.finish()
}

fn memfd_many(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, Spec::rma())?;
    many_between(&rig, |to, bytes| {
        let target = rig.expose_memfd(to, bytes)?;
        settle(&rig)?;
        Ok(target)
    })?;
    rig.close()
}

/// Writes of different kinds: plain, delivered, with data for the target.
fn kind(post: Post, round: usize) -> Post {
    match round % 3 {
        0 => post,
        1 => post.data(round as u64),
        _ => post.flags(Flags::DELIVERY_COMPLETE),
    }
}

/// As [`ordered`], with memory that both sides know of.
fn in_order<'a>(cx: &Cx<'a>, order: MsgOrder) -> Step<(Rig<'a>, Target)> {
    let rig = ordered(cx, order)?;
    settle(&rig)?;
    let target = exposed(&rig, &[0; LEN])?;
    Ok((rig, target))
}

fn memfd_write_then_write(cx: &Cx<'_>) -> Outcome {
    let (rig, target) = in_order(cx, MsgOrder::RMA_WAW)?;
    let mut before = vec![0; LEN];
    for burst in 0..20 {
        let mut open = Vec::new();
        for round in 0..6 {
            let len = [LEN, 500, 8][(burst + round) % 3];
            let bytes = pattern(len, 7 * burst + round + 1);
            before = overlaid(&before, 0, &bytes);
            let write = Post::write(bytes, target.at(0, len));
            open.push(rig.post(A, kind(write, burst + 2 * round))?);
        }
        rig.all_done(A, open)?;
        rig.holds(&target, &before)?;
        // Where nothing is on its way the next one may take another way.
        for _ in 0..300 * (burst % 2) {
            rig.pump()?;
        }
    }
    rig.close()
}

fn memfd_write_then_read(cx: &Cx<'_>) -> Outcome {
    let (rig, target) = in_order(cx, MsgOrder::RMA_RAW)?;
    for (round, len) in [8, 2000, LEN, 3, 64, LEN, 8].into_iter().enumerate() {
        let bytes = pattern(len, round + 7);
        let write = Post::write(&bytes[..], target.at(0, len));
        let write = rig.post(A, kind(write, round))?;
        let read = rig.post(A, Post::read(target.at(0, len)))?;
        rig.done(A, write)?;
        let got = rig.done(A, read)?;
        ensure!(got.bufs.concat() == bytes, "the read came before the write");
    }
    rig.close()
}

fn memfd_write_then_send(cx: &Cx<'_>) -> Outcome {
    let (rig, target) = in_order(cx, MsgOrder::SAW)?;
    for (round, len) in [10, 3000, LEN, 1, 8, LEN].into_iter().enumerate() {
        let bytes = pattern(len, round + 1);
        let recv = rig.post(B, Post::recv(8))?;
        let write = rig.post(A, Post::write(&bytes[..], target.at(0, len)))?;
        let send = rig.post(A, Post::send(*b"written"))?;
        rig.done(B, recv)?;
        let found = rig.s.memory_read(target.memory)?;
        ensure!(
            found[..len] == bytes[..],
            "the message came before the write"
        );
        rig.done(A, write)?;
        rig.done(A, send)?;
    }
    rig.close()
}

fn memfd_beyond(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, Spec::rma())?;
    let bytes = pattern(LEN, 1);
    let target = exposed(&rig, &bytes)?;
    let mut before = bytes.clone();
    both_ways(&rig, &target, 0, &mut before, &bytes[..8])?;
    for (at, len) in [(LEN, 1), (LEN - 1, 2), (0, LEN + 1), (1 << 20, 8)] {
        let place = target.at(at, len);
        let write = Post::write(vec![0x55; len], place).flags(Flags::DELIVERY_COMPLETE);
        denied(&rig, write, &target, &bytes)?;
        let read = Post::read(place).iov(vec![vec![0; len]]);
        denied(&rig, read, &target, &bytes)?;
    }
    both_ways(&rig, &target, LEN - 8, &mut before, &[7; 8])?;
    rig.close()
}

fn memfd_closed(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, Spec::rma())?;
    let mut bytes = pattern(LEN, 1);
    let target = exposed(&rig, &bytes)?;
    both_ways(&rig, &target, 100, &mut bytes, &[3; 100])?;
    rig.revoke(&target)?;
    let write = Post::write([5; 64], target.at(0, 64)).flags(Flags::DELIVERY_COMPLETE);
    denied(&rig, write, &target, &bytes)?;
    denied(&rig, Post::read(target.at(0, 64)), &target, &bytes)?;
    inject_at(&rig, &target, 0, &[5; 8], None)?;
    rig.unchanged(&target, &bytes)?;
    lives_behind_inject(&rig)
}

fn memfd_closed_meanwhile(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, Spec::rma())?;
    let target = exposed(&rig, &[0; LEN])?;
    let mut open = Vec::new();
    for round in 0..20 {
        let len = [8, LEN, 3000][round % 3];
        let write = Post::write(pattern(len, round), target.at(0, len));
        open.push(rig.post(A, write.flags(Flags::DELIVERY_COMPLETE))?);
    }
    rig.revoke(&target)?;
    let there = rig.s.memory_read(target.memory)?;
    for token in open {
        // Some came before the end.
        let _ = rig.end(A, token)?;
    }
    rig.unchanged(&target, &there)?;
    let write = Post::write([5; 64], target.at(0, 64)).flags(Flags::DELIVERY_COMPLETE);
    denied(&rig, write, &target, &there)?;
    rig.close()
}

fn memfd_key_again(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, Spec::rma())?;
    let attr = MrAttr {
        access: OPEN,
        key: 0x77,
        ..MrAttr::default()
    };
    for round in 0..6 {
        let memory = match round % 2 {
            0 => rig.memfd(B, &[0; LEN])?,
            _ => rig.memory(B, &[0; LEN])?,
        };
        let target = rig.expose_memory(B, memory, &attr)?;
        settle(&rig)?;
        both_ways(&rig, &target, 8, &mut vec![0; LEN], &pattern(64, round))?;
        rig.revoke(&target)?;
    }
    rig.finish()
}

/// Six writes, one of them injected, and five reads.
fn eleven(rig: &Rig<'_>) -> Outcome {
    settle(rig)?;
    let mut before = vec![0; LEN];
    let target = exposed(rig, &before)?;
    for round in 0..5 {
        both_ways(rig, &target, round, &mut before, &pattern(2000, round))?;
    }
    inject_at(rig, &target, 0, b"one more", None)
}

fn memfd_counts(cx: &Cx<'_>) -> Outcome {
    let (rig, a, b) = counted(cx)?;
    eleven(&rig)?;
    counts_to(&rig, a.writes, 6, "writes")?;
    counts_to(&rig, a.reads, 5, "reads")?;
    counts_to(&rig, b.writes, 0, "the target's own writes")?;
    rig.close()
}

fn memfd_counts_remote(cx: &Cx<'_>) -> Outcome {
    let (rig, a, b) = counted(cx)?;
    eleven(&rig)?;
    counts_to(&rig, b.written_by_peers, 6, "writes at the target")?;
    counts_to(&rig, b.read_by_peers, 5, "reads at the target")?;
    counts_to(&rig, a.written_by_peers, 0, "writes at home")?;
    rig.close()
}

fn memfd_counts_writes(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, Spec::rma().caps(Flags::RMA_EVENT))?;
    let attr = MrAttr {
        access: OPEN,
        key: 9,
        flags: Flags::RMA_EVENT,
        ..MrAttr::default()
    };
    let memory = rig.memfd(B, &[0; LEN])?;
    let target = rig.expose_memory(B, memory, &attr)?;
    let cntr = rig.s.cntr(rig.sides[B].domain, WaitObj::None)?;
    let bound = rig.s.bind(target.mr, cntr, Flags::REMOTE_WRITE);
    offered(bound, &[Errno::ENOSYS], "fi_mr_bind")?;
    settle(&rig)?;
    for i in 0..3 {
        rig.complete(A, Post::write([3; 10], target.at(i, 10)))?;
    }
    counts_to(&rig, cntr, 3, "writes to the region")?;
    rig.revoke(&target)?;
    rig.s.close(cntr)?;
    rig.close()
}

/// Messages, reads, writes and atomics.
fn with_atomics() -> Spec {
    Spec::rma().caps(Flags::ATOMIC)
}

fn word(n: u64) -> [u8; 8] {
    n.to_ne_bytes()
}

fn atomic(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, with_atomics())?;
    let target = exposed(&rig, &[0; LEN])?;
    let mut expected = vec![0; LEN];
    let steps = [
        (AtomicKind::Plain, AtomicOp::AtomicWrite, 40, 0, 0, 40),
        (AtomicKind::Plain, AtomicOp::Sum, 2, 0, 0, 42),
        (AtomicKind::Fetch, AtomicOp::Sum, 3, 0, 42, 45),
        (AtomicKind::Fetch, AtomicOp::AtomicRead, 9, 0, 45, 45),
        (AtomicKind::Compare, AtomicOp::Cswap, 7, 44, 45, 45),
        (AtomicKind::Compare, AtomicOp::Cswap, 7, 45, 45, 7),
        (AtomicKind::Fetch, AtomicOp::AtomicWrite, 1, 0, 7, 1),
    ];
    for (at, (kind, op, operand, compare, before, after)) in [8, 4096, LEN - 8]
        .into_iter()
        .flat_map(|at| steps.map(|step| (at, step)))
    {
        let what = (Datatype::Uint64, op);
        let operands = [&word(operand)[..], &word(compare)[..]];
        let post = Post::atomic(kind, what, operands, target.at(at, 8));
        let done = rig.complete(A, post.flags(Flags::DELIVERY_COMPLETE))?;
        if kind != AtomicKind::Plain {
            let fetched = done.bufs.last();
            ensure!(
                fetched.is_some_and(|bytes| bytes[..] == word(before)),
                "{op:?} fetched {fetched:?}, not {before}"
            );
        }
        expected[at..at + 8].copy_from_slice(&word(after));
        rig.holds(&target, &expected)?;
    }
    rig.finish()
}

fn memfd_together(cx: &Cx<'_>) -> Outcome {
    const EACH: u64 = 400;
    let rig = open(cx, with_atomics())?;
    let target = exposed(&rig, &[0; LEN])?;
    // Each side also adds in the other's memory, so that both are at work all the time.
    let other = rig.expose_memfd(A, &[0; LEN])?;
    settle(&rig)?;
    let add = |n: u64, target: &Target| {
        let what = (Datatype::Uint64, AtomicOp::Sum);
        // One that the processor does, one of eleven that go past each other.
        let len = if n.is_multiple_of(11) { 1024 } else { 8 };
        let ones = word(1).repeat(len / 8);
        Post::atomic(AtomicKind::Plain, what, [&ones, &[]], target.at(64, len))
    };
    let mut open = Vec::new();
    for n in 0..EACH {
        open.push((A, rig.post(A, add(n, &target))?));
        open.push((B, rig.post(B, add(n, &other))?));
    }
    for (side, token) in open {
        rig.done(side, token)?;
    }
    for target in [&target, &other] {
        rig.until("all additions", || {
            let found = rig.s.memory_read(target.memory)?;
            Ok((found[64..72] == word(EACH)).then_some(()))
        })?;
        let found = rig.s.memory_read(target.memory)?;
        ensure!(
            found[72..80] == word(EACH.div_ceil(11)),
            "additions to others were lost"
        );
    }
    rig.finish()
}
