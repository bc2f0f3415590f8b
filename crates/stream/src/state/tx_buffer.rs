//! The transmit buffer of a connection: headers and small payloads on their way out.

use ripstop_engine::stream::SEND_HEADER;
use ripstop_mem::{UserBuf, copy_in};
use ripstop_types::{Errno, Result};

use crate::tunables::TX_BUFFER;

/// Bytes of the buffer in which a small message is put together.
pub(crate) const FAST_SEND_BUFFER: usize = SEND_HEADER + TX_BUFFER / 2;

/// A first-in first-out buffer of at most [`TX_BUFFER`] bytes in one piece. Takes its memory when
/// first used.
#[derive(Debug, Default)]
pub(crate) struct TxBuffer {
    bytes: Box<[u8]>,
    head: usize,
    tail: usize,
}

impl TxBuffer {
    /// The bytes waiting, oldest first.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.head..self.tail).unwrap_or_default()
    }

    /// Makes room for `len` more bytes in one piece.
    #[inline]
    pub(crate) fn reserve(&mut self, len: usize) -> Result<()> {
        if self.bytes.len() - self.tail < len {
            return self.make_room(len);
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, len: usize) -> Result<()> {
        if self.bytes.is_empty() {
            let mut bytes = Vec::new();
            bytes
                .try_reserve_exact(TX_BUFFER)
                .map_err(|_| Errno::ENOMEM)?;
            bytes.resize(TX_BUFFER, 0);
            self.bytes = bytes.into_boxed_slice();
        }
        self.bytes.copy_within(self.head..self.tail, 0);
        self.tail -= self.head;
        self.head = 0;
        if self.bytes.len() - self.tail < len {
            return Err(Errno::EAGAIN);
        }
        Ok(())
    }

    /// Appends the first `len` bytes of a header; there is room for all of it.
    #[inline]
    pub(crate) fn push_header(&mut self, header: &[u8; SEND_HEADER], len: usize) {
        // Of fixed length, this is a few moves; what is too much is written over.
        if let Some(room) = self.bytes.get_mut(self.tail..)
            && let Some(room) = room.first_chunk_mut()
        {
            *room = *header;
            self.tail += len;
        }
    }

    /// The room behind the bytes that wait; [`TxBuffer::grow`] says how much of it was used.
    #[inline]
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.tail..).unwrap_or_default()
    }

    /// Appends the first `len` bytes of [`TxBuffer::room`].
    #[inline]
    pub(crate) fn grow(&mut self, len: usize) {
        self.tail = (self.tail + len).min(self.bytes.len());
    }

    /// Appends bytes for which there is room.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.tail..self.tail + bytes.len()) {
            room.copy_from_slice(bytes);
            self.tail += bytes.len();
        }
    }

    /// Appends user memory for which there is room.
    #[inline]
    pub(crate) fn push_user(&mut self, segments: &[UserBuf]) {
        if let [only] = segments {
            // One call, without a loop around it.
            if let Some(room) = self.bytes.get_mut(self.tail..) {
                self.tail += copy_in(room, *only);
            }
            return;
        }
        for segment in segments {
            if let Some(room) = self.bytes.get_mut(self.tail..self.tail + segment.len()) {
                self.tail += copy_in(room, *segment);
            }
        }
    }

    /// Drops bytes from the front.
    #[inline]
    pub(crate) fn advance(&mut self, len: usize) {
        self.head += len;
        if self.head >= self.tail {
            self.head = 0;
            self.tail = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_moves_up_when_the_end_is_reached() {
        let mut buffer = TxBuffer::default();
        let block = [7u8; 6000];
        for _ in 0..2 {
            buffer.reserve(block.len()).unwrap();
            buffer.push(&block);
        }
        buffer.advance(5999);
        buffer.reserve(6000).unwrap();
        buffer.push(&[9; 6000]);
        assert_eq!(buffer.bytes().len(), 12_001);
        assert_eq!(buffer.bytes().last(), Some(&9));
        assert_eq!(buffer.reserve(TX_BUFFER), Err(Errno::EAGAIN));
        buffer.advance(12_001);
        assert!(buffer.bytes().is_empty());
    }
}
