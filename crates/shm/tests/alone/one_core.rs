//! Two endpoints whose threads share one processor.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ripstop_core::provider::CompletionQueue as _;
use ripstop_mem::Parked;
use ripstop_types::{Errno, FiAddr, Threading};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::common::{End, Safe, bytes, info, open, pattern, safe};
use crate::turn;

/// Many times the size of the rings.
const LEN: usize = 1 << 20;
const COUNT: usize = 32;

/// The processor time of this thread.
fn used() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap()
}

/// Pins this thread to the first processor of the process.
fn pin() {
    let allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
    let mut set = CpuSet::new();
    set.set(first.unwrap());
    sched_setaffinity(None, &set).unwrap();
}

/// Polls as programs do: without ever letting others run.
fn spin(end: &End<Safe>, mut turn: impl FnMut()) {
    loop {
        match end.cq.read(1, |_| ()) {
            Ok(_) => return,
            Err(error) => assert_eq!(error, Errno::EAGAIN),
        }
        turn();
    }
}

/// What it costs where one thread drives both ends in turn, which never wait for each other.
fn in_turn(from: &End<Safe>, at: &End<Safe>, to: FiAddr, text: &Parked, room: &Parked) -> Duration {
    let start = used();
    for _ in 0..COUNT {
        at.post(room);
        from.send(text, to).unwrap();
        spin(at, || {
            let _ = from.cq.read(0, |_| ());
        });
        spin(from, || ());
    }
    used() - start
}

/// Ends that poll for a long message, each for its part of it, leave each other the processor
/// when they cannot go on, rather than when the system takes it away.
#[test]
fn ends_on_one_core_yield_to_each_other() {
    let _turn = turn();
    // The thread of the test may run others afterwards.
    thread::scope(|scope| scope.spawn(both_on_one_core).join().unwrap());
}

fn both_on_one_core() {
    pin();
    let info = info(None, Threading::Safe);
    let [from, at] = [(); 2].map(|()| open(&safe(&info), &info));
    let to = from.knows(&at.name());
    let (text, room) = (Parked::park(pattern(LEN, 1)), Parked::park(vec![0; LEN]));
    in_turn(&from, &at, to, &text, &room);
    let alone = in_turn(&from, &at, to, &text, &room);
    let (posted, wait) = mpsc::channel();
    let both = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            pin();
            let start = used();
            for () in wait {
                from.send(&text, to).unwrap();
                spin(&from, || ());
            }
            used() - start
        });
        let start = used();
        for _ in 0..COUNT {
            at.post(&room);
            posted.send(()).unwrap();
            spin(&at, || ());
        }
        let received = used() - start;
        drop(posted);
        received + sender.join().unwrap()
    });
    assert_eq!(bytes(room), pattern(LEN, 1));
    drop(bytes(text));
    assert!(both < 60 * alone, "{both:?} together, {alone:?} in turn");
}
