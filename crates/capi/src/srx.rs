#![allow(unsafe_code)]
//! Shared receive contexts (`fi_srx_context`, `fi_endpoint(3)`): a `fid_ep` that only receives.
//!
//! These operations belong to contexts of type `D` and are called through them; buffers, I/O
//! vectors and messages are null or valid as `fi_msg(3)` and `fi_tagged(3)` ask. Every `SAFETY`
//! remark of an operation rests on this.

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::ptr;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::provider::{Domain, RecvKind, SharedRx};
use ripstop_types::{Errno, FiAddr, Flags};

use crate::buffers;
use crate::counter::CounterBody;
use crate::cq::CqBody;
use crate::domain::DomainBody;
use crate::endpoint::{self, message, same_domain, shared_recv, tagged_message};
use crate::errno::{code, status};
use crate::info::read;
use crate::object::{self, Body, Room, body};
use crate::peer::SrxOwner;
use crate::tables::{self, table};

/// What the object of a shared receive context holds.
pub(crate) struct SrxBody<D: Domain> {
    pub(crate) srx: Arc<D::SharedRx>,
    pub(crate) domain: Arc<D>,
}

/// What the object of a receive context holds whose receives another provider has.
pub(crate) struct PeerBody<D: Domain> {
    pub(crate) owner: Arc<SrxOwner<D>>,
    pub(crate) domain: Arc<D>,
}

impl<D: Domain> Body for PeerBody<D> {
    type Head = abi::fid_ep;

    fn in_use(&self) -> bool {
        Arc::strong_count(&self.owner.rx) > 1
    }
}

impl<D: Domain> Body for SrxBody<D> {
    type Head = abi::fid_ep;

    fn in_use(&self) -> bool {
        Arc::strong_count(&self.srx) > 1
    }
}

struct Tables<D>(PhantomData<D>);

/// A context does not send.
static NO_CM: abi::fi_ops_cm = tables::NO_CM_OPS;

impl<D: Domain> Tables<D> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        close: Some(object::close::<SrxBody<D>>),
        bind: Some(bind::<D>),
        ..tables::NO_FID_OPS
    };
    const EP: &'static abi::fi_ops_ep = &abi::fi_ops_ep {
        cancel: Some(cancel::<D>),
        getopt: Some(getopt::<D>),
        setopt: Some(setopt::<D>),
        ..tables::NO_EP_OPS
    };
    const MSG: &'static abi::fi_ops_msg = &abi::fi_ops_msg {
        recv: Some(recv::<D>),
        recvv: Some(recvv::<D>),
        recvmsg: Some(recvmsg::<D>),
        ..tables::NO_MSG_OPS
    };
    const TAGGED: &'static abi::fi_ops_tagged = &abi::fi_ops_tagged {
        recv: Some(trecv::<D>),
        recvv: Some(trecvv::<D>),
        recvmsg: Some(trecvmsg::<D>),
        ..tables::NO_TAGGED_OPS
    };
}

/// The operations of a context whose receives another provider has: none but to close it.
struct Owned<D>(PhantomData<D>);

impl<D: Domain> Owned<D> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        close: Some(object::close::<PeerBody<D>>),
        ..tables::NO_FID_OPS
    };
    const EP: &'static abi::fi_ops_ep = &tables::NO_EP_OPS;
    const MSG: &'static abi::fi_ops_msg = &tables::NO_MSG_OPS;
    const TAGGED: &'static abi::fi_ops_tagged = &tables::NO_TAGGED_OPS;
}

/// What no receive context does.
fn no_head() -> abi::fid_ep {
    abi::fid_ep {
        cm: table(&NO_CM),
        rma: table(&tables::NO_RMA),
        atomic: table(&tables::NO_ATOMIC),
        collective: table(&tables::NO_COLLECTIVE),
        ..Default::default()
    }
}

/// `fi_srx_context`.
///
/// # Safety
///
/// `domain` is an open domain of this type; `attr` is null or valid; `ep` is null or valid for
/// writes; with `FI_PEER`, `context` is as `fi_peer(3)` asks.
pub(crate) unsafe extern "C" fn open<D: Domain>(
    domain: *mut abi::fid_domain,
    attr: *mut abi::fi_rx_attr,
    ep: *mut *mut abi::fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's guarantee.
    let parent = unsafe { body::<DomainBody<D>>(domain) };
    let make = || {
        // SAFETY: the caller's guarantee.
        let attr = unsafe { object::or_default(attr) };
        if attr.op_flags & abi::FI_PEER != 0 {
            let head = abi::fid_ep {
                fid: object::fid(abi::FI_CLASS_SRX_CTX, ptr::null_mut(), Owned::<D>::FID),
                ops: table(Owned::<D>::EP),
                msg: table(Owned::<D>::MSG),
                tagged: table(Owned::<D>::TAGGED),
                ..no_head()
            };
            let body = PeerBody {
                // SAFETY: the caller's guarantee.
                owner: unsafe { SrxOwner::new(&parent.domain, context) }?,
                domain: Arc::clone(&parent.domain),
            };
            return Ok(Room::<PeerBody<D>>::new().fill(head, body));
        }
        let head = abi::fid_ep {
            fid: object::fid(abi::FI_CLASS_SRX_CTX, context, Tables::<D>::FID),
            ops: table(Tables::<D>::EP),
            msg: table(Tables::<D>::MSG),
            tagged: table(Tables::<D>::TAGGED),
            ..no_head()
        };
        let body = SrxBody {
            srx: parent.domain.shared_rx(&read::rx_attr(&attr))?,
            domain: Arc::clone(&parent.domain),
        };
        Ok(Room::<SrxBody<D>>::new().fill(head, body))
    };
    // SAFETY: the caller's guarantee.
    unsafe { object::open(ep, make) }
}

/// `fi_ep_bind` of a context: a completion queue or a counter, for receives.
unsafe extern "C" fn bind<D: Domain>(
    fid: *mut abi::fid,
    other: *mut abi::fid,
    flags: u64,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<SrxBody<D>>(fid.cast()) };
    let flags = Flags::from_bits_retain(flags);
    // SAFETY: `other` is null or an open object, as `fi_ep_bind` asks.
    let class = unsafe { object::class_of(other) };
    code(match class {
        Some(class @ abi::FI_CLASS_CQ) => {
            // SAFETY: as above.
            let cq = unsafe { object::cast::<CqBody<D>>(other, class) };
            cq.and_then(|cq| {
                same_domain(&this.domain, &cq.domain)?;
                this.srx.bind_cq(&cq.cq, flags)
            })
        }
        Some(class @ abi::FI_CLASS_CNTR) => {
            // SAFETY: as above.
            let counter = unsafe { object::cast::<CounterBody<D>>(other, class) };
            counter.and_then(|counter| {
                same_domain(&this.domain, &counter.domain)?;
                this.srx.bind_counter(&counter.counter, flags)
            })
        }
        _ => Err(Errno::EINVAL),
    })
}

unsafe extern "C" fn recv<D: Domain>(
    ep: *mut abi::fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    src_addr: abi::fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<SrxBody<D>>(ep) };
    // SAFETY: see the module.
    let buf = unsafe { buffers::destination(buf, len) };
    let (src, context) = (FiAddr(src_addr), context.expose_provenance());
    status(this.srx.recv(RecvKind::Msg, &[buf], src, context, None))
}

unsafe extern "C" fn recvv<D: Domain>(
    ep: *mut abi::fid_ep,
    iov: *const abi::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: abi::fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<SrxBody<D>>(ep) };
    // SAFETY: see the module.
    let segs = unsafe { buffers::destinations(iov, count) };
    status(segs.and_then(|segs| {
        let (src, context) = (FiAddr(src_addr), context.expose_provenance());
        let segs = segs.as_slice();
        this.srx.recv(RecvKind::Msg, segs, src, context, None)
    }))
}

unsafe extern "C" fn recvmsg<D: Domain>(
    ep: *mut abi::fid_ep,
    msg: *const abi::fi_msg,
    flags: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<SrxBody<D>>(ep) };
    // SAFETY: see the module.
    let posted = unsafe { message(msg, flags) };
    status(posted.and_then(|posted| shared_recv(&*this.srx, &this.domain, &posted)))
}

unsafe extern "C" fn trecv<D: Domain>(
    ep: *mut abi::fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    src_addr: abi::fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<SrxBody<D>>(ep) };
    // SAFETY: see the module.
    let buf = unsafe { buffers::destination(buf, len) };
    let (src, context) = (FiAddr(src_addr), context.expose_provenance());
    let kind = RecvKind::Tagged { tag, ignore };
    status(this.srx.recv(kind, &[buf], src, context, None))
}

unsafe extern "C" fn trecvv<D: Domain>(
    ep: *mut abi::fid_ep,
    iov: *const abi::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: abi::fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<SrxBody<D>>(ep) };
    // SAFETY: see the module.
    let segs = unsafe { buffers::destinations(iov, count) };
    status(segs.and_then(|segs| {
        let (src, context) = (FiAddr(src_addr), context.expose_provenance());
        let kind = RecvKind::Tagged { tag, ignore };
        this.srx.recv(kind, segs.as_slice(), src, context, None)
    }))
}

unsafe extern "C" fn trecvmsg<D: Domain>(
    ep: *mut abi::fid_ep,
    msg: *const abi::fi_msg_tagged,
    flags: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<SrxBody<D>>(ep) };
    // SAFETY: see the module.
    let posted = unsafe { tagged_message(msg, flags) };
    status(posted.and_then(|posted| shared_recv(&*this.srx, &this.domain, &posted)))
}

unsafe extern "C" fn cancel<D: Domain>(fid: abi::fid_t, context: *mut c_void) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<SrxBody<D>>(fid.cast()) };
    status(this.srx.cancel(context.expose_provenance()))
}

unsafe extern "C" fn getopt<D: Domain>(
    fid: abi::fid_t,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<SrxBody<D>>(fid.cast()) };
    let get = |option| this.srx.option(option);
    // SAFETY: the buffer is as `fi_getopt` asks.
    code(unsafe { endpoint::get_option(level, name, value, len, get) })
}

unsafe extern "C" fn setopt<D: Domain>(
    fid: abi::fid_t,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<SrxBody<D>>(fid.cast()) };
    let set = |option, value| this.srx.set_option(option, value);
    // SAFETY: the buffer is as `fi_setopt` asks.
    code(unsafe { endpoint::set_option(level, name, value, len, set) })
}
