//! Mirror of `rdma/fi_collective.h`: collective operations.

use core::ffi::{c_int, c_void};

use crate::fabric::{fi_addr_t, fi_ioc, fid};
use crate::fi_atomic::fi_atomic_attr;
use crate::fi_domain::{fi_collective_op, fi_datatype, fi_op};
use crate::fi_endpoint::fid_ep;

structs! {
    /// Operations of an address vector set, `fi_av_set`(3).
    ops fi_ops_av_set: 56 bytes {
        set_union @ 8: fn(dst: *mut fid_av_set, src: *const fid_av_set) -> c_int,
        intersect @ 16: fn(dst: *mut fid_av_set, src: *const fid_av_set) -> c_int,
        diff @ 24: fn(dst: *mut fid_av_set, src: *const fid_av_set) -> c_int,
        insert @ 32: fn(set: *mut fid_av_set, addr: fi_addr_t) -> c_int,
        remove @ 40: fn(set: *mut fid_av_set, addr: fi_addr_t) -> c_int,
        addr @ 48: fn(set: *mut fid_av_set, coll_addr: *mut fi_addr_t) -> c_int,
    }

    /// An address vector set, `fi_av_set`(3).
    struct fid_av_set: 32 bytes {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_av_set,
    }

    /// Bounds of one collective operation, `fi_collective`(3).
    struct fi_collective_attr: 40 bytes {
        op @ 0: fi_op,
        datatype @ 4: fi_datatype,
        datatype_attr @ 8: fi_atomic_attr,
        max_members @ 24: usize,
        mode @ 32: u64,
    }

    /// Argument of `fi_join` for a collective group, `fi_collective`(3).
    struct fi_collective_addr: 16 bytes {
        set @ 0: *const fid_av_set,
        coll_addr @ 8: fi_addr_t,
    }

    /// Arguments of a deferred collective, `fi_collective`(3).
    struct fi_msg_collective: 64 bytes {
        msg_iov @ 0: *const fi_ioc,
        desc @ 8: *mut *mut c_void,
        iov_count @ 16: usize,
        coll_addr @ 24: fi_addr_t,
        root_addr @ 32: fi_addr_t,
        coll @ 40: fi_collective_op,
        datatype @ 44: fi_datatype,
        op @ 48: fi_op,
        context @ 56: *mut c_void,
    }

    /// Operations of an endpoint with `FI_COLLECTIVE`, `fi_collective`(3).
    ops fi_ops_collective: 96 bytes {
        barrier @ 8: fn(ep: *mut fid_ep, coll_addr: fi_addr_t, context: *mut c_void) -> isize,
        broadcast @ 16: fn(
            ep: *mut fid_ep, buf: *mut c_void, count: usize, desc: *mut c_void,
            coll_addr: fi_addr_t, root_addr: fi_addr_t, datatype: fi_datatype, flags: u64,
            context: *mut c_void,
        ) -> isize,
        alltoall @ 24: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, coll_addr: fi_addr_t,
            datatype: fi_datatype, flags: u64, context: *mut c_void,
        ) -> isize,
        allreduce @ 32: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, coll_addr: fi_addr_t,
            datatype: fi_datatype, op: fi_op, flags: u64, context: *mut c_void,
        ) -> isize,
        allgather @ 40: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, coll_addr: fi_addr_t,
            datatype: fi_datatype, flags: u64, context: *mut c_void,
        ) -> isize,
        reduce_scatter @ 48: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, coll_addr: fi_addr_t,
            datatype: fi_datatype, op: fi_op, flags: u64, context: *mut c_void,
        ) -> isize,
        reduce @ 56: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, coll_addr: fi_addr_t,
            root_addr: fi_addr_t, datatype: fi_datatype, op: fi_op, flags: u64,
            context: *mut c_void,
        ) -> isize,
        scatter @ 64: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, coll_addr: fi_addr_t,
            root_addr: fi_addr_t, datatype: fi_datatype, flags: u64, context: *mut c_void,
        ) -> isize,
        gather @ 72: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, coll_addr: fi_addr_t,
            root_addr: fi_addr_t, datatype: fi_datatype, flags: u64, context: *mut c_void,
        ) -> isize,
        msg @ 80: fn(
            ep: *mut fid_ep, msg: *const fi_msg_collective, resultv: *mut fi_ioc,
            result_desc: *mut *mut c_void, result_count: usize, flags: u64,
        ) -> isize,
        barrier2 @ 88: fn(
            ep: *mut fid_ep, coll_addr: fi_addr_t, flags: u64, context: *mut c_void,
        ) -> isize,
    }
}
