//! How long a large address vector takes: `cargo run --release --example av_scale [PEERS]`.

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use ripstop_core::av::AddressTable;
use ripstop_core::types::FiAddr;

fn peer(i: u64) -> SocketAddr {
    let port = 1024 + (i % 64) as u16;
    SocketAddr::from((Ipv4Addr::from_bits(0x0a00_0000 + (i / 64) as u32), port))
}

/// Runs `each` for all peers in a scattered order and prints the time of one.
fn time(what: &str, peers: u64, mut each: impl FnMut(u64)) {
    let start = Instant::now();
    for i in 0..peers {
        each(i.wrapping_mul(2_654_435_761) % peers);
    }
    let each = start.elapsed().as_secs_f64() * 1e9 / peers as f64;
    println!("{what:<24} {each:8.1} ns");
}

fn main() {
    let peers = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(1_000_000);
    let mut av = AddressTable::new();
    let start = Instant::now();
    for i in 0..peers {
        av.insert(&peer(i)).expect("memory for all peers");
    }
    println!("{peers} peers inserted in {:?}", start.elapsed());
    time("look up by index", peers, |i| {
        black_box(av.lookup(FiAddr(black_box(i))));
    });
    let start = Instant::now();
    for i in 0..peers {
        black_box(av.lookup(FiAddr(black_box(i))));
    }
    println!(
        "look up in order         {:8.1} ns",
        start.elapsed().as_secs_f64() * 1e9 / peers as f64
    );
    time("find by address", peers, |i| {
        black_box(av.find(black_box(&peer(i))));
    });
    let start = Instant::now();
    for i in 0..peers {
        av.remove(FiAddr(i)).expect("a peer");
    }
    println!("{peers} peers removed in {:?}", start.elapsed());
}
