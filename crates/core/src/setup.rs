//! What happens once, before anything else.

use std::sync::Once;

use crate::log;
use crate::param::{ParamType, table};

/// Reads the parameters of the core: of logging first, so that what follows is logged.
/// Further calls do nothing. [`params`](crate::param::params) and
/// [`registry`](crate::registry::registry) call it.
pub fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let params = table();
        log::configure(params);
        params.define(
            None,
            "universe_size",
            ParamType::Size,
            "Defines the maximum number of processes that will be used by distributed \
             applications; address vectors without a size of their own have room for as many \
             (default: provider specific)",
        );
        params.define(
            None,
            "av_remove_cleanup",
            ParamType::Bool,
            "Close the connections of a peer when it is removed from the address vector, even if \
             transfers from it are in progress; what is under way ends in error (default: false)",
        );
    });
}
