//! Any `libfabric.so.1`, through its C interface.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use ripstop_core::eq::{Event, EventError};
use ripstop_core::hints::Request;
use ripstop_core::provider::{self, Direction, Fabric, Provider as _, Threshold};
use ripstop_core::{Address, FidToken, Info};
use ripstop_foreign::{
    self as lib, Atomic, AvSet, Collecting, ForeignProvider, Library, PollSet, Shared, Single,
    WaitSet,
};
use ripstop_mem::UserBuf;
use ripstop_types::{
    AtomicKind, Collective, Errno, FiAddr, Flags, Result as CoreResult, RmaIov, Version, WaitObj,
};

use super::table::{Object, Queue};
use super::{Av, Counter, Cq, Ep, Group, Model, Mr, Way, of, refused};
use crate::subject::{
    About, AvSetAttr, CEdge, CollLimit, CqAttr, EpOption, Error, Fid, Form, Result, SetChange, When,
};

/// A library, with domains for any thread ([`Shared`]) or for one.
pub struct Foreign<M> {
    pub(super) provider: ForeignProvider,
    mode: PhantomData<M>,
}

impl<M> Foreign<M> {
    /// The way into an opened library.
    #[must_use]
    pub fn new(library: Library) -> Self {
        Self {
            provider: ForeignProvider::new(library, "").verbatim(),
            mode: PhantomData,
        }
    }
}

/// Objects that the traits do not have.
pub enum Other<M: lib::Threading> {
    /// A poll set.
    Polls(Arc<PollSet<M>>),
    /// A wait set.
    Waits(Arc<WaitSet>),
}

impl<M: lib::Threading> Clone for Other<M> {
    fn clone(&self) -> Self {
        match self {
            Self::Polls(set) => Self::Polls(set.clone()),
            Self::Waits(set) => Self::Waits(set.clone()),
        }
    }
}

impl From<lib::Error> for Error {
    fn from(error: lib::Error) -> Self {
        Self::Call {
            call: error.call,
            errno: error.errno,
        }
    }
}

/// How the domains of a mode are opened.
pub trait Opens: lib::Threading {
    /// Opens one.
    ///
    /// # Errors
    ///
    /// Of the fabric.
    fn open(fabric: &Arc<lib::Fabric>, info: &Info) -> CoreResult<Arc<lib::Domain<Self>>>;
}

impl Opens for Shared {
    fn open(fabric: &Arc<lib::Fabric>, info: &Info) -> CoreResult<Arc<lib::Domain<Self>>> {
        fabric.safe_domain(info)
    }
}

impl Opens for Single {
    fn open(fabric: &Arc<lib::Fabric>, info: &Info) -> CoreResult<Arc<lib::Domain<Self>>> {
        fabric.serial_domain(info)
    }
}

/// The same object as the library's own calls take it.
pub(super) fn raw<M: Opens>(object: &Object<Foreign<M>>) -> Result<lib::Object<M>> {
    Ok(match object {
        Object::Fabric(o) => lib::Object::Fabric(o.clone()),
        Object::Domain(o) => lib::Object::Domain(o.clone()),
        Object::Eq(o) => lib::Object::Eq(o.clone()),
        Object::Cq(Queue { cq, .. }) => lib::Object::Cq(cq.clone()),
        Object::Cntr(o) => lib::Object::Counter(o.clone()),
        Object::Av(o) => lib::Object::Av(o.clone()),
        Object::Pep(o) => lib::Object::PassiveEp(o.clone()),
        Object::Ep(o) => lib::Object::Endpoint(o.clone()),
        Object::Srx(o) => lib::Object::SharedRx(o.clone()),
        Object::Stx(o) => lib::Object::SharedTx(o.clone()),
        Object::Sep(o) => lib::Object::ScalableEp(o.clone()),
        Object::Mr(o) => lib::Object::Mr(o.clone()),
        Object::Set(o) => lib::Object::AvSet(o.clone()),
        Object::Group(o) => lib::Object::Group(o.clone()),
        Object::Other(Other::Polls(o)) => lib::Object::PollSet(o.clone()),
        Object::Other(Other::Waits(o)) => lib::Object::WaitSet(o.clone()),
        Object::Memory(_) => return Err(Error::Missing("do that with memory")),
    })
}

/// The `FI_OPT_*` number.
pub(super) fn option_number(option: EpOption) -> i32 {
    match option {
        EpOption::MinMultiRecv => 0,
        EpOption::CmDataSize => 1,
        EpOption::MaxMsgSize => 12,
        EpOption::MaxAtomicSize => 15,
        EpOption::InjectMsgSize => 16,
        EpOption::InjectAtomicSize => 19,
        EpOption::FirewallAddr => 20,
        EpOption::Unknown => 12_345,
    }
}

impl<M: Opens> Way for Foreign<M> {
    type Fabric = lib::Fabric;
    type Domain = lib::Domain<M>;
    type Eq = lib::Eq;
    type Set = AvSet<M>;
    type Other = Other<M>;

    fn about(&self) -> About {
        let library = self.provider.library();
        About {
            name: library.path().display().to_string(),
            version: library.version(),
        }
    }

    fn getinfo(&self, request: &mut Request<'_>, newest: bool) -> Result<Vec<Info>> {
        if newest {
            request.version = self.provider.library().version().min(Version::CURRENT);
        }
        Ok(self.provider.offers(request)?)
    }

    fn fabric(&self, info: &Info) -> Result<Arc<lib::Fabric>> {
        of("fi_fabric", self.provider.fabric(&info.fabric))
    }

    fn domain(fabric: &Arc<lib::Fabric>, info: &Info) -> Result<Arc<lib::Domain<M>>> {
        of("fi_domain", M::open(fabric, info))
    }

    fn cq(domain: &Arc<lib::Domain<M>>, attr: &CqAttr) -> Result<Arc<Cq<Self>>> {
        Ok(domain.cq_with(&attr.open(), attr.threshold, None)?)
    }

    fn eq(fabric: &Arc<lib::Fabric>, wait: WaitObj) -> Result<Arc<lib::Eq>> {
        Ok(fabric.eq(wait, Flags::empty(), None)?)
    }

    fn eq_read(eq: &lib::Eq) -> Result<Event> {
        Ok(eq.read()?)
    }

    fn eq_sread(eq: &lib::Eq, timeout: Duration) -> Result<Event> {
        Ok(eq.sread(Some(timeout))?)
    }

    fn eq_readerr(eq: &lib::Eq) -> Result<EventError> {
        Ok(eq.readerr()?)
    }

    fn eq_forget(_: &lib::Eq, _: FidToken) {}

    fn eq_fd(eq: &lib::Eq) -> Result<BorrowedFd<'_>> {
        Ok(eq.wait_fd()?)
    }

    fn bind_ep(ep: &Ep<Self>, eq: &Arc<lib::Eq>) -> Result<()> {
        Ok(ep.bind_own_eq(eq)?)
    }

    fn bind_pep(pep: &<lib::Fabric as Fabric>::PassiveEp, eq: &Arc<lib::Eq>) -> Result<()> {
        Ok(pep.bind_own_eq(eq)?)
    }

    fn trywait(fabric: &Arc<lib::Fabric>, objects: &[Object<Self>]) -> Result<()> {
        let objects = objects.iter().map(raw).collect::<Result<Vec<_>>>()?;
        Ok(fabric.try_wait_all(&objects)?)
    }

    fn close(object: &Object<Self>, owners: usize) -> Result<()> {
        match object {
            // It stays as long as a peer may write it.
            Object::Memory(_) => Ok(()),
            object => Ok(raw(object)?.close(owners + 1)?),
        }
    }

    fn bind(object: &Object<Self>, to: &Object<Self>, flags: Flags) -> Result<()> {
        Ok(raw(object)?.bind(raw(to)?, flags)?)
    }

    fn enable(object: &Object<Self>) -> Result<()> {
        match object {
            Object::Srx(srx) => Ok(srx.enable()?),
            Object::Mr(mr) => Ok(mr.enable()?),
            _ => Err(Error::Missing("enable that")),
        }
    }

    fn option(object: &Object<Self>, option: EpOption) -> Result<usize> {
        let bytes = raw(object)?.option(option_number(option), size_of::<usize>())?;
        let bytes = bytes.try_into();
        bytes
            .map(usize::from_ne_bytes)
            .map_err(|_| refused("fi_getopt", Errno::EOTHER))
    }

    fn set_option(object: &Object<Self>, option: EpOption, value: usize) -> Result<()> {
        let number = option_number(option);
        Ok(raw(object)?.set_option(number, &value.to_ne_bytes())?)
    }

    fn op_flags(ep: &Ep<Self>, direction: Direction) -> Result<Flags> {
        Ok(ep.own_flags(direction)?)
    }

    fn av_insert(av: &Arc<Av<Self>>, addrs: &[Address]) -> Result<Vec<FiAddr>> {
        Ok(av.insert_all(addrs)?)
    }

    fn av_insertsvc(av: &Av<Self>, node: &str, service: Option<&str>) -> Result<FiAddr> {
        Ok(av.insert_service(node, service)?)
    }

    fn av_insertsym(
        av: &Av<Self>,
        node: (&str, usize),
        service: (&str, usize),
    ) -> Result<(usize, Vec<FiAddr>)> {
        Ok(av.insert_symmetric(node, service)?)
    }

    fn av_remove(av: &Av<Self>, addrs: &[FiAddr]) -> Result<()> {
        Ok(av.remove_all(addrs)?)
    }

    fn av_straddr(av: &Av<Self>, addr: &Address) -> Result<String> {
        Ok(av.straddr(addr)?)
    }

    fn av_set(av: &Arc<Av<Self>>, attr: &AvSetAttr) -> Result<Arc<AvSet<M>>> {
        Ok(av.set(&attr.open())?)
    }

    fn change_set(
        set: &AvSet<M>,
        change: SetChange,
        other: &dyn Fn(Fid) -> Result<Arc<AvSet<M>>>,
    ) -> Result<()> {
        Ok(match change {
            SetChange::Union(fid) => set.union(&*other(fid)?),
            SetChange::Intersect(fid) => set.intersect(&*other(fid)?),
            SetChange::Diff(fid) => set.diff(&*other(fid)?),
            SetChange::Insert(addr) => set.insert(addr),
            SetChange::Remove(addr) => set.remove(addr),
        }?)
    }

    fn set_addr(set: &AvSet<M>) -> Result<FiAddr> {
        Ok(set.addr()?)
    }

    fn join(ep: &Arc<Ep<Self>>, set: &Arc<AvSet<M>>, name: FidToken) -> Result<Arc<Group<Self>>> {
        let at = (set.addr()?, Flags::empty());
        Ok(Arc::new(ep.join_set(set, at, (name, 0))?))
    }

    fn collective(
        ep: &Ep<Self>,
        bufs: [UserBuf; 2],
        call: &Collecting,
        when: Option<(When, &Arc<Counter<Self>>)>,
    ) -> Result<()> {
        let when = when.map(|(when, counter)| Threshold {
            counter,
            value: when.threshold,
        });
        Ok(ep.start_collective(bufs, call, when)?)
    }

    fn query_collective(
        domain: &lib::Domain<M>,
        coll: Collective,
        what: (u32, u32),
    ) -> Result<CollLimit> {
        let (datatype, op) = match coll {
            Collective::Barrier => (lib::FI_VOID, lib::FI_NOOP),
            coll if coll.reduces() => what,
            _ => (what.0, lib::FI_NOOP),
        };
        Ok(domain.query_collective(coll.number(), datatype, op, 0)?)
    }

    fn atomic(ep: &Ep<Self>, bufs: [&[UserBuf]; 3], call: &Atomic<'_>) -> Result<()> {
        Ok(ep.atomic_by_number(bufs, call)?)
    }

    fn inject_atomic(
        ep: &Ep<Self>,
        buf: UserBuf,
        what: (u32, u32),
        to: RmaIov,
        peer: FiAddr,
    ) -> Result<()> {
        Ok(ep.inject_atomic_by_number(buf, what, to, peer)?)
    }

    fn query_atomic(
        domain: &lib::Domain<M>,
        kind: AtomicKind,
        (datatype, op): (u32, u32),
    ) -> Result<usize> {
        Ok(domain.query_atomic(kind, datatype, op)?.0)
    }

    fn register(
        domain: &Arc<lib::Domain<M>>,
        form: Form,
        attr: &provider::MrAttr,
    ) -> Result<Arc<Mr<Self>>> {
        let form = match form {
            Form::Reg => lib::Form::Reg,
            Form::Regv => lib::Form::Regv,
            Form::Regattr => lib::Form::Regattr,
        };
        Ok(domain.register(form, attr)?)
    }

    fn edge(model: &Model<Self>) -> Option<&dyn CEdge> {
        Some(model)
    }
}
