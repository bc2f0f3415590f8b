//! What a foe can do, for property tests.

use proptest::prelude::*;
use ripstop_wire::rxm::{Body, Message, Part, Segment};
use ripstop_wire::xnet::base::{BaseFlags, Header, Op, RmaIov, RmaIovs};

/// What the foe sends next.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    /// A well-formed header, and this many bytes of payload, which may not be as many as
    /// the header says.
    Header(Header, usize),
    /// A packet, and this many bytes of payload.
    Packet(Body, usize),
    /// A packet that says something of the end of the connection, or nothing that means anything, with any bytes where
    /// it has no fields.
    Part(u8, [u8; 8]),
    /// Another connection in place of the one before, which ends.
    Connect,
    /// Any bytes.
    Garbage(Vec<u8>),
    /// The victim posts a receive for the foe's tag, of this length, into a multi-receive
    /// buffer or not.
    Recv(u64, usize, bool),
    /// The victim looks for the foe's tag.
    Peek(u64, bool, bool),
    /// The victim sends to the foe.
    Send(usize, bool),
    /// Things take their course.
    Run(u16),
}

fn lengths() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..100u64,
        2 => 100..5000u64,
        1 => Just(u64::MAX - 16),
        1 => Just(u64::MAX - 40),
        1 => any::<u64>().prop_map(|len| len.min(u64::MAX - 200))
    ]
}

fn header() -> impl Strategy<Value = Move> {
    let op = prop_oneof![
        3 => Just(Op::Msg),
        6 => Just(Op::Tag),
        4 => Just(Op::TagRts),
        4 => Just(Op::Cts),
        4 => Just(Op::Data),
        1 => Just(Op::ReadReq),
        1 => Just(Op::ReadRsp),
        1 => Just(Op::Write)
    ];
    let data = prop::option::weighted(0.2, any::<u64>());
    let right = prop::bool::weighted(0.8);
    (op, 0..4u64, 0..5u8, lengths(), data, any::<bool>(), right).prop_map(
        |(op, tag, index, len, data, ack, right)| {
            let flags = if ack {
                BaseFlags::DELIVERY_COMPLETE
            } else {
                BaseFlags::empty()
            };
            let payload = if op.may_have_payload() { len } else { 0 };
            let mut header = Header {
                flags,
                op_data: if op.has_index() {
                    index.max(1)
                } else {
                    index & 2
                },
                ..Header::new(op, payload)
            };
            if op.has_tag() {
                header.tag = tag;
            }
            if op == Op::TagRts {
                header.rts_size = len.min(1 << 40);
            }
            if op == Op::Msg && header.op_data == 2 {
                header.payload_len = 0;
            } else if op.may_carry_cq_data() {
                header.cq_data = data;
            }
            if op.has_rma() {
                let iov = RmaIov {
                    addr: tag,
                    len: header.payload_len,
                    key: 1,
                };
                header.rma = RmaIovs::new(&[iov]).expect("one segment");
            }
            let follows = header.payload_len.min(6000) as usize;
            Move::Header(header, if right { follows } else { follows / 2 })
        },
    )
}

pub(crate) fn step() -> impl Strategy<Value = Move> {
    prop_oneof![
        20 => header(),
        1 => prop::collection::vec(any::<u8>(), 1..60).prop_map(Move::Garbage),
        8 => (0..4u64, 0..3000usize, any::<bool>())
            .prop_map(|(tag, len, multi)| Move::Recv(tag, len, multi)),
        3 => (0..4u64, any::<bool>(), any::<bool>())
            .prop_map(|(tag, claim, discard)| Move::Peek(tag, claim, discard)),
        4 => (0..3000usize, any::<bool>()).prop_map(|(len, ack)| Move::Send(len, ack)),
        8 => (1..20u16).prop_map(Move::Run)
    ]
}

fn body() -> impl Strategy<Value = Body> {
    let tag = prop::option::weighted(0.8, 0..4u64);
    let data = prop::option::weighted(0.2, any::<u64>());
    let message = (tag, data, lengths()).prop_map(|(tag, data, len)| Message { tag, data, len });
    let part = prop::sample::select(vec![Part::First, Part::Middle, Part::Last]);
    (message, 0..4u64, 0..8u8, part).prop_map(|(message, id, kind, part)| match kind {
        0..3 => Body::Eager(message),
        3 => Body::Segment(
            message,
            Segment {
                id,
                number: id as u32,
                part,
                len: message.len.min(1000) as u16,
            },
        ),
        4 => Body::ReadDone(id),
        5 => Body::WriteDone(id),
        6 => Body::Credit(message.len),
        _ => {
            let iov = RmaIov {
                addr: id,
                len: message.len,
                key: id,
            };
            Body::Rendezvous {
                message,
                id,
                memory: RmaIovs::new(&[iov]).expect("one segment"),
            }
        }
    })
}

/// What a peer does that speaks in packets and knows of ends of connections.
pub(crate) fn step_in_packets() -> impl Strategy<Value = Move> {
    let packet = (body(), prop::bool::weighted(0.9)).prop_map(|(body, right)| {
        let follows = body.payload_len().min(6000) as usize;
        Move::Packet(body, if right { follows } else { follows / 2 })
    });
    prop_oneof![
        8 => packet,
        8 => (1..=3u8, any::<[u8; 8]>()).prop_map(|(said, noise)| Move::Part(said, noise)),
        1 => any::<(u8, [u8; 8])>().prop_map(|(said, noise)| Move::Part(said, noise)),
        6 => (50..300u16).prop_map(Move::Run),
        4 => Just(Move::Connect),
        8 => step()
    ]
}
