//! Bodies for the tcp provider's protocol, `ripstop_wire::xnet`.

use ripstop_wire::xnet::base::{
    self, Answer, BASE_LEN, BaseFlags, Coll, CollKind, Header, MAX_HEADER, OP_ACK, Op, Reason,
    RmaIov, RmaIovs,
};
use ripstop_wire::xnet::cm;
use ripstop_wire::xnet::rdm::{self, Greeting};
use ripstop_wire::{ByteOrder, WireError};

const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

/// One data header, in both byte orders.
pub fn base(data: &[u8]) {
    let peeked = base::peek_len(data);
    for order in ORDERS {
        let parsed = Header::parse(order, data);
        match parsed {
            Ok(header) => {
                assert_eq!(peeked, Ok(header.len()));
                assert_promises(&header, order, data);
                assert_survives(&header, order);
            }
            Err(WireError::Truncated { found, needed }) => {
                assert_eq!(found, data.len());
                assert!(found < needed && needed <= MAX_HEADER);
            }
            Err(_) => {}
        }
        assert_write_agrees(&parsed, order, data);
        assert_small_agrees(parsed, order, data);
    }
}

/// What an accepted header promises, told from the bytes and not through the parser.
fn assert_promises(header: &Header, order: ByteOrder, data: &[u8]) {
    let len = header.len();
    assert!((BASE_LEN..=MAX_HEADER).contains(&len));
    assert_eq!(data[0], base::VERSION);
    assert_eq!(data[1], header.op as u8);
    assert_eq!(usize::from(data[6]), len);
    let size = order.u64(data[8..16].try_into().unwrap());
    assert_eq!(header.payload_len + len as u64, size);
    if header.op.has_rma() {
        assert_eq!(usize::from(data[5]), header.rma.as_slice().len());
        let total: u128 = sum(header.rma.as_slice());
        assert!(u64::try_from(total).is_ok());
        assert!(header.op != Op::Write || total == u128::from(header.payload_len));
    }
    if !header.op.may_have_payload() || header.is_ack() {
        assert_eq!(header.payload_len, 0);
    }
    assert!(!header.op.has_index() || header.op_data != 0);
    assert!(header.rts_size.checked_add(BASE_LEN as u64).is_some());
    assert!(!header.flags.contains(BaseFlags::REMOTE_CQ_DATA));
}

fn sum(iovs: &[RmaIov]) -> u128 {
    iovs.iter().map(|iov| u128::from(iov.len)).sum()
}

fn assert_survives(header: &Header, order: ByteOrder) {
    let mut out = [0; MAX_HEADER];
    let len = header.emit(order, &mut out).unwrap();
    assert_eq!(Header::parse(order, &out[..len]), Ok(*header));
}

fn assert_small_agrees(parsed: Result<Header, WireError>, order: ByteOrder, data: &[u8]) {
    let Some(small) = base::parse_small(order, data) else {
        if let Ok(header) = parsed {
            let is_message = matches!(header.op, Op::Msg | Op::Tag);
            assert!(!is_message || header.op_data != 0 || header.cq_data.is_some());
        }
        return;
    };
    let header = parsed.unwrap();
    assert_eq!(small.header_len(), header.len());
    assert_eq!(small.flags, header.flags);
    assert_eq!(small.payload_len, header.payload_len);
    assert_eq!(small.tag, (header.op == Op::Tag).then_some(header.tag));
    assert!(header.cq_data.is_none() && !header.is_ack());
    if let Some(words) = data.as_chunks().0.first_chunk()
        && let Some(alone) = base::parse_sole(order, *words, data.len())
    {
        assert_eq!(alone, small);
        let len = small.header_len() as u64 + small.payload_len;
        assert_eq!(len, data.len() as u64);
    }
}

fn assert_write_agrees(parsed: &Result<Header, WireError>, order: ByteOrder, data: &[u8]) {
    let Some(to) = base::parse_write(order, data) else {
        return;
    };
    let header = parsed.as_ref().unwrap();
    assert_eq!((header.op, header.payload_len), (Op::Write, to.len));
    assert_eq!((header.rma.as_slice(), header.cq_data), (&[to][..], None));
}

/// Seeds for [`base()`].
pub fn base_seeds() -> Vec<Vec<u8>> {
    ORDERS
        .into_iter()
        .flat_map(|order| {
            samples()
                .into_iter()
                .map(move |header| emitted(&header, order))
        })
        .collect()
}

fn emitted(header: &Header, order: ByteOrder) -> Vec<u8> {
    let mut out = [0; MAX_HEADER];
    let len = header.emit(order, &mut out).unwrap();
    out[..len].to_vec()
}

fn samples() -> Vec<Header> {
    let iov = RmaIov {
        addr: 0x1000,
        len: 3,
        key: 7,
    };
    let segments = |count| RmaIovs::new(&[iov; 4][..count]).unwrap();
    let tagged = |op, payload_len| Header {
        tag: 5,
        ..Header::new(op, payload_len)
    };
    let rts = Header {
        op_data: 1,
        rts_size: 4,
        ..tagged(Op::TagRts, 0)
    };
    vec![
        Header::new(Op::Msg, 3),
        Header {
            cq_data: Some(9),
            ..Header::new(Op::Msg, 3)
        },
        Header::ack(),
        Header::refuse(Answer::Ack, Reason::Bounds),
        tagged(Op::Tag, 3),
        Header {
            cq_data: Some(9),
            flags: BaseFlags::DELIVERY_COMPLETE,
            ..tagged(Op::Tag, 0)
        },
        Header {
            rma: segments(1),
            ..Header::new(Op::ReadReq, 0)
        },
        Header {
            rma: segments(4),
            ..Header::new(Op::ReadReq, 0)
        },
        Header::new(Op::ReadRsp, 3),
        Header {
            rma: segments(1),
            ..Header::new(Op::Write, 3)
        },
        Header {
            rma: segments(4),
            cq_data: Some(9),
            ..Header::new(Op::Write, 12)
        },
        rts,
        Header {
            cq_data: Some(9),
            ..rts
        },
        Header::cts(1),
        Header {
            op_data: 1,
            ..Header::new(Op::Data, 4)
        },
        Header::coll(Coll {
            kind: CollKind::Data,
            group: 1,
            check: 2,
            seq: 3,
            tag: 4,
            from: 5,
            len: 4,
        }),
    ]
}

/// Any header value, whether it makes sense or not: emitting it fails or survives parsing.
pub fn base_emit(data: &[u8]) {
    let mut bytes = Bytes(data);
    let order = ORDERS[usize::from(bytes.u8() & 1)];
    let number = bytes.u8() & 31;
    let op = Op::ALL[usize::from(number) % Op::ALL.len()];
    let refusal = Answer::from_number(number & 3).zip(Reason::from_number(number >> 1));
    let iovs: Vec<_> = (0..bytes.u8() % 6)
        .map(|_| RmaIov {
            addr: bytes.u64(),
            len: bytes.u64(),
            key: bytes.u64(),
        })
        .collect();
    let Ok(rma) = RmaIovs::new(&iovs) else {
        assert!(iovs.len() > usize::from(base::MAX_RMA));
        return;
    };
    let mut header = Header {
        op,
        flags: BaseFlags::from_bits_retain(order.u16([bytes.u8(), bytes.u8()])),
        op_data: bytes.u8(),
        index_high: bytes.u8(),
        atomic: bytes.u8(),
        id: bytes.u8(),
        cq_data: (bytes.u8() & 1 == 1).then(|| bytes.u64()),
        tag: bytes.u64(),
        address: bytes.u64(),
        rts_size: bytes.u64(),
        rma,
        refusal,
        payload_len: bytes.u64(),
        coll: CollKind::from_number(bytes.u8() & 15).map(|kind| Coll {
            kind,
            group: bytes.u64(),
            check: bytes.u64(),
            seq: bytes.u32(),
            tag: bytes.u32(),
            from: bytes.u32(),
            len: 0,
        }),
    };
    if let Some(coll) = &mut header.coll {
        coll.len = header.payload_len;
    }

    let mut out = [0; MAX_HEADER];
    let Ok(len) = header.emit(order, &mut out) else {
        assert_eq!(out, [0; MAX_HEADER], "an error leaves the buffer alone");
        return;
    };
    assert_eq!(len, header.len());
    let seen = Header::parse(order, &out[..len]).unwrap();
    let flags = header.flags.difference(BaseFlags::REMOTE_CQ_DATA);
    let sent = Header {
        flags: match op.is_atomic() {
            true => BaseFlags::from_bits_retain(flags.bits() & 0xff),
            false => flags,
        },
        atomic: if op.is_atomic() { header.atomic } else { 0 },
        tag: if op.has_tag() { header.tag } else { 0 },
        address: if op.is_get() { header.address } else { 0 },
        rts_size: if op == Op::TagRts { header.rts_size } else { 0 },
        op_data: match op {
            Op::Refuse | Op::Coll => 0,
            _ => header.op_data,
        },
        index_high: if op.has_index() { header.index_high } else { 0 },
        coll: header.coll.filter(|_| op == Op::Coll),
        refusal: refusal.filter(|_| op == Op::Refuse),
        ..header
    };
    assert_eq!(seen, sent);
    assert_fast_emit_agrees(&seen, order, &out[..len]);
}

fn assert_fast_emit_agrees(header: &Header, order: ByteOrder, bytes: &[u8]) {
    let Header {
        flags,
        id,
        tag,
        payload_len,
        ..
    } = *header;
    if header.cq_data.is_some() || header.op_data != 0 {
        return;
    }
    match header.op {
        Op::Msg => assert_eq!(base::emit_msg(order, flags, id, payload_len), bytes),
        Op::Tag => assert_eq!(base::emit_tag(order, flags, id, tag, payload_len), bytes),
        _ => {}
    }
}

/// Fields off the front of the fuzzer's bytes; zeros once they are used up.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(&mut self) -> u8 {
        self.split_off::<1>()[0]
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.split_off())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.split_off())
    }

    fn split_off<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        let len = N.min(self.0.len());
        let (front, rest) = self.0.split_at(len);
        field[..len].copy_from_slice(front);
        self.0 = rest;
        field
    }
}

/// Seeds for [`base_emit`].
pub fn base_emit_seeds() -> Vec<Vec<u8>> {
    (0..=Op::MAX)
        .flat_map(|op| {
            let bare = vec![0, op, 0, 4, 0, OP_ACK, 0, 0];
            let mut write = vec![1, op, 1];
            write.extend([8; 24 + 6]);
            write.resize(64, 0);
            [bare, write]
        })
        .collect()
}

/// A stream of headers and payloads, received as a provider does: the base part, the rest of
/// the header, the payload, and again.
pub fn stream(data: &[u8]) {
    for order in ORDERS {
        let mut rest = data;
        while let Some((_, after)) = next_message(order, rest) {
            assert!(
                after.len() + BASE_LEN <= rest.len(),
                "each message moves the stream on"
            );
            rest = after;
        }
    }
}

fn next_message(order: ByteOrder, stream: &[u8]) -> Option<(Header, &[u8])> {
    let first = stream.get(..BASE_LEN)?;
    let len = base::peek_len(first).ok()?;
    assert!((BASE_LEN..=MAX_HEADER).contains(&len));
    let header = Header::parse(order, stream.get(..len)?)
        .inspect_err(|error| {
            let more_needed = matches!(error, WireError::Truncated { .. });
            assert!(!more_needed, "{len} bytes were promised to be enough");
        })
        .ok()?;
    assert_eq!(header.len(), len);
    let payload = usize::try_from(header.payload_len).ok()?;
    Some((header, stream.get(len..)?.get(payload..)?))
}

/// Seeds for [`stream`].
pub fn stream_seeds() -> Vec<Vec<u8>> {
    ORDERS
        .into_iter()
        .map(|order| {
            samples()
                .iter()
                .flat_map(|header| {
                    let mut bytes = emitted(header, order);
                    bytes.resize(bytes.len() + header.payload_len as usize, 0xaa);
                    bytes
                })
                .collect()
        })
        .collect()
}

/// A connection message, and what it carries read as a greeting.
pub fn cm(data: &[u8]) {
    match cm::Header::parse(data) {
        Ok(header) => {
            assert!(header.data_len <= cm::MAX_DATA);
            assert_eq!(data[0], cm::VERSION);
            assert_eq!(data[1], header.kind as u8);
            assert_eq!(header.data_len.to_be_bytes(), data[2..4]);
            let again = header.emit().unwrap();
            assert_eq!(cm::Header::parse(&again), Ok(header));
            let end = cm::HEADER_LEN + usize::from(header.data_len);
            if let Some(greeting) = data.get(cm::HEADER_LEN..end) {
                rdm(greeting);
            }
        }
        Err(WireError::Truncated { .. }) => assert!(data.len() < cm::HEADER_LEN),
        Err(_) => assert!(data.len() >= cm::HEADER_LEN),
    }
}

/// Seeds for [`cm()`].
pub fn cm_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for kind in [cm::Kind::Request, cm::Kind::Response, cm::Kind::Reject] {
        for host in ORDERS {
            let header = cm::Header {
                kind,
                host,
                extensions: cm::Extensions::all(),
                data_len: rdm::LEN as u16,
            };
            let mut bytes = header.emit().unwrap().to_vec();
            bytes.extend(Greeting::request(rdm::FIREWALL_ADDR, 1, 2).emit());
            seeds.push(bytes);
        }
    }
    seeds
}

/// An RDM greeting, as a request and as a response.
pub fn rdm(data: &[u8]) {
    let Ok(greeting) = Greeting::parse(data) else {
        assert_ne!(data.len(), rdm::LEN);
        return;
    };
    assert_eq!(greeting.emit(), data);
    let answer = greeting.answer(1);
    assert_eq!(answer.features & !rdm::FEATURES, 0);
    let spoken = answer.granted().unwrap();
    assert_eq!(spoken.has_rendezvous(), greeting.version >= 1);
    if let Ok(granted) = greeting.granted() {
        assert_eq!(granted.has_rendezvous(), greeting.version == 0x81);
    }
}

/// Seeds for [`rdm()`].
pub fn rdm_seeds() -> Vec<Vec<u8>> {
    let request = Greeting::request(rdm::FIREWALL_ADDR, 8080, 4321);
    vec![
        request.emit().to_vec(),
        request.answer(1234).emit().to_vec(),
    ]
}
