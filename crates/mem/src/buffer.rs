//! Callers' buffers as the engines know them.

use ripstop_engine::Buffer;

use crate::UserBuf;

impl Buffer for UserBuf {
    const EMPTY: Self = Self::EMPTY;

    #[inline]
    fn len(self) -> usize {
        self.len()
    }

    #[inline]
    fn address(self) -> usize {
        self.addr()
    }

    #[inline]
    fn slice(self, off: usize, len: usize) -> Option<Self> {
        // The inherent method.
        Self::slice(self, off, len)
    }
}
