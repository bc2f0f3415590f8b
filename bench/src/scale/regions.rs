//! Regions of one domain, and writes to them between two endpoints of one thread.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use ripstop_cli::perf::resident;
use ripstop_core::Info;
use ripstop_core::provider::{
    AddressVector as _, Domain, Endpoint as _, MemoryRegion as _, MrAttr, RmaCall, Sharing,
};
use ripstop_mem::Parked;
use ripstop_types::{FiAddr, Flags, RmaIov};

use super::protocol::at;
use super::record::{Figure, Figures};
use super::traffic::{Buffers, Patience, SENT, SIZE, TIME, each, posted, read};
use crate::open::Opened;

/// Bytes of a region, and of the memory that all of them are parts of.
const PAGE: usize = 4096;
const MEMORY: usize = 256 * PAGE;

/// Writes of a sample, if there is time, and those under way at once.
const WRITES: u64 = 64_000;
const WINDOW: u64 = 64;

/// Regions that are closed between two looks at the clock.
const GLANCE: usize = 16;

/// Regions whose memory can be told.
const MANY: u64 = 1_000;

/// From one region that is written to the next one: a prime number, so that all are.
const STEP: u64 = 7_919;

/// The time to register, to close and to write to so many regions, and their memory. Keys count up,
/// and regions are closed in the order in which they were registered.
///
/// # Errors
/// [`Ends`](super::protocol::Ends), what the library says.
pub(super) fn measure<D: Domain>(domain: &Arc<D>, info: &Info, count: u64) -> Result<Figures> {
    let (from, to) = (Opened::new(domain, info)?, Opened::new(domain, info)?);
    let name = to.ep.name().context("fi_getname")?;
    let peer = from.av.insert(&name).context("fi_av_insert")?;
    let memory = Parked::park(vec![0; MEMORY]);
    let mut regions: Vec<Arc<D::Mr>> = Vec::with_capacity(usize::try_from(count)?);
    let before = resident()?;
    let start = Instant::now();
    for number in 0..count {
        let place = usize::try_from(number)? * PAGE % MEMORY;
        let attr = MrAttr {
            iov: vec![
                memory
                    .buf()
                    .slice(place, PAGE)
                    .context("a part of the memory")?,
            ],
            access: Flags::REMOTE_WRITE,
            offset: 0,
            requested_key: number + 1,
            flags: Flags::empty(),
            shared: Sharing::Never,
        };
        let region = domain.mr(&attr).context("fi_mr_reg");
        regions.push(at(number, region)?);
    }
    let register = each(start.elapsed(), count);
    let grown = resident()?.saturating_sub(before) as f64 / count as f64;
    let write = Writes::<D> {
        from: &from,
        to: &to,
        peer,
        buffers: Buffers::new(),
    };
    let write = write.run(&regions)?;
    let close = close(regions);
    let mut figures = Figures::from([
        (Figure::Register, register),
        (Figure::Write, write),
        (Figure::Close, close),
    ]);
    // Memory grows by pages.
    if count >= MANY {
        figures.insert(Figure::RegionMemory, (grown - own::<D>()).max(0.0));
    }
    Ok(figures)
}

/// The time to close a region, of all or of as many as there is time for. The others end with the
/// process.
fn close<M>(regions: Vec<Arc<M>>) -> f64 {
    let (mut closed, mut left) = (0, regions.into_iter());
    let start = Instant::now();
    while left.len() > 0 && start.elapsed() < TIME {
        for region in left.by_ref().take(GLANCE) {
            drop(region);
            closed += 1;
        }
    }
    let took = each(start.elapsed(), closed);
    std::mem::forget(left);
    took
}

/// Bytes that this program itself has for each region: an entry of the list, and what an `Arc` and
/// `malloc` (16 bytes a step, 8 of them its own) make of an object.
fn own<D: Domain>() -> f64 {
    let object = size_of::<D::Mr>() + 2 * size_of::<usize>();
    ((object + 8).next_multiple_of(16) + size_of::<usize>()) as f64
}

struct Writes<'a, D: Domain> {
    from: &'a Opened<D>,
    to: &'a Opened<D>,
    peer: FiAddr,
    buffers: Buffers,
}

impl<D: Domain> Writes<'_, D> {
    /// The time of a write, one region after the other.
    fn run(&self, regions: &[Arc<D::Mr>]) -> Result<f64> {
        // The first ones connect.
        self.some(regions, 0, WINDOW)?;
        let (mut count, start) = (0, Instant::now());
        while count < WRITES && start.elapsed() < TIME {
            self.some(regions, count, WINDOW)?;
            count += WINDOW;
        }
        Ok(each(start.elapsed(), count))
    }

    /// `count` writes, the first of which is number `first`.
    fn some(&self, regions: &[Arc<D::Mr>], first: u64, count: u64) -> Result<()> {
        let (mut sends, mut sent) = (0, 0);
        let mut patience = Patience::new();
        while sent < count {
            while sends < count {
                let number = (first + sends) * STEP % regions.len() as u64;
                let key = regions[usize::try_from(number)?].key();
                if !self.write(key)? {
                    break;
                }
                sends += 1;
            }
            sent += read(&*self.from.cq, |_| ())? as u64;
            read(&*self.to.cq, |_| ())?;
            patience.miss()?;
        }
        Ok(())
    }

    fn write(&self, key: u64) -> Result<bool> {
        let remote = [RmaIov {
            addr: 0,
            len: SIZE as u64,
            key,
        }];
        let call = RmaCall {
            remote: &remote,
            peer: self.peer,
            data: None,
            context: SENT,
            flags: None,
        };
        let from = self.buffers.from();
        posted("fi_write", self.from.ep.write(&[from], &call))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_regions_are_closed_where_there_is_time() {
        let region = Arc::new(());
        let took = close(vec![region.clone(); 40]);
        assert_eq!(Arc::strong_count(&region), 1);
        assert!(took > 0.0);
    }
}
