//! Layouts that older binaries were compiled with, and one of newer binaries.
//!
//! `fi_getinfo`, `fi_dupinfo` and `fi_freeinfo` exist at the version nodes `FABRIC_1.0`, `1.1`,
//! `1.2`, `1.3`, `1.7`, `1.8`, `1.9` and `1.10`; `fi_fabric` at `1.0` and `1.1`. A binary bound to an old
//! node reads and writes the structs of that node. A struct here has the number of the node that
//! first had its layout; node `1.9` is that of release 2.6.0, today's. Every struct grew only at its end, so a new struct
//! read through an old layout is right, and an old one must be copied into a zeroed new one before
//! use.
//!
//! | node | first to carry |
//! |---|---|
//! | 1.1 | `fi_fabric_attr::api_version`; `fi_ep_attr::auth_key`; `fi_domain_attr` from `cntr_cnt` to `mr_cnt` |
//! | 1.2 | `fi_info::nic` |
//! | 1.3 | `fi_tx_attr::tclass`, `fi_domain_attr::tclass` |
//! | 1.7 | `fi_domain_attr::max_ep_auth_key` |
//! | 1.8 | `fi_domain_attr::max_group_id` |
//! | 1.9 | `fi_domain_attr::max_cntr_value`, `max_err_cntr_value` |
//! | 1.10 | `fi_ep_attr::xpu_ctx`; in no release yet, but asked for by binaries |
//!
//! [`fi_cq_err_entry_1_0`] and [`fi_cq_err_entry_1_1`] are chosen by the fabric's API version,
//! not by a symbol's node: a completion queue must not write beyond the size its caller knows.

use core::ffi::{c_char, c_int, c_void};

use crate::fabric::{
    fi_av_type, fi_ep_attr, fi_ep_type, fi_fabric_attr, fi_info, fi_progress, fi_resource_mgmt,
    fi_rx_attr, fi_threading, fid_fabric, fid_t,
};
use crate::fi_domain::fid_domain;

/// A struct as it grew: each version has the fields of those before it, then its own.
macro_rules! versions {
    ([$($fields:tt)*]) => {};
    ([$($fields:tt)*] $(#[$meta:meta])* struct $name:ident: $size:literal bytes { $($new:tt)* }
        $($rest:tt)*) => {
        structs! {
            $(#[$meta])*
            struct $name: $size bytes { $($fields)* $($new)* }
        }
        versions! { [$($fields)* $($new)*] $($rest)* }
    };
}

versions! { []
    /// `fi_domain_attr` as seen through `FABRIC_1.0`.
    struct fi_domain_attr_1_0: 120 bytes {
        domain @ 0: *mut fid_domain,
        name @ 8: *mut c_char,
        threading @ 16: fi_threading,
        control_progress @ 20: fi_progress,
        data_progress @ 24: fi_progress,
        resource_mgmt @ 28: fi_resource_mgmt,
        av_type @ 32: fi_av_type,
        mr_mode @ 36: c_int,
        mr_key_size @ 40: usize,
        cq_data_size @ 48: usize,
        cq_cnt @ 56: usize,
        ep_cnt @ 64: usize,
        tx_ctx_cnt @ 72: usize,
        rx_ctx_cnt @ 80: usize,
        max_ep_tx_ctx @ 88: usize,
        max_ep_rx_ctx @ 96: usize,
        max_ep_stx_ctx @ 104: usize,
        max_ep_srx_ctx @ 112: usize,
    }

    /// `fi_domain_attr` as seen through `FABRIC_1.1`.
    struct fi_domain_attr_1_1: 184 bytes {
        cntr_cnt @ 120: usize,
        mr_iov_limit @ 128: usize,
        caps @ 136: u64,
        mode @ 144: u64,
        auth_key @ 152: *mut u8,
        auth_key_size @ 160: usize,
        max_err_data @ 168: usize,
        mr_cnt @ 176: usize,
    }

    /// `fi_domain_attr` as seen through `FABRIC_1.3`.
    struct fi_domain_attr_1_3: 192 bytes {
        tclass @ 184: u32,
    }

    /// `fi_domain_attr` as seen through `FABRIC_1.7`.
    struct fi_domain_attr_1_7: 200 bytes {
        max_ep_auth_key @ 192: usize,
    }

    /// `fi_domain_attr` as seen through `FABRIC_1.8`.
    struct fi_domain_attr_1_8: 208 bytes {
        max_group_id @ 200: u32,
    }
}

versions! { []
    /// [`fi_cq_err_entry`](crate::fi_cq_err_entry) of programs that open their fabric with an API
    /// version before 1.5.
    struct fi_cq_err_entry_1_0: 72 bytes {
        op_context @ 0: *mut c_void,
        flags @ 8: u64,
        len @ 16: usize,
        buf @ 24: *mut c_void,
        data @ 32: u64,
        tag @ 40: u64,
        olen @ 48: usize,
        err @ 56: c_int,
        prov_errno @ 60: c_int,
        err_data @ 64: *mut c_void,
    }

    /// [`fi_cq_err_entry`](crate::fi_cq_err_entry) of programs that open their fabric with an API
    /// version from 1.5 to 1.19.
    struct fi_cq_err_entry_1_1: 80 bytes {
        err_data_size @ 72: usize,
    }
}

structs! {
    /// `fi_fabric_attr` as seen through `FABRIC_1.0`.
    struct fi_fabric_attr_1_0: 32 bytes {
        fabric @ 0: *mut fid_fabric,
        name @ 8: *mut c_char,
        prov_name @ 16: *mut c_char,
        prov_version @ 24: u32,
    }

    /// `fi_ep_attr` as seen through `FABRIC_1.0`.
    struct fi_ep_attr_1_0: 80 bytes {
        type_ @ 0: fi_ep_type,
        protocol @ 4: u32,
        protocol_version @ 8: u32,
        max_msg_size @ 16: usize,
        msg_prefix_size @ 24: usize,
        max_order_raw_size @ 32: usize,
        max_order_war_size @ 40: usize,
        max_order_waw_size @ 48: usize,
        mem_tag_format @ 56: u64,
        tx_ctx_cnt @ 64: usize,
        rx_ctx_cnt @ 72: usize,
    }

    /// `fi_ep_attr` as seen through `FABRIC_1.10`.
    struct fi_ep_attr_1_10: 104 bytes {
        today @ 0: fi_ep_attr,
        /// In C a `struct fid_xpu_ctx *`: the accelerator that an endpoint is for.
        xpu_ctx @ 96: *mut c_void,
    }

    /// `fi_tx_attr` as seen through `FABRIC_1.0` to `1.2`.
    struct fi_tx_attr_1_0: 72 bytes {
        caps @ 0: u64,
        mode @ 8: u64,
        op_flags @ 16: u64,
        msg_order @ 24: u64,
        comp_order @ 32: u64,
        inject_size @ 40: usize,
        size @ 48: usize,
        iov_limit @ 56: usize,
        rma_iov_limit @ 64: usize,
    }

    /// `fi_info` as seen through `FABRIC_1.1`; that of `FABRIC_1.0` is as long.
    struct fi_info_1_1: 112 bytes {
        next @ 0: *mut fi_info,
        caps @ 8: u64,
        mode @ 16: u64,
        addr_format @ 24: u32,
        src_addrlen @ 32: usize,
        dest_addrlen @ 40: usize,
        src_addr @ 48: *mut c_void,
        dest_addr @ 56: *mut c_void,
        handle @ 64: fid_t,
        tx_attr @ 72: *mut fi_tx_attr_1_0,
        rx_attr @ 80: *mut fi_rx_attr,
        ep_attr @ 88: *mut fi_ep_attr,
        domain_attr @ 96: *mut fi_domain_attr_1_1,
        fabric_attr @ 104: *mut fi_fabric_attr,
    }
}
