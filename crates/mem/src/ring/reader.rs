//! The reading half of a direction. The links of `ripstop-shm` call it.
//!
//! | call | used for |
//! |---|---|
//! | [`Reader::is_ready`] | polls |
//! | [`Reader::sole_entry`], [`Reader::short_entry`] (`reader/in_place.rs`) | a small message, or a short write, in place |
//! | [`Reader::read`] | everything else: what is there, into a receive buffer. It takes whole entries, and stops behind the inline bytes of one whose chunk is longer than [`MAX_STAGED_CHUNK_BYTES`] |
//! | [`Reader::read_chunk`] | that chunk, once its header has told where it goes |
//! | [`Reader::read_vectored`] | a payload that has begun, to its place: any number of bytes |
//!
//! [`Reader::read`] takes the first entry, if it is a short one, in code that is compiled into its caller; `read_more` goes
//! on with whole entries, and `read_parts` with what only fits in part.
//!
//! # What must hold
//!
//! - State and chunk length are loaded once for each entry, and checked as an [`Entry`], a private copy. It alone says how
//!   much is copied, also when the rest of the entry is read later (`partial`).
//! - `head` is the entry that `partial` is of, if that is not 0.
//! - Credit is returned after the copies that it covers: `finish_entry` and `advance` are called behind them.

mod in_place;

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::UserBuf;
use crate::ring::cursor::{CursorSpace, LAP_MASK};
use crate::ring::entry::{self, ChunkPlace, Entry};
use crate::ring::grant::{ENDED, Grant};
use crate::ring::joint::{JointAccess, JointHelper, JointLeader, JointMessage};
use crate::ring::layout::{Layout, MAX_INLINE_BYTES, RingError, Side, WhichBuffer};
use crate::ring::primitive::{Buffers, EntryCells, Memory, RawClaim, RawCredit, RawJoint};
use crate::ring::source_sink::{AsSink, Sink};

pub use self::in_place::{ShortEntry, SoleEntry};

/// The longest chunk that a read delivers together with the inline bytes before it. Before a longer
/// chunk a read stops, so that [`Reader::read_chunk`] can copy it straight to its place.
const MAX_STAGED_CHUNK_BYTES: usize = 1024;

/// Reads the stream of bytes of one direction.
///
/// One thread at a time uses it, under a lock of its owner. See [the module](super).
pub struct Reader {
    cells: EntryCells,
    cursors: CursorSpace,
    /// The cursor of the entry that is next, or is partly consumed.
    head: AtomicU64,
    /// The packed [`Entry`] that is partly consumed; 0 if there is none.
    partial: AtomicU64,
    buffers: Buffers,
    layout: Layout,
    credit: RawCredit,
    /// Of each buffer, by [`WhichBuffer`].
    lines: [Lines; 2],
    /// Credit was returned since [`take_credit_returned`](Self::take_credit_returned).
    credit_returned: AtomicBool,
    claim: RawClaim,
    joint_messages: JointLeader<JointMessage>,
    joint_accesses: JointHelper<JointAccess>,
    /// The cursor that was last published as applied.
    applied: AtomicU64,
}

/// Lines of a buffer that were consumed, and those for which credit was returned; both wrap.
#[derive(Default)]
struct Lines {
    consumed: AtomicU32,
    credited: AtomicU32,
}

impl Reader {
    pub(super) fn new(memory: &Memory, layout: Layout, side: Side) -> Self {
        let direction = side.reads();
        let cursors = CursorSpace::new(layout.entries());
        Self {
            cells: EntryCells::new(memory, layout, direction),
            cursors,
            head: AtomicU64::new(cursors.cursor(0)),
            partial: AtomicU64::new(0),
            buffers: Buffers::new(memory, layout, direction),
            layout,
            credit: RawCredit::new(memory, direction),
            lines: Default::default(),
            credit_returned: AtomicBool::new(false),
            claim: RawClaim::new(memory, direction),
            joint_messages: JointLeader::new(RawJoint::messages(memory, direction)),
            joint_accesses: JointHelper::new(RawJoint::accesses(memory, direction)),
            applied: AtomicU64::new(0),
        }
    }

    /// Starts after this many entries and lines.
    #[cfg(all(test, not(loom)))]
    pub(super) fn start_at(&self, position: u64, lines: u32) {
        let head = self.cursors.cursor(position);
        self.head.store(head, Relaxed);
        for each in &self.lines {
            each.consumed.store(lines, Relaxed);
        }
        self.return_credit(head);
        self.return_small_credit();
    }

    /// Entries that were read, as `ripstop top` shows them; it wraps.
    #[must_use]
    pub fn entries_read(&self) -> u64 {
        self.cursors.position(self.head.load(Relaxed))
    }

    /// The layout of the memory that it reads.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Reads into `room` what is there, and returns the number of bytes: 0 if there is nothing (or no
    /// room). Bytes of `room` after these may be overwritten.
    ///
    /// # Errors
    ///
    /// [`RingError`] if the peer breaks the protocol. Bytes that this call had read are lost.
    #[inline(always)]
    pub fn read(&self, room: &mut [u8]) -> Result<usize, RingError> {
        let Some(line) = room.first_chunk_mut() else {
            return self.read_more(room, 0);
        };
        if self.partial.load(Relaxed) != 0 {
            return self.read_more(room, 0);
        }
        let at = self.head.load(Relaxed);
        let cell = self.cells.at(at);
        let state = cell.state();
        if !has_lap(state, at) {
            // The line of an entry that is about to come is fetched from the writer's cache by these polls;
            // the next line is fetched at the same time, for the rest of the message.
            cell.prefetch_next();
            return Ok(0);
        }
        let Some(len) = entry::short_len(state) else {
            return self.read_more(room, 0);
        };
        cell.read_all(line);
        let Some(next) = self.cursors.next_in_quarter(at) else {
            return self.read_past_quarter(room, len);
        };
        self.head.store(next, Relaxed);
        if !has_lap(cell.next_state(), next) {
            return Ok(len);
        }
        self.read_more(room, len)
    }

    /// As [`read`](Self::read), into several pieces in order; nothing after the bytes that were read is
    /// overwritten.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn read_vectored<P: AsSink>(&self, pieces: &mut [P]) -> Result<usize, RingError> {
        self.read_parts(pieces)
    }

    /// Bytes of the chunk before which a read has stopped: [`read_chunk`](Self::read_chunk) delivers them.
    #[must_use]
    #[inline]
    pub fn chunk_remaining(&self) -> usize {
        self.entry_at_chunk()
            .map_or(0, |entry| entry.len() - entry.consumed)
    }

    /// Copies what remains of that chunk into `room`, as much as fits, and returns the number of bytes.
    #[inline]
    pub fn read_chunk(&self, room: UserBuf) -> usize {
        self.entry_at_chunk()
            .map_or(0, |entry| self.read_part(entry, room))
    }

    /// The partly consumed entry, if no inline bytes of it are left.
    #[inline(always)]
    fn entry_at_chunk(&self) -> Option<Entry> {
        let entry = Entry::unpack(self.partial.load(Relaxed));
        entry.filter(|entry| entry.leading_left() == 0)
    }

    /// Whether a read would deliver bytes or an error.
    #[must_use]
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        let at = self.head.load(Relaxed);
        has_lap(self.cells.at(at).state(), at)
    }

    /// Whether credit was returned since the last call. The writer may sleep until it has room, so the
    /// caller then asks [`PeerStatus::must_wake`](super::PeerStatus::must_wake).
    #[inline]
    pub fn take_credit_returned(&self) -> bool {
        let returned = self.credit_returned.load(Relaxed);
        if returned {
            self.credit_returned.store(false, Relaxed);
        }
        returned
    }

    /// Tells the writer that everything that was read is applied, unless an entry is partly consumed. The
    /// caller has applied it. The writer may then access regions of this side without overtaking it.
    #[inline]
    pub fn publish_applied(&self) {
        let head = self.head.load(Relaxed);
        if self.partial.load(Relaxed) == 0 && self.applied.load(Relaxed) != head {
            self.applied.store(head, Relaxed);
            self.credit.store_applied(head);
        }
    }

    /// The joint copies of messages that this side receives.
    #[must_use]
    pub const fn joint_messages(&self) -> &JointLeader<JointMessage> {
        &self.joint_messages
    }

    /// The joint copies of what the peer reads and writes in memory of this side.
    #[must_use]
    pub const fn joint_accesses(&self) -> &JointHelper<JointAccess> {
        &self.joint_accesses
    }

    /// Whether the peer claims this grant. If not, its earlier accesses to the region are finished, and a
    /// later one will find the grant ended.
    #[must_use]
    pub fn is_claimed(&self, grant: Grant) -> bool {
        self.claim.load() == grant.claim()
    }

    /// Whether the peer claims any grant: it is at an access to memory of this side.
    #[must_use]
    pub fn has_claim(&self) -> bool {
        !matches!(self.claim.load(), 0 | ENDED)
    }

    /// Whether the peer has ended the connection ([`Writer::end`](super::Writer::end)). If not, what was
    /// copied from its memory before this call was there while the connection was.
    #[must_use]
    pub fn has_writer_ended(&self) -> bool {
        self.claim.load_after_all() == ENDED
    }

    /// As [`read_more`](Self::read_more), after an entry that is the last of a quarter: returns credit.
    #[cold]
    #[inline(never)]
    fn read_past_quarter(&self, room: &mut [u8], done: usize) -> Result<usize, RingError> {
        self.advance(self.head.load(Relaxed));
        self.read_more(room, done)
    }

    /// Goes on reading after the first `done` bytes of `room`, as long as entries fit whole. One that does not is read in
    /// part where nothing was read before it; so is a long chunk without inline bytes, which is the middle of a payload.
    #[inline(never)]
    fn read_more(&self, room: &mut [u8], mut done: usize) -> Result<usize, RingError> {
        if let Some(entry) = Entry::unpack(self.partial.load(Relaxed))
            && !has_long_chunk(entry)
        {
            done += self.read_part(entry, rest(room, done));
        }
        let mut at = self.head.load(Relaxed);
        while self.partial.load(Relaxed) == 0 {
            let Some(line) = room.get_mut(done..).and_then(<[u8]>::first_chunk_mut) else {
                break;
            };
            let cell = self.cells.at(at);
            let state = cell.state();
            if !has_lap(state, at) {
                return Ok(done);
            }
            if let Some(len) = entry::short_len(state) {
                cell.read_all(line);
                done += len;
                at = self.advance(at);
                continue;
            }
            let entry = Entry::check(state, || cell.chunk_len(), self.layout)?;
            match Step::of(entry, room.len() - done, done > 0) {
                Step::Whole => done = self.read_chunk_entry(at, entry, room, done),
                Step::Leading => {
                    let leading = rest(room, done).first(entry.leading);
                    return Ok(done + self.read_part(entry, leading));
                }
                Step::Part => break,
                Step::Stop => return Ok(done),
            }
            at = self.head.load(Relaxed);
        }
        self.read_parts_after(room, done)
    }

    /// As [`read_parts`](Self::read_parts) after the first `done` bytes of `room`, if these are none, or if whatever comes
    /// next has room for its inline bytes.
    #[inline(always)]
    fn read_parts_after(&self, room: &mut [u8], done: usize) -> Result<usize, RingError> {
        let rest = room.get_mut(done..).unwrap_or_default();
        if done > 0 && rest.len() < MAX_INLINE_BYTES {
            return Ok(done);
        }
        Ok(done + self.read_parts(&mut [rest])?)
    }

    /// Consumes a whole entry with its chunk into `room` from `done` on, where it fits. Returns the end of
    /// its bytes there.
    fn read_chunk_entry(&self, at: u64, entry: Entry, room: &mut [u8], done: usize) -> usize {
        let end = done + entry.len();
        let (inline, chunk) = room[done..end].split_at_mut(entry.leading);
        let cell = self.cells.at(at);
        cell.read(entry.inline_offset(), Sink::from(inline).buf());
        let place = self.place(entry);
        self.buffers
            .read(place.start(self.layout), Sink::from(chunk).buf());
        self.finish_entry(at, entry);
        end
    }

    /// Where the chunk of the next entry is.
    fn place(&self, entry: Entry) -> ChunkPlace {
        let consumed = self.lines[entry.which as usize].consumed.load(Relaxed);
        ChunkPlace::after(entry.which, consumed, entry.chunk, self.layout)
    }

    /// Goes to the next entry, and returns credit at the end of a quarter.
    #[inline]
    fn advance(&self, at: u64) -> u64 {
        let next = self.cursors.next(at);
        self.head.store(next, Relaxed);
        if self.cursors.starts_quarter(next) {
            self.return_credit(next);
        }
        next
    }

    /// Stores the credit: the entries, and the lines of the large buffer, that the writer may use again.
    #[cold]
    #[inline(never)]
    fn return_credit(&self, head: u64) {
        let [large, _] = &self.lines;
        let lines = large.consumed.load(Relaxed);
        large.credited.store(lines, Relaxed);
        self.credit
            .store(entry::pack_credit(self.cursors.count(head), lines));
        self.credit_returned.store(true, Relaxed);
    }

    /// Stores the credit of the small buffer.
    fn return_small_credit(&self) {
        let [_, small] = &self.lines;
        let lines = small.consumed.load(Relaxed);
        small.credited.store(lines, Relaxed);
        self.credit.store_small(lines);
        self.credit_returned.store(true, Relaxed);
    }

    /// Reads entries of any kind, in parts if need be.
    #[inline(never)]
    fn read_parts<P: AsSink>(&self, pieces: &mut [P]) -> Result<usize, RingError> {
        let mut done = 0_usize;
        for piece in pieces {
            let sink: Sink<'_> = piece.as_sink();
            let mut room = sink.buf();
            while !room.is_empty() {
                let Some(entry) = self.peek_entry()? else {
                    return Ok(done);
                };
                let leading_left = entry.leading_left();
                if has_long_chunk(entry) && leading_left > 0 {
                    let count = self.read_part(entry, room.first(leading_left));
                    return Ok(done.saturating_add(count));
                }
                let count = self.read_part(entry, room);
                room = room.skip(count);
                done = done.saturating_add(count);
            }
        }
        Ok(done)
    }

    /// The partly consumed entry, or else the next one, checked; `None` if there is none.
    fn peek_entry(&self) -> Result<Option<Entry>, RingError> {
        if let Some(entry) = Entry::unpack(self.partial.load(Relaxed)) {
            return Ok(Some(entry));
        }
        let at = self.head.load(Relaxed);
        let cell = self.cells.at(at);
        let state = cell.state();
        if !has_lap(state, at) {
            return Ok(None);
        }
        Entry::check(state, || cell.chunk_len(), self.layout).map(Some)
    }

    /// Reads from one entry, at least one byte, and goes to the next at its end.
    fn read_part(&self, mut entry: Entry, room: UserBuf) -> usize {
        let at = self.head.load(Relaxed);
        let mut count = 0;
        if entry.leading_left() > 0 {
            let part = room.first(entry.leading_left());
            let cell = self.cells.at(at);
            cell.read(entry.inline_offset() + entry.consumed, part);
            count = part.len();
            entry.consumed += count;
        }
        let room = room.skip(count);
        if entry.leading_left() == 0 && entry.consumed < entry.len() && !room.is_empty() {
            let off = entry.consumed - entry.leading;
            let place = self.place(entry);
            let part = room.first(entry.chunk - off);
            self.buffers.read(place.start(self.layout) + off, part);
            count += part.len();
            entry.consumed += part.len();
        }
        match entry.consumed < entry.len() {
            true => self.partial.store(entry.pack(), Relaxed),
            false => self.finish_entry(at, entry),
        }
        count
    }

    /// Goes to the next entry after one that is consumed; returns credit when [`Layout::credit_lines`] of a buffer are.
    fn finish_entry(&self, at: u64, entry: Entry) {
        self.partial.store(0, Relaxed);
        if entry.chunk == 0 {
            self.advance(at);
            return;
        }
        let place = self.place(entry);
        let lines = &self.lines[place.which as usize];
        lines.consumed.store(place.end, Relaxed);
        let next = self.advance(at);
        let owed = place.end.wrapping_sub(lines.credited.load(Relaxed));
        if owed >= self.layout.credit_lines(place.which) {
            match place.which {
                WhichBuffer::Large => self.return_credit(next),
                WhichBuffer::Small => self.return_small_credit(),
            }
        }
    }
}

/// What [`Reader::read_more`] does with an entry that has a chunk.
enum Step {
    /// Takes all of it.
    Whole,
    /// Takes the inline bytes before a long chunk, and stops.
    Leading,
    /// Takes a part, and stops.
    Part,
    /// Takes nothing, and stops.
    Stop,
}

impl Step {
    /// That with an entry of which nothing is consumed yet, where there is room for so many bytes. `has_read` says that
    /// others were read before it.
    #[inline(always)]
    const fn of(entry: Entry, room: usize, has_read: bool) -> Self {
        let is_long = has_long_chunk(entry);
        let wanted = if is_long { entry.leading } else { entry.len() };
        match wanted <= room {
            false if has_read => Self::Stop,
            false => Self::Part,
            // The middle of a payload.
            true if wanted == 0 => Self::Part,
            true if is_long => Self::Leading,
            true => Self::Whole,
        }
    }
}

/// Whether the chunk of an entry goes straight to its place: a read stops before it.
#[inline(always)]
const fn has_long_chunk(entry: Entry) -> bool {
    entry.chunk > MAX_STAGED_CHUNK_BYTES
}

/// What is behind the first `done` bytes of `room`.
#[inline(always)]
fn rest(room: &mut [u8], done: usize) -> UserBuf {
    Sink::from(room.get_mut(done..).unwrap_or_default()).buf()
}

/// Whether a state word has the lap of this cursor: the entry is there.
#[inline(always)]
const fn has_lap(state: u64, cursor: u64) -> bool {
    (state ^ cursor) & LAP_MASK == 0
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let position = self.cursors.position(self.head.load(Relaxed));
        write!(f, "Reader({:?}, entry {position})", self.layout)
    }
}
