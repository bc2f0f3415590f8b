//! Fabric attributes (man page `fi_fabric(3)`) and provider names.

use ripstop_types::Version;

use super::mismatch::{Checks, Group, Mismatch};
use crate::attr::FabricAttr;
use crate::layers;

/// A provider name as callers write it in hints: names of layers separated by `;`, and at
/// its end names to leave out, each after a `^`. Case does not matter.
///
/// * `tcp` is met by `tcp` and by whatever is layered over it (`tcp;ofi_rxm`).
/// * `tcp;ofi_rxm` is met by that layering, whichever is written first.
/// * `^udp` is met by every provider without `udp` in its name.
#[derive(Clone, Copy, Debug)]
pub struct ProviderName<'a>(pub &'a str);

impl<'a> ProviderName<'a> {
    fn wanted(self) -> impl Iterator<Item = &'a str> + Clone {
        self.0
            .split(';')
            .filter(|name| !name.is_empty() && !name.starts_with('^'))
    }

    fn excluded(self) -> impl Iterator<Item = &'a str> + Clone {
        self.0.split(';').filter_map(|name| name.strip_prefix('^'))
    }

    /// Whether a provider of this name is to be asked what it offers. Of layers that are named, the
    /// topmost one is asked, which asks those below itself; a name alone also concerns what may be
    /// layered upon that provider.
    #[must_use]
    pub fn concerns(self, provider: &str) -> bool {
        let has = |name: &str| {
            let mut layers = provider.split(';');
            layers.any(|layer| layer.eq_ignore_ascii_case(name))
        };
        if self.excluded().any(has) {
            return false;
        }
        match (self.wanted().next(), self.wanted().last()) {
            (Some(first), Some(last)) => match self.wanted().count() {
                1 => has(first) || layers::may_be_above(provider, first),
                2 if layers::is_layer(first) && !layers::is_layer(last) => is_top(provider, first),
                _ => is_top(provider, last),
            },
            _ => true,
        }
    }

    /// Whether no provider is named that is to be used.
    pub(crate) fn names_none(self) -> bool {
        self.wanted().next().is_none()
    }

    /// Whether a provider of this (possibly layered) name is meant.
    #[must_use]
    pub fn matches(self, provider: &str) -> bool {
        let layers = || provider.split(';').filter(|name| !name.is_empty());
        let has = |name: &str| layers().any(|layer| layer.eq_ignore_ascii_case(name));
        if self.excluded().any(has) {
            return false;
        }
        match self.wanted().count() {
            0 => true,
            1 => self.wanted().any(has),
            2 => layers().count() == 2 && self.wanted().all(has),
            _ => {
                let same = |(a, b): (&str, &str)| a.eq_ignore_ascii_case(b);
                layers().count() == self.wanted().count() && layers().zip(self.wanted()).all(same)
            }
        }
    }
}

/// Whether the topmost layer of a provider's name is this one.
fn is_top(provider: &str, layer: &str) -> bool {
    let top = provider.rsplit(';').next();
    top.is_some_and(|top| top.eq_ignore_ascii_case(layer))
}

/// Checks the fabric group.
pub(super) fn check(offer: &FabricAttr, asked: &FabricAttr, found: &mut Vec<Mismatch>) {
    let mut checks = Checks::new(Group::Fabric, found);
    if let (Some(asked), Some(offered)) = (&asked.prov_name, &offer.prov_name)
        && !ProviderName(asked).matches(offered)
    {
        let remedy = format!("name {offered} to use it, or leave prov_name NULL");
        checks.refuse("prov_name", asked, offered, remedy);
    }
    checks.name(asked.name.as_deref(), offer.name.as_deref());
    if asked.prov_version > offer.prov_version {
        let (asked, offered) = (Version(asked.prov_version), Version(offer.prov_version));
        let remedy = format!("ask for at most {offered}, or 0 for any");
        checks.refuse(
            "prov_version",
            asked.to_string(),
            offered.to_string(),
            remedy,
        );
    }
    if asked.api_version < offer.api_version {
        let remedy = format!("set it to {} or later", offer.api_version);
        let (asked, offered) = (asked.api_version.to_string(), offer.api_version.to_string());
        checks.refuse("api_version", asked, offered, remedy);
    }
}

#[cfg(test)]
mod tests {
    use super::ProviderName;

    #[test]
    fn names_match_as_layers() {
        let cases = [
            ("tcp", "tcp", true),
            ("TCP", "tcp", true),
            ("", "tcp", true),
            ("tcp", "tcp;ofi_rxm", true),
            ("ofi_rxm", "tcp;ofi_rxm", true),
            ("tcp;ofi_rxm", "tcp;ofi_rxm", true),
            ("ofi_rxm;tcp", "tcp;ofi_rxm", true),
            ("tcp;ofi_rxm", "tcp", false),
            ("tcp;ofi_rxm", "verbs;ofi_rxm", false),
            ("tcp", "udp", false),
            ("tcpx", "tcp", false),
            ("^udp", "tcp", true),
            ("^udp", "udp;ofi_rxd", false),
            ("tcp;^ofi_rxm", "tcp;ofi_rxm", false),
            ("tcp;^ofi_rxm", "tcp", true),
            ("a;b;c", "a;b;c", true),
            ("a;b;c", "c;b;a", false),
        ];
        assert!(ProviderName("tcp;ofi_rxm").concerns("ofi_rxm"));
        assert!(ProviderName("ofi_rxm;tcp").concerns("ofi_rxm"));
        assert!(ProviderName("tcp").concerns("ofi_rxm"));
        assert!(!ProviderName("shm").concerns("ofi_rxm"));
        assert!(!ProviderName("tcp;ofi_rxm").concerns("tcp"));
        assert!(!ProviderName("tcp;ofi_rxm").concerns("udp"));
        assert!(!ProviderName("^tcp").concerns("tcp"));
        for (asked, provider, expected) in cases {
            assert_eq!(
                ProviderName(asked).matches(provider),
                expected,
                "{asked} on {provider}"
            );
            assert!(!expected || ProviderName(asked).concerns(provider));
        }
    }
}
