//! Any `libfabric.so.1`, opened at run time and used through the C interface.
//!
//! A [`Library`] is a provider of the object model here ([`ForeignProvider`]), as Ripstop's own are:
//! the conformance suite, benchmarks and `ripstop perf --lib` drive all by the traits of
//! `ripstop_core::provider`, so that two libraries are tested and measured by the same code. What the
//! object model has no words for is among the calls of the objects themselves, and of any [`Object`].
//!
//! # Ownership
//!
//! Each object closes on drop, children before parents, whatever the order the owner drops
//! them in. Memory stays with the caller, whose promise it is with each
//! [`UserBuf`](ripstop_mem::UserBuf) that it lives until the operation has ended.
//!
//! # Threads
//!
//! Domains and the objects below them carry a threading mode as a type parameter. [`Shared`] ones may
//! be used from any thread and need a domain opened with `FI_THREAD_SAFE`; [`Single`] ones stay on
//! the thread that opened the domain, take any threading level and no lock. Fabrics, event queues,
//! passive endpoints and wait sets are for any thread.
//!
//! # Trust
//!
//! Opening a library runs its code in this process, as the dynamic linker does for any
//! program; the safety of this API rests on that library keeping the man pages' rules, and on its
//! refusing arguments that are none: an address that a vector does not have, a call on an endpoint
//! that is not enabled. It does not rest on a library's bookkeeping: a context, count or length that
//! comes back is checked.
#![deny(unsafe_code)]

mod addr;
mod atomic;
mod attrs;
mod av;
mod call;
mod cntr;
mod deferred;
mod domain;
mod eq;
mod error;
mod fabric;
mod info;
mod known;
mod library;
mod msg;
mod null;
mod object;
mod ops;
mod owned;
mod payload;
mod probe;
pub mod provider;
mod rma;
mod tagged;
mod threading;

use addr::Addr;
pub use atomic::Atomic;
pub use av::Av;
pub use cntr::Counter;
pub use domain::Domain;
pub use eq::Eq;
pub use eq::pep::PassiveEp;
pub use error::{Error, OpenError, Result};
pub use fabric::{Fabric, WaitSet};
use info::Info;
pub use library::Library;
pub use null::{Said, UNTOUCHED};
pub use object::Object;
pub use object::collective::{AvSet, Collecting, Group};
pub use object::contexts::{ScalableEp, SharedRx, SharedTx};
pub use object::cq::Cq;
pub use object::endpoint::Endpoint;
pub use object::polls::PollSet;
pub use object::registration::{Form, Mr};
pub use provider::ForeignProvider;
pub use threading::{Shared, Single, Threading};

/// No datatype, and no operation on it, for [`Domain::query_collective`].
pub use ripstop_abi::{FI_NOOP, FI_VOID};
