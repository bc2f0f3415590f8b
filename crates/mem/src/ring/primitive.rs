//! The memory of a pair as the rings see it: entries, buffers and words.
//!
//! There are two kinds, with the same methods. The real one is a mapping. The modelled one
//! (`--cfg loom`) consists of loom's atomics, and of cells that tell loom of every access to a
//! payload, so that the model finds an access that the words do not order.

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
