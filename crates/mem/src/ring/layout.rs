//! Where everything lies in the memory of a pair.

use core::fmt;

/// Bytes of an entry: a line of the cache.
pub const LINE_BYTES: usize = 64;

/// Most bytes of the stream in an entry that has no chunk.
pub const MAX_INLINE_BYTES: usize = 56;

/// Bytes of the longest header that is written with its payload.
pub const MAX_HEADER_BYTES: usize = 40;

/// Most bytes of the stream in an entry that has a chunk; the chunk follows them.
pub const MAX_LEADING_BYTES: usize = 48;

/// Bytes of the memory in which a domain says whether it sleeps.
pub const STATUS_PAGE_BYTES: usize = 4096;

/// Where the credit of each direction lies: apart by more than what one miss may bring.
#[cfg(not(loom))]
pub(super) const CREDIT_OFFSETS: [usize; 2] = [0x000, 0x100];

/// Where in the line of a credit the reader says what it has applied.
#[cfg(not(loom))]
pub(super) const APPLIED_OFFSET: usize = 8;

/// Where the writer of each direction says which region it reaches.
#[cfg(not(loom))]
pub(super) const CLAIM_OFFSETS: [usize; 2] = [0x200, 0x300];

/// Where the entries begin.
const ENTRIES_OFFSET: usize = 0x1000;

/// Largest buffer of a direction, so that counts of lines have room in a credit.
const MAX_BUFFER_BYTES: u32 = 1 << 24;

/// Most entries of a direction.
const MAX_ENTRIES: u32 = 1 << 16;

/// The sizes of a pair's memory, equal in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    entries: u32,
    buffer: u32,
}

impl Layout {
    /// `entries` entries and `buffer` bytes of buffer a direction. Both come from the peer as a
    /// rule: `None` unless they are powers of two, 4 to 65,536 entries and 256 bytes to 16 MiB.
    #[must_use]
    pub const fn new(entries: u32, buffer: u32) -> Option<Self> {
        let sound = entries.is_power_of_two() && buffer.is_power_of_two();
        let entries_fit = entries >= 4 && entries <= MAX_ENTRIES;
        let buffer_fits = buffer >= 256 && buffer <= MAX_BUFFER_BYTES;
        if sound && entries_fit && buffer_fits {
            Some(Self { entries, buffer })
        } else {
            None
        }
    }

    /// Entries of a direction.
    #[must_use]
    pub const fn entries(self) -> u32 {
        self.entries
    }

    /// Bytes of the buffer of a direction.
    #[must_use]
    pub const fn buffer(self) -> u32 {
        self.buffer
    }

    /// Bytes of the whole.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a layout is never empty")]
    pub const fn len(self) -> usize {
        ENTRIES_OFFSET + 2 * (self.entries as usize * LINE_BYTES + self.buffer as usize)
    }

    /// The most bytes of a stream that a direction holds, or more.
    #[must_use]
    pub const fn max_unread_bytes(self) -> u64 {
        self.entries as u64 * LINE_BYTES as u64 + self.buffer as u64
    }

    /// The longest chunk. A buffer is at least two of these and what is lost at its end, so a
    /// writer that waits for room gets it.
    #[must_use]
    pub const fn max_chunk_bytes(self) -> usize {
        (self.buffer / 4) as usize
    }

    /// Lines of the buffer of a direction.
    pub(super) const fn lines(self) -> u32 {
        self.buffer / LINE_BYTES as u32
    }

    /// Where the entries of a direction begin.
    #[cfg(not(loom))]
    pub(super) const fn entries_at(self, direction: usize) -> usize {
        ENTRIES_OFFSET + direction * self.entries as usize * LINE_BYTES
    }

    /// Where the buffer of a direction begins.
    #[cfg(not(loom))]
    pub(super) const fn buffer_at(self, direction: usize) -> usize {
        self.entries_at(2) + direction * self.buffer as usize
    }
}

/// Which end of a pair: who connects writes direction 0 and reads direction 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who made the memory and asked.
    Connector,
    /// Who was asked.
    Acceptor,
}

impl Side {
    /// The direction that this side writes.
    pub(super) const fn writes(self) -> usize {
        match self {
            Self::Connector => 0,
            Self::Acceptor => 1,
        }
    }

    /// The direction that this side reads.
    pub(super) const fn reads(self) -> usize {
        1 - self.writes()
    }
}

/// What is wrong with a pair's memory: the peer does not keep to the protocol. The connection
/// is to be ended; nothing that was wrong has been followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingError {
    /// An entry of no known kind, or with bits that are not used.
    Kind,
    /// More bytes in an entry than it has, or none at all.
    Inline,
    /// A chunk that is empty or longer than [`Layout::max_chunk_bytes`].
    Chunk,
    /// Room given back that was not taken.
    Credit,
    /// The memory is smaller than its layout, not aligned to a page's lines, or not writable.
    Memory,
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind => "an entry of no known kind",
            Self::Inline => "an entry with a wrong number of bytes",
            Self::Chunk => "a chunk of a wrong length",
            Self::Credit => "room given back that was not taken",
            Self::Memory => "memory that does not fit its layout",
        })
    }
}

impl core::error::Error for RingError {}
