//! Events of connections, from the device's manager to those they are about, and those of devices.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ripstop_core::ProgressSource;
use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_ibverbs::{CmEvent, CmEventKind, CmId, EventChannel, IdKey};
use ripstop_os::{Epoll, Events, Interest};
use ripstop_types::{Errno, Result};

use crate::params::NAME;
use crate::watch::Watch;

/// Who has an id, and hears of its events.
pub(crate) trait OnEvent: Send + Sync {
    /// An event. Must neither add nor remove ids.
    fn event(&self, event: CmEvent);

    /// The device of the id, if it has one. All of that device hear of its end, not only its ids.
    fn watch(&self) -> Option<Arc<Watch>>;
}

/// The event channel of a fabric, and the devices of its domains. Event queues call it when they are read ([`ProgressSource`]).
pub(crate) struct Cm {
    pub(crate) channel: Arc<EventChannel>,
    /// Each with the number of its domains.
    watches: Mutex<Vec<(Arc<Watch>, usize)>>,
    /// Readable while the channel or a device has an event.
    epoll: Epoll,
    /// Who has which id. The lock is held from taking an event until it is told, so that no id is
    /// another's meanwhile.
    owners: Mutex<HashMap<IdKey, Weak<dyn OnEvent>>>,
}

impl std::fmt::Debug for Cm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cm({:?})", self.channel)
    }
}

impl Cm {
    /// A channel without events.
    ///
    /// # Errors
    /// Of the system.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let channel = EventChannel::new()?;
        let epoll = Epoll::new()?;
        epoll.add(&*channel, 0, Interest::READ)?;
        Ok(Arc::new(Self {
            channel,
            watches: Mutex::default(),
            epoll,
            owners: Mutex::default(),
        }))
    }

    /// A domain is opened on this device, whose events are told from now on.
    ///
    /// # Errors
    /// Of the system.
    pub(crate) fn watch(&self, watch: &Arc<Watch>) -> Result<()> {
        let mut watches = self.watches.lock();
        if let Some((_, count)) = watches.iter_mut().find(|(w, _)| Arc::ptr_eq(w, watch)) {
            *count += 1;
            return Ok(());
        }
        self.epoll.add(watch.fd(), 1, Interest::READ)?;
        watches.push((Arc::clone(watch), 1));
        Ok(())
    }

    /// A domain on this device closes.
    pub(crate) fn unwatch(&self, watch: &Arc<Watch>) {
        self.watches.lock().retain_mut(|(known, count)| {
            if !Arc::ptr_eq(known, watch) {
                return true;
            }
            *count -= 1;
            if *count == 0 {
                // One that tells nothing any more was taken out before.
                let _ = self.epoll.remove(watch.fd());
            }
            *count > 0
        });
    }

    /// Readable while there is an event.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Events of this id are told to `owner` from now on.
    pub(crate) fn add(&self, id: &CmId, owner: Weak<dyn OnEvent>) {
        self.owners.lock().insert(id.key(), owner);
    }

    /// Nobody hears of this id any more. To be called before it is dropped.
    pub(crate) fn remove(&self, id: &CmId) {
        self.owners.lock().remove(&id.key());
    }

    /// Takes an event, and tells it; whether there was one.
    fn next(&self) -> bool {
        let owners = self.owners.lock();
        let event = match self.channel.next() {
            Ok(event) => event,
            Err(Errno::EAGAIN) => return false,
            Err(error) => {
                fi_warn!(
                    NAME,
                    Subsys::EpCtrl,
                    "events of connections cannot be read: {error}"
                );
                return false;
            }
        };
        let owner = owners.get(&event.id).and_then(Weak::upgrade);
        let is_removal = event.kind == CmEventKind::DeviceRemoval;
        if let Some(owner) = &owner {
            owner.event(event);
        }
        drop(owners);
        let watch = owner.filter(|_| is_removal).and_then(|owner| owner.watch());
        if let Some(watch) = watch {
            watch.lose();
        }
        true
    }
}

impl ProgressSource for Cm {
    fn progress(&self) {
        let mut ready = Events::with_capacity(1);
        // Mostly there is nothing, which one call finds out. Where it cannot, each is asked.
        if self.epoll.poll(&mut ready) == Ok(0) {
            return;
        }
        while self.next() {}
        let watches = self.watches.lock().clone();
        for (watch, _) in &watches {
            watch.progress();
            if watch.is_silent() {
                // It stays readable. One that was taken out before is not there.
                let _ = self.epoll.remove(watch.fd());
            }
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd())
    }
}
