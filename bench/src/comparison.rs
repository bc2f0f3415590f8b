//! The options that `compare` and `scale` share: the libraries, and what becomes of the results.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::existing;

/// See the [module](self).
#[derive(Args, Debug)]
pub(crate) struct Comparison {
    /// Our libfabric.so.1; that of target/dist without one.
    #[arg(long, value_name = "PATH")]
    lib: Option<PathBuf>,

    /// Another libfabric.so.1 to compare with, such as one built from C.
    #[arg(long, value_name = "PATH")]
    pub(crate) peer: Vec<PathBuf>,

    /// Measure only these providers.
    #[arg(short, long, value_name = "PROV", value_parser = ["tcp", "shm"], value_delimiter = ',')]
    pub(crate) provider: Vec<String>,

    /// Write every sample to a file, for --join.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,

    /// Measure nothing: report what earlier runs have saved, put together.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["lib", "peer", "provider"])]
    pub(crate) join: Vec<PathBuf>,

    /// Print one JSON object with every sample instead of tables.
    #[arg(long)]
    pub(crate) json: bool,

    /// Draw plots into this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
}

impl Comparison {
    /// Whether the results can be kept where the user wants: asked before the measurement, which may take an hour.
    ///
    /// # Errors
    /// When the file of `--save` or the folder of `--svg` cannot be made.
    pub(crate) fn check_places(&self) -> Result<()> {
        if let Some(path) = &self.save {
            let opened = File::options().append(true).create(true).open(path);
            opened.with_context(|| format!("--save {}: name another file", path.display()))?;
        }
        if let Some(dir) = &self.svg {
            let made = fs::create_dir_all(dir);
            made.with_context(|| format!("--svg {}: name another folder", dir.display()))?;
        }
        Ok(())
    }

    /// The whole path of our library.
    ///
    /// # Errors
    /// When it is not there.
    pub(crate) fn ours(&self) -> Result<PathBuf> {
        existing(&self.lib.clone().unwrap_or_else(crate::built))
    }
}
