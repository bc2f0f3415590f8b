#![allow(unsafe_code)]
//! Mapped memory, which a peer may write at any time.

use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::UserBuf;
use crate::ring::layout::{
    APPLIED_OFFSET, CLAIM_OFFSETS, CREDIT_OFFSETS, ENTRY_BYTES, GRANT_SLOTS, JOINT_ACCESS_OFFSETS,
    JOINT_MESSAGE_OFFSETS, JOINT_PAYLOAD_WORDS, LINE_BYTES, Layout, MAX_HEADER_BYTES,
    MAX_INLINE_BYTES, RingError, SMALL_CREDIT_OFFSET, STATE_BYTES, STATUS_PAGE_BYTES,
};
use crate::ring::racy_copy;

// Offsets in a status page. The sleep word and the poll count, which writers load, are apart from each
// other and from the rest by more than the adjacent-line prefetch reaches.
const SLEEP_OFFSET: usize = 0x40;
const POLL_COUNT_OFFSET: usize = 0x100;
const ADDRESS_OFFSET: usize = 0x200;
const SLOTS_OFFSET: usize = 0x400;

/// Memory that other processes also map, at an address that does not change.
///
/// # Safety
///
/// For as long as the value lives, wherever it is moved:
/// - `start` and `len` answer the same, and `len` bytes from `start` on are mapped for reads,
///   and for writes if `writable` says so;
/// - they cannot be taken away or become a fault by what a peer does (a sealed `memfd`);
/// - this process reaches them only through this crate.
pub unsafe trait Mapping: fmt::Debug + Send + Sync {
    /// The first byte.
    fn start(&self) -> NonNull<u8>;
    /// The number of bytes.
    fn len(&self) -> usize;
    /// Whether this process may write.
    fn writable(&self) -> bool;
    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A shared reference to a mapping of sufficient size.
#[derive(Clone, Debug)]
pub(in crate::ring) struct Memory(Arc<dyn Mapping>);

impl Memory {
    /// The memory of a pair: writable, with the bytes of the layout.
    pub(in crate::ring) fn pair(map: Arc<dyn Mapping>, layout: Layout) -> Result<Self, RingError> {
        Self::checked(map, layout.len(), true)
    }

    /// A status page; `write` if it is the domain's own.
    pub(in crate::ring) fn status_page(
        map: Arc<dyn Mapping>,
        write: bool,
    ) -> Result<Self, RingError> {
        Self::checked(map, STATUS_PAGE_BYTES, write)
    }

    fn checked(map: Arc<dyn Mapping>, len: usize, write: bool) -> Result<Self, RingError> {
        let aligned = map.start().addr().get().is_multiple_of(LINE_BYTES);
        let sound = aligned && map.len() >= len && (map.writable() || !write);
        sound.then_some(Self(map)).ok_or(RingError::Memory)
    }

    /// The address of offset `off`. All offsets come from a `Layout` that was checked against the length,
    /// or are below [`STATUS_PAGE_BYTES`].
    fn at(&self, off: usize) -> NonNull<u8> {
        assert!(off < self.0.len(), "a layout that was checked");
        // SAFETY: within the mapping by the line above.
        unsafe { self.0.start().add(off) }
    }
}

/// The entries of a direction. Each has a state word and [`MAX_INLINE_BYTES`] bytes.
pub(in crate::ring) struct EntryCells {
    first: NonNull<u8>,
    mask: u64,
    _memory: Memory,
}

// SAFETY: all accesses are atomic or in assembly, which takes them as such.
unsafe impl Send for EntryCells {}
// SAFETY: as for `Send`.
unsafe impl Sync for EntryCells {}

impl EntryCells {
    pub(in crate::ring) fn new(memory: &Memory, layout: Layout, direction: usize) -> Self {
        Self {
            first: memory.at(layout.entries_at(direction)),
            mask: u64::from(layout.entries()) - 1,
            _memory: memory.clone(),
        }
    }

    /// The entry of a cursor, whose low bits are its index.
    #[inline(always)]
    pub(in crate::ring) fn at(&self, cursor: u64) -> EntryCell<'_> {
        let off = (cursor & self.mask) as usize * ENTRY_BYTES;
        EntryCell {
            // SAFETY: below the number of entries, all of which are in the memory.
            start: unsafe { self.first.add(off) },
            cells: PhantomData,
        }
    }
}

/// One entry. Only [`next_state`](Self::next_state) accesses another one.
#[derive(Clone, Copy)]
pub(in crate::ring) struct EntryCell<'a> {
    start: NonNull<u8>,
    cells: PhantomData<&'a EntryCells>,
}

impl<'a> EntryCell<'a> {
    #[inline(always)]
    fn word(self, off: usize) -> &'a AtomicU64 {
        debug_assert!(off <= ENTRY_BYTES && off.is_multiple_of(8));
        // SAFETY: one of the words of an entry, or the first behind it:
        // behind the last entry begins what else is in the memory, entries or a buffer.
        let word = unsafe { self.start.add(off) };
        // SAFETY: aligned, as entries are to lines; only atomics reach it.
        unsafe { AtomicU64::from_ptr(word.as_ptr().cast()) }
    }

    /// The state word (`Acquire`: what the writer stored before it is visible).
    #[inline(always)]
    pub(in crate::ring) fn state(self) -> u64 {
        self.word(0).load(Ordering::Acquire)
    }

    /// The state word of the next entry in memory; of the last entry, some other word.
    #[inline(always)]
    pub(in crate::ring) fn next_state(self) -> u64 {
        self.word(ENTRY_BYTES).load(Ordering::Acquire)
    }

    /// Prefetches the next entry.
    #[inline(always)]
    pub(in crate::ring) fn prefetch_next(self) {
        racy_copy::prefetch(self.start.as_ptr().wrapping_add(ENTRY_BYTES));
    }

    /// Stores the state word, after all that was stored before (`Release`).
    #[inline(always)]
    pub(in crate::ring) fn publish(self, state: u64) {
        self.word(0).store(state, Ordering::Release);
    }

    /// The length of the entry's chunk.
    pub(in crate::ring) fn chunk_len(self) -> u64 {
        self.word(STATE_BYTES).load(Ordering::Relaxed)
    }

    /// Sets the length of the entry's chunk.
    pub(in crate::ring) fn set_chunk_len(self, length: u64) {
        self.word(STATE_BYTES).store(length, Ordering::Relaxed);
    }

    /// The address of inline byte `off`, and the number of bytes from there on.
    #[inline(always)]
    fn inline(self, off: usize) -> (NonNull<u8>, usize) {
        let off = off.min(MAX_INLINE_BYTES);
        // SAFETY: one of the inline bytes, behind the state, or the end of the entry.
        let at = unsafe { self.start.add(STATE_BYTES + off) };
        (at, MAX_INLINE_BYTES - off)
    }

    /// Copies `src` to inline byte `off`, as much as fits.
    #[inline(always)]
    pub(in crate::ring) fn write(self, off: usize, src: UserBuf) {
        let (dst, room) = self.inline(off);
        let n = src.len().min(room);
        // SAFETY: `n` bytes are in the entry and in `src`, which is readable.
        unsafe { racy_copy::into_line(dst.as_ptr(), src.as_ptr(), n) };
    }

    /// Stores a header of `len` bytes at the start of the entry, in whole words: bytes after it may be
    /// overwritten.
    #[inline(always)]
    pub(in crate::ring) fn write_header(self, header: &[u8; MAX_HEADER_BYTES], len: usize) {
        let (words, _) = header.as_chunks::<8>();
        for (index, word) in words.iter().enumerate() {
            if 8 * index < len {
                self.word(STATE_BYTES + 8 * index)
                    .store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            }
        }
    }

    /// The first inline words, each loaded once.
    #[inline(always)]
    pub(in crate::ring) fn words<const WORDS: usize>(self) -> [[u8; 8]; WORDS] {
        const { assert!(8 * WORDS <= MAX_INLINE_BYTES) };
        core::array::from_fn(|at| {
            let word = self.word(STATE_BYTES + 8 * at).load(Ordering::Relaxed);
            word.to_ne_bytes()
        })
    }

    /// Copies from inline byte `off` on into `dst`, as much as there is.
    #[inline(always)]
    pub(in crate::ring) fn read(self, off: usize, dst: UserBuf) {
        let (src, room) = self.inline(off);
        let n = dst.len().min(room);
        // SAFETY: `n` bytes are in the entry and in `dst`, which is writable.
        unsafe { racy_copy::out_of_line(dst.as_ptr(), src.as_ptr(), n) };
    }

    /// Copies all inline bytes.
    #[inline(always)]
    pub(in crate::ring) fn read_all(self, dst: &mut [u8; MAX_INLINE_BYTES]) {
        let (src, _) = self.inline(0);
        // SAFETY: all inline bytes of the entry.
        unsafe { racy_copy::read_entry(dst, src.as_ptr()) };
    }
}

/// Both buffers of a direction, the small one behind the large one.
pub(in crate::ring) struct Buffers {
    start: NonNull<u8>,
    len: usize,
    _memory: Memory,
}

// SAFETY: all accesses are atomic or in assembly, which takes them as such.
unsafe impl Send for Buffers {}
// SAFETY: as for `Send`.
unsafe impl Sync for Buffers {}

impl Buffers {
    pub(in crate::ring) fn new(memory: &Memory, layout: Layout, direction: usize) -> Self {
        Self {
            start: memory.at(layout.buffer_at(direction)),
            len: layout.buffers_bytes(),
            _memory: memory.clone(),
        }
    }

    /// The address of byte `off`, and the number of bytes from there on.
    fn from(&self, off: usize) -> (NonNull<u8>, usize) {
        let off = off.min(self.len);
        // SAFETY: in the buffers, or their end.
        (unsafe { self.start.add(off) }, self.len - off)
    }

    /// Copies `src` to byte `off`, as much as fits.
    pub(in crate::ring) fn write(&self, off: usize, src: UserBuf) {
        let (dst, room) = self.from(off);
        let n = src.len().min(room);
        // SAFETY: `n` bytes are in the buffers and in `src`, which is readable.
        unsafe { racy_copy::into_buffer(dst.as_ptr(), src.as_ptr(), n) };
    }

    /// Copies from byte `off` on into `dst`, as much as there is.
    pub(in crate::ring) fn read(&self, off: usize, dst: UserBuf) {
        let (src, room) = self.from(off);
        let n = dst.len().min(room);
        // SAFETY: `n` bytes are in the buffers and in `dst`, which is writable.
        unsafe { racy_copy::out_of_buffer(dst.as_ptr(), src.as_ptr(), n) };
    }
}

/// A word, or several, of shared memory, which only atomics reach.
pub(in crate::ring) struct Word<A> {
    at: NonNull<A>,
    _memory: Memory,
}

// SAFETY: only reached as an atomic.
unsafe impl<A: Sync> Send for Word<A> {}
// SAFETY: as for `Send`.
unsafe impl<A: Sync> Sync for Word<A> {}

impl<A> Deref for Word<A> {
    type Target = A;

    #[inline(always)]
    fn deref(&self) -> &A {
        // SAFETY: in the memory and aligned by the checks of `Memory::word`, which makes these of
        // atomics only. A peer's status page is mapped for reads only: loads of at most eight bytes
        // may read such memory, and stores are for our own.
        unsafe { self.at.as_ref() }
    }
}

impl Memory {
    /// The atomic, or the array of them, at offset `off`.
    fn word<A>(&self, off: usize) -> Word<A> {
        let at = self.at(off).cast::<A>();
        let fits = off + size_of::<A>() <= self.0.len();
        assert!(fits && at.is_aligned(), "a layout that was checked");
        Word {
            at,
            _memory: self.clone(),
        }
    }

    pub(super) fn credit(&self, direction: usize) -> Word<AtomicU64> {
        self.word(CREDIT_OFFSETS[direction & 1])
    }

    pub(super) fn applied(&self, direction: usize) -> Word<AtomicU64> {
        self.word(CREDIT_OFFSETS[direction & 1] + APPLIED_OFFSET)
    }

    pub(super) fn small_credit(&self, direction: usize) -> Word<AtomicU64> {
        self.word(CREDIT_OFFSETS[direction & 1] + SMALL_CREDIT_OFFSET)
    }

    pub(super) fn claim(&self, direction: usize) -> Word<AtomicU64> {
        self.word(CLAIM_OFFSETS[direction & 1])
    }

    pub(super) fn joint_message(&self, direction: usize) -> Word<AtomicU64> {
        self.word(JOINT_MESSAGE_OFFSETS[direction & 1])
    }

    pub(super) fn joint_message_payload(
        &self,
        direction: usize,
    ) -> Word<[AtomicU64; JOINT_PAYLOAD_WORDS]> {
        self.word(JOINT_MESSAGE_OFFSETS[direction & 1] + size_of::<u64>())
    }

    pub(super) fn joint_access(&self, direction: usize) -> Word<AtomicU64> {
        self.word(JOINT_ACCESS_OFFSETS[direction & 1])
    }

    pub(super) fn joint_access_payload(
        &self,
        direction: usize,
    ) -> Word<[AtomicU64; JOINT_PAYLOAD_WORDS]> {
        self.word(JOINT_ACCESS_OFFSETS[direction & 1] + size_of::<u64>())
    }

    pub(super) fn sleep_word(&self) -> Word<AtomicU32> {
        self.word(SLEEP_OFFSET)
    }

    pub(super) fn slots(&self) -> Word<[AtomicU64; GRANT_SLOTS]> {
        self.word(SLOTS_OFFSET)
    }
}

/// The poll count and address probe of a status page.
pub(in crate::ring) struct RawPollStatus {
    poll_count: Word<AtomicU64>,
    address: Word<AtomicU64>,
    token: Word<AtomicU64>,
}

impl RawPollStatus {
    pub(in crate::ring) fn new(memory: &Memory) -> Self {
        Self {
            poll_count: memory.word(POLL_COUNT_OFFSET),
            address: memory.word(ADDRESS_OFFSET),
            token: memory.word(ADDRESS_OFFSET + 8),
        }
    }

    #[inline]
    pub(in crate::ring) fn load_poll_count(&self) -> u64 {
        self.poll_count.load(Ordering::Relaxed)
    }

    /// To be called on the domain's own page only.
    pub(in crate::ring) fn store_poll_count(&self, poll_count: u64) {
        self.poll_count.store(poll_count, Ordering::Relaxed);
    }

    /// The address of the token in the owner's process, and the token.
    pub(in crate::ring) fn load_address_probe(&self) -> (u64, u64) {
        let (address, token) = (&self.address, &self.token);
        (
            address.load(Ordering::Relaxed),
            token.load(Ordering::Relaxed),
        )
    }

    /// To be called on the domain's own page, before a peer has it.
    pub(in crate::ring) fn store_address_probe(&self, token: u64) {
        let address = self.token.at.addr().get() as u64;
        self.address.store(address, Ordering::Relaxed);
        self.token.store(token, Ordering::Relaxed);
    }
}
