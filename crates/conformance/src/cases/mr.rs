//! `fi_mr`(3).

use ripstop_types::{AtomicKind, AtomicOp, Datatype, EpType, Errno, Flags, MrMode, Version};

use super::rma::{OPEN, overlaid};
use crate::case::{Cx, Outcome, Step, Stop, cases, in_use, refused};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, Target, bare, pattern};
use crate::subject::{Form, MrAttr, Post};

cases! {
    pub(super) const CASES;
    fi_mr {
        both forms: "fi_mr_reg, fi_mr_regv and fi_mr_regattr register alike";
        both key_requested: "without FI_MR_PROV_KEY a region has the key asked for, 0 among them";
        both key_taken: "a key in use is refused with FI_ENOKEY, and free again after closing";
        both addressing: "peers count from the address with FI_MR_VIRT_ADDR, else from 0";
        both basic: "before 1.5, FI_MR_BASIC is addresses and the provider's keys";
        both scalable: "before 1.5, FI_MR_SCALABLE is offsets and keys of one's own";
        both overlapping: "memory may be registered more than once, for different use";
        both many: "thousands of regions are registered and reached";
        both busy: "a domain does not close under a region";
        both close_while_written:
            "a region that closes while a peer writes is not written afterwards", together();
        both close_while_read:
            "a region that closes while a peer reads ends the reads or fails them";
        both access_unknown: "access bits that are none change nothing: neither what is allowed nor what is not";
        both pieces: "up to mr_iov_limit pieces of memory are one region, one after the other";
        both pieces_by_address:
            "where peers name addresses, the pieces of a region follow the address of the first";
        both pieces_atomic: "an atomic reaches across the pieces of a region";
        both pieces_denied: "not a byte beyond the pieces of a region is reached";
        both pieces_over_limit: "one piece more than mr_iov_limit is refused";
    }
}

/// Writes and reads through a registration.
#[track_caller]
fn works(rig: &Rig<'_>, target: &Target, len: usize, seed: usize) -> Outcome {
    let bytes = pattern(len, seed);
    rig.complete(A, Post::write(&bytes[..], target.at(0, len)))?;
    rig.holds(target, &bytes)?;
    let done = rig.complete(A, Post::read(target.at(0, len)))?;
    ensure!(done.bufs.concat() == bytes, "read otherwise than written");
    Ok(())
}

fn open<'a>(cx: &Cx<'a>, mode: MrMode) -> Step<Rig<'a>> {
    let spec = Spec::rma().mr_mode(Some(mode));
    Rig::open(cx, &spec)
}

fn keyed(key: u64) -> MrAttr {
    MrAttr {
        access: OPEN,
        key,
        ..MrAttr::default()
    }
}

fn forms(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    for (key, form) in [(1, Form::Reg), (2, Form::Regv), (3, Form::Regattr)] {
        let attr = MrAttr { form, ..keyed(key) };
        let target = rig.expose_as(B, &[0; 5000], &attr)?;
        works(&rig, &target, 5000, 1)?;
        rig.revoke(&target)?;
    }
    rig.finish()
}

fn key_requested(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, MrMode::empty())?;
    let bits = 8 * rig.info.domain.mr_key_size.min(8);
    ensure!(bits > 0, "mr_key_size is 0");
    let largest = u64::MAX >> (64 - bits);
    // All ones is the value for no key.
    for key in [0, 1, 0x1234, largest - 1] {
        let target = rig.expose_as(B, &[0; 100], &keyed(key))?;
        ensure!(target.key == key, "key {key:#x} became {:#x}", target.key);
        works(&rig, &target, 100, 2)?;
    }
    rig.finish()
}

fn key_taken(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, MrMode::empty())?;
    let first = rig.expose_as(B, &[0; 100], &keyed(5))?;
    let memory = rig.memory(B, &[0; 100])?;
    let second = rig.s.register(memory, &keyed(5));
    refused(second, &[Errno::ENOKEY], "a key in use")?;
    works(&rig, &first, 100, 3)?;
    rig.revoke(&first)?;
    let again = rig.expose_as(B, &[0; 100], &keyed(5))?;
    works(&rig, &again, 100, 4)?;
    rig.close()
}

fn addressing(cx: &Cx<'_>) -> Outcome {
    for mode in [
        MrMode::empty(),
        MrMode::VIRT_ADDR,
        MrMode::PROV_KEY,
        MrMode::VIRT_ADDR | MrMode::PROV_KEY | MrMode::ALLOCATED,
        MrMode::VIRT_ADDR | MrMode::PROV_KEY | MrMode::ALLOCATED | MrMode::RMA_EVENT,
    ] {
        let rig = open(cx, mode)?;
        let found = rig.info.domain.mr_mode;
        ensure!(mode.contains(found), "{mode:?} became {found:?}");
        let target = rig.expose_as(B, &[0; 3000], &keyed(6))?;
        works(&rig, &target, 3000, 6)?;
        rig.close()?;
    }
    Ok(())
}

/// A rig as programs of an old version open it.
fn old<'a>(cx: &Cx<'a>, mode: MrMode) -> Step<Rig<'a>> {
    let rig = Rig::open(
        cx,
        &Spec::rma()
            .mr_mode(Some(mode))
            .version(Some(Version::new(1, 4))),
    )?;
    let found = rig.info.domain.mr_mode;
    ensure!(found == mode, "{mode:?} became {found:?}");
    Ok(rig)
}

fn basic(cx: &Cx<'_>) -> Outcome {
    let rig = old(cx, MrMode::BASIC)?;
    let mut seen = Vec::new();
    for _ in 0..20 {
        let target = rig.expose_as(B, &[0; 3000], &keyed(6))?;
        ensure!(!seen.contains(&target.key), "{:#x} came twice", target.key);
        works(&rig, &target, 3000, 7)?;
        seen.push(target.key);
    }
    rig.close()
}

fn scalable(cx: &Cx<'_>) -> Outcome {
    let rig = old(cx, MrMode::SCALABLE)?;
    let target = rig.expose_as(B, &[0; 3000], &keyed(6))?;
    ensure!(target.key == 6, "key 6 became {:#x}", target.key);
    works(&rig, &target, 3000, 7)?;
    rig.close()
}

fn overlapping(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    let bytes = pattern(1000, 1);
    let write = rig.expose(B, &bytes, Flags::REMOTE_WRITE)?;
    let attr = MrAttr {
        access: Flags::REMOTE_READ,
        key: 0x77,
        ..MrAttr::default()
    };
    let mr = rig.s.register(write.memory, &attr)?;
    let read = rig.target(B, write.memory, mr)?;
    ensure!(read.key != write.key, "two registrations have one key");
    rig.complete(A, Post::write(*b"in", write.at(10, 2)))?;
    rig.holds(&write, &overlaid(&bytes, 10, b"in"))?;
    let done = rig.complete(A, Post::read(read.at(10, 2)))?;
    ensure!(done.bufs.concat() == b"in", "damaged");
    // One goes, the other stays.
    rig.revoke(&write)?;
    let done = rig.complete(A, Post::read(read.at(10, 2)))?;
    ensure!(done.bufs.concat() == b"in", "damaged");
    rig.s.close(mr)?;
    rig.close()
}

fn many(cx: &Cx<'_>) -> Outcome {
    const COUNT: usize = 2000;
    let rig = Rig::open(cx, &Spec::rma())?;
    let mut targets = Vec::new();
    for i in 0..COUNT {
        targets.push(rig.expose_as(B, &[0; 16], &keyed(i as u64 + 1))?);
    }
    for i in [0, 1, 17, COUNT / 2, COUNT - 1] {
        works(&rig, &targets[i], 16, i)?;
    }
    rig.unchanged(&targets[2], &[0; 16])?;
    rig.close()
}

fn busy(cx: &Cx<'_>) -> Outcome {
    let rig = bare(cx, &Spec::rma())?;
    let domain = cx.s.domain(rig.fabric, &rig.info)?;
    let memory = cx.s.memory(domain, 100)?;
    let mr = cx.s.register(memory, &keyed(1))?;
    let closed = cx.s.close(domain);
    in_use(closed, "a domain with a region")?;
    cx.s.close(mr)?;
    cx.s.close(memory)?;
    cx.s.close(domain)?;
    Ok(())
}

/// Two sides that have talked.
fn talking<'a>(cx: &Cx<'a>) -> Step<Rig<'a>> {
    let rig = Rig::open(cx, &Spec::rma())?;
    rig.exchange(A, B, b"first")?;
    Ok(rig)
}

/// Posts transfers, closes the region in their midst, and waits for each to end: whether all have succeeded.
fn under_fire(rig: &Rig<'_>, target: &Target, round: usize, posts: Vec<Post>) -> Step<bool> {
    let open = rig.post_all(A, posts)?;
    for _ in 0..round * 3 {
        rig.pump()?;
    }
    rig.revoke(target)?;
    let mut succeeded = true;
    for token in open {
        // Either end will do.
        if let Err(error) = rig.end(A, token)? {
            ensure!(error.err != Errno(0), "an error without a reason");
            succeeded = false;
        }
    }
    Ok(succeeded)
}

/// Whether reads and writes are those of a device, whose keys are its own.
fn by_device(rig: &Rig<'_>) -> bool {
    rig.info.domain.mr_mode.contains(MrMode::PROV_KEY)
}

/// Whether an operation that is denied ends the connection, as of any reliable queue pair.
fn ends_with_denial(rig: &Rig<'_>) -> bool {
    by_device(rig) && rig.info.ep.ep_type == EpType::Msg
}

fn close_while_written(cx: &Cx<'_>) -> Outcome {
    for (len, count) in [(100, 100), (60_000, 30)] {
        let mut rig = talking(cx)?;
        for round in 0..6 {
            let target = rig.expose(B, &vec![0; len * count], OPEN)?;
            let write = |i: usize| {
                let place = target.at(i * len, len);
                Post::write(vec![0x11; len], place).flags(Flags::DELIVERY_COMPLETE)
            };
            let succeeded = under_fire(&rig, &target, round, (0..count).map(write).collect())?;
            let after = rig.s.memory_read(target.memory)?;
            let has_ended = !succeeded && ends_with_denial(&rig);
            // Whatever has come stays; nothing more comes.
            if !has_ended {
                rig.exchange(A, B, b"go on")?;
            }
            rig.unchanged(&target, &after)?;
            // A device stops in the middle of one.
            for piece in after.chunks(len).filter(|_| !by_device(&rig)) {
                let whole = piece.iter().all(|b| *b == piece[0]);
                ensure!(whole, "a write of {len} bytes landed in part");
            }
            if has_ended {
                rig.close()?;
                rig = talking(cx)?;
            }
        }
    }
    Ok(())
}

fn close_while_read(cx: &Cx<'_>) -> Outcome {
    for (len, count) in [(100, 100), (60_000, 30)] {
        let mut rig = talking(cx)?;
        for round in 0..6 {
            let target = rig.expose(B, &pattern(len * count, round), OPEN)?;
            let read = |i: usize| Post::read(target.at(i * len, len));
            let succeeded = under_fire(&rig, &target, round, (0..count).map(read).collect())?;
            if !succeeded && ends_with_denial(&rig) {
                rig.close()?;
                rig = talking(cx)?;
            }
            rig.exchange(A, B, b"go on")?;
        }
    }
    Ok(())
}

fn access_unknown(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    let more = Flags::RMA | Flags::MULTI_RECV;
    let attr = |key, access| MrAttr {
        access: access | more,
        ..keyed(key)
    };
    let open = rig.expose_as(B, &[0; 100], &attr(1, OPEN))?;
    works(&rig, &open, 100, 1)?;
    let bytes = pattern(100, 2);
    let read_only = rig.expose_as(B, &bytes, &attr(2, Flags::REMOTE_READ))?;
    let read = rig.complete(A, Post::read(read_only.at(0, 100)))?;
    ensure!(
        read.bufs.concat() == bytes,
        "read otherwise than registered"
    );
    let write = Post::write(&pattern(100, 3)[..], read_only.at(0, 100));
    let write = write.flags(Flags::DELIVERY_COMPLETE);
    // A device may end the connection then.
    let write = rig.post(A, write)?;
    rig.failed(A, write)?;
    rig.unchanged(&read_only, &bytes)
}

/// Four pieces of memory of 4 KiB, in an order of their own.
const PIECES: &[(usize, usize)] = &[(3000, 96), (0, 1000), (1000, 8), (2048, 512)];

/// Bytes in all of them.
const IN_PIECES: usize = 96 + 1000 + 8 + 512;

/// Where a byte of the region is in the memory.
fn place(at: usize) -> usize {
    let mut skip = at;
    for (start, len) in PIECES {
        if skip < *len {
            return start + skip;
        }
        skip -= len;
    }
    unreachable!("beyond the region")
}

/// Registers the pieces.
fn expose_pieces(rig: &Rig<'_>, form: Form) -> Step<Target> {
    if rig.info.domain.mr_iov_limit < PIECES.len() {
        return Err(Stop::not_offered("mr_iov_limit is below 4"));
    }
    let attr = MrAttr {
        form,
        access: Flags::REMOTE_READ | Flags::REMOTE_WRITE,
        key: 0x77,
        pieces: PIECES,
        ..MrAttr::default()
    };
    let mut target = rig.expose_as(B, &[9; 4096], &attr)?;
    if target.base != 0 {
        // The first piece is where peers begin.
        target.base += PIECES[0].0 as u64;
    }
    Ok(target)
}

fn pieces(cx: &Cx<'_>) -> Outcome {
    in_pieces(Rig::open(cx, &Spec::rma())?)
}

/// As [`pieces`], where peers name memory by its address.
fn pieces_by_address(cx: &Cx<'_>) -> Outcome {
    in_pieces(old(cx, MrMode::BASIC)?)
}

fn in_pieces(rig: Rig<'_>) -> Outcome {
    for form in [Form::Regv, Form::Regattr] {
        let target = expose_pieces(&rig, form)?;
        let mut expected = vec![9; 4096];
        for (round, (at, len)) in [(0, IN_PIECES), (90, 20), (95, 1010), (1100, 516), (1104, 1)]
            .into_iter()
            .enumerate()
        {
            let bytes = pattern(len, round + 1);
            for (i, byte) in bytes.iter().enumerate() {
                expected[place(at + i)] = *byte;
            }
            rig.complete(A, Post::write(&bytes[..], target.at(at, len)))?;
            rig.holds(&target, &expected)?;
            let done = rig.complete(A, Post::read(target.at(at, len)))?;
            ensure!(
                done.bufs.concat() == bytes,
                "{len} bytes at {at} were read otherwise"
            );
        }
        rig.revoke(&target)?;
    }
    rig.finish()
}

fn pieces_atomic(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma().caps(Flags::ATOMIC))?;
    let target = expose_pieces(&rig, Form::Regv)?;
    let add = (Datatype::Uint64, AtomicOp::Sum);
    let operands = 1_u64.to_ne_bytes().repeat(IN_PIECES / 8);
    let place_of_all = target.at(0, IN_PIECES);
    let fetch = Post::atomic(AtomicKind::Fetch, add, [&operands, &[]], place_of_all);
    let done = rig.complete(A, fetch)?;
    ensure!(
        done.bufs.last().is_some_and(|b| b[..] == [9; IN_PIECES]),
        "fetched otherwise"
    );
    let sum = u64::from_ne_bytes([9; 8]) + 1;
    let mut expected = vec![9; 4096];
    for at in 0..IN_PIECES {
        expected[place(at)] = sum.to_ne_bytes()[at % 8];
    }
    rig.holds(&target, &expected)?;
    rig.finish()
}

fn pieces_denied(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    rig.exchange(A, B, b"first")?;
    let target = expose_pieces(&rig, Form::Regv)?;
    for (at, len) in [(IN_PIECES, 1), (IN_PIECES - 1, 2), (0, IN_PIECES + 1)] {
        let write = Post::write(vec![1; len], target.at(at, len));
        let token = rig.post(A, write.flags(Flags::DELIVERY_COMPLETE))?;
        rig.failed(A, token)?;
        let token = rig.post(A, Post::read(target.at(at, len)))?;
        rig.failed(A, token)?;
        rig.unchanged(&target, &[9; 4096])?;
    }
    rig.exchange(A, B, b"after")?;
    rig.close()
}

fn pieces_over_limit(cx: &Cx<'_>) -> Outcome {
    const MANY: &[(usize, usize)] = &[(0, 1); 64];
    let rig = Rig::open(cx, &Spec::rma())?;
    let limit = rig.info.domain.mr_iov_limit;
    if limit >= MANY.len() {
        return Err(Stop::not_offered("mr_iov_limit is above 63"));
    }
    let memory = rig.memory(B, &[0; 64])?;
    let attr = MrAttr {
        form: Form::Regv,
        access: Flags::REMOTE_WRITE,
        pieces: &MANY[..=limit],
        ..MrAttr::default()
    };
    let refused_with = [Errno::EINVAL, Errno::E2BIG, Errno::ENOSYS];
    refused(
        rig.s.register(memory, &attr),
        &refused_with,
        "too many pieces",
    )?;
    rig.close()
}
