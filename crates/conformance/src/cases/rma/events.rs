//! What tells either side of reads and writes: completions, remote CQ data, counters.

use ripstop_types::{CqFormat, Errno, Flags, Progress, WaitObj};

use super::{OPEN, inject_at, overlaid};
use crate::case::{Cx, Outcome, Step, Stop, cases, offered, refused};
use crate::ensure;
use crate::pace::soon;
use crate::rig::{A, B, Rig, RmaCounters, Spec, bare, pattern};
use crate::subject::{Fid, MrAttr, Post};

cases! {
    pub(super) const CASES;
    fi_rma {
        both writedata:
            "remote CQ data of a write is announced at the target when the bytes are there";
        both writedata_msg: "FI_REMOTE_CQ_DATA is a flag of fi_writemsg too";
        both writedata_nothing: "a write of no pieces of memory brings its CQ data";
        both inject_writedata: "fi_inject_writedata is announced at the target and silent at home";
        both silent_target: "without CQ data the target's queue hears of nothing";
        both delivery_complete: "after delivery complete the bytes are in the peer's memory";
        both levels: "each completion level completes a write";
        both completion_flags: "completions say what completed, in every format that can";
        both selective: "with FI_SELECTIVE_COMPLETION only flagged reads and writes report";
    }
    fi_cntr {
        both counts_rma: "reads and writes are counted at home";
        both counts_remote: "with FI_RMA_EVENT reads and writes are counted at the target";
        both wait_denied: "a wait ends with FI_EAVAIL for an error that was under way when it began";
        both counts_denied: "a denied write raises the error value at home";
    }
    fi_mr {
        both counts_writes: "a counter bound to a region counts the writes to it";
        both counter_domain: "a counter of another domain than that of the region is FI_EDOMAIN";
    }
}

const DATA: u64 = 0x0102_0304_a5a6_a7a8;

/// As much of [`DATA`] as fits.
fn fitting(rig: &Rig<'_>) -> u64 {
    match rig.info.domain.cq_data_size {
        size @ 1..8 => DATA & ((1 << (8 * size)) - 1),
        _ => DATA,
    }
}

/// The target is told of a write with this CQ data.
#[track_caller]
pub(super) fn announced(rig: &Rig<'_>, data: u64) -> Outcome {
    let told = rig.announced(B)?;
    let wanted = Flags::REMOTE_CQ_DATA | Flags::REMOTE_WRITE;
    ensure!(told.flags.contains(wanted), "flags are {:?}", told.flags);
    ensure!(told.data == data, "the data is {:#x}", told.data);
    Ok(())
}

fn writedata(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    let data = fitting(&rig);
    for len in [10, 0, 5000, 300_000] {
        let target = rig.expose(B, &vec![0; len + 1], OPEN)?;
        let bytes = pattern(len, 8);
        let write = Post::write(&bytes[..], target.at(0, len)).data(data);
        let token = rig.post(A, write)?;
        announced(&rig, data)?;
        let found = rig.s.memory_read(target.memory)?;
        ensure!(
            found[..len] == bytes,
            "{len} bytes were announced before they came"
        );
        rig.done(A, token)?;
    }
    rig.finish()
}

fn writedata_msg(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    let data = fitting(&rig);
    let target = rig.expose(B, &[0; 40], OPEN)?;
    let write = Post::write(*b"with data", target.at(4, 9)).data(data);
    rig.complete(A, write.flags(Flags::COMPLETION))?;
    announced(&rig, data)?;
    rig.holds(&target, &overlaid(&[0; 40], 4, b"with data"))?;
    // A receive is not used up by it.
    rig.exchange(A, B, b"a message")?;
    rig.finish()
}

fn writedata_nothing(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    if cx.setup.provider.starts_with("verbs") {
        return Err(Stop::not_offered(
            "a device writes one piece of memory or more",
        ));
    }
    let data = fitting(&rig);
    let target = rig.expose(B, &[], OPEN)?;
    for flags in [Flags::COMPLETION, Flags::DELIVERY_COMPLETE] {
        let nothing = Post::write(*b"", target.at(0, 0));
        let nothing = nothing.iov(Vec::new()).remote(Vec::new());
        let token = rig.post(A, nothing.data(data).flags(flags))?;
        announced(&rig, data)?;
        rig.done(A, token)?;
    }
    rig.exchange(A, B, b"after")?;
    rig.finish()
}

fn inject_writedata(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    let data = fitting(&rig);
    let target = rig.expose(B, &[0; 40], OPEN)?;
    for round in 0..3 {
        inject_at(&rig, &target, round, b"injected", Some(data))?;
        announced(&rig, data)?;
    }
    rig.finish()
}

fn silent_target(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma().caps(Flags::RMA_EVENT))?;
    let target = rig.expose(B, &[0; 40], OPEN)?;
    for _ in 0..3 {
        rig.complete(A, Post::write([1; 40], target.at(0, 40)))?;
        rig.complete(A, Post::read(target.at(0, 40)))?;
        inject_at(&rig, &target, 0, &[2; 40], None)?;
        rig.holds(&target, &[2; 40])?;
    }
    rig.finish()
}

fn delivery_complete(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    for len in [1, 100, 20_000, 2 << 20] {
        let target = rig.expose(B, &vec![0; len], OPEN)?;
        let bytes = pattern(len, 6);
        let write = Post::write(&bytes[..], target.at(0, len)).flags(Flags::DELIVERY_COMPLETE);
        rig.complete(A, write)?;
        let found = rig.s.memory_read(target.memory)?;
        ensure!(found == bytes, "{len} bytes are complete and not there");
    }
    rig.finish()
}

fn levels(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma())?;
    for flags in [
        Flags::INJECT_COMPLETE,
        Flags::TRANSMIT_COMPLETE,
        Flags::DELIVERY_COMPLETE,
    ] {
        for len in [3, 1000, 100_000] {
            let target = rig.expose(B, &vec![0; len], OPEN)?;
            let bytes = pattern(len, 2);
            let write = Post::write(&bytes[..], target.at(0, len)).flags(flags);
            rig.complete(A, write)?;
            rig.holds(&target, &bytes)?;
        }
    }
    rig.finish()
}

fn completion_flags(cx: &Cx<'_>) -> Outcome {
    for format in [CqFormat::Msg, CqFormat::Data, CqFormat::Tagged] {
        let rig = Rig::open(cx, &Spec::rma().format(format))?;
        let target = rig.expose(B, &[0; 64], OPEN)?;
        let done = rig
            .complete(A, Post::write([1; 64], target.at(0, 64)))?
            .flags;
        let wanted = Flags::RMA | Flags::WRITE;
        ensure!(done.contains(wanted), "{format:?}: a write has {done:?}");
        ensure!(
            !done.intersects(Flags::READ | Flags::SEND | Flags::RECV),
            "{format:?}: a write has {done:?}"
        );
        let done = rig.complete(A, Post::read(target.at(0, 64)))?.flags;
        let wanted = Flags::RMA | Flags::READ;
        ensure!(done.contains(wanted), "{format:?}: a read has {done:?}");
        rig.close()?;
    }
    Ok(())
}

fn selective(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma().selective(Flags::SEND))?;
    let target = rig.expose(B, &[0; 64], OPEN)?;
    for value in 1..5 {
        rig.post(A, Post::write([value; 64], target.at(0, 64)))?;
        rig.holds(&target, &[value; 64])?;
        rig.quiet()?;
        let place = target.at(0, 64);
        let write = Post::write([value + 100; 64], place).flags(Flags::COMPLETION);
        rig.complete(A, write)?;
        rig.complete(A, Post::read(place).flags(Flags::COMPLETION))?;
    }
    rig.finish()
}

/// Two sides with counters for all reads and writes.
pub(super) fn counted<'a>(cx: &Cx<'a>) -> Step<(Rig<'a>, RmaCounters, RmaCounters)> {
    let rig = Rig::open(cx, &Spec::rma().caps(Flags::RMA_EVENT).rma_counters(true))?;
    let counters = |side: usize| {
        let found = rig.sides[side].rma_cntrs;
        found.ok_or_else(|| Stop::fail("no counters"))
    };
    let (a, b) = (counters(A)?, counters(B)?);
    Ok((rig, a, b))
}

/// Waits until a counter has this value, and no more.
#[track_caller]
pub(super) fn counts_to(rig: &Rig<'_>, cntr: Fid, value: u64, what: &str) -> Outcome {
    rig.until(&format!("{what} counted to {value}"), || {
        Ok((rig.s.cntr_read(cntr)? >= value).then_some(()))
    })?;
    rig.pump_times(20)?;
    let found = rig.s.cntr_read(cntr)?;
    ensure!(found == value, "{what} counted to {found}, not {value}");
    Ok(())
}

/// Three writes, one of them injected, and two reads.
fn five(rig: &Rig<'_>) -> Outcome {
    let target = rig.expose(B, &[0; 3000], OPEN)?;
    let mut open = Vec::new();
    for len in [8, 3000] {
        open.push(rig.post(A, Post::write(pattern(len, 1), target.at(0, len)))?);
        open.push(rig.post(A, Post::read(target.at(0, len)))?);
    }
    inject_at(rig, &target, 0, b"third", None)?;
    rig.all_done(A, open)?;
    Ok(())
}

fn counts_rma(cx: &Cx<'_>) -> Outcome {
    let (rig, a, b) = counted(cx)?;
    five(&rig)?;
    counts_to(&rig, a.writes, 3, "writes")?;
    counts_to(&rig, a.reads, 2, "reads")?;
    counts_to(&rig, b.writes, 0, "the target's own writes")?;
    rig.close()
}

fn counts_remote(cx: &Cx<'_>) -> Outcome {
    let (rig, a, b) = counted(cx)?;
    five(&rig)?;
    counts_to(&rig, b.written_by_peers, 3, "writes at the target")?;
    counts_to(&rig, b.read_by_peers, 2, "reads at the target")?;
    counts_to(&rig, a.written_by_peers, 0, "writes at home")?;
    rig.close()
}

fn counts_denied(cx: &Cx<'_>) -> Outcome {
    let (rig, a, b) = counted(cx)?;
    rig.exchange(A, B, b"first")?;
    let target = rig.expose(B, &[0; 64], Flags::REMOTE_READ)?;
    let write = Post::write([1; 64], target.at(0, 64)).flags(Flags::DELIVERY_COMPLETE);
    let token = rig.post(A, write)?;
    rig.failed(A, token)?;
    let errors = rig.s.cntr_readerr(a.writes)?;
    ensure!(errors == 1, "{errors} errors were counted");
    counts_to(&rig, a.writes, 0, "successful writes")?;
    counts_to(&rig, b.written_by_peers, 0, "writes at the target")
}

fn wait_denied(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::rma().two_domains(true).progress(Progress::Manual);
    let rig = Rig::open(cx, &spec.rma_counters(true))?;
    let writes = rig.sides[A].rma_cntrs.map(|cntrs| cntrs.writes);
    let writes = writes.ok_or_else(|| Stop::fail("no counters"))?;
    rig.exchange(A, B, b"first")?;
    let target = rig.expose(B, &[0; 64], Flags::REMOTE_READ)?;
    let write = Post::write([1; 64], target.at(0, 64)).flags(Flags::DELIVERY_COMPLETE);
    rig.post(A, write)?;
    // The target refuses it, and nobody looks at what comes of that at home.
    for _ in 0..100 {
        rig.pump_side(B)?;
    }
    let waited = rig.s.cntr_wait(writes, 9, soon());
    refused(waited, &[Errno::EAVAIL], "the wait for what was denied")?;
    rig.close()
}

fn counts_writes(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma().caps(Flags::RMA_EVENT))?;
    let attr = MrAttr {
        access: OPEN,
        key: 9,
        flags: Flags::RMA_EVENT,
        ..MrAttr::default()
    };
    let target = rig.expose_as(B, &[0; 100], &attr)?;
    let cntr = rig.s.cntr(rig.sides[B].domain, WaitObj::None)?;
    let bound = rig.s.bind(target.mr, cntr, Flags::REMOTE_WRITE);
    offered(bound, &[Errno::ENOSYS], "fi_mr_bind")?;
    let other = rig.expose(B, &[0; 100], OPEN)?;
    for (i, target) in [&target, &other, &target].into_iter().enumerate() {
        rig.complete(A, Post::write([3; 10], target.at(i, 10)))?;
    }
    counts_to(&rig, cntr, 2, "writes to the region")?;
    rig.revoke(&target)?;
    rig.s.close(cntr)?;
    rig.close()
}

fn counter_domain(cx: &Cx<'_>) -> Outcome {
    let rig = bare(cx, &Spec::rma().caps(Flags::RMA_EVENT))?;
    let s = rig.s;
    let domain = s.domain(rig.fabric, &rig.info)?;
    let other = s.domain(rig.fabric, &rig.info)?;
    let memory = s.memory(domain, 100)?;
    let attr = MrAttr {
        access: OPEN,
        key: 9,
        flags: Flags::RMA_EVENT,
        ..MrAttr::default()
    };
    let mr = s.register(memory, &attr)?;
    let own = s.cntr(domain, WaitObj::None)?;
    let theirs = s.cntr(other, WaitObj::None)?;
    let bound = s.bind(mr, own, Flags::REMOTE_WRITE);
    offered(bound, &[Errno::ENOSYS], "fi_mr_bind")?;
    let second = s.register(memory, &MrAttr { key: 10, ..attr })?;
    let bound = s.bind(second, theirs, Flags::REMOTE_WRITE);
    refused(bound, &[Errno::EDOMAIN], "a counter of another domain")?;
    // Nothing of it was bound.
    s.bind(second, own, Flags::REMOTE_WRITE)?;
    for fid in [theirs, mr, second, own, memory, other, domain] {
        s.close(fid)?;
    }
    rig.close()
}
