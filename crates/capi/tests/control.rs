//! A C program that looks for interfaces, opens and closes.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::{CStr, c_void};
use core::ptr;

use c::*;
use ripstop_abi::*;
use ripstop_capi::*;

const NONE: *mut c_void = ptr::null_mut();

#[test]
fn every_node_answers() {
    let nodes: [functions::fi_getinfo_fn; 7] = [
        ripstop_fi_getinfo_1_0,
        ripstop_fi_getinfo_1_1,
        ripstop_fi_getinfo_1_2,
        ripstop_fi_getinfo_1_3,
        ripstop_fi_getinfo_1_7,
        ripstop_fi_getinfo_1_8,
        ripstop_fi_getinfo_1_9,
    ];
    let hints = Info::hints();
    hints.ep().type_ = FI_EP_RDM;
    hints.get().mode = u64::MAX;
    for (getinfo, minor) in nodes.into_iter().zip([0, 1, 2, 3, 7, 8, 9]) {
        let mut info = ptr::null_mut();
        let version = FI_VERSION(1, minor);
        let code = unsafe {
            let (node, service) = (c"127.0.0.1".as_ptr(), c"7".as_ptr());
            getinfo(version, node, service, 0, hints.0, &mut info)
        };
        assert_eq!(code, 0, "node 1.{minor}");
        let found = Info(info);
        assert_eq!(found.ep().type_, FI_EP_RDM);
        assert_eq!(found.fabric().api_version, version);
        assert_eq!(found.get().dest_addrlen, 16);
    }
}

#[test]
fn bad_questions_are_refused() {
    let get = |version, hints: Option<&Info>| getinfo(version, None, None, 0, hints);
    assert_eq!(get(FI_VERSION(2, 7), None).err(), Some(-FI_ENOSYS));
    assert_eq!(get(FI_VERSION(3, 0), None).err(), Some(-FI_ENOSYS));
    let null = ptr::null();
    // SAFETY: null is refused.
    let code = unsafe { ripstop_fi_getinfo_1_9(NOW, null, null, 0, ptr::null(), ptr::null_mut()) };
    assert_eq!(code, -FI_EINVAL);
    let source = getinfo(NOW, None, None, FI_SOURCE, None).err();
    assert_eq!(source, Some(-FI_EINVAL));
    let nodata = |change: fn(&Info)| {
        let hints = Info::hints();
        change(&hints);
        assert_eq!(get(NOW, Some(&hints)).err(), Some(-FI_ENODATA));
    };
    nodata(|hints| hints.get().caps = 1 << 60);
    nodata(|hints| hints.get().addr_format = FI_ADDR_EFA);
    nodata(|hints| hints.ep().type_ = 17);
    nodata(|hints| hints.ep().protocol = FI_PROTO_EFA);
    nodata(|hints| hints.domain().threading = 99);
    nodata(|hints| hints.tx().inject_size = usize::MAX);
    nodata(|hints| hints.fabric().prov_name = dup(c"no such provider"));
    nodata(|hints| hints.domain().name = dup(c"no such interface"));
    let hints = Info::hints();
    hints.get().handle = hints.0.cast();
    assert_eq!(get(NOW, Some(&hints)).err(), Some(-FI_EINVAL));
    // Any name is one for shared memory.
    let sockets = Info::hints();
    sockets.fabric().prov_name = dup(c"tcp");
    let (node, service) = (Some(c"localhost"), Some(c"1"));
    let numeric = getinfo(NOW, node, service, FI_NUMERICHOST, Some(&sockets)).err();
    assert_eq!(numeric, Some(-FI_ENODATA));
}

#[test]
fn providers_are_listed() {
    let list = getinfo(NOW, None, None, FI_PROV_ATTR_ONLY, None).unwrap();
    let mut names = Vec::new();
    let mut next: *const ripstop_abi::fi_info = list.get();
    // SAFETY: the list that `list` frees.
    while let Some(info) = unsafe { next.as_ref() } {
        // SAFETY: each entry has a fabric that has a provider's name.
        names.push(unsafe { CStr::from_ptr((*info.fabric_attr).prov_name) }.to_owned());
        next = info.next;
    }
    let listed = [
        c"verbs",
        c"tcp;ofi_rxm",
        c"verbs;ofi_rxm",
        c"tcp",
        c"shm",
        c"lnx",
    ];
    assert_eq!(names, listed.map(CStr::to_owned));
    let all = getinfo(NOW, None, None, 0, None).unwrap();
    assert!(!all.get().next.is_null());
}

#[test]
fn a_found_interface_can_be_asked_for_again() {
    let found = loopback(FI_EP_RDM, |_| ());
    let copy = Info(unsafe { ripstop_fi_dupinfo_1_9(found.0) });
    drop(found);
    let again = getinfo(NOW, None, None, 0, Some(&copy)).unwrap();
    assert_eq!(again.domain().threading, copy.domain().threading);
    let name = |info: &Info| unsafe { CStr::from_ptr(info.domain().name) }.to_owned();
    assert_eq!(name(&again), name(&copy));
}

#[test]
fn objects_close_from_the_inside_out() {
    let info = loopback(FI_EP_RDM, |_| ());
    let mut fabric: *mut fid_fabric = ptr::null_mut();
    let context = ptr::without_provenance_mut::<c_void>(3);
    let code = unsafe { ripstop_fi_fabric2_1_8(info.0, &mut fabric, 0, context) };
    assert_eq!(code, 0);
    let seen = unsafe {
        (
            (*fabric).fid.fclass,
            (*fabric).fid.context,
            (*fabric).api_version,
        )
    };
    assert_eq!(seen, (FI_CLASS_FABRIC, context, NOW));
    let mut domain: *mut fid_domain = ptr::null_mut();
    assert_eq!(op!(fabric, ops.domain2(info.0, &mut domain, 0, context)), 0);
    let (eq, cq, av) = (eq(fabric, FI_WAIT_NONE), cq(domain, 0, 0), av(domain, 0, 0));
    assert_eq!(close(fabric), -FI_EBUSY);
    assert_eq!(close(domain), -FI_EBUSY);
    let ep = endpoint(domain, &info);
    assert_eq!(bind(ep, cq, FI_TRANSMIT | FI_RECV), 0);
    assert_eq!(bind(ep, av, 0), 0);
    assert_eq!(bind(domain, eq, 0), 0);
    assert_eq!(close(cq), -FI_EBUSY);
    assert_eq!(close(av), -FI_EBUSY);
    close_all!(ep, cq, av, domain, eq, fabric);
}

#[test]
fn what_is_open_is_named() {
    let info = loopback(FI_EP_RDM, |_| ());
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    let found = loopback(FI_EP_RDM, |_| ());
    assert!(!found.fabric().fabric.is_null());
    assert!(!found.domain().domain.is_null());
    close_all!(domain, fabric);
}

#[test]
fn opening_checks_its_arguments() {
    let info = loopback(FI_EP_RDM, |_| ());
    let mut fabric: *mut fid_fabric = ptr::null_mut();
    let attr = info.get().fabric_attr;
    let open =
        |attr, fabric: *mut *mut fid_fabric| unsafe { ripstop_fi_fabric_1_1(attr, fabric, NONE) };
    assert_eq!(open(ptr::null_mut(), &mut fabric), -FI_EINVAL);
    assert_eq!(open(attr, ptr::null_mut()), -FI_EINVAL);
    let mut nameless = fi_fabric_attr::default();
    assert_eq!(open(&mut nameless, &mut fabric), -FI_EINVAL);
    let mut unknown = fi_fabric_attr {
        name: c"net".as_ptr().cast_mut(),
        prov_name: c"nobody".as_ptr().cast_mut(),
        ..Default::default()
    };
    assert_eq!(open(&mut unknown, &mut fabric), -FI_ENODEV);
    let flags = unsafe { ripstop_fi_fabric2_1_8(info.0, &mut fabric, 1, NONE) };
    assert_eq!(flags, -FI_EINVAL);
    let null = unsafe { ripstop_fi_fabric2_1_8(ptr::null_mut(), &mut fabric, 0, NONE) };
    assert_eq!(null, -FI_EINVAL);
    assert!(fabric.is_null());
    let old = unsafe { ripstop_fi_fabric_1_0(attr, &mut fabric, NONE) };
    assert_eq!(old, 0);
    assert_eq!(unsafe { (*fabric).api_version }, FI_VERSION(1, 0));

    let mut domain: *mut fid_domain = ptr::null_mut();
    assert_eq!(
        op!(fabric, ops.domain(ptr::null_mut(), &mut domain, NONE)),
        -FI_EINVAL
    );
    assert_eq!(
        op!(fabric, ops.domain(info.0, ptr::null_mut(), NONE)),
        -FI_EINVAL
    );
    assert_eq!(
        op!(fabric, ops.domain2(info.0, &mut domain, FI_PEER, NONE)),
        -FI_EINVAL
    );
    let mut empty = fi_info::default();
    assert_eq!(
        op!(fabric, ops.domain(&mut empty, &mut domain, NONE)),
        -FI_EINVAL
    );
    let mut set: *mut fid_wait = ptr::null_mut();
    assert_eq!(
        op!(fabric, ops.wait_open(ptr::null_mut(), &mut set)),
        -FI_EINVAL
    );
    assert_eq!(
        control(fabric, FI_GETWAIT, ptr::null_mut::<u8>()),
        -FI_ENOSYS
    );
    let mut ops = NONE;
    let name = c"anything".as_ptr();
    assert_eq!(fid!(fabric, ops_open, name, 0, &mut ops, NONE), -FI_ENOSYS);
    assert_eq!(fid!(fabric, ops_set, name, 0, NONE, NONE), -FI_ENOSYS);
    assert_eq!(close(fabric), 0);
}

#[test]
fn a_domain_checks_what_it_opens() {
    let info = loopback(FI_EP_RDM, |_| ());
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    let mut ep: *mut fid_ep = ptr::null_mut();
    assert_eq!(
        op!(domain, ops.endpoint(ptr::null_mut(), &mut ep, NONE)),
        -FI_EINVAL
    );
    assert_eq!(
        op!(domain, ops.endpoint2(info.0, &mut ep, 1, NONE)),
        -FI_ENOSYS
    );
    assert_eq!(
        op!(domain, ops.scalable_ep(ptr::null_mut(), &mut ep, NONE)),
        -FI_EINVAL
    );
    let mut stx = ptr::null_mut();
    let mut attr = fi_tx_attr {
        inject_size: usize::MAX,
        ..Default::default()
    };
    assert_eq!(
        op!(domain, ops.stx_ctx(&mut attr, &mut stx, NONE)),
        -FI_EINVAL
    );
    let mut set = ptr::null_mut();
    let mut attr = fi_poll_attr { flags: 1 };
    assert_eq!(
        op!(domain, ops.poll_open(&mut attr, &mut set)),
        -FI_EBADFLAGS
    );
    let mut cq = ptr::null_mut();
    assert_eq!(
        op!(domain, ops.cq_open(ptr::null_mut(), &mut cq, NONE)),
        -FI_EINVAL
    );
    let mut attr = fi_cq_attr {
        format: 9,
        ..Default::default()
    };
    assert_eq!(
        op!(domain, ops.cq_open(&mut attr, &mut cq, NONE)),
        -FI_EINVAL
    );
    let mut av = ptr::null_mut();
    assert_eq!(
        op!(domain, ops.av_open(ptr::null_mut(), &mut av, NONE)),
        -FI_EINVAL
    );
    let mut attr = fi_av_attr {
        type_: 9,
        ..Default::default()
    };
    assert_eq!(
        op!(domain, ops.av_open(&mut attr, &mut av, NONE)),
        -FI_EINVAL
    );
    attr.type_ = FI_AV_MAP;
    attr.name = c"a/b".as_ptr();
    assert_eq!(
        op!(domain, ops.av_open(&mut attr, &mut av, NONE)),
        -FI_EINVAL
    );
    attr.name = ptr::null();
    attr.flags = FI_READ;
    assert_eq!(
        op!(domain, ops.av_open(&mut attr, &mut av, NONE)),
        -FI_EINVAL,
        "without a name"
    );
    attr.flags = 1;
    assert_eq!(
        op!(domain, ops.av_open(&mut attr, &mut av, NONE)),
        -FI_EINVAL
    );
    let mut cntr = ptr::null_mut();
    assert_eq!(
        op!(domain, ops.cntr_open(ptr::null_mut(), &mut cntr, NONE)),
        -FI_EINVAL
    );
    let mut attr = fi_cntr_attr {
        events: 9,
        ..Default::default()
    };
    assert_eq!(
        op!(domain, ops.cntr_open(&mut attr, &mut cntr, NONE)),
        -FI_EINVAL
    );
    let query = |datatype, op, flags| {
        op!(
            domain,
            ops.query_atomic(datatype, op, ptr::null_mut(), flags)
        )
    };
    assert_eq!(query(0, 0, 0), 0);
    assert_eq!(query(99, 0, 0), -FI_EOPNOTSUPP);
    assert_eq!(query(FI_DOUBLE, FI_BOR, 0), -FI_EOPNOTSUPP);
    assert_eq!(query(0, 0, FI_COMPARE_ATOMIC), -FI_EOPNOTSUPP);
    close_all!(domain, fabric);
}

#[test]
fn an_endpoint_checks_what_it_is_given() {
    let info = loopback(FI_EP_RDM, |_| ());
    let fabric = fabric(&info);
    let (domain, other) = (domain(fabric, &info), domain(fabric, &info));
    let ep = endpoint(domain, &info);
    let foreign = cq(other, 0, 0);
    assert_eq!(bind(ep, ptr::null_mut::<fid>(), 0), -FI_EINVAL);
    assert_eq!(bind(ep, fabric, 0), -FI_EINVAL);
    assert_eq!(bind(ep, ep, 0), -FI_EINVAL);
    assert_eq!(
        bind(ep, foreign, FI_TRANSMIT),
        -FI_EDOMAIN,
        "of another domain"
    );
    let (cq, av) = (cq(domain, 0, 0), av(domain, 0, 0));
    assert_eq!(bind(ep, cq, FI_TRANSMIT | 1), -FI_EBADFLAGS);
    assert_eq!(bind(ep, av, 1), -FI_EBADFLAGS);
    assert_eq!(bind(domain, cq, 0), -FI_EINVAL);
    assert_eq!(control(ep, 99, NONE), -FI_ENOSYS);
    assert_eq!(control(ep, FI_ALIAS, NONE), -FI_EINVAL);
    let early = op!(ep, msg.send(c"x".as_ptr().cast(), 1, NONE, 0, NONE));
    assert_eq!(early, -FI_EOPBADSTATE as isize);
    assert_eq!(bind(ep, cq, FI_TRANSMIT | FI_RECV), 0);
    assert_eq!(bind(ep, av, 0), 0);
    assert_eq!(enable(ep), 0);
    let myself = insert(av, &name(unsafe { (*ep).cm }, ep.cast()));
    let invalid = -FI_EINVAL as isize;
    assert_eq!(
        op!(ep, msg.send(ptr::null(), 1, NONE, myself, NONE)),
        invalid
    );
    assert_eq!(
        op!(ep, msg.sendv(ptr::null(), ptr::null_mut(), 1, myself, NONE)),
        invalid
    );
    assert_eq!(op!(ep, msg.sendmsg(ptr::null(), 0)), invalid);
    assert_eq!(op!(ep, msg.recvmsg(ptr::null(), 0)), invalid);
    assert_eq!(op!(ep, tagged.sendmsg(ptr::null(), 0)), invalid);
    assert_eq!(op!(ep, tagged.recvmsg(ptr::null(), 0)), invalid);
    let iov = [iovec::default(); 5];
    assert_eq!(
        op!(
            ep,
            msg.sendv(iov.as_ptr(), ptr::null_mut(), 5, myself, NONE)
        ),
        invalid
    );
    let big = vec![0_u8; info.tx().inject_size + 1];
    let sent = op!(ep, msg.inject(big.as_ptr().cast(), big.len(), myself));
    assert_eq!(sent, -FI_EMSGSIZE as isize);
    let nobody = op!(ep, msg.inject(big.as_ptr().cast(), 1, 77));
    assert_eq!(nobody, invalid);
    let rma = op!(
        ep,
        rma.write(big.as_ptr().cast(), 1, NONE, myself, 0, 0, NONE)
    );
    assert_eq!(rma, -FI_ENOSYS as isize);
    let null = ptr::null_mut();
    assert_eq!(op!(cq, ops.read(null, 1)), invalid);
    assert_eq!(op!(cq, ops.readfrom(null, 1, ptr::null_mut())), invalid);
    assert_eq!(op!(cq, ops.sread(null, 1, ptr::null(), 0)), invalid);
    assert_eq!(op!(cq, ops.readerr(ptr::null_mut(), 0)), invalid);
    assert_eq!(op!(fabric, ops.trywait(ptr::null_mut(), 1)), -FI_EINVAL);
    assert_eq!(op!(fabric, ops.trywait(ptr::null_mut(), -1)), -FI_EINVAL);
    let mut fids = [ep.cast::<fid>()];
    assert_eq!(op!(fabric, ops.trywait(fids.as_mut_ptr(), 1)), -FI_EINVAL);
    let fids = [
        ep.cast::<fid>(),
        cq.cast(),
        foreign.cast(),
        av.cast(),
        domain.cast(),
    ];
    for fid in fids.into_iter().chain([other.cast(), fabric.cast()]) {
        assert_eq!(close(fid), 0);
    }
}

#[test]
fn event_queues_check_and_keep_order() {
    let info = loopback(FI_EP_MSG, |_| ());
    let fabric = fabric(&info);
    let queue = eq(fabric, FI_WAIT_FD);
    let mut fids = [queue.cast::<fid>()];
    assert_eq!(op!(fabric, ops.trywait(fids.as_mut_ptr(), 1)), 0);
    let mut fd = -1;
    assert_eq!(control(queue, FI_GETWAIT, &mut fd), 0);
    assert!(fd >= 0);
    let mut entry = fi_eq_entry {
        fid: fabric.cast(),
        ..Default::default()
    };
    let buf = ptr::from_mut(&mut entry).cast::<c_void>();
    for data in 0..2 {
        unsafe { (*buf.cast::<fi_eq_entry>()).data = data };
        assert_eq!(op!(queue, ops.write(FI_NOTIFY, buf, 24, 0)), 24);
    }
    assert_eq!(op!(fabric, ops.trywait(fids.as_mut_ptr(), 1)), -FI_EAGAIN);
    let mut event = 9;
    let mut read = |len, flags| op!(queue, ops.read(&mut event, buf, len, flags));
    assert_eq!(read(8, 0), -FI_ETOOSMALL as isize);
    assert_eq!(read(24, FI_PEEK | 1), 24);
    assert_eq!(read(24, 0), 24);
    assert_eq!(unsafe { (*buf.cast::<fi_eq_entry>()).data }, 0);
    assert_eq!(read(24, 0), 24);
    assert_eq!(unsafe { (*buf.cast::<fi_eq_entry>()).data }, 1);
    assert_eq!(read(24, 0), -FI_EAGAIN as isize);
    assert_eq!(event, FI_NOTIFY);
    let null = op!(queue, ops.read(&mut event, NONE, 24, 0));
    assert_eq!(null, -FI_EAGAIN as isize, "the entry may be left out");
    assert_eq!(
        op!(queue, ops.readerr(ptr::null_mut(), 0)),
        -FI_EINVAL as isize
    );
    let waited = op!(queue, ops.sread(&mut event, buf, 24, 10, 0));
    assert_eq!(waited, -FI_EAGAIN as isize);
    assert_eq!(close(queue), 0);
    let mut queue: *mut fid_eq = ptr::null_mut();
    assert_eq!(
        op!(fabric, ops.eq_open(ptr::null_mut(), &mut queue, NONE)),
        -FI_EINVAL
    );
    let mut attr = fi_eq_attr {
        wait_obj: 9,
        ..Default::default()
    };
    assert_eq!(
        op!(fabric, ops.eq_open(&mut attr, &mut queue, NONE)),
        -FI_EINVAL
    );
    assert_eq!(close(fabric), 0);
}
