//! Peers that are connected to and do not answer: a program that speaks another protocol, one that
//! never accepts, one that makes no progress.

mod common;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use common::{LONG, hints, local, pattern};
use ripstop::{Domain, Errno, Hints, Progress};

/// What else takes time: to find the peer, and to be scheduled.
const SLACK: Duration = Duration::from_secs(5);

/// A process that listens, and perhaps accepts, but says nothing.
fn mute(accepts: bool) -> (TcpListener, Vec<std::thread::JoinHandle<()>>) {
    let listener = TcpListener::bind(local()).unwrap();
    let accepting = accepts.then(|| {
        let listener = listener.try_clone().unwrap();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            // Until the other side gives up.
            let mut said = Vec::new();
            let _ = std::io::Read::read_to_end(&mut &stream, &mut said);
        })
    });
    (listener, accepting.into_iter().collect())
}

fn fails_after(domain: &Domain, address: impl Into<ripstop::Address>, time: Duration) {
    let endpoint = domain.endpoint().unwrap();
    let address = address.into();
    let peer = domain.insert(address.clone()).unwrap();
    let start = Instant::now();
    let send = endpoint.send(pattern(10, 1), peer);
    let (outcome, buf) = send.wait_timeout(time + SLACK).expect("an outcome in time");
    let error = outcome.unwrap_err();
    assert_eq!(
        (error.errno(), error.peer()),
        (Errno::ETIMEDOUT, Some(&address))
    );
    assert!(error.advice().contains("answer_timeout"), "{error}");
    assert_eq!(buf, pattern(10, 1));
    assert!(start.elapsed() >= time, "{:?}", start.elapsed());
}

#[test]
fn a_listener_that_says_nothing_is_an_error_in_seconds() {
    let domain = hints("tcp").open().unwrap();
    std::thread::scope(|scope| {
        for accepts in [true, false] {
            let domain = &domain;
            scope.spawn(move || {
                let (listener, threads) = mute(accepts);
                let address = listener.local_addr().unwrap();
                fails_after(domain, address, Domain::ANSWER_TIMEOUT);
                for thread in threads {
                    thread.join().unwrap();
                }
            });
        }
    });
}

#[test]
fn a_connection_to_one_is_an_error_as_well() {
    let time = Duration::from_millis(300);
    let hints = Hints::msg().provider("tcp").source(local());
    let domain = hints.answer_timeout(time).open().unwrap();
    let (listener, _threads) = mute(true);
    let asking = domain.connect(listener.local_addr().unwrap(), b"");
    let Ok(asked) = asking.wait_timeout(time + SLACK) else {
        panic!("no outcome in time")
    };
    assert_eq!(asked.unwrap_err().errno(), Errno::ETIMEDOUT);
}

fn the_program_says_how_long_a_peer_may_compute(on: &str) {
    let idle = hints(on).progress(Progress::Manual).open().unwrap();
    let peer = idle.endpoint().unwrap();
    let time = Duration::from_millis(300);
    let domain = hints(on).answer_timeout(time).open().unwrap();
    fails_after(&domain, peer.address().unwrap(), time);
    // With more of it, it may come back to its work.
    let domain = hints(on).answer_timeout(LONG).open().unwrap();
    let endpoint = domain.endpoint().unwrap();
    let to = domain.insert(peer.address().unwrap()).unwrap();
    let send = endpoint.send(pattern(10, 1), to);
    let send = send.wait_timeout(2 * time).unwrap_err();
    let (outcome, buf) = peer.recv(vec![0; 10], None).wait();
    assert_eq!((outcome.unwrap().len, buf), (10, pattern(10, 1)));
    send.wait().0.unwrap();
}

on_both! {
    the_program_says_how_long_a_peer_may_compute,
}
