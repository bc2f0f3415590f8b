//! The whole of `libfabric.so.1` as one static library.
//!
//! Nothing is defined here: the functions are those of `ripstop-capi`, under private names. `cargo xtask dist`
//! gives them the names and version nodes of `exports.txt` and links them; `docs/design/symbol-versions.md`
//! tells how. It is a workspace of its own because a C caller's stack must never unwind: here a panic aborts.
#![forbid(unsafe_code)]

use ripstop_capi as _;
