//! Memory regions.

use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_core::provider::{MemoryRegion, MrAttr};
use ripstop_ibverbs::{Access, registers_dmabufs};
use ripstop_mem::UserBuf;
use ripstop_os::Dmabuf;
use ripstop_types::{Errno, Flags, Result};

use crate::counter::Counter;
use crate::domain::Domain;
use crate::params::NAME;

/// A memory region.
#[derive(Debug)]
pub struct Mr {
    domain: Arc<Domain>,
    /// What requests of this process name; a dma-buf need not be mapped in it.
    memory: Option<UserBuf>,
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
        let [memory] = attr.iov[..] else {
            fi_warn!(
                NAME,
                Subsys::Mr,
                "a region has one piece of memory here (mr_iov_limit), not {}",
                attr.iov.len()
            );
            return Err(Errno::EINVAL);
        };
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
        Ok(Self::made(domain, Some(memory), region))
    }

    /// Registers memory of a dma-buf.
    pub(crate) fn register_dmabuf(
        domain: &Arc<Domain>,
        dmabuf: &Dmabuf<'_>,
        attr: &MrAttr,
    ) -> Result<Arc<Self>> {
        if !domain.fabric.params.use_dmabuf {
            fi_warn!(
                NAME,
                Subsys::Mr,
                "memory of a dma-buf is not registered, since FI_VERBS_USE_DMABUF says so"
            );
            return Err(Errno::ENOSYS);
        }
        registers_dmabufs().map_err(|why| {
            fi_warn!(
                NAME,
                Subsys::Mr,
                "memory of a dma-buf cannot be registered: {why}"
            );
            Errno::ENOSYS
        })?;
        let access = access(attr.access, domain.attr.atomics);
        let region = ripstop_ibverbs::Mr::register_dmabuf(&domain.pd, dmabuf, access);
        let region = region.inspect_err(|error| {
            fi_warn!(
                NAME,
                Subsys::Mr,
                "device {} does not register {} bytes from {:#x} on of the dma-buf {}: {error}; it must be able to, and the \
                 bytes must be in the dma-buf",
                domain.context.name(),
                dmabuf.len,
                dmabuf.offset,
                dmabuf.fd.as_raw_fd()
            );
        })?;
        Ok(Self::made(domain, dmabuf.mapped, region))
    }

    fn made(
        domain: &Arc<Domain>,
        memory: Option<UserBuf>,
        region: ripstop_ibverbs::Mr,
    ) -> Arc<Self> {
        if let Some(memory) = memory {
            let writable = region.access().contains(Access::LOCAL_WRITE);
            domain.regions.insert(memory, region.lkey(), writable);
        }
        Arc::new(Self {
            domain: Arc::clone(domain),
            memory,
            key: region.rkey().into(),
            region: Mutex::new(Some(region)),
        })
    }

    fn close(&self) {
        if let Some(region) = self.region.lock().take() {
            // Before the device forgets it, so that nobody finds a key that is another's.
            if let Some(memory) = self.memory {
                self.domain.regions.remove(memory, region.lkey());
            }
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
