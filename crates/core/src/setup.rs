//! What happens once, before anything else.

use std::sync::Once;

use crate::log;
use crate::param::{ParamType, Params, table};

/// Reads the parameters of the core: of logging first, so that what follows is logged.
/// Further calls do nothing. [`params`] and
/// [`registry`](crate::registry::registry) call it.
pub fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let params = table();
        configure_log(params);
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

/// The parameters of this process. The first call reads those of the core, and so sets up
/// logging.
#[must_use]
pub fn params() -> &'static Params {
    init();
    table()
}

/// Reads the parameters of logging and applies them.
fn configure_log(params: &Params) {
    let text = |name, help| params.declare_optional::<String>(None, name, help);
    let interval = params.declare(
        None,
        "log_interval",
        2000_i32,
        "Delay in ms between rate limited log messages (default: 2000)",
    );
    let level = text(
        "log_level",
        "Specify logging level: warn, trace, info, debug (default: warn)",
    );
    let prov = text(
        "log_prov",
        "Specify specific provider to log (default: all)",
    );
    let subsys = text(
        "log_subsys",
        "Specify specific subsystem to log (default: all)",
    );
    let location = text(
        "log_location",
        "Specify log output: stderr, stdout, filepath, or dirpath (default: stderr)",
    );
    let mode = params.declare(
        None,
        "log_location_mode",
        0o600_i32,
        "Specify file mode for log output (default: 0600)",
    );
    log::set_interval(u64::try_from(interval).unwrap_or(0));
    log::select(level.as_deref(), prov.as_deref(), subsys.as_deref());
    if let Some(location) = location {
        log::set_location(&location, u32::try_from(mode).unwrap_or(0o600));
    }
}
