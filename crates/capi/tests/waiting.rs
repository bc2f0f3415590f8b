//! C programs with many threads that wait for one object. What they wait for comes from another
//! domain, one after the other: the next only when the one before was noticed, so that nothing
//! makes up for a wake-up that was lost. No wait has an end.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use c::watch::{Report, Watch, until_asleep, watch};
use c::*;
use ripstop_abi::*;
use rustix::event::{PollFd, PollFlags};

const NONE: *mut c_void = ptr::null_mut();
const AGAIN: isize = -(FI_EAGAIN as isize);

const PROVIDERS: [&CStr; 3] = [c"tcp", c"shm", c"tcp;ofi_rxm"];

/// Objects that sleep; what yields has no wake-up to lose, and takes part where it is cheap.
const SLEEPING: [fi_wait_obj; 4] = [
    FI_WAIT_UNSPEC,
    FI_WAIT_FD,
    FI_WAIT_POLLFD,
    FI_WAIT_MUTEX_COND,
];

/// Messages a test, for each of its threads.
const ROUNDS: usize = 24;

/// An object of a C program, which any thread may use.
struct Any<T>(*mut T);

// SAFETY: the domains of these tests are `FI_THREAD_SAFE`.
unsafe impl<T> Send for Any<T> {}
// SAFETY: domains of `FI_THREAD_SAFE` may be called by several threads at once.
unsafe impl<T> Sync for Any<T> {}

/// A domain with one endpoint, its queue, and a counter of what it has received.
struct End {
    info: Info,
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    av: *mut fid_av,
    cq: *mut fid_cq,
    counter: *mut fid_cntr,
    ep: *mut fid_ep,
}

// SAFETY: as for `Any`.
unsafe impl Sync for End {}

fn counter(domain: *mut fid_domain, wait_obj: fi_wait_obj) -> *mut fid_cntr {
    let mut attr = fi_cntr_attr {
        wait_obj,
        ..Default::default()
    };
    let mut counter = ptr::null_mut();
    assert_eq!(op!(domain, ops.cntr_open(&mut attr, &mut counter, NONE)), 0);
    counter
}

fn interface(provider: &CStr, progress: fi_progress) -> Info {
    let is_tcp = provider != c"shm";
    let hints = Info::hints();
    hints.fabric().prov_name = dup(provider);
    hints.ep().type_ = FI_EP_RDM;
    hints.get().caps = FI_MSG | FI_TAGGED | FI_FENCE;
    hints.get().addr_format = if is_tcp { FI_SOCKADDR_IN } else { FI_ADDR_STR };
    hints.domain().threading = FI_THREAD_SAFE;
    hints.domain().data_progress = progress;
    hints.domain().control_progress = progress;
    let (node, flags) = if is_tcp {
        (Some(c"127.0.0.1"), FI_SOURCE)
    } else {
        (None, 0)
    };
    getinfo(NOW, node, None, flags, Some(&hints)).unwrap()
}

impl End {
    fn open(provider: &CStr, progress: fi_progress, wait_obj: fi_wait_obj) -> Self {
        let info = interface(provider, progress);
        let fabric = fabric(&info);
        let domain = domain(fabric, &info);
        let av = av(domain, FI_AV_UNSPEC, 0);
        let cq = cq(domain, FI_CQ_FORMAT_CONTEXT, wait_obj);
        let counter = counter(domain, wait_obj);
        let ep = bound(domain, &info, av, cq);
        assert_eq!(bind(ep, counter, FI_RECV), 0);
        assert_eq!(enable(ep), 0);
        Self {
            info,
            fabric,
            domain,
            av,
            cq,
            counter,
            ep,
        }
    }

    fn meet(&self, other: &Self) -> fi_addr_t {
        insert(self.av, &name(unsafe { (*other.ep).cm }, other.ep.cast()))
    }

    /// Empty messages will be received.
    fn expect(&self, count: usize) {
        for _ in 0..count {
            post(self.cq, || {
                op!(self.ep, msg.recv(NONE, 0, NONE, FI_ADDR_UNSPEC, NONE))
            });
        }
    }

    fn send(&self, to: fi_addr_t) {
        post(self.cq, || op!(self.ep, msg.inject(NONE, 0, to)));
    }
}

impl Drop for End {
    fn drop(&mut self) {
        close_all!(
            self.ep,
            self.counter,
            self.cq,
            self.av,
            self.domain,
            self.fabric
        );
    }
}

/// Makes progress for a sender until the test is over.
struct Pump<'a>(&'a AtomicBool);

impl Drop for Pump<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One that waits and one that sends, for each provider, wait object and kind of progress.
fn each(objects: &[fi_wait_obj], test: impl Fn(&End, &dyn Fn(), &str)) {
    for provider in PROVIDERS {
        for progress in [FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL] {
            for wait_obj in objects {
                let what = format!("{provider:?}, progress {progress}, wait object {wait_obj}");
                let there = End::open(provider, FI_PROGRESS_AUTO, FI_WAIT_NONE);
                let here = End::open(provider, progress, *wait_obj);
                let to = there.meet(&here);
                here.meet(&there);
                test(&here, &|| there.send(to), &what);
            }
        }
    }
}

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
        let _over = Pump(&over);
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

/// Reads one entry, waiting without an end; `false` when somebody has signalled.
fn sread(cq: *mut fid_cq) -> bool {
    let mut entry = fi_cq_entry::default();
    let entry = ptr::from_mut(&mut entry).cast::<c_void>();
    match op!(cq, ops.sread(entry, 1, ptr::null(), -1)) {
        1 => true,
        code => {
            assert_eq!(code, AGAIN);
            false
        }
    }
}

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

/// Signals until all threads have left, each time after one has.
fn signal_all(cq: *mut fid_cq, threads: usize, watch: &Watch, what: &str) {
    for _ in 0..threads {
        assert_eq!(op!(cq, ops.signal()), 0);
        watch.next(what);
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
                started.send(c::watch::tid()).unwrap();
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
                    started.send(c::watch::tid()).unwrap();
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
            let _over = Pump(&over);
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
        let _over = Pump(&over);
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

unsafe extern "C" {
    fn signal(number: c_int, handler: extern "C" fn(c_int)) -> usize;
    fn pthread_self() -> usize;
    fn pthread_kill(thread: usize, number: c_int) -> c_int;
}

const SIGUSR1: c_int = 10;

extern "C" fn handle(_: c_int) {}

/// Waits on a thread; `meanwhile` gets what sends it a signal once it sleeps.
fn signalled<R: Send>(
    what: &str,
    wait: impl FnOnce() -> R + Send,
    meanwhile: impl FnOnce(&dyn Fn()),
) -> R {
    unsafe { signal(SIGUSR1, handle) };
    let (watch, mut reports) = watch(1);
    let report = reports.remove(0);
    let (started, start) = channel();
    thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            let own = (c::watch::tid(), unsafe { pthread_self() });
            started.send(own).unwrap();
            let said = wait();
            report.event();
            said
        });
        let (tid, thread) = start.recv().unwrap();
        meanwhile(&|| {
            until_asleep(tid);
            assert_eq!(unsafe { pthread_kill(thread, SIGUSR1) }, 0);
        });
        watch.next(what);
        waiter.join().unwrap()
    })
}

/// So a program's handler can end its loop (`fi_cq(3)`: "the call may return -FI_EAGAIN").
#[test]
fn a_signal_ends_a_read_that_waits_for_a_queue() {
    each(&SLEEPING, |end, send, what| {
        end.expect(1);
        let cq = Any(end.cq);
        let cq = &cq;
        let came = signalled(what, || sread(cq.0), |interrupt| interrupt());
        assert!(!came, "{what}: an entry of nothing");
        // What comes afterwards is there for the next one.
        let came = signalled(what, || sread(cq.0), |_| send());
        assert!(came, "{what}: the entry is lost");
    });
}

#[test]
fn a_signal_does_not_end_a_wait_for_a_counter() {
    each(&SLEEPING, |end, send, what| {
        end.expect(1);
        let counter = Any(end.counter);
        let counter = &counter;
        let said = signalled(
            what,
            || op!(counter.0, ops.wait(1, -1)),
            |interrupt| {
                for _ in 0..5 {
                    interrupt();
                }
                send();
            },
        );
        assert_eq!(said, 0, "{what}");
    });
    // Nor does it make its time shorter, or begin anew.
    each(&[FI_WAIT_UNSPEC], |end, _, what| {
        let counter = Any(end.counter);
        let counter = &counter;
        let wait = || {
            let start = std::time::Instant::now();
            let said = op!(counter.0, ops.wait(1, 500));
            (said, start.elapsed().as_millis())
        };
        let (said, took) = signalled(what, wait, |interrupt| interrupt());
        assert_eq!(said, -FI_ETIMEDOUT, "{what}");
        assert!(took >= 495, "{what}: over after {took} ms");
    });
}

#[test]
fn a_signal_ends_a_read_that_waits_for_events() {
    each(&[FI_WAIT_NONE], |end, _, what| {
        for wait_obj in [FI_WAIT_UNSPEC, FI_WAIT_FD] {
            let eq = Any(eq(end.fabric, wait_obj));
            let read = |eq: &Any<fid_eq>| {
                let (mut event, mut entry) = (0, fi_eq_entry::default());
                let len = size_of::<fi_eq_entry>();
                let entry = ptr::from_mut(&mut entry).cast::<c_void>();
                op!(eq.0, ops.sread(&mut event, entry, len, -1, 0))
            };
            let said = signalled(what, || read(&eq), |interrupt| interrupt());
            assert_eq!(said, AGAIN, "{what}");
            // An event that comes afterwards is read.
            let mut entry = fi_eq_entry::default();
            let (from, len) = (ptr::from_mut(&mut entry).cast(), size_of::<fi_eq_entry>());
            let put = op!(eq.0, ops.write(FI_NOTIFY, from, len, 0));
            assert_eq!(put, len as isize, "{what}");
            assert_eq!(read(&eq), len as isize, "{what}");
            assert_eq!(close(eq.0), 0);
        }
    });
}
