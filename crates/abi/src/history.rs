//! Layouts that older binaries were compiled with.
//!
//! `fi_getinfo`, `fi_dupinfo` and `fi_freeinfo` exist at the version nodes `FABRIC_1.0`, `1.1`,
//! `1.2`, `1.3`, `1.7`, `1.8` and `1.9`; `fi_fabric` at `1.0` and `1.1`. A binary bound to an old
//! node reads and writes the structs of that node, named here with its number; node `1.9` is
//! today's layout. Every struct grew only at its end, so a new struct read through an old
//! layout is right, and an old one must be copied into a zeroed new one before use.
//!
//! | node | first to carry |
//! |---|---|
//! | 1.1 | `fi_fabric_attr::api_version`; `fi_ep_attr::auth_key`; `fi_domain_attr` from `cntr_cnt` to `mr_cnt` |
//! | 1.2 | `fi_info::nic` |
//! | 1.3 | `fi_tx_attr::tclass`, `fi_domain_attr::tclass` |
//! | 1.7 | `fi_domain_attr::max_ep_auth_key` |
//! | 1.8 | `fi_domain_attr::max_group_id` |
//! | 1.9 | `fi_domain_attr::max_cntr_value`, `max_err_cntr_value` |
//!
//! [`fi_cq_err_entry_1_0`] and [`fi_cq_err_entry_1_1`] are chosen by the fabric's API version,
//! not by a symbol's node: a completion queue must not write beyond the size its caller knows.
#![allow(missing_docs)]

use core::ffi::{c_char, c_int, c_void};

use crate::fabric::fid_fabric;
use crate::fabric::{
    fi_av_type, fi_ep_attr, fi_ep_type, fi_fabric_attr, fi_info, fi_progress, fi_resource_mgmt,
    fi_rx_attr, fi_threading, fi_tx_attr, fid_nic, fid_t,
};
use crate::fi_domain::fid_domain;

/// As seen through `FABRIC_1.0`.
pub type fi_rx_attr_1_0 = fi_rx_attr;

/// As seen through `FABRIC_1.1`.
pub type fi_tx_attr_1_1 = fi_tx_attr_1_0;

/// As seen through `FABRIC_1.1`.
pub type fi_rx_attr_1_1 = fi_rx_attr_1_0;

/// As seen through `FABRIC_1.1`.
pub type fi_ep_attr_1_1 = fi_ep_attr;

/// As seen through `FABRIC_1.1`.
pub type fi_fabric_attr_1_1 = fi_fabric_attr;

/// As seen through `FABRIC_1.2`.
pub type fi_tx_attr_1_2 = fi_tx_attr_1_1;

/// As seen through `FABRIC_1.2`.
pub type fi_rx_attr_1_2 = fi_rx_attr_1_1;

/// As seen through `FABRIC_1.2`.
pub type fi_ep_attr_1_2 = fi_ep_attr_1_1;

/// As seen through `FABRIC_1.2`.
pub type fi_domain_attr_1_2 = fi_domain_attr_1_1;

/// As seen through `FABRIC_1.2`.
pub type fi_fabric_attr_1_2 = fi_fabric_attr_1_1;

/// As seen through `FABRIC_1.2`.
pub type fid_nic_1_2 = fid_nic;

/// As seen through `FABRIC_1.3`.
pub type fi_tx_attr_1_3 = fi_tx_attr;

/// As seen through `FABRIC_1.3`.
pub type fi_rx_attr_1_3 = fi_rx_attr_1_2;

/// As seen through `FABRIC_1.3`.
pub type fi_ep_attr_1_3 = fi_ep_attr_1_2;

/// As seen through `FABRIC_1.3`.
pub type fi_fabric_attr_1_3 = fi_fabric_attr_1_2;

/// As seen through `FABRIC_1.3`.
pub type fid_nic_1_3 = fid_nic_1_2;

/// As seen through `FABRIC_1.7`.
pub type fi_tx_attr_1_7 = fi_tx_attr_1_3;

/// As seen through `FABRIC_1.7`.
pub type fi_rx_attr_1_7 = fi_rx_attr_1_3;

/// As seen through `FABRIC_1.7`.
pub type fi_ep_attr_1_7 = fi_ep_attr_1_3;

/// As seen through `FABRIC_1.7`.
pub type fi_fabric_attr_1_7 = fi_fabric_attr_1_3;

/// As seen through `FABRIC_1.7`.
pub type fid_nic_1_7 = fid_nic_1_3;

/// As seen through `FABRIC_1.8`.
pub type fi_tx_attr_1_8 = fi_tx_attr_1_7;

/// As seen through `FABRIC_1.8`.
pub type fi_rx_attr_1_8 = fi_rx_attr_1_7;

/// As seen through `FABRIC_1.8`.
pub type fi_ep_attr_1_8 = fi_ep_attr_1_7;

/// As seen through `FABRIC_1.8`.
pub type fi_fabric_attr_1_8 = fi_fabric_attr_1_7;

/// As seen through `FABRIC_1.8`.
pub type fid_nic_1_8 = fid_nic_1_7;

/// `fi_fabric_attr` as seen through `FABRIC_1.0`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_fabric_attr_1_0 {
    pub fabric: *mut fid_fabric,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
}

/// `fi_domain_attr` as seen through `FABRIC_1.0`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_domain_attr_1_0 {
    pub domain: *mut fid_domain,
    pub name: *mut c_char,
    pub threading: fi_threading,
    pub control_progress: fi_progress,
    pub data_progress: fi_progress,
    pub resource_mgmt: fi_resource_mgmt,
    pub av_type: fi_av_type,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
    pub cq_data_size: usize,
    pub cq_cnt: usize,
    pub ep_cnt: usize,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub max_ep_tx_ctx: usize,
    pub max_ep_rx_ctx: usize,
    pub max_ep_stx_ctx: usize,
    pub max_ep_srx_ctx: usize,
}

/// `fi_ep_attr` as seen through `FABRIC_1.0`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ep_attr_1_0 {
    pub type_: fi_ep_type,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
    pub msg_prefix_size: usize,
    pub max_order_raw_size: usize,
    pub max_order_war_size: usize,
    pub max_order_waw_size: usize,
    pub mem_tag_format: u64,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
}

/// `fi_tx_attr` as seen through `FABRIC_1.0`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_tx_attr_1_0 {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
    pub iov_limit: usize,
    pub rma_iov_limit: usize,
}

/// `fi_info` as seen through `FABRIC_1.0`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_info_1_0 {
    pub next: *mut fi_info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: fid_t,
    pub tx_attr: *mut fi_tx_attr_1_0,
    pub rx_attr: *mut fi_rx_attr_1_0,
    pub ep_attr: *mut fi_ep_attr_1_0,
    pub domain_attr: *mut fi_domain_attr_1_0,
    pub fabric_attr: *mut fi_fabric_attr_1_0,
}

/// `fi_domain_attr` as seen through `FABRIC_1.1`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_domain_attr_1_1 {
    pub domain: *mut fid_domain,
    pub name: *mut c_char,
    pub threading: fi_threading,
    pub control_progress: fi_progress,
    pub data_progress: fi_progress,
    pub resource_mgmt: fi_resource_mgmt,
    pub av_type: fi_av_type,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
    pub cq_data_size: usize,
    pub cq_cnt: usize,
    pub ep_cnt: usize,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub max_ep_tx_ctx: usize,
    pub max_ep_rx_ctx: usize,
    pub max_ep_stx_ctx: usize,
    pub max_ep_srx_ctx: usize,
    pub cntr_cnt: usize,
    pub mr_iov_limit: usize,
    pub caps: u64,
    pub mode: u64,
    pub auth_key: *mut u8,
    pub auth_key_size: usize,
    pub max_err_data: usize,
    pub mr_cnt: usize,
}

/// `fi_info` as seen through `FABRIC_1.1`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_info_1_1 {
    pub next: *mut fi_info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: fid_t,
    pub tx_attr: *mut fi_tx_attr_1_1,
    pub rx_attr: *mut fi_rx_attr_1_1,
    pub ep_attr: *mut fi_ep_attr_1_1,
    pub domain_attr: *mut fi_domain_attr_1_1,
    pub fabric_attr: *mut fi_fabric_attr_1_1,
}

/// `fi_info` as seen through `FABRIC_1.2`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_info_1_2 {
    pub next: *mut fi_info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: fid_t,
    pub tx_attr: *mut fi_tx_attr_1_2,
    pub rx_attr: *mut fi_rx_attr_1_2,
    pub ep_attr: *mut fi_ep_attr_1_2,
    pub domain_attr: *mut fi_domain_attr_1_2,
    pub fabric_attr: *mut fi_fabric_attr_1_2,
    pub nic: *mut fid_nic_1_2,
}

/// `fi_domain_attr` as seen through `FABRIC_1.3`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_domain_attr_1_3 {
    pub domain: *mut fid_domain,
    pub name: *mut c_char,
    pub threading: fi_threading,
    pub control_progress: fi_progress,
    pub data_progress: fi_progress,
    pub resource_mgmt: fi_resource_mgmt,
    pub av_type: fi_av_type,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
    pub cq_data_size: usize,
    pub cq_cnt: usize,
    pub ep_cnt: usize,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub max_ep_tx_ctx: usize,
    pub max_ep_rx_ctx: usize,
    pub max_ep_stx_ctx: usize,
    pub max_ep_srx_ctx: usize,
    pub cntr_cnt: usize,
    pub mr_iov_limit: usize,
    pub caps: u64,
    pub mode: u64,
    pub auth_key: *mut u8,
    pub auth_key_size: usize,
    pub max_err_data: usize,
    pub mr_cnt: usize,
    pub tclass: u32,
}

/// `fi_info` as seen through `FABRIC_1.3`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_info_1_3 {
    pub next: *mut fi_info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: fid_t,
    pub tx_attr: *mut fi_tx_attr_1_3,
    pub rx_attr: *mut fi_rx_attr_1_3,
    pub ep_attr: *mut fi_ep_attr_1_3,
    pub domain_attr: *mut fi_domain_attr_1_3,
    pub fabric_attr: *mut fi_fabric_attr_1_3,
    pub nic: *mut fid_nic_1_3,
}

/// `fi_domain_attr` as seen through `FABRIC_1.7`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_domain_attr_1_7 {
    pub domain: *mut fid_domain,
    pub name: *mut c_char,
    pub threading: fi_threading,
    pub control_progress: fi_progress,
    pub data_progress: fi_progress,
    pub resource_mgmt: fi_resource_mgmt,
    pub av_type: fi_av_type,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
    pub cq_data_size: usize,
    pub cq_cnt: usize,
    pub ep_cnt: usize,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub max_ep_tx_ctx: usize,
    pub max_ep_rx_ctx: usize,
    pub max_ep_stx_ctx: usize,
    pub max_ep_srx_ctx: usize,
    pub cntr_cnt: usize,
    pub mr_iov_limit: usize,
    pub caps: u64,
    pub mode: u64,
    pub auth_key: *mut u8,
    pub auth_key_size: usize,
    pub max_err_data: usize,
    pub mr_cnt: usize,
    pub tclass: u32,
    pub max_ep_auth_key: usize,
}

/// `fi_info` as seen through `FABRIC_1.7`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_info_1_7 {
    pub next: *mut fi_info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: fid_t,
    pub tx_attr: *mut fi_tx_attr_1_7,
    pub rx_attr: *mut fi_rx_attr_1_7,
    pub ep_attr: *mut fi_ep_attr_1_7,
    pub domain_attr: *mut fi_domain_attr_1_7,
    pub fabric_attr: *mut fi_fabric_attr_1_7,
    pub nic: *mut fid_nic_1_7,
}

/// `fi_domain_attr` as seen through `FABRIC_1.8`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_domain_attr_1_8 {
    pub domain: *mut fid_domain,
    pub name: *mut c_char,
    pub threading: fi_threading,
    pub control_progress: fi_progress,
    pub data_progress: fi_progress,
    pub resource_mgmt: fi_resource_mgmt,
    pub av_type: fi_av_type,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
    pub cq_data_size: usize,
    pub cq_cnt: usize,
    pub ep_cnt: usize,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub max_ep_tx_ctx: usize,
    pub max_ep_rx_ctx: usize,
    pub max_ep_stx_ctx: usize,
    pub max_ep_srx_ctx: usize,
    pub cntr_cnt: usize,
    pub mr_iov_limit: usize,
    pub caps: u64,
    pub mode: u64,
    pub auth_key: *mut u8,
    pub auth_key_size: usize,
    pub max_err_data: usize,
    pub mr_cnt: usize,
    pub tclass: u32,
    pub max_ep_auth_key: usize,
    pub max_group_id: u32,
}

/// `fi_info` as seen through `FABRIC_1.8`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_info_1_8 {
    pub next: *mut fi_info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: fid_t,
    pub tx_attr: *mut fi_tx_attr_1_8,
    pub rx_attr: *mut fi_rx_attr_1_8,
    pub ep_attr: *mut fi_ep_attr_1_8,
    pub domain_attr: *mut fi_domain_attr_1_8,
    pub fabric_attr: *mut fi_fabric_attr_1_8,
    pub nic: *mut fid_nic_1_8,
}

/// [`fi_cq_err_entry`](crate::fi_cq_err_entry) of programs that open their fabric with an API
/// version before 1.5.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_cq_err_entry_1_0 {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
}

/// [`fi_cq_err_entry`](crate::fi_cq_err_entry) of programs that open their fabric with an API
/// version from 1.5 to 1.19.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_cq_err_entry_1_1 {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

layout! {
    fi_fabric_attr_1_0: 32 { fabric = 0, name = 8, prov_name = 16, prov_version = 24 }
    fi_domain_attr_1_0: 120 {
        domain = 0, name = 8, threading = 16, control_progress = 20, data_progress = 24,
        resource_mgmt = 28, av_type = 32, mr_mode = 36, mr_key_size = 40, cq_data_size =
        48, cq_cnt = 56, ep_cnt = 64, tx_ctx_cnt = 72, rx_ctx_cnt = 80, max_ep_tx_ctx =
        88, max_ep_rx_ctx = 96, max_ep_stx_ctx = 104, max_ep_srx_ctx = 112
    }
    fi_ep_attr_1_0: 80 {
        type_ = 0, protocol = 4, protocol_version = 8, max_msg_size = 16, msg_prefix_size
        = 24, max_order_raw_size = 32, max_order_war_size = 40, max_order_waw_size = 48,
        mem_tag_format = 56, tx_ctx_cnt = 64, rx_ctx_cnt = 72
    }
    fi_tx_attr_1_0: 72 {
        caps = 0, mode = 8, op_flags = 16, msg_order = 24, comp_order = 32, inject_size =
        40, size = 48, iov_limit = 56, rma_iov_limit = 64
    }
    fi_info_1_0: 112 {
        next = 0, caps = 8, mode = 16, addr_format = 24, src_addrlen = 32, dest_addrlen =
        40, src_addr = 48, dest_addr = 56, handle = 64, tx_attr = 72, rx_attr = 80,
        ep_attr = 88, domain_attr = 96, fabric_attr = 104
    }
    fi_domain_attr_1_1: 184 {
        domain = 0, name = 8, threading = 16, control_progress = 20, data_progress = 24,
        resource_mgmt = 28, av_type = 32, mr_mode = 36, mr_key_size = 40, cq_data_size =
        48, cq_cnt = 56, ep_cnt = 64, tx_ctx_cnt = 72, rx_ctx_cnt = 80, max_ep_tx_ctx =
        88, max_ep_rx_ctx = 96, max_ep_stx_ctx = 104, max_ep_srx_ctx = 112, cntr_cnt =
        120, mr_iov_limit = 128, caps = 136, mode = 144, auth_key = 152, auth_key_size =
        160, max_err_data = 168, mr_cnt = 176
    }
    fi_info_1_1: 112 {
        next = 0, caps = 8, mode = 16, addr_format = 24, src_addrlen = 32, dest_addrlen =
        40, src_addr = 48, dest_addr = 56, handle = 64, tx_attr = 72, rx_attr = 80,
        ep_attr = 88, domain_attr = 96, fabric_attr = 104
    }
    fi_info_1_2: 120 {
        next = 0, caps = 8, mode = 16, addr_format = 24, src_addrlen = 32, dest_addrlen =
        40, src_addr = 48, dest_addr = 56, handle = 64, tx_attr = 72, rx_attr = 80,
        ep_attr = 88, domain_attr = 96, fabric_attr = 104, nic = 112
    }
    fi_domain_attr_1_3: 192 {
        domain = 0, name = 8, threading = 16, control_progress = 20, data_progress = 24,
        resource_mgmt = 28, av_type = 32, mr_mode = 36, mr_key_size = 40, cq_data_size =
        48, cq_cnt = 56, ep_cnt = 64, tx_ctx_cnt = 72, rx_ctx_cnt = 80, max_ep_tx_ctx =
        88, max_ep_rx_ctx = 96, max_ep_stx_ctx = 104, max_ep_srx_ctx = 112, cntr_cnt =
        120, mr_iov_limit = 128, caps = 136, mode = 144, auth_key = 152, auth_key_size =
        160, max_err_data = 168, mr_cnt = 176, tclass = 184
    }
    fi_info_1_3: 120 {
        next = 0, caps = 8, mode = 16, addr_format = 24, src_addrlen = 32, dest_addrlen =
        40, src_addr = 48, dest_addr = 56, handle = 64, tx_attr = 72, rx_attr = 80,
        ep_attr = 88, domain_attr = 96, fabric_attr = 104, nic = 112
    }
    fi_domain_attr_1_7: 200 {
        domain = 0, name = 8, threading = 16, control_progress = 20, data_progress = 24,
        resource_mgmt = 28, av_type = 32, mr_mode = 36, mr_key_size = 40, cq_data_size =
        48, cq_cnt = 56, ep_cnt = 64, tx_ctx_cnt = 72, rx_ctx_cnt = 80, max_ep_tx_ctx =
        88, max_ep_rx_ctx = 96, max_ep_stx_ctx = 104, max_ep_srx_ctx = 112, cntr_cnt =
        120, mr_iov_limit = 128, caps = 136, mode = 144, auth_key = 152, auth_key_size =
        160, max_err_data = 168, mr_cnt = 176, tclass = 184, max_ep_auth_key = 192
    }
    fi_info_1_7: 120 {
        next = 0, caps = 8, mode = 16, addr_format = 24, src_addrlen = 32, dest_addrlen =
        40, src_addr = 48, dest_addr = 56, handle = 64, tx_attr = 72, rx_attr = 80,
        ep_attr = 88, domain_attr = 96, fabric_attr = 104, nic = 112
    }
    fi_domain_attr_1_8: 208 {
        domain = 0, name = 8, threading = 16, control_progress = 20, data_progress = 24,
        resource_mgmt = 28, av_type = 32, mr_mode = 36, mr_key_size = 40, cq_data_size =
        48, cq_cnt = 56, ep_cnt = 64, tx_ctx_cnt = 72, rx_ctx_cnt = 80, max_ep_tx_ctx =
        88, max_ep_rx_ctx = 96, max_ep_stx_ctx = 104, max_ep_srx_ctx = 112, cntr_cnt =
        120, mr_iov_limit = 128, caps = 136, mode = 144, auth_key = 152, auth_key_size =
        160, max_err_data = 168, mr_cnt = 176, tclass = 184, max_ep_auth_key = 192,
        max_group_id = 200
    }
    fi_info_1_8: 120 {
        next = 0, caps = 8, mode = 16, addr_format = 24, src_addrlen = 32, dest_addrlen =
        40, src_addr = 48, dest_addr = 56, handle = 64, tx_attr = 72, rx_attr = 80,
        ep_attr = 88, domain_attr = 96, fabric_attr = 104, nic = 112
    }
    fi_cq_err_entry_1_0: 72 {
        op_context = 0, flags = 8, len = 16, buf = 24, data = 32, tag = 40, olen = 48, err
        = 56, prov_errno = 60, err_data = 64
    }
    fi_cq_err_entry_1_1: 80 {
        op_context = 0, flags = 8, len = 16, buf = 24, data = 32, tag = 40, olen = 48, err
        = 56, prov_errno = 60, err_data = 64, err_data_size = 72
    }
}
