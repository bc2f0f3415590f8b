#![allow(unsafe_code)]
//! An element in memory that others may update at the same time.

use ripstop_types::AtomicOp;

/// A way to update one element of `N` bytes atomically, chosen by [`execute`](super::execute::execute) from size and alignment.
pub(super) trait AtomicElement<const N: usize>: Copy {
    /// The element at `ptr`.
    fn at(ptr: *mut u8) -> Self;

    /// Its value.
    ///
    /// # Safety
    ///
    /// `at` was given a pointer that is valid for reads of `N` bytes (and for writes, where
    /// [`cmpxchg16b`](super::cmpxchg16b) says so), aligned as the implementation demands, and nobody accesses
    /// these bytes meanwhile other than atomically.
    unsafe fn load(self) -> [u8; N];

    /// Replaces its value by `f` of it, and returns the previous value. `f` may be called several times.
    ///
    /// # Safety
    ///
    /// As for [`load`](Self::load), and the pointer is valid for writes.
    unsafe fn update(self, f: impl FnMut(&[u8; N]) -> [u8; N]) -> [u8; N];

    /// Executes `op` by a single instruction, and returns the previous value; `None` if there is no such
    /// instruction. `integer` says whether the element is an integer.
    ///
    /// # Safety
    ///
    /// As for [`update`](Self::update).
    unsafe fn single_instruction(
        self,
        _op: AtomicOp,
        _integer: bool,
        _operand: [u8; N],
        _compare: [u8; N],
    ) -> Option<[u8; N]> {
        None
    }
}
