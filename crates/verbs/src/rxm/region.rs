//! Regions of programs.

use std::sync::Arc;

use ripstop_ibverbs::Mr;

use crate::rxm::devices::Opened;

/// A region of the program.
#[derive(Debug)]
pub struct Region {
    mr: Arc<Mr>,
    /// Open as long as there is a region.
    device: Arc<Opened>,
}

impl Region {
    pub(crate) fn new(mr: Mr, device: Arc<Opened>) -> Self {
        let mr = Arc::new(mr);
        device.registered.add(&mr);
        Self { mr, device }
    }
}

/// Peers reach it no longer, but while a write of this side is under way from its memory, or a read to it.
impl Drop for Region {
    fn drop(&mut self) {
        self.device.registered.remove(&self.mr);
    }
}
