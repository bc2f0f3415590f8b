#![allow(unsafe_code)]
//! Mapped memory, which a peer may write at any time.

use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::UserBuf;
use crate::ring::layout::{
    APPLIED_OFFSET, CLAIM_OFFSETS, CREDIT_OFFSETS, GRANT_SLOTS, LINE_BYTES, Layout,
    MAX_HEADER_BYTES, MAX_INLINE_BYTES, RingError, STATUS_PAGE_BYTES,
};
use crate::ring::racy_copy;

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
        let off = (cursor & self.mask) as usize * LINE_BYTES;
        EntryCell {
            // SAFETY: below the number of entries, all of which are in the memory.
            line: unsafe { self.first.add(off) },
            cells: PhantomData,
        }
    }
}

/// One entry. Only [`next_state`](Self::next_state) accesses another line.
#[derive(Clone, Copy)]
pub(in crate::ring) struct EntryCell<'a> {
    line: NonNull<u8>,
    cells: PhantomData<&'a EntryCells>,
}

impl<'a> EntryCell<'a> {
    #[inline(always)]
    fn word(self, off: usize) -> &'a AtomicU64 {
        debug_assert!(off <= LINE_BYTES && off.is_multiple_of(8));
        // SAFETY: one of the eight words of an entry, or the first of the line behind it:
        // behind the last entry begins what else is in the memory, entries or a buffer.
        let word = unsafe { self.line.add(off) };
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
        self.word(LINE_BYTES).load(Ordering::Acquire)
    }

    /// Prefetches the next entry.
    #[inline(always)]
    pub(in crate::ring) fn prefetch_next(self) {
        racy_copy::prefetch(self.line.as_ptr().wrapping_add(LINE_BYTES));
    }

    /// Stores the state word, after all that was stored before (`Release`).
    #[inline(always)]
    pub(in crate::ring) fn publish(self, state: u64) {
        self.word(0).store(state, Ordering::Release);
    }

    /// The length of the entry's chunk.
    pub(in crate::ring) fn chunk_len(self) -> u64 {
        self.word(8).load(Ordering::Relaxed)
    }

    /// Sets the length of the entry's chunk.
    pub(in crate::ring) fn set_chunk_len(self, length: u64) {
        self.word(8).store(length, Ordering::Relaxed);
    }

    /// The address of inline byte `off`, and the number of bytes from there on.
    #[inline(always)]
    fn inline(self, off: usize) -> (NonNull<u8>, usize) {
        let off = off.min(MAX_INLINE_BYTES);
        // SAFETY: the 56 bytes behind the word, or the end of the entry.
        (unsafe { self.line.add(8 + off) }, MAX_INLINE_BYTES - off)
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
                self.word(8 + 8 * index)
                    .store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            }
        }
    }

    /// The first inline words, at most 7, each loaded once.
    #[inline(always)]
    pub(in crate::ring) fn words<const WORDS: usize>(self) -> [[u8; 8]; WORDS] {
        const { assert!(8 * WORDS <= MAX_INLINE_BYTES) };
        core::array::from_fn(|at| {
            let word = self.word(8 + 8 * at).load(Ordering::Relaxed);
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
        // SAFETY: the 56 bytes of the entry, behind its first word.
        unsafe { racy_copy::read_entry(dst, src.as_ptr()) };
    }
}

/// The buffer of a direction.
pub(in crate::ring) struct Buffer {
    start: NonNull<u8>,
    len: usize,
    _memory: Memory,
}

// SAFETY: all accesses are atomic or in assembly, which takes them as such.
unsafe impl Send for Buffer {}
// SAFETY: as for `Send`.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub(in crate::ring) fn new(memory: &Memory, layout: Layout, direction: usize) -> Self {
        Self {
            start: memory.at(layout.buffer_at(direction)),
            len: layout.buffer() as usize,
            _memory: memory.clone(),
        }
    }

    /// The address of byte `off`, and the number of bytes from there on.
    fn from(&self, off: usize) -> (NonNull<u8>, usize) {
        let off = off.min(self.len);
        // SAFETY: in the buffer, or its end.
        (unsafe { self.start.add(off) }, self.len - off)
    }

    /// Copies `src` to byte `off`, as much as fits.
    pub(in crate::ring) fn write(&self, off: usize, src: UserBuf) {
        let (dst, room) = self.from(off);
        let n = src.len().min(room);
        // SAFETY: `n` bytes are in the buffer and in `src`, which is readable.
        unsafe { racy_copy::into_buffer(dst.as_ptr(), src.as_ptr(), n) };
    }

    /// Copies from byte `off` on into `dst`, as much as there is.
    pub(in crate::ring) fn read(&self, off: usize, dst: UserBuf) {
        let (src, room) = self.from(off);
        let n = dst.len().min(room);
        // SAFETY: `n` bytes are in the buffer and in `dst`, which is writable.
        unsafe { racy_copy::out_of_buffer(dst.as_ptr(), src.as_ptr(), n) };
    }
}

/// The credit of a direction, and the cursor that its reader has applied.
pub(in crate::ring) struct RawCredit {
    word: NonNull<u64>,
    applied: NonNull<u64>,
    _memory: Memory,
}

// SAFETY: only reached as an atomic.
unsafe impl Send for RawCredit {}
// SAFETY: as for `Send`.
unsafe impl Sync for RawCredit {}

impl RawCredit {
    pub(in crate::ring) fn new(memory: &Memory, direction: usize) -> Self {
        Self {
            word: memory.at(CREDIT_OFFSETS[direction & 1]).cast(),
            applied: memory
                .at(CREDIT_OFFSETS[direction & 1] + APPLIED_OFFSET)
                .cast(),
            _memory: memory.clone(),
        }
    }

    const fn atomic(&self) -> &AtomicU64 {
        // SAFETY: a word in the first page of the memory, aligned to a line.
        unsafe { AtomicU64::from_ptr(self.word.as_ptr()) }
    }

    const fn atomic_applied(&self) -> &AtomicU64 {
        // SAFETY: the word behind it.
        unsafe { AtomicU64::from_ptr(self.applied.as_ptr()) }
    }

    /// The cursor up to which the reader has applied everything.
    pub(in crate::ring) fn load_applied(&self) -> u64 {
        self.atomic_applied().load(Ordering::Acquire)
    }

    /// Stores the cursor up to which everything is applied, after what was applied.
    pub(in crate::ring) fn store_applied(&self, cursor: u64) {
        self.atomic_applied().store(cursor, Ordering::Release);
    }

    /// The credit; the reader's copies of what it covers are finished.
    pub(in crate::ring) fn load(&self) -> u64 {
        self.atomic().load(Ordering::Acquire)
    }

    /// Stores the credit, after the copies of what it covers.
    pub(in crate::ring) fn store(&self, consumed: u64) {
        self.atomic().store(consumed, Ordering::Release);
    }
}

/// The claim of a direction's writer on a region of its peer.
pub(in crate::ring) struct RawClaim {
    word: NonNull<u64>,
    _memory: Memory,
}

// SAFETY: only reached as an atomic.
unsafe impl Send for RawClaim {}
// SAFETY: as for `Send`.
unsafe impl Sync for RawClaim {}

impl RawClaim {
    pub(in crate::ring) fn new(memory: &Memory, direction: usize) -> Self {
        Self {
            word: memory.at(CLAIM_OFFSETS[direction & 1]).cast(),
            _memory: memory.clone(),
        }
    }

    const fn atomic(&self) -> &AtomicU64 {
        // SAFETY: a word in the first page of the memory, aligned to a line.
        unsafe { AtomicU64::from_ptr(self.word.as_ptr()) }
    }

    /// The claim; if it is 0, accesses under earlier claims are finished.
    pub(in crate::ring) fn load(&self) -> u64 {
        self.atomic().load(Ordering::Acquire)
    }

    /// Stores a claim.
    pub(in crate::ring) fn claim(&self, value: u64) {
        self.atomic().store(value, Ordering::Relaxed);
    }

    /// Clears the claim, after the accesses that it covers.
    pub(in crate::ring) fn clear(&self) {
        self.atomic().store(0, Ordering::Release);
    }
}

/// The grant slots of a status page.
pub(in crate::ring) struct RawSlots {
    first: NonNull<u64>,
    _memory: Memory,
}

// SAFETY: only reached as atomics.
unsafe impl Send for RawSlots {}
// SAFETY: as for `Send`.
unsafe impl Sync for RawSlots {}

impl RawSlots {
    const OFFSET: usize = 0x400;

    pub(in crate::ring) fn new(memory: &Memory) -> Self {
        const { assert!(Self::OFFSET + GRANT_SLOTS * 8 <= STATUS_PAGE_BYTES) };
        Self {
            first: memory.at(Self::OFFSET).cast(),
            _memory: memory.clone(),
        }
    }

    #[inline(always)]
    fn atomic(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < GRANT_SLOTS, "a slot that was checked");
        // SAFETY: one of the words of the status page that the check in `new` covers.
        let word = unsafe { self.first.add(slot) };
        // SAFETY: aligned to its size. A peer's status page is mapped for reads only: a load of this
        // size may read such memory, and `store` is for our own.
        unsafe { AtomicU64::from_ptr(word.as_ptr()) }
    }

    /// The generation in a slot. Later accesses are not moved before this load.
    #[inline(always)]
    pub(in crate::ring) fn load(&self, slot: usize) -> u64 {
        self.atomic(slot).load(Ordering::Acquire)
    }

    /// To be called on the domain's own page only.
    pub(in crate::ring) fn store(&self, slot: usize, value: u64) {
        self.atomic(slot).store(value, Ordering::Release);
    }
}

/// The sleep word of a status page.
pub(in crate::ring) struct RawSleepWord {
    word: NonNull<u32>,
    _memory: Memory,
}

// SAFETY: only reached as an atomic.
unsafe impl Send for RawSleepWord {}
// SAFETY: as for `Send`.
unsafe impl Sync for RawSleepWord {}

impl RawSleepWord {
    const OFFSET: usize = 0x40;

    pub(in crate::ring) fn new(memory: &Memory) -> Self {
        Self {
            word: memory.at(Self::OFFSET).cast(),
            _memory: memory.clone(),
        }
    }

    #[inline(always)]
    const fn atomic(&self) -> &AtomicU32 {
        // SAFETY: a word of the status page, aligned to a line. A peer's status page is mapped for reads
        // only: a relaxed load of this size may read such memory, and `store` is for our own.
        unsafe { AtomicU32::from_ptr(self.word.as_ptr()) }
    }

    #[inline(always)]
    pub(in crate::ring) fn load(&self) -> u32 {
        self.atomic().load(Ordering::Relaxed)
    }

    /// To be called on the domain's own page only.
    pub(in crate::ring) fn store(&self, value: u32) {
        self.atomic().store(value, Ordering::Relaxed);
    }
}

/// The poll count and address probe of a status page.
pub(in crate::ring) struct RawPollStatus {
    poll_count: NonNull<u64>,
    address: NonNull<u64>,
    token: NonNull<u64>,
    _memory: Memory,
}

// SAFETY: only reached as atomics.
unsafe impl Send for RawPollStatus {}
// SAFETY: as for `Send`.
unsafe impl Sync for RawPollStatus {}

impl RawPollStatus {
    // Apart from each other, and from the sleep word that writers load, by more than the adjacent-line
    // prefetch reaches.
    const POLL_COUNT_OFFSET: usize = 0x100;
    const ADDRESS_OFFSET: usize = 0x200;
    const TOKEN_OFFSET: usize = Self::ADDRESS_OFFSET + 8;

    pub(in crate::ring) fn new(memory: &Memory) -> Self {
        Self {
            poll_count: memory.at(Self::POLL_COUNT_OFFSET).cast(),
            address: memory.at(Self::ADDRESS_OFFSET).cast(),
            token: memory.at(Self::TOKEN_OFFSET).cast(),
            _memory: memory.clone(),
        }
    }

    #[inline(always)]
    const fn atomic(&self, word: NonNull<u64>) -> &AtomicU64 {
        // SAFETY: one of the words of the status page, aligned to its size. A peer's status page is mapped for
        // reads only: a relaxed load of this size may read such memory, and stores are for our own.
        unsafe { AtomicU64::from_ptr(word.as_ptr()) }
    }

    #[inline]
    pub(in crate::ring) fn load_poll_count(&self) -> u64 {
        self.atomic(self.poll_count).load(Ordering::Relaxed)
    }

    /// To be called on the domain's own page only.
    pub(in crate::ring) fn store_poll_count(&self, poll_count: u64) {
        self.atomic(self.poll_count)
            .store(poll_count, Ordering::Relaxed);
    }

    /// The address of the token in the owner's process, and the token.
    pub(in crate::ring) fn load_address_probe(&self) -> (u64, u64) {
        let (address, token) = (self.atomic(self.address), self.atomic(self.token));
        (
            address.load(Ordering::Relaxed),
            token.load(Ordering::Relaxed),
        )
    }

    /// To be called on the domain's own page, before a peer has it.
    pub(in crate::ring) fn store_address_probe(&self, token: u64) {
        let address = self.token.addr().get() as u64;
        self.atomic(self.address).store(address, Ordering::Relaxed);
        self.atomic(self.token).store(token, Ordering::Relaxed);
    }
}
