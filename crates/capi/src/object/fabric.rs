//! What a fabric's object holds.

use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::provider::Fabric;
use ripstop_types::Version;

use super::Body;
use crate::opened;

/// What a fabric's object holds.
pub(crate) struct FabricBody<F: Fabric> {
    pub(crate) fabric: Arc<F>,
    /// The version the program was written for.
    pub(crate) api: Version,
}

impl<F: Fabric> Body for FabricBody<F> {
    type Head = abi::fid_fabric;

    fn in_use(&self) -> bool {
        Arc::strong_count(&self.fabric) > 1
    }

    fn closing(&self, fid: *mut abi::fid) {
        opened::fabric_closed(fid);
    }
}
