//! What a run comes to: for people, and for machines.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::lists::Lists;
use crate::run::{Ending, Plan, Ran, Way};

/// What a case counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    Skipped,
    /// It is no case in this run, and is not counted.
    Inapplicable,
}

/// A case with its verdict and the reason.
#[derive(Clone, Debug)]
struct Row {
    ran: Ran,
    verdict: Verdict,
    reason: String,
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct Report {
    title: String,
    rows: Vec<Row>,
}

/// Counts by verdict.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Tally {
    fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Failed => self.failed += 1,
            Verdict::Skipped => self.skipped += 1,
            Verdict::Inapplicable => {}
        }
    }
}

/// Holds how a case ended against the lists.
fn judge(lists: &Lists, ran: Ran) -> Row {
    if ran.ending == Ending::Passed
        && let Some(mistakes) = &lists.mistakes
        && let Some(reason) = mistakes.misjudged(&ran.id, &ran.said, ran.open)
    {
        let verdict = Verdict::Failed;
        return Row {
            ran,
            verdict,
            reason,
        };
    }
    let required = lists.requires(&ran.id);
    let difference = lists.difference(&ran.id);
    let (verdict, reason) = match (&ran.ending, difference) {
        (Ending::Passed, _) if lists.required.is_some() && !required => {
            match lists.excuses(&ran.id, true) {
                Some(why) => (Verdict::Inapplicable, why.to_owned()),
                None => (
                    Verdict::Failed,
                    "passes, but is not in the list of required cases: run with --update"
                        .to_owned(),
                ),
            }
        }
        (Ending::Passed, Some(_)) => {
            let note = "passes, though differences.toml says it does not";
            (Verdict::Passed, note.to_owned())
        }
        (Ending::Passed, None) => (Verdict::Passed, String::new()),
        (Ending::NotOffered(why), _) if required => {
            (Verdict::Failed, format!("required, but not offered: {why}"))
        }
        (Ending::NotHere(why), _) if required && lists.is_ci => (
            Verdict::Failed,
            format!("required where CI is set, but {why}"),
        ),
        (Ending::NotHere(why), _) => (Verdict::Skipped, why.clone()),
        (Ending::NotOffered(why), _) => match lists.inapplicable(&ran.id) {
            Some(why) => (Verdict::Inapplicable, why.to_owned()),
            None => (Verdict::Skipped, format!("not offered: {why}")),
        },
        (Ending::Failed(what), Some(difference)) => (
            Verdict::Skipped,
            format!("known difference: {} [{what}]", difference.reason()),
        ),
        (Ending::Failed(what), None) => match lists.excuses(&ran.id, false) {
            Some(why) if !required => (Verdict::Inapplicable, format!("{why} [{what}]")),
            _ => (Verdict::Failed, what.clone()),
        },
    };
    Row {
        ran,
        verdict,
        reason,
    }
}

impl Report {
    /// Judges the results.
    #[must_use]
    pub fn new(plan: &Plan, lists: &Lists, results: Vec<Ran>) -> Self {
        let way = match &plan.way {
            Way::Library(path) => path.display().to_string(),
            Way::Rust => "the Rust object model".to_owned(),
        };
        let setup = &plan.setup;
        Self {
            title: format!(
                "{} on {way}, {}{}",
                setup.provider,
                setup.level(),
                if plan.apart { ", sides apart" } else { "" }
            ),
            rows: results.into_iter().map(|r| judge(lists, r)).collect(),
        }
    }

    /// The ids of the cases that passed, listed or not, and that do not merely vary.
    pub fn passed(&self) -> impl Iterator<Item = &str> {
        let passed =
            |r: &&Row| r.ran.ending == Ending::Passed && r.verdict != Verdict::Inapplicable;
        self.rows.iter().filter(passed).map(|r| r.ran.id.as_str())
    }

    fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        self.rows.iter().for_each(|r| tally.add(r.verdict));
        tally
    }

    /// Success when nothing failed.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self.tally().failed {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }

    /// A line for each reason to skip, with the cases it is the reason for.
    fn skipped(&self) -> String {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for row in self.rows.iter().filter(|r| r.verdict == Verdict::Skipped) {
            match reasons.iter_mut().find(|(why, _)| *why == row.reason) {
                Some((_, ids)) => ids.push(&row.ran.id),
                None => reasons.push((&row.reason, vec![&row.ran.id])),
            }
        }
        let line = |(why, ids): (&str, Vec<&str>)| match ids[..] {
            [id] => format!("SKIP: {id}: {why}\n"),
            _ => format!("SKIP: {} cases: {why}: {}\n", ids.len(), ids.join(" ")),
        };
        reasons.into_iter().map(line).collect()
    }

    /// The report for people; the last line has the counts.
    #[must_use]
    pub fn text(&self, verbose: bool) -> String {
        let mut text = format!("{}\n{}\n", self.title, self.by_page());
        for row in &self.rows {
            let word = match row.verdict {
                Verdict::Passed if verbose || !row.reason.is_empty() => "PASS",
                Verdict::Passed => continue,
                Verdict::Failed => "FAIL",
                Verdict::Skipped if verbose => "SKIP",
                Verdict::Inapplicable if verbose => "NONE",
                Verdict::Skipped | Verdict::Inapplicable => continue,
            };
            let rule = match row.verdict {
                Verdict::Failed => format!(" (rule: {})", row.ran.case.rule),
                _ => String::new(),
            };
            let took = row.ran.took.as_millis();
            let id = &row.ran.id;
            let _ = writeln!(text, "{word}: {id}: {}{rule} [{took} ms]", row.reason);
        }
        for row in self.rows.iter().filter(|_| verbose) {
            for line in &row.ran.said {
                let _ = writeln!(text, "SAID: {}: {line}", row.ran.id);
            }
        }
        if !verbose {
            text.push_str(&self.skipped());
        }
        let none = self.rows.iter();
        let none = none.filter(|r| r.verdict == Verdict::Inapplicable).count();
        if none > 0 {
            let _ = writeln!(text, "{none} cases are none here: see inapplicable.toml");
        }
        let Tally {
            passed,
            failed,
            skipped,
        } = self.tally();
        let _ = writeln!(text, "{passed} passed, {failed} failed, {skipped} skipped");
        text
    }

    /// Counts by man page.
    fn by_page(&self) -> Table {
        let mut pages: BTreeMap<&str, (Tally, u128)> = BTreeMap::new();
        for row in &self.rows {
            let page = row.ran.case.name.split('/').next().unwrap_or_default();
            let (tally, millis) = pages.entry(page).or_default();
            tally.add(row.verdict);
            *millis += row.ran.took.as_millis();
        }
        let mut table = Table::new();
        table
            .load_style(presets::ASCII_BORDERS_ONLY_CONDENSED)
            .set_header(["man page", "passed", "failed", "skipped", "ms"]);
        for (page, (tally, millis)) in pages {
            table.add_row([
                page.to_owned(),
                tally.passed.to_string(),
                tally.failed.to_string(),
                tally.skipped.to_string(),
                millis.to_string(),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    /// The report for machines.
    ///
    /// # Errors
    ///
    /// None that is known.
    pub fn json(&self) -> serde_json::Result<String> {
        let rows: Vec<Value> = self.rows.iter().map(row_json).collect();
        let Tally {
            passed,
            failed,
            skipped,
        } = self.tally();
        serde_json::to_string_pretty(&json!({
            "title": self.title,
            "cases": rows,
            "passed": passed,
            "failed": failed,
            "skipped": skipped,
        }))
    }
}

fn row_json(row: &Row) -> Value {
    json!({
        "id": row.ran.id,
        "rule": row.ran.case.rule,
        "verdict": match row.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::Skipped => "skipped",
            Verdict::Inapplicable => "inapplicable",
        },
        "reason": row.reason,
        "seconds": row.ran.took.as_secs_f64(),
    })
}
