use super::*;

#[test]
fn nothing_said_of_a_closed_connection_reaches_its_successor() {
    let mut f = Fixture::new();
    let old = f.conn;
    // Same index twice: the second grant breaks the connection.
    f.rts(1, 5, 100).unwrap();
    f.rts(1, 5, 100).unwrap();
    f.recv(1, Some(1), 100);
    f.recv(2, Some(1), 100);
    // And it is blocked on a message with room to come.
    for tag in 10..14 {
        f.message(tag, 0);
    }
    f.recv(3, Some(10), 100);
    f.engine.close_conn(old, Errno::EPROTO);
    f.conn = f.open_conn(f.ep, 8);
    assert_eq!(f.conn, old);
    assert_eq!(f.engine.pop_output(), None);
    assert_eq!(f.engine.pop_broken(), None);
    assert_eq!(f.engine.pop_resumed(), None);
}

#[test]
fn a_closed_endpoint_takes_its_messages_along_from_a_shared_context() {
    let mut f = Fixture::new();
    let (ep, conn) = (f.ep, f.conn);
    f.message(1, 0);
    f.engine.close_conn(conn, Errno::ESHUTDOWN);
    f.engine.close_ep(ep);
    f.recv(1, Some(1), 0);
    f.ep = f.open_ep();
    f.conn = f.open_conn(f.ep, 8);
    f.up();
    f.message(1, 0);
    assert_eq!(f.done(), [1]);
}

#[test]
fn a_source_found_late_names_messages_wherever_they_are() {
    let mut f = Fixture::new();
    f.rts(1, 1, 5000).unwrap();
    f.recv(1, Some(1), 5000);
    f.message(2, 0);
    f.message(3, 1000);
    f.engine.set_source(f.conn, FiAddr(9));
    f.recv(2, Some(2), 0);
    assert_eq!(f.pop().unwrap().src, FiAddr(9));
    f.recv(3, Some(3), 1000);
    f.engine.rx_placed(f.conn, 1000);
    assert_eq!(f.pop().unwrap().src, FiAddr(9));
    let data = Header {
        op_data: 1,
        ..Header::new(Op::Data, 5000)
    };
    f.header(&data).unwrap();
    f.engine.rx_placed(f.conn, 5000);
    assert_eq!(f.pop().unwrap().src, FiAddr(9));
}

/// The peer at no address of the vector, whose own address are these bytes.
const NAME: [u8; 4] = [10, 0, 0, 7];

/// An endpoint that reports unknown senders, with a connection to one.
fn stranger() -> Fixture {
    let mut f = Fixture::new();
    f.engine.change_ep(f.ep, |config| config.source_err = true);
    let mut name = [0; PEER_NAME];
    name[..NAME.len()].copy_from_slice(&NAME);
    let config = ConnConfig {
        ep: f.ep,
        src: FiAddr::NOTAVAIL,
        name,
        name_len: NAME.len() as u8,
    };
    f.conn = f.engine.open_conn(config).unwrap();
    f.up();
    f
}

fn pop_named(f: &mut Fixture) -> (Errno, Vec<u8>) {
    let entry = f.engine.cq_mut(f.cq).unwrap().pop_error().unwrap();
    (entry.error.err, entry.data().to_vec())
}

#[test]
fn who_sent_a_message_is_known_when_its_connection_is_gone() {
    let mut f = stranger();
    f.message(1, 0);
    f.message(2, 20);
    f.engine.rx_placed(f.conn, 20);
    f.message(3, 20);
    f.engine.rx_placed(f.conn, 20);
    f.engine.close_conn(f.conn, Errno::ESHUTDOWN);
    // Another one has its place, and does not lend its name.
    f.conn = f.open_conn(f.ep, 8);
    f.recv(1, Some(1), 10);
    assert_eq!(pop_named(&mut f), (Errno::EADDRNOTAVAIL, NAME.to_vec()));
    f.recv(2, Some(2), 10);
    assert_eq!(pop_named(&mut f), (Errno::ETRUNC, NAME.to_vec()));
    f.recv(3, Some(3), 100);
    assert_eq!(pop_named(&mut f), (Errno::EADDRNOTAVAIL, NAME.to_vec()));
    assert_eq!(f.engine.kept(), 0);
}

#[test]
fn a_sender_that_has_left_gets_a_place_and_loses_it() {
    let mut f = stranger();
    for tag in 1..4 {
        f.message(tag, 0);
    }
    f.engine.close_conn(f.conn, Errno::ESHUTDOWN);
    f.engine
        .set_departed_source(f.ep, &[10, 0, 0, 8], FiAddr(4));
    f.engine.set_departed_source(f.ep, &NAME, FiAddr(5));
    f.recv(1, Some(1), 0);
    assert_eq!(f.pop().unwrap().src, FiAddr(5));
    let from_it = Want {
        tag: Some((2, 0)),
        src: FiAddr(5),
    };
    f.post(Recv::new(Iov::one(Mem(0x2000, 0)), from_it, 2));
    assert_eq!(f.done(), [2]);
    f.engine.set_departed_source(f.ep, &NAME, FiAddr::NOTAVAIL);
    f.recv(3, Some(3), 0);
    assert_eq!(pop_named(&mut f), (Errno::EADDRNOTAVAIL, NAME.to_vec()));
}
