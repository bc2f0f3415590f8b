//! Memory that is none: the engine never looks into it.

use ripstop_engine::Buffer;

/// Memory by its address and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mem(pub(crate) usize, pub(crate) usize);

impl Buffer for Mem {
    const EMPTY: Self = Self(0, 0);

    fn len(self) -> usize {
        self.1
    }

    fn address(self) -> usize {
        self.0
    }

    fn slice(self, off: usize, len: usize) -> Option<Self> {
        (off.checked_add(len)? <= self.1).then(|| Self(self.0.wrapping_add(off), len))
    }
}
