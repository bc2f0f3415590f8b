#![allow(unsafe_code)]
//! Scalable endpoints, their contexts, and shared contexts, `fi_endpoint`(3).

use std::ptr;
use std::sync::Arc;

use ripstop_abi::{fi_info, fid_ep, fid_stx};
use ripstop_core::provider::Token;
use ripstop_core::{FidToken, Info, RxAttr, TxAttr};
use ripstop_types::Errno;

use super::Object;
use crate::attrs::{c_rx, c_tx};
use crate::call::calls;
use crate::fabric::opened;
use crate::owned::Owned;
use crate::threading::Threading;
use crate::{Domain, Endpoint, Error, Result};

/// A shared transmit context, for endpoints to bind.
pub struct SharedTx<M: Threading> {
    pub(crate) owned: Owned<fid_stx, M, Arc<Domain<M>>>,
}

/// A shared receive context: an endpoint that only receives, for other endpoints to bind.
pub struct SharedRx<M: Threading>(Arc<Endpoint<M>>);

impl<M: Threading> SharedRx<M> {
    pub(crate) fn context(&self) -> &Arc<Endpoint<M>> {
        &self.0
    }

    /// Enables it, where a library wants that (`fi_enable`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn enable(&self) -> Result<()> {
        match self.0.start() {
            // Some providers have no such call for a shared context, which needs none.
            Err(error) if error.errno == Errno::ENOSYS => Ok(()),
            enabled => enabled,
        }
    }
}

/// A scalable endpoint: only its contexts send and receive.
pub struct ScalableEp<M: Threading> {
    sep: Arc<Endpoint<M>>,
    info: Info,
}

impl<M: Threading> ScalableEp<M> {
    pub(crate) fn endpoint(&self) -> &Arc<Endpoint<M>> {
        &self.sep
    }

    pub(crate) fn tx_attr(&self) -> &TxAttr {
        &self.info.tx
    }

    pub(crate) fn rx_attr(&self) -> &RxAttr {
        &self.info.rx
    }

    /// Opens a context (`fi_tx_context`, or `fi_rx_context`).
    pub(crate) fn open_context(&self, index: usize, attr: &ContextAttr<'_>) -> Result<Endpoint<M>> {
        let call = match attr {
            ContextAttr::Tx(_) => "fi_tx_context",
            ContextAttr::Rx(_) => "fi_rx_context",
        };
        let index = i32::try_from(index).map_err(|_| Error::new(call, Errno::EINVAL))?;
        let mut ep: *mut fid_ep = ptr::null_mut();
        let (sep, table, none) = (self.sep.raw(), self.sep.ops(), ptr::null_mut());
        let out = &raw mut ep;
        let ret = match attr {
            ContextAttr::Tx(attr) => {
                let mut attr = attr.map(c_tx);
                let attr = attr.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
                calls!(table, fi_ops_ep.tx_ctx(sep, index, attr, out, none))
            }
            ContextAttr::Rx(attr) => {
                let mut attr = attr.map(c_rx);
                let attr = attr.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
                calls!(table, fi_ops_ep.rx_ctx(sep, index, attr, out, none))
            }
        };
        let ep = opened(call, ret, ep)?;
        let context = Endpoint::new(ep, self.sep.domain().clone(), &self.info, FidToken::NONE);
        context.keep(Object::Endpoint(self.sep.clone()));
        Ok(context)
    }
}

/// What a context of a scalable endpoint is opened with; by default what the endpoint has.
pub(crate) enum ContextAttr<'a> {
    Tx(Option<&'a TxAttr>),
    Rx(Option<&'a RxAttr>),
}

impl<M: Threading> Domain<M> {
    pub(crate) fn open_stx(self: &Arc<Self>, attr: &TxAttr) -> Result<SharedTx<M>> {
        let mut attr = c_tx(attr);
        let mut stx: *mut fid_stx = ptr::null_mut();
        let (table, domain) = (self.table(), self.owned.get());
        let (attr, out, none) = (&raw mut attr, &raw mut stx, ptr::null_mut());
        let ret = calls!(table, fi_ops_domain.stx_ctx(domain, attr, out, none));
        let owned = Owned::new(opened("fi_stx_context", ret, stx)?, self.clone());
        Ok(SharedTx { owned })
    }

    pub(crate) fn open_srx(self: &Arc<Self>, attr: &RxAttr) -> Result<SharedRx<M>> {
        let info = Info {
            rx: attr.clone(),
            ..Info::default()
        };
        let mut attr = c_rx(attr);
        let mut ep: *mut fid_ep = ptr::null_mut();
        let (table, domain) = (self.table(), self.owned.get());
        let (attr, out, none) = (&raw mut attr, &raw mut ep, ptr::null_mut());
        let ret = calls!(table, fi_ops_domain.srx_ctx(domain, attr, out, none));
        let ep = opened("fi_srx_context", ret, ep)?;
        let context = Endpoint::new(ep, self.clone(), &info, FidToken::NONE);
        Ok(SharedRx(Arc::new(context)))
    }

    pub(crate) fn open_sep(self: &Arc<Self>, info: &Info, token: Token) -> Result<ScalableEp<M>> {
        const CALL: &str = "fi_scalable_ep";
        let origin = self.fabric().origin(CALL, info)?;
        let mut copy = origin
            .info()
            .duplicate(CALL, self.fabric().owned.parent())?;
        let mut sep: *mut fid_ep = ptr::null_mut();
        let raw: *mut fi_info = copy.as_mut_ptr();
        let (table, domain) = (self.table(), self.owned.get());
        let (out, none) = (&raw mut sep, ptr::null_mut());
        let ret = calls!(table, fi_ops_domain.scalable_ep(domain, raw, out, none));
        let sep = opened(CALL, ret, sep)?;
        Ok(ScalableEp {
            sep: Arc::new(Endpoint::new(sep, self.clone(), info, token)),
            info: info.clone(),
        })
    }
}
