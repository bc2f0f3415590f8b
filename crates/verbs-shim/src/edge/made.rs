#![allow(unsafe_code)]
//! The objects that programs have pointers to.

use core::mem::offset_of;
use core::ops::Deref;
use core::sync::atomic::AtomicUsize;
use std::net::IpAddr;
use std::sync::Arc;

use crate::edge::args::{Arg, Must, Object};
use crate::edge::building::Builder;
use crate::edge::turn::Turn;
use crate::engine::Engine;
use crate::engine::cq::{Channel, Told, Unacked};
use crate::sys::{
    IBV_QPT_UD, ibv_ah, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_device, ibv_mr,
    ibv_pd, ibv_qp, ibv_qp_ex, ibv_srq, ibv_wc, verbs_context,
};

/// The device.
#[repr(C)]
pub(crate) struct Device {
    pub(crate) c: ibv_device,
}

// SAFETY: `#[repr(C)]`, and the struct comes first.
unsafe impl Object for Device {
    type C = ibv_device;
}

// SAFETY: nothing in it changes, and its pointers are to functions.
unsafe impl Sync for Device {}
// SAFETY: as for `Sync`.
unsafe impl Send for Device {}

/// The device, opened.
#[repr(C)]
pub(crate) struct Context {
    /// The extended calls: programs look for them right in front of the struct that they have.
    pub(crate) ex: verbs_context,
    pub(crate) c: ibv_context,
    pub(crate) engine: Arc<Engine>,
    /// Asynchronous events: there are none, and whoever waits for one waits.
    pub(crate) events: Arc<Channel<()>>,
}

// SAFETY: `#[repr(C)]`, and the struct is at that place.
unsafe impl Object for Context {
    type C = ibv_context;

    const OFFSET: usize = offset_of!(Self, c);
}

/// A protection domain.
#[repr(C)]
pub(crate) struct Pd {
    pub(crate) c: ibv_pd,
    pub(crate) engine: Arc<Engine>,
}

// SAFETY: `#[repr(C)]`, and the struct comes first.
unsafe impl Object for Pd {
    type C = ibv_pd;
}

/// A memory region.
#[repr(C)]
pub(crate) struct Mr {
    pub(crate) c: ibv_mr,
    pub(crate) engine: Arc<Engine>,
}

// SAFETY: `#[repr(C)]`, and the struct comes first.
unsafe impl Object for Mr {
    type C = ibv_mr;
}

/// A completion channel.
#[repr(C)]
pub(crate) struct CompChannel {
    pub(crate) c: ibv_comp_channel,
    pub(crate) channel: Arc<Channel<Told>>,
    /// Completion queues that use it.
    pub(crate) users: AtomicUsize,
}

// SAFETY: `#[repr(C)]`, and the struct comes first.
unsafe impl Object for CompChannel {
    type C = ibv_comp_channel;
}

/// A completion queue.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) c: ibv_cq_ex,
    pub(crate) engine: Arc<Engine>,
    pub(crate) id: usize,
    /// Its events that the program has and has not acknowledged.
    pub(crate) unacked: Arc<Unacked>,
    /// The completion that a program looks at.
    pub(crate) current: Turn<ibv_wc>,
}

// SAFETY: `#[repr(C)]`, and the struct comes first, at the beginning of its extended one.
unsafe impl Object for Cq {
    type C = ibv_cq;
}

/// A shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    pub(crate) c: ibv_srq,
    pub(crate) engine: Arc<Engine>,
    pub(crate) id: usize,
}

// SAFETY: `#[repr(C)]`, and the struct comes first.
unsafe impl Object for Srq {
    type C = ibv_srq;
}

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    pub(crate) c: ibv_ah,
    pub(crate) engine: Arc<Engine>,
    /// Of which protection domain it is.
    pub(crate) pd: u32,
    pub(crate) ip: IpAddr,
}

// SAFETY: `#[repr(C)]`, and the struct comes first.
unsafe impl Object for Ah {
    type C = ibv_ah;
}

/// A queue pair.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) c: ibv_qp_ex,
    pub(crate) engine: Arc<Engine>,
    pub(crate) id: usize,
    /// Whether it was created for requests that are built by calls.
    pub(crate) builds: bool,
    pub(crate) building: Builder,
}

// SAFETY: `#[repr(C)]`, and the struct comes first, at the beginning of its extended one.
unsafe impl Object for Qp {
    type C = ibv_qp;
}

impl Qp {
    /// Whether it is one of datagrams.
    pub(crate) const fn is_ud(&self) -> bool {
        self.c.qp_base.qp_type == IBV_QPT_UD
    }
}

/// An object that the caller has by the pointer to its extended struct, which begins as the plain one does.
macro_rules! extended {
    ($($name:ident: $object:ident as $c:ident;)*) => { $(
        /// The object of a call that is reached through its struct.
        pub(crate) struct $name<'a>(Must<'a, $object>);

        impl Arg for $name<'_> {
            type C = *mut $c;

            unsafe fn from_c(c: *mut $c) -> Self {
                // SAFETY: what the caller passes is the beginning of the struct that it has of the object.
                Self(unsafe { Must::from_c(c.cast()) })
            }
        }

        impl Deref for $name<'_> {
            type Target = $object;

            fn deref(&self) -> &$object {
                &self.0
            }
        }
    )* };
}

extended! {
    ExQp: Qp as ibv_qp_ex;
    ExCq: Cq as ibv_cq_ex;
}
