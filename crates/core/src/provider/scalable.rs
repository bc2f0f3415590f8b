//! Scalable endpoints.

use std::sync::Arc;

use ripstop_types::Result;

use super::Domain;
use crate::{Address, RxAttr, TxAttr};

/// A transmit context as it is made, with the attributes it got.
pub type TxContext<D> = (Arc<<D as Domain>::Endpoint>, TxAttr);

/// A receive context as it is made, with the attributes it got.
pub type RxContext<D> = (Arc<<D as Domain>::Endpoint>, RxAttr);

/// An endpoint of one address with several transmit and receive contexts (man page
/// `fi_endpoint(3)`, `fi_scalable_ep`).
///
/// A context is an endpoint that only sends or only receives; callers do not ask it for the
/// other. It holds its scalable endpoint,
/// whose address vector it uses.
pub trait ScalableEp: Sized + 'static {
    /// The domain it belongs to.
    type Domain: Domain<ScalableEp = Self>;

    /// Binds the address vector of all contexts (`fi_scalable_ep_bind`).
    ///
    /// # Errors
    /// [`EDOMAIN`](ripstop_types::Errno::EDOMAIN) for one of another domain,
    /// [`EINVAL`](ripstop_types::Errno::EINVAL) for a second one or a context in use.
    fn bind_av(&self, av: &Arc<<Self::Domain as Domain>::Av>) -> Result<()>;

    /// Takes the endpoint into use; its contexts are enabled one by one.
    ///
    /// # Errors
    /// [`ENOAV`](ripstop_types::Errno::ENOAV) without an address vector.
    fn enable(&self) -> Result<()>;

    /// The address of the endpoint, which peers insert once for all contexts.
    ///
    /// # Errors
    /// [`EOPBADSTATE`](ripstop_types::Errno::EOPBADSTATE) before there is one.
    fn name(&self) -> Result<Address>;

    /// Sets the address, before any context is enabled.
    ///
    /// # Errors
    /// [`EINVAL`](ripstop_types::Errno::EINVAL),
    /// [`EOPBADSTATE`](ripstop_types::Errno::EOPBADSTATE); of `bind`.
    fn set_name(&self, address: &Address) -> Result<()>;

    /// Opens a transmit context (`fi_tx_context`). Zeroes in `attr`, and `None`, mean the
    /// endpoint's own values.
    ///
    /// # Errors
    /// [`EINVAL`](ripstop_types::Errno::EINVAL) for an index or attribute beyond those of the
    /// endpoint; [`EBUSY`](ripstop_types::Errno::EBUSY) for a context that is open.
    fn tx_context(
        self: &Arc<Self>,
        index: usize,
        attr: Option<&TxAttr>,
    ) -> Result<TxContext<Self::Domain>>;

    /// Opens a receive context (`fi_rx_context`), as [`ScalableEp::tx_context`] does.
    ///
    /// # Errors
    /// As there.
    fn rx_context(
        self: &Arc<Self>,
        index: usize,
        attr: Option<&RxAttr>,
    ) -> Result<RxContext<Self::Domain>>;
}
