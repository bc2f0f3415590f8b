//! Atomics that must not happen: nothing changes, the initiator hears of it, and the connection
//! lives on.

use ripstop_types::{AtomicKind, AtomicOp, Datatype, Errno, Flags};

use super::{ADD, OPEN, carry_out, inject_add, spec, word, words};
use crate::case::{Cx, Outcome, Step, cases, refused};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, Target};
use crate::subject::{Post, Remote};

cases! {
    pub(super) const CASES;
    fi_atomic {
        both misaligned: "an atomic on an address that is not aligned to the datatype is refused";
        both beyond: "not a byte outside a region is changed or fetched";
        both key_forged: "a key nobody gave out reaches nothing";
        both read_only: "memory registered for reads is not changed";
        both write_only: "memory registered for writes is not fetched";
        both revoked: "a closed registration is out of reach";
        both denied_inject: "an injected atomic that is denied changes nothing";
        both unknown: "datatypes and operations outside the table are refused by the call";
        both wrong_kind:
            "an operation of another kind of call, or that the datatype has not, is refused";
        both lengths: "operands, results and the peer's memory of different length are refused";
        both not_asked: "an endpoint opened without FI_ATOMIC refuses atomics";
    }
}

/// Two sides that have talked, and three words at B.
fn talking<'a>(cx: &Cx<'a>, access: Flags) -> Step<(Rig<'a>, Target)> {
    let rig = Rig::open(cx, &spec())?;
    rig.exchange(A, B, b"first")?;
    let target = rig.expose(B, &words([1, 2, 3]), access)?;
    Ok((rig, target))
}

/// One of each kind on a place.
fn each(place: Remote) -> [Post; 3] {
    let bytes = vec![1; place.len];
    let given: [&[u8]; 2] = [&bytes, &bytes];
    let swap = (Datatype::Uint64, AtomicOp::CswapNe);
    [
        Post::atomic(AtomicKind::Plain, ADD, given, place).flags(Flags::DELIVERY_COMPLETE),
        Post::atomic(AtomicKind::Fetch, ADD, given, place),
        Post::atomic(AtomicKind::Compare, swap, given, place),
    ]
}

/// The operation is denied, memory is as before, and both sides go on.
#[track_caller]
fn denied(rig: &Rig<'_>, post: Post, target: &Target) -> Outcome {
    let token = rig.post(A, post)?;
    rig.failed(A, token)?;
    rig.unchanged(target, &words([1, 2, 3]))?;
    lives(rig)
}

#[track_caller]
fn lives(rig: &Rig<'_>) -> Outcome {
    rig.exchange(A, B, b"there")?;
    rig.exchange(B, A, b"and back")?;
    let target = rig.expose(B, &word(5), OPEN)?;
    let post = Post::atomic(AtomicKind::Fetch, ADD, [&word(2), &[]], target.at(0, 8));
    let done = carry_out(rig, post)?;
    ensure!(
        done.bufs.last().is_some_and(|b| b[..] == word(5)),
        "fetched {:?}",
        done.bufs
    );
    rig.holds(&target, &word(7))?;
    rig.revoke(&target)
}

fn misaligned(cx: &Cx<'_>) -> Outcome {
    let (rig, target) = talking(cx, OPEN)?;
    for at in [1, 4, 7] {
        for post in each(target.at(at, 8)) {
            denied(&rig, post, &target)?;
        }
    }
    rig.close()
}

fn beyond(cx: &Cx<'_>) -> Outcome {
    let (rig, target) = talking(cx, OPEN)?;
    let before = Remote {
        address: target.base.wrapping_sub(8),
        ..target.at(0, 8)
    };
    for place in [
        target.at(24, 8),
        target.at(16, 16),
        target.at(0, 32),
        before,
    ] {
        for post in each(place) {
            denied(&rig, post, &target)?;
        }
    }
    rig.close()
}

fn key_forged(cx: &Cx<'_>) -> Outcome {
    let (rig, target) = talking(cx, OPEN)?;
    for key in [target.key ^ 1, u64::MAX] {
        let place = Remote {
            key,
            ..target.at(0, 8)
        };
        for post in each(place) {
            denied(&rig, post, &target)?;
        }
    }
    rig.close()
}

fn read_only(cx: &Cx<'_>) -> Outcome {
    let (rig, target) = talking(cx, Flags::REMOTE_READ)?;
    for post in each(target.at(8, 8)) {
        denied(&rig, post, &target)?;
    }
    let read = (Datatype::Uint64, AtomicOp::AtomicRead);
    let post = Post::atomic(AtomicKind::Fetch, read, [&[], &[]], target.at(8, 8));
    let done = carry_out(&rig, post)?;
    ensure!(done.bufs.concat() == word(2), "fetched {:?}", done.bufs);
    rig.close()
}

fn write_only(cx: &Cx<'_>) -> Outcome {
    let (rig, target) = talking(cx, Flags::REMOTE_WRITE)?;
    let [plain, fetch, compare] = each(target.at(8, 8));
    for post in [fetch, compare] {
        denied(&rig, post, &target)?;
    }
    carry_out(&rig, plain)?;
    let sum = 2 + u64::from_ne_bytes([1; 8]);
    rig.holds(&target, &words([1, sum, 3]))?;
    rig.close()
}

fn revoked(cx: &Cx<'_>) -> Outcome {
    let (rig, target) = talking(cx, OPEN)?;
    rig.revoke(&target)?;
    for post in each(target.at(8, 8)) {
        denied(&rig, post, &target)?;
    }
    rig.close()
}

fn denied_inject(cx: &Cx<'_>) -> Outcome {
    let (rig, target) = talking(cx, OPEN)?;
    inject_add(&rig, rig.sides[A].ep, 9, target.at(24, 8))?;
    rig.unchanged(&target, &words([1, 2, 3]))?;
    Ok(())
}

fn unknown(cx: &Cx<'_>) -> Outcome {
    let (rig, target) = talking(cx, OPEN)?;
    for (datatype, op) in [(20, 2), (7, 20), (u32::MAX, 2), (7, u32::MAX)] {
        for mut post in each(target.at(0, 8)) {
            if let Some(atomic) = &mut post.atomic {
                (atomic.datatype, atomic.op) = (datatype, op);
            }
            refused(
                rig.try_post(A, post),
                &[Errno::EOPNOTSUPP, Errno::EINVAL],
                &format!("datatype {datatype}, operation {op}"),
            )?;
        }
    }
    rig.unchanged(&target, &words([1, 2, 3]))?;
    lives(&rig)?;
    rig.close()
}

fn wrong_kind(cx: &Cx<'_>) -> Outcome {
    let (rig, target) = talking(cx, OPEN)?;
    let given: [&[u8]; 2] = [&word(1), &word(1)];
    for (kind, datatype, op) in [
        (AtomicKind::Plain, Datatype::Uint64, AtomicOp::Cswap),
        (AtomicKind::Fetch, Datatype::Uint64, AtomicOp::Mswap),
        (AtomicKind::Compare, Datatype::Uint64, AtomicOp::Sum),
        (AtomicKind::Plain, Datatype::Double, AtomicOp::Bxor),
        (AtomicKind::Fetch, Datatype::FloatComplex, AtomicOp::Max),
        (
            AtomicKind::Compare,
            Datatype::FloatComplex,
            AtomicOp::CswapLt,
        ),
    ] {
        let post = Post::atomic(kind, (datatype, op), given, target.at(0, 8));
        refused(
            rig.try_post(A, post),
            &[Errno::EOPNOTSUPP, Errno::EINVAL],
            &format!("{kind:?} {op:?} on {datatype:?}"),
        )?;
    }
    rig.unchanged(&target, &words([1, 2, 3]))?;
    lives(&rig)?;
    rig.close()
}

fn lengths(cx: &Cx<'_>) -> Outcome {
    let (rig, target) = talking(cx, OPEN)?;
    // The message forms, in which each vector has its own length.
    let message = |post: Post| post.flags(Flags::COMPLETION);
    let mut short = Post::atomic(AtomicKind::Fetch, ADD, [&word(1), &[]], target.at(0, 8));
    if let Some(atomic) = &mut short.atomic {
        atomic.result = vec![vec![0; 16]];
    }
    let few = Post::atomic(AtomicKind::Plain, ADD, [&word(1), &[]], target.at(0, 16));
    let many = Post::atomic(
        AtomicKind::Plain,
        ADD,
        [&words([1, 2]), &[]],
        target.at(0, 8),
    );
    for (post, what) in [
        (short, "a result of another length"),
        (few, "fewer operands than the peer's memory takes"),
        (many, "more operands than the peer's memory takes"),
    ] {
        refused(rig.try_post(A, message(post)), &[Errno::EINVAL], what)?;
    }
    rig.unchanged(&target, &words([1, 2, 3]))?;
    lives(&rig)?;
    rig.close()
}

fn not_asked(cx: &Cx<'_>) -> Outcome {
    // Where nothing has atomics there is nothing to leave out.
    drop(crate::rig::offer(cx, &spec())?);
    let rig = Rig::open(cx, &Spec::rma())?;
    rig.exchange(A, B, b"first")?;
    if rig.info.caps.contains(Flags::ATOMIC) {
        return Ok(());
    }
    let target = rig.expose(B, &words([1, 2, 3]), OPEN)?;
    let no = [Errno::ENOSYS, Errno::EOPNOTSUPP, Errno::EINVAL];
    for post in each(target.at(0, 8)) {
        refused(rig.try_post(A, post), &no, "an atomic nobody asked for")?;
    }
    rig.unchanged(&target, &words([1, 2, 3]))?;
    rig.close()
}
