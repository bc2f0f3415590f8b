//! `fi_tagged`(3).

mod peek;

use ripstop_types::{Errno, FiAddr, Flags, MsgOrder};

use crate::case::{Case, Cx, Outcome, Step, Stop, cases, flagged};
use crate::rig::{A, B, Rig, Side, Spec, pattern};
use crate::subject::Post;
use crate::{ensure, ensure_eq};

pub(super) fn cases() -> Vec<Case> {
    [OWN, peek::CASES].concat()
}

cases! {
    const OWN;
    fi_tagged {
        both small: "a tagged message arrives with its tag";
        both sizes: "tagged messages of 0 B to 4 MiB arrive whole, early and late";
        both matching: "messages go to the buffers with their tag, whatever the order";
        both ignore: "bits in the mask do not matter, the others do";
        both wildcard: "a mask of all bits takes any tag, and reports it";
        both all_tag_bits: "every bit of a tag counts";
        both first_posted: "of several matching buffers the first posted is filled";
        both first_arrived: "of several waiting messages the first sent is received";
        both no_match: "a message no buffer matches waits, and disturbs nothing";
        both apart_from_msg: "tagged and plain messages never match each other";
        both order: "tagged messages of one tag keep their order, hundreds in flight";
        both iov: "tagged messages are gathered and scattered";
        both inject: "injected tagged messages arrive, without a completion";
        both cq_data: "tagged messages carry CQ data";
        both inject_data: "injected tagged messages carry CQ data";
        both truncated: "a tagged message that does not fit is cut off and reported";
        both truncated_unexpected:
            "a waiting tagged message that does not fit is cut off and reported";
        both completion_flags: "completions say FI_TAGGED";
        both cancel: "a canceled tagged receive ends with FI_ECANCELED and matches nothing";
        both levels: "each completion level completes, small and large";
        both delivery_rendezvous: "a large message with delivery complete waits for its receive";
        both many_unmatched: "a thousand waiting messages are found by their tags in any order";
        rdm directed: "a directed receive takes messages of its peer only";
        rdm directed_waiting: "a directed receive finds the waiting message of its peer";
        rdm directed_any: "FI_ADDR_UNSPEC takes messages of any peer";
    }
}

fn small(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let got = rig.deliver(Post::trecv(0x1234, 0, 16), Post::tsend(0x1234, *b"tagged"))?;
    got.carries(b"tagged")?;
    ensure!(got.tag == 0x1234, "the tag is {:#x}", got.tag);
    rig.finish()
}

fn sizes(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let sizes = [
        0,
        1,
        64,
        127,
        1025,
        8191,
        16_385,
        65_536,
        262_145,
        1 << 20,
        4 << 20,
    ];
    for (tag, len) in (0..).zip(sizes) {
        let bytes = pattern(len, len);
        for early in [true, false] {
            let mut recv = None;
            if early {
                recv = Some(rig.post(B, Post::trecv(tag, 0, len))?);
            }
            let send = rig.post(A, Post::tsend(tag, &bytes[..]))?;
            let recv = match recv {
                Some(recv) => recv,
                None => {
                    rig.pump_times(20)?;
                    rig.post(B, Post::trecv(tag, 0, len))?
                }
            };
            rig.done(A, send)?;
            let got = rig.done(B, recv)?;
            got.carries(&bytes)?;
        }
    }
    rig.finish()
}

fn matching(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let mut recvs = Vec::new();
    for tag in 0..50 {
        recvs.push((tag, rig.post(B, Post::trecv(tag, 0, 8))?));
    }
    let sends = rig.post_all(
        A,
        (0..50_u64)
            .rev()
            .map(|tag| Post::tsend(tag, tag.to_le_bytes())),
    )?;
    for (tag, recv) in recvs {
        let got = rig.done(B, recv)?;
        got.carries(tag.to_le_bytes())?;
        ensure!(got.tag == tag, "tag {tag} is reported as {}", got.tag);
    }
    rig.all_done(A, sends)?;
    rig.finish()
}

fn ignore(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let low = rig.post(B, Post::trecv(0xab00, 0xff, 8))?;
    let high = rig.post(B, Post::trecv(0x0012, 0xff00, 8))?;
    // Matches the second only, then the first only.
    let one = rig.post(A, Post::tsend(0x7712, *b"high"))?;
    let two = rig.post(A, Post::tsend(0xab55, *b"low"))?;
    let got = rig.done(B, high)?;
    ensure!(
        got.tag == 0x7712 && got.bytes() == b"high",
        "tag {:#x} in the second",
        got.tag
    );
    let got = rig.done(B, low)?;
    ensure!(
        got.tag == 0xab55 && got.bytes() == b"low",
        "tag {:#x} in the first",
        got.tag
    );
    rig.all_done(A, [one, two])?;
    rig.finish()
}

fn wildcard(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    for tag in [0, 1, 0xdead_beef, u64::MAX >> 1, 1 << 62] {
        let got = rig.deliver(Post::trecv(7, u64::MAX, 8), Post::tsend(tag, *b"any"))?;
        ensure!(got.tag == tag, "tag {tag:#x} is reported as {:#x}", got.tag);
    }
    rig.finish()
}

fn all_tag_bits(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let bits = 64 - rig.info.ep.mem_tag_format.leading_zeros();
    let mut recvs = Vec::new();
    for bit in 0..bits {
        recvs.push((bit, rig.post(B, Post::trecv(1 << bit, 0, 8))?));
    }
    let sends = rig.post_all(
        A,
        (0..bits)
            .rev()
            .map(|bit| Post::tsend(1 << bit, bit.to_le_bytes())),
    )?;
    for (bit, recv) in recvs {
        rig.done(B, recv)?.carries(bit.to_le_bytes())?;
    }
    rig.all_done(A, sends)?;
    rig.close()
}

fn first_posted(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let any = rig.post(B, Post::trecv(0, u64::MAX, 8))?;
    let exact = rig.post(B, Post::trecv(5, 0, 8))?;
    let masked = rig.post(B, Post::trecv(4, 1, 8))?;
    for i in 0..3_u64 {
        rig.complete(A, Post::tsend(5, i.to_le_bytes()))?;
    }
    for (i, recv) in (0_u64..).zip([any, exact, masked]) {
        rig.done(B, recv)?.carries(i.to_le_bytes())?;
    }
    rig.finish()
}

fn first_arrived(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let sends = rig.post_all(A, (0..6_u64).map(|i| Post::tsend(i % 2, i.to_le_bytes())))?;
    rig.pump_times(100)?;
    // 1 is the first of tag 1, then 0 is the first of any, then in order.
    for (tag, ignore, wanted) in [(1, 0, 1_u64), (0, u64::MAX, 0), (1, 0, 3), (9, u64::MAX, 2)] {
        rig.complete(B, Post::trecv(tag, ignore, 8))?
            .carries(wanted.to_le_bytes())?;
    }
    for wanted in [4_u64, 5] {
        rig.complete(B, Post::trecv(wanted % 2, 0, 8))?
            .carries(wanted.to_le_bytes())?;
    }
    rig.all_done(A, sends)?;
    rig.finish()
}

fn no_match(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let other = rig.post(B, Post::trecv(1, 0, 8))?;
    let waiting = rig.post(A, Post::tsend(2, *b"waits"))?;
    let send = rig.post(A, Post::tsend(1, *b"goes by"))?;
    rig.arrives(other, b"goes by")?;
    rig.done(A, send)?;
    rig.complete(B, Post::trecv(2, 0, 8))?.carries(b"waits")?;
    rig.done(A, waiting)?;
    rig.finish()
}

fn apart_from_msg(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let plain = rig.post(B, Post::recv(8))?;
    let tagged = rig.post(B, Post::trecv(0, u64::MAX, 8))?;
    let one = rig.post(A, Post::tsend(0, *b"tagged"))?;
    let two = rig.post(A, Post::send(*b"plain"))?;
    rig.arrives(plain, b"plain")?;
    rig.arrives(tagged, b"tagged")?;
    rig.all_done(A, [one, two])?;
    rig.finish()
}

fn order(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged().order(MsgOrder::SAS))?;
    let count = 300.min(rig.info.tx.size).min(rig.info.rx.size);
    // Sizes on both sides of any rendezvous limit.
    let len = |i: usize| [8, 200, 20_000, 1, 70_000][i % 5];
    let (mut recvs, mut sends) = (Vec::new(), Vec::new());
    for i in 0..count {
        if i % 3 > 0 {
            recvs.push(rig.post(B, Post::trecv(1, 0, 70_000))?);
        }
        sends.push(rig.post(A, Post::tsend(1, pattern(len(i), i)))?);
    }
    while recvs.len() < count {
        recvs.push(rig.post(B, Post::trecv(1, 0, 70_000))?);
    }
    for (i, recv) in recvs.into_iter().enumerate() {
        rig.done(B, recv)?.carries(pattern(len(i), i))?;
    }
    rig.all_done(A, sends)?;
    rig.finish()
}

fn iov(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let (out, into) = (rig.info.tx.iov_limit, rig.info.rx.iov_limit);
    for len in [400, 40_000, 400_000] {
        let bytes = pattern(len, 9);
        let pieces: Vec<_> = bytes
            .chunks(len.div_ceil(out))
            .map(<[u8]>::to_vec)
            .collect();
        let room: Vec<_> = vec![0; len]
            .chunks(len.div_ceil(into))
            .map(<[u8]>::to_vec)
            .collect();
        rig.deliver(
            Post::trecv(3, 0, 0).iov(room),
            Post::tsend(3, *b"").iov(pieces),
        )?
        .carries(&bytes)?;
    }
    rig.finish()
}

fn inject(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let limit = rig.info.tx.inject_size;
    for len in [0, 1, limit / 2, limit] {
        let bytes = pattern(len, len);
        let recv = rig.post(B, Post::trecv(len as u64, 0, limit))?;
        rig.inject(A, &bytes, Some(len as u64), None)?;
        rig.arrives(recv, &bytes)?;
    }
    rig.finish()
}

fn cq_data(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    for len in [0, 10, 100_000] {
        for data in [0, 0x0102_0304] {
            let got = rig.deliver(
                Post::trecv(1, 0, len),
                Post::tsend(1, pattern(len, 1)).data(data),
            )?;
            ensure_eq!(got.data, data, "{len} B: CQ data {data:#x}");
            flagged(got.flags, Flags::REMOTE_CQ_DATA, &format!("{len} B"))?;
            got.carries(pattern(len, 1))?;
        }
    }
    rig.finish()
}

fn inject_data(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let recv = rig.post(B, Post::trecv(1, 0, 8))?;
    rig.inject(A, b"data", Some(1), Some(99))?;
    let got = rig.done(B, recv)?;
    ensure!(
        got.data == 99 && got.tag == 1,
        "data {}, tag {}",
        got.data,
        got.tag
    );
    got.carries(b"data")?;
    rig.finish()
}

/// Checks the report of a message of `sent` bytes in a buffer of `room`.
fn cut_off(rig: &Rig<'_>, token: u64, tag: u64, room: usize, sent: usize) -> Outcome {
    let error = rig.failed(B, token)?;
    ensure_eq!(error.err, Errno::ETRUNC, "the error");
    ensure_eq!(error.olen, sent - room, "olen");
    ensure!(
        error.entry.tag == tag,
        "the error entry has tag {}",
        error.entry.tag
    );
    Ok(())
}

fn after(rig: &Rig<'_>) -> Outcome {
    rig.deliver(Post::trecv(77, 0, 8), Post::tsend(77, *b"after"))?
        .carries(b"after")?;
    rig.quiet()
}

fn truncated(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    for (room, len) in [(10, 11), (0, 5), (100, 4000), (1000, 300_000)] {
        let recv = rig.post(B, Post::trecv(6, 0, room))?;
        let send = rig.post(A, Post::tsend(6, pattern(len, 1)))?;
        cut_off(&rig, recv, 6, room, len)?;
        // The sender may be told as well.
        drop(rig.end(A, send)?);
        after(&rig)?;
    }
    rig.close()
}

fn truncated_unexpected(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    for (room, len) in [(10, 11), (100, 4000), (1000, 300_000)] {
        let send = rig.post(A, Post::tsend(6, pattern(len, 1)))?;
        rig.pump_times(50)?;
        let recv = rig.post(B, Post::trecv(6, 0, room))?;
        cut_off(&rig, recv, 6, room, len)?;
        drop(rig.end(A, send)?);
        after(&rig)?;
    }
    rig.close()
}

fn completion_flags(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    for len in [5, 100_000] {
        let recv = rig.post(B, Post::trecv(1, 0, len))?;
        let send = rig.post(A, Post::tsend(1, pattern(len, 1)))?;
        let (sent, got) = (rig.done(A, send)?, rig.done(B, recv)?);
        flagged(sent.flags, Flags::SEND | Flags::TAGGED, "a send")?;
        flagged(got.flags, Flags::RECV | Flags::TAGGED, "a receive")?;
        ensure!(
            !(sent.flags | got.flags).contains(Flags::MSG),
            "FI_MSG is set as well"
        );
    }
    rig.close()
}

fn cancel(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let first = rig.post(B, Post::trecv(1, 0, 8))?;
    let second = rig.post(B, Post::trecv(1, 0, 8))?;
    rig.s.cancel(rig.sides[B].ep, first)?;
    let error = rig.failed(B, first)?;
    ensure_eq!(error.err, Errno::ECANCELED, "the error");
    rig.complete(A, Post::tsend(1, *b"second"))?;
    rig.arrives(second, b"second")?;
    rig.finish()
}

fn levels(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    for level in [
        Flags::INJECT_COMPLETE,
        Flags::TRANSMIT_COMPLETE,
        Flags::DELIVERY_COMPLETE,
    ] {
        for len in [0, 8, 9000, 300_000] {
            let bytes = pattern(len, 1);
            rig.deliver(
                Post::trecv(4, 0, len),
                Post::tsend(4, &bytes[..]).flags(level),
            )?
            .carries(&bytes)?;
        }
    }
    rig.finish()
}

fn delivery_rendezvous(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let len = 4 << 20;
    let post = Post::tsend(4, pattern(len, 1)).flags(Flags::DELIVERY_COMPLETE);
    let send = rig.post(A, post)?;
    rig.pump_times(50)?;
    let recv = rig.post(B, Post::trecv(4, 0, len))?;
    rig.done(A, send)?;
    rig.arrives(recv, pattern(len, 1))?;
    rig.finish()
}

fn many_unmatched(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let count = 1000;
    let mut sends = Vec::new();
    for tag in 0..count {
        sends.push(rig.post(A, Post::tsend(tag, tag.to_le_bytes()))?);
        rig.pump()?;
    }
    // 7 and 1000 have no common factor: every tag once, far from in order.
    for i in 0..count {
        let tag = i * 7 % count;
        rig.complete(B, Post::trecv(tag, 0, 8))?
            .carries(tag.to_le_bytes())?;
    }
    rig.all_done(A, sends)?;
    rig.finish()
}

/// A third side, `C`, that `B` knows too; gives its address in B's vector.
fn third(rig: &mut Rig<'_>, spec: &Spec) -> Step<FiAddr> {
    let domain = rig.sides[A].domain;
    let side: Side = rig.add(spec, domain)?;
    rig.sides.push(side);
    let names: Vec<_> = rig.sides.iter().map(|s| s.name.clone()).collect();
    rig.sides[2].peer = rig.insert(2, names[B].as_ref())?;
    rig.insert(B, names[2].as_ref())
}

const C: usize = 2;

fn directed_rig<'a>(cx: &Cx<'a>) -> Step<(Rig<'a>, FiAddr)> {
    let spec = Spec::tagged().caps(Flags::DIRECTED_RECV);
    let mut rig = Rig::open(cx, &spec)?;
    let c = third(&mut rig, &spec)?;
    Ok((rig, c))
}

fn directed(cx: &Cx<'_>) -> Outcome {
    let (rig, c) = directed_rig(cx)?;
    let a = rig.sides[B].peer;
    let from_c = rig.post(B, Post::trecv(1, 0, 8).with(c))?;
    rig.deliver(Post::trecv(1, 0, 8).with(a), Post::tsend(1, *b"of A"))?
        .carries(b"of A")?;
    rig.complete(C, Post::tsend(1, *b"of C"))?;
    rig.arrives(from_c, b"of C")?;
    rig.finish()
}

fn directed_waiting(cx: &Cx<'_>) -> Outcome {
    let (rig, c) = directed_rig(cx)?;
    let a = rig.sides[B].peer;
    let one = rig.post(A, Post::tsend(1, *b"of A"))?;
    let two = rig.post(C, Post::tsend(1, *b"of C"))?;
    rig.pump_times(100)?;
    rig.complete(B, Post::trecv(1, 0, 8).with(c))?
        .carries(b"of C")?;
    rig.complete(B, Post::trecv(1, 0, 8).with(a))?
        .carries(b"of A")?;
    rig.done(A, one)?;
    rig.done(C, two)?;
    rig.finish()
}

fn directed_any(cx: &Cx<'_>) -> Outcome {
    let (rig, _) = directed_rig(cx)?;
    let recvs = rig.post_all(B, (0..2).map(|_| Post::trecv(1, 0, 8)))?;
    for side in [A, C] {
        rig.complete(side, Post::tsend(1, [side as u8]))?;
    }
    let mut from = Vec::new();
    for recv in recvs {
        from.extend(rig.done(B, recv)?.bytes());
    }
    from.sort_unstable();
    if from != [A as u8, C as u8] {
        return Err(Stop::fail(format!("messages of {from:?}")));
    }
    rig.finish()
}
