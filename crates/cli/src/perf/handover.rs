//! The bare handover of a cache line between two processes: a store by one that the other one
//! waits for, and the same way back. No protocol over shared memory can be faster.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ripstop_mem::Region;
use ripstop_os::NamedMemory;

use super::protocol::Side;

/// Bytes of the mapping: a page, of which only the first line is used.
const LEN: usize = 4096;
/// Loads between two looks at the clock.
const GLANCE: u64 = 1 << 20;
/// How long the other process may take: as long as a machine that is short of processors and memory
/// may keep it from running. One that dies is noticed by the process that started both.
const PATIENCE: Duration = Duration::from_secs(60);

/// `count` handovers there and back over shared memory of this name, which both processes make
/// or find; as many before that do not count. Gives the time of this side.
///
/// # Errors
/// When the memory cannot be had, or the other process does not answer.
pub(super) fn take(name: &str, side: Side, count: u32) -> Result<Duration> {
    let (memory, _) = NamedMemory::create(name, LEN).context("shared memory for a cache line")?;
    let line = Line(memory.region());
    line.hand_over(side, 0, count)?;
    let start = Instant::now();
    line.hand_over(side, u64::from(count), count)?;
    Ok(start.elapsed())
}

/// A word that is alone in its cache line. It counts handovers.
struct Line<'m>(Region<'m>);

impl Line<'_> {
    /// Takes the word from `2 * done` to `2 * (done + count)`, every second step by each side.
    fn hand_over(&self, side: Side, done: u64, count: u32) -> Result<()> {
        for turn in done..done + u64::from(count) {
            if side == Side::Client {
                self.store(2 * turn + 1)?;
                self.wait(2 * turn + 2)?;
            } else {
                self.wait(2 * turn + 1)?;
                self.store(2 * turn + 2)?;
            }
        }
        Ok(())
    }

    fn store(&self, value: u64) -> Result<()> {
        Ok(self.0.store_u64(0, value, Ordering::Release)?)
    }

    /// Waits for the other side's store.
    fn wait(&self, value: u64) -> Result<()> {
        let (mut loads, mut since) = (0_u64, None);
        while self.0.load_u64(0, Ordering::Acquire)? != value {
            loads += 1;
            if loads.is_multiple_of(GLANCE) {
                let since = since.get_or_insert_with(Instant::now);
                ensure!(
                    since.elapsed() < PATIENCE,
                    "no handover for {} s",
                    PATIENCE.as_secs()
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_count_the_same() {
        let name = format!("test-{}-handover", std::process::id());
        let count = 50;
        let took = std::thread::scope(|scope| {
            let server = scope.spawn(|| take(&name, Side::Server, count));
            let client = take(&name, Side::Client, count).expect("handovers");
            server.join().expect("no panic").expect("handovers");
            client
        });
        assert!(took > Duration::ZERO);
        assert!(NamedMemory::open(&name).is_err(), "left behind");
    }
}
