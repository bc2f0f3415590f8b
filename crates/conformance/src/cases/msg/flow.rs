//! Full queues and floods.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ripstop_types::{Errno, Protocol};

use crate::case::{Cx, Outcome, Stop, cases};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, pattern};
use crate::subject::{Post, Token};

cases! {
    pub(super) const CASES;
    fi_msg {
        both many_receives:
            "receives beyond the size of the context are taken, or said FI_EAGAIN until some are done",
                within(30);
        both send_queue_full: "a full transmit queue says FI_EAGAIN and recovers";
        both flood:
            "a flood of unexpected messages is held back, not lost, and memory stays bounded",
                within(30);
        both flood_large: "a flood of unexpected large messages is held back, not lost", within(30);
    }
}

fn many_receives(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().rx_size(16))?;
    rig.exchange(A, B, b"first")?;
    let size = rig.info.rx.size;
    let (mut recvs, mut sent) = (VecDeque::new(), 0_usize);
    for posted in 0..5000 {
        let token = loop {
            match rig.try_post(B, Post::recv(8)) {
                Ok(token) => break token,
                Err(e) if e.is(Errno::EAGAIN) => {}
                Err(e) => return Err(e.into()),
            }
            ensure!(
                recvs.len() >= size,
                "full with {} of {size} receives, after {posted}",
                recvs.len()
            );
            // One that is done makes room for another.
            one(&rig, &mut recvs, &mut sent)?;
        };
        recvs.push_back(token);
    }
    while !recvs.is_empty() {
        one(&rig, &mut recvs, &mut sent)?;
    }
    rig.finish()
}

/// Sends a message to the oldest receive.
fn one(rig: &Rig<'_>, recvs: &mut VecDeque<Token>, sent: &mut usize) -> Outcome {
    rig.complete(A, Post::send(sent.to_le_bytes()))?;
    let recv = recvs.pop_front().ok_or_else(|| Stop::fail("no receive"))?;
    rig.arrives(recv, sent.to_le_bytes())?;
    *sent += 1;
    Ok(())
}

/// What lies between two endpoints at most, in bytes, where payloads leave before a receive is posted: the messages that
/// a receiver keeps (`FI_TCP_MAX_SAVED_BYTES`, 64 MiB by default), and the buffers of both sockets (a Linux of 2026 lets
/// them grow to 32 MiB and 4 MiB, `net.ipv4.tcp_rmem` and `tcp_wmem`).
const IN_BETWEEN: usize = (64 + 32 + 4) << 20;

fn send_queue_full(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().tx_size(16))?;
    rig.exchange(A, B, b"first")?;
    let len = 40_000;
    // The queue may hold more than was asked for: as many as without asking, which nowhere is more than 2,048.
    let most = rig.info.tx.size.max(2048) + IN_BETWEEN / len;
    let mut sends = Vec::new();
    // Nobody receives, so a queue fills in the end, the transmit queue at the latest.
    loop {
        match rig.try_post(A, Post::send(pattern(len, sends.len()))) {
            Ok(token) => sends.push(token),
            Err(e) if e.is(Errno::EAGAIN) => break,
            Err(e) => return Err(e.into()),
        }
        // Only a provider whose receiver fetches payloads from the sender's memory takes more: it announces as many as its
        // protocol can name, shm 65,280, for which there is no memory here, the less in a guest. What then happens is
        // tested without payloads, in engine/stream/tests/get.rs.
        if sends.len() > most {
            break;
        }
    }
    for i in 0..sends.len() {
        rig.complete(B, Post::recv(len))?.carries(pattern(len, i))?;
    }
    rig.all_done(A, sends)?;
    rig.exchange(A, B, b"after")?;
    rig.finish()
}

/// What is kept of a message beside its payload, in bytes: this test's token and operation, the completion that it has not
/// read, the record of a receiver that keeps it. Where sockets grow to 32 MiB, 400,000 messages of 64 B are sent, with which
/// resident memory grows by 680 B each, payloads and buffers in it.
const BESIDE_PAYLOAD: usize = 512;

/// Sends until nothing more is taken for a while, and at most `most` messages; then receives
/// all.
fn hold_back(cx: &Cx<'_>, len: usize, most: usize) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    if len > 16 << 10 && rig.info.ep.protocol == Protocol::Rxm {
        // They are announced, see `send_queue_full`.
        return Err(Stop::not_offered("long messages wait at their sender"));
    }
    rig.exchange(A, B, b"first")?;
    let before = resident();
    let mut sends = Vec::new();
    let mut since = Instant::now();
    while sends.len() < most && since.elapsed() < Duration::from_millis(300) {
        match rig.try_post(A, Post::send(pattern(len, sends.len()))) {
            Ok(token) => {
                sends.push(token);
                since = Instant::now();
            }
            Err(e) if e.is(Errno::EAGAIN) => rig.pump()?,
            Err(e) => return Err(e.into()),
        }
    }
    let grown = resident().saturating_sub(before);
    // What is in flight may be kept once by this test, once by each side, and then some.
    let bound = (256 << 20).max(sends.len() * (len * 2 + BESIDE_PAYLOAD) + (64 << 20));
    ensure!(
        grown < bound,
        "{} messages of {len} B grew memory by {grown} B",
        sends.len()
    );
    if sends.len() == most {
        return Err(Stop::fail(format!(
            "{most} messages of {len} B were taken and none held back"
        )));
    }
    for i in 0..sends.len() {
        rig.complete(B, Post::recv(len))?.carries(pattern(len, i))?;
    }
    rig.all_done(A, sends)?;
    rig.exchange(A, B, b"after")?;
    rig.finish()
}

/// Resident memory of this process in bytes; 0 where the system does not say.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split(' ').nth(1).and_then(|p| p.parse().ok());
    pages.unwrap_or(0_usize) * 4096
}

fn flood(cx: &Cx<'_>) -> Outcome {
    hold_back(cx, 64, 1 << 20)
}

fn flood_large(cx: &Cx<'_>) -> Outcome {
    hold_back(cx, 100_000, 20_000)
}
