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
