//! Five sides that all talk with each other, and with themselves.

use ripstop_types::{AtomicKind, AtomicOp, Datatype, Flags};

use crate::case::{Cx, Outcome, Step, cases};
use crate::ensure;
use crate::rig::{A, Mesh, Spec, Target, pattern};
use crate::subject::{Inject, Post};

cases! {
    pub(super) const CASES;
    fi_msg {
        rdm five_sides:
            "messages of five sides to each other arrive once, and those of each in order";
    }
    fi_tagged {
        rdm five_sides:
            "tagged messages of five sides to each other go to their buffers, early and late"
                = tagged;
    }
    fi_msg {
        rdm five_sides_inject:
            "messages that five sides inject to each other before they have met all arrive";
    }
    fi_rma {
        rdm five_sides: "five sides write to each other's memory and read it" = memory;
    }
    fi_atomic {
        rdm five_sides:
            "of the additions that five sides make to words of each other none is lost" = atomics;
    }
    fi_endpoint {
        rdm five_sides_four: "one of five sides leaves, and the others go on";
    }
}

const SIDES: usize = 5;

/// The pairs, each side with itself included; in another order each round.
fn pairs(round: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..SIDES * SIDES).map(move |at| {
        let at = (at * 7 + round * 3) % (SIDES * SIDES);
        (at / SIDES, at % SIDES)
    })
}

/// A message that says who sent it to whom as which.
fn letter(len: usize, from: usize, to: usize, number: usize) -> Vec<u8> {
    let mut bytes = pattern(len.max(3), from * 1000 + to * 100 + number);
    for (byte, part) in bytes.iter_mut().zip([from, to, number]) {
        *byte = u8::try_from(part).unwrap_or(u8::MAX);
    }
    bytes
}

const LENGTHS: [usize; 6] = [3, 300, 5_000, 70_000, 17, 700_000];

fn five_sides(cx: &Cx<'_>) -> Outcome {
    let Mesh { rig, names } = Mesh::open(cx, &Spec::default(), SIDES)?;
    let longest = LENGTHS.into_iter().max().unwrap_or_default();
    let mut sends = Vec::new();
    for (number, len) in LENGTHS.into_iter().enumerate() {
        for (from, to) in pairs(number) {
            let post = Post::send(letter(len, from, to, number)).with(names[from][to]);
            sends.push((from, rig.post(from, post)?));
        }
    }
    for (to, _) in rig.sides.iter().enumerate() {
        let mut next = [0; SIDES];
        for _ in 0..SIDES * LENGTHS.len() {
            let got = rig.complete(to, Post::recv(longest))?.bytes();
            let from = usize::from(got.first().copied().unwrap_or(u8::MAX));
            ensure!(from < SIDES, "{to} got a message of nobody");
            let number = next[from];
            next[from] += 1;
            let len = LENGTHS.get(number).copied().unwrap_or_default();
            ensure!(
                got == letter(len, from, to, number),
                "message {number} from {from} to {to}: another one, or damaged"
            );
        }
    }
    for (from, send) in sends {
        rig.done(from, send)?;
    }
    rig.finish()
}

fn tagged(cx: &Cx<'_>) -> Outcome {
    let Mesh { rig, names } = Mesh::open(cx, &Spec::tagged(), SIDES)?;
    for (round, len) in LENGTHS.into_iter().enumerate() {
        let mut open = Vec::new();
        for (from, to) in pairs(round) {
            // Half of them find their buffers.
            let early = match (from + to + round) % 2 {
                0 => Some(rig.post(to, Post::trecv(from as u64, 0, len))?),
                _ => None,
            };
            let bytes = letter(len, from, to, round);
            let post = Post::tsend(from as u64, &bytes[..]).with(names[from][to]);
            open.push((from, to, rig.post(from, post)?, early, bytes));
        }
        for (from, to, send, early, bytes) in open {
            let recv = match early {
                Some(recv) => recv,
                None => rig.post(to, Post::trecv(from as u64, 0, len))?,
            };
            rig.done(to, recv)?.carries(&bytes)?;
            rig.done(from, send)?;
        }
    }
    rig.finish()
}

fn five_sides_inject(cx: &Cx<'_>) -> Outcome {
    const EACH: usize = 20;
    let Mesh { rig, names } = Mesh::open(cx, &Spec::tagged(), SIDES)?;
    for number in 0..EACH {
        for (from, to) in pairs(number) {
            let bytes = letter(40, from, to, number);
            let inject = Inject {
                bytes: &bytes,
                tag: Some(from as u64),
                data: None,
                addr: names[from][to],
            };
            let ep = rig.sides[from].ep;
            rig.retry("a full queue takes another inject", || {
                rig.s.inject(ep, inject)
            })?;
        }
    }
    for number in 0..EACH {
        for (from, to) in pairs(number) {
            rig.complete(to, Post::trecv(from as u64, 0, 64))?
                .carries(letter(40, from, to, number))?;
        }
    }
    rig.finish()
}

/// Memory of each side with a part for each other one.
fn exposed(mesh: &Mesh<'_>, bytes: &[u8]) -> Step<Vec<Target>> {
    let access = Flags::REMOTE_READ | Flags::REMOTE_WRITE;
    let sides = 0..mesh.rig.sides.len();
    sides
        .map(|side| mesh.rig.expose(side, bytes, access))
        .collect()
}

fn memory(cx: &Cx<'_>) -> Outcome {
    let mesh = Mesh::open(cx, &Spec::rma(), SIDES)?;
    for (round, len) in LENGTHS.into_iter().enumerate() {
        let targets = exposed(&mesh, &vec![0; len * SIDES])?;
        let Mesh { rig, names } = &mesh;
        let mut open = Vec::new();
        for (from, to) in pairs(round) {
            let place = targets[to].at(from * len, len);
            let write = Post::write(letter(len, from, to, round), place)
                .with(names[from][to])
                .flags(Flags::DELIVERY_COMPLETE);
            open.push((from, rig.post(from, write)?));
        }
        for (from, write) in open {
            rig.done(from, write)?;
        }
        for (to, target) in targets.iter().enumerate() {
            let parts = (0..SIDES).map(|from| letter(len, from, to, round));
            let found = rig.s.memory_read(target.memory)?;
            ensure!(
                found == parts.collect::<Vec<_>>().concat(),
                "the memory of {to} has other bytes"
            );
        }
        // Each reads what its neighbour wrote.
        let mut open = Vec::new();
        for (by, at) in pairs(round + 1) {
            let from = (by + 1) % SIDES;
            let read = Post::read(targets[at].at(from * len, len)).with(names[by][at]);
            open.push((by, at, from, rig.post(by, read)?));
        }
        for (by, at, from, read) in open {
            let found = rig.done(by, read)?.bufs.concat();
            ensure!(
                found == letter(len, from, at, round),
                "{by} has read other bytes at {at}"
            );
        }
        for target in &targets {
            rig.revoke(target)?;
        }
    }
    mesh.rig.quiet()?;
    mesh.rig.close()
}

fn atomics(cx: &Cx<'_>) -> Outcome {
    const EACH: u64 = 20;
    let mesh = Mesh::open(cx, &Spec::rma().caps(Flags::ATOMIC), SIDES)?;
    let targets = exposed(&mesh, &0_u64.to_ne_bytes())?;
    let Mesh { rig, names } = mesh;
    let mut open = Vec::new();
    for round in 0..usize::try_from(EACH).unwrap_or_default() {
        for (from, to) in pairs(round) {
            let add = Post::atomic(
                AtomicKind::Fetch,
                (Datatype::Uint64, AtomicOp::Sum),
                [&1_u64.to_ne_bytes(), &[]],
                targets[to].at(0, 8),
            );
            let add = rig.post(from, add.with(names[from][to]))?;
            open.push((from, to, add));
        }
    }
    let mut fetched = vec![Vec::new(); SIDES];
    for (from, to, add) in open {
        let done = rig.done(from, add)?;
        let bytes = done.bufs.last().and_then(|b| b[..].try_into().ok());
        fetched[to].extend(bytes.map(u64::from_ne_bytes));
    }
    for (to, fetched) in fetched.iter_mut().enumerate() {
        fetched.sort_unstable();
        let all = 0..EACH * SIDES as u64;
        ensure!(
            fetched.iter().copied().eq(all),
            "some value of {to} was fetched twice"
        );
        rig.holds(&targets[to], &(EACH * SIDES as u64).to_ne_bytes())?;
    }
    rig.finish()
}

fn five_sides_four(cx: &Cx<'_>) -> Outcome {
    let Mesh { rig, names } = Mesh::open(cx, &Spec::tagged(), SIDES)?;
    let talk = |round: usize, left: usize| -> Outcome {
        let mut open = Vec::new();
        for (from, to) in pairs(round).filter(|(a, b)| *a != left && *b != left) {
            let bytes = letter(400, from, to, round);
            let recv = rig.post(to, Post::trecv(from as u64, 0, 400))?;
            let post = Post::tsend(from as u64, &bytes[..]).with(names[from][to]);
            open.push((from, rig.post(from, post)?, to, recv, bytes));
        }
        for (from, send, to, recv, bytes) in open {
            rig.done(from, send)?;
            rig.done(to, recv)?.carries(&bytes)?;
        }
        Ok(())
    };
    talk(0, SIDES)?;
    let last = SIDES - 1;
    rig.s.close(rig.sides[last].ep)?;
    for round in 1..10 {
        talk(round, last)?;
        // What goes to the one that has left may fail; nothing else may.
        let lost = Post::tsend(1, *b"lost").with(names[A][last]);
        let _ = rig.try_post(A, lost);
    }
    Ok(())
}
