//! Threads that wait for one counter.

use core::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ripstop_abi::*;

use crate::c::watch::watch;
use crate::c::*;
use crate::end::*;
use crate::op;

/// In the same domain others come, post and go.
fn churn(end: &End, over: &AtomicBool) {
    let own = cq(end.domain, FI_CQ_FORMAT_CONTEXT, FI_WAIT_UNSPEC);
    while !over.load(Ordering::Relaxed) {
        let ep = bound(end.domain, &end.info, end.av, own);
        assert_eq!(enable(ep), 0);
        for _ in 0..4 {
            assert_eq!(op!(ep, msg.recv(NONE, 0, NONE, FI_ADDR_UNSPEC, NONE)), 0);
        }
        assert_eq!(close(ep), 0);
        let mut entry = fi_cq_entry::default();
        let mut error = fi_cq_err_entry::default();
        while op!(own, ops.read(ptr::from_mut(&mut entry).cast(), 1)) != AGAIN {
            op!(own, ops.readerr(&mut error, 0));
        }
        thread::yield_now();
    }
    assert_eq!(close(own), 0);
}

/// Threads that wait for one counter, each for thresholds of its own.
fn thresholds(end: &End, send: &dyn Fn(), threads: usize, busy: bool, what: &str) {
    let rounds = ROUNDS / threads.ilog2() as usize;
    end.expect(threads * rounds);
    let over = AtomicBool::new(false);
    let counter = Any(end.counter);
    let (watch, reports) = watch(threads);
    thread::scope(|scope| {
        let _over = Over(&over);
        if busy {
            scope.spawn(|| churn(end, &over));
        }
        for (number, report) in reports.into_iter().enumerate() {
            let counter = &counter;
            scope.spawn(move || {
                for round in 0..rounds {
                    let threshold = (round * threads + number + 1) as u64;
                    report.doing(threshold);
                    let waited = op!(counter.0, ops.wait(threshold, -1));
                    assert_eq!(waited, 0);
                    report.event();
                }
            });
        }
        for count in 0..threads * rounds {
            send();
            let number = watch.next(what);
            assert_eq!(number, count % threads, "{what}");
        }
    });
}

#[test]
fn every_thread_sees_its_threshold_of_one_counter() {
    for threads in [2, 10, 16] {
        each(&SLEEPING, |end, send, what| {
            thresholds(end, send, threads, false, what);
        });
    }
    each(&[FI_WAIT_NONE, FI_WAIT_YIELD], |end, send, what| {
        thresholds(end, send, 3, false, what);
    });
}

#[test]
fn every_thread_sees_its_threshold_while_others_come_and_go() {
    each(&SLEEPING, |end, send, what| {
        thresholds(end, send, 4, true, what);
    });
}
/// Waits that end by their time take nobody else's wake-up along.
#[test]
fn waits_that_end_in_time_leave_the_others() {
    each(&SLEEPING, |end, send, what| {
        let messages = ROUNDS * 2;
        end.expect(messages);
        let over = AtomicBool::new(false);
        let counter = Any(end.counter);
        let (watch, mut reports) = watch(1);
        let report = reports.remove(0);
        thread::scope(|scope| {
            let _over = Over(&over);
            for time in [0, 1, 2] {
                let (counter, over) = (&counter, &over);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let waited = op!(counter.0, ops.wait(u64::MAX, time));
                        assert_eq!(waited, -FI_ETIMEDOUT);
                    }
                });
            }
            let counter = &counter;
            scope.spawn(move || {
                for threshold in 1..=messages as u64 {
                    report.doing(threshold);
                    assert_eq!(op!(counter.0, ops.wait(threshold, -1)), 0);
                    report.event();
                }
            });
            for _ in 0..messages {
                send();
                watch.next(what);
            }
        });
    });
}
