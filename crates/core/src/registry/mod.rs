//! The providers of this process, and `fi_getinfo(3)` over all of them.
//!
//! A provider [`register`](Registry::register)s itself and stays listed while its
//! [`Registration`] lives.

mod answer;
mod order;

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, LazyLock, Once};

use parking_lot::{Mutex, RwLock};
use ripstop_types::{Errno, Version};

use crate::filter::Filter;
use crate::hints::{ProviderName, Request};
use crate::info::Info;
use crate::layers::{self, Inner};
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

    /// The shared object that it was loaded from; none for one that is built in.
    fn object(&self) -> Option<&Path> {
        None
    }

    /// Whether it answers only who asks for it by its name, in the hints or in `FI_PROVIDER`. Asked for each
    /// request.
    fn is_by_name_only(&self) -> bool {
        false
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

/// Which of two providers with one name counts (`FI_PROVIDER_PATH` in `fabric(7)`): one of a later
/// variant here, then the one with the higher version, then the one that was registered first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Its version counts.
    #[default]
    ByVersion,
    /// It was found first, whatever its version: the path begins with `@`.
    Found,
    /// The path names it by `+`.
    Preferred,
}

type Provider = Arc<dyn ProviderInfo>;

/// A provider, and what decides between it and another one of its name.
#[derive(Clone)]
struct Listed {
    provider: Provider,
    standing: Standing,
}

impl Listed {
    fn is_named(&self, name: &str) -> bool {
        self.provider.name().eq_ignore_ascii_case(name)
    }

    fn rank(&self) -> (Standing, Option<Version>) {
        let counts = self.standing == Standing::ByVersion;
        (self.standing, counts.then(|| self.provider.version()))
    }
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
    pub fn register(&'static self, provider: Provider) -> Registration {
        self.register_as(provider, Standing::default())
    }

    /// The same, where something else than the version decides between two of one name.
    pub fn register_as(&'static self, provider: Provider, standing: Standing) -> Registration {
        let (name, version) = (provider.name(), provider.version());
        let from = origin(&*provider);
        crate::fi_info!(
            "core",
            Subsys::Core,
            "registering provider: {name} ({version}), {from}"
        );
        let mut providers = self.providers.write();
        let before = winner(&providers, name).cloned();
        providers.push(Listed {
            provider: Arc::clone(&provider),
            standing,
        });
        let after = winner(&providers, name).cloned();
        drop(providers);
        if let (Some(before), Some(after)) = (before, after) {
            tell_clash(&*before.provider, &*after.provider, &*provider);
        }
        Registration {
            registry: self,
            provider,
        }
    }

    /// The provider to open something of: by its full name or, as `fi_fabric(3)` does with
    /// the name of an interface, by its topmost layer.
    #[must_use]
    pub fn provider(&self, name: &str) -> Option<Provider> {
        let providers = self.providers.read();
        let found = layer_of_object(&providers, name)
            .or_else(|| winner(&providers, name))
            .or_else(|| winner(&providers, topmost(name)));
        found.map(|listed| Arc::clone(&listed.provider))
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
            return Ok(visible.iter().map(|provider| listed(&**provider)).collect());
        }
        let (mut infos, mut refusals) = (Vec::new(), Vec::new());
        for (name, answer) in self.ask(request) {
            infos.extend(answer.infos);
            // Who names no provider does not look for one that has to be named.
            let told = answer.refusals.into_iter();
            let told = told.filter(|why| !matches!(why, Refusal::Unnamed(_)));
            refusals.extend(told.map(|why| (name.clone(), why)));
        }
        if !Inner::of(request.flags).is_internal() {
            order::prefer_native(&mut infos);
        }
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
        let ask = |provider: &Provider| {
            let name = provider.name().to_owned();
            let answer = self.ask_one(&**provider, request);
            self.log_refusals(&name, &answer, request);
            (name, answer)
        };
        let providers = match Inner::of(request.flags).sees_hidden() {
            true => self.in_order(|_, _| true),
            false => self.visible(),
        };
        providers.iter().map(ask).collect()
    }

    fn ask_one(&self, provider: &dyn ProviderInfo, request: &Request<'_>) -> Answer {
        let name = provider.name();
        let inner = Inner::of(request.flags);
        // A list of what to use names core providers; what is layered upon them comes along.
        let passes = layers::is_layer(name) && !self.filter.is_negated();
        let is_allowed = self.filter.allows_provider(name) || self.filter.allows_layered(name);
        if !passes && !inner.sees_hidden() && !is_allowed {
            return Refusal::Filtered.into();
        }
        let asked = request.prov_name();
        if let Some(asked) = asked.filter(|asked| !ProviderName(asked).concerns(name)) {
            return Refusal::NotAsked(asked.to_owned()).into();
        }
        let is_meant =
            || self.filter.names_layer(name) || asked.is_some_and(|asked| asks_for(asked, name));
        if provider.is_by_name_only() && !is_meant() {
            return Refusal::Unnamed(name.to_owned()).into();
        }
        if layer_of_object(&self.providers.read(), name).is_some() {
            return Refusal::Replaced(topmost(name).to_owned()).into();
        }
        let is_named = asked.is_some_and(|asked| !ProviderName(asked).names_none());
        if !inner.admits(name, is_named) {
            return Refusal::NotBelow.into();
        }
        let is_read = request.original.is_none_or(|original| original.is_read);
        if !is_read && provider.object().is_none() {
            return Refusal::Unread.into();
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
        if inner.is_internal() {
            return answer;
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
            let is_replaced = matches!(why, Refusal::Replaced(_));
            let helps = !is_replaced && helpful.iter().any(|&one| core::ptr::eq(one, why));
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
        for name in self.unknown_names() {
            let visible = self.visible();
            let present: Vec<&str> = visible.iter().map(|provider| provider.name()).collect();
            let here = present.join(", ");
            crate::fi_warn!(
                "core",
                Subsys::Core,
                "FI_PROVIDER names {name}, which is not here; there are: {here}"
            );
        }
    }

    /// The names in `FI_PROVIDER` that no provider has, of layered ones the layers.
    fn unknown_names(&self) -> Vec<&str> {
        let visible = self.visible();
        let is_here = |name: &str| {
            let mut here = visible.iter().map(|provider| provider.name());
            here.any(|here| here.eq_ignore_ascii_case(name))
        };
        // One with layers may be a single provider, such as `tcp;ofi_rxm`.
        let names = self.filter.names().filter(|name| !is_here(name));
        let layers = names.flat_map(|name| name.split(';'));
        layers.filter(|layer| !is_here(layer)).collect()
    }

    /// One provider of each name, in the order of preference.
    fn visible(&self) -> Vec<Provider> {
        self.in_order(|providers, one| {
            let best = winner(providers, one.provider.name());
            best.is_some_and(|best| Arc::ptr_eq(&best.provider, &one.provider))
        })
    }

    /// The providers that pass, in the order of preference.
    fn in_order(&self, passes: impl Fn(&[Listed], &Listed) -> bool) -> Vec<Provider> {
        let providers = self.providers.read();
        let passing = providers.iter().filter(|one| passes(&providers, one));
        let mut chosen: Vec<_> = passing.map(|one| Arc::clone(&one.provider)).collect();
        chosen.sort_by_key(|provider| order::rank(provider.name()));
        chosen
    }
}

/// The provider of a name that counts ([`Standing`]).
fn winner<'a>(providers: &'a [Listed], name: &str) -> Option<&'a Listed> {
    let named = providers.iter().filter(|listed| listed.is_named(name));
    named.rev().max_by_key(|listed| listed.rank())
}

/// The topmost layer of a provider's name.
fn topmost(name: &str) -> &str {
    name.rsplit(';').next().unwrap_or(name)
}

/// Whether hints that name `asked` mean the topmost layer of this provider.
fn asks_for(asked: &str, provider: &str) -> bool {
    let mut asked = asked.split(';');
    asked.any(|name| name.eq_ignore_ascii_case(topmost(provider)))
}

/// The provider from a shared object that is the topmost layer of such a name, and so takes the place of
/// one that is built in under the whole name.
fn layer_of_object<'a>(providers: &'a [Listed], name: &str) -> Option<&'a Listed> {
    let (_, top) = name.rsplit_once(';')?;
    winner(providers, top).filter(|layer| layer.provider.object().is_some())
}

/// What `FI_PROV_ATTR_ONLY` gives of a provider. Where it was loaded from stands where an interface
/// has the name of its fabric.
fn listed(provider: &dyn ProviderInfo) -> Info {
    let mut info = Info::of_provider(Some(provider.name().to_owned()), provider.version().0);
    let path = provider.object().map(Path::to_string_lossy);
    info.fabric.name = path.map(Cow::into_owned);
    info
}

/// Where a provider is from.
fn origin(provider: &dyn ProviderInfo) -> String {
    match provider.object() {
        Some(path) => format!("from {}", path.display()),
        None => "built in".to_owned(),
    }
}

/// Says which of two providers with one name is used, now that `new` has come.
fn tell_clash(before: &dyn ProviderInfo, after: &dyn ProviderInfo, new: &dyn ProviderInfo) {
    let is_new = core::ptr::addr_eq(core::ptr::from_ref(after), core::ptr::from_ref(new));
    let unused = if is_new { before } else { new };
    let (name, used, unused) = (after.name(), origin(after), origin(unused));
    crate::fi_info!(
        "core",
        Subsys::Core,
        "two providers have the name {name}: the one {used} is used, and not the one {unused}; \
         FI_PROVIDER_PATH=+/path/of/the/object prefers one from an object, FI_PROVIDER_PATH=@folder all of a folder"
    );
}

/// Keeps a provider listed; dropping it takes the provider off the list. What is open of it
/// goes on working.
#[must_use = "dropping the registration takes the provider off the list"]
pub struct Registration {
    registry: &'static Registry,
    provider: Provider,
}

impl core::fmt::Debug for Registration {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Registration({})", self.provider.name())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut providers = self.registry.providers.write();
        providers.retain(|listed| !Arc::ptr_eq(&listed.provider, &self.provider));
        let name = self.provider.name();
        if !providers.iter().any(|listed| listed.is_named(name)) {
            params().undefine(name);
        }
    }
}

#[cfg(test)]
mod tests;
