//! Who sent it: `FI_SOURCE` and `FI_SOURCE_ERR`.

use ripstop_core::Address;
use ripstop_types::{AvType, Errno, FiAddr, Flags};

use crate::case::{Cx, Outcome, cases};
use crate::rig::{A, B, Rig, Spec};
use crate::subject::Post;
use crate::{ensure, ensure_eq};

cases! {
    pub(super) const CASES;
    fi_cq {
        rdm source: "with FI_SOURCE a receive tells the sender's address";
        rdm source_table: "the source of an index vector is the index";
        rdm source_reply: "the source can be answered";
        rdm source_unknown: "with FI_SOURCE alone an unknown sender is FI_ADDR_NOTAVAIL";
        rdm source_err: "with FI_SOURCE_ERR an unknown sender comes as an error with its address";
        rdm source_unexpected: "the source of a message that waited is known";
    }
}

fn spec() -> Spec {
    Spec::tagged().caps(Flags::SOURCE)
}

fn source(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    let got = rig.exchange(A, B, b"who")?;
    ensure!(got.src == rig.sides[B].peer, "the source is {:?}", got.src);
    let got = rig.deliver(Post::trecv(1, 0, 300_000), Post::tsend(1, vec![1; 300_000]))?;
    ensure_eq!(got.src, rig.sides[B].peer, "the source of a large one");
    rig.close()
}

fn source_table(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec().av_type(AvType::Table))?;
    ensure_eq!(rig.sides[B].peer, FiAddr(0), "the first index");
    let got = rig.exchange(A, B, b"who")?;
    ensure!(got.src == FiAddr(0), "the source is {:?}", got.src);
    rig.close()
}

fn source_reply(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    let got = rig.exchange(A, B, b"question")?;
    let recv = rig.post(A, Post::recv(16))?;
    rig.complete(B, Post::send(*b"answer").with(got.src))?;
    rig.done(A, recv)?.carries(b"answer")?;
    rig.close()
}

/// A rig whose B does not know A.
fn stranger<'a>(cx: &Cx<'a>, caps: Flags) -> crate::case::Step<Rig<'a>> {
    let rig = Rig::open(cx, &spec().caps(caps))?;
    let (Some(av), peer) = (rig.sides[B].av, rig.sides[B].peer) else {
        return Err(crate::case::Stop::fail("no address vector"));
    };
    rig.s.av_remove(av, &[peer])?;
    Ok(rig)
}

fn source_unknown(cx: &Cx<'_>) -> Outcome {
    // A provider that always has FI_SOURCE_ERR may report it all the same.
    let rig = stranger(cx, Flags::empty())?;
    let recv = rig.post(B, Post::recv(16))?;
    rig.complete(A, Post::send(*b"who"))?;
    match rig.end(B, recv)? {
        Ok(got) => {
            ensure!(got.src == FiAddr::NOTAVAIL, "the source is {:?}", got.src);
            got.carries(b"who")?;
        }
        Err(e) => {
            let offered = rig.info.caps.contains(Flags::SOURCE_ERR);
            ensure!(
                offered && e.err == Errno::EADDRNOTAVAIL,
                "failed: {}",
                e.err.name()
            );
        }
    }
    rig.close()
}

fn source_err(cx: &Cx<'_>) -> Outcome {
    let rig = stranger(cx, Flags::SOURCE_ERR)?;
    let recv = rig.post(B, Post::recv(16))?;
    rig.complete(A, Post::send(*b"who"))?;
    let error = rig.failed(B, recv)?;
    ensure_eq!(error.err, Errno::EADDRNOTAVAIL, "the error");
    ensure!(error.entry.len == 3, "the length is {}", error.entry.len);
    ensure!(error.entry.bytes() == b"who", "the message arrived damaged");
    let from = Address::from_bytes(rig.info.addr_format, &error.err_data);
    let from = from.map_err(|e| crate::case::Stop::fail(format!("err_data: {e}")))?;
    ensure!(
        Some(&from) == rig.sides[A].name.as_ref(),
        "err_data names {from}"
    );
    // Once inserted, the sender is known.
    let addr = rig.insert(B, Some(&from))?;
    let got = rig.exchange(A, B, b"now")?;
    ensure!(
        got.src == addr,
        "the source is {:?}, inserted as {addr:?}",
        got.src
    );
    rig.close()
}

fn source_unexpected(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    let send = rig.post(A, Post::tsend(1, *b"waits"))?;
    rig.pump_times(100)?;
    let got = rig.complete(B, Post::trecv(1, 0, 8))?;
    ensure!(got.src == rig.sides[B].peer, "the source is {:?}", got.src);
    rig.done(A, send)?;
    rig.close()
}
