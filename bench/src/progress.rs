//! How far a run is.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error, if that is a terminal, which moves only between samples.
pub(crate) fn bar(what: &str, steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(what.to_owned());
    bar
}
