//! The regions that programs have open, by address: what is in one needs no registration of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use ripstop_ibverbs::{Access, Mr, Sge};

/// Regions that a search looks at: memory behind more of them that overlap, or in none, is copied.
const LOOKS: usize = 8;

/// The regions of one device.
#[derive(Debug, Default)]
pub(crate) struct Registered {
    /// By their start, and by their key among those that start together.
    regions: RwLock<BTreeMap<(usize, u32), Arc<Mr>>>,
}

impl Registered {
    /// A region is open from now on.
    pub(crate) fn add(&self, mr: &Arc<Mr>) {
        let key = (mr.range().start, mr.rkey());
        self.regions.write().insert(key, Arc::clone(mr));
    }

    /// It closes. Writes that are under way from it, and reads to it, hold it.
    pub(crate) fn remove(&self, mr: &Mr) {
        let key = (mr.range().start, mr.rkey());
        self.regions.write().remove(&key);
    }

    /// The region that all of this memory is in, with this access at least, of the [`LOOKS`] that begin last at its start
    /// or before; and the memory as a part of it, for a request.
    pub(crate) fn find(&self, addr: usize, len: usize, access: Access) -> Option<(Arc<Mr>, Sge)> {
        let regions = self.regions.read();
        let before = regions.range(..=(addr, u32::MAX)).rev().take(LOOKS);
        let mut around = before.map(|(_, region)| region);
        // Among regions that overlap, the one that begins last: then one lookup is mostly enough.
        around.find_map(|region| {
            let has_access = region.access().contains(access);
            let part = region.part(addr, len).filter(|_| has_access)?;
            Some((Arc::clone(region), part))
        })
    }
}
