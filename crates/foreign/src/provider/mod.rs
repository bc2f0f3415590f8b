//! A library as a provider of the object model: the traits of `ripstop_core::provider` over the
//! objects of this crate, so that whoever drives Ripstop's own providers drives any library too.
//!
//! A buffer stays with the caller, as the traits have it, and so does its context: where the library
//! needs no memory there (modes `FI_CONTEXT` and `FI_CONTEXT2`) it gets the number itself, and no
//! operation costs more than the call.
//!
//! What there is no C call for here yet is refused with a line in the log: shared and scalable
//! contexts ([`missing`](Missing)), triggered operations and deferred work.

mod domain;
mod endpoint;
mod events;
mod memory;
mod missing;
mod queues;

use std::fmt;
use std::sync::Arc;

use ripstop_core::hints::Request;
use ripstop_core::log::Subsys;
use ripstop_core::provider::{self as model, Token};
use ripstop_core::registry::{Answer, ProviderInfo, Refusal};
use ripstop_core::{EventQueue, FabricAttr, Handle, Hints, Info, fi_warn};
use ripstop_types::{Errno, Flags, Mode, Result, Threading as Level, Version};

use crate::threading::{Shared, Single};
use crate::{Error, Library};

pub use domain::Domain;
pub use endpoint::Endpoint;
pub use events::PassiveEp;
pub use memory::{Av, Group, Mr};
pub use missing::Missing;
pub use queues::{Counter, Cq};

use events::{Origin, Pumps};

/// Who writes the lines in the log.
const LOG: &str = "foreign";

/// The modes that this crate takes on itself.
const OURS: Mode = Mode::CONTEXT.union(Mode::CONTEXT2);

/// Says why a call is refused.
#[cold]
fn told(error: Error) -> Errno {
    fi_warn!(LOG, Subsys::Core, "{error}");
    error.errno
}

/// Refuses a call that C is not asked about.
#[cold]
fn refuse<T>(errno: Errno, why: &str) -> Result<T> {
    fi_warn!(LOG, Subsys::Core, "{why}");
    Err(errno)
}

/// One provider of a library.
#[derive(Clone, Debug)]
pub struct ForeignProvider {
    library: Library,
    name: String,
}

impl ForeignProvider {
    /// The provider of this name, alone (`tcp`) or layered (`tcp;ofi_rxm`). Whether the library has it
    /// is seen by what it offers.
    #[must_use]
    pub fn new(library: Library, name: &str) -> Self {
        Self {
            library,
            name: name.to_owned(),
        }
    }

    /// The library.
    #[must_use]
    pub const fn library(&self) -> &Library {
        &self.library
    }

    /// The names of the library's providers.
    fn names(&self) -> String {
        let request = Request {
            version: Version::CURRENT.min(self.library.version()),
            flags: Flags::PROV_ATTR_ONLY,
            ..Request::default()
        };
        let found = self.library.getinfo(&request).unwrap_or_default();
        let names: Vec<String> = found.iter().map(crate::Info::provider).collect();
        names.join(", ")
    }
}

impl ProviderInfo for ForeignProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> Version {
        self.library.version()
    }

    fn api_version(&self) -> Version {
        self.library.version()
    }

    fn getinfo(&self, request: &Request<'_>) -> Answer {
        let mut hints = request.hints.cloned().unwrap_or_else(any);
        hints.mode |= OURS;
        // Where hints have none of these, some libraries have default flags that change what a
        // receive is, such as FI_MULTI_RECV.
        hints.tx.get_or_insert_default();
        hints.rx.get_or_insert_default();
        let fabric = hints.fabric.get_or_insert_default();
        fabric.prov_name.get_or_insert_with(|| self.name.clone());
        let found = self.library.getinfo(&Request {
            version: request.version.min(self.library.version()),
            hints: Some(&hints),
            ..*request
        });
        match found {
            Ok(infos) => {
                let origins = infos
                    .into_iter()
                    .map(|info| Origin::offered(info, hints.caps));
                Answer {
                    infos: origins.map(offer).collect(),
                    refusals: Vec::new(),
                }
            }
            Err(error) => {
                let (path, name) = (self.library.path().display(), &self.name);
                let there = self.names();
                let text = format!("{path} offers no such endpoint of {name}; it has {there}");
                Refusal::Failed(error.errno, text).into()
            }
        }
    }
}

/// Hints of a caller without any: as few as `fi_getinfo` needs to be told of a provider.
fn any() -> Hints {
    Hints {
        mode: Mode::all(),
        ..Hints::default()
    }
}

/// What a library offers, in the words of the object model. It leads back to what the library said,
/// and to the connection request it came with.
fn offer(origin: Origin) -> Info {
    let mut offer = words(&origin);
    offer.handle = Some(Handle::new(origin));
    offer
}

/// The same without a way back. Many libraries offer sources to those who have not asked, and take
/// longer to read a queue that tells them.
fn words(origin: &Origin) -> Info {
    let mut words = origin.info().attrs();
    words.mode -= OURS;
    if !origin.names_sources() {
        words.caps -= Flags::SOURCE;
        words.rx.caps -= Flags::SOURCE;
    }
    words
}

/// What the library said of an interface that it has offered.
fn origin(info: &Info) -> Result<Arc<Origin>> {
    let found = info.handle.as_ref().and_then(Handle::downcast::<Origin>);
    let same = |origin: &Arc<Origin>| {
        let mut given = info.clone();
        given.handle = None;
        given == words(origin)
    };
    match found.filter(same) {
        Some(origin) => Ok(origin),
        None => refuse(
            Errno::EINVAL,
            "these attributes are not as the library's fi_getinfo has answered: ask it for them",
        ),
    }
}

impl model::Provider for ForeignProvider {
    type Fabric = Fabric;

    fn fabric(&self, attr: &FabricAttr) -> Result<Arc<Fabric>> {
        let fabric = crate::Fabric::open_attr(&self.library, attr).map_err(told)?;
        Ok(Arc::new(Fabric {
            pumps: Pumps::new(fabric.clone()),
            fabric,
            attr: attr.clone(),
        }))
    }
}

/// An open fabric of a library.
pub struct Fabric {
    pumps: Pumps,
    fabric: crate::Fabric,
    attr: FabricAttr,
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fabric({:?})", self.attr.name)
    }
}

impl model::Fabric for Fabric {
    type SafeDomain = Domain<Shared>;
    type SerialDomain = Domain<Single>;
    type PassiveEp = PassiveEp;

    fn attr(&self) -> &FabricAttr {
        &self.attr
    }

    fn safe_domain(self: &Arc<Self>, info: &Info) -> Result<Arc<Domain<Shared>>> {
        if info.domain.threading != Level::Safe {
            return refuse(
                Errno::EINVAL,
                "a domain for any thread needs FI_THREAD_SAFE: ask fi_getinfo for that level",
            );
        }
        Domain::open(self, &*origin(info)?)
    }

    fn serial_domain(self: &Arc<Self>, info: &Info) -> Result<Arc<Domain<Single>>> {
        Domain::open(self, &*origin(info)?)
    }

    fn passive_ep(self: &Arc<Self>, info: &Info, token: Token) -> Result<Arc<PassiveEp>> {
        let pep = self.fabric.passive_ep(origin(info)?.info());
        let pep = pep.map_err(told)?;
        Ok(Arc::new(PassiveEp::new(self.clone(), pep, info, token)))
    }
}

impl Fabric {
    /// What passes the library's events on to this queue.
    fn pump(&self, eq: &Arc<EventQueue>) -> Result<Arc<events::Pump>> {
        self.pumps.to(eq)
    }
}
