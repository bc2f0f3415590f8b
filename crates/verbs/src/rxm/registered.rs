//! The regions that programs have open, by address: what is in one needs no registration of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use ripstop_ibverbs::Mr;

/// Regions that a search looks at: memory behind more of them that overlap, or in none, is copied.
const LOOKS: usize = 8;

/// The regions of one device.
#[derive(Debug, Default)]
pub(crate) struct Registered {
    /// By their start, and by their key among those that start together.
    regions: RwLock<BTreeMap<(usize, u32), Arc<Mr>>>,
}

impl Registered {
    /// The region that all of this memory is in, of the [`LOOKS`] that begin last at its start or before.
    pub(crate) fn find(&self, addr: usize, len: usize) -> Option<Arc<Mr>> {
        let regions = self.regions.read();
        let before = regions.range(..=(addr, u32::MAX)).rev().take(LOOKS);
        let mut around = before.map(|(_, region)| region);
        // Among regions that overlap, the one that begins last: then one lookup is mostly enough.
        around
            .find(|region| region.part(addr, len).is_some())
            .map(Arc::clone)
    }
}

/// A region of the program.
#[derive(Debug)]
pub struct Region {
    mr: Arc<Mr>,
    registered: Arc<Registered>,
}

impl Region {
    pub(crate) fn new(mr: Mr, registered: &Arc<Registered>) -> Self {
        let mr = Arc::new(mr);
        let key = (mr.range().start, mr.rkey());
        registered.regions.write().insert(key, Arc::clone(&mr));
        let registered = Arc::clone(registered);
        Self { mr, registered }
    }
}

/// Peers reach it no longer, but while a write of this side is under way from its memory.
impl Drop for Region {
    fn drop(&mut self) {
        let key = (self.mr.range().start, self.mr.rkey());
        self.registered.regions.write().remove(&key);
    }
}
