//! Plots: for each provider, distance and number of directions one file with four charts.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
use ripstop_cli::perf::{Kind, bytes, digits};

use super::samples::{Distance, Record, Role, Spread};
use super::table::{is_latency, place, title};

/// Width and height of a file, in pixels.
const SIZE: (u32, u32) = (1200, 860);

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
                let there = |kind: &Kind| !lines(record, provider, *kind, distance).is_empty();
                if !kinds.iter().any(there) {
                    continue;
                }
                let machine = slug(&record.machine);
                let name = format!("{machine}-{provider}-{}-{direction}.svg", distance.word());
                let path = dir.join(name);
                let head = format!(
                    "{provider}, {}, {}",
                    direction.replace('-', " "),
                    place(record, distance)
                );
                file(record, &path, &head, (provider, kinds, distance))?;
                files.push(path);
            }
        }
    }
    Ok(files)
}

/// The processor's name as part of a file's.
fn slug(machine: &str) -> String {
    let name = machine.replace("(R)", "").replace("(TM)", "");
    let name = name.split(['(', ',']).next().unwrap_or_default();
    let letters = name.chars();
    let letters: String = letters
        .map(|c| if c.is_ascii_alphanumeric() { c } else { ' ' })
        .collect();
    let words = letters.split_whitespace().collect::<Vec<_>>();
    words.join("-").to_ascii_lowercase()
}

/// What is drawn of a subject: its number, and figures by size.
type Line = (usize, Vec<(f64, f64)>);

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
    let subjects = 0..record.subjects.len();
    let lines = subjects.map(|subject| (subject, points(subject)));
    lines.filter(|(_, points)| !points.is_empty()).collect()
}

fn color(role: Role, number: usize) -> RGBColor {
    match role {
        Role::Ours => RGBColor(0, 90, 200),
        Role::Rust => RGBColor(0, 160, 220),
        Role::Machine => RGBColor(130, 130, 130),
        Role::Peer => {
            let peers = [
                RGBColor(210, 50, 30),
                RGBColor(230, 140, 0),
                RGBColor(130, 60, 160),
            ];
            peers[number % peers.len()]
        }
    }
}

fn file(
    record: &Record,
    path: &Path,
    head: &str,
    (provider, kinds, distance): (&str, [Kind; 4], Distance),
) -> Result<()> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(head, ("sans-serif", 20))?;
    let root = root.titled(&record.machine, ("sans-serif", 14))?;
    for (area, kind) in root.split_evenly((2, 2)).iter().zip(kinds) {
        let lines = lines(record, provider, kind, distance);
        if !lines.is_empty() {
            chart(record, area, kind, &lines)?;
        }
    }
    root.present().with_context(|| path.display().to_string())
}

fn chart(
    record: &Record,
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    kind: Kind,
    lines: &[Line],
) -> Result<()> {
    let all = || lines.iter().flat_map(|(_, points)| points);
    let bounds = |of: fn(&(f64, f64)) -> f64| {
        all().map(of).fold((f64::MAX, 0.0_f64), |(low, high), x| {
            (low.min(x), high.max(x))
        })
    };
    let ((left, right), (low, high)) = (bounds(|p| p.0), bounds(|p| p.1));
    let mut chart = ChartBuilder::on(area)
        .caption(title(kind), ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(
            (left * 0.8..right * 1.25).log_scale(),
            (low * 0.7..high * 1.4).log_scale(),
        )?;
    let unit = if is_latency(kind) { "µs" } else { "GB/s" };
    chart
        .configure_mesh()
        .x_desc("bytes")
        .y_desc(unit)
        .light_line_style(WHITE)
        .x_label_formatter(&|size| bytes(size.round() as usize))
        .y_label_formatter(&|value| digits(*value))
        .draw()?;
    for (subject, points) in lines {
        let shown = &record.subjects[*subject];
        let style = color(shown.role, *subject).stroke_width(2);
        let drawn = chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
        drawn
            .label(shown.label.clone())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
        chart.draw_series(
            points
                .iter()
                .map(|point| Circle::new(*point, 3, style.filled())),
        )?;
    }
    let corner = SeriesLabelPosition::UpperLeft;
    chart
        .configure_series_labels()
        .position(corner)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
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
