//! The bytes of each kind of header.

use super::*;

#[test]
fn msg_bytes() {
    assert_bytes(
        &Header {
            id: 5,
            ..Header::new(Op::Msg, 0x0102)
        },
        &[3, 0, 0, 0, 0, 0, 16, 5, 0x12, 1, 0, 0, 0, 0, 0, 0],
        &[3, 0, 0, 0, 0, 0, 16, 5, 0, 0, 0, 0, 0, 0, 1, 0x12],
    );
}

#[test]
fn ack_bytes() {
    assert_bytes(
        &Header::ack(),
        &[3, 0, 0, 0, 2, 0, 16, 0, 16, 0, 0, 0, 0, 0, 0, 0],
        &[3, 0, 0, 0, 2, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 16],
    );
}

#[test]
fn tag_with_cq_data_puts_the_data_before_the_tag() {
    #[rustfmt::skip]
    assert_bytes(
        &Header {
            flags: BaseFlags::DELIVERY_COMPLETE,
            cq_data: Some(0x1112_1314_1516_1718),
            tag: 0x2122_2324_2526_2728,
            ..Header::new(Op::Tag, 1)
        },
        &[
            3, 1, 5, 0, 0, 0, 32, 0, 33, 0, 0, 0, 0, 0, 0, 0,
            0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
            0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,
        ],
        &[
            3, 1, 0, 5, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 33,
            0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
            0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28,
        ],
    );
}

#[test]
fn rendezvous_bytes() {
    #[rustfmt::skip]
    assert_bytes(
        &Header {
            op_data: 9,
            tag: 7,
            rts_size: 0x0010_0000,
            ..Header::new(Op::TagRts, 0)
        },
        &[
            3, 5, 0, 0, 9, 0, 32, 0, 32, 0, 0, 0, 0, 0, 0, 0,
            7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0,
        ],
        &[
            3, 5, 0, 0, 9, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 32,
            0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0x10, 0, 0,
        ],
    );
    assert_bytes(
        &Header::cts(9),
        &[3, 6, 0, 0, 9, 0, 16, 0, 16, 0, 0, 0, 0, 0, 0, 0],
        &[3, 6, 0, 0, 9, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 16],
    );
    assert_bytes(
        &Header {
            op_data: 9,
            ..Header::new(Op::Data, 0x0010_0000)
        },
        &[3, 7, 0, 0, 9, 0, 16, 0, 16, 0, 0x10, 0, 0, 0, 0, 0],
        &[3, 7, 0, 0, 9, 0, 16, 0, 0, 0, 0, 0, 0, 0x10, 0, 16],
    );
}

#[test]
fn rma_bytes() {
    let iovs = [
        RmaIov {
            addr: 0x1000,
            len: 2,
            key: 3,
        },
        RmaIov {
            addr: 0x2000,
            len: 4,
            key: 5,
        },
    ];
    #[rustfmt::skip]
    assert_bytes(
        &Header {
            flags: BaseFlags::COMMIT_COMPLETE,
            cq_data: Some(1),
            rma: RmaIovs::new(&iovs).unwrap(),
            ..Header::new(Op::Write, 6)
        },
        &[
            3, 4, 9, 0, 0, 2, 72, 0, 78, 0, 0, 0, 0, 0, 0, 0,
            1, 0, 0, 0, 0, 0, 0, 0,
            0, 0x10, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
            0, 0x20, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0,
        ],
        &[
            3, 4, 0, 9, 0, 2, 72, 0, 0, 0, 0, 0, 0, 0, 0, 78,
            0, 0, 0, 0, 0, 0, 0, 1,
            0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3,
            0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5,
        ],
    );
    #[rustfmt::skip]
    assert_bytes(
        &Header {
            rma: RmaIovs::one(RmaIov { addr: 1, len: 2, key: 3 }),
            ..Header::new(Op::ReadReq, 0)
        },
        &[
            3, 2, 0, 0, 0, 1, 40, 0, 40, 0, 0, 0, 0, 0, 0, 0,
            1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
        ],
        &[
            3, 2, 0, 0, 0, 1, 40, 0, 0, 0, 0, 0, 0, 0, 0, 40,
            0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3,
        ],
    );
}

/// What C peers send besides what they mean: their buffers are reused uncleared.
#[test]
fn leftovers_of_c_peers_are_harmless() {
    let count_on_msg = [3, 0, 0, 0, 0, 0xff, 16, 0, 17, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        Header::parse(Little, &count_on_msg),
        Ok(Header::new(Op::Msg, 1))
    );

    let count_on_response = [3, 3, 0, 0, 0, 4, 16, 0, 17, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        Header::parse(Little, &count_on_response),
        Ok(Header::new(Op::ReadRsp, 1))
    );

    let cq_flag_on_data = [3, 7, 1, 0, 9, 0, 16, 0, 17, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        Header::parse(Little, &cq_flag_on_data),
        Ok(Header {
            op_data: 9,
            ..Header::new(Op::Data, 1)
        })
    );
}

#[test]
fn refusals() {
    let bytes = [3, 64, 0, 0, 3, 2, 16, 0, 16, 0, 0, 0, 0, 0, 0, 0];
    let header = Header::refuse(Answer::Response, Reason::Access);
    let mut out = [0; BASE_LEN];
    assert_eq!(header.emit(Little, &mut out), Ok(BASE_LEN));
    assert_eq!(out, bytes);
    assert_eq!(Header::parse(Little, &bytes), Ok(header));
    for (at, found) in [(4, 0), (4, 4), (5, 0), (5, 7)] {
        let mut wrong = bytes;
        wrong[at] = found;
        let (answer, reason) = (wrong[4], wrong[5]);
        assert_eq!(
            Header::parse(Little, &wrong),
            Err(WireError::Refusal { answer, reason })
        );
    }
    let nothing = Header::new(Op::Refuse, 0);
    assert!(nothing.emit(Little, &mut out).is_err());
}

#[test]
fn eager_limits() {
    let bytes = [3, 69, 0, 0, 12, 0, 16, 0, 16, 0, 0, 0, 0, 0, 0, 0];
    let header = Header::with_eager_limit(12);
    assert_eq!(emitted(&header, Little)[..], bytes);
    assert_eq!(Header::parse(Little, &bytes), Ok(header));
    assert_eq!(header.eager_limit(), 4096);
    assert_eq!(Header::with_eager_limit(63).eager_limit(), 1 << 63);
    assert_eq!(Header::with_eager_limit(0).eager_limit(), u64::MAX);
    let mut wrong = bytes;
    wrong[4] = 64;
    let refused = Err(WireError::Limit {
        op: Op::EagerLimit,
        found: 64,
    });
    assert_eq!(Header::parse(Little, &wrong), refused);
    let mut long = bytes;
    long[8] = 17;
    assert!(Header::parse(Little, &long).is_err());
}

#[test]
fn messages_to_get() {
    let header = Header {
        tag: 5,
        address: 0x7000,
        ..Header::new(Op::TagGet, 0x30).with_index(0x109)
    };
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&[3, 71, 0, 0, 9, 1, 32, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
    bytes[16] = 5;
    bytes[25] = 0x70;
    assert_eq!(emitted(&header, Little)[..], bytes);
    assert_eq!(Header::parse(Little, &bytes), Ok(header));
    let with_data = Header {
        cq_data: Some(7),
        ..header
    };
    assert_eq!(with_data.len(), 40);
    let ats = [3, 72, 0, 0, 9, 1, 16, 0, 16, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(emitted(&Header::ats(0x109), Little)[..], ats);
    let limit = [3, 73, 0, 0, 14, 0, 16, 0, 16, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(emitted(&Header::with_get_limit(14), Little)[..], limit);
    assert_eq!(Header::with_get_limit(14).get_limit(), 16384);
    let mut too_short = bytes;
    too_short[8] = 31;
    assert!(Header::parse(Little, &too_short).is_err());
    let mut index_0 = bytes;
    index_0[4] = 0;
    assert!(Header::parse(Little, &index_0).is_err());
}

#[test]
fn collective_bytes() {
    let coll = Coll {
        kind: CollKind::Data,
        group: 0x1112_1314_1516_1718,
        check: 0x2122_2324_2526_2728,
        seq: 0x3132_3334,
        tag: 0x4142_4344,
        from: 0x5152_5354,
        len: 1,
    };
    #[rustfmt::skip]
    assert_bytes(
        &Header::coll(coll),
        &[
            3, 68, 0, 0, 1, 0, 48, 0, 49, 0, 0, 0, 0, 0, 0, 0,
            0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
            0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,
            0x44, 0x43, 0x42, 0x41, 0x34, 0x33, 0x32, 0x31,
            0, 0, 0, 0, 0x54, 0x53, 0x52, 0x51,
        ],
        &[
            3, 68, 0, 0, 1, 0, 48, 0, 0, 0, 0, 0, 0, 0, 0, 49,
            0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
            0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28,
            0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44,
            0x51, 0x52, 0x53, 0x54, 0, 0, 0, 0,
        ],
    );
}
