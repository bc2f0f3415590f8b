//! Completion queues.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use ripstop_core::log::Subsys;
use ripstop_core::provider::{CompletionQueue, CqAttr};
use ripstop_core::{ProgressSource as _, fi_warn};
use ripstop_engine::cq::{CompletionQueue as Entries, ErrorEntry};
use ripstop_ibverbs::{CompletionChannel, Status, Wc, WcKind};
use ripstop_os::{Epoll, EventFd, Events, Interest, clock};
use ripstop_types::{Completion, CompletionError, Errno, FiAddr, Flags, Result, WaitObj, flags};

use crate::counter::{IDLE_READS, Source};
use crate::domain::Domain;
use crate::params::NAME;
use crate::queue::Posted;
use crate::sides::{Far, RECEIVE, Sides};
use crate::ud::HEADER;
use crate::watch::{Hears, Of, Told};

/// Entries of a queue whose opener named no number, and of any that is smaller.
const LEAST_ENTRIES: usize = 1024;

/// What a queue has behind its lock.
struct State {
    entries: Entries,
    /// Room for what is taken from the device at a time.
    taken: Box<[Wc]>,
    /// Reads of the queue, counted so that one that always finds something also looks for ends of connections.
    reads: u32,
}

/// Every so many reads, ends of connections and of devices are looked for, whatever is found.
const READS_PER_LOOK: u32 = 1024;

/// Where a program sleeps until there are completions.
#[derive(Debug)]
struct Waiting {
    /// Rung by [`Cq::signal`], and by who takes completions from the device for others to read.
    doorbell: EventFd,
    /// That, the completions of the queue, and the events of connections: what ends one ends what was posted to it.
    epoll: Epoll,
}

/// A completion queue.
pub struct Cq {
    pub(crate) domain: Arc<Domain>,
    pub(crate) device_cq: Arc<ripstop_ibverbs::Cq>,
    state: Mutex<State>,
    /// The endpoints that report here, by the number of their queue pair.
    endpoints: RwLock<HashMap<u32, Arc<Sides>>>,
    /// How many more requests may be under way, so that their completions have room.
    room: AtomicUsize,
    /// How many batches of requests wait that report here.
    pub(crate) batches: Arc<AtomicUsize>,
    idle: AtomicU32,
    obj: WaitObj,
    channel: Arc<CompletionChannel>,
    waiting: Option<Waiting>,
    /// Nobody reads it: an endpoint has it where the program has bound none, and counts.
    is_silent: bool,
    /// Threads that sleep in a call, or are about to.
    sleepers: AtomicUsize,
    /// [`CompletionQueue::signal`] was called, and nobody has heard it yet.
    signalled: AtomicBool,
}

impl std::fmt::Debug for Cq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cq({:?})", self.device_cq)
    }
}

impl Waiting {
    fn new(domain: &Domain, channel: &CompletionChannel) -> Result<Self> {
        let doorbell = EventFd::new()?;
        let epoll = Epoll::new()?;
        epoll.add(channel, 0, Interest::READ)?;
        epoll.add(&doorbell, 1, Interest::READ)?;
        epoll.add(domain.fabric.cm.fd(), 2, Interest::READ)?;
        Ok(Self { doorbell, epoll })
    }
}

impl Cq {
    pub(crate) fn open(domain: &Arc<Domain>, attr: &CqAttr) -> Result<Arc<Self>> {
        Self::make(domain, attr, false)
    }

    /// A queue for an endpoint that has none, of which nothing but counters tells. It holds as many entries.
    pub(crate) fn silent(domain: &Arc<Domain>, entries: usize) -> Result<Arc<Self>> {
        let attr = CqAttr {
            size: entries,
            wait: WaitObj::None,
            ..CqAttr::default()
        };
        Self::make(domain, &attr, true)
    }

    fn make(domain: &Arc<Domain>, attr: &CqAttr, is_silent: bool) -> Result<Arc<Self>> {
        // Each queue has its own: whoever makes it unreadable also looks at the queue.
        let channel = CompletionChannel::new(&domain.context)?;
        let waiting = match attr.wait {
            WaitObj::None | WaitObj::Yield => None,
            WaitObj::Unspec | WaitObj::Fd | WaitObj::PollFd => {
                Some(Waiting::new(domain, &channel)?)
            }
            WaitObj::Set | WaitObj::MutexCond => {
                fi_warn!(
                    NAME,
                    Subsys::Cq,
                    "a completion queue has the wait objects FI_WAIT_NONE, FI_WAIT_FD and FI_WAIT_UNSPEC; \
                     ask for one of these"
                );
                return Err(Errno::ENOSYS);
            }
        };
        let entries = attr.size.max(LEAST_ENTRIES).min(domain.attr.max_cqe);
        let device_cq = ripstop_ibverbs::Cq::new(&domain.context, entries, Some(&channel))
            .inspect_err(|error| {
                fi_warn!(
                    NAME,
                    Subsys::Cq,
                    "the device has no completion queue of {entries} entries: {error}"
                );
            })?;
        let bunch = domain.fabric.params.cqread_bunch_size;
        let cq = Arc::new(Self {
            domain: Arc::clone(domain),
            room: AtomicUsize::new(device_cq.capacity()),
            device_cq,
            state: Mutex::new(State {
                entries: Entries::new(entries)?,
                taken: vec![Wc::default(); bunch].into(),
                reads: 0,
            }),
            endpoints: RwLock::default(),
            batches: Arc::default(),
            idle: AtomicU32::new(0),
            obj: attr.wait,
            channel,
            waiting,
            is_silent,
            sleepers: AtomicUsize::new(0),
            signalled: AtomicBool::new(false),
        });
        let heard: Weak<Self> = Arc::downgrade(&cq);
        domain.watch.add(Of::Queue(cq.device_cq.key()), heard);
        Ok(cq)
    }

    /// An endpoint whose queue pair has this number reports here.
    pub(crate) fn add(&self, number: u32, sides: &Arc<Sides>) {
        self.endpoints.write().insert(number, Arc::clone(sides));
    }

    /// The queue pair is gone: takes what it has still reported, and forgets it.
    pub(crate) fn remove(&self, number: u32) {
        self.progress();
        self.endpoints.write().remove(&number);
    }

    /// Takes room for the completions of so many requests.
    pub(crate) fn take_room(&self, requests: usize) -> bool {
        let less = |room: usize| room.checked_sub(requests);
        let taken = self
            .room
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        taken.is_ok()
    }

    /// So many requests have ended.
    pub(crate) fn give_room(&self, requests: usize) {
        self.room.fetch_add(requests, Ordering::AcqRel);
    }

    /// A request of an endpoint fails without the device.
    pub(crate) fn fail(&self, posted: &Posted, sides: &Sides, error: Errno) {
        let mut state = self.state.lock();
        self.report_refused(posted, sides, error, &mut state.entries);
        drop(state);
        self.wake();
    }

    #[cold]
    fn report_refused(&self, posted: &Posted, sides: &Sides, error: Errno, entries: &mut Entries) {
        if let Some(counter) = sides.counting.of(posted.flags) {
            counter.count_failure();
        }
        if !self.is_silent {
            entries.push_error(ErrorEntry::new(entry(posted), error));
        }
    }

    /// Gives the requests of an endpoint that wait for more to the device.
    pub(crate) fn flush(&self, sides: &Sides) {
        for (posted, error) in sides.flush(&self.batches) {
            self.give_room(1);
            self.fail(&posted, sides, error);
        }
    }

    /// Gives all requests that wait for more to the device: nobody posts any while the queue is read.
    #[cold]
    fn flush_all(&self, entries: &mut Entries) {
        for sides in self.endpoints.read().values() {
            for (posted, error) in sides.flush(&self.batches) {
                self.give_room(1);
                self.report_refused(&posted, sides, error, entries);
            }
        }
    }

    /// Wakes who waits: there are entries that the device tells nobody of any more.
    fn wake(&self) {
        if let Some(waiting) = &self.waiting
            && let Err(error) = waiting.doorbell.signal()
        {
            fi_warn!(
                NAME,
                Subsys::Cq,
                "a waiting thread cannot be woken: {error}"
            );
        }
    }

    /// Takes a bunch of completions from the device; whether there may be more.
    fn take(&self, state: &mut State) -> bool {
        let State { entries, taken, .. } = state;
        if self.batches.load(Ordering::Acquire) > 0 {
            self.flush_all(entries);
        }
        let count = match self.device_cq.poll(taken) {
            Ok(count) => count,
            Err(error) => {
                let device = self.domain.context.name();
                fi_warn!(
                    NAME,
                    Subsys::Cq,
                    "device {device}: a completion queue cannot be read: {error}"
                );
                return false;
            }
        };
        if count == 0 {
            return false;
        }
        let endpoints = self.endpoints.read();
        for wc in &taken[..count] {
            // One that is closed is not told any more.
            if let Some(sides) = endpoints.get(&wc.qp_num()) {
                self.report(wc, sides, entries);
            }
        }
        count == taken.len()
    }

    /// Makes an entry of what the device says.
    fn report(&self, wc: &Wc, sides: &Sides, entries: &mut Entries) {
        let is_receive = wc.id() & RECEIVE != 0;
        let Some((posted, requests)) = sides.end(wc.id()) else {
            return;
        };
        self.give_room(requests);
        if wc.status() != Status::SUCCESS {
            self.report_failure(wc, &posted, is_receive, sides, entries);
            sides.recover();
            return;
        }
        let mut entry = entry(&posted);
        if is_receive {
            entry.len = wc.len();
            if matches!(sides.far, Far::Datagrams)
                && let Some(error) = misfit(wc.len(), posted.len)
            {
                self.report_misfit(&posted, error, sides, entries);
                return;
            }
            if let Some(data) = wc.immediate() {
                entry.flags |= Flags::REMOTE_CQ_DATA;
                entry.data = data.into();
            }
            if wc.kind() == WcKind::RecvWrite {
                entry.flags = flags![RMA REMOTE_WRITE REMOTE_CQ_DATA];
                if !self.is_silent {
                    entries.push(entry);
                }
                return;
            }
        }
        if let Some(counter) = sides.counting.of(posted.flags) {
            counter.count(if is_receive { wc.len() } else { posted.len });
        }
        if posted.reported && !self.is_silent {
            entries.push(entry);
        }
    }

    /// A datagram was longer than the receive, or none.
    #[cold]
    fn report_misfit(&self, posted: &Posted, misfit: Misfit, sides: &Sides, entries: &mut Entries) {
        if let Some(counter) = sides.counting.of(posted.flags) {
            counter.count_failure();
        }
        if self.is_silent {
            return;
        }
        let mut failure = ErrorEntry::new(entry(posted), misfit.errno);
        failure.error.entry.len = misfit.len;
        failure.error.olen = misfit.over;
        entries.push_error(failure);
    }

    #[cold]
    fn report_failure(
        &self,
        wc: &Wc,
        posted: &Posted,
        is_receive: bool,
        sides: &Sides,
        entries: &mut Entries,
    ) {
        let status = wc.status();
        let is_flushed = status == Status::FLUSHED;
        if !is_flushed && !sides.broken.swap(true, Ordering::AcqRel) {
            let (advice, vendor) = (advice(status), wc.vendor_error());
            sides.break_off(&format!("{advice} ({status}, of the device {vendor:#x})"));
        }
        if let Some(counter) = sides.counting.of(posted.flags) {
            counter.count_failure();
        }
        // Nobody waits for what was injected, unless it is what has failed.
        if self.is_silent || is_flushed && !posted.reported && !is_receive {
            return;
        }
        let (errno, about) = match sides.is_lost() {
            true => (Errno::ENODEV, self.domain.watch.name().as_bytes()),
            false => (errno(status), &wc.vendor_error().to_ne_bytes()[..]),
        };
        entries.push_error(failure(posted, errno, about));
    }

    /// The device tells no ends of an endpoint's requests any more: those that it has not told fail.
    #[cold]
    pub(crate) fn abandon(&self, sides: &Sides, error: Errno) {
        let mut state = self.state.lock();
        while self.take(&mut state) {}
        let left = sides.abandoned(&self.batches);
        self.give_room(left.len());
        let device = self.domain.watch.name();
        for posted in &left {
            if let Some(counter) = sides.counting.of(posted.flags) {
                counter.count_failure();
            }
            let is_receive = posted.flags.contains(Flags::RECV);
            if !self.is_silent && (posted.reported || is_receive) {
                let failure = failure(posted, error, device.as_bytes());
                state.entries.push_error(failure);
            }
        }
        drop(state);
        self.wake();
    }

    /// Nothing has come: looks for ends of connections, which are also for who reads no event queue, and gives up
    /// the processor, both now and then. Who sleeps by the descriptor was perhaps woken by one.
    fn note_idle(&self) {
        let idle = self.idle.fetch_add(1, Ordering::Relaxed);
        let is_due = idle.is_multiple_of(IDLE_READS);
        if is_due || self.waiting.is_some() {
            self.domain.fabric.cm.progress();
        }
        if is_due {
            std::thread::yield_now();
        }
    }

    fn take_entries(&self, max: usize, entry: &mut impl FnMut(&Completion)) -> Result<usize> {
        let mut state = self.state.lock();
        if state.entries.len() < max.max(1) {
            while self.take(&mut state) && state.entries.len() < max {}
        }
        let mut count = 0;
        while count < max {
            match state.entries.take(&mut *entry) {
                Ok(()) => count += 1,
                Err(_) if count > 0 => break,
                Err(error) => return Err(error),
            }
        }
        let is_empty = state.entries.is_empty();
        state.reads = state.reads.wrapping_add(1);
        let is_due = state.reads.is_multiple_of(READS_PER_LOOK);
        drop(state);
        if is_due {
            self.domain.fabric.cm.progress();
        }
        if !is_empty && self.sleepers.load(Ordering::Acquire) > 0 {
            self.wake();
        }
        match count == 0 && is_empty {
            true => Err(Errno::EAGAIN),
            false => Ok(count),
        }
    }

    /// Whether so many entries, or a failure, can be read.
    fn has(&self, wanted: usize) -> bool {
        let mut state = self.state.lock();
        while self.take(&mut state) {}
        state.entries.len() >= wanted || state.entries.has_error()
    }

    /// Sleeps until something may have come.
    ///
    /// # Errors
    /// [`Errno::EINTR`] after a signal to the process; of the system.
    fn sleep(&self, waiting: &Waiting, wanted: usize, left: Option<Duration>) -> Result<()> {
        self.domain.fabric.cm.progress();
        self.channel.drain()?;
        self.device_cq.arm()?;
        // What came before is not told.
        if self.has(wanted) {
            return Ok(());
        }
        let mut events = Events::with_capacity(2);
        let slept = waiting.epoll.wait(&mut events, left);
        waiting.doorbell.drain()?;
        slept.map(|_| ())
    }

    /// Whether nothing waits, with the device asked to tell when something comes.
    fn is_quiet(&self, waiting: &Waiting) -> Result<bool> {
        self.domain.fabric.cm.progress();
        self.channel.drain()?;
        waiting.doorbell.drain()?;
        self.device_cq.arm()?;
        // What came before is not told.
        let mut state = self.state.lock();
        while self.take(&mut state) {}
        Ok(state.entries.is_empty())
    }
}

impl Hears for Cq {
    fn told(&self, what: Told, _: &str) {
        if what != Told::Failed {
            return;
        }
        let endpoints: Vec<_> = self.endpoints.read().values().cloned().collect();
        for sides in endpoints {
            if !sides.broken.swap(true, Ordering::AcqRel) {
                sides.break_off("its completion queue has lost completions");
            }
            self.abandon(&sides, Errno::EOVERRUN);
        }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        let watch = &self.domain.watch;
        watch.remove(Of::Queue(self.device_cq.key()));
    }
}

/// What is wrong with a datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Misfit {
    errno: Errno,
    /// Bytes that are in the receive, and those that are not.
    len: usize,
    over: usize,
}

/// Looks at a datagram of `len` bytes with its header, for which the program has `room`.
#[inline]
fn misfit(len: usize, room: usize) -> Option<Misfit> {
    let errno = match len {
        _ if len > room => Errno::ETRUNC,
        _ if len < HEADER => Errno::EIO,
        _ => return None,
    };
    Some(Misfit {
        errno,
        len: len.min(room),
        over: len.saturating_sub(room),
    })
}

/// What is known of a request.
fn entry(posted: &Posted) -> Completion {
    Completion {
        context: posted.context,
        flags: posted.flags,
        len: 0,
        buf: 0,
        data: 0,
        tag: 0,
        src: FiAddr::NOTAVAIL,
    }
}

/// A failure of a request, with more about it.
fn failure(posted: &Posted, errno: Errno, about: &[u8]) -> ErrorEntry {
    let mut failure = ErrorEntry::new(entry(posted), errno);
    let about = &about[..about.len().min(failure.data.len())];
    failure.data[..about.len()].copy_from_slice(about);
    failure.data_len = about.len() as u8;
    failure
}

/// The error of a status.
fn errno(status: Status) -> Errno {
    match status {
        Status::FLUSHED => Errno::ECANCELED,
        Status::LENGTH => Errno::ETRUNC,
        Status::PROTECTION => Errno::EFAULT,
        Status::REMOTE_ACCESS => Errno::EACCES,
        Status::REMOTE_INVALID => Errno::EMSGSIZE,
        Status::RETRIES => Errno::ETIMEDOUT,
        Status::RNR_RETRIES => Errno::ENORX,
        _ => Errno::EIO,
    }
}

/// What a status means, and what to do about it.
fn advice(status: Status) -> &'static str {
    match status {
        Status::LENGTH => "a message is longer than the receive; post longer ones",
        Status::PROTECTION => "memory of a request is not registered for it; keep its region open",
        Status::REMOTE_ACCESS => {
            "the peer's memory is not registered for that; look at key, address and access"
        }
        Status::REMOTE_INVALID => "the peer's receive is too short; post longer ones there",
        Status::RETRIES => "the peer does not answer; look at it and at the network",
        Status::RNR_RETRIES => "the peer has no receive posted; post more there",
        _ => "the device says why",
    }
}

impl Source for Cq {
    fn channel(&self) -> &CompletionChannel {
        &self.channel
    }

    fn arm(&self) -> Result<()> {
        self.channel().drain()?;
        self.device_cq.arm()?;
        // What came before is not told.
        self.progress();
        Ok(())
    }

    fn progress(&self) {
        let mut state = self.state.lock();
        let before = state.entries.len();
        while self.take(&mut state) {}
        let is_more = state.entries.len() > before;
        drop(state);
        if is_more {
            self.wake();
        }
    }
}

impl CompletionQueue for Cq {
    #[inline]
    fn read(&self, max: usize, mut entry: impl FnMut(&Completion)) -> Result<usize> {
        let taken = self.take_entries(max, &mut entry);
        if taken == Err(Errno::EAGAIN) {
            self.note_idle();
        }
        taken
    }

    fn sread(
        &self,
        max: usize,
        threshold: usize,
        timeout: Option<Duration>,
        mut entry: impl FnMut(&Completion),
    ) -> Result<usize> {
        if self.obj == WaitObj::None {
            return Err(Errno::ENOSYS);
        }
        let end = timeout.and_then(|timeout| clock::now().checked_add(timeout));
        let wanted = threshold.clamp(1, max.max(1));
        self.sleepers.fetch_add(1, Ordering::AcqRel);
        let waited = loop {
            if self.has(wanted) {
                break Ok(());
            }
            if self.signalled.swap(false, Ordering::AcqRel) {
                break Err(Errno::EAGAIN);
            }
            let left = end.map(|end| end.saturating_sub(clock::now()));
            if left == Some(Duration::ZERO) {
                break Err(Errno::EAGAIN);
            }
            let Some(waiting) = &self.waiting else {
                std::thread::yield_now();
                continue;
            };
            match self.sleep(waiting, wanted, left) {
                Ok(()) => {}
                // Once more, and no longer (`fi_cq(3)`).
                Err(Errno::EINTR) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.sleepers.fetch_sub(1, Ordering::AcqRel);
        waited?;
        self.take_entries(max, &mut entry)
    }

    fn poll(&self) -> bool {
        self.progress();
        !self.state.lock().entries.is_empty()
    }

    fn read_error(&self, entry: impl FnOnce(&CompletionError, &[u8])) -> Result<()> {
        let failure = self.state.lock().entries.pop_error()?;
        entry(&failure.error, failure.data());
        Ok(())
    }

    fn signal(&self) -> Result<()> {
        let waiting = self.waiting.as_ref().ok_or(Errno::ENOSYS)?;
        self.signalled.store(true, Ordering::Release);
        waiting.doorbell.signal()
    }

    fn wait_obj(&self) -> WaitObj {
        self.obj
    }

    fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        let waiting = self.waiting.as_ref().ok_or(Errno::ENODATA)?;
        Ok(waiting.epoll.as_fd())
    }

    fn try_wait(&self) -> Result<()> {
        let waiting = self.waiting.as_ref().ok_or(Errno::ENODATA)?;
        if self.signalled.swap(false, Ordering::AcqRel) || !self.is_quiet(waiting)? {
            return Err(Errno::EAGAIN);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_that_do_not_fit_are_told() {
        assert_eq!(misfit(HEADER, HEADER), None);
        assert_eq!(misfit(HEADER + 64, HEADER + 1024), None);
        let long = misfit(HEADER + 100, HEADER + 64).expect("too long");
        assert_eq!((long.errno, long.len, long.over), (Errno::ETRUNC, 104, 36));
        // Not even room for the header.
        let long = misfit(HEADER, 8).expect("too long");
        assert_eq!((long.errno, long.len, long.over), (Errno::ETRUNC, 8, 32));
        let short = misfit(HEADER - 1, HEADER + 64).expect("too short");
        assert_eq!((short.errno, short.len, short.over), (Errno::EIO, 39, 0));
    }
}
