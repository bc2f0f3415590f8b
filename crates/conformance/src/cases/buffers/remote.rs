//! Injected writes and atomics.

use ripstop_types::{AtomicKind, AtomicOp, Datatype, Errno, Flags};

use super::{What, apart, cut, drain, fill, lands, short_lengths};
use crate::case::{Cx, Outcome, Step, cases};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, Target, pattern};
use crate::subject::{Inject, Post, Result, Token};

cases! {
    pub(super) const CASES;
    fi_rma {
        both inject_gives_back:
            "injected writes of every length arrive as they were when the call returned";
        both inject_default_gives_back:
            "with FI_INJECT as default flag a write arrives as it was when the call returned";
        rdm inject_first_gives_back:
            "writes that are injected before there is a connection arrive as they were";
        both inject_behind_gives_back:
            "writes that are injected behind what a full connection holds up arrive as they were",
                within(20);
    }
    fi_atomic {
        both inject_gives_back:
            "with FI_INJECT the operands and comparisons of an atomic are those of the call"
                = |cx| atomics(cx, false);
        both inject_default_gives_back:
            "with FI_INJECT as default flag the operands of an atomic are those of the call"
                = |cx| atomics(cx, true);
        rdm inject_first_gives_back:
            "atomics that are injected before there is a connection are done as they were posted"
                = first_atomic;
        both inject_behind_gives_back:
            "atomics that are injected behind what a full connection holds up are done as posted"
                = atomics_behind, within(20);
    }
}

pub(super) const OPEN: Flags = Flags::REMOTE_READ.union(Flags::REMOTE_WRITE);

/// The calls that inject a write.
#[derive(Clone, Copy)]
enum Form {
    /// `fi_inject_write`.
    Call,
    /// `fi_inject_writedata`.
    CallData,
    /// `fi_writemsg` with `FI_INJECT`.
    Flag,
    /// As before, in pieces on both sides.
    FlagPieces,
}

const FORMS: [Form; 4] = [Form::Call, Form::CallData, Form::Flag, Form::FlagPieces];

/// Injects a write to a place once. The completion to come, if there will be one.
fn put(
    rig: &Rig<'_>,
    form: Form,
    bytes: &[u8],
    target: &Target,
    at: usize,
) -> Result<Option<Token>> {
    let to = target.at(at, bytes.len());
    let call = |data| {
        let inject = Inject {
            bytes,
            tag: None,
            data,
            addr: rig.sides[A].peer,
        };
        let ep = rig.sides[A].ep;
        rig.s.inject_write(ep, inject, to).map(|()| None)
    };
    let mut post = Post::write(bytes, to).flags(Flags::INJECT);
    match form {
        Form::Call => return call(None),
        Form::CallData => return call(announces(rig, form).then_some(9)),
        Form::Flag => {}
        Form::FlagPieces => {
            post.bufs = cut(bytes, rig.info.tx.iov_limit.clamp(1, 4));
            if rig.info.tx.rma_iov_limit > 1 {
                let half = bytes.len() / 3;
                let places = [(at, half), (at + half, bytes.len() - half)];
                post.remote = places.map(|(at, len)| target.at(at, len)).into();
            }
        }
    }
    rig.try_post(A, post).map(Some)
}

/// Whether B gets a completion of it.
fn announces(rig: &Rig<'_>, form: Form) -> bool {
    matches!(form, Form::CallData) && rig.info.domain.cq_data_size > 0
}

/// Injects, and makes progress while the queue is full.
fn put_soon(
    rig: &Rig<'_>,
    form: Form,
    bytes: &[u8],
    target: &Target,
    at: usize,
) -> Step<Option<Token>> {
    rig.retry("a full queue takes another inject", || {
        put(rig, form, bytes, target, at)
    })
}

fn inject_gives_back(cx: &Cx<'_>) -> Outcome {
    for spec in [Spec::rma(), apart(Spec::rma())] {
        let rig = Rig::open(cx, &spec)?;
        rig.exchange(A, B, b"first")?;
        let mut lengths = short_lengths(&rig.info);
        lengths.retain(|len| *len > 0);
        for (seed, len) in (1..).zip(lengths) {
            let target = rig.expose(B, &vec![0; len * FORMS.len()], OPEN)?;
            let mut sent = Vec::new();
            let mut all = Vec::new();
            for (turn, form) in FORMS.into_iter().enumerate() {
                let bytes = pattern(len, seed + turn);
                sent.extend(put_soon(&rig, form, &bytes, &target, all.len())?);
                all.extend(bytes);
            }
            lands(&rig, &target, &all)?;
            rig.all_done(A, sent)?;
            if announces(&rig, Form::CallData) {
                rig.announced(B)?;
            }
            rig.revoke(&target)?;
        }
        rig.quiet()?;
        rig.close()?;
    }
    Ok(())
}

fn inject_default_gives_back(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(
        cx,
        &Spec {
            tx_op_flags: Flags::INJECT,
            ..apart(Spec::rma())
        },
    )?;
    rig.exchange(A, B, b"first")?;
    let ep = rig.sides[A].ep;
    for (seed, len) in (1..).zip(short_lengths(&rig.info)) {
        let bytes = pattern(len.max(1), seed);
        let target = rig.expose(B, &vec![0; bytes.len()], OPEN)?;
        let write = rig.post(A, Post::write(&bytes[..], target.at(0, bytes.len())))?;
        rig.s.overwrite(ep, write)?;
        rig.done(A, write)?;
        lands(&rig, &target, &bytes)?;
        rig.revoke(&target)?;
    }
    rig.finish()
}

fn inject_first_gives_back(cx: &Cx<'_>) -> Outcome {
    for form in FORMS {
        let rig = Rig::open(cx, &apart(Spec::rma()))?;
        let bytes = pattern(rig.info.tx.inject_size, 3);
        let target = rig.expose(B, &vec![0; bytes.len()], OPEN)?;
        let sent = put_soon(&rig, form, &bytes, &target, 0)?;
        lands(&rig, &target, &bytes)?;
        if let Some(sent) = sent {
            rig.done(A, sent)?;
        }
        if announces(&rig, form) {
            rig.announced(B)?;
        }
        rig.quiet()?;
        rig.close()?;
    }
    Ok(())
}

fn inject_behind_gives_back(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &apart(Spec::rma()))?;
    rig.exchange(A, B, b"first")?;
    let len = rig.info.tx.inject_size;
    for form in FORMS {
        let target = rig.expose(B, &vec![0; len * 20], OPEN)?;
        let sends = fill(&rig, What::Msg)?;
        let (mut sent, mut taken, mut all) = (Vec::new(), 0, vec![0; len * 20]);
        for (seed, place) in all.chunks_exact_mut(len).enumerate() {
            let bytes = pattern(len, seed);
            match put(&rig, form, &bytes, &target, seed * len) {
                Ok(token) => sent.extend(token),
                Err(e) if e.is(Errno::EAGAIN) => break,
                Err(e) => return Err(e.into()),
            }
            place.copy_from_slice(&bytes);
            taken += 1;
        }
        drain(&rig, What::Msg, &sends)?;
        lands(&rig, &target, &all)?;
        rig.all_done(A, sent)?;
        if announces(&rig, form) {
            for _ in 0..taken {
                rig.announced(B)?;
            }
        }
        rig.revoke(&target)?;
    }
    rig.finish()
}

pub(super) fn words(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_ne_bytes).collect()
}

pub(super) const KINDS: [AtomicKind; 3] =
    [AtomicKind::Plain, AtomicKind::Fetch, AtomicKind::Compare];

/// An atomic on words of a target that hold `old`, its results, and what they hold after it: a sum,
/// or an exchange of every other word.
pub(super) struct Work {
    pub(super) post: Post,
    pub(super) fetched: Vec<u8>,
    pub(super) after: Vec<u64>,
}

/// An atomic with one operand, or two where `pieces` allows, on all words of a target.
pub(super) fn work(kind: AtomicKind, old: &[u64], target: &Target, pieces: usize) -> Work {
    let turn = |at: usize| at.is_multiple_of(2);
    let operand: Vec<_> = (0..).map(|n| 1000 + n * 7).take(old.len()).collect();
    let compare = old.iter().enumerate();
    let compare = words(compare.map(|(at, old)| if turn(at) { *old } else { !*old }));
    let op = match kind {
        AtomicKind::Compare => AtomicOp::Cswap,
        _ => AtomicOp::Sum,
    };
    let after = old.iter().zip(&operand).enumerate();
    let after = after.map(|(at, (old, new))| match (kind, turn(at)) {
        (AtomicKind::Compare, true) => *new,
        (AtomicKind::Compare, false) => *old,
        _ => old.wrapping_add(*new),
    });
    let after = after.collect();
    let operand = words(operand);
    let mut post = Post::atomic(
        kind,
        (Datatype::Uint64, op),
        [&operand, &compare],
        target.at(0, old.len() * 8),
    );
    if pieces > 1 && old.len() > 1 {
        // Cut between words.
        let halves = |bytes: &[u8]| {
            let (front, back) = bytes.split_at(old.len() / 2 * 8);
            vec![front.to_vec(), back.to_vec()]
        };
        post.bufs = halves(&operand);
        if let (AtomicKind::Compare, Some(atomic)) = (kind, &mut post.atomic) {
            atomic.compare = halves(&compare);
        }
    }
    let fetched = match kind {
        AtomicKind::Plain => Vec::new(),
        _ => words(old.iter().copied()),
    };
    Work {
        post,
        fetched,
        after,
    }
}

/// The result of an atomic is this.
#[track_caller]
fn fetches(rig: &Rig<'_>, token: Token, sources: usize, fetched: &[u8]) -> Outcome {
    let done = rig.done(A, token)?;
    let found = done.bufs.get(sources..).unwrap_or_default().concat();
    ensure!(found == fetched, "{found:?} fetched, not {fetched:?}");
    Ok(())
}

/// What atomics of these kinds may have, in words.
pub(super) fn counts(rig: &Rig<'_>, kind: AtomicKind) -> Step<Vec<usize>> {
    let op = match kind {
        AtomicKind::Compare => AtomicOp::Cswap,
        _ => AtomicOp::Sum,
    };
    let what = (Datatype::Uint64.number(), op.number());
    let most = rig.s.query_atomic(rig.sides[A].domain, kind, what)?;
    let most = most.min(rig.info.tx.inject_size / 8);
    let mut counts: Vec<_> = [1, 2, 3, 6, 7, 15, 16, 31, 32, 33, 255, 256, 511, 512].into();
    counts.extend([most.saturating_sub(1), most]);
    counts.retain(|count| (1..=most).contains(count));
    counts.sort_unstable();
    counts.dedup();
    Ok(counts)
}

fn atomics(cx: &Cx<'_>, by_default: bool) -> Outcome {
    let spec = Spec {
        tx_op_flags: match by_default {
            true => Flags::INJECT,
            false => Flags::empty(),
        },
        ..apart(Spec::rma().caps(Flags::ATOMIC))
    };
    let rig = Rig::open(cx, &spec)?;
    rig.exchange(A, B, b"first")?;
    let ep = rig.sides[A].ep;
    for kind in KINDS {
        for count in counts(&rig, kind)? {
            let mut old: Vec<_> = (0..).map(|n| 5 + n * 3).take(count).collect();
            let target = rig.expose(B, &words(old.iter().copied()), OPEN)?;
            for pieces in [1, rig.info.tx.iov_limit] {
                let Work {
                    mut post,
                    fetched,
                    after,
                } = work(kind, &old, &target, pieces);
                if !by_default {
                    post = post.flags(Flags::INJECT);
                }
                let sources = post.sources();
                let token = rig.post(A, post)?;
                if by_default {
                    rig.s.overwrite(ep, token)?;
                }
                fetches(&rig, token, sources, &fetched)?;
                lands(&rig, &target, &words(after.iter().copied()))?;
                old = after;
            }
            if kind == AtomicKind::Plain {
                let operand = words((1..).take(count));
                let inject = Inject {
                    bytes: &operand,
                    tag: None,
                    data: None,
                    addr: rig.sides[A].peer,
                };
                let sum = (Datatype::Uint64.number(), AtomicOp::Sum.number());
                let place = target.at(0, count * 8);
                rig.retry("a full queue takes another atomic", || {
                    rig.s.inject_atomic(ep, inject, sum, place)
                })?;
                let after = old.iter().zip(1..).map(|(old, more)| old + more);
                lands(&rig, &target, &words(after))?;
            }
            rig.revoke(&target)?;
        }
    }
    rig.finish()
}

fn first_atomic(cx: &Cx<'_>) -> Outcome {
    for kind in KINDS {
        let rig = Rig::open(cx, &apart(Spec::rma().caps(Flags::ATOMIC)))?;
        let old: Vec<_> = (0..8).collect();
        let target = rig.expose(B, &words(old.iter().copied()), OPEN)?;
        let work = work(kind, &old, &target, 1);
        let sources = work.post.sources();
        let token = rig.post(A, work.post.flags(Flags::INJECT))?;
        fetches(&rig, token, sources, &work.fetched)?;
        lands(&rig, &target, &words(work.after))?;
        rig.quiet()?;
        rig.close()?;
    }
    Ok(())
}

fn atomics_behind(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &apart(Spec::rma().caps(Flags::ATOMIC)))?;
    rig.exchange(A, B, b"first")?;
    for kind in KINDS {
        let mut open = Vec::new();
        let targets: Vec<_> = (0..16_u64)
            .map(|n| {
                let old: Vec<_> = (n..n + 8).collect();
                let target = rig.expose(B, &words(old.iter().copied()), OPEN)?;
                Ok((old, target))
            })
            .collect::<Step<_>>()?;
        let sends = fill(&rig, What::Msg)?;
        for (old, target) in &targets {
            let work = work(kind, old, target, rig.info.tx.iov_limit);
            let sources = work.post.sources();
            match rig.try_post(A, work.post.flags(Flags::INJECT)) {
                Ok(token) => open.push((token, sources, work.fetched, work.after)),
                Err(e) if e.is(Errno::EAGAIN) => break,
                Err(e) => return Err(e.into()),
            }
        }
        drain(&rig, What::Msg, &sends)?;
        for ((token, sources, fetched, after), (_, target)) in open.into_iter().zip(&targets) {
            fetches(&rig, token, sources, &fetched)?;
            lands(&rig, target, &words(after))?;
        }
        for (_, target) in &targets {
            rig.revoke(target)?;
        }
    }
    rig.finish()
}
