//! Mirror of `rdma/fabric.h`: the objects every program meets first.

use core::ffi::{c_char, c_int, c_void};

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

structs! {
    /// `struct iovec` of the system, `readv`(2).
    struct iovec: 16 bytes {
        iov_base @ 0: *mut c_void,
        iov_len @ 8: usize,
    }

    /// Vector element of atomic operations, `fi_atomic`(3).
    struct fi_ioc: 16 bytes {
        addr @ 0: *mut c_void,
        count @ 8: usize,
    }

    /// Attributes of the transmit side, `fi_endpoint`(3).
    struct fi_tx_attr: 80 bytes {
        caps @ 0: u64,
        mode @ 8: u64,
        op_flags @ 16: u64,
        msg_order @ 24: u64,
        comp_order @ 32: u64,
        inject_size @ 40: usize,
        size @ 48: usize,
        iov_limit @ 56: usize,
        rma_iov_limit @ 64: usize,
        tclass @ 72: u32,
    }

    /// Attributes of the receive side, `fi_endpoint`(3).
    struct fi_rx_attr: 64 bytes {
        caps @ 0: u64,
        mode @ 8: u64,
        op_flags @ 16: u64,
        msg_order @ 24: u64,
        comp_order @ 32: u64,
        total_buffered_recv @ 40: usize,
        size @ 48: usize,
        iov_limit @ 56: usize,
    }

    /// Attributes of an endpoint, `fi_endpoint`(3).
    struct fi_ep_attr: 96 bytes {
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
        auth_key_size @ 80: usize,
        auth_key @ 88: *mut u8,
    }

    /// Attributes of a domain, `fi_domain`(3).
    struct fi_domain_attr: 224 bytes {
        domain @ 0: *mut fid_domain,
        name @ 8: *mut c_char,
        threading @ 16: fi_threading,
        control_progress @ 20: fi_progress,
        /// The C header also names this field `progress`.
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
        cntr_cnt @ 120: usize,
        mr_iov_limit @ 128: usize,
        caps @ 136: u64,
        mode @ 144: u64,
        auth_key @ 152: *mut u8,
        auth_key_size @ 160: usize,
        max_err_data @ 168: usize,
        mr_cnt @ 176: usize,
        tclass @ 184: u32,
        max_ep_auth_key @ 192: usize,
        max_group_id @ 200: u32,
        max_cntr_value @ 208: u64,
        max_err_cntr_value @ 216: u64,
    }

    /// Attributes of a fabric, `fi_fabric`(3).
    struct fi_fabric_attr: 32 bytes {
        fabric @ 0: *mut fid_fabric,
        name @ 8: *mut c_char,
        prov_name @ 16: *mut c_char,
        prov_version @ 24: u32,
        api_version @ 28: u32,
    }

    /// One way of communicating, and the hints that ask for it, `fi_getinfo`(3).
    struct fi_info: 120 bytes {
        next @ 0: *mut fi_info,
        caps @ 8: u64,
        mode @ 16: u64,
        addr_format @ 24: u32,
        src_addrlen @ 32: usize,
        dest_addrlen @ 40: usize,
        src_addr @ 48: *mut c_void,
        dest_addr @ 56: *mut c_void,
        handle @ 64: fid_t,
        tx_attr @ 72: *mut fi_tx_attr,
        rx_attr @ 80: *mut fi_rx_attr,
        ep_attr @ 88: *mut fi_ep_attr,
        domain_attr @ 96: *mut fi_domain_attr,
        fabric_attr @ 104: *mut fi_fabric_attr,
        nic @ 112: *mut fid_nic,
    }

    /// Device of a NIC, `fi_nic`(3).
    struct fi_device_attr: 48 bytes {
        name @ 0: *mut c_char,
        device_id @ 8: *mut c_char,
        device_version @ 16: *mut c_char,
        vendor_id @ 24: *mut c_char,
        driver @ 32: *mut c_char,
        firmware @ 40: *mut c_char,
    }

    /// Place of a NIC on a PCI bus, `fi_nic`(3).
    struct fi_pci_attr: 6 bytes {
        domain_id @ 0: u16,
        bus_id @ 2: u8,
        device_id @ 3: u8,
        function_id @ 4: u8,
    }

    /// Union inside [`fi_bus_attr`].
    union fi_bus_attr_attr {
        pci: fi_pci_attr,
    } default { pci: fi_pci_attr { domain_id: 0, bus_id: 0, device_id: 0, function_id: 0, } }

    /// Bus of a NIC, `fi_nic`(3).
    struct fi_bus_attr: 12 bytes {
        bus_type @ 0: fi_bus_type,
        attr @ 4: fi_bus_attr_attr,
    }

    /// Link of a NIC, `fi_nic`(3).
    struct fi_link_attr: 40 bytes {
        address @ 0: *mut c_char,
        mtu @ 8: usize,
        speed @ 16: usize,
        state @ 24: fi_link_state,
        network_type @ 32: *mut c_char,
    }

    /// Operations of every object, `fi_fabric`(3).
    ops fi_ops: 56 bytes {
        close @ 8: fn(fid: *mut fid) -> c_int,
        bind @ 16: fn(fid: *mut fid, bfid: *mut fid, flags: u64) -> c_int,
        control @ 24: fn(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int,
        ops_open @ 32: fn(
            fid: *mut fid, name: *const c_char, flags: u64, ops: *mut *mut c_void,
            context: *mut c_void,
        ) -> c_int,
        tostr @ 40: fn(fid: *const fid, buf: *mut c_char, len: usize) -> c_int,
        ops_set @ 48: fn(
            fid: *mut fid, name: *const c_char, flags: u64, ops: *mut c_void, context: *mut c_void,
        ) -> c_int,
    }

    /// What every object starts with, `fi_fabric`(3).
    struct fid: 24 bytes {
        fclass @ 0: usize,
        context @ 8: *mut c_void,
        ops @ 16: *mut fi_ops,
    }

    /// Operations of a fabric, `fi_fabric`(3).
    ops fi_ops_fabric: 56 bytes {
        domain @ 8: fn(
            fabric: *mut fid_fabric, info: *mut fi_info, dom: *mut *mut fid_domain,
            context: *mut c_void,
        ) -> c_int,
        passive_ep @ 16: fn(
            fabric: *mut fid_fabric, info: *mut fi_info, pep: *mut *mut fid_pep,
            context: *mut c_void,
        ) -> c_int,
        eq_open @ 24: fn(
            fabric: *mut fid_fabric, attr: *mut fi_eq_attr, eq: *mut *mut fid_eq,
            context: *mut c_void,
        ) -> c_int,
        wait_open @ 32: fn(
            fabric: *mut fid_fabric, attr: *mut fi_wait_attr, waitset: *mut *mut fid_wait,
        ) -> c_int,
        trywait @ 40: fn(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int,
        domain2 @ 48: fn(
            fabric: *mut fid_fabric, info: *mut fi_info, dom: *mut *mut fid_domain, flags: u64,
            context: *mut c_void,
        ) -> c_int,
    }

    /// A fabric, `fi_fabric`(3).
    struct fid_fabric: 40 bytes {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_fabric,
        api_version @ 32: u32,
    }

    /// A NIC, `fi_nic`(3).
    struct fid_nic: 56 bytes {
        fid @ 0: fid,
        device_attr @ 24: *mut fi_device_attr,
        bus_attr @ 32: *mut fi_bus_attr,
        link_attr @ 40: *mut fi_link_attr,
        prov_attr @ 48: *mut c_void,
    }

    /// Argument of `FI_ALIAS`, `fi_fabric`(3).
    struct fi_alias: 16 bytes {
        fid @ 0: *mut *mut fid,
        flags @ 8: u64,
    }

    /// Argument of `FI_GET_VAL` and `FI_SET_VAL`, `fi_fabric`(3).
    struct fi_fid_var: 16 bytes {
        name @ 0: c_int,
        val @ 8: *mut c_void,
    }

    /// Argument of `FI_GET_RAW_MR`, `fi_mr`(3).
    struct fi_mr_raw_attr: 32 bytes {
        flags @ 0: u64,
        base_addr @ 8: *mut u64,
        raw_key @ 16: *mut u8,
        key_size @ 24: *mut usize,
    }

    /// Argument of `FI_MAP_RAW_MR`, `fi_mr`(3).
    struct fi_mr_map_raw: 40 bytes {
        flags @ 0: u64,
        base_addr @ 8: u64,
        raw_key @ 16: *mut u8,
        key_size @ 24: usize,
        key @ 32: *mut u64,
    }

    /// One parameter as `fi_getparams` lists it, `fi_provider`(3).
    struct fi_param: 32 bytes {
        name @ 0: *const c_char,
        type_ @ 8: fi_param_type,
        help_string @ 16: *const c_char,
        value @ 24: *const c_char,
    }

    /// Memory a caller lends under mode `FI_CONTEXT`, `fi_getinfo`(3).
    struct fi_context: 32 bytes {
        internal @ 0: [*mut c_void; 4],
    }

    /// Memory a caller lends under mode `FI_CONTEXT2`, `fi_getinfo`(3).
    struct fi_context2: 64 bytes {
        internal @ 0: [*mut c_void; 8],
    }

    /// Receive context of a transferred receive, `fi_getinfo`(3).
    struct fi_recv_context: 16 bytes {
        ep @ 0: *mut fid_ep,
        context @ 8: *mut c_void,
    }
}
