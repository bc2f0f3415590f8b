//! A C program whose arguments are none that an object can have, or more than it has to say.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::{CStr, c_int, c_void};
use core::ptr;

use c::*;
use ripstop_abi::*;
use ripstop_capi::ripstop_fi_dupinfo_1_9;

const NONE: *mut c_void = ptr::null_mut();

/// What the provider offers, of reliable datagrams.
fn interface(provider: &CStr) -> Info {
    let hints = Info::hints();
    hints.ep().type_ = FI_EP_RDM;
    hints.get().caps = FI_MSG | FI_TAGGED;
    hints.get().addr_format = match provider == c"tcp" {
        true => FI_SOCKADDR_IN,
        false => FI_ADDR_STR,
    };
    getinfo(NOW, None, None, 0, Some(&hints)).unwrap()
}

/// The program says of an info of `fi_getinfo` what no endpoint can be.
#[test]
fn an_endpoint_is_no_more_than_there_is() {
    type Change = fn(&Info);
    let changes: [(&str, Change); 6] = [
        ("caps", |info| info.get().caps |= 1),
        ("tx caps", |info| info.tx().caps |= 1),
        ("inject_size", |info| info.tx().inject_size = usize::MAX),
        ("iov_limit", |info| info.rx().iov_limit = usize::MAX),
        ("op_flags", |info| info.tx().op_flags |= FI_PEEK),
        ("order", |info| info.rx().msg_order = 1 << 50),
    ];
    for provider in [c"tcp", c"shm"] {
        let info = interface(provider);
        let fabric = fabric(&info);
        let domain = domain(fabric, &info);
        for (what, change) in changes {
            let more = Info(unsafe { ripstop_fi_dupinfo_1_9(info.0) });
            change(&more);
            let mut ep = ptr::null_mut();
            let code = op!(domain, ops.endpoint(more.0, &mut ep, NONE));
            assert_eq!((code, ep.is_null()), (-FI_ENODATA, true), "{what}");
        }
        // Sizes are hints.
        let large = Info(unsafe { ripstop_fi_dupinfo_1_9(info.0) });
        (large.tx().size, large.rx().size) = (usize::MAX, usize::MAX);
        assert_eq!(close(endpoint(domain, &large)), 0);
        close_all!(domain, fabric);
    }
}

/// The types are those of the provider.
#[test]
fn there_are_no_connected_endpoints_over_shared_memory() {
    let info = interface(c"shm");
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    info.ep().type_ = FI_EP_MSG;
    let mut ep = ptr::null_mut();
    let code = op!(domain, ops.endpoint(info.0, &mut ep, NONE));
    assert_eq!(code, -FI_EINVAL);
    let mut pep = ptr::null_mut();
    let code = op!(fabric, ops.passive_ep(info.0, &mut pep, NONE));
    assert_eq!(code, -FI_EINVAL);
    close_all!(domain, fabric);
}

/// Neither a domain nor a passive endpoint has contexts, and the fabric is open.
#[test]
fn attributes_of_others_may_be_left_out() {
    let info = loopback(FI_EP_MSG, |_| ());
    let fabric = fabric(&info);
    let kept = (
        info.get().tx_attr,
        info.get().rx_attr,
        info.get().fabric_attr,
    );
    info.get().fabric_attr = ptr::null_mut();
    info.get().tx_attr = ptr::null_mut();
    info.get().rx_attr = ptr::null_mut();
    let domain = domain(fabric, &info);
    let mut pep = ptr::null_mut();
    assert_eq!(op!(fabric, ops.passive_ep(info.0, &mut pep, NONE)), 0);
    assert_eq!(close(pep), 0);
    let mut ep = ptr::null_mut();
    let code = op!(domain, ops.endpoint(info.0, &mut ep, NONE));
    assert_eq!(code, -FI_EINVAL, "an endpoint has contexts");
    (info.get().tx_attr, info.get().rx_attr) = (kept.0, kept.1);
    assert_eq!(close(endpoint(domain, &info)), 0);
    info.get().fabric_attr = kept.2;
    close_all!(domain, fabric);
}

#[test]
fn an_address_has_a_length() {
    let info = loopback(FI_EP_RDM, |_| ());
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    for len in [1, 4097, usize::MAX] {
        let kept = core::mem::replace(&mut info.get().src_addrlen, len);
        let mut ep = ptr::null_mut();
        let code = op!(domain, ops.endpoint(info.0, &mut ep, NONE));
        assert_eq!(code, -FI_EINVAL, "{len}");
        info.get().src_addrlen = kept;
    }
    close_all!(domain, fabric);
}

/// What a call would read or write beyond all memory.
#[test]
fn a_count_that_none_has_is_refused() {
    let info = loopback(FI_EP_RDM, |_| ());
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    let av = av(domain, FI_AV_TABLE, 0);
    let mut addr = [0];
    for count in [usize::MAX, usize::MAX / 8] {
        let code = op!(av, ops.remove(addr.as_mut_ptr(), count, 0));
        assert_eq!(code, -FI_EINVAL, "{count}");
    }
    let ep = endpoint(domain, &info);
    let mut name = [2_u8; 16];
    let at: *mut c_void = name.as_mut_ptr().cast();
    let set = unsafe { (*(*ep).cm).setname.unwrap()(ep.cast(), at, usize::MAX) };
    assert_eq!(set, -FI_EINVAL);
    close_all!(ep, av, domain, fabric);
}

/// The size of an event queue is a hint, and so is that of a completion queue.
#[test]
fn queues_of_any_size_open() {
    let info = loopback(FI_EP_RDM, |_| ());
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    let mut attr = fi_eq_attr {
        size: usize::MAX,
        wait_obj: FI_WAIT_NONE,
        ..Default::default()
    };
    let mut eq = ptr::null_mut();
    assert_eq!(op!(fabric, ops.eq_open(&mut attr, &mut eq, NONE)), 0);
    let mut attr = fi_cq_attr {
        size: usize::MAX,
        ..Default::default()
    };
    let mut cq = ptr::null_mut();
    assert_eq!(op!(domain, ops.cq_open(&mut attr, &mut cq, NONE)), 0);
    close_all!(eq, cq, domain, fabric);
}

/// `FI_WAIT_POLLFD` of a queue and of a counter, which event queues have as well.
#[test]
fn a_queue_and_a_counter_lend_descriptors_to_poll() {
    for provider in [c"tcp", c"shm"] {
        let info = interface(provider);
        let fabric = fabric(&info);
        let domain = domain(fabric, &info);
        let cq = cq(domain, FI_CQ_FORMAT_CONTEXT, FI_WAIT_POLLFD);
        let mut attr = fi_cntr_attr {
            wait_obj: FI_WAIT_POLLFD,
            ..Default::default()
        };
        let mut counter = ptr::null_mut();
        assert_eq!(op!(domain, ops.cntr_open(&mut attr, &mut counter, NONE)), 0);
        for fid in [cq.cast::<fid>(), counter.cast()] {
            let mut entry = pollfd::default();
            let mut polled = fi_wait_pollfd {
                change_index: 0,
                nfds: 1,
                fd: &raw mut entry,
            };
            assert_eq!(control(fid, FI_GETWAIT, &mut polled), 0);
            assert!(polled.nfds == 1 && entry.fd > 2);
            let mut object: c_int = 0;
            assert_eq!(control(fid, FI_GETWAITOBJ, &mut object), 0);
            assert_eq!(object, FI_WAIT_POLLFD as c_int);
            assert_eq!(op!(fabric, ops.trywait(&mut [fid][0], 1)), 0);
        }
        close_all!(cq, counter, domain, fabric);
    }
}
