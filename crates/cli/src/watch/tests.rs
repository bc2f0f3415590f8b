//! Ways through made-up processes.

use std::path::PathBuf;
use std::time::Duration;

use ripstop_core::provider::Copied;
use ripstop_core::status::{Endpoint, Peer, PeerState, Snapshot, Traffic, Wait, WaitKind, Ways};
use ripstop_os::ProcStat;

use super::follow::{Cause, Way, follow};
use super::process::{Activity, Domain, Process};
use super::{top, why};

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

/// A connection of a process with that rank, as another one shows it.
fn peer(rank: u32, silence: Option<u64>) -> Peer {
    let none = Copied::default();
    Peer {
        endpoint: 1,
        name: format!("fi_shm://{rank}"),
        pid: Some(100 + rank),
        state: PeerState::Up,
        way: "ring".to_owned(),
        protocol: "eager".to_owned(),
        traffic: None,
        ways: Ways {
            stream: none,
            mapped: none,
            attach: none,
        },
        queued: 0,
        unexpected: 0,
        oldest: None,
        silence,
    }
}

fn first(processes: &[Process]) -> Way<'_> {
    follow(processes, &processes[0]).swap_remove(0)
}

fn cause(processes: &[Process]) -> String {
    why::cause(&processes[0], &first(processes))
}

fn others(processes: &[Process]) -> Vec<String> {
    let ways = follow(processes, &processes[0]);
    let others = ways.iter().skip(1);
    others
        .filter_map(|way| why::other(&processes[0], way))
        .collect()
}

#[test]
fn a_chain_leads_to_the_one_that_was_stopped() {
    let receive = |rank| vec![wait(WaitKind::Receive, rank, 50), any(60)];
    let processes = [
        process(3, Activity::Polls, receive(2)),
        process(2, Activity::Sleeps, receive(1)),
        process(1, Activity::Stopped(S * 41), receive(3)),
    ];
    assert_eq!(first(&processes).steps.len(), 2);
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
    let way = first(&processes);
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
        "cause: a circle, each waits for the next: rank 1 (pid 101) -> rank 2 (pid 102) -> rank 1 (pid 101); \
         they join different groups: all members must join the same ones, with the same members in the same \
         order"
    );
}

/// Receives that are posted for each peer from the start make circles in which nothing is wrong.
#[test]
fn a_circle_of_standing_receives_comes_behind_what_was_posted_later() {
    let standing = |rank| wait(WaitKind::Receive, rank, 500);
    let mut processes = [
        process(
            0,
            Activity::Polls,
            vec![standing(1), wait(WaitKind::Receive, 2, 40)],
        ),
        process(1, Activity::Polls, vec![standing(0)]),
        process(2, Activity::Polls, Vec::new()),
    ];
    let said = cause(&processes);
    assert!(
        said.contains(
            "waits for a message of rank 2 (pid 102), which makes progress and waits for nobody"
        ),
        "{said}"
    );
    let others = others(&processes);
    assert_eq!(others.len(), 1, "{others:?}");
    assert!(others[0].starts_with("a circle"), "{others:?}");
    // Two that were posted last, each for the other.
    processes[0].domains[0].shown.waits = vec![wait(WaitKind::Receive, 1, 40), standing(2)];
    let said = cause(&processes);
    assert!(
        said.ends_with("; none has sent the message that the one before it waits for"),
        "{said}"
    );
}

#[test]
fn one_domain_does_not_stand_for_another() {
    let mut other = domain(1, Vec::new());
    other.polled = S * 30;
    let mut both = process(9, Activity::Polls, Vec::new());
    both.domains.push(other);
    let mut processes = [
        process(0, Activity::Polls, vec![wait(WaitKind::Receive, 1, 20)]),
        both,
    ];
    assert_eq!(
        cause(&processes),
        "cause: rank 0 (pid 100) waits for a message of rank 9 (pid 109), which has not polled that domain \
         (shm) for 30 s, though it makes progress in another one; gdb -p 109 or /proc/109/stack shows where \
         it is"
    );
    // The one that is asked about, of itself.
    processes[1].domains[1].shown.waits = vec![wait(WaitKind::Receive, 0, 20)];
    processes[0].domains[0].shown.waits.clear();
    processes.reverse();
    let said = cause(&processes) + &others(&processes).join("/");
    assert!(
        said.contains("rank 9 (pid 109) has not polled a domain (shm) for 30 s in which it waits"),
        "{said}"
    );
    // The library's thread polls it.
    processes[0].domains[1].shown.has_thread = true;
    assert!(!cause(&processes).contains("has not polled"));
}

/// Of a peer that was killed nothing is left in the process that waits for any.
#[test]
fn one_that_was_killed_may_be_the_one_that_any_receive_waits_for() {
    let mut dead = process(1, Activity::Ended(S * 9), Vec::new());
    dead.domains[0].shown.peers.push(peer(0, None));
    let mut processes = [process(0, Activity::Polls, vec![any(20)]), dead];
    assert_eq!(
        cause(&processes),
        "cause: rank 0 (pid 100) waits for a message of any peer, of which rank 1 (pid 101) is one, whose \
         process has ended (seen last 9 s ago)"
    );
    // That was a peer of another process which had this address.
    processes[1].domains[0].shown.peers[0].pid = Some(5);
    assert!(cause(&processes).contains("is stopped, away or gone"));
}

#[test]
fn a_network_that_carries_nothing_is_the_cause_on_either_side() {
    let a = process(0, Activity::Polls, vec![wait(WaitKind::Receive, 1, 20)]);
    let b = process(1, Activity::Polls, vec![wait(WaitKind::Unsent, 0, 20)]);
    let silent = Some(4_000_000_000);
    for side in [0, 1] {
        let mut processes = [a.clone(), b.clone()];
        processes[side].domains[0]
            .shown
            .peers
            .push(peer(1 - side as u32, silent));
        let said = cause(&processes);
        assert!(
            said.contains("a message of rank 1 (pid 101), and the network does not carry")
                && said.contains("nothing has been acknowledged for 4 s"),
            "{side}: {said}"
        );
    }
    // That was seen before the process went away.
    let mut processes = [a.clone(), b];
    processes[1].domains[0].shown.peers.push(peer(0, silent));
    processes[1].domains[0].age = S * 30;
    assert!(!cause(&processes).contains("the network"));
    let mut alone = [a];
    alone[0].domains[0].shown.peers.push(peer(1, silent));
    assert!(cause(&alone).contains("the network does not carry"));
    alone[0].domains[0].shown.waits = vec![any(20)];
    assert!(cause(&alone).contains("the network does not carry"));
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

/// What a process has sent in all to two peers of its endpoint.
fn sending(sent: [(&str, u64); 2], written: Duration) -> Process {
    let mut process = process(1, Activity::Polls, Vec::new());
    let peers = sent.into_iter().zip(2..).map(|((unit, sent), rank)| Peer {
        traffic: Some(Traffic {
            unit: unit.to_owned(),
            sent,
            received: 0,
        }),
        ..peer(rank, None)
    });
    process.domains[0].shown.peers = peers.collect();
    process.domains[0].written = written;
    process
}

#[test]
fn an_endpoint_shows_what_its_peers_have_moved() {
    let before = sending([("entries", 10), ("entries", 5)], S);
    let now = sending([("entries", 110), ("entries", 25)], S * 3);
    let endpoint = |process: &Process, before| {
        let shown = top::to_json(process, before);
        shown["domains"][0]["endpoints"][0]["sent"].clone()
    };
    let sums = endpoint(&now, Some(&before));
    assert_eq!(sums[0]["all"], 135);
    assert_eq!(sums[0]["a_second"], 60.0);
    assert!(top::text(&now, Some(&before)).contains(" 60 entries/s "));
    assert!(top::text(&now, None).contains(" 135 entries "));
    // Over several ways each counts its own.
    let mixed = sending([("entries", 7), ("bytes", 8)], S);
    let sums = endpoint(&mixed, None);
    assert_eq!(
        (&sums[0]["unit"], &sums[1]["unit"]),
        (&"entries".into(), &"bytes".into())
    );
}

#[test]
fn the_rest_of_a_message_is_waited_for_by_name() {
    let all = [
        process(1, Activity::Polls, vec![wait(WaitKind::Arriving, 2, 5)]),
        process(2, Activity::Away(S * 9), Vec::new()),
    ];
    let ways = follow(&all, &all[0]);
    let cause = why::cause(&all[0], &ways[0]);
    assert!(
        cause.contains("waits for the rest of a message of rank 2 (pid 102), whose process"),
        "{cause}"
    );
}
