//! Threads that read one completion queue or event queue, and that sleep on its descriptor.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use ripstop_abi::*;
use rustix::event::{PollFd, PollFlags};

use crate::c::watch::{Report, tid, until_asleep, watch};
use crate::c::*;
use crate::end::*;
use crate::{close_all, op};

/// Waits outside for the descriptor of an object, as `fi_trywait` asks.
fn poll_outside(fabric: *mut fid_fabric, fid: *mut fid, fd: c_int) {
    let mut fids = [fid];
    match op!(fabric, ops.trywait(fids.as_mut_ptr(), 1)) {
        0 => {
            let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(fd) };
            let mut fds = [PollFd::new(&fd, PollFlags::IN)];
            let polled = rustix::event::poll(&mut fds, None);
            assert_eq!(polled, Ok(1));
        }
        code => assert_eq!(code, -FI_EAGAIN),
    }
}

fn readers(end: &End, send: &dyn Fn(), inside: usize, outside: usize, what: &str) {
    let messages = ROUNDS * 4;
    end.expect(messages);
    let (cq, fabric) = (Any(end.cq), Any(end.fabric));
    let (watch, reports) = watch(inside + outside);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for (number, report) in reports.into_iter().enumerate() {
            let (cq, fabric, over) = (&cq, &fabric, &over);
            scope.spawn(move || match number < inside {
                true => {
                    while sread(cq.0) {
                        report.event();
                    }
                    report.event();
                }
                false => read_outside(fabric.0, cq.0, over, &report),
            });
        }
        for _ in 0..messages {
            send();
            watch.next(what);
        }
        over.store(true, Ordering::Relaxed);
        signal_all(end.cq, inside + outside, &watch, what);
    });
    // The last signal may have found nobody any more.
    let mut entry = fi_cq_entry::default();
    let entry = ptr::from_mut(&mut entry).cast::<c_void>();
    assert_eq!(op!(end.cq, ops.sread(entry, 1, ptr::null(), 0)), AGAIN);
}

/// As [`sread`] until it is over, by the descriptor.
fn read_outside(fabric: *mut fid_fabric, cq: *mut fid_cq, over: &AtomicBool, report: &Report) {
    let mut fd: c_int = -1;
    assert_eq!(control(cq, FI_GETWAIT, &mut fd), 0);
    while !over.load(Ordering::Relaxed) {
        let mut entry = fi_cq_entry::default();
        match op!(cq, ops.read(ptr::from_mut(&mut entry).cast(), 1)) {
            1 => report.event(),
            code => {
                assert_eq!(code, AGAIN);
                poll_outside(fabric, cq.cast(), fd);
            }
        }
    }
    report.event();
}

#[test]
fn threads_that_read_one_queue_miss_nothing() {
    for threads in [2, 16] {
        each(&SLEEPING, |end, send, what| {
            readers(end, send, threads, 0, what);
        });
    }
    each(&[FI_WAIT_YIELD], |end, send, what| {
        readers(end, send, 3, 0, what);
    });
}

#[test]
fn threads_that_sleep_outside_miss_nothing_that_others_leave() {
    each(&[FI_WAIT_UNSPEC, FI_WAIT_FD], |end, send, what| {
        readers(end, send, 0, 1, what);
        readers(end, send, 1, 1, what);
        readers(end, send, 3, 2, what);
    });
}

/// Two threads sleep on one descriptor. One of them takes what has come and goes, without another
/// `fi_trywait`: the next wakes the other one.
#[test]
fn one_that_reads_and_leaves_takes_nobody_s_wake_up() {
    each(&[FI_WAIT_UNSPEC, FI_WAIT_FD], |end, send, what| {
        end.expect(2);
        let mut fd: c_int = -1;
        assert_eq!(control(end.cq, FI_GETWAIT, &mut fd), 0);
        let (cq, fabric) = (Any(end.cq), Any(end.fabric));
        let (watch, mut reports) = watch(1);
        let report = reports.remove(0);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (started, start) = channel();
            let (cq, fabric, over) = (&cq, &fabric, &over);
            scope.spawn(move || {
                started.send(tid()).unwrap();
                read_outside(fabric.0, cq.0, over, &report);
            });
            until_asleep(start.recv().unwrap());
            send();
            // Whoever is faster.
            let mut entry = fi_cq_entry::default();
            let got = op!(
                cq.0,
                ops.sread(ptr::from_mut(&mut entry).cast(), 1, ptr::null(), 0)
            );
            if got != 1 {
                assert_eq!(got, AGAIN);
                watch.next(what);
            }
            send();
            watch.next(what);
            over.store(true, Ordering::Relaxed);
            assert_eq!(op!(cq.0, ops.signal()), 0);
            watch.next(what);
        });
    });
}

/// `fi_cq(3)`: "will unblock any thread waiting in `fi_cq_sread`".
#[test]
fn a_signal_ends_the_wait_of_every_thread() {
    each(&SLEEPING, |end, _, what| {
        let threads = 5;
        let cq = Any(end.cq);
        let (watch, reports) = watch(threads);
        thread::scope(|scope| {
            let (started, start) = channel();
            for report in reports {
                let (cq, started) = (&cq, started.clone());
                scope.spawn(move || {
                    started.send(tid()).unwrap();
                    assert!(!sread(cq.0));
                    report.event();
                });
            }
            for _ in 0..threads {
                until_asleep(start.recv().unwrap());
            }
            assert_eq!(op!(cq.0, ops.signal()), 0);
            for _ in 0..threads {
                watch.next(what);
            }
        });
        // One that nobody waits for ends the next wait, and only that.
        assert_eq!(op!(end.cq, ops.signal()), 0);
        assert!(!sread(end.cq));
        let mut entry = fi_cq_entry::default();
        let entry = ptr::from_mut(&mut entry).cast::<c_void>();
        let start = std::time::Instant::now();
        assert_eq!(op!(end.cq, ops.sread(entry, 1, ptr::null(), 30)), AGAIN);
        assert!(start.elapsed().as_millis() >= 30, "{what}");
    });
}

#[test]
fn threads_that_read_one_event_queue_miss_nothing() {
    for (provider, wait_obj) in PROVIDERS
        .into_iter()
        .flat_map(|provider| SLEEPING.map(|obj| (provider, obj)))
    {
        let info = interface(provider, FI_PROGRESS_AUTO);
        let fabric = fabric(&info);
        let queue = eq(fabric, wait_obj);
        // The queue waits for a domain as well.
        let domain = domain(fabric, &info);
        assert_eq!(bind(domain, queue, 0), 0);
        let threads = 6;
        let (watch, reports) = watch(threads);
        let what = format!("{provider:?}, wait object {wait_obj}");
        let shared = Any(queue);
        let write = |event: u32| {
            let bytes = 7_u64;
            let bytes = ptr::from_ref(&bytes).cast::<c_void>();
            assert_eq!(op!(queue, ops.write(event, bytes, 8, 0)), 8);
        };
        thread::scope(|scope| {
            for report in reports {
                let queue = &shared;
                scope.spawn(move || {
                    loop {
                        let (mut event, mut bytes) = (0, 0_u64);
                        let into = ptr::from_mut(&mut bytes).cast::<c_void>();
                        let read = op!(queue.0, ops.sread(&mut event, into, 8, -1, 0));
                        assert_eq!((read, bytes), (8, 7));
                        report.event();
                        if event == 2 {
                            return;
                        }
                    }
                });
            }
            for _ in 0..ROUNDS * 4 {
                write(1);
                watch.next(&what);
            }
            for _ in 0..threads {
                write(2);
                watch.next(&what);
            }
        });
        close_all!(domain, queue, fabric);
    }
}

fn tagged(ep: *mut fid_ep, to: fi_addr_t, tag: u64, iov: &[iovec], flags: u64) -> isize {
    let message = fi_msg_tagged {
        msg_iov: iov.as_ptr(),
        iov_count: iov.len(),
        addr: to,
        tag,
        ..Default::default()
    };
    op!(
        ep,
        tagged.sendmsg(&raw const message, flags | FI_COMPLETION)
    )
}

/// A message had no room, was written after all, and what is fenced behind it waits for the peer:
/// whoever sleeps until then is not kept awake by the room there is.
#[test]
fn what_waits_for_an_acknowledgement_lets_sleep() {
    for provider in PROVIDERS {
        let here = End::open(provider, FI_PROGRESS_MANUAL, FI_WAIT_FD);
        let there = End::open(provider, FI_PROGRESS_MANUAL, FI_WAIT_NONE);
        let to = here.meet(&there);
        there.meet(&here);
        let large = vec![7_u8; 32 << 20];
        let mut got = vec![0_u8; large.len()];
        let (from, into) = (large.as_ptr().cast(), got.as_mut_ptr().cast());
        let any = FI_ADDR_UNSPEC;
        assert_eq!(op!(there.ep, msg.recv(into, got.len(), NONE, any, NONE)), 0);
        // Nothing is posted there for the first, which waits for that.
        let first = [iovec {
            iov_base: large.as_ptr().cast_mut().cast(),
            iov_len: 1 << 20,
        }];
        post(here.cq, || tagged(here.ep, to, 1, &first, 0));
        post(here.cq, || {
            op!(here.ep, msg.send(from, large.len(), NONE, to, NONE))
        });
        post(here.cq, || tagged(here.ep, to, 2, &[], FI_FENCE));
        let progress = || {
            let read = op!(here.cq, ops.read(ptr::null_mut(), 0));
            assert!(read == AGAIN || read == 0, "{read}");
        };
        // Who sends makes progress on its own until it is told that all was written.
        let _: fi_cq_entry = completion_with(here.cq, || {
            op!(there.cq, ops.read(ptr::null_mut(), 0));
        });
        let _: fi_cq_entry = completion(there.cq);
        let mut fd: c_int = -1;
        assert_eq!(control(here.cq, FI_GETWAIT, &mut fd), 0);
        let mut fids = [here.cq.cast::<fid>()];
        until("nothing more to do", || {
            let safe = op!(here.fabric, ops.trywait(fids.as_mut_ptr(), 1));
            (safe == 0).then_some(())
        });
        let borrowed = unsafe { rustix::fd::BorrowedFd::borrow_raw(fd) };
        let mut fds = [PollFd::new(&borrowed, PollFlags::IN)];
        let now = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        assert_eq!(
            rustix::event::poll(&mut fds, Some(&now)),
            Ok(0),
            "{provider:?}"
        );
        // And goes on once the peer says so.
        for tag in [1, 2] {
            let len = if tag == 1 { 1 << 20 } else { 0 };
            let posted = op!(there.ep, tagged.recv(into, len, NONE, any, tag, 0, NONE));
            assert_eq!(posted, 0);
            let _: fi_cq_entry = completion_with(there.cq, progress);
            let _: fi_cq_entry = completion_with(here.cq, || {
                op!(there.cq, ops.read(ptr::null_mut(), 0));
            });
        }
        assert!(got == large);
    }
}
