//! `ripstop-bench scale`: what ours and other libraries take as something grows: connected peers, posted
//! receives, unexpected messages, registered regions, processes of a group.
//!
//! Each point of a curve is measured in new processes ([`team`]), which are this program again under
//! the hidden subcommand [`WORKER`] and load one library ([`worker`]). A point that a library does not
//! reach says why, and ends the library's curve.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use ripstop_cli::outln;

use crate::comparison::Comparison;
use crate::saved;
use record::{Curve, Record};

mod groups;
mod matching;
mod mpi;
mod peers;
mod plot;
mod protocol;
mod record;
mod regions;
mod report;
mod run;
mod team;
mod traffic;
mod worker;

pub(crate) use protocol::WORKER;
pub(crate) use worker::{Options as WorkerOptions, main as worker};

/// Options of the curves.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    comparison: Comparison,

    /// A virtual environment of Python with the packages mpich and mpi4py, whose collectives are
    /// measured beside ours.
    #[arg(long, value_name = "VENV", conflicts_with = "join")]
    mpi: Option<PathBuf>,

    /// Measure only these curves.
    #[arg(
        short,
        long,
        value_enum,
        value_name = "CURVE",
        value_delimiter = ',',
        conflicts_with = "join"
    )]
    curve: Vec<Curve>,

    /// Points, such as 1,10,100, instead of those of each curve.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    points: Vec<u64>,

    /// Samples of each point up to 1,000, each with new processes; 3 by default. Larger points have
    /// one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,

    /// Seconds that a sample may take, after which the point is given up.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    limit: u64,

    /// Only points up to 1,000, one sample of each.
    #[arg(long)]
    quick: bool,

    /// The two cores to run on, such as 0,1.
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 2)]
    cores: Vec<usize>,
}

/// Measures, or takes what was measured, and reports.
///
/// # Errors
/// When a library is not there, or something cannot be read or written. What a library does not
/// reach is part of the report.
pub(crate) fn main(options: &Options) -> Result<()> {
    options.comparison.check_places()?;
    let record = match options.comparison.join.split_first() {
        Some((first, rest)) => saved::join(first, rest, Record::merge)?,
        None => run::measure(options)?,
    };
    if options.comparison.json {
        outln!("{:#}", report::json(&record));
    } else {
        report::print(&record);
    }
    if let Some(path) = &options.comparison.save {
        saved::save(&record, path)?;
    }
    if let Some(dir) = &options.comparison.svg {
        for path in plot::draw(&record, dir)? {
            eprintln!("drew {}", path.display());
        }
    }
    Ok(())
}
