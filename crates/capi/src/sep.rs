#![allow(unsafe_code)]
//! Scalable endpoints (`fi_scalable_ep`, `fi_endpoint(3)`) and their contexts, which are
//! endpoints that only send or only receive.
//!
//! These operations belong to scalable endpoints of type `D` and are called through them;
//! addresses and attributes are null or valid as `fi_endpoint(3)` and `fi_cm(3)` ask. Every
//! `SAFETY` remark of an operation rests on this.

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::provider::{Domain, ScalableEp};
use ripstop_core::{RxAttr, TxAttr};
use ripstop_types::{AddrFormat, Errno};

use crate::address;
use crate::av::AvBody;
use crate::domain::DomainBody;
use crate::endpoint::{self, same_domain};
use crate::errno::{code, fail};
use crate::info::read;
use crate::object::{self, Body, Room, body};
use crate::tables::{self, table};

/// What the object of a scalable endpoint holds.
pub(crate) struct SepBody<D: Domain> {
    sep: Arc<D::ScalableEp>,
    domain: Arc<D>,
    /// Format of the addresses it takes.
    format: AddrFormat,
}

impl<D: Domain> Body for SepBody<D> {
    type Head = abi::fid_ep;

    fn in_use(&self) -> bool {
        // Its contexts hold it.
        Arc::strong_count(&self.sep) > 1
    }
}

struct Tables<D>(PhantomData<D>);

/// Only contexts send and receive.
static NO_MSG: abi::fi_ops_msg = tables::NO_MSG_OPS;
static NO_TAGGED: abi::fi_ops_tagged = tables::NO_TAGGED_OPS;

impl<D: Domain> Tables<D> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        close: Some(object::close::<SepBody<D>>),
        bind: Some(bind::<D>),
        control: Some(control::<D>),
        ..tables::NO_FID_OPS
    };
    const EP: &'static abi::fi_ops_ep = &abi::fi_ops_ep {
        tx_ctx: Some(tx_context::<D>),
        rx_ctx: Some(rx_context::<D>),
        ..tables::NO_EP_OPS
    };
    const CM: &'static abi::fi_ops_cm = &abi::fi_ops_cm {
        setname: Some(setname::<D>),
        getname: Some(getname::<D>),
        ..tables::NO_CM_OPS
    };
}

/// `fi_scalable_ep`.
///
/// # Safety
///
/// `domain` is an open domain of this type; `info` is null or whole; `sep` is null or valid for
/// writes.
pub(crate) unsafe extern "C" fn open<D: Domain>(
    domain: *mut abi::fid_domain,
    info: *mut abi::fi_info,
    sep: *mut *mut abi::fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's guarantee.
    let parent = unsafe { body::<DomainBody<D>>(domain) };
    let make = || {
        // SAFETY: the caller's guarantee.
        let wanted = unsafe { read::info("fi_scalable_ep", info) }?;
        let room = Room::<SepBody<D>>::new();
        let head = abi::fid_ep {
            fid: object::fid(abi::FI_CLASS_SEP, context, Tables::<D>::FID),
            ops: table(Tables::<D>::EP),
            cm: table(Tables::<D>::CM),
            msg: table(&NO_MSG),
            rma: table(&tables::NO_RMA),
            tagged: table(&NO_TAGGED),
            atomic: table(&tables::NO_ATOMIC),
            collective: table(&tables::NO_COLLECTIVE),
        };
        let body = SepBody {
            sep: parent.domain.scalable_ep(&wanted, room.token())?,
            domain: Arc::clone(&parent.domain),
            format: wanted.addr_format,
        };
        Ok(room.fill(head, body))
    };
    // SAFETY: the caller's guarantee.
    unsafe { object::open(sep, make) }
}

/// `fi_scalable_ep_bind`: an address vector.
unsafe extern "C" fn bind<D: Domain>(
    fid: *mut abi::fid,
    other: *mut abi::fid,
    flags: u64,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<SepBody<D>>(fid.cast()) };
    if flags != 0 {
        return fail(Errno::EBADFLAGS);
    }
    // SAFETY: `other` is null or an open object, as `fi_scalable_ep_bind` asks.
    let av = unsafe { object::cast::<AvBody<D>>(other, abi::FI_CLASS_AV) };
    code(av.and_then(|av| {
        same_domain(&this.domain, &av.domain)?;
        this.sep.bind_av(&av.av)
    }))
}

unsafe extern "C" fn control<D: Domain>(
    fid: *mut abi::fid,
    command: c_int,
    _arg: *mut c_void,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<SepBody<D>>(fid.cast()) };
    match command {
        abi::FI_ENABLE => code(this.sep.enable()),
        _ => fail(Errno::ENOSYS),
    }
}

unsafe extern "C" fn tx_context<D: Domain>(
    sep: *mut abi::fid_ep,
    index: c_int,
    attr: *mut abi::fi_tx_attr,
    ep: *mut *mut abi::fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<SepBody<D>>(sep) };
    // SAFETY: see the module.
    let attr = unsafe { attr.as_mut() };
    let make = || {
        let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
        let wanted = attr.as_deref().map(read::tx_attr);
        let (made, got) = this.sep.tx_context(index, wanted.as_ref())?;
        if let Some(attr) = attr {
            write_tx(attr, &got);
        }
        let class = abi::FI_CLASS_TX_CTX;
        Ok(endpoint::context_of(
            made,
            &this.domain,
            this.format,
            class,
            context,
        ))
    };
    // SAFETY: see the module.
    unsafe { object::open(ep, make) }
}

unsafe extern "C" fn rx_context<D: Domain>(
    sep: *mut abi::fid_ep,
    index: c_int,
    attr: *mut abi::fi_rx_attr,
    ep: *mut *mut abi::fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<SepBody<D>>(sep) };
    // SAFETY: see the module.
    let attr = unsafe { attr.as_mut() };
    let make = || {
        let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
        let wanted = attr.as_deref().map(read::rx_attr);
        let (made, got) = this.sep.rx_context(index, wanted.as_ref())?;
        if let Some(attr) = attr {
            write_rx(attr, &got);
        }
        let class = abi::FI_CLASS_RX_CTX;
        Ok(endpoint::context_of(
            made,
            &this.domain,
            this.format,
            class,
            context,
        ))
    };
    // SAFETY: see the module.
    unsafe { object::open(ep, make) }
}

/// Tells the caller what it got.
fn write_tx(attr: &mut abi::fi_tx_attr, got: &TxAttr) {
    attr.caps = got.caps.bits();
    attr.mode = got.mode.bits();
    attr.op_flags = got.op_flags.bits();
    attr.msg_order = got.msg_order.bits();
    attr.inject_size = got.inject_size;
    attr.size = got.size;
    attr.iov_limit = got.iov_limit;
    attr.rma_iov_limit = got.rma_iov_limit;
    attr.tclass = got.tclass;
}

/// Tells the caller what it got.
fn write_rx(attr: &mut abi::fi_rx_attr, got: &RxAttr) {
    attr.caps = got.caps.bits();
    attr.mode = got.mode.bits();
    attr.op_flags = got.op_flags.bits();
    attr.msg_order = got.msg_order.bits();
    attr.size = got.size;
    attr.iov_limit = got.iov_limit;
}

unsafe extern "C" fn setname<D: Domain>(fid: abi::fid_t, addr: *mut c_void, len: usize) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<SepBody<D>>(fid.cast()) };
    // SAFETY: see the module.
    let address = unsafe { address::read_sized(this.format, addr, len) };
    code(address.and_then(|address| this.sep.set_name(&address)))
}

unsafe extern "C" fn getname<D: Domain>(
    fid: abi::fid_t,
    addr: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<SepBody<D>>(fid.cast()) };
    // SAFETY: see the module.
    unsafe { address::give(this.sep.name(), addr, len) }
}
