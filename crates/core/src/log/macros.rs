//! The macros that write log lines.

/// The name of the enclosing function, for log lines.
#[doc(hidden)]
#[macro_export]
macro_rules! __function {
    () => {{
        fn here() {}
        $crate::log::function_name(core::any::type_name_of_val(&here))
    }};
}

/// Logs a line of a level if it is wanted: `fi_log!(prov, level, subsys, "...", ...)`.
#[macro_export]
macro_rules! fi_log {
    ($prov:expr, $level:expr, $subsys:expr, $($arg:tt)+) => {{
        let meta = $crate::log::Meta { prov: $prov, level: $level, subsys: $subsys };
        if $crate::log::enabled(meta.prov, meta.level, meta.subsys) {
            $crate::log::write(&$crate::log::Record {
                meta,
                func: $crate::__function!(),
                line: line!(),
                message: format_args!($($arg)+),
            });
        }
    }};
}

/// Logs an error or something the user should look at: `fi_warn!(prov, subsys, "...", ...)`.
#[macro_export]
macro_rules! fi_warn {
    ($prov:expr, $subsys:expr, $($arg:tt)+) => {
        $crate::fi_log!($prov, $crate::log::Level::Warn, $subsys, $($arg)+)
    };
}

/// Logs a detail: `fi_info!(prov, subsys, "...", ...)`.
#[macro_export]
macro_rules! fi_info {
    ($prov:expr, $subsys:expr, $($arg:tt)+) => {
        $crate::fi_log!($prov, $crate::log::Level::Info, $subsys, $($arg)+)
    };
}

/// Logs a warning at most once per `FI_LOG_INTERVAL` from one place:
/// `fi_warn_sparse!(prov, subsys, "...", ...)`.
#[macro_export]
macro_rules! fi_warn_sparse {
    ($prov:expr, $subsys:expr, $($arg:tt)+) => {{
        static NEXT: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);
        if $crate::log::ready($prov, $crate::log::Level::Warn, $subsys, &NEXT) {
            $crate::fi_warn!($prov, $subsys, $($arg)+);
        }
    }};
}

/// The function's own name in the path of a function inside it.
#[doc(hidden)]
#[must_use]
pub fn function_name(here: &'static str) -> &'static str {
    let mut segments = here.rsplit("::").skip(1).filter(|s| *s != "{{closure}}");
    segments.next().unwrap_or(here)
}
