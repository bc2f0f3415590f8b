//! Peers for an address vector, and how much a process has grown.

use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::{Context as _, Result};

/// Peers that one call inserts.
pub(super) const CHUNK: usize = 4096;

/// Peer number `n`, with an address of its own. Nobody is contacted.
pub(super) fn peer(n: u32) -> SocketAddrV4 {
    let host = u32::from(Ipv4Addr::new(10, 0, 0, 1)) + n / 16;
    SocketAddrV4::new(host.into(), 10_000 + (n % 16) as u16)
}

/// Bytes of memory that this process has in use.
///
/// # Errors
/// Where there is no `/proc`.
pub fn resident() -> Result<u64> {
    let path = "/proc/self/statm";
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.with_context(|| format!("{path} has no second number"))?;
    Ok(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_distinct() {
        let mut all: Vec<_> = (0..100_000).map(peer).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 100_000);
    }

    #[test]
    fn memory_in_use_is_seen() {
        let before = resident().expect("Linux");
        let memory = vec![1_u8; 64 << 20];
        let after = resident().expect("Linux");
        assert!(memory.iter().all(|&byte| byte == 1));
        assert!(after >= before + (60 << 20), "{before} {after}");
    }
}
