//! A C program that asks and waits for many queues at once: poll sets and wait sets.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::{c_int, c_void};
use core::ptr;
use std::time::{Duration, Instant};

use c::*;
use ripstop_abi::*;

const NONE: *mut c_void = ptr::null_mut();

fn poll_set(domain: *mut fid_domain) -> *mut fid_poll {
    let mut attr = fi_poll_attr::default();
    let mut set = ptr::null_mut();
    assert_eq!(op!(domain, ops.poll_open(&mut attr, &mut set)), 0);
    set
}

fn wait_set(fabric: *mut fid_fabric, wait_obj: fi_wait_obj) -> *mut fid_wait {
    let mut attr = fi_wait_attr { wait_obj, flags: 0 };
    let mut set = ptr::null_mut();
    assert_eq!(op!(fabric, ops.wait_open(&mut attr, &mut set)), 0);
    set
}

#[test]
fn a_poll_set_refuses_bad_input() {
    let pair = Pair::open(FI_CQ_FORMAT_MSG, FI_WAIT_NONE, |_| ());
    let set = poll_set(pair.domain);
    let queue = pair.cq.cast::<fid>();
    assert_eq!(op!(set, ops.poll_add(queue, 1)), -FI_EBADFLAGS);
    assert_eq!(op!(set, ops.poll_add(queue, 0)), 0);
    assert_eq!(op!(set, ops.poll_add(queue, 0)), 0, "once is enough");
    assert_eq!(op!(set, ops.poll_add(ptr::null_mut(), 0)), -FI_EINVAL);
    assert_eq!(op!(set, ops.poll(ptr::null_mut(), 1)), -FI_EINVAL);
    assert_eq!(close(set), 0);
}

fn wait(set: *mut fid_wait, ms: c_int) -> c_int {
    op!(set, ops.wait(ms))
}

#[test]
fn a_wait_set_wakes_for_any_of_its_queues() {
    let info = loopback(FI_EP_RDM, |_| ());
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    let set = wait_set(fabric, FI_WAIT_FD);
    let mut attr = fi_cq_attr {
        format: FI_CQ_FORMAT_MSG,
        wait_obj: FI_WAIT_SET,
        ..Default::default()
    };
    let mut refused: *mut fid_cq = ptr::null_mut();
    let code = op!(domain, ops.cq_open(&mut attr, &mut refused, NONE));
    assert_eq!(code, -FI_EINVAL, "no set");
    attr.wait_set = set;
    let queues = [(); 2].map(|()| {
        let mut queue: *mut fid_cq = ptr::null_mut();
        let code = op!(domain, ops.cq_open(&mut attr, &mut queue, NONE));
        assert_eq!(code, 0);
        queue
    });
    let mut attr = fi_eq_attr {
        flags: FI_WRITE,
        wait_obj: FI_WAIT_SET,
        wait_set: set,
        ..Default::default()
    };
    let mut events: *mut fid_eq = ptr::null_mut();
    assert_eq!(op!(fabric, ops.eq_open(&mut attr, &mut events, NONE)), 0);
    let mut attr = fi_cntr_attr {
        wait_obj: FI_WAIT_SET,
        wait_set: set,
        ..Default::default()
    };
    let mut counter: *mut fid_cntr = ptr::null_mut();
    let code = op!(domain, ops.cntr_open(&mut attr, &mut counter, NONE));
    assert_eq!(code, 0);
    assert_eq!(close(set), -FI_EBUSY);

    let mut object: fi_wait_obj = 0;
    assert_eq!(control(queues[0], FI_GETWAITOBJ, &mut object), 0);
    assert_eq!(object, FI_WAIT_SET);
    assert_eq!(control(set, FI_GETWAITOBJ, &mut object), 0);
    assert_eq!(object, FI_WAIT_FD);
    let mut fd: c_int = -1;
    assert_eq!(control(queues[0], FI_GETWAIT, &mut fd), -FI_ENODATA);
    assert_eq!(control(set, FI_GETWAIT, &mut fd), 0);
    assert!(fd >= 0);

    let start = Instant::now();
    assert_eq!(wait(set, 20), -FI_ETIMEDOUT);
    assert!(start.elapsed() >= Duration::from_millis(20));
    let mut fids = [set.cast::<fid>()];
    assert_eq!(op!(fabric, ops.trywait(fids.as_mut_ptr(), 1)), 0);

    let av = av(domain, FI_AV_UNSPEC, 0);
    let eps = queues.map(|queue| {
        let ep = endpoint(domain, &info);
        assert_eq!(bind(ep, av, 0), 0);
        assert_eq!(bind(ep, queue, FI_TRANSMIT | FI_RECV), 0);
        assert_eq!(enable(ep), 0);
        ep
    });
    let peer = insert(av, &name(unsafe { (*eps[1]).cm }, eps[1].cast()));
    let mut got = [0_u8; 4];
    let buf = got.as_mut_ptr().cast::<c_void>();
    let recv = op!(eps[1], msg.recv(buf, 4, NONE, FI_ADDR_UNSPEC, NONE));
    assert_eq!(recv, 0);
    let text = b"four".as_ptr().cast();
    until("the connection", || {
        let sent = op!(eps[0], msg.inject(text, 4, peer));
        assert!([0, -FI_EAGAIN as isize].contains(&sent), "{sent}");
        (sent == 0).then_some(())
    });
    assert_eq!(wait(set, -1), 0);
    assert_eq!(
        op!(fabric, ops.trywait(fids.as_mut_ptr(), 1)),
        -FI_EAGAIN,
        "read first"
    );
    let entry: fi_cq_msg_entry = completion(queues[1]);
    assert_eq!((entry.len, got), (4, *b"four"));
    assert_eq!(wait(set, 0), -FI_ETIMEDOUT);

    assert_eq!(op!(counter, ops.add(2)), 0);
    assert_eq!(wait(set, -1), 0);
    assert_eq!(wait(set, 0), -FI_ETIMEDOUT, "told once a change");
    assert_eq!(op!(queues[0], ops.signal()), 0);
    assert_eq!(wait(set, -1), 0);
    let entry = fi_eq_entry::default();
    let written = op!(
        events,
        ops.write(
            FI_NOTIFY,
            ptr::from_ref(&entry).cast(),
            size_of::<fi_eq_entry>(),
            0
        )
    );
    assert!(written > 0);
    assert_eq!(wait(set, -1), 0);

    for ep in eps {
        assert_eq!(close(ep), 0);
    }
    assert_eq!(close(queues[0]), 0);
    // Those that are left are waited for as before.
    assert_eq!(wait(set, -1), 0);
    let codes = [close(queues[1]), close(counter), close(events), close(set)];
    assert_eq!(codes, [0; 4]);
    close_all!(av, domain, fabric);
}

#[test]
fn a_wait_set_has_a_wait_object() {
    let info = loopback(FI_EP_RDM, |_| ());
    let fabric = fabric(&info);
    let mut set = ptr::null_mut();
    let null = ptr::null_mut();
    assert_eq!(op!(fabric, ops.wait_open(null, &mut set)), -FI_EINVAL);
    for wait_obj in [FI_WAIT_NONE, FI_WAIT_SET, 9] {
        let mut attr = fi_wait_attr { wait_obj, flags: 0 };
        let code = op!(fabric, ops.wait_open(&mut attr, &mut set));
        assert_eq!(code, -FI_EINVAL);
    }
    for wait_obj in [FI_WAIT_UNSPEC, FI_WAIT_MUTEX_COND, FI_WAIT_POLLFD] {
        let set = wait_set(fabric, wait_obj);
        assert_eq!(wait(set, 0), -FI_ETIMEDOUT);
        assert_eq!(close(set), 0);
    }
    assert_eq!(close(fabric), 0);
}
