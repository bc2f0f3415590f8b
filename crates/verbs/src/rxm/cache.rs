//! Memory that stays registered between transfers (`docs/design/rxm.md`, "A cache of registrations").
//!
//! There is one cache in a process, as long as a device is open that has used it: memory can be watched once.

mod settings;
mod table;

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ripstop_core::fi_info;
use ripstop_core::log::Subsys;
use ripstop_ibverbs::{Access, Mr, Pd};
use ripstop_mem::UserBuf;
use ripstop_os::{MemoryWatch, has_guard_pages, page_size};
use ripstop_types::{Errno, Result};

use crate::rxm::NAME;
pub(crate) use crate::rxm::cache::settings::settings;
use crate::rxm::cache::settings::{Keep, Settings};
use crate::rxm::cache::table::{Begun, Table};

/// That of the process, while it is used.
static CACHE: Mutex<Weak<Cache>> = Mutex::new(Weak::new());

/// The next device's number in the table.
static DEVICES: AtomicU32 = AtomicU32::new(0);

/// See the module.
#[derive(Debug)]
struct Cache {
    /// Locked by the watch's thread while the program waits in `munmap(2)`: see [`MemoryWatch`] for what must not be done then.
    watch: MemoryWatch<Table<Mr>>,
    /// Held while ranges are begun to be watched, or no longer watched, so that nobody stops watching what another has just
    /// begun to. The watch's thread does not take it.
    watching: Mutex<()>,
}

impl Cache {
    /// That of the process, made for the first device; `None` where there is none, which the log says.
    fn of_process(settings: &Settings) -> Option<Arc<Self>> {
        let mut cache = CACHE.lock();
        if let Some(cache) = cache.upgrade() {
            return Some(cache);
        }
        if settings.keep == Keep::WhereSafe && has_guard_pages() {
            fi_info!(
                NAME,
                Subsys::Mr,
                "long messages register their memory each time: this system has guard pages, which userfaultfd does not tell of; \
                 FI_MR_CACHE_MONITOR=userfaultfd keeps registrations all the same, for programs that put none into what they send"
            );
            return None;
        }
        let table = Table::new(settings.max_count, settings.max_bytes, page_size());
        let watch = MemoryWatch::start("ripstop-mr", table).inspect_err(|error| {
            fi_info!(
                NAME,
                Subsys::Mr,
                "long messages register their memory each time: it cannot be watched by userfaultfd ({error})"
            );
        });
        let made = Arc::new(Self {
            watch: watch.ok()?,
            watching: Mutex::new(()),
        });
        fi_info!(
            NAME,
            Subsys::Mr,
            "registrations of long messages are kept, up to {} of {} bytes together, and the memory is watched by userfaultfd",
            settings.max_count,
            settings.max_bytes
        );
        *cache = Arc::downgrade(&made);
        Some(made)
    }

    /// The registration of these bytes that is kept.
    fn find(&self, device: u32, bytes: &Range<usize>, access: Access) -> Option<Arc<Mr>> {
        let mut table = self.watch.lock()?;
        let found = table.find(device, bytes, access);
        let pages = table.pages_of(bytes);
        let has_ended = table.has_ended();
        drop(table);
        if has_ended {
            self.take_ended(&self.watching.lock());
        }
        // Whoever gives the memory back may not have come to say so, and another thread may have got the addresses.
        found.filter(|_| self.watch.holds(pages))
    }

    /// Registers these bytes, and keeps that if the memory is of a kind that can be watched.
    fn register(
        &self,
        device: u32,
        (pd, memory): (&Arc<Pd>, UserBuf),
        access: Access,
    ) -> Result<Arc<Mr>> {
        let once = || self.register_with_room(pd, memory, access).map(Arc::new);
        let Some((begun, pages)) = self.begin(device, memory, access) else {
            return once();
        };
        if !self.watch.holds(pages) {
            self.abandon(begun, true);
            return once();
        }
        let (region, access) = match self.register_with_room(pd, memory, begun.access) {
            Ok(region) => (Ok(region), begun.access),
            // It may be for reads only by now.
            Err(_) if begun.access != access => {
                (self.register_with_room(pd, memory, access), access)
            }
            Err(error) => (Err(error), access),
        };
        let region = region
            .map(Arc::new)
            .inspect_err(|_| self.abandon(begun, true))?;
        let not_kept = self
            .watch
            .lock()
            .map(|mut table| table.finish(begun.slot, Arc::clone(&region), access));
        drop(not_kept);
        Ok(region)
    }

    /// Begins an entry whose memory is watched from now on; returns it with its pages. `None` if it cannot be kept.
    fn begin(&self, device: u32, memory: UserBuf, access: Access) -> Option<(Begun, Range<usize>)> {
        let bytes = bytes_of(memory)?;
        // In a child of `fork` whoever has held the other lock may be gone.
        drop(self.watch.lock()?);
        let watching = self.watching.lock();
        let mut table = self.watch.lock()?;
        let pages = table.pages_of(&bytes);
        let begun = table.begin(device, bytes, access);
        drop(table);
        // What it replaces, also.
        self.take_ended(&watching);
        let begun = begun?;
        if self.watch.watch(pages.clone()).is_err() {
            drop(watching);
            self.abandon(begun, false);
            return None;
        }
        Some((begun, pages))
    }

    fn abandon(&self, begun: Begun, watched: bool) {
        if let Some(mut table) = self.watch.lock() {
            table.abandon(begun.slot, watched);
        }
    }

    /// Ends what is found no longer, but for who uses it still. What no other entry has pages in common with is not watched
    /// any more.
    fn take_ended(&self, _watching: &parking_lot::MutexGuard<'_, ()>) {
        let take = || self.watch.lock()?.take_ended();
        while let Some(ended) = take() {
            let mut left = ended.pages;
            while !left.is_empty() {
                let first = self
                    .watch
                    .lock()
                    .and_then(|table| table.first_in_use(&left));
                let end = first.as_ref().map_or(left.end, |first| first.start);
                if left.start < end {
                    self.watch.unwatch(left.start..end);
                }
                left.start = first.map_or(left.end, |first| first.end);
            }
            drop(ended.region);
        }
    }

    /// Registers memory; where that is refused for want of memory, once more without what is kept and not used.
    fn register_with_room(&self, pd: &Arc<Pd>, memory: UserBuf, access: Access) -> Result<Mr> {
        match Mr::register(pd, memory, access) {
            Err(Errno::ENOMEM) if self.end_idle() => Mr::register(pd, memory, access),
            registered => registered,
        }
    }

    /// Ends all that nobody uses; whether there was any.
    fn end_idle(&self) -> bool {
        let Some(mut table) = self.watch.lock() else {
            return false;
        };
        let mut any = table.has_ended();
        while table.evict() {
            any = true;
        }
        drop(table);
        self.take_ended(&self.watching.lock());
        any
    }
}

/// Registers memory by `register`; where that is refused for want of memory, once more without what is kept and not used.
///
/// # Errors
/// Those of `register`.
pub(crate) fn with_room<T>(register: impl Fn() -> Result<T>) -> Result<T> {
    let registered = register();
    let cache = match registered {
        Err(Errno::ENOMEM) => CACHE.lock().upgrade(),
        _ => None,
    };
    match cache {
        Some(cache) if cache.end_idle() => register(),
        _ => registered,
    }
}

/// The cache as one device uses it.
#[derive(Debug)]
pub(crate) struct Kept {
    /// `None` where memory is registered for each transfer.
    cache: Option<Arc<Cache>>,
    device: u32,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Kept {
    /// Of a device that has registered nothing yet.
    pub(crate) fn new() -> Self {
        let settings = settings();
        let cache = (settings.keep != Keep::Never).then(|| Cache::of_process(settings));
        Self {
            cache: cache.flatten(),
            device: DEVICES.fetch_add(1, Ordering::Relaxed),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// A registration of this memory for a transfer, which holds it until its end.
    ///
    /// # Errors
    /// As for [`Mr::register`].
    pub(crate) fn register(
        &self,
        pd: &Arc<Pd>,
        memory: UserBuf,
        access: Access,
    ) -> Result<Arc<Mr>> {
        let Some(cache) = &self.cache else {
            return Mr::register(pd, memory, access).map(Arc::new);
        };
        let bytes = bytes_of(memory);
        let found = bytes.and_then(|bytes| cache.find(self.device, &bytes, access));
        if let Some(region) = found {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(region);
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        cache.register(self.device, (pd, memory), access)
    }
}

/// The device closes.
impl Drop for Kept {
    fn drop(&mut self) {
        let Some(cache) = &self.cache else {
            return;
        };
        let Some(mut table) = cache.watch.lock() else {
            return;
        };
        table.forget(self.device);
        let given_back = table.given_back();
        drop(table);
        cache.take_ended(&cache.watching.lock());
        fi_info!(
            NAME,
            Subsys::Mr,
            "registrations for transfers: {} were there, {} were made, {given_back} ended since the program gave memory back",
            self.hits.load(Ordering::Relaxed),
            self.misses.load(Ordering::Relaxed)
        );
    }
}

fn bytes_of(memory: UserBuf) -> Option<Range<usize>> {
    let end = memory.addr().checked_add(memory.len())?;
    Some(memory.addr()..end)
}
