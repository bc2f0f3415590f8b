//! A library as a provider of the object model: the traits of `ripstop_core::provider` over the
//! objects of this crate, so that whoever drives Ripstop's own providers drives any library too.
//!
//! A buffer stays with the caller, as the traits have it, and so does its context: where the library
//! needs no memory there (modes `FI_CONTEXT` and `FI_CONTEXT2`) it gets the number itself, and no
//! operation costs more than the call.
//!
//! What needs memory at a context of a library that else needs none, claims and triggered operations,
//! is refused with a line in the log unless the provider is [`verbatim`](ForeignProvider::verbatim);
//! so are receives of [another provider](Missing).

mod domain;
mod endpoint;
mod events;
mod memory;
mod missing;
mod queues;
mod scalable;

use std::sync::Arc;

use ripstop_core::hints::Request;
use ripstop_core::log::Subsys;
use ripstop_core::provider::{self as model, Token};
use ripstop_core::registry::{Answer, ProviderInfo, Refusal};
use ripstop_core::{FabricAttr, Hints, Info, fi_warn};
use ripstop_types::{Errno, Flags, Mode, MrMode, Result, Threading as Level, Version};

use crate::eq::origin::{OURS, Origin};
use crate::threading::{Shared, Single, Threading};
use crate::{Domain, Error, Fabric, Library, PassiveEp};

pub use crate::eq::origin::text;
pub use missing::Missing;

/// Who writes the lines in the log.
const LOG: &str = "foreign";

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
    verbatim: bool,
}

impl ForeignProvider {
    /// The provider of this name, alone (`tcp`) or layered (`tcp;ofi_rxm`). Whether the library has it
    /// is seen by what it offers.
    #[must_use]
    pub fn new(library: Library, name: &str) -> Self {
        Self {
            library,
            name: name.to_owned(),
            verbatim: false,
        }
    }

    /// The same, with nothing kept from the library or from the caller: it is asked for what the
    /// caller asks for, all that it offers is shown, and every operation has memory at its context.
    /// For suites that test whether a library does as it should, and keep to the threading level
    /// themselves.
    #[must_use]
    pub const fn verbatim(mut self) -> Self {
        self.verbatim = true;
        self
    }

    /// What the library answers to a request, as it is (`fi_getinfo`).
    ///
    /// # Errors
    ///
    /// `FI_ENODATA` when nothing matches, and whatever else the library says.
    pub fn offers(&self, request: &Request<'_>) -> crate::Result<Vec<Info>> {
        let found = self.library.getinfo(request)?;
        Ok(found
            .into_iter()
            .map(|info| Origin::verbatim(info).offer())
            .collect())
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
                    infos: origins.map(Origin::offer).collect(),
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

impl model::Provider for ForeignProvider {
    type Fabric = Fabric;

    fn fabric(&self, attr: &FabricAttr) -> Result<Arc<Fabric>> {
        let fabric = Fabric::open(&self.library, attr, self.verbatim);
        fabric.map(Arc::new).map_err(told)
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
        if info.domain.threading != Level::Safe && !self.verbatim {
            return refuse(
                Errno::EINVAL,
                "a domain for any thread needs FI_THREAD_SAFE: ask fi_getinfo for that level",
            );
        }
        domain(self, info)
    }

    fn serial_domain(self: &Arc<Self>, info: &Info) -> Result<Arc<Domain<Single>>> {
        domain(self, info)
    }

    fn passive_ep(self: &Arc<Self>, info: &Info, token: Token) -> Result<Arc<PassiveEp>> {
        let pep = self.open_pep(info, token).map_err(told)?;
        Ok(pep.shared())
    }

    fn needs_lock(info: &Info) -> bool {
        info.domain.threading == Level::Safe
    }
}

fn domain<M: Threading>(fabric: &Arc<Fabric>, info: &Info) -> Result<Arc<Domain<M>>> {
    let origin = fabric.origin("fi_domain", info).map_err(told)?;
    if !fabric.verbatim && origin.info().mr_mode().contains(MrMode::LOCAL) {
        return refuse(
            Errno::EINVAL,
            "no descriptors of local memory are kept here: ask fi_getinfo without FI_MR_LOCAL",
        );
    }
    fabric.open_domain(&origin).map(Arc::new).map_err(told)
}
