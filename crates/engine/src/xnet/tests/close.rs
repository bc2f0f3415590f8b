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
