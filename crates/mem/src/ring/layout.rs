//! Sizes and offsets of the memory of a pair.

use core::fmt;

/// Grants that one status page can hold at a time.
#[cfg(not(loom))]
pub const GRANT_SLOTS: usize = 64;
/// As above, in the loom model.
#[cfg(loom)]
pub const GRANT_SLOTS: usize = 2;

/// Bytes of an entry. Both processes must have the same: the greeting of `ripstop-shm` has a version for that
/// (`VERSION` in `shm/src/greeting.rs`), and peers of another version are refused.
pub(super) const ENTRY_BYTES: usize = 64;

/// Bytes of a line of the buffers: chunks begin at lines, and credit counts them. A cache line. Both processes
/// must have the same.
pub(super) const LINE_BYTES: usize = 64;

/// Bytes of the state, word 0 of an entry. The inline bytes follow it.
pub(super) const STATE_BYTES: usize = 8;

/// Bytes of the length of a chunk, the first of the inline bytes of an entry with a chunk.
pub(super) const CHUNK_LEN_BYTES: usize = 8;

/// Bytes of the stream that a short entry can hold, at most.
pub const MAX_INLINE_BYTES: usize = ENTRY_BYTES - STATE_BYTES;

/// A message that fits this many short entries is written to them rather than to a chunk.
pub const MAX_SHORT_ENTRIES: usize = 4;

/// The longest header that [`Writer::write_message`](super::Writer::write_message) writes with its payload.
pub const MAX_HEADER_BYTES: usize = 40;

/// Inline bytes of an entry with a chunk, at most; the chunk follows them in the stream.
pub const MAX_LEADING_BYTES: usize = MAX_INLINE_BYTES - CHUNK_LEN_BYTES;

/// Bytes of the status page that each domain shares with its peers.
pub const STATUS_PAGE_BYTES: usize = 4096;

/// The offset of each direction's credit: farther apart than the adjacent-line prefetch reaches.
#[cfg(not(loom))]
pub(super) const CREDIT_OFFSETS: [usize; 2] = [0x000, 0x100];

/// The offset, in the line of a credit, of the cursor that the reader has applied.
#[cfg(not(loom))]
pub(super) const APPLIED_OFFSET: usize = 8;

/// The offset, in the line of a credit, of the lines of the small buffer that were consumed.
#[cfg(not(loom))]
pub(super) const SMALL_CREDIT_OFFSET: usize = 16;

/// The offset of each direction's claim word.
#[cfg(not(loom))]
pub(super) const CLAIM_OFFSETS: [usize; 2] = [0x200, 0x300];

/// Words that say which payload is copied jointly; the state is before them.
pub(super) const JOINT_PAYLOAD_WORDS: usize = 5;

/// The offset of the words of joint copies of messages that come by each direction.
#[cfg(not(loom))]
pub(super) const JOINT_MESSAGE_OFFSETS: [usize; 2] = [0x400, 0x500];

/// The offset of the words of joint copies of accesses by the side that writes each direction.
#[cfg(not(loom))]
pub(super) const JOINT_ACCESS_OFFSETS: [usize; 2] = [0x600, 0x700];

/// The offset of the entries of direction 0.
const ENTRIES_OFFSET: usize = 0x1000;

const _: () = assert!(
    ENTRY_BYTES.is_multiple_of(LINE_BYTES) && MAX_HEADER_BYTES <= MAX_LEADING_BYTES,
    "an entry begins at a cache line, and has room for a header before a chunk"
);

/// The largest buffer of a direction, so that counts of lines fit a credit.
const MAX_BUFFER_BYTES: u32 = 1 << 24;

/// The largest small buffer of a direction: two of them, one for each direction, fit into a first-level cache beside
/// entries and the program's data. So many bytes of the large buffer are also returned by a reader at once, at most.
pub const MAX_SMALL_BUFFER_BYTES: u32 = 8 << 10;

/// Entries of a direction, at most.
const MAX_ENTRIES: u32 = 1 << 16;

/// One of the two buffers of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhichBuffer {
    /// The one with B bytes, for chunks that find no room in the small one.
    Large = 0,
    /// The one with [`Layout::small_buffer`] bytes. While the reader keeps up, chunks are here only, and these few lines
    /// stay in the first-level caches of both sides.
    Small = 1,
}

/// The sizes of a pair's memory, equal in both directions. The connecting side chooses them, and its
/// greeting carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    entries: u32,
    buffer: u32,
}

impl Layout {
    /// Checks sizes, which may come from a peer: `entries` entries and `buffer` bytes of the large buffer for
    /// each direction. `None` unless both are powers of two, 4 to 65,536 entries and 256 bytes to 16 MiB.
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

    /// Entries of each direction.
    #[must_use]
    pub const fn entries(self) -> u32 {
        self.entries
    }

    /// Bytes of the large buffer of each direction.
    #[must_use]
    pub const fn buffer(self) -> u32 {
        self.buffer
    }

    /// Bytes of the whole memory.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a layout is never empty")]
    pub const fn len(self) -> usize {
        ENTRIES_OFFSET + 2 * (self.entries as usize * ENTRY_BYTES + self.buffers_bytes())
    }

    /// An upper bound of the bytes of the stream that a direction holds unread.
    #[must_use]
    pub const fn max_unread_bytes(self) -> u64 {
        self.entries as u64 * ENTRY_BYTES as u64 + self.buffers_bytes() as u64
    }

    /// Bytes of the small buffer of each direction: a quarter of the large one, [`MAX_SMALL_BUFFER_BYTES`] at most.
    pub(super) const fn small_buffer(self) -> u32 {
        if self.buffer / 4 < MAX_SMALL_BUFFER_BYTES {
            self.buffer / 4
        } else {
            MAX_SMALL_BUFFER_BYTES
        }
    }

    /// Bytes of both buffers of each direction.
    pub(super) const fn buffers_bytes(self) -> usize {
        (self.buffer + self.small_buffer()) as usize
    }

    /// The longest chunk that a reader takes, as long as the small buffer.
    #[must_use]
    pub const fn max_chunk_bytes(self) -> usize {
        self.small_buffer() as usize
    }

    /// Lines of a buffer.
    pub(super) const fn lines(self, which: WhichBuffer) -> u32 {
        let bytes = match which {
            WhichBuffer::Large => self.buffer,
            WhichBuffer::Small => self.small_buffer(),
        };
        bytes / LINE_BYTES as u32
    }

    /// Lines of a buffer that a reader consumes before it returns credit for them.
    pub(super) const fn credit_lines(self, which: WhichBuffer) -> u32 {
        let small = self.lines(WhichBuffer::Small);
        match which {
            WhichBuffer::Large => small,
            WhichBuffer::Small => small / 4,
        }
    }

    /// The offset of a buffer behind the first of its direction.
    pub(super) const fn offset(self, which: WhichBuffer) -> usize {
        match which {
            WhichBuffer::Large => 0,
            WhichBuffer::Small => self.buffer as usize,
        }
    }

    /// The longest chunk in a buffer that a reader takes: as long as the small buffer in the large one, half of that in the
    /// small one.
    pub(super) const fn max_chunk_bytes_of(self, which: WhichBuffer) -> usize {
        match which {
            WhichBuffer::Large => self.max_chunk_bytes(),
            WhichBuffer::Small => self.written_chunk_bytes(),
        }
    }

    /// The longest chunk that a writer makes, so that each of them may be in the small buffer. Either buffer holds two of
    /// these and what is skipped at its end, so a writer that waits for room gets it.
    #[must_use]
    pub const fn written_chunk_bytes(self) -> usize {
        (self.small_buffer() / 2) as usize
    }

    /// The offset of a direction's entries.
    #[cfg(not(loom))]
    pub(super) const fn entries_at(self, direction: usize) -> usize {
        ENTRIES_OFFSET + direction * self.entries as usize * ENTRY_BYTES
    }

    /// The offset of a direction's buffers.
    #[cfg(not(loom))]
    pub(super) const fn buffer_at(self, direction: usize) -> usize {
        self.entries_at(2) + direction * self.buffers_bytes()
    }
}

/// One end of a pair: the connector writes direction 0 and reads direction 1, the acceptor the reverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that created the memory and sent the request.
    Connector,
    /// The side that accepted it.
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

/// The peer has broken the protocol in a pair's memory. The caller ends the connection; no wrong value
/// was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingError {
    /// An entry of unknown kind, or with reserved bits set.
    Kind,
    /// A number of inline bytes that the entry cannot hold, or a short entry without any.
    Inline,
    /// A chunk that is empty or longer than [`Layout::max_chunk_bytes`].
    Chunk,
    /// A credit for more than was written.
    Credit,
    /// The mapping is smaller than its layout, not aligned to lines, or not writable.
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
