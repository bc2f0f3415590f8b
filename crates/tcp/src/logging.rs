//! Log lines of this provider: `log_warn!(EpCtrl, "...")`.

macro_rules! log_warn {
    ($subsys:ident, $($arg:tt)+) => {
        ripstop_core::fi_warn!(
            $crate::params::NAME,
            ripstop_core::log::Subsys::$subsys,
            $($arg)+
        )
    };
}

macro_rules! log_info {
    ($subsys:ident, $($arg:tt)+) => {
        ripstop_core::fi_info!(
            $crate::params::NAME,
            ripstop_core::log::Subsys::$subsys,
            $($arg)+
        )
    };
}

macro_rules! log_warn_sparse {
    ($subsys:ident, $($arg:tt)+) => {
        ripstop_core::fi_warn_sparse!(
            $crate::params::NAME,
            ripstop_core::log::Subsys::$subsys,
            $($arg)+
        )
    };
}
