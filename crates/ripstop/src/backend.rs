//! The enabled providers behind one type each, chosen by name when a fabric is opened.
//!
//! A call costs one predictable branch: each variant holds a provider's own objects, so that
//! the rest is the provider's own code. Adding a provider is a line wherever one has a `cfg` here.

#[cfg(not(any(feature = "tcp", feature = "shm", feature = "verbs")))]
compile_error!(
    "without a provider there is nothing to open: enable the feature `tcp`, `shm` or `verbs`"
);

#[cfg(feature = "lnx")]
use ripstop_lnx::LnxProvider;
#[cfg(feature = "shm")]
use ripstop_shm::ShmProvider;
#[cfg(feature = "tcp")]
use ripstop_tcp::{RxmTcpProvider, TcpProvider};
#[cfg(feature = "verbs")]
use ripstop_verbs::RxmVerbsProvider;

use std::os::fd::BorrowedFd;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ripstop_core::eq::EventQueue;
use ripstop_core::provider::{
    self, AddressVector as _, AtomicCall, AvAttr, CompletionQueue as _, Copies, CqAttr,
    Domain as _, Endpoint as _, Fabric as _, MemoryRegion as _, MrAttr, PassiveEp as _, Provider,
    RmaCall, SendKind,
};
use ripstop_core::registry::{Registration, registry};
use ripstop_core::{Address, FidToken, Info};
use ripstop_mem::UserBuf;
use ripstop_types::{
    Completion, CompletionError, Context, EpType, Errno, FiAddr, Flags, Result, RmaIov, WaitObj,
};

use crate::message::{Action, Remote, Request};

type FabricOf<P> = Arc<<P as Provider>::Fabric>;
type DomainOf<P> = <<P as Provider>::Fabric as provider::Fabric>::SafeDomain;
type ObjectsOf<P> = Objects<DomainOf<P>>;
type EndpointOf<P> = Arc<<DomainOf<P> as provider::Domain>::Endpoint>;
type MrOf<P> = Arc<<DomainOf<P> as provider::Domain>::Mr>;
type PassiveOf<P> = Arc<<<P as Provider>::Fabric as provider::Fabric>::PassiveEp>;

/// Declares enums of an object of any enabled provider.
macro_rules! any {
    ($($(#[$about:meta])* $any:ident($object:ident);)*) => {$(
        $(#[$about])*
        #[derive(Debug)]
        pub(crate) enum $any {
            #[cfg(feature = "tcp")]
            Tcp($object<TcpProvider>),
            #[cfg(feature = "tcp")]
            Rxm($object<RxmTcpProvider>),
            #[cfg(feature = "shm")]
            Shm($object<ShmProvider>),
            #[cfg(feature = "lnx")]
            Lnx($object<LnxProvider>),
            #[cfg(feature = "verbs")]
            RxmVerbs($object<RxmVerbsProvider>),
        }
    )*};
}

any! {
    /// An open fabric.
    AnyFabric(FabricOf);
    /// An open domain with its completion queue and address vector.
    AnyDomain(ObjectsOf);
    /// A registered region. Once it is dropped, no peer reaches its memory.
    AnyMr(MrOf);
    /// An active endpoint. Once it is dropped, its provider uses no buffer posted to it.
    AnyEndpoint(EndpointOf);
    /// A listening endpoint.
    AnyPassive(PassiveOf);
}

/// Evaluates an expression for the object of whatever provider it is. With the name of an enum
/// behind it, its success becomes the variant of the same provider there.
macro_rules! each {
    ($any:expr, $object:ident => $body:expr) => {
        match *$any {
            #[cfg(feature = "tcp")]
            Self::Tcp(ref $object) => $body,
            #[cfg(feature = "tcp")]
            Self::Rxm(ref $object) => $body,
            #[cfg(feature = "shm")]
            Self::Shm(ref $object) => $body,
            #[cfg(feature = "lnx")]
            Self::Lnx(ref $object) => $body,
            #[cfg(feature = "verbs")]
            Self::RxmVerbs(ref $object) => $body,
        }
    };
    ($any:expr, $object:ident => $body:expr, $into:ident) => {
        match *$any {
            #[cfg(feature = "tcp")]
            Self::Tcp(ref $object) => $body.map($into::Tcp),
            #[cfg(feature = "tcp")]
            Self::Rxm(ref $object) => $body.map($into::Rxm),
            #[cfg(feature = "shm")]
            Self::Shm(ref $object) => $body.map($into::Shm),
            #[cfg(feature = "lnx")]
            Self::Lnx(ref $object) => $body.map($into::Lnx),
            #[cfg(feature = "verbs")]
            Self::RxmVerbs(ref $object) => $body.map($into::RxmVerbs),
        }
    };
}

/// Methods that only call those of the same name of the provider's object.
macro_rules! forward {
    ($object:ident => $called:expr; $(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[inline]
        pub(crate) fn $name(&self, $($arg: $type),*) -> $result {
            each!(self, $object => $called.$name($($arg),*))
        }
    )*};
}

/// A provider, registered for `fi_getinfo`.
struct Listed<P> {
    provider: Arc<P>,
    _registration: Registration,
}

impl<P: Provider> Listed<P> {
    fn new(provider: fn() -> P) -> Self {
        // First of all, so that logging is set up when the provider reads its parameters.
        let registry = registry();
        let provider = Arc::new(provider());
        Self {
            _registration: registry.register(Arc::clone(&provider) as _),
            provider,
        }
    }
}

#[cfg(feature = "tcp")]
static TCP: LazyLock<Listed<TcpProvider>> = LazyLock::new(|| Listed::new(TcpProvider::new));
#[cfg(feature = "tcp")]
static RXM: LazyLock<Listed<RxmTcpProvider>> = LazyLock::new(|| Listed::new(RxmTcpProvider::new));
#[cfg(feature = "shm")]
static SHM: LazyLock<Listed<ShmProvider>> = LazyLock::new(|| Listed::new(ShmProvider::new));
#[cfg(feature = "lnx")]
static LNX: LazyLock<Listed<LnxProvider>> = LazyLock::new(|| Listed::new(LnxProvider::new));
#[cfg(feature = "verbs")]
static RXM_VERBS: LazyLock<Listed<RxmVerbsProvider>> =
    LazyLock::new(|| Listed::new(RxmVerbsProvider::new));

/// Sees to it that the registry has the enabled providers.
pub(crate) fn register() {
    #[cfg(feature = "tcp")]
    LazyLock::force(&TCP);
    #[cfg(feature = "tcp")]
    LazyLock::force(&RXM);
    #[cfg(feature = "shm")]
    LazyLock::force(&SHM);
    #[cfg(feature = "lnx")]
    LazyLock::force(&LNX);
    #[cfg(feature = "verbs")]
    LazyLock::force(&RXM_VERBS);
}

impl AnyFabric {
    /// Opens the fabric of an `fi_info` at the provider it names.
    pub(crate) fn open(info: &Info) -> Result<Self> {
        register();
        match info.prov_name() {
            #[cfg(feature = "tcp")]
            "tcp" => TCP.provider.fabric(&info.fabric).map(Self::Tcp),
            #[cfg(feature = "tcp")]
            "tcp;ofi_rxm" => RXM.provider.fabric(&info.fabric).map(Self::Rxm),
            #[cfg(feature = "shm")]
            "shm" => SHM.provider.fabric(&info.fabric).map(Self::Shm),
            #[cfg(feature = "lnx")]
            "lnx" => LNX.provider.fabric(&info.fabric).map(Self::Lnx),
            #[cfg(feature = "verbs")]
            "verbs;ofi_rxm" => {
                let fabric = RXM_VERBS.provider.fabric(&info.fabric);
                fabric.map(Self::RxmVerbs)
            }
            _ => Err(Errno::ENODATA),
        }
    }

    pub(crate) fn domain(&self, info: &Info) -> Result<AnyDomain> {
        each!(self, fabric => Objects::open(fabric.safe_domain(info)?, info), AnyDomain)
    }

    pub(crate) fn listen(
        &self,
        info: &Info,
        eq: &Arc<EventQueue>,
        token: FidToken,
    ) -> Result<AnyPassive> {
        fn open<F: provider::Fabric>(
            fabric: &Arc<F>,
            info: &Info,
            eq: &Arc<EventQueue>,
            token: FidToken,
        ) -> Result<Arc<F::PassiveEp>> {
            let passive = fabric.passive_ep(info, token)?;
            passive.bind_eq(eq)?;
            passive.listen()?;
            Ok(passive)
        }
        each!(self, fabric => open(fabric, info, eq, token), AnyPassive)
    }
}

/// The objects a domain has one of.
#[derive(Debug)]
pub(crate) struct Objects<D: provider::Domain> {
    domain: Arc<D>,
    cq: Arc<D::Cq>,
    av: Option<Arc<D::Av>>,
}

impl<D: provider::Domain> Objects<D> {
    fn open(domain: Arc<D>, info: &Info) -> Result<Self> {
        let cq = domain.cq(&CqAttr {
            wait: WaitObj::Fd,
            ..CqAttr::default()
        })?;
        let av = match info.ep.ep_type {
            EpType::Msg => None,
            _ => Some(domain.av(&AvAttr::default())?),
        };
        Ok(Self { domain, cq, av })
    }

    fn av(&self) -> Result<&Arc<D::Av>> {
        self.av.as_ref().ok_or(Errno::ENOAV)
    }

    fn endpoint(
        &self,
        info: &Info,
        eq: Option<&Arc<EventQueue>>,
        token: FidToken,
    ) -> Result<Arc<D::Endpoint>> {
        let ep = self.domain.endpoint(info, token)?;
        ep.bind_cq(&self.cq, Flags::SEND | Flags::RECV)?;
        if let Some(av) = &self.av {
            ep.bind_av(av)?;
        }
        if let Some(eq) = eq {
            ep.bind_eq(eq)?;
        }
        ep.enable()?;
        Ok(ep)
    }
}

impl AnyDomain {
    /// Opens an endpoint, bound and enabled.
    pub(crate) fn endpoint(
        &self,
        info: &Info,
        eq: Option<&Arc<EventQueue>>,
        token: FidToken,
    ) -> Result<AnyEndpoint> {
        each!(self, objects => objects.endpoint(info, eq, token), AnyEndpoint)
    }

    pub(crate) fn register(&self, attr: &MrAttr) -> Result<AnyMr> {
        each!(self, objects => objects.domain.mr(attr), AnyMr)
    }

    forward! {
        objects => objects.cq;
        fn read(max: usize, entry: impl FnMut(&Completion)) -> Result<usize>;
        fn read_error(entry: impl FnOnce(&CompletionError, &[u8])) -> Result<()>;
        fn try_wait() -> Result<()>;
        fn wait_fd() -> Result<BorrowedFd<'_>>;
    }

    forward! {
        objects => objects.domain;
        fn set_answer_timeout(time: Duration) -> ();
        fn set_default_answer_timeout(time: Duration) -> ();
        fn copies() -> Option<Copies>;
    }

    forward! {
        objects => objects.av()?;
        fn insert(address: &Address) -> Result<FiAddr>;
        fn remove(peer: FiAddr) -> Result<()>;
        fn lookup(peer: FiAddr) -> Result<Address>;
    }
}

impl AnyMr {
    forward! {
        mr => mr;
        fn key() -> u64;
        // Whether the registration has ended: if no peer is at work there, or with `evict`. Never
        // waits.
        fn try_close(evict: bool) -> bool;
    }
}

/// A buffer of an atomic, or none.
fn given(buf: &UserBuf) -> &[UserBuf] {
    match std::slice::from_ref(buf) {
        [only] if only.is_empty() => &[],
        some => some,
    }
}

/// What a read or write is, in the provider's words.
fn rma(
    remote: &[RmaIov],
    peer: FiAddr,
    data: Option<u64>,
    context: Context,
    flags: Option<Flags>,
) -> RmaCall<'_> {
    RmaCall {
        remote,
        peer,
        data,
        context,
        flags: flags.map(|flags| match data {
            Some(_) => flags | Flags::REMOTE_CQ_DATA,
            None => flags,
        }),
    }
}

impl AnyEndpoint {
    #[inline]
    pub(crate) fn post(&self, request: &Request, iov: &[UserBuf], context: Context) -> Result<()> {
        let peer = request.peer;
        match request.action {
            Action::Send { kind, data, flags } => {
                each!(self, ep => ep.send(kind, iov, data, peer, context, flags))
            }
            Action::Recv(kind) => each!(self, ep => ep.recv(kind, iov, peer, context, None)),
            Action::Discard(kind) => {
                let flags = Flags::PEEK | Flags::DISCARD;
                each!(self, ep => ep.recv(kind, &[], peer, context, Some(flags)))
            }
            _ => self.post_one_sided(request, iov, context),
        }
    }

    fn post_one_sided(&self, request: &Request, iov: &[UserBuf], context: Context) -> Result<()> {
        let len = || iov.iter().map(|buf| buf.len() as u64).sum();
        let peer = request.peer;
        match request.action {
            Action::Read(at) => {
                let remote = [at.iov(len())];
                let call = rma(&remote, peer, None, context, None);
                each!(self, ep => ep.read(iov, &call))
            }
            Action::Write { to, data, flags } => {
                let remote = [to.iov(len())];
                let call = rma(&remote, peer, data, context, Some(flags));
                each!(self, ep => ep.write(iov, &call))
            }
            Action::Atomic {
                kind,
                datatype,
                op,
                at,
            } => {
                let [operand, compare, result] = iov else {
                    return Err(Errno::EINVAL);
                };
                let call = AtomicCall {
                    kind,
                    datatype,
                    op,
                    compare: given(compare),
                    result: given(result),
                    remote: &[at],
                    peer,
                    data: None,
                    context,
                    flags: Some(Flags::DELIVERY_COMPLETE),
                };
                each!(self, ep => ep.atomic(given(operand), &call))
            }
            Action::Send { .. } | Action::Recv(_) | Action::Discard(_) => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn inject_write(&self, buf: UserBuf, to: Remote, dest: FiAddr) -> Result<()> {
        let remote = to.iov(buf.len() as u64);
        each!(self, ep => ep.inject_write(buf, remote, None, dest))
    }

    forward! {
        ep => ep;
        fn inject(kind: SendKind, buf: UserBuf, data: Option<u64>, dest: FiAddr) -> Result<()>;
        fn cancel(context: Context) -> Result<()>;
        fn name() -> Result<Address>;
        fn peer() -> Result<Address>;
        fn connect(address: &Address, data: &[u8]) -> Result<()>;
        fn accept(data: &[u8]) -> Result<()>;
        fn shutdown() -> Result<()>;
    }
}

impl AnyPassive {
    forward! {
        passive => passive;
        fn name() -> Result<Address>;
        fn reject(request: &Info, data: &[u8]) -> Result<()>;
    }
}
