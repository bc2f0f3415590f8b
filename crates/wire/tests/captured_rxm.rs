//! Bytes that C libfabric 1.17.0 (Debian) and 2.6.0 sent for `tcp;ofi_rxm`, taken off the system
//! calls of `fi_pingpong` and of a program that does one operation of each kind, on a little-endian
//! machine. Payloads are left out.

use ripstop_types::AtomicKind;
use ripstop_wire::rxm::cm::{self, Answer, Extensions, FlowControl, Number, Reason, Request};
use ripstop_wire::rxm::{
    AtomicHead, AtomicResult, Body, MAX_UNIT_HEADER, Message, Packet, Part, Segment, Unit,
    emit_packet,
};
use ripstop_wire::xnet::base::{BaseFlags, Header, Op, RmaIov, RmaIovs};
use ripstop_wire::{ByteOrder, WireError};

const LE: ByteOrder = ByteOrder::Little;

/// The bytes of hexadecimal text, in which each dot stands for a zero byte.
fn bytes(text: &str) -> Vec<u8> {
    let mut digits = text.chars().filter(|c| !c.is_whitespace());
    let mut bytes = Vec::new();
    while let Some(digit) = digits.next() {
        bytes.push(match digit {
            '.' => 0,
            high => {
                let pair: String = [high, digits.next().unwrap()].into_iter().collect();
                u8::from_str_radix(&pair, 16).unwrap()
            }
        });
    }
    bytes
}

/// These bytes mean this packet.
fn assert_means(text: &str, packet: &Packet) {
    let bytes = bytes(text);
    let unit = Unit::Packet(*packet, BaseFlags::empty());
    assert_eq!(Unit::parse(LE, &bytes), Ok(unit));
    assert_eq!(Unit::need(LE, &bytes[..16]), Ok(80));
    assert_eq!(Unit::need(LE, &bytes), Ok(unit.header_len()));
    assert_eq!(bytes.len(), unit.header_len());
}

/// And the packet is emitted as them.
fn assert_same(text: &str, packet: &Packet) {
    assert_means(text, packet);
    let mut out = [0; MAX_UNIT_HEADER];
    let len = emit_packet(LE, BaseFlags::empty(), packet, &mut out).unwrap();
    assert_eq!(out[..len], bytes(text));
}

const fn packet(body: Body) -> Packet {
    Packet { conn: 0, body }
}

const fn plain(len: u64) -> Message {
    Message {
        tag: None,
        data: None,
        len,
    }
}

fn memory(len: u64, key: u64) -> RmaIovs {
    RmaIovs::one(RmaIov { addr: 0, len, key })
}

#[test]
fn requests() {
    let data = bytes("01020403 6396 02. .40.. .10.. .... 093b..");
    let request = Request {
        port: 0x9663,
        flow_control: FlowControl::Off,
        eager_max: cm::EAGER_MAX,
        rx_size: 4096,
        extensions: Extensions::empty(),
        number: Number {
            pid: 0x3b09,
            index: 0,
        },
    };
    assert_eq!(Request::parse(LE, &data), Ok(request));
    assert_eq!(request.emit(LE).unwrap()[..], data);
    assert_eq!(
        Request::parse(ByteOrder::Big, &data),
        Err(WireError::RxmByteOrder {
            found: 2,
            expected: 1
        })
    );
}

#[test]
fn answers() {
    let data = bytes("01... 743f.. .10.. 02...");
    let answer = Answer {
        number: Number {
            pid: 0x3f74,
            index: 1,
        },
        rx_size: 4096,
        flow_control: FlowControl::Off,
        extensions: Extensions::empty(),
    };
    assert_eq!(Answer::parse(LE, &data), Ok(answer));
    assert_eq!(answer.emit(LE).unwrap()[..], data);
    assert_eq!(answer.number.in_packets(), 1);
}

#[test]
fn refusals() {
    assert_eq!(Reason::parse(&[1, 2]), Ok(Reason::Connected));
    assert_eq!(Reason::Connected.emit(), [1, 2]);
}

/// 2.6.0 in a packet, with completion data and without; 1.17 plain messages only.
#[test]
fn eager_messages() {
    let tagged = Message {
        tag: Some(0x1122_3344_5566_7788),
        data: None,
        len: 5,
    };
    assert_same(
        "03.....10.55....... 04....... ........ ........ ........ \
         02.01..... 05....... ........ 8877665544332211",
        &packet(Body::Eager(tagged)),
    );
    let with_data = Message {
        tag: Some(0x42),
        data: Some(0x00ab_cdef),
        len: 5,
    };
    assert_same(
        "03.....10.55....... 04....... ........ ........ ........ \
         02.01...02. 05....... efcdab..... 42.......",
        &packet(Body::Eager(with_data)),
    );
    let untagged = Message {
        tag: None,
        ..with_data
    };
    assert_same(
        "03.....10.55....... 04....... ........ ........ ........ \
         02.....02. 05....... efcdab..... ........",
        &packet(Body::Eager(untagged)),
    );
}

/// 1.17 without a packet: with a tag, and with completion data before it.
#[test]
fn tagged_messages_without_a_packet() {
    let of = |text: &str| {
        let bytes = bytes(text);
        assert_eq!(Unit::need(LE, &bytes), Ok(bytes.len()));
        match Unit::parse(LE, &bytes).unwrap() {
            Unit::Plain(header) => header,
            Unit::Packet(..) => panic!("{text}"),
        }
    };
    let plain = of("03.80...18.1d....... 8877665544332211");
    assert_eq!((plain.op, plain.tag), (Op::Tag, 0x1122_3344_5566_7788));
    assert_eq!((plain.cq_data, plain.payload_len), (None, 5));
    assert!(!plain.flags.wants_ack());
    let with_data = of("03.81...20.25....... efcdab..... 42.......");
    assert_eq!((with_data.op, with_data.tag), (Op::Tag, 0x42));
    assert_eq!(with_data.cq_data, Some(0x00ab_cdef));
    assert_eq!(with_data.payload_len, 5);
}

/// 2.6.0, a message of 20,000 bytes. The length of the first part is left in the eager message that
/// follows: buffers are used again uncleared.
#[test]
fn segments() {
    let segment = |number, part, len| Segment {
        id: 0,
        number,
        part,
        len,
    };
    assert_same(
        "03.....10.5040...... 0401.40.... ........ ........ 01....... \
         02....... 204e...... ........ ........",
        &packet(Body::Segment(
            plain(20_000),
            segment(0, Part::First, 16_384),
        )),
    );
    assert_same(
        "03.....10.700e...... 0401200e01... ........ ........ 03....... \
         02....... 204e...... ........ ........",
        &packet(Body::Segment(plain(20_000), segment(1, Part::Last, 3_616))),
    );
    assert_means(
        "03.....10.54....... 04.200e01... 01....... ........ 03....... \
         02....... 04....... ........ ........",
        &Packet {
            conn: 1,
            body: Body::Eager(plain(4)),
        },
    );
}

/// 1.17, a tagged message with completion data; and what its receiver said.
#[test]
fn rendezvous() {
    let message = Message {
        tag: Some(0x44),
        data: Some(0x99),
        len: 20_000,
    };
    assert_same(
        "03.....10.b8....... 0402...... ........ ........ ........ \
         02.01...02. 204e...... 99....... 44....... \
         ........ 204e...... ...80.... ........ ........ ........ \
         ........ ........ ........ ........ ........ ........ 01.......",
        &packet(Body::Rendezvous {
            message,
            id: 0,
            memory: memory(20_000, 0x8000_0000),
        }),
    );
    assert_same(
        "03.....10.50....... 0403...... ........ ........ ........ \
         02....... ........ ........ ........",
        &packet(Body::ReadDone(0)),
    );
    let Ok(Unit::Plain(read)) = Unit::parse(
        LE,
        &bytes("0302...0128.28....... ........ 204e...... ...80...."),
    ) else {
        panic!("a read request")
    };
    assert_eq!(
        (read.op, read.rma),
        (Op::ReadReq, memory(20_000, 0x8000_0000))
    );
}

/// 2.6.0 with `FI_OFI_RXM_USE_RNDV_WRITE=1`: the receiver's memory, and that it was written.
#[test]
fn rendezvous_by_write() {
    assert_same(
        "03.....10.b8....... 0407...... ........ ........ ........ \
         02....... ........ ........ ........ \
         ........ 400d03..... ...80.... ........ ........ ........ \
         ........ ........ ........ ........ ........ ........ 01.......",
        &packet(Body::WriteReady {
            id: 0,
            memory: memory(200_000, 0x8000_0000),
        }),
    );
    assert_same(
        "03.....10.50....... 0408...... 01....... ........ ........ \
         02....... ........ ........ ........",
        &Packet {
            conn: 1,
            body: Body::WriteDone(0),
        },
    );
}

fn atomic(kind: AtomicKind, op: u8, key: u64, operands_len: u64) -> Packet {
    packet(Body::Atomic(AtomicHead {
        id: 0,
        kind,
        datatype: 7,
        op,
        memory: RmaIovs::one(RmaIov {
            addr: 32,
            len: 1,
            key,
        }),
        operands_len,
    }))
}

fn result(kind: AtomicKind, op: u8, status: i32, len: u32) -> Packet {
    packet(Body::AtomicResult(AtomicResult {
        id: 0,
        kind,
        datatype: 7,
        op,
        status,
        len,
    }))
}

/// 1.17: an add, a fetching one and a compare-and-swap of 64-bit numbers, and an add that was denied.
#[test]
fn atomics() {
    let pieces = "........ ........ ........ ........ ........ ........ ........ ........ ........";
    let asked = |size: &str, op: &str, len: &str, what: &str, key: &str| {
        format!(
            "03.....10.{size}....... 0404...... ........ ........ ........ \
             02.{op}..... {len}....... ........ {what}..... 20....... 01....... {key}....... {pieces}"
        )
    };
    let answered = |size: &str, op: &str, len: &str, what: &str, rest: &str| {
        format!(
            "03.....10.{size}....... 0405...... ........ ........ ........ \
             02.{op}..... {len}....... ........ {what}...... {rest}"
        )
    };
    assert_same(
        &asked("b8", "06", "68", "070201", "4d"),
        &atomic(AtomicKind::Plain, 2, 0x4d, 8),
    );
    assert_same(
        &answered("58", "06", "08", "0702", "........"),
        &result(AtomicKind::Plain, 2, 0, 0),
    );
    assert_same(
        &asked("b8", "07", "68", "070201", "4d"),
        &atomic(AtomicKind::Fetch, 2, 0x4d, 8),
    );
    assert_same(
        &answered("60", "07", "10", "0702", ".......08"),
        &result(AtomicKind::Fetch, 2, 0, 8),
    );
    assert_same(
        &asked("c0", "08", "70", "070c01", "4d"),
        &atomic(AtomicKind::Compare, 12, 0x4d, 16),
    );
    assert_same(
        &asked("b8", "06", "68", "070201", "52"),
        &atomic(AtomicKind::Plain, 2, 0x52, 8),
    );
    assert_same(
        &answered("58", "06", "08", "0702", "fffffff3...."),
        &result(AtomicKind::Plain, 2, -13, 0),
    );
}

/// What has nothing to do with packets is as ever.
#[test]
fn acknowledgements_and_writes_are_plain() {
    let write = bytes("0304...0128.30....... 10....... 08....... 4d.......");
    assert_eq!(
        Unit::parse(LE, &write),
        Header::parse(LE, &write).map(Unit::Plain)
    );
    assert_eq!(Unit::need(LE, &write), Ok(40));
    let mut ack = [0; 16];
    Header::ack().emit(LE, &mut ack).unwrap();
    assert_eq!(Unit::parse(LE, &ack), Ok(Unit::Plain(Header::ack())));
}
