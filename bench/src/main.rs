//! Compares Ripstop with its peers ([`compare`], [`scale`]), and counts the user-space instructions that a
//! `libfabric.so.1` spends on a message of 8 bytes, and its system calls.
//!
//! For a count, one process with one thread has two reliable datagram endpoints in one domain
//! (`FI_THREAD_DOMAIN`, manual progress). It runs under callgrind, once for N messages and once
//! for 2N; the difference is what N messages cost. Instructions of this program itself are told
//! apart by the file they lie in and left out, so a count is that of the library and of the C
//! library below it. Counts do not depend on the machine's speed or load.
#![forbid(unsafe_code)]

mod budget;
mod callgrind;
mod calls;
mod client;
mod compare;
mod comparison;
mod count;
mod device;
mod fresh;
mod machine;
mod open;
mod operation;
mod plot;
mod progress;
mod saved;
mod scale;
mod subject;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use operation::Operation;
use ripstop_cli::exit;
use ripstop_cli::outln;
use ripstop_cli::perf::{self, WORKER, WorkerOptions};

/// Compares and counts what a libfabric.so.1 does.
#[derive(Parser)]
#[command(disable_help_subcommand = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the counts of one or more libraries side by side.
    Count {
        /// A libfabric.so.1; that of target/dist without one.
        #[arg(long, value_name = "PATH")]
        lib: Vec<PathBuf>,
        /// The provider.
        #[arg(short, long, default_value = "tcp")]
        provider: String,
    },
    /// Compare the counts of target/dist with bench/budget.toml, and do what `calls` does for it.
    Budget {
        /// Another library.
        #[arg(long, value_name = "PATH")]
        lib: Option<PathBuf>,
        /// Write counts that are below the budget into the file.
        #[arg(long)]
        lower: bool,
    },
    /// Count what lies between a program and a provider's code, in the machine code of fi_send,
    /// fi_tsend, fi_inject and fi_write.
    Calls {
        /// Another library, with debug information.
        #[arg(long, value_name = "PATH")]
        lib: Option<PathBuf>,
    },
    /// Measure ours beside other libraries and what the machine can do.
    Compare(Box<compare::Options>),
    /// Measure ours beside other libraries as something grows: connected peers, posted receives,
    /// unexpected messages, registered regions, processes of a group.
    Scale(scale::Options),
    /// One of the processes that `scale` starts.
    #[command(name = scale::WORKER, hide = true)]
    ScaleWorker(scale::WorkerOptions),
    /// One of the processes that `compare` and `scale` start.
    #[command(name = WORKER, hide = true)]
    PerfWorker(WorkerOptions),
    /// What runs under callgrind.
    #[command(hide = true)]
    Client {
        #[arg(long)]
        lib: PathBuf,
        #[arg(long)]
        provider: String,
        #[arg(long, value_enum)]
        operation: Operation,
        #[arg(long)]
        messages: u32,
    },
}

fn main() -> ExitCode {
    exit::end_on_closed_pipe();
    match run(Args::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command; `false` when a count is over its budget.
fn run(command: Command) -> Result<bool> {
    match command {
        Command::Count { lib, provider } => {
            let libs = match lib.as_slice() {
                [] => vec![built()],
                _ => lib,
            };
            count::print(&libs, &provider)?;
            Ok(true)
        }
        Command::Budget { lib, lower } => {
            let good = budget::check(lib.as_deref(), lower)?;
            // Another library may be stripped, or not ours.
            Ok((lib.is_some() || count_calls(None)?) && good)
        }
        Command::Calls { lib } => count_calls(lib.as_deref()),
        Command::Compare(options) => compare::main(&options),
        Command::Scale(options) => scale::main(&options).map(|()| true),
        Command::ScaleWorker(options) => scale::worker(&options),
        Command::PerfWorker(options) => perf::worker(&options).map(|()| true),
        Command::Client {
            lib,
            provider,
            operation,
            messages,
        } => {
            let lib = existing(&lib)?;
            client::run(&lib, &provider, operation, messages)?;
            Ok(true)
        }
    }
}

/// Counts what lies before a provider's code in a library, that of target/dist without one.
fn count_calls(lib: Option<&Path>) -> Result<bool> {
    if !calls::is_there() {
        outln!("SKIP calls: objdump is not installed");
        return Ok(true);
    }
    match lib {
        Some(lib) => calls::check(&existing(lib)?),
        None => calls::check(&fresh::built()?),
    }
}

/// The top of the tree.
fn top() -> &'static Path {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    home.parent().unwrap_or(home)
}

/// The library that `cargo xtask dist` makes.
fn built() -> PathBuf {
    let prefix = std::env::var_os("RIPSTOP_DIST").map_or_else(
        || {
            let target = std::env::var_os("CARGO_TARGET_DIR");
            target
                .map_or_else(|| top().join("target"), PathBuf::from)
                .join("dist")
        },
        PathBuf::from,
    );
    prefix.join("lib/libfabric.so.1")
}

/// The whole path of a library, so that two of one name are told apart.
fn existing(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| {
        let path = path.display();
        format!("{path} is not there: make it with `cargo xtask dist`, or name another with --lib")
    })
}
