//! Mirror of `rdma/fi_endpoint.h`: endpoints and messages.
//!
//! Fields carry the meaning of the man page that their struct names.
#![allow(missing_docs)]

use core::ffi::{c_int, c_void};

use crate::fabric::{fi_addr_t, fi_rx_attr, fi_tx_attr, fid, fid_t, iovec};
use crate::fi_atomic::fi_ops_atomic;
use crate::fi_cm::fi_ops_cm;
use crate::fi_collective::fi_ops_collective;
use crate::fi_rma::fi_ops_rma;
use crate::fi_tagged::fi_ops_tagged;

constants! {
    "Option level of `fi_setopt`(3)." c_int {
        FI_OPT_ENDPOINT = 0,
    }
}

constants! {
    "Endpoint option of `fi_setopt`(3)." c_int {
        FI_OPT_MIN_MULTI_RECV = 0,
        FI_OPT_CM_DATA_SIZE = 1,
        FI_OPT_BUFFERED_MIN = 2,
        FI_OPT_BUFFERED_LIMIT = 3,
        FI_OPT_SEND_BUF_SIZE = 4,
        FI_OPT_RECV_BUF_SIZE = 5,
        FI_OPT_TX_SIZE = 6,
        FI_OPT_RX_SIZE = 7,
        FI_OPT_FI_HMEM_P2P = 8,
        FI_OPT_XPU_TRIGGER = 9,
        FI_OPT_CUDA_API_PERMITTED = 10,
        FI_OPT_SHARED_MEMORY_PERMITTED = 11,
        FI_OPT_MAX_MSG_SIZE = 12,
        FI_OPT_MAX_TAGGED_SIZE = 13,
        FI_OPT_MAX_RMA_SIZE = 14,
        FI_OPT_MAX_ATOMIC_SIZE = 15,
        FI_OPT_INJECT_MSG_SIZE = 16,
        FI_OPT_INJECT_TAGGED_SIZE = 17,
        FI_OPT_INJECT_RMA_SIZE = 18,
        FI_OPT_INJECT_ATOMIC_SIZE = 19,
        FI_OPT_FIREWALL_ADDR = 20,
    }
}

constants! {
    "Value of `FI_OPT_FI_HMEM_P2P`, `fi_setopt`(3)." c_int {
        FI_HMEM_P2P_ENABLED = 0,
        FI_HMEM_P2P_REQUIRED = 1,
        FI_HMEM_P2P_PREFERRED = 2,
        FI_HMEM_P2P_DISABLED = 3,
    }
}

/// Arguments of `fi_sendmsg` and `fi_recvmsg`, `fi_msg`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_msg {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub context: *mut c_void,
    pub data: u64,
}

/// Operations of every endpoint, `fi_endpoint`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_ep {
    pub size: usize,
    pub cancel: Option<unsafe extern "C" fn(fid: fid_t, context: *mut c_void) -> isize>,
    pub getopt: Option<
        unsafe extern "C" fn(
            fid: fid_t,
            level: c_int,
            optname: c_int,
            optval: *mut c_void,
            optlen: *mut usize,
        ) -> c_int,
    >,
    pub setopt: Option<
        unsafe extern "C" fn(
            fid: fid_t,
            level: c_int,
            optname: c_int,
            optval: *const c_void,
            optlen: usize,
        ) -> c_int,
    >,
    pub tx_ctx: Option<
        unsafe extern "C" fn(
            sep: *mut fid_ep,
            index: c_int,
            attr: *mut fi_tx_attr,
            tx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub rx_ctx: Option<
        unsafe extern "C" fn(
            sep: *mut fid_ep,
            index: c_int,
            attr: *mut fi_rx_attr,
            rx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub rx_size_left: Option<unsafe extern "C" fn(ep: *mut fid_ep) -> isize>,
    pub tx_size_left: Option<unsafe extern "C" fn(ep: *mut fid_ep) -> isize>,
}

/// Operations of an endpoint with `FI_MSG`, `fi_msg`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_msg {
    pub size: usize,
    pub recv: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *mut c_void,
            len: usize,
            desc: *mut c_void,
            src_addr: fi_addr_t,
            context: *mut c_void,
        ) -> isize,
    >,
    pub recvv: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            iov: *const iovec,
            desc: *mut *mut c_void,
            count: usize,
            src_addr: fi_addr_t,
            context: *mut c_void,
        ) -> isize,
    >,
    pub recvmsg:
        Option<unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize>,
    pub send: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            len: usize,
            desc: *mut c_void,
            dest_addr: fi_addr_t,
            context: *mut c_void,
        ) -> isize,
    >,
    pub sendv: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            iov: *const iovec,
            desc: *mut *mut c_void,
            count: usize,
            dest_addr: fi_addr_t,
            context: *mut c_void,
        ) -> isize,
    >,
    pub sendmsg:
        Option<unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize>,
    pub inject: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            len: usize,
            dest_addr: fi_addr_t,
        ) -> isize,
    >,
    pub senddata: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            len: usize,
            desc: *mut c_void,
            data: u64,
            dest_addr: fi_addr_t,
            context: *mut c_void,
        ) -> isize,
    >,
    pub injectdata: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            len: usize,
            data: u64,
            dest_addr: fi_addr_t,
        ) -> isize,
    >,
}

/// An endpoint, active or scalable, or a shared receive context, `fi_endpoint`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_ep {
    pub fid: fid,
    pub ops: *mut fi_ops_ep,
    pub cm: *mut fi_ops_cm,
    pub msg: *mut fi_ops_msg,
    pub rma: *mut fi_ops_rma,
    pub tagged: *mut fi_ops_tagged,
    pub atomic: *mut fi_ops_atomic,
    pub collective: *mut fi_ops_collective,
}

/// A passive endpoint, `fi_endpoint`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_pep {
    pub fid: fid,
    pub ops: *mut fi_ops_ep,
    pub cm: *mut fi_ops_cm,
}

/// A shared transmit context, `fi_endpoint`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_stx {
    pub fid: fid,
    pub ops: *mut fi_ops_ep,
}

layout! {
    fi_msg: 48 { msg_iov = 0, desc = 8, iov_count = 16, addr = 24, context = 32, data = 40 }
    fi_ops_ep: 64 {
        size = 0, cancel = 8, getopt = 16, setopt = 24, tx_ctx = 32, rx_ctx = 40,
        rx_size_left = 48, tx_size_left = 56
    }
    fi_ops_msg: 80 {
        size = 0, recv = 8, recvv = 16, recvmsg = 24, send = 32, sendv = 40, sendmsg = 48,
        inject = 56, senddata = 64, injectdata = 72
    }
    fid_ep: 80 {
        fid = 0, ops = 24, cm = 32, msg = 40, rma = 48, tagged = 56, atomic = 64,
        collective = 72
    }
    fid_pep: 40 { fid = 0, ops = 24, cm = 32 }
    fid_stx: 32 { fid = 0, ops = 24 }
}
