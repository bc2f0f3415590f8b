//! Any provider, by the traits of the object model (`ripstop_core::provider`).
//!
//! It adds what every front end adds: numbers for objects, and buffers that stay put until their
//! operation has ended. What a [`Way`] into an implementation says in other words than the traits is
//! with the way: [`Rust`] is the object model itself, [`Foreign`] any `libfabric.so.1`.

mod atomic;
mod calls;
mod coll;
mod edge;
mod foreign;
mod freed;
mod open;
#[cfg(feature = "rust")]
mod rust;
mod table;
mod work;

use std::sync::Arc;
use std::time::Duration;

use ripstop_core::eq::{Event, EventError};
use ripstop_core::hints::Request;
use ripstop_core::provider::{self, Direction, Domain, Fabric};
use ripstop_core::{Address, FidToken, Info};
use ripstop_foreign::{Atomic, Collecting};
use ripstop_mem::UserBuf;
use ripstop_types::{
    AtomicKind, Collective, Errno, FiAddr, Flags, Result as CoreResult, RmaIov, WaitObj,
};

use super::{
    About, AvSetAttr, CEdge, CollLimit, CqAttr, EpOption, Error, Fid, Form, Result, SetChange, When,
};
use table::{Object, Table};

pub use foreign::Foreign;
#[cfg(feature = "rust")]
pub use rust::{Rust, Safe, Serial};

type Av<W> = <<W as Way>::Domain as Domain>::Av;
type Counter<W> = <<W as Way>::Domain as Domain>::Counter;
type Cq<W> = <<W as Way>::Domain as Domain>::Cq;
type Ep<W> = <<W as Way>::Domain as Domain>::Endpoint;
type Group<W> = <<W as Way>::Domain as Domain>::Group;
type Mr<W> = <<W as Way>::Domain as Domain>::Mr;

/// A way into an implementation: which objects of the traits it has, and the calls for which the
/// traits say less than it can, or have no words.
#[expect(missing_docs, reason = "the man pages document the calls")]
pub trait Way: Sized + 'static {
    type Fabric: Fabric;
    type Domain: Domain;
    /// Its event queues.
    type Eq: 'static;
    /// Its address vector sets.
    type Set: 'static;
    /// Objects that the traits do not have.
    type Other: Clone + 'static;

    fn about(&self) -> About;
    fn getinfo(&self, request: &mut Request<'_>, newest: bool) -> Result<Vec<Info>>;
    fn fabric(&self, info: &Info) -> Result<Arc<Self::Fabric>>;
    fn domain(fabric: &Arc<Self::Fabric>, info: &Info) -> Result<Arc<Self::Domain>>;
    fn cq(domain: &Arc<Self::Domain>, attr: &CqAttr) -> Result<Arc<Cq<Self>>>;

    fn eq(fabric: &Arc<Self::Fabric>, wait: WaitObj) -> Result<Arc<Self::Eq>>;
    fn eq_read(eq: &Self::Eq) -> Result<Event>;
    fn eq_sread(eq: &Self::Eq, timeout: Duration) -> Result<Event>;
    fn eq_readerr(eq: &Self::Eq) -> Result<EventError>;
    /// Forgets the events of an object that was closed.
    fn eq_forget(eq: &Self::Eq, name: FidToken);
    fn eq_fd(eq: &Self::Eq) -> Result<std::os::fd::BorrowedFd<'_>>;
    fn bind_ep(ep: &Ep<Self>, eq: &Arc<Self::Eq>) -> Result<()>;
    fn bind_pep(pep: &<Self::Fabric as Fabric>::PassiveEp, eq: &Arc<Self::Eq>) -> Result<()>;
    fn trywait(fabric: &Arc<Self::Fabric>, objects: &[Object<Self>]) -> Result<()>;

    /// Closes an object that `owners` hold, or says that it is in use.
    fn close(object: &Object<Self>, owners: usize) -> Result<()>;
    /// Binds what the traits do not.
    fn bind(object: &Object<Self>, to: &Object<Self>, flags: Flags) -> Result<()>;
    /// Enables what is no endpoint.
    fn enable(object: &Object<Self>) -> Result<()>;
    /// An option that the traits do not have there.
    fn option(object: &Object<Self>, option: EpOption) -> Result<usize>;
    fn set_option(object: &Object<Self>, option: EpOption, value: usize) -> Result<()>;
    fn op_flags(ep: &Ep<Self>, direction: Direction) -> Result<Flags>;

    fn av_insert(av: &Arc<Av<Self>>, addrs: &[Address]) -> Result<Vec<FiAddr>>;
    fn av_insertsvc(av: &Av<Self>, node: &str, service: Option<&str>) -> Result<FiAddr>;
    fn av_insertsym(
        av: &Av<Self>,
        node: (&str, usize),
        service: (&str, usize),
    ) -> Result<(usize, Vec<FiAddr>)>;
    fn av_remove(av: &Av<Self>, addrs: &[FiAddr]) -> Result<()>;
    fn av_straddr(av: &Av<Self>, addr: &Address) -> Result<String>;

    fn av_set(av: &Arc<Av<Self>>, attr: &AvSetAttr) -> Result<Arc<Self::Set>>;
    /// `other` finds the set that a change names.
    fn change_set(
        set: &Self::Set,
        change: SetChange,
        other: &dyn Fn(Fid) -> Result<Arc<Self::Set>>,
    ) -> Result<()>;
    fn set_addr(set: &Self::Set) -> Result<FiAddr>;
    fn join(ep: &Arc<Ep<Self>>, set: &Arc<Self::Set>, name: FidToken) -> Result<Arc<Group<Self>>>;
    /// Of a datatype and with an operation of any numbers, as all that follow.
    fn collective(
        ep: &Ep<Self>,
        bufs: [UserBuf; 2],
        call: &Collecting,
        when: Option<(When, &Arc<Counter<Self>>)>,
    ) -> Result<()>;
    fn query_collective(
        domain: &Self::Domain,
        coll: Collective,
        what: (u32, u32),
    ) -> Result<CollLimit>;
    fn atomic(ep: &Ep<Self>, bufs: [&[UserBuf]; 3], call: &Atomic<'_>) -> Result<()>;
    fn inject_atomic(
        ep: &Ep<Self>,
        buf: UserBuf,
        what: (u32, u32),
        to: RmaIov,
        peer: FiAddr,
    ) -> Result<()>;
    fn query_atomic(domain: &Self::Domain, kind: AtomicKind, what: (u32, u32)) -> Result<usize>;

    fn register(
        domain: &Arc<Self::Domain>,
        form: Form,
        attr: &provider::MrAttr,
    ) -> Result<Arc<Mr<Self>>>;

    /// The calls that only the C interface has, where this is one.
    fn edge(_model: &Model<Self>) -> Option<&dyn CEdge> {
        None
    }
}

/// An implementation reached by a way, and the objects opened in it. With domains that may be used
/// from several threads it may be as well.
pub struct Model<W: Way> {
    way: W,
    table: Table<W>,
}

impl<W: Way> Model<W> {
    /// The implementation that a way leads to.
    #[must_use]
    pub fn new(way: W) -> Self {
        Self {
            way,
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
