//! Memory regions. Messages need no registration; a region here only has its key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ripstop_core::provider::{MemoryRegion, MrAttr};
use ripstop_types::{Errno, Flags, MrMode, Result};

use crate::domain::{Domain, Mode};

/// Keys given out to callers that let the provider choose.
static NEXT_KEY: AtomicU64 = AtomicU64::new(1);

/// A memory region of the tcp provider.
#[derive(Debug)]
pub struct Mr<K: Mode> {
    key: u64,
    _domain: Arc<Domain<K>>,
}

impl<K: Mode> Mr<K> {
    pub(crate) fn register(domain: &Arc<Domain<K>>, attr: &MrAttr) -> Result<Arc<Self>> {
        const ACCESS: Flags = Flags::SEND
            .union(Flags::RECV)
            .union(Flags::READ)
            .union(Flags::WRITE)
            .union(Flags::REMOTE_READ)
            .union(Flags::REMOTE_WRITE)
            .union(Flags::COLLECTIVE);
        if !ACCESS.contains(attr.access) || attr.iov.is_empty() {
            return Err(Errno::EINVAL);
        }
        let mode = domain.info.domain.mr_mode;
        let key = if mode.intersects(MrMode::PROV_KEY | MrMode::BASIC) {
            NEXT_KEY.fetch_add(1, Ordering::Relaxed)
        } else {
            attr.requested_key
        };
        Ok(Arc::new(Self {
            key,
            _domain: Arc::clone(domain),
        }))
    }
}

impl<K: Mode> MemoryRegion for Mr<K> {
    fn key(&self) -> u64 {
        self.key
    }
}
