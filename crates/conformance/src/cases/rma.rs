//! `fi_rma`(3).

mod denied;
mod events;
mod fence;
mod memfd;
mod order;

use ripstop_types::{Errno, FiAddr, Flags, MsgOrder};

use crate::case::{Case, Cx, Outcome, Step, Stop, cases, refused};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, Target, offer, pattern, prepare};
use crate::subject::{Inject, Post, Remote};

pub(super) fn cases() -> Vec<Case> {
    [
        OWN,
        denied::CASES,
        events::CASES,
        fence::CASES,
        memfd::CASES,
        order::CASES,
    ]
    .concat()
}

/// What peers may do to most memory here.
pub(super) const OPEN: Flags = Flags::REMOTE_READ.union(Flags::REMOTE_WRITE);

cases! {
    const OWN;
    fi_rma {
        both write: "writes of 0 B to 4 MiB arrive whole and touch nothing else";
        both read: "reads of 0 B to 4 MiB arrive whole";
        both offsets: "writes and reads start at any byte of a region";
        both iov: "1 to iov_limit pieces of local memory are written from and read to";
        both rma_iov: "1 to rma_iov_limit pieces of the peer's memory are written and read";
        both iov_both: "pieces of both sides may be cut at different places";
        both iov_over_limit: "one piece more than iov_limit or rma_iov_limit is refused";
        both two_regions: "one write reaches two regions by their keys";
        both inject: "injected writes up to inject_size arrive, without a completion";
        both inject_too_long: "an injected write beyond inject_size is refused";
        both inject_flag: "FI_INJECT with fi_writemsg gives the buffer back at once";
        both many: "hundreds of writes and reads in flight both ways lose nothing";
        both among_messages: "messages, writes and reads share an endpoint";
        both write_then_send: "with FI_ORDER_SAW a message arrives after the write before it";
        both write_then_write: "with FI_ORDER_RMA_WAW the last of two writes to a place stays";
        both write_then_read: "with FI_ORDER_RMA_RAW a read sees the write before it";
        both more: "writes posted with FI_MORE arrive once one without follows";
        rdm first_contact: "the first operation towards a peer may be a write or a read";
        rdm own_memory: "an endpoint reaches memory of its own domain through its own address";
        both two_domains: "memory of another domain of the fabric is reached";
        both before_enable: "a disabled endpoint takes no read or write";
        both not_asked: "an endpoint opened without FI_RMA refuses reads and writes";
    }
}

/// Lengths on both sides of what providers treat apart.
const SIZES: [usize; 10] = [0, 1, 7, 64, 1000, 4097, 16_384, 65_537, 1 << 20, 4 << 20];

fn write(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    for (from, to) in [(A, B), (B, A)] {
        for len in SIZES {
            let before = pattern(len + 64, 1);
            let target = rig.expose(to, &before, Flags::REMOTE_WRITE)?;
            let bytes = pattern(len, len + 2);
            let done = rig.complete(from, Post::write(&bytes[..], target.at(32, len)))?;
            let wanted = Flags::RMA | Flags::WRITE;
            ensure!(done.flags.contains(wanted), "flags are {:?}", done.flags);
            rig.holds(&target, &overlaid(&before, 32, &bytes))?;
        }
    }
    rig.finish()
}

fn read(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    for (from, to) in [(A, B), (B, A)] {
        for len in SIZES {
            let bytes = pattern(len + 64, len + 3);
            let target = rig.expose(to, &bytes, Flags::REMOTE_READ)?;
            let done = rig.complete(from, Post::read(target.at(32, len)))?;
            let wanted = Flags::RMA | Flags::READ;
            ensure!(done.flags.contains(wanted), "flags are {:?}", done.flags);
            ensure!(
                done.bufs.concat() == bytes[32..32 + len],
                "{len} bytes arrived damaged"
            );
            rig.unchanged(&target, &bytes)?;
        }
    }
    rig.finish()
}

/// `base` with `bytes` at `at`.
pub(super) fn overlaid(base: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut all = base.to_vec();
    all[at..at + bytes.len()].copy_from_slice(bytes);
    all
}

/// Writes, waits until it has arrived, and reads back.
fn both_ways(rig: &Rig<'_>, target: &Target, at: usize, bytes: &[u8]) -> Outcome {
    let before = rig.s.memory_read(target.memory)?;
    rig.complete(A, Post::write(bytes, target.at(at, bytes.len())))?;
    rig.holds(target, &overlaid(&before, at, bytes))?;
    let done = rig.complete(A, Post::read(target.at(at, bytes.len())))?;
    ensure!(
        done.bufs.concat() == bytes,
        "{} bytes at {at} were read otherwise than written",
        bytes.len()
    );
    Ok(())
}

fn offsets(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    let size = 10_000;
    let target = rig.expose(B, &vec![0; size], OPEN)?;
    for (at, len) in [(0, 1), (1, 1), (3, 8), (4095, 2), (4096, 4096), (9999, 1)] {
        both_ways(&rig, &target, at, &pattern(len, at + 1))?;
    }
    both_ways(&rig, &target, 0, &pattern(size, 5))?;
    rig.finish()
}

/// Splits bytes into `count` pieces of unequal length.
fn pieces(bytes: &[u8], count: usize) -> Vec<Vec<u8>> {
    let (mut rest, mut pieces) = (bytes, Vec::new());
    for left in (1..=count).rev() {
        let take = if left == 1 {
            rest.len()
        } else {
            rest.len() / (left + 1)
        };
        let (piece, after) = rest.split_at(take);
        pieces.push(piece.to_vec());
        rest = after;
    }
    pieces
}

/// Writes and reads with local memory in `local` pieces and remote memory in `remote`.
fn in_pieces(rig: &Rig<'_>, len: usize, local: usize, remote: usize) -> Outcome {
    let bytes = pattern(len, local * 5 + remote);
    // Each remote piece has eight bytes before it that stay as they are.
    let parts = pieces(&bytes, remote);
    let size = len + 8 * remote;
    let target = rig.expose(B, &vec![0xaa; size], OPEN)?;
    let (mut places, mut expected, mut at) = (Vec::new(), vec![0xaa; size], 8);
    for part in &parts {
        places.push(target.at(at, part.len()));
        expected[at..at + part.len()].copy_from_slice(part);
        at += part.len() + 8;
    }
    let write = Post::write(*b"", target.at(0, 0)).iov(pieces(&bytes, local));
    rig.complete(A, write.remote(places.clone()))?;
    rig.holds(&target, &expected)?;
    let room = pieces(&vec![0; len], local);
    let read = Post::read(target.at(0, 0)).iov(room).remote(places);
    let done = rig.complete(A, read)?;
    ensure!(
        done.bufs.concat() == bytes,
        "{len} bytes in {local} pieces here and {remote} there were read otherwise than written"
    );
    rig.revoke(&target)
}

fn iov(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    for local in 1..=rig.info.tx.iov_limit {
        for len in [local, 1000, 100_001] {
            in_pieces(&rig, len, local, 1)?;
        }
    }
    rig.finish()
}

fn rma_iov(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    ensure!(rig.info.tx.rma_iov_limit >= 1, "rma_iov_limit is 0");
    for remote in 1..=rig.info.tx.rma_iov_limit {
        for len in [remote, 1000, 100_001] {
            in_pieces(&rig, len, 1, remote)?;
        }
    }
    rig.finish()
}

fn iov_both(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    let (local, remote) = (rig.info.tx.iov_limit, rig.info.tx.rma_iov_limit);
    for len in [100, 5000, 300_003] {
        in_pieces(&rig, len, local, remote)?;
        in_pieces(&rig, len, 1.max(local / 2), remote)?;
        in_pieces(&rig, len, local, 1.max(remote / 2))?;
    }
    rig.finish()
}

const TOO_MANY: [Errno; 3] = [Errno::EINVAL, Errno::E2BIG, Errno::EMSGSIZE];

fn iov_over_limit(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    rig.exchange(A, B, b"first")?;
    let target = rig.expose(B, &[0; 64], OPEN)?;
    let (local, remote) = (rig.info.tx.iov_limit, rig.info.tx.rma_iov_limit);
    for post in [
        Post::write(*b"", target.at(0, local + 1)),
        Post::read(target.at(0, local + 1)),
    ] {
        let post = post.iov(vec![vec![1]; local + 1]);
        refused(rig.try_post(A, post), &TOO_MANY, "too many local pieces")?;
    }
    let places: Vec<_> = (0..=remote).map(|i| target.at(i, 1)).collect();
    for post in [
        Post::write(vec![1; remote + 1], target.at(0, 1)),
        Post::read(target.at(0, remote + 1)),
    ] {
        let post = post.remote(places.clone());
        refused(rig.try_post(A, post), &TOO_MANY, "too many remote pieces")?;
    }
    rig.unchanged(&target, &[0; 64])?;
    rig.exchange(A, B, b"after")?;
    Ok(())
}

fn two_regions(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    if rig.info.tx.rma_iov_limit < 2 {
        return Err(Stop::not_offered("rma_iov_limit is 1"));
    }
    let one = rig.expose(B, &[0; 100], OPEN)?;
    let two = rig.expose(B, &[0; 100], OPEN)?;
    let bytes = pattern(60, 4);
    let places = vec![one.at(50, 20), two.at(10, 40)];
    let write = Post::write(&bytes[..], one.at(0, 0)).remote(places.clone());
    rig.complete(A, write)?;
    rig.holds(&one, &overlaid(&[0; 100], 50, &bytes[..20]))?;
    rig.holds(&two, &overlaid(&[0; 100], 10, &bytes[20..]))?;
    let read = Post::read(one.at(0, 60)).remote(places);
    let done = rig.complete(A, read)?;
    ensure!(done.bufs.concat() == bytes, "read otherwise than written");
    rig.close()
}

/// Injects a write, making progress while the queue is full.
pub(super) fn inject_at(
    rig: &Rig<'_>,
    target: &Target,
    at: usize,
    bytes: &[u8],
    data: Option<u64>,
) -> Step<()> {
    let side = &rig.sides[A];
    let inject = Inject {
        bytes,
        tag: None,
        data,
        addr: side.peer,
    };
    rig.retry("a full queue takes another inject", || {
        rig.s
            .inject_write(side.ep, inject, target.at(at, bytes.len()))
    })
}

fn inject(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    let limit = rig.info.tx.inject_size;
    for len in [0, 1, 7, limit / 2, limit] {
        let target = rig.expose(B, &vec![0; limit + 8], OPEN)?;
        let bytes = pattern(len, len + 1);
        inject_at(&rig, &target, 8, &bytes, None)?;
        rig.holds(&target, &overlaid(&vec![0; limit + 8], 8, &bytes))?;
    }
    rig.finish()
}

fn inject_too_long(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    rig.exchange(A, B, b"first")?;
    let len = rig.info.tx.inject_size + 1;
    let target = rig.expose(B, &vec![0; len], OPEN)?;
    let side = &rig.sides[A];
    let inject = Inject {
        bytes: &vec![1; len],
        tag: None,
        data: None,
        addr: side.peer,
    };
    refused(
        rig.s.inject_write(side.ep, inject, target.at(0, len)),
        &[Errno::EINVAL, Errno::EMSGSIZE],
        "an injected write that is too long",
    )?;
    rig.unchanged(&target, &vec![0; len])?;
    rig.exchange(A, B, b"after")?;
    Ok(())
}

fn inject_flag(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    let target = rig.expose(B, &[0; 64], OPEN)?;
    let write = Post::write(*b"inject", target.at(3, 6)).flags(Flags::INJECT);
    rig.complete(A, write)?;
    rig.holds(&target, &overlaid(&[0; 64], 3, b"inject"))?;
    rig.finish()
}

fn many(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    many_between(&rig, |to, bytes| rig.expose(to, bytes, OPEN))?;
    rig.close()
}

/// Writes and reads in both directions at the same time, to and from regions that `expose` makes
/// of the bytes they are to have.
fn many_between(rig: &Rig<'_>, expose: impl Fn(usize, &[u8]) -> Step<Target>) -> Outcome {
    const COUNT: usize = 300;
    const LEN: usize = 777;
    let content = pattern(COUNT * LEN, 9);
    let mut open = Vec::new();
    let mut targets = Vec::new();
    for (from, to) in [(A, B), (B, A)] {
        let written = expose(to, &vec![0; COUNT * LEN])?;
        let whole = expose(to, &content)?;
        targets.push((from, written, whole));
    }
    for i in 0..COUNT {
        let range = i * LEN..(i + 1) * LEN;
        for (from, written, whole) in &targets {
            let write = Post::write(&content[range.clone()], written.at(range.start, LEN));
            open.push((*from, rig.post(*from, write)?, None));
            let read = Post::read(whole.at(range.start, LEN));
            open.push((*from, rig.post(*from, read)?, Some(range.clone())));
        }
    }
    for (from, token, read) in open {
        let done = rig.done(from, token)?;
        if let Some(range) = read {
            ensure!(done.bufs.concat() == content[range], "a read is damaged");
        }
    }
    for (_, written, whole) in &targets {
        rig.holds(written, &content)?;
        rig.unchanged(whole, &content)?;
    }
    rig.quiet()
}

fn among_messages(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    let size = 200_000;
    let target = rig.expose(B, &vec![0; size], OPEN)?;
    for len in [10, 5000, size] {
        let bytes = pattern(len, len);
        let recv = rig.post(B, Post::recv(len))?;
        let write = rig.post(A, Post::write(&bytes[..], target.at(0, len)))?;
        let send = rig.post(A, Post::send(&bytes[..]))?;
        let read = rig.post(A, Post::read(target.at(0, 10)))?;
        rig.all_done(A, [write, send, read])?;
        let got = rig.done(B, recv)?;
        got.carries(&bytes)?;
        let found = rig.s.memory_read(target.memory)?;
        ensure!(found[..len] == bytes[..], "the write is damaged");
    }
    rig.finish()
}

/// A rig whose messages and accesses keep this order.
fn ordered<'a>(cx: &Cx<'a>, order: MsgOrder) -> Step<Rig<'a>> {
    let spec = Spec::rma().order(order);
    Rig::open(cx, &spec)
}

fn write_then_send(cx: &Cx<'_>) -> Outcome {
    let rig = ordered(cx, MsgOrder::SAW)?;
    let target = rig.expose(B, &vec![0; 100_000], OPEN)?;
    for (round, len) in [10, 3000, 100_000, 1].into_iter().enumerate() {
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

fn write_then_write(cx: &Cx<'_>) -> Outcome {
    let rig = ordered(cx, MsgOrder::RMA_WAW)?;
    let target = rig.expose(B, &vec![0; 60_000], OPEN)?;
    let mut last = Vec::new();
    let mut open = Vec::new();
    for round in 0..40 {
        let len = if round % 4 == 0 { 60_000 } else { 500 };
        last = overlaid(
            &pattern(60_000, round - round % 4 + 1),
            0,
            &pattern(500, round + 100),
        );
        open.push(rig.post(A, Post::write(&last[..len], target.at(0, len)))?);
    }
    rig.all_done(A, open)?;
    rig.holds(&target, &last)?;
    rig.close()
}

fn write_then_read(cx: &Cx<'_>) -> Outcome {
    let rig = ordered(cx, MsgOrder::RMA_RAW)?;
    let target = rig.expose(B, &vec![0; 50_000], OPEN)?;
    for (round, len) in [8, 2000, 50_000, 3].into_iter().enumerate() {
        let bytes = pattern(len, round + 7);
        let write = rig.post(A, Post::write(&bytes[..], target.at(0, len)))?;
        let read = rig.post(A, Post::read(target.at(0, len)))?;
        rig.done(A, write)?;
        let got = rig.done(A, read)?;
        ensure!(got.bufs.concat() == bytes, "the read came before the write");
    }
    rig.close()
}

fn more(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    let target = rig.expose(B, &[0; 1000], OPEN)?;
    let content = pattern(1000, 3);
    let mut open = Vec::new();
    for i in 0..10 {
        let flags = if i < 9 { Flags::MORE } else { Flags::empty() };
        let part = &content[i * 100..(i + 1) * 100];
        let write = Post::write(part, target.at(i * 100, 100)).flags(flags);
        open.push(rig.post(A, write)?);
    }
    rig.all_done(A, open)?;
    rig.holds(&target, &content)?;
    rig.finish()
}

fn first_contact(cx: &Cx<'_>) -> Outcome {
    for reads in [false, true] {
        for len in [5, 50_000] {
            let rig = Rig::open(cx, &Spec::rma())?;
            let bytes = pattern(len, 1);
            let target = rig.expose(B, &bytes, OPEN)?;
            let place = target.at(0, len);
            let post = match reads {
                true => Post::read(place),
                false => Post::write(pattern(len, 2), place),
            };
            let done = rig.complete(A, post)?;
            match reads {
                true => ensure!(done.bufs.concat() == bytes, "the read is damaged"),
                false => rig.holds(&target, &pattern(len, 2))?,
            }
            rig.close()?;
        }
    }
    Ok(())
}

fn own_memory(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    let name = rig.sides[A].name.clone();
    let me = rig.insert(A, name.as_ref())?;
    for len in [9, 70_000] {
        let target = rig.expose(A, &vec![0; len], OPEN)?;
        let bytes = pattern(len, 4);
        let write = Post::write(&bytes[..], target.at(0, len)).with(me);
        rig.complete(A, write)?;
        rig.holds(&target, &bytes)?;
        let done = rig.complete(A, Post::read(target.at(0, len)).with(me))?;
        ensure!(done.bufs.concat() == bytes, "read otherwise than written");
    }
    rig.finish()
}

fn two_domains(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma().two_domains(true))?;
    for len in [1, 1000, 200_000] {
        let target = rig.expose(B, &vec![0; len], OPEN)?;
        both_ways(&rig, &target, 0, &pattern(len, 1))?;
    }
    rig.finish()
}

fn before_enable(cx: &Cx<'_>) -> Outcome {
    let info = offer(cx, &Spec::rma())?;
    let s = cx.s;
    let fabric = s.fabric(&info)?;
    let domain = s.domain(fabric, &info)?;
    let side = prepare(s, &Spec::rma(), domain, &info)?;
    let place = Remote {
        address: 0,
        len: 8,
        key: 1,
    };
    let reasons = [Errno::EOPBADSTATE, Errno::ENOCQ, Errno::ENOTCONN];
    for (token, mut post) in [(1, Post::read(place)), (2, Post::write([0; 8], place))] {
        post.token = token;
        post.addr = FiAddr(0);
        let what = "a read or write before fi_enable";
        refused(s.post(side.ep, &post), &reasons, what)?;
    }
    Ok(())
}

fn not_asked(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    rig.exchange(A, B, b"first")?;
    if rig.info.caps.contains(Flags::RMA) {
        return Err(Stop::not_offered("FI_RMA comes unasked"));
    }
    let place = Remote {
        address: 0,
        len: 8,
        key: 1,
    };
    let reasons = [
        Errno::EOPNOTSUPP,
        Errno::ENOSYS,
        Errno::EINVAL,
        Errno::EACCES,
        Errno::EPERM,
    ];
    for post in [Post::read(place), Post::write([0; 8], place)] {
        refused(
            rig.try_post(A, post),
            &reasons,
            "a read or write without FI_RMA",
        )?;
    }
    rig.exchange(A, B, b"after")?;
    Ok(())
}
