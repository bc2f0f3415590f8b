//! Patterns of the lists, which say which cases they mean.

/// Whether one of these patterns is of the id.
#[must_use]
pub fn matches(patterns: &[String], id: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => id.starts_with(start),
            None => pattern == id,
        })
}
