#![allow(unsafe_code)]
//! The ids, channels and events that programs have pointers to.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use ripstop_core::Address;
use ripstop_types::{AddrFormat, Errno, Result};

use crate::cm::wire::Param;
use crate::cm::{Event, Events, Id, Space};
use crate::edge::args::{Arg, Must, Object, Take, bytes};
use crate::edge::made::Context;
use crate::edge::objects::alloc_pd;
use crate::edge::{device, errno_of};
use crate::log::{Subsys, refuse};
use crate::sys::{
    IBV_QPT_RC, IBV_QPT_UD, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_REJECTED, RDMA_PS_TCP,
    RDMA_PS_UDP, SockaddrStorage, ibv_ah_attr, ibv_context, ibv_pd, ibv_qp_init_attr,
    rdma_cm_event, rdma_cm_id, rdma_cm_param, rdma_conn_param, rdma_event_channel, rdma_ud_param,
};

/// A channel of events.
#[repr(C)]
pub(crate) struct EventChannel {
    pub(crate) c: rdma_event_channel,
    pub(crate) events: Arc<Events>,
}

// SAFETY: `#[repr(C)]`, and the struct comes first.
unsafe impl Object for EventChannel {
    type C = rdma_event_channel;
}

/// An id.
#[repr(C)]
pub(crate) struct CmId {
    pub(crate) c: rdma_cm_id,
    pub(crate) id: Arc<Id>,
    /// What the queue pairs of its requests are made with (`rdma_create_ep`).
    pub(crate) template: Mutex<Option<(*mut ibv_pd, ibv_qp_init_attr)>>,
}

// SAFETY: `#[repr(C)]`, and the struct comes first.
unsafe impl Object for CmId {
    type C = rdma_cm_id;
}

/// An event that a program has.
#[repr(C)]
pub(crate) struct CmEvent {
    pub(crate) c: rdma_cm_event,
    /// What the parameters of the struct point to.
    _private: Vec<u8>,
    /// Whose event it is, if it is to be acknowledged.
    pub(crate) counted: Option<Arc<Id>>,
}

// SAFETY: `#[repr(C)]`, and the struct comes first.
unsafe impl Object for CmEvent {
    type C = rdma_cm_event;
}

/// The open device of all ids, as a pointer, and its default protection domain.
static DEVICE: OnceLock<Result<(usize, usize)>> = OnceLock::new();

/// The open device of all ids, which is opened when the first is made and stays open.
pub(crate) fn opened() -> Result<(*mut ibv_context, *mut ibv_pd)> {
    let opened = DEVICE.get_or_init(|| {
        let context = device::open()?;
        let pd = alloc_pd(&object::<Context>(context));
        Ok((context.expose_provenance(), pd.expose_provenance()))
    });
    let (context, pd) = (*opened)?;
    let context = ptr::with_exposed_provenance_mut(context);
    Ok((context, ptr::with_exposed_provenance_mut(pd)))
}

/// An object by a pointer that this library has made.
pub(crate) fn object<'a, T: Object>(pointer: *mut T::C) -> Must<'a, T> {
    // SAFETY: the callers have the pointer from `give`, or from a struct where only such are, and the program
    // has not destroyed the object that it uses in this call.
    unsafe { Must::from_c(pointer) }
}

/// An object that this library gives up for the program, with the id that has it or in place of it.
pub(crate) fn given_up<T: Object>(pointer: *mut T::C) -> Take<T> {
    // SAFETY: the callers have the pointer from `give` and forget it.
    unsafe { Take::from_c(pointer) }
}

/// A socket address of the caller, or none for NULL.
pub(crate) struct Sockaddr(Option<Result<SocketAddr>>);

impl Arg for Sockaddr {
    type C = *const c_void;

    unsafe fn from_c(c: *const c_void) -> Self {
        if c.is_null() {
            return Self(None);
        }
        // SAFETY: every socket address begins with its family.
        let family = unsafe { bytes(c, 2) };
        let len = match family[..]
            .first_chunk::<2>()
            .map(|f| u16::from_ne_bytes(*f))
        {
            Some(2) => 16,
            Some(10) => 28,
            _ => return Self(Some(Err(Errno::EAFNOSUPPORT))),
        };
        // SAFETY: an address of this family has so many bytes.
        let all = unsafe { bytes(c, len) };
        let address = Address::from_bytes(AddrFormat::Sockaddr, &all).ok();
        Self(Some(address.and_then(|a| a.ip()).ok_or(Errno::EINVAL)))
    }
}

impl Sockaddr {
    /// The address, unless it is NULL.
    ///
    /// # Errors
    /// `EAFNOSUPPORT` for a family that is not IP.
    pub(crate) fn get(&self) -> Result<Option<SocketAddr>> {
        self.0.transpose().map_err(|error| {
            refuse(
                Subsys::EpCtrl,
                error,
                format_args!("addresses are those of IPv4 and IPv6"),
            )
        })
    }
}

/// Writes an address into a struct of C.
fn store(storage: &SockaddrStorage, address: Option<SocketAddr>) {
    storage.set(&address.map_or_else(Vec::new, |address| Address::Ip(address).to_bytes()));
}

/// The port in a struct of C, in network order.
pub(crate) fn port(storage: &SockaddrStorage) -> u16 {
    let [_, _, high, low, ..] = storage.bytes();
    u16::from_ne_bytes([high, low])
}

impl CmId {
    /// Makes the C struct of an id.
    pub(crate) fn make(
        id: Arc<Id>,
        channel: *mut rdma_event_channel,
        context: *mut c_void,
    ) -> *mut rdma_cm_id {
        fn null<T>() -> AtomicPtr<T> {
            AtomicPtr::new(ptr::null_mut())
        }
        let (ps, qp_type) = match id.space {
            Space::Connections => (RDMA_PS_TCP, IBV_QPT_RC),
            Space::Datagrams => (RDMA_PS_UDP, IBV_QPT_UD),
        };
        let c = rdma_cm_id {
            verbs: null(),
            channel: AtomicPtr::new(channel),
            context: AtomicPtr::new(context),
            qp: null(),
            src_addr: SockaddrStorage::default(),
            dst_addr: SockaddrStorage::default(),
            ib_addr: [const { AtomicU64::new(0) }; 5],
            path_rec: null(),
            num_paths: AtomicU64::new(0),
            ps: ps.into(),
            port_num: 0.into(),
            event: null(),
            send_cq_channel: null(),
            send_cq: null(),
            recv_cq_channel: null(),
            recv_cq: null(),
            srq: null(),
            pd: null(),
            qp_type: qp_type.into(),
        };
        let known = Arc::clone(&id);
        let template = Mutex::new(None);
        let made = Self { c, id, template }.give();
        *known.token.lock() = made.expose_provenance();
        made
    }

    /// Brings the struct up to what the id knows: its addresses, and the device once one is bound.
    pub(crate) fn refresh(&self, bound: bool) -> Result<()> {
        let (local, peer) = self.id.addresses();
        store(&self.c.src_addr, local);
        store(&self.c.dst_addr, peer);
        if bound {
            self.c.verbs.store(opened()?.0, Relaxed);
            self.c.port_num.store(1, Relaxed);
        }
        Ok(())
    }

    /// The type of its queue pair.
    pub(crate) fn qp_type(&self) -> c_int {
        self.c.qp_type.load(Relaxed)
    }

    /// Whether calls wait for their outcome: the id was made without a channel.
    pub(crate) fn waits(&self) -> bool {
        self.c.channel.load(Relaxed).is_null()
    }

    /// Waits for the outcome of a call, if it is to be waited for.
    pub(crate) fn complete(&self) -> Result<()> {
        if !self.waits() {
            return Ok(());
        }
        let events = self.id.events();
        let taken = events.take(|event| {
            let (status, kind) = (event.status, event.kind);
            let made = deliver(event, ptr::null_mut()).transpose()?;
            Some(made.map(|made| (status, kind, made)))
        });
        let (status, kind, made) = taken.map_err(errno_of)??;
        self.keep(made);
        match status {
            0 => Ok(()),
            _ if kind == RDMA_CM_EVENT_REJECTED => Err(Errno::ECONNREFUSED),
            error => Err(Errno(error.abs())),
        }
    }

    /// Keeps the event of the last call that waited, in place of the one before.
    pub(crate) fn keep(&self, event: *mut rdma_cm_event) {
        let before = self.c.event.swap(event, Relaxed);
        if !before.is_null() {
            drop(given_up::<CmEvent>(before).take());
        }
    }
}

/// The parameters of an event, whose private data are kept beside them.
fn parameters(id: &Id, param: &Param, private: &[u8]) -> rdma_cm_param {
    let private_data = match private.is_empty() {
        true => ptr::null(),
        false => private.as_ptr().cast(),
    };
    let private_data_len = private.len() as u8;
    match id.space {
        Space::Connections => rdma_cm_param {
            conn: rdma_conn_param {
                private_data,
                private_data_len,
                terms: param.terms,
                qp_num: param.qp_num,
            },
        },
        Space::Datagrams => rdma_cm_param {
            ud: rdma_ud_param {
                private_data,
                private_data_len,
                ah_attr: ibv_ah_attr {
                    dgid: id.remote().0,
                    is_global: 1,
                    hop_limit: 64,
                    port_num: 1,
                    ..ibv_ah_attr::default()
                },
                qp_num: param.qp_num,
                qkey: param.qkey.unwrap_or(0),
            },
        },
    }
}

/// Makes the struct of an event, and of the id of a request. The channel, which the program names with `channel` or
/// not at all, is locked meanwhile, so nobody destroys the ids. None for an event of an id that the program will
/// not hear of. An event of a channel that it names is to be acknowledged.
pub(crate) fn deliver(
    event: Event,
    channel: *mut rdma_event_channel,
) -> Result<Option<*mut rdma_cm_event>> {
    let known = |id: &Id| ptr::with_exposed_provenance_mut::<rdma_cm_id>(*id.token.lock());
    let listener = event
        .listener
        .as_ref()
        .map_or(ptr::null_mut(), |id| known(id));
    let id = if event.kind == RDMA_CM_EVENT_CONNECT_REQUEST {
        let context = match listener.is_null() {
            true => ptr::null_mut(),
            false => object::<CmId>(listener).c.context.load(Relaxed),
        };
        CmId::make(Arc::clone(&event.id), channel, context)
    } else {
        known(&event.id)
    };
    if id.is_null() {
        // Its listener is being destroyed, and the request was withdrawn.
        return Ok(None);
    }
    object::<CmId>(id).refresh(true)?;
    let counted = (!channel.is_null()).then(|| Arc::clone(event.whose()));
    if let Some(whose) = &counted {
        whose.unacked.give();
    }
    let Event {
        kind,
        status,
        mut param,
        ..
    } = event;
    let private = std::mem::take(&mut param.private);
    let c = rdma_cm_event {
        id,
        listen_id: listener,
        event: kind,
        status,
        param: parameters(&event.id, &param, &private),
    };
    let made = CmEvent {
        c,
        _private: private,
        counted,
    };
    Ok(Some(made.give()))
}
