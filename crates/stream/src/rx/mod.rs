//! Receive: from the bytes of a link to the buffer of a posted receive.

pub(crate) mod fast;
pub(crate) mod post;
pub(crate) mod read;
pub(crate) mod whole;
