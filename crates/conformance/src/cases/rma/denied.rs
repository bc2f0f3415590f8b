//! What a peer must not do: nothing changes, the operation ends in an error, and the
//! connection lives on.

use ripstop_types::{Errno, Flags, MrMode};

use super::{OPEN, inject_at, overlaid};
use crate::case::{Cx, Outcome, Step, Stop, cases};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, Target, pattern};
use crate::subject::{MrAttr, Post, Remote};

cases! {
    pub(super) const CASES;
    fi_rma {
        both key_unknown: "a key nobody gave out reaches nothing";
        both beyond: "not a byte is written or read outside a region";
        both wraps: "a range that wraps around the address space is refused";
        both write_only: "memory registered for writes cannot be read";
        both read_only: "memory registered for reads cannot be written";
        both local_only: "memory registered for local use is out of reach";
        both revoked: "a closed registration is out of reach, its memory as well";
        both denied_second: "a write with one piece that is denied changes neither piece";
        both denied_inject: "an injected write that is denied changes nothing";
        both denied_large: "a denied write of 4 MiB changes nothing";
        both denied_among_others: "what others do at the same time goes on when one is denied";
    }
}

/// A write that reports when the peer has processed it, and a read.
fn both(len: usize, place: Remote) -> [Post; 2] {
    let read = Post::read(place).iov(vec![vec![0; len]]);
    [
        Post::write(vec![0x55; len], place).flags(Flags::DELIVERY_COMPLETE),
        read,
    ]
}

/// Two sides that have talked.
fn talking<'a>(cx: &Cx<'a>) -> Step<Rig<'a>> {
    let rig = Rig::open(cx, &Spec::rma())?;
    rig.exchange(A, B, b"first")?;
    Ok(rig)
}

/// The operation is denied, memory is as before, and both sides go on.
#[track_caller]
pub(super) fn denied(rig: &Rig<'_>, post: Post, target: &Target, bytes: &[u8]) -> Outcome {
    let token = rig.post(A, post)?;
    rig.failed(A, token)?;
    rig.unchanged(target, bytes)?;
    lives(rig)
}

/// Messages, writes and reads still work.
#[track_caller]
pub(super) fn lives(rig: &Rig<'_>) -> Outcome {
    rig.exchange(A, B, b"there")?;
    rig.exchange(B, A, b"and back")?;
    let target = rig.expose(B, &[0; 16], OPEN)?;
    rig.complete(A, Post::write([7; 16], target.at(0, 16)))?;
    rig.holds(&target, &[7; 16])?;
    let done = rig.complete(A, Post::read(target.at(0, 16)))?;
    ensure!(done.bufs.concat() == [7; 16], "a read fails");
    rig.revoke(&target)
}

/// As [`lives`], behind an injected operation that was denied, of which nobody is told. Where a device denies it, the
/// connection ends, and takes along what was posted meanwhile.
#[track_caller]
pub(super) fn lives_behind_inject(rig: &Rig<'_>) -> Outcome {
    if rig.info.domain.mr_mode.contains(MrMode::PROV_KEY) {
        // Requests of a connection end in their order: behind the end of this one, there is another connection.
        let target = rig.expose(B, &[0; 16], OPEN)?;
        let read = rig.post(A, Post::read(target.at(0, 16)))?;
        let _ = rig.end(A, read)?;
        rig.revoke(&target)?;
    }
    lives(rig)
}

fn key_unknown(cx: &Cx<'_>) -> Outcome {
    let rig = talking(cx)?;
    let bytes = pattern(100, 1);
    let target = rig.expose(B, &bytes, OPEN)?;
    // A longer one is refused by the call.
    let bytes_of_keys = rig.info.domain.mr_key_size.clamp(1, 8) as u32;
    let last = u64::MAX >> (64 - 8 * bytes_of_keys);
    for key in [target.key ^ 1, (target.key + 0x1000) & last, last] {
        let place = Remote {
            key,
            ..target.at(0, 50)
        };
        for post in both(50, place) {
            denied(&rig, post, &target, &bytes)?;
        }
    }
    rig.close()
}

fn beyond(cx: &Cx<'_>) -> Outcome {
    let rig = talking(cx)?;
    let bytes = pattern(100, 1);
    let target = rig.expose(B, &bytes, OPEN)?;
    for (at, len) in [
        (100, 1),
        (99, 2),
        (0, 101),
        (60, 41),
        (1 << 20, 8),
        (50, 70_000),
    ] {
        for post in both(len, target.at(at, len)) {
            denied(&rig, post, &target, &bytes)?;
        }
    }
    rig.close()
}

fn wraps(cx: &Cx<'_>) -> Outcome {
    let rig = talking(cx)?;
    let bytes = pattern(100, 1);
    let target = rig.expose(B, &bytes, OPEN)?;
    let before = target.base.wrapping_sub(1);
    for address in [before, u64::MAX, u64::MAX - 7, target.base | 1 << 63] {
        let place = Remote {
            address,
            ..target.at(0, 16)
        };
        for post in both(16, place) {
            denied(&rig, post, &target, &bytes)?;
        }
    }
    rig.close()
}

fn write_only(cx: &Cx<'_>) -> Outcome {
    let rig = talking(cx)?;
    let bytes = pattern(100, 1);
    let target = rig.expose(B, &bytes, Flags::REMOTE_WRITE)?;
    denied(&rig, Post::read(target.at(0, 100)), &target, &bytes)?;
    rig.complete(A, Post::write([9; 5], target.at(0, 5)))?;
    rig.holds(&target, &overlaid(&bytes, 0, &[9; 5]))?;
    rig.close()
}

fn read_only(cx: &Cx<'_>) -> Outcome {
    let rig = talking(cx)?;
    let bytes = pattern(100, 1);
    let target = rig.expose(B, &bytes, Flags::REMOTE_READ)?;
    let [write, read] = both(100, target.at(0, 100));
    denied(&rig, write, &target, &bytes)?;
    let done = rig.complete(A, read)?;
    ensure!(done.bufs.concat() == bytes, "the read is damaged");
    rig.close()
}

fn local_only(cx: &Cx<'_>) -> Outcome {
    let rig = talking(cx)?;
    let bytes = pattern(100, 1);
    let local = Flags::SEND | Flags::RECV | Flags::READ | Flags::WRITE;
    let memory = rig.memory(B, &bytes)?;
    let attr = MrAttr {
        access: local,
        key: 1,
        ..MrAttr::default()
    };
    let mr = rig.s.register(memory, &attr)?;
    if let Err(error) = rig.s.mr_key(mr) {
        // Then peers have nothing to name it by.
        ensure!(error.is(Errno::ENOKEY), "no key: {error}");
        return Ok(());
    }
    let target = rig.target(B, memory, mr)?;
    for post in both(100, target.at(0, 100)) {
        denied(&rig, post, &target, &bytes)?;
    }
    Ok(())
}

fn revoked(cx: &Cx<'_>) -> Outcome {
    let rig = talking(cx)?;
    let bytes = pattern(100, 1);
    let target = rig.expose(B, &bytes, OPEN)?;
    rig.complete(A, Post::read(target.at(0, 100)))?;
    rig.revoke(&target)?;
    for post in both(100, target.at(0, 100)) {
        denied(&rig, post, &target, &bytes)?;
    }
    rig.close()
}

fn denied_second(cx: &Cx<'_>) -> Outcome {
    let rig = talking(cx)?;
    if rig.info.tx.rma_iov_limit < 2 {
        return Err(Stop::not_offered("rma_iov_limit is 1"));
    }
    let bytes = pattern(100, 1);
    let good = rig.expose(B, &bytes, OPEN)?;
    let closed = rig.expose(B, &bytes, Flags::REMOTE_READ)?;
    let [write, _] = both(40, good.at(0, 40));
    let write = write.remote(vec![good.at(0, 20), closed.at(0, 20)]);
    denied(&rig, write, &closed, &bytes)?;
    rig.unchanged(&good, &bytes)?;
    rig.close()
}

fn denied_inject(cx: &Cx<'_>) -> Outcome {
    let rig = talking(cx)?;
    let bytes = pattern(100, 1);
    let target = rig.expose(B, &bytes, Flags::REMOTE_READ)?;
    inject_at(&rig, &target, 0, &[0x55; 20], None)?;
    rig.unchanged(&target, &bytes)?;
    lives_behind_inject(&rig)
}

fn denied_large(cx: &Cx<'_>) -> Outcome {
    let rig = talking(cx)?;
    let bytes = pattern(4 << 20, 1);
    let target = rig.expose(B, &bytes, Flags::REMOTE_READ)?;
    let [write, _] = both(4 << 20, target.at(0, 4 << 20));
    denied(&rig, write, &target, &bytes)?;
    rig.close()
}

fn denied_among_others(cx: &Cx<'_>) -> Outcome {
    let rig = talking(cx)?;
    let bytes = pattern(1000, 1);
    let target = rig.expose(B, &[0; 1000], OPEN)?;
    let wrong = Remote {
        key: target.key + 0x1000,
        ..target.at(0, 100)
    };
    let mut open = Vec::new();
    let mut bad = Vec::new();
    for i in 0..10 {
        let part = &bytes[i * 100..(i + 1) * 100];
        open.push(rig.post(A, Post::write(part, target.at(i * 100, 100)))?);
        if i == 5 {
            for post in both(100, wrong) {
                bad.push(rig.post(A, post)?);
            }
        }
    }
    rig.all_done(A, open)?;
    for token in bad {
        rig.failed(A, token)?;
    }
    rig.holds(&target, &bytes)?;
    lives(&rig)
}
