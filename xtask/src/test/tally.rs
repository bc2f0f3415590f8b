//! Counting what ran, from a program's exit status and from what it printed.

use std::fmt;
use std::ops::AddAssign;

/// How many lines tell of a failure that says nothing of itself.
const LAST: usize = 5;

/// How many checks passed, failed and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
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

    /// What a program did that printed `output` and ended with `success`.
    pub(super) fn of(voice: Voice, success: bool, output: &str) -> Self {
        let told = match voice {
            Voice::Status => Self::default(),
            Voice::Harness => harness(output),
            Voice::Script => script(output),
        };
        if told == Self::default() {
            return Self::one(success);
        }
        // A crash after the last count is a failure of its own.
        let unsaid = u64::from(!success && told.failed == 0);
        Self {
            failed: told.failed + unsaid,
            ..told
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

/// Adds up `test result: ok. 3 passed; 0 failed; 1 ignored; ...` lines.
fn harness(output: &str) -> Tally {
    let mut sum = Tally::default();
    for line in output
        .lines()
        .filter_map(|line| line.strip_prefix("test result: "))
    {
        let counts = line.split_once(". ").map_or(line, |(_, counts)| counts);
        for (number, word) in counts
            .split(';')
            .filter_map(|part| part.trim().split_once(' '))
        {
            let number = number.parse().unwrap_or(0);
            match word {
                "passed" => sum.passed += number,
                "failed" => sum.failed += number,
                "ignored" => sum.skipped += number,
                _ => {}
            }
        }
    }
    sum
}

/// The program's own last line of counts, or else its `PASS`, `FAIL` and `SKIP` lines.
fn script(output: &str) -> Tally {
    if let Some(tally) = output.lines().rev().find_map(Tally::parse) {
        return tally;
    }
    let count = |word: &str| {
        let starts = |line: &&str| first_word(line) == word;
        output.lines().filter(starts).count() as u64
    };
    Tally {
        passed: count("PASS"),
        failed: count("FAIL"),
        skipped: count("SKIP"),
    }
}

/// The reasons a script gave on its `SKIP` lines.
pub(super) fn skip_reasons(output: &str) -> Vec<String> {
    let reason = |line: &str| {
        line["SKIP".len()..]
            .trim_start_matches([':', ' '])
            .to_owned()
    };
    output
        .lines()
        .filter(|line| first_word(line) == "SKIP")
        .map(reason)
        .collect()
}

/// The lines that tell what went wrong: `FAIL` lines, failed tests, panics with their message, errors.
///
/// Without any of them, the last lines.
pub(super) fn failures(output: &str) -> Vec<&str> {
    let mut told = Vec::new();
    let mut message = 0_u8;
    for line in output.lines().filter(|line| !line.trim().is_empty()) {
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

    #[test]
    fn harness_counts_are_added() {
        let output = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out\n\
                      test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured\n";
        assert_eq!(Tally::of(Voice::Harness, false, output), tally(14, 1, 1));
    }

    #[test]
    fn a_crash_counts_as_a_failure() {
        let output = "test result: ok. 12 passed; 0 failed; 0 ignored\n";
        assert_eq!(Tally::of(Voice::Harness, false, output), tally(12, 1, 0));
        assert_eq!(
            Tally::of(Voice::Harness, false, "error: could not compile"),
            tally(0, 1, 0)
        );
    }

    #[test]
    fn a_script_may_count_itself() {
        let output = "PASS a\nFAIL b\n7 passed, 0 failed, 2 skipped\n";
        assert_eq!(Tally::of(Voice::Script, true, output), tally(7, 0, 2));
    }

    #[test]
    fn a_script_may_name_its_checks() {
        let output = "PASS a\nSKIP b: no package\nSKIP: no network\nPASSING by\n";
        assert_eq!(Tally::of(Voice::Script, true, output), tally(1, 0, 2));
        assert_eq!(skip_reasons(output), ["b: no package", "no network"]);
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
        assert_eq!(
            failures("1\n2\n3\n4\n5\nkilled\n"),
            ["2", "3", "4", "5", "killed"]
        );
    }

    #[test]
    fn a_silent_script_is_one_check() {
        assert_eq!(Tally::of(Voice::Script, true, "hello"), tally(1, 0, 0));
        assert_eq!(Tally::of(Voice::Script, false, ""), tally(0, 1, 0));
    }

    #[test]
    fn the_last_line_reads_back() {
        let written = tally(1, 2, 3).to_string();
        assert_eq!(Tally::parse(&written), Some(tally(1, 2, 3)));
        assert_eq!(Tally::parse("1 passed, 2 failed, 3 skipped, 4 lost"), None);
    }
}
