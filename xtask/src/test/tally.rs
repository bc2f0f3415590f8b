//! Counting what ran, from a program's exit status and from what it printed.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;

/// How many lines tell of a failure that says nothing of itself.
const LAST: usize = 5;

/// How many checks passed, failed and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

/// How a program tells what it did.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Voice {
    /// Its exit status counts as one check.
    Status,
    /// It runs Rust's test harness, once or several times.
    Harness,
    /// It prints `PASS ...`, `FAIL ...` and `SKIP ...` lines, or a last line like ours.
    Script,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

impl Tally {
    /// One check that ended well or badly.
    fn one(success: bool) -> Self {
        Self {
            passed: success.into(),
            failed: (!success).into(),
            skipped: 0,
        }
    }

    /// Reads `3 passed, 0 failed, 1 skipped`.
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.trim().split(", ");
        let mut number = |word: &str| parts.next()?.strip_suffix(word)?.trim_end().parse().ok();
        let tally = Self {
            passed: number("passed")?,
            failed: number("failed")?,
            skipped: number("skipped")?,
        };
        parts.next().is_none().then_some(tally)
    }
}

/// So many checks that were skipped for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Skip {
    pub(super) reason: String,
    pub(super) count: u64,
}

/// What a program told of the checks that it made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) tally: Tally,
    /// Why checks were skipped; the counts add up to those of the tally.
    pub(super) skips: Vec<Skip>,
    /// Tests that a filter kept the harness from running.
    pub(super) filtered: u64,
    /// It ended well and has told of no check.
    pub(super) is_silent: bool,
}

impl Told {
    /// What a program did that printed `output` and ended with `success`.
    ///
    /// Nothing passes that did not run: a program of many checks that tells of none has failed.
    pub(super) fn of(voice: Voice, success: bool, output: &str) -> Self {
        let mut told = match voice {
            Voice::Status => Self {
                tally: Tally::one(success),
                ..Self::default()
            },
            Voice::Harness => harness(output),
            Voice::Script => script(output),
        };
        let has_nothing = told.tally == Tally::default();
        told.is_silent = has_nothing && success;
        // A crash after the last count is a failure of its own.
        if has_nothing || !success && told.tally.failed == 0 {
            told.tally.failed += 1;
        }
        told
    }
}

/// Adds up `test result: ok. 3 passed; 0 failed; 1 ignored; ...` lines.
///
/// A test that finds out while it runs that it cannot be made here passes for the harness; it has
/// printed `SKIP: reason`, and is counted as skipped.
fn harness(output: &str) -> Told {
    let mut told = Told::default();
    let mut test = "";
    let mut skipped = BTreeMap::new();
    for line in output.lines() {
        if line.starts_with("---- ") {
            test = line;
        } else if first_word(line) == "SKIP" {
            skipped.entry(test).or_insert_with(|| skip(line));
        } else if let Some((_, why)) = line
            .strip_prefix("test ")
            .and_then(|test| test.split_once(" ... ignored"))
        {
            let why = why.trim_start_matches([',', ' ']);
            let reason = if why.is_empty() { "ignored" } else { why };
            told.skips.push(Skip {
                reason: reason.to_owned(),
                count: 1,
            });
        }
        let Some(line) = line.strip_prefix("test result: ") else {
            continue;
        };
        let counts = line.split_once(". ").map_or(line, |(_, counts)| counts);
        for (number, word) in counts
            .split(';')
            .filter_map(|part| part.trim().split_once(' '))
        {
            let number: u64 = number.parse().unwrap_or(0);
            match word {
                "passed" => told.tally.passed += number,
                "failed" => told.tally.failed += number,
                "filtered out" => told.filtered += number,
                _ => {}
            }
        }
    }
    told.tally.passed = told.tally.passed.saturating_sub(skipped.len() as u64);
    told.skips.extend(skipped.into_values());
    told.tally.skipped = told.skips.iter().map(|skip| skip.count).sum();
    told
}

/// The program's own last line of counts, or else its `PASS`, `FAIL` and `SKIP` lines.
fn script(output: &str) -> Told {
    let count = |word: &str| {
        let starts = |line: &&str| first_word(line) == word;
        output.lines().filter(starts).count() as u64
    };
    let lines = output.lines().filter(|line| first_word(line) == "SKIP");
    let mut skips: Vec<Skip> = lines.map(skip).collect();
    let reasons: u64 = skips.iter().map(|skip| skip.count).sum();
    let tally = output.lines().rev().find_map(Tally::parse);
    let tally = tally.unwrap_or_else(|| Tally {
        passed: count("PASS"),
        failed: count("FAIL"),
        skipped: reasons,
    });
    if let Some(rest) = tally.skipped.checked_sub(reasons).filter(|rest| *rest > 0) {
        skips.push(Skip {
            reason: "no reason was given".to_owned(),
            count: rest,
        });
    }
    Told {
        tally,
        skips,
        ..Told::default()
    }
}

/// Reads `SKIP name: reason`, `SKIP: name: reason`, `SKIP: reason`, or, for several at once,
/// `SKIP: 3 cases: reason: names`.
fn skip(line: &str) -> Skip {
    let line = line.trim_start_matches("SKIP");
    let (names, reason) = line
        .trim_start_matches([':', ' '])
        .split_once(": ")
        .unwrap_or(("", line.trim_start_matches([':', ' '])));
    match names.strip_suffix(" cases").map(str::parse) {
        Some(Ok(count)) => Skip {
            reason: reason.rsplit_once(": ").map_or(reason, |r| r.0).to_owned(),
            count,
        },
        _ => Skip {
            reason: reason.to_owned(),
            count: 1,
        },
    }
}

/// The lines that tell what went wrong: `FAIL` lines, failed tests, panics with their message, errors.
///
/// Without any of them, the last lines.
pub(super) fn failures(output: &str) -> Vec<&str> {
    let mut told = Vec::new();
    let mut message = 0_u8;
    let mut has_passed = false;
    for line in output.lines().filter(|line| !line.trim().is_empty()) {
        // What tests that passed have printed tells of no failure.
        match line {
            "successes:" => has_passed = true,
            "failures:" => has_passed = false,
            _ if line.starts_with("test result: ") => has_passed = false,
            _ => {}
        }
        if has_passed {
            continue;
        }
        let panics = line.contains("panicked at");
        let names = first_word(line) == "FAIL"
            || line.ends_with(" ... FAILED")
            || line.starts_with("error");
        if panics || names || message > 0 {
            told.push(line);
        }
        message = if panics { 2 } else { message.saturating_sub(1) };
    }
    if told.is_empty() {
        let lines: Vec<&str> = output.lines().collect();
        told.extend(&lines[lines.len().saturating_sub(LAST)..]);
    }
    told
}

fn first_word(line: &str) -> &str {
    line.split([' ', ':']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(passed: u64, failed: u64, skipped: u64) -> Tally {
        Tally {
            passed,
            failed,
            skipped,
        }
    }

    fn skips(of: &[(u64, &str)]) -> Vec<Skip> {
        let skip = |(count, reason): &(u64, &str)| Skip {
            reason: (*reason).to_owned(),
            count: *count,
        };
        of.iter().map(skip).collect()
    }

    #[test]
    fn harness_counts_are_added() {
        let output = "test a ... ignored, takes an hour\n\
                      test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 1s\n\
                      test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured\n";
        let told = Told::of(Voice::Harness, false, output);
        assert_eq!(told.tally, tally(14, 1, 1));
        assert_eq!(told.filtered, 3);
        assert_eq!(told.skips, skips(&[(1, "takes an hour")]));
    }

    #[test]
    fn a_test_that_could_not_be_made_has_not_passed() {
        let output = "test a ... ok\n\nsuccesses:\n\n---- a stdout ----\nSKIP: no compiler\nSKIP: no headers\n\n\
                      ---- b stdout ----\n1 passed\n\nsuccesses:\n    a\n    b\n\n\
                      test result: ok. 2 passed; 0 failed; 0 ignored\n";
        let told = Told::of(Voice::Harness, true, output);
        assert_eq!(told.tally, tally(1, 0, 1));
        assert_eq!(told.skips, skips(&[(1, "no compiler")]));
    }

    #[test]
    fn a_crash_counts_as_a_failure() {
        let output = "test result: ok. 12 passed; 0 failed; 0 ignored\n";
        assert_eq!(
            Told::of(Voice::Harness, false, output).tally,
            tally(12, 1, 0)
        );
        let told = Told::of(Voice::Harness, false, "error: could not compile");
        assert_eq!(told.tally, tally(0, 1, 0));
        assert!(!told.is_silent);
    }

    #[test]
    fn a_script_may_count_itself() {
        let output = "PASS a\nFAIL b\nSKIP: 2 cases: no shm: c d\n7 passed, 0 failed, 3 skipped\n";
        let told = Told::of(Voice::Script, true, output);
        assert_eq!(told.tally, tally(7, 0, 3));
        assert_eq!(
            told.skips,
            skips(&[(2, "no shm"), (1, "no reason was given")])
        );
    }

    #[test]
    fn a_script_may_name_its_checks() {
        let output = "PASS a\nSKIP b: no package\nSKIP: no network\nPASSING by\n\
                      SKIP: rdm:fi_cq/wait: differs: for good [ms]\n";
        let told = Told::of(Voice::Script, true, output);
        assert_eq!(told.tally, tally(1, 0, 3));
        let reasons = [
            (1, "no package"),
            (1, "no network"),
            (1, "differs: for good [ms]"),
        ];
        assert_eq!(told.skips, skips(&reasons));
    }

    #[test]
    fn nothing_passes_that_did_not_run() {
        for voice in [Voice::Script, Voice::Harness] {
            for output in [
                "",
                "hello",
                "0 passed, 0 failed, 0 skipped\n",
                "running 0 tests\n",
            ] {
                let told = Told::of(voice, true, output);
                assert_eq!(told.tally, tally(0, 1, 0), "{output}");
                assert!(told.is_silent, "{output}");
            }
        }
        let output = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out\n";
        assert!(Told::of(Voice::Harness, true, output).is_silent);
    }

    #[test]
    fn a_status_is_one_check() {
        assert_eq!(
            Told::of(Voice::Status, true, "7 passed, 0 failed, 0 skipped").tally,
            tally(1, 0, 0)
        );
        assert_eq!(Told::of(Voice::Status, false, "").tally, tally(0, 1, 0));
    }

    #[test]
    fn failures_are_told() {
        let output = "PASS a\nFAIL b: 7 instead of 8\ntest c ... ok\ntest d ... FAILED\n\n\
                      thread 'd' panicked at src/d.rs:3:\nassertion failed\n  left: 1\nafter\n\
                      error: test failed\n";
        let told = [
            "FAIL b: 7 instead of 8",
            "test d ... FAILED",
            "thread 'd' panicked at src/d.rs:3:",
            "assertion failed",
            "  left: 1",
            "error: test failed",
        ];
        assert_eq!(failures(output), told);
        let passed = "successes:\n---- e stdout ----\nthread 'e' panicked at src/e.rs:1\nerror\n\n\
                      failures:\n---- f stdout ----\nthread 'f' panicked at src/f.rs:1\n";
        assert_eq!(failures(passed), ["thread 'f' panicked at src/f.rs:1"]);
        assert_eq!(
            failures("1\n2\n3\n4\n5\nkilled\n"),
            ["2", "3", "4", "5", "killed"]
        );
    }

    #[test]
    fn the_last_line_reads_back() {
        let written = tally(1, 2, 3).to_string();
        assert_eq!(Tally::parse(&written), Some(tally(1, 2, 3)));
        assert_eq!(Tally::parse("1 passed, 2 failed, 3 skipped, 4 lost"), None);
    }
}
