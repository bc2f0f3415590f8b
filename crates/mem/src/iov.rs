//! Scatter and gather lists of callers' buffers.

use crate::{UserBuf, copy, copy_in, copy_out};

/// How many buffers one operation may have (`iov_limit` of `fi_endpoint(3)`).
pub const IOV_LIMIT: usize = 4;

/// Up to [`IOV_LIMIT`] callers' buffers that form one message, in order. What [`UserBuf`] says
/// about use after completion holds for each of them.
#[derive(Clone, Copy, Debug)]
pub struct UserIov {
    segs: [UserBuf; IOV_LIMIT],
    count: u8,
    total: usize,
}

impl UserIov {
    /// A message of no bytes.
    pub const EMPTY: Self = Self {
        segs: [UserBuf::EMPTY; IOV_LIMIT],
        count: 0,
        total: 0,
    };

    /// A message in one buffer.
    #[must_use]
    #[inline]
    pub const fn single(buf: UserBuf) -> Self {
        Self {
            segs: [buf, UserBuf::EMPTY, UserBuf::EMPTY, UserBuf::EMPTY],
            count: 1,
            total: buf.len(),
        }
    }

    /// A message in the given buffers, or `None` if there are more than [`IOV_LIMIT`] or their
    /// lengths do not add up within `usize`.
    #[must_use]
    #[inline]
    pub fn new(segs: &[UserBuf]) -> Option<Self> {
        let mut iov = Self::EMPTY;
        for &seg in segs {
            iov.push(seg)?;
        }
        Some(iov)
    }

    /// Adds a buffer at the end, or changes nothing and gives `None` where
    /// [`new`](Self::new) would.
    #[inline]
    pub fn push(&mut self, seg: UserBuf) -> Option<()> {
        let total = self.total.checked_add(seg.len())?;
        let slot = self.segs.get_mut(usize::from(self.count))?;
        *slot = seg;
        self.count = self.count.saturating_add(1);
        self.total = total;
        Some(())
    }

    /// The buffers.
    #[must_use]
    #[inline]
    pub fn segments(&self) -> &[UserBuf] {
        self.segs.get(..usize::from(self.count)).unwrap_or(&[])
    }

    /// The number of bytes in all buffers together.
    #[must_use]
    #[inline]
    pub const fn total_len(&self) -> usize {
        self.total
    }

    /// Whether there are no bytes.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The pieces that hold message bytes `off..off + len`, in order, none of them empty. Bytes
    /// beyond the end are left out.
    #[must_use]
    #[inline]
    pub fn range(&self, off: usize, len: usize) -> Segments<'_> {
        Segments {
            rest: self.segments(),
            skip: off,
            left: len,
        }
    }

    /// Copies message bytes from offset `off` on into `dst`; the number copied is short only
    /// where the message ends.
    #[inline]
    pub fn copy_in(&self, off: usize, dst: &mut [u8]) -> usize {
        let mut done: usize = 0;
        for seg in self.range(off, dst.len()) {
            let Some(to) = dst.get_mut(done..) else { break };
            done = done.saturating_add(copy_in(to, seg));
        }
        done
    }

    /// Copies `src` into the message from offset `off` on; the number copied is short only
    /// where the message ends.
    #[inline]
    pub fn copy_out(&self, off: usize, src: &[u8]) -> usize {
        let mut done: usize = 0;
        for seg in self.range(off, src.len()) {
            let Some(from) = src.get(done..) else { break };
            done = done.saturating_add(copy_out(seg, from));
        }
        done
    }

    /// Copies up to `len` bytes of `src` from offset `src_off` into this message from offset
    /// `off` on, and returns how many: fewer where either message ends.
    #[inline]
    pub fn copy_from(&self, off: usize, src: &Self, src_off: usize, len: usize) -> usize {
        let mut done: usize = 0;
        for from in src.range(src_off, len) {
            let before = done;
            for to in self.range(off.saturating_add(before), from.len()) {
                done = done.saturating_add(copy(to, from.skip(done.saturating_sub(before))));
            }
            if done.saturating_sub(before) < from.len() {
                break;
            }
        }
        done
    }
}

impl Default for UserIov {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl From<UserBuf> for UserIov {
    fn from(buf: UserBuf) -> Self {
        Self::single(buf)
    }
}

/// The pieces of a byte range of a [`UserIov`]; made by [`UserIov::range`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    rest: &'a [UserBuf],
    skip: usize,
    left: usize,
}

impl Iterator for Segments<'_> {
    type Item = UserBuf;

    #[inline]
    fn next(&mut self) -> Option<UserBuf> {
        while self.left > 0 {
            let (&seg, rest) = self.rest.split_first()?;
            self.rest = rest;
            if self.skip >= seg.len() {
                self.skip = self.skip.saturating_sub(seg.len());
                continue;
            }
            let piece = seg.skip(self.skip).first(self.left);
            self.skip = 0;
            self.left = self.left.saturating_sub(piece.len());
            return Some(piece);
        }
        None
    }
}
