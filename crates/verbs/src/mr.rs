//! Memory regions.

use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_core::provider::{MemoryRegion, MrAttr};
use ripstop_ibverbs::Access;
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, Flags, Result, flags};

use crate::counter::Counter;
use crate::domain::Domain;
use crate::params::NAME;

/// A memory region.
#[derive(Debug)]
pub struct Mr {
    domain: Arc<Domain>,
    memory: UserBuf,
    key: u64,
    /// Until it is closed.
    region: Mutex<Option<ripstop_ibverbs::Mr>>,
}

/// What the device is let to do for a registration.
fn access(asked: Flags, has_atomics: bool) -> Access {
    let mut access = Access::empty();
    if asked.intersects(Flags::RECV | Flags::READ) {
        access |= Access::LOCAL_WRITE;
    }
    if asked.contains(Flags::REMOTE_READ) {
        access |= Access::REMOTE_READ;
    }
    if asked.contains(Flags::REMOTE_WRITE) {
        access |= Access::REMOTE_WRITE | Access::LOCAL_WRITE;
        // Those of peers read and write.
        access.set(Access::REMOTE_ATOMIC, has_atomics);
    }
    access
}

impl Mr {
    pub(crate) fn register(domain: &Arc<Domain>, attr: &MrAttr) -> Result<Arc<Self>> {
        const KNOWN: Flags = flags![SEND RECV READ WRITE REMOTE_READ REMOTE_WRITE];
        let [memory] = attr.iov[..] else {
            fi_warn!(
                NAME,
                Subsys::Mr,
                "a region has one piece of memory here (mr_iov_limit), not {}",
                attr.iov.len()
            );
            return Err(Errno::EINVAL);
        };
        if !KNOWN.contains(attr.access) {
            fi_warn!(
                NAME,
                Subsys::Mr,
                "a region cannot be registered for {:?}; leave out what fi_mr(3) does not list",
                attr.access - KNOWN
            );
            return Err(Errno::EINVAL);
        }
        let access = access(attr.access, domain.attr.atomics);
        let region = ripstop_ibverbs::Mr::register(&domain.pd, memory, access);
        let region = region.inspect_err(|error| {
            fi_warn!(
                NAME,
                Subsys::Mr,
                "{} bytes at {:#x} cannot be registered: {error}; the memory must be there and writable for \
                 what writes it, and within the limit of locked memory (ulimit -l)",
                memory.len(),
                memory.addr()
            );
        })?;
        let writable = access.contains(Access::LOCAL_WRITE);
        domain.regions.insert(memory, region.lkey(), writable);
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            memory,
            key: region.rkey().into(),
            region: Mutex::new(Some(region)),
        }))
    }

    fn close(&self) {
        if let Some(region) = self.region.lock().take() {
            // Before the device forgets it, so that nobody finds a key that is another's.
            self.domain.regions.remove(self.memory, region.lkey());
        }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        self.close();
    }
}

impl MemoryRegion for Mr {
    type Domain = Domain;

    fn key(&self) -> u64 {
        self.key
    }

    fn bind_counter(&self, _: &Arc<Counter>, _: Flags) -> Result<()> {
        fi_warn!(
            NAME,
            Subsys::Mr,
            "devices do not tell what peers read and write, so nothing counts it (FI_RMA_EVENT is not offered)"
        );
        Err(Errno::ENOSYS)
    }

    /// The device ends what peers do there before it says that the region is gone.
    fn try_close(&self, _: bool) -> bool {
        self.close();
        true
    }
}
