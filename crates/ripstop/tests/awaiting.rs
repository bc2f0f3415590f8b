//! Tasks that poll before they sleep: others get their turn, nobody misses a wake-up, and nothing
//! spins for long.

mod common;

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::{LONG, Side, between, hints, pair, pattern, rdm};
use ripstop::{Address, Domain, Progress, Source};
use tokio::runtime::{Builder, Runtime};

/// Where the other process finds the one that started it.
const ADDRESS: &str = "RIPSTOP_TEST_ADDRESS";

/// Set where the process is on one processor.
const PINNED: &str = "RIPSTOP_TEST_PINNED";

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn two_threads() -> Runtime {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap()
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, what).await.unwrap()
}

/// Answers 8 bytes, until it is sent none.
async fn answer((ep, peer): Side) {
    loop {
        let (outcome, mut buf) = ep.recv(vec![0; 8], peer).await;
        let len = outcome.unwrap().len;
        if len == 0 {
            return;
        }
        buf.truncate(len);
        ep.send(buf, peer).await.0.unwrap();
    }
}

/// A round trip of 8 bytes.
async fn ask((ep, peer): &Side) {
    ep.send(vec![1; 8], *peer).await.0.unwrap();
    assert_eq!(ep.recv(vec![0; 8], *peer).await.0.unwrap().len, 8);
}

async fn dismiss((ep, peer): &Side) {
    ep.send(Vec::new(), *peer).await.0.unwrap();
}

/// Every reply comes while the task polls, so that it never has to sleep: a clock and another task
/// get on all the same.
fn others_get_their_turn_beside_a_ping_pong(on: &str) {
    let (a, b) = pair(on, Progress::Background);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let domain = b.0.domain();
            domain.block_on(answer(b));
        });
        one_thread().block_on(soon(async {
            let over = Arc::new(AtomicBool::new(false));
            let turns = Arc::new(AtomicUsize::new(0));
            let other = tokio::spawn({
                let (over, turns) = (Arc::clone(&over), Arc::clone(&turns));
                async move {
                    while !over.load(Ordering::Relaxed) {
                        turns.fetch_add(1, Ordering::Relaxed);
                        tokio::task::yield_now().await;
                    }
                }
            });
            let clock = tokio::spawn({
                let over = Arc::clone(&over);
                async move {
                    for _ in 0..20 {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                    over.store(true, Ordering::Relaxed);
                }
            });
            while !over.load(Ordering::Relaxed) {
                ask(&a).await;
            }
            clock.await.unwrap();
            other.await.unwrap();
            assert!(turns.load(Ordering::Relaxed) >= 20);
            dismiss(&a).await;
        }));
    });
}

/// Polls for as long as it takes, and the clock of the same thread goes on.
fn a_clock_runs_beside_a_wait_that_never_sleeps(on: &str) {
    let open = || hints(on).busy_poll(Duration::MAX).open().unwrap();
    let (a, b) = between(&open(), &open());
    for runtime in [one_thread(), two_threads()] {
        runtime.block_on(soon(async {
            let receive = tokio::spawn({
                let (ep, peer) = b.clone();
                async move { ep.recv(vec![0; 8], peer).await.0.unwrap().len }
            });
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            a.0.send(vec![1; 8], a.1).await.0.unwrap();
            assert_eq!(receive.await.unwrap(), 8);
        }));
    }
}

/// Gaps of all lengths, from those that are polled for to those that are slept through.
const GAPS: [u64; 8] = [0, 30, 300, 0, 90, 2_000, 0, 150];

async fn out_of_step(a: Side, b: Side, rounds: usize) {
    const TASKS: usize = 24;
    let mut tasks = Vec::new();
    for number in 0..TASKS {
        let tag = number as u64;
        let gap = move |round: usize| Duration::from_micros(GAPS[(number + round) % GAPS.len()]);
        let (ep, peer) = a.clone();
        tasks.push(tokio::spawn(async move {
            for round in 0..rounds {
                if round % 3 == number % 3 {
                    tokio::time::sleep(gap(round)).await;
                }
                let sent = pattern(round * 40, number);
                let (outcome, sent) = ep.tsend(sent, tag, peer).await;
                outcome.unwrap();
                let (outcome, back) = ep.trecv(vec![0; sent.len()], tag, 0, peer).await;
                outcome.unwrap();
                assert!(back == sent);
            }
        }));
        let (ep, peer) = b.clone();
        tasks.push(tokio::spawn(async move {
            for round in 0..rounds {
                let (outcome, buf) = ep.trecv(vec![0; round * 40], tag, 0, peer).await;
                outcome.unwrap();
                if (round + number) % 5 == 0 {
                    tokio::time::sleep(gap(round + 1)).await;
                }
                ep.tsend(buf, tag, peer).await.0.unwrap();
            }
        }));
    }
    for task in tasks {
        soon(task).await.unwrap();
    }
}

fn many_tasks_out_of_step(on: &str) {
    for runtime in [one_thread(), two_threads()] {
        let (a, b) = pair(on, Progress::Background);
        runtime.block_on(out_of_step(a, b, 60));
    }
}

fn both_sides_in_one_domain(on: &str) {
    for busy_poll in [Duration::ZERO, Domain::BUSY_POLL, Duration::MAX] {
        for runtime in [one_thread(), two_threads()] {
            let domain = hints(on).busy_poll(busy_poll).open().unwrap();
            let (a, b) = between(&domain, &domain);
            runtime.block_on(out_of_step(a, b, 20));
        }
    }
}

/// The task that polls for all goes away in the middle of it.
fn a_task_that_polls_for_others_is_aborted(on: &str) {
    for runtime in [one_thread(), two_threads()] {
        let (a, b) = pair(on, Progress::Background);
        runtime.block_on(soon(async {
            for round in 0..300 {
                let wait = |tag: u64| {
                    let (ep, peer) = b.clone();
                    async move { ep.trecv(vec![0; 8], tag, 0, peer).await.0.unwrap().len }
                };
                // It goes first, and so it polls.
                let gone = tokio::spawn(wait(1));
                let stays = tokio::spawn(wait(2));
                for _ in 0..round % 4 {
                    tokio::task::yield_now().await;
                }
                gone.abort();
                a.0.tsend(vec![1; 8], 2, a.1).await.0.unwrap();
                assert_eq!(stays.await.unwrap(), 8);
                assert!(gone.await.unwrap_err().is_cancelled());
            }
        }));
    }
}

/// Receives are dropped and made anew, while messages come at any moment.
fn waits_with_a_limit_lose_no_message(on: &str) {
    const MESSAGES: usize = 400;
    let (a, b) = pair(on, Progress::Background);
    one_thread().block_on(soon(async {
        let sender = tokio::spawn(async move {
            for number in 0..MESSAGES {
                if number % 7 == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                a.0.send(number.to_ne_bytes().to_vec(), a.1)
                    .await
                    .0
                    .unwrap();
            }
            a
        });
        let mut number = 0;
        while number < MESSAGES {
            tokio::select! {
                biased;
                (outcome, buf) = b.0.recv(vec![0; 8], b.1) => {
                    assert_eq!(outcome.unwrap().len, 8);
                    assert_eq!(buf, number.to_ne_bytes());
                    number += 1;
                }
                () = tokio::task::yield_now() => {}
            }
        }
        sender.await.unwrap();
    }));
}

/// The library's thread stands by while tasks poll; a thread that comes to wait in a call is served.
fn a_thread_waits_beside_tasks_that_poll(on: &str) {
    let (a, b) = pair(on, Progress::Background);
    std::thread::scope(|scope| {
        scope.spawn(|| two_threads().block_on(answer(b.clone())));
        for round in 0..200 {
            match round % 3 {
                0 => a.0.domain().block_on(ask(&a)),
                1 => one_thread().block_on(ask(&a)),
                _ => {
                    a.0.send(vec![1; 8], a.1).wait().0.unwrap();
                    let receive = a.0.recv(vec![0; 8], a.1).wait_timeout(LONG);
                    assert_eq!(receive.unwrap().0.unwrap().len, 8);
                }
            }
        }
        a.0.send(Vec::new(), a.1).wait().0.unwrap();
    });
}

/// Two processes, each with a runtime, on one processor: whoever polls gives the other its turn.
fn two_runtimes_share_a_processor(on: &str) {
    let name = format!("{on}::two_runtimes_share_a_processor");
    if std::env::var_os(PINNED).is_some() {
        return share_a_processor(on, &name);
    }
    let pinned = |program: &OsStr, args: &[&str]| {
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(program).args(args);
        command.env(PINNED, "1").stdout(Stdio::null()).status()
    };
    if !pinned("true".as_ref(), &[]).is_ok_and(|status| status.success()) {
        println!("SKIP: taskset cannot have processor 0");
        return;
    }
    let this = std::env::current_exe().unwrap();
    let status = pinned(this.as_os_str(), &["--exact", &name]);
    assert!(status.unwrap().success());
}

fn share_a_processor(on: &str, name: &str) {
    const ROUNDS: usize = 2_000;
    let peer_of = |domain: &Domain, address: Address| domain.insert(address).unwrap();
    let domain = rdm(on, Progress::Background);
    let endpoint = domain.endpoint().unwrap();
    if let Some(address) = std::env::var(ADDRESS).ok().and_then(|it| it.parse().ok()) {
        let side = (endpoint, peer_of(&domain, address));
        return one_thread().block_on(async {
            side.0.send(b"hello".to_vec(), side.1).await.0.unwrap();
            answer(side).await;
        });
    }
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(ADDRESS, endpoint.address().unwrap().to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    one_thread().block_on(soon(async {
        let (hello, _) = endpoint.recv(vec![0; 5], None).await;
        let Source::Address(address) = hello.unwrap().source else {
            panic!("it is known already");
        };
        let side = (endpoint, peer_of(&domain, address));
        for _ in 0..ROUNDS {
            ask(&side).await;
        }
        dismiss(&side).await;
    }));
    assert!(other.wait().unwrap().success());
}

on_both! {
    others_get_their_turn_beside_a_ping_pong,
    a_clock_runs_beside_a_wait_that_never_sleeps,
    many_tasks_out_of_step,
    both_sides_in_one_domain,
    a_task_that_polls_for_others_is_aborted,
    waits_with_a_limit_lose_no_message,
    a_thread_waits_beside_tasks_that_poll,
    two_runtimes_share_a_processor,
}
