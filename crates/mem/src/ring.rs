//! The shared memory of two endpoints: a ring for each direction, which carries a stream of
//! bytes from one process to the other as a socket does.
//!
//! # Who owns what
//!
//! A pair of endpoints shares one mapping that no third process can reach. Each direction has one
//! [`Writer`] and one [`Reader`]. All positions, lengths and counts that either side goes by are
//! in its private memory; there is no lock, and no word that both sides write. So a process that
//! dies at any instruction leaves nothing locked, and an entry is there as a whole or not at all.
//! Each domain has besides a *status page*, a page that peers map for reads only, where it says whether
//! it sleeps ([`SleepWord`], [`PeerStatus`]).
//!
//! # Layout
//!
//! Sizes are those of [`Layout`]: N entries and B bytes of buffer a direction. Who connects writes
//! direction 0. All numbers are in the machine's own byte order.
//!
//! | offset | bytes | what | written by |
//! |---|---|---|---|
//! | 0x000 | 64 | credit of direction 0 | its reader |
//! | 0x100 | 64 | credit of direction 1 | its reader |
//! | 0x200 | 64 | claim of direction 0 | its writer |
//! | 0x300 | 64 | claim of direction 1 | its writer |
//! | 0x1000 | 64 N | entries of direction 0 | its writer |
//! | + 64 N | 64 N | entries of direction 1 | its writer |
//! | + 128 N | B, B | buffers of directions 0 and 1 | its writer |
//!
//! An **entry** is a line of the cache. Its first word says what it is:
//!
//! | bits of word 0 | what |
//! |---|---|
//! | 0..8 | bytes inline |
//! | 8..16 | 1: they are all, 1 to 56, behind this word. 2: a chunk follows them: word 1 has its length, 1 to B / 4; up to 48 bytes are behind word 1 |
//! | 16..32 | 0 |
//! | 32..64 | the lap: position / N + 1, cut to 32 bits |
//!
//! A short message may take several entries without a chunk: they are stored from the last to the
//! first, so that a reader finds all of them or none.
//!
//! A **chunk** lies in the buffer and is not pointed at: both sides count lines of 64 bytes, a
//! chunk starts at the line behind the one before it, and one that would cross the end of the
//! buffer starts at its begin (the lines skipped count as used).
//!
//! A **credit** is one word: the low half counts the entries that were consumed, the high half
//! the lines, both wrapping. The reader tells it every N / 4 entries and every B / 4 bytes. A
//! writer that has no room has more than that unread, so it hears of room in the end.
//!
//! The second word of its line says what was **applied**: the cursor of the reader (bits 32..64 the
//! lap, 0..32 the index of an entry) at a time when everything before it was read and its effect
//! is in memory. It is told now and then by readers that have granted something.
//!
//! A **claim** is one word: 0, or one more than the slot of the region of its peer that the writer
//! reaches just now ([`Grants`]).
//!
//! A **status page** has at 0x40 a word of 32 bits, odd while threads sleep, and at 0x400 the 64 words of
//! its slots, each odd while the region in the slot may be reached. At 0x100 is a word that changes
//! now and then when its domain looks at its rings: it orders nothing. At 0x200 is the address, as
//! the domain itself has it, of the word behind that, which has a random number ([`PollStatus`]).
//!
//! # Orderings
//!
//! | who | what it does |
//! |---|---|
//! | writer | has room by its own position and the last credit it saw; else loads the credit with `Acquire`. Stores the bytes of entry and chunk, relaxed. Stores word 0 with **`Release`**. Then, after a compiler fence, loads the peer's sleep word, relaxed |
//! | reader | loads word 0 with **`Acquire`**; with another lap there is nothing. Checks lengths in its private copy (what it loads of an entry alone it loads once), copies the bytes, moves its own position. Now and then stores the credit with **`Release`**, and then looks at the peer's sleep word as a writer does |
//! | sleeper | stores an odd sleep word, calls `membarrier`, looks at all rings and credits again, sleeps. Stores an even one afterwards |
//! | waker | on an odd sleep word that it has not seen before, rings |
//! | who reaches a region | loads what was applied with `Acquire`: it must be its own position. Stores the claim, relaxed; after a compiler fence loads the slot with `Acquire`: it must be the one that was granted. Copies, or works with atomics; clears the claim with **`Release`** |
//! | who ends a grant | stores the slot, calls `membarrier`, loads the claims of all peers with `Acquire` until none is of this slot |
//!
//! The barrier of the sleeper is one for every peer that runs: either the sleeper's look sees the
//! entry, or the writer's look sees the sleep word. Where `membarrier` is refused both sides have
//! a sequentially consistent fence there.
//!
//! An entry that is not there yet has the lap before: each entry is written once in every lap, and
//! payload never lies where a word 0 is looked for. Laps wrap after 2³² of them, to 0, which only
//! memory never written has in the first lap; then the lap looked for is 1.
//!
//! Payload is copied by assembly (see `ring/racy_copy.rs`), since a peer that does not keep to the
//! protocol writes it meanwhile. With one that does, no copy races with another: the model in
//! `ring/model.rs` shows it, and that no wake-up is lost, under loom.
//!
//! # A hostile peer
//!
//! It may write any byte of the memory at any time. Word 0, word 1 and the credit are loaded once,
//! and checked in the copy; what is out of bounds is a [`RingError`] and is not followed. Places in
//! memory come from private positions. Every entry that is taken has at least one byte, so a read
//! ends when its room does. A peer can thus send any bytes, as over a wire, stop, and slow
//! itself down.

#![cfg_attr(loom, allow(dead_code, reason = "only the model uses it"))]

mod cursor;
mod entry;
mod grant;
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

pub use grant::{GRANT_SLOTS, Grant, Grants};
pub use layout::{
    LINE_BYTES, Layout, MAX_HEADER_BYTES, MAX_INLINE_BYTES, MAX_LEADING_BYTES, RingError,
    STATUS_PAGE_BYTES, Side,
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
pub use writer::Writer;

#[cfg(not(loom))]
mod open {
    use alloc::sync::Arc;

    use super::primitive::{Mapping, Memory};
    use super::{Grants, Layout, PeerStatus, Reader, RingError, Side, SleepWord, Writer};

    /// The two halves that `side` has of a pair's memory, which is all zeroes, or is about to
    /// be used for the first time by the other side too.
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
        /// A domain's own status page, [`STATUS_PAGE_BYTES`](super::STATUS_PAGE_BYTES) bytes of zeroes that peers only read.
        ///
        /// # Errors
        ///
        /// [`RingError::Memory`] if the mapping is shorter, not aligned or not writable.
        pub fn from_mapping(map: Arc<dyn Mapping>) -> Result<Self, RingError> {
            Ok(Self::new(&Memory::status_page(map, true)?))
        }
    }

    impl Grants {
        /// Those of a domain's own status page, as for [`SleepWord::from_mapping`].
        ///
        /// # Errors
        ///
        /// As for [`SleepWord::from_mapping`].
        pub fn from_mapping(map: Arc<dyn Mapping>) -> Result<Self, RingError> {
            Ok(Self::new(&Memory::status_page(map, true)?))
        }
    }

    impl PeerStatus {
        /// The status page of a peer. `fenced` says that `membarrier` is refused here or there, so
        /// that each look needs a fence.
        ///
        /// # Errors
        ///
        /// [`RingError::Memory`] if the mapping is shorter or not aligned.
        pub fn from_mapping(map: Arc<dyn Mapping>, fenced: bool) -> Result<Self, RingError> {
            Ok(Self::new(&Memory::status_page(map, false)?, fenced))
        }
    }
}
#[cfg(not(loom))]
pub use open::pair;
