//! Mirror of `rdma/providers/fi_peer.h`: what a provider and its peer provider share.

use core::ffi::{c_int, c_void};

use crate::fabric::{fi_addr_t, fi_info, fid, iovec};
use crate::fi_domain::{fi_av_attr, fid_domain};
use crate::fi_endpoint::fid_ep;
use crate::fi_eq::{fi_cq_err_entry, fi_cq_tagged_entry, fid_eq};

structs! {
    /// What the owner of an address vector offers its peer, `fi_peer`(3).
    ops fi_ops_av_owner: 24 bytes {
        query @ 8: fn(av: *mut fid_peer_av, attr: *mut fi_av_attr) -> c_int,
        ep_addr @ 16: fn(av: *mut fid_peer_av, ep: *mut fid_ep) -> fi_addr_t,
    }

    /// An address vector lent to a peer provider, `fi_peer`(3).
    struct fid_peer_av: 32 bytes {
        fid @ 0: fid,
        owner_ops @ 24: *mut fi_ops_av_owner,
    }

    /// Argument of `fi_av_open` for a peer provider, `fi_peer`(3).
    struct fi_peer_av_context: 16 bytes {
        size @ 0: usize,
        av @ 8: *mut fid_peer_av,
    }

    /// What the owner of an address vector set offers its peer, `fi_peer`(3).
    ops fi_ops_av_set_owner: 16 bytes {
        members @ 8: fn(av: *mut fid_peer_av_set, addr: *mut fi_addr_t, count: *mut usize) -> c_int,
    }

    /// An address vector set lent to a peer provider, `fi_peer`(3).
    struct fid_peer_av_set: 32 bytes {
        fid @ 0: fid,
        owner_ops @ 24: *mut fi_ops_av_set_owner,
    }

    /// Argument of `fi_av_set` for a peer provider, `fi_peer`(3).
    struct fi_peer_av_set_context: 16 bytes {
        size @ 0: usize,
        /// The header writes an undefined `struct fi_peer_av_set` here.
        av_set @ 8: *mut fid_peer_av_set,
    }

    /// What the owner of a completion queue offers its peer, `fi_peer`(3).
    ops fi_ops_cq_owner: 24 bytes {
        write @ 8: fn(
            cq: *mut fid_peer_cq, context: *mut c_void, flags: u64, len: usize, buf: *mut c_void,
            data: u64, tag: u64, src: fi_addr_t,
        ) -> isize,
        writeerr @ 16: fn(cq: *mut fid_peer_cq, err_entry: *const fi_cq_err_entry) -> isize,
    }

    /// A completion queue lent to a peer provider, `fi_peer`(3).
    struct fid_peer_cq: 32 bytes {
        fid @ 0: fid,
        owner_ops @ 24: *mut fi_ops_cq_owner,
    }

    /// Argument of `fi_cq_open` for a peer provider, `fi_peer`(3).
    struct fi_peer_cq_context: 16 bytes {
        size @ 0: usize,
        cq @ 8: *mut fid_peer_cq,
    }

    /// What the owner of a counter offers its peer, `fi_peer`(3).
    ops fi_ops_cntr_owner: 24 bytes {
        inc @ 8: fn(cntr: *mut fid_peer_cntr),
        incerr @ 16: fn(cntr: *mut fid_peer_cntr),
    }

    /// A counter lent to a peer provider, `fi_peer`(3).
    struct fid_peer_cntr: 32 bytes {
        fid @ 0: fid,
        owner_ops @ 24: *mut fi_ops_cntr_owner,
    }

    /// Argument of `fi_cntr_open` for a peer provider, `fi_peer`(3).
    struct fi_peer_cntr_context: 16 bytes {
        size @ 0: usize,
        cntr @ 8: *mut fid_peer_cntr,
    }

    /// Argument of `fi_domain` for a peer provider, `fi_peer`(3).
    struct fi_peer_domain_context: 16 bytes {
        size @ 0: usize,
        domain @ 8: *mut fid_domain,
    }

    /// Argument of `fi_eq_open` for a peer provider, `fi_peer`(3).
    struct fi_peer_eq_context: 16 bytes {
        size @ 0: usize,
        eq @ 8: *mut fid_eq,
    }

    /// A receive matched by the owner for its peer, `fi_peer`(3).
    struct fi_peer_rx_entry: 96 bytes {
        srx @ 0: *mut fid_peer_srx,
        addr @ 8: fi_addr_t,
        msg_size @ 16: usize,
        tag @ 24: u64,
        cq_data @ 32: u64,
        flags @ 40: u64,
        context @ 48: *mut c_void,
        count @ 56: usize,
        desc @ 64: *mut *mut c_void,
        peer_context @ 72: *mut c_void,
        owner_context @ 80: *mut c_void,
        iov @ 88: *mut iovec,
    }

    /// What a peer asks the owner to match, `fi_peer`(3).
    struct fi_peer_match_attr: 24 bytes {
        addr @ 0: fi_addr_t,
        msg_size @ 8: usize,
        tag @ 16: u64,
    }

    /// What the owner of a shared receive context offers its peer, `fi_peer`(3).
    ops fi_ops_srx_owner: 56 bytes {
        get_msg @ 8: fn(
            srx: *mut fid_peer_srx, attr: *mut fi_peer_match_attr,
            entry: *mut *mut fi_peer_rx_entry,
        ) -> c_int,
        get_tag @ 16: fn(
            srx: *mut fid_peer_srx, attr: *mut fi_peer_match_attr,
            entry: *mut *mut fi_peer_rx_entry,
        ) -> c_int,
        queue_msg @ 24: fn(entry: *mut fi_peer_rx_entry) -> c_int,
        queue_tag @ 32: fn(entry: *mut fi_peer_rx_entry) -> c_int,
        foreach_unspec_addr @ 40: fn(
            srx: *mut fid_peer_srx,
            get_addr: Option<unsafe extern "C" fn(arg0: *mut fi_peer_rx_entry) -> fi_addr_t>,
        ),
        free_entry @ 48: fn(entry: *mut fi_peer_rx_entry),
    }

    /// What a peer offers the owner of a shared receive context, `fi_peer`(3).
    ops fi_ops_srx_peer: 40 bytes {
        start_msg @ 8: fn(entry: *mut fi_peer_rx_entry) -> c_int,
        start_tag @ 16: fn(entry: *mut fi_peer_rx_entry) -> c_int,
        discard_msg @ 24: fn(entry: *mut fi_peer_rx_entry) -> c_int,
        discard_tag @ 32: fn(entry: *mut fi_peer_rx_entry) -> c_int,
    }

    /// A shared receive context lent to a peer provider, `fi_peer`(3).
    struct fid_peer_srx: 96 bytes {
        ep_fid @ 0: fid_ep,
        owner_ops @ 80: *mut fi_ops_srx_owner,
        peer_ops @ 88: *mut fi_ops_srx_peer,
    }

    /// Argument of `fi_srx_context` for a peer provider, `fi_peer`(3).
    struct fi_peer_srx_context: 16 bytes {
        size @ 0: usize,
        srx @ 8: *mut fid_peer_srx,
    }

    /// What a transferring provider offers its peer, `fi_peer`(3).
    ops fi_ops_transfer_peer: 24 bytes {
        complete @ 8: fn(
            ep: *mut fid_ep, buf: *mut fi_cq_tagged_entry, src_addr: fi_addr_t,
        ) -> isize,
        comperr @ 16: fn(ep: *mut fid_ep, buf: *mut fi_cq_err_entry) -> isize,
    }

    /// Argument of `fi_endpoint` for a peer transfer, `fi_peer`(3).
    struct fi_peer_transfer_context: 32 bytes {
        size @ 0: usize,
        info @ 8: *mut fi_info,
        ep @ 16: *mut fid_ep,
        peer_ops @ 24: *mut fi_ops_transfer_peer,
    }
}
