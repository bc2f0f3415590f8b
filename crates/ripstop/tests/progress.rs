//! Every way to make progress, on every kind of runtime.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{LONG, Side, pair, pattern};
use ripstop::{Domain, Driver, Progress, Turn};
use tokio::io::unix::AsyncFd;

/// Messages there and back, a new pair of futures each time.
async fn ping((ep, peer): &Side, rounds: usize) {
    for round in 0..rounds {
        let sent = pattern(round % 3000, round);
        let (outcome, buf) = ep.send(sent, *peer).await;
        let len = outcome.unwrap().len;
        let (outcome, back) = ep.recv(vec![0; len], *peer).await;
        assert_eq!(outcome.unwrap().len, len);
        assert!(back == buf);
    }
}

async fn pong((ep, peer): &Side, rounds: usize) {
    let mut buf = vec![0; 3000];
    for _ in 0..rounds {
        let (outcome, mut full) = ep.recv(buf, *peer).await;
        full.truncate(outcome.unwrap().len);
        let (outcome, sent) = ep.send(full, *peer).await;
        outcome.unwrap();
        buf = sent;
        buf.resize(3000, 0);
    }
}

fn futures_without_a_runtime(on: &str) {
    let (a, b) = pair(on, Progress::Background);
    std::thread::scope(|scope| {
        scope.spawn(|| pollster::block_on(pong(&b, 300)));
        pollster::block_on(ping(&a, 300));
    });
}

fn futures_driven_by_the_waiting_thread(on: &str) {
    for busy_poll in [Duration::ZERO, Domain::BUSY_POLL, Duration::MAX] {
        let (a, b) = pair_with(on, busy_poll);
        std::thread::scope(|scope| {
            scope.spawn(|| b.0.domain().block_on(pong(&b, 300)));
            a.0.domain().block_on(ping(&a, 300));
        });
    }
}

fn pair_with(on: &str, busy_poll: Duration) -> (Side, Side) {
    let open = || {
        common::hints(on)
            .progress(Progress::Manual)
            .busy_poll(busy_poll)
            .open()
            .unwrap()
    };
    let (a, b) = (open(), open());
    common::between(&a, &b)
}

fn operations_polled_in_a_loop(on: &str) {
    let (a, b) = pair(on, Progress::Manual);
    let mut receive = b.0.recv(vec![0; 10], b.1);
    let mut send = a.0.send(pattern(10, 1), a.1);
    let end = Instant::now() + LONG;
    let (mut sent, mut received) = (None, None);
    while sent.is_none() || received.is_none() {
        sent = sent.or_else(|| send.try_complete());
        received = received.or_else(|| receive.try_complete());
        assert!(Instant::now() < end);
    }
    assert!(send.try_complete().is_none(), "an outcome is given once");
    let (outcome, buf) = received.unwrap();
    assert_eq!((outcome.unwrap().len, buf), (10, pattern(10, 1)));
}

fn many_threads_wait_on_one_undriven_domain(on: &str) {
    const THREADS: u64 = 8;
    const ROUNDS: usize = 100;
    let (a, b) = pair(on, Progress::Manual);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for tag in 0..THREADS {
            let ((a, to_b), (b, to_a)) = (&a, &b);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    a.tsend(pattern(round, 3), tag, *to_b).wait().0.unwrap();
                    let (outcome, _) = a.trecv(vec![0; 100], tag, 0, *to_b).wait();
                    assert_eq!(outcome.unwrap().len, round);
                }
            });
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let (outcome, buf) = b.trecv(vec![0; 100], tag, 0, *to_a).wait();
                    assert_eq!(outcome.unwrap().len, round);
                    b.tsend(buf[..round].to_vec(), tag, *to_a).wait().0.unwrap();
                }
            });
        }
    });
    // A lost wake-up would show as a wait for one of the bounds.
    assert!(start.elapsed() < LONG);
}

fn concurrent_tasks_on_tokio(on: &str) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        const TASKS: u64 = 64;
        const ROUNDS: usize = 40;
        let (a, b) = pair(on, Progress::Background);
        let mut tasks = Vec::new();
        for tag in 0..TASKS {
            let (ep, peer) = a.clone();
            tasks.push(tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let sent = pattern(round * 100, tag as usize);
                    let (outcome, sent) = ep.tsend(sent, tag, peer).await;
                    outcome.unwrap();
                    let (outcome, back) = ep.trecv(vec![0; sent.len()], tag, 0, peer).await;
                    outcome.unwrap();
                    assert!(back == sent);
                }
            }));
            let (ep, peer) = b.clone();
            tasks.push(tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let (outcome, buf) = ep.trecv(vec![0; round * 100], tag, 0, peer).await;
                    outcome.unwrap();
                    ep.tsend(buf, tag, peer).await.0.unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// A test in tokio's event loop, on one thread.
fn on_one_thread(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(test);
}

/// Drives a domain from tokio's own event loop.
#[expect(
    deprecated,
    reason = "`register`, which follows `new`, asks for a promise in `unsafe` that a driver keeps"
)]
async fn drive(domain: Domain) {
    let fd = AsyncFd::<Driver>::new(domain.driver()).unwrap();
    loop {
        let mut ready = fd.readable().await.unwrap();
        if fd.get_ref().turn() == Turn::Idle {
            ready.clear_ready();
        }
    }
}

fn a_domain_driven_by_tokio(on: &str) {
    on_one_thread(async {
        let (a, b) = pair(on, Progress::Manual);
        let drivers = [
            tokio::spawn(drive(a.0.domain())),
            tokio::spawn(drive(b.0.domain())),
        ];
        let other = tokio::spawn(async move { pong(&b, 300).await });
        tokio::time::timeout(LONG, ping(&a, 300)).await.unwrap();
        other.await.unwrap();
        // Large ones, which take many turns.
        drivers.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

fn large_messages_with_tokio_s_loop(on: &str) {
    on_one_thread(async {
        let ((a, to_b), (b, to_a)) = pair(on, Progress::Manual);
        let drivers = [
            tokio::spawn(drive(a.domain())),
            tokio::spawn(drive(b.domain())),
        ];
        for size in [1 << 20, 16 << 20] {
            let send = a.tsend(pattern(size, 1), 5, to_b);
            let receive = b.trecv(vec![0; size], 5, 0, to_a);
            let work = async { (send.await, receive.await) };
            let ((sent, from), (received, into)) = tokio::time::timeout(LONG, work).await.unwrap();
            assert_eq!((sent.unwrap().len, received.unwrap().len), (size, size));
            assert!(from == into);
        }
        drivers.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

fn one_waiter_among_many_gets_each_message(on: &str) {
    on_one_thread(async {
        let ((a, to_b), (b, to_a)) = pair(on, Progress::Background);
        let count = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let (b, count) = (b.clone(), Arc::clone(&count));
                tokio::spawn(async move {
                    b.recv(vec![0; 8], to_a).await.0.unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        for i in 0..200u64 {
            a.send(i.to_ne_bytes().to_vec(), to_b).await.0.unwrap();
        }
        for task in tasks {
            tokio::time::timeout(LONG, task).await.unwrap().unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), 200);
    });
}

fn time_limits_hold(on: &str) {
    for progress in [Progress::Background, Progress::Manual] {
        let ((_, _), (b, to_a)) = pair(on, progress);
        let start = Instant::now();
        let receive = b.recv(vec![0; 8], to_a);
        let receive = receive.wait_timeout(Duration::from_millis(50)).unwrap_err();
        assert!(start.elapsed() >= Duration::from_millis(50));
        assert!(start.elapsed() < LONG);
        let receive = receive.wait_timeout(Duration::ZERO).unwrap_err();
        drop(receive);
        while b.domain().outstanding() > 0 {
            b.domain().progress();
        }
    }
}

on_both! {
    futures_without_a_runtime,
    futures_driven_by_the_waiting_thread,
    operations_polled_in_a_loop,
    many_threads_wait_on_one_undriven_domain,
    time_limits_hold,
    concurrent_tasks_on_tokio,
    a_domain_driven_by_tokio,
    large_messages_with_tokio_s_loop,
    one_waiter_among_many_gets_each_message,
}
