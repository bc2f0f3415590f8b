//! Any object, for those that keep others open: endpoints, registrations and poll sets do, and what is
//! made of them.

pub(crate) mod collective;
pub(crate) mod contexts;
pub(crate) mod cq;
pub(crate) mod endpoint;
pub(crate) mod polls;
pub(crate) mod registration;

use std::sync::Arc;

use ripstop_abi::fid;

use crate::threading::Threading;
use crate::{
    Av, AvSet, Counter, Cq, Domain, Endpoint, Eq, Fabric, Group, Mr, PassiveEp, PollSet, Result,
    ScalableEp, SharedRx, SharedTx, WaitSet,
};

/// Any open object, kept open.
pub enum Object<M: Threading> {
    /// A fabric.
    Fabric(Arc<Fabric>),
    /// A domain.
    Domain(Arc<Domain<M>>),
    /// An event queue of the library's own.
    Eq(Arc<Eq>),
    /// A completion queue.
    Cq(Arc<Cq<M>>),
    /// A counter.
    Counter(Arc<Counter<M>>),
    /// An address vector.
    Av(Arc<Av<M>>),
    /// A passive endpoint.
    PassiveEp(Arc<PassiveEp>),
    /// An endpoint, or a context of one.
    Endpoint(Arc<Endpoint<M>>),
    /// A shared receive context.
    SharedRx(Arc<SharedRx<M>>),
    /// A shared transmit context.
    SharedTx(Arc<SharedTx<M>>),
    /// A scalable endpoint.
    ScalableEp(Arc<ScalableEp<M>>),
    /// A memory region.
    Mr(Arc<Mr<M>>),
    /// A poll set.
    PollSet(Arc<PollSet<M>>),
    /// A wait set.
    WaitSet(Arc<WaitSet>),
    /// An address vector set.
    AvSet(Arc<AvSet<M>>),
    /// A collective group.
    Group(Arc<Group<M>>),
}

/// Does the same with the handle of any object.
macro_rules! any {
    ($object:expr, $owned:ident, $shared:ident => $body:expr) => {
        match $object {
            Self::Fabric(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::Domain(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::Eq(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::Cq(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::Counter(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::Av(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::PassiveEp(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::Endpoint(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::SharedRx(o) => {
                let ($owned, $shared) = (&o.context().owned, o.context());
                $body
            }
            Self::SharedTx(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::ScalableEp(o) => {
                let ($owned, $shared) = (&o.endpoint().owned, o.endpoint());
                $body
            }
            Self::Mr(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::PollSet(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::WaitSet(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::AvSet(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::Group(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
        }
    };
}

impl<M: Threading> Object<M> {
    pub(crate) fn fid(&self) -> *mut fid {
        any!(self, owned, _shared => owned.fid())
    }

    /// What poll sets call it, as long as it is open.
    #[must_use]
    pub fn id(&self) -> usize {
        self.fid().addr()
    }

    /// Closes it now (`fi_close`); `owners` is how many have it that are no objects of the library.
    ///
    /// A library must refuse this while something uses the object. One that does not has
    /// destroyed what is still in use, so this ends the process.
    ///
    /// # Errors
    ///
    /// `FI_EBUSY` while something uses the object, and what else the library says.
    pub fn close(&self, owners: usize) -> Result<()> {
        any!(self, owned, shared => {
            owned.try_close()?;
            if Arc::strong_count(shared) > owners {
                eprintln!("fi_close closed what is in use; it must say FI_EBUSY");
                std::process::abort()
            }
            Ok(())
        })
    }
}
