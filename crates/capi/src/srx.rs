//! Shared receive contexts (`fi_srx_context`, `fi_endpoint(3)`): a `fid_ep` that only receives.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::RxAttr;
use ripstop_core::provider::{Domain, EpOption, RecvKind, SharedRx};
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, FiAddr, Flags, Result};

use crate::counter;
use crate::cq::CqBody;
use crate::edge::{AnyFid, In, Out, trampolines};
use crate::errno::code;
use crate::info::Attributes;
use crate::object::domain::{DomainBody, same_domain};
use crate::object::{self, Body, Room, This, shared};
use crate::options::Options;
use crate::peer::{Context, SrxOwner};
use crate::receive::{Posted, Receiver};
use crate::tables::table;
use crate::trigger;

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
        self.owner.stays_in_use()
    }
}

shared! { [D: Domain] SrxBody<D>: fid_ep, srx }

impl<D: Domain> SrxBody<D> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        bind: Some(bind::<D>),
        ..*Self::CLOSING
    };
}

trampolines! { [D: Domain]
    /// `fi_srx_context`.
    pub(crate) extern "C" fn open(
        parent: This<DomainBody<D>>, attr: In<*mut abi::fi_rx_attr>, ep: Out<*mut abi::fid_ep>,
        context: Context,
    ) -> c_int {
        let attr = attr.or_default();
        ep.open(|| match SrxOwner::of(attr.op_flags, &parent.domain, context)? {
            Some(owner) => Ok(owned(owner, &parent.domain)),
            None => make(&parent.domain, &attr, context.as_ptr()),
        })
    }

    /// `fi_ep_bind` of a context: a completion queue or a counter, for receives.
    extern "C" fn bind(this: This<SrxBody<D>, abi::fid>, other: AnyFid, flags: Flags) -> c_int {
        code(match other.class() {
            Some(class @ abi::FI_CLASS_CQ) => other.cast::<CqBody<D>>(class).and_then(|cq| {
                same_domain("the completion queue", &this.domain, &cq.domain)?;
                this.srx.bind_cq(&cq.cq, flags)
            }),
            Some(abi::FI_CLASS_CNTR) => counter::of_domain::<D>(other, &this.domain)
                .and_then(|counter| this.srx.bind_counter(counter, flags)),
            _ => Err(Errno::EINVAL),
        })
    }
}

/// Makes a context whose receives another provider has.
fn owned<D: Domain>(owner: Arc<SrxOwner<D>>, domain: &Arc<D>) -> *mut abi::fid_ep {
    let closing = PeerBody::<D>::CLOSING;
    let head = object::bare_ep(abi::FI_CLASS_SRX_CTX, ptr::null_mut(), closing);
    let domain = Arc::clone(domain);
    Room::<PeerBody<D>>::new().fill(head, PeerBody { owner, domain })
}

/// Opens a context.
fn make<D: Domain>(
    domain: &Arc<D>,
    attr: &abi::fi_rx_attr,
    context: *mut c_void,
) -> Result<*mut abi::fid_ep> {
    let head = abi::fid_ep {
        ops: table(SrxBody::<D>::EP),
        msg: table(SrxBody::<D>::MSG_RX),
        tagged: table(SrxBody::<D>::TAGGED_RX),
        ..object::bare_ep(abi::FI_CLASS_SRX_CTX, context, SrxBody::<D>::FID)
    };
    let body = SrxBody {
        srx: domain.shared_rx(&RxAttr::read(attr)?)?,
        domain: Arc::clone(domain),
    };
    Ok(Room::<SrxBody<D>>::new().fill(head, body))
}

impl<D: Domain> Receiver for SrxBody<D> {
    #[inline(always)]
    fn post(&self, kind: RecvKind, iov: &[UserBuf], src: FiAddr, context: usize) -> Result<()> {
        self.srx.recv(kind, iov, src, context, None)
    }

    #[inline]
    fn post_with_flags(&self, posted: &Posted) -> Result<()> {
        if trigger::asked(Some(posted.flags)).is_none() {
            return posted.to(|kind, segs, src, context, flags| {
                self.srx.recv(kind, segs, src, context, flags)
            });
        }
        let when = trigger::condition(posted.context, &self.domain)?;
        self.srx.trigger(&posted.call(), when)
    }

    fn cancel(&self, context: usize) -> Result<()> {
        self.srx.cancel(context)
    }
}

impl<D: Domain> Options for SrxBody<D> {
    fn option(&self, option: EpOption) -> Result<usize> {
        self.srx.option(option)
    }

    fn set_option(&self, option: EpOption, value: usize) -> Result<()> {
        self.srx.set_option(option, value)
    }
}
