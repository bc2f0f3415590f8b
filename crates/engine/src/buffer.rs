//! Payload as engines know it: handles that the driver gives, and lists of them.

use ripstop_types::{Errno, Result};

/// The most segments of one operation (`iov_limit`).
pub const IOV_LIMIT: usize = 4;

/// A handle for memory the engine never touches: user memory, a kernel page list, a buffer of
/// a simulation.
pub trait Buffer: Copy {
    /// A handle for no memory.
    const EMPTY: Self;

    /// Length in bytes.
    fn len(self) -> usize;

    /// Whether there is no memory.
    fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The number reported as the start of the memory in completions (its address).
    fn address(self) -> usize;

    /// The `len` bytes from `off`, or `None` if they are not all inside.
    fn slice(self, off: usize, len: usize) -> Option<Self>;
}

/// The segments of one operation, at most `N`: [`IOV_LIMIT`], or [`REACH`] for what a peer
/// names.
#[derive(Clone, Copy, Debug)]
pub struct Iov<B, const N: usize = IOV_LIMIT> {
    segments: [B; N],
    count: u8,
    len: u64,
}

/// The most segments of the memory that an operation of a peer names: it has
/// [`MAX_RMA`](ripstop_wire::xnet::base::MAX_RMA) parts, each in a region of as many pieces as
/// [`mr::PIECES`](crate::mr::PIECES).
pub const REACH: usize = 16;

/// The memory that an operation of a peer names.
pub type Reached<B> = Iov<B, REACH>;

impl<B: Buffer, const N: usize> Iov<B, N> {
    /// No memory.
    pub const EMPTY: Self = Self {
        segments: [B::EMPTY; N],
        count: 0,
        len: 0,
    };

    /// Adds a segment.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for more than there can be, or a total beyond 2^63 bytes.
    #[inline]
    pub fn push(&mut self, segment: B) -> Result<()> {
        let slot = self.segments.get_mut(usize::from(self.count));
        *slot.ok_or(Errno::EINVAL)? = segment;
        self.len = self
            .len
            .checked_add(segment.len() as u64)
            .filter(|len| *len <= i64::MAX as u64)
            .ok_or(Errno::EINVAL)?;
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    /// The same memory in more than one segment, if it was one.
    #[must_use]
    pub(crate) fn padded(mut self) -> Self {
        // Those not in use are empty.
        if self.count == 1 {
            self.count = 2;
        }
        self
    }

    /// The segments.
    #[inline]
    #[must_use]
    pub fn segments(&self) -> &[B] {
        self.segments
            .get(..usize::from(self.count))
            .unwrap_or_default()
    }

    /// Total length in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address reported in completions: that of the first segment.
    #[must_use]
    pub fn address(&self) -> usize {
        self.segments().first().map_or(0, |first| first.address())
    }
}

impl<B: Buffer> Iov<B> {
    /// One segment.
    #[inline]
    #[must_use]
    pub fn one(segment: B) -> Self {
        let [_, b, c, d] = [B::EMPTY; IOV_LIMIT];
        Self {
            segments: [segment, b, c, d],
            count: 1,
            len: segment.len() as u64,
        }
    }

    /// The `len` bytes from `at`, or `None` if they are not all inside.
    pub(crate) fn part(&self, at: u64, len: u64) -> Option<Self> {
        let mut part = Self::EMPTY;
        let (mut skip, mut left) = (at, len);
        for segment in self.segments() {
            let there = segment.len() as u64;
            if skip >= there {
                skip = skip.wrapping_sub(there);
                continue;
            }
            let step = there.wrapping_sub(skip).min(left);
            if step > 0 {
                part.push(segment.slice(skip as usize, step as usize)?)
                    .ok()?;
            }
            (skip, left) = (0, left.wrapping_sub(step));
        }
        (left == 0 && skip == 0).then_some(part)
    }

    /// Several segments.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for more than [`IOV_LIMIT`] or a total beyond 2^63 bytes.
    #[inline]
    pub fn new(segments: &[B]) -> Result<Self> {
        if let [only] = segments {
            return Ok(Self::one(*only));
        }
        let mut iov = Self::EMPTY;
        segments.iter().try_for_each(|segment| iov.push(*segment))?;
        Ok(iov)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Mem;

    #[test]
    fn at_most_the_limit() {
        assert!(Iov::new(&[Mem(0, 1); IOV_LIMIT]).is_ok());
        assert!(Iov::new(&[Mem(0, 1); IOV_LIMIT + 1]).is_err());
    }

    #[test]
    fn lengths_that_wrap_are_refused() {
        let huge = Mem(0, usize::MAX);
        let mut iov = Iov::one(huge);
        assert!(iov.push(huge).is_err());
        assert_eq!(iov.len(), u64::MAX);
        assert_eq!(iov.segments(), [huge]);
        assert!(Iov::new(&[huge, huge]).is_err());
    }
}
