//! Who starts what: messages and reads, writes and atomics are restricted apart (`fi_getinfo`(3)).

use ripstop_types::{AtomicKind, AtomicOp, Datatype, Errno, Flags, WaitObj};

use crate::case::{Cx, Outcome, Step, cases, refused};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, bare};
use crate::subject::{CqAttr, Fid, Inject, Post, Remote};

cases! {
    pub(super) const CASES;
    fi_getinfo {
        both initiates_without_send:
            "an endpoint with FI_READ, FI_WRITE and FI_RECV reads and writes without FI_SEND";
        both atomics_without_send:
            "an endpoint with FI_ATOMIC starts atomics without FI_SEND, and where it names only the rights of peers";
        both target_initiates:
            "an endpoint with FI_RMA starts reads and writes also where it names FI_REMOTE_READ and FI_REMOTE_WRITE only"
                = target;
    }
    fi_endpoint {
        both enable_initiator:
            "who starts reads and writes needs a queue for transmits, with or without FI_SEND";
        both enable_target:
            "an endpoint that only peers reach is enabled without a completion queue";
    }
}

const RIGHTS: Flags = Flags::REMOTE_READ.union(Flags::REMOTE_WRITE);
const STARTS: Flags = Flags::READ.union(Flags::WRITE);

fn spec(caps: Flags) -> Spec {
    Spec {
        caps,
        ..Spec::default()
    }
}

/// Both sides start reads and writes and are their target; neither sends.
fn no_sender() -> Spec {
    spec(Flags::RMA | STARTS | RIGHTS | Flags::RECV)
}

fn initiates_without_send(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &no_sender())?;
    let target = rig.expose(B, &[0; 64], RIGHTS)?;
    let write = Post::write(*b"written!", target.at(0, 8)).flags(Flags::DELIVERY_COMPLETE);
    rig.complete(A, write)?;
    rig.complete(A, Post::write(*b"plainly!", target.at(8, 8)))?;
    inject(&rig, target.at(16, 8))?;
    let found = rig.complete(A, Post::read(target.at(0, 24)))?.bufs.concat();
    ensure!(found == *b"written!plainly!injected", "{found:?} was read");
    rig.finish()
}

fn inject(rig: &Rig<'_>, to: Remote) -> Outcome {
    let inject = Inject {
        bytes: b"injected",
        tag: None,
        data: None,
        addr: rig.sides[A].peer,
    };
    let ep = rig.sides[A].ep;
    rig.retry("a full queue takes another inject", || {
        rig.s.inject_write(ep, inject, to)
    })
}

fn atomics_without_send(cx: &Cx<'_>) -> Outcome {
    let target = Flags::MSG | Flags::SEND | Flags::RECV | Flags::RMA | RIGHTS;
    for caps in [no_sender().caps, target] {
        atomics_start(cx, caps | Flags::ATOMIC)?;
    }
    Ok(())
}

fn atomics_start(cx: &Cx<'_>, caps: Flags) -> Outcome {
    let rig = Rig::open(cx, &spec(caps))?;
    let target = rig.expose(B, &5_u64.to_ne_bytes(), RIGHTS)?;
    let add = (Datatype::Uint64, AtomicOp::Sum);
    for (kind, was) in [(AtomicKind::Plain, None), (AtomicKind::Fetch, Some(6_u64))] {
        let operands: [&[u8]; 2] = [&1_u64.to_ne_bytes(), &[]];
        let post = Post::atomic(kind, add, operands, target.at(0, 8));
        let done = rig.complete(A, post)?;
        if let Some(was) = was {
            let found = done.bufs.last();
            ensure!(
                found.is_some_and(|found| found[..] == was.to_ne_bytes()),
                "{found:?} was fetched"
            );
        }
    }
    rig.holds(&target, &7_u64.to_ne_bytes())?;
    rig.finish()
}

fn target(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(
        cx,
        &spec(Flags::MSG | Flags::SEND | Flags::RECV | Flags::RMA | RIGHTS),
    )?;
    rig.exchange(A, B, b"messages go")?;
    let target = rig.expose(B, &[0; 8], RIGHTS)?;
    let write = Post::write(*b"written!", target.at(0, 8)).flags(Flags::DELIVERY_COMPLETE);
    rig.complete(A, write)?;
    let found = rig.complete(A, Post::read(target.at(0, 8)))?.bufs.concat();
    ensure!(found == *b"written!", "{found:?} was read");
    rig.exchange(B, A, b"and go on")?;
    rig.close()
}

/// An endpoint with these capabilities that has all but completion queues, and its domain.
fn bound<'a>(cx: &Cx<'a>, caps: Flags) -> Step<(Rig<'a>, Fid, Fid)> {
    let rig = bare(cx, &spec(caps))?;
    let domain = cx.s.domain(rig.fabric, &rig.info)?;
    let ep = cx.s.endpoint(domain, &rig.info)?;
    let other = match cx.is_rdm() {
        true => cx.s.av(domain, Spec::default().av)?,
        false => cx.s.eq(rig.fabric, WaitObj::None)?,
    };
    cx.s.bind(ep, other, Flags::empty())?;
    Ok((rig, domain, ep))
}

fn enable_initiator(cx: &Cx<'_>) -> Outcome {
    for receives in [Flags::empty(), Flags::RECV] {
        let (_rig, domain, ep) = bound(cx, Flags::RMA | STARTS | receives)?;
        let what = "enabling an initiator without a queue for transmits";
        refused(cx.s.enable(ep), &[Errno::ENOCQ], what)?;
        let cq = cx.s.cq(domain, CqAttr::default())?;
        cx.s.bind(ep, cq, Flags::SEND)?;
        cx.s.enable(ep)?;
    }
    Ok(())
}

fn enable_target(cx: &Cx<'_>) -> Outcome {
    let (_rig, _, ep) = bound(cx, Flags::RMA | RIGHTS)?;
    Ok(cx.s.enable(ep)?)
}
