//! Waits of threads that get a signal of the system.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::mpsc::channel;
use std::thread;

use ripstop_abi::*;

use crate::c::watch::{tid, until_asleep, watch};
use crate::c::*;
use crate::end::*;
use crate::op;

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
            let own = (tid(), unsafe { pthread_self() });
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
