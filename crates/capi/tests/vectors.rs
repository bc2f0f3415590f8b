//! A C program with address vectors and memory regions.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::{c_int, c_void};
use core::ptr;

use c::*;
use ripstop_abi::*;

const NONE: *mut c_void = ptr::null_mut();

fn open() -> OpenDomain {
    OpenDomain::of(loopback(FI_EP_RDM, |_| ()))
}

fn lookup(av: *mut fid_av, peer: fi_addr_t) -> Result<Vec<u8>, c_int> {
    let mut addr = [0_u8; 64];
    let mut len = 64;
    match op!(
        av,
        ops.lookup(peer, addr.as_mut_ptr().cast::<c_void>(), &mut len)
    ) {
        0 => Ok(addr[..len].to_vec()),
        code => Err(code),
    }
}

#[test]
fn addresses_go_in_and_out() {
    let opened = open();
    for kind in [FI_AV_MAP, FI_AV_TABLE] {
        let av = av(opened.domain, kind, 0);
        let peers = [
            sockaddr([10, 0, 0, 1], 1),
            vec![0; 16],
            sockaddr([10, 0, 0, 2], 2),
        ]
        .concat();
        let mut found = [7; 3];
        let mut errors: [c_int; 3] = [-1; 3];
        let context = errors.as_mut_ptr().cast::<c_void>();
        let addr = peers.as_ptr().cast::<c_void>();
        let code = op!(
            av,
            ops.insert(addr, 3, found.as_mut_ptr(), FI_SYNC_ERR, context)
        );
        assert_eq!(code, 2);
        assert_eq!(found[1], FI_ADDR_NOTAVAIL);
        assert_eq!((errors[0], errors[2]), (0, 0));
        assert!(errors[1] > 0);
        assert_eq!(lookup(av, found[2]).unwrap(), sockaddr([10, 0, 0, 2], 2));
        assert_eq!(lookup(av, FI_ADDR_NOTAVAIL), Err(-FI_EINVAL));
        let nowhere = op!(av, ops.lookup(found[2], NONE, ptr::null_mut()));
        assert_eq!(nowhere, -FI_EINVAL);
        let remove = |found: &mut fi_addr_t| op!(av, ops.remove(found, 1, 0));
        assert_eq!(remove(&mut found[0]), 0);
        assert_eq!(remove(&mut found[0]), -FI_EINVAL);
        assert_eq!(lookup(av, found[0]), Err(-FI_EINVAL));
        let again = op!(av, ops.insert(addr, 1, ptr::null_mut(), 0, NONE));
        assert_eq!(again, 1, "without a place for the result");
        assert_eq!(
            op!(av, ops.insert(ptr::null(), 0, ptr::null_mut(), 0, NONE)),
            0
        );
        assert_eq!(close(av), 0);
    }
}

#[test]
fn patterns_and_names() {
    let opened = open();
    let av = av(opened.domain, FI_AV_TABLE, 0);
    let mut found = [0; 4];
    let (node, service) = (c"10.1.0.255".as_ptr(), c"700".as_ptr());
    let code = op!(
        av,
        ops.insertsym(node, 2, service, 2, found.as_mut_ptr(), 0, NONE)
    );
    assert_eq!(code, 4);
    assert_eq!(
        lookup(av, found[0]).unwrap(),
        sockaddr([10, 1, 0, 255], 700)
    );
    assert_eq!(lookup(av, found[3]).unwrap(), sockaddr([10, 1, 1, 0], 701));
    let code = op!(
        av,
        ops.insertsvc(c"localhost".as_ptr(), service, found.as_mut_ptr(), 0, NONE)
    );
    assert_eq!(code, 1);
    assert_eq!(lookup(av, found[0]).unwrap(), sockaddr([127, 0, 0, 1], 700));
    let code = op!(
        av,
        ops.insertsvc(ptr::null(), service, found.as_mut_ptr(), 0, NONE)
    );
    assert_eq!(code, -FI_EINVAL);
    let many = usize::MAX;
    let code = op!(
        av,
        ops.insertsym(node, many, service, 2, found.as_mut_ptr(), 0, NONE)
    );
    assert_eq!(code, -FI_EINVAL);
    assert_eq!(close(av), 0);
}

#[test]
fn insertions_may_report_to_an_event_queue() {
    let opened = open();
    let av = av(opened.domain, FI_AV_TABLE, FI_EVENT);
    let peers = [sockaddr([10, 0, 0, 1], 1), vec![0; 16]].concat();
    let addr = peers.as_ptr().cast::<c_void>();
    let context = ptr::without_provenance_mut::<c_void>(5);
    let mut found = [7; 2];
    let mut insert = || op!(av, ops.insert(addr, 2, found.as_mut_ptr(), 0, context));
    assert_eq!(insert(), -FI_ENOEQ);
    let eq = eq(opened.fabric, FI_WAIT_NONE);
    assert_eq!(bind(av, eq, 0), 0);
    assert_eq!(insert(), 0);
    let mut entry = fi_eq_entry::default();
    let mut event = 99;
    let mut read = || {
        let buf = ptr::from_mut(&mut entry).cast::<c_void>();
        op!(eq, ops.read(&mut event, buf, size_of::<fi_eq_entry>(), 0))
    };
    assert_eq!(read(), -FI_EAVAIL as isize);
    let mut error = fi_eq_err_entry::default();
    assert_eq!(op!(eq, ops.readerr(&mut error, 0)), 48);
    assert_eq!((error.fid, error.data), (av.cast(), 1));
    assert_eq!(error.context.addr(), 5);
    assert_eq!(read(), 24);
    assert_eq!(event, FI_AV_COMPLETE);
    assert_eq!((entry.fid, entry.data), (av.cast(), 1));
    assert_eq!(entry.context.addr(), 5);
    assert_eq!(close(eq), -FI_EBUSY);
    close_all!(av, eq);
}

#[test]
fn memory_is_registered_and_released() {
    let opened = open();
    let domain = opened.domain;
    let mut memory = [0_u8; 64];
    let buf = memory.as_mut_ptr().cast::<c_void>();
    let ops = unsafe { &*(*domain).mr };
    let mut mr: *mut fid_mr = ptr::null_mut();
    let fid = domain.cast::<fid>();
    let reg = |access, key, mr: &mut *mut fid_mr| unsafe {
        ops.reg.unwrap()(fid, buf, 64, access, 0, key, 0, mr, NONE)
    };
    assert_eq!(reg(FI_SEND | FI_RECV, 11, &mut mr), 0);
    assert_eq!(unsafe { (*mr).key }, 11);
    assert_eq!(close(domain), -FI_EBUSY);
    assert_eq!(close(mr), 0);
    // No access, and not looked at.
    assert_eq!(reg(FI_SEND | 1 << 50, 12, &mut mr), 0);
    assert_eq!(close(mr), 0);
    let mut attr = fi_mr_attr {
        mr: fi_mr_attr_iov {
            mr_iov: ptr::null(),
        },
        iov_count: 1,
        access: FI_SEND,
        ..Default::default()
    };
    let regattr = |attr: &fi_mr_attr, flags, mr: &mut *mut fid_mr| unsafe {
        ops.regattr.unwrap()(fid, attr, flags, mr)
    };
    assert_eq!(regattr(&attr, 0, &mut mr), -FI_EINVAL);
    assert_eq!(regattr(&attr, FI_MR_DMABUF, &mut mr), -FI_ENOSYS);
    let iov = [iovec {
        iov_base: buf,
        iov_len: 64,
    }; 5];
    attr.mr.mr_iov = iov.as_ptr();
    attr.iface = FI_HMEM_CUDA;
    assert_eq!(regattr(&attr, 0, &mut mr), -FI_ENOSYS);
    attr.iface = FI_HMEM_SYSTEM;
    attr.iov_count = 5;
    assert_eq!(regattr(&attr, 0, &mut mr), -FI_EINVAL);
    attr.iov_count = 1;
    assert_eq!(regattr(&attr, 0, &mut mr), 0);
    assert_eq!(close(mr), 0);
}
