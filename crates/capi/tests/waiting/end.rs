//! What the tests have in common: an end of a connection, and what is done with it.

use core::ffi::{CStr, c_void};
use core::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use ripstop_abi::*;

use crate::c::watch::Watch;
use crate::c::*;
use crate::{close_all, op};

pub(crate) const NONE: *mut c_void = ptr::null_mut();
pub(crate) const AGAIN: isize = -(FI_EAGAIN as isize);

pub(crate) const PROVIDERS: [&CStr; 3] = [c"tcp", c"shm", c"tcp;ofi_rxm"];

/// Objects that sleep; what yields has no wake-up to lose, and takes part where it is cheap.
pub(crate) const SLEEPING: [fi_wait_obj; 4] = [
    FI_WAIT_UNSPEC,
    FI_WAIT_FD,
    FI_WAIT_POLLFD,
    FI_WAIT_MUTEX_COND,
];

/// Messages a test, for each of its threads.
pub(crate) const ROUNDS: usize = 24;

/// An object of a C program, which any thread may use.
pub(crate) struct Any<T>(pub(crate) *mut T);

// SAFETY: the domains of these tests are `FI_THREAD_SAFE`.
unsafe impl<T> Send for Any<T> {}
// SAFETY: domains of `FI_THREAD_SAFE` may be called by several threads at once.
unsafe impl<T> Sync for Any<T> {}

/// A domain with one endpoint, its queue, and a counter of what it has received.
pub(crate) struct End {
    pub(crate) info: Info,
    pub(crate) fabric: *mut fid_fabric,
    pub(crate) domain: *mut fid_domain,
    pub(crate) av: *mut fid_av,
    pub(crate) cq: *mut fid_cq,
    pub(crate) counter: *mut fid_cntr,
    pub(crate) ep: *mut fid_ep,
}

// SAFETY: as for `Any`.
unsafe impl Sync for End {}

pub(crate) fn counter(domain: *mut fid_domain, wait_obj: fi_wait_obj) -> *mut fid_cntr {
    let mut attr = fi_cntr_attr {
        wait_obj,
        ..Default::default()
    };
    let mut counter = ptr::null_mut();
    assert_eq!(op!(domain, ops.cntr_open(&mut attr, &mut counter, NONE)), 0);
    counter
}

pub(crate) fn interface(provider: &CStr, progress: fi_progress) -> Info {
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
    pub(crate) fn open(provider: &CStr, progress: fi_progress, wait_obj: fi_wait_obj) -> Self {
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

    pub(crate) fn meet(&self, other: &Self) -> fi_addr_t {
        insert(self.av, &name(unsafe { (*other.ep).cm }, other.ep.cast()))
    }

    /// Empty messages will be received.
    pub(crate) fn expect(&self, count: usize) {
        for _ in 0..count {
            post(self.cq, || {
                op!(self.ep, msg.recv(NONE, 0, NONE, FI_ADDR_UNSPEC, NONE))
            });
        }
    }

    pub(crate) fn send(&self, to: fi_addr_t) {
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

/// Tells the other threads of a test that it is over when this is dropped, however it ends.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One that waits and one that sends, for each provider, wait object and kind of progress.
pub(crate) fn each(objects: &[fi_wait_obj], test: impl Fn(&End, &dyn Fn(), &str)) {
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

/// Reads one entry, waiting without an end; `false` when somebody has signalled.
pub(crate) fn sread(cq: *mut fid_cq) -> bool {
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
/// Signals until all threads have left, each time after one has.
pub(crate) fn signal_all(cq: *mut fid_cq, threads: usize, watch: &Watch, what: &str) {
    for _ in 0..threads {
        assert_eq!(op!(cq, ops.signal()), 0);
        watch.next(what);
    }
}
