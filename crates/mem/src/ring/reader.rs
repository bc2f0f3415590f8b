//! The half that reads.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::UserBuf;
use crate::ring::cursor::{LAP, Turn};
use crate::ring::entry::{self, Entry, Place};
use crate::ring::grant::Grant;
use crate::ring::layout::{INLINE, Layout, RingError, Side};
use crate::ring::piece::{AsSink, Sink};
use crate::ring::primitive::{Buffer, Cell, Cells, Memory, RawClaim, RawCredit};

/// The longest chunk that is read together with the bytes before it. Behind the header of a
/// longer one a read stops, so that the next can have the chunk copied to where it belongs.
const TOGETHER: usize = 1024;

/// The half of a pair's direction that reads a stream of bytes.
///
/// One thread at a time uses it: its owner's lock sees to that. See [the module](super).
pub struct Reader {
    cells: Cells,
    turn: Turn,
    /// The entry that is next or being read.
    head: AtomicU64,
    /// What was checked of the entry that is being read, if it is only read in part.
    current: AtomicU64,
    buffer: Buffer,
    layout: Layout,
    credit: RawCredit,
    /// Lines of the buffer that were consumed, and those the writer knows of; both wrap.
    lines: AtomicU32,
    given: AtomicU32,
    notice: AtomicBool,
    claim: RawClaim,
    /// What was told to be applied.
    applied: AtomicU64,
}

impl Reader {
    pub(super) fn new(memory: &Memory, layout: Layout, side: Side) -> Self {
        let direction = side.reads();
        let turn = Turn::new(layout.entries());
        Self {
            cells: Cells::new(memory, layout, direction),
            turn,
            head: AtomicU64::new(turn.cursor(0)),
            current: AtomicU64::new(0),
            buffer: Buffer::new(memory, layout, direction),
            layout,
            credit: RawCredit::new(memory, direction),
            lines: AtomicU32::new(0),
            given: AtomicU32::new(0),
            notice: AtomicBool::new(false),
            claim: RawClaim::new(memory, direction),
            applied: AtomicU64::new(0),
        }
    }

    /// As if this many entries and lines had been read already.
    #[cfg(all(test, not(loom)))]
    pub(super) fn start_at(&self, position: u64, lines: u32) {
        let head = self.turn.cursor(position);
        self.head.store(head, Relaxed);
        self.lines.store(lines, Relaxed);
        self.give(head);
    }

    /// The layout of the memory that it reads.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Reads into `room` as much as there is, and returns how many bytes came: 0 if nothing is
    /// there (or no room). Bytes of `room` behind these may have any value afterwards.
    ///
    /// # Errors
    ///
    /// [`RingError`] if the peer does not keep to the protocol. What was read before is lost.
    #[inline(always)]
    pub fn read(&self, room: &mut [u8]) -> Result<usize, RingError> {
        let Some(line) = room.first_chunk_mut() else {
            return self.read_more(room, 0);
        };
        if self.current.load(Relaxed) != 0 {
            return self.read_more(room, 0);
        }
        let at = self.head.load(Relaxed);
        let cell = self.cells.at(at);
        let state = cell.state();
        if !is_lap(state, at) {
            // The processor, which has to wait for an entry that has just come, asks meanwhile for
            // the one behind: the rest of the message then comes at the same time.
            cell.expect_behind();
            return Ok(0);
        }
        let Some(len) = entry::as_small(state) else {
            return self.read_more(room, 0);
        };
        cell.take_all(line);
        let Some(next) = self.turn.next_in_quarter(at) else {
            return self.read_over(room, len);
        };
        self.head.store(next, Relaxed);
        if !is_lap(cell.state_behind(), next) {
            return Ok(len);
        }
        self.read_more(room, len)
    }

    /// The next entry, if it is a small one of which nothing was read, and there is none behind it
    /// yet. `None` is any other case, for [`read`](Self::read) to tell.
    #[must_use]
    #[inline(always)]
    pub fn alone(&self) -> Option<Alone<'_>> {
        if self.current.load(Relaxed) != 0 {
            return None;
        }
        let at = self.head.load(Relaxed);
        let cell = self.cells.at(at);
        let state = cell.state();
        if !is_lap(state, at) {
            return None;
        }
        let len = entry::as_small(state)?;
        let next = self.turn.next_in_quarter(at)?;
        if is_lap(cell.state_behind(), next) {
            return None;
        }
        Some(Alone {
            reader: self,
            cell,
            len,
            next,
        })
    }

    /// The next entry, if it is a small one of which nothing was read, whatever is behind it.
    #[must_use]
    #[inline(always)]
    pub fn short(&self) -> Option<Short<'_>> {
        if self.current.load(Relaxed) != 0 {
            return None;
        }
        let at = self.head.load(Relaxed);
        let cell = self.cells.at(at);
        let state = cell.state();
        if !is_lap(state, at) {
            return None;
        }
        Some(Short {
            reader: self,
            cell,
            len: entry::as_small(state)?,
            at,
        })
    }

    /// As [`read`](Self::read), into several pieces in order; nothing is written behind the
    /// bytes that came.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn read_into<P: AsSink>(&self, pieces: &mut [P]) -> Result<usize, RingError> {
        self.read_on(pieces)
    }

    /// Bytes of a chunk behind which a read has stopped: they are there, and
    /// [`take_at_hand`](Self::take_at_hand) gives them.
    #[must_use]
    #[inline]
    pub fn at_hand(&self) -> usize {
        match Entry::unpack(self.current.load(Relaxed)) {
            Some(entry) if entry.done >= entry.leading => entry.len() - entry.done,
            _ => 0,
        }
    }

    /// Copies from the bytes at hand into `room`, as many as there are, and returns how many.
    #[inline]
    pub fn take_at_hand(&self, room: UserBuf) -> usize {
        match Entry::unpack(self.current.load(Relaxed)) {
            Some(entry) if entry.done >= entry.leading => self.read_part(entry, room),
            _ => 0,
        }
    }

    /// Whether a read would give bytes, or an error.
    #[must_use]
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        let at = self.head.load(Relaxed);
        is_lap(self.cells.at(at).state(), at)
    }

    /// Whether the writer was told of room since this was asked last. Then it may wait for it:
    /// [`PeerStatus`](super::PeerStatus) says whether it has to be woken.
    #[inline]
    pub fn take_notice(&self) -> bool {
        let told = self.notice.load(Relaxed);
        if told {
            self.notice.store(false, Relaxed);
        }
        told
    }

    /// Tells the writer that all that was read is applied, if no entry is read in part: to be
    /// called when that is so. The writer may then reach regions of this side in its order.
    #[inline]
    pub fn tell_applied(&self) {
        let head = self.head.load(Relaxed);
        if self.current.load(Relaxed) == 0 && self.applied.load(Relaxed) != head {
            self.applied.store(head, Relaxed);
            self.credit.store_applied(head);
        }
    }

    /// Whether the peer reaches the region of this side's grant, or is about to ask whether it
    /// may. What it has done before is done where it does not.
    #[must_use]
    pub fn is_claimed(&self, grant: Grant) -> bool {
        self.claim.load() == grant.claim()
    }

    /// As [`read_more`](Self::read_more), when the entry that was read is the last of a
    /// quarter.
    #[cold]
    #[inline(never)]
    fn read_over(&self, room: &mut [u8], done: usize) -> Result<usize, RingError> {
        self.step(self.head.load(Relaxed));
        self.read_more(room, done)
    }

    /// Reads on behind the first `done` bytes of `room`.
    #[inline(never)]
    fn read_more(&self, room: &mut [u8], mut done: usize) -> Result<usize, RingError> {
        let mut at = self.head.load(Relaxed);
        while self.current.load(Relaxed) == 0 {
            let Some(line) = room.get_mut(done..).and_then(<[u8]>::first_chunk_mut) else {
                break;
            };
            let cell = self.cells.at(at);
            let state = cell.state();
            if !is_lap(state, at) {
                return Ok(done);
            }
            let Some(len) = entry::as_small(state) else {
                let entry = Entry::check(state, || cell.length(), self.layout)?;
                let together = match entry.chunk > TOGETHER {
                    true => entry.leading,
                    false => entry.len(),
                };
                if together > room.len() - done && done > 0 {
                    return Ok(done);
                }
                if entry.chunk > TOGETHER || together > room.len() {
                    break;
                }
                done = self.read_both(at, entry, room, done);
                at = self.head.load(Relaxed);
                continue;
            };
            cell.take_all(line);
            done += len;
            at = self.step(at);
        }
        let rest = room.get_mut(done..).unwrap_or_default();
        if done > 0 && rest.len() < INLINE {
            return Ok(done);
        }
        Ok(done + self.read_on(&mut [rest])?)
    }

    /// Reads all of an entry with a chunk to place `done` of `room`, which has that much room, and
    /// goes on behind it. Returns the place behind the bytes.
    fn read_both(&self, at: u64, entry: Entry, room: &mut [u8], done: usize) -> usize {
        let end = done + entry.len();
        let (inline, chunk) = room[done..end].split_at_mut(entry.leading);
        let cell = self.cells.at(at);
        cell.take(entry.inline_at(), Sink::from(inline).buf());
        let place = Place::of(self.lines.load(Relaxed), entry.chunk, self.layout);
        self.buffer
            .take(place.start(self.layout), Sink::from(chunk).buf());
        self.finish(at, entry);
        end
    }

    /// Goes to the next entry.
    #[inline]
    fn step(&self, at: u64) -> u64 {
        let next = self.turn.next(at);
        self.head.store(next, Relaxed);
        if self.turn.is_quarter(next) {
            self.give(next);
        }
        next
    }

    /// Tells the writer what was consumed.
    #[cold]
    #[inline(never)]
    fn give(&self, head: u64) {
        let lines = self.lines.load(Relaxed);
        self.given.store(lines, Relaxed);
        self.credit.store(entry::pack(self.turn.count(head), lines));
        self.notice.store(true, Relaxed);
    }

    /// A read that is not of small entries into our own memory.
    #[inline(never)]
    fn read_on<P: AsSink>(&self, pieces: &mut [P]) -> Result<usize, RingError> {
        let mut done = 0_usize;
        for piece in pieces {
            let sink: Sink<'_> = piece.as_sink();
            let mut room = sink.buf();
            while !room.is_empty() {
                let Some(entry) = self.entry()? else {
                    return Ok(done);
                };
                if entry.chunk > TOGETHER && entry.done < entry.leading {
                    let count = self.read_part(entry, room.first(entry.leading - entry.done));
                    return Ok(done.saturating_add(count));
                }
                let count = self.read_part(entry, room);
                room = room.skip(count);
                done = done.saturating_add(count);
            }
        }
        Ok(done)
    }

    /// The entry that is being read, or else the next, checked.
    fn entry(&self) -> Result<Option<Entry>, RingError> {
        if let Some(entry) = Entry::unpack(self.current.load(Relaxed)) {
            return Ok(Some(entry));
        }
        let at = self.head.load(Relaxed);
        let cell = self.cells.at(at);
        let state = cell.state();
        if !is_lap(state, at) {
            return Ok(None);
        }
        Entry::check(state, || cell.length(), self.layout).map(Some)
    }

    /// Reads from one entry, and goes to the next at its end; returns how many bytes, at least
    /// one.
    fn read_part(&self, mut entry: Entry, room: UserBuf) -> usize {
        let at = self.head.load(Relaxed);
        let mut count = 0;
        if entry.done < entry.leading {
            let part = room.first(entry.leading - entry.done);
            let cell = self.cells.at(at);
            cell.take(entry.inline_at() + entry.done, part);
            count = part.len();
            entry.done += count;
        }
        let room = room.skip(count);
        if entry.done >= entry.leading && entry.done < entry.len() && !room.is_empty() {
            let off = entry.done - entry.leading;
            let place = Place::of(self.lines.load(Relaxed), entry.chunk, self.layout);
            let part = room.first(entry.chunk - off);
            self.buffer.take(place.start(self.layout) + off, part);
            count += part.len();
            entry.done += part.len();
        }
        match entry.done < entry.len() {
            true => self.current.store(entry.pack(), Relaxed),
            false => self.finish(at, entry),
        }
        count
    }

    /// Goes on behind an entry that was read to its end.
    fn finish(&self, at: u64, entry: Entry) {
        self.current.store(0, Relaxed);
        if entry.chunk == 0 {
            self.step(at);
            return;
        }
        let place = Place::of(self.lines.load(Relaxed), entry.chunk, self.layout);
        self.lines.store(place.end, Relaxed);
        let next = self.step(at);
        let owed = place.end.wrapping_sub(self.given.load(Relaxed));
        if owed >= self.layout.lines() / 4 {
            self.give(next);
        }
    }
}

/// A small entry that is the only one there, see [`Reader::alone`]. It stays the next one until
/// [`done`](Self::done).
///
/// The peer may write it meanwhile: what is looked at twice may differ.
pub struct Alone<'a> {
    reader: &'a Reader,
    cell: Cell<'a>,
    len: usize,
    next: u64,
}

impl Alone<'_> {
    /// The bytes of the stream that it has, 1 to [`INLINE`].
    #[must_use]
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "an entry is never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Its first 24 bytes, of which those behind the length have any value.
    #[must_use]
    #[inline(always)]
    pub fn words(&self) -> [[u8; 8]; 3] {
        self.cell.words()
    }

    /// Copies from byte `off` on into `dst`, as much as there is room in it and in an entry.
    #[inline(always)]
    pub fn take(&self, off: usize, dst: UserBuf) {
        self.cell.take(off, dst);
    }

    /// It was read.
    #[inline(always)]
    pub fn done(self) {
        self.reader.head.store(self.next, Relaxed);
    }
}

/// A small entry that is the next one, see [`Reader::short`]. It stays that until
/// [`done`](Self::done).
///
/// The peer may write it meanwhile: what is looked at twice may differ.
pub struct Short<'a> {
    reader: &'a Reader,
    cell: Cell<'a>,
    len: usize,
    at: u64,
}

impl Short<'_> {
    /// The bytes of the stream that it has, 1 to [`INLINE`].
    #[must_use]
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "an entry is never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// All its bytes, of which those behind the length have any value.
    #[must_use]
    #[inline(always)]
    pub fn words(&self) -> [[u8; 8]; INLINE / 8] {
        self.cell.words()
    }

    /// It was read. The writer may have been told of room then
    /// ([`Reader::take_notice`]).
    #[inline(always)]
    pub fn done(self) {
        self.reader.step(self.at);
    }
}

impl fmt::Debug for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Short({} B)", self.len)
    }
}

impl fmt::Debug for Alone<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Alone({} B)", self.len)
    }
}

/// Whether an entry's word is of the lap of its cursor: the entry is there.
#[inline(always)]
const fn is_lap(state: u64, cursor: u64) -> bool {
    (state ^ cursor) & LAP == 0
}

/// All of an entry fits into the room that `read` asks for.
const _: () = assert!(INLINE == 56);

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let position = self.turn.position(self.head.load(Relaxed));
        write!(f, "Reader({:?}, entry {position})", self.layout)
    }
}
