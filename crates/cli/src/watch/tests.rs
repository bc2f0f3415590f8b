//! Ways through made-up processes.

use std::path::PathBuf;
use std::time::Duration;

use ripstop_core::status::{Endpoint, Snapshot, Wait, WaitKind};
use ripstop_os::ProcStat;

use super::follow::{Cause, Way, follow};
use super::process::{Activity, Domain, Process};
use super::why;

const S: Duration = Duration::from_secs(1);

fn wait(kind: WaitKind, rank: u32, seconds: u64) -> Wait {
    Wait {
        kind,
        endpoint: 1,
        call: "fi_trecv".to_owned(),
        peer: Some(format!("fi_shm://{rank}")),
        pid: None,
        tag: None,
        len: 8,
        age: seconds * 1_000_000_000,
        count: 1,
        note: String::new(),
    }
}

fn any(seconds: u64) -> Wait {
    Wait {
        peer: None,
        ..wait(WaitKind::AnyReceive, 0, seconds)
    }
}

fn domain(rank: u32, waits: Vec<Wait>) -> Domain {
    Domain {
        path: PathBuf::new(),
        written: S,
        age: S,
        polled: S,
        sleepers: 0,
        shown: Snapshot {
            provider: "shm".to_owned(),
            program: "a.out".to_owned(),
            rank: Some(rank),
            has_thread: false,
            sleeps_outside: false,
            endpoints: vec![Endpoint {
                id: 1,
                name: format!("fi_shm://{rank}"),
                is_msg: false,
                outstanding: 0,
                receives: 0,
            }],
            peers: Vec::new(),
            all_peers: 0,
            all_waits: waits.len() as u32,
            waits,
            counters: Vec::new(),
            queues: Vec::new(),
            ways: None,
        },
    }
}

/// Rank N has the number 100 + N.
fn process(rank: u32, activity: Activity, waits: Vec<Wait>) -> Process {
    Process {
        pid: 100 + rank,
        activity,
        domains: vec![domain(rank, waits)],
    }
}

fn cause(processes: &[Process]) -> String {
    let way = follow(processes, &processes[0]);
    why::cause(&processes[0], &way)
}

#[test]
fn a_chain_leads_to_the_one_that_was_stopped() {
    let receive = |rank| vec![wait(WaitKind::Receive, rank, 50), any(60)];
    let processes = [
        process(3, Activity::Polls, receive(2)),
        process(2, Activity::Sleeps, receive(1)),
        process(1, Activity::Stopped(S * 41), receive(3)),
    ];
    let way = follow(&processes, &processes[0]);
    assert_eq!(way.steps.len(), 2);
    assert_eq!(
        cause(&processes),
        "cause: rank 2 (pid 102) waits for a message of rank 1 (pid 101), whose process has not polled \
         for 41 s (stopped by a signal); kill -CONT 101 lets it go on"
    );
}

/// A process that is gone explains more than one that is idle, though that is nearer.
#[test]
fn the_most_telling_cause_is_named() {
    let mut first = vec![
        wait(WaitKind::Announced, 1, 90),
        wait(WaitKind::Receive, 2, 50),
    ];
    let dead = process(3, Activity::Ended(S * 9), Vec::new());
    let processes = [
        process(0, Activity::Polls, first.clone()),
        process(1, Activity::Polls, vec![any(99)]),
        process(2, Activity::Polls, vec![wait(WaitKind::Unsent, 3, 40)]),
        dead,
    ];
    assert!(
        cause(&processes)
            .contains("rank 3 (pid 103) to read what it was sent, whose process has ended")
    );
    first.truncate(1);
    let two = [process(0, Activity::Polls, first), processes[1].clone()];
    let said = cause(&two);
    assert!(
        said.contains("has not posted a receive that fits"),
        "{said}"
    );
    assert!(
        said.contains("only for any peer: fi_trecv (8 bytes)"),
        "{said}"
    );
}

#[test]
fn members_that_join_different_groups_are_a_circle() {
    let processes = [
        process(0, Activity::Polls, vec![wait(WaitKind::Join, 1, 8)]),
        process(1, Activity::Polls, vec![wait(WaitKind::Join, 2, 8)]),
        process(2, Activity::Polls, vec![wait(WaitKind::Join, 1, 8)]),
    ];
    let way = follow(&processes, &processes[0]);
    assert!(
        matches!(
            way,
            Way {
                cause: Cause::Circle(1),
                ..
            }
        ),
        "{way:?}"
    );
    assert_eq!(
        cause(&processes),
        "cause: a circle, each waits for the next: rank 1 (pid 101) -> rank 2 (pid 102) -> rank 1 (pid 101)"
    );
}

#[test]
fn what_has_not_lasted_is_not_followed() {
    let young = Wait {
        age: 900_000_000,
        ..wait(WaitKind::Receive, 1, 0)
    };
    let processes = [
        process(0, Activity::Polls, vec![young]),
        process(1, Activity::Stopped(S), Vec::new()),
    ];
    assert!(cause(&processes).contains("waits for nothing that has lasted a second"));
}

#[test]
fn a_peer_that_shows_nothing_is_said_to_be_unseen() {
    let processes = [process(
        0,
        Activity::Polls,
        vec![wait(WaitKind::Receive, 7, 8)],
    )];
    assert!(cause(&processes).contains("fi_shm://7, of which nothing is seen on this machine"));
}

#[test]
fn messages_without_receives_are_the_cause_where_they_lie() {
    let processes = [
        process(0, Activity::Polls, vec![wait(WaitKind::Unsent, 1, 8)]),
        process(1, Activity::Polls, vec![wait(WaitKind::Unread, 0, 9)]),
    ];
    let said = cause(&processes);
    assert!(
        said.contains("rank 1 (pid 101) has posted no receives for 1 messages of fi_shm://0"),
        "{said}"
    );
}

#[test]
fn what_a_process_does_is_told_by_the_system_and_its_page() {
    let of = |state, polled: u32, sleepers| {
        let stat = ProcStat { state, start: 1 };
        let mut domain = domain(0, Vec::new());
        domain.polled = S * polled;
        domain.sleepers = sleepers;
        Activity::of(Some(stat), &[domain])
    };
    assert_eq!(of('R', 1, 0), Activity::Polls);
    assert_eq!(of('S', 9, 1), Activity::Sleeps);
    assert_eq!(of('S', 9, 0), Activity::Away(S * 9));
    assert_eq!(of('R', 9, 0), Activity::Computes(S * 9));
    assert_eq!(of('T', 9, 1), Activity::Stopped(S * 9));
    assert_eq!(of('t', 9, 0), Activity::Traced(S * 9));
    assert_eq!(of('Z', 9, 0), Activity::Ended(S));
    assert_eq!(Activity::of(None, &[]), Activity::Ended(Duration::ZERO));
}
