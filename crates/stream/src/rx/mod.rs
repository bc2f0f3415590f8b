//! Receive: from the bytes of a link to the buffer of a posted receive.

pub(crate) mod fast;
