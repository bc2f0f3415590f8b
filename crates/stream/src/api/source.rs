//! The addresses that endpoints listen at.

use ripstop_core::Info;
use ripstop_types::Result;

use crate::addr::Addr;
use crate::conn::rdm::bind_advice;
use crate::transport::Transport;

/// The source address of an `fi_info`.
pub(crate) fn source_of<T: Transport>(info: &Info) -> Result<Option<T::Addr>> {
    info.src_addr.as_ref().map(Addr::from_address).transpose()
}

/// The address an RDM endpoint of this `fi_info` listens on.
pub(crate) fn rdm_source<T: Transport>(params: &T::Params, info: &Info) -> Result<T::Addr> {
    let asked = source_of::<T>(info)?;
    Ok(T::rdm_source(params, info.domain.name.as_deref(), asked))
}

/// A listener at an address, as [`Transport::bind`], with a line in the log where there is none.
///
/// # Errors
/// As for [`Transport::bind`].
pub fn bind<T: Transport>(params: &T::Params, wanted: &T::Addr) -> Result<T::Listener> {
    T::bind(params, wanted).inspect_err(|error| {
        log_warn!(
            T::EpCtrl,
            "{wanted}: cannot be bound: {error}; {}",
            bind_advice(*error)
        );
    })
}
