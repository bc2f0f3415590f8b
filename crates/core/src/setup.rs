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
             applications; used to size resources (default: provider specific)",
        );
        params.define(
            None,
            "av_remove_cleanup",
            ParamType::Bool,
            "Release connections and other hidden resources of a peer when it is removed from \
             the address vector, even if transfers from it are in progress (default: false)",
        );
    });
}
