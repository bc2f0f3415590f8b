//! Order, and many operations in flight.

use ripstop_types::MsgOrder;

use crate::case::{Cx, Outcome, cases};
use crate::rig::{A, B, Rig, Spec, pattern};
use crate::subject::Post;

cases! {
    pub(super) const CASES;
    fi_msg {
        both order: "messages fill buffers in the order both were posted";
        both order_mixed_sizes: "small messages do not overtake large ones";
        both order_inject: "injects and sends keep their order";
        both order_unexpected: "messages that waited are received in the order sent";
        both order_completions: "hundreds in flight both ways lose and repeat nothing";
    }
}

fn ordered() -> Spec {
    Spec::default().order(MsgOrder::SAS)
}

/// As many operations as the queues take, at most `count`.
fn fitting(rig: &Rig<'_>, count: usize) -> usize {
    count.min(rig.info.tx.size).min(rig.info.rx.size)
}

/// Posts `lens.len()` receives and sends, waits for all, and checks the pairing.
fn run(rig: &Rig<'_>, lens: &[usize], early: bool) -> Outcome {
    let room = lens.iter().copied().max().unwrap_or(0);
    let (mut recvs, mut sends) = (Vec::new(), Vec::new());
    if early {
        for _ in lens {
            recvs.push(rig.post(B, Post::recv(room))?);
        }
    }
    for (i, len) in lens.iter().enumerate() {
        sends.push(rig.post(A, Post::send(pattern(*len, i)))?);
    }
    if !early {
        for _ in lens {
            recvs.push(rig.post(B, Post::recv(room))?);
        }
    }
    for (i, (recv, len)) in recvs.into_iter().zip(lens).enumerate() {
        rig.done(B, recv)?.carries(pattern(*len, i))?;
    }
    rig.all_done(A, sends)?;
    rig.quiet()
}

fn order(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &ordered())?;
    run(&rig, &vec![40; fitting(&rig, 500)], true)?;
    rig.close()
}

fn order_mixed_sizes(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &ordered())?;
    let lens: Vec<_> = [100_000, 1, 5000, 0, 20_000, 64, 150, 300_000, 8]
        .into_iter()
        .cycle()
        .take(90)
        .collect();
    run(&rig, &lens, true)?;
    rig.close()
}

fn order_inject(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &ordered())?;
    let recvs = rig.post_all(B, (0..200).map(|_| Post::recv(9000)))?;
    let mut sends = Vec::new();
    for i in 0..200_usize {
        match i % 2 {
            0 => rig.inject(A, &pattern(16, i), None, None)?,
            _ => sends.push(rig.post(A, Post::send(pattern(9000, i)))?),
        }
    }
    for (i, recv) in recvs.into_iter().enumerate() {
        let len = if i % 2 == 0 { 16 } else { 9000 };
        rig.done(B, recv)?.carries(pattern(len, i))?;
    }
    rig.all_done(A, sends)?;
    rig.finish()
}

fn order_unexpected(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &ordered())?;
    rig.exchange(A, B, b"first")?;
    run(&rig, &[30; 200], false)?;
    let lens: Vec<_> = [1, 5000, 64, 20_000].into_iter().cycle().take(40).collect();
    run(&rig, &lens, false)?;
    rig.close()
}

fn order_completions(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &ordered())?;
    let mut open = Vec::new();
    for i in 0..fitting(&rig, 300) {
        for side in [A, B] {
            open.push((side, rig.post(side, Post::recv(100))?, Some(i)));
            let bytes = pattern(100, i + side);
            open.push((side, rig.post(side, Post::send(bytes))?, None));
        }
    }
    for (side, token, message) in open {
        let done = rig.done(side, token)?;
        if let Some(i) = message {
            let sent = pattern(100, i + (1 - side));
            done.carries(&sent)?;
        }
    }
    rig.finish()
}
