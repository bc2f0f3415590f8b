//! What this machine can do without a library: plain programs over loopback sockets, through memory
//! that two processes share, and by cross-memory attach. No provider over these can be much faster.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::protocol::{BATCH, Kind, Side, Test};

mod memory;
mod sockets;

pub(super) use memory::Memory;
pub(super) use sockets::Sockets;

/// How long the other process may do nothing.
const PATIENCE: Duration = Duration::from_secs(20);
/// Turns in vain between two looks at the clock.
const GLANCE: u32 = 1 << 16;

/// One of the two processes.
pub(super) trait Bare {
    /// What the other one must know to reach it.
    fn address(&self) -> Result<Vec<u8>>;
    /// Reaches the other one.
    fn meet(&mut self, peer: &[u8]) -> Result<()>;
    /// This side's part of so many messages or operations; `false` where the machine does not let
    /// processes do that.
    fn exchange(&mut self, side: Side, test: Test, count: u32) -> Result<bool>;
}

/// Takes a sample as [`lane::take`](super::lane::take) does; no time at all is for what this machine
/// does not let processes do.
pub(super) fn take<B: Bare>(bare: &mut B, side: Side, test: Test) -> Result<Duration> {
    let before = match test.kind {
        Kind::Latency | Kind::Exchange => test.count / 10 + 10,
        _ => BATCH,
    };
    if !bare.exchange(side, test, before)? {
        return Ok(Duration::ZERO);
    }
    let start = Instant::now();
    bare.exchange(side, test, test.count)?;
    Ok(start.elapsed())
}

/// Ends waits for a process that does nothing any more.
#[derive(Default)]
struct Wait {
    turns: u32,
    since: Option<Instant>,
}

impl Wait {
    /// One more turn in vain.
    #[inline]
    fn turn(&mut self) -> Result<()> {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(GLANCE) {
            let since = self.since.get_or_insert_with(Instant::now);
            ensure!(
                since.elapsed() < PATIENCE,
                "nothing moved for {} s",
                PATIENCE.as_secs()
            );
        }
        Ok(())
    }
}
