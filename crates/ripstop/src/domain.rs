//! Domains.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ripstop_core::provider::Copies;
use ripstop_core::{Address, Info};
use ripstop_types::{EpType, Errno};

use crate::buf::Buf;
use crate::connection::{Connecting, Connection};
use crate::domain_attr::{self, Attr, Progress};
use crate::driver::Driver;
use crate::endpoint::Endpoint;
use crate::error::{Error, Operation, Result};
use crate::fabric::Fabric;
use crate::listener::Listener;
use crate::message::{Peer, Source};
use crate::port::Port;
use crate::region::{Access, NotRegistered, Region};
use crate::running::{Core, Running};
use crate::shared::SharedRegion;

/// A resource domain (man page `fi_domain(3)`): endpoints, their peers, and the progress of
/// all of them.
///
/// A cheap handle, which any thread may use at any time; clones are the same domain. It closes
/// when its last handle, endpoint, connection, listener and operation is gone. Calls of one
/// domain take turns; open several domains to use several cores fully.
#[derive(Clone, Debug)]
pub struct Domain(pub(crate) Arc<Running>);

impl Domain {
    /// The longest that a call or a task that waits polls before it sleeps, by default.
    pub const BUSY_POLL: Duration = domain_attr::BUSY_POLL;

    /// How long a peer that is connected to may take before it answers, by default; see
    /// [`DomainBuilder::answer_timeout`](crate::DomainBuilder::answer_timeout).
    pub const ANSWER_TIMEOUT: Duration = domain_attr::ANSWER_TIMEOUT;

    /// The interface it was opened on.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.core().info
    }

    /// The fabric it belongs to.
    #[must_use]
    pub fn fabric(&self) -> &Fabric {
        &self.core().fabric
    }

    /// Opens a reliable unconnected endpoint (`FI_EP_RDM`) at the source address of the
    /// hints; its actual address is [`Endpoint::address`].
    ///
    /// # Errors
    /// `FI_EINVAL` on a domain for connections; of `socket` and `bind`, such as
    /// `FI_EADDRINUSE`.
    pub fn endpoint(&self) -> Result<Endpoint> {
        self.endpoint_with(self.info())
    }

    /// As [`endpoint`](Self::endpoint), with attributes of its own: an [`Info`] of this
    /// domain with another source address, say.
    ///
    /// # Errors
    /// As for [`endpoint`](Self::endpoint).
    pub fn endpoint_with(&self, info: &Info) -> Result<Endpoint> {
        if info.ep.ep_type != EpType::Rdm || self.info().ep.ep_type != EpType::Rdm {
            return Err(Error::new(Errno::EINVAL, Operation::OpenEndpoint));
        }
        Port::open(&self.0, info, Operation::OpenEndpoint).map(Endpoint)
    }

    /// Starts to connect to a listener (`FI_EP_MSG`), with up to 256 bytes for it. The
    /// connection is there when the future is; a failure to start is told there as well.
    pub fn connect(&self, address: impl Into<Address>, data: &[u8]) -> Connecting {
        Connecting::start(&self.0, &address.into(), data)
    }

    /// Listens for connections (`FI_EP_MSG`) at the source address of the hints.
    ///
    /// # Errors
    /// `FI_EINVAL` on a domain of unconnected endpoints; of `bind` and `listen`, such as
    /// `FI_EADDRINUSE`.
    pub fn listen(&self) -> Result<Listener> {
        Listener::open(&self.0)
    }

    /// Registers a buffer, which peers may then read and write (`fi_mr_reg`, capability
    /// [`rma`](crate::Hints::rma)). It belongs to the [`Region`] until that gives it back.
    ///
    /// # Errors
    /// Of the provider, such as `FI_ENOMEM`, with the buffer.
    pub fn register<B: Buf>(
        &self,
        buf: B,
        access: Access,
    ) -> std::result::Result<Region<B>, NotRegistered<B>> {
        Region::register(&self.0, buf, access)
    }

    /// Registers `len` bytes of zeroes, at least one, which peers on the same machine may map
    /// ([`SharedRegion`]) if the domain's provider is `shm` and `access` is [`Access::ALL`]. Otherwise
    /// it is like any region.
    ///
    /// # Errors
    /// As for [`Domain::register`]; `FI_ENOMEM` without room, `FI_EMFILE`.
    pub fn register_shared(&self, len: usize, access: Access) -> Result<SharedRegion> {
        SharedRegion::register(&self.0, len, access)
    }

    /// Adds a peer to the address vector (`fi_av_insert`), so that it can be sent to and is
    /// recognised as a source. One address inserted twice has two handles.
    ///
    /// # Errors
    /// `FI_EINVAL` for an address that is not of the provider's format; `FI_ENOAV` on a
    /// domain for connections.
    pub fn insert(&self, address: impl Into<Address>) -> Result<Peer> {
        let address = address.into();
        let inserted = self.core().domain.insert(&address);
        let addr = inserted.map_err(|errno| {
            Error::new(errno, Operation::Address).with_peer(Some(address.clone()))
        })?;
        let domain = self.core().id;
        let peer = Peer { addr, domain };
        self.rename(&Source::Address(address), &Source::Peer(peer));
        Ok(peer)
    }

    /// Removes a peer (`fi_av_remove`). Its handle may be given to another peer later.
    ///
    /// # Errors
    /// `FI_EINVAL` for a peer that this domain does not hold.
    pub fn remove(&self, peer: Peer) -> Result<()> {
        let address = self.lookup(peer)?;
        let removed = self.core().domain.remove(peer.addr);
        removed.map_err(|errno| Error::new(errno, Operation::Address))?;
        self.rename(&Source::Peer(peer), &Source::Address(address));
        Ok(())
    }

    /// Messages that dropped receives had given back are from a peer whose place has changed.
    fn rename(&self, before: &Source, now: &Source) {
        self.core()
            .with(|table, later| table.rename_given_back(before, now, later));
    }

    /// The address of a peer (`fi_av_lookup`).
    ///
    /// # Errors
    /// `FI_EINVAL` for a peer that this domain does not hold.
    pub fn lookup(&self, peer: Peer) -> Result<Address> {
        if peer.domain != self.core().id {
            return Err(Error::new(Errno::EINVAL, Operation::Address));
        }
        let found = self.core().domain.lookup(peer.addr);
        found.map_err(|errno| Error::new(errno, Operation::Address))
    }

    /// Makes progress once, without blocking, and wakes the tasks whose operations are done.
    /// Returns whether anything came of it. For programs that poll in a loop of their own.
    pub fn progress(&self) -> bool {
        self.core().advance()
    }

    /// Runs a future on this thread, driving the domain while it waits: a runtime for one
    /// future, with any kind of [`Progress`]. It polls for the time of
    /// [`busy_poll`](crate::DomainBuilder::busy_poll), then sleeps.
    ///
    /// The future may wait for other things as well, if something else wakes it for them.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        self.core().block_on(|cx| future.as_mut().poll(cx))
    }

    /// What drives the domain from an event loop. With [`Progress::Background`] nobody needs
    /// it.
    #[must_use]
    pub fn driver(&self) -> Driver {
        Driver(Arc::clone(&self.0))
    }

    /// Operations whose outcome nobody has taken yet, dropped ones that still run included.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.core().with(|table, _| table.len())
    }

    /// The ways that payloads of 4 KiB and more have taken since the domain was opened. `None` of a provider
    /// that has only one (tcp).
    #[must_use]
    pub fn copies(&self) -> Option<Copies> {
        self.core().domain.copies()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0.core
    }
}

/// A domain about to be opened; from [`Fabric::domain`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until `open`"]
pub struct DomainBuilder<'a> {
    fabric: &'a Fabric,
    info: &'a Info,
    attr: Attr,
}

impl DomainBuilder<'_> {
    /// Who makes progress; [`Progress::Background`] unless said otherwise.
    pub const fn progress(mut self, progress: Progress) -> Self {
        self.attr.progress = progress;
        self
    }

    /// The longest that a wait polls before it sleeps, with every kind of [`Progress`]: of calls that
    /// wait (`wait`, `wait_timeout`, `block_on`) and of tasks that await;
    /// [`Domain::BUSY_POLL`] unless said otherwise. Counted from the last operation that began or was
    /// over, for all tasks of the domain together.
    ///
    /// It is a bound: a domain whose waits were longer four times in a row polls only in every 16th of
    /// them, until one of them is short again. A task that polls gives its runtime a turn every 20 us,
    /// and sees to it that other tasks get theirs when operations follow one another without a pause.
    ///
    /// `Duration::ZERO` switches polling off, which saves the processor. `Duration::MAX` never
    /// sleeps: the lowest latency, for a thread with a core of its own, and a runtime that is busy as
    /// long as a task waits.
    pub const fn busy_poll(mut self, time: Duration) -> Self {
        self.attr.busy_poll = time;
        self
    }

    /// How long a peer that is connected to may take before it answers;
    /// [`Domain::ANSWER_TIMEOUT`] unless this or the environment (`FI_TCP_ANSWER_TIMEOUT`,
    /// `FI_SHM_ANSWER_TIMEOUT`, `FI_RIPSTOP_RXM_ANSWER_TIMEOUT`, milliseconds) says otherwise.
    ///
    /// The kernel connects to any process that listens. One that speaks the protocol answers as
    /// soon as its program makes progress; one that does not never does. Nothing else tells them
    /// apart, so when the time is over, what was sent to the peer ends with `FI_ETIMEDOUT`. Give
    /// more time where peers compute for long without making progress, as programs of libfabric
    /// with manual progress do.
    pub const fn answer_timeout(mut self, time: Duration) -> Self {
        self.attr.answer_timeout = Some(time);
        self
    }

    pub(crate) const fn attr(mut self, attr: Attr) -> Self {
        self.attr = attr;
        self
    }

    /// Opens the domain, its completion queue, and its address vector or event queue.
    ///
    /// # Errors
    /// `FI_EINVAL` for an interface of another provider, `FI_EMFILE` when descriptors run
    /// out, `FI_EAGAIN` when no thread can be started.
    pub fn open(self) -> Result<Domain> {
        self.start()
            .map_err(|errno| Error::new(errno, Operation::OpenDomain))
    }

    fn start(self) -> std::result::Result<Domain, Errno> {
        let core = Core::open(self.fabric, self.info, &self.attr)?;
        Running::start(core).map(Domain)
    }
}

impl Fabric {
    /// Starts to open a domain on an interface of this fabric.
    pub fn domain<'a>(&'a self, info: &'a Info) -> DomainBuilder<'a> {
        DomainBuilder {
            fabric: self,
            info,
            attr: Attr::default(),
        }
    }
}

impl Endpoint {
    /// The domain it belongs to.
    #[must_use]
    pub fn domain(&self) -> Domain {
        Domain(Arc::clone(&self.0.running))
    }
}

impl Connection {
    /// The domain it belongs to.
    #[must_use]
    pub fn domain(&self) -> Domain {
        Domain(Arc::clone(&self.port.running))
    }
}
