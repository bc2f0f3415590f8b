//! The providers of this process, and `fi_getinfo(3)` over all of them.
//!
//! A provider [`register`](Registry::register)s itself and stays listed while its
//! [`Registration`] lives.

mod answer;
mod order;

use std::sync::{Arc, LazyLock, Once};

use parking_lot::{Mutex, RwLock};
use ripstop_types::{Errno, Version};

use crate::filter::Filter;
use crate::hints::{ProviderName, Request};
use crate::info::Info;
use crate::log::Subsys;
use crate::setup::params;

pub use answer::{Answer, NoInfo, Refusal};

/// What the registry needs of a provider.
pub trait ProviderInfo: Send + Sync + 'static {
    /// The name, as in `FI_PROVIDER` and in hints.
    fn name(&self) -> &str;

    /// The provider's own version.
    fn version(&self) -> Version;

    /// The newest interface version it implements.
    fn api_version(&self) -> Version {
        Version::CURRENT
    }

    /// What it offers to a request, and why not more.
    fn getinfo(&self, request: &Request<'_>) -> Answer;

    /// What a user should know of it on this machine that no attribute says, a sentence each
    /// (`fi_info -v`).
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Refusals that are warned of at most.
const TOLD: usize = 16;

type Listed = Arc<dyn ProviderInfo>;

fn is_named(provider: &Listed, name: &str) -> bool {
    provider.name().eq_ignore_ascii_case(name)
}

/// A set of providers.
pub struct Registry {
    providers: RwLock<Vec<Listed>>,
    filter: Filter,
    filter_checked: Once,
    /// Refusals that were warned of.
    told: Mutex<Vec<Refusal>>,
}

impl core::fmt::Debug for Registry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let visible = self.visible();
        f.debug_list()
            .entries(visible.iter().map(|provider| provider.name()))
            .finish()
    }
}

/// The providers of this process. The first call reads the parameters of the core.
#[must_use]
pub fn registry() -> &'static Registry {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
        let only = params().declare_optional::<String>(
            None,
            "provider",
            "Only use specified provider (default: all available)",
        );
        Registry::new(Filter::parse(only.as_deref()))
    });
    &REGISTRY
}

impl Registry {
    /// A set without providers; `filter` is what `FI_PROVIDER` lets in.
    #[must_use]
    pub const fn new(filter: Filter) -> Self {
        Self {
            providers: RwLock::new(Vec::new()),
            filter,
            filter_checked: Once::new(),
            told: Mutex::new(Vec::new()),
        }
    }

    /// Adds a provider. It is listed until the registration is dropped; of two with one name, the
    /// one with the higher version counts.
    pub fn register(&'static self, provider: Arc<dyn ProviderInfo>) -> Registration {
        let (name, version) = (provider.name(), provider.version());
        crate::fi_info!(
            "core",
            Subsys::Core,
            "registering provider: {name} ({version})"
        );
        self.providers.write().push(Arc::clone(&provider));
        Registration {
            registry: self,
            provider,
        }
    }

    /// The provider to open something of: by its full name or, as `fi_fabric(3)` does with
    /// the name of an interface, by its topmost layer.
    #[must_use]
    pub fn provider(&self, name: &str) -> Option<Arc<dyn ProviderInfo>> {
        let providers = self.providers.read();
        let top = name.rsplit(';').next().unwrap_or(name);
        let found = winner(&providers, name).or_else(|| winner(&providers, top));
        found.cloned()
    }

    /// Answers a request by all providers, best first.
    ///
    /// # Errors
    /// [`NoInfo`]: [`Errno::ENODATA`] and why each provider refuses, or what is wrong with
    /// the request itself.
    pub fn getinfo(&self, request: &Request<'_>) -> Result<Vec<Info>, NoInfo> {
        request.validate().map_err(NoInfo::from)?;
        if request.lists_providers() {
            let visible = self.visible();
            let only = |p: &Listed| Info::of_provider(Some(p.name().to_owned()), p.version().0);
            return Ok(visible.iter().map(only).collect());
        }
        let (mut infos, mut refusals) = (Vec::new(), Vec::new());
        for (name, answer) in self.ask(request) {
            infos.extend(answer.infos);
            refusals.extend(answer.refusals.into_iter().map(|why| (name.clone(), why)));
        }
        order::prefer_native(&mut infos);
        if infos.is_empty() {
            Err(NoInfo {
                errno: Errno::ENODATA,
                refusals,
            })
        } else {
            Ok(infos)
        }
    }

    /// What each provider, by name, answers and refuses (`fi_info --why`).
    #[must_use]
    pub fn ask(&self, request: &Request<'_>) -> Vec<(String, Answer)> {
        self.filter_checked.call_once(|| self.check_filter());
        let ask = |provider: &Listed| {
            let name = provider.name().to_owned();
            let answer = self.ask_one(&**provider, request);
            self.log_refusals(&name, &answer, request);
            (name, answer)
        };
        self.visible().iter().map(ask).collect()
    }

    fn ask_one(&self, provider: &dyn ProviderInfo, request: &Request<'_>) -> Answer {
        let name = provider.name();
        // A list of what to use names core providers; what is layered upon them comes along.
        let is_layer = name.starts_with(order::LAYER_PREFIX) && !self.filter.is_negated();
        if !is_layer && !self.filter.allows_provider(name) {
            return Refusal::Filtered.into();
        }
        if let Some(asked) = request
            .prov_name()
            .filter(|asked| !ProviderName(asked).concerns(name))
        {
            return Refusal::NotAsked(asked.to_owned()).into();
        }
        if provider.api_version() < request.version {
            return Refusal::TooOld(provider.api_version()).into();
        }
        let mut answer = provider.getinfo(request);
        for info in &mut answer.infos {
            info.fabric.prov_name.get_or_insert_with(|| name.to_owned());
            info.fabric.prov_version = provider.version().0;
            info.fabric.api_version = request.version;
        }
        let before = answer.infos.len();
        answer
            .infos
            .retain(|info| self.filter.allows_layered(info.prov_name()));
        if answer.infos.len() < before {
            answer.refusals.push(Refusal::Filtered);
        }
        answer
    }

    /// Refusals of a provider that the caller named and that offers nothing are warnings, as
    /// far as they help and are news; others are details. A program that tries one question
    /// after the other is not told the same again and again.
    fn log_refusals(&self, name: &str, answer: &Answer, request: &Request<'_>) {
        let asked = request.prov_name();
        let named = asked.is_some_and(|asked| asked.eq_ignore_ascii_case(name));
        let helpful = match named && answer.infos.is_empty() {
            true => answer.closest(),
            false => Vec::new(),
        };
        for why in &answer.refusals {
            let helps = helpful.iter().any(|&one| core::ptr::eq(one, why));
            if helps && self.is_news(why) {
                crate::fi_warn!("core", Subsys::Core, "fi_getinfo: provider {name}: {why}");
            } else {
                crate::fi_info!("core", Subsys::Core, "fi_getinfo: provider {name}: {why}");
            }
        }
    }

    /// Whether a refusal was not warned of yet; it counts as warned of from now on.
    fn is_news(&self, why: &Refusal) -> bool {
        let mut told = self.told.lock();
        let news = told.len() < TOLD && !told.contains(why);
        if news {
            told.push(why.clone());
        }
        news
    }

    /// Warns of names in `FI_PROVIDER` that no provider has.
    fn check_filter(&self) {
        let visible = self.visible();
        let present: Vec<&str> = visible.iter().map(|provider| provider.name()).collect();
        let missing = |name: &&str| !present.iter().any(|here| here.eq_ignore_ascii_case(name));
        for name in self
            .filter
            .names()
            .flat_map(|list| list.split(';'))
            .filter(missing)
        {
            let here = present.join(", ");
            crate::fi_warn!(
                "core",
                Subsys::Core,
                "FI_PROVIDER names {name}, which is not here; there are: {here}"
            );
        }
    }

    /// One provider of each name, in the order of preference.
    fn visible(&self) -> Vec<Listed> {
        let providers = self.providers.read();
        let wins = |provider: &&Listed| {
            winner(&providers, provider.name()).is_some_and(|best| Arc::ptr_eq(best, provider))
        };
        let mut visible: Vec<_> = providers.iter().filter(wins).cloned().collect();
        visible.sort_by_key(|provider| order::rank(provider.name()));
        visible
    }
}

/// The provider of a name that counts: of those with the highest version, the one that came first.
fn winner<'a>(providers: &'a [Listed], name: &str) -> Option<&'a Listed> {
    let named = providers.iter().filter(|provider| is_named(provider, name));
    named.rev().max_by_key(|provider| provider.version())
}

/// Keeps a provider listed; dropping it takes the provider off the list. What is open of it
/// goes on working.
#[must_use = "dropping the registration takes the provider off the list"]
pub struct Registration {
    registry: &'static Registry,
    provider: Arc<dyn ProviderInfo>,
}

impl core::fmt::Debug for Registration {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Registration({})", self.provider.name())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut providers = self.registry.providers.write();
        providers.retain(|provider| !Arc::ptr_eq(provider, &self.provider));
        let name = self.provider.name();
        if !providers.iter().any(|provider| is_named(provider, name)) {
            params().undefine(name);
        }
    }
}

#[cfg(test)]
mod tests;
