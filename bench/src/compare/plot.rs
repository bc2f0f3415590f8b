//! Plots: for each provider, distance and number of directions one file with four charts.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use ripstop_cli::perf::{Kind, bytes, digits};

use super::samples::{Distance, Record, Spread};
use super::table::{is_latency, place, title};
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
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    let mut files = Vec::new();
    for distance in record.distances() {
        for provider in record.providers() {
            for (kinds, direction) in [(ONE, "one-direction"), (BOTH, "both-directions")] {
                let charts = kinds.map(|kind| chart(record, provider, kind, distance));
                if charts.iter().all(|chart| chart.lines.is_empty()) {
                    continue;
                }
                let machine = slug(&record.machine);
                let name = format!("{machine}-{provider}-{}-{direction}.svg", distance.word());
                let path = dir.join(name);
                let page = Page {
                    head: format!(
                        "{provider}, {}, {}",
                        direction.replace('-', " "),
                        place(record, distance)
                    ),
                    machine: record.machine.clone(),
                    charts: charts.into(),
                };
                page.draw(&path)?;
                files.push(path);
            }
        }
    }
    Ok(files)
}

fn chart(record: &Record, provider: &str, kind: Kind, distance: Distance) -> Chart {
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
        lines: lines(record, provider, kind, distance),
    }
}

/// A line of each subject, microseconds or gigabytes a second.
fn lines(record: &Record, provider: &str, kind: Kind, distance: Distance) -> Vec<Line> {
    let points = |subject| {
        let tests = record.tests.iter();
        let tests = tests
            .filter(|taken| taken.provider == provider && taken.kind == kind)
            .filter(|taken| taken.is_enough(distance));
        let points = tests.filter_map(|taken| {
            let nanos = Spread::of(&taken.nanos(distance, subject))?.median;
            let size = taken.size as f64;
            Some((
                size,
                if is_latency(kind) {
                    nanos / 1e3
                } else {
                    size / nanos
                },
            ))
        });
        points.collect::<Vec<_>>()
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
        let tests = [8, 4096].map(|size| taken(Kind::Latency, size, far));
        let mut record = record(tests.to_vec());
        record.machine = "AMD EPYC(R) 7 (family 1), 2 cores".to_owned();
        let dir = tempfile::tempdir().expect("a folder");
        let files = draw(&record, dir.path()).expect("plots");
        let name = |path: &PathBuf| path.file_name().map(|n| n.to_string_lossy().into_owned());
        let names: Vec<_> = files.iter().filter_map(name).collect();
        assert_eq!(names, ["amd-epyc-7-shm-far-one-direction.svg"]);
        let text = std::fs::read_to_string(&files[0]).expect("a file");
        for part in ["<svg", "handover 200 ns", "Peer", "Machine", "polyline"] {
            assert!(text.contains(part), "{part}");
        }
    }
}
