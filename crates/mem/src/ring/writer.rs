//! The writing half of a direction. The links of `ripstop-shm` call it.
//!
//! | call | used for | where one short entry is not enough, or there is no room at first |
//! |---|---|---|
//! | [`Writer::write`], [`Writer::write_vectored`] | what was queued | `write_entries`: entry by entry, as much as there is room for |
//! | [`Writer::write_message`] | a message that is sent at once | `write_long`: up to four short entries, else an entry with all of the payload in its chunk, else as `write_entries` |
//! | [`Writer::write_short`] | a short write of remote memory, without a chunk | `write_several`: up to four short entries, or nothing |
//!
//! Each of these first tries one short entry, in code that is compiled into its caller; the functions of the last column
//! are not.
//!
//! # What must hold
//!
//! - Nothing is stored to an entry or a line of a buffer before the reader has returned it: `tail` is not `limit`, and
//!   [`Writer::find_room`] has found the lines.
//! - The state of an entry is stored last of all, its chunk included: it publishes both. Of several short entries of a
//!   message that of the first is, so that a reader finds the whole message or nothing.
//! - For speed only: the line of an entry is stored to behind its chunk, where that can be. A reader that polls takes the
//!   line away as often as it is stored to.

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::UserBuf;
use crate::ring::cursor::{CursorSpace, LAP_MASK};
use crate::ring::entry::{self, ChunkPlace};
use crate::ring::grant::{ENDED, Grant};
use crate::ring::joint::{JointAccess, JointHelper, JointLeader, JointMessage};
use crate::ring::layout::{
    CHUNK_LEN_BYTES, LINE_BYTES, Layout, MAX_HEADER_BYTES, MAX_INLINE_BYTES, MAX_LEADING_BYTES,
    MAX_SHORT_ENTRIES, RingError, Side, WhichBuffer,
};
use crate::ring::primitive::{
    Buffers, EntryCell, EntryCells, Memory, RawClaim, RawCredit, RawJoint,
};
use crate::ring::source_sink::{AsSource, Source};

/// A piece of at least this many bytes ends its chunk, so that the next header starts an entry.
const CHUNK_ENDING_PIECE_BYTES: usize = 256;

/// Writes the stream of bytes of one direction.
///
/// One thread at a time uses it, under a lock of its owner. See [the module](super).
pub struct Writer {
    cells: EntryCells,
    cursors: CursorSpace,
    /// The cursor of the next entry.
    tail: AtomicU64,
    /// The cursor of the first entry for which there was no room when the credit was last loaded: as many entries behind
    /// `tail` as are free, and equal to it if none is.
    limit: AtomicU64,
    buffers: Buffers,
    layout: Layout,
    credit: RawCredit,
    claim: RawClaim,
    joint_messages: JointHelper<JointMessage>,
    joint_accesses: JointLeader<JointAccess>,
    /// Of each buffer, by [`WhichBuffer`].
    lines: [Lines; 2],
    /// The chunk of the write that found no room, in bytes; 0 if it had none, or the last one found some.
    chunk_wanted: AtomicU32,
}

/// Lines of a buffer that were used, and those that the reader has returned; both wrap.
#[derive(Default)]
struct Lines {
    used: AtomicU32,
    freed: AtomicU32,
}

impl Lines {
    /// Those that the reader has not returned.
    fn unread(&self) -> u32 {
        let used = self.used.load(Relaxed);
        used.wrapping_sub(self.freed.load(Relaxed))
    }

    /// Frees what the reader has consumed, unless it is more than was used.
    fn free(&self, consumed: u32, most: u32) -> Result<(), RingError> {
        if self.used.load(Relaxed).wrapping_sub(consumed) > most {
            return Err(RingError::Credit);
        }
        self.freed.store(consumed, Relaxed);
        Ok(())
    }
}

/// How far the reader of a direction is, in lines of its buffers, which both wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    written: u32,
    returned: u32,
}

impl Backlog {
    /// So many lines of 64 bytes were written, and so many of them returned.
    #[must_use]
    pub const fn of_lines(written: u32, returned: u32) -> Self {
        Self { written, returned }
    }

    /// Bytes that are written and not returned.
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::from(self.written.wrapping_sub(self.returned)) * LINE_BYTES as u64
    }

    /// Bytes that the reader has returned since `earlier`, of the same direction; `None` if it may have had nothing to
    /// read in between, as it has returned all that was written then.
    #[must_use]
    pub fn returned_since(self, earlier: Self) -> Option<u64> {
        let returned = self.returned.wrapping_sub(earlier.returned);
        let unread = earlier.written.wrapping_sub(earlier.returned);
        (returned < unread).then(|| u64::from(returned) * LINE_BYTES as u64)
    }
}

impl Writer {
    pub(super) fn new(memory: &Memory, layout: Layout, side: Side) -> Self {
        let direction = side.writes();
        let cursors = CursorSpace::new(layout.entries());
        Self {
            cells: EntryCells::new(memory, layout, direction),
            cursors,
            tail: AtomicU64::new(cursors.cursor(0)),
            limit: AtomicU64::new(cursors.cursor(layout.entries().into())),
            buffers: Buffers::new(memory, layout, direction),
            layout,
            credit: RawCredit::new(memory, direction),
            claim: RawClaim::new(memory, direction),
            joint_messages: JointHelper::new(RawJoint::messages(memory, direction)),
            joint_accesses: JointLeader::new(RawJoint::accesses(memory, direction)),
            lines: Default::default(),
            chunk_wanted: AtomicU32::new(0),
        }
    }

    /// Starts after this many entries and lines.
    #[cfg(all(test, not(loom)))]
    pub(super) fn start_at(&self, position: u64, lines: u32) {
        let end = position.wrapping_add(self.layout.entries().into());
        self.tail.store(self.cursors.cursor(position), Relaxed);
        self.limit.store(self.cursors.cursor(end), Relaxed);
        for each in &self.lines {
            each.used.store(lines, Relaxed);
            each.freed.store(lines, Relaxed);
        }
    }

    /// Entries that were written; it wraps. `ripstop top` shows it, and links compare it to see whether this side has
    /// written between two reads.
    #[must_use]
    pub fn entries_written(&self) -> u64 {
        self.cursors.position(self.tail.load(Relaxed))
    }

    /// Writes from `bytes` and returns the number of bytes written, 0 if there is no room (or nothing to
    /// write). The caller then asks [`PeerStatus::must_wake`](super::PeerStatus::must_wake).
    ///
    /// # Errors
    ///
    /// [`RingError::Credit`] if the peer breaks the protocol.
    #[inline]
    pub fn write(&self, bytes: Source<'_>) -> Result<usize, RingError> {
        let len = bytes.len();
        let at = self.tail.load(Relaxed);
        if len.wrapping_sub(1) < MAX_INLINE_BYTES && at != self.limit.load(Relaxed) {
            let cell = self.cells.at(at);
            cell.write(0, bytes.buf());
            self.publish(at, cell, entry::short_state(len));
            return Ok(len);
        }
        self.write_entries(&[bytes], len)
    }

    /// As [`write`](Self::write), from several pieces in order.
    ///
    /// Where the first pieces are headers of [`MAX_LEADING_BYTES`] at most, the payload after them starts at a line of
    /// the buffer.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    #[inline]
    pub fn write_vectored<P: AsSource>(&self, pieces: &[P]) -> Result<usize, RingError> {
        let lengths = pieces.iter().map(|piece| piece.as_source().len());
        let len = lengths.fold(0, usize::saturating_add);
        let at = self.tail.load(Relaxed);
        if len.wrapping_sub(1) < MAX_INLINE_BYTES && at != self.limit.load(Relaxed) {
            let cell = self.cells.at(at);
            let mut off = 0;
            for piece in pieces {
                let piece = piece.as_source();
                cell.write(off, piece.buf());
                off += piece.len();
            }
            self.publish(at, cell, entry::short_state(len));
            return Ok(len);
        }
        self.write_entries(pieces, len)
    }

    /// As [`write_vectored`](Self::write_vectored), from the first `header_len` bytes of `header` and then
    /// `payload`.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    #[inline(always)]
    pub fn write_message(
        &self,
        header: &[u8; MAX_HEADER_BYTES],
        header_len: usize,
        payload: UserBuf,
    ) -> Result<usize, RingError> {
        let len = header_len.saturating_add(payload.len());
        let at = self.tail.load(Relaxed);
        if len.wrapping_sub(1) < MAX_INLINE_BYTES
            && header_len <= MAX_HEADER_BYTES
            && at != self.limit.load(Relaxed)
        {
            let cell = self.cells.at(at);
            cell.write_header(header, header_len);
            cell.write(header_len, payload);
            self.publish(at, cell, entry::short_state(len));
            return Ok(len);
        }
        // A copy, so that the header need not be in memory where it is small.
        let header = *header;
        self.write_long(&header, header_len, payload)
    }

    /// As [`write_message`](Self::write_message), with all of `header`, if the message fits
    /// [`MAX_SHORT_ENTRIES`] short entries and there is room for them; `false` means that nothing was written.
    #[inline(always)]
    #[must_use]
    pub fn write_short(&self, header: &[u8; MAX_HEADER_BYTES], payload: UserBuf) -> bool {
        let at = self.tail.load(Relaxed);
        if payload.len() > MAX_INLINE_BYTES - MAX_HEADER_BYTES || at == self.limit.load(Relaxed) {
            // A copy, so that the header need not be in memory where the message is shorter.
            let header = *header;
            return self.write_several(&header, payload);
        }
        let cell = self.cells.at(at);
        cell.write_header(header, MAX_HEADER_BYTES);
        cell.write(MAX_HEADER_BYTES, payload);
        self.publish(
            at,
            cell,
            entry::short_state(MAX_HEADER_BYTES + payload.len()),
        );
        true
    }

    /// As [`write_short`](Self::write_short), where one entry is not enough or there is no room.
    #[inline(never)]
    fn write_several(&self, header: &[u8; MAX_HEADER_BYTES], payload: UserBuf) -> bool {
        payload.len() <= MAX_SHORT_ENTRIES * MAX_INLINE_BYTES - MAX_HEADER_BYTES
            && self.write_short_entries(header, MAX_HEADER_BYTES, payload)
    }

    /// As [`write_message`](Self::write_message), for a message that is longer than a short entry, or finds no room at first.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    #[inline(never)]
    pub fn write_long(
        &self,
        header: &[u8; MAX_HEADER_BYTES],
        header_len: usize,
        payload: UserBuf,
    ) -> Result<usize, RingError> {
        let head = header.get(..header_len).unwrap_or(header);
        let len = head.len().saturating_add(payload.len());
        if self.tail.load(Relaxed) == self.limit.load(Relaxed) {
            self.load_credit()?;
        }
        if len.wrapping_sub(1) < MAX_SHORT_ENTRIES * MAX_INLINE_BYTES
            && self.write_short_entries(header, head.len(), payload)
        {
            return Ok(len);
        }
        if payload.len().wrapping_sub(1) < self.layout.written_chunk_bytes() {
            let at = self.tail.load(Relaxed);
            let Some(place) = self.find_room(at, payload.len())? else {
                return Ok(0);
            };
            let cell = self.cells.at(at);
            self.buffers.write(place.start(self.layout), payload);
            // The line of the entry behind the chunk: see the module.
            cell.set_chunk_len(payload.len() as u64);
            cell.write(CHUNK_LEN_BYTES, Source::from(head).buf());
            self.publish_chunk(at, cell, head.len(), place);
            return Ok(len);
        }
        self.write_entries(&[Source::from(head), Source::from(payload)], len)
    }

    /// Writes a message to several short entries, all or nothing; `false` if there is no room for them.
    /// The reader sees all of them at once, since the first one is published last.
    fn write_short_entries(
        &self,
        header: &[u8; MAX_HEADER_BYTES],
        header_len: usize,
        payload: UserBuf,
    ) -> bool {
        let first = payload.first(MAX_INLINE_BYTES - header_len);
        let rest = payload.skip(first.len());
        let count = 1 + rest.len().div_ceil(MAX_INLINE_BYTES) as u64;
        let at = self.tail.load(Relaxed);
        let position = self.cursors.position(at);
        let free = self
            .cursors
            .position(self.limit.load(Relaxed))
            .wrapping_sub(position);
        // Positions wrap where laps do, not at 2^64: with `limit` behind that and `tail` before it the difference is
        // too large. Such a message is written in another way.
        if free > u64::from(self.layout.entries()) || free < count {
            return false;
        }
        for index in (1..count).rev() {
            let part = rest
                .skip((index as usize - 1) * MAX_INLINE_BYTES)
                .first(MAX_INLINE_BYTES);
            let other = self.cursors.cursor(position.wrapping_add(index));
            let cell = self.cells.at(other);
            cell.write(0, part);
            cell.publish(other & LAP_MASK | entry::short_state(part.len()));
        }
        let cell = self.cells.at(at);
        cell.write_header(header, header_len);
        cell.write(header_len, first);
        cell.publish(at & LAP_MASK | entry::short_state(header_len + first.len()));
        let next = self.cursors.cursor(position.wrapping_add(count));
        self.tail.store(next, Relaxed);
        true
    }

    /// Whether a payload of this length fits one entry with a header of [`MAX_LEADING_BYTES`] at most:
    /// [`write_message`](Self::write_message) then writes all of it or nothing.
    #[must_use]
    #[inline]
    pub const fn fits_one_entry(&self, payload: usize) -> bool {
        payload <= self.layout.written_chunk_bytes()
    }

    /// Whether the write that found no room would find it now. Loads the credit.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    pub fn has_room(&self) -> Result<bool, RingError> {
        self.load_credit()?;
        let chunk = self.chunk_wanted.load(Relaxed) as usize;
        let places = [WhichBuffer::Small, WhichBuffer::Large].map(|which| self.place(which, chunk));
        let full = self.tail.load(Relaxed) == self.limit.load(Relaxed);
        Ok(!full && places.iter().any(Option::is_some))
    }

    /// How far the reader is with the chunks that were written. Loads the credit, which returns some KiB at a time.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    pub fn backlog(&self) -> Result<Backlog, RingError> {
        self.load_credit()?;
        let sum = |[large, small]: [&AtomicU32; 2]| {
            let lines = large.load(Relaxed);
            lines.wrapping_add(small.load(Relaxed))
        };
        let [large, small] = &self.lines;
        Ok(Backlog {
            written: sum([&large.used, &small.used]),
            returned: sum([&large.freed, &small.freed]),
        })
    }

    /// Whether the reader has published that it has applied everything written
    /// ([`Reader::publish_applied`](super::Reader::publish_applied)).
    #[must_use]
    #[inline]
    pub fn all_applied(&self) -> bool {
        self.credit.load_applied() == self.tail.load(Relaxed)
    }

    /// Claims a region of the peer before an access to it. The caller then checks
    /// [`PeerStatus::is_granted`](super::PeerStatus::is_granted), and calls [`unclaim`](Self::unclaim) in
    /// either case.
    #[inline]
    pub fn claim(&self, grant: Grant) {
        self.claim.claim(grant.claim());
    }

    /// Ends the claim, when the access is finished.
    #[inline]
    pub fn unclaim(&self) {
        self.claim.clear();
    }

    /// The joint copies of messages that this side sends.
    #[must_use]
    pub const fn joint_messages(&self) -> &JointHelper<JointMessage> {
        &self.joint_messages
    }

    /// The joint copies of what this side reads and writes in memory of the peer.
    #[must_use]
    pub const fn joint_accesses(&self) -> &JointLeader<JointAccess> {
        &self.joint_accesses
    }

    /// Tells the peer that this side has ended the connection, so that what the peer copies from this
    /// process's memory from now on is of no use ([`Reader::has_writer_ended`]). There is no claim, and
    /// will be none. The caller may then give that memory to another use.
    ///
    /// [`Reader::has_writer_ended`]: super::Reader::has_writer_ended
    #[cold]
    pub fn end(&self) {
        self.claim.store_last(ENDED);
    }

    /// Publishes the entry of cursor `at` to the reader, and goes to the next one.
    #[inline(always)]
    fn publish(&self, at: u64, cell: EntryCell<'_>, state: u64) {
        cell.publish(at & LAP_MASK | state);
        self.tail.store(self.cursors.next(at), Relaxed);
    }

    /// The same for an entry with a chunk at this place.
    fn publish_chunk(&self, at: u64, cell: EntryCell<'_>, leading: usize, place: ChunkPlace) {
        let lines = &self.lines[place.which as usize];
        lines.used.store(place.end, Relaxed);
        self.publish(at, cell, entry::chunk_state(leading, place.which));
    }

    /// Loads the credit, checks it, and frees what the reader has consumed.
    #[cold]
    fn load_credit(&self) -> Result<(), RingError> {
        let (entries, lines) = entry::unpack_credit(self.credit.load());
        let tail = self.tail.load(Relaxed);
        let unread = self.cursors.count(tail).wrapping_sub(entries);
        if unread > self.layout.entries() {
            return Err(RingError::Credit);
        }
        let [large, small] = &self.lines;
        large.free(lines, self.layout.lines(WhichBuffer::Large))?;
        small.free(
            self.credit.load_small(),
            self.layout.lines(WhichBuffer::Small),
        )?;
        let free = self.layout.entries().wrapping_sub(unread);
        let limit = self.cursors.position(tail).wrapping_add(free.into());
        self.limit.store(self.cursors.cursor(limit), Relaxed);
        Ok(())
    }

    /// A write that is not one short entry.
    #[inline(never)]
    fn write_entries<P: AsSource>(&self, pieces: &[P], len: usize) -> Result<usize, RingError> {
        let mut rest = Unwritten {
            pieces,
            off: 0,
            len,
        };
        while rest.len > 0 {
            if !self.write_entry(&mut rest)? {
                break;
            }
        }
        Ok(len - rest.len)
    }

    /// Writes one entry; `false` if there is no room. Pieces are taken in order, so the inline bytes, which come first, are
    /// stored before the chunk.
    fn write_entry<P: AsSource>(&self, rest: &mut Unwritten<'_, P>) -> Result<bool, RingError> {
        let leading = match rest.len {
            ..=MAX_INLINE_BYTES => rest.len,
            _ => rest.whole_pieces(MAX_LEADING_BYTES),
        };
        let chunk = match leading < rest.len {
            true => rest.chunk_len(leading, self.layout.written_chunk_bytes()),
            false => 0,
        };
        let at = self.tail.load(Relaxed);
        let Some(place) = self.find_room(at, chunk)? else {
            return Ok(false);
        };
        let cell = self.cells.at(at);
        if chunk == 0 {
            rest.take(leading, |off, piece| cell.write(off, piece));
            self.publish(at, cell, entry::short_state(leading));
            return Ok(true);
        }
        cell.set_chunk_len(chunk as u64);
        rest.take(leading, |off, piece| {
            cell.write(CHUNK_LEN_BYTES + off, piece)
        });
        let start = place.start(self.layout);
        rest.take(chunk, |off, piece| self.buffers.write(start + off, piece));
        self.publish_chunk(at, cell, leading, place);
        Ok(true)
    }

    /// The place for a chunk, if there is room for it and for an entry: in the small buffer, if the reader
    /// keeps up, else in the large one.
    fn find_room(&self, at: u64, chunk: usize) -> Result<Option<ChunkPlace>, RingError> {
        let now = |which| {
            self.place(which, chunk)
                .filter(|_| at != self.limit.load(Relaxed))
        };
        let mut place = now(WhichBuffer::Small);
        if place.is_none() {
            self.load_credit()?;
            place = now(WhichBuffer::Small).or_else(|| now(WhichBuffer::Large));
        }
        let wanted = if place.is_none() { chunk } else { 0 };
        self.chunk_wanted.store(wanted as u32, Relaxed);
        Ok(place)
    }

    /// The place for a chunk in a buffer, if it has room.
    fn place(&self, which: WhichBuffer, chunk: usize) -> Option<ChunkPlace> {
        let lines = &self.lines[which as usize];
        let used = lines.used.load(Relaxed);
        let place = ChunkPlace::after(which, used, chunk, self.layout);
        let free = self.layout.lines(which).saturating_sub(lines.unread());
        (place.end.wrapping_sub(used) <= free).then_some(place)
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let position = self.cursors.position(self.tail.load(Relaxed));
        write!(f, "Writer({:?}, entry {position})", self.layout)
    }
}

/// The pieces of a vectored write, as far as they are not written.
struct Unwritten<'a, P> {
    pieces: &'a [P],
    /// Bytes of the first piece that are written.
    off: usize,
    len: usize,
}

impl<P: AsSource> Unwritten<'_, P> {
    /// The length of the first pieces that have at most `most` bytes together, without splitting one.
    fn whole_pieces(&self, most: usize) -> usize {
        let mut sum = 0_usize;
        let mut off = self.off;
        for piece in self.pieces {
            let next = sum.saturating_add(piece.as_source().len().saturating_sub(off));
            if next > most {
                break;
            }
            (sum, off) = (next, 0);
        }
        sum
    }

    /// The length of the chunk after the next `leading` bytes, at most `most`: it ends with the first long
    /// piece, so that a header after that starts an entry of its own.
    fn chunk_len(&self, leading: usize, most: usize) -> usize {
        let (mut skip, mut sum) = (self.off + leading, 0_usize);
        for piece in self.pieces {
            let len = piece.as_source().len();
            let part = len.saturating_sub(skip);
            skip -= len - part;
            sum = sum.saturating_add(part);
            if part >= CHUNK_ENDING_PIECE_BYTES || sum >= most {
                break;
            }
        }
        sum.min(most)
    }

    /// Passes the next `len` bytes to `put`, each part with its offset among them.
    fn take(&mut self, len: usize, mut put: impl FnMut(usize, UserBuf)) {
        let mut done = 0;
        while done < len {
            let Some((first, behind)) = self.pieces.split_first() else {
                break;
            };
            let source = first.as_source();
            let part = source.buf().skip(self.off).first(len - done);
            put(done, part);
            done += part.len();
            self.off += part.len();
            if self.off >= source.len() {
                (self.pieces, self.off) = (behind, 0);
            }
        }
        self.len = self.len.saturating_sub(len);
    }
}
