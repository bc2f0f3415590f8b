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

use common::{LONG, Side, msg, pair, pattern};
use ripstop::{Domain, Endpoint, Op, Progress};

/// The tag of the last message that is sent until it is seen.
const END: u64 = u64::MAX;

/// The tag of the one that follows.
const LAST: u64 = END - 1;

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

fn receive_and_drop((ep, from): &Side, mut dice: Dice) -> usize {
    const ROOM: usize = 600_000;
    let mut posted: Vec<Op<Vec<u8>>> = Vec::new();
    let mut received = 0;
    loop {
        while posted.len() < 30 {
            posted.push(ep.trecv(vec![0; ROOM], 0, !0, *from));
        }
        let mut op = posted.remove(dice.roll(posted.len()));
        match dice.roll(3) {
            0 => drop(op),
            1 => {
                if !poll_once(&mut op) {
                    posted.push(op);
                }
            }
            _ => match op.try_complete() {
                None => posted.push(op),
                Some((outcome, buf)) => {
                    let done = outcome.unwrap();
                    let tag = done.tag.unwrap();
                    if tag == END {
                        return received;
                    }
                    check(&buf, done.len, tag);
                    received += 1;
                }
            },
        }
        if ep.domain().outstanding() > 200 {
            // Dropped ones leave as soon as they are over.
            ep.domain().progress();
        }
    }
}

/// The last message may have been lost with a dropped receive, so it comes until it is seen.
fn end_until_seen((ep, to): &Side, seen: &AtomicBool) {
    while !seen.load(Ordering::Relaxed) {
        ep.tsend(vec![1], END, *to).wait().0.unwrap();
        std::thread::sleep(Duration::from_millis(1));
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

/// Sets its flag when it is dropped.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Receives what was sent after the end was seen: a last message comes behind all of it.
fn take_all((a, to_b): &Side, (b, to_a): &Side) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                a.domain().progress();
            }
        });
        // Also where this panics.
        let _done = Done(&done);
        // No receive that was dropped takes a message any more.
        drained(&b.domain());
        let last = a.tsend(vec![1], LAST, *to_b);
        loop {
            let (outcome, _) = b.trecv(vec![0; 600_000], 0, !0, *to_a).wait();
            if outcome.unwrap().tag == Some(LAST) {
                break;
            }
        }
        last.wait().0.unwrap();
    });
}

#[test]
fn random_drops_under_load() {
    for progress in [Progress::Background, Progress::Manual] {
        let (a, b) = pair(progress);
        let seen = AtomicBool::new(false);
        let received = std::thread::scope(|scope| {
            scope.spawn(|| {
                send_and_drop(&a, 3000, Dice(1));
                end_until_seen(&a, &seen);
            });
            let received = receive_and_drop(&b, Dice(2));
            seen.store(true, Ordering::Relaxed);
            received
        });
        assert!(received > 0);
        take_all(&a, &b);
        still_works(&a, &b);
        drained(&a.0.domain());
        drained(&b.0.domain());
    }
}

#[test]
fn a_dropped_receive_takes_no_later_message() {
    let ((a, to_b), (b, to_a)) = pair(Progress::Background);
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

#[test]
fn a_dropped_send_still_arrives() {
    let ((a, to_b), (b, to_a)) = pair(Progress::Background);
    for (i, size) in [10, 5000, 1 << 20].into_iter().enumerate() {
        drop(a.send(pattern(size, i), to_b));
        let (outcome, buf) = b.recv(vec![0; size], to_a).wait();
        check(&buf, outcome.unwrap().len, i as u64);
    }
    drained(&a.domain());
}

#[test]
fn an_endpoint_lives_as_long_as_its_operations() {
    let ((a, to_b), (b, to_a)) = pair(Progress::Background);
    let receive = b.recv(vec![0; 100], to_a);
    let domain = b.domain();
    drop(b);
    a.send(pattern(100, 3), to_b).wait().0.unwrap();
    let (outcome, buf) = receive.wait();
    check(&buf, outcome.unwrap().len, 3);
    // Now it is closed, and the domain is empty.
    assert_eq!(domain.outstanding(), 0);
}

#[test]
fn endpoints_close_with_everything_under_way() {
    for round in 0..20 {
        let ((a, to_b), (b, to_a)) = pair(Progress::Background);
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

#[test]
fn a_forgotten_operation_is_a_leak_and_no_more() {
    let ((a, to_b), (b, to_a)) = pair(Progress::Background);
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
