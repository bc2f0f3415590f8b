//! What a domain's object holds.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use ripstop_abi as abi;
use ripstop_core::EventQueue;
use ripstop_core::provider::{self, Domain};
use ripstop_types::{AddrFormat, AvType, Errno, Flags, Result, Version};

use super::Body;
use crate::{errno, opened};

/// What a domain's object holds.
pub(crate) struct DomainBody<D: Domain> {
    pub(crate) domain: Arc<D>,
    /// The version the program was written for.
    pub(crate) api: Version,
    /// Format of the addresses of its endpoints.
    pub(crate) format: AddrFormat,
    /// Type of its address vectors.
    pub(crate) av_type: AvType,
    /// Where registrations report that they are done (`FI_REG_MR`).
    pub(crate) registrations: OnceLock<Arc<EventQueue>>,
    /// The fabric stays while the domain does.
    pub(crate) _fabric: Arc<dyn Any + Send + Sync>,
}

impl<D: Domain> Body for DomainBody<D> {
    type Head = abi::fid_domain;

    fn in_use(&self) -> bool {
        Arc::strong_count(&self.domain) > 1
    }

    fn closing(&self, fid: *mut abi::fid) {
        opened::domain_closed(fid);
    }
}

/// Checks that `what`, which a call brings to an object of the domain `ours`, is of that domain too.
///
/// # Errors
/// [`Errno::EDOMAIN`], with a line in the log.
pub(crate) fn same_domain<D: Domain>(what: &str, ours: &Arc<D>, theirs: &Arc<D>) -> Result<()> {
    provider::same_domain("core", what, ours, theirs)
}

/// What a domain can be opened with.
///
/// # Errors
/// [`Errno::EINVAL`] for `FI_PEER`, as `fi_peer(3)` asks of who has no peer domains;
/// [`Errno::ENOSYS`] for other flags.
pub(crate) fn check_flags(flags: u64) -> Result<()> {
    match Flags::from_bits_retain(flags) {
        none if none.is_empty() => Ok(()),
        Flags::PEER => {
            let why = "there are no domains and endpoints of other providers; leave FI_PEER out";
            Err(errno::refused(
                "fi_domain2 or fi_endpoint2",
                why,
                Errno::EINVAL,
            ))
        }
        _ => Err(Errno::ENOSYS),
    }
}
