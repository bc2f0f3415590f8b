//! Plots: for each curve and provider one file, with a chart of each figure.

use std::path::{Path, PathBuf};

use anyhow::Result;
use ripstop_cli::perf::digits;

use super::protocol::grouped;
use super::record::{Curve, Figure, Record};
use super::report::handover;
use crate::machine::slug;
use crate::plot::{Axis, Chart, Line, Page};

/// Draws everything and gives the files.
///
/// # Errors
/// When a file cannot be written.
pub(super) fn draw(record: &Record, dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for curve in Curve::ALL {
        for provider in record.providers() {
            let figures = curve.figures().iter();
            let charts = figures.map(|&figure| chart(record, curve, provider, figure));
            let charts: Vec<Chart> = charts.filter(|chart| !chart.lines.is_empty()).collect();
            if charts.is_empty() {
                continue;
            }
            let name = format!(
                "{}-scale-{}-{provider}.svg",
                slug(&record.machine),
                curve.word()
            );
            let path = dir.join(name);
            let page = Page {
                head: format!("{provider}: {}", curve.title()),
                machine: format!("{}; {}", record.machine, handover(record)),
                charts,
            };
            page.draw(&path)?;
            files.push(path);
        }
    }
    Ok(files)
}

fn chart(record: &Record, curve: Curve, provider: &str, figure: Figure) -> Chart {
    let shown = figure.shown();
    Chart {
        title: shown.title.to_owned(),
        across: Axis {
            unit: curve.across(),
            text: |count| grouped(count.round() as u64),
        },
        up: Axis {
            unit: shown.unit,
            text: digits,
        },
        lines: lines(record, curve, provider, figure),
    }
}

/// A line of each subject that has a point above 0, which is what a logarithmic axis can show.
fn lines(record: &Record, curve: Curve, provider: &str, figure: Figure) -> Vec<Line> {
    let points = record.curve(curve, provider);
    let divisor = figure.shown().divisor;
    let line = |subject: usize| {
        let points = points.iter().filter_map(|point| {
            let value = point.outcomes.get(subject)?.figure(figure)? / divisor;
            (value > 0.0).then_some((point.count as f64, value))
        });
        Line {
            label: record.subjects[subject].label.clone(),
            color: record.subjects[subject].role.color(subject),
            points: points.collect(),
        }
    };
    let lines = (0..record.subjects.len()).map(line);
    lines.filter(|line| !line.points.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{outcome, record};
    use super::*;

    #[test]
    fn points_are_in_order_and_above_0() {
        let mut record = record();
        record.points[0].outcomes[1] = outcome(Figure::Connect, &[0.0]);
        let lines = lines(&record, Curve::Peers, "shm", Figure::Connect);
        assert_eq!(lines[0].points, [(10.0, 2.0), (1_000.0, 5.0)]);
        assert_eq!(lines[1].points, [(10.0, 4.0)]);
        assert!(super::lines(&record, Curve::Peers, "shm", Figure::Read).is_empty());
    }

    #[test]
    fn a_file_has_the_lines_of_all() {
        let dir = tempfile::tempdir().expect("a folder");
        let files = draw(&record(), dir.path()).expect("plots");
        let names: Vec<_> = files.iter().filter_map(|path| path.file_name()).collect();
        assert_eq!(names, ["amd-epyc-7-family-1-scale-peers-shm.svg"]);
        let text = std::fs::read_to_string(&files[0]).expect("a file");
        for part in [
            "<svg",
            "60 ns",
            "ours",
            "peer",
            "polyline",
            "connected peers",
            "1,000",
        ] {
            assert!(text.contains(part), "{part}");
        }
    }
}
