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

/// The segments of one operation, at most [`IOV_LIMIT`].
#[derive(Clone, Copy, Debug)]
pub struct Iov<B> {
    segments: [B; IOV_LIMIT],
    count: u8,
    len: u64,
}

impl<B: Buffer> Iov<B> {
    /// No memory.
    pub const EMPTY: Self = Self {
        segments: [B::EMPTY; IOV_LIMIT],
        count: 0,
        len: 0,
    };

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
        for segment in segments {
            let slot = iov
                .segments
                .get_mut(usize::from(iov.count))
                .ok_or(Errno::EINVAL)?;
            *slot = *segment;
            iov.count = iov.count.saturating_add(1);
            iov.len = iov
                .len
                .checked_add(segment.len() as u64)
                .filter(|len| *len <= i64::MAX as u64)
                .ok_or(Errno::EINVAL)?;
        }
        Ok(iov)
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
