//! Byte streams under virtual time.

use std::collections::VecDeque;

use fastrand::Rng;
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
    host: u32,
    inbound: Pipe,
    /// This end may be read and written.
    open: bool,
    /// Reads and writes fail from now on.
    reset: bool,
}

/// All streams between the hosts.
#[derive(Debug)]
pub struct Network {
    now: Nanos,
    timing: Timing,
    rng: Rng,
    /// Ends `2n` and `2n + 1` belong together.
    sides: Vec<Side>,
    /// Streams on their way to a listener: time, host, end.
    asking: VecDeque<(Nanos, u32, End)>,
    /// Hosts that listen.
    listening: Vec<u32>,
}

impl Network {
    /// A network without hosts.
    #[must_use]
    pub fn new(timing: Timing, seed: u64) -> Self {
        Self {
            now: 0,
            timing,
            rng: Rng::with_seed(seed),
            sides: Vec::new(),
            asking: VecDeque::new(),
            listening: Vec::new(),
        }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Moves the time to the next arrival, or to `until` if that comes first. Returns whether
    /// there was anything to move to.
    pub fn advance(&mut self, until: Option<Nanos>) -> bool {
        let flying = self
            .sides
            .iter()
            .filter(|side| side.open)
            .filter_map(|side| side.inbound.next_arrival());
        let asking = self.asking.iter().map(|(time, ..)| *time);
        let Some(next) = flying.chain(asking).chain(until).min() else {
            return false;
        };
        self.now = self.now.max(next);
        for end in 0..self.sides.len() {
            self.arrive(end);
        }
        true
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

    /// A host starts to accept streams.
    pub fn listen(&mut self, host: u32) {
        if !self.listening.contains(&host) {
            self.listening.push(host);
        }
    }

    /// A host dies: its streams are reset, and it does not listen.
    pub fn kill(&mut self, host: u32) {
        self.listening.retain(|other| *other != host);
        for end in 0..self.sides.len() {
            if self.sides[end].host == host && self.sides[end].open {
                self.reset(end);
                self.sides[end].open = false;
            }
        }
    }

    /// A process ends in its own time: what it has written still arrives, and its peers are told
    /// behind that. Returns its ends of streams.
    pub fn leave(&mut self, host: u32) -> Vec<End> {
        self.listening.retain(|other| *other != host);
        let ends: Vec<End> = self.ends_of(host).collect();
        for end in &ends {
            self.close(*end);
        }
        ends
    }

    /// A host vanishes: as [`Network::kill`], but its peers are not told.
    pub fn vanish(&mut self, host: u32) {
        self.listening.retain(|other| *other != host);
        for end in 0..self.sides.len() {
            if self.sides[end].host == host {
                self.sides[end].open = false;
                self.sides[end].inbound = Pipe::default();
                // What it had written may still be on its way, and nothing follows.
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

    /// Opens a stream. It can be written at once; a refusal shows later.
    pub fn connect(&mut self, from: u32, to: u32) -> End {
        let end = self.sides.len();
        for host in [from, to] {
            self.sides.push(Side {
                host,
                inbound: Pipe::default(),
                open: true,
                reset: false,
            });
        }
        let time = self.now + self.timing.delay;
        self.asking.push_back((time, to, end + 1));
        end
    }

    /// A stream that was opened to `host`.
    pub fn accept(&mut self, host: u32) -> Option<End> {
        let now = self.now;
        let ready = |(time, to, _): &(Nanos, u32, End)| *to == host && *time <= now;
        let index = self.asking.iter().position(ready)?;
        let (_, _, end) = self.asking.remove(index)?;
        Some(end)
    }

    /// Refuses the streams to hosts that do not listen.
    pub fn refuse(&mut self) -> bool {
        let Self {
            asking,
            listening,
            now,
            ..
        } = self;
        let late = |(time, to, _): &(Nanos, u32, End)| !listening.contains(to) && *time <= *now;
        let Some(index) = asking.iter().position(late) else {
            return false;
        };
        if let Some((_, _, end)) = asking.remove(index) {
            self.reset(end);
            self.sides[end].open = false;
        }
        true
    }

    /// The host at the other end.
    #[must_use]
    pub fn peer_host(&self, end: End) -> u32 {
        self.sides[end ^ 1].host
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
            // Nobody reads. A vanished host does not answer; a closed end is reset.
            return if other.reset || other.inbound.ended {
                Err(Errno::ECONNRESET)
            } else {
                Err(Errno::EAGAIN)
            };
        }
        let room = self.timing.capacity.saturating_sub(other.inbound.used());
        let len = self.chop(room.min(bytes.len()));
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
        Ok(len)
    }

    /// Reads what has arrived; returns how many bytes.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when nothing has, [`Errno::ECONNRESET`] when nothing will.
    pub fn read(&mut self, end: End, bytes: &mut [u8]) -> Result<usize> {
        let available = self.sides[end].inbound.arrived.len().min(bytes.len());
        let len = self.chop(available);
        let side = &mut self.sides[end];
        if len == 0 {
            let over = side.inbound.ended && side.inbound.flying.is_empty();
            return Err(if side.reset || over || !side.open {
                Errno::ECONNRESET
            } else {
                Errno::EAGAIN
            });
        }
        for byte in &mut bytes[..len] {
            *byte = side.inbound.arrived.pop_front().unwrap_or_default();
        }
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

    /// Closes this end; what was written before still arrives.
    pub fn close(&mut self, end: End) {
        let side = &mut self.sides[end];
        if !side.open {
            return;
        }
        side.open = false;
        side.inbound = Pipe {
            ended: true,
            ..Pipe::default()
        };
        self.sides[end ^ 1].inbound.ended = true;
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

    /// Holds back what flies towards `end`.
    pub fn stall(&mut self, end: End, time: Nanos) {
        self.sides[end].inbound.stalled_until = self.now + time;
    }

    /// Streams of a host that can still be used.
    pub fn ends_of(&self, host: u32) -> impl Iterator<Item = End> + '_ {
        let sides = self.sides.iter().enumerate();
        sides
            .filter(move |(_, side)| side.host == host && side.open && !side.reset)
            .map(|(end, _)| end)
    }
}
