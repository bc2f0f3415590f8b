//! What runs have saved, and putting it together.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes a run to a file.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn save<R: Serialize>(record: &R, path: &Path) -> Result<()> {
    let text = serde_json::to_string(record)?;
    std::fs::write(path, text).with_context(|| {
        format!(
            "--save {}: nothing was saved, --json prints the same samples",
            path.display()
        )
    })
}

/// What several runs have saved. `merge` takes one in, or says why not.
///
/// # Errors
/// When a file is not there or no run, or runs do not belong together.
pub(crate) fn join<R: DeserializeOwned>(
    first: &Path,
    rest: &[PathBuf],
    merge: impl Fn(&mut R, R) -> Result<()>,
) -> Result<R> {
    let read = |path: &Path| -> Result<R> {
        let advice = || {
            format!(
                "--join {}: give files that --save has written",
                path.display()
            )
        };
        let text = std::fs::read_to_string(path).with_context(advice)?;
        serde_json::from_str(&text).with_context(advice)
    };
    let mut record = read(first)?;
    for path in rest {
        merge(&mut record, read(path)?).with_context(|| path.display().to_string())?;
    }
    Ok(record)
}
