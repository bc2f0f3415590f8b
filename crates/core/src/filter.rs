//! Lists of names that let in or keep out (`FI_PROVIDER`, `FI_LOG_PROV`, `FI_LOG_SUBSYS`).

/// Names separated by commas, after an optional `^` that turns "only these" into "all but
/// these". Case does not matter. The default lets everything in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    negated: bool,
    names: Option<Vec<String>>,
}

impl Filter {
    /// Parses a list; `None` is the filter that lets everything in.
    #[must_use]
    pub fn parse(list: Option<&str>) -> Self {
        let Some(list) = list else {
            return Self::default();
        };
        let (negated, list) = match list.strip_prefix('^') {
            Some(rest) => (true, rest),
            None => (false, list),
        };
        let names = list.split(',').filter(|name| !name.is_empty());
        Self {
            negated,
            names: Some(names.map(str::to_owned).collect()),
        }
    }

    /// Whether every name passes because there is no list.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.names.is_none()
    }

    /// Whether the list names what to keep out.
    #[must_use]
    pub const fn is_negated(&self) -> bool {
        self.negated
    }

    /// The names in the list.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().flatten().map(String::as_str)
    }

    /// Whether `name` passes.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        self.is_open() || self.lists(name) != self.negated
    }

    /// Whether a provider can be left in place: it passes by its own name, or (of a list of
    /// what to let in) as the layer below of a listed `name;layer`.
    #[must_use]
    pub fn allows_provider(&self, name: &str) -> bool {
        let below = |listed: &str| is_layer_of(name, listed);
        self.is_open()
            || self.lists(name) != self.negated
            || (!self.negated && self.names().any(below))
    }

    /// Whether the list names what to use, and this layered provider among that: by its full name or
    /// that of its topmost layer.
    #[must_use]
    pub fn names_layer(&self, name: &str) -> bool {
        !self.negated && (self.lists(name) || self.lists(topmost(name)))
    }

    /// Whether an interface of this (possibly layered) provider passes: by its full name, or
    /// because the layer it stands on is listed.
    #[must_use]
    pub fn allows_layered(&self, name: &str) -> bool {
        let above = |listed: &str| is_layer_of(listed, name);
        if self.negated && self.lists(topmost(name)) {
            return false;
        }
        self.is_open() || (self.lists(name) || self.names().any(above)) != self.negated
    }

    fn lists(&self, name: &str) -> bool {
        self.names().any(|listed| listed.eq_ignore_ascii_case(name))
    }
}

/// The topmost layer of a name.
fn topmost(name: &str) -> &str {
    name.rsplit(';').next().unwrap_or(name)
}

/// Whether `layered` is `core` with more layers upon it: `tcp;ofi_rxm` of `tcp`.
fn is_layer_of(core: &str, layered: &str) -> bool {
    layered
        .split_once(';')
        .is_some_and(|(first, _)| first.eq_ignore_ascii_case(core))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_let_in_or_keep_out() {
        let all = Filter::parse(None);
        assert!(all.allows("tcp") && all.allows_provider("tcp") && all.allows_layered("tcp"));
        let only = Filter::parse(Some("tcp,SHM"));
        assert!(only.allows("shm") && !only.allows("udp"));
        let but = Filter::parse(Some("^tcp,shm"));
        assert!(!but.allows("shm") && but.allows("udp"));
        let none = Filter::parse(Some(""));
        assert!(!none.allows("tcp"));
    }

    #[test]
    fn layers_are_seen_through() {
        let layered = Filter::parse(Some("verbs;ofi_rxm"));
        assert!(layered.allows_provider("verbs"));
        assert!(!layered.allows_layered("verbs"));
        assert!(layered.allows_layered("verbs;ofi_rxm"));
        let core = Filter::parse(Some("verbs"));
        assert!(core.allows_layered("verbs;ofi_rxm"));
        assert!(!core.allows_provider("tcp"));
        let but = Filter::parse(Some("^verbs;ofi_rxm"));
        assert!(but.allows_provider("verbs") && !but.allows_layered("verbs;ofi_rxm"));
        let no_core = Filter::parse(Some("^verbs"));
        assert!(!no_core.allows_layered("verbs;ofi_rxm"));
        assert!(layered.names_layer("verbs;ofi_rxm") && !layered.names_layer("tcp;ofi_rxm"));
        assert!(Filter::parse(Some("ofi_rxm")).names_layer("verbs;ofi_rxm"));
        assert!(!core.names_layer("verbs;ofi_rxm") && !but.names_layer("verbs;ofi_rxm"));
    }
}
