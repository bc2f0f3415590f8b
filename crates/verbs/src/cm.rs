//! Events of connections, from the device's manager to those they are about.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ripstop_core::ProgressSource;
use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_ibverbs::{CmEvent, CmId, EventChannel, IdKey};
use ripstop_types::{Errno, Result};

use crate::params::NAME;

/// Who has an id, and hears of its events.
pub(crate) trait OnEvent: Send + Sync {
    /// An event. Must neither add nor remove ids.
    fn event(&self, event: CmEvent);
}

/// The event channel of a fabric. Event queues call it when they are read ([`ProgressSource`]).
pub(crate) struct Cm {
    pub(crate) channel: Arc<EventChannel>,
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
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            channel: EventChannel::new()?,
            owners: Mutex::default(),
        }))
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
        if let Some(owner) = &owner {
            owner.event(event);
        }
        drop(owners);
        drop(owner);
        true
    }
}

impl ProgressSource for Cm {
    fn progress(&self) {
        while self.next() {}
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.channel.as_fd())
    }
}
