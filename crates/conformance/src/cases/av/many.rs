//! Many peers.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use ripstop_core::Address;
use ripstop_types::{AvType, FiAddr};

use crate::case::{Case, Cx, Outcome};
use crate::ensure;

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

fn peer(i: u32) -> Address {
    let ip = Ipv4Addr::from(0x0a00_0000 + i / 100);
    let port = 1000 + u16::try_from(i % 100).unwrap_or(0);
    Address::Ip(SocketAddr::new(ip.into(), port))
}

fn many(cx: &Cx<'_>) -> Outcome {
    let count = 100_000;
    for av_type in [AvType::Table, AvType::Map] {
        let av = super::open(cx, av_type)?;
        let addrs: Vec<_> = (0..count).map(peer).collect();
        let start = Instant::now();
        let mut found = Vec::new();
        for part in addrs.chunks(10_000) {
            found.extend(cx.s.av_insert(av, part)?);
        }
        let took = start.elapsed();
        ensure!(
            took < Duration::from_secs(4),
            "inserting {count} took {took:?}"
        );
        for i in (0..count).step_by(997) {
            super::finds(cx, av, found[i as usize], &peer(i))?;
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
    let av = super::open(cx, AvType::Table)?;
    let addrs: Vec<_> = (0..1000).map(peer).collect();
    for _ in 0..20 {
        let found = cx.s.av_insert(av, &addrs)?;
        let last = found.iter().map(|a| a.0).max();
        ensure!(last == Some(999), "the highest index is {last:?}");
        cx.s.av_remove(av, &found)?;
    }
    Ok(())
}
