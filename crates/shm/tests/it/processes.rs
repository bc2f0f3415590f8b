//! Endpoints of several processes, some of which are killed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::common::other::{Other, tell_parent};
use crate::common::{self, End, bytes, info, info_for, open, pattern, safe};
use ripstop_core::Address;
use ripstop_core::provider::{CompletionQueue as _, Endpoint as _, RecvKind, SendKind};
use ripstop_mem::Parked;
use ripstop_types::{Errno, Flags, Progress, Threading};
use rustix::time::ClockId;

const ROLE: &str = "RIPSTOP_SHM_TEST_ROLE";
const PARENT: &str = "RIPSTOP_SHM_TEST_PARENT";

/// So many messages of 8 bytes are kept without a receive (`FI_SHM_MAX_SAVED_BYTES`).
const KEPT: u32 = (64 << 20) / (8 + 256);

const STUCK: &str = "RIPSTOP_SHM_TEST_STUCK";

/// A file that is there once a peer is stuck.
fn stuck(role: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("ripstop-shm-stuck-{role}-{}", ripstop_os::pid()))
}

/// The memory files that a process has mapped.
fn mapped(process: &str) -> BTreeSet<String> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let files = maps.lines().filter(|line| line.contains("/memfd:"));
    let inodes = files.filter_map(|line| line.split_ascii_whitespace().nth(4));
    inodes.map(str::to_owned).collect()
}

type Here = End<common::Safe>;

fn here() -> Here {
    let info = info(None, Threading::Safe);
    open(&safe(&info), &info)
}

/// Another process with an endpoint; killed when it is dropped.
struct There {
    child: Other,
    name: Address,
}

impl There {
    fn start(role: &str, parent: &Here) -> Self {
        let (parent, stuck) = (parent.name().to_string(), stuck(role));
        let child = Other::start(
            "processes::subprocess_peer",
            &[
                (ROLE, role),
                (PARENT, &parent),
                (STUCK, stuck.to_str().unwrap()),
            ],
        );
        let name = Address::Str(child.hear());
        Self { child, name }
    }
}

/// What the other processes run; in this one it does nothing.
#[test]
fn subprocess_peer() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let end = here();
    tell_parent(end.name());
    let parent = end.knows(&Address::Str(std::env::var(PARENT).unwrap()));
    let stop = Instant::now() + 10 * common::PATIENCE;
    loop {
        assert!(Instant::now() < stop, "nobody kills this process");
        match role.as_str() {
            "echo" => {
                let room = Parked::park(vec![0; 300_000]);
                end.post(&room);
                end.sleep(1);
                end.send(&room, parent).unwrap();
                end.poll(1);
                drop(bytes(room));
            }
            // It connects, and takes and gives nothing.
            "deaf" => {
                let text = Parked::park(vec![1; 8]);
                end.send(&text, parent).unwrap();
                end.poll(1);
                drop(bytes(text));
                std::thread::sleep(10 * common::PATIENCE);
            }
            // It sends without end.
            "loud" => {
                let text = Parked::park(pattern(100_000, 1));
                if end.send(&text, parent).is_ok() {
                    end.poll(1);
                }
                drop(bytes(text));
            }
            // It sends more than the other side keeps without a receive, and says when.
            "flood" => {
                let text = Parked::park(vec![1; 8]);
                let long = Duration::from_millis(200);
                let mut stuck = Instant::now();
                let (mut on_their_way, mut sent_whole) = (0, 0);
                while stuck.elapsed() < long || sent_whole <= KEPT {
                    let kind = SendKind::Msg;
                    let sent = end.ep.send(kind, &[text.buf()], None, parent, 2, None);
                    if sent.is_ok() {
                        on_their_way += 1;
                    }
                    while on_their_way > 0 && end.cq.read(1, |_| ()).is_ok() {
                        on_their_way -= 1;
                        sent_whole += 1;
                        stuck = Instant::now();
                    }
                }
                let said = std::env::var(STUCK).unwrap();
                std::fs::write(said, "stuck").unwrap();
                std::thread::sleep(10 * common::PATIENCE);
            }
            // It sends more in one message than the other side keeps without a receive.
            "large" => {
                let text = Parked::park(vec![1; 300_000_000]);
                end.send(&text, parent).unwrap();
                let sent = end.cq.sread(1, 1, Some(Duration::from_millis(300)), |_| ());
                assert_eq!(sent, Err(Errno::EAGAIN));
                std::fs::write(std::env::var(STUCK).unwrap(), "stuck").unwrap();
                std::thread::sleep(Duration::from_secs(60));
                drop(bytes(text));
            }
            other => panic!("no role {other}"),
        }
    }
}

fn echo(here: &Here, to: ripstop_types::FiAddr, sleeps: bool) {
    let (room, text) = (
        Parked::park(vec![0; 300_000]),
        Parked::park(pattern(300_000, 7)),
    );
    here.post(&room);
    here.send(&text, to).unwrap();
    match sleeps {
        true => here.sleep(2),
        false => here.poll(2),
    }
    assert_eq!(bytes(room), pattern(300_000, 7));
    drop(bytes(text));
}

#[test]
fn processes_exchange_messages() {
    let here = here();
    let there = There::start("echo", &here);
    let to = here.knows(&there.name);
    for round in 0..20 {
        echo(&here, to, round % 2 == 0);
    }
}

/// Where attempts to connect are not repeated: the parameter says how long, and is read once.
#[test]
fn subprocess_without_patience() {
    if std::env::var(ROLE).is_err() {
        return;
    }
    let here = here();
    let name = format!("mine://ripstop-late-{}", ripstop_os::pid());
    let to = here.knows(&Address::Str(name.clone()));
    let text = Parked::park(pattern(8, 1));
    for _ in 0..2 {
        assert_eq!(here.send(&text, to), Err(Errno::ECONNREFUSED));
    }
    let info = info(Some(&name), Threading::Safe);
    let there = open(&safe(&info), &info);
    let room = Parked::park(vec![0; 8]);
    there.post(&room);
    here.send(&text, to).unwrap();
    let stop = Instant::now() + common::PATIENCE;
    let mut left = [(&here, true), (&there, true)];
    while left.iter().any(|(_, waits)| *waits) {
        assert!(Instant::now() < stop, "the message does not arrive");
        for (end, waits) in &mut left {
            match end.cq.read(1, |_| ()) {
                Ok(_) => *waits = false,
                Err(error) => assert_eq!(error, Errno::EAGAIN),
            }
        }
    }
    assert_eq!(bytes(room), pattern(8, 1));
    drop(bytes(text));
    tell_parent("done");
}

/// The connection is given up in the call that opens it; each later one opens another.
#[test]
fn a_peer_that_no_time_was_left_to_reach_is_reached_once_it_listens() {
    let variables = [(ROLE, "without patience"), ("FI_SHM_CONNECT_TIMEOUT", "1")];
    let other = Other::start("processes::subprocess_without_patience", &variables);
    assert_eq!(other.hear(), "done");
}

#[test]
fn operations_on_a_killed_peer_fail_in_time() {
    let here = here();
    let other = There::start("echo", &here);
    let other_addr = here.knows(&other.name);
    echo(&here, other_addr, false);
    let room = Parked::park(vec![0; 8]);
    here.post(&room);
    let mut there = There::start("deaf", &here);
    let to = here.knows(&there.name);
    here.poll(1);
    assert_eq!(bytes(room), [1; 8]);
    // More than the rings have room for.
    let text = Parked::park(vec![5; 10_000_000]);
    here.send(&text, to).unwrap();
    let pause = Instant::now() + Duration::from_millis(50);
    while Instant::now() < pause {
        assert_eq!(here.cq.read(1, |_| ()), Err(Errno::EAGAIN));
    }
    there.child.kill();
    let killed = Instant::now();
    here.fails();
    assert!(killed.elapsed() < common::noticed_within());
    drop(bytes(text));
    // Nobody else is disturbed.
    echo(&here, other_addr, true);
}

/// A directed receive fails too, although nothing was sent to the peer for it.
#[test]
fn directed_receive_from_a_killed_peer_fails_in_time() {
    let caps = Flags::MSG | Flags::SOURCE | Flags::DIRECTED_RECV;
    let info = info_for(caps, None, Threading::Safe, Progress::Manual);
    let here = open(&safe(&info), &info);
    let mut there = There::start("deaf", &here);
    let to = here.knows(&there.name);
    let rooms = [(); 2].map(|()| Parked::park(vec![0; 8]));
    for room in &rooms {
        let posted = here.ep.recv(RecvKind::Msg, &[room.buf()], to, 1, None);
        posted.unwrap();
    }
    here.poll(1);
    there.child.kill();
    let killed = Instant::now();
    here.fails();
    assert!(killed.elapsed() < common::noticed_within());
    rooms.into_iter().for_each(|room| drop(bytes(room)));
}

/// Though what it sent before cannot be read to its end, since there are no receives for it.
#[test]
fn killed_peer_with_unread_messages_keeps_nobody_awake() {
    let here = here();
    let _ = std::fs::remove_file(stuck("flood"));
    let mut there = There::start("flood", &here);
    let to = here.knows(&there.name);
    // More than it keeps.
    let text = Parked::park(vec![5; 300_000_000]);
    here.send(&text, to).unwrap();
    let stop = Instant::now() + common::PATIENCE;
    while !stuck("flood").exists() {
        assert!(Instant::now() < stop, "it goes on for ever");
        assert_eq!(here.cq.read(1, |_| ()), Err(Errno::EAGAIN));
    }
    std::fs::remove_file(stuck("flood")).unwrap();
    // This side may have been away.
    let stop = Instant::now() + Duration::from_millis(100);
    while Instant::now() < stop {
        assert_eq!(here.cq.read(1, |_| ()), Err(Errno::EAGAIN));
    }
    there.child.kill();
    let killed = Instant::now();
    // Nothing fails at once: the program may have the receives yet.
    let long = Duration::from_millis(300);
    let used = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    let slept = here.cq.sread(1, 1, Some(long), |_| ());
    let took = killed.elapsed();
    let used = Duration::try_from(rustix::time::clock_gettime(ClockId::ThreadCPUTime) - used);
    // Where it was not let run for a while, what it sent has failed when it looks again.
    assert!(
        slept == Err(Errno::EAGAIN) || slept == Err(Errno::EAVAIL) && took > long,
        "{slept:?} after {took:?}"
    );
    assert!(used.unwrap() < long / 3, "it spins: {used:?}");
    here.fails();
    assert!(killed.elapsed() < common::noticed_within());
    drop(bytes(text));
}

/// It cannot be received any more, so it must not hold memory.
#[test]
fn partial_message_of_a_killed_peer_is_freed() {
    let here = here();
    let role = "large";
    // The peer maps this side's status page as well.
    let own = mapped("self");
    let _ = std::fs::remove_file(stuck(role));
    let mut there = There::start(role, &here);
    let stop = Instant::now() + common::PATIENCE;
    while !stuck(role).exists() {
        assert!(Instant::now() < stop, "it goes on for ever");
        assert_eq!(here.cq.read(1, |_| ()), Err(Errno::EAGAIN));
    }
    std::fs::remove_file(stuck(role)).unwrap();
    let theirs = &mapped(&there.child.id()) - &own;
    let shared = || !mapped("self").is_disjoint(&theirs);
    assert!(shared(), "the memory of the pair");
    there.child.kill();
    let killed = Instant::now();
    while shared() {
        assert!(killed.elapsed() < common::noticed_within(), "it is held");
        assert_eq!(here.cq.read(1, |_| ()), Err(Errno::EAGAIN));
    }
}

#[test]
fn peer_killed_under_load_leaves_no_partial_message() {
    let here = here();
    for round in 0..12_u64 {
        let mut there = There::start("loud", &here);
        let stop = Instant::now() + Duration::from_millis(3 + 7 * round);
        let mut rooms = Vec::new();
        let mut got = 0;
        while Instant::now() < stop {
            if rooms.len() == got {
                let room = Parked::park(vec![0xee; 100_000]);
                here.post(&room);
                rooms.push(room);
            }
            got += here.cq.read(1, |_| ()).unwrap_or(0);
        }
        there.child.kill();
        // What was on its way when it died arrives whole or not at all; a receive that had begun
        // ends in an error.
        let pause = Instant::now() + Duration::from_millis(300);
        let stop = Instant::now() + common::PATIENCE;
        let mut failed = 0;
        while Instant::now() < pause || got + failed < rooms.len() {
            assert!(Instant::now() < stop, "a receive neither waits nor ends");
            match here.cq.read(1, |_| ()) {
                Ok(count) => got += count,
                Err(Errno::EAVAIL) => {
                    here.cq.read_error(|_, _| ()).unwrap();
                    failed += 1;
                }
                Err(error) => assert_eq!(error, Errno::EAGAIN),
            }
            if Instant::now() >= pause && got + failed < rooms.len() {
                // Nobody sends any more: either the last receive still waits, or it has begun and
                // is about to end.
                let cancelled = here.ep.cancel(ripstop_types::Context::from(1_usize));
                assert!(matches!(cancelled, Ok(()) | Err(Errno::ENOENT)));
            }
        }
        assert!(got + failed <= rooms.len(), "{got} and {failed}");
        for (index, room) in rooms.into_iter().enumerate() {
            let found = bytes(room);
            if index < got {
                assert_eq!(found, pattern(100_000, 1), "message {index} of {got}");
            }
        }
    }
}
