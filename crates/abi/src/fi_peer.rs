//! Mirror of `rdma/providers/fi_peer.h`: what a provider and its peer provider share.
//!
//! Fields carry the meaning of the man page that their struct names.
#![allow(missing_docs)]

use core::ffi::{c_int, c_void};

use crate::fabric::{fi_addr_t, fi_info, fid, iovec};
use crate::fi_domain::{fi_av_attr, fid_domain};
use crate::fi_endpoint::fid_ep;
use crate::fi_eq::{fi_cq_err_entry, fi_cq_tagged_entry, fid_eq};

/// What the owner of an address vector offers its peer, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_av_owner {
    pub size: usize,
    pub query: Option<unsafe extern "C" fn(av: *mut fid_peer_av, attr: *mut fi_av_attr) -> c_int>,
    pub ep_addr: Option<unsafe extern "C" fn(av: *mut fid_peer_av, ep: *mut fid_ep) -> fi_addr_t>,
}

/// An address vector lent to a peer provider, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_peer_av {
    pub fid: fid,
    pub owner_ops: *mut fi_ops_av_owner,
}

/// Argument of `fi_av_open` for a peer provider, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_peer_av_context {
    pub size: usize,
    pub av: *mut fid_peer_av,
}

/// What the owner of an address vector set offers its peer, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_av_set_owner {
    pub size: usize,
    pub members: Option<
        unsafe extern "C" fn(
            av: *mut fid_peer_av_set,
            addr: *mut fi_addr_t,
            count: *mut usize,
        ) -> c_int,
    >,
}

/// An address vector set lent to a peer provider, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_peer_av_set {
    pub fid: fid,
    pub owner_ops: *mut fi_ops_av_set_owner,
}

/// Argument of `fi_av_set` for a peer provider, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_peer_av_set_context {
    pub size: usize,
    /// The header writes an undefined `struct fi_peer_av_set` here.
    pub av_set: *mut fid_peer_av_set,
}

/// What the owner of a completion queue offers its peer, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_cq_owner {
    pub size: usize,
    pub write: Option<
        unsafe extern "C" fn(
            cq: *mut fid_peer_cq,
            context: *mut c_void,
            flags: u64,
            len: usize,
            buf: *mut c_void,
            data: u64,
            tag: u64,
            src: fi_addr_t,
        ) -> isize,
    >,
    pub writeerr: Option<
        unsafe extern "C" fn(cq: *mut fid_peer_cq, err_entry: *const fi_cq_err_entry) -> isize,
    >,
}

/// A completion queue lent to a peer provider, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_peer_cq {
    pub fid: fid,
    pub owner_ops: *mut fi_ops_cq_owner,
}

/// Argument of `fi_cq_open` for a peer provider, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_peer_cq_context {
    pub size: usize,
    pub cq: *mut fid_peer_cq,
}

/// What the owner of a counter offers its peer, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_cntr_owner {
    pub size: usize,
    pub inc: Option<unsafe extern "C" fn(cntr: *mut fid_peer_cntr)>,
    pub incerr: Option<unsafe extern "C" fn(cntr: *mut fid_peer_cntr)>,
}

/// A counter lent to a peer provider, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_peer_cntr {
    pub fid: fid,
    pub owner_ops: *mut fi_ops_cntr_owner,
}

/// Argument of `fi_cntr_open` for a peer provider, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_peer_cntr_context {
    pub size: usize,
    pub cntr: *mut fid_peer_cntr,
}

/// Argument of `fi_domain` for a peer provider, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_peer_domain_context {
    pub size: usize,
    pub domain: *mut fid_domain,
}

/// Argument of `fi_eq_open` for a peer provider, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_peer_eq_context {
    pub size: usize,
    pub eq: *mut fid_eq,
}

/// A receive matched by the owner for its peer, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_peer_rx_entry {
    pub srx: *mut fid_peer_srx,
    pub addr: fi_addr_t,
    pub msg_size: usize,
    pub tag: u64,
    pub cq_data: u64,
    pub flags: u64,
    pub context: *mut c_void,
    pub count: usize,
    pub desc: *mut *mut c_void,
    pub peer_context: *mut c_void,
    pub owner_context: *mut c_void,
    pub iov: *mut iovec,
}

/// What a peer asks the owner to match, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_peer_match_attr {
    pub addr: fi_addr_t,
    pub msg_size: usize,
    pub tag: u64,
}

/// What the owner of a shared receive context offers its peer, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_srx_owner {
    pub size: usize,
    pub get_msg: Option<
        unsafe extern "C" fn(
            srx: *mut fid_peer_srx,
            attr: *mut fi_peer_match_attr,
            entry: *mut *mut fi_peer_rx_entry,
        ) -> c_int,
    >,
    pub get_tag: Option<
        unsafe extern "C" fn(
            srx: *mut fid_peer_srx,
            attr: *mut fi_peer_match_attr,
            entry: *mut *mut fi_peer_rx_entry,
        ) -> c_int,
    >,
    pub queue_msg: Option<unsafe extern "C" fn(entry: *mut fi_peer_rx_entry) -> c_int>,
    pub queue_tag: Option<unsafe extern "C" fn(entry: *mut fi_peer_rx_entry) -> c_int>,
    pub foreach_unspec_addr: Option<
        unsafe extern "C" fn(
            srx: *mut fid_peer_srx,
            get_addr: Option<unsafe extern "C" fn(arg0: *mut fi_peer_rx_entry) -> fi_addr_t>,
        ),
    >,
    pub free_entry: Option<unsafe extern "C" fn(entry: *mut fi_peer_rx_entry)>,
}

/// What a peer offers the owner of a shared receive context, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_srx_peer {
    pub size: usize,
    pub start_msg: Option<unsafe extern "C" fn(entry: *mut fi_peer_rx_entry) -> c_int>,
    pub start_tag: Option<unsafe extern "C" fn(entry: *mut fi_peer_rx_entry) -> c_int>,
    pub discard_msg: Option<unsafe extern "C" fn(entry: *mut fi_peer_rx_entry) -> c_int>,
    pub discard_tag: Option<unsafe extern "C" fn(entry: *mut fi_peer_rx_entry) -> c_int>,
}

/// A shared receive context lent to a peer provider, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_peer_srx {
    pub ep_fid: fid_ep,
    pub owner_ops: *mut fi_ops_srx_owner,
    pub peer_ops: *mut fi_ops_srx_peer,
}

/// Argument of `fi_srx_context` for a peer provider, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_peer_srx_context {
    pub size: usize,
    pub srx: *mut fid_peer_srx,
}

/// What a transferring provider offers its peer, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_transfer_peer {
    pub size: usize,
    pub complete: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *mut fi_cq_tagged_entry,
            src_addr: fi_addr_t,
        ) -> isize,
    >,
    pub comperr: Option<unsafe extern "C" fn(ep: *mut fid_ep, buf: *mut fi_cq_err_entry) -> isize>,
}

/// Argument of `fi_endpoint` for a peer transfer, `fi_peer`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_peer_transfer_context {
    pub size: usize,
    pub info: *mut fi_info,
    pub ep: *mut fid_ep,
    pub peer_ops: *mut fi_ops_transfer_peer,
}

layout! {
    fi_ops_av_owner: 24 { size = 0, query = 8, ep_addr = 16 }
    fid_peer_av: 32 { fid = 0, owner_ops = 24 }
    fi_peer_av_context: 16 { size = 0, av = 8 }
    fi_ops_av_set_owner: 16 { size = 0, members = 8 }
    fid_peer_av_set: 32 { fid = 0, owner_ops = 24 }
    fi_peer_av_set_context: 16 { size = 0, av_set = 8 }
    fi_ops_cq_owner: 24 { size = 0, write = 8, writeerr = 16 }
    fid_peer_cq: 32 { fid = 0, owner_ops = 24 }
    fi_peer_cq_context: 16 { size = 0, cq = 8 }
    fi_ops_cntr_owner: 24 { size = 0, inc = 8, incerr = 16 }
    fid_peer_cntr: 32 { fid = 0, owner_ops = 24 }
    fi_peer_cntr_context: 16 { size = 0, cntr = 8 }
    fi_peer_domain_context: 16 { size = 0, domain = 8 }
    fi_peer_eq_context: 16 { size = 0, eq = 8 }
    fi_peer_rx_entry: 96 {
        srx = 0, addr = 8, msg_size = 16, tag = 24, cq_data = 32, flags = 40, context =
        48, count = 56, desc = 64, peer_context = 72, owner_context = 80, iov = 88
    }
    fi_peer_match_attr: 24 { addr = 0, msg_size = 8, tag = 16 }
    fi_ops_srx_owner: 56 {
        size = 0, get_msg = 8, get_tag = 16, queue_msg = 24, queue_tag = 32,
        foreach_unspec_addr = 40, free_entry = 48
    }
    fi_ops_srx_peer: 40 {
        size = 0, start_msg = 8, start_tag = 16, discard_msg = 24, discard_tag = 32
    }
    fid_peer_srx: 96 { ep_fid = 0, owner_ops = 80, peer_ops = 88 }
    fi_peer_srx_context: 16 { size = 0, srx = 8 }
    fi_ops_transfer_peer: 24 { size = 0, complete = 8, comperr = 16 }
    fi_peer_transfer_context: 32 { size = 0, info = 8, ep = 16, peer_ops = 24 }
}
