//! What the hook `debug` says of cases (`FI_HOOK=debug`), and what it has to say.
//!
//! Most cases make no mistake, so it must say nothing of them. Those that do on purpose what no program may are in
//! `mistakes.toml`, and it must say that. What it says to be open at the end is what the case has left open.

use anyhow::Context as _;
use serde::Deserialize;

use crate::pattern::matches;

/// What its lines begin with, behind what the log puts before them.
const PREFIX: &str = "FI_HOOK=debug: ";

/// The begin of the line about objects that are open when the process ends.
pub const OPEN: &str = "the process ends and fi_close was not called for ";

/// The begin of what stands where more are open than it names.
const MORE: &str = " and ";

/// What cases do that no program may.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mistake {
    /// The ids, or the beginnings of ids before a `*`.
    cases: Vec<String>,
    /// The lines that the hook writes of it: what each has.
    says: Vec<String>,
}

/// The cases that make mistakes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mistakes {
    mistake: Vec<Mistake>,
}

impl Mistakes {
    /// The committed list.
    ///
    /// # Errors
    ///
    /// When it is not readable.
    pub fn load() -> anyhow::Result<Self> {
        toml::from_str(include_str!("../mistakes.toml")).context("mistakes.toml")
    }

    /// What is wrong with what the hook has said of a case that has left so many objects open.
    #[must_use]
    pub fn misjudged(&self, id: &str, said: &[String], open: usize) -> Option<String> {
        let (at_end, said): (Vec<&String>, Vec<&String>) =
            said.iter().partition(|line| line.starts_with(OPEN));
        let named: usize = at_end.iter().map(|line| named(line)).sum();
        if named != open {
            return Some(format!(
                "FI_HOOK=debug says that {named} objects are open at the end, and {open} are"
            ));
        }
        let made = self.mistake.iter();
        let made = made.filter(|made| matches(&made.cases, id));
        let expected: Vec<&String> = made.flat_map(|made| &made.says).collect();
        let is_expected = |line: &&&String| expected.iter().any(|part| line.contains(*part));
        if let Some(line) = said.iter().find(|line| !is_expected(line)) {
            return Some(format!("FI_HOOK=debug says: {line}"));
        }
        let is_said = |part: &&&String| said.iter().any(|line| line.contains(**part));
        let unsaid = expected.iter().find(|part| !is_said(part))?;
        Some(format!("FI_HOOK=debug does not say: {unsaid}"))
    }
}

/// What the hook has said in what a process wrote.
#[must_use]
pub fn said(written: &str) -> Vec<String> {
    let lines = written.lines().filter_map(|line| line.split_once(PREFIX));
    lines.map(|(_, line)| line.to_owned()).collect()
}

/// How many objects the line about the end names: each with its address, or by how many more there are.
fn named(line: &str) -> usize {
    let names = line.matches("(0x").count();
    let words = line.rsplit_once(MORE).map(|(_, behind)| behind);
    let more = words.and_then(|words| words.split_once(" more;"));
    names + more.map_or(0, |(count, _)| count.parse().unwrap_or(0))
}
