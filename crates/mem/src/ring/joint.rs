//! Joint copies: a long payload that two processes copy together, part by part, each with a processor of its
//! own. The *leader* begins one and claims parts from the front, the *helper* from the back, until they meet. So none
//! waits for the other before all parts are claimed, and a helper that does something else takes none.
//!
//! | payload of | leader | helper | words of |
//! |---|---|---|---|
//! | a message ([`JointMessage`]) | its receiver | its sender | the direction in which it comes |
//! | a read or write ([`JointAccess`]) | its initiator | the owner of the memory | the direction in which the leader sends |
//!
//! The words are in the memory of the pair, for one joint copy at a time. The first one is written by both sides,
//! with compare-and-swap:
//!
//! | bits of word 0 | what |
//! |---|---|
//! | 0..8 | parts that the leader has claimed |
//! | 8..16 | parts that the helper has not claimed |
//! | 16..24 | parts that the helper has copied |
//! | 24 | the helper could not copy one of them |
//! | 25..64 | the number of the joint copy, from 1 on |
//!
//! The words behind it say what is copied. The leader stores them before it opens a joint copy, when the last one is
//! finished; the helper loads them between a load of word 0 and the swap that claims a part, which fails if they may
//! have changed. They are to be checked: a leader that lies in any of the words spoils the payload, which is its own.
//!
//! Each side remembers which parts it has claimed, so that a peer that sets the words back makes it copy
//! none twice; and it gives up where the word changes again and again. So what a side does for one joint
//! copy is bounded, whatever the peer writes.

use core::fmt::{Debug, Formatter};
use core::marker::PhantomData;
use core::sync::atomic::AtomicU64 as PrivateU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::ring::grant::Grant;
use crate::ring::layout::JOINT_PAYLOAD_WORDS;
use crate::ring::primitive::RawJoint;

/// The most parts of a joint copy.
pub const MAX_JOINT_PARTS: u8 = u8::MAX;

/// Swaps of word 0 that a side tries for one change, at most: for each part the other side claims it, says
/// that it is copied, and perhaps that it failed. One that changes the word more often breaks the rules.
const MAX_SWAPS: u32 = 3 * MAX_JOINT_PARTS as u32 + 1;

/// One part in the count of those that the helper has not claimed.
const BACK: u64 = 1 << 8;

/// One part in the count of those that the helper has copied.
const COPIED: u64 = 1 << 16;

/// The bit that says that the helper could not copy a part.
const FAILED: u64 = 1 << 24;

/// One in the number of the joint copy, which has the bits from here on.
const NUMBER: u64 = 1 << 25;

/// Word 0.
#[derive(Clone, Copy)]
struct State(u64);

impl State {
    const fn front(self) -> u8 {
        self.0 as u8
    }

    const fn back(self) -> u8 {
        (self.0 / BACK) as u8
    }

    const fn copied(self) -> u8 {
        (self.0 / COPIED) as u8
    }

    const fn number(self) -> u64 {
        self.0 / NUMBER
    }

    /// Whether there are parts that nobody has claimed.
    const fn is_open(self) -> bool {
        self.front() < self.back()
    }
}

/// The payload of a joint copy, as the words behind word 0 describe it.
pub trait JointPayload: Copy + Debug + PartialEq {
    /// As the leader stores it.
    fn to_words(self) -> [u64; JOINT_PAYLOAD_WORDS];

    /// As the helper loads it: any values, where the leader lies.
    fn from_words(words: [u64; JOINT_PAYLOAD_WORDS]) -> Self;
}

/// A message whose payload is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JointMessage {
    /// Where it goes: an address in the leader's process.
    pub address: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The index of the message.
    pub index: u16,
}

impl JointPayload for JointMessage {
    fn to_words(self) -> [u64; JOINT_PAYLOAD_WORDS] {
        [self.address, self.len, self.index.into(), 0, 0]
    }

    fn from_words([address, len, index, ..]: [u64; JOINT_PAYLOAD_WORDS]) -> Self {
        Self {
            address,
            len,
            index: index as u16,
        }
    }
}

/// A read or write whose payload is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JointAccess {
    /// The memory of the initiator: an address in the leader's process.
    pub address: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The memory that is read or written: an address in the helper's process.
    pub target: u64,
    /// The grant of its region; `None` where the leader's words are of no grant that can be.
    pub grant: Option<Grant>,
    /// Whether it is written, else read.
    pub write: bool,
}

impl JointPayload for JointAccess {
    fn to_words(self) -> [u64; JOINT_PAYLOAD_WORDS] {
        let (slot, generation) = self
            .grant
            .map_or((0, 0), |grant| (grant.slot(), grant.generation()));
        let how = u64::from(slot) << 1 | u64::from(self.write);
        [self.address, self.len, self.target, generation, how]
    }

    fn from_words([address, len, target, generation, how]: [u64; JOINT_PAYLOAD_WORDS]) -> Self {
        let slot = u32::try_from(how >> 1).ok();
        Self {
            address,
            len,
            target,
            grant: slot.and_then(|slot| Grant::new(slot, generation)),
            write: how & 1 == 1,
        }
    }
}

/// The side that begins a joint copy.
pub struct JointLeader<J> {
    words: RawJoint,
    /// Of the last joint copy: its number and parts, and how many of them this side has claimed.
    number: PrivateU64,
    parts: PrivateU64,
    claimed: PrivateU64,
    /// Its payload, as the helper may change the words.
    payload: [PrivateU64; JOINT_PAYLOAD_WORDS],
    of: PhantomData<J>,
}

impl<J: JointPayload> JointLeader<J> {
    pub(super) fn new(words: RawJoint) -> Self {
        Self {
            words,
            number: PrivateU64::new(0),
            parts: PrivateU64::new(0),
            claimed: PrivateU64::new(0),
            payload: [const { PrivateU64::new(0) }; JOINT_PAYLOAD_WORDS],
            of: PhantomData,
        }
    }

    /// Opens a joint copy in `parts` parts. The one before [is finished](Self::is_finished).
    pub fn open(&self, payload: J, parts: u8) {
        let number = self.number.load(Relaxed).wrapping_add(1);
        self.number.store(number, Relaxed);
        self.parts.store(parts.into(), Relaxed);
        self.claimed.store(0, Relaxed);
        let words = payload.to_words();
        self.payload
            .iter()
            .zip(words)
            .for_each(|(own, word)| own.store(word, Relaxed));
        self.words
            .open(words, number * NUMBER + u64::from(parts) * BACK);
    }

    /// The payload of the last joint copy.
    #[must_use]
    pub fn payload(&self) -> J {
        J::from_words(self.payload.each_ref().map(|word| word.load(Relaxed)))
    }

    /// Claims the next part from the front. `None` if there is none, or the helper has broken the rules.
    pub fn claim(&self) -> Option<u8> {
        let claimed = self.claimed.load(Relaxed);
        let mut state = State(self.words.load());
        for _ in 0..MAX_SWAPS {
            let is_next = u64::from(state.front()) == claimed && claimed < self.parts.load(Relaxed);
            if state.number() != self.number() || !state.is_open() || !is_next {
                return None;
            }
            match self.words.swap(state.0, state.0 + 1) {
                Ok(()) => {
                    self.claimed.store(claimed + 1, Relaxed);
                    return Some(state.front());
                }
                Err(found) => state = State(found),
            }
        }
        None
    }

    /// Leaves no part that could be claimed, unless the helper breaks the rules.
    pub fn close(&self) {
        let mut state = State(self.words.load());
        for _ in 0..MAX_SWAPS {
            if state.number() != self.number() || !state.is_open() {
                return;
            }
            let closed = state.0 + u64::from(state.back() - state.front());
            match self.words.swap(state.0, closed) {
                Ok(()) => return,
                Err(found) => state = State(found),
            }
        }
    }

    /// Whether all parts are claimed, and the helper has copied those that it has claimed. From then on it
    /// does not access the memory.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let state = State(self.words.load());
        let parts = self.parts.load(Relaxed);
        !state.is_open() && u64::from(state.back()) + u64::from(state.copied()) == parts
    }

    /// Whether the helper could not copy a part.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        State(self.words.load()).0 & FAILED != 0
    }

    /// How many parts the helper has claimed.
    #[must_use]
    pub fn taken(&self) -> u64 {
        let parts = self.parts.load(Relaxed);
        parts.saturating_sub(State(self.words.load()).back().into())
    }

    /// As much of it as a word can hold.
    fn number(&self) -> u64 {
        State(self.number.load(Relaxed).wrapping_mul(NUMBER)).number()
    }
}

impl<J> Debug for JointLeader<J> {
    fn fmt(&self, f: &mut Formatter<'_>) -> core::fmt::Result {
        write!(f, "JointLeader({})", self.number.load(Relaxed))
    }
}

/// The side that helps: it claims parts of what the leader has begun, from the back.
pub struct JointHelper<J> {
    words: RawJoint,
    of: PhantomData<J>,
}

impl<J: JointPayload> JointHelper<J> {
    pub(super) const fn new(words: RawJoint) -> Self {
        Self {
            words,
            of: PhantomData,
        }
    }

    /// The payload that is copied jointly, if it has parts that nobody has claimed. The caller checks it: it is what
    /// the leader says.
    #[must_use]
    pub fn payload(&self) -> Option<J> {
        let state = State(self.words.load());
        state.is_open().then(|| J::from_words(self.words.payload()))
    }

    /// Claims the next part of this payload from the back, if that is below `end`: the part that the caller has
    /// claimed last, at first the number of parts. When it is copied, the caller calls [`copied`](Self::copied).
    pub fn claim(&self, payload: J, end: u8) -> Option<u8> {
        let mut state = State(self.words.load());
        for _ in 0..MAX_SWAPS {
            if !state.is_open() || state.back() > end || self.payload() != Some(payload) {
                return None;
            }
            match self.words.swap(state.0, state.0 - BACK) {
                Ok(()) => return Some(state.back() - 1),
                Err(found) => state = State(found),
            }
        }
        None
    }

    /// A part that was claimed is copied, or cannot be.
    pub fn copied(&self, done: bool) {
        if !done {
            self.words.set(FAILED);
        }
        self.words.add(COPIED);
    }
}

impl<J: JointPayload> Debug for JointHelper<J> {
    fn fmt(&self, f: &mut Formatter<'_>) -> core::fmt::Result {
        write!(f, "JointHelper({:?})", self.payload())
    }
}
