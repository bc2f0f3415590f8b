//! Mirror of `rdma/fi_endpoint.h`: endpoints and messages.

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

    "Value of `FI_OPT_FI_HMEM_P2P`, `fi_setopt`(3)." c_int {
        FI_HMEM_P2P_ENABLED = 0,
        FI_HMEM_P2P_REQUIRED = 1,
        FI_HMEM_P2P_PREFERRED = 2,
        FI_HMEM_P2P_DISABLED = 3,
    }
}

structs! {
    /// Arguments of `fi_sendmsg` and `fi_recvmsg`, `fi_msg`(3).
    struct fi_msg: 48 bytes {
        msg_iov @ 0: *const iovec,
        desc @ 8: *mut *mut c_void,
        iov_count @ 16: usize,
        addr @ 24: fi_addr_t,
        context @ 32: *mut c_void,
        data @ 40: u64,
    }

    /// Operations of every endpoint, `fi_endpoint`(3).
    ops fi_ops_ep: 64 bytes {
        cancel @ 8: fn(fid: fid_t, context: *mut c_void) -> isize,
        getopt @ 16: fn(
            fid: fid_t, level: c_int, optname: c_int, optval: *mut c_void, optlen: *mut usize,
        ) -> c_int,
        setopt @ 24: fn(
            fid: fid_t, level: c_int, optname: c_int, optval: *const c_void, optlen: usize,
        ) -> c_int,
        tx_ctx @ 32: fn(
            sep: *mut fid_ep, index: c_int, attr: *mut fi_tx_attr, tx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
        rx_ctx @ 40: fn(
            sep: *mut fid_ep, index: c_int, attr: *mut fi_rx_attr, rx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
        rx_size_left @ 48: fn(ep: *mut fid_ep) -> isize,
        tx_size_left @ 56: fn(ep: *mut fid_ep) -> isize,
    }

    /// Operations of an endpoint with `FI_MSG`, `fi_msg`(3).
    ops fi_ops_msg: 80 bytes {
        recv @ 8: fn(
            ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t,
            context: *mut c_void,
        ) -> isize,
        recvv @ 16: fn(
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
            src_addr: fi_addr_t, context: *mut c_void,
        ) -> isize,
        recvmsg @ 24: fn(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize,
        send @ 32: fn(
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void,
            dest_addr: fi_addr_t, context: *mut c_void,
        ) -> isize,
        sendv @ 40: fn(
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
            dest_addr: fi_addr_t, context: *mut c_void,
        ) -> isize,
        sendmsg @ 48: fn(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize,
        inject @ 56: fn(
            ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t,
        ) -> isize,
        senddata @ 64: fn(
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
            dest_addr: fi_addr_t, context: *mut c_void,
        ) -> isize,
        injectdata @ 72: fn(
            ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t,
        ) -> isize,
    }

    /// An endpoint, active or scalable, or a shared receive context, `fi_endpoint`(3).
    struct fid_ep: 80 bytes {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_ep,
        cm @ 32: *mut fi_ops_cm,
        msg @ 40: *mut fi_ops_msg,
        rma @ 48: *mut fi_ops_rma,
        tagged @ 56: *mut fi_ops_tagged,
        atomic @ 64: *mut fi_ops_atomic,
        collective @ 72: *mut fi_ops_collective,
    }

    /// A passive endpoint, `fi_endpoint`(3).
    struct fid_pep: 40 bytes {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_ep,
        cm @ 32: *mut fi_ops_cm,
    }

    /// A shared transmit context, `fi_endpoint`(3).
    struct fid_stx: 32 bytes {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_ep,
    }
}
