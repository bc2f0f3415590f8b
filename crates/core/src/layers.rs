//! Providers that work on top of others (`fi_provider(7)`), and how they ask for those below them.

use ripstop_types::Flags;

/// What the names of providers that only work on top of others start with.
const LAYER_PREFIX: &str = "ofi_";

/// What the names of providers start with that others hand collectives to.
const OFFLOAD_PREFIX: &str = "off_";

/// Providers that nothing is layered upon unless somebody asks for it by both names, as in the C
/// library.
const ALONE: [&str; 6] = ["sockets", "shm", "efa", "psm3", "ucx", "cxi"];

/// Flags of `fi_getinfo(3)` with which providers ask each other. No header has them, but every
/// release of the C library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inner(Flags);

impl Inner {
    /// A layer asks for what it may be layered upon.
    const CORE_ONLY: Flags = Flags::from_bits_retain(1 << 59);
    /// The answer is for a provider and not for a program.
    const INTERNAL: Flags = Flags::from_bits_retain(1 << 58);
    /// Also providers that `FI_PROVIDER` or another one of their name keeps from programs.
    const HIDDEN: Flags = Flags::from_bits_retain(1 << 60);
    /// Also providers that others hand collectives to.
    const OFFLOAD: Flags = Flags::from_bits_retain(1 << 61);

    /// Those among the flags of a call.
    pub(crate) const fn of(flags: Flags) -> Self {
        Self(flags)
    }

    /// Whether only providers that others may be layered upon are asked for.
    pub(crate) const fn asks_below(self) -> bool {
        self.0.contains(Self::CORE_ONLY)
    }

    /// Whether a provider asks and not a program.
    pub(crate) const fn is_internal(self) -> bool {
        self.0
            .intersects(Self::CORE_ONLY.union(Self::INTERNAL).union(Self::HIDDEN))
    }

    /// Whether what programs do not see is asked for, too.
    pub(crate) const fn sees_hidden(self) -> bool {
        self.0.contains(Self::HIDDEN)
    }

    /// Whether a provider of this name can answer at all.
    pub(crate) fn admits(self, provider: &str, is_named: bool) -> bool {
        let offload = starts_with(provider, OFFLOAD_PREFIX);
        let layered = is_layer(provider) || provider.contains(';');
        let below = !layered && !offload && !provider.eq_ignore_ascii_case("lnx");
        (!offload || self.0.contains(Self::OFFLOAD))
            && (!self.asks_below() || (below && (is_named || !stands_alone(provider))))
    }
}

fn starts_with(name: &str, prefix: &str) -> bool {
    let start = name.get(..prefix.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Whether a provider of this name only works on top of others.
pub(crate) fn is_layer(provider: &str) -> bool {
    starts_with(provider, LAYER_PREFIX)
}

fn stands_alone(provider: &str) -> bool {
    ALONE.iter().any(|name| name.eq_ignore_ascii_case(provider))
}

/// Whether `provider` may answer a caller who names `below` alone, with layers upon that.
pub(crate) fn may_be_above(provider: &str, below: &str) -> bool {
    is_layer(provider) && !is_layer(below) && !stands_alone(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_ask_for_what_they_may_be_layered_upon() {
        let from_layer = Inner::of(Inner::CORE_ONLY);
        assert!(from_layer.admits("tcp", false) && from_layer.admits("udp", false));
        assert!(!from_layer.admits("shm", false) && from_layer.admits("shm", true));
        assert!(!from_layer.admits("ofi_rxm", true) && !from_layer.admits("lnx", true));
        assert!(!from_layer.admits("verbs;ofi_rxm", true));
        let from_program = Inner::of(Flags::SOURCE);
        assert!(from_program.admits("ofi_rxm", false) && from_program.admits("lnx", false));
        assert!(!from_program.admits("off_coll", true));
        assert!(Inner::of(Inner::OFFLOAD).admits("off_coll", true));
        assert!(!from_program.is_internal() && from_layer.is_internal());
    }

    #[test]
    fn names_of_layers_begin_alike() {
        assert!(is_layer("ofi_rxm") && is_layer("OFI_RXD"));
        assert!(!is_layer("tcp;ofi_rxm") && !is_layer("ofi") && !is_layer(""));
        assert!(may_be_above("ofi_rxm", "tcp") && !may_be_above("tcp", "udp"));
    }
}
