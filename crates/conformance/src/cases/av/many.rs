//! Many peers.

use std::time::{Duration, Instant};

use ripstop_types::{AvType, FiAddr};

use crate::case::{Case, Cx, Outcome, Step};
use crate::ensure;
use crate::pace::bound;

pub(super) const CASES: &[Case] = &[
    Case::rdm(
        "fi_av/many",
        "a hundred thousand peers are inserted and found",
        many,
    ),
    Case::rdm(
        "fi_av/many_removed",
        "a vector that is filled and emptied again and again does not grow out of bounds",
        refill,
    ),
];

fn many(cx: &Cx<'_>) -> Outcome {
    let count = 100_000;
    for av_type in [AvType::Table, AvType::Map] {
        let vector = super::open(cx, av_type)?;
        let av = vector.av;
        let addrs = (0..count).map(|i| vector.peer(i));
        let addrs = addrs.collect::<Step<Vec<_>>>()?;
        let start = Instant::now();
        let mut found = Vec::new();
        for part in addrs.chunks(10_000) {
            found.extend(cx.s.av_insert(av, part)?);
        }
        let took = start.elapsed();
        ensure!(
            took < bound(Duration::from_secs(4)),
            "inserting {count} took {took:?}"
        );
        for i in (0..count).step_by(997) {
            super::finds(cx, av, found[i], &addrs[i])?;
        }
        if av_type == AvType::Table {
            ensure!(
                found[99_999] == FiAddr(99_999),
                "the last index is {:?}",
                found[99_999]
            );
        }
    }
    Ok(())
}

fn refill(cx: &Cx<'_>) -> Outcome {
    let vector = super::open(cx, AvType::Table)?;
    let av = vector.av;
    let addrs = (0..1000).map(|i| vector.peer(i));
    let addrs = addrs.collect::<Step<Vec<_>>>()?;
    for _ in 0..20 {
        let found = cx.s.av_insert(av, &addrs)?;
        let last = found.iter().map(|a| a.0).max();
        ensure!(last == Some(999), "the highest index is {last:?}");
        cx.s.av_remove(av, &found)?;
    }
    Ok(())
}
