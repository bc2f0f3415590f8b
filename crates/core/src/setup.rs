//! What happens once, before anything else.

use std::sync::Once;

use crate::fi_warn;
use crate::log::{self, Level, Subsys};
use crate::param::{ParamType, Params, Unused, log_ignored, table};

/// Why parameters of memory of devices have no effect.
const NO_DEVICES: &str = "no provider here uses memory of devices";

/// What C's core reads and this library has no use for.
const UNUSED: [Unused; 8] = [
    Unused::new(
        "perf_cntr",
        ParamType::String,
        "the hook perf counts calls, bytes and times, not what the processor counts",
    ),
    Unused::new("hmem", ParamType::String, NO_DEVICES),
    Unused::new("hmem_disable_p2p", ParamType::Bool, NO_DEVICES),
    Unused::new("mr_cuda_cache_monitor_enabled", ParamType::Bool, NO_DEVICES),
    Unused::new("mr_rocr_cache_monitor_enabled", ParamType::Bool, NO_DEVICES),
    Unused::new("mr_ze_cache_monitor_enabled", ParamType::Bool, NO_DEVICES),
    Unused::new(
        "fork_unsafe",
        ParamType::Bool,
        "forking is as safe with either value, at no cost",
    ),
    Unused::new(
        "offload_coll_provider",
        ParamType::String,
        "each provider here has its own collective operations",
    ),
];

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
            "provider_path",
            ParamType::String,
            "Search for providers in shared objects in these folders, dir1:dir2:dir3, instead of the \
             folder libfabric beside libfabric.so.1: files whose names end with -fi.so. With @ in front, \
             what is found first counts of two providers with one name, and not the one with the higher \
             version. In place of a folder, + and the full path of a file names a provider that counts \
             before all others of its name (default: none)",
        );
        params.define(
            None,
            "hook",
            ParamType::String,
            "What is put between programs and providers, name1;name2, the first one lowest: debug, \
             monitor, noop, perf and trace, which are built in, or a provider from a shared object that \
             intercepts calls on the objects of others; debug stands for its ofi_hook_debug (default: none)",
        );
        params.define(
            None,
            "perf_file",
            ParamType::String,
            "With FI_HOOK=perf: append the tables to this file (default: stderr)",
        );
        params.define(
            None,
            "perf_json",
            ParamType::Bool,
            "With FI_HOOK=perf: write a line of JSON in place of each table (default: false)",
        );
        params.define(
            None,
            "perf_signal",
            ParamType::String,
            "With FI_HOOK=perf: write the tables of all that is open when this signal comes, too, \
             USR2 or a number; one that the program does not handle itself (default: none)",
        );
        define_monitor(params);
        params.define(
            None,
            "trace_file",
            ParamType::String,
            "With FI_HOOK=trace: append to this file, with the number of the process in place of %p \
             (default: ripstop-%p.pftrace in the current folder)",
        );
        params.define(
            None,
            "trace_records",
            ParamType::Size,
            "With FI_HOOK=trace: keep so many operations of each domain, the newest, of 64 bytes each \
             (default: 262144)",
        );
        params.define(
            None,
            "av_remove_cleanup",
            ParamType::Bool,
            "Close the connections of a peer when it is removed from the address vector, even if \
             transfers from it are in progress; what is under way ends in error (default: false)",
        );
        params.define_unused(None, &UNUSED);
        log_ignored();
    });
}

/// Those of the hook `monitor`, which have the names that C libfabric gives them.
fn define_monitor(params: &Params) {
    let define = |name, kind, help| params.define(None, name, kind, help);
    define(
        "ofi_hook_monitor_basepath",
        ParamType::String,
        "With FI_HOOK=monitor: the folder for the files that fi_mon_sampler reads, in USER/HOST below it \
         (default: /dev/shm/ofi)",
    );
    define(
        "ofi_hook_monitor_dir_mode",
        ParamType::Int,
        "With FI_HOOK=monitor: the permissions of the folders below it (default: 01700)",
    );
    define(
        "ofi_hook_monitor_file_mode",
        ParamType::Int,
        "With FI_HOOK=monitor: the permissions of the files (default: 0600)",
    );
    define(
        "ofi_hook_monitor_tick_max",
        ParamType::Int,
        "With FI_HOOK=monitor: look for a request of the sampler each time that so many calls were counted \
         (default: 1024)",
    );
    define(
        "ofi_hook_monitor_linger",
        ParamType::Bool,
        "With FI_HOOK=monitor: leave the files behind, with the last numbers, for a sampler to read and \
         remove (default: false)",
    );
}

/// The parameters of this process. The first call reads those of the core, and so sets up
/// logging.
#[must_use]
pub fn params() -> &'static Params {
    init();
    table()
}

/// Seconds that an operation may wait before the log tells of it.
pub const DEFAULT_STALL: usize = 30;

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
    params.declare(
        None,
        "log_stall",
        DEFAULT_STALL,
        "After how many seconds the log tells of an operation that waits, and for what; again after \
         twice the time, and so on. 0 tells of none (default: 30)",
    );
    params.declare(
        None,
        "status_page",
        true,
        "Show the state of domains to other processes of the user, as ripstop top and ripstop why read \
         it (default: yes)",
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
    if let Some(level) = level
        && !level.is_empty()
        && Level::named(&level).is_none()
    {
        fi_warn!(
            "core",
            Subsys::Core,
            "FI_LOG_LEVEL={level} is ignored: choose warn, trace, info or debug"
        );
    }
}
