//! Log lines of a provider, by its transport and the subsystem: `log_warn!(T::EpCtrl, "...")`.

/// What a domain or a passive endpoint watches its descriptors by, as `lacks!` says it.
pub(crate) const EPOLL: &str = "descriptor to watch others by (epoll_create1)";

/// What wakes threads that sleep.
pub(crate) const EVENT_FD: &str = "descriptor that wakes threads (eventfd2)";

/// What connections are turned away with where there is no descriptor for them.
pub(crate) const SPARE: &str = "spare descriptor";

macro_rules! log_warn {
    ($transport:ident :: $subsys:ident, $($arg:tt)+) => {
        log_by!(fi_warn, $transport::$subsys, $($arg)+)
    };
}

macro_rules! log_info {
    ($transport:ident :: $subsys:ident, $($arg:tt)+) => {
        log_by!(fi_info, $transport::$subsys, $($arg)+)
    };
}

macro_rules! log_debug {
    ($transport:ident :: $subsys:ident, $($arg:tt)+) => {
        ripstop_core::fi_log!(
            <$transport as $crate::transport::Transport>::NAME,
            ripstop_core::log::Level::Debug,
            ripstop_core::log::Subsys::$subsys,
            $($arg)+
        )
    };
}

macro_rules! log_warn_sparse {
    ($transport:ident :: $subsys:ident, $($arg:tt)+) => {
        log_by!(fi_warn_sparse, $transport::$subsys, $($arg)+)
    };
}

/// A line by one of the macros of `ripstop_core`.
macro_rules! log_by {
    ($macro:ident, $transport:ident :: $subsys:ident, $($arg:tt)+) => {
        ripstop_core::$macro!(
            <$transport as $crate::transport::Transport>::NAME,
            ripstop_core::log::Subsys::$subsys,
            $($arg)+
        )
    };
}

/// Logs why a call is refused and what to do, and is the error.
macro_rules! refused {
    ($transport:ident :: $subsys:ident, $errno:ident, $($arg:tt)+) => {{
        log_warn!($transport::$subsys, $($arg)+);
        ripstop_types::Errno::$errno
    }};
}

/// The line about a descriptor that the system refuses: `.inspect_err(lacks!(T::Domain, "..."))`.
macro_rules! lacks {
    ($transport:ident :: $subsys:ident, $what:expr) => {
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
