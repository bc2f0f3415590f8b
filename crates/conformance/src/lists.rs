//! The committed lists: what must pass, and where the C library differs.
//!
//! `required/PROVIDER[-domain][-rust].txt` names the cases that must pass, one id a line. A case
//! that passes and is not in it fails the run too, so the list only grows.
//!
//! `differences.toml` says of the C library which rules it does not keep, and why the suite
//! holds to them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use ripstop_types::Threading;
use serde::Deserialize;

use crate::report::Report;
use crate::run::{Plan, Way};

/// A rule that the C library does not keep.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// The ids, or the beginnings of ids before a `*`.
    pub cases: Vec<String>,
    /// What the C library does, and what the rule is built on.
    pub why: String,
}

impl Difference {
    /// Why, on one line.
    #[must_use]
    pub fn reason(&self) -> String {
        let words: Vec<_> = self.why.split_whitespace().collect();
        words.join(" ")
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Differences {
    difference: Vec<Difference>,
}

/// The lists that apply to a run.
#[derive(Debug)]
pub struct Lists {
    file: PathBuf,
    /// The cases that must pass, where there is such a list.
    pub required: Option<BTreeSet<String>>,
    /// What the C library is known for; empty for other implementations.
    pub differences: Vec<Difference>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The name of the list for a plan.
fn list_name(plan: &Plan) -> String {
    let provider = plan.setup.provider.replace(';', "+");
    let threading = match plan.setup.threading {
        Threading::Safe => "",
        _ => "-domain",
    };
    let way = match plan.way {
        Way::Library(_) => "",
        Way::Rust => "-rust",
    };
    format!("{provider}{threading}{way}.txt")
}

impl Lists {
    /// Loads what applies to a plan; `reference` means that the C library runs.
    ///
    /// # Errors
    ///
    /// When a list is there and not readable.
    pub fn load(plan: &Plan, reference: bool) -> anyhow::Result<Self> {
        let file = folder().join("required").join(list_name(plan));
        let required = match reference {
            false if file.exists() => {
                let text = fs::read_to_string(&file);
                let text = text.with_context(|| format!("cannot read {}", file.display()))?;
                Some(parse(&text))
            }
            _ => None,
        };
        let differences = match reference {
            true => {
                let text = include_str!("../differences.toml");
                let all: Differences = toml::from_str(text).context("differences.toml")?;
                all.difference
            }
            false => Vec::new(),
        };
        Ok(Self {
            file,
            required,
            differences,
        })
    }

    /// Whether a case must pass.
    #[must_use]
    pub fn requires(&self, id: &str) -> bool {
        self.required.as_ref().is_some_and(|r| r.contains(id))
    }

    /// Why a case is known to fail.
    #[must_use]
    pub fn difference(&self, id: &str) -> Option<&Difference> {
        self.differences.iter().find(|d| {
            d.cases
                .iter()
                .any(|pattern| match pattern.strip_suffix('*') {
                    Some(start) => id.starts_with(start),
                    None => pattern == id,
                })
        })
    }

    /// Writes the list anew: what it required already, and what passed.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn update(&self, report: &Report) -> anyhow::Result<()> {
        let mut ids = self.required.clone().unwrap_or_default();
        ids.extend(report.passed().map(str::to_owned));
        let mut text = String::from(
            "# Cases that must pass. A case that passes and is not here fails the run: add it\n\
             # with `conformance --update`. Nothing is ever taken out.\n",
        );
        for id in ids {
            text.push_str(&id);
            text.push('\n');
        }
        if let Some(folder) = self.file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&self.file, text).with_context(|| format!("cannot write {}", self.file.display()))
    }
}

fn parse(text: &str) -> BTreeSet<String> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::id;
    use crate::cases;
    use ripstop_types::EpType;

    /// Every id there is.
    fn ids() -> BTreeSet<String> {
        let mut ids = BTreeSet::new();
        for case in cases::all() {
            for ep_type in [EpType::Rdm, EpType::Msg] {
                if case.eps.includes(ep_type) {
                    assert!(ids.insert(id(ep_type, case.name)), "{} twice", case.name);
                }
            }
        }
        ids
    }

    #[test]
    fn required_cases_exist() {
        let ids = ids();
        let Ok(files) = fs::read_dir(folder().join("required")) else {
            return;
        };
        for file in files {
            let path = file.unwrap().path();
            for id in parse(&fs::read_to_string(&path).unwrap()) {
                assert!(ids.contains(&id), "{}: no case {id}", path.display());
            }
        }
    }

    #[test]
    fn differences_name_cases() {
        let all: Differences = toml::from_str(include_str!("../differences.toml")).unwrap();
        let ids = ids();
        for difference in &all.difference {
            assert!(
                difference.why.len() > 20,
                "{:?} says too little",
                difference.cases
            );
            for pattern in &difference.cases {
                let known = match pattern.strip_suffix('*') {
                    Some(start) => ids.iter().any(|id| id.starts_with(start)),
                    None => ids.contains(pattern),
                };
                assert!(known, "no case {pattern}");
            }
        }
    }

    #[test]
    fn names_are_page_and_rule() {
        for case in cases::all() {
            let (page, rule) = case.name.split_once('/').expect("page/rule");
            assert!(page.starts_with("fi_"), "{}", case.name);
            assert!(!rule.is_empty() && !case.rule.is_empty(), "{}", case.name);
        }
    }
}
