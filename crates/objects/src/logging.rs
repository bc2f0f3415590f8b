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
