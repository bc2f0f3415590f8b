//! The devices of this process, each with the protection domain of all that is registered with it.

use std::sync::{Arc, OnceLock};

use ripstop_ibverbs::{CmId, Context, Pd, devices};
use ripstop_types::{Errno, Result};

use crate::rxm::registered::Registered;

/// An open device.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) context: Arc<Context>,
    pub(crate) pd: Arc<Pd>,
    pub(crate) registered: Arc<Registered>,
}

/// All that connections are made on, opened by the first call.
///
/// # Errors
/// [`Errno::ENODEV`] where there is none; as for [`devices`].
pub(crate) fn opened() -> Result<&'static [Opened]> {
    static OPENED: OnceLock<Vec<Opened>> = OnceLock::new();
    if let Some(opened) = OPENED.get() {
        return Ok(opened);
    }
    let mut all = Vec::new();
    for context in devices()? {
        let pd = Pd::new(&context)?;
        let registered = Arc::default();
        all.push(Opened {
            context,
            pd,
            registered,
        });
    }
    if all.is_empty() {
        return Err(Errno::ENODEV);
    }
    Ok(OPENED.get_or_init(|| all))
}

/// Those that were opened.
pub(crate) fn known() -> &'static [Opened] {
    opened().unwrap_or_default()
}

/// The one that an id is bound to.
///
/// # Errors
/// As for [`opened`]; [`Errno::ENODEV`] for an id that has none.
pub(crate) fn device_of(id: &CmId) -> Result<&'static Opened> {
    let mut all = opened()?.iter();
    all.find(|one| id.device(std::slice::from_ref(&one.context)).is_some())
        .ok_or(Errno::ENODEV)
}

/// The one with this name.
///
/// # Errors
/// As for [`device_of`].
pub(crate) fn named(name: &str) -> Result<&'static Opened> {
    let mut all = opened()?.iter();
    all.find(|one| one.context.name() == name)
        .ok_or(Errno::ENODEV)
}
