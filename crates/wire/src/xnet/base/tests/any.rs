//! What holds of any header, and of any bytes.

use proptest::prelude::*;

use super::*;

fn orders() -> impl Strategy<Value = ByteOrder> {
    prop_oneof![Just(Little), Just(Big)]
}

/// Any header that can be emitted, in the form parsing gives it.
fn headers() -> impl Strategy<Value = Header> {
    let numbers = (any::<u64>(), any::<u64>(), 0..=u64::MAX - 128);
    let segment = (any::<u64>(), 0..=u64::MAX / 16, any::<u64>());
    (
        (0..Op::ALL.len(), any::<u16>(), any::<u8>(), any::<u8>()),
        (any::<bool>(), numbers),
        prop::collection::vec(segment, 0..=4),
    )
        .prop_map(
            |((op, flags, op_data, id), (has_cq_data, (data, tag, len)), iovs)| {
                let op = Op::ALL[op];
                let iovs: Vec<_> = iovs
                    .into_iter()
                    .map(|(addr, len, key)| RmaIov { addr, len, key })
                    .collect();
                let rma = if op.has_rma() {
                    RmaIovs::new(&iovs).unwrap()
                } else {
                    RmaIovs::NONE
                };
                let ack = op == Op::Msg && op_data == OP_ACK;
                Header {
                    op,
                    flags: BaseFlags::from_bits_retain(if op.is_atomic() {
                        flags & 0xff
                    } else {
                        flags
                    })
                    .difference(BaseFlags::REMOTE_CQ_DATA),
                    atomic: if op.is_atomic() {
                        (flags >> 8) as u8
                    } else {
                        0
                    },
                    op_data: match op {
                        Op::Refuse | Op::Coll => 0,
                        Op::EagerLimit | Op::GetLimit => op_data % 64,
                        op if op.has_index() => op_data.max(1),
                        _ => op_data,
                    },
                    index_high: if op.has_index() { tag as u8 } else { 0 },
                    id,
                    cq_data: (has_cq_data && op.may_carry_cq_data() && !ack).then_some(data),
                    tag: if op.has_tag() { tag } else { 0 },
                    address: if op.is_get() { data ^ tag } else { 0 },
                    rts_size: if op == Op::TagRts { len } else { 0 },
                    rma,
                    refusal: (op == Op::Refuse).then(|| {
                        let answers = [Answer::None, Answer::Ack, Answer::Response];
                        let reasons = [Reason::Key, Reason::Access, Reason::Bounds, Reason::Failed];
                        (answers[data as usize % 3], reasons[tag as usize % 4])
                    }),
                    coll: (op == Op::Coll).then(|| Coll {
                        kind: CollKind::from_number(op_data % 8 + 1).unwrap(),
                        group: data,
                        check: tag,
                        seq: len as u32,
                        tag: (len >> 32) as u32,
                        from: tag as u32,
                        len: if op_data % 8 == 0 { len } else { 0 },
                    }),
                    payload_len: match op {
                        Op::Coll if op_data % 8 != 0 => 0,
                        Op::Write | Op::Atomic => rma.total_len().unwrap(),
                        Op::FetchAtomic if has_cq_data => 0,
                        Op::FetchAtomic => rma.total_len().unwrap(),
                        Op::CompareAtomic => 2 * rma.total_len().unwrap(),
                        op if op.may_have_payload() && !ack => len,
                        _ => 0,
                    },
                }
            },
        )
}

proptest! {
    #[test]
    fn a_header_survives_the_wire(header in headers(), order in orders()) {
        let bytes = emitted(&header, order);
        prop_assert_eq!(Header::parse(order, &bytes), Ok(header));
        prop_assert_eq!(peek_len(&bytes), Ok(bytes.len()));
        for len in 0..bytes.len() {
            let needed = if len < BASE_LEN { BASE_LEN } else { bytes.len() };
            prop_assert_eq!(
                Header::parse(order, &bytes[..len]),
                Err(WireError::Truncated { found: len, needed })
            );
            prop_assert_eq!(
                header.emit(order, &mut [0; MAX_HEADER][..len]),
                Err(WireError::NoRoom { found: len, needed: bytes.len() })
            );
        }
    }

    #[test]
    fn headers_of_messages_that_are_got_are_read_as_others(
        header in headers(),
        order in orders(),
        wide: bool,
    ) {
        let bytes = emitted(&header, order);
        let index = header.index(wide);
        let expected = match header.op {
            _ if header.cq_data.is_some() => None,
            Op::MsgGet | Op::TagGet => Some(GetHeader::Announced {
                flags: header.flags,
                tag: (header.op == Op::TagGet).then_some(header.tag),
                payload_len: header.payload_len,
                address: header.address,
                index,
            }),
            Op::Ats if !header.flags.contains(BaseFlags::REMOTE_CQ_DATA) => {
                Some(GetHeader::Got { index })
            }
            _ => None,
        };
        let found = parse_get(order, wide, &bytes);
        prop_assert_eq!(found, expected);
        if let Some(found) = found {
            prop_assert_eq!(found.len_bytes(), bytes.len());
            prop_assert_eq!(parse_get(order, wide, &bytes[..bytes.len() - 1]), None);
            let again = match found {
                GetHeader::Announced {
                    flags,
                    tag,
                    payload_len,
                    address,
                    index,
                } => {
                    let (all, len) = emit_announced(order, flags, tag, payload_len, address, index);
                    all[..len].to_vec()
                }
                GetHeader::Got { index } => emit_got(order, index).to_vec(),
            };
            prop_assert_eq!(parse_get(order, true, &again), Some(found));
            // What parsing leaves out: a sequence number, flags of an answer, half an index.
            if wide && header.id == 0 && (header.op != Op::Ats || header.flags.is_empty()) {
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn the_header_of_a_response_is_the_same_bytes(len in any::<u32>(), order in orders()) {
        let header = Header::new(Op::ReadRsp, len.into());
        prop_assert_eq!(&emit_response(order, len.into())[..], emitted(&header, order));
    }

    #[test]
    fn small_headers_are_the_same_bytes(header in headers(), order in orders()) {
        let bytes = emitted(&header, order);
        let small = parse_small(order, &bytes);
        let is_small = matches!(header.op, Op::Msg | Op::Tag)
            && header.op_data == 0
            && header.cq_data.is_none();
        prop_assert_eq!(small.is_some(), is_small);
        if let Some(small) = small {
            prop_assert_eq!(small.header_len(), bytes.len());
            prop_assert_eq!(small.flags, header.flags);
            prop_assert_eq!(small.payload_len, header.payload_len);
            match small.tag {
                Some(tag) => {
                    prop_assert_eq!(tag, header.tag);
                    let again = emit_tag(order, small.flags, header.id, tag, small.payload_len);
                    prop_assert_eq!(&again[..], &bytes[..]);
                }
                None => {
                    let again = emit_msg(order, small.flags, header.id, small.payload_len);
                    prop_assert_eq!(&again[..], &bytes[..]);
                }
            }
        }
    }

    #[test]
    fn a_message_alone_is_all_there_is(
        mut header in headers(),
        order in orders(),
        payload in 0_usize..64,
        more in -9_isize..10,
    ) {
        if matches!(header.op, Op::Msg | Op::Tag) && header.op_data == 0 {
            header.payload_len = payload as u64;
        }
        let mut bytes = emitted(&header, order).to_vec();
        let len = (bytes.len() + payload).saturating_add_signed(more);
        bytes.resize(256, 0xee);
        let words = *bytes.as_chunks().0.first_chunk().unwrap();
        let small = parse_small(order, &bytes).filter(|small| {
            small.flags == BaseFlags::empty()
                && len as u64 == small.header_len() as u64 + small.payload_len
        });
        prop_assert_eq!(parse_sole(order, words, len), small);
        prop_assert!(small.is_none() || may_be_sole(words[0]));
        let of_its_kind = matches!(header.op, Op::Msg | Op::Tag);
        prop_assert!(of_its_kind || !may_be_sole(words[0]));
        if let Some(small) = small {
            prop_assert_eq!(more, 0);
            prop_assert_eq!(small.payload_len, payload as u64);
        }
    }

    #[test]
    fn plain_writes_are_the_same_bytes(header in headers(), order in orders()) {
        let bytes = emitted(&header, order);
        let found = parse_write(order, &bytes);
        let one = match header.rma.as_slice() {
            [one] if one.len == header.payload_len => Some(*one),
            _ => None,
        };
        let is_plain = header.op == Op::Write
            && header.flags == BaseFlags::empty()
            && header.op_data == 0
            && header.cq_data.is_none();
        prop_assert_eq!(found, one.filter(|_| is_plain));
        let Some(to) = one else { return Ok(()) };
        let plain = Header { rma: RmaIovs::one(to), ..Header::new(Op::Write, to.len) };
        let again = emit_write(order, to);
        prop_assert_eq!(&emitted(&plain, order)[..], &again[..]);
        prop_assert_eq!(parse_write(order, &again), Some(to));
        prop_assert_eq!(parse_write(order, &again[..WRITE_LEN - 1]), None);
    }

    /// Not only any bytes, but any behind a plausible start.
    #[test]
    fn parse_takes_any_bytes(
        mut bytes: [u8; MAX_HEADER],
        start in prop::option::of((0..=Op::MAX, 0u8..6, 2u8..16)),
        len in 0..=MAX_HEADER,
        order in orders(),
    ) {
        if let Some((op, rma_count, words)) = start {
            (bytes[0], bytes[1], bytes[5], bytes[6]) = (VERSION, op, rma_count, words * 8);
        }
        let bytes = &bytes[..len];
        let _ = (parse_small(order, bytes), parse_write(order, bytes));
        let _ = parse_get(order, true, bytes);
        if let Some(words) = bytes.as_chunks().0.first_chunk()
            && let Some(small) = parse_sole(order, *words, len)
        {
            prop_assert_eq!(parse_small(order, bytes), Some(small));
        }
        if let Ok(header) = Header::parse(order, bytes) {
            prop_assert_eq!(peek_len(bytes), Ok(header.len()));
            prop_assert_eq!(Header::parse(order, &emitted(&header, order)), Ok(header));
        }
    }
}
