//! The committed floors: how many checks of each job pass at least.
//!
//! What is taken out of a run by mistake (a filter that matches more than it should, a list that is
//! not read, a crate that left the workspace) fails no test. It makes the count fall below its
//! floor, and that fails the job.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::test::tally::Tally;
use crate::workspace::Workspace;

/// The file, seen from the top of the tree.
const FILE: &str = "xtask/floors.toml";

/// The comment at its top.
const HEADER: &str = "\
# How many checks of each job of `cargo xtask test` pass at least. Where the environment says CI=true, a job that
# passes fewer fails, whatever the reason; elsewhere those that were skipped, with a reason, may lack.
# `children`: tests that only another test runs, as a process of its own; just so many must the job have left out.
# `cargo xtask test --raise-floors` writes what has passed where that is more.
";

/// What must be reached by one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Floor {
    passed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    children: Option<u64>,
}

/// The floors of all jobs.
#[derive(Debug)]
pub(super) struct Floors {
    path: PathBuf,
    /// By the job's name.
    of: BTreeMap<String, Floor>,
}

impl Floors {
    /// Reads the file, which must name each of `jobs` and no others.
    pub(super) fn load(ws: &Workspace, jobs: &[&str]) -> anyhow::Result<Self> {
        let path = ws.root.join(FILE);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {FILE}"))?;
        let of: BTreeMap<String, Floor> =
            toml::from_str(&text).with_context(|| format!("{FILE} makes no sense"))?;
        if let Some(job) = jobs.iter().find(|job| !of.contains_key(**job)) {
            bail!("{FILE} has no floor for {job}");
        }
        if let Some(name) = of.keys().find(|name| !jobs.contains(&name.as_str())) {
            bail!("{FILE} has a floor for {name}, and there is no such job");
        }
        Ok(Self { path, of })
    }

    /// Why the job is below its floor. `strict` where what is skipped counts as lacking.
    pub(super) fn complaint(
        &self,
        job: &str,
        tally: Tally,
        children: u64,
        strict: bool,
    ) -> Option<String> {
        let floor = self.of.get(job)?;
        let Tally {
            passed, skipped, ..
        } = tally;
        if passed < floor.passed && (strict || skipped == 0) {
            return Some(format!(
                "FAIL {passed} passed and {skipped} were skipped: {FILE} wants {} that pass",
                floor.passed
            ));
        }
        let expected = floor.children.filter(|_| passed > 0)?;
        (children != expected).then(|| {
            format!(
                "FAIL {children} tests are left to be run by others, {FILE} says {expected}: see \
                 `--raise-floors`"
            )
        })
    }

    /// Raises the floor of a job to what has passed.
    pub(super) fn raise(&mut self, job: &str, tally: Tally, children: u64) {
        if let Some(floor) = self.of.get_mut(job).filter(|_| tally.failed == 0) {
            floor.passed = floor.passed.max(tally.passed);
            floor.children = floor.children.map(|_| children);
        }
    }

    /// Writes the file.
    pub(super) fn save(&self) -> anyhow::Result<()> {
        let text = format!("{HEADER}\n{}", toml::to_string(&self.of)?);
        fs::write(&self.path, text).with_context(|| format!("cannot write {FILE}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floors(passed: u64, children: Option<u64>) -> Floors {
        Floors {
            path: PathBuf::new(),
            of: BTreeMap::from([("unit".to_owned(), Floor { passed, children })]),
        }
    }

    fn tally(passed: u64, skipped: u64) -> Tally {
        Tally {
            passed,
            failed: 0,
            skipped,
        }
    }

    #[test]
    fn fewer_than_the_floor_fail() {
        let floors = floors(10, None);
        for strict in [true, false] {
            let complaint = |tally| floors.complaint("unit", tally, 0, strict);
            assert_eq!(complaint(tally(10, 0)), None);
            assert_eq!(complaint(tally(11, 3)), None);
            assert!(complaint(tally(9, 0)).is_some());
            assert_eq!(complaint(tally(9, 1)).is_some(), strict);
            assert_eq!(complaint(tally(0, 1)).is_some(), strict);
        }
    }

    #[test]
    fn the_filter_leaves_out_what_it_should() {
        let floors = floors(10, Some(2));
        assert_eq!(floors.complaint("unit", tally(10, 0), 2, true), None);
        for children in [0, 1, 3] {
            assert!(
                floors
                    .complaint("unit", tally(10, 0), children, true)
                    .is_some()
            );
        }
    }

    #[test]
    fn floors_only_rise() {
        let mut floors = floors(10, Some(2));
        floors.raise("unit", tally(9, 4), 2);
        assert_eq!(floors.of["unit"].passed, 10);
        floors.raise("unit", tally(12, 0), 3);
        assert_eq!(floors.of["unit"].passed, 12);
        assert_eq!(floors.of["unit"].children, Some(3));
        let failed = Tally {
            passed: 20,
            failed: 1,
            skipped: 0,
        };
        floors.raise("unit", failed, 3);
        assert_eq!(floors.of["unit"].passed, 12);
    }

    #[test]
    fn the_committed_file_names_every_job() {
        let ws = Workspace::load().expect("a workspace");
        let names: Vec<&str> = crate::test::jobs::JOBS.iter().map(|job| job.name).collect();
        Floors::load(&ws, &names).expect("floors");
        assert!(Floors::load(&ws, &names[1..]).is_err());
        assert!(Floors::load(&ws, &[&names[..], &["more"]].concat()).is_err());
    }
}
