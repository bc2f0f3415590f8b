//! Shared transmit contexts (`fi_stx_context`, `fi_endpoint(3)`): endpoints bind them, and
//! operations are posted to the endpoints.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::TxAttr;
use ripstop_core::provider::Domain;

use crate::edge::{In, Out, trampolines};
use crate::info::Attributes;
use crate::object::domain::DomainBody;
use crate::object::{self, Body, Room, This, shared};
use crate::tables::none;

/// What the object of a shared transmit context holds.
pub(crate) struct StxBody<D: Domain> {
    pub(crate) stx: Arc<D::SharedTx>,
    pub(crate) domain: Arc<D>,
}

shared! { [D: Domain] StxBody<D>: fid_stx, stx }

trampolines! { [D: Domain]
    /// `fi_stx_context`.
    pub(crate) extern "C" fn open(
        parent: This<DomainBody<D>>, attr: In<*mut abi::fi_tx_attr>, stx: Out<*mut abi::fid_stx>,
        context: *mut c_void,
    ) -> c_int {
        stx.open(|| {
            let head = abi::fid_stx {
                fid: object::fid(abi::FI_CLASS_STX_CTX, context, StxBody::<D>::CLOSING),
                // A context has no options, and nothing to cancel.
                ops: none(),
            };
            let body = StxBody {
                stx: parent.domain.shared_tx(&TxAttr::read(&attr.or_default())?)?,
                domain: Arc::clone(&parent.domain),
            };
            Ok(Room::<StxBody<D>>::new().fill(head, body))
        })
    }
}
