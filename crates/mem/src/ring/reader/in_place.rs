//! Short entries that are read in place: a small message goes from the ring to the user's buffer.

use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use super::{Reader, has_lap};
use crate::UserBuf;
use crate::ring::entry;
use crate::ring::layout::MAX_INLINE_BYTES;
use crate::ring::primitive::EntryCell;

impl Reader {
    /// The next entry, if it is a short one, not partly consumed, with no entry after it yet. In all other
    /// cases `None`, and [`read`](Self::read) serves them.
    #[must_use]
    #[inline(always)]
    pub fn sole_entry(&self) -> Option<SoleEntry<'_>> {
        let ShortEntry { cell, len, at, .. } = self.short_entry()?;
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

    /// The next entry, if it is a short one that is not partly consumed.
    #[must_use]
    #[inline(always)]
    pub fn short_entry(&self) -> Option<ShortEntry<'_>> {
        if self.partial.load(Relaxed) != 0 {
            return None;
        }
        self.short_entry_at(self.head.load(Relaxed))
    }

    /// The entry of cursor `at`, if it is there and a short one.
    #[inline(always)]
    fn short_entry_at(&self, at: u64) -> Option<ShortEntry<'_>> {
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
}

/// A short entry with no entry after it, read in place ([`Reader::sole_entry`]). It stays the next entry
/// until [`consume`](Self::consume).
///
/// The peer may write it meanwhile: two loads of a byte may differ.
pub struct SoleEntry<'a> {
    reader: &'a Reader,
    cell: EntryCell<'a>,
    len: usize,
    next: u64,
}

impl SoleEntry<'_> {
    /// Its number of bytes, 1 to [`MAX_INLINE_BYTES`].
    #[must_use]
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "an entry is never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Its first 24 bytes; those after the length are undefined.
    #[must_use]
    #[inline(always)]
    pub fn words(&self) -> [[u8; 8]; 3] {
        self.cell.words()
    }

    /// Copies from byte `off` on into `dst`, up to the end of either.
    #[inline(always)]
    pub fn copy_to(&self, off: usize, dst: UserBuf) {
        self.cell.read(off, dst);
    }

    /// Goes to the next entry. It returns no credit, since the entry is not the last of a quarter.
    #[inline(always)]
    pub fn consume(self) {
        self.reader.head.store(self.next, Relaxed);
    }
}

/// A short entry, read in place ([`Reader::short_entry`]). It stays the next entry until
/// [`consume`](Self::consume).
///
/// The peer may write it meanwhile: two loads of a byte may differ.
pub struct ShortEntry<'a> {
    reader: &'a Reader,
    cell: EntryCell<'a>,
    len: usize,
    at: u64,
}

impl<'a> ShortEntry<'a> {
    /// The entry behind this one, if it is there and a short one. It is consumed after this one.
    #[must_use]
    #[inline]
    pub fn next(&self) -> Option<ShortEntry<'a>> {
        self.reader
            .short_entry_at(self.reader.cursors.next(self.at))
    }

    /// Its number of bytes, 1 to [`MAX_INLINE_BYTES`].
    #[must_use]
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "an entry is never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// All its bytes; those after the length are undefined.
    #[must_use]
    #[inline(always)]
    pub fn words(&self) -> [[u8; 8]; MAX_INLINE_BYTES / 8] {
        self.cell.words()
    }

    /// Goes to the next entry, which may return credit ([`Reader::take_credit_returned`]).
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
