//! What an address vector's object holds.

use std::sync::Arc;

use ripstop_core::provider::Domain;
use ripstop_types::AddrFormat;

use crate::object::shared;
use crate::peer::Peers;

/// What an address vector's object holds.
pub(crate) struct AvBody<D: Domain> {
    pub(crate) av: Arc<D::Av>,
    pub(crate) domain: Arc<D>,
    /// Format of the addresses it takes.
    pub(super) format: AddrFormat,
    /// Insertions report to an event queue (`FI_EVENT`).
    pub(super) reports: bool,
    /// Receive contexts of other providers, who are told of insertions.
    pub(crate) peers: Peers,
}

shared! { [D: Domain] AvBody<D>: fid_av, av }
