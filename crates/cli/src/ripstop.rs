//! `ripstop`: the tools that only Ripstop has.

use clap::{Parser, Subcommand};

use crate::{info, perf};

/// OpenFabrics Interfaces in Rust.
#[derive(Parser)]
#[command(name = "ripstop", version, disable_help_subcommand = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure latency, message rate and bandwidth between two processes of this machine.
    Perf(perf::Options),
    /// What the providers of this machine offer, as one JSON object (fi_info --json --why).
    Info,
    /// One of the two processes that `perf` starts.
    #[command(name = perf::WORKER, hide = true)]
    PerfWorker(perf::WorkerOptions),
}

/// The tool.
///
/// # Errors
/// Whatever the subcommand says.
pub fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Perf(options) => perf::main(&options),
        Command::Info => info::print_json(),
        Command::PerfWorker(options) => perf::worker(&options),
    }
}
