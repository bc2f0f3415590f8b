//! What a killed peer leaves: errors in time, and every buffer back.

mod common;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{msg, pattern, rdm};
use ripstop::{Address, Endpoint, Op, Progress, Source};

/// Where the other process finds the one that started it; names the test there as well.
const ADDRESS: &str = "RIPSTOP_TEST_ADDRESS";

/// A dead process is noticed at once, and a refused connection after trying for some seconds. It
/// is more than that takes where others want the processor too.
const BOUND: Duration = Duration::from_secs(60);

/// Runs one test of this file in a process of its own, which does its part of it.
fn other_process(test: &str, address: &Address) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test])
        .env(ADDRESS, address.to_string());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// The address, in the other process.
fn started_by() -> Option<Address> {
    std::env::var(ADDRESS).ok()?.parse().ok()
}

fn sleep_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Operations that a dead peer has ended, each with an error that names it.
fn all_ended(ops: Vec<Op<Vec<u8>>>, len: usize, peer: &Address) {
    for (i, op) in ops.into_iter().enumerate() {
        let (outcome, buf) = op.wait();
        let error = outcome.unwrap_err();
        assert_eq!(error.peer(), Some(peer), "{error}");
        assert!(buf == pattern(len, i));
    }
}

/// Sends of which the kernel may have taken the first ones before the peer died.
fn some_ended(ops: Vec<Op<Vec<u8>>>, len: usize) {
    let results: Vec<_> = ops.into_iter().map(Op::wait).collect();
    assert!(results.iter().any(|(outcome, _)| outcome.is_err()));
    let mut buffers = results.iter().map(|(_, buf)| buf).enumerate();
    assert!(buffers.all(|(i, buf)| *buf == pattern(len, i)));
}

fn an_unconnected_peer_is_killed(on: &str) {
    // The other process stops reading once it has said hello.
    let progress = match started_by() {
        Some(_) => Progress::Manual,
        None => Progress::Background,
    };
    let domain = rdm(on, progress);
    let endpoint: Endpoint = domain.endpoint().unwrap();
    if let Some(address) = started_by() {
        let parent = domain.insert(address).unwrap();
        endpoint.send(b"here".to_vec(), parent).wait().0.unwrap();
        sleep_for_ever()
    }
    let child = other_process(
        &format!("{on}::an_unconnected_peer_is_killed"),
        &endpoint.address().unwrap(),
    );
    let (outcome, _) = endpoint.recv(vec![0; 4], None).wait();
    let Source::Address(address) = outcome.unwrap().source else {
        panic!("the peer is not known yet")
    };
    let peer = domain.insert(address.clone()).unwrap();
    // Nobody receives there: these wait for the peer.
    let sends: Vec<_> = (0..8)
        .map(|i| endpoint.tsend(pattern(1 << 20, i), 1, peer))
        .collect();
    let more: Vec<_> = (0..64)
        .map(|i| endpoint.send(pattern(1 << 20, i), peer))
        .collect();
    kill(child);
    let start = Instant::now();
    all_ended(sends, 1 << 20, &address);
    some_ended(more, 1 << 20);
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    // The next one tries to reach it again, in vain.
    let (outcome, buf) = endpoint.send(vec![1; 10], peer).wait();
    assert_eq!(
        (outcome.unwrap_err().peer(), buf),
        (Some(&address), vec![1; 10])
    );
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
}

#[test]
fn a_connected_peer_is_killed() {
    if let Some(address) = started_by() {
        let connection = msg(Progress::Manual).connect(address, b"").wait().unwrap();
        connection.send(b"here".to_vec()).wait().0.unwrap();
        sleep_for_ever()
    }
    let domain = msg(Progress::Background);
    let listener = domain.listen().unwrap();
    let child = other_process("a_connected_peer_is_killed", &listener.address().unwrap());
    let connection = listener.accept().wait().accept(b"").wait().unwrap();
    connection.recv(vec![0; 4]).wait().0.unwrap();
    let address = connection.peer().unwrap();
    let receives: Vec<_> = (0..8).map(|i| connection.recv(pattern(100, i))).collect();
    let sends: Vec<_> = (0..64)
        .map(|i| connection.send(pattern(1 << 20, i)))
        .collect();
    kill(child);
    let start = Instant::now();
    all_ended(receives, 100, &address);
    some_ended(sends, 1 << 20);
    pollster::block_on(connection.closed());
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
}

on_both! {
    an_unconnected_peer_is_killed,
}
