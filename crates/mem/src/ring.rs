//! Rings in memory that two processes share: one for each direction, each of which carries a stream of
//! bytes as a socket does. `ripstop-shm` connects two endpoints by such a pair.
//!
//! # Who owns what
//!
//! A pair of endpoints shares one mapping that no third process can reach. Each direction has one
//! [`Writer`] and one [`Reader`]. Each side keeps its positions, lengths and counts in private
//! memory; there is no lock, and only the words of joint copies are written by both sides. So a process that dies at any
//! instruction leaves nothing locked, and an entry is visible as a whole or not at all.
//! Each domain also has a *status page*, which its peers map read-only. The owner writes it through
//! [`SleepWord`], [`Grants`] and [`PollStatus`]; peers read it through [`PeerStatus`] and
//! [`PeerPollStatus`].
//!
//! # Layout
//!
//! [`Layout`] has the sizes: N entries, a large buffer of B bytes and a small one of S for each direction, where S is B / 4
//! and 8 KiB at most. The connecting side writes direction 0. All numbers are in the machine's own byte order.
//!
//! | offset | bytes | what | written by |
//! |---|---|---|---|
//! | 0x000 | 64 | credit of direction 0 | its reader |
//! | 0x100 | 64 | credit of direction 1 | its reader |
//! | 0x200 | 64 | claim of direction 0 | its writer |
//! | 0x300 | 64 | claim of direction 1 | its writer |
//! | 0x400 | 64 | joint copies of messages that direction 0 carries | both |
//! | 0x500 | 64 | joint copies of messages that direction 1 carries | both |
//! | 0x600 | 64 | joint copies of reads and writes by the writer of direction 0 | both |
//! | 0x700 | 64 | joint copies of reads and writes by the writer of direction 1 | both |
//! | 0x1000 | 64 N | entries of direction 0 | its writer |
//! | + 64 N | 64 N | entries of direction 1 | its writer |
//! | + 128 N | B, S | large and small buffer of direction 0 | its writer |
//! | + 128 N + B + S | B, S | the same of direction 1 | its writer |
//!
//! An **entry** is one cache line (`ENTRY_BYTES` in `layout.rs`). Its first word, the state, says what it holds:
//!
//! | bits of word 0 | what |
//! |---|---|
//! | 0..8 | the number of inline bytes |
//! | 8..16 | the kind. 1, a short entry: 1 to 56 inline bytes follow this word. 2, an entry with a chunk: word 1 is the length of the chunk, 1 to S, and up to 48 inline bytes (the leading bytes) follow word 1; the chunk, in the large buffer, follows them in the stream. 3, the same with a chunk of at most S / 2 in the small buffer |
//! | 16..32 | 0 |
//! | 32..64 | the lap: position / N + 1, modulo 2^32 |
//!
//! A message may take several short entries. They are stored from the last to the first, so a reader
//! finds all of them or none.
//!
//! A **chunk** is in one of two buffers, and no offset is transmitted: both sides count lines of 64 bytes. A
//! chunk starts at the line after the previous one of its buffer; one that would cross the end
//! starts at the beginning, and the lines that were skipped count as used. A writer takes the small buffer
//! where that has room. So while the reader keeps up, the same few lines are used again and again, and stay in the
//! first-level caches of both sides; the large buffer is for when it does not, as when both sides take turns
//! on one processor.
//!
//! A **credit** is one word: the low half counts the entries that were consumed, the high half
//! the lines of the large buffer, both wrapping. The reader returns credit (stores this word) every N / 4 entries
//! and every S bytes. A writer that has no room has more than that unread, so credit will come. The
//! third word of its line counts the lines of the small buffer, and is stored every S / 4 bytes of it.
//!
//! The second word of the credit's line says what was **applied**: the cursor of the reader (bits
//! 32..64 the lap, 0..32 the index of an entry) at a time when everything before it was read and its
//! effect is in memory. Readers that have granted a region store it, whenever they poll all rings.
//!
//! A **claim** is one word: 0, or one more than the slot of the peer's region that the writer is
//! accessing ([`Grants`]); all ones once the writer has ended the connection ([`Writer::end`]).
//!
//! The words of **joint copies** are described at [`JointLeader`]: a large payload that both sides copy.
//!
//! A **status page** has these words:
//!
//! | offset | what |
//! |---|---|
//! | 0x40 | the sleep word, 32 bits: odd while threads of the domain sleep |
//! | 0x100 | the poll count, changed when the domain polls all rings: a hint that orders nothing |
//! | 0x200 | the address probe: the address of the next word in the owner's process, and in that word a random token |
//! | 0x400 | 64 grant slots, each odd while the region in it may be accessed |
//!
//! # Orderings
//!
//! | who | what it does |
//! |---|---|
//! | writer | knows its room from its own position and the last credit it loaded; without room it loads the credit with `Acquire`. Stores the bytes of entry and chunk, relaxed. Stores word 0 with **`Release`**. Then, after a compiler fence, loads the peer's sleep word, relaxed |
//! | reader | loads word 0 with **`Acquire`**; an entry with another lap is not there yet. Checks lengths in its private copy (words of a sole entry are loaded once each), copies the bytes, moves its own position. From time to time stores the credit with **`Release`**, and then loads the peer's sleep word as a writer does |
//! | sleeper | stores an odd sleep word, calls `membarrier`, polls all rings and credits once more, sleeps. Stores an even value afterwards |
//! | waker | when it loads an odd sleep word that it has not seen before, rings the doorbell |
//! | accessor of a region | loads what was applied with `Acquire`: it must equal its own position. Stores the claim, relaxed; after a compiler fence loads the slot with `Acquire`: it must have the generation of the grant. Copies, or executes atomics; clears the claim with **`Release`** |
//! | owner that ends a grant | stores the slot, calls `membarrier`, loads the claims of all peers with `Acquire` until none is of this slot |
//!
//! The sleeper's `membarrier` is a barrier on every processor that runs a peer: either the sleeper's
//! last poll sees the entry, or the writer's load sees the sleep word. Where `membarrier` is refused,
//! both sides have a sequentially consistent fence instead.
//!
//! An entry that is not there yet has the previous lap: each entry is written once in every lap, and
//! payload is never where a word 0 is expected. Laps wrap to 0 after 2³² of them; in the first lap,
//! where memory that was never written has 0, the lap expected is 1.
//!
//! Payload is copied by assembly (`ring/racy_copy.rs`), since a peer that breaks the protocol may write
//! it meanwhile. With a peer that keeps to it no two copies race, and no wake-up is lost: the model in
//! `ring/model.rs` shows both under loom.
//!
//! # A hostile peer
//!
//! It may write any byte of the memory at any time. Word 0, word 1 and the credit are loaded once,
//! and checked in the copy; a value out of bounds is a [`RingError`] and is never used. Offsets come
//! from private positions only. Every entry that is consumed has at least one byte, so a read ends
//! when its room does. The worst that a peer can do is to send wrong bytes, as over a wire, or to stop.

#![cfg_attr(loom, allow(dead_code, reason = "only the model uses it"))]

mod cursor;
mod entry;
mod grant;
mod joint;
mod layout;
mod peer_status;
#[cfg(not(loom))]
mod poll_status;
mod primitive;
#[cfg(not(loom))]
mod racy_copy;
mod reader;
mod sleep;
mod source_sink;
#[cfg(not(loom))]
mod window;
mod writer;

#[cfg(all(test, not(loom)))]
mod hostile;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

pub use grant::{Grant, Grants};
pub use joint::{
    JointAccess, JointHelper, JointLeader, JointMessage, JointPayload, MAX_JOINT_PARTS,
};
pub use layout::{
    GRANT_SLOTS, Layout, MAX_HEADER_BYTES, MAX_INLINE_BYTES, MAX_LEADING_BYTES, MAX_SHORT_ENTRIES,
    MAX_SMALL_BUFFER_BYTES, RingError, STATUS_PAGE_BYTES, Side,
};
pub use peer_status::PeerStatus;
#[cfg(not(loom))]
pub use poll_status::{AddressProbe, PeerPollStatus, PollStatus};
#[cfg(not(loom))]
pub use primitive::Mapping;
pub use reader::{Reader, ShortEntry, SoleEntry};
pub use sleep::SleepWord;
pub use source_sink::{AsSink, AsSource, Sink, Source};
#[cfg(not(loom))]
pub use window::Window;
pub use writer::{Backlog, Writer};

#[cfg(not(loom))]
mod open {
    use alloc::sync::Arc;

    use super::primitive::{Mapping, Memory};
    use super::{Grants, Layout, PeerStatus, Reader, RingError, Side, SleepWord, Writer};

    /// The writer and the reader that `side` has in a pair's memory. The memory must be all zeroes, or in
    /// its first use by the other side.
    ///
    /// # Errors
    ///
    /// [`RingError::Memory`] if the mapping is shorter than the layout, not aligned to lines or
    /// not writable.
    pub fn pair(
        map: Arc<dyn Mapping>,
        layout: Layout,
        side: Side,
    ) -> Result<(Writer, Reader), RingError> {
        let memory = Memory::pair(map, layout)?;
        let writer = Writer::new(&memory, layout, side);
        Ok((writer, Reader::new(&memory, layout, side)))
    }

    impl SleepWord {
        /// In the domain's own status page: [`STATUS_PAGE_BYTES`](super::STATUS_PAGE_BYTES) bytes of
        /// zeroes, which peers map read-only.
        ///
        /// # Errors
        ///
        /// [`RingError::Memory`] if the mapping is shorter, not aligned or not writable.
        pub fn from_mapping(map: Arc<dyn Mapping>) -> Result<Self, RingError> {
            Ok(Self::new(&Memory::status_page(map, true)?))
        }
    }

    impl Grants {
        /// In the domain's own status page, as for [`SleepWord::from_mapping`].
        ///
        /// # Errors
        ///
        /// As for [`SleepWord::from_mapping`].
        pub fn from_mapping(map: Arc<dyn Mapping>) -> Result<Self, RingError> {
            Ok(Self::new(&Memory::status_page(map, true)?))
        }
    }

    impl PeerStatus {
        /// The mapped status page of a peer. `needs_fence` says that `membarrier` is refused to this
        /// process or to the peer, so that each load needs a fence before it.
        ///
        /// # Errors
        ///
        /// [`RingError::Memory`] if the mapping is shorter or not aligned.
        pub fn from_mapping(map: Arc<dyn Mapping>, needs_fence: bool) -> Result<Self, RingError> {
            Ok(Self::new(&Memory::status_page(map, false)?, needs_fence))
        }
    }
}
#[cfg(not(loom))]
pub use open::pair;
