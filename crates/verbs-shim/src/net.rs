//! What stands behind the device: endpoints and regions of a provider.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ripstop_core::hints::Request;
use ripstop_core::provider::{
    self, AddressVector as _, AtomicCall, AvAttr, CompletionQueue as _, CqAttr, Domain,
    Endpoint as _, Fabric as _, MemoryRegion as _, MrAttr, Provider, RecvKind, RmaCall, SendKind,
    SharedRx as _, Sharing,
};
use ripstop_core::registry::{Registration, registry};
use ripstop_core::{
    Address, DomainAttr, EpAttr, FabricAttr, FidToken, Hints, Info, RxAttr, TxAttr,
};
use ripstop_mem::UserBuf;
use ripstop_shm::ShmProvider;
use ripstop_tcp::TcpProvider;
use ripstop_types::{
    AtomicKind, AtomicOp, Completion, Datatype, EpType, Errno, FiAddr, Flags, MrMode, MsgOrder,
    Progress, Result, RmaIov, Threading, Version, WaitObj, flags,
};

use crate::log::{Subsys, refuse};

/// The level at which every operation is reported: as in verbs, a completion says that the peer has it.
const DELIVERED: Flags = flags![COMPLETION DELIVERY_COMPLETE];

/// The level at which datagrams are reported: they have arrived, whatever the peer does with them.
const ARRIVED: Flags = flags![COMPLETION TRANSMIT_COMPLETE];

/// Most completions that one look at the provider's queue takes.
const BATCH: usize = 64;

/// Regions are named by address, with keys of this library's choice, and their memory is there.
const REGIONS: MrMode = MrMode::VIRT_ADDR.union(MrMode::ALLOCATED);

/// Names that are tried for an endpoint of shm before there is none.
const NAME_TRIES: u32 = 64;

/// The provider that queue pairs run over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any host.
    Tcp,
    /// This host only.
    Shm,
}

impl Kind {
    /// By the name of the provider.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "tcp" => Some(Self::Tcp),
            "shm" => Some(Self::Shm),
            _ => None,
        }
    }

    /// The provider's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Shm => "shm",
        }
    }
}

/// The end of an operation, as the provider reports it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// What it was posted with.
    pub(crate) context: usize,
    /// The tag of a received message.
    pub(crate) tag: u64,
    /// Bytes received.
    pub(crate) len: usize,
    /// What came with a received message.
    pub(crate) data: u64,
    /// How it ended.
    pub(crate) result: Result<()>,
}

impl Ended {
    fn new(entry: &Completion, result: Result<()>) -> Self {
        Self {
            context: entry.context,
            tag: entry.tag,
            len: entry.len,
            data: match entry.flags.contains(Flags::REMOTE_CQ_DATA) {
                true => entry.data,
                false => 0,
            },
            result,
        }
    }
}

/// One of the two atomic operations of verbs, on 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomic {
    /// Adds.
    FetchAdd,
    /// Replaces what equals.
    CompareSwap,
}

/// Memory that peers reach. Dropping it ends that.
pub(crate) trait Region: Send + Sync {}

/// An endpoint: what one queue pair has. Once it is dropped, the provider uses no buffer posted to it.
pub(crate) trait Port: Send + Sync {
    /// Sends a tagged message, with data beside it.
    fn send(&self, iov: &[UserBuf], tag: u64, data: u64, to: FiAddr, context: usize) -> Result<()>;
    /// Sends a tagged message, with data beside it, which ends when it has arrived.
    fn datagram(
        &self,
        message: UserBuf,
        tag: u64,
        data: u64,
        to: FiAddr,
        context: usize,
    ) -> Result<()>;
    /// Receives the next message of this tag, but for the bits `ignore`, from a peer.
    fn recv(
        &self,
        iov: &[UserBuf],
        tag: u64,
        ignore: u64,
        from: FiAddr,
        context: usize,
    ) -> Result<()>;
    /// Reads memory of a peer.
    fn read(&self, iov: &[UserBuf], remote: RmaIov, from: FiAddr, context: usize) -> Result<()>;
    /// Writes memory of a peer.
    fn write(&self, iov: &[UserBuf], remote: RmaIov, to: FiAddr, context: usize) -> Result<()>;
    /// Carries out an atomic on memory of a peer; `operands` are the operand and what it is compared with.
    fn atomic(
        &self,
        op: Atomic,
        operands: [UserBuf; 2],
        result: UserBuf,
        remote: RmaIov,
        at: FiAddr,
        context: usize,
    ) -> Result<()>;
}

/// Receives that several endpoints share, for any message of any peer.
pub(crate) trait Shared: Any + Send + Sync {
    /// Posts one.
    fn recv(&self, iov: &[UserBuf], context: usize) -> Result<()>;
}

/// A domain of a provider with its queue and address vector.
pub(crate) trait Net: Send + Sync {
    /// Opens an endpoint, and gives the 16 bits by which peers find it: those of `wanted`, if any. Its messages go
    /// to `shared`, of the same domain, if there is one.
    fn port(
        &self,
        wanted: Option<u16>,
        shared: Option<&dyn Shared>,
    ) -> Result<(Box<dyn Port>, u16)>;
    /// Opens receives that endpoints share.
    fn shared(&self) -> Result<Box<dyn Shared>>;
    /// Registers memory under a key of the caller's.
    fn register(&self, memory: UserBuf, access: Flags, key: u32) -> Result<Box<dyn Region>>;
    /// The peer whose device has this address, at its port.
    fn insert(&self, ip: IpAddr, port: u16) -> Result<FiAddr>;
    /// Forgets a peer.
    fn remove(&self, peer: FiAddr);
    /// Hands out some of what has ended.
    fn drain(&self, each: &mut dyn FnMut(Ended));
    /// Waits until [`Net::drain`] has something to hand out.
    fn wait(&self, timeout: Duration);
    /// Ends [`Net::wait`] of another thread.
    fn wake(&self);
}

/// Opens the provider, for a device of this address.
pub(crate) fn open(kind: Kind, ip: IpAddr) -> Result<Box<dyn Net>> {
    match kind {
        Kind::Tcp => Objects::open(TcpProvider::new, kind, ip),
        Kind::Shm => Objects::open(ShmProvider::new, kind, ip),
    }
}

/// What an interface must have.
fn hints(kind: Kind, ip: IpAddr) -> Hints {
    let order = MsgOrder::SAS | MsgOrder::SAW | MsgOrder::WAW | MsgOrder::RAW | MsgOrder::WAS;
    Hints {
        caps: flags![TAGGED RMA ATOMIC DIRECTED_RECV],
        src_addr: match kind {
            Kind::Tcp => Some(Address::Ip(SocketAddr::new(ip, 0))),
            Kind::Shm => None,
        },
        tx: Some(TxAttr {
            msg_order: order,
            ..TxAttr::default()
        }),
        ep: Some(EpAttr {
            ep_type: EpType::Rdm,
            ..EpAttr::default()
        }),
        domain: Some(DomainAttr {
            threading: Threading::Safe,
            // Peers reach memory while the program does not call.
            progress: Progress::Auto,
            control_progress: Progress::Auto,
            mr_mode: REGIONS,
            ..DomainAttr::default()
        }),
        fabric: Some(FabricAttr {
            prov_name: Some(kind.name().into()),
            ..FabricAttr::default()
        }),
        ..Hints::default()
    }
}

/// The objects of a provider.
struct Objects<D: Domain> {
    kind: Kind,
    info: Info,
    domain: Arc<D>,
    cq: Arc<D::Cq>,
    av: Arc<D::Av>,
    _registration: Registration,
}

impl<D: Domain> Objects<D>
where
    D: Send + Sync,
    D::Cq: Send + Sync,
    D::Av: Send + Sync,
    D::Mr: Send + Sync,
    D::Endpoint: Send + Sync,
    D::SharedRx: Send + Sync,
{
    fn open<P>(new: fn() -> P, kind: Kind, ip: IpAddr) -> Result<Box<dyn Net>>
    where
        P: Provider,
        P::Fabric: provider::Fabric<SafeDomain = D>,
    {
        // First of all, so that logging is set up when the provider reads its parameters.
        let registry = registry();
        let provider = Arc::new(new());
        let registration = registry.register(Arc::clone(&provider) as _);
        let hints = hints(kind, ip);
        let request = Request {
            version: Version::CURRENT,
            hints: Some(&hints),
            ..Request::default()
        };
        let found = registry.getinfo(&request).map_err(|refused| {
            refuse(
                Subsys::Core,
                Errno::ENODATA,
                format_args!("{}: {refused:?}", kind.name()),
            )
        })?;
        let mut info = found.into_iter().next().ok_or(Errno::ENODATA)?;
        // The provider needs neither, but a region of verbs is found by its address.
        info.domain.mr_mode = REGIONS;
        let domain = provider.fabric(&info.fabric)?.safe_domain(&info)?;
        let cq = domain.cq(&CqAttr {
            wait: WaitObj::Fd,
            ..CqAttr::default()
        })?;
        let av = domain.av(&AvAttr::default())?;
        Ok(Box::new(Self {
            kind,
            info,
            domain,
            cq,
            av,
            _registration: registration,
        }))
    }

    /// An endpoint at an address, or at one that the provider chooses.
    fn endpoint(
        &self,
        address: Option<Address>,
        shared: Option<&Arc<D::SharedRx>>,
    ) -> Result<Arc<D::Endpoint>> {
        let mut info = self.info.clone();
        if address.is_some() {
            info.src_addr = address;
        }
        let ep = self.domain.endpoint(&info, FidToken::NONE)?;
        ep.bind_cq(&self.cq, Flags::SEND | Flags::RECV)?;
        ep.bind_av(&self.av)?;
        if let Some(shared) = shared {
            ep.bind_srx(shared)?;
        }
        ep.enable()?;
        Ok(ep)
    }

    /// Takes the error that is next in the queue.
    fn take_error(&self, each: &mut dyn FnMut(Ended)) {
        let taken = self.cq.read_error(|error, _| {
            each(Ended::new(&error.entry, Err(error.err)));
        });
        // Another thread may have taken it.
        debug_assert!(matches!(taken, Ok(()) | Err(Errno::EAGAIN)));
    }
}

/// The address of an endpoint of shm by the 16 bits that peers know.
fn shm_name(port: u16) -> Address {
    Address::Str(format!("fi_ns://ripstop-verbs:{port:05}"))
}

impl<D: Domain> Net for Objects<D>
where
    D: Send + Sync,
    D::Cq: Send + Sync,
    D::Av: Send + Sync,
    D::Mr: Send + Sync,
    D::Endpoint: Send + Sync,
    D::SharedRx: Send + Sync,
{
    fn port(
        &self,
        wanted: Option<u16>,
        shared: Option<&dyn Shared>,
    ) -> Result<(Box<dyn Port>, u16)> {
        // One of another provider could not be bound.
        let shared = shared.and_then(|shared| (shared as &dyn Any).downcast_ref::<Srx<D>>());
        let shared = shared.map(|shared| &shared.0);
        if self.kind == Kind::Tcp {
            let own = self.info.src_addr.as_ref().and_then(Address::ip);
            let own = own.ok_or(Errno::EADDRNOTAVAIL)?;
            let address = SocketAddr::new(own.ip(), wanted.unwrap_or(0));
            let ep = self.endpoint(Some(Address::Ip(address)), shared)?;
            let name = ep.name()?;
            let port = name.ip().ok_or(Errno::EADDRNOTAVAIL)?.port();
            return Ok((Box::new(Ep::<D>(ep)), port));
        }
        for _ in 0..NAME_TRIES {
            let port = wanted.unwrap_or_else(|| fastrand::u16(1024..));
            match self.endpoint(Some(shm_name(port)), shared) {
                Ok(ep) => return Ok((Box::new(Ep::<D>(ep)), port)),
                Err(Errno::EADDRINUSE) if wanted.is_none() => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EADDRINUSE)
    }

    fn shared(&self) -> Result<Box<dyn Shared>> {
        let attr = RxAttr {
            caps: self.info.caps,
            ..RxAttr::default()
        };
        Ok(Box::new(Srx::<D>(self.domain.shared_rx(&attr)?)))
    }

    fn register(&self, memory: UserBuf, access: Flags, key: u32) -> Result<Box<dyn Region>> {
        let mr = self.domain.mr(&MrAttr {
            iov: vec![memory],
            access,
            offset: 0,
            requested_key: key.into(),
            flags: Flags::empty(),
            shared: Sharing::IfSealed,
        })?;
        Ok(Box::new(Mr::<D>(mr)))
    }

    fn insert(&self, ip: IpAddr, port: u16) -> Result<FiAddr> {
        self.av.insert(&match self.kind {
            Kind::Tcp => Address::Ip(SocketAddr::new(ip, port)),
            Kind::Shm => shm_name(port),
        })
    }

    fn remove(&self, peer: FiAddr) {
        // It is inserted, so nothing can be wrong.
        let _ = self.av.remove(peer);
    }

    fn drain(&self, each: &mut dyn FnMut(Ended)) {
        let read = self.cq.read(BATCH, |entry| each(Ended::new(entry, Ok(()))));
        if read == Err(Errno::EAVAIL) {
            self.take_error(each);
        }
    }

    fn wait(&self, timeout: Duration) {
        // Nothing is taken, so whatever the outcome is, the next look at the queue finds it too.
        let _ = self.cq.sread(0, 1, Some(timeout), |_| {});
    }

    fn wake(&self) {
        // The queue has a wait object, so it can be signalled.
        let _ = self.cq.signal();
    }
}

/// A region of a provider.
struct Mr<D: Domain>(Arc<D::Mr>);

impl<D: Domain> Region for Mr<D> where D::Mr: Send + Sync {}

impl<D: Domain> Drop for Mr<D> {
    fn drop(&mut self) {
        // A device does not wait for peers.
        self.0.try_close(true);
    }
}

/// A shared receive context of a provider.
struct Srx<D: Domain>(Arc<D::SharedRx>);

impl<D: Domain> Shared for Srx<D>
where
    D::SharedRx: Send + Sync,
{
    fn recv(&self, iov: &[UserBuf], context: usize) -> Result<()> {
        let kind = RecvKind::Tagged {
            tag: 0,
            ignore: u64::MAX,
        };
        self.0
            .recv(kind, iov, FiAddr::UNSPEC, context, Some(Flags::COMPLETION))
    }
}

/// An endpoint of a provider.
struct Ep<D: Domain>(Arc<D::Endpoint>);

/// A read or write of one piece of a peer's memory.
fn rma(remote: &[RmaIov], peer: FiAddr, context: usize) -> RmaCall<'_> {
    RmaCall {
        remote,
        peer,
        data: None,
        context,
        flags: Some(DELIVERED),
    }
}

impl<D: Domain> Port for Ep<D>
where
    D::Endpoint: Send + Sync,
{
    fn send(&self, iov: &[UserBuf], tag: u64, data: u64, to: FiAddr, context: usize) -> Result<()> {
        let flags = DELIVERED | Flags::REMOTE_CQ_DATA;
        let kind = SendKind::Tagged(tag);
        self.0.send(kind, iov, Some(data), to, context, Some(flags))
    }

    fn datagram(
        &self,
        message: UserBuf,
        tag: u64,
        data: u64,
        to: FiAddr,
        context: usize,
    ) -> Result<()> {
        let flags = ARRIVED | Flags::REMOTE_CQ_DATA;
        let kind = SendKind::Tagged(tag);
        self.0
            .send(kind, &[message], Some(data), to, context, Some(flags))
    }

    fn recv(
        &self,
        iov: &[UserBuf],
        tag: u64,
        ignore: u64,
        from: FiAddr,
        context: usize,
    ) -> Result<()> {
        let kind = RecvKind::Tagged { tag, ignore };
        self.0
            .recv(kind, iov, from, context, Some(Flags::COMPLETION))
    }

    fn read(&self, iov: &[UserBuf], remote: RmaIov, from: FiAddr, context: usize) -> Result<()> {
        self.0.read(iov, &rma(&[remote], from, context))
    }

    fn write(&self, iov: &[UserBuf], remote: RmaIov, to: FiAddr, context: usize) -> Result<()> {
        self.0.write(iov, &rma(&[remote], to, context))
    }

    fn atomic(
        &self,
        op: Atomic,
        [operand, compare]: [UserBuf; 2],
        result: UserBuf,
        remote: RmaIov,
        at: FiAddr,
        context: usize,
    ) -> Result<()> {
        let compare = [compare];
        let call = AtomicCall {
            kind: match op {
                Atomic::FetchAdd => AtomicKind::Fetch,
                Atomic::CompareSwap => AtomicKind::Compare,
            },
            datatype: Datatype::Uint64,
            op: match op {
                Atomic::FetchAdd => AtomicOp::Sum,
                Atomic::CompareSwap => AtomicOp::Cswap,
            },
            compare: match op {
                Atomic::FetchAdd => &[],
                Atomic::CompareSwap => &compare,
            },
            result: &[result],
            remote: &[remote],
            peer: at,
            data: None,
            context,
            flags: Some(DELIVERED),
        };
        self.0.atomic(&[operand], &call)
    }
}
