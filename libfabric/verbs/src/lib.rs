//! The whole of `libripstop-verbs.so` as one static library.
//!
//! Nothing is defined here: the functions are those of `ripstop-verbs-shim`, which have the names of rdma-core's.
//! `cargo xtask dist` links them at the version nodes of `exports.map`. Like `libfabric.so.1` it is built in a workspace of
//! its own, because a C caller's stack must never unwind: here a panic aborts.
#![forbid(unsafe_code)]

use ripstop_verbs_shim as _;
