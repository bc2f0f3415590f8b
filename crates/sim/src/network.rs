//! Byte streams under virtual time, and what tells of them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::RawFd;

use fastrand::Rng;
use ripstop_os::Interest;
use ripstop_types::{Errno, Result};

/// Virtual time in nanoseconds since the start.
pub type Nanos = u64;

/// One end of a stream.
pub type End = usize;

/// How streams behave.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// From a write to the arrival of its first byte.
    pub delay: Nanos,
    /// Between one byte and the next.
    pub per_byte: Nanos,
    /// Bytes a stream holds between writer and reader.
    pub capacity: usize,
    /// Whether reads and writes may be shorter than they could be.
    pub choppy: bool,
}

/// What a poller is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// An end of a stream.
    Stream(End),
    /// A listener, by its address.
    Listener(u16),
    /// A timer, by its number.
    Timer(usize),
}

/// What a source is ready for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ready {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// The stream has ended or failed, which is told whatever was asked for.
    pub(crate) ended: bool,
}

/// Bytes on their way to one end.
#[derive(Debug, Default)]
struct Pipe {
    /// Runs of bytes with the time at which they arrive.
    flying: VecDeque<(Nanos, Vec<u8>)>,
    arrived: VecDeque<u8>,
    last_arrival: Nanos,
    /// Nothing arrives before.
    stalled_until: Nanos,
    /// Bytes that still get through before the stream is cut.
    cut_after: Option<u64>,
    /// The writer has closed: nothing comes behind what flies.
    ended: bool,
}

impl Pipe {
    fn used(&self) -> usize {
        self.arrived.len() + self.flying.iter().map(|(_, run)| run.len()).sum::<usize>()
    }

    fn next_arrival(&self) -> Option<Nanos> {
        let (time, _) = self.flying.front()?;
        Some((*time).max(self.stalled_until))
    }
}

#[derive(Debug)]
struct Side {
    address: u16,
    inbound: Pipe,
    /// The other side is there.
    connected: bool,
    /// This end may be read and written.
    open: bool,
    /// Reads and writes fail from now on.
    reset: bool,
    /// Something was written here: what comes first always fits, as with a socket.
    used: bool,
}

#[derive(Debug, Default)]
struct Timer {
    period: Nanos,
    due: Option<Nanos>,
    rang: bool,
}

/// All streams between the hosts, which have an address each.
#[derive(Debug)]
pub struct Network {
    now: Nanos,
    timing: Timing,
    rng: Rng,
    /// Ends `2n` and `2n + 1` belong together.
    sides: Vec<Side>,
    /// Streams on their way to a listener: time, address, end.
    asking: VecDeque<(Nanos, u16, End)>,
    /// Addresses that are bound, with the streams that wait to be accepted once somebody listens.
    bound: BTreeMap<u16, Option<VecDeque<End>>>,
    timers: Vec<Timer>,
    /// Descriptors that stand for sources.
    fds: HashMap<RawFd, Source>,
    /// What pollers are told of: token and interest, by poller and source.
    watches: BTreeMap<(u32, Source), (u64, Interest)>,
    pollers: u32,
    moves: u64,
    /// A sum of all that moved and when, by which runs can be compared.
    pub(crate) digest: u64,
}

impl Network {
    pub(crate) fn new(timing: Timing, seed: u64) -> Self {
        Self {
            now: 0,
            timing,
            rng: Rng::with_seed(seed),
            sides: Vec::new(),
            asking: VecDeque::new(),
            bound: BTreeMap::new(),
            timers: Vec::new(),
            fds: HashMap::new(),
            watches: BTreeMap::new(),
            pollers: 0,
            moves: 0,
            digest: 0,
        }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Counts what programs did to streams and listeners.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.moves
    }

    fn note(&mut self, what: u64) {
        self.moves += 1;
        self.digest = (self.digest ^ what ^ self.now)
            .wrapping_mul(0x100_0000_01b3)
            .rotate_left(23);
    }

    /// Moves the time to the next arrival or timer. Returns whether there was anything to move to.
    pub fn advance(&mut self) -> bool {
        let sides = self.sides.iter().filter(|side| side.open);
        let flying = sides.filter_map(|side| side.inbound.next_arrival());
        let asking = self.asking.iter().map(|(time, ..)| *time);
        let timers = self.timers.iter().filter(|timer| !timer.rang);
        let timers = timers.filter_map(|timer| timer.due);
        match flying.chain(asking).chain(timers).min() {
            Some(next) => self.pass(next.saturating_sub(self.now)),
            None => return false,
        }
        true
    }

    /// Lets so much time pass.
    pub fn pass(&mut self, time: Nanos) {
        self.now += time;
        let now = self.now;
        while let Some(index) = self.asking.iter().position(|(time, ..)| *time <= now) {
            let Some((_, to, end)) = self.asking.remove(index) else {
                break;
            };
            match self.bound.get_mut(&to).and_then(Option::as_mut) {
                Some(waiting) if !self.sides[end].reset => {
                    waiting.push_back(end);
                    self.sides[end].connected = true;
                    self.sides[end ^ 1].connected = true;
                }
                _ => {
                    self.reset(end);
                    self.sides[end].open = false;
                }
            }
        }
        for end in 0..self.sides.len() {
            self.arrive(end);
        }
        for timer in &mut self.timers {
            if let Some(due) = timer.due.filter(|due| *due <= now) {
                timer.rang = true;
                let missed = (now - due) / timer.period + 1;
                timer.due = Some(due + missed * timer.period);
            }
        }
    }

    fn arrive(&mut self, end: End) {
        let now = self.now;
        let pipe = &mut self.sides[end].inbound;
        while pipe.next_arrival().is_some_and(|time| time <= now) {
            let Some((_, run)) = pipe.flying.pop_front() else {
                return;
            };
            let through = match &mut pipe.cut_after {
                None => run.len(),
                Some(left) => {
                    let through = run.len().min(*left as usize);
                    *left -= through as u64;
                    through
                }
            };
            pipe.arrived.extend(&run[..through]);
            if pipe.cut_after == Some(0) {
                self.reset(end);
                return;
            }
        }
    }

    /// Takes an address.
    ///
    /// # Errors
    /// [`Errno::EADDRINUSE`].
    pub(crate) fn bind(&mut self, address: u16) -> Result<()> {
        match self.bound.contains_key(&address) {
            true => Err(Errno::EADDRINUSE),
            false => {
                self.bound.insert(address, None);
                Ok(())
            }
        }
    }

    /// Streams to an address are accepted from now on.
    pub(crate) fn listen(&mut self, address: u16) {
        if let Some(bound) = self.bound.get_mut(&address) {
            bound.get_or_insert_default();
        }
    }

    /// Nobody listens at an address any more; streams that wait there are reset.
    pub fn unbind(&mut self, address: u16) {
        for end in self.bound.remove(&address).flatten().unwrap_or_default() {
            self.reset(end);
            self.sides[end].open = false;
        }
    }

    /// A process dies: its streams are reset, and it does not listen.
    pub fn kill(&mut self, address: u16) {
        self.unbind(address);
        let ends: Vec<End> = self.ends_of(address).collect();
        for end in ends {
            self.reset(end);
            self.sides[end].open = false;
        }
    }

    /// A host vanishes: as [`Network::kill`], but its peers are not told.
    pub fn vanish(&mut self, address: u16) {
        self.bound.remove(&address);
        for side in &mut self.sides {
            if side.address == address {
                // What it had written may still be on its way, and nothing follows.
                (side.open, side.inbound) = (false, Pipe::default());
            }
        }
    }

    /// Resets every stream whose other end belongs to a host that vanished.
    pub fn reset_orphans(&mut self) {
        for end in 0..self.sides.len() {
            let other = &self.sides[end ^ 1];
            if self.sides[end].open && !other.open && !other.inbound.ended && !other.reset {
                self.reset(end);
            }
        }
    }

    /// Opens a stream.
    pub fn connect(&mut self, from: u16, to: u16) -> End {
        let end = self.sides.len();
        for address in [from, to] {
            self.sides.push(Side {
                address,
                inbound: Pipe::default(),
                connected: false,
                open: true,
                reset: false,
                used: false,
            });
        }
        let time = self.now + self.timing.delay;
        self.asking.push_back((time, to, end + 1));
        self.note(end as u64);
        if self.timing.delay == 0 {
            self.pass(0);
        }
        end
    }

    /// A stream that was opened to an address.
    pub(crate) fn accept(&mut self, address: u16) -> Option<End> {
        let end = self.bound.get_mut(&address)?.as_mut()?.pop_front()?;
        self.note(end as u64);
        Some(end)
    }

    /// Whether the other side of a stream is there.
    ///
    /// # Errors
    /// [`Errno::ECONNREFUSED`] where it is not and will not be.
    pub(crate) fn is_connected(&self, end: End) -> Result<bool> {
        let side = &self.sides[end];
        match side.connected || !side.reset {
            true => Ok(side.connected),
            false => Err(Errno::ECONNREFUSED),
        }
    }

    /// How many bytes a write would take.
    pub(crate) fn room(&self, end: End) -> usize {
        let used = self.sides[end ^ 1].inbound.used();
        self.timing.capacity.saturating_sub(used)
    }

    /// How many bytes have arrived and were not read.
    pub(crate) fn readable(&self, end: End) -> usize {
        self.sides[end].inbound.arrived.len()
    }

    /// Whether there is room for a small message, as far as there can be.
    pub(crate) fn has_room(&self, end: End) -> bool {
        self.room(end) >= self.timing.capacity.min(256)
    }

    /// Whether bytes that were written have not arrived.
    pub(crate) fn is_flying(&self, end: End) -> bool {
        let other = &self.sides[end ^ 1];
        other.open && !other.inbound.flying.is_empty()
    }

    /// Writes the front of `bytes`; returns how many.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when the stream is full, [`Errno::ECONNRESET`] when it is gone.
    pub fn write(&mut self, end: End, bytes: &[u8]) -> Result<usize> {
        let side = &self.sides[end];
        if side.reset || !side.open {
            return Err(Errno::ECONNRESET);
        }
        let other = &self.sides[end ^ 1];
        if !other.open {
            // Nobody reads. A vanished host does not answer; a closed end resets.
            return if other.inbound.ended {
                Err(Errno::ECONNRESET)
            } else {
                Err(Errno::EAGAIN)
            };
        }
        let len = match std::mem::replace(&mut self.sides[end].used, true) {
            true => self.chop(self.room(end).min(bytes.len())),
            false => bytes.len(),
        };
        if len == 0 {
            return Err(Errno::EAGAIN);
        }
        let timing = self.timing;
        let now = self.now;
        let pipe = &mut self.sides[end ^ 1].inbound;
        let start = pipe.last_arrival.max(now + timing.delay);
        let arrival = start + timing.per_byte * len as u64;
        pipe.last_arrival = arrival;
        pipe.flying.push_back((arrival, bytes[..len].to_vec()));
        if timing.delay == 0 && timing.per_byte == 0 {
            self.arrive(end ^ 1);
        }
        let sum = bytes[..len].iter().fold(len as u64, |sum, byte| {
            sum.rotate_left(5) ^ u64::from(*byte)
        });
        self.note(sum);
        Ok(len)
    }

    /// Reads what has arrived; returns how many bytes, 0 at the end of the stream.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when nothing has, [`Errno::ECONNRESET`] when nothing will.
    pub fn read(&mut self, end: End, bytes: &mut [u8]) -> Result<usize> {
        let available = self.sides[end].inbound.arrived.len().min(bytes.len());
        let len = self.chop(available);
        let side = &mut self.sides[end];
        if len == 0 {
            let over = side.inbound.ended && side.inbound.flying.is_empty();
            return match side.reset || !side.open {
                true => Err(Errno::ECONNRESET),
                false if over => Ok(0),
                false => Err(Errno::EAGAIN),
            };
        }
        for byte in &mut bytes[..len] {
            *byte = side.inbound.arrived.pop_front().unwrap_or_default();
        }
        self.note(len as u64);
        Ok(len)
    }

    fn chop(&mut self, len: usize) -> usize {
        if self.timing.choppy && len > 1 {
            // Short runs are likelier, and one byte at a time is likely.
            let bound = 1 << self.rng.u32(0..=len.ilog2() + 1);
            self.rng.usize(1..=len.min(bound))
        } else {
            len
        }
    }

    /// Closes this end. What was written before still arrives, unless bytes that arrived here were
    /// not read: that resets the stream.
    pub fn close(&mut self, end: End) {
        let side = &mut self.sides[end];
        if !side.open {
            return;
        }
        let unread = !side.inbound.arrived.is_empty();
        side.open = false;
        side.inbound = Pipe {
            ended: true,
            ..Pipe::default()
        };
        self.sides[end ^ 1].inbound.ended = true;
        if unread {
            self.reset(end);
        }
        self.note(end as u64);
    }

    /// What this end has written and has not arrived is lost.
    pub(crate) fn take_back(&mut self, end: End) {
        self.sides[end ^ 1].inbound.flying.clear();
    }

    /// Nothing is written any more at this end; what was still arrives.
    pub(crate) fn shut(&mut self, end: End) {
        self.sides[end ^ 1].inbound.ended = true;
        self.note(end as u64);
    }

    /// Resets the stream: what has not arrived is lost.
    pub fn reset(&mut self, end: End) {
        for end in [end, end ^ 1] {
            self.sides[end].reset = true;
            self.sides[end].inbound.flying.clear();
        }
    }

    /// Cuts the stream after this many more bytes towards `end`.
    pub fn cut_after(&mut self, end: End, bytes: u64) {
        self.sides[end].inbound.cut_after = Some(bytes);
        if bytes == 0 {
            self.reset(end);
        }
    }

    /// As [`Network::cut_after`], for the end of this number, if there is one.
    pub fn cut_nth(&mut self, end: End, bytes: u64) -> bool {
        let is = end < self.sides.len();
        if is {
            self.cut_after(end, bytes);
        }
        is
    }

    /// Holds back what flies towards `end`.
    pub fn stall(&mut self, end: End, time: Nanos) {
        self.sides[end].inbound.stalled_until = self.now + time;
    }

    /// Ends of streams of an address that can still be used.
    pub fn ends_of(&self, address: u16) -> impl Iterator<Item = End> + '_ {
        let sides = self.sides.iter().enumerate();
        sides
            .filter(move |(_, side)| side.address == address && side.open && !side.reset)
            .map(|(end, _)| end)
    }

    /// The ends at one address of streams to another, the newest last.
    pub fn ends_between(&self, address: u16, peer: u16) -> impl Iterator<Item = End> + '_ {
        self.ends_of(address)
            .filter(move |end| self.sides[end ^ 1].address == peer && self.sides[*end].connected)
    }

    pub(crate) fn timer(&mut self) -> usize {
        self.timers.push(Timer::default());
        self.timers.len() - 1
    }

    pub(crate) fn set_timer(&mut self, timer: usize, period: Nanos) {
        let due = (period > 0).then_some(self.now + period);
        self.timers[timer] = Timer {
            period,
            due,
            rang: false,
        };
    }

    pub(crate) fn drain_timer(&mut self, timer: usize) {
        self.timers[timer].rang = false;
    }

    pub(crate) fn name(&mut self, fd: RawFd, source: Source) {
        self.fds.insert(fd, source);
    }

    /// A descriptor is closed.
    pub(crate) fn forget(&mut self, fd: RawFd) {
        if let Some(source) = self.fds.remove(&fd) {
            self.watches.retain(|(_, watched), _| *watched != source);
        }
    }

    pub(crate) fn source(&self, fd: RawFd) -> Option<Source> {
        self.fds.get(&fd).copied()
    }

    /// The id of the poller that is made next.
    pub(crate) const fn next_poller(&self) -> u32 {
        self.pollers + 1
    }

    pub(crate) const fn poller(&mut self) -> u32 {
        self.pollers += 1;
        self.pollers
    }

    /// The address at the other end of a stream.
    #[must_use]
    pub fn peer_of(&self, end: End) -> u16 {
        self.sides[end ^ 1].address
    }

    /// Changes what a poller is told of a source; returns what that was.
    pub(crate) fn watch(
        &mut self,
        poller: u32,
        source: Source,
        what: Option<(u64, Interest)>,
    ) -> Option<(u64, Interest)> {
        match what {
            Some(what) => self.watches.insert((poller, source), what),
            None => self.watches.remove(&(poller, source)),
        }
    }

    fn ready(&self, source: Source) -> Ready {
        match source {
            Source::Stream(end) => {
                let (side, other) = (&self.sides[end], &self.sides[end ^ 1]);
                let over = side.inbound.ended && side.inbound.flying.is_empty();
                let ended = side.reset || !side.open;
                Ready {
                    read: ended || over || !side.inbound.arrived.is_empty(),
                    write: ended
                        || side.connected
                            && (other.inbound.ended && !other.open
                                || other.open && self.room(end) > 0),
                    ended,
                }
            }
            Source::Listener(address) => Ready {
                read: matches!(self.bound.get(&address), Some(Some(waiting)) if !waiting.is_empty()),
                ..Ready::default()
            },
            Source::Timer(timer) => Ready {
                read: self.timers[timer].rang,
                ..Ready::default()
            },
        }
    }

    /// What a poller is told now, in any order: tokens, and what the sources are ready for.
    pub(crate) fn poll(&mut self, poller: u32) -> Vec<(u64, Ready)> {
        let from = (poller, Source::Stream(0));
        let own = self.watches.range(from..);
        let own = own.take_while(|((other, _), _)| *other == poller);
        let mut told: Vec<(u64, Ready)> = own
            .map(|((_, source), (token, interest))| {
                let ready = self.ready(*source);
                let told = Ready {
                    read: ready.read && interest.read,
                    write: ready.write && interest.write,
                    ended: ready.ended,
                };
                (*token, told)
            })
            .filter(|(_, told)| told.read || told.write || told.ended)
            .collect();
        self.rng.shuffle(&mut told);
        told
    }

    /// Whether a poller would tell of something that was asked for.
    pub(crate) fn has_ready(&self, poller: u32) -> bool {
        let from = (poller, Source::Stream(0));
        let own = self.watches.range(from..);
        let mut own = own.take_while(|((other, _), _)| *other == poller);
        own.any(|((_, source), (_, interest))| {
            let ready = self.ready(*source);
            ready.read && interest.read || ready.write && interest.write
        })
    }
}
