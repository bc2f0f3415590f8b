//! Where values come from: the environment, and the file that administrators may write.

use std::collections::HashMap;

use super::parse;

/// The administrator's file: lines `FI_NAME=value`.
const FILE: &str = "/etc/libfabric.conf";

/// The parameter that gives the file precedence over the environment.
pub(super) const PREFER_FILE: &str = "prefer_sysconfig";

/// Where values come from.
pub(super) trait Source: Send + Sync + 'static {
    /// The variable in the environment.
    fn environment(&self, variable: &str) -> Option<String>;

    /// The value that counts.
    fn value(&self, variable: &str) -> Option<String>;
}

/// The environment of this process and the administrator's file, read once.
pub(super) struct Environment {
    file: HashMap<String, String>,
    prefer_file: bool,
}

impl Environment {
    pub(super) fn load() -> Self {
        let text = std::fs::read_to_string(FILE).unwrap_or_default();
        Self::with_file(&text)
    }

    fn with_file(text: &str) -> Self {
        let file = parse_file(text);
        let mut source = Self {
            file,
            prefer_file: false,
        };
        let preference = source.value(&super::variable(None, PREFER_FILE));
        source.prefer_file = preference
            .and_then(|text| parse::boolean(&text))
            .unwrap_or(false);
        source
    }
}

impl Source for Environment {
    fn environment(&self, variable: &str) -> Option<String> {
        std::env::var(variable).ok()
    }

    fn value(&self, variable: &str) -> Option<String> {
        let in_file = || self.file.get(variable).cloned();
        let in_environment = || self.environment(variable);
        if self.prefer_file {
            in_file().or_else(in_environment)
        } else {
            in_environment().or_else(in_file)
        }
    }
}

/// Lines without `=` say nothing; of several for one variable the first counts.
fn parse_file(text: &str) -> HashMap<String, String> {
    let mut values = HashMap::new();
    for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
        values
            .entry(name.to_owned())
            .or_insert_with(|| value.to_owned());
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_fills_in_and_may_prevail() {
        let text = "# comment\nFI_CORE_TEST=a=b\nFI_CORE_TEST=second\nPATH=file\n";
        let source = Environment::with_file(text);
        assert_eq!(source.value("FI_CORE_TEST").as_deref(), Some("a=b"));
        assert_ne!(source.value("PATH").as_deref(), Some("file"));
        let source = Environment::with_file(&format!("{text}FI_PREFER_SYSCONFIG=yes\n"));
        assert_eq!(source.value("PATH").as_deref(), Some("file"));
        assert_ne!(source.environment("PATH").as_deref(), Some("file"));
        assert_eq!(source.value("FI_NOWHERE"), None);
    }
}
