#![allow(unsafe_code)]
//! Collective operations (`fi_collective(3)`).

use core::ffi::c_void;

use ripstop_abi::*;

use super::vectors::{Operation, first, size_of_elements, sum};
use crate::call::Detail;
use crate::call::Kind::Collective;

/// One of so many elements.
const fn of(count: usize, datatype: fi_datatype, desc: *mut c_void, group: fi_addr_t) -> Operation {
    let bytes = size_of_elements(datatype, count);
    Operation::of_bytes(Collective, bytes, desc).to(group, core::ptr::null_mut())
}

/// # Safety
///
/// `msg` is null or that of a call.
unsafe fn whole(msg: *const fi_msg_collective, flags: u64) -> Detail {
    // SAFETY: null or a message, by the contract of this function.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return Detail::None;
    };
    // SAFETY: the elements of this message.
    let count = unsafe { sum(msg.msg_iov, msg.iov_count, |ioc| ioc.count) };
    // SAFETY: the descriptors of this message.
    let desc = unsafe { first(msg.desc, msg.iov_count) };
    let operation = of(count, msg.datatype, desc, msg.coll_addr);
    operation.context(msg.context).flags(flags).detail()
}

super::interpose! {
    fi_ops_collective at fid_ep.collective {
        barrier "fi_barrier" [Collective] (ep: *mut fid_ep, group: fi_addr_t, context: *mut c_void) -> isize
            = of(0, 0, core::ptr::null_mut(), group).context(context).detail();
        broadcast "fi_broadcast" [Collective] (
            ep: *mut fid_ep, buf: *mut c_void, count: usize, desc: *mut c_void, group: fi_addr_t,
            root_addr: fi_addr_t, datatype: fi_datatype, flags: u64, context: *mut c_void,
        ) -> isize = of(count, datatype, desc, group).context(context).flags(flags).detail();
        alltoall "fi_alltoall" [Collective] (
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void,
            result_desc: *mut c_void, group: fi_addr_t, datatype: fi_datatype, flags: u64,
            context: *mut c_void,
        ) -> isize = of(count, datatype, desc, group).context(context).flags(flags).detail();
        allreduce "fi_allreduce" [Collective] (
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void,
            result_desc: *mut c_void, group: fi_addr_t, datatype: fi_datatype, op: fi_op, flags: u64,
            context: *mut c_void,
        ) -> isize = of(count, datatype, desc, group).context(context).flags(flags).detail();
        allgather "fi_allgather" [Collective] (
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void,
            result_desc: *mut c_void, group: fi_addr_t, datatype: fi_datatype, flags: u64,
            context: *mut c_void,
        ) -> isize = of(count, datatype, desc, group).context(context).flags(flags).detail();
        reduce_scatter "fi_reduce_scatter" [Collective] (
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void,
            result_desc: *mut c_void, group: fi_addr_t, datatype: fi_datatype, op: fi_op, flags: u64,
            context: *mut c_void,
        ) -> isize = of(count, datatype, desc, group).context(context).flags(flags).detail();
        reduce "fi_reduce" [Collective] (
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void,
            result_desc: *mut c_void, group: fi_addr_t, root_addr: fi_addr_t, datatype: fi_datatype,
            op: fi_op, flags: u64, context: *mut c_void,
        ) -> isize = of(count, datatype, desc, group).context(context).flags(flags).detail();
        scatter "fi_scatter" [Collective] (
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void,
            result_desc: *mut c_void, group: fi_addr_t, root_addr: fi_addr_t, datatype: fi_datatype,
            flags: u64, context: *mut c_void,
        ) -> isize = of(count, datatype, desc, group).context(context).flags(flags).detail();
        gather "fi_gather" [Collective] (
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void,
            result_desc: *mut c_void, group: fi_addr_t, root_addr: fi_addr_t, datatype: fi_datatype,
            flags: u64, context: *mut c_void,
        ) -> isize = of(count, datatype, desc, group).context(context).flags(flags).detail();
        msg "ep->collective->msg" [Collective] (
            ep: *mut fid_ep, msg: *const fi_msg_collective, resultv: *mut fi_ioc,
            result_desc: *mut *mut c_void, result_count: usize, flags: u64,
        ) -> isize => whole(msg, flags);
        barrier2 "fi_barrier2" [Collective] (
            ep: *mut fid_ep, group: fi_addr_t, flags: u64, context: *mut c_void,
        ) -> isize = of(0, 0, core::ptr::null_mut(), group).context(context).flags(flags).detail();
    }
}
