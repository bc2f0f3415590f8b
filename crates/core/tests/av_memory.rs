//! What a large address vector costs: bytes at rest and at the peak, counted by the
//! allocator. Times are printed by `cargo run --release --example av_scale`.

use std::net::{Ipv4Addr, SocketAddr};

use peak_alloc::PeakAlloc;
use ripstop_core::av::AddressTable;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

const PEERS: usize = 1_000_000;

/// Bytes that a peer may take, index by address included.
const LIMIT: usize = 40;

fn peer(i: usize) -> SocketAddr {
    let port = 1024 + (i % 64) as u16;
    SocketAddr::from((Ipv4Addr::from_bits(0x0a00_0000 + (i / 64) as u32), port))
}

#[test]
fn a_million_peers_stay_within_the_limit_while_growing() {
    ALLOCATED.reset_peak_usage();
    let before = ALLOCATED.current_usage();
    let mut av = AddressTable::new();
    for i in 0..PEERS {
        av.insert(&peer(i)).unwrap();
    }
    let at_rest = (ALLOCATED.current_usage() - before) / PEERS;
    let at_peak = (ALLOCATED.peak_usage() - before) / PEERS;
    assert!(at_rest <= LIMIT, "{at_rest} bytes a peer");
    assert!(at_peak <= LIMIT, "{at_peak} bytes a peer while growing");
    assert!(
        at_rest <= 20,
        "{at_rest} bytes a peer, more than the table and its index need"
    );
}
