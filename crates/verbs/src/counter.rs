//! Counters of finished operations (man page `fi_cntr(3)`). What the device says is counted when it is taken
//! from the completion queue of an endpoint, which reading a counter does too.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ripstop_core::log::Subsys;
use ripstop_core::provider::{self, CounterAttr};
use ripstop_core::{ProgressSource as _, fi_warn};
use ripstop_ibverbs::CompletionChannel;
use ripstop_os::{Epoll, EventFd, Events, Interest, clock};
use ripstop_types::{Errno, Flags, Result, WaitObj};

use crate::domain::Domain;
use crate::params::NAME;

/// Every so often a read that finds nothing gives up the processor: the peer, and the kernel's threads of
/// devices that are software, may need it.
pub(crate) const IDLE_READS: u32 = 64;

/// A completion queue, as counters see it.
pub(crate) trait Source: Send + Sync {
    /// The channel that it reports to.
    fn channel(&self) -> &CompletionChannel;

    /// Takes what the device has for others to read, with the device asked to tell when more comes.
    fn arm(&self) -> Result<()>;

    /// Takes what the device has for others to read.
    fn progress(&self);
}

/// The values of a counter.
#[derive(Clone, Copy)]
enum Which {
    Successes,
    Errors,
}

/// What a program sleeps on by a descriptor.
#[derive(Debug)]
struct Lent {
    epoll: Epoll,
    doorbell: EventFd,
}

impl Lent {
    fn new() -> Result<Self> {
        let (epoll, doorbell) = (Epoll::new()?, EventFd::new()?);
        epoll.add(&doorbell, 0, Interest::READ)?;
        Ok(Self { epoll, doorbell })
    }

    /// Completions of this queue wake who sleeps.
    fn hear(&self, cq: &dyn Source) -> Result<()> {
        self.epoll.add(cq.channel(), 1, Interest::READ)
    }
}

/// A counter.
#[derive(Debug)]
pub struct Counter {
    pub(crate) domain: Arc<Domain>,
    bytes: bool,
    obj: WaitObj,
    values: [AtomicU64; 2],
    /// What the program has read last of each value, and whether it ever reads it.
    told: [AtomicU64; 2],
    read: [AtomicBool; 2],
    /// The queues whose completions are counted.
    sources: Mutex<Vec<Weak<dyn Source>>>,
    lent: Option<Lent>,
    /// The doorbells of threads that sleep in a call, and how many these are.
    sleeping: Mutex<Vec<Arc<Lent>>>,
    sleepers: AtomicUsize,
    idle: AtomicU32,
}

impl Counter {
    pub(crate) fn open(domain: &Arc<Domain>, attr: &CounterAttr) -> Result<Arc<Self>> {
        let lent = match attr.wait {
            WaitObj::None | WaitObj::Yield | WaitObj::MutexCond => None,
            WaitObj::Unspec | WaitObj::Fd | WaitObj::PollFd => Some(Lent::new()?),
            WaitObj::Set => {
                fi_warn!(
                    NAME,
                    Subsys::Cntr,
                    "a counter has the wait objects FI_WAIT_NONE, FI_WAIT_FD and FI_WAIT_UNSPEC; ask for one \
                     of these"
                );
                return Err(Errno::ENOSYS);
            }
        };
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            bytes: attr.bytes,
            obj: attr.wait,
            values: Default::default(),
            told: Default::default(),
            read: Default::default(),
            sources: Mutex::default(),
            lent,
            sleeping: Mutex::default(),
            sleepers: AtomicUsize::new(0),
            idle: AtomicU32::new(0),
        }))
    }

    /// Completions of this queue are counted here from now on.
    pub(crate) fn add_source(&self, cq: &Arc<dyn Source>) -> Result<()> {
        let mut sources = self.sources.lock();
        sources.retain(|source| source.strong_count() > 0);
        let mut others = sources.iter().filter_map(Weak::upgrade);
        if others.any(|other| Arc::ptr_eq(&other, cq)) {
            return Ok(());
        }
        if let Some(lent) = &self.lent {
            lent.hear(&**cq)?;
        }
        sources.push(Arc::downgrade(cq));
        drop(sources);
        self.wake();
        Ok(())
    }

    fn sources(&self) -> Vec<Arc<dyn Source>> {
        let sources = self.sources.lock();
        sources.iter().filter_map(Weak::upgrade).collect()
    }

    /// Counts an operation that has ended well.
    pub(crate) fn count(&self, len: usize) {
        let step = if self.bytes { len as u64 } else { 1 };
        self.values[Which::Successes as usize].fetch_add(step, Ordering::SeqCst);
        self.wake();
    }

    /// Counts one that has failed.
    pub(crate) fn count_failure(&self) {
        self.values[Which::Errors as usize].fetch_add(1, Ordering::SeqCst);
        self.wake();
    }

    /// A value has changed.
    fn wake(&self) {
        let told = |doorbell: &EventFd| {
            if let Err(error) = doorbell.signal() {
                fi_warn!(
                    NAME,
                    Subsys::Cntr,
                    "a waiting thread cannot be woken: {error}"
                );
            }
        };
        if let Some(lent) = &self.lent {
            told(&lent.doorbell);
        }
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            for seat in &*self.sleeping.lock() {
                told(&seat.doorbell);
            }
        }
    }

    fn values(&self) -> [u64; 2] {
        self.values
            .each_ref()
            .map(|value| value.load(Ordering::SeqCst))
    }

    /// Takes what the devices have.
    fn progress(&self) {
        for cq in self.sources() {
            cq.progress();
        }
    }

    fn poll(&self, which: Which) -> u64 {
        let before = self.values();
        self.progress();
        let now = self.values();
        if now == before
            && self
                .idle
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(IDLE_READS)
        {
            self.domain.fabric.cm.progress();
            std::thread::yield_now();
        }
        let which = which as usize;
        self.read[which].store(true, Ordering::Relaxed);
        self.told[which].store(now[which], Ordering::Relaxed);
        // The other value is no news to a program that never reads it.
        if !self.read[1 - which].load(Ordering::Relaxed) {
            self.told[1 - which].store(now[1 - which], Ordering::Relaxed);
        }
        now[which]
    }

    fn change(&self, which: Which, change: impl Fn(u64) -> u64) {
        let value = &self.values[which as usize];
        // It always has a new value.
        let _ = value.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(change(old)));
        self.wake();
    }

    /// Takes what there is, with the devices asked to tell when more comes.
    fn arm(&self) -> Result<()> {
        self.domain.fabric.cm.progress();
        for cq in self.sources() {
            cq.arm()?;
        }
        Ok(())
    }

    /// A place to sleep for the calling thread; none where waiting is giving up the processor.
    fn take_seat(&self) -> Result<Option<Arc<Lent>>> {
        if matches!(self.obj, WaitObj::None | WaitObj::Yield) {
            return Ok(None);
        }
        let seat = Arc::new(Lent::new()?);
        for cq in self.sources() {
            seat.hear(&*cq)?;
        }
        seat.epoll
            .add(self.domain.fabric.cm.fd(), 2, Interest::READ)?;
        self.sleeping.lock().push(Arc::clone(&seat));
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        Ok(Some(seat))
    }

    fn leave(&self, seat: &Arc<Lent>) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        self.sleeping
            .lock()
            .retain(|other| !Arc::ptr_eq(other, seat));
    }

    /// Repeats until `ready` gives a result; [`Errno::ETIMEDOUT`] at `end`.
    fn until(
        &self,
        end: Option<Duration>,
        seat: Option<&Lent>,
        ready: impl Fn() -> Option<Result<()>>,
    ) -> Result<()> {
        let mut events = Events::with_capacity(4);
        loop {
            match seat {
                Some(seat) => {
                    seat.doorbell.drain()?;
                    self.arm()?;
                }
                None => self.progress(),
            }
            if let Some(outcome) = ready() {
                return outcome;
            }
            let left = end.map(|end| end.saturating_sub(clock::now()));
            if left == Some(Duration::ZERO) {
                return Err(Errno::ETIMEDOUT);
            }
            let slept = seat.map(|seat| seat.epoll.wait(&mut events, left));
            match slept {
                None => std::thread::yield_now(),
                // `fi_cntr(3)` knows no end by a signal.
                Some(Ok(_) | Err(Errno::EINTR)) => {}
                Some(Err(error)) => return Err(error),
            }
        }
    }
}

impl provider::Counter for Counter {
    fn read(&self) -> u64 {
        self.poll(Which::Successes)
    }

    fn read_error(&self) -> u64 {
        self.poll(Which::Errors)
    }

    fn add(&self, value: u64) {
        self.change(Which::Successes, |old| old.wrapping_add(value));
    }

    fn set(&self, value: u64) {
        self.change(Which::Successes, |_| value);
    }

    fn add_error(&self, value: u64) {
        self.change(Which::Errors, |old| old.wrapping_add(value));
    }

    fn set_error(&self, value: u64) {
        self.change(Which::Errors, |_| value);
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result<()> {
        let end = timeout.and_then(|timeout| clock::now().checked_add(timeout));
        // What has failed before this is counted is news of this wait, too.
        let [_, errors] = self.values();
        self.progress();
        let ready = || match self.values() {
            [_, now] if now != errors => Some(Err(Errno::EAVAIL)),
            [value, _] if value >= threshold => Some(Ok(())),
            _ => None,
        };
        if let Some(outcome) = ready() {
            return outcome;
        }
        let seat = self.take_seat()?;
        let outcome = self.until(end, seat.as_deref(), ready);
        if let Some(seat) = &seat {
            self.leave(seat);
        }
        outcome
    }

    fn wait_obj(&self) -> WaitObj {
        self.obj
    }

    fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        let lent = self.lent.as_ref().ok_or(Errno::ENODATA)?;
        Ok(lent.epoll.as_fd())
    }

    fn try_wait(&self) -> Result<()> {
        let lent = self.lent.as_ref().ok_or(Errno::ENODATA)?;
        lent.doorbell.drain()?;
        self.arm()?;
        let told = self.told.each_ref();
        match told.map(|value| value.load(Ordering::Relaxed)) == self.values() {
            true => Ok(()),
            false => Err(Errno::EAGAIN),
        }
    }
}

/// The counters of an endpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counting {
    send: Option<Arc<Counter>>,
    recv: Option<Arc<Counter>>,
    read: Option<Arc<Counter>>,
    write: Option<Arc<Counter>>,
}

impl Counting {
    /// Has operations of these directions counted.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] where one is counted already; [`Errno::ENOSYS`] for what peers do, which devices do
    /// not tell.
    pub(crate) fn bind(&mut self, counter: &Arc<Counter>, flags: Flags) -> Result<()> {
        if flags.intersects(Flags::REMOTE_READ | Flags::REMOTE_WRITE) {
            fi_warn!(
                NAME,
                Subsys::Cntr,
                "devices do not tell what peers read and write, so nothing counts it (FI_RMA_EVENT is not \
                 offered)"
            );
            return Err(Errno::ENOSYS);
        }
        let mut bound = self.clone();
        let places = [
            (Flags::SEND, &mut bound.send),
            (Flags::RECV, &mut bound.recv),
            (Flags::READ, &mut bound.read),
            (Flags::WRITE, &mut bound.write),
        ];
        for (what, place) in places {
            if flags.contains(what) && place.replace(Arc::clone(counter)).is_some() {
                return Err(Errno::EINVAL);
            }
        }
        *self = bound;
        Ok(())
    }

    /// The counter of operations whose completions say this.
    #[inline]
    pub(crate) fn of(&self, says: Flags) -> Option<&Counter> {
        let place = if says.contains(Flags::RECV) {
            &self.recv
        } else if says.contains(Flags::READ) {
            &self.read
        } else if says.contains(Flags::WRITE) {
            &self.write
        } else {
            &self.send
        };
        place.as_deref()
    }

    /// Whether anything that this side sends, reads or writes is counted.
    pub(crate) fn counts_tx(&self) -> bool {
        self.send.is_some() || self.read.is_some() || self.write.is_some()
    }

    /// Whether receives are counted.
    pub(crate) fn counts_rx(&self) -> bool {
        self.recv.is_some()
    }

    /// Receives are counted by `other`, where they have no counter.
    pub(crate) fn count_receives_by(&mut self, other: Option<&Arc<Counter>>) {
        if self.recv.is_none() {
            self.recv = other.cloned();
        }
    }

    /// What the queues of both sides report is counted.
    pub(crate) fn start(&self, tx: &Arc<dyn Source>, rx: &Arc<dyn Source>) -> Result<()> {
        for counter in [&self.send, &self.read, &self.write].into_iter().flatten() {
            counter.add_source(tx)?;
        }
        self.recv
            .as_ref()
            .map_or(Ok(()), |counter| counter.add_source(rx))
    }
}
