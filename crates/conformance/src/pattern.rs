//! Patterns of the lists, which say which cases they mean.

/// Whether one of these patterns is of the id.
pub(crate) fn matches(patterns: &[String], id: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => id.starts_with(start),
            None => pattern == id,
        })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use ripstop_types::EpType;

    use crate::case::id;
    use crate::cases;

    /// Every id there is.
    pub(crate) fn ids() -> BTreeSet<String> {
        let mut ids = BTreeSet::new();
        for case in cases::all() {
            for ep_type in [EpType::Rdm, EpType::Msg, EpType::Dgram] {
                if case.eps.includes(ep_type) {
                    assert!(ids.insert(id(ep_type, case.name)), "{} twice", case.name);
                }
            }
        }
        ids
    }
}
