//! Connection messages: one request, and one response or reject, at the start of a stream.
//!
//! A header of 32 bytes and up to 256 bytes of connection data, in one send: C peers read
//! each of the two parts with a single receive and give up on a short one.

use bitflags::bitflags;
use ripstop_types::numbered;

use crate::cursor::join;
use crate::{ByteOrder, WireError};

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 32;

/// The most connection data a message carries, in bytes (`FI_OPT_CM_DATA_SIZE`).
pub const MAX_DATA: u16 = 256;

/// The longest message in bytes.
pub const MAX_LEN: usize = HEADER_LEN + MAX_DATA as usize;

/// The only version there is.
pub const VERSION: u8 = 3;

numbered! {
    /// What a connection message says.
    pub enum Kind: u8 as u8 {
        /// `fi_connect`.
        Request = 0,
        /// `fi_accept`.
        Response = 1,
        /// `fi_reject`.
        Reject = 6,
    }
}

bitflags! {
    /// What a sender speaks beyond the protocol of the C library. C peers never read the field and
    /// send zeros.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Extensions: u32 {
        /// A refused one-sided operation is answered by [`Op::Refuse`](super::base::Op::Refuse),
        /// and the connection lives on.
        const REFUSE = 1;
        /// Atomics of [`Op::Atomic`](super::base::Op::Atomic) and its kind. Only with
        /// [`Extensions::REFUSE`], and between machines of one byte order: operands are not swapped.
        const ATOMIC = 2;
        /// Collective operations of [`Op::Coll`](super::base::Op::Coll), between machines of one byte
        /// order: payloads are not swapped.
        const COLL = 4;
        /// The index of a rendezvous has two bytes, see [`Header::index`](super::base::Header::index).
        const INDEX = 8;
        /// A receiver may lower the length from which messages wait for their receive at the sender, by
        /// [`Op::EagerLimit`](super::base::Op::EagerLimit).
        const EAGER_LIMIT = 16;
        /// The receiver of a message may get its payload from the sender's memory, see
        /// [`Op::MsgGet`](super::base::Op::MsgGet). Only of transports whose peers can.
        const GET = 32;
        /// Sender and receiver may copy such a payload together, see
        /// [`Op::Joint`](super::base::Op::Joint). Only with [`Extensions::GET`].
        const JOINT = 64;
    }
}

impl Extensions {
    /// Stands before the bits, so that nothing else is taken for them.
    const MARK: [u8; 4] = *b"RSTP";

    fn parse([m0, m1, m2, m3, bits @ ..]: [u8; 8]) -> Self {
        match [m0, m1, m2, m3] {
            Self::MARK => Self::from_bits_retain(u32::from_be_bytes(bits)),
            _ => Self::empty(),
        }
    }

    const fn emit(self) -> [u8; 8] {
        if self.is_empty() {
            return [0; 8];
        }
        let [m0, m1, m2, m3] = Self::MARK;
        let [b0, b1, b2, b3] = self.bits().to_be_bytes();
        [m0, m1, m2, m3, b0, b1, b2, b3]
    }
}

/// A connection message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// What it says.
    pub kind: Kind,
    /// The byte order of the sender's machine. A reject does not tell: there it is
    /// [`ByteOrder::NATIVE`] and of no use.
    pub host: ByteOrder,
    /// What the sender of a request speaks, or the sender of a response agrees to.
    pub extensions: Extensions,
    /// How many bytes of connection data follow, at most [`MAX_DATA`].
    pub data_len: u16,
}

impl Header {
    /// A header for `data` from this machine, without extensions.
    ///
    /// # Errors
    ///
    /// [`WireError::CmDataLen`] if there is more than [`MAX_DATA`].
    pub fn new(kind: Kind, data: &[u8]) -> Result<Self, WireError> {
        let header = Self {
            kind,
            host: ByteOrder::NATIVE,
            extensions: Extensions::empty(),
            data_len: u16::try_from(data.len()).unwrap_or(u16::MAX),
        };
        header.check()
    }

    /// The byte order of the data headers that follow between this machine and the sender.
    #[must_use]
    pub const fn data_order(&self) -> ByteOrder {
        ByteOrder::negotiated(ByteOrder::NATIVE, self.host)
    }

    /// Reads a header. `bytes` may go on after it; the fields nobody uses may hold anything.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`], [`WireError::CmVersion`], [`WireError::CmKind`],
    /// [`WireError::CmDataLen`], [`WireError::CmByteOrder`].
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        // The segment number in the first word and the message id in the third are zero, and never
        // read. The extensions are the connection id of C peers, who do not read it either.
        let Some(&[first, extensions, _, mark]) = bytes.as_chunks::<8>().0.first_chunk() else {
            return Err(WireError::Truncated {
                found: bytes.len(),
                needed: HEADER_LEN,
            });
        };
        let [version, kind, s0, s1, ..] = first;
        if version != VERSION {
            return Err(WireError::CmVersion {
                found: version,
                expected: VERSION,
            });
        }
        let kind = Kind::from_number(kind).ok_or(WireError::CmKind { found: kind })?;
        Self {
            kind,
            host: host_order(kind, mark)?,
            extensions: Extensions::parse(extensions),
            data_len: u16::from_be_bytes([s0, s1]),
        }
        .check()
    }

    /// The header's bytes. The connection data goes right behind them, in the same send.
    ///
    /// # Errors
    ///
    /// [`WireError::CmDataLen`].
    pub const fn emit(&self) -> Result<[u8; HEADER_LEN], WireError> {
        let Self {
            kind,
            host,
            extensions,
            data_len,
        } = match self.check() {
            Ok(header) => header,
            Err(error) => return Err(error),
        };
        let mark = match kind {
            Kind::Request | Kind::Response => 1,
            Kind::Reject => 0,
        };
        let [s0, s1] = data_len.to_be_bytes();
        Ok(join([
            [VERSION, kind as u8, s0, s1, 0, 0, 0, 0],
            extensions.emit(),
            [0; 8],
            host.bytes64(mark),
        ]))
    }

    const fn check(self) -> Result<Self, WireError> {
        if self.data_len > MAX_DATA {
            return Err(WireError::CmDataLen {
                found: self.data_len,
                max: MAX_DATA,
            });
        }
        Ok(self)
    }
}

/// The mark is the number one in the sender's own byte order.
const fn host_order(kind: Kind, mark: [u8; 8]) -> Result<ByteOrder, WireError> {
    match (kind, mark) {
        (Kind::Reject, _) => Ok(ByteOrder::NATIVE),
        (_, [1, 0, 0, 0, 0, 0, 0, 0]) => Ok(ByteOrder::Little),
        (_, [0, 0, 0, 0, 0, 0, 0, 1]) => Ok(ByteOrder::Big),
        _ => Err(WireError::CmByteOrder {
            found: u64::from_le_bytes(mark),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[rustfmt::skip]
    const REQUEST_LE: [u8; HEADER_LEN] = [
        3, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
    ];
    #[rustfmt::skip]
    const RESPONSE_BE: [u8; HEADER_LEN] = [
        3, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
    ];
    #[rustfmt::skip]
    const REJECT: [u8; HEADER_LEN] = [
        3, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];

    fn changed(at: usize, byte: u8) -> [u8; HEADER_LEN] {
        let mut bytes = REQUEST_LE;
        bytes[at] = byte;
        bytes
    }

    #[test]
    fn literal_bytes_both_ways() {
        let cases = [
            (REQUEST_LE, Kind::Request, ByteOrder::Little, 8),
            (RESPONSE_BE, Kind::Response, ByteOrder::Big, 256),
            (REJECT, Kind::Reject, ByteOrder::NATIVE, 0),
        ];
        for (bytes, kind, host, data_len) in cases {
            let header = Header {
                kind,
                host,
                extensions: Extensions::empty(),
                data_len,
            };
            assert_eq!(Header::parse(&bytes), Ok(header));
            assert_eq!(header.emit(), Ok(bytes));
        }
    }

    #[test]
    fn wrong_fields_are_named() {
        let parse = |at, byte| Header::parse(&changed(at, byte));
        assert_eq!(
            parse(0, 2),
            Err(WireError::CmVersion {
                found: 2,
                expected: 3
            })
        );
        assert_eq!(parse(1, 5), Err(WireError::CmKind { found: 5 }));
        assert_eq!(
            parse(2, 1),
            Err(WireError::CmDataLen {
                found: 264,
                max: 256
            })
        );
        assert_eq!(parse(24, 2), Err(WireError::CmByteOrder { found: 2 }));
        assert_eq!(
            Header::parse(&REQUEST_LE[..31]),
            Err(WireError::Truncated {
                found: 31,
                needed: 32
            })
        );
    }

    #[test]
    fn unused_fields_may_hold_anything() {
        for at in 4..24 {
            assert_eq!(
                Header::parse(&changed(at, 0xff)),
                Header::parse(&REQUEST_LE)
            );
        }
    }

    #[test]
    fn extensions_stand_behind_their_mark() {
        let mut header = Header::new(Kind::Request, &[]).unwrap();
        header.extensions = Extensions::REFUSE;
        let bytes = header.emit().unwrap();
        assert_eq!(bytes[8..16], *b"RSTP\0\0\0\x01");
        assert_eq!(Header::parse(&bytes), Ok(header));
        let ours = Extensions::all();
        assert_eq!(ours.intersection(Extensions::empty()), Extensions::empty());
        assert!(
            ours.intersection(header.extensions)
                .contains(Extensions::REFUSE)
        );
    }

    #[test]
    fn too_much_connection_data_is_refused() {
        let header = |len| Header::new(Kind::Request, &[0; 70_000][..len]);
        assert!(header(256).is_ok());
        assert_eq!(
            header(257),
            Err(WireError::CmDataLen {
                found: 257,
                max: 256
            })
        );
        assert_eq!(
            header(70_000),
            Err(WireError::CmDataLen {
                found: 65_535,
                max: 256
            })
        );
    }

    proptest! {
        #[test]
        fn parse_takes_any_bytes(bytes: [u8; 40], len in 0usize..=40) {
            if let Ok(header) = Header::parse(&bytes[..len]) {
                prop_assert!(header.data_len <= MAX_DATA);
                prop_assert_eq!(Header::parse(&header.emit().unwrap()), Ok(header));
            }
        }
    }
}
