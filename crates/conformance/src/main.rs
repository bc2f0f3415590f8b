//! Runs the conformance suite on one implementation and reports.
#![forbid(unsafe_code)]

use std::io::IsTerminal as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use ripstop_conformance::lists::{Judge, Lists};
use ripstop_conformance::report::Report;
use ripstop_conformance::run::{self, Plan, Way};
use ripstop_conformance::subject::Setup;
use ripstop_types::{EpType, Threading};

/// Runs the conformance suite on one implementation.
///
/// Each case runs in a process of its own with a bound on its time, so that a crash or a hang is a
/// failure of that case. The last line is `N passed, N failed, N skipped`; the exit status is 0
/// when nothing failed.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The libfabric.so.1 to try, through its C interface.
    #[arg(long, value_name = "PATH", required_unless_present_any = ["rust", "list"])]
    lib: Option<PathBuf>,
    /// Try the Rust object model.
    #[arg(long, conflicts_with = "lib")]
    rust: bool,
    /// Provider to try, alone or layered.
    #[arg(long, default_value = "tcp")]
    provider: String,
    /// The address of this machine by which peers reach it, for providers of networks.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    node: IpAddr,
    /// Endpoint type to try; by default the first two.
    #[arg(long)]
    ep: Option<Ep>,
    /// Threading level to open domains with.
    #[arg(long, default_value = "safe")]
    threading: Level,
    /// Run only cases whose id contains this text; may be given several times.
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Each side of a case in a process of its own: the cases whose sides share nothing but the
    /// network or the memory of the machine.
    #[arg(long, conflicts_with = "reference")]
    apart: bool,
    /// Cases at a time; by default one per processor.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Run each case this many times.
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: usize,
    /// Multiply every bound on time, for busy machines and tools like valgrind.
    #[arg(long, value_name = "N", default_value_t = 1)]
    slow: u32,
    /// The implementation is the C library: what `differences.toml` explains is no failure.
    #[arg(long)]
    reference: bool,
    /// The folder with the lists of what must pass; by default that of the source tree.
    #[arg(long, value_name = "DIR")]
    lists: Option<PathBuf>,
    /// Hold the results against no list: there is none for the implementation.
    #[arg(long, conflicts_with_all = ["reference", "update"])]
    unlisted: bool,
    /// Put the hook `debug` between each case and the provider: what it says of one must be in `mistakes.toml`.
    #[arg(long, requires = "lib", conflicts_with_all = ["apart", "reference"])]
    hook_debug: bool,
    /// Leave out what `differences.toml` explains.
    #[arg(long, requires = "reference")]
    agreed: bool,
    /// Write the list of required cases anew from what passes.
    #[arg(long, conflicts_with_all = ["reference", "filter", "ep"])]
    update: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Show every case, not only those that did not pass.
    #[arg(long, short)]
    verbose: bool,
    /// Print the ids and rules of the cases, and run nothing.
    #[arg(long)]
    list: bool,
    /// Run this one case in this process.
    #[arg(long, hide = true, value_name = "ID")]
    case: Option<String>,
    /// Serve as the process of this side.
    #[arg(long, hide = true, value_name = "N")]
    side: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Ep {
    /// Reliable datagram.
    Rdm,
    /// Connected.
    Msg,
    /// Datagram.
    Dgram,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    /// `FI_THREAD_SAFE`.
    Safe,
    /// `FI_THREAD_DOMAIN`, with manual progress.
    Domain,
    /// `FI_THREAD_DOMAIN`, with automatic progress.
    DomainAuto,
}

impl Options {
    fn plan(&self) -> Plan {
        let way = match &self.lib {
            Some(path) => Way::Library(path.clone()),
            None => Way::Rust,
        };
        Plan {
            way,
            setup: Setup {
                provider: self.provider.clone(),
                node: self.node,
                threading: match self.threading {
                    Level::Safe => Threading::Safe,
                    Level::Domain | Level::DomainAuto => Threading::Domain,
                },
                is_automatic: self.threading == Level::DomainAuto,
            },
            eps: match self.ep {
                None => vec![EpType::Rdm, EpType::Msg],
                Some(Ep::Rdm) => vec![EpType::Rdm],
                Some(Ep::Msg) => vec![EpType::Msg],
                Some(Ep::Dgram) => vec![EpType::Dgram],
            },
            filter: self.filter.clone(),
            jobs: self.jobs.unwrap_or_else(run::processors).max(1),
            repeat: self.repeat.max(1),
            slow: self.slow.max(1),
            apart: self.apart,
            debug: self.hook_debug,
        }
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let plan = options.plan();
    if let Some(id) = &options.case {
        return Ok(run::child(&plan, id));
    }
    if let Some(side) = options.side {
        return Ok(run::side(&plan, side));
    }
    if options.list {
        for (id, case) in run::selected(&plan) {
            println!("{id}: {}", case.rule);
        }
        return Ok(ExitCode::SUCCESS);
    }

    let judge = match &options {
        Options {
            reference: true, ..
        } => Judge::Reference,
        Options { unlisted: true, .. } => Judge::Nothing,
        Options { update: true, .. } => Judge::Update,
        _ => Judge::Required,
    };
    let lists = Lists::load(&plan, judge, options.lists.as_deref())?;
    let progress = std::io::stderr().is_terminal() && !options.json;
    let wanted = |id: &str| !options.agreed || lists.difference(id).is_none();
    let results = run::all(&plan, wanted, progress)?;
    let report = Report::new(&plan, &lists, results);
    if options.update {
        lists.update(report.passed())?;
    }
    match options.json {
        true => println!("{}", report.json()?),
        false => print!("{}", report.text(options.verbose)),
    }
    Ok(report.exit_code())
}
