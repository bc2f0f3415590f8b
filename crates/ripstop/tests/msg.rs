//! Connections: made, refused, used and ended.

mod common;

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use common::{LONG, local, msg, nobody, pattern, rdm};
use ripstop::{Address, Connection, Errno, Hints, Listener, Operation, Progress, SendMsg, Source};

/// A connection between two domains, from both sides.
fn connect(progress: Progress) -> (Listener, Connection, Connection) {
    let (server, client) = (msg(progress), msg(progress));
    let listener = server.listen().unwrap();
    let asking = client.connect(listener.address().unwrap(), b"hello");
    std::thread::scope(|scope| {
        let connected = scope.spawn(|| asking.wait().unwrap());
        let incoming = listener.accept().wait();
        assert_eq!(incoming.data(), b"hello");
        assert!(incoming.peer().is_some());
        let accepted = incoming.accept(b"welcome").wait().unwrap();
        let connected = connected.join().unwrap();
        assert_eq!(
            (connected.data(), accepted.data()),
            (&b"welcome"[..], &b""[..])
        );
        assert_eq!(connected.peer().unwrap(), accepted.address().unwrap());
        assert_eq!(accepted.peer().unwrap(), connected.address().unwrap());
        (listener.clone(), connected, accepted)
    })
}

#[test]
fn messages_both_ways() {
    for progress in [Progress::Background, Progress::Manual] {
        let (_listener, a, b) = connect(progress);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (i, size) in [0, 1, 8, 3000, 100_000, 2 << 20].into_iter().enumerate() {
                    let data = SendMsg::new().data(i as u64);
                    a.sendmsg(pattern(size, i), data).wait().0.unwrap();
                    let (outcome, buf) = a.trecv(vec![0; size], 0x77, 0xf0).wait();
                    let done = outcome.unwrap();
                    assert_eq!((done.tag, done.source), (Some(0x57), Source::Unknown));
                    assert!(buf == pattern(size, i));
                }
                a.inject(b"bye").unwrap();
                // The last one leaves with the progress of this wait.
                a.recv(vec![0; 3]).wait().0.unwrap();
            });
            for (i, size) in [0, 1, 8, 3000, 100_000, 2 << 20].into_iter().enumerate() {
                let (outcome, buf) = b.recv(vec![0; size]).wait();
                let done = outcome.unwrap();
                assert_eq!((done.len, done.data), (size, Some(i as u64)));
                b.tsend(buf, 0x57).wait().0.unwrap();
            }
            let (outcome, buf) = b.recv(vec![0; 3]).wait();
            assert_eq!((outcome.unwrap().len, &buf[..]), (3, &b"bye"[..]));
            b.send(buf).wait().0.unwrap();
        });
    }
}

#[test]
fn a_rejected_request_says_why() {
    let (server, client) = (msg(Progress::Background), msg(Progress::Background));
    let listener = server.listen().unwrap();
    let address = listener.address().unwrap();
    let asking = client.connect(address.clone(), b"");
    listener.accept().wait().reject(b"not today").unwrap();
    let error = asking.wait().unwrap_err();
    assert_eq!(
        (error.errno(), error.operation()),
        (Errno::ECONNREFUSED, Operation::Connect)
    );
    assert_eq!(
        (error.data(), error.peer()),
        (&b"not today"[..], Some(&address))
    );
    // Dropping a request refuses it, too.
    let asking = client.connect(address.clone(), b"");
    drop(listener.accept().wait());
    assert_eq!(asking.wait().unwrap_err().errno(), Errno::ECONNREFUSED);
    // And so does too much to say.
    let asking = client.connect(address, b"");
    let error = listener.accept().wait().reject(&[0; 257]).unwrap_err();
    assert_eq!(
        (error.errno(), error.operation()),
        (Errno::EINVAL, Operation::Reject)
    );
    assert_eq!(asking.wait().unwrap_err().errno(), Errno::ECONNREFUSED);
}

#[test]
fn nobody_listens() {
    let client = msg(Progress::Manual);
    let address = Address::from(nobody());
    let start = Instant::now();
    let error = client.connect(address.clone(), b"").wait().unwrap_err();
    assert_eq!(error.errno(), Errno::ECONNREFUSED);
    assert_eq!(error.peer(), Some(&address));
    assert!(start.elapsed() < LONG);
    let error = client.connect(address, &[0; 257]).wait().unwrap_err();
    assert_eq!(error.errno(), Errno::EINVAL);
    assert!(error.advice().contains("256"));
}

#[test]
fn the_end_of_a_connection_ends_what_waits() {
    let (_listener, a, b) = connect(Progress::Background);
    let receives: Vec<_> = (0..10).map(|_| b.recv(vec![7; 100])).collect();
    assert!(!a.is_closed() && !b.is_closed());
    a.shutdown().unwrap();
    pollster::block_on(b.closed());
    pollster::block_on(a.closed());
    assert!(a.is_closed() && b.is_closed());
    for receive in receives {
        let (outcome, buf) = receive.wait();
        let error = outcome.unwrap_err();
        assert!(error.peer().is_some() && buf == vec![7; 100], "{error}");
    }
    let (outcome, buf) = b.send(vec![9; 10]).wait();
    assert_eq!(
        (outcome.unwrap_err().errno(), buf),
        (Errno::ENOTCONN, vec![9; 10])
    );
    a.shutdown().unwrap();
    assert!(a.inject(b"x").is_err());
}

#[test]
fn dropping_the_last_handle_ends_a_connection() {
    let (_listener, a, b) = connect(Progress::Background);
    let clone = a.clone();
    drop(a);
    let receive = b.recv(vec![0; 4]);
    clone.send(b"last".to_vec()).wait().0.unwrap();
    assert_eq!(receive.wait().1, b"last");
    drop(clone);
    pollster::block_on(b.closed());
}

#[test]
fn what_came_before_the_end_is_received_after_it() {
    let (_listener, a, b) = connect(Progress::Background);
    for size in [4, 50_000] {
        a.send(pattern(size, 1)).wait().0.unwrap();
    }
    drop(a);
    pollster::block_on(b.closed());
    for size in [4, 50_000] {
        let (outcome, buf) = b.recv(vec![0; size]).wait();
        assert_eq!((outcome.unwrap().len, buf), (size, pattern(size, 1)));
    }
    let (outcome, buf) = b.recv(vec![5; 9]).wait();
    assert_eq!(
        (outcome.unwrap_err().errno(), buf),
        (Errno::ENOTCONN, vec![5; 9])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_tokio() {
    const CLIENTS: usize = 20;
    let server = msg(Progress::Background);
    let listener = server.listen().unwrap();
    let address = listener.address().unwrap();
    let serving = tokio::spawn(async move {
        let mut sessions = Vec::new();
        for _ in 0..CLIENTS {
            let incoming = listener.accept().await;
            sessions.push(tokio::spawn(async move {
                let connection = incoming.accept(b"").await.unwrap();
                let mut buf = vec![0; 4096];
                loop {
                    let (outcome, full) = connection.recv(buf).await;
                    let Ok(done) = outcome else { return };
                    let (outcome, sent) = connection.send(full[..done.len].to_vec()).await;
                    outcome.unwrap();
                    drop(sent);
                    buf = full;
                }
            }));
        }
        for session in sessions {
            session.await.unwrap();
        }
    });
    let client = msg(Progress::Background);
    let mut clients = Vec::new();
    for i in 0..CLIENTS {
        let (client, address) = (client.clone(), address.clone());
        clients.push(tokio::spawn(async move {
            let connection = client.connect(address, &[i as u8]).await.unwrap();
            for round in 0..30 {
                let sent = pattern(round * 100, i);
                let (outcome, sent) = connection.send(sent).await;
                outcome.unwrap();
                let (outcome, back) = connection.recv(vec![0; sent.len()]).await;
                outcome.unwrap();
                assert!(back == sent);
            }
        }));
    }
    for client in clients {
        tokio::time::timeout(LONG, client).await.unwrap().unwrap();
    }
    tokio::time::timeout(LONG, serving).await.unwrap().unwrap();
}

#[test]
fn what_a_domain_is_not_for_is_said() {
    let (connected, unconnected) = (msg(Progress::Manual), rdm("tcp", Progress::Manual));
    let error = connected.endpoint().unwrap_err();
    assert!(error.advice().contains("Hints::rdm"), "{error}");
    let error = unconnected.listen().unwrap_err();
    assert!(error.advice().contains("Hints::msg"), "{error}");
    assert_eq!(connected.insert(local()).unwrap_err().errno(), Errno::ENOAV);
    let error = unconnected.connect(local(), b"").wait().unwrap_err();
    assert_eq!(error.errno(), Errno::EINVAL);
    let refused = Hints::rdm().provider("nosuch").open().unwrap_err();
    assert_eq!(refused.errno(), Errno::ENODATA);
    assert!(refused.to_string().contains("tcp: "), "{refused}");
}

#[test]
fn a_waiter_that_gives_up_loses_no_request() {
    let (server, client) = (msg(Progress::Background), msg(Progress::Background));
    let listener = server.listen().unwrap();
    let mut given_up = listener.accept();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut given_up).poll(&mut cx).is_pending());
    let asking = client.connect(listener.address().unwrap(), b"still there?");
    let asking = asking.wait_timeout(Duration::from_millis(50)).unwrap_err();
    drop(given_up);
    let incoming = listener.accept().wait();
    assert_eq!(incoming.data(), b"still there?");
    let accepted = incoming.accept(b"yes").wait().unwrap();
    let connected = asking.wait().unwrap();
    assert_eq!(connected.data(), b"yes");
    // An attempt that is dropped leaves the other side with the end of a connection.
    let asking = client.connect(listener.address().unwrap(), b"");
    let incoming = listener.accept().wait();
    drop(asking);
    if let Ok(connection) = incoming.accept(b"").wait() {
        pollster::block_on(connection.closed());
    }
    assert!(!accepted.is_closed() && !connected.is_closed());
}

/// Counts its owners.
struct Counted;

impl Wake for Counted {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn futures_that_are_dropped_leave_no_waker() {
    let (listener, a, b) = connect(Progress::Background);
    let counted = Arc::new(Counted);
    let asking = msg(Progress::Manual);
    for _ in 0..1000 {
        let waker = Waker::from(Arc::clone(&counted));
        let mut cx = Context::from_waker(&waker);
        let mut closed = std::pin::pin!(b.closed());
        assert!(closed.as_mut().poll(&mut cx).is_pending());
        let mut accept = listener.accept();
        assert!(Pin::new(&mut accept).poll(&mut cx).is_pending());
    }
    let nobody = std::net::TcpListener::bind(local()).unwrap();
    for _ in 0..10 {
        let waker = Waker::from(Arc::clone(&counted));
        let mut cx = Context::from_waker(&waker);
        let mut connecting = asking.connect(nobody.local_addr().unwrap(), b"");
        assert!(Pin::new(&mut connecting).poll(&mut cx).is_pending());
    }
    assert_eq!(Arc::strong_count(&counted), 1);
    // A task that is polled by several wakers has the last one only.
    let mut closed = std::pin::pin!(b.closed());
    for _ in 0..1000 {
        let waker = Waker::from(Arc::clone(&counted));
        let mut cx = Context::from_waker(&waker);
        assert!(closed.as_mut().poll(&mut cx).is_pending());
    }
    assert!(Arc::strong_count(&counted) <= 2);
    drop(a);
    pollster::block_on(closed);
}
