//! `ripstop-bench compare`: ours beside other libraries and what the machine can do.
//!
//! All are measured by the processes of `ripstop perf` ([`ripstop_cli::perf`]), pinned to two cores,
//! one sample after the other. The handover of a cache line between the cores is taken beside every
//! sample, and samples are grouped by it: the cores of a virtual machine may move.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use cores::Cores;
use ripstop_cli::outln;
use ripstop_cli::perf::{Kind, size};

use crate::comparison::Comparison;
use crate::saved;

mod columns;
mod cores;
mod fabtests;
mod mpi;
mod pinned;
mod plot;
mod run;
mod samples;
mod table;
mod targets;
mod ucx;

/// Options of the comparison.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    comparison: Comparison,

    /// UCX's ucx_perftest, or a folder with one, such as that of PyPI's libucx-cu12; that of PATH, if
    /// there is one, without this.
    #[arg(long, value_name = "PATH", conflicts_with = "join")]
    ucx: Option<PathBuf>,

    /// Also MPICH and Open MPI, got from PyPI as interop/run does: their own shared memory, and both
    /// over ours.
    #[arg(long, conflicts_with = "join")]
    mpi: bool,

    /// Measure only these tests.
    #[arg(short, long, value_enum, value_name = "TEST", value_delimiter = ',')]
    test: Vec<Tests>,

    /// Sizes in bytes, such as 8,4K,1M, instead of 1 B to 16 MiB.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    sizes: Vec<usize>,

    /// Samples of each test; 7 by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pairs: Option<u32>,

    /// Few sizes, short samples, three of each.
    #[arg(long)]
    quick: bool,

    /// Messages or operations under way in the test `depth`.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,4,16,64,256",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: Vec<u32>,

    /// Processes that send in the test `peers`.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,16,32,64",
        value_parser = clap::value_parser!(u32).range(1..=256))]
    peers: Vec<u32>,

    /// The two cores to run on, such as 0,1; near and far measure which are; one is both sides on one.
    #[arg(long, value_name = "A,B|near|far|one", value_parser = Cores::parse)]
    cores: Option<Cores>,

    /// Also run fi_rma_bw, fi_rdm_tagged_bw and fi_rdm_tagged_pingpong of this folder, which were
    /// built elsewhere, on ours and each peer.
    #[arg(long, value_name = "DIR")]
    fabtests: Option<PathBuf>,

    /// Fail when a target does not hold.
    #[arg(long)]
    strict: bool,
}

/// A test in one direction and in both, which are rows of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tests {
    /// Half round trips and exchanges of tagged messages.
    Latency,
    /// Tagged messages, 64 under way.
    Messages,
    /// RMA writes, 64 under way.
    Writes,
    /// RMA reads, 64 under way.
    Reads,
    /// Tagged messages and RMA writes of three sizes by how many are under way.
    Depth,
    /// Tagged messages of many processes to one.
    Peers,
}

impl Tests {
    const fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Latency => &[Kind::Latency, Kind::Exchange],
            Self::Messages => &[Kind::Stream, Kind::StreamBoth],
            Self::Writes => &[Kind::Write, Kind::WriteBoth],
            Self::Reads => &[Kind::Read, Kind::ReadBoth],
            Self::Depth => &[Kind::Stream, Kind::Write],
            Self::Peers => &[Kind::Gather],
        }
    }
}

/// Measures, or takes what was measured, and reports; `false` when a target does not hold and that
/// was asked.
///
/// # Errors
/// When something cannot be measured, read or written.
pub(crate) fn main(options: &Options) -> Result<bool> {
    options.comparison.check_places()?;
    let record = match options.comparison.join.split_first() {
        Some((first, rest)) => saved::join(first, rest, samples::Record::merge)?,
        None => run::measure(options)?,
    };
    let verdicts = targets::verdicts(&record);
    if options.comparison.json {
        outln!("{:#}", table::json(&record, &verdicts));
    } else {
        table::print(&record, &verdicts);
    }
    if let Some(path) = &options.comparison.save {
        saved::save(&record, path)?;
    }
    if let Some(dir) = &options.comparison.svg {
        for path in plot::draw(&record, dir)? {
            eprintln!("drew {}", path.display());
        }
    }
    if let Some(dir) = &options.fabtests {
        ensure!(
            options.comparison.join.is_empty(),
            "--fabtests measures: leave out --join"
        );
        fabtests::print(dir, options)?;
    }
    Ok(!options.strict || verdicts.iter().all(targets::Verdict::holds))
}
