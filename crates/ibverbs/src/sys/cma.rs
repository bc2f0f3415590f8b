//! The structs of `rdma/rdma_cma.h`.

use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU64, Ordering};

use super::{ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_srq};

/// Bytes of a `struct sockaddr_storage`.
pub const SOCKADDR_STORAGE: usize = 128;

/// `struct sockaddr_storage`: room for any socket address.
#[repr(C)]
#[derive(Debug, Default)]
pub struct SockaddrStorage(pub [AtomicU64; 16]);

impl SockaddrStorage {
    /// Replaces what is there by the bytes of an address, and zeros behind them.
    pub fn set(&self, address: &[u8]) {
        let mut chunks = address.chunks(8);
        for word in &self.0 {
            let mut eight = [0; 8];
            for (place, byte) in eight.iter_mut().zip(chunks.next().unwrap_or_default()) {
                *place = *byte;
            }
            word.store(u64::from_ne_bytes(eight), Ordering::Relaxed);
        }
    }

    /// All of its bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; SOCKADDR_STORAGE] {
        let mut bytes = [0; SOCKADDR_STORAGE];
        for (eight, word) in bytes.chunks_exact_mut(8).zip(&self.0) {
            eight.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        bytes
    }
}

/// `struct rdma_event_channel`.
#[repr(C)]
pub struct rdma_event_channel {
    pub fd: c_int,
}

/// `struct rdma_cm_id`. Programs and librdmacm read and write it at any time.
#[repr(C)]
pub struct rdma_cm_id {
    pub verbs: AtomicPtr<ibv_context>,
    pub channel: AtomicPtr<rdma_event_channel>,
    pub context: AtomicPtr<c_void>,
    pub qp: AtomicPtr<ibv_qp>,
    pub src_addr: SockaddrStorage,
    pub dst_addr: SockaddrStorage,
    pub ib_addr: [AtomicU64; 5],
    pub path_rec: AtomicPtr<c_void>,
    pub num_paths: AtomicU64,
    pub ps: AtomicI32,
    pub port_num: AtomicU8,
    pub event: AtomicPtr<rdma_cm_event>,
    pub send_cq_channel: AtomicPtr<ibv_comp_channel>,
    pub send_cq: AtomicPtr<ibv_cq>,
    pub recv_cq_channel: AtomicPtr<ibv_comp_channel>,
    pub recv_cq: AtomicPtr<ibv_cq>,
    pub srq: AtomicPtr<ibv_srq>,
    pub pd: AtomicPtr<ibv_pd>,
    pub qp_type: AtomicI32,
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_conn_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub terms: ConnTerms,
    pub qp_num: u32,
}

/// The members of `struct rdma_conn_param` that are neither private data nor the number of a queue pair. They have no
/// struct of their own in C.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnTerms {
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
}

/// `struct rdma_ud_param`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_ud_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub ah_attr: ibv_ah_attr,
    pub qp_num: u32,
    pub qkey: u32,
}

/// The parameters in a `struct rdma_cm_event`: those of datagrams for an id of `RDMA_PS_UDP`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union rdma_cm_param {
    pub conn: rdma_conn_param,
    pub ud: rdma_ud_param,
}

/// `struct rdma_cm_event`.
#[repr(C)]
pub struct rdma_cm_event {
    pub id: *mut rdma_cm_id,
    pub listen_id: *mut rdma_cm_id,
    pub event: c_int,
    pub status: c_int,
    pub param: rdma_cm_param,
}

/// `struct rdma_addrinfo`.
#[repr(C)]
pub struct rdma_addrinfo {
    pub ai_flags: c_int,
    pub ai_family: c_int,
    pub ai_qp_type: c_int,
    pub ai_port_space: c_int,
    pub ai_src_len: u32,
    pub ai_dst_len: u32,
    pub ai_src_addr: *mut c_void,
    pub ai_dst_addr: *mut c_void,
    pub ai_src_canonname: *mut c_char,
    pub ai_dst_canonname: *mut c_char,
    pub ai_route_len: usize,
    pub ai_route: *mut c_void,
    pub ai_connect_len: usize,
    pub ai_connect: *mut c_void,
    pub ai_next: *mut rdma_addrinfo,
}

#[cfg(target_pointer_width = "64")]
layout! {
    rdma_event_channel size 4 {}
    rdma_cm_id size 416 {
        channel at 8 context at 16 qp at 24 src_addr at 32 dst_addr at 160 path_rec at 328
        num_paths at 336 ps at 344 port_num at 348 event at 352 send_cq_channel at 360 srq at 392 pd at 400
        qp_type at 408
    }
    rdma_conn_param size 24 {
        private_data_len at 8 terms.responder_resources at 9 terms.initiator_depth at 10 terms.flow_control at 11
        terms.retry_count at 12 terms.rnr_retry_count at 13 terms.srq at 14 qp_num at 16
    }
    rdma_ud_param size 56 { private_data_len at 8 ah_attr at 16 qp_num at 48 qkey at 52 }
    rdma_cm_event size 80 { listen_id at 8 event at 16 status at 20 param at 24 }
    rdma_addrinfo size 96 {
        ai_port_space at 12 ai_src_len at 16 ai_src_addr at 24 ai_dst_addr at 32 ai_src_canonname at 40
        ai_route_len at 56 ai_route at 64 ai_connect_len at 72 ai_connect at 80 ai_next at 88
    }
}
