//! Threads that wait for one wait set, and that ask one poll set.

use core::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use ripstop_abi::*;

use crate::c::watch::watch;
use crate::c::*;
use crate::end::*;
use crate::{close_all, op};

#[test]
fn threads_that_wait_for_one_set_miss_nothing() {
    for provider in PROVIDERS {
        let info = interface(provider, FI_PROGRESS_AUTO);
        let there = End::open(provider, FI_PROGRESS_AUTO, FI_WAIT_NONE);
        let fabric = fabric(&info);
        let domain = domain(fabric, &info);
        let av = av(domain, FI_AV_UNSPEC, 0);
        let mut attr = fi_wait_attr {
            wait_obj: FI_WAIT_UNSPEC,
            flags: 0,
        };
        let mut set = ptr::null_mut();
        assert_eq!(op!(fabric, ops.wait_open(&mut attr, &mut set)), 0);
        let mut attr = fi_cq_attr {
            size: 64,
            format: FI_CQ_FORMAT_CONTEXT,
            wait_obj: FI_WAIT_SET,
            wait_set: set,
            ..Default::default()
        };
        let mut cq = ptr::null_mut();
        assert_eq!(op!(domain, ops.cq_open(&mut attr, &mut cq, NONE)), 0);
        let ep = bound(domain, &info, av, cq);
        assert_eq!(enable(ep), 0);
        let to = insert(there.av, &name(unsafe { (*ep).cm }, ep.cast()));
        let messages = ROUNDS * 4;
        for _ in 0..messages {
            post(cq, || {
                op!(ep, msg.recv(NONE, 0, NONE, FI_ADDR_UNSPEC, NONE))
            });
        }
        let threads = 4;
        let taken = AtomicUsize::new(0);
        let (watch, reports) = watch(threads);
        let what = format!("{provider:?}");
        let (shared, waits) = (Any(cq), Any(set));
        thread::scope(|scope| {
            for report in reports {
                let (cq, set, taken) = (&shared, &waits, &taken);
                scope.spawn(move || {
                    while taken.load(Ordering::SeqCst) < messages {
                        assert_eq!(op!(set.0, ops.wait(-1)), 0);
                        let mut entry = fi_cq_entry::default();
                        if op!(cq.0, ops.read(ptr::from_mut(&mut entry).cast(), 1)) == 1 {
                            taken.fetch_add(1, Ordering::SeqCst);
                            report.event();
                        }
                    }
                    report.event();
                });
            }
            for _ in 0..messages {
                there.send(to);
                watch.next(&what);
            }
            signal_all(cq, threads, &watch, &what);
        });
        close_all!(ep, cq, set, av, domain, fabric);
    }
}

/// Threads that ask one poll set what has come, while others come to it and go.
fn pollers(end: &End, send: &dyn Fn(), threads: usize, what: &str) {
    let mut attr = fi_poll_attr::default();
    let mut set: *mut fid_poll = ptr::null_mut();
    assert_eq!(op!(end.domain, ops.poll_open(&mut attr, &mut set)), 0);
    assert_eq!(op!(set, ops.poll_add(end.cq.cast(), 0)), 0);
    end.expect(ROUNDS);
    let (cq, shared) = (Any(end.cq), Any(set));
    let (watch, reports) = watch(threads);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        for report in reports {
            let (cq, set, over) = (&cq, &shared, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let mut context = [NONE];
                    let found = op!(set.0, ops.poll(context.as_mut_ptr(), 1));
                    assert!(found == 0 || found == 1, "fi_poll: {found}");
                    let mut entry = fi_cq_entry::default();
                    if found == 0 {
                        thread::yield_now();
                    } else if op!(cq.0, ops.read(ptr::from_mut(&mut entry).cast(), 1)) == 1 {
                        report.event();
                    }
                }
            });
        }
        let (set, over) = (&shared, &over);
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let other = counter(end.domain, FI_WAIT_UNSPEC);
                assert_eq!(op!(set.0, ops.poll_add(other.cast(), 0)), 0);
                thread::yield_now();
                assert_eq!(op!(set.0, ops.poll_del(other.cast(), 0)), 0);
                assert_eq!(close(other), 0);
            }
        });
        for _ in 0..ROUNDS {
            send();
            watch.next(what);
        }
    });
    assert_eq!(close(set), 0);
}

#[test]
fn threads_that_poll_one_set_miss_nothing() {
    let objects = [FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND];
    each(&objects, |end, send, what| {
        for threads in [2, 16] {
            pollers(end, send, threads, &format!("{what}, {threads} threads"));
        }
    });
}
