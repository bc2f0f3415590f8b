//! Fabrics, and how a domain is opened.

use std::sync::Arc;
use std::time::Duration;

use ripstop_core::params;
use ripstop_core::registry::{Lease, registry};
use ripstop_core::{FabricAttr, Info};
use ripstop_types::Errno;

use crate::backend::AnyFabric;
use crate::domain::{Domain, Progress};
use crate::driver::{Core, Running};
use crate::error::{Error, Operation, Result};

/// A fabric: the network that domains of one provider share (man page `fi_fabric(3)`).
///
/// A cheap handle; clones are the same fabric. It closes with its last handle and domain.
#[derive(Clone, Debug)]
pub struct Fabric(Arc<Open>);

#[derive(Debug)]
struct Open {
    object: AnyFabric,
    attr: FabricAttr,
    /// Keeps the provider from leaving the registry.
    _lease: Option<Lease>,
}

impl Fabric {
    /// Opens the fabric of an interface that [`Hints::getinfo`](crate::Hints::getinfo) gave.
    ///
    /// # Errors
    /// `FI_ENODATA` when the provider it names is not built in.
    pub fn open(info: &Info) -> Result<Self> {
        let failed = |errno| Error::new(errno, Operation::OpenFabric);
        let object = AnyFabric::open(info).map_err(failed)?;
        Ok(Self(Arc::new(Open {
            object,
            attr: info.fabric.clone(),
            _lease: registry().lease(info.prov_name()),
        })))
    }

    /// The attributes it was opened with.
    #[must_use]
    pub fn attr(&self) -> &FabricAttr {
        &self.0.attr
    }

    /// Starts to open a domain on an interface of this fabric.
    pub fn domain<'a>(&'a self, info: &'a Info) -> DomainBuilder<'a> {
        DomainBuilder {
            fabric: self,
            info,
            attr: Attr::default(),
        }
    }

    pub(crate) fn object(&self) -> &AnyFabric {
        &self.0.object
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

/// What a domain is opened with, besides its interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attr {
    pub(crate) progress: Progress,
    pub(crate) busy_poll: Duration,
    /// What the program says.
    pub(crate) answer_timeout: Option<Duration>,
}

impl Default for Attr {
    fn default() -> Self {
        Self {
            progress: Progress::default(),
            busy_poll: Domain::BUSY_POLL,
            answer_timeout: None,
        }
    }
}

impl Attr {
    /// The time for an answer, or nothing where the environment says it.
    pub(crate) fn answer_timeout(&self, info: &Info) -> Option<Duration> {
        let said = || {
            let value = params().raw(Some(info.prov_name()), "answer_timeout");
            value.is_ok()
        };
        match self.answer_timeout {
            None if said() => None,
            None => Some(Domain::ANSWER_TIMEOUT),
            given => given,
        }
    }
}

impl DomainBuilder<'_> {
    /// Who makes progress; [`Progress::Background`] unless said otherwise.
    pub const fn progress(mut self, progress: Progress) -> Self {
        self.attr.progress = progress;
        self
    }

    /// How long calls that wait (`wait`, `wait_timeout`, `block_on`) poll before they sleep;
    /// [`Domain::BUSY_POLL`] unless said otherwise. `Duration::ZERO` saves the processor,
    /// `Duration::MAX` never sleeps: the lowest latency, for a thread with a core of its own.
    pub const fn busy_poll(mut self, time: Duration) -> Self {
        self.attr.busy_poll = time;
        self
    }

    /// How long a peer that is connected to may take before it answers;
    /// [`Domain::ANSWER_TIMEOUT`] unless this or the environment (`FI_TCP_ANSWER_TIMEOUT`,
    /// `FI_SHM_ANSWER_TIMEOUT`, milliseconds) says otherwise.
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
