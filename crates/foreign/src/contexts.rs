#![allow(unsafe_code)]
//! Scalable endpoints, their contexts, and shared transmit contexts, `fi_endpoint`(3).

use std::ptr;
use std::sync::Arc;

use ripstop_abi::{fi_info, fi_tx_attr, fid_ep, fid_stx};
use ripstop_types::Errno;

use crate::call::{ENOSYS, op};
use crate::domain::DomainCore;
use crate::fabric::opened;
use crate::info::Info;
use crate::owned::Owned;
use crate::probe::Kept;
use crate::threading::{Lock as _, Threading};
use crate::{Domain, Endpoint, EndpointBuilder, Error, Result};

pub(crate) type StxCore<M> = Owned<fid_stx, M, Arc<DomainCore<M>>>;

/// A shared transmit context, for endpoints to bind. Clones share it.
pub struct SharedTx<M: Threading> {
    pub(crate) core: Arc<StxCore<M>>,
}

impl<M: Threading> Clone for SharedTx<M> {
    fn clone(&self) -> Self {
        Self {
            core: self.core.clone(),
        }
    }
}

impl<M: Threading> Domain<M> {
    /// Opens a shared transmit context with the attributes of `info` (`fi_stx_context`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn shared_tx(&self, info: &Info) -> Result<SharedTx<M>> {
        let mut info = info.duplicate("fi_stx_context", self.core.fabric().parent())?;
        let mut stx: *mut fid_stx = ptr::null_mut();
        let raw: *mut fi_info = info.as_mut_ptr();
        // SAFETY: the copied info is live and ours alone.
        let attr: *mut fi_tx_attr = unsafe { (*raw).tx_attr };
        let ret = match op!(self.table(), fi_ops_domain.stx_ctx) {
            // SAFETY: domain and attributes are live, `stx` takes the result.
            Some(open) => unsafe { open(self.core.get(), attr, &raw mut stx, ptr::null_mut()) },
            None => ENOSYS,
        };
        let stx = opened("fi_stx_context", ret, stx)?;
        Ok(SharedTx {
            core: Arc::new(Owned::new(stx, self.core.clone())),
        })
    }

    /// Opens a scalable endpoint (`fi_scalable_ep`), to be bound and enabled; only its contexts
    /// send and receive.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn scalable_ep(&self, info: &Info) -> Result<EndpointBuilder<M>> {
        let mut info = info.duplicate("fi_scalable_ep", self.core.fabric().parent())?;
        let mut sep: *mut fid_ep = ptr::null_mut();
        let raw: *mut fi_info = info.as_mut_ptr();
        let ret = match op!(self.table(), fi_ops_domain.scalable_ep) {
            // SAFETY: domain and info are live, `sep` takes the result.
            Some(open) => unsafe { open(self.core.get(), raw, &raw mut sep, ptr::null_mut()) },
            None => ENOSYS,
        };
        let sep = opened("fi_scalable_ep", ret, sep)?;
        Ok(EndpointBuilder::new(sep, self.core.clone(), &info, false))
    }
}

impl<M: Threading> Endpoint<M> {
    /// Opens a context of a scalable endpoint (`fi_tx_context`, or `fi_rx_context`) with the
    /// endpoint's own attributes, to be bound and enabled.
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` for an index beyond `int`, and what the library says.
    pub fn context(&self, transmit: bool, index: usize, info: &Info) -> Result<EndpointBuilder<M>> {
        let call = match transmit {
            true => "fi_tx_context",
            false => "fi_rx_context",
        };
        let index = i32::try_from(index).map_err(|_| Error::new(call, Errno::EINVAL))?;
        let mut ep: *mut fid_ep = ptr::null_mut();
        let (sep, table, context) = (self.raw(), self.core.ops(), ptr::null_mut());
        let ret = if transmit {
            op!(table, fi_ops_ep.tx_ctx).map(|open| {
                // SAFETY: the endpoint is open, null means its own attributes, `ep` takes the
                // result.
                unsafe { open(sep, index, ptr::null_mut(), &raw mut ep, context) }
            })
        } else {
            op!(table, fi_ops_ep.rx_ctx).map(|open| {
                // SAFETY: as above.
                unsafe { open(sep, index, ptr::null_mut(), &raw mut ep, context) }
            })
        };
        let ep = opened(call, ret.unwrap_or(ENOSYS), ep)?;
        let builder = EndpointBuilder::new(ep, self.domain().clone(), info, false);
        let parent = Kept::Ep(self.core.clone());
        builder.core.late.with(|late| late.push(parent));
        Ok(builder)
    }
}
