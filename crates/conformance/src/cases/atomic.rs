//! `fi_atomic`(3).

mod denied;
pub(super) mod model;

use ripstop_types::{AtomicKind, AtomicOp, Datatype, Errno, Flags, Protocol};

use super::c_edge;
use crate::case::{Case, Cx, Outcome, Step, Stop, cases, offered, refused};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, Target};
use crate::subject::{Completion, EpOption, Fid, Inject, Post, Remote};
use model::{COMPARE, KINDS, OPERAND, TARGET, elements, pairs, results, significant};

pub(super) fn cases() -> Vec<Case> {
    [OWN, denied::CASES].concat()
}

/// What peers may do to most memory here.
const OPEN: Flags = Flags::REMOTE_READ.union(Flags::REMOTE_WRITE);

/// The usual datatype and operation.
const ADD: (Datatype, AtomicOp) = (Datatype::Uint64, AtomicOp::Sum);

cases! {
    const OWN;
    fi_atomic {
        both plain:
            "each operation that is offered leaves what the page says, on each datatype",
                within(30);
        both fetch: "fetching operations also give what was there before", within(30);
        both compare:
            "compare operations change what compares, and give what was there before", within(30);
        both query:
            "fi_query_atomic offers nothing that the page excludes, and at least sums of integers";
        both valid: "fi_atomicvalid and its like say what fi_query_atomic says";
        both count: "as many elements as the query says are changed at once, one more is refused";
        both pieces:
            "operands, comparisons, results and the peer's memory come in pieces cut differently";
        both inject: "an injected atomic arrives without a completion, its operands free at once";
    }
    fi_endpoint {
        both option_atomic_sizes:
            "FI_OPT_MAX_ATOMIC_SIZE and FI_OPT_INJECT_ATOMIC_SIZE bound atomics, up to what is offered";
    }
    fi_atomic {
        both together: "of many additions by two sides at the same time none is lost";
        both completion_flags:
            "completions say FI_ATOMIC with FI_WRITE, or with FI_READ where something is fetched";
        both data: "remote CQ data of an atomic is announced at the target when it is done";
    }
    fi_cntr {
        both counts_atomics:
            "plain atomics count as writes, those that fetch as reads, on both sides";
    }
    fi_atomic {
        both among_others: "messages, writes, reads and atomics share an endpoint";
    }
}

/// Messages, reads, writes and atomics.
fn spec() -> Spec {
    Spec::rma().caps(Flags::ATOMIC)
}

/// Carries out an atomic of one place from A.
#[track_caller]
fn carry_out(rig: &Rig<'_>, post: Post) -> Step<Completion> {
    let token = rig.post(A, post)?;
    rig.done(A, token)
}

/// Every pair of a kind that is offered, on memory of five elements.
fn table(cx: &Cx<'_>, kind: AtomicKind) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    let domain = rig.sides[A].domain;
    let target = rig.expose(B, &[0; 5 * 32], OPEN)?;
    let mut tried = 0;
    for (datatype, op) in pairs() {
        let what = (datatype.number(), op.number());
        match rig.s.query_atomic(domain, kind, what) {
            Ok(_) => tried += 1,
            Err(e) if e.is(Errno::EOPNOTSUPP) || e.is(Errno::EINVAL) => continue,
            Err(e) => return Err(e.into()),
        }
        try_one(&rig, kind, (datatype, op), &target)?;
    }
    ensure!(tried > 0, "the query offers nothing");
    rig.finish()
}

fn try_one(
    rig: &Rig<'_>,
    kind: AtomicKind,
    (datatype, op): (Datatype, AtomicOp),
    target: &Target,
) -> Outcome {
    let [before, operand, compare] = [TARGET, OPERAND, COMPARE].map(|n| elements(datatype, &n));
    let len = before.len();
    rig.s.memory_write(target.memory, 0, &before)?;
    let place = target.at(0, len);
    let post = Post::atomic(kind, (datatype, op), [&operand, &compare], place);
    let post = post.flags(Flags::DELIVERY_COMPLETE);
    let done = carry_out(rig, post)?;
    if kind != AtomicKind::Plain {
        let fetched = done.bufs.last().map(|b| significant(datatype, b));
        ensure!(
            fetched == Some(significant(datatype, &before)),
            "{op:?} on {datatype:?} fetched {fetched:?}"
        );
    }
    let found = rig.s.memory_read(target.memory)?;
    let wanted = elements(datatype, &results(op));
    ensure!(
        significant(datatype, &found[..len]) == significant(datatype, &wanted),
        "{op:?} on {datatype:?} left {:?}, not {wanted:?}",
        &found[..len]
    );
    Ok(())
}

fn plain(cx: &Cx<'_>) -> Outcome {
    table(cx, AtomicKind::Plain)
}

fn fetch(cx: &Cx<'_>) -> Outcome {
    table(cx, AtomicKind::Fetch)
}

fn compare(cx: &Cx<'_>) -> Outcome {
    table(cx, AtomicKind::Compare)
}

/// Whether fi_atomic(3) has this pair among the calls of a kind.
fn exists(kind: AtomicKind, datatype: Datatype, op: AtomicOp) -> bool {
    let of_kind = match kind {
        AtomicKind::Compare => op.takes_comparison(),
        AtomicKind::Fetch => !op.takes_comparison(),
        AtomicKind::Plain => !op.takes_comparison() && op != AtomicOp::AtomicRead,
    };
    of_kind && op.acts_on(datatype)
}

fn query(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    let domain = rig.sides[A].domain;
    let ask = |kind, datatype: Datatype, op: AtomicOp| {
        let what = (datatype.number(), op.number());
        rig.s.query_atomic(domain, kind, what)
    };
    for kind in KINDS {
        for (datatype, op) in pairs() {
            let said = ask(kind, datatype, op);
            let name = format!("{kind:?} {op:?} on {datatype:?}");
            if !exists(kind, datatype, op) {
                refused(said, &[Errno::EOPNOTSUPP, Errno::EINVAL], &name)?;
                continue;
            }
            match said {
                Ok(0) => return Err(Stop::fail(format!("{name}: at most 0 elements"))),
                Ok(_) => {}
                Err(e) if e.is(Errno::EOPNOTSUPP) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    for datatype in [
        Datatype::Int32,
        Datatype::Uint32,
        Datatype::Int64,
        Datatype::Uint64,
    ] {
        ask(AtomicKind::Plain, datatype, AtomicOp::Sum)?;
        ask(AtomicKind::Fetch, datatype, AtomicOp::Sum)?;
        ask(AtomicKind::Compare, datatype, AtomicOp::Cswap)?;
    }
    rig.close()
}

fn valid(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let rig = Rig::open(cx, &spec())?;
    let (domain, ep) = (rig.sides[A].domain, rig.sides[A].ep);
    let no = [Errno::EOPNOTSUPP, Errno::EINVAL];
    for kind in KINDS {
        for (datatype, op) in pairs() {
            let what = (datatype.number(), op.number());
            let said = edge.atomic_valid(ep, domain, kind, what);
            match rig.s.query_atomic(domain, kind, what) {
                Ok(count) => {
                    let (valid, size) = said?;
                    ensure!(
                        valid == count && size == datatype.size(),
                        "{kind:?} {op:?} on {datatype:?}: {valid} elements of {size} bytes, not {count}"
                    );
                }
                Err(_) => refused(said, &no, &format!("{kind:?} {op:?} on {datatype:?}"))?,
            }
        }
        for what in [(20, 2), (7, 20), (u32::MAX, 2), (7, u32::MAX)] {
            refused(
                edge.atomic_valid(ep, domain, kind, what),
                &no,
                &format!("datatype {}, operation {}", what.0, what.1),
            )?;
        }
    }
    rig.close()
}

fn word(n: u64) -> [u8; 8] {
    n.to_ne_bytes()
}

fn words(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    numbers.into_iter().flat_map(word).collect()
}

fn add_number() -> (u32, u32) {
    (ADD.0.number(), ADD.1.number())
}

fn count(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    let domain = rig.sides[A].domain;
    let most = rig
        .s
        .query_atomic(domain, AtomicKind::Fetch, add_number())?;
    let most = most.min(1 << 20);
    let before = words((0..=most as u64).map(|n| n * 3));
    let target = rig.expose(B, &before, OPEN)?;
    let operand = words((0..=most as u64).map(|n| n ^ 0x55));
    let some = |n: usize| {
        let place = target.at(0, 8 * n);
        Post::atomic(AtomicKind::Fetch, ADD, [&operand[..8 * n], &[]], place)
    };
    let done = carry_out(&rig, some(most).flags(Flags::DELIVERY_COMPLETE))?;
    ensure!(
        done.bufs
            .last()
            .is_some_and(|b| b[..] == before[..8 * most]),
        "{most} elements were fetched otherwise"
    );
    let sums = (0..=most as u64).map(|n| {
        if n == most as u64 {
            n * 3
        } else {
            n * 3 + (n ^ 0x55)
        }
    });
    rig.holds(&target, &words(sums))?;
    if most < 1 << 20 {
        let no = [Errno::EMSGSIZE, Errno::EINVAL, Errno::E2BIG];
        refused(rig.try_post(A, some(most + 1)), &no, "one element more")?;
    }
    rig.finish()
}

/// Cuts elements of 8 bytes into pieces.
fn cut(bytes: &[u8], at: &[usize]) -> Vec<Vec<u8>> {
    let (mut rest, mut cut) = (bytes, Vec::new());
    for len in at {
        let (piece, after) = rest.split_at(8 * len);
        cut.push(piece.to_vec());
        rest = after;
    }
    cut.push(rest.to_vec());
    cut
}

fn pieces(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    if rig.info.tx.iov_limit < 2 || rig.info.tx.rma_iov_limit < 2 {
        return Err(Stop::not_offered("one piece at most"));
    }
    let (one, two) = (
        rig.expose(B, &words(10..20), OPEN)?,
        rig.expose(B, &words(20..30), OPEN)?,
    );
    let old: Vec<u64> = (12..15).chain(25..30).collect();
    let places = vec![one.at(16, 24), two.at(40, 40)];
    let operand = words(old.iter().map(|n| n * 100));
    let swapped = |i: usize| !i.is_multiple_of(3);
    let compare = old.iter().enumerate();
    let compare = words(compare.map(|(i, n)| if swapped(i) { *n } else { n + 1 }));
    let what = (Datatype::Uint64, AtomicOp::Cswap);
    let mut post = Post::atomic(AtomicKind::Compare, what, [&[], &[]], one.at(0, 0))
        .iov(cut(&operand, &[1]))
        .remote(places.clone());
    if let Some(atomic) = &mut post.atomic {
        atomic.compare = cut(&compare, &[6]);
        atomic.result = cut(&[0; 64], &[4]);
    }
    let done = carry_out(&rig, post)?;
    ensure!(
        done.bufs[4..].concat() == words(old.iter().copied()),
        "fetched {:?}",
        &done.bufs[4..]
    );
    let new = |n: u64| match old.iter().position(|o| *o == n) {
        Some(i) if swapped(i) => n * 100,
        _ => n,
    };
    rig.holds(&one, &words((10..20).map(new)))?;
    rig.holds(&two, &words((20..30).map(new)))?;
    // The same in the calls for one place.
    let mut post = Post::atomic(AtomicKind::Fetch, ADD, [&[], &[]], one.at(0, 80))
        .iov(cut(&words(1..11), &[3]));
    if let Some(atomic) = &mut post.atomic {
        atomic.result = cut(&[0; 80], &[7]);
    }
    let done = carry_out(&rig, post)?;
    ensure!(
        done.bufs[2..].concat() == words((10..20).map(new)),
        "fetched {:?}",
        &done.bufs[2..]
    );
    let sums = (10..20).zip(1..11).map(|(n, add)| new(n) + add);
    rig.holds(&one, &words(sums))?;
    rig.finish()
}

/// Adds to a word by `fi_inject_atomic`.
fn inject_add(rig: &Rig<'_>, ep: Fid, add: u64, to: Remote) -> Outcome {
    let inject = Inject {
        bytes: &word(add),
        tag: None,
        data: None,
        addr: rig.sides[A].peer,
    };
    rig.retry("a full queue takes another atomic", || {
        rig.s.inject_atomic(ep, inject, add_number(), to)
    })
}

fn inject(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    rig.exchange(A, B, b"first")?;
    let target = rig.expose(B, &words([7, 8]), OPEN)?;
    for n in 1..=100 {
        inject_add(&rig, rig.sides[A].ep, n, target.at(8, 8))?;
    }
    rig.holds(&target, &words([7, 8 + 5050]))?;
    rig.finish()
}

fn option_atomic_sizes(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    let (ep, no) = (rig.sides[A].ep, [Errno::ENOPROTOOPT]);
    rig.exchange(A, B, b"first")?;
    let target = rig.expose(B, &words([1, 2, 3]), OPEN)?;
    for (option, limit, bound) in [
        (EpOption::InjectAtomicSize, rig.info.tx.inject_size, 8),
        (EpOption::MaxAtomicSize, rig.info.ep.max_msg_size, 16),
    ] {
        let most = offered(rig.s.option(ep, option), &no, "the size of atomics")?;
        ensure!(
            (1..=limit).contains(&most),
            "{option:?} is {most}, the info says {limit}"
        );
        if let Some(beyond) = limit.checked_add(1) {
            let set = rig.s.set_option(ep, option, beyond);
            refused(set, &[Errno::EINVAL], "more than is offered")?;
        }
        rig.s.set_option(ep, option, bound)?;
        let read = rig.s.option(ep, option)?;
        ensure!(read == bound, "{option:?} is {read} after {bound} was set");
    }
    let some = |n: usize| {
        let (operand, place) = (words((0..n).map(|_| 1)), target.at(0, 8 * n));
        Post::atomic(AtomicKind::Fetch, ADD, [&operand, &[]], place)
    };
    let too_long = [Errno::EMSGSIZE];
    refused(rig.try_post(A, some(3)), &too_long, "an atomic of 24 bytes")?;
    let injected = some(2).flags(Flags::INJECT);
    refused(rig.try_post(A, injected), &too_long, "an inject of 16")?;
    let inject = Inject {
        bytes: &words([1, 1]),
        tag: None,
        data: None,
        addr: rig.sides[A].peer,
    };
    let put = rig
        .s
        .inject_atomic(ep, inject, add_number(), target.at(0, 16));
    refused(put, &too_long, "fi_inject_atomic of 16 bytes")?;
    carry_out(&rig, some(2))?;
    inject_add(&rig, ep, 1, target.at(0, 8))?;
    rig.holds(&target, &words([3, 3, 3]))?;
    rig.finish()
}

fn together(cx: &Cx<'_>) -> Outcome {
    const EACH: usize = 500;
    let rig = Rig::open(cx, &spec())?;
    let target = rig.expose(B, &words([0, 0, 0]), OPEN)?;
    // Each side reaches the memory of B: B through its own address where it can name itself.
    let own = match rig.sides[B].name.clone() {
        Some(name) if cx.is_rdm() => Some(rig.insert(B, Some(&name))?),
        _ => None,
    };
    let add = |n: u64| {
        let place = target.at(8, 8);
        Post::atomic(AtomicKind::Fetch, ADD, [&word(n), &[]], place)
    };
    let (mut tokens, mut fetched) = (Vec::new(), Vec::new());
    for _ in 0..EACH {
        tokens.push((A, rig.post(A, add(1))?));
        if let Some(own) = own {
            tokens.push((B, rig.post(B, add(1).with(own))?));
        }
    }
    let sum = tokens.len() as u64;
    for (side, token) in tokens {
        let done = rig.done(side, token)?;
        let bytes = done.bufs.last().and_then(|b| b[..].try_into().ok());
        fetched.extend(bytes.map(u64::from_ne_bytes));
    }
    fetched.sort_unstable();
    ensure!(
        fetched == (0..sum).collect::<Vec<_>>(),
        "some value was fetched twice"
    );
    rig.holds(&target, &words([0, sum, 0]))?;
    rig.finish()
}

fn completion_flags(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    let target = rig.expose(B, &words([1, 2]), OPEN)?;
    for (kind, op, wanted) in [
        (AtomicKind::Plain, AtomicOp::Sum, Flags::WRITE),
        (AtomicKind::Fetch, AtomicOp::Sum, Flags::READ),
        (AtomicKind::Fetch, AtomicOp::AtomicRead, Flags::READ),
        (AtomicKind::Compare, AtomicOp::Cswap, Flags::READ),
    ] {
        let what = (Datatype::Uint64, op);
        let operands: [&[u8]; 2] = [&word(1), &word(1)];
        let post = Post::atomic(kind, what, operands, target.at(0, 8));
        let flags = carry_out(&rig, post)?.flags;
        let direction = flags & (Flags::READ | Flags::WRITE);
        ensure!(
            flags.contains(Flags::ATOMIC) && direction == wanted,
            "{kind:?} {op:?}: flags are {flags:?}"
        );
    }
    rig.finish()
}

fn data(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    if rig.info.ep.protocol == Protocol::Rxm {
        return Err(Stop::not_offered("packets with atomics have no data"));
    }
    let target = rig.expose(B, &words([1, 2]), OPEN)?;
    let post = Post::atomic(AtomicKind::Plain, ADD, [&word(40), &[]], target.at(8, 8));
    let token = rig.post(A, post.data(0xabcd))?;
    let told = rig.announced(B)?;
    ensure!(
        told.flags.contains(Flags::REMOTE_CQ_DATA) && told.data == 0xabcd,
        "flags {:?}, data {:#x}",
        told.flags,
        told.data
    );
    ensure!(
        rig.s.memory_read(target.memory)? == words([1, 42]),
        "it was announced before it was done"
    );
    rig.done(A, token)?;
    rig.finish()
}

fn counts_atomics(cx: &Cx<'_>) -> Outcome {
    let mut spec = spec().caps(Flags::RMA_EVENT);
    spec.rma_counters = true;
    let rig = Rig::open(cx, &spec)?;
    let target = rig.expose(B, &words([1, 2]), OPEN)?;
    let all: [&[u8]; 2] = [&word(1), &word(1)];
    let what = |op| (Datatype::Uint64, op);
    for _ in 0..3 {
        let post = Post::atomic(AtomicKind::Plain, ADD, all, target.at(0, 8));
        carry_out(&rig, post)?;
    }
    let post = Post::atomic(AtomicKind::Fetch, ADD, all, target.at(0, 8));
    carry_out(&rig, post)?;
    let swap = what(AtomicOp::Cswap);
    let post = Post::atomic(AtomicKind::Compare, swap, all, target.at(0, 8));
    carry_out(&rig, post)?;
    let counters = |side: usize| {
        let found = rig.sides[side].rma_cntrs;
        found.ok_or_else(|| Stop::fail("no counters"))
    };
    let (near, far) = (counters(A)?, counters(B)?);
    for (cntr, wanted, what) in [
        (near.writes, 3, "plain atomics at home"),
        (near.reads, 2, "fetching atomics at home"),
        (far.written_by_peers, 3, "plain atomics at the target"),
        (far.read_by_peers, 2, "fetching atomics at the target"),
    ] {
        rig.until(&format!("a count of {wanted} {what}"), || {
            Ok((rig.s.cntr_read(cntr)? == wanted).then_some(()))
        })?;
    }
    rig.close()
}

fn among_others(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    let target = rig.expose(B, &words([0, 0]), OPEN)?;
    let mut sum = 0;
    for n in 1..=50_u64 {
        let add = Post::atomic(AtomicKind::Plain, ADD, [&word(n), &[]], target.at(0, 8));
        let fetch = Post::atomic(AtomicKind::Fetch, ADD, [&word(n), &[]], target.at(0, 8));
        let recv = rig.post(B, Post::recv(100))?;
        let posted = [
            rig.post(A, add)?,
            rig.post(A, Post::write(word(n), target.at(8, 8)))?,
            rig.post(A, Post::send(vec![n as u8; 100]))?,
            rig.post(A, fetch)?,
            rig.post(A, Post::read(target.at(0, 16)))?,
        ];
        rig.all_done(A, posted)?;
        rig.arrives(recv, [n as u8; 100])?;
        sum += 2 * n;
        rig.holds(&target, &words([sum, n]))?;
    }
    rig.finish()
}
