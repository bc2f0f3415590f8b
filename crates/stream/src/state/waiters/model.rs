//! Sleepers under loom, which tries every order of what they do: each wait ends, whoever else
//! reads, leaves, calls, or sleeps outside. A lost wake-up is a deadlock, which loom reports.
//!
//! Here are the real [`Waiters`] and [`Calls`]. In the place of sockets, eventfds and epoll there is
//! a [`Kernel`] with their rules, and in that of [`Wait`](crate::wait) the same steps.

use loom::sync::{Condvar, Mutex};
use loom::thread;
use ripstop_engine::id::{CounterId, CqId};
use std::sync::Arc;

use super::{Calls, Doorbell, Waited, Waiters};

/// The descriptors of one domain: a socket, and a doorbell for each sleeper.
struct Kernel {
    descriptors: Mutex<Descriptors>,
    changed: Condvar,
}

#[derive(Default)]
struct Descriptors {
    /// Messages in the socket.
    arrived: u64,
    rung: [bool; 3],
}

impl Kernel {
    fn change(&self, change: impl FnOnce(&mut Descriptors)) {
        change(&mut self.descriptors.lock().unwrap());
        self.changed.notify_all();
    }

    /// Level-triggered: as long as there is something, nobody sleeps.
    fn sleep(&self, doorbell: usize) {
        let mut descriptors = self.descriptors.lock().unwrap();
        while descriptors.arrived == 0 && !descriptors.rung[doorbell] {
            descriptors = self.changed.wait(descriptors).unwrap();
        }
    }

    fn silence(&self, doorbell: usize) {
        self.descriptors.lock().unwrap().rung[doorbell] = false;
    }
}

#[derive(Clone)]
struct Number(Arc<Kernel>, usize);

impl Doorbell for Number {
    fn ring(&self) {
        self.0.change(|descriptors| descriptors.rung[self.1] = true);
    }

    fn is(&self, other: &Self) -> bool {
        self.1 == other.1
    }
}

#[derive(Default)]
struct State {
    /// Of a counter.
    value: u64,
    /// In a queue.
    entries: usize,
    waiters: Waiters<Number>,
}

struct Domain {
    kernel: Arc<Kernel>,
    state: Mutex<State>,
    calls: Mutex<Calls<Number>>,
}

const COUNTER: CounterId = CounterId::FIRST;
const CQ: CqId = CqId::FIRST;

impl Domain {
    fn new() -> Arc<Self> {
        let kernel = Kernel {
            descriptors: Mutex::default(),
            changed: Condvar::new(),
        };
        Arc::new(Self {
            kernel: Arc::new(kernel),
            state: Mutex::new(State::default()),
            calls: Mutex::new(Calls::default()),
        })
    }

    fn doorbell(&self, number: usize) -> Number {
        Number(Arc::clone(&self.kernel), number)
    }

    /// A message from a peer.
    fn arrive(&self) {
        self.kernel.change(|descriptors| descriptors.arrived += 1);
    }

    fn progress(&self, state: &mut State) {
        let mut descriptors = self.kernel.descriptors.lock().unwrap();
        let arrived = std::mem::take(&mut descriptors.arrived);
        drop(descriptors);
        let State {
            value,
            entries,
            waiters,
        } = state;
        *value += arrived;
        *entries += arrived as usize;
        waiters.wake(|what| match what {
            Waited::Cq(_, wanted) => Some(*entries >= wanted),
            Waited::Counter(_, [seen, _]) => Some(*value != seen),
            Waited::Work => None,
        });
    }

    /// As `Wait::wait`; `rounds` sleeps at most, as when the time is over. Returns whether `ready`.
    fn wait(
        &self,
        number: usize,
        rounds: usize,
        calls: u64,
        what: impl Fn(&State) -> Waited,
        ready: impl Fn(&mut State) -> bool,
    ) -> bool {
        let doorbell = self.doorbell(number);
        self.calls.lock().unwrap().enter(&doorbell);
        let mut done = false;
        for round in 0.. {
            let mut state = self.state.lock().unwrap();
            self.progress(&mut state);
            done = ready(&mut state);
            if !done {
                let what = what(&state);
                state.waiters.arm(&doorbell, what);
            }
            drop(state);
            if done || self.calls.lock().unwrap().hear(calls) || round == rounds {
                break;
            }
            self.kernel.sleep(number);
            self.kernel.silence(number);
        }
        self.state.lock().unwrap().waiters.disarm(&doorbell);
        self.calls.lock().unwrap().leave(&doorbell);
        done
    }

    fn wait_for(&self, number: usize, threshold: u64) -> bool {
        self.wait(
            number,
            usize::MAX,
            0,
            |state| Waited::Counter(COUNTER, [state.value, 0]),
            |state| state.value >= threshold,
        )
    }

    fn take_entry(&self, number: usize, rounds: usize, calls: u64) -> bool {
        let take = |state: &mut State| {
            let some = state.entries > 0;
            state.entries -= usize::from(some);
            some
        };
        self.wait(number, rounds, calls, |_| Waited::Cq(CQ, 1), take)
    }

    /// Takes an entry as a program does that sleeps on the descriptor of doorbell `number`.
    fn take_outside(&self, number: usize) {
        let doorbell = self.doorbell(number);
        loop {
            let mut state = self.state.lock().unwrap();
            self.progress(&mut state);
            if state.entries > 0 {
                state.entries -= 1;
                return;
            }
            // `Wait::try_wait`.
            self.kernel.silence(number);
            state.waiters.arm(&doorbell, Waited::Cq(CQ, 1));
            drop(state);
            self.kernel.sleep(number);
        }
    }
}

/// Tries all orders with at most so many changes of thread that nobody asked for.
fn check(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(body);
}

fn spawn(domain: &Arc<Domain>, body: impl FnOnce(&Domain) + 'static) -> thread::JoinHandle<()> {
    let domain = Arc::clone(domain);
    thread::spawn(move || body(&domain))
}

fn join(threads: [thread::JoinHandle<()>; 2]) {
    for thread in threads {
        thread.join().unwrap();
    }
}

fn two_thresholds(doorbells: [usize; 2]) {
    let domain = Domain::new();
    let waits = [1, 2].map(|threshold| {
        let doorbell = doorbells[threshold as usize - 1];
        spawn(&domain, move |domain| {
            assert!(domain.wait_for(doorbell, threshold));
        })
    });
    // A third one makes progress: what it reads from the socket nobody else finds there.
    for _ in 0..2 {
        domain.arrive();
        domain.progress(&mut domain.state.lock().unwrap());
    }
    join(waits);
}

#[test]
fn each_thread_sees_its_threshold() {
    check(3, || two_thresholds([0, 1]));
}

/// What the model is good for: the doorbell is silenced, and the waiter taken away, by whoever is first.
#[test]
#[should_panic(expected = "deadlock")]
fn with_one_bell_for_two_a_wake_up_is_lost() {
    check(3, || two_thresholds([0, 0]));
}

#[test]
fn each_reader_gets_an_entry() {
    check(3, || {
        let domain = Domain::new();
        let reads = [0, 1].map(|doorbell| {
            spawn(&domain, move |domain| {
                assert!(domain.take_entry(doorbell, usize::MAX, 0));
            })
        });
        domain.arrive();
        domain.arrive();
        join(reads);
    });
}

#[test]
fn one_that_gives_up_takes_nothing_along() {
    check(3, || {
        let domain = Domain::new();
        let reader = spawn(&domain, |domain| {
            assert!(domain.wait_for(0, 1));
        });
        let hasty = spawn(&domain, |domain| {
            domain.wait(
                1,
                0,
                0,
                |state| Waited::Counter(COUNTER, [state.value, 0]),
                |_| false,
            );
        });
        domain.arrive();
        reader.join().unwrap();
        hasty.join().unwrap();
    });
}

#[test]
fn one_that_sleeps_outside_gets_what_others_leave() {
    check(2, || {
        let domain = Domain::new();
        let outside = spawn(&domain, |domain| domain.take_outside(0));
        let inside = spawn(&domain, |domain| {
            assert!(domain.take_entry(1, usize::MAX, 0));
        });
        domain.arrive();
        domain.arrive();
        outside.join().unwrap();
        inside.join().unwrap();
    });
}

/// Both sleep on one descriptor; neither allows it for the other.
#[test]
fn two_that_sleep_on_one_descriptor_get_an_entry_each() {
    check(2, || {
        let domain = Domain::new();
        let sleepers = [(), ()].map(|()| spawn(&domain, |domain| domain.take_outside(0)));
        domain.arrive();
        domain.arrive();
        join(sleepers);
    });
}

#[test]
fn a_call_ends_every_wait_that_has_begun() {
    check(2, || {
        let domain = Domain::new();
        let waits = [0, 1].map(|doorbell| {
            let begun = domain.calls.lock().unwrap().count();
            spawn(&domain, move |domain| {
                assert!(!domain.take_entry(doorbell, usize::MAX, begun));
            })
        });
        domain.calls.lock().unwrap().call();
        join(waits);
    });
}

/// Whether it comes before the wait or within, and though an entry may come first.
#[test]
fn a_call_is_heard_by_a_wait_that_finds_nothing() {
    check(3, || {
        let domain = Domain::new();
        let reader = spawn(&domain, |domain| {
            loop {
                let begun = domain.calls.lock().unwrap().count();
                if !domain.take_entry(0, usize::MAX, begun) {
                    return;
                }
            }
        });
        domain.arrive();
        domain.calls.lock().unwrap().call();
        reader.join().unwrap();
    });
}
