//! When injected operations are counted (`fi_endpoint`(3), `fi_cntr`(3)): their calls take no
//! flags, so the default flags of the endpoint hold.

use ripstop_types::{AtomicOp, Datatype, Errno, Flags, Progress, WaitObj};

use crate::case::{Cx, Outcome, Step, Stop, cases, refused};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec};
use crate::subject::{Fid, Inject, Post, Result as CallResult};

cases! {
    pub(super) const CASES;
    fi_cntr {
        both inject_delivered:
            "with FI_DELIVERY_COMPLETE as default an inject is counted when the peer has it";
        rdm inject_delivered_first:
            "with FI_DELIVERY_COMPLETE as default an inject is not taken before there is a connection";
        both inject_write_delivered:
            "with FI_DELIVERY_COMPLETE as default an injected write is counted when its data is there"
                = writes;
        both inject_atomic_delivered:
            "with FI_DELIVERY_COMPLETE as default an injected atomic is counted when it is done";
        both inject_flags_changed:
            "default flags that are changed later hold for the injects that follow";
    }
}

/// How often A looks while B does nothing.
const LOOKS: usize = 200;

/// Two sides that make progress each for itself.
fn open<'a>(cx: &Cx<'a>, caps: Flags, op_flags: Flags) -> Step<Rig<'a>> {
    let rig = Rig::open(
        cx,
        &Spec {
            tx_op_flags: op_flags,
            two_domains: true,
            progress: Progress::Manual,
            counters: Some(WaitObj::None),
            rma_counters: true,
            ..Spec::rma().caps(caps)
        },
    )?;
    rig.exchange(A, B, b"first")?;
    rig.exchange(B, A, b"second")?;
    rig.quiet()?;
    Ok(rig)
}

fn counters(rig: &Rig<'_>) -> Step<(Fid, Fid)> {
    let side = &rig.sides[A];
    side.tx_cntr
        .zip(side.rma_cntrs.map(|cntrs| cntrs.writes))
        .ok_or_else(|| Stop::fail("the suite opened no counters"))
}

fn injected<'b>(rig: &Rig<'_>, bytes: &'b [u8], data: Option<u64>) -> Inject<'b> {
    Inject {
        bytes,
        tag: None,
        data,
        addr: rig.sides[A].peer,
    }
}

/// Starts an operation of A: its counter ticks once B has the data, as `arrived` says; a message is
/// never there before B makes progress.
fn counted_late(
    rig: &Rig<'_>,
    cntr: Fid,
    start: &dyn Fn() -> CallResult<()>,
    arrived: Option<&dyn Fn() -> Step<bool>>,
) -> Outcome {
    let before = rig.s.cntr_read(cntr)?;
    rig.retry("a full queue takes another inject", start)?;
    for _ in 0..LOOKS {
        let now = rig.s.cntr_read(cntr)?;
        let arrived = now == before || arrived.is_some_and(|a| a().unwrap_or(false));
        ensure!(arrived, "counted before the peer has the data");
    }
    rig.until("a count of the inject", || {
        let now = rig.s.cntr_read(cntr)?;
        ensure!(now <= before + 1, "counted {} times", now - before);
        if now == before {
            return Ok(None);
        }
        let arrived = arrived.map_or(Ok(true), |arrived| arrived())?;
        ensure!(arrived, "counted before the peer has the data");
        Ok(Some(()))
    })
}

fn inject_delivered(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, Flags::empty(), Flags::DELIVERY_COMPLETE)?;
    let (sends, _) = counters(&rig)?;
    let ep = rig.sides[A].ep;
    let data = (rig.info.domain.cq_data_size > 0).then_some(7);
    for data in [None, data] {
        let recv = rig.post(B, Post::recv(8))?;
        let start = || rig.s.inject(ep, injected(&rig, b"inject", data));
        counted_late(&rig, sends, &start, None)?;
        let got = rig.done(B, recv)?.bytes();
        ensure!(got == b"inject", "{got:?} arrived");
    }
    rig.close()
}

fn inject_delivered_first(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(
        cx,
        &Spec {
            tx_op_flags: Flags::DELIVERY_COMPLETE,
            two_domains: true,
            progress: Progress::Manual,
            counters: Some(WaitObj::None),
            ..Spec::default()
        },
    )?;
    let side = &rig.sides[A];
    let inject = injected(&rig, b"first", None);
    // B makes no progress, so there is none yet.
    for _ in 0..LOOKS {
        let taken = rig.s.inject(side.ep, inject);
        refused(taken, &[Errno::EAGAIN], "an inject without a connection")?;
    }
    let recv = rig.post(B, Post::recv(8))?;
    rig.inject(A, b"first", None, None)?;
    let got = rig.done(B, recv)?.bytes();
    ensure!(got == b"first", "{got:?} arrived");
    let Some(cntr) = side.tx_cntr else {
        return Err(Stop::fail("the suite opened no counters"));
    };
    rig.until("a count of the inject", || {
        Ok((rig.s.cntr_read(cntr)? == 1).then_some(()))
    })?;
    rig.close()
}

fn writes(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, Flags::empty(), Flags::DELIVERY_COMPLETE)?;
    let (_, writes) = counters(&rig)?;
    let ep = rig.sides[A].ep;
    let target = rig.expose(B, &[0; 8], Flags::REMOTE_READ | Flags::REMOTE_WRITE)?;
    let data = (rig.info.domain.cq_data_size > 0).then_some(7);
    for (n, data) in [(1, None), (2, data), (3, None)] {
        let bytes = [n; 8];
        let start = || {
            rig.s
                .inject_write(ep, injected(&rig, &bytes, data), target.at(0, 8))
        };
        let arrived = || Ok(rig.s.memory_read(target.memory)? == bytes);
        counted_late(&rig, writes, &start, Some(&arrived))?;
        if data.is_some() {
            rig.announced(B)?;
        }
    }
    rig.finish()
}

fn inject_atomic_delivered(cx: &Cx<'_>) -> Outcome {
    let rig = open(cx, Flags::ATOMIC, Flags::DELIVERY_COMPLETE)?;
    let (_, writes) = counters(&rig)?;
    let ep = rig.sides[A].ep;
    let target = rig.expose(B, &[0; 8], Flags::REMOTE_READ | Flags::REMOTE_WRITE)?;
    let add = (Datatype::Uint64.number(), AtomicOp::Sum.number());
    for n in 1..=3_u64 {
        let one = 1_u64.to_ne_bytes();
        let start = || {
            rig.s
                .inject_atomic(ep, injected(&rig, &one, None), add, target.at(0, 8))
        };
        let arrived = || Ok(rig.s.memory_read(target.memory)? == n.to_ne_bytes());
        counted_late(&rig, writes, &start, Some(&arrived))?;
    }
    rig.finish()
}

fn inject_flags_changed(cx: &Cx<'_>) -> Outcome {
    use crate::subject::Direction;
    let rig = open(cx, Flags::empty(), Flags::empty())?;
    let (_, writes) = counters(&rig)?;
    let ep = rig.sides[A].ep;
    let target = rig.expose(B, &[0; 8], Flags::REMOTE_READ | Flags::REMOTE_WRITE)?;
    rig.s
        .set_op_flags(ep, Direction::Tx, Flags::DELIVERY_COMPLETE)?;
    let start = || {
        rig.s
            .inject_write(ep, injected(&rig, &[1; 8], None), target.at(0, 8))
    };
    let arrived = || Ok(rig.s.memory_read(target.memory)? == [1; 8]);
    counted_late(&rig, writes, &start, Some(&arrived))?;
    rig.finish()
}
