//! Parameters (`FI_LNX_*`), read once, and those of the linked providers.

use ripstop_core::ip::LocalAddress;
use ripstop_core::log::Subsys;
use ripstop_core::param::{ParamType, Unused};
use ripstop_core::{fi_warn, params};
use ripstop_shm::Shm;
use ripstop_stream::{Defaults, Transport, Tunables};
use ripstop_tcp::Tcp;
use ripstop_types::Result;

/// Provider name, and the prefix of its parameters.
pub(crate) const NAME: &str = "lnx";

/// Those of shm for messages, which most peers of a small machine use; those of tcp for reaching them.
const DEFAULTS: Defaults = Defaults {
    max_inject: 4096,
    connect_timeout: 5000,
    max_saved_bytes: 64 << 20,
    max_saved_total: 1 << 30,
};

/// What C's lnx reads and this provider has no use for.
const UNUSED: [Unused; 2] = [
    Unused::new(
        "multi_rail_selection",
        ParamType::String,
        "one way leads to each peer",
    ),
    Unused::new(
        "dump_stats",
        ParamType::Bool,
        "no statistics are printed at the end",
    ),
];

/// The links where `FI_LNX_PROV_LINKS` is not set.
const DEFAULT_LINKS: &str = "shm+tcp";

/// What one link of `FI_LNX_PROV_LINKS` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkedProviders {
    /// Peers of this machine are reached through shm.
    pub(crate) shm: bool,
    /// The interfaces that tcp uses; all if there are none.
    pub(crate) interfaces: Vec<String>,
}

/// Values of all parameters.
#[derive(Debug)]
pub struct Params {
    /// What `FI_LNX_PROV_LINKS` says, or why that is refused. Whoever asks for the provider is told: the
    /// variable may be meant for C's lnx, which has loaded this library for another provider.
    links: core::result::Result<Vec<LinkedProviders>, String>,
    uses_shm: bool,
    pub(crate) shm: <Shm as Transport>::Params,
    pub(crate) tcp: <Tcp as Transport>::Params,
    common: Tunables,
}

impl AsRef<Tunables> for Params {
    fn as_ref(&self) -> &Tunables {
        &self.common
    }
}

impl Params {
    /// Declares and reads all.
    pub(crate) fn read() -> Self {
        let links: Option<String> = params().declare_optional(
            Some(NAME),
            "prov_links",
            "which providers are linked, as link|link: shm+tcp, or shm+tcp:eth0,eth1 for some \
             interfaces only (default: shm+tcp)",
        );
        let links = links.unwrap_or_else(|| DEFAULT_LINKS.to_owned());
        let links = parse_links(&links)
            .map_err(|why| format!("FI_LNX_PROV_LINKS={links} is refused: {why}"));
        let disable_shm = params().declare(
            Some(NAME),
            "disable_shm",
            false,
            "reach peers of this machine through tcp, too (default: no)",
        );
        params().define_unused(Some(NAME), &UNUSED);
        let all = links.as_deref().unwrap_or_default();
        let with_shm = all.iter().filter(|link| link.shm).count();
        if with_shm > 0 && with_shm < all.len() {
            fi_warn!(
                NAME,
                Subsys::Core,
                "FI_LNX_PROV_LINKS has links with shm and without: shm is used in all of them; set \
                 FI_LNX_DISABLE_SHM=1 to use it in none"
            );
        }
        Self {
            uses_shm: with_shm > 0 && !disable_shm,
            links,
            shm: ripstop_shm::Params::read(),
            tcp: ripstop_tcp::Params::read(),
            common: Tunables::read(NAME, DEFAULTS),
        }
    }

    /// Whether peers of this machine are reached through shm.
    pub(crate) const fn uses_shm(&self) -> bool {
        self.uses_shm
    }

    /// The links.
    ///
    /// # Errors
    /// Why there are none.
    pub(crate) fn links(&self) -> core::result::Result<&[LinkedProviders], &str> {
        self.links.as_deref().map_err(String::as_str)
    }

    /// The addresses of this machine that endpoints over these links can have, the best first, named by
    /// their link and interface.
    ///
    /// # Errors
    /// Of the system.
    pub(crate) fn addresses(&self, links: &[LinkedProviders]) -> Result<Vec<LocalAddress>> {
        let all = self.tcp.addresses()?;
        let mut named: Vec<LocalAddress> = Vec::new();
        for link in links {
            for local in all.iter().filter(|local| link.has(&local.interface)) {
                let interface = match self.uses_shm {
                    true => format!("shm+{}", local.interface),
                    false => local.interface.clone(),
                };
                let mut local = local.clone();
                (local.interface, local.network) = (interface, NAME.to_owned());
                if !named.contains(&local) {
                    named.push(local);
                }
            }
        }
        Ok(named)
    }
}

impl LinkedProviders {
    fn has(&self, interface: &str) -> bool {
        self.interfaces.is_empty() || self.interfaces.iter().any(|name| name == interface)
    }
}

/// Parses `FI_LNX_PROV_LINKS` (`fi_lnx(7)`): links between bars, their providers between plus signs,
/// each with a list of domains behind a colon if it is not to use all.
///
/// # Errors
/// What is wrong with it.
fn parse_links(text: &str) -> core::result::Result<Vec<LinkedProviders>, String> {
    text.split('|').map(parse_link).collect()
}

fn parse_link(text: &str) -> core::result::Result<LinkedProviders, String> {
    let mut link = LinkedProviders {
        shm: false,
        interfaces: Vec::new(),
    };
    let mut has_tcp = false;
    for part in text.split('+') {
        let (name, domains) = match part.split_once(':') {
            Some((name, domains)) => (name.trim(), Some(domains)),
            None => (part.trim(), None),
        };
        match name {
            "shm" => link.shm = true,
            "tcp" => {
                has_tcp = true;
                let domains = domains.into_iter().flat_map(|list| list.split(','));
                link.interfaces
                    .extend(domains.map(|name| name.trim().to_owned()));
            }
            other => {
                return Err(format!(
                    "it links `{other}`, and Ripstop links shm and tcp: write shm+tcp"
                ));
            }
        }
    }
    if !has_tcp {
        return Err(format!(
            "the link `{text}` lacks tcp, by whose address endpoints are named: write shm+tcp; \
             or take the provider shm"
        ));
    }
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(shm: bool, interfaces: &[&str]) -> LinkedProviders {
        LinkedProviders {
            shm,
            interfaces: interfaces.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn links_are_those_of_the_man_page() {
        let parsed = |text| parse_links(text).unwrap();
        assert_eq!(parsed("shm+tcp"), [link(true, &[])]);
        assert_eq!(parsed(" tcp + shm "), [link(true, &[])]);
        assert_eq!(parsed("tcp"), [link(false, &[])]);
        assert_eq!(
            parsed("shm+tcp:eth0, eth1|shm + tcp:ib0"),
            [link(true, &["eth0", "eth1"]), link(true, &["ib0"])]
        );
    }

    #[test]
    fn links_of_others_are_refused_with_the_reason() {
        for (text, why) in [
            ("shm+cxi:cxi0", "`cxi`"),
            ("shm", "lacks tcp"),
            ("", "``"),
            ("shm+tcp|lnx", "`lnx`"),
            ("shm+tcp;ofi_rxm", "`tcp;ofi_rxm`"),
        ] {
            let error = parse_links(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
