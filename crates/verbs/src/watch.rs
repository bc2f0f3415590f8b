//! What devices tell of themselves: queue pairs and queues that fail, ports that go and come, and their own end.
//!
//! `librdmacm` has one open context for each device, which all of a process share, so there is one watch for each of
//! them. Whoever reads an event tells it to those it is about.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ripstop_core::log::Subsys;
use ripstop_core::{fi_info, fi_warn};
use ripstop_ibverbs::{CmId, Context, DeviceEvent, QueueKey, forget_removed};
use ripstop_os::EventFd;
use ripstop_types::{Errno, Result};

use crate::params::NAME;

/// The watches of this process.
static WATCHES: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Of {
    /// The queue pair with this number.
    Qp(u32),
    /// A completion queue, or a queue of shared receives.
    Queue(QueueKey),
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It has failed.
    Failed,
    /// The queue pair takes no more shared receives.
    LastReceive,
    /// The device is gone.
    Gone,
}

/// Who hears of what a device tells of a queue pair or queue.
pub(crate) trait Hears: Send + Sync {
    /// The device has told this. Must neither add nor remove whom a watch tells.
    fn told(&self, what: Told, device: &str);
}

/// Who hears of what.
type Owners = HashMap<Of, Weak<dyn Hears>>;

/// A device, as far as it tells of itself.
pub(crate) struct Watch {
    context: Arc<Context>,
    name: String,
    gone: AtomicBool,
    /// Whether events can no longer be read, which is told once.
    is_silent: AtomicBool,
    /// Who hears of what. The lock is held from taking an event until it is told, so that nothing is destroyed
    /// meanwhile.
    owners: Mutex<Owners>,
    /// What wakes threads that may sleep while another takes an event.
    bells: Mutex<Vec<Weak<EventFd>>>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch({})", self.name)
    }
}

impl Watch {
    /// The one of this device.
    ///
    /// # Errors
    /// What `fcntl(2)` says.
    pub(crate) fn of(context: &Arc<Context>) -> Result<Arc<Self>> {
        let mut watches = WATCHES.lock();
        watches.retain(|watch| watch.strong_count() > 0);
        let mut known = watches.iter().filter_map(Weak::upgrade);
        if let Some(watch) = known.find(|watch| watch.context == *context) {
            return Ok(watch);
        }
        context.watch_events()?;
        let watch = Arc::new(Self {
            context: Arc::clone(context),
            name: context.name(),
            gone: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
            owners: Mutex::default(),
            bells: Mutex::default(),
        });
        watches.push(Arc::downgrade(&watch));
        Ok(watch)
    }

    /// The one of the device that an id is bound to, if somebody uses that.
    pub(crate) fn of_id(id: &CmId) -> Option<Arc<Self>> {
        let watches = WATCHES.lock();
        let mut known = watches.iter().filter_map(Weak::upgrade);
        known.find(|watch| id.device(std::slice::from_ref(&watch.context)).is_some())
    }

    /// The device's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the device is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Whether the device tells nothing any more, although its descriptor is readable.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Acquire)
    }

    /// Readable while there is an event.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.context.events_fd()
    }

    /// What is told of this is told to `owner` from now on.
    pub(crate) fn add(&self, of: Of, owner: Weak<dyn Hears>) {
        self.owners.lock().insert(of, owner);
    }

    /// Nobody hears of this any more. To be called before it is destroyed.
    pub(crate) fn remove(&self, of: Of) {
        self.owners.lock().remove(&of);
    }

    /// Has this doorbell rung with each event.
    pub(crate) fn ring(&self, bell: &Arc<EventFd>) {
        let mut bells = self.bells.lock();
        bells.retain(|bell| bell.strong_count() > 0);
        bells.push(Arc::downgrade(bell));
    }

    /// Takes the events there are, and tells them.
    pub(crate) fn progress(&self) {
        while self.next() {}
    }

    /// The device has failed or is being removed, as somebody has heard otherwise. Told once.
    pub(crate) fn lose(&self) {
        let owners = self.owners.lock();
        let told = self.tell_gone(&owners);
        drop(owners);
        // Whoever is destroyed by this takes the lock.
        drop(told);
        self.wake();
        self.forget();
    }

    /// Lets the device be closed as soon as nobody uses it any more.
    fn forget(&self) {
        if let Err(error) = forget_removed() {
            let device = &self.name;
            fi_info!(
                NAME,
                Subsys::Domain,
                "device {device} stays open until the process ends, since there is no other: {error}"
            );
        }
    }

    fn tell_gone(&self, owners: &Owners) -> Vec<Arc<dyn Hears>> {
        if self.gone.swap(true, Ordering::AcqRel) {
            return Vec::new();
        }
        fi_warn!(
            NAME,
            Subsys::Domain,
            "device {} has failed or is being removed: what is under way on it fails with FI_ENODEV; close its \
             endpoints, regions and domains",
            self.name
        );
        let told: Vec<_> = owners.values().filter_map(Weak::upgrade).collect();
        for owner in &told {
            owner.told(Told::Gone, &self.name);
        }
        told
    }

    /// Takes an event, and tells it; whether there was one.
    fn next(&self) -> bool {
        let owners = self.owners.lock();
        let event = match self.context.next_event() {
            Ok(event) => event,
            Err(Errno::EAGAIN | Errno::EINTR) => return false,
            Err(error) => {
                if !self.is_silent.swap(true, Ordering::AcqRel) {
                    let device = &self.name;
                    fi_info!(
                        NAME,
                        Subsys::Domain,
                        "device {device} tells nothing any more: {error}"
                    );
                }
                return false;
            }
        };
        let told = self.tell(&owners, event);
        drop(owners);
        drop(told);
        self.wake();
        if event == DeviceEvent::DeviceFailed {
            self.forget();
        }
        true
    }

    /// Tells an event; whom.
    fn tell(&self, owners: &Owners, event: DeviceEvent) -> Vec<Arc<dyn Hears>> {
        let device = &self.name;
        let (of, what) = match event {
            DeviceEvent::CqFailed(key) => (Of::Queue(key), Told::Failed),
            DeviceEvent::SrqFailed(key) => (Of::Queue(key), Told::Failed),
            DeviceEvent::QpFailed(number) => (Of::Qp(number), Told::Failed),
            DeviceEvent::LastReceive(number) => (Of::Qp(number), Told::LastReceive),
            DeviceEvent::DeviceFailed => return self.tell_gone(owners),
            DeviceEvent::PortUp(port) => {
                fi_info!(NAME, Subsys::Domain, "device {device}: port {port} is up");
                return Vec::new();
            }
            DeviceEvent::PortDown(port) => {
                fi_warn!(
                    NAME,
                    Subsys::Domain,
                    "device {device}: port {port} is down: what is under way waits, and fails if it stays down; \
                     look at the cable and the interface"
                );
                return Vec::new();
            }
            DeviceEvent::Other(kind) => {
                fi_info!(
                    NAME,
                    Subsys::Domain,
                    "device {device} tells event {kind} of enum ibv_event_type"
                );
                return Vec::new();
            }
        };
        if what == Told::Failed {
            let which = match event {
                DeviceEvent::CqFailed(_) => "a completion queue",
                DeviceEvent::SrqFailed(_) => "a queue of shared receives",
                _ => "a queue pair",
            };
            fi_warn!(
                NAME,
                Subsys::EpData,
                "device {device}: {which} has failed ({event:?}), and with it the connections that use it"
            );
        }
        let owner = owners.get(&of).and_then(Weak::upgrade);
        if let Some(owner) = &owner {
            owner.told(what, device);
        }
        owner.into_iter().collect()
    }

    fn wake(&self) {
        for bell in self.bells.lock().iter().filter_map(Weak::upgrade) {
            if let Err(error) = bell.signal() {
                fi_warn!(
                    NAME,
                    Subsys::Domain,
                    "a waiting thread cannot be woken: {error}"
                );
            }
        }
    }
}
