//! The committed list: what must pass of each set, and the reason for each test that cannot.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use super::outcome::{Outcome, Outcomes};
use crate::test::tally::Tally;

/// What `fi_ubertest` is called in front of its file.
const UBERTEST: &str = "fi_ubertest ";

/// A set of one provider.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Set {
    /// What must pass.
    pub(super) must: BTreeSet<String>,
    /// What cannot, by the reason.
    #[serde(default)]
    cannot: BTreeMap<String, BTreeSet<String>>,
}

/// All sets.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct List(BTreeMap<String, BTreeMap<String, Set>>);

/// How a test stands to the list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As it must.
    Passed,
    /// What is wrong with it.
    Failed(String, String),
    /// Why it does not count.
    Skipped(String, String),
}

impl List {
    /// Reads the file.
    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the list {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} makes no sense", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let list: Self = toml::from_str(text)?;
        for (provider, sets) in &list.0 {
            for (name, set) in sets {
                ensure!(!set.must.is_empty(), "{provider}.{name} requires nothing");
                if let Some(test) = set.must.iter().find(|test| set.reason(test).is_some()) {
                    bail!("{provider}.{name}: {test} must pass and cannot");
                }
            }
        }
        Ok(list)
    }

    /// The providers it names.
    pub(super) fn providers(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// One set of one provider.
    pub(super) fn set(&self, provider: &str, name: &str) -> anyhow::Result<&Set> {
        let sets = self.0.get(provider);
        let set = sets.and_then(|sets| sets.get(name));
        set.with_context(|| {
            let known: Vec<_> = sets.into_iter().flat_map(BTreeMap::keys).collect();
            format!("the list has no set {name} of {provider}, which has {known:?}")
        })
    }
}

impl Set {
    /// How many tests it names.
    pub(super) fn len(&self) -> usize {
        self.must.len() + self.cannot.values().map(BTreeSet::len).sum::<usize>()
    }

    /// The files for `fi_ubertest`.
    pub(super) fn configs(&self) -> impl Iterator<Item = &str> {
        self.must
            .iter()
            .filter_map(|test| test.strip_prefix(UBERTEST))
    }

    /// Why a test cannot pass.
    fn reason(&self, test: &str) -> Option<&str> {
        let entry = self.cannot.iter().find(|(_, tests)| tests.contains(test));
        entry.map(|(reason, _)| reason.as_str())
    }

    /// Holds what happened against the list.
    pub(super) fn judge(&self, outcomes: &Outcomes) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for test in &self.must {
            verdicts.push(match outcomes.of.get(test) {
                Some(Outcome::Passed) => Verdict::Passed,
                Some(outcome) => Verdict::Failed(test.clone(), outcome.to_string()),
                None => Verdict::Failed(test.clone(), "the runner does not name it".to_owned()),
            });
        }
        for (test, outcome) in &outcomes.of {
            if self.must.contains(test) {
                continue;
            }
            let verdict = match (outcome, self.reason(test)) {
                (Outcome::Passed, Some(_)) => Verdict::Failed(
                    test.clone(),
                    "passes, though the list says that it cannot: move it to `must`".to_owned(),
                ),
                (Outcome::Passed, None) => Verdict::Failed(
                    test.clone(),
                    "passes, but the list does not name it: add it to `must`".to_owned(),
                ),
                (_, Some(reason)) => Verdict::Skipped(test.clone(), reason.to_owned()),
                (Outcome::Failed, None) => {
                    Verdict::Failed(test.clone(), "failed, and is not listed".to_owned())
                }
                (outcome, None) => Verdict::Skipped(test.clone(), outcome.to_string()),
            };
            verdicts.push(verdict);
        }
        verdicts
    }
}

impl Verdict {
    /// It counts as one.
    pub(super) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        match self {
            Self::Passed => tally.passed = 1,
            Self::Failed(..) => tally.failed = 1,
            Self::Skipped(..) => tally.skipped = 1,
        }
        tally
    }

    /// What is said of it, unless all is well.
    pub(super) fn line(&self) -> Option<String> {
        match self {
            Self::Passed => None,
            Self::Failed(test, why) => Some(format!("FAIL {test}: {why}")),
            Self::Skipped(test, why) => Some(format!("SKIP {test}: {why}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabtests::guest;

    fn outcomes(of: &[(&str, Outcome)]) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for (test, outcome) in of {
            outcomes.of.insert((*test).to_owned(), *outcome);
        }
        outcomes
    }

    #[test]
    fn the_committed_list_is_read() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../interop/fabtests.toml");
        let list = List::load(&path).expect("a list");
        let (in_guests, here): (Vec<_>, Vec<_>) = list
            .providers()
            .into_iter()
            .partition(|name| guest::parse(name).is_some());
        assert_eq!(here, ["lnx", "shm", "tcp", "tcp;ofi_rxm"]);
        let expected = [
            "verbs/6.1",
            "verbs/6.12",
            "verbs;ofi_rxm/6.1",
            "verbs;ofi_rxm/6.12",
        ];
        assert_eq!(in_guests, expected);
        assert!(list.set("tcp", "quick").expect("a set").must.len() > 50);
        let files: Vec<_> = list
            .set("tcp", "complex")
            .expect("a set")
            .configs()
            .collect();
        assert_eq!(files, ["all.test"]);
        assert!(list.set("tcp", "none").is_err());
        assert!(List::load(Path::new("/no/such/list")).is_err());
    }

    #[test]
    fn a_list_that_requires_nothing_is_refused() {
        assert!(List::parse("[tcp.quick]\nmust = []\n").is_err());
        assert!(
            List::parse("[tcp.quick]\nmust = ['a']\n[tcp.quick.cannot]\nwhy = ['a']\n").is_err()
        );
        assert!(List::parse("[tcp.quick]\nmust = ['a']\nmay = ['b']\n").is_err());
    }

    #[test]
    fn what_happened_is_held_against_the_list() {
        let text =
            "[tcp.quick]\nmust = ['a', 'b', 'c', 'd']\n[tcp.quick.cannot]\nwhy = ['e', 'f']\n";
        let list = List::parse(text).expect("a list");
        let found = outcomes(&[
            ("a", Outcome::Passed),
            ("b", Outcome::Failed),
            ("c", Outcome::NotRun),
            ("e", Outcome::Failed),
            ("f", Outcome::Passed),
            ("g", Outcome::Passed),
            ("h", Outcome::Failed),
            ("i", Outcome::Excluded),
        ]);
        let verdicts = list.set("tcp", "quick").expect("a set").judge(&found);
        let lines: Vec<_> = verdicts.iter().filter_map(Verdict::line).collect();
        let begins = [
            "FAIL b: failed",
            "FAIL c: not run",
            "FAIL d: the runner does not",
            "SKIP e: why",
            "FAIL f: passes",
            "FAIL g: passes",
            "FAIL h: failed",
            "SKIP i: excluded",
        ];
        assert_eq!(lines.len(), begins.len(), "{lines:?}");
        for (line, begin) in lines.iter().zip(begins) {
            assert!(line.starts_with(begin), "{line}");
        }
        let mut tally = Tally::default();
        verdicts.iter().for_each(|verdict| tally += verdict.tally());
        assert_eq!(tally.to_string(), "1 passed, 6 failed, 2 skipped");
    }
}
