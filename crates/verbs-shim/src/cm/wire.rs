//! What two connection managers say to each other, over a TCP connection of their own.
//!
//! A frame is a header of 8 bytes (magic, version, kind, length) and a body: gid, queue pair number and
//! parameters, and private data. Numbers are in network order.

use std::io::{self, Read, Write};

use crate::net::Kind;
use crate::sys::{ConnTerms, ibv_gid};

/// Begins every frame.
const MAGIC: [u8; 4] = *b"RVCM";
/// Of these frames.
const VERSION: u8 = 1;
/// Bytes before the body.
const HEADER: usize = 8;
/// Bytes of a body before private data.
const FIXED: usize = 32;
/// Most bytes of private data: the length is a byte in `struct rdma_conn_param`.
pub(crate) const MAX_PRIVATE: usize = 255;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Asks for a connection.
    Request,
    /// Accepts.
    Reply,
    /// Refuses.
    Reject,
    /// The side that asked is ready.
    Ready,
    /// Ends the connection.
    Disconnect,
}

impl Verb {
    const ALL: [Self; 5] = [
        Self::Request,
        Self::Reply,
        Self::Reject,
        Self::Ready,
        Self::Disconnect,
    ];

    fn code(self) -> u8 {
        self as u8
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.code() == code)
    }
}

/// Parameters of a connection (`struct rdma_conn_param`), with private data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Param {
    pub(crate) terms: ConnTerms,
    pub(crate) qp_num: u32,
    /// The key of the queue pair, of datagrams.
    pub(crate) qkey: Option<u32>,
    pub(crate) private: Vec<u8>,
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) verb: Verb,
    /// The provider of the sender's device.
    pub(crate) kind: Kind,
    /// The address of the sender's device.
    pub(crate) gid: ibv_gid,
    pub(crate) param: Param,
}

impl Frame {
    /// The bytes.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let param = &self.param;
        let private = &param.private[..param.private.len().min(MAX_PRIVATE)];
        let mut bytes = Vec::with_capacity(HEADER + FIXED + private.len());
        bytes.extend(MAGIC);
        bytes.extend([VERSION, self.verb.code()]);
        bytes.extend(((FIXED + private.len()) as u16).to_be_bytes());
        bytes.extend(self.gid.0);
        bytes.extend(param.qp_num.to_be_bytes());
        bytes.extend([
            param.terms.responder_resources,
            param.terms.initiator_depth,
            param.terms.flow_control,
            param.terms.retry_count,
            param.terms.rnr_retry_count,
            param.terms.srq,
            match self.kind {
                Kind::Tcp => 0,
                Kind::Shm => 1,
            },
        ]);
        bytes.push(param.qkey.is_some().into());
        bytes.extend(param.qkey.unwrap_or(0).to_be_bytes());
        bytes.extend(private);
        bytes
    }

    /// Reads a frame's body.
    fn parse(verb: Verb, body: &[u8]) -> Option<Self> {
        let (fixed, private) = body.split_first_chunk::<FIXED>()?;
        let (gid, rest) = fixed.split_first_chunk::<16>()?;
        let (num, rest) = rest.split_first_chunk::<4>()?;
        let [
            responder,
            depth,
            flow,
            retry,
            rnr,
            srq,
            kind,
            datagrams,
            a,
            b,
            c,
            d,
        ] = *rest
        else {
            return None;
        };
        Some(Self {
            verb,
            kind: match kind {
                0 => Kind::Tcp,
                1 => Kind::Shm,
                _ => return None,
            },
            gid: ibv_gid(*gid),
            param: Param {
                terms: ConnTerms {
                    responder_resources: responder,
                    initiator_depth: depth,
                    flow_control: flow,
                    retry_count: retry,
                    rnr_retry_count: rnr,
                    srq,
                },
                qp_num: u32::from_be_bytes(*num) & 0x00ff_ffff,
                qkey: match datagrams {
                    0 => None,
                    1 => Some(u32::from_be_bytes([a, b, c, d])),
                    _ => return None,
                },
                private: private.to_vec(),
            },
        })
    }

    /// Writes the frame.
    ///
    /// # Errors
    /// Those of the connection.
    pub(crate) fn write(&self, mut to: impl Write) -> io::Result<()> {
        to.write_all(&self.emit())
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// Those of the connection; `InvalidData` for bytes that are none.
    pub(crate) fn read(mut from: impl Read) -> io::Result<Self> {
        let mut header = [0; HEADER];
        from.read_exact(&mut header)?;
        let [a, b, c, d, version, code, high, low] = header;
        let len = usize::from(u16::from_be_bytes([high, low]));
        let known = [a, b, c, d] == MAGIC && version == VERSION;
        let fits = (FIXED..=FIXED + MAX_PRIVATE).contains(&len);
        let verb = Verb::from_code(code).filter(|_| known && fits);
        let verb = verb.ok_or(io::ErrorKind::InvalidData)?;
        let mut body = vec![0; len];
        from.read_exact(&mut body)?;
        Self::parse(verb, &body).ok_or(io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        Frame {
            verb: Verb::Reply,
            kind: Kind::Shm,
            gid: ibv_gid([7; 16]),
            param: Param {
                terms: ConnTerms {
                    responder_resources: 1,
                    initiator_depth: 2,
                    flow_control: 3,
                    retry_count: 4,
                    rnr_retry_count: 5,
                    srq: 6,
                },
                qp_num: 0x0012_3456,
                qkey: Some(0x789a_bcde),
                private: b"private".to_vec(),
            },
        }
    }

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let bytes = frame().emit();
        assert_eq!(bytes.len(), HEADER + FIXED + 7);
        assert_eq!(&bytes[..8], b"RVCM\x01\x01\0\x27");
        assert_eq!(&bytes[24..35], &[0, 0x12, 0x34, 0x56, 1, 2, 3, 4, 5, 6, 1]);
        assert_eq!(&bytes[35..40], &[1, 0x78, 0x9a, 0xbc, 0xde]);
        assert_eq!(Frame::read(&bytes[..]).expect("a frame"), frame());
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let good = frame().emit();
        // Magic, version, kind of frame, length above the most, length below the least, provider, port space.
        let wrong = [
            (0, b'X'),
            (4, 2),
            (5, 9),
            (6, 0xff),
            (7, 1),
            (34, 2),
            (35, 2),
        ];
        for (at, value) in wrong {
            let mut bad = good.clone();
            bad[at] = value;
            assert!(Frame::read(&bad[..]).is_err(), "byte {at}");
        }
        for len in 0..good.len() {
            assert!(Frame::read(&good[..len]).is_err(), "{len} bytes");
        }
    }
}
