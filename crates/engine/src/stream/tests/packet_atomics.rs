//! Atomics in packets.

use ripstop_types::{AtomicKind, AtomicOp, Datatype, RmaIov};
use ripstop_wire::rxm::{AtomicHead, AtomicResult, Body, Unit};
use ripstop_wire::xnet::base::RmaIovs;

use super::atomic::{ALL, KEY, atomic};
use super::packets::{ANNOUNCED, read_of};
use super::*;

/// What this side sends that is in the engine's own memory: the last packet, and the slot behind it.
fn last_packet(f: &Fixture) -> (Body, Option<u64>) {
    let mut chunks = [Chunk::TxBuffer(0); 32];
    let count = f.engine.transmit(f.conn, &mut chunks);
    let (mut bytes, mut slot) = (Vec::new(), None);
    for chunk in &chunks[..count] {
        match chunk {
            Chunk::Control { header, skip } => bytes.extend(&header[usize::from(*skip)..]),
            Chunk::Slot { at: 0, len, .. } => slot = Some(*len as u64),
            other => panic!("{other:?}"),
        }
    }
    match Unit::parse(ByteOrder::Little, &bytes) {
        Ok(Unit::Packet(packet, _)) => (packet.body, slot),
        other => panic!("{other:?}"),
    }
}

fn asked(kind: AtomicKind, op: AtomicOp, elements: u64) -> AtomicHead {
    let datatype = Datatype::Uint64;
    let operands = match (kind, op) {
        (_, AtomicOp::AtomicRead) => 0,
        (AtomicKind::Compare, _) => 2 * elements,
        _ => elements,
    };
    AtomicHead {
        id: 0x1234_5678,
        kind,
        datatype: datatype as u8,
        op: op as u8,
        memory: RmaIovs::one(RmaIov {
            addr: 16,
            len: elements,
            key: KEY,
        }),
        operands_len: operands * datatype.size() as u64,
    }
}

fn result_of(asked: &AtomicHead, status: i32, len: u32) -> Body {
    Body::AtomicResult(AtomicResult {
        id: asked.id,
        kind: asked.kind,
        datatype: asked.datatype,
        op: asked.op,
        status,
        len,
    })
}

#[test]
fn each_atomic_in_a_packet_is_answered() {
    for (kind, op) in [
        (AtomicKind::Plain, AtomicOp::Sum),
        (AtomicKind::Fetch, AtomicOp::Sum),
        (AtomicKind::Fetch, AtomicOp::AtomicRead),
        (AtomicKind::Compare, AtomicOp::Cswap),
    ] {
        for done in [true, false] {
            let mut f = Fixture::down();
            f.up_in_packets();
            f.region(ALL);
            let asked = asked(kind, op, 2);
            f.packet(Body::Atomic(asked)).unwrap();
            f.engine.rx_placed(f.conn, asked.operands_len);
            assert_eq!(f.work(done), (Mem(0x5010, 16), op));
            let expected = match (done, kind) {
                (true, AtomicKind::Plain) => (result_of(&asked, 0, 0), None),
                (true, _) => (result_of(&asked, 0, 16), Some(16)),
                (false, _) => (result_of(&asked, -Errno::EREMOTEIO.0, 0), None),
            };
            assert_eq!(last_packet(&f), expected);
            f.flush();
            assert!(f.engine.conn(f.conn).unwrap().is_idle());
        }
    }
}

#[test]
fn what_is_denied_of_an_atomic_is_its_result() {
    let good = asked(AtomicKind::Fetch, AtomicOp::Sum, 2);
    let piece = good.memory.as_slice()[0];
    let memory = |piece| RmaIovs::one(piece);
    let key = AtomicHead {
        memory: memory(RmaIov { key: 77, ..piece }),
        ..good
    };
    let beyond = AtomicHead {
        memory: memory(RmaIov { addr: 90, ..piece }),
        ..good
    };
    let misaligned = AtomicHead {
        memory: memory(RmaIov { addr: 17, ..piece }),
        ..good
    };
    let endless = AtomicHead {
        memory: memory(RmaIov {
            len: u64::MAX / 4,
            ..piece
        }),
        ..good
    };
    let unknown = AtomicHead {
        datatype: 200,
        ..good
    };
    let short = AtomicHead {
        operands_len: 8,
        ..good
    };
    for (asked, error) in [
        (key, Errno::EKEYREJECTED),
        (beyond, Errno::EFAULT),
        (misaligned, Errno::EINVAL),
        (endless, Errno::EFAULT),
        (unknown, Errno::EOPNOTSUPP),
        (short, Errno::EOPNOTSUPP),
    ] {
        let mut f = Fixture::down();
        f.up_in_packets();
        f.region(ALL);
        f.packet(Body::Atomic(asked)).unwrap();
        f.engine.rx_placed(f.conn, asked.operands_len);
        assert_eq!(last_packet(&f), (result_of(&asked, -error.0, 0), None));
        let said = f.engine.pop_refusal().unwrap();
        assert_eq!(said.kind, RmaKind::Atomic);
        if error == Errno::EKEYREJECTED {
            assert_eq!(said.iov.len, 16, "in bytes");
        }
        assert_eq!(f.engine.pop_broken(), None);
    }
}

#[test]
fn an_atomic_ends_with_its_result() {
    let result = |id, status, len| {
        let asked = AtomicHead {
            id,
            ..asked(AtomicKind::Fetch, AtomicOp::Sum, 2)
        };
        result_of(&asked, status, len)
    };
    let mut f = Fixture::down();
    f.up_in_packets();
    let posted = [
        (1, AtomicKind::Plain, AtomicOp::Sum),
        (2, AtomicKind::Fetch, AtomicOp::Sum),
        (3, AtomicKind::Compare, AtomicOp::Cswap),
    ];
    for (context, kind, op) in posted {
        f.start_atomic(&atomic(kind, op, context)).unwrap();
    }
    f.flush();
    assert!(f.done().is_empty(), "they have only left");
    // In any order.
    f.packet(result(2, 0, 16)).unwrap();
    assert!(matches!(
        f.engine.rx_want(f.conn),
        RxWant::Place { at: 0, len: 16, .. }
    ));
    assert!(f.done().is_empty(), "it has not come whole");
    f.engine.rx_placed(f.conn, 16);
    assert_eq!(f.done(), [2]);
    f.packet(result(3, -Errno::EACCES.0, 0)).unwrap();
    assert_eq!(f.failed(), [(3, Errno::EACCES)]);
    f.packet(result(1, 0, 0)).unwrap();
    assert_eq!(f.done(), [1]);
    assert!(f.engine.conn(f.conn).unwrap().is_idle());
}

#[test]
fn results_that_are_none_are_refused() {
    let head = asked(AtomicKind::Fetch, AtomicOp::Sum, 2);
    let result = |id, status, len| result_of(&AtomicHead { id, ..head }, status, len);
    for (left, body) in [
        // There is none of this name, or it is a message.
        (true, result(3, 0, 16)),
        (true, result(1 << 20, 0, 16)),
        (true, result(2, 0, 0)),
        // Another length than was asked for.
        (true, result(1, 0, 8)),
        (true, result(1, -1, 16)),
        // It has not been asked yet.
        (false, result(1, 0, 16)),
        (false, result(1, -1, 0)),
        // An atomic is not read like a message.
        (true, Body::ReadDone(1)),
    ] {
        let mut f = Fixture::down();
        f.up_in_packets();
        f.start_atomic(&atomic(AtomicKind::Fetch, AtomicOp::Sum, 1))
            .unwrap();
        f.send(2, Some(5), 300).unwrap();
        if left {
            f.flush();
        }
        assert_eq!(f.packet(body), Err(Errno::EPROTO), "{body:?}");
        let read = f.header(&read_of(ANNOUNCED, 8, 1));
        assert_eq!(read, Err(Errno::EPROTO));
        f.engine.close_conn(f.conn, Errno::EPROTO);
        let mut failed = f.failed();
        failed.sort_unstable_by_key(|(context, _)| *context);
        assert_eq!(failed, [(1, Errno::EPROTO), (2, Errno::EPROTO)]);
    }
}

#[test]
fn a_fence_waits_for_the_result_of_an_atomic() {
    let mut f = Fixture::down();
    f.up_in_packets();
    f.start_atomic(&atomic(AtomicKind::Plain, AtomicOp::Sum, 1))
        .unwrap();
    f.flush();
    f.engine.fence(f.conn);
    assert!(matches!(f.send(2, None, 5), Ok(SendPlan::Postpone { .. })));
    assert_eq!(f.start_postponed(), Ok(None));
    assert_eq!(f.engine.pop_output(), None);
    let asked = AtomicHead {
        id: 1,
        ..asked(AtomicKind::Plain, AtomicOp::Sum, 2)
    };
    f.packet(result_of(&asked, 0, 0)).unwrap();
    assert_eq!(f.done(), [1]);
    assert_eq!(f.engine.pop_output(), Some(Output::Conn(f.conn)));
    assert_eq!(f.start_postponed(), Ok(Some(2)));
}

#[test]
fn what_packets_have_no_field_for_is_refused() {
    let mut f = Fixture::down();
    f.up_in_packets();
    let good = atomic(AtomicKind::Plain, AtomicOp::Sum, 1);
    let with_data = Atomic {
        data: Some(1),
        ..good
    };
    let durable = Atomic {
        level: Level::Committed,
        ..good
    };
    for wrong in [with_data, durable] {
        let refused = f.start_atomic(&wrong).err();
        assert_eq!(refused, Some(Errno::EOPNOTSUPP));
    }
    assert!(f.engine.conn(f.conn).unwrap().is_idle());
}
