//! Access to the words, entries and buffers in shared memory, on which the rings are built.
//!
//! There are two implementations with the same methods. `shared` is a mapping. `modelled`
//! (`--cfg loom`) has loom's atomics, and cells that report every access to payload to loom, so that
//! the model finds an access that the words do not order.

#[cfg(loom)]
mod modelled;
#[cfg(not(loom))]
mod shared;

#[cfg(loom)]
pub(super) use loom::sync::atomic::fence;
#[cfg(loom)]
pub(super) use modelled::{
    Buffer, EntryCell, EntryCells, Memory, RawClaim, RawCredit, RawSleepWord, RawSlots,
};
#[cfg(not(loom))]
pub use shared::Mapping;
#[cfg(not(loom))]
pub(super) use {
    core::sync::atomic::fence,
    shared::{
        Buffer, EntryCell, EntryCells, Memory, RawClaim, RawCredit, RawPollStatus, RawSleepWord,
        RawSlots,
    },
};
