//! Log lines of a provider, by its transport: `log_warn!(T, EpCtrl, "...")`.

macro_rules! log_warn {
    ($transport:ty, $subsys:ident, $($arg:tt)+) => {
        ripstop_core::fi_warn!(
            <$transport as $crate::transport::Transport>::NAME,
            ripstop_core::log::Subsys::$subsys,
            $($arg)+
        )
    };
}

/// Logs why a call is refused and what to do, and is the error.
macro_rules! refused {
    ($transport:ty, $subsys:ident, $errno:ident, $($arg:tt)+) => {{
        log_warn!($transport, $subsys, $($arg)+);
        ripstop_types::Errno::$errno
    }};
}

/// The line about a descriptor that the system refuses: `.inspect_err(lacks!(T, Domain, "..."))`.
macro_rules! lacks {
    ($transport:ty, $subsys:ident, $what:expr) => {
        |error| {
            ripstop_core::log::no_descriptor(
                <$transport as $crate::transport::Transport>::NAME,
                ripstop_core::log::Subsys::$subsys,
                $what,
                *error,
            )
        }
    };
}

macro_rules! log_info {
    ($transport:ty, $subsys:ident, $($arg:tt)+) => {
        ripstop_core::fi_info!(
            <$transport as $crate::transport::Transport>::NAME,
            ripstop_core::log::Subsys::$subsys,
            $($arg)+
        )
    };
}

macro_rules! log_warn_sparse {
    ($transport:ty, $subsys:ident, $($arg:tt)+) => {
        ripstop_core::fi_warn_sparse!(
            <$transport as $crate::transport::Transport>::NAME,
            ripstop_core::log::Subsys::$subsys,
            $($arg)+
        )
    };
}
