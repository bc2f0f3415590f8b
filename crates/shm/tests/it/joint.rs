//! Long messages that receiver and sender copy together, and senders that are stopped or killed meanwhile.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::other::{Other, tell_parent};
use crate::common::{End, PATIENCE, Safe, bytes, info, open, pattern, safe};
use ripstop_core::Address;
use ripstop_core::provider::{CompletionQueue as _, Domain as _};
use ripstop_mem::Parked;
use ripstop_types::{Errno, Threading};

const PARENT: &str = "RIPSTOP_SHM_TEST_JOINT_PARENT";

/// Lengths of the messages, and the seed of the pattern of the first one.
const LENGTHS: [usize; 4] = [256 << 10, 4 << 20, (1 << 20) + 1, 300_001];
const SEED: usize = 20;

/// How long what a killed sender has sent may take to come.
const GONE: Duration = Duration::from_millis(300);

/// How many messages of one sender are received.
const MESSAGES: usize = 100;

type Here = End<Safe>;

fn here() -> Here {
    let info = info(None, Threading::Safe);
    open(&safe(&info), &info)
}

/// What the other process runs; in this one it does nothing. It sends until it is killed.
#[test]
fn subprocess_sender() {
    let Ok(parent) = std::env::var(PARENT) else {
        return;
    };
    let here = here();
    tell_parent(here.name());
    let parent = here.knows(&Address::Str(parent));
    let texts = LENGTHS.iter().zip(SEED..);
    let texts = texts.map(|(len, seed)| Parked::park(pattern(*len, seed)));
    let texts: Vec<Parked> = texts.collect();
    loop {
        for text in &texts {
            // Fails when the receiver has gone.
            if here.send(text, parent).is_err() {
                return;
            }
        }
        here.poll(texts.len());
    }
}

fn start(here: &Here) -> Other {
    let sender = Other::start(
        "joint::subprocess_sender",
        &[(PARENT, &here.name().to_string())],
    );
    here.knows(&Address::Str(sender.hear()));
    sender
}

/// Receives the next message; `false` if that fails, or if nothing comes of a sender that `is_gone`.
fn receive(here: &Here, index: usize, is_gone: bool) -> bool {
    let len = LENGTHS[index % LENGTHS.len()];
    let room = Parked::park(vec![0; len]);
    here.post(&room);
    let patience = if is_gone { GONE } else { PATIENCE };
    let stop = Instant::now() + patience;
    loop {
        match here.cq.read(1, |_| ()) {
            Ok(_) => break,
            Err(Errno::EAGAIN) if Instant::now() < stop => {}
            Err(Errno::EAGAIN) => {
                assert!(is_gone, "message {index} hangs");
                // It is a receive from anybody, so it is not over, and its memory stays.
                return false;
            }
            Err(_) => {
                here.fails();
                drop(bytes(room));
                return false;
            }
        }
    }
    assert_eq!(bytes(room), pattern(len, SEED + index % LENGTHS.len()));
    true
}

/// A sender that polls copies a part of what it has sent.
#[test]
fn both_sides_copy() {
    if std::thread::available_parallelism().unwrap().get() == 1 {
        println!("SKIP: with one processor the receiver copies alone");
        return;
    }
    let info = info(None, Threading::Safe);
    // On a busy machine each side often copies alone, and a connection that has found the ring faster seldom tries attach again.
    // So new connections are tried until one copy is joint.
    let (stop, mut joint) = (Instant::now() + PATIENCE, 0);
    while joint == 0 {
        assert!(
            Instant::now() < stop,
            "the sender has copied no part of any message"
        );
        let domain = safe(&info);
        let here = open(&domain, &info);
        let mut sender = start(&here);
        for count in 0..MESSAGES {
            assert!(receive(&here, count, false));
        }
        sender.kill();
        let copies = domain.copies().unwrap();
        assert!(copies.joint <= copies.attach.payloads, "{copies}");
        joint = copies.joint;
    }
}

#[test]
fn messages_come_whole_until_their_sender_is_killed() {
    for run in 0..12 {
        let here = here();
        let mut sender = start(&here);
        let kill_at = Instant::now() + Duration::from_millis(20 + 7 * run);
        let (mut count, mut is_gone) = (0, false);
        while receive(&here, count, is_gone) {
            count += 1;
            if !is_gone && Instant::now() >= kill_at {
                sender.kill();
                is_gone = true;
            }
        }
        assert!(is_gone && count > 0, "{count} came");
    }
}

/// A sender that is stopped in the middle of whatever it does holds nobody up for good.
#[test]
fn a_sender_that_is_stopped_goes_on_later() {
    let here = here();
    let sender = start(&here);
    let signal = |signal: &str| {
        let kill = Command::new("kill").args([signal, &sender.id()]).status();
        assert!(kill.unwrap().success());
    };
    let mut count = 0;
    for run in 0..10_u64 {
        let end = Instant::now() + Duration::from_millis(5 + run);
        while Instant::now() < end {
            assert!(receive(&here, count, false));
            count += 1;
        }
        signal("-STOP");
        // The completion queue can be read meanwhile: no call waits for the sender.
        let (began, mut longest) = (Instant::now(), Duration::ZERO);
        let room = Parked::park(vec![0; LENGTHS[count % LENGTHS.len()]]);
        here.post(&room);
        let mut come = 0;
        while began.elapsed() < Duration::from_millis(30) && come == 0 {
            let call = Instant::now();
            match here.cq.read(1, |_| ()) {
                Ok(more) => come += more,
                Err(error) => assert_eq!(error, Errno::EAGAIN),
            }
            longest = longest.max(call.elapsed());
        }
        signal("-CONT");
        here.poll(1 - come);
        let seed = SEED + count % LENGTHS.len();
        assert_eq!(bytes(room), pattern(LENGTHS[count % LENGTHS.len()], seed));
        count += 1;
        assert!(longest < Duration::from_secs(1), "a call took {longest:?}");
    }
}
