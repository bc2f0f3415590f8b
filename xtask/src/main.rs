//! Checks, distribution and the test run of the workspace: `cargo xtask --help`.
#![forbid(unsafe_code)]

mod check;
mod dist;
mod fabtests;
mod lab;
mod sanitizer;
mod test;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use workspace::Workspace;

/// What a developer and the continuous integration run in this tree.
#[derive(Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Hold the rules of the house: floors, unsafe allow-list, lints, sizes, circles of modules.
    Check(check::Options),
    /// Make target/dist, an install prefix with libfabric.so.1, and check its symbols.
    Dist(dist::Options),
    /// Run every test there is; the last line is `N passed, N failed, N skipped`.
    Test(test::Options),
    /// Run the C project's fabtests, built elsewhere, and hold them against interop/fabtests.toml.
    Fabtests(fabtests::Options),
    /// Run scripts in guests with RDMA devices, under software emulation; needs QEMU.
    Lab(lab::Options),
}

fn main() -> ExitCode {
    let args = Args::parse();
    match Workspace::load().and_then(|ws| run(args.command, &ws)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one command; failure means that it ran and found something wrong.
fn run(command: Command, ws: &Workspace) -> anyhow::Result<ExitCode> {
    let is_well = match command {
        Command::Check(options) => check::run(ws, &options)?,
        Command::Dist(options) => dist::run(ws, &options)?,
        Command::Test(options) => test::run(ws, &options)?,
        Command::Fabtests(options) => fabtests::run(ws, &options)?,
        Command::Lab(options) => return lab::run(ws, &options),
    };
    Ok(match is_well {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
