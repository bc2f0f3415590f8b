//! Counters of finished operations (man page `fi_cntr(3)`).

/// Successes and errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Count bytes of received data instead of completions.
    pub bytes: bool,
    /// Finished operations, or bytes.
    pub value: u64,
    /// Failed operations.
    pub errors: u64,
}

impl Counter {
    /// Counts a finished operation of `len` bytes.
    #[inline]
    pub const fn success(&mut self, len: u64) {
        let step = if self.bytes { len } else { 1 };
        self.value = self.value.wrapping_add(step);
    }

    /// Counts a failed operation.
    #[inline]
    pub const fn failure(&mut self) {
        self.errors = self.errors.wrapping_add(1);
    }
}
