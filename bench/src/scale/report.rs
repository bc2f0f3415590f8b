//! The report as tables and as JSON.

use comfy_table::Table;
use ripstop_cli::outln;
use ripstop_cli::perf::digits;
use serde_json::{Value, json};

use super::protocol::grouped;
use super::record::{Curve, Figure, Outcome, Point, Record};
use crate::subject::Role;
use crate::table::{align_right, table};

/// Characters of the reason why a curve ends that a table shows; JSON has all.
const WIDTH: usize = 72;

/// Prints everything on standard output.
pub(super) fn print(record: &Record) {
    outln!("{}", record.machine);
    for subject in &record.subjects {
        outln!("  {:<8} {}", subject.label, subject.about);
    }
    outln!("{}", handover(record));
    outln!("medians; each sample is taken by new processes; less is better in all rows");
    for curve in Curve::ALL {
        let rows = rows(record, curve);
        if !rows.is_empty() {
            outln!("\n{}", curve.title());
            outln!("{rows}");
        }
    }
    let groups = record.points.iter().any(|p| p.curve == Curve::Collectives);
    if groups && record.subjects.iter().all(|s| s.role != Role::Mpi) {
        outln!("not here: MPICH: name a virtual environment that has it with --mpi");
    }
}

/// How far the cores are from each other.
pub(super) fn handover(record: &Record) -> String {
    let handovers = record.handovers.iter().copied();
    match handovers.clone().min_by(f64::total_cmp) {
        Some(least) => {
            let most = handovers.fold(least, f64::max);
            format!("a handover of a cache line between the cores takes {least:.0} to {most:.0} ns")
        }
        None => "the cores are not told apart".to_owned(),
    }
}

/// A table of a curve: a row for each figure of each subject, a column for each point.
fn rows(record: &Record, curve: Curve) -> Rows {
    let mut counts: Vec<u64> = record
        .points
        .iter()
        .filter(|point| point.curve == curve)
        .map(|point| point.count)
        .collect();
    counts.sort_unstable();
    counts.dedup();
    let mut rows = Vec::new();
    for provider in record.providers() {
        let points = record.curve(curve, provider);
        // An end is said once.
        let mut ends = vec![true; record.subjects.len()];
        for figure in curve.figures() {
            for (number, subject) in record.subjects.iter().enumerate() {
                let outcomes = points.iter().filter_map(|p| p.outcomes.get(number));
                let end = match ends[number] {
                    true => end(outcomes.clone()),
                    false => String::new(),
                };
                let nothing = outcomes.clone().all(|outcome| outcome.samples.is_empty());
                let some = outcomes.clone().any(|o| o.figure(*figure).is_some());
                if !some && (end.is_empty() || !nothing) {
                    continue;
                }
                ends[number] = false;
                let shown = figure.shown();
                let mut row = vec![
                    provider.to_owned(),
                    format!("{}, {}", shown.title, shown.unit),
                    subject.label.clone(),
                ];
                row.extend(
                    counts
                        .iter()
                        .map(|&count| cell(&points, count, number, *figure)),
                );
                row.push(end);
                rows.push(row);
            }
        }
    }
    Rows { counts, rows }
}

/// What a table has.
struct Rows {
    counts: Vec<u64>,
    rows: Vec<Vec<String>>,
}

impl Rows {
    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl std::fmt::Display for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ends = self
            .rows
            .iter()
            .any(|row| row.last().is_some_and(|end| !end.is_empty()));
        let mut header = ["provider", "what", ""].map(ToOwned::to_owned).to_vec();
        header.extend(self.counts.iter().copied().map(grouped));
        if ends {
            header.push("the curve ends".to_owned());
        }
        let width = header.len();
        let mut table: Table = table(header);
        for row in &self.rows {
            table.add_row(row.iter().take(width));
        }
        align_right(&mut table, 3);
        table.fmt(f)
    }
}

/// Why a subject's curve ends, as far as a table has room.
fn end<'a>(mut outcomes: impl Iterator<Item = &'a Outcome>) -> String {
    let end = outcomes.find_map(|outcome| outcome.ended.as_deref());
    let end = end.unwrap_or_default();
    match end.char_indices().nth(WIDTH) {
        Some((cut, _)) => format!("{}...", &end[..cut]),
        None => end.to_owned(),
    }
}

/// A figure of a subject at a point.
fn cell(points: &[&Point], count: u64, subject: usize, figure: Figure) -> String {
    let point = points.iter().find(|point| point.count == count);
    let outcome = point.and_then(|point| point.outcomes.get(subject));
    match outcome.and_then(|outcome| outcome.figure(figure)) {
        Some(value) => digits(value / figure.shown().divisor),
        None => "-".to_owned(),
    }
}

/// Every sample, and medians by point and subject.
pub(super) fn json(record: &Record) -> Value {
    let point = |point: &Point| {
        let subjects = record.subjects.iter().zip(&point.outcomes);
        let medians = subjects.map(|(subject, outcome)| {
            let figures = point.curve.figures().iter();
            let figures = figures.filter_map(|&figure| Some((figure, outcome.figure(figure)?)));
            json!({
                "subject": subject.label,
                "medians": figures.collect::<std::collections::BTreeMap<_, _>>(),
                "ended": outcome.ended,
            })
        });
        json!({
            "curve": point.curve, "provider": point.provider, "count": point.count,
            "subjects": medians.collect::<Vec<_>>(),
        })
    };
    let points: Vec<Value> = record.points.iter().map(point).collect();
    json!({ "points": points, "units": "nanoseconds, bytes", "run": record })
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;

    #[test]
    fn a_row_is_a_curve_and_says_where_it_ends() {
        let record = record();
        let text = rows(&record, Curve::Peers).to_string();
        let row = |label: &str| {
            let mut lines = text.lines();
            let line = lines.find(|line| line.contains(label) && line.contains("connect"));
            line.unwrap_or_default().to_owned()
        };
        for part in ["shm", "2.00", "5.00"] {
            assert!(row("ours").contains(part), "{part} in\n{text}");
        }
        for part in ["4.00", " - ", "ends at 256: no room"] {
            assert!(row("peer").contains(part), "{part} in\n{text}");
        }
        assert_eq!(text.matches("ends at 256").count(), 1);
        assert!(text.contains("1,000") && text.contains("the curve ends"));
        assert!(
            !text.contains("round trip"),
            "nothing was measured:\n{text}"
        );
        assert!(rows(&record, Curve::Regions).is_empty());
    }

    #[test]
    fn a_long_reason_is_cut() {
        let mut outcome = Outcome::default();
        assert_eq!(end([&outcome].into_iter()), "");
        outcome.ended = Some("ü".repeat(WIDTH));
        assert_eq!(end([&outcome].into_iter()), "ü".repeat(WIDTH));
        outcome.ended = Some("ü".repeat(WIDTH + 1));
        let text = end([&outcome].into_iter());
        assert_eq!(text, "ü".repeat(WIDTH) + "...");
    }

    #[test]
    fn medians_are_in_json() {
        let value = json(&record());
        let point = &value["points"][1];
        assert_eq!(
            (&point["count"], &point["curve"]),
            (&json!(10), &json!("peers"))
        );
        assert_eq!(point["subjects"][0]["medians"]["connect"], 2e3);
        let ended = &value["points"][0]["subjects"][1]["ended"];
        assert_eq!(ended, "ends at 256: no room");
        assert_eq!(
            handover(&record()),
            "a handover of a cache line between the cores takes 60 to 60 ns"
        );
    }
}
