//! What the log says of programs that would hang without a word. Each runs as a process of its own.

mod common;

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::{LONG, hints, local, pair, pattern, rdm};
use ripstop::{Errno, Op, Progress};

/// Tells a process that it is the program.
const PROGRAM: &str = "RIPSTOP_TEST_PROGRAM";

fn is_program() -> bool {
    std::env::var(PROGRAM).is_ok()
}

/// Runs a test of this file as a program, in this environment; returns its log.
fn log_of(test: &str, env: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .env(PROGRAM, "1");
    let Output { status, stderr, .. } = command.envs(env.iter().copied()).output().unwrap();
    let log = String::from_utf8_lossy(&stderr).into_owned();
    assert!(status.success(), "{log}");
    log
}

/// Longer than it takes until something is said.
const TOLD: Duration = Duration::from_secs(12);

fn awaited_without_a_driver(on: &str) {
    if !is_program() {
        let log = log_of(&format!("{on}::awaited_without_a_driver"), &[]);
        assert!(log.contains("nothing has driven"), "{log}");
        assert_eq!(log.matches("nothing has driven").count(), 1, "{log}");
        return;
    }
    let (_, (b, to_a)) = pair(on, Progress::Manual);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let waiting = async { tokio::time::timeout(TOLD, b.recv(vec![0; 8], to_a)).await };
    assert!(runtime.unwrap().block_on(waiting).is_err());
}

fn a_domain_that_is_driven_is_not_spoken_of(on: &str) {
    if !is_program() {
        let log = log_of(
            &format!("{on}::a_domain_that_is_driven_is_not_spoken_of"),
            &[],
        );
        assert!(!log.contains("nothing has driven"), "{log}");
        return;
    }
    let (_, (b, to_a)) = pair(on, Progress::Manual);
    let domain = b.domain();
    let other = b.clone();
    std::thread::scope(|scope| {
        // One task waits in a call that drives, the other somewhere else.
        scope.spawn(|| {
            let waited = other.recv(vec![0; 8], to_a).wait_timeout(TOLD);
            assert!(waited.is_err());
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let driving = async {
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                domain.progress();
            }
        };
        let work = async { tokio::join!(b.recv(vec![0; 8], to_a), driving) };
        let waiting = async { tokio::time::timeout(TOLD, work).await };
        assert!(runtime.unwrap().block_on(waiting).is_err());
    });
}

fn taken(op: Op<Vec<u8>>) -> Vec<u8> {
    let (outcome, buf) = op.wait_timeout(LONG).expect("a message");
    buf[..outcome.unwrap().len].to_vec()
}

fn answers_nobody_takes_stop_a_peer(on: &str) {
    const COUNT: usize = 100;
    if !is_program() {
        let name = format!("{on}::answers_nobody_takes_stop_a_peer");
        let saved = [("FI_TCP_MAX_SAVED", "10"), ("FI_SHM_MAX_SAVED", "10")];
        let log = log_of(&name, &saved);
        assert!(
            log.contains("10 messages of 60 bytes from it wait"),
            "{log}"
        );
        assert_eq!(log.matches("not read any more").count(), 1, "{log}");
        return;
    }
    let ((a, to_b), (b, to_a)) = pair(on, Progress::Background);
    let late: Vec<_> = (0..COUNT).map(|i| a.send(pattern(6, i), to_b)).collect();
    let wanted = a.tsend(pattern(6, 1000), 7, to_b);
    let receive = b.trecv(vec![0; 6], 7, 0, to_a);
    let receive = receive
        .wait_timeout(TOLD)
        .expect_err("it is behind the others");
    // Nothing of another kind or tag is dropped.
    assert_eq!(b.tdiscard(3, 0, None).unwrap(), 0);
    let end = Instant::now() + LONG;
    let mut dropped = 0;
    while dropped < COUNT {
        dropped += b.discard(to_a).unwrap();
        assert!(Instant::now() < end, "{dropped} dropped");
    }
    assert_eq!(taken(receive), pattern(6, 1000));
    for send in late {
        send.wait().0.unwrap();
    }
    wanted.wait().0.unwrap();
    // Those of receives that were dropped, too; and tagged ones.
    let unwanted = b.trecv(vec![0; 6], 8, 0, to_a);
    let told = ripstop::SendMsg::new().tag(8).delivery_complete();
    for i in 0..2 {
        a.sendmsg(pattern(6, i), to_b, told).wait().0.unwrap();
    }
    drop(unwanted);
    assert_eq!(b.tdiscard(8, 0, None).unwrap(), 2);
    assert_eq!(b.tdiscard(0, !0, None).unwrap(), 0);
    let elsewhere = b.discard(to_b).unwrap_err();
    assert_eq!(elsewhere.errno(), Errno::EINVAL);
    assert_eq!(b.domain().outstanding(), 0);
}

/// The line to look for when peers wait for each other: one endpoint may be on the wrong interface.
fn the_log_names_what_an_endpoint_is_open_on(on: &str) {
    if !is_program() {
        let name = format!("{on}::the_log_names_what_an_endpoint_is_open_on");
        let log = log_of(&name, &[("FI_LOG_LEVEL", "info")]);
        let expected = log.lines().find_map(|line| line.split("expected: ").nth(1));
        assert_eq!(log.matches(expected.unwrap()).count(), 2, "{log}");
        return;
    }
    let domain = rdm(on, Progress::Manual);
    let address = domain.endpoint().unwrap().address().unwrap().to_string();
    // Log lines name sockets by address and port alone.
    let address = address.trim_start_matches("fi_sockaddr_in://");
    let interface = domain.info().domain.name.clone().unwrap();
    eprintln!("expected: an endpoint is open on {interface}, with the address {address}");
}

#[test]
fn the_environment_says_how_long_a_peer_may_compute() {
    if !is_program() {
        let time = [("FI_TCP_ANSWER_TIMEOUT", "200")];
        log_of("the_environment_says_how_long_a_peer_may_compute", &time);
        return;
    }
    for on in ["tcp", "tcp;ofi_rxm"] {
        a_peer_may_compute_for_as_long_as_it_is_said(on);
    }
}

fn a_peer_may_compute_for_as_long_as_it_is_said(on: &str) {
    let mute = std::net::TcpListener::bind(local()).unwrap();
    let domain = rdm(on, Progress::Manual);
    let endpoint = domain.endpoint().unwrap();
    let peer = domain.insert(mute.local_addr().unwrap()).unwrap();
    let send = endpoint.send(vec![1], peer);
    let (outcome, _) = send
        .wait_timeout(Duration::from_secs(8))
        .expect("an outcome in time");
    assert_eq!(outcome.unwrap_err().errno(), Errno::ETIMEDOUT);
    // What the program says goes before that.
    let domain = hints(on).answer_timeout(LONG).open().unwrap();
    let endpoint = domain.endpoint().unwrap();
    let peer = domain.insert(mute.local_addr().unwrap()).unwrap();
    let send = endpoint.send(vec![1], peer);
    assert!(send.wait_timeout(Duration::from_secs(3)).is_err());
}

on_both! {
    awaited_without_a_driver,
    a_domain_that_is_driven_is_not_spoken_of,
    answers_nobody_takes_stop_a_peer,
    the_log_names_what_an_endpoint_is_open_on,
}
