//! Mirror of `rdma/fabric.h`: the objects every program meets first.
//!
//! Fields carry the meaning of the man page that their struct names.
#![allow(missing_docs)]

use core::ffi::{c_char, c_int, c_void};
use core::fmt;

use crate::fi_domain::fid_domain;
use crate::fi_endpoint::{fid_ep, fid_pep};
use crate::fi_eq::{fi_eq_attr, fi_wait_attr, fid_eq, fid_wait};

mod values;

pub use values::*;

/// Peer address as an address vector gives it, `fi_av`(3).
pub type fi_addr_t = u64;

/// Pointer to any OFI object.
pub type fid_t = *mut fid;

/// An API version from its parts, `fi_version`(3).
#[expect(non_snake_case, reason = "the names of rdma/fabric.h")]
#[must_use]
pub const fn FI_VERSION(major: u32, minor: u32) -> u32 {
    (major << 16) | (minor & 0xffff)
}

/// The major part of an API version.
#[expect(non_snake_case, reason = "the names of rdma/fabric.h")]
#[must_use]
pub const fn FI_MAJOR(version: u32) -> u32 {
    version >> 16
}

/// The minor part of an API version.
#[expect(non_snake_case, reason = "the names of rdma/fabric.h")]
#[must_use]
pub const fn FI_MINOR(version: u32) -> u32 {
    version & 0xffff
}

/// `struct iovec` of the system, `readv`(2).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct iovec {
    pub iov_base: *mut c_void,
    pub iov_len: usize,
}

/// Vector element of atomic operations, `fi_atomic`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ioc {
    pub addr: *mut c_void,
    pub count: usize,
}

/// Attributes of the transmit side, `fi_endpoint`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_tx_attr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
    pub iov_limit: usize,
    pub rma_iov_limit: usize,
    pub tclass: u32,
}

/// Attributes of the receive side, `fi_endpoint`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_rx_attr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: usize,
    pub size: usize,
    pub iov_limit: usize,
}

/// Attributes of an endpoint, `fi_endpoint`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ep_attr {
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
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
}

/// Attributes of a domain, `fi_domain`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_domain_attr {
    pub domain: *mut fid_domain,
    pub name: *mut c_char,
    pub threading: fi_threading,
    pub control_progress: fi_progress,
    /// The C header also names this field `progress`.
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
    pub max_cntr_value: u64,
    pub max_err_cntr_value: u64,
}

/// Attributes of a fabric, `fi_fabric`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_fabric_attr {
    pub fabric: *mut fid_fabric,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
    pub api_version: u32,
}

/// One way of communicating, and the hints that ask for it, `fi_getinfo`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_info {
    pub next: *mut fi_info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: fid_t,
    pub tx_attr: *mut fi_tx_attr,
    pub rx_attr: *mut fi_rx_attr,
    pub ep_attr: *mut fi_ep_attr,
    pub domain_attr: *mut fi_domain_attr,
    pub fabric_attr: *mut fi_fabric_attr,
    pub nic: *mut fid_nic,
}

/// Device of a NIC, `fi_nic`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_device_attr {
    pub name: *mut c_char,
    pub device_id: *mut c_char,
    pub device_version: *mut c_char,
    pub vendor_id: *mut c_char,
    pub driver: *mut c_char,
    pub firmware: *mut c_char,
}

/// Place of a NIC on a PCI bus, `fi_nic`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_pci_attr {
    pub domain_id: u16,
    pub bus_id: u8,
    pub device_id: u8,
    pub function_id: u8,
}

/// Union inside [`fi_bus_attr`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_bus_attr_attr {
    pub pci: fi_pci_attr,
}

impl Default for fi_bus_attr_attr {
    /// All bytes of the widest member zero.
    fn default() -> Self {
        Self {
            pci: fi_pci_attr {
                domain_id: 0,
                bus_id: 0,
                device_id: 0,
                function_id: 0,
            },
        }
    }
}

impl fmt::Debug for fi_bus_attr_attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fi_bus_attr_attr { .. }")
    }
}

/// Bus of a NIC, `fi_nic`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_bus_attr {
    pub bus_type: fi_bus_type,
    pub attr: fi_bus_attr_attr,
}

/// Link of a NIC, `fi_nic`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_link_attr {
    pub address: *mut c_char,
    pub mtu: usize,
    pub speed: usize,
    pub state: fi_link_state,
    pub network_type: *mut c_char,
}

/// Operations of every object, `fi_fabric`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops {
    pub size: usize,
    pub close: Option<unsafe extern "C" fn(fid: *mut fid) -> c_int>,
    pub bind: Option<unsafe extern "C" fn(fid: *mut fid, bfid: *mut fid, flags: u64) -> c_int>,
    pub control:
        Option<unsafe extern "C" fn(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int>,
    pub ops_open: Option<
        unsafe extern "C" fn(
            fid: *mut fid,
            name: *const c_char,
            flags: u64,
            ops: *mut *mut c_void,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub tostr: Option<unsafe extern "C" fn(fid: *const fid, buf: *mut c_char, len: usize) -> c_int>,
    pub ops_set: Option<
        unsafe extern "C" fn(
            fid: *mut fid,
            name: *const c_char,
            flags: u64,
            ops: *mut c_void,
            context: *mut c_void,
        ) -> c_int,
    >,
}

/// What every object starts with, `fi_fabric`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *mut fi_ops,
}

/// Operations of a fabric, `fi_fabric`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_fabric {
    pub size: usize,
    pub domain: Option<
        unsafe extern "C" fn(
            fabric: *mut fid_fabric,
            info: *mut fi_info,
            dom: *mut *mut fid_domain,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub passive_ep: Option<
        unsafe extern "C" fn(
            fabric: *mut fid_fabric,
            info: *mut fi_info,
            pep: *mut *mut fid_pep,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub eq_open: Option<
        unsafe extern "C" fn(
            fabric: *mut fid_fabric,
            attr: *mut fi_eq_attr,
            eq: *mut *mut fid_eq,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub wait_open: Option<
        unsafe extern "C" fn(
            fabric: *mut fid_fabric,
            attr: *mut fi_wait_attr,
            waitset: *mut *mut fid_wait,
        ) -> c_int,
    >,
    pub trywait: Option<
        unsafe extern "C" fn(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int,
    >,
    pub domain2: Option<
        unsafe extern "C" fn(
            fabric: *mut fid_fabric,
            info: *mut fi_info,
            dom: *mut *mut fid_domain,
            flags: u64,
            context: *mut c_void,
        ) -> c_int,
    >,
}

/// A fabric, `fi_fabric`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_fabric {
    pub fid: fid,
    pub ops: *mut fi_ops_fabric,
    pub api_version: u32,
}

/// A NIC, `fi_nic`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_nic {
    pub fid: fid,
    pub device_attr: *mut fi_device_attr,
    pub bus_attr: *mut fi_bus_attr,
    pub link_attr: *mut fi_link_attr,
    pub prov_attr: *mut c_void,
}

/// Argument of `FI_ALIAS`, `fi_fabric`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_alias {
    pub fid: *mut *mut fid,
    pub flags: u64,
}

/// Argument of `FI_GET_VAL` and `FI_SET_VAL`, `fi_fabric`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_fid_var {
    pub name: c_int,
    pub val: *mut c_void,
}

/// Argument of `FI_GET_RAW_MR`, `fi_mr`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_mr_raw_attr {
    pub flags: u64,
    pub base_addr: *mut u64,
    pub raw_key: *mut u8,
    pub key_size: *mut usize,
}

/// Argument of `FI_MAP_RAW_MR`, `fi_mr`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_mr_map_raw {
    pub flags: u64,
    pub base_addr: u64,
    pub raw_key: *mut u8,
    pub key_size: usize,
    pub key: *mut u64,
}

/// One parameter as `fi_getparams` lists it, `fi_provider`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_param {
    pub name: *const c_char,
    pub type_: fi_param_type,
    pub help_string: *const c_char,
    pub value: *const c_char,
}

/// Memory a caller lends under mode `FI_CONTEXT`, `fi_getinfo`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_context {
    pub internal: [*mut c_void; 4],
}

/// Memory a caller lends under mode `FI_CONTEXT2`, `fi_getinfo`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_context2 {
    pub internal: [*mut c_void; 8],
}

/// Receive context of a transferred receive, `fi_getinfo`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_recv_context {
    pub ep: *mut fid_ep,
    pub context: *mut c_void,
}

layout! {
    fi_ioc: 16 { addr = 0, count = 8 }
    fi_tx_attr: 80 {
        caps = 0, mode = 8, op_flags = 16, msg_order = 24, comp_order = 32, inject_size =
        40, size = 48, iov_limit = 56, rma_iov_limit = 64, tclass = 72
    }
    fi_rx_attr: 64 {
        caps = 0, mode = 8, op_flags = 16, msg_order = 24, comp_order = 32,
        total_buffered_recv = 40, size = 48, iov_limit = 56
    }
    fi_ep_attr: 96 {
        type_ = 0, protocol = 4, protocol_version = 8, max_msg_size = 16, msg_prefix_size
        = 24, max_order_raw_size = 32, max_order_war_size = 40, max_order_waw_size = 48,
        mem_tag_format = 56, tx_ctx_cnt = 64, rx_ctx_cnt = 72, auth_key_size = 80,
        auth_key = 88
    }
    fi_domain_attr: 224 {
        domain = 0, name = 8, threading = 16, control_progress = 20, data_progress = 24,
        resource_mgmt = 28, av_type = 32, mr_mode = 36, mr_key_size = 40, cq_data_size =
        48, cq_cnt = 56, ep_cnt = 64, tx_ctx_cnt = 72, rx_ctx_cnt = 80, max_ep_tx_ctx =
        88, max_ep_rx_ctx = 96, max_ep_stx_ctx = 104, max_ep_srx_ctx = 112, cntr_cnt =
        120, mr_iov_limit = 128, caps = 136, mode = 144, auth_key = 152, auth_key_size =
        160, max_err_data = 168, mr_cnt = 176, tclass = 184, max_ep_auth_key = 192,
        max_group_id = 200, max_cntr_value = 208, max_err_cntr_value = 216
    }
    fi_fabric_attr: 32 {
        fabric = 0, name = 8, prov_name = 16, prov_version = 24, api_version = 28
    }
    fi_info: 120 {
        next = 0, caps = 8, mode = 16, addr_format = 24, src_addrlen = 32, dest_addrlen =
        40, src_addr = 48, dest_addr = 56, handle = 64, tx_attr = 72, rx_attr = 80,
        ep_attr = 88, domain_attr = 96, fabric_attr = 104, nic = 112
    }
    fi_device_attr: 48 {
        name = 0, device_id = 8, device_version = 16, vendor_id = 24, driver = 32,
        firmware = 40
    }
    fi_pci_attr: 6 { domain_id = 0, bus_id = 2, device_id = 3, function_id = 4 }
    fi_bus_attr: 12 { bus_type = 0, attr = 4 }
    fi_link_attr: 40 { address = 0, mtu = 8, speed = 16, state = 24, network_type = 32 }
    fi_ops: 56 {
        size = 0, close = 8, bind = 16, control = 24, ops_open = 32, tostr = 40, ops_set =
        48
    }
    fid: 24 { fclass = 0, context = 8, ops = 16 }
    fi_ops_fabric: 56 {
        size = 0, domain = 8, passive_ep = 16, eq_open = 24, wait_open = 32, trywait = 40,
        domain2 = 48
    }
    fid_fabric: 40 { fid = 0, ops = 24, api_version = 32 }
    fid_nic: 56 { fid = 0, device_attr = 24, bus_attr = 32, link_attr = 40, prov_attr = 48 }
    fi_alias: 16 { fid = 0, flags = 8 }
    fi_fid_var: 16 { name = 0, val = 8 }
    fi_mr_raw_attr: 32 { flags = 0, base_addr = 8, raw_key = 16, key_size = 24 }
    fi_mr_map_raw: 40 { flags = 0, base_addr = 8, raw_key = 16, key_size = 24, key = 32 }
    fi_param: 32 { name = 0, type_ = 8, help_string = 16, value = 24 }
    fi_context: 32 { internal = 0 }
    fi_context2: 64 { internal = 0 }
    fi_recv_context: 16 { ep = 0, context = 8 }
}
