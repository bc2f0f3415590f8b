//! What the caller touches: the objects of a domain, as the traits of `ripstop_core::provider`.

pub(crate) mod av;
pub(crate) mod core_ep;
pub(crate) mod counter;
pub(crate) mod cq;
pub(crate) mod domain;
pub(crate) mod endpoint;
pub(crate) mod endpoint_ops;
pub(crate) mod fabric;
pub(crate) mod group;
pub(crate) mod mr;
pub(crate) mod open;
pub(crate) mod owned;
pub(crate) mod passive;
pub(crate) mod scalable;
pub(crate) mod scalable_ops;
pub(crate) mod source;
pub(crate) mod srx;
pub(crate) mod stx;
pub(crate) mod wait;
