//! A way over for programs written for verbs: `libripstop-verbs.so`.
//!
//! Loaded in front of `libibverbs.so.1` and `librdmacm.so.1` (`LD_PRELOAD`), it gives a program the device
//! `ripstop0`, whose reliable connected queue pairs run over Ripstop's providers tcp or shm. The C functions
//! are in `edge`; what they do is safe code: the device with its objects in `engine`, the connection manager in
//! `cm`. `docs/design/verbs-shim.md` says how verbs map to what the providers have.
#![deny(unsafe_code)]

mod cm;
mod device;
mod edge;
mod engine;
mod lent;
mod log;
mod net;

use ripstop_ibverbs::sys;
