//! Many peers.

use std::time::{Duration, Instant};

use ripstop_types::{AvType, FiAddr};

use crate::case::{Cx, Outcome, Step, cases};
use crate::{ensure, ensure_eq};

cases! {
    pub(super) const CASES;
    fi_av {
        rdm many: "a hundred thousand peers are inserted and found, the last as fast as the first";
        rdm many_removed:
            "a vector that is filled and emptied again and again does not grow out of bounds";
    }
}

fn many(cx: &Cx<'_>) -> Outcome {
    let count = 100_000;
    for av_type in [AvType::Table, AvType::Map] {
        let vector = super::open(cx, av_type)?;
        let av = vector.av;
        let addrs = (0..count).map(|i| vector.peer(i));
        let addrs = addrs.collect::<Step<Vec<_>>>()?;
        let mut found = Vec::new();
        let mut took = Vec::new();
        for part in addrs.chunks(500) {
            let start = Instant::now();
            found.extend(cx.s.av_insert(av, part)?);
            took.push(start.elapsed());
        }
        // The best of ten parts, which nobody has disturbed. One that looks at all that are there
        // takes a hundred times as long in the end.
        let best = |parts: &[Duration]| parts.iter().min().copied().unwrap_or_default();
        let (first, last) = (best(&took[..10]), best(&took[took.len() - 10..]));
        ensure!(
            last < 20 * first,
            "500 peers took {first:?} at first, {last:?} with {count} there"
        );
        for i in (0..count).step_by(997) {
            super::finds(cx, av, found[i], &addrs[i])?;
        }
        if av_type == AvType::Table {
            ensure_eq!(found[99_999], FiAddr(99_999), "the last index");
        }
    }
    Ok(())
}

fn many_removed(cx: &Cx<'_>) -> Outcome {
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
