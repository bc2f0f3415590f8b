//! `fi_msg`(3).

mod flow;
mod levels;
mod multi;
mod order;

use ripstop_types::{CqFormat, Errno, Flags};

use crate::case::{Case, Cx, Outcome, cases, flagged, offered, refused};
use crate::rig::{A, B, Rig, Spec, pattern};
use crate::subject::{EpOption, Inject, Post};
use crate::{ensure, ensure_eq};

pub(super) fn cases() -> Vec<Case> {
    [OWN, order::CASES, flow::CASES, levels::CASES, multi::CASES].concat()
}

cases! {
    const OWN;
    fi_msg {
        both small: "a small message arrives";
        both sizes: "messages of 0 B to 4 MiB arrive whole";
        both odd_sizes: "messages of every odd length around powers of two arrive whole";
        both zero_length: "a message without bytes arrives, also without a buffer";
        both shorter: "a short message in a large buffer has its own length";
        both unexpected: "messages that arrive before their buffers wait";
        both truncated: "what does not fit is cut off and reported, and the next message is whole";
        both truncated_unexpected: "a waiting message that does not fit is cut off and reported";
        both iov_send: "1 to iov_limit pieces are gathered";
        both iov_recv: "1 to iov_limit pieces are scattered to";
        both iov_over_limit: "one piece more than iov_limit is refused";
        both inject: "injected messages up to inject_size arrive, without a completion";
        both inject_too_long: "an inject beyond inject_size is refused";
        both inject_flag: "FI_INJECT with a call that completes gives the buffer back at once";
        both cq_data: "remote CQ data arrives in full and is flagged";
        both cq_data_sendmsg: "FI_REMOTE_CQ_DATA is a flag of fi_sendmsg too";
        both inject_data: "fi_injectdata carries CQ data without a completion";
        both no_cq_data: "a message without CQ data is not flagged as having any";
        both more: "messages posted with FI_MORE arrive once one without follows";
        both completion_flags: "completions say what completed";
        both bidirectional: "both sides send at the same time";
        both before_enable: "a disabled endpoint takes no operation";
        both max_msg_size:
            "a message longer than FI_OPT_MAX_MSG_SIZE is refused, one as long arrives";
        both two_domains: "endpoints in two domains of a fabric talk";
    }
}

fn small(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let got = rig.exchange(A, B, b"hello")?;
    ensure!(got.len == 5, "5 bytes arrived as {}", got.len);
    rig.finish()
}

fn sizes(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let sizes = [
        0,
        1,
        64,
        128,
        129,
        1000,
        4096,
        16_384,
        65_536,
        1 << 20,
        4 << 20,
    ];
    for (seed, len) in sizes.into_iter().enumerate() {
        rig.exchange(A, B, &pattern(len, seed))?;
        rig.exchange(B, A, &pattern(len, seed + 1))?;
    }
    rig.finish()
}

fn odd_sizes(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    for power in [3, 6, 7, 8, 9, 10, 12, 13, 14, 16, 17, 20] {
        for len in [(1 << power) - 1, (1 << power) + 1, (1 << power) + 3] {
            rig.exchange(A, B, &pattern(len, power))?;
        }
    }
    rig.finish()
}

fn zero_length(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let room = rig.post(B, Post::recv(16))?;
    let none = rig.post(B, Post::recv(0).iov(Vec::new()))?;
    let one = rig.post(A, Post::send(*b""))?;
    let two = rig.post(A, Post::send(*b"").iov(Vec::new()))?;
    for (side, token) in [(A, one), (A, two), (B, room), (B, none)] {
        let done = rig.done(side, token)?;
        ensure!(
            side == A || done.len == 0,
            "a message of 0 bytes has length {}",
            done.len
        );
    }
    rig.finish()
}

fn shorter(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    for (room, len) in [(64, 1), (4096, 100), (1 << 20, 70_000)] {
        let bytes = pattern(len, room);
        let got = rig.deliver(Post::recv(room), Post::send(&bytes[..]))?;
        got.carries(&bytes)?;
        let rest = got.bufs.concat().split_off(len);
        ensure!(
            rest.iter().all(|b| *b == 0),
            "the buffer was written beyond the message"
        );
    }
    rig.finish()
}

fn unexpected(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    rig.exchange(A, B, b"first")?;
    let sizes = [1, 100, 5000, 70_000, 300_000];
    let sends = rig.post_all(
        A,
        sizes.into_iter().map(|len| Post::send(pattern(len, len))),
    )?;
    // Let what can arrive do so.
    rig.pump_times(200)?;
    for len in sizes {
        rig.complete(B, Post::recv(len))?
            .carries(pattern(len, len))?;
    }
    rig.all_done(A, sends)?;
    rig.finish()
}

/// Checks the report of a message of `sent` bytes in a buffer of `room`.
fn cut_off(rig: &Rig<'_>, token: u64, room: usize, sent: usize) -> Outcome {
    let error = rig.failed(B, token)?;
    ensure_eq!(error.err, Errno::ETRUNC, "the error");
    ensure_eq!(error.olen, sent - room, "olen");
    let flags = error.entry.flags;
    ensure!(
        flags.contains(Flags::RECV),
        "the error entry has flags {flags:?}"
    );
    Ok(())
}

fn truncated(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    for (room, len) in [(10, 11), (0, 5), (100, 4000), (1000, 100_000)] {
        let recv = rig.post(B, Post::recv(room))?;
        let send = rig.post(A, Post::send(pattern(len, 1)))?;
        cut_off(&rig, recv, room, len)?;
        rig.done(A, send)?;
        rig.exchange(A, B, b"the next one")?;
    }
    rig.finish()
}

fn truncated_unexpected(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    rig.exchange(A, B, b"first")?;
    for (room, len) in [(10, 11), (100, 4000), (1000, 100_000)] {
        let send = rig.post(A, Post::send(pattern(len, 1)))?;
        rig.pump_times(100)?;
        let recv = rig.post(B, Post::recv(room))?;
        cut_off(&rig, recv, room, len)?;
        rig.done(A, send)?;
        rig.exchange(A, B, b"the next one")?;
    }
    rig.finish()
}

/// Splits bytes into `count` pieces of unequal length.
fn pieces(bytes: &[u8], count: usize) -> Vec<Vec<u8>> {
    let mut rest = bytes;
    let mut pieces = Vec::new();
    for left in (1..=count).rev() {
        let take = match left {
            1 => rest.len(),
            _ => (rest.len() / (left + 1)).min(rest.len()),
        };
        let (piece, after) = rest.split_at(take);
        pieces.push(piece.to_vec());
        rest = after;
    }
    pieces
}

fn iov_send(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    for count in 1..=rig.info.tx.iov_limit {
        for len in [count, 1000, 100_001] {
            let bytes = pattern(len, count);
            rig.deliver(Post::recv(len), Post::send(*b"").iov(pieces(&bytes, count)))?
                .carries(&bytes)?;
        }
    }
    rig.finish()
}

fn iov_recv(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    for count in 1..=rig.info.rx.iov_limit {
        for len in [count, 1000, 100_001] {
            let bytes = pattern(len, count);
            let room = pieces(&vec![0; len], count);
            rig.deliver(Post::recv(0).iov(room), Post::send(&bytes[..]))?
                .carries(&bytes)?;
        }
    }
    rig.finish()
}

fn iov_over_limit(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    rig.exchange(A, B, b"first")?;
    let (tx, rx) = (rig.info.tx.iov_limit, rig.info.rx.iov_limit);
    let reasons = [Errno::EINVAL, Errno::E2BIG, Errno::EMSGSIZE];
    let send = Post::send(*b"").iov(vec![vec![1]; tx + 1]);
    refused(rig.try_post(A, send), &reasons, "a send of too many pieces")?;
    let recv = Post::recv(0).iov(vec![vec![0]; rx + 1]);
    refused(
        rig.try_post(B, recv),
        &reasons,
        "a receive of too many pieces",
    )?;
    rig.exchange(A, B, b"after")?;
    Ok(())
}

fn inject(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let limit = rig.info.tx.inject_size;
    for len in [0, 1, 7, limit / 2, limit - 1, limit] {
        let bytes = pattern(len, len);
        let recv = rig.post(B, Post::recv(limit))?;
        rig.inject(A, &bytes, None, None)?;
        rig.arrives(recv, &bytes)?;
    }
    rig.finish()
}

fn inject_too_long(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    rig.exchange(A, B, b"first")?;
    let bytes = vec![1; rig.info.tx.inject_size + 1];
    let side = &rig.sides[A];
    let inject = Inject {
        bytes: &bytes,
        tag: None,
        data: None,
        addr: side.peer,
    };
    let reasons = [Errno::EINVAL, Errno::EMSGSIZE];
    refused(
        rig.s.inject(side.ep, inject),
        &reasons,
        "an inject that is too long",
    )?;
    rig.exchange(A, B, b"after")?;
    Ok(())
}

fn inject_flag(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    rig.deliver(Post::recv(64), Post::send(*b"inject").flags(Flags::INJECT))?
        .carries(b"inject")?;
    rig.finish()
}

/// Values whose bytes would show a wrong width or byte order.
const DATA: [u64; 4] = [0, 1, 0x0102_0304, 0x8877_6655_4433_2211];

fn fitting(rig: &Rig<'_>, data: u64) -> u64 {
    match rig.info.domain.cq_data_size {
        size @ 1..8 => data & ((1 << (8 * size)) - 1),
        _ => data,
    }
}

fn cq_data(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    for data in DATA.map(|d| fitting(&rig, d)) {
        for len in [0, 10, 100_000] {
            let bytes = pattern(len, 3);
            let got = rig.deliver(Post::recv(len), Post::send(&bytes[..]).data(data))?;
            got.carries(&bytes)?;
            ensure_eq!(got.data, data, "CQ data {data:#x}");
            flagged(got.flags, Flags::REMOTE_CQ_DATA, "the completion")?;
        }
    }
    rig.finish()
}

fn cq_data_sendmsg(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let data = fitting(&rig, DATA[3]);
    let recv = rig.post(B, Post::recv(16))?;
    let post = Post::send(*b"data").data(data).flags(Flags::COMPLETION);
    rig.complete(A, post)?;
    let got = rig.done(B, recv)?;
    ensure_eq!(got.data, data, "CQ data {data:#x}");
    got.carries(b"data")?;
    rig.finish()
}

fn inject_data(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    for data in DATA.map(|d| fitting(&rig, d)) {
        let recv = rig.post(B, Post::recv(16))?;
        rig.inject(A, b"data", None, Some(data))?;
        let got = rig.done(B, recv)?;
        ensure_eq!(got.data, data, "CQ data {data:#x}");
        got.carries(b"data")?;
        flagged(got.flags, Flags::REMOTE_CQ_DATA, "the completion")?;
    }
    rig.finish()
}

fn no_cq_data(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let recv = rig.post(B, Post::recv(16))?;
    rig.inject(A, b"with", None, Some(7))?;
    rig.done(B, recv)?;
    let got = rig.exchange(A, B, b"without")?;
    ensure!(
        !got.flags.contains(Flags::REMOTE_CQ_DATA),
        "flags are {:?}",
        got.flags
    );
    rig.close()
}

fn more(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    for count in [1, 2, 17] {
        let mut recvs = Vec::new();
        for i in 0..=count {
            // Receives may be announced as well.
            let flags = if i < count {
                Flags::MORE
            } else {
                Flags::empty()
            };
            recvs.push(rig.post(B, Post::recv(300).flags(flags))?);
        }
        let mut sends = Vec::new();
        for i in 0..=count {
            let flags = if i < count {
                Flags::MORE
            } else {
                Flags::empty()
            };
            sends.push(rig.post(A, Post::send(pattern(10 + i, i)).flags(flags))?);
        }
        for (i, (send, recv)) in sends.into_iter().zip(recvs).enumerate() {
            rig.done(A, send)?;
            rig.done(B, recv)?.carries(pattern(10 + i, i))?;
        }
    }
    rig.finish()
}

fn completion_flags(cx: &Cx<'_>) -> Outcome {
    for format in [CqFormat::Msg, CqFormat::Data, CqFormat::Tagged] {
        let rig = Rig::open(cx, &Spec::default().format(format))?;
        for len in [5, 100_000] {
            let recv = rig.post(B, Post::recv(len))?;
            let send = rig.post(A, Post::send(pattern(len, 1)))?;
            let (sent, got) = (rig.done(A, send)?, rig.done(B, recv)?);
            let wanted = Flags::SEND | Flags::MSG;
            flagged(sent.flags, wanted, &format!("{format:?}: a send"))?;
            let wanted = Flags::RECV | Flags::MSG;
            flagged(got.flags, wanted, &format!("{format:?}: a receive"))?;
            ensure!(
                !got.flags.contains(Flags::TAGGED),
                "{format:?}: {:?}",
                got.flags
            );
        }
        rig.close()?;
    }
    Ok(())
}

fn bidirectional(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    for len in [1, 1000, 200_000, 2 << 20] {
        let bytes = pattern(len, 5);
        let recv_a = rig.post(A, Post::recv(len))?;
        let recv_b = rig.post(B, Post::recv(len))?;
        let send_a = rig.post(A, Post::send(&bytes[..]))?;
        let send_b = rig.post(B, Post::send(&bytes[..]))?;
        for (side, recv, send) in [(A, recv_a, send_a), (B, recv_b, send_b)] {
            rig.done(side, send)?;
            rig.done(side, recv)?.carries(&bytes)?;
        }
    }
    rig.finish()
}

fn before_enable(cx: &Cx<'_>) -> Outcome {
    let info = crate::rig::offer(cx, &Spec::default())?;
    let s = cx.s;
    let fabric = s.fabric(&info)?;
    let domain = s.domain(fabric, &info)?;
    let side = crate::rig::prepare(s, &Spec::default(), domain, &info)?;
    let mut post = Post::recv(8);
    post.token = 1;
    let reasons = [Errno::EOPBADSTATE, Errno::ENOCQ, Errno::ENOTCONN];
    refused(
        s.post(side.ep, &post),
        &reasons,
        "a receive before fi_enable",
    )?;
    let mut post = Post::send(*b"early");
    post.token = 2;
    refused(s.post(side.ep, &post), &reasons, "a send before fi_enable")
}

fn max_msg_size(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let ep = rig.sides[A].ep;
    // That of the info is beyond what memory there is.
    for limit in [200_000, 10_000, 10] {
        let reasons = [Errno::ENOPROTOOPT, Errno::EOPBADSTATE];
        let set = rig.s.set_option(ep, EpOption::MaxMsgSize, limit);
        offered(set, &reasons, "FI_OPT_MAX_MSG_SIZE")?;
        let now = rig.s.option(ep, EpOption::MaxMsgSize)?;
        ensure!(now == limit, "it is {now} after it was set to {limit}");
        rig.exchange(A, B, &pattern(limit, 1))?;
        let sent = rig.try_post(A, Post::send(vec![0; limit + 1]));
        let reasons = [Errno::EMSGSIZE, Errno::EINVAL];
        refused(
            sent,
            &reasons,
            &format!("a message of {limit} bytes and one"),
        )?;
        // The other side's limit is its own.
        rig.exchange(B, A, &pattern(limit + 1, 2))?;
    }
    rig.finish()
}

fn two_domains(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().two_domains(true))?;
    for len in [1, 1000, 200_000] {
        rig.exchange(A, B, &pattern(len, 1))?;
        rig.exchange(B, A, &pattern(len, 2))?;
    }
    rig.finish()
}

/// Sets the endpoint's default flags of one direction, where that is offered.
fn set_default(rig: &Rig<'_>, side: usize, flags: Flags) -> Outcome {
    let ep = rig.sides[side].ep;
    let set = rig.s.set_op_flags(ep, crate::subject::Direction::Tx, flags);
    offered(set, &[Errno::ENOSYS], "FI_SETOPSFLAG")
}
