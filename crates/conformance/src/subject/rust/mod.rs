//! The Rust object model (`ripstop_core::provider`), on any provider.
//!
//! It adds what every front end adds: numbers for objects, `FI_EBUSY` for an object that
//! others hold, and buffers that stay put until their operation has ended.

mod atomic;
mod calls;
mod coll;
mod open;
mod table;
mod work;

use std::sync::Arc;

use ripstop_core::Info;
use ripstop_core::provider::{Domain, Fabric, Provider};
use ripstop_core::registry::{Priority, Registration, registry};
use ripstop_types::{Errno, Result as CoreResult};

use super::{Error, Result};
use table::Table;

/// Which of a fabric's two kinds of domain is opened.
pub trait Kind<F: Fabric> {
    /// The domains.
    type Domain: Domain;

    /// Opens a domain.
    ///
    /// # Errors
    ///
    /// Of the fabric.
    fn open(fabric: &Arc<F>, info: &Info) -> CoreResult<Arc<Self::Domain>>;

    /// Whether such a domain keeps what these attributes promise.
    fn fits(info: &Info) -> bool;
}

/// Domains that lock.
#[derive(Clone, Copy, Debug)]
pub struct Safe;

impl<F: Fabric> Kind<F> for Safe {
    type Domain = F::SafeDomain;

    fn open(fabric: &Arc<F>, info: &Info) -> CoreResult<Arc<F::SafeDomain>> {
        fabric.safe_domain(info)
    }

    fn fits(_info: &Info) -> bool {
        true
    }
}

/// Domains whose calls the case serialises.
#[derive(Clone, Copy, Debug)]
pub struct Serial;

impl<F: Fabric> Kind<F> for Serial {
    type Domain = F::SerialDomain;

    fn open(fabric: &Arc<F>, info: &Info) -> CoreResult<Arc<F::SerialDomain>> {
        fabric.serial_domain(info)
    }

    fn fits(info: &Info) -> bool {
        !F::needs_lock(info)
    }
}

/// A provider of the process, and the objects opened in it. With domains of kind [`Safe`] it
/// may be used from several threads.
pub struct Rust<P: Provider, K: Kind<P::Fabric>> {
    provider: Arc<P>,
    table: Table<P::Fabric, K::Domain>,
    _registration: Registration,
}

impl<P: Provider, K: Kind<P::Fabric>> Rust<P, K> {
    /// The way into a provider, which gets listed.
    #[must_use]
    pub fn new(provider: P) -> Self {
        let provider = Arc::new(provider);
        Self {
            _registration: registry().register(Arc::clone(&provider) as _, Priority::Version),
            provider,
            table: Table::new(),
        }
    }
}

/// Names the call whose error this is.
fn of<T>(call: &'static str, result: CoreResult<T>) -> Result<T> {
    result.map_err(|errno| refused(call, errno))
}

fn refused(call: &'static str, errno: Errno) -> Error {
    Error::Call { call, errno }
}
