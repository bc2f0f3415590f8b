#![allow(unsafe_code)]
//! Memory under loom, which fails on an access to payload that the words do not order.

extern crate std;

use core::ops::Deref;
use core::sync::atomic::Ordering;
use std::boxed::Box;
use std::vec::Vec;

use alloc::sync::Arc;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64};

use crate::ring::layout::{
    GRANT_SLOTS, JOINT_PAYLOAD_WORDS, LINE_BYTES, Layout, MAX_HEADER_BYTES, MAX_INLINE_BYTES,
};
use crate::{UserBuf, copy_in, copy_out};

struct Slot {
    state: AtomicU64,
    bytes: UnsafeCell<[u8; MAX_INLINE_BYTES]>,
}

struct Direction {
    cells: Vec<Slot>,
    lines: Vec<UnsafeCell<[u8; LINE_BYTES]>>,
    credit: AtomicU64,
    applied: AtomicU64,
    small_credit: AtomicU64,
    claim: AtomicU64,
    joint_message: AtomicU64,
    joint_message_payload: [AtomicU64; JOINT_PAYLOAD_WORDS],
    joint_access: AtomicU64,
    joint_access_payload: [AtomicU64; JOINT_PAYLOAD_WORDS],
}

struct Whole {
    directions: [Direction; 2],
    sleep: AtomicU32,
    slots: [AtomicU64; GRANT_SLOTS],
}

// SAFETY: loom finds every access that is not ordered.
unsafe impl Send for Whole {}
// SAFETY: as for `Send`.
unsafe impl Sync for Whole {}

#[derive(Clone)]
pub(in crate::ring) struct Memory(Arc<Whole>);

impl Memory {
    pub(in crate::ring) fn modelled(layout: Layout) -> Self {
        let cell = |_| Slot {
            state: AtomicU64::new(0),
            bytes: UnsafeCell::new([0; MAX_INLINE_BYTES]),
        };
        let direction = || Direction {
            cells: (0..layout.entries()).map(cell).collect(),
            lines: (0..layout.buffers_bytes() / LINE_BYTES)
                .map(|_| UnsafeCell::new([0; LINE_BYTES]))
                .collect(),
            credit: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            small_credit: AtomicU64::new(0),
            claim: AtomicU64::new(0),
            joint_message: AtomicU64::new(0),
            joint_message_payload: core::array::from_fn(|_| AtomicU64::new(0)),
            joint_access: AtomicU64::new(0),
            joint_access_payload: core::array::from_fn(|_| AtomicU64::new(0)),
        };
        let whole = Whole {
            directions: [direction(), direction()],
            sleep: AtomicU32::new(0),
            slots: core::array::from_fn(|_| AtomicU64::new(0)),
        };
        Self(whole.into())
    }
}

pub(in crate::ring) struct EntryCells(Memory, usize);

impl EntryCells {
    pub(in crate::ring) fn new(memory: &Memory, _: Layout, direction: usize) -> Self {
        Self(memory.clone(), direction)
    }

    pub(in crate::ring) fn at(&self, cursor: u64) -> EntryCell<'_> {
        let slots = &(self.0).0.directions[self.1].cells;
        EntryCell(slots, cursor as usize % slots.len())
    }
}

#[derive(Clone, Copy)]
pub(in crate::ring) struct EntryCell<'a>(&'a [Slot], usize);

impl EntryCell<'_> {
    pub(in crate::ring) fn state(self) -> u64 {
        self.0[self.1].state.load(Ordering::Acquire)
    }

    pub(in crate::ring) fn next_state(self) -> u64 {
        EntryCell(self.0, self.1 + 1).state()
    }

    pub(in crate::ring) fn publish(self, state: u64) {
        self.0[self.1].state.store(state, Ordering::Release);
    }

    fn with<T>(self, read: impl FnOnce(&[u8; MAX_INLINE_BYTES]) -> T) -> T {
        // SAFETY: loom checks that nobody writes meanwhile.
        self.0[self.1].bytes.with(|bytes| read(unsafe { &*bytes }))
    }

    fn with_mut<T>(self, write: impl FnOnce(&mut [u8; MAX_INLINE_BYTES]) -> T) -> T {
        // SAFETY: loom checks that nobody reads or writes meanwhile.
        self.0[self.1]
            .bytes
            .with_mut(|bytes| write(unsafe { &mut *bytes }))
    }

    pub(in crate::ring) fn prefetch_next(self) {}

    pub(in crate::ring) fn chunk_len(self) -> u64 {
        let first = self.with(|bytes| bytes.first_chunk().copied());
        u64::from_ne_bytes(first.unwrap_or_default())
    }

    pub(in crate::ring) fn set_chunk_len(self, length: u64) {
        self.with_mut(|bytes| bytes[..8].copy_from_slice(&length.to_ne_bytes()));
    }

    pub(in crate::ring) fn write(self, off: usize, src: UserBuf) {
        self.with_mut(|bytes| copy_in(&mut bytes[off..], src));
    }

    pub(in crate::ring) fn write_header(self, header: &[u8; MAX_HEADER_BYTES], len: usize) {
        let len = len.next_multiple_of(8).min(MAX_HEADER_BYTES);
        self.with_mut(|bytes| bytes[..len].copy_from_slice(&header[..len]));
    }

    pub(in crate::ring) fn words<const WORDS: usize>(self) -> [[u8; 8]; WORDS] {
        self.with(|bytes| {
            let (words, _) = bytes.as_chunks::<8>();
            core::array::from_fn(|at| words[at])
        })
    }

    pub(in crate::ring) fn read(self, off: usize, dst: UserBuf) {
        self.with(|bytes| copy_out(dst, &bytes[off..]));
    }

    pub(in crate::ring) fn read_all(self, dst: &mut [u8; MAX_INLINE_BYTES]) {
        *dst = self.with(|bytes| *bytes);
    }
}

pub(in crate::ring) struct Buffers(Memory, usize);

impl Buffers {
    pub(in crate::ring) fn new(memory: &Memory, _: Layout, direction: usize) -> Self {
        Self(memory.clone(), direction)
    }

    /// Each part of the `len` bytes from `off` on that lies in one line.
    fn parts(
        &self,
        off: usize,
        len: usize,
        mut part: impl FnMut(&UnsafeCell<[u8; LINE_BYTES]>, usize, usize),
    ) {
        let mut done = 0;
        while done < len {
            let at = off + done;
            let count = (LINE_BYTES - at % LINE_BYTES).min(len - done);
            part(
                &(self.0).0.directions[self.1].lines[at / LINE_BYTES],
                at % LINE_BYTES,
                done,
            );
            done += count;
        }
    }

    pub(in crate::ring) fn write(&self, off: usize, src: UserBuf) {
        self.parts(off, src.len(), |line, at, done| {
            line.with_mut(|bytes| {
                // SAFETY: loom checks that nobody reads or writes meanwhile.
                let bytes = unsafe { &mut *bytes };
                copy_in(&mut bytes[at..], src.skip(done));
            });
        });
    }

    pub(in crate::ring) fn read(&self, off: usize, dst: UserBuf) {
        self.parts(off, dst.len(), |line, at, done| {
            line.with(|bytes| {
                // SAFETY: loom checks that nobody writes meanwhile.
                let bytes = unsafe { &*bytes };
                copy_out(dst.skip(done), &bytes[at..]);
            });
        });
    }
}

/// One atomic of the model.
pub(in crate::ring) struct Word<A> {
    memory: Memory,
    #[expect(clippy::type_complexity, reason = "which atomic it is")]
    pick: Box<dyn Fn(&Whole) -> &A + Send + Sync>,
}

impl<A> Deref for Word<A> {
    type Target = A;

    fn deref(&self) -> &A {
        (self.pick)(&self.memory.0)
    }
}

impl Memory {
    fn word<A>(&self, pick: impl Fn(&Whole) -> &A + Send + Sync + 'static) -> Word<A> {
        Word {
            memory: self.clone(),
            pick: Box::new(pick),
        }
    }

    pub(super) fn credit(&self, direction: usize) -> Word<AtomicU64> {
        self.word(move |whole| &whole.directions[direction].credit)
    }

    pub(super) fn applied(&self, direction: usize) -> Word<AtomicU64> {
        self.word(move |whole| &whole.directions[direction].applied)
    }

    pub(super) fn small_credit(&self, direction: usize) -> Word<AtomicU64> {
        self.word(move |whole| &whole.directions[direction].small_credit)
    }

    pub(super) fn claim(&self, direction: usize) -> Word<AtomicU64> {
        self.word(move |whole| &whole.directions[direction].claim)
    }

    pub(super) fn joint_message(&self, direction: usize) -> Word<AtomicU64> {
        self.word(move |whole| &whole.directions[direction].joint_message)
    }

    pub(super) fn joint_message_payload(
        &self,
        direction: usize,
    ) -> Word<[AtomicU64; JOINT_PAYLOAD_WORDS]> {
        self.word(move |whole| &whole.directions[direction].joint_message_payload)
    }

    pub(super) fn joint_access(&self, direction: usize) -> Word<AtomicU64> {
        self.word(move |whole| &whole.directions[direction].joint_access)
    }

    pub(super) fn joint_access_payload(
        &self,
        direction: usize,
    ) -> Word<[AtomicU64; JOINT_PAYLOAD_WORDS]> {
        self.word(move |whole| &whole.directions[direction].joint_access_payload)
    }

    pub(super) fn sleep_word(&self) -> Word<AtomicU32> {
        self.word(|whole| &whole.sleep)
    }

    pub(super) fn slots(&self) -> Word<[AtomicU64; GRANT_SLOTS]> {
        self.word(|whole| &whole.slots)
    }
}
