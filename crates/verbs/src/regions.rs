//! Which region registered memory is in. Calls name memory by its address, and the device wants the
//! local key of its region.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use ripstop_mem::UserBuf;

/// A registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    end: usize,
    lkey: u32,
    writable: bool,
}

/// A region that was found last, to be asked first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hit {
    /// The count of changes at which it was found.
    changes: u64,
    start: usize,
    end: usize,
    lkey: u32,
    writable: bool,
}

/// The regions of a domain.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    /// By their start, and by their key among those that start together.
    map: RwLock<BTreeMap<(usize, u32), Region>>,
    /// Grows when a region ends, so that no key of one that is gone is used.
    changes: AtomicU64,
}

impl Regions {
    pub(crate) fn insert(&self, buf: UserBuf, lkey: u32, writable: bool) {
        let end = buf.addr().saturating_add(buf.len());
        let region = Region {
            end,
            lkey,
            writable,
        };
        self.map.write().insert((buf.addr(), lkey), region);
    }

    pub(crate) fn remove(&self, buf: UserBuf, lkey: u32) {
        self.map.write().remove(&(buf.addr(), lkey));
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// The local key of a region that all of the memory is in, and that the device may write if it is
    /// to be written; `hit` is where the last call of the caller found one.
    #[inline]
    pub(crate) fn find(&self, buf: UserBuf, writes: bool, hit: &mut Hit) -> Option<u32> {
        let start = buf.addr();
        let end = start.checked_add(buf.len())?;
        let is_same = hit.changes == self.changes.load(Ordering::Acquire);
        if is_same && hit.start <= start && end <= hit.end && (hit.writable || !writes) {
            return Some(hit.lkey);
        }
        self.search(start, end, writes, hit)
    }

    #[cold]
    fn search(&self, start: usize, end: usize, writes: bool, hit: &mut Hit) -> Option<u32> {
        let map = self.map.read();
        let changes = self.changes.load(Ordering::Acquire);
        let mut before = map.range(..=(start, u32::MAX)).rev();
        let fits = |region: &Region| end <= region.end && (region.writable || !writes);
        let (key, region) = before.find(|(_, region)| fits(region))?;
        *hit = Hit {
            changes,
            start: key.0,
            end: region.end,
            lkey: region.lkey,
            writable: region.writable,
        };
        Some(region.lkey)
    }
}

#[cfg(test)]
mod tests {
    use ripstop_mem::Parked;

    use super::*;

    #[test]
    fn the_region_around_a_buffer_is_found_while_it_is_there() {
        let memory = Parked::park(vec![0; 1000]);
        let part = |at, len| memory.buf().slice(at, len).expect("inside");
        let regions = Regions::default();
        let mut hit = Hit::default();
        assert_eq!(regions.find(part(0, 1), false, &mut hit), None);
        regions.insert(memory.buf(), 1, false);
        regions.insert(part(100, 50), 2, true);
        regions.insert(part(300, 50), 3, true);
        assert_eq!(regions.find(part(0, 1000), false, &mut hit), Some(1));
        assert_eq!(regions.find(part(0, 1000), true, &mut hit), None);
        assert_eq!(regions.find(part(120, 30), true, &mut hit), Some(2));
        assert_eq!(regions.find(part(120, 31), true, &mut hit), None);
        assert_eq!(regions.find(part(320, 31), false, &mut hit), Some(1));
        assert_eq!(regions.find(part(320, 30), true, &mut hit), Some(3));
        regions.remove(part(300, 50), 3);
        assert_eq!(regions.find(part(320, 30), true, &mut hit), None);
        assert_eq!(regions.find(part(320, 30), false, &mut hit), Some(1));
    }
}
