//! `fi_cq`(3) and `fi_poll`(3): reading and waiting. Completion levels are with messages.

mod source;
mod wait;

use ripstop_types::{CqFormat, Errno, Flags};

use crate::case::{Case, Cx, Outcome, Step, cases, flagged, in_use, ready, refused};
use crate::rig::{A, B, Rig, Spec, offer, pattern};
use crate::subject::{CqAttr, Post, Token};
use crate::{ensure, ensure_eq};

pub(super) fn cases() -> Vec<Case> {
    [OWN, source::CASES, wait::CASES].concat()
}

cases! {
    const OWN;
    fi_cq {
        both empty: "an empty queue says FI_EAGAIN, to read and to readerr";
        both count: "a read gives no more entries than asked for, in order";
        both count_zero: "a read of no entries makes progress and takes nothing";
        both format_context: "format CONTEXT tells the operation";
        both format_msg: "format MSG tells flags and length";
        both format_data: "format DATA tells the CQ data";
        both format_tagged: "format TAGGED tells the tag";
        both overflow: "a queue smaller than what completes loses nothing";
        both overflow_errors: "a small queue loses no errors either";
        both shared: "two endpoints report to one queue";
        both split: "transmits and receives report to queues of their own";
        both error_first: "an error is announced with FI_EAVAIL and read with readerr";
        both strerror: "the provider's error codes have words";
        both busy: "a bound queue does not close";
        both sizes: "queues of any reasonable size open";
        both completions_outlive_endpoint:
            "what completed before the endpoint closed may be read or dropped, not crash";
    }
}

fn empty(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let cq = rig.sides[A].cq;
    refused(
        rig.s.cq_read(cq, 1),
        &[Errno::EAGAIN],
        "reading an empty queue",
    )?;
    refused(
        rig.s.cq_readerr(cq),
        &[Errno::EAGAIN],
        "reading an error that is not there",
    )?;
    rig.close()
}

fn count(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let recvs = rig.post_all(B, (0..10).map(|_| Post::recv(8)))?;
    let sends = rig.post_all(A, (0..10_u8).map(|i| Post::send([i])))?;
    for send in sends {
        rig.sent(A, send)?;
    }
    let mut seen = Vec::new();
    for max in [1, 3, 5, 16] {
        let read = rig.watch("completions", || ready(rig.s.cq_read(rig.sides[B].cq, max)))?;
        ensure!(
            read.len() <= max,
            "{} entries where {max} were asked for",
            read.len()
        );
        seen.extend(read.into_iter().filter_map(|c| c.token));
        if seen.len() == 10 {
            break;
        }
    }
    ensure!(seen == recvs, "order of {seen:?}, posted {recvs:?}");
    Ok(())
}

fn count_zero(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().two_domains(true))?;
    rig.exchange(A, B, b"first")?;
    // The second has to come while an entry of the first waits.
    for _ in 0..2 {
        rig.post(B, Post::recv(8))?;
        let send = rig.post(A, Post::send(*b"zero"))?;
        // A device, which moves messages by itself, has this one there by then.
        rig.sent(A, send)?;
        for _ in 0..200 {
            rig.nudge()?;
        }
    }
    let read = cx.s.cq_read(rig.sides[B].cq, 8)?;
    ensure!(read.len() == 2, "{} entries wait", read.len());
    rig.close()
}

fn format_context(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().format(CqFormat::Context))?;
    for i in 0..20 {
        // The tokens tell that each operation ended once.
        rig.deliver(Post::recv(300), Post::send(pattern(10 * i, i)))?;
    }
    rig.finish()
}

fn format_msg(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().format(CqFormat::Msg))?;
    let got = rig.exchange(A, B, &pattern(77, 1))?;
    ensure!(got.len == 77, "the length is {}", got.len);
    flagged(got.flags, Flags::RECV, "the completion")?;
    rig.close()
}

fn format_data(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().format(CqFormat::Data))?;
    let got = rig.deliver(Post::recv(8), Post::send(*b"data").data(5))?;
    ensure!(
        got.data == 5 && got.len == 4,
        "data {}, length {}",
        got.data,
        got.len
    );
    rig.close()
}

fn format_tagged(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged().format(CqFormat::Tagged))?;
    let got = rig.deliver(
        Post::trecv(0, u64::MAX, 8),
        Post::tsend(31, *b"tag").data(6),
    )?;
    ensure!(
        got.tag == 31 && got.data == 6,
        "tag {}, data {}",
        got.tag,
        got.data
    );
    rig.close()
}

fn overflow(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().cq_size(4))?;
    let count = 100.min(rig.info.tx.size).min(rig.info.rx.size);
    let (mut recvs, mut sends) = (Vec::new(), Vec::new());
    for _ in 0..count {
        recvs.push(rig.post(B, Post::recv(8))?);
    }
    for i in 0..count {
        // Without progress of ours between them, as far as the library lets us.
        sends.push(rig.post(A, Post::send(i.to_le_bytes()))?);
    }
    for (i, recv) in recvs.into_iter().enumerate() {
        rig.arrives(recv, i.to_le_bytes())?;
    }
    rig.all_done(A, sends)?;
    rig.finish()
}

fn overflow_errors(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().cq_size(4))?;
    rig.exchange(A, B, b"first")?;
    let count = 30;
    let (mut recvs, mut sends) = (Vec::new(), Vec::new());
    for i in 0..count {
        recvs.push(rig.post(B, Post::recv(if i % 2 == 0 { 8 } else { 2 }))?);
    }
    for _ in 0..count {
        sends.push(rig.post(A, Post::send(*b"12345678"))?);
    }
    for (i, recv) in recvs.into_iter().enumerate() {
        match rig.end(B, recv)? {
            Ok(_) => ensure!(i % 2 == 0, "message {i} was not cut off"),
            Err(e) => ensure!(i % 2 == 1, "message {i} failed: {}", e.err.name()),
        }
    }
    rig.all_done(A, sends)?;
    rig.finish()
}

fn shared(cx: &Cx<'_>) -> Outcome {
    let spec = Spec {
        one_cq: true,
        ..Spec::default()
    };
    let rig = Rig::open(cx, &spec)?;
    ensure!(
        rig.sides[A].cq == rig.sides[B].cq,
        "the suite opened two queues"
    );
    for i in 0..20 {
        // All completions are found at A, whose queue it is.
        let recv = rig.post(B, Post::recv(100))?;
        rig.complete(A, Post::send(pattern(i, i)))?;
        rig.done(A, recv)?.carries(pattern(i, i))?;
    }
    rig.finish()
}

fn split(cx: &Cx<'_>) -> Outcome {
    let spec = Spec {
        split_cq: true,
        ..Spec::default()
    };
    let rig = Rig::open(cx, &spec)?;
    rig.exchange(A, B, b"first")?;
    let recv = rig.post(B, Post::recv(8))?;
    let send = rig.post(A, Post::send(*b"split"))?;
    let sent = wait_on(&rig, rig.sides[A].cq, rig.sides[B].rx_cq)?;
    ensure!(sent.0 == Some(send), "the transmit queue has {:?}", sent.0);
    ensure!(sent.1 == Some(recv), "the receive queue has {:?}", sent.1);
    rig.finish()
}

/// One completion of each of two queues, reading all others for progress only.
fn wait_on(
    rig: &Rig<'_>,
    one: crate::subject::Fid,
    two: crate::subject::Fid,
) -> crate::case::Step<(Option<u64>, Option<u64>)> {
    let mut found = (None, None);
    let read = |cq| -> Step<Option<Token>> {
        let read = ready(rig.s.cq_read(cq, 1))?;
        Ok(read.and_then(|mut read| read.pop()?.token))
    };
    rig.watch("a completion on each queue", || {
        found.0 = found.0.or(read(one)?);
        found.1 = found.1.or(read(two)?);
        Ok((found.0.is_some() && found.1.is_some()).then_some(found))
    })
}

fn error_first(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    rig.exchange(A, B, b"first")?;
    let recv = rig.post(B, Post::recv(1))?;
    let send = rig.post(A, Post::send(*b"too long"))?;
    let cq = rig.sides[B].cq;
    rig.sent(A, send)?;
    let error = rig.watch("FI_EAVAIL", || match rig.s.cq_read(cq, 1) {
        Err(e) if e.is(Errno::EAVAIL) => Ok(Some(rig.s.cq_readerr(cq)?)),
        Err(e) if e.is(Errno::EAGAIN) => Ok(None),
        Err(e) => Err(e.into()),
        Ok(read) => Err(crate::case::Stop::fail(format!(
            "a success: {:?}",
            read[0].flags
        ))),
    })?;
    ensure!(
        error.entry.token == Some(recv),
        "the error is of {:?}",
        error.entry.token
    );
    ensure_eq!(error.err, Errno::ETRUNC, "the error");
    refused(
        rig.s.cq_readerr(cq),
        &[Errno::EAGAIN],
        "reading the error again",
    )?;
    rig.exchange(A, B, b"after")?;
    Ok(())
}

fn strerror(cx: &Cx<'_>) -> Outcome {
    let edge = super::c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    let recv = rig.post(B, Post::recv(1))?;
    rig.post(A, Post::send(*b"too long"))?;
    let error = rig.failed(B, recv)?;
    let text = edge.cq_strerror(rig.sides[B].cq, error.prov_errno)?;
    ensure!(
        !text.is_empty(),
        "no words for provider code {}",
        error.prov_errno
    );
    Ok(())
}

fn busy(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    in_use(rig.s.close(rig.sides[A].cq), "a bound queue")?;
    rig.exchange(A, B, b"still open")?;
    rig.close()
}

fn sizes(cx: &Cx<'_>) -> Outcome {
    let info = offer(cx, &Spec::default())?;
    let s = cx.s;
    let fabric = s.fabric(&info)?;
    let domain = s.domain(fabric, &info)?;
    // Mercury opens queues of 131072.
    for size in [0, 1, 3, 1000, 131_072] {
        let attr = CqAttr {
            size,
            ..CqAttr::default()
        };
        let cq = s.cq(domain, attr)?;
        s.close(cq)?;
    }
    Ok(())
}

fn completions_outlive_endpoint(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let recv = rig.post(B, Post::recv(8))?;
    let pending = rig.post(B, Post::recv(8))?;
    rig.complete(A, Post::send(*b"last"))?;
    rig.done(B, recv)?;
    for i in 0..3_u8 {
        rig.post(A, Post::send([i]))?;
    }
    rig.s.close(rig.sides[B].ep)?;
    for _ in 0..50 {
        match rig.s.cq_read(rig.sides[B].cq, 16) {
            Ok(read) => {
                let other = read.iter().find(|c| c.token != Some(pending));
                ensure!(other.is_none(), "a completion nobody posted: {other:?}");
            }
            Err(e) if e.is(Errno::EAGAIN) => {}
            Err(e) if e.is(Errno::EAVAIL) => drop(rig.s.cq_readerr(rig.sides[B].cq)?),
            Err(e) => return Err(e.into()),
        }
    }
    rig.s.close(rig.sides[B].cq)?;
    Ok(())
}
