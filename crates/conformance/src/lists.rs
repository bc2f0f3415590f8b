//! The committed lists: what must pass, and where the C library differs.
//!
//! `required/PROVIDER[-domain[-auto]][-rust][-apart].txt` names the cases that must pass, one id a line. A case
//! that passes and is not in it fails the run too, so the list only grows.
//!
//! `inapplicable.toml` says which cases are none for a provider, a threading level or a way in, as
//! what they are about is not there by design. They are not counted; a case that is not offered and
//! not named there is skipped, and counted.
//!
//! `differences.toml` says of the C library which rules it does not keep, and why the suite
//! holds to them.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::mistakes::Mistakes;
use crate::pattern::matches;
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

/// Cases that are none in some runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inapplicable {
    /// The provider; every one if not said.
    provider: Option<String>,
    /// `safe`, `domain` or `domain-auto`; all if not said.
    threading: Option<String>,
    /// `library` or `rust`; both if not said.
    way: Option<String>,
    /// The ids, or the beginnings of ids before a `*`.
    cases: Vec<String>,
    /// Why.
    why: String,
    /// The cases are offered, but end otherwise than they demand.
    #[serde(default)]
    fails: bool,
    /// The cases end so or otherwise, as it happens.
    #[serde(default)]
    varies: bool,
}

impl Inapplicable {
    fn is_about(&self, plan: &Plan) -> bool {
        let threading = plan.setup.level();
        let way = match plan.way {
            Way::Library(_) => "library",
            Way::Rust => "rust",
        };
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        is(&self.provider, &plan.setup.provider)
            && is(&self.threading, threading)
            && is(&self.way, way)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Inapplicables {
    inapplicable: Vec<Inapplicable>,
}

/// What the results of a run are held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// Our lists of what must pass.
    Required,
    /// The same, which may be missing as they are about to be written.
    Update,
    /// What the C library is known for.
    Reference,
    /// Nothing.
    Nothing,
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
    /// Cases that are none in this run.
    pub inapplicable: Vec<Inapplicable>,
    /// What the hook `debug` has to say, where it watches.
    pub mistakes: Option<Mistakes>,
    /// Whether all that required cases need is said to be there: the environment has `CI=true`.
    pub is_ci: bool,
    /// Each side is in a process of its own: what is not offered then is none of these cases.
    pub is_apart: bool,
}

/// The folder of this source tree with the lists of what must pass.
#[must_use]
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("required")
}

/// The name of the list for a plan.
fn list_name(plan: &Plan) -> String {
    let provider = plan.setup.provider.replace(';', "+");
    let threading = match plan.setup.level() {
        "safe" => String::new(),
        level => format!("-{level}"),
    };
    let way = match plan.way {
        Way::Library(_) => "",
        Way::Rust => "-rust",
    };
    let apart = match plan.apart {
        true => "-apart",
        false => "",
    };
    format!("{provider}{threading}{way}{apart}.txt")
}

impl Lists {
    /// Loads what applies to a plan, with the lists of this folder or else of the source tree.
    ///
    /// # Errors
    ///
    /// When a list is not there, or not readable.
    pub fn load(plan: &Plan, judge: Judge, lists: Option<&Path>) -> anyhow::Result<Self> {
        let lists = lists.map_or_else(folder, Path::to_owned);
        let file = lists.join(list_name(plan));
        let is_listed = match judge {
            Judge::Required => true,
            Judge::Update => file.exists(),
            Judge::Reference | Judge::Nothing => false,
        };
        let required = match is_listed {
            true => {
                let text = fs::read_to_string(&file);
                let text = text.with_context(|| {
                    let file = file.display();
                    format!("cannot read the list {file}: see --update, --reference, --unlisted")
                })?;
                let required = parse(&text);
                ensure!(!required.is_empty(), "{} is empty", file.display());
                Some(required)
            }
            false => None,
        };
        let differences = match judge {
            Judge::Reference => {
                let text = include_str!("../differences.toml");
                let all: Differences = toml::from_str(text).context("differences.toml")?;
                all.difference
            }
            _ => Vec::new(),
        };
        let inapplicable = match judge {
            Judge::Required | Judge::Update => {
                let text = include_str!("../inapplicable.toml");
                let all: Inapplicables = toml::from_str(text).context("inapplicable.toml")?;
                let all = all.inapplicable.into_iter();
                all.filter(|entry| entry.is_about(plan)).collect()
            }
            Judge::Reference | Judge::Nothing => Vec::new(),
        };
        Ok(Self {
            file,
            required,
            differences,
            inapplicable,
            mistakes: plan.debug.then(Mistakes::load).transpose()?,
            is_apart: plan.apart,
            is_ci: env::var_os("CI").is_some_and(|ci| ci == "true" || ci == "1"),
        })
    }

    /// Why a case is none in this run.
    #[must_use]
    pub fn inapplicable(&self, id: &str) -> Option<&str> {
        let mut entries = self.inapplicable.iter();
        match entries.find(|entry| matches(&entry.cases, id)) {
            Some(entry) => Some(&entry.why),
            None if self.is_apart => Some("its sides share something, or it has one side only"),
            None => None,
        }
    }

    /// Why a case that ends so is none in this run.
    #[must_use]
    pub fn excuses(&self, id: &str, passed: bool) -> Option<&str> {
        let mut entries = self.inapplicable.iter();
        let found = entries
            .find(|entry| (entry.varies || entry.fails && !passed) && matches(&entry.cases, id))?;
        Some(&found.why)
    }

    /// Whether a case must pass.
    #[must_use]
    pub fn requires(&self, id: &str) -> bool {
        self.required.as_ref().is_some_and(|r| r.contains(id))
    }

    /// Why a case is known to fail.
    #[must_use]
    pub fn difference(&self, id: &str) -> Option<&Difference> {
        self.differences.iter().find(|d| matches(&d.cases, id))
    }

    /// Writes the list anew: what it required already, and the cases that `passed`.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn update<'a>(&self, passed: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
        let mut ids = self.required.clone().unwrap_or_default();
        ids.extend(passed.map(str::to_owned));
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

/// The ids in the text of a list of what must pass: one a line, without comments and blank lines.
#[must_use]
pub fn parse(text: &str) -> BTreeSet<String> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}
