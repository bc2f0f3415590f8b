use super::cm::{Answer, EAGER_MAX, Extensions, FlowControl, Number, Reason, Request};
use super::*;
use crate::xnet::base::{BaseFlags, Header, Op, RmaIov, RmaIovs};
use crate::{ByteOrder, WireError};
use proptest::prelude::*;
use ripstop_types::AtomicKind;
use std::vec::Vec;

const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

fn pieces() -> RmaIovs {
    let piece = |addr| RmaIov {
        addr,
        len: 10,
        key: 3,
    };
    RmaIovs::new(&[piece(1), piece(2)]).unwrap()
}

fn bodies() -> Vec<Body> {
    let message = Message {
        tag: Some(9),
        data: Some(8),
        len: 20,
    };
    let segment = |part| Segment {
        id: 6,
        number: 5,
        part,
        len: 4,
    };
    Vec::from([
        Body::Eager(message),
        Body::Eager(Message::default()),
        Body::Segment(message, segment(Part::First)),
        Body::Segment(message, segment(Part::Middle)),
        Body::Segment(message, segment(Part::Last)),
        Body::Rendezvous {
            message,
            id: 7,
            memory: pieces(),
        },
        Body::ReadDone(7),
        Body::WriteReady {
            id: 7,
            memory: pieces(),
        },
        Body::WriteDone(7),
        Body::Credit(100),
        Body::Part(Parting::Ask),
        Body::Part(Parting::Agree),
        Body::Part(Parting::Stay),
        Body::Unit(48),
        Body::Atomic(AtomicHead {
            id: 2,
            kind: AtomicKind::Compare,
            datatype: 7,
            op: 3,
            memory: pieces(),
            operands_len: 40,
        }),
        Body::AtomicResult(AtomicResult {
            id: 2,
            kind: AtomicKind::Fetch,
            datatype: 7,
            op: 3,
            status: -13,
            len: 8,
        }),
    ])
}

fn emitted(order: ByteOrder, body: Body) -> Vec<u8> {
    let mut out = [0xaa; MAX_UNIT_HEADER];
    let packet = Packet { conn: 4, body };
    let flags = BaseFlags::DELIVERY_COMPLETE;
    let len = emit_packet(order, flags, &packet, &mut out).unwrap();
    out[..len].to_vec()
}

#[test]
fn every_packet_both_ways_in_both_orders() {
    for order in ORDERS {
        for body in bodies() {
            let bytes = emitted(order, body);
            let packet = Packet { conn: 4, body };
            let unit = Unit::Packet(packet, BaseFlags::DELIVERY_COMPLETE);
            assert_eq!(Unit::parse(order, &bytes), Ok(unit));
            assert_eq!(unit.header_len(), bytes.len());
        }
    }
}

#[test]
fn a_receiver_never_waits_for_more_than_the_header() {
    for body in bodies() {
        let bytes = emitted(ByteOrder::Little, body);
        for have in 0..bytes.len() {
            let need = Unit::need(ByteOrder::Little, &bytes[..have]).unwrap();
            assert!(need > have && need <= bytes.len(), "{have} {need}");
        }
        assert_eq!(Unit::need(ByteOrder::Little, &bytes), Ok(bytes.len()));
    }
}

/// Parses the bytes of this packet, one of which is changed.
fn changed(body: Body, at: usize, byte: u8) -> Result<Unit, WireError> {
    let mut bytes = emitted(ByteOrder::Little, body);
    bytes[at] = byte;
    Unit::parse(ByteOrder::Little, &bytes)
}

#[test]
fn wrong_fields_are_named() {
    let eager = Body::Eager(Message::default());
    let version = |of, found, expected| {
        Err(WireError::RxmVersion {
            of,
            found,
            expected,
        })
    };
    assert_eq!(changed(eager, 16, 3), version("control headers", 3, 4));
    assert_eq!(changed(eager, 48, 3), version("the packet", 3, 2));
    assert_eq!(
        changed(eager, 17, 9),
        Err(WireError::PacketKind { found: 9 })
    );
    assert_eq!(
        changed(eager, 50, 4),
        Err(WireError::PacketOp {
            kind: PacketKind::Eager,
            found: 4
        })
    );
    assert_eq!(
        changed(eager, 56, 1),
        Err(WireError::PacketLength {
            kind: PacketKind::Eager,
            found: 64,
            expected: 65
        })
    );
    let segment = bodies()[2];
    assert_eq!(
        changed(segment, 40, 0),
        Err(WireError::PacketPart { found: 0 })
    );
    let rendezvous = bodies()[5];
    for found in [0, 5] {
        assert_eq!(
            changed(rendezvous, 80 + 96, found),
            Err(WireError::PacketSegments {
                kind: PacketKind::Rendezvous,
                found
            })
        );
    }
    assert_eq!(
        changed(rendezvous, 80 + 96, 1),
        Err(WireError::PacketMemory {
            found: 10,
            expected: 20
        })
    );
    assert_eq!(
        changed(eager, 0, 2).unwrap_err(),
        WireError::Version {
            found: 2,
            expected: 3
        }
    );
    let header_size = |found| WireError::HeaderSize {
        op: Op::Msg,
        found,
        expected: 16,
    };
    assert_eq!(changed(eager, 6, 24), Err(header_size(24)));
    assert_eq!(changed(eager, 2, 1), Err(header_size(16)));
    assert_eq!(
        changed(eager, 8, 15),
        Err(WireError::Size {
            found: 15,
            header: 16
        })
    );
}

#[test]
fn wrong_connection_data_is_named() {
    let request = Request {
        port: 1,
        flow_control: FlowControl::Off,
        eager_max: EAGER_MAX,
        rx_size: 1,
        extensions: Extensions::PARTS,
        number: Number { pid: 2, index: 3 },
    };
    let order = ByteOrder::Little;
    let good = request.emit(order).unwrap();
    let parse = |at: usize, byte| {
        let mut data = good;
        data[at] = byte;
        Request::parse(order, &data)
    };
    let version = |of, expected| {
        Err(WireError::RxmVersion {
            of,
            found: 9,
            expected,
        })
    };
    assert_eq!(parse(0, 9), version("the connection data", 1));
    assert_eq!(
        parse(1, 1),
        Err(WireError::RxmByteOrder {
            found: 1,
            expected: 2
        })
    );
    assert_eq!(parse(2, 9), version("control headers", 4));
    assert_eq!(parse(3, 9), version("operations", 3));
    assert_eq!(parse(6, 3), Err(WireError::RxmFlowControl { found: 3 }));
    let length = |found, expected| Err(WireError::RxmLength { found, expected });
    assert_eq!(Request::parse(order, &good[..8]).map(|_| ()), length(8, 24));
    assert_eq!(Answer::parse(order, &good).map(|_| ()), length(24, 16));
    assert_eq!(Reason::parse(&[]).map(|_| ()), length(0, 2));
    assert_eq!(
        Reason::parse(&[1, 3]),
        Err(WireError::RxmReason { found: 3 })
    );
}

#[test]
fn numbers_of_connections_are_signed_in_packets() {
    let number = |index| Number { pid: 1, index }.in_packets();
    assert_eq!(number(7), 7);
    assert_eq!(number(u32::MAX), u64::MAX);
}

proptest! {
    #[test]
    fn parse_takes_any_bytes(mut bytes: [u8; 200], len in 0usize..=200, kind in 0u8..10, near: bool) {
        if near {
            let head = emitted(ByteOrder::Little, bodies()[usize::from(kind)]);
            bytes[..20].copy_from_slice(&head[..20]);
        }
        for order in ORDERS {
            let bytes = &bytes[..len];
            let need = Unit::need(order, bytes);
            match Unit::parse(order, bytes) {
                Ok(unit) => {
                    prop_assert_eq!(need, Ok(unit.header_len()));
                    prop_assert!(unit.header_len() <= MAX_UNIT_HEADER.max(crate::xnet::base::MAX_HEADER));
                    if let Unit::Packet(packet, flags) = unit {
                        let mut out = [0; MAX_UNIT_HEADER];
                        let len = emit_packet(order, flags, &packet, &mut out).unwrap();
                        prop_assert_eq!(Unit::parse(order, &out[..len]), Ok(unit));
                    }
                }
                Err(WireError::Truncated { .. }) => {
                    prop_assert!(need.is_err() || need.unwrap() > len);
                }
                Err(_) => {}
            }
        }
    }

    #[test]
    fn connection_data_survives(port: u16, eager_max: u32, rx_size: u32, pid: u32, index: u32, bits in 0u8..4) {
        let number = Number { pid, index };
        let extensions = Extensions::from_bits_retain(bits);
        for order in ORDERS {
            let request = Request { port, flow_control: FlowControl::On, eager_max, rx_size, extensions, number };
            prop_assert_eq!(Request::parse(order, &request.emit(order).unwrap()), Ok(request));
            let answer = Answer { number, rx_size, flow_control: FlowControl::Unsaid, extensions };
            prop_assert_eq!(Answer::parse(order, &answer.emit(order).unwrap()), Ok(answer));
        }
    }
}

#[test]
fn what_is_no_packet_is_parsed_as_ever() {
    let mut bytes = [0; 40];
    let write = Header {
        rma: RmaIovs::one(RmaIov {
            addr: 1,
            len: 2,
            key: 3,
        }),
        ..Header::new(Op::Write, 2)
    };
    write.emit(ByteOrder::Big, &mut bytes).unwrap();
    assert_eq!(Unit::parse(ByteOrder::Big, &bytes), Ok(Unit::Plain(write)));
}
