//! RDMA devices, by rdma-core's `libibverbs.so.1` and `librdmacm.so.1`.
//!
//! The libraries are opened when they are first needed, so programs neither link nor need them; where
//! they are missing, [`available`] says which, and what to install ([`Missing`]). Calls that make objects
//! go through their exported functions; [`Qp::post_send`], [`Qp::post_recv`], [`Cq::poll`] and
//! [`Cq::arm`] through the table of functions of the open device, as the inline functions of rdma-core's
//! headers do.
//!
//! Objects own what they are made with, so everything ends in the right order: a region holds its
//! protection domain, a queue pair its queues and the id that connects it, an id its event channel.
//!
//! # Memory
//!
//! Requests name memory by [`UserBuf`](ripstop_mem::UserBuf)s. A device uses it from the call that posts
//! a request until
//!
//! - a completion with the request's number is taken, or one of a request that was posted later to the
//!   same send queue: requests of a send queue end in order, and those without
//!   [`SendFlags::SIGNALED`] have no completion if they succeed;
//! - the call returns, for requests to send with [`SendFlags::INLINE`];
//! - the queue pair is dropped, or the [`Srq`] for receives of one.
//!
//! Peers reach a registered region ([`Mr`]) as long as it lives. Whoever made a buffer has promised that
//! its memory is there for as long as it is used (`ripstop_core::provider`), so nothing here is `unsafe`
//! to call, and whoever posts requests keeps what that contract says.
//!
//! # Threads
//!
//! rdma-core's objects may be used by any thread at any time, and so may these.
#![deny(unsafe_code)]

mod ah;
mod cm;
mod cq;
mod device;
mod library;
mod mr;
mod qp;
mod request;
pub mod sys;

pub use ah::{AddressHandle, Destination, Path};
pub use cm::{CmEvent, CmEventKind, CmId, ConnParam, EventChannel, IdKey, PeerDepth};
pub use cq::{CompletionChannel, Cq, Status, Wc, WcKind};
pub use device::{
    Context, DeviceAttr, DeviceEvent, LinkLayer, Pd, PortAttr, QueueKey, Transport, devices,
    forget_removed, has_devices,
};
pub use library::{Missing, available};
pub use mr::{Access, Mr, RecvArea, SendArea, registers_dmabufs};
pub use qp::{Datagrams, PostError, Qp, QpCap, QpKind, Srq};
pub use request::{Operation, RecvRequest, Remote, SendFlags, SendRequest, Sge};
