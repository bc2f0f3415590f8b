//! Bytes that C libfabric 2.6.0 sent, taken off the system calls of fabtests programs on a
//! little-endian machine.

use ripstop_wire::xnet::base::{self, BaseFlags, Header, MAX_HEADER, Op, RmaIov, RmaIovs};
use ripstop_wire::xnet::cm;
use ripstop_wire::xnet::rdm::{Greeting, Protocol};
use ripstop_wire::{ByteOrder, WireError};

#[rustfmt::skip]
const REQUEST: [u8; 40] = [
    3, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
    0x01, 0, 0xb0, 0x3f, 0, 0, 0x64, 0xcb,
];

#[rustfmt::skip]
const RESPONSE: [u8; 40] = [
    3, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
    0x81, 0, 0xb0, 0x3f, 0, 0, 0x64, 0xc6,
];

#[test]
fn connection_messages() {
    let header = |kind| cm::Header {
        kind,
        host: ByteOrder::Little,
        extensions: cm::Extensions::empty(),
        data_len: 8,
    };
    assert_eq!(cm::Header::parse(&REQUEST), Ok(header(cm::Kind::Request)));
    assert_eq!(cm::Header::parse(&RESPONSE), Ok(header(cm::Kind::Response)));
}

/// The answer C made is the one made here.
#[test]
fn greetings() {
    let request = Greeting::parse(&REQUEST[cm::HEADER_LEN..]).unwrap();
    let response = Greeting::parse(&RESPONSE[cm::HEADER_LEN..]).unwrap();
    assert_eq!(request, Greeting::request(0, 45119, 25803));
    assert_eq!(request.answer(25798), response);
    assert_eq!(response.granted(), Ok(Protocol::V1));
}

/// The connection data of an RDM endpoint of C libfabric 1.17, which speaks `FI_PROTO_RXM` over
/// the same connection messages.
#[test]
fn greetings_of_rxm_are_refused() {
    #[rustfmt::skip]
    let rxm = [1, 2, 4, 3, 5, 134, 2, 0, 0, 64, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 203, 116, 0, 0];
    assert_eq!(
        Greeting::parse(&rxm),
        Err(WireError::RdmLength {
            found: 24,
            expected: 8
        })
    );
}

/// These bytes mean this header, and it is emitted as them.
fn assert_same(bytes: &[u8], header: &Header) {
    assert_means(bytes, header);
    let mut out = [0; MAX_HEADER];
    let len = header.emit(ByteOrder::Little, &mut out).unwrap();
    assert_eq!(&out[..len], bytes);
}

fn assert_means(bytes: &[u8], header: &Header) {
    assert_eq!(base::peek_len(bytes), Ok(bytes.len()));
    assert_eq!(Header::parse(ByteOrder::Little, bytes), Ok(*header));
}

#[test]
fn rendezvous() {
    #[rustfmt::skip]
    assert_same(
        &[
            3, 5, 0, 0, 1, 0, 32, 0, 32, 0, 0, 0, 0, 0, 0, 0,
            2, 0, 0, 0, 0, 0, 0, 0, 80, 195, 0, 0, 0, 0, 0, 0,
        ],
        &Header { op_data: 1, tag: 2, rts_size: 50_000, ..Header::new(Op::TagRts, 0) },
    );
    assert_same(
        &[3, 6, 0, 0, 1, 0, 16, 0, 16, 0, 0, 0, 0, 0, 0, 0],
        &Header::cts(1),
    );
    assert_same(
        &[3, 7, 0, 0, 1, 0, 16, 0, 96, 195, 0, 0, 0, 0, 0, 0],
        &Header {
            op_data: 1,
            ..Header::new(Op::Data, 50_000)
        },
    );
}

#[test]
fn tagged_message_that_wants_an_ack() {
    #[rustfmt::skip]
    assert_same(
        &[
            3, 1, 4, 0, 0, 0, 24, 0, 24, 0, 0, 0, 0, 0, 0, 0,
            1, 0, 0, 0, 0, 0, 0, 0,
        ],
        &Header { flags: BaseFlags::DELIVERY_COMPLETE, tag: 1, ..Header::new(Op::Tag, 0) },
    );
    assert_same(
        &[3, 0, 0, 0, 2, 0, 16, 0, 16, 0, 0, 0, 0, 0, 0, 0],
        &Header::ack(),
    );
}

#[test]
fn write_with_completion_data() {
    let iov = RmaIov {
        addr: 0,
        len: 1024,
        key: 0xc0de,
    };
    #[rustfmt::skip]
    assert_same(
        &[
            3, 4, 1, 0, 0, 1, 48, 0, 48, 4, 0, 0, 0, 0, 0, 0,
            239, 205, 171, 137, 103, 69, 35, 1,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 222, 192, 0, 0, 0, 0, 0, 0,
        ],
        &Header {
            cq_data: Some(0x0123_4567_89ab_cdef),
            rma: RmaIovs::one(iov),
            ..Header::new(Op::Write, 1024)
        },
    );
}

#[test]
fn read() {
    let iov = RmaIov {
        addr: 65_604,
        len: 1024,
        key: 0xc0de,
    };
    #[rustfmt::skip]
    assert_same(
        &[
            3, 2, 0, 0, 0, 1, 40, 0, 40, 0, 0, 0, 0, 0, 0, 0,
            68, 0, 1, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 222, 192, 0, 0, 0, 0, 0, 0,
        ],
        &Header { rma: RmaIovs::one(iov), ..Header::new(Op::ReadReq, 0) },
    );
}

/// Segment counts that were left in a reused buffer, on headers without segments.
#[test]
fn leftover_segment_counts() {
    assert_means(
        &[3, 3, 0, 0, 0, 1, 16, 0, 16, 4, 0, 0, 0, 0, 0, 0],
        &Header::new(Op::ReadRsp, 1024),
    );
    assert_means(
        &[3, 0, 4, 0, 0, 1, 16, 0, 20, 0, 0, 0, 0, 0, 0, 0],
        &Header {
            flags: BaseFlags::DELIVERY_COMPLETE,
            ..Header::new(Op::Msg, 4)
        },
    );
    assert_means(
        &[3, 0, 0, 0, 2, 1, 16, 0, 16, 0, 0, 0, 0, 0, 0, 0],
        &Header::ack(),
    );
}
