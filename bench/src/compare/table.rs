//! The report as tables and as JSON.

use comfy_table::Table;
use ripstop_cli::outln;
use ripstop_cli::perf::{Kind, WINDOW, bytes, digits};
use serde_json::{Value, json};

use super::samples::{Distance, FAR_FROM_NS, Record, Spread, Sweep, Taken};
use super::targets::{ALL, ELSEWHERE, Verdict, missing};
use crate::subject::{Role, Subject};
use crate::table::{align_right, table};

/// From this size on, rates are bytes a second.
const BANDWIDTH_FROM: usize = 4 << 10;

/// Prints everything on standard output.
pub(super) fn print(record: &Record, verdicts: &[Verdict]) {
    outln!("{}", record.machine);
    for subject in &record.subjects {
        outln!("  {:<9} {}", subject.label, subject.about);
    }
    outln!(
        "medians, ± half the distance of the quartiles; {WINDOW} messages or operations under way but \
         for latency and where it is said; both: each side at once, the figure is of one side\n\
         near: a handover of a cache line takes less than {FAR_FROM_NS} ns; far: that or more"
    );
    if record.moved() > 0 {
        outln!(
            "{} rounds are left out: the cores moved while they were taken",
            record.moved()
        );
    }
    for distance in record.distances() {
        for provider in record.providers() {
            for sweep in [Sweep::Size, Sweep::Depth, Sweep::Peers] {
                for &kind in ALL {
                    let tests = record.tests.iter();
                    let tests: Vec<&Taken> = tests
                        .filter(|taken| taken.provider == provider && taken.kind == kind)
                        .filter(|taken| taken.sweep == sweep && !taken.of(distance).is_empty())
                        .collect();
                    if !tests.is_empty() {
                        let by = by(sweep).map_or_else(String::new, |by| format!(" by {by}"));
                        let (what, place) = (title(kind), place(record, distance));
                        outln!("\n{provider}, {what}{by}, {place}");
                        outln!("{}", rows(record, &tests, distance));
                    }
                }
            }
        }
    }
    outln!(
        "\nTargets: the worst of all tests that a row is about, in groups that have a third of the rounds\n{}",
        verdict_table(verdicts)
    );
    for (what, by) in missing(record).chain(ELSEWHERE) {
        outln!("not here: {what}: {by}");
    }
}

/// Every sample and every verdict.
pub(super) fn json(record: &Record, verdicts: &[Verdict]) -> Value {
    let group = |distance: Distance| {
        let tests = record.tests.iter().filter(|t| !t.of(distance).is_empty());
        let test = |taken: &Taken| {
            let subjects = 0..record.subjects.len();
            let spread = |subject| Spread::of(&taken.nanos(distance, subject));
            json!({
                "provider": taken.provider, "test": taken.kind.word(), "bytes": taken.size,
                "sweep": taken.sweep, "depth": taken.depth, "peers": taken.peers,
                "nanoseconds": subjects.map(spread).collect::<Vec<_>>(),
            })
        };
        json!({
            "distance": distance,
            "handover_ns": record.handover(distance),
            "tests": tests.map(test).collect::<Vec<_>>(),
        })
    };
    let groups: Vec<Value> = record.distances().into_iter().map(group).collect();
    json!({ "groups": groups, "targets": verdicts, "run": record })
}

/// What the tests of a sweep differ in besides their size.
pub(super) const fn by(sweep: Sweep) -> Option<&'static str> {
    match sweep {
        Sweep::Size => None,
        Sweep::Depth => Some("under way"),
        Sweep::Peers => Some("peers"),
    }
}

/// Where a test is in its sweep.
pub(super) fn at(taken: &Taken) -> usize {
    match taken.sweep {
        Sweep::Size => taken.size,
        Sweep::Depth => taken.depth as usize,
        Sweep::Peers => taken.peers as usize,
    }
}

/// What a test is, and which way its figures are good.
pub(super) fn title(kind: Kind) -> &'static str {
    match kind {
        Kind::Latency => "tagged latency, half a round trip (less is better)",
        Kind::Exchange => "tagged latency, both: one message each way at once (less is better)",
        Kind::Stream => "tagged messages (more is better)",
        Kind::StreamBoth => "tagged messages, both (more is better)",
        Kind::Write => "RMA writes (more is better)",
        Kind::WriteBoth => "RMA writes, both (more is better)",
        Kind::Read => "RMA reads (more is better)",
        Kind::ReadBoth => "RMA reads, both (more is better)",
        Kind::Gather => {
            "tagged messages of processes on one core to one on the other (more is better)"
        }
        other => other.word(),
    }
}

/// Whether the figures of a test are times.
pub(super) fn is_latency(kind: Kind) -> bool {
    matches!(kind, Kind::Latency | Kind::Exchange)
}

/// The group in words.
pub(super) fn place(record: &Record, distance: Distance) -> String {
    match record.handover(distance) {
        Some(spread) => format!(
            "{} cores (handover {:.0} ns, {:.0} to {:.0})",
            distance.word(),
            spread.median,
            spread.range.0,
            spread.range.1
        ),
        None if distance == Distance::One => "both sides on one core".to_owned(),
        None => "cores not told apart".to_owned(),
    }
}

/// A figure in its unit, of nanoseconds.
pub(super) fn figure(kind: Kind, size: usize, nanos: f64) -> f64 {
    match (is_latency(kind), size >= BANDWIDTH_FROM) {
        (true, _) => nanos / 1e3,
        (false, false) => 1e3 / nanos,
        (false, true) => size as f64 / nanos,
    }
}

pub(super) const fn unit(kind: Kind, size: usize) -> &'static str {
    match (
        matches!(kind, Kind::Latency | Kind::Exchange),
        size >= BANDWIDTH_FROM,
    ) {
        (true, _) => "us",
        (false, false) => "M/s",
        (false, true) => "GB/s",
    }
}

/// Median and spread of a subject.
fn cell(taken: &Taken, distance: Distance, subject: usize) -> String {
    let Some(spread) = Spread::of(&taken.nanos(distance, subject)) else {
        return "-".to_owned();
    };
    let apart = (spread.quartiles.1 - spread.quartiles.0) / 2.0 / spread.median * 100.0;
    let value = digits(figure(taken.kind, taken.size, spread.median));
    format!("{value} ±{apart:.0} %")
}

/// Ours over another, as the figures are.
fn ratio(taken: &Taken, distance: Distance, of: usize, over: usize) -> String {
    let times = taken.ratio(distance, of, over);
    let ratio = times.map(|times| {
        if is_latency(taken.kind) {
            times
        } else {
            1.0 / times
        }
    });
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// A row for each size.
fn rows(record: &Record, tests: &[&Taken], distance: Distance) -> Table {
    let by = tests.first().and_then(|taken| by(taken.sweep));
    let mut header = vec!["bytes".to_owned()];
    header.extend(by.map(ToOwned::to_owned));
    header.push("unit".to_owned());
    // Those with a sample: a test may be one that a subject does not have.
    let subjects = record.subjects.iter().enumerate();
    let there = |subject| {
        let mut tests = tests.iter();
        tests.any(|taken| !taken.nanos(distance, subject).is_empty())
    };
    let shown = subjects.filter(|(number, _)| there(*number));
    let shown: Vec<(usize, &Subject)> = shown.collect();
    header.extend(shown.iter().map(|(_, subject)| subject.label.clone()));
    let others = shown.iter();
    let others: Vec<(usize, &str)> = others
        // A program over ours is no other library.
        .filter(|(_, subject)| !matches!(subject.role, Role::Ours | Role::OnOurs))
        .map(|(number, subject)| (*number, subject.label.as_str()))
        .collect();
    header.extend(others.iter().map(|(_, label)| format!("ours/{label}")));
    header.push("rounds".to_owned());
    let mut table = table(header);
    let ours = record.subject(Role::Ours).unwrap_or_default();
    for taken in tests {
        let mut row = vec![bytes(taken.size)];
        row.extend(by.map(|_| at(taken).to_string()));
        row.push(unit(taken.kind, taken.size).to_owned());
        row.extend(
            shown
                .iter()
                .map(|(number, _)| cell(taken, distance, *number)),
        );
        row.extend(
            others
                .iter()
                .map(|(other, _)| ratio(taken, distance, ours, *other)),
        );
        row.push(taken.of(distance).len().to_string());
        table.add_row(row);
    }
    align_right(&mut table, 2 + usize::from(by.is_some()));
    table
}

fn verdict_table(verdicts: &[Verdict]) -> Table {
    let header = [
        "provider", "cores", "what", "against", "target", "worst", "at", "verdict", "short",
    ];
    let mut table = table(header.map(ToOwned::to_owned).to_vec());
    for verdict in verdicts {
        table.add_row(vec![
            verdict.provider.to_owned(),
            verdict.distance.word().to_owned(),
            verdict.what.to_owned(),
            verdict.against.clone(),
            verdict.target.clone(),
            format!("{:.2}", verdict.figure),
            verdict.worst.clone(),
            verdict.text(),
            format!("{} of {}", verdict.short, verdict.tests),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::samples::tests::{record, taken};
    use super::super::targets::verdicts;
    use super::*;

    #[test]
    fn a_row_has_figures_in_their_unit_and_ratios() {
        let stream = taken(
            Kind::Stream,
            8 << 10,
            &[(40.0, &[1024.0, 1024.0, 2048.0, 512.0])],
        );
        let record = record(vec![stream]);
        let text = rows(&record, &[&record.tests[0]], Distance::Near).to_string();
        for part in [
            "8K",
            "GB/s",
            "8.00 ±0 %",
            "4.00 ±0 %",
            "2.00",
            "0.50",
            "ours/Peer",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert_eq!(figure(Kind::Stream, 8, 50.0), 20.0);
        assert_eq!(figure(Kind::Latency, 8 << 10, 1500.0), 1.5);
    }

    #[test]
    fn a_sweep_has_a_column_of_what_it_is_by() {
        let deep = |depth| Taken {
            sweep: Sweep::Depth,
            depth,
            ..taken(Kind::Stream, 8, &[(40.0, &[100.0, 100.0, 200.0, 50.0])])
        };
        let record = record(vec![deep(4), deep(256)]);
        let tests: Vec<&Taken> = record.tests.iter().collect();
        let text = rows(&record, &tests, Distance::Near).to_string();
        for part in ["under way", "256", "M/s", "10.0 ±0 %"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn targets_are_printed_with_their_verdict() {
        let record = record(vec![taken(
            Kind::Latency,
            8,
            &[(40.0, &[90.0, 90.0, 100.0])],
        )]);
        let found = verdicts(&record);
        let text = verdict_table(&found).to_string();
        for part in ["falls short by 50.0 %", "holds", "time at most 0.6", "0.90"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let value = json(&record, &found);
        assert_eq!(value["groups"][0]["distance"], "near");
        assert_eq!(
            value["groups"][0]["tests"][0]["nanoseconds"][2]["median"],
            100.0
        );
        assert_eq!(value["run"]["tests"][0]["size"], 8);
    }
}
