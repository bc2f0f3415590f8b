//! User memory of a node: blocks of bytes that an engine knows by handle.

use ripstop_engine::{Buffer, Iov};

/// Bytes before and behind a guarded range.
const GUARD: usize = 16;

/// A range of one block of a [`Memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimBuf {
    block: u32,
    at: u32,
    len: u32,
}

impl Buffer for SimBuf {
    const EMPTY: Self = Self {
        block: u32::MAX,
        at: 0,
        len: 0,
    };

    fn len(self) -> usize {
        self.len as usize
    }

    fn address(self) -> usize {
        ((self.block as usize) << 32) | self.at as usize
    }

    fn slice(self, at: usize, len: usize) -> Option<Self> {
        let inside = at.checked_add(len)? <= self.len();
        inside.then(|| self.part(at, len))
    }
}

impl SimBuf {
    /// A part of the range, cut off at its end.
    #[must_use]
    pub fn part(self, at: usize, len: usize) -> Self {
        let at = at.min(self.len());
        let len = len.min(self.len() - at);
        Self {
            at: self.at + at as u32,
            len: len as u32,
            ..self
        }
    }
}

/// Blocks of bytes. Blocks stay until the memory is dropped.
#[derive(Debug, Default)]
pub struct Memory {
    blocks: Vec<Vec<u8>>,
}

impl Memory {
    /// A block with these bytes.
    pub fn block(&mut self, bytes: Vec<u8>) -> SimBuf {
        let buf = SimBuf {
            block: self.blocks.len() as u32,
            at: 0,
            len: bytes.len() as u32,
        };
        self.blocks.push(bytes);
        buf
    }

    /// These bytes with a guard on either side, at a multiple of 16.
    pub fn guarded(&mut self, bytes: Vec<u8>, guard: u8) -> SimBuf {
        let len = bytes.len();
        let guard = [guard; GUARD];
        let block = [&guard[..], &bytes, &guard].concat();
        self.block(block).part(GUARD, len)
    }

    /// Asserts that nothing was written beside a guarded range.
    ///
    /// # Panics
    /// If something was.
    pub fn assert_guards(&self, guard: u8) {
        let guard = [guard; GUARD];
        for bytes in &self.blocks {
            let whole = bytes.starts_with(&guard) && bytes.ends_with(&guard);
            assert!(whole, "written beside a buffer");
        }
    }

    /// The bytes of a range.
    ///
    /// # Panics
    /// If it is of another memory.
    #[must_use]
    pub fn bytes(&self, buf: SimBuf) -> &[u8] {
        if buf.is_empty() {
            return &[];
        }
        &self.blocks[buf.block as usize][buf.at as usize..][..buf.len()]
    }

    /// The bytes of a range, to be changed.
    ///
    /// # Panics
    /// If it is of another memory.
    pub fn bytes_mut(&mut self, buf: SimBuf) -> &mut [u8] {
        if buf.is_empty() {
            return &mut [];
        }
        &mut self.blocks[buf.block as usize][buf.at as usize..][..buf.len()]
    }

    /// The bytes of all segments, one behind the other.
    #[must_use]
    pub fn gather<const N: usize>(&self, iov: &Iov<SimBuf, N>) -> Vec<u8> {
        let segments = iov.segments().iter();
        segments.flat_map(|buf| self.bytes(*buf)).copied().collect()
    }

    /// Puts bytes at an offset of the segments taken as one.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn scatter<const N: usize>(&mut self, iov: &Iov<SimBuf, N>, at: u64, bytes: &[u8]) {
        let (mut skip, mut rest) = (at as usize, bytes);
        for segment in iov.segments() {
            let part = segment.part(skip, rest.len());
            skip -= skip.min(segment.len());
            let (now, later) = rest.split_at(part.len());
            self.bytes_mut(part).copy_from_slice(now);
            rest = later;
        }
        assert!(rest.is_empty(), "placed {} bytes too many", rest.len());
    }
}
