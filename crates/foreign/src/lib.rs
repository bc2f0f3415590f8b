//! Any `libfabric.so.1`, opened at run time and used through the C interface.
//!
//! Benchmarks, the conformance suite and `ripstop perf --lib` drive other libraries with this
//! crate, so that two libraries are measured and tested by the same code. What is measured goes
//! through [`provider`]: a library is a provider of the object model there, as Ripstop's own are. The
//! suite asks for more than that has, and uses the objects below. They are no binding for
//! applications: they cover messages, tagged messages, RMA, atomics, collectives, connections, queues,
//! counters, scalable endpoints, shared contexts, poll sets and wait sets.
//!
//! # Ownership
//!
//! Each object closes on drop, children before parents, whatever the order the owner drops
//! them in. A posted operation takes its [`Buf`] and its completion hands the buffer back; a
//! refused call hands it back at once ([`Rejected`]). A buffer whose completion is never read
//! stays parked until the domain closes, so the C side never meets freed memory.
//! A [`Region`] belongs to the domain instead: operations use [`Slice`]s of it without any
//! allocation, many at a time, and its bytes are only reached by copies. A
//! [`UserBuf`](ripstop_mem::UserBuf) stays with the caller, whose promise it is that it lives.
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
//! program; the safety of this API rests on that library keeping the man pages' rules. It does
//! not rest on a library's bookkeeping: a context, count or length that comes back is checked.
//! A library opened with [`Library::open_unguarded`] is trusted further, to check its arguments.
#![deny(unsafe_code)]

mod addr;
mod atomic;
mod attrs;
mod av;
mod buf;
mod call;
mod cntr;
mod collective;
mod contexts;
mod cq;
mod deferred;
mod domain;
mod endpoint;
mod eq;
mod error;
mod fabric;
mod guard;
mod info;
mod library;
mod msg;
mod null;
mod ops;
mod owned;
mod payload;
mod pep;
mod probe;
pub mod provider;
mod region;
mod registration;
mod rma;
mod sets;
mod tagged;
mod threading;

pub use addr::Addr;
pub use atomic::Atomic;
pub use av::Av;
pub use buf::{Buf, OVERWRITTEN};
pub use cntr::Cntr;
pub use collective::{AvSet, AvSetAttr, CollLimits, Collecting, Group};
pub use contexts::SharedTx;
pub use cq::{Completion, Cq, CqAttr, CqError, Failure};
pub use deferred::{Deferred, Transfer, WorkId};
pub use domain::{Domain, DomainOptions};
pub use endpoint::{Endpoint, EndpointBuilder};
pub use eq::{ConnReq, Eq, EqError, Event, FidId};
pub use error::{Error, OpenError, Rejected, Result};
pub use fabric::{Fabric, Waitable};
pub use info::Info;
pub use library::Library;
pub use null::{Said, UNTOUCHED};
pub use ops::{Claim, OpId, Returned};
pub use payload::{Contiguous, Payload};
pub use pep::Pep;
pub use probe::{Bound, Close};
pub use provider::ForeignProvider;
pub use region::{Mr, Region, Slice};
pub use registration::{Form, Registration};
pub use rma::Direction;
pub use sets::{PollSet, WaitSet};
pub use threading::{Shared, Single, Threading};

/// No datatype, and no operation on it, for [`Domain::query_collective`].
pub use ripstop_abi::{FI_NOOP, FI_VOID};
