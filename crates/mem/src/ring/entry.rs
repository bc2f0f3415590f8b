//! Encoding of the words of an entry and of a credit.

use crate::ring::layout::{
    CHUNK_LEN_BYTES, LINE_BYTES, Layout, MAX_INLINE_BYTES, MAX_LEADING_BYTES, RingError,
    WhichBuffer,
};

/// The kind of a short entry, which has no chunk.
const SHORT: u64 = 1 << 8;

/// The kind of an entry with a chunk in the large buffer.
const LARGE: u64 = 2 << 8;

/// The kind of an entry with a chunk in the small buffer.
const SMALL: u64 = 3 << 8;

/// The low half of word 0 of a short entry with `len` inline bytes.
#[inline(always)]
pub(super) const fn short_state(len: usize) -> u64 {
    SHORT | len as u64
}

/// The low half of word 0 of an entry with `leading` inline bytes and a chunk in this buffer after them.
pub(super) const fn chunk_state(leading: usize, which: WhichBuffer) -> u64 {
    let kind = match which {
        WhichBuffer::Large => LARGE,
        WhichBuffer::Small => SMALL,
    };
    kind | leading as u64
}

/// The number of inline bytes of a short entry; `None` if word 0 is anything else.
#[inline(always)]
pub(super) const fn short_len(state: u64) -> Option<usize> {
    let len = (state as u32).wrapping_sub(SHORT as u32);
    if len.wrapping_sub(1) < MAX_INLINE_BYTES as u32 {
        return Some(len as usize);
    }
    None
}

/// The lengths of an entry, checked, and how much of it was consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Inline bytes.
    pub(super) leading: usize,
    /// Bytes in the chunk.
    pub(super) chunk: usize,
    /// Bytes of both that were consumed.
    pub(super) consumed: usize,
    /// The buffer that the chunk is in.
    pub(super) which: WhichBuffer,
}

impl Entry {
    /// Checks word 0, and the length of the chunk in word 1, as the peer has written them.
    pub(super) fn check(
        state: u64,
        length: impl FnOnce() -> u64,
        layout: Layout,
    ) -> Result<Self, RingError> {
        let leading = (state & 0xff) as usize;
        let (chunk_in, most) = match state & 0xffff_ff00 {
            SHORT if leading == 0 => return Err(RingError::Inline),
            SHORT => (None, MAX_INLINE_BYTES),
            LARGE => (Some(WhichBuffer::Large), MAX_LEADING_BYTES),
            SMALL => (Some(WhichBuffer::Small), MAX_LEADING_BYTES),
            _ => return Err(RingError::Kind),
        };
        let chunk = match chunk_in {
            Some(which) => Self::check_chunk_len(length(), which, layout)?,
            None => 0,
        };
        if leading > most {
            return Err(RingError::Inline);
        }
        Ok(Self {
            leading,
            chunk,
            consumed: 0,
            which: chunk_in.unwrap_or(WhichBuffer::Large),
        })
    }

    fn check_chunk_len(
        length: u64,
        which: WhichBuffer,
        layout: Layout,
    ) -> Result<usize, RingError> {
        match usize::try_from(length) {
            Ok(length) if length > 0 && length <= layout.max_chunk_bytes_of(which) => Ok(length),
            _ => Err(RingError::Chunk),
        }
    }

    /// Packs it into one word, which is never 0: 7 bits of inline bytes, 1 of the buffer, 28 of the chunk, 28 of what
    /// was consumed.
    pub(super) const fn pack(self) -> u64 {
        let which = (self.which as u64) << 7;
        self.leading as u64 | which | (self.chunk as u64) << 8 | (self.consumed as u64) << 36
    }

    /// Unpacks it; `None` if the word is 0.
    pub(super) const fn unpack(word: u64) -> Option<Self> {
        if word == 0 {
            return None;
        }
        Some(Self {
            leading: (word & 0x7f) as usize,
            which: match word & 0x80 {
                0 => WhichBuffer::Large,
                _ => WhichBuffer::Small,
            },
            chunk: (word >> 8 & 0x0fff_ffff) as usize,
            consumed: (word >> 36) as usize,
        })
    }

    /// The offset of the inline bytes after word 0: the length of a chunk is before them.
    pub(super) const fn inline_offset(self) -> usize {
        if self.chunk == 0 { 0 } else { CHUNK_LEN_BYTES }
    }

    /// Inline bytes that were not consumed yet.
    #[inline(always)]
    pub(super) const fn leading_left(self) -> usize {
        self.leading.saturating_sub(self.consumed)
    }

    /// The number of bytes, inline and in the chunk.
    pub(super) const fn len(self) -> usize {
        self.leading + self.chunk
    }
}

const _: () = assert!(
    MAX_INLINE_BYTES < 1 << 7,
    "`Entry::pack` has 7 bits for the inline bytes"
);

/// The lines of a buffer that a chunk takes. Both sides compute them; they are not transmitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkPlace {
    pub(super) which: WhichBuffer,
    first: u32,
    /// The line after it.
    pub(super) end: u32,
}

impl ChunkPlace {
    /// The place of a chunk of `chunk` bytes after `used` lines of a buffer: one that would cross its end
    /// starts at its beginning.
    pub(super) const fn after(which: WhichBuffer, used: u32, chunk: usize, layout: Layout) -> Self {
        let lines = layout.lines(which);
        let count = chunk.div_ceil(LINE_BYTES) as u32;
        let at = used & (lines - 1);
        let skipped = if at + count > lines { lines - at } else { 0 };
        let first = used.wrapping_add(skipped);
        Self {
            which,
            first,
            end: first.wrapping_add(count),
        }
    }

    /// Its first byte in the buffers of its direction.
    pub(super) const fn start(self, layout: Layout) -> usize {
        let line = self.first & (layout.lines(self.which) - 1);
        layout.offset(self.which) + line as usize * LINE_BYTES
    }
}

/// A credit: the entries and the lines that were consumed, both wrapping.
pub(super) const fn pack_credit(entries: u32, lines: u32) -> u64 {
    entries as u64 | (lines as u64) << 32
}

/// The two counts of a credit.
pub(super) const fn unpack_credit(credit: u64) -> (u32, u32) {
    (credit as u32, (credit >> 32) as u32)
}
