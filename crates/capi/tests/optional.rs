//! A C program that leaves out what it may: attributes, contexts, descriptors, places for answers.
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

const NONE: *mut c_void = ptr::null_mut();

/// Sandia OpenSHMEM opens its shared transmit contexts so.
#[test]
fn shared_contexts_need_no_attributes() {
    let info = loopback(FI_EP_RDM, |hints| {
        hints.ep().tx_ctx_cnt = FI_SHARED_CONTEXT;
        hints.ep().rx_ctx_cnt = FI_SHARED_CONTEXT;
    });
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    let av = av(domain, FI_AV_UNSPEC, 0);
    let cq = cq(domain, FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE);
    let (mut stx, mut srx) = (ptr::null_mut(), ptr::null_mut());
    assert_eq!(op!(domain, ops.stx_ctx(ptr::null_mut(), &mut stx, NONE)), 0);
    assert_eq!(op!(domain, ops.srx_ctx(ptr::null_mut(), &mut srx, NONE)), 0);
    let ep = bound(domain, &info, av, cq);
    assert_eq!(bind(ep, stx, 0), 0);
    assert_eq!(bind(ep, srx, 0), 0);
    assert_eq!(enable(ep), 0);
    let myself = insert(av, &name(unsafe { (*ep).cm }, ep.cast()));
    let (mut room, text) = ([0_u8; 8], *b"to self!");
    let at: *mut c_void = room.as_mut_ptr().cast();
    let from: *const c_void = text.as_ptr().cast();
    assert_eq!(op!(srx, msg.recv(at, 8, NONE, FI_ADDR_UNSPEC, NONE)), 0);
    post(cq, || op!(ep, msg.send(from, 8, NONE, myself, NONE)));
    let _first: fi_cq_entry = completion(cq);
    let _second: fi_cq_entry = completion(cq);
    assert_eq!(room, text);
    close_all!(ep, stx, srx, cq, av, domain, fabric);
}

/// Where a man page lets a pointer be null, the call goes on as it does with one.
#[test]
fn places_for_answers_may_be_left_out() {
    let pair = Pair::open(FI_CQ_FORMAT_CONTEXT, FI_WAIT_UNSPEC, |hints| {
        hints.get().caps = FI_MSG | FI_RMA | FI_ATOMIC;
    });
    let [a, b] = pair.eps;
    let to = pair.addrs[1];
    // fi_poll_open, fi_cq_read, fi_cq_readfrom, fi_cq_sread, fi_cq_strerror.
    let mut set = ptr::null_mut();
    let domain = pair.domain;
    assert_eq!(op!(domain, ops.poll_open(ptr::null_mut(), &mut set)), 0);
    assert_eq!(close(set), 0);
    let looked = op!(pair.cq, ops.read(NONE, 0));
    assert!(looked == 0 || looked == -FI_EAGAIN as isize, "{looked}");
    let mut entry = fi_cq_entry::default();
    let into: *mut c_void = ptr::from_mut(&mut entry).cast();
    let (no_source, no_cond) = (ptr::null_mut(), ptr::null());
    let text = op!(
        pair.cq,
        ops.strerror(FI_EINVAL, no_cond, ptr::null_mut(), 0)
    );
    assert!(!unsafe { CStr::from_ptr(text) }.is_empty());
    // fi_sendmsg and fi_recvmsg without vectors and descriptors.
    let msg = fi_msg {
        addr: to,
        ..Default::default()
    };
    let any = fi_msg {
        addr: FI_ADDR_UNSPEC,
        ..Default::default()
    };
    assert_eq!(op!(b, msg.recvmsg(&any, FI_COMPLETION)), 0);
    post(pair.cq, || op!(a, msg.sendmsg(&msg, FI_COMPLETION)));
    let read = || op!(pair.cq, ops.readfrom(into, 1, no_source));
    until("the first", || (read() == 1).then_some(()));
    assert_eq!(op!(pair.cq, ops.sread(into, 1, no_cond, 60_000)), 1);
    // fi_send, fi_recv and fi_inject of nothing.
    assert_eq!(op!(b, msg.recv(NONE, 0, NONE, FI_ADDR_UNSPEC, NONE)), 0);
    post(pair.cq, || op!(a, msg.inject(ptr::null(), 0, to)));
    let from = || op!(pair.cq, ops.sreadfrom(into, 1, no_source, no_cond, 60_000));
    assert_eq!(from(), 1);
    // fi_atomicvalid and its like, fi_query_atomic.
    let (number, none) = (FI_UINT64, ptr::null_mut());
    assert_eq!(op!(a, atomic.writevalid(number, FI_SUM, none)), 0);
    assert_eq!(op!(a, atomic.readwritevalid(number, FI_SUM, none)), 0);
    assert_eq!(op!(a, atomic.compwritevalid(number, FI_CSWAP, none)), 0);
    let attr = ptr::null_mut();
    assert_eq!(op!(domain, ops.query_atomic(number, FI_SUM, attr, 0)), 0);
    // fi_eq_read: the number of the event, its entry, or both.
    let events = eq(pair.fabric, FI_WAIT_NONE);
    let text = fi_eq_entry {
        data: 7,
        ..Default::default()
    };
    let (from, size) = (ptr::from_ref(&text).cast(), size_of::<fi_eq_entry>());
    let write = || op!(events, ops.write(9, from, size, 0));
    let read =
        |event: *mut u32, into: *mut c_void, flags| op!(events, ops.read(event, into, size, flags));
    let (mut number, mut entry) = (0, fi_eq_entry::default());
    let into: *mut c_void = ptr::from_mut(&mut entry).cast();
    let (again, none) = (-FI_EAGAIN as isize, ptr::null_mut());
    assert_eq!(read(none, NONE, 0), again);
    assert_eq!((write(), write()), (size as isize, size as isize));
    assert_eq!(read(&mut number, NONE, FI_PEEK), 0);
    assert_eq!(number, 9);
    assert_eq!(read(none, into, 0), size as isize);
    assert_eq!(entry.data, 7);
    assert_eq!((read(none, NONE, 0), read(none, NONE, 0)), (0, again));
    assert_eq!(close(events), 0);
    // fi_av_insert: the index is known where a table is filled in order.
    let own = name(unsafe { (*a).cm }, a.cast());
    let (addr, unwanted) = (own.as_ptr().cast::<c_void>(), ptr::null_mut());
    assert_eq!(op!(pair.av, ops.insert(addr, 1, unwanted, 0, NONE)), 1);
    assert_eq!(op!(pair.av, ops.remove(ptr::null_mut(), 0, 0)), 0);
}
