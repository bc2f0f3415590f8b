//! `ripstop`: the tools that only Ripstop has, and the others where it is started under their names.

use std::ffi::OsStr;
use std::path::Path;

use clap::{Parser, Subcommand};

use crate::{info, perf, pingpong, strerror, watch};

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
    /// What a running process has and does: endpoints, peers, what waits and for how long.
    Top(watch::TopOptions),
    /// What a process waits for, followed through the processes of this machine to the one that is the
    /// cause.
    Why(watch::WhyOptions),
    /// What the providers of this machine offer, as one JSON object (fi_info --json --why).
    Info,
    /// One of the two processes that `perf` starts.
    #[command(name = perf::WORKER, hide = true)]
    PerfWorker(perf::WorkerOptions),
}

/// The tool that the name of the running program says: an installation has one executable and links
/// to it. Under any name but `fi_info`, `fi_pingpong` and `fi_strerror` it is `ripstop`.
///
/// # Errors
/// Whatever that tool says.
pub fn main() -> anyhow::Result<()> {
    let started = std::env::args_os().next().unwrap_or_default();
    match Path::new(&started).file_name().and_then(OsStr::to_str) {
        Some("fi_info") => info::main(),
        Some("fi_pingpong") => pingpong::main(),
        Some("fi_strerror") => strerror::main(),
        _ => subcommand(),
    }
}

fn subcommand() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Perf(options) => perf::main(&options),
        Command::Top(options) => watch::top(&options),
        Command::Why(options) => watch::why(&options),
        Command::Info => info::print_json(),
        Command::PerfWorker(options) => perf::worker(&options),
    }
}
