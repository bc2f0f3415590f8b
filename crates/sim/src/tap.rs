//! Reads the headers of a stream independently of the wire and engine crates, from the bytes
//! that an engine took as headers.

use ripstop_wire::ByteOrder;

/// What a header announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A message.
    Message {
        /// Its tag, if it is tagged.
        tag: Option<u64>,
        /// Remote CQ data.
        data: Option<u64>,
        /// Payload in bytes.
        len: u64,
        /// Index of the rendezvous, if the payload comes later.
        index: Option<u8>,
        /// The sender waits for an acknowledgement.
        ack: bool,
    },
    /// The payload of a rendezvous.
    Data(u8),
    /// Leave to send the payload of a rendezvous.
    ClearToSend(u8),
    /// An acknowledgement.
    Ack,
    /// Of reads, writes and atomics.
    Other,
}

/// Gathers the bytes of one header after the other.
#[derive(Debug, Default)]
pub struct Tap {
    bytes: Vec<u8>,
    in_message: bool,
}

impl Tap {
    /// Takes bytes the engine took, which are at most the rest of one header; returns the
    /// header when it is complete.
    ///
    /// # Panics
    /// If the bytes are no header of the protocol, or more than one.
    pub fn take(&mut self, order: ByteOrder, bytes: &[u8]) -> Option<Seen> {
        let seen = self.complete(order, bytes)?;
        self.in_message = matches!(seen, Seen::Message { .. } | Seen::Data(_));
        Some(seen)
    }

    /// Whether the payload behind the last header is that of a message.
    #[must_use]
    pub const fn in_message(&self) -> bool {
        self.in_message
    }

    fn complete(&mut self, order: ByteOrder, bytes: &[u8]) -> Option<Seen> {
        self.bytes.extend_from_slice(bytes);
        let len = usize::from(*self.bytes.get(6)?);
        if self.bytes.len() < len.max(16) {
            return None;
        }
        assert_eq!(self.bytes.len(), len, "took bytes behind the header");
        let header = std::mem::take(&mut self.bytes);
        let mut rest = header[8..].chunks_exact(8).map(|word| {
            let word = word.try_into().unwrap_or_default();
            match order {
                ByteOrder::Little => u64::from_le_bytes(word),
                ByteOrder::Big => u64::from_be_bytes(word),
            }
        });
        let mut word = || rest.next().unwrap_or_default();
        let total = word();
        let flags = match order {
            ByteOrder::Little => u16::from_le_bytes([header[2], header[3]]),
            ByteOrder::Big => u16::from_be_bytes([header[2], header[3]]),
        };
        let (op, op_data) = (header[1], header[4]);
        match op {
            0 if op_data == 2 => return Some(Seen::Ack),
            6 => return Some(Seen::ClearToSend(op_data)),
            7 => return Some(Seen::Data(op_data)),
            0 | 1 | 5 => {}
            2..=4 | 64..=67 | 69 => return Some(Seen::Other),
            _ => panic!("operation {op} is not expected here"),
        }
        let data = (flags & 1 != 0).then(&mut word);
        let tag = (op != 0).then(&mut word);
        let (len, index) = if op == 5 {
            (word(), Some(op_data))
        } else {
            (total - len as u64, None)
        };
        Some(Seen::Message {
            tag,
            data,
            len,
            index,
            ack: flags & 4 != 0,
        })
    }
}
