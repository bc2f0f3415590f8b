//! What is not parsed, and what is not emitted.

use super::*;

#[test]
fn malformed_bytes_are_named() {
    let parse = |bytes: [u8; 10]| {
        let mut padded = [0; MAX_HEADER];
        padded[..10].copy_from_slice(&bytes);
        Header::parse(Little, &padded).unwrap_err()
    };
    use WireError::*;
    assert_eq!(
        parse([4, 0, 0, 0, 0, 0, 16, 0, 16, 0]),
        Version {
            found: 4,
            expected: 3
        }
    );
    assert_eq!(
        parse([3, 8, 0, 0, 0, 0, 16, 0, 16, 0]),
        Op { found: 8, max: 7 }
    );
    assert_eq!(
        parse([3, 0, 0, 0, 0, 0, 24, 0, 24, 0]),
        HeaderSize {
            op: super::Op::Msg,
            found: 24,
            expected: 16
        }
    );
    assert_eq!(
        parse([3, 1, 1, 0, 0, 0, 24, 0, 24, 0]),
        HeaderSize {
            op: super::Op::Tag,
            found: 24,
            expected: 32
        }
    );
    assert_eq!(
        parse([3, 4, 0, 0, 0, 5, 136, 0, 136, 0]),
        RmaCount { found: 5, max: 4 }
    );
    assert_eq!(
        parse([3, 0, 0, 0, 0, 0, 16, 0, 15, 0]),
        Size {
            found: 15,
            header: 16
        }
    );
    assert_eq!(
        parse([3, 6, 0, 0, 1, 0, 16, 0, 17, 0]),
        UnexpectedPayload {
            op: super::Op::Cts,
            found: 1
        }
    );
    assert_eq!(
        parse([3, 0, 0, 0, 2, 0, 16, 0, 17, 0]),
        UnexpectedPayload {
            op: super::Op::Msg,
            found: 1
        }
    );
    assert_eq!(
        parse([3, 0, 1, 0, 2, 0, 24, 0, 24, 0]),
        UnexpectedCqData { op: super::Op::Msg }
    );
    assert_eq!(
        parse([3, 7, 0, 0, 0, 0, 16, 0, 16, 0]),
        Index {
            op: super::Op::Data
        }
    );
    assert_eq!(
        parse([3, 4, 0, 0, 0, 1, 40, 0, 41, 0]),
        RmaLength {
            found: 1,
            expected: 0
        }
    );
}

#[test]
fn sums_that_overflow_are_refused() {
    let half = RmaIov {
        len: 1 << 63,
        ..RmaIov::default()
    };
    let read = Header {
        rma: RmaIovs::new(&[half, half]).unwrap(),
        ..Header::new(Op::ReadReq, 0)
    };
    let mut out = [0; MAX_HEADER];
    assert_eq!(read.emit(Little, &mut out), Err(WireError::RmaOverflow));

    let long = Header {
        tag: 1,
        ..Header::new(Op::Tag, u64::MAX - 23)
    };
    assert_eq!(
        long.emit(Little, &mut out),
        Err(WireError::PayloadTooLong {
            found: u64::MAX - 23,
            max: u64::MAX - 24
        })
    );

    let rts = Header {
        op_data: 1,
        rts_size: u64::MAX - 15,
        ..Header::new(Op::TagRts, 0)
    };
    assert_eq!(
        rts.emit(Little, &mut out),
        Err(WireError::PayloadTooLong {
            found: u64::MAX - 15,
            max: u64::MAX - 16
        })
    );
}

#[test]
fn fields_without_a_place_cannot_be_emitted() {
    let mut out = [0; MAX_HEADER];
    let data = Header {
        op_data: 1,
        cq_data: Some(1),
        ..Header::new(Op::Data, 1)
    };
    assert_eq!(
        data.emit(Little, &mut out),
        Err(WireError::UnexpectedCqData { op: Op::Data })
    );
    let msg = Header {
        rma: RmaIovs::one(RmaIov::default()),
        ..Header::new(Op::Msg, 0)
    };
    assert_eq!(
        msg.emit(Little, &mut out),
        Err(WireError::UnexpectedRma {
            op: Op::Msg,
            found: 1
        })
    );
    assert_eq!(out, [0; MAX_HEADER]);
    assert_eq!(
        RmaIovs::new(&[RmaIov::default(); 300]),
        Err(WireError::RmaCount { found: 255, max: 4 })
    );
}

#[test]
fn collective_fields_are_checked() {
    let ask = Coll {
        kind: CollKind::Ask,
        ..Coll::default()
    };
    let bytes = emitted(&Header::coll(ask), Big);
    for (at, found, expected) in [
        (4, 0, WireError::CollKind { found: 0 }),
        (4, 9, WireError::CollKind { found: 9 }),
        (47, 1, WireError::CollReserved { found: 1 }),
        (
            15,
            49,
            WireError::UnexpectedPayload {
                op: Op::Coll,
                found: 1,
            },
        ),
        (
            6,
            40,
            WireError::HeaderSize {
                op: Op::Coll,
                found: 40,
                expected: 48,
            },
        ),
    ] {
        let mut wrong = bytes.clone();
        wrong[at] = found;
        assert_eq!(Header::parse(Big, &wrong), Err(expected));
    }
    let mut out = [0; MAX_HEADER];
    assert!(
        Header::coll(Coll { len: 1, ..ask })
            .emit(Big, &mut out)
            .is_err()
    );
    assert!(Header::new(Op::Coll, 0).emit(Big, &mut out).is_err());
}

#[test]
fn peek_bounds_the_header_before_it_arrived() {
    let peek = |op, len| peek_len(&[3, op, 0, 0, 0, 0, len, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let range = |op, found, min, max| {
        Err(WireError::HeaderRange {
            op,
            found,
            min,
            max,
        })
    };
    assert_eq!(peek(4, 120), Ok(MAX_HEADER));
    assert_eq!(peek(4, 128), range(Op::Write, 128, 16, 120));
    assert_eq!(peek(0, 15), range(Op::Msg, 15, 16, 24));
    assert_eq!(peek(5, 36), range(Op::TagRts, 36, 32, 40));
    assert_eq!(peek(6, 24), range(Op::Cts, 24, 16, 16));
    assert_eq!(
        peek_len(&[3; 15]),
        Err(WireError::Truncated {
            found: 15,
            needed: 16
        })
    );
}
