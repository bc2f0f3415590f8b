//! The half that reads.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::UserBuf;
use crate::ring::cursor::{CursorSpace, LAP_MASK};
use crate::ring::entry::{self, ChunkPlace, Entry};
use crate::ring::grant::Grant;
use crate::ring::layout::{Layout, MAX_INLINE_BYTES, RingError, Side};
use crate::ring::primitive::{Buffer, EntryCell, EntryCells, Memory, RawClaim, RawCredit};
use crate::ring::source_sink::{AsSink, Sink};

/// The longest chunk that is read together with the bytes before it. Behind the header of a
/// longer one a read stops, so that the next can have the chunk copied to where it belongs.
const MAX_STAGED_CHUNK_BYTES: usize = 1024;

/// The half of a pair's direction that reads a stream of bytes.
///
/// One thread at a time uses it: its owner's lock sees to that. See [the module](super).
pub struct Reader {
    cells: EntryCells,
    cursors: CursorSpace,
    /// The entry that is next or being read.
    head: AtomicU64,
    /// What was checked of the entry that is being read, if it is only read in part.
    partial: AtomicU64,
    buffer: Buffer,
    layout: Layout,
    credit: RawCredit,
    /// Lines of the buffer that were consumed, and those the writer knows of; both wrap.
    lines_consumed: AtomicU32,
    lines_credited: AtomicU32,
    credit_returned: AtomicBool,
    claim: RawClaim,
    /// What was told to be applied.
    applied: AtomicU64,
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
            buffer: Buffer::new(memory, layout, direction),
            layout,
            credit: RawCredit::new(memory, direction),
            lines_consumed: AtomicU32::new(0),
            lines_credited: AtomicU32::new(0),
            credit_returned: AtomicBool::new(false),
            claim: RawClaim::new(memory, direction),
            applied: AtomicU64::new(0),
        }
    }

    /// As if this many entries and lines had been read already.
    #[cfg(all(test, not(loom)))]
    pub(super) fn start_at(&self, position: u64, lines: u32) {
        let head = self.cursors.cursor(position);
        self.head.store(head, Relaxed);
        self.lines_consumed.store(lines, Relaxed);
        self.return_credit(head);
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
        if self.partial.load(Relaxed) != 0 {
            return self.read_more(room, 0);
        }
        let at = self.head.load(Relaxed);
        let cell = self.cells.at(at);
        let state = cell.state();
        if !has_lap(state, at) {
            // The processor, which has to wait for an entry that has just come, asks meanwhile for
            // the one behind: the rest of the message then comes at the same time.
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

    /// The next entry, if it is a small one of which nothing was read, and there is none behind it
    /// yet. `None` is any other case, for [`read`](Self::read) to tell.
    #[must_use]
    #[inline(always)]
    pub fn sole_entry(&self) -> Option<SoleEntry<'_>> {
        if self.partial.load(Relaxed) != 0 {
            return None;
        }
        let at = self.head.load(Relaxed);
        let cell = self.cells.at(at);
        let state = cell.state();
        if !has_lap(state, at) {
            return None;
        }
        let len = entry::short_len(state)?;
        let next = self.cursors.next_in_quarter(at)?;
        if has_lap(cell.next_state(), next) {
            return None;
        }
        Some(SoleEntry {
            reader: self,
            cell,
            len,
            next,
        })
    }

    /// The next entry, if it is a small one of which nothing was read, whatever is behind it.
    #[must_use]
    #[inline(always)]
    pub fn short_entry(&self) -> Option<ShortEntry<'_>> {
        if self.partial.load(Relaxed) != 0 {
            return None;
        }
        let at = self.head.load(Relaxed);
        let cell = self.cells.at(at);
        let state = cell.state();
        if !has_lap(state, at) {
            return None;
        }
        Some(ShortEntry {
            reader: self,
            cell,
            len: entry::short_len(state)?,
            at,
        })
    }

    /// As [`read`](Self::read), into several pieces in order; nothing is written behind the
    /// bytes that came.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn read_vectored<P: AsSink>(&self, pieces: &mut [P]) -> Result<usize, RingError> {
        self.read_parts(pieces)
    }

    /// Bytes of a chunk behind which a read has stopped: they are there, and
    /// [`read_chunk`](Self::read_chunk) gives them.
    #[must_use]
    #[inline]
    pub fn chunk_remaining(&self) -> usize {
        match Entry::unpack(self.partial.load(Relaxed)) {
            Some(entry) if entry.consumed >= entry.leading => entry.len() - entry.consumed,
            _ => 0,
        }
    }

    /// Copies from the bytes at hand into `room`, as many as there are, and returns how many.
    #[inline]
    pub fn read_chunk(&self, room: UserBuf) -> usize {
        match Entry::unpack(self.partial.load(Relaxed)) {
            Some(entry) if entry.consumed >= entry.leading => self.read_part(entry, room),
            _ => 0,
        }
    }

    /// Whether a read would give bytes, or an error.
    #[must_use]
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        let at = self.head.load(Relaxed);
        has_lap(self.cells.at(at).state(), at)
    }

    /// Whether the writer was told of room since this was asked last. Then it may wait for it:
    /// [`PeerStatus`](super::PeerStatus) says whether it has to be woken.
    #[inline]
    pub fn take_credit_returned(&self) -> bool {
        let told = self.credit_returned.load(Relaxed);
        if told {
            self.credit_returned.store(false, Relaxed);
        }
        told
    }

    /// Tells the writer that all that was read is applied, if no entry is read in part: to be
    /// called when that is so. The writer may then reach regions of this side in its order.
    #[inline]
    pub fn publish_applied(&self) {
        let head = self.head.load(Relaxed);
        if self.partial.load(Relaxed) == 0 && self.applied.load(Relaxed) != head {
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
    fn read_past_quarter(&self, room: &mut [u8], done: usize) -> Result<usize, RingError> {
        self.advance(self.head.load(Relaxed));
        self.read_more(room, done)
    }

    /// Reads on behind the first `done` bytes of `room`.
    #[inline(never)]
    fn read_more(&self, room: &mut [u8], mut done: usize) -> Result<usize, RingError> {
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
            let Some(len) = entry::short_len(state) else {
                let entry = Entry::check(state, || cell.chunk_len(), self.layout)?;
                let staged = match entry.chunk > MAX_STAGED_CHUNK_BYTES {
                    true => entry.leading,
                    false => entry.len(),
                };
                if staged > room.len() - done && done > 0 {
                    return Ok(done);
                }
                if entry.chunk > MAX_STAGED_CHUNK_BYTES || staged > room.len() {
                    break;
                }
                done = self.read_chunk_entry(at, entry, room, done);
                at = self.head.load(Relaxed);
                continue;
            };
            cell.read_all(line);
            done += len;
            at = self.advance(at);
        }
        let rest = room.get_mut(done..).unwrap_or_default();
        if done > 0 && rest.len() < MAX_INLINE_BYTES {
            return Ok(done);
        }
        Ok(done + self.read_parts(&mut [rest])?)
    }

    /// Reads all of an entry with a chunk to place `done` of `room`, which has that much room, and
    /// goes on behind it. Returns the place behind the bytes.
    fn read_chunk_entry(&self, at: u64, entry: Entry, room: &mut [u8], done: usize) -> usize {
        let end = done + entry.len();
        let (inline, chunk) = room[done..end].split_at_mut(entry.leading);
        let cell = self.cells.at(at);
        cell.read(entry.inline_offset(), Sink::from(inline).buf());
        let place = ChunkPlace::after(self.lines_consumed.load(Relaxed), entry.chunk, self.layout);
        self.buffer
            .read(place.start(self.layout), Sink::from(chunk).buf());
        self.finish_entry(at, entry);
        end
    }

    /// Goes to the next entry.
    #[inline]
    fn advance(&self, at: u64) -> u64 {
        let next = self.cursors.next(at);
        self.head.store(next, Relaxed);
        if self.cursors.starts_quarter(next) {
            self.return_credit(next);
        }
        next
    }

    /// Tells the writer what was consumed.
    #[cold]
    #[inline(never)]
    fn return_credit(&self, head: u64) {
        let lines = self.lines_consumed.load(Relaxed);
        self.lines_credited.store(lines, Relaxed);
        self.credit
            .store(entry::pack_credit(self.cursors.count(head), lines));
        self.credit_returned.store(true, Relaxed);
    }

    /// A read that is not of small entries into our own memory.
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
                if entry.chunk > MAX_STAGED_CHUNK_BYTES && entry.consumed < entry.leading {
                    let count = self.read_part(entry, room.first(entry.leading - entry.consumed));
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

    /// Reads from one entry, and goes to the next at its end; returns how many bytes, at least
    /// one.
    fn read_part(&self, mut entry: Entry, room: UserBuf) -> usize {
        let at = self.head.load(Relaxed);
        let mut count = 0;
        if entry.consumed < entry.leading {
            let part = room.first(entry.leading - entry.consumed);
            let cell = self.cells.at(at);
            cell.read(entry.inline_offset() + entry.consumed, part);
            count = part.len();
            entry.consumed += count;
        }
        let room = room.skip(count);
        if entry.consumed >= entry.leading && entry.consumed < entry.len() && !room.is_empty() {
            let off = entry.consumed - entry.leading;
            let place =
                ChunkPlace::after(self.lines_consumed.load(Relaxed), entry.chunk, self.layout);
            let part = room.first(entry.chunk - off);
            self.buffer.read(place.start(self.layout) + off, part);
            count += part.len();
            entry.consumed += part.len();
        }
        match entry.consumed < entry.len() {
            true => self.partial.store(entry.pack(), Relaxed),
            false => self.finish_entry(at, entry),
        }
        count
    }

    /// Goes on behind an entry that was read to its end.
    fn finish_entry(&self, at: u64, entry: Entry) {
        self.partial.store(0, Relaxed);
        if entry.chunk == 0 {
            self.advance(at);
            return;
        }
        let place = ChunkPlace::after(self.lines_consumed.load(Relaxed), entry.chunk, self.layout);
        self.lines_consumed.store(place.end, Relaxed);
        let next = self.advance(at);
        let owed = place.end.wrapping_sub(self.lines_credited.load(Relaxed));
        if owed >= self.layout.lines() / 4 {
            self.return_credit(next);
        }
    }
}

/// A small entry that is the only one there, see [`Reader::sole_entry`]. It stays the next one until
/// [`consume`](Self::consume).
///
/// The peer may write it meanwhile: what is looked at twice may differ.
pub struct SoleEntry<'a> {
    reader: &'a Reader,
    cell: EntryCell<'a>,
    len: usize,
    next: u64,
}

impl SoleEntry<'_> {
    /// The bytes of the stream that it has, 1 to [`MAX_INLINE_BYTES`].
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
    pub fn copy_to(&self, off: usize, dst: UserBuf) {
        self.cell.read(off, dst);
    }

    /// It was read.
    #[inline(always)]
    pub fn consume(self) {
        self.reader.head.store(self.next, Relaxed);
    }
}

/// A small entry that is the next one, see [`Reader::short_entry`]. It stays that until
/// [`consume`](Self::consume).
///
/// The peer may write it meanwhile: what is looked at twice may differ.
pub struct ShortEntry<'a> {
    reader: &'a Reader,
    cell: EntryCell<'a>,
    len: usize,
    at: u64,
}

impl ShortEntry<'_> {
    /// The bytes of the stream that it has, 1 to [`MAX_INLINE_BYTES`].
    #[must_use]
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "an entry is never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// All its bytes, of which those behind the length have any value.
    #[must_use]
    #[inline(always)]
    pub fn words(&self) -> [[u8; 8]; MAX_INLINE_BYTES / 8] {
        self.cell.words()
    }

    /// It was read. The writer may have been told of room then
    /// ([`Reader::take_credit_returned`]).
    #[inline(always)]
    pub fn consume(self) {
        self.reader.advance(self.at);
    }
}

impl fmt::Debug for ShortEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShortEntry({} B)", self.len)
    }
}

impl fmt::Debug for SoleEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SoleEntry({} B)", self.len)
    }
}

/// Whether an entry's word is of the lap of its cursor: the entry is there.
#[inline(always)]
const fn has_lap(state: u64, cursor: u64) -> bool {
    (state ^ cursor) & LAP_MASK == 0
}

/// All of an entry fits into the room that `read` asks for.
const _: () = assert!(MAX_INLINE_BYTES == 56);

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let position = self.cursors.position(self.head.load(Relaxed));
        write!(f, "Reader({:?}, entry {position})", self.layout)
    }
}
