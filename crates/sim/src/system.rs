//! Virtual time and what tells of events, for domains of the simulation.
//!
//! All domains of a thread are of one [`Net`], that which was entered last.

use std::cell::RefCell;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ripstop_os::{Epoll, EventFd, Events, Interest};
use ripstop_stream::{Poller, System, Timer};
use ripstop_types::{Errno, Result};

use crate::network::{Network, Source, Timing};

/// A network that several own.
#[derive(Clone)]
pub struct Net(Arc<Mutex<Network>>);

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").finish_non_exhaustive()
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Net>> = const { RefCell::new(None) };
    static OTHERS: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
}

impl Net {
    /// A network, which is that of this thread from now on.
    #[must_use]
    pub fn enter(timing: Timing, seed: u64) -> Self {
        let net = Self(Arc::new(Mutex::new(Network::new(timing, seed))));
        CURRENT.set(Some(net.clone()));
        OTHERS.set(None);
        net
    }

    /// That of this thread.
    fn current() -> Self {
        let current = CURRENT.with_borrow(Clone::clone);
        current.expect("a network was entered")
    }

    /// The network, for a moment.
    pub fn lock(&self) -> MutexGuard<'_, Network> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While a call waits for others, this lets them make progress.
pub fn set_others(others: Option<Rc<dyn Fn()>>) {
    OTHERS.set(others);
}

/// Virtual time: it moves when a call waits, and when nobody has anything to do.
#[derive(Debug)]
pub struct Virtual;

impl System for Virtual {
    type Poller = SimPoller;
    type Timer = SimTimer;

    fn now() -> Duration {
        Duration::from_nanos(Net::current().lock().now())
    }

    fn ticks() -> u32 {
        Net::current().lock().now() as u32
    }

    fn sleep(time: Duration) {
        if let Some(others) = OTHERS.with_borrow(Clone::clone) {
            others();
        }
        Net::current().lock().pass(time.as_nanos() as u64);
    }

    fn yield_now() {
        Self::sleep(Duration::from_micros(1));
    }
}

/// A descriptor that stands for a source of the network.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) net: Net,
    fd: EventFd,
}

impl Named {
    pub(crate) fn new(net: &Net, source: Source) -> Result<Self> {
        let fd = EventFd::new()?;
        net.lock().name(fd.as_fd().as_raw_fd(), source);
        Ok(Self {
            net: net.clone(),
            fd,
        })
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.net.lock().forget(self.fd.as_fd().as_raw_fd());
    }
}

impl AsFd for Named {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Tells of sources of the network, in an order by chance; of other descriptors as epoll does.
#[derive(Debug)]
pub struct SimPoller {
    net: Net,
    id: u32,
    others: Epoll,
}

impl SimPoller {
    fn watch(&self, fd: impl AsFd, what: Option<(u64, Interest)>) -> Option<Result<()>> {
        let mut net = self.net.lock();
        let source = net.source(fd.as_fd().as_raw_fd())?;
        let before = net.watch(self.id, source, what);
        Some(match (before, what) {
            (None, None) => Err(Errno::ENOENT),
            _ => Ok(()),
        })
    }
}

impl Poller for SimPoller {
    fn new() -> Result<Self> {
        let net = Net::current();
        let id = net.lock().poller();
        Ok(Self {
            net,
            id,
            others: Epoll::new()?,
        })
    }

    fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        match self.watch(&fd, Some((token, interest))) {
            Some(done) => done,
            None => self.others.add(fd, token, interest),
        }
    }

    fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        match self.watch(&fd, Some((token, interest))) {
            Some(done) => done,
            None => self.others.modify(fd, token, interest),
        }
    }

    fn remove(&self, fd: impl AsFd) -> Result<()> {
        match self.watch(&fd, None) {
            Some(done) => done,
            None => self.others.remove(fd),
        }
    }

    fn poll(&self, events: &mut Events) -> Result<usize> {
        self.others.poll(events)?;
        for (token, ready) in self.net.lock().poll(self.id) {
            let what = Interest {
                read: ready.read,
                write: ready.write,
            };
            if !events.push(token, what, ready.ended) {
                break;
            }
        }
        Ok(events.len())
    }

    fn wait(&self, events: &mut Events) -> Result<usize> {
        // Nobody sleeps where time is virtual.
        self.poll(events)
    }
}

impl AsFd for SimPoller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.others.as_fd()
    }
}

/// A timer of virtual time.
#[derive(Debug)]
pub struct SimTimer {
    named: Named,
    id: usize,
}

impl Timer for SimTimer {
    fn new() -> Result<Self> {
        let net = Net::current();
        let id = net.lock().timer();
        let named = Named::new(&net, Source::Timer(id))?;
        Ok(Self { named, id })
    }

    fn set(&self, period: Duration) -> Result<()> {
        let period = period.as_nanos() as u64;
        self.named.net.lock().set_timer(self.id, period);
        Ok(())
    }

    fn drain(&self) {
        self.named.net.lock().drain_timer(self.id);
    }
}

impl Drop for SimTimer {
    fn drop(&mut self) {
        self.named.net.lock().set_timer(self.id, 0);
    }
}

impl AsFd for SimTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.named.as_fd()
    }
}
