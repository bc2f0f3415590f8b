//! Lines of the log.

use core::fmt::Arguments;

pub(crate) use ripstop_core::log::Subsys;
use ripstop_core::{fi_info, fi_warn};
use ripstop_types::Errno;

/// The name under which the log has this library.
pub(crate) const NAME: &str = "ripstop-verbs";

/// Says why a call is refused; gives the error back.
#[cold]
pub(crate) fn refuse(about: Subsys, error: Errno, why: Arguments<'_>) -> Errno {
    fi_warn!(NAME, about, "{}: {why}", error.name());
    error
}

/// Says what the user should look at.
#[cold]
pub(crate) fn warn(about: Subsys, what: Arguments<'_>) {
    fi_warn!(NAME, about, "{what}");
}

/// Says what happens.
pub(crate) fn info(about: Subsys, what: Arguments<'_>) {
    fi_info!(NAME, about, "{what}");
}
