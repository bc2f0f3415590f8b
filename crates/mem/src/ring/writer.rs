//! The half that writes.

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::UserBuf;
use crate::ring::cursor::{LAP, Turn};
use crate::ring::entry;
use crate::ring::grant::Grant;
use crate::ring::layout::{HEADER, INLINE, LEADING, LINE, Layout, RingError, Side};
use crate::ring::piece::{AsSource, Source};
use crate::ring::primitive::{Buffer, Cell, Cells, Memory, RawClaim, RawCredit};

/// A message goes to so many small entries rather than to a chunk.
const FEW: usize = 4;

/// A piece of so many bytes ends the chunk that it is in.
const LONG: usize = 256;

/// The half of a pair's direction that writes a stream of bytes.
///
/// One thread at a time uses it: its owner's lock sees to that. See [the module](super).
pub struct Writer {
    cells: Cells,
    turn: Turn,
    /// The entry that is next, and the one there is no room for.
    tail: AtomicU64,
    limit: AtomicU64,
    buffer: Buffer,
    layout: Layout,
    credit: RawCredit,
    claim: RawClaim,
    /// Lines of the buffer that were used, and of these given back; both wrap.
    used: AtomicU32,
    freed: AtomicU32,
    /// Lines that the write that stopped needs.
    wanted: AtomicU32,
}

impl Writer {
    pub(super) fn new(memory: &Memory, layout: Layout, side: Side) -> Self {
        let direction = side.writes();
        let turn = Turn::new(layout.entries());
        Self {
            cells: Cells::new(memory, layout, direction),
            turn,
            tail: AtomicU64::new(turn.cursor(0)),
            limit: AtomicU64::new(turn.cursor(layout.entries().into())),
            buffer: Buffer::new(memory, layout, direction),
            layout,
            credit: RawCredit::new(memory, direction),
            claim: RawClaim::new(memory, direction),
            used: AtomicU32::new(0),
            freed: AtomicU32::new(0),
            wanted: AtomicU32::new(0),
        }
    }

    /// As if this many entries and lines had been written and read already.
    #[cfg(all(test, not(loom)))]
    pub(super) fn start_at(&self, position: u64, lines: u32) {
        let end = position.wrapping_add(self.layout.entries().into());
        self.tail.store(self.turn.cursor(position), Relaxed);
        self.limit.store(self.turn.cursor(end), Relaxed);
        self.used.store(lines, Relaxed);
        self.freed.store(lines, Relaxed);
    }

    /// Writes from `bytes` and returns how many were taken, 0 if there is no room (or nothing
    /// to write). The reader sees them; whether it has to be woken, [`PeerStatus`](super::PeerStatus)
    /// says.
    ///
    /// # Errors
    ///
    /// [`RingError::Credit`] if the peer does not keep to the protocol.
    #[inline]
    pub fn write(&self, bytes: Source<'_>) -> Result<usize, RingError> {
        let len = bytes.len();
        let at = self.tail.load(Relaxed);
        if len.wrapping_sub(1) < INLINE && at != self.limit.load(Relaxed) {
            let cell = self.cells.at(at);
            cell.put(0, bytes.buf());
            self.publish(at, cell, entry::small(len));
            return Ok(len);
        }
        self.write_on(&[bytes], len)
    }

    /// As [`write`](Self::write), from several pieces in order.
    ///
    /// Where the first pieces are headers of 48 bytes at most, what follows starts at a line
    /// of the buffer.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    #[inline]
    pub fn write_all<P: AsSource>(&self, pieces: &[P]) -> Result<usize, RingError> {
        let lengths = pieces.iter().map(|piece| piece.as_source().len());
        let len = lengths.fold(0, usize::saturating_add);
        let at = self.tail.load(Relaxed);
        if len.wrapping_sub(1) < INLINE && at != self.limit.load(Relaxed) {
            let cell = self.cells.at(at);
            let mut off = 0;
            for piece in pieces {
                let piece = piece.as_source();
                cell.put(off, piece.buf());
                off += piece.len();
            }
            self.publish(at, cell, entry::small(len));
            return Ok(len);
        }
        self.write_on(pieces, len)
    }

    /// As [`write_all`](Self::write_all), of the first `header_len` bytes of `header` and the
    /// payload behind them.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    #[inline(always)]
    pub fn write_message(
        &self,
        header: &[u8; HEADER],
        header_len: usize,
        payload: UserBuf,
    ) -> Result<usize, RingError> {
        let len = header_len.saturating_add(payload.len());
        let at = self.tail.load(Relaxed);
        if len.wrapping_sub(1) < INLINE && header_len <= HEADER && at != self.limit.load(Relaxed) {
            let cell = self.cells.at(at);
            cell.put_header(header, header_len);
            cell.put(header_len, payload);
            self.publish(at, cell, entry::small(len));
            return Ok(len);
        }
        // A copy, so that the header need not be in memory where it is small.
        let header = *header;
        self.write_long(&header, header_len, payload)
    }

    /// As [`write_message`](Self::write_message), of a header that is as long as it may be, if all
    /// goes into one small entry and there is room for it; `false` says that nothing was written.
    #[inline(always)]
    #[must_use]
    pub fn write_short(&self, header: &[u8; HEADER], payload: UserBuf) -> bool {
        let at = self.tail.load(Relaxed);
        if payload.len() > INLINE - HEADER || at == self.limit.load(Relaxed) {
            return false;
        }
        let cell = self.cells.at(at);
        cell.put_header(header, HEADER);
        cell.put(HEADER, payload);
        self.publish(at, cell, entry::small(HEADER + payload.len()));
        true
    }

    /// A message that is not one small entry, or without room.
    #[inline(never)]
    fn write_long(
        &self,
        header: &[u8; HEADER],
        header_len: usize,
        payload: UserBuf,
    ) -> Result<usize, RingError> {
        let head = header.get(..header_len).unwrap_or(header);
        let len = head.len().saturating_add(payload.len());
        if self.tail.load(Relaxed) == self.limit.load(Relaxed) {
            self.look()?;
        }
        if len.wrapping_sub(1) < FEW * INLINE && self.write_few(header, head.len(), payload) {
            return Ok(len);
        }
        if payload.len().wrapping_sub(1) < self.layout.chunk() {
            let at = self.tail.load(Relaxed);
            let Some(place) = self.room(at, payload.len())? else {
                return Ok(0);
            };
            let cell = self.cells.at(at);
            cell.set_length(payload.len() as u64);
            cell.put(8, Source::from(head).buf());
            self.buffer.put(place.start(self.layout), payload);
            self.used.store(place.end, Relaxed);
            self.publish(at, cell, entry::with_chunk(head.len()));
            return Ok(len);
        }
        self.write_on(&[Source::from(head), Source::from(payload)], len)
    }

    /// Writes a short message to several small entries, all or nothing; `false` if there is no
    /// room for them. The reader sees them at once: the first one is said last.
    fn write_few(&self, header: &[u8; HEADER], header_len: usize, payload: UserBuf) -> bool {
        let first = payload.first(INLINE - header_len);
        let rest = payload.skip(first.len());
        let count = 1 + rest.len().div_ceil(INLINE) as u64;
        let at = self.tail.load(Relaxed);
        let position = self.turn.position(at);
        let free = self
            .turn
            .position(self.limit.load(Relaxed))
            .wrapping_sub(position);
        if free > u64::from(self.layout.entries()) || free < count {
            return false;
        }
        for index in (1..count).rev() {
            let part = rest.skip((index as usize - 1) * INLINE).first(INLINE);
            let other = self.turn.cursor(position.wrapping_add(index));
            let cell = self.cells.at(other);
            cell.put(0, part);
            cell.publish(other & LAP | entry::small(part.len()));
        }
        let cell = self.cells.at(at);
        cell.put_header(header, header_len);
        cell.put(header_len, first);
        cell.publish(at & LAP | entry::small(header_len + first.len()));
        let next = self.turn.cursor(position.wrapping_add(count));
        self.tail.store(next, Relaxed);
        true
    }

    /// Whether a payload of so many bytes goes into one entry with its header, if that has at
    /// most 48 bytes: then [`write_message`](Self::write_message) takes all or nothing.
    #[must_use]
    #[inline]
    pub const fn takes_whole(&self, payload: usize) -> bool {
        payload <= self.layout.chunk()
    }

    /// Whether the write that found no room, if one did, would find some now.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    pub fn has_room(&self) -> Result<bool, RingError> {
        self.look()?;
        let free = self.layout.lines().saturating_sub(self.in_buffer());
        let full = self.tail.load(Relaxed) == self.limit.load(Relaxed);
        Ok(!full && free >= self.wanted.load(Relaxed))
    }

    /// Whether the reader has applied all that was written, as far as it has said so
    /// ([`Reader::tell_applied`](super::Reader::tell_applied)).
    #[must_use]
    #[inline]
    pub fn all_applied(&self) -> bool {
        self.credit.load_applied() == self.tail.load(Relaxed)
    }

    /// Says that a region of the peer is about to be reached. Whether that may be done,
    /// [`PeerStatus::is_granted`](super::PeerStatus::is_granted) says afterwards;
    /// [`unclaim`](Self::unclaim) follows in either case.
    #[inline]
    pub fn claim(&self, grant: Grant) {
        self.claim.claim(grant.claim());
    }

    /// Says that all that was done in the region is done.
    #[inline]
    pub fn unclaim(&self) {
        self.claim.clear();
    }

    /// Gives the entry of cursor `at` to the reader.
    #[inline(always)]
    fn publish(&self, at: u64, cell: Cell<'_>, state: u64) {
        cell.publish(at & LAP | state);
        self.tail.store(self.turn.next(at), Relaxed);
    }

    /// Lines of the buffer that hold what the reader has not consumed.
    fn in_buffer(&self) -> u32 {
        self.used
            .load(Relaxed)
            .wrapping_sub(self.freed.load(Relaxed))
    }

    /// Looks at what the reader has consumed.
    #[cold]
    fn look(&self) -> Result<(), RingError> {
        let (entries, lines) = entry::unpack(self.credit.load());
        let tail = self.tail.load(Relaxed);
        let unread = self.turn.count(tail).wrapping_sub(entries);
        let unread_lines = self.used.load(Relaxed).wrapping_sub(lines);
        if unread > self.layout.entries() || unread_lines > self.layout.lines() {
            return Err(RingError::Credit);
        }
        let free = self.layout.entries().wrapping_sub(unread);
        let limit = self.turn.position(tail).wrapping_add(free.into());
        self.limit.store(self.turn.cursor(limit), Relaxed);
        self.freed.store(lines, Relaxed);
        Ok(())
    }

    /// A write that is not one small entry.
    #[inline(never)]
    fn write_on<P: AsSource>(&self, pieces: &[P], len: usize) -> Result<usize, RingError> {
        let mut rest = Rest {
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

    /// Writes one entry; `false` if there is no room.
    fn write_entry<P: AsSource>(&self, rest: &mut Rest<'_, P>) -> Result<bool, RingError> {
        let leading = match rest.len {
            ..=INLINE => rest.len,
            _ => rest.whole(LEADING),
        };
        let chunk = match leading < rest.len {
            true => rest.chunk(leading, self.layout.chunk()),
            false => 0,
        };
        let at = self.tail.load(Relaxed);
        let Some(place) = self.room(at, chunk)? else {
            return Ok(false);
        };
        let cell = self.cells.at(at);
        if chunk == 0 {
            rest.pull(leading, |off, piece| cell.put(off, piece));
            self.publish(at, cell, entry::small(leading));
            return Ok(true);
        }
        cell.set_length(chunk as u64);
        rest.pull(leading, |off, piece| cell.put(8 + off, piece));
        let start = place.start(self.layout);
        rest.pull(chunk, |off, piece| self.buffer.put(start + off, piece));
        self.used.store(place.end, Relaxed);
        self.publish(at, cell, entry::with_chunk(leading));
        Ok(true)
    }

    /// Where a chunk goes, if there is room for it and for an entry.
    fn room(&self, at: u64, chunk: usize) -> Result<Option<entry::Place>, RingError> {
        let place = entry::Place::of(self.used.load(Relaxed), chunk, self.layout);
        let needed = place.end.wrapping_sub(self.used.load(Relaxed));
        let fits = || {
            let free = self.layout.lines().saturating_sub(self.in_buffer());
            at != self.limit.load(Relaxed) && needed <= free
        };
        if !fits() {
            self.look()?;
            if !fits() {
                self.wanted.store(needed, Relaxed);
                return Ok(None);
            }
        }
        self.wanted.store(0, Relaxed);
        Ok(Some(place))
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let position = self.turn.position(self.tail.load(Relaxed));
        write!(f, "Writer({:?}, entry {position})", self.layout)
    }
}

/// What is left of the pieces.
struct Rest<'a, P> {
    pieces: &'a [P],
    /// What is done of the first.
    off: usize,
    len: usize,
}

impl<P: AsSource> Rest<'_, P> {
    /// The bytes of the first pieces that are `most` together.
    fn whole(&self, most: usize) -> usize {
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

    /// The bytes of a chunk behind the next `leading`, at most `most`: it ends with the first long
    /// piece, so that the header behind that leads an entry of its own.
    fn chunk(&self, leading: usize, most: usize) -> usize {
        let (mut skip, mut sum) = (self.off + leading, 0_usize);
        for piece in self.pieces {
            let len = piece.as_source().len();
            let part = len.saturating_sub(skip);
            skip -= len - part;
            sum = sum.saturating_add(part);
            if part >= LONG || sum >= most {
                break;
            }
        }
        sum.min(most)
    }

    /// Hands on the next `len` bytes, each part with its place among them.
    fn pull(&mut self, len: usize, mut put: impl FnMut(usize, UserBuf)) {
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

/// A chunk begins at a line.
const _: () = assert!(LINE == 64);
