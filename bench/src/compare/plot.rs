//! Plots: for each provider, distance and number of directions one file with four charts, and one for
//! each sweep of something else than sizes.

use std::path::{Path, PathBuf};

use anyhow::Result;
use ripstop_cli::perf::{Kind, bytes, digits};

use super::samples::{Distance, Record, Spread, Sweep, Taken};
use super::table::{at, by, figure, is_latency, place, title, unit};
use crate::machine::slug;
use crate::plot::{Axis, Chart, Line, Page};

/// A chart of each.
const ONE: [Kind; 4] = [Kind::Latency, Kind::Stream, Kind::Write, Kind::Read];
const BOTH: [Kind; 4] = [
    Kind::Exchange,
    Kind::StreamBoth,
    Kind::WriteBoth,
    Kind::ReadBoth,
];

/// Draws everything and gives the files.
///
/// # Errors
/// When a file cannot be written.
pub(super) fn draw(record: &Record, dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for distance in record.distances() {
        for provider in record.providers() {
            let parts = [(ONE, "one direction"), (BOTH, "both directions")];
            let by_size = parts.map(|(kinds, direction)| {
                let charts = kinds.map(|kind| by_size(record, provider, kind, distance));
                (direction.to_owned(), slug(direction), Vec::from(charts))
            });
            let sweeps = [Sweep::Depth, Sweep::Peers].into_iter();
            let sweeps = sweeps.filter_map(|sweep| {
                let by = by(sweep)?;
                let charts = by_sweep(record, provider, sweep, distance);
                Some((format!("by {by}"), slug(by), charts))
            });
            for (what, part, charts) in by_size.into_iter().chain(sweeps) {
                if charts.iter().all(|chart| chart.lines.is_empty()) {
                    continue;
                }
                let machine = slug(&record.machine);
                let name = format!("{machine}-{provider}-{}-{part}.svg", distance.word());
                let path = dir.join(name);
                let page = Page {
                    head: format!("{provider}, {what}, {}", place(record, distance)),
                    machine: record.machine.clone(),
                    charts,
                };
                page.draw(&path)?;
                files.push(path);
            }
        }
    }
    Ok(files)
}

/// A kind of test by size.
fn by_size(record: &Record, provider: &str, kind: Kind, distance: Distance) -> Chart {
    let tests = tests(record, provider, Sweep::Size, distance);
    let tests: Vec<&Taken> = tests.filter(|taken| taken.kind == kind).collect();
    Chart {
        title: title(kind).to_owned(),
        across: Axis {
            unit: "bytes",
            text: |size| bytes(size.round() as usize),
        },
        up: Axis {
            unit: if is_latency(kind) { "µs" } else { "GB/s" },
            text: digits,
        },
        lines: lines(record, &tests, distance, |taken, nanos| {
            match is_latency(kind) {
                true => nanos / 1e3,
                false => taken.size as f64 / nanos,
            }
        }),
    }
}

/// A chart for each kind and size of a sweep.
fn by_sweep(record: &Record, provider: &str, sweep: Sweep, distance: Distance) -> Vec<Chart> {
    let mut groups: Vec<(Kind, usize, Vec<&Taken>)> = Vec::new();
    for taken in tests(record, provider, sweep, distance) {
        let same =
            |(kind, size, _): &&mut (Kind, usize, _)| (*kind, *size) == (taken.kind, taken.size);
        match groups.iter_mut().find(same) {
            Some((.., tests)) => tests.push(taken),
            None => groups.push((taken.kind, taken.size, vec![taken])),
        }
    }
    let groups = groups.into_iter();
    let charts = groups.map(|(kind, size, tests)| Chart {
        title: format!("{} of {} bytes", title(kind), bytes(size)),
        across: Axis {
            unit: by(sweep).unwrap_or("bytes"),
            text: digits,
        },
        up: Axis {
            unit: unit(kind, size),
            text: digits,
        },
        lines: lines(record, &tests, distance, |_, nanos| {
            figure(kind, size, nanos)
        }),
    });
    charts.collect()
}

/// The tests of a sweep that were taken often enough.
fn tests<'a>(
    record: &'a Record,
    provider: &'a str,
    sweep: Sweep,
    distance: Distance,
) -> impl Iterator<Item = &'a Taken> {
    record.tests.iter().filter(move |taken| {
        taken.provider == provider && taken.sweep == sweep && taken.is_enough(distance)
    })
}

/// A line of each subject, of the medians of its nanoseconds as figures.
fn lines(
    record: &Record,
    tests: &[&Taken],
    distance: Distance,
    figure: impl Fn(&Taken, f64) -> f64,
) -> Vec<Line> {
    let points = |subject| {
        let points = tests.iter().filter_map(|taken| {
            let nanos = Spread::of(&taken.nanos(distance, subject))?.median;
            Some((at(taken) as f64, figure(taken, nanos)))
        });
        let mut points: Vec<(f64, f64)> = points.collect();
        // Runs that are put together may have taken them in any order.
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points
    };
    let subjects = record.subjects.iter().enumerate();
    let lines = subjects.map(|(number, subject)| Line {
        label: subject.label.clone(),
        color: subject.role.color(number),
        points: points(number),
    });
    lines.filter(|line| !line.points.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::tests::{record, taken};
    use super::*;

    #[test]
    fn files_are_named_by_machine_and_distance() {
        let far: &[(f64, &[f64])] = &[(200.0, &[400.0, 300.0, 800.0, 200.0])];
        let mut tests = [8, 4096]
            .map(|size| taken(Kind::Latency, size, far))
            .to_vec();
        for number in [1, 4, 16] {
            let of = |sweep, kind, size| Taken {
                sweep,
                depth: number,
                peers: number,
                ..taken(kind, size, far)
            };
            tests.push(of(Sweep::Depth, Kind::Stream, 8));
            tests.extend([8, 4096].map(|size| of(Sweep::Peers, Kind::Gather, size)));
        }
        let mut record = record(tests);
        record.machine = "AMD EPYC(R) 7 (family 1), 2 cores".to_owned();
        let dir = tempfile::tempdir().expect("a folder");
        let files = draw(&record, dir.path()).expect("plots");
        let name = |path: &PathBuf| path.file_name().map(|n| n.to_string_lossy().into_owned());
        let names: Vec<_> = files.iter().filter_map(name).collect();
        let parts = ["one-direction", "under-way", "peers"];
        assert_eq!(
            names,
            parts.map(|part| format!("amd-epyc-7-family-1-shm-far-{part}.svg"))
        );
        let peers = std::fs::read_to_string(&files[2]).expect("a file");
        assert!(peers.contains("of 4K bytes") && peers.contains("polyline"));
        let text = std::fs::read_to_string(&files[0]).expect("a file");
        for part in ["<svg", "handover 200 ns", "Peer", "Machine", "polyline"] {
            assert!(text.contains(part), "{part}");
        }
    }
}
