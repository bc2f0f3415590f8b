//! Plots: pages of charts with logarithmic axes.

use std::path::Path;

use anyhow::{Context as _, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
/// What a line is drawn in.
pub(crate) use plotters::style::RGBColor as Tint;

/// Width of a page and height of a row of charts, in pixels.
const WIDTH: u32 = 1200;
const ROW: u32 = 400;
/// Height of what is above the charts.
const HEAD: u32 = 60;

/// A line of a chart.
pub(crate) struct Line {
    /// Its name in the legend.
    pub(crate) label: String,
    pub(crate) color: Tint,
    /// All above 0.
    pub(crate) points: Vec<(f64, f64)>,
}

/// What an axis shows.
#[derive(Clone, Copy)]
pub(crate) struct Axis {
    pub(crate) unit: &'static str,
    /// A value as it is written beside the axis.
    pub(crate) text: fn(f64) -> String,
}

/// A chart; its place is empty where it has no line.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) across: Axis,
    pub(crate) up: Axis,
    pub(crate) lines: Vec<Line>,
}

/// A file with charts, two in a row.
pub(crate) struct Page {
    pub(crate) head: String,
    /// The second line of the heading.
    pub(crate) machine: String,
    pub(crate) charts: Vec<Chart>,
}

impl Page {
    /// Writes the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn draw(&self, path: &Path) -> Result<()> {
        let rows = self.charts.len().div_ceil(2);
        let height = HEAD + ROW * u32::try_from(rows)?;
        let mut svg = String::new();
        self.draw_to(&mut svg, (rows, height))?;
        // Plotters does not tell that a disk is full.
        std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Draws so many rows of charts.
    fn draw_to(&self, svg: &mut String, (rows, height): (usize, u32)) -> Result<()> {
        let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let root = root.titled(&self.head, ("sans-serif", 20))?;
        let root = root.titled(&self.machine, ("sans-serif", 14))?;
        for (area, chart) in root.split_evenly((rows, 2)).iter().zip(&self.charts) {
            if !chart.lines.is_empty() {
                chart.draw(area)?;
            }
        }
        Ok(root.present()?)
    }
}

impl Chart {
    /// The least and the greatest of what is across or up.
    fn bounds(&self, of: fn(&(f64, f64)) -> f64) -> (f64, f64) {
        let points = self.lines.iter().flat_map(|line| &line.points);
        points
            .map(of)
            .fold((f64::MAX, 0.0), |(low, high): (f64, f64), x| {
                (low.min(x), high.max(x))
            })
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<()> {
        let ((left, right), (low, high)) = (self.bounds(|p| p.0), self.bounds(|p| p.1));
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 15))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(
                (left * 0.8..right * 1.25).log_scale(),
                labelled(low * 0.7, high * 1.4).log_scale(),
            )?;
        chart
            .configure_mesh()
            .x_desc(self.across.unit)
            .y_desc(self.up.unit)
            .light_line_style(WHITE)
            .x_label_formatter(&|value| (self.across.text)(*value))
            .y_label_formatter(&|value| (self.up.text)(*value))
            .draw()?;
        for line in &self.lines {
            let style = line.color.stroke_width(2);
            let drawn = chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
            drawn
                .label(line.label.clone())
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
            let dot = |point: &(f64, f64)| Circle::new(*point, 3, style.filled());
            chart.draw_series(line.points.iter().map(dot))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(())
    }
}

/// A range that has a power of ten in it: an axis without one has no labels.
fn labelled(low: f64, high: f64) -> std::ops::Range<f64> {
    let power = 10_f64.powf(high.log10().floor());
    low.min(power)..high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_finds_no_room_is_an_error() {
        let axis = Axis {
            unit: "",
            text: |value| value.to_string(),
        };
        let chart = Chart {
            title: String::new(),
            across: axis,
            up: axis,
            lines: Vec::new(),
        };
        let page = Page {
            head: "head".to_owned(),
            machine: "machine".to_owned(),
            charts: vec![chart],
        };
        let error = page.draw(Path::new("/dev/full")).expect_err("no room");
        assert!(format!("{error:#}").starts_with("cannot write /dev/full: No space left"));
    }

    #[test]
    fn an_axis_has_a_power_of_ten() {
        assert_eq!(labelled(250.0, 500.0), 100.0..500.0);
        assert_eq!(labelled(80.0, 500.0), 80.0..500.0);
        assert_eq!(labelled(0.3, 0.9), 0.1..0.9);
    }
}
