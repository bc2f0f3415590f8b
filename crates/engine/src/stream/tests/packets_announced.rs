//! Which messages in packets are announced: their payload is read by the peer or its device.

use ripstop_wire::rxm::Body;

use super::*;

#[test]
fn a_device_reads_as_many_messages_as_a_queue_has() {
    let mut f = Fixture::down();
    f.up_read_by(Extensions::empty(), ReadBy::Device);
    let first = f.announce(1);
    f.announce(2);
    let memory = |f: &Fixture, index: u64| {
        let memory = f.engine.announced_memory(f.conn, index as u16);
        memory.map(Iov::len)
    };
    assert_eq!(memory(&f, first), Some(300));
    // None of them is received before a message that comes after them all.
    for context in 10..510 {
        f.announce(context);
    }
    assert!(matches!(
        f.send(4, None, 5),
        Ok(SendPlan::Packet { index: None, .. })
    ));
    f.flush();
    assert_eq!(f.done(), [4]);
    f.packet(Body::ReadDone(first)).unwrap();
    assert_eq!(f.done(), [1]);
    assert_eq!(memory(&f, first), None);
}

#[test]
fn an_injected_message_is_announced_where_nothing_else_tells_its_delivery() {
    let mut f = Fixture::down();
    f.up_read_by(Extensions::empty(), ReadBy::Device);
    let inject = |f: &mut Fixture, context, len, ack| {
        let send = Send {
            tag: None,
            data: None,
            iov: Iov::one(Mem(0x1000, len)),
            context,
            completion: true,
            inject: true,
            ack,
            work: false,
        };
        let Ok(SendPlan::Packet { index, .. }) = f.engine.send(f.conn, &send) else {
            panic!("it is sent");
        };
        f.flush();
        index
    };
    let first = inject(&mut f, 1, 50, true).expect("announced");
    // Its memory is the caller's again: the driver lets the peer read a copy.
    let memory = f.engine.announced_memory(f.conn, first);
    assert_eq!(memory.map(Iov::len), Some(0));
    assert_eq!(f.done(), []);
    for (context, len, ack) in [(2, 50, false), (3, 0, false)] {
        assert_eq!(inject(&mut f, context, len, ack), None);
        assert_eq!(f.done(), [context]);
    }
    f.packet(Body::ReadDone(first.into())).unwrap();
    assert_eq!(f.done(), [1]);
}

#[test]
fn an_injected_message_over_a_stream_is_acknowledged() {
    let mut f = Fixture::down();
    f.up_read_by(Extensions::empty(), ReadBy::Stream);
    let send = Send {
        tag: None,
        data: None,
        iov: Iov::one(Mem(0x1000, 50)),
        context: 1,
        completion: true,
        inject: true,
        ack: true,
        work: false,
    };
    let plan = f.engine.send(f.conn, &send);
    assert!(matches!(
        plan,
        Ok(SendPlan::Packet {
            index: None,
            inline: true
        })
    ));
}

#[test]
fn messages_in_segments_are_announced_once_much_of_them_is_unheard() {
    let mut f = Fixture::down();
    f.up_with_segments(Extensions::empty(), ReadBy::Device, 300);
    let index = |f: &mut Fixture, context, tag, len| {
        let Ok(SendPlan::Packet { index, .. }) = f.send(context, tag, len) else {
            panic!("it is sent");
        };
        f.flush();
        index
    };
    assert!(index(&mut f, 1, Some(5), 301).is_some());
    assert_eq!(index(&mut f, 2, Some(5), 300), None);
    assert_eq!(f.done(), [2]);
    // More than a quarter of what a peer keeps.
    let announced = index(&mut f, 3, None, 300).expect("announced");
    assert_eq!(index(&mut f, 4, Some(5), 100), None);
    assert!(index(&mut f, 5, Some(5), 101).is_some());
    assert_eq!(f.done(), [4]);
    f.packet(Body::ReadDone(announced.into())).unwrap();
    assert_eq!(f.done(), [3]);
    assert_eq!(index(&mut f, 6, Some(5), 300), None);
    assert_eq!(f.done(), [6]);
    // Only an announced message says when it is delivered.
    let conn = f.engine.conn(f.conn).unwrap();
    for (len, delivery) in [(50, false), (50, true), (200, true), (0, true)] {
        let announced = conn.is_to_announce(
            len,
            delivery,
            &Limits {
                kept_bytes: 1 << 20,
                ..LIMITS
            },
        );
        assert_eq!(announced, delivery && len > 0, "{len}");
    }
}
