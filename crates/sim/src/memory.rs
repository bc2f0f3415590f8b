#![allow(unsafe_code)]
//! Memory of a node's programs.

use ripstop_mem::{Parked, UserBuf, copy_in, copy_out};

/// Bytes before and behind a buffer.
const GUARD: usize = 16;

/// What fills receive buffers before anything is received, and what is around all buffers.
pub const CANARY: u8 = 0xee;

/// Blocks of bytes, each a buffer with guards. They stay until the memory is dropped, which comes
/// after all that may use them.
#[derive(Debug, Default)]
pub struct Memory {
    blocks: Vec<Parked>,
}

impl Memory {
    /// A buffer with these bytes.
    ///
    /// # Panics
    /// Never.
    pub fn buffer(&mut self, bytes: &[u8]) -> UserBuf {
        let guard = [CANARY; GUARD];
        self.blocks
            .push(Parked::park([&guard[..], bytes, &guard].concat()));
        let whole = self.blocks.last().map_or(UserBuf::EMPTY, Parked::buf);
        whole.slice(GUARD, bytes.len()).expect("it is inside")
    }

    /// Asserts that nothing was written beside a buffer.
    ///
    /// # Panics
    /// If something was.
    pub fn assert_guards(&self) {
        let guard = [CANARY; GUARD];
        for block in &self.blocks {
            let bytes = read(&[block.buf()]);
            let whole = bytes.starts_with(&guard) && bytes.ends_with(&guard);
            assert!(whole, "written beside a buffer");
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for block in self.blocks.drain(..) {
            // SAFETY: who has the memory has all nodes that were given parts of it, and drops it after
            // them: a node that is gone uses none.
            drop(unsafe { block.unpark() });
        }
    }
}

/// Takes a buffer back that nothing uses any more, for tests of crates that forbid unsafe code: the
/// completion of its operation was read, or the call that took it was refused.
#[must_use]
pub fn unpark(parked: Parked) -> Vec<u8> {
    // SAFETY: the caller does not use the `UserBuf` any more, and a provider does not behind the end of
    // an operation, which is what these tests are about.
    unsafe { parked.unpark() }
}

/// The bytes of buffers, one behind the other.
#[must_use]
pub fn read(segments: &[UserBuf]) -> Vec<u8> {
    let mut bytes = vec![0; segments.iter().map(|segment| segment.len()).sum()];
    let mut at = 0;
    for segment in segments {
        at += copy_in(&mut bytes[at..], *segment);
    }
    bytes
}

/// Fills buffers with one byte.
pub fn fill(segments: &[UserBuf], byte: u8) {
    for segment in segments {
        copy_out(*segment, &vec![byte; segment.len()]);
    }
}
