//! Operations that are dropped at any moment, and the endpoint that goes on.
//!
//! Worth running under valgrind or AddressSanitizer: a buffer that was freed too early would
//! be written by the message that arrives for it.

mod common;

use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use common::{LONG, Side, msg, pair, pattern, rdm};
use ripstop::{Domain, Endpoint, Errno, Op, Outcome, Progress, SendMsg, Source};

/// The tag of the last message.
const END: u64 = u64::MAX;

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % sides
    }

    /// Mostly small, sometimes beyond the eager limit.
    fn size(&mut self) -> usize {
        match self.roll(40) {
            0 => self.roll(600_000),
            1..10 => self.roll(20_000),
            _ => self.roll(300),
        }
    }
}

fn poll_once(op: &mut Op<Vec<u8>>) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    Pin::new(op).poll(&mut cx).is_ready()
}

fn send_and_drop((ep, to): &Side, count: usize, mut dice: Dice) {
    let mut kept = Vec::new();
    for i in 0..count {
        let mut op = ep.tsend(pattern(dice.size(), i), i as u64, *to);
        match dice.roll(4) {
            0 => drop(op),
            1 => {
                let _ready = poll_once(&mut op);
            }
            _ => kept.push(op),
        }
        if kept.len() > 50 {
            let op = kept.swap_remove(dice.roll(50));
            op.wait().0.unwrap();
        }
    }
    drop(kept);
    ep.tsend(vec![1], END, *to).wait().0.unwrap();
}

fn check(buf: &[u8], len: usize, tag: u64) {
    assert!(buf[..len] == pattern(len, tag as usize), "message {tag}");
}

/// Receives all there is, each message once.
fn receive_and_drop((ep, from): &Side, count: usize, mut dice: Dice) {
    const ROOM: usize = 600_000;
    let mut posted: Vec<Op<Vec<u8>>> = Vec::new();
    let mut seen = vec![false; count];
    let (mut left, mut ended) = (count, false);
    let stop = Instant::now() + LONG;
    while left > 0 || !ended {
        while posted.len() < 30 {
            posted.push(ep.trecv(vec![0; ROOM], 0, !0, *from));
        }
        let mut op = posted.remove(dice.roll(posted.len()));
        match dice.roll(3) {
            0 => drop(op),
            1 => match op.try_complete() {
                None => drop(op),
                Some(outcome) => take(outcome, &mut seen, &mut left, &mut ended),
            },
            _ => match op.try_complete() {
                None => posted.push(op),
                Some(outcome) => take(outcome, &mut seen, &mut left, &mut ended),
            },
        }
        assert!(Instant::now() < stop, "{left} messages are lost");
    }
}

fn take((outcome, buf): Outcome<Vec<u8>>, seen: &mut [bool], left: &mut usize, ended: &mut bool) {
    let done = outcome.unwrap();
    match done.tag.unwrap() {
        END => assert!(!std::mem::replace(ended, true), "it came twice"),
        tag => {
            check(&buf, done.len, tag);
            let before = std::mem::replace(&mut seen[tag as usize], true);
            assert!(!before, "message {tag} came twice");
            *left -= 1;
        }
    }
}

/// Both directions work, in order, as if nothing had been.
fn still_works((a, to_b): &Side, (b, to_a): &Side) {
    for i in 0..100 {
        let receive = b.recv(vec![0; 5000], *to_a);
        a.send(pattern(i * 50, i), *to_b).wait().0.unwrap();
        let (outcome, buf) = receive.wait();
        check(&buf, outcome.unwrap().len, i as u64);
        let receive = a.recv(vec![0; 10], *to_b);
        b.send(vec![i as u8], *to_a).wait().0.unwrap();
        assert_eq!(receive.wait().1[0], i as u8);
    }
}

fn drained(domain: &Domain) {
    let end = Instant::now() + LONG;
    while domain.outstanding() > 0 {
        domain.progress();
        assert!(Instant::now() < end, "{} left", domain.outstanding());
    }
}

fn random_drops_under_load(on: &str) {
    for progress in [Progress::Background, Progress::Manual] {
        let (a, b) = pair(on, progress);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                send_and_drop(&a, 3000, Dice(1));
                while !done.load(Ordering::Relaxed) {
                    // For the sends that were dropped.
                    a.0.domain().progress();
                    std::thread::yield_now();
                }
            });
            receive_and_drop(&b, 3000, Dice(2));
            done.store(true, Ordering::Relaxed);
        });
        still_works(&a, &b);
        drained(&a.0.domain());
        drained(&b.0.domain());
    }
}

/// Receives whole messages in order, each of them given up many times before it is there.
async fn select_loop((ep, from): &Side, count: usize, mut dice: Dice) {
    let mut given_up = 0;
    for i in 0..count {
        loop {
            let patience = async {
                for _ in 0..dice.roll(20) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                biased;
                () = patience => given_up += 1,
                (outcome, buf) = ep.recv(vec![0; 300_000], *from) => {
                    let len = outcome.unwrap().len;
                    assert_eq!(len, select_size(i), "message {i}");
                    check(&buf, len, i as u64);
                    break;
                }
            }
        }
    }
    assert!(given_up > 0);
}

fn select_size(i: usize) -> usize {
    match i % 50 {
        7 => 200_000 + i,
        _ => i % 300,
    }
}

fn a_select_loop_gets_every_message_in_order(on: &str) {
    const COUNT: usize = 2000;
    for progress in [Progress::Background, Progress::Manual] {
        let (a, b) = pair(on, progress);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..COUNT {
                    a.0.send(pattern(select_size(i), i), a.1).wait().0.unwrap();
                }
            });
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let domain = b.0.domain();
            let receiving = async {
                let all = select_loop(&b, COUNT, Dice(3));
                let mut all = std::pin::pin!(all);
                std::future::poll_fn(|cx| {
                    if progress == Progress::Manual {
                        domain.progress();
                    }
                    all.as_mut().poll(cx)
                })
                .await;
            };
            runtime.unwrap().block_on(receiving);
        });
        drained(&b.0.domain());
    }
}

fn deliver((ep, to): &Side, bytes: &[u8]) {
    let msg = SendMsg::new().delivery_complete();
    ep.sendmsg(bytes.to_vec(), *to, msg).wait().0.unwrap();
}

fn what_a_dropped_receive_had_goes_to_the_next_in_order(on: &str) {
    let (a, (b, to_a)) = pair(on, Progress::Background);
    let got = |op: Op<Vec<u8>>| {
        let (outcome, buf) = op.wait_timeout(LONG).expect("a message");
        buf[..outcome.unwrap().len].to_vec()
    };
    let receive = || b.recv(vec![0; 8], to_a);
    // One that nobody waits for any more, and none else is there.
    let first = receive();
    deliver(&a, b"1");
    drop(first);
    assert_eq!(got(receive()), b"1");
    // One is dropped that has the first of two messages, with another behind it.
    let (first, second) = (receive(), receive());
    deliver(&a, b"1");
    deliver(&a, b"2");
    let third = receive();
    drop(first);
    assert_eq!((got(second), got(third)), (b"1".to_vec(), b"2".to_vec()));
    // The one behind it still waits.
    let (first, second) = (receive(), receive());
    deliver(&a, b"1");
    drop(first);
    assert_eq!(got(second), b"1");
    // All of them, and then some.
    let all: Vec<_> = (0..5).map(|_| receive()).collect();
    for i in 0..5 {
        deliver(&a, &[i]);
    }
    drop(all);
    for i in 0..5 {
        assert_eq!(got(receive()), [i]);
    }
    assert_eq!(b.domain().outstanding(), 0);
}

fn what_is_given_back_goes_to_who_asks_for_it(on: &str) {
    let (a, (b, to_a)) = pair(on, Progress::Background);
    let told = |tag| SendMsg::new().tag(tag).delivery_complete();
    let both = [
        b.trecv(vec![0; 8], 0, !0, None),
        b.trecv(vec![0; 8], 0, !0, None),
    ];
    for tag in [7, 8] {
        let sent = a.0.sendmsg(vec![tag as u8; 3], a.1, told(tag));
        sent.wait().0.unwrap();
    }
    drop(both);
    let plain = b.recv(vec![0; 8], None);
    let eight = b.trecv(vec![0; 2], 8, 0, to_a);
    let (outcome, buf) = eight.wait_timeout(LONG).expect("a message");
    let error = outcome.unwrap_err();
    assert_eq!((error.errno(), error.missing()), (Errno::ETRUNC, 1));
    assert_eq!(buf, [8, 8]);
    let plain = plain.wait_timeout(Duration::ZERO).unwrap_err();
    let (outcome, buf) = b.trecv(vec![0; 8], 7, 0, to_a).wait();
    let done = outcome.unwrap();
    assert_eq!((done.len, done.tag, done.peer()), (3, Some(7), Some(to_a)));
    assert_eq!(buf[..3], [7; 3]);
    deliver(&a, b"plain");
    assert_eq!(plain.wait().0.unwrap().len, 5);
}

fn a_dropped_receive_takes_no_later_message(on: &str) {
    let ((a, to_b), (b, to_a)) = pair(on, Progress::Background);
    for i in 0..200 {
        let mut dropped = b.recv(vec![0; 100], to_a);
        if i % 2 == 0 {
            assert!(!poll_once(&mut dropped));
        }
        drop(dropped);
        let kept = b.recv(vec![0; 100], to_a);
        a.send(pattern(50, i), to_b).wait().0.unwrap();
        let (outcome, buf) = kept.wait();
        check(&buf, outcome.unwrap().len, i as u64);
    }
}

fn a_dropped_send_still_arrives(on: &str) {
    let ((a, to_b), (b, to_a)) = pair(on, Progress::Background);
    for (i, size) in [10, 5000, 1 << 20].into_iter().enumerate() {
        drop(a.send(pattern(size, i), to_b));
        let (outcome, buf) = b.recv(vec![0; size], to_a).wait();
        check(&buf, outcome.unwrap().len, i as u64);
    }
    drained(&a.domain());
}

fn an_endpoint_lives_as_long_as_its_operations(on: &str) {
    let ((a, to_b), (b, to_a)) = pair(on, Progress::Background);
    let receive = b.recv(vec![0; 100], to_a);
    let domain = b.domain();
    drop(b);
    a.send(pattern(100, 3), to_b).wait().0.unwrap();
    let (outcome, buf) = receive.wait();
    check(&buf, outcome.unwrap().len, 3);
    // Now it is closed, and the domain is empty.
    assert_eq!(domain.outstanding(), 0);
}

fn endpoints_close_with_everything_under_way(on: &str) {
    for round in 0..20 {
        let ((a, to_b), (b, to_a)) = pair(on, Progress::Background);
        let close = |ep: Endpoint| {
            let domain = ep.domain();
            drop(ep);
            assert_eq!(domain.outstanding(), 0, "round {round}");
        };
        for i in 0..50 {
            drop(a.tsend(pattern(i * 9000, i), 1, to_b));
            let mut receive = b.trecv(vec![0; 450_000], 1, 0, to_a);
            let _ready = i % 3 == 0 && poll_once(&mut receive);
            if i == 7 {
                receive.cancel();
            }
        }
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_millis(round));
        }
        close(b);
        close(a);
    }
}

fn a_forgotten_operation_is_a_leak_and_no_more(on: &str) {
    let ((a, to_b), (b, to_a)) = pair(on, Progress::Background);
    std::mem::forget(b.recv(vec![0; 100], to_a));
    std::mem::forget(a.send(pattern(100, 1), to_b));
    a.send(pattern(100, 2), to_b).wait().0.unwrap();
    let (outcome, buf) = b.recv(vec![0; 100], to_a).wait();
    check(&buf, outcome.unwrap().len, 2);
}

#[test]
fn connections_are_dropped_with_receives_under_way() {
    let (server, client) = (msg(Progress::Background), msg(Progress::Background));
    let listener = server.listen().unwrap();
    for round in 0..30 {
        let asking = client.connect(listener.address().unwrap(), b"");
        let accepted = listener.accept().wait().accept(b"").wait().unwrap();
        let connected = asking.wait().unwrap();
        let receives: Vec<_> = (0..20).map(|_| accepted.recv(vec![0; 100_000])).collect();
        for i in 0..10 {
            drop(connected.send(pattern(100_000, i)));
        }
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(connected);
        let mut next = 0;
        for (i, receive) in receives.into_iter().enumerate() {
            if i % 3 == 0 {
                // Cancelled, or gone with the message it has.
                drop(receive);
                continue;
            }
            let (outcome, buf) = receive.wait();
            assert_eq!(buf.len(), 100_000);
            if outcome.is_ok() {
                let found = (next..10).find(|i| buf == pattern(100_000, *i));
                next = found.expect("a whole message, in order") + 1;
            }
        }
    }
    drained(&server);
}

fn what_is_given_back_is_from_who_sent_it(on: &str) {
    let (here, there) = (rdm(on, Progress::Background), rdm(on, Progress::Background));
    let (a, b) = (here.endpoint().unwrap(), there.endpoint().unwrap());
    let to_b = here.insert(b.address().unwrap()).unwrap();
    let mut unwanted: Vec<_> = (0..2).map(|_| b.recv(vec![0; 8], None)).collect();
    for text in [b"1", b"2"] {
        deliver(&(a.clone(), to_b), text);
    }
    unwanted.clear();
    // Not known when it came, and then it is; and the other way round.
    let to_a = there.insert(a.address().unwrap()).unwrap();
    let receive = b.recv(vec![0; 8], to_a).wait_timeout(LONG);
    let (outcome, buf) = receive.expect("a message");
    assert_eq!((outcome.unwrap().peer(), buf[0]), (Some(to_a), b'1'));
    there.remove(to_a).unwrap();
    let receive = b.recv(vec![0; 8], None).wait_timeout(LONG);
    let (outcome, buf) = receive.expect("a message");
    let from = Source::Address(a.address().unwrap());
    assert_eq!((outcome.unwrap().source, buf[0]), (from, b'2'));
}

on_both! {
    what_is_given_back_is_from_who_sent_it,
    a_select_loop_gets_every_message_in_order,
    what_a_dropped_receive_had_goes_to_the_next_in_order,
    what_is_given_back_goes_to_who_asks_for_it,
    random_drops_under_load,
    a_dropped_receive_takes_no_later_message,
    a_dropped_send_still_arrives,
    an_endpoint_lives_as_long_as_its_operations,
    endpoints_close_with_everything_under_way,
    a_forgotten_operation_is_a_leak_and_no_more,
}
