//! What the runner of fabtests prints: a YAML item for each test.

use std::collections::BTreeMap;
use std::fmt;

/// What the runner says of a test, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Passed,
    /// The runner's own list for the provider leaves it out.
    Excluded,
    /// The provider does not offer what it needs.
    NotRun,
    Failed,
}

impl Outcome {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            _ if word.starts_with("Pass") => Self::Passed,
            "Excluded" => Self::Excluded,
            "Notrun" => Self::NotRun,
            _ if word.starts_with("Fail") => Self::Failed,
            _ => return None,
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Excluded => "excluded",
            Self::NotRun => "not run",
            Self::Failed => "failed",
        })
    }
}

/// How the tests of a set went.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// By the test's name in the list.
    pub(super) of: BTreeMap<String, Outcome>,
    /// The item that is being read.
    name: Option<String>,
}

impl Outcomes {
    /// Takes one line; returns the test that it finishes. A test that runs twice is as bad as its
    /// worse run.
    pub(super) fn read(
        &mut self,
        line: &str,
        provider: &str,
        config: Option<&str>,
    ) -> Option<(String, Outcome)> {
        if let Some(name) = line.strip_prefix("- name:") {
            self.name = Some(name_in_list(name.trim(), provider, config));
            return None;
        }
        let outcome = Outcome::parse(line.strip_prefix("  result: ")?.trim())?;
        let name = self.name.take()?;
        let worst = self.of.entry(name.clone()).or_insert(outcome);
        *worst = (*worst).max(outcome);
        Some((name, outcome))
    }
}

/// A test's name without the provider. That of `fi_ubertest` has counts, and the list says which
/// file it read.
fn name_in_list(name: &str, provider: &str, config: Option<&str>) -> String {
    match config {
        Some(config) => {
            let program = name.split([' ', ':']).next().unwrap_or(name);
            format!("{program} {config}")
        }
        None => name.replace(&format!(" -p \"{provider}\""), ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
- name:   fi_getinfo_test -s 127.0.0.1 127.0.0.1 -p \"tcp\"
  timestamp: 20261123-020000+0000
  result: Pass
  time:   0m0s
- name:   fi_cq_test -p \"tcp\"
  result: Fail
  server_stdout: |
    - name: no item
      result: Pass
- name:   fi_cq_test -p \"tcp\"
  result: Pass
- name:   fi_dgram -p \"tcp\"
  result: Excluded
- name:   fi_multinode -x msg -n 3 -p \"tcp\"
  result: Notrun
# --------------------------------------------------------------
";

    #[test]
    fn items_are_read() {
        let mut outcomes = Outcomes::default();
        let read = OUTPUT
            .lines()
            .filter_map(|line| outcomes.read(line, "tcp", None));
        assert_eq!(read.count(), 5);
        let expected = [
            ("fi_cq_test", Outcome::Failed),
            ("fi_dgram", Outcome::Excluded),
            ("fi_getinfo_test -s 127.0.0.1 127.0.0.1", Outcome::Passed),
            ("fi_multinode -x msg -n 3", Outcome::NotRun),
        ];
        let found: Vec<_> = outcomes.of.iter().map(|(n, o)| (n.as_str(), *o)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_file_of_combinations_names_its_run() {
        let mut outcomes = Outcomes::default();
        outcomes.read("- name:   fi_ubertest", "shm", Some("all.test"));
        let read = outcomes.read("  result: Pass [774/774]", "shm", Some("all.test"));
        let expected = ("fi_ubertest all.test".to_owned(), Outcome::Passed);
        assert_eq!(read, Some(expected));
    }
}
