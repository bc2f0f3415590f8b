//! Memory regions: memory that peers may reach has its place in the engine, other memory only
//! has a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ripstop_core::lock::{Lock, Locking};
use ripstop_core::provider::{MemoryRegion, MrAttr, Sharing};
use ripstop_engine::id::MrId;
use ripstop_engine::mr::{Access, Mr as Region, PIECES};
use ripstop_mem::UserBuf;
use ripstop_os::{Shareable, Unfit};
use ripstop_types::{Errno, Flags, MrMode, Result, flags};

use crate::api::counter::Counter;
use crate::api::domain::{Domain, Looked, Mode};
use crate::transport::direct_access::DirectAccess as _;
use crate::transport::registering::Registering as _;
use crate::transport::{DirectOf, RegionOf, RegisteringOf, Transport};

/// Keys given out to callers that let the provider choose.
static NEXT_KEY: AtomicU64 = AtomicU64::new(1);

/// Regions below so many bytes are not checked: that costs a system call or more.
const MIN_SHARED_BYTES: usize = 4096;

/// A memory region.
pub struct Mr<T: Transport, K: Mode> {
    key: u64,
    /// That of the engine, unless no peer may reach it.
    id: Option<MrId>,
    looked: Option<Looked>,
    /// It is gone from there.
    closed: AtomicBool,
    counter: <K as Locking>::Lock<Option<Arc<Counter<T, K>>>>,
    /// What peers' devices reach it by, until it is closed.
    registered: <K as Locking>::Lock<Option<RegionOf<T>>>,
    pub(crate) domain: Arc<Domain<T, K>>,
}

impl<T: Transport, K: Mode> std::fmt::Debug for Mr<T, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mr")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl<T: Transport, K: Mode> Mr<T, K> {
    pub(crate) fn register(domain: &Arc<Domain<T, K>>, attr: &MrAttr) -> Result<Arc<Self>> {
        let [memory, rest @ ..] = &attr.iov[..] else {
            return Err(Errno::EINVAL);
        };
        if rest.len() >= PIECES {
            return Err(Errno::EINVAL);
        }
        let mode = domain.info.domain.mr_mode;
        let access = Access {
            read: attr.access.contains(Flags::REMOTE_READ),
            write: attr.access.contains(Flags::REMOTE_WRITE),
        };
        let registered = domain.register(&attr.iov, access, attr.access)?;
        let (registered, by_device) = registered.unzip();
        let key = if let Some(key) = by_device {
            key
        } else if mode.intersects(MrMode::PROV_KEY | MrMode::BASIC) {
            NEXT_KEY.fetch_add(1, Ordering::Relaxed)
        } else {
            attr.requested_key
        };
        let base = if mode.intersects(MrMode::VIRT_ADDR | MrMode::BASIC) {
            memory.addr() as u64
        } else {
            0
        };
        // A descriptor lets peers do both.
        let mapped = DirectOf::<T>::SUPPORTED && access.read && access.write && rest.is_empty();
        let looked = matches!(attr.shared, Sharing::IfSealed) && domain.looks_for(memory.len());
        let looked = (mapped && looked).then_some(Looked {
            memory: *memory,
            base,
        });
        let part = match &attr.shared {
            Sharing::Part(part) if mapped && part.len() == memory.len() => Some(part.clone()),
            _ => looked.and_then(|looked| domain.find(looked.memory)),
        };
        if DirectOf::<T>::SUPPORTED
            && looked.is_none()
            && part.is_none()
            && access != Access::default()
        {
            log_debug!(
                T::Mr,
                "peers do not map the region of {} bytes at {:#x}: for that it has to be of one piece of \
                 {MIN_SHARED_BYTES} bytes or more, for remote reads and writes, of a domain with \
                 FI_MR_ALLOCATED or FI_MR_BASIC",
                memory.len(),
                memory.addr()
            );
        }
        let id = if access == Access::default() {
            None
        } else {
            let region = Region::new(*memory, base, key, access).with(rest)?;
            let mut state = domain.lock();
            let id = state.engine.open_mr(region)?;
            if let Some(part) = &part {
                state.expose(id, key, base, part);
            }
            Some(id)
        };
        Ok(Arc::new(Self {
            key,
            id,
            looked,
            closed: AtomicBool::new(id.is_none()),
            counter: <K as Locking>::Lock::new(None),
            registered: <K as Locking>::Lock::new(registered),
            domain: Arc::clone(domain),
        }))
    }
}

impl<T: Transport, K: Mode> Domain<T, K> {
    /// Registers a region with the device that peers reach it by, if there is one; returns its key, too. `all` is what the
    /// program asks for. A region that no peer reaches is registered for the reads of this side, unless the device refuses
    /// that: then each read registers its memory.
    fn register(
        &self,
        iov: &[UserBuf],
        access: Access,
        all: Flags,
    ) -> Result<Option<(RegionOf<T>, u64)>> {
        let is_local = access == Access::default();
        if !RegisteringOf::<T>::SUPPORTED || is_local && !all.contains(Flags::READ) {
            return Ok(None);
        }
        let name = self.info.domain.name.as_deref().unwrap_or_default();
        let fills = all.intersects(flags![READ RECV]);
        let registered = match iov {
            [memory] => RegisteringOf::<T>::register(name, *memory, access, fills),
            _ => Err(Errno::EINVAL),
        };
        match registered {
            Err(_) if is_local => Ok(None),
            registered => registered.map(Some),
        }
    }

    /// Whether it is worth looking for the descriptor of a region's memory, and what is found stays
    /// true: a program that has not promised to leave the pages of a region alone
    /// (`FI_MR_ALLOCATED`) may put other memory in their place, and peers have to reach that then.
    fn looks_for(&self, len: usize) -> bool {
        const PROMISED: MrMode = MrMode::ALLOCATED.union(MrMode::BASIC);
        len >= MIN_SHARED_BYTES
            && self.info.domain.mr_mode.intersects(PROMISED)
            && T::checks_regions(&self.fabric.params)
    }

    /// What peers may map of this memory, if it is such.
    #[cold]
    fn find(&self, memory: UserBuf) -> Option<Shareable> {
        let mut finder = self.inner.finder.lock();
        let (len, addr) = (memory.len(), memory.addr());
        let found = finder.backings.find(memory);
        match &found {
            Ok(_) => log_debug!(T::Mr, "peers map the region of {len} bytes at {addr:#x}"),
            Err(why) => log_debug!(
                T::Mr,
                "peers do not map the region of {len} bytes at {addr:#x}: {why}"
            ),
        }
        match found {
            Ok(part) => return Some(part),
            Err(Unfit::NoMemfd) => {}
            Err(why) if !finder.told => {
                finder.told = true;
                log_info!(
                    T::Mr,
                    "peers do not map a region in memory of a memfd: {why}"
                );
            }
            Err(_) => {}
        }
        None
    }
}

impl<T: Transport, K: Mode> Drop for Mr<T, K> {
    fn drop(&mut self) {
        if let (false, Some(id)) = (*self.closed.get_mut(), self.id) {
            self.domain.lock().close_mr(id);
        }
    }
}

impl<T: Transport, K: Mode> MemoryRegion for Mr<T, K> {
    type Domain = Domain<T, K>;

    fn key(&self) -> u64 {
        self.key
    }

    fn bind_counter(&self, counter: &Arc<Counter<T, K>>, flags: Flags) -> Result<()> {
        if flags != Flags::REMOTE_WRITE {
            return Err(Errno::EBADFLAGS);
        }
        if RegisteringOf::<T>::SUPPORTED {
            return Err(refused!(
                T::Mr,
                EOPNOTSUPP,
                "a region has no counter: what the device writes is not seen; ask for no FI_RMA_EVENT"
            ));
        }
        self.domain.check_same(&counter.domain, "the counter")?;
        let mut bound = self.counter.lock();
        if bound.is_some() {
            return Err(Errno::EINVAL);
        }
        let mut state = self.domain.lock();
        let (false, Some(id)) = (self.closed.load(Ordering::Relaxed), self.id) else {
            return Err(Errno::EINVAL);
        };
        if let Some(region) = state.engine.mr_mut(id) {
            region.counter = Some(counter.id);
        }
        // Direct accesses of peers are not counted.
        state.conceal(id);
        drop(state);
        *bound = Some(Arc::clone(counter));
        Ok(())
    }

    fn try_close(&self, evict: bool) -> bool {
        if let (false, Some(id)) = (self.closed.load(Ordering::Acquire), self.id) {
            let mut state = self.domain.lock();
            // Under the lock, as its id may be another's next.
            let closed = self.closed.load(Ordering::Relaxed) || state.try_close_mr(id, evict);
            if closed {
                // Devices write without a word to the engine, so the memory is the owner's only after this.
                *self.registered.lock() = None;
            }
            self.closed.store(closed, Ordering::Release);
            return closed;
        }
        true
    }

    fn refresh(&self) {
        if self.closed.load(Ordering::Acquire) {
            return;
        }
        let (Some(Looked { memory, base }), Some(id)) = (self.looked, self.id) else {
            return;
        };
        let counter = self.counter.lock();
        if counter.is_none() {
            let part = self.domain.find(memory);
            let mut state = self.domain.lock();
            state.expose_again(id, self.key, base, part.as_ref());
        }
    }
}
