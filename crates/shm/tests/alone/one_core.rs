//! Two endpoints whose threads share one processor.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ripstop_core::provider::CompletionQueue as _;
use ripstop_mem::Parked;
use ripstop_types::{Errno, FiAddr, Threading};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::common::{End, PATIENCE, Safe, bytes, info, open, pattern, safe};
use crate::turn;

/// Many times the size of the rings.
const LEN: usize = 1 << 20;
/// So few that they may come and go between two time slices of another program.
const COUNT: usize = 4;

/// The processor time of this thread.
fn used() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap()
}

/// Pins this thread to a processor.
fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
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
///
/// Beside a thread that computes they keep it for longer (`YieldPolicy` in `ripstop-stream`), so only an exchange that
/// had the processor for itself is judged.
#[test]
fn ends_on_one_core_yield_to_each_other() {
    let _turn = turn();
    let allowed = sched_getaffinity(None).unwrap();
    let mut processors = (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .cycle();
    let stop = Instant::now() + PATIENCE;
    while Instant::now() < stop {
        let processor = processors.next().unwrap();
        // The thread of the test may run others afterwards.
        let exchange = || both_on(processor);
        let cost = thread::scope(|scope| scope.spawn(exchange).join().unwrap());
        if cost.is_undisturbed() {
            assert!(cost.together < 60 * cost.in_turn, "{cost:?}");
            return;
        }
    }
    println!("SKIP: other programs had the processor during each exchange");
}

/// What an exchange has cost of a processor.
#[derive(Debug)]
struct Cost {
    /// Both ends, where one thread drives them.
    in_turn: Duration,
    /// Both ends, where each has a thread.
    together: Duration,
    /// Whatever else ran there meanwhile.
    others: Duration,
}

impl Cost {
    /// Whether the ends had the processor for themselves. A thread that computes there takes half as much as both, at
    /// least.
    fn is_undisturbed(&self) -> bool {
        self.others < self.together / 4
    }
}

/// An exchange of ends that have not yet met others on their processor.
fn both_on(processor: usize) -> Cost {
    pin(processor);
    let info = info(None, Threading::Safe);
    let [from, at] = [(); 2].map(|()| open(&safe(&info), &info));
    let to = from.knows(&at.name());
    let (text, room) = (Parked::park(pattern(LEN, 1)), Parked::park(vec![0; LEN]));
    in_turn(&from, &at, to, &text, &room);
    let in_turn = in_turn(&from, &at, to, &text, &room);
    let (posted, wait) = mpsc::channel();
    let (together, all) = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            pin(processor);
            let start = used();
            for () in wait {
                from.send(&text, to).unwrap();
                spin(&from, || ());
            }
            used() - start
        });
        let (start, began) = (used(), Instant::now());
        for _ in 0..COUNT {
            at.post(&room);
            posted.send(()).unwrap();
            spin(&at, || ());
        }
        let received = used() - start;
        drop(posted);
        let together = received + sender.join().unwrap();
        (together, began.elapsed())
    });
    assert_eq!(bytes(room), pattern(LEN, 1));
    drop(bytes(text));
    Cost {
        in_turn,
        together,
        others: all.saturating_sub(together),
    }
}
