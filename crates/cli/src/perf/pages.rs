//! Buffers that begin with a page.

use ripstop_mem::{Parked, UserBuf};

/// The size of a page, in bytes.
const PAGE: usize = 4096;

/// Memory that is never freed while an operation may use it, from the front of a page on.
///
/// The place matters: the kernel copies what is written to a socket behind the header that is
/// already there, and some processors take more than twice as long where the copy's source and
/// destination lie a few bytes apart in their pages. See "Where a buffer lies" in
/// docs/performance.md.
pub(super) struct Pages {
    buf: UserBuf,
    _memory: Parked,
}

impl Pages {
    /// `len` bytes of this value.
    pub(super) fn of(value: u8, len: usize) -> Self {
        let memory = Parked::park(vec![value; len + PAGE - 1]);
        let addr = memory.buf().addr();
        let buf = memory.buf().skip(addr.next_multiple_of(PAGE) - addr);
        Self {
            buf: buf.first(len),
            _memory: memory,
        }
    }

    /// The buffer.
    #[inline]
    pub(super) const fn buf(&self) -> UserBuf {
        self.buf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_with_a_page_and_has_its_length() {
        for len in [0, 1, 4096, 1 << 20] {
            let buf = Pages::of(1, len).buf();
            assert_eq!((buf.addr() % PAGE, buf.len()), (0, len));
        }
    }
}
