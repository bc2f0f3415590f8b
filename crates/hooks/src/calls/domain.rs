#![allow(unsafe_code)]
//! The operations of domains, and the registration of memory.

use core::ffi::{c_int, c_void};

use ripstop_abi::*;

use super::vectors::{registration, registration_of};
use super::{cq_attr, info, region, srx_attr};
use crate::call::Buffers::One;
use crate::call::{Detail, Registration};
use crate::hook::With;

super::interpose! {
    fi_ops_domain at fid_domain.ops {
        av_open "fi_av_open" (
            domain: *mut fid_domain, attr: *mut fi_av_attr, av: *mut *mut fid_av, context: *mut c_void,
        ) -> c_int, opens av with With::Nothing;
        cq_open "fi_cq_open" (
            domain: *mut fid_domain, attr: *mut fi_cq_attr, cq: *mut *mut fid_cq, context: *mut c_void,
        ) -> c_int, opens cq with cq_attr(attr);
        endpoint "fi_endpoint" (
            domain: *mut fid_domain, attr: *mut fi_info, ep: *mut *mut fid_ep, context: *mut c_void,
        ) -> c_int, opens ep with info(attr);
        scalable_ep "fi_scalable_ep" (
            domain: *mut fid_domain, attr: *mut fi_info, sep: *mut *mut fid_ep, context: *mut c_void,
        ) -> c_int, opens sep with info(attr);
        cntr_open "fi_cntr_open" (
            domain: *mut fid_domain, attr: *mut fi_cntr_attr, cntr: *mut *mut fid_cntr,
            context: *mut c_void,
        ) -> c_int, opens cntr with With::Nothing;
        poll_open "fi_poll_open" (
            domain: *mut fid_domain, attr: *mut fi_poll_attr, pollset: *mut *mut fid_poll,
        ) -> c_int, opens pollset with With::Nothing;
        stx_ctx "fi_stx_context" (
            domain: *mut fid_domain, attr: *mut fi_tx_attr, stx: *mut *mut fid_stx, context: *mut c_void,
        ) -> c_int, opens stx with With::Nothing;
        srx_ctx "fi_srx_context" (
            domain: *mut fid_domain, attr: *mut fi_rx_attr, rx_ep: *mut *mut fid_ep, context: *mut c_void,
        ) -> c_int, opens rx_ep with srx_attr(attr);
        query_atomic "fi_query_atomic" (
            domain: *mut fid_domain, datatype: fi_datatype, op: fi_op, attr: *mut fi_atomic_attr, flags: u64,
        ) -> c_int;
        query_collective "fi_query_collective" (
            domain: *mut fid_domain, coll: fi_collective_op, attr: *mut fi_collective_attr, flags: u64,
        ) -> c_int;
        endpoint2 "fi_endpoint2" (
            domain: *mut fid_domain, attr: *mut fi_info, ep: *mut *mut fid_ep, flags: u64,
            context: *mut c_void,
        ) -> c_int, opens ep with info(attr);
    }
}

super::interpose! {
    fi_ops_mr at fid_domain.mr {
        reg "fi_mr_reg" (
            domain: *mut fid, buf: *const c_void, len: usize, access: u64, offset: u64, requested_key: u64,
            flags: u64, mr: *mut *mut fid_mr, context: *mut c_void,
        ) -> c_int = Detail::Register(Registration::of(One(buf, len), len, access)),
            opens mr with region(Registration::of(One(buf, len), len, access), mr);
        regv "fi_mr_regv" (
            domain: *mut fid, iov: *const iovec, count: usize, access: u64, offset: u64, requested_key: u64,
            flags: u64, mr: *mut *mut fid_mr, context: *mut c_void,
        ) -> c_int => Detail::Register(registration_of(iov, count, access)),
            opens mr with region(registration_of(iov, count, access), mr);
        regattr "fi_mr_regattr" (
            domain: *mut fid, attr: *const fi_mr_attr, flags: u64, mr: *mut *mut fid_mr,
        ) -> c_int => Detail::Register(registration(attr, flags)),
            opens mr with region(registration(attr, flags), mr);
    }
}
