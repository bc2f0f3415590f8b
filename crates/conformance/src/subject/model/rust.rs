//! The object model of Rust, whose providers are in this process.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use ripstop_core::av::Symmetric;
use ripstop_core::av::set::AvSet;
use ripstop_core::eq::{EqAttr, Event, EventError};
use ripstop_core::hints::Request;
use ripstop_core::provider::{
    self, AddressVector, AtomicCall, CollCall, CompletionQueue, Counter as _, DataCall, Direction,
    Domain, Endpoint, Fabric, JoinCall, PassiveEp, Provider, Threshold,
};
use ripstop_core::registry::{Registration, registry};
use ripstop_core::{Address, EventQueue, FidToken, Info};
use ripstop_foreign::{Atomic, Collecting};
use ripstop_mem::UserBuf;
use ripstop_types::{
    AddrFormat, AtomicKind, AtomicOp, Collective, Datatype, Errno, FiAddr, Flags,
    Result as CoreResult, RmaIov, Version, WaitObj,
};

use super::table::{Object, Queue};
use super::{Av, Counter, Cq, Ep, Group, Mr, Way, of, refused};
use crate::subject::{
    About, AvSetAttr, CollLimit, CqAttr, EpOption, Error, Fid, Form, Result, SetChange, When,
};

const UNKNOWN: Error = Error::Missing("name an unknown datatype or operation");

/// Which of a fabric's two kinds of domain is opened.
pub trait Kind<F: Fabric>: 'static {
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

/// A provider of the process, with domains of one kind.
pub struct Rust<P: Provider, K: Kind<P::Fabric>> {
    provider: Arc<P>,
    _registration: Registration,
    kind: PhantomData<K>,
}

impl<P: Provider, K: Kind<P::Fabric>> Rust<P, K> {
    /// The way into a provider, which gets listed.
    #[must_use]
    pub fn new(provider: P) -> Self {
        let provider = Arc::new(provider);
        Self {
            _registration: registry().register(Arc::clone(&provider) as _),
            provider,
            kind: PhantomData,
        }
    }
}

/// A datatype and an operation by their numbers, which are all that a typed interface can say.
fn known((datatype, op): (u32, u32)) -> Result<(Datatype, AtomicOp)> {
    Datatype::from_number(datatype)
        .zip(AtomicOp::from_number(op))
        .ok_or(UNKNOWN)
}

/// An address vector set, and its vector.
pub struct Set<A> {
    set: AvSet,
    av: Arc<A>,
}

impl<P: Provider, K: Kind<P::Fabric>> Way for Rust<P, K> {
    type Fabric = P::Fabric;
    type Domain = K::Domain;
    type Eq = EventQueue;
    type Set = Set<Av<Self>>;
    type Other = std::convert::Infallible;

    fn about(&self) -> About {
        About {
            name: "rust".to_owned(),
            version: Version::CURRENT,
        }
    }

    fn getinfo(&self, request: &mut Request<'_>, newest: bool) -> Result<Vec<Info>> {
        if newest {
            request.version = Version::CURRENT;
        }
        let found = registry().getinfo(request);
        found.map_err(|none| refused("getinfo", none.errno))
    }

    fn fabric(&self, info: &Info) -> Result<Arc<P::Fabric>> {
        if info.prov_name() != self.provider.name() {
            return Err(refused("fabric", Errno::ENODEV));
        }
        of("fabric", self.provider.fabric(&info.fabric))
    }

    fn domain(fabric: &Arc<P::Fabric>, info: &Info) -> Result<Arc<K::Domain>> {
        if !K::fits(info) {
            return Err(Error::Missing("open that without a lock"));
        }
        // A connection request belongs to the endpoint.
        let info = Info {
            handle: None,
            ..info.clone()
        };
        of("domain", K::open(fabric, &info))
    }

    fn cq(domain: &Arc<K::Domain>, attr: &CqAttr) -> Result<Arc<Cq<Self>>> {
        of("cq", domain.cq(&attr.open()))
    }

    fn eq(_: &Arc<P::Fabric>, wait: WaitObj) -> Result<Arc<EventQueue>> {
        let attr = EqAttr {
            wait_obj: wait,
            ..EqAttr::default()
        };
        Ok(Arc::new(of("eq", EventQueue::open(&attr))?))
    }

    fn eq_read(eq: &EventQueue) -> Result<Event> {
        of("eq read", eq.read())
    }

    fn eq_sread(eq: &EventQueue, timeout: Duration) -> Result<Event> {
        of("eq sread", eq.sread(Some(timeout)))
    }

    fn eq_readerr(eq: &EventQueue) -> Result<EventError> {
        of("eq read_error", eq.read_error(true))
    }

    fn eq_forget(eq: &EventQueue, name: FidToken) {
        eq.forget(name);
    }

    fn eq_fd(eq: &EventQueue) -> Result<BorrowedFd<'_>> {
        of("wait_fd", eq.wait_fd())
    }

    fn bind_ep(ep: &Ep<Self>, eq: &Arc<EventQueue>) -> Result<()> {
        of("bind", ep.bind_eq(eq))
    }

    fn bind_pep(pep: &<P::Fabric as Fabric>::PassiveEp, eq: &Arc<EventQueue>) -> Result<()> {
        of("bind", pep.bind_eq(eq))
    }

    fn trywait(_: &Arc<P::Fabric>, objects: &[Object<Self>]) -> Result<()> {
        for object in objects {
            let ready = match object {
                Object::Cq(Queue { cq, .. }) => cq.try_wait(),
                Object::Eq(o) => o.try_wait(),
                Object::Cntr(o) => o.try_wait(),
                _ => return Err(Error::Missing("wait on that")),
            };
            of("try_wait", ready)?;
        }
        Ok(())
    }

    fn close(object: &Object<Self>, owners: usize) -> Result<()> {
        // As every front end, it asks before it closes.
        let is_busy = matches!(object, Object::Cntr(counter) if counter.is_busy());
        match is_busy || object.owners() > owners {
            true => Err(refused("close", Errno::EBUSY)),
            false => Ok(()),
        }
    }

    fn bind(_: &Object<Self>, _: &Object<Self>, _: Flags) -> Result<()> {
        Err(Error::Missing("bind these two so"))
    }

    fn enable(object: &Object<Self>) -> Result<()> {
        match object {
            // A shared context is in use as soon as it is open.
            Object::Srx(_) => Ok(()),
            _ => Err(Error::Missing("enable that")),
        }
    }

    fn option(object: &Object<Self>, option: EpOption) -> Result<usize> {
        match (object, option) {
            // The bound that `PassiveEp::reject` names.
            (Object::Pep(pep), EpOption::CmDataSize) => Ok(pep.cm_data_size()),
            _ => Err(Error::Missing("read such an option of that")),
        }
    }

    fn set_option(_: &Object<Self>, _: EpOption, _: usize) -> Result<()> {
        Err(Error::Missing("set such an option of that"))
    }

    fn op_flags(ep: &Ep<Self>, direction: Direction) -> Result<Flags> {
        Ok(ep.op_flags(direction))
    }

    fn av_insert(av: &Arc<Av<Self>>, addrs: &[Address]) -> Result<Vec<FiAddr>> {
        let one = |addr| av.insert(addr).unwrap_or(FiAddr::NOTAVAIL);
        Ok(addrs.iter().map(one).collect())
    }

    fn av_insertsvc(av: &Av<Self>, node: &str, service: Option<&str>) -> Result<FiAddr> {
        // Refused where addresses are those of IP.
        let string = Address::string(Some(node), service);
        if let Ok(addr) = av.insert(&string) {
            return Ok(addr);
        }
        let service = service.ok_or(refused("av insert", Errno::EINVAL))?;
        let (_, found) = Self::av_insertsym(av, (node, 1), (service, 1))?;
        match found[..] {
            [addr] if addr.is_specified() => Ok(addr),
            _ => Err(refused("av insert", Errno::EINVAL)),
        }
    }

    fn av_insertsym(
        av: &Av<Self>,
        (node, nodes): (&str, usize),
        (service, services): (&str, usize),
    ) -> Result<(usize, Vec<FiAddr>)> {
        let pattern = Symmetric {
            node,
            nodes,
            service,
            services,
            format: AddrFormat::Sockaddr,
        };
        let mut addresses = of("av insert", pattern.addresses())?;
        let (mut inserted, mut found) = (0, Vec::new());
        av.insert_ip(&mut addresses, &mut |outcome| {
            inserted += usize::from(outcome.is_ok());
            found.push(outcome.unwrap_or(FiAddr::NOTAVAIL));
        });
        Ok((inserted, found))
    }

    fn av_remove(av: &Av<Self>, addrs: &[FiAddr]) -> Result<()> {
        let mut outcome = Ok(());
        for addr in addrs.iter().rev() {
            outcome = outcome.and(of("av remove", av.remove(*addr)));
        }
        outcome
    }

    fn av_straddr(_: &Av<Self>, addr: &Address) -> Result<String> {
        Ok(addr.to_string())
    }

    fn av_set(av: &Arc<Av<Self>>, attr: &AvSetAttr) -> Result<Arc<Self::Set>> {
        let set = AvSet::new(&attr.open(), av.av_type(), &av.addresses());
        let set = of("av set", set)?;
        let av = av.clone();
        Ok(Arc::new(Set { set, av }))
    }

    fn change_set(
        Set { set, av }: &Self::Set,
        change: SetChange,
        other: &dyn Fn(Fid) -> Result<Arc<Self::Set>>,
    ) -> Result<()> {
        let other = |fid| {
            let other = other(fid)?;
            match Arc::ptr_eq(&other.av, av) {
                true => Ok(other),
                false => Err(Error::Missing("mix sets of several address vectors")),
            }
        };
        match change {
            SetChange::Union(fid) => set.union(&other(fid)?.set),
            SetChange::Intersect(fid) => set.intersect(&other(fid)?.set),
            SetChange::Diff(fid) => set.diff(&other(fid)?.set),
            SetChange::Insert(addr) => {
                // As every front end, it asks the address vector.
                let known = av.lookup(addr);
                of("set insert", known.and_then(|_| set.insert(addr)))?;
            }
            SetChange::Remove(addr) => of("set remove", set.remove(addr))?,
        }
        Ok(())
    }

    fn set_addr(set: &Self::Set) -> Result<FiAddr> {
        Ok(set.set.addr())
    }

    fn join(ep: &Arc<Ep<Self>>, set: &Arc<Self::Set>, name: FidToken) -> Result<Arc<Group<Self>>> {
        let call = JoinCall {
            members: &set.set.members(),
            operations: set.set.operations(),
            context: 0,
        };
        of("join", ep.join(&call, name))
    }

    fn collective(
        ep: &Ep<Self>,
        [input, result]: [UserBuf; 2],
        call: &Collecting,
        when: Option<(When, &Arc<Counter<Self>>)>,
    ) -> Result<()> {
        let datatype = match call.coll {
            Collective::Barrier => Some(Datatype::Uint8),
            _ => Datatype::from_number(call.datatype),
        };
        let op = match call.coll.reduces() {
            true => AtomicOp::from_number(call.op),
            false => Some(AtomicOp::Sum),
        };
        let (datatype, op) = datatype.zip(op).ok_or(UNKNOWN)?;
        let core = CollCall {
            coll: call.coll,
            datatype,
            op,
            count: call.count,
            group: call.group,
            root: call.root,
            context: call.context,
            flags: (!call.flags.is_empty()).then(|| {
                let own = ep.op_flags(Direction::Tx);
                own | call.flags
            }),
        };
        let started = match when {
            None => ep.collective(input, result, &core),
            Some((When { threshold, .. }, counter)) => {
                let when = Threshold {
                    counter,
                    value: threshold,
                };
                ep.trigger(&DataCall::Collective([input, result], core), when)
            }
        };
        of("collective", started)
    }

    fn query_collective(
        domain: &K::Domain,
        coll: Collective,
        (datatype, op): (u32, u32),
    ) -> Result<CollLimit> {
        let datatype = match coll {
            Collective::Barrier => None,
            _ => Some(Datatype::from_number(datatype).ok_or(UNKNOWN)?),
        };
        let op = match coll.reduces() {
            true => Some(AtomicOp::from_number(op).ok_or(UNKNOWN)?),
            false => None,
        };
        let limit = domain.collective_limit(coll, datatype, op);
        of("collective_limit", limit)
    }

    fn atomic(
        ep: &Ep<Self>,
        [operand, compare, result]: [&[UserBuf]; 3],
        call: &Atomic<'_>,
    ) -> Result<()> {
        let (datatype, op) = known((call.datatype, call.op))?;
        let has_data = call
            .flags
            .is_some_and(|f| f.contains(Flags::REMOTE_CQ_DATA));
        let call = AtomicCall {
            kind: call.kind,
            datatype,
            op,
            compare,
            result,
            remote: call.remote,
            peer: call.peer,
            data: has_data.then_some(call.data),
            context: call.context,
            flags: call.flags,
        };
        of("atomic", ep.atomic(operand, &call))
    }

    fn inject_atomic(
        ep: &Ep<Self>,
        buf: UserBuf,
        what: (u32, u32),
        to: RmaIov,
        peer: FiAddr,
    ) -> Result<()> {
        let (datatype, op) = known(what)?;
        let done = ep.inject_atomic(buf, datatype, op, to, peer);
        of("inject_atomic", done)
    }

    fn query_atomic(domain: &K::Domain, kind: AtomicKind, what: (u32, u32)) -> Result<usize> {
        let (datatype, op) = known(what)?;
        of("atomic_limit", domain.atomic_limit(kind, datatype, op))
    }

    fn register(
        domain: &Arc<K::Domain>,
        _: Form,
        attr: &provider::MrAttr,
    ) -> Result<Arc<Mr<Self>>> {
        of("mr", domain.mr(attr))
    }
}
