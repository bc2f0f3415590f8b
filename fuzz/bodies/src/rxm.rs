//! Bodies for `FI_PROTO_RXM`, `ripstop_wire::rxm`.

use ripstop_types::AtomicKind;
use ripstop_wire::rxm::cm::{Answer, EAGER_MAX, Extensions, FlowControl, Number, Reason, Request};
use ripstop_wire::rxm::{
    AtomicHead, AtomicResult, Body, MAX_UNIT_HEADER, Message, Packet, Part, Parting, Segment, Unit,
    emit_packet,
};
use ripstop_wire::xnet::base::{BaseFlags, Header, Op, RmaIov, RmaIovs};
use ripstop_wire::{ByteOrder, WireError};

const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

/// One unit of a connection for packets, in both byte orders.
pub fn unit(data: &[u8]) {
    for order in ORDERS {
        let need = Unit::need(order, data);
        match Unit::parse(order, data) {
            Ok(unit) => {
                assert_eq!(need, Ok(unit.header_len()));
                assert!(unit.header_len() <= data.len().min(MAX_UNIT_HEADER));
                let size = order.u64(data[8..16].try_into().unwrap());
                assert_eq!(unit.header_len() as u64 + unit.payload_len(), size);
                assert_survives(&unit, order);
            }
            Err(WireError::Truncated { found, needed }) => {
                assert!(found < needed);
                assert!(need.is_err() || need.unwrap() > data.len());
            }
            Err(_) => {}
        }
        // A receiver that has a part of the header waits for no more than there is of it.
        for have in 0..data.len().min(MAX_UNIT_HEADER) {
            if let Ok(need) = Unit::need(order, &data[..have]) {
                assert!(need <= MAX_UNIT_HEADER);
                assert!(have >= 16 || need == 16);
            }
        }
    }
}

fn assert_survives(unit: &Unit, order: ByteOrder) {
    let mut out = [0; MAX_UNIT_HEADER];
    let Unit::Packet(packet, flags) = unit else {
        return;
    };
    let len = emit_packet(order, *flags, packet, &mut out).unwrap();
    assert_eq!(Unit::parse(order, &out[..len]), Ok(*unit));
    if let Body::Rendezvous {
        message, memory, ..
    } = packet.body
    {
        assert_eq!(memory.total_len(), Ok(message.len));
    }
}

fn pieces() -> RmaIovs {
    let piece = |addr| RmaIov {
        addr,
        len: 10,
        key: 3,
    };
    RmaIovs::new(&[piece(1), piece(2)]).unwrap()
}

/// Seeds for [`unit()`].
pub fn unit_seeds() -> Vec<Vec<u8>> {
    let message = Message {
        tag: Some(9),
        data: Some(8),
        len: 20,
    };
    let segment = Segment {
        id: 6,
        number: 5,
        part: Part::Middle,
        len: 4,
    };
    let (id, memory) = (7, pieces());
    let bodies = [
        Body::Eager(message),
        Body::Segment(message, segment),
        Body::Rendezvous {
            message,
            id,
            memory,
        },
        Body::ReadDone(id),
        Body::WriteReady { id, memory },
        Body::WriteDone(id),
        Body::Credit(100),
        Body::Part(Parting::Ask),
        Body::Atomic(AtomicHead {
            id,
            kind: AtomicKind::Compare,
            datatype: 7,
            op: 3,
            memory,
            operands_len: 40,
        }),
        Body::AtomicResult(AtomicResult {
            id,
            kind: AtomicKind::Fetch,
            datatype: 7,
            op: 3,
            status: 0,
            len: 8,
        }),
    ];
    let packets = ORDERS.into_iter().flat_map(|order| {
        bodies.map(|body| {
            let mut out = [0; MAX_UNIT_HEADER];
            let packet = Packet { conn: 0, body };
            let len = emit_packet(order, BaseFlags::empty(), &packet, &mut out).unwrap();
            out[..len].to_vec()
        })
    });
    let tagged = Header {
        cq_data: Some(1),
        tag: 2,
        ..Header::new(Op::Tag, 0)
    };
    let mut bare = [0; 32];
    tagged.emit(ByteOrder::Little, &mut bare).unwrap();
    (bare[1], bare[2]) = (0, 0x81);
    packets.chain([bare.to_vec()]).collect()
}

/// Connection data: as a request, as an answer and as a refusal.
pub fn cm(data: &[u8]) {
    for order in ORDERS {
        if let Ok(request) = Request::parse(order, data) {
            let bytes = request.emit(order).unwrap();
            assert_eq!(bytes[..7], data[..7]);
            assert_eq!(bytes[8..], data[8..]);
        }
        if let Ok(answer) = Answer::parse(order, data) {
            assert_eq!(answer.emit(order).unwrap()[..13], data[..13]);
        }
    }
    if let Ok(reason) = Reason::parse(data) {
        assert_eq!(reason.emit(), data);
    }
}

/// Seeds for [`cm()`].
pub fn cm_seeds() -> Vec<Vec<u8>> {
    let number = Number { pid: 1, index: 2 };
    let request = Request {
        port: 3,
        flow_control: FlowControl::Off,
        eager_max: EAGER_MAX,
        rx_size: 4,
        extensions: Extensions::all(),
        number,
    };
    let answer = Answer {
        number,
        rx_size: 4,
        flow_control: FlowControl::Unsaid,
        extensions: Extensions::empty(),
    };
    let data = ORDERS.into_iter().flat_map(|order| {
        [
            request.emit(order).unwrap().to_vec(),
            answer.emit(order).unwrap().to_vec(),
        ]
    });
    data.chain([Reason::Connected.emit().to_vec()]).collect()
}
