//! One of the measuring processes.

use std::io::{Write as _, stdin, stdout};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use ripstop_cli::perf::pin;
use ripstop_core::Info;
use ripstop_core::provider::{Domain, Fabric as _, Provider as _};
use ripstop_foreign::{ForeignProvider, Library};
use ripstop_types::Flags;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::peers::{Hub, Peers};
use super::protocol::{Answer, Ends, Job, Order, Setup};
use super::record::Figures;
use super::{matching, regions};
use crate::open::find;

/// What a measuring process is told when it starts.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[arg(long, value_name = "PATH")]
    lib: PathBuf,
    #[arg(value_parser = |text: &str| serde_json::from_str::<Setup>(text))]
    setup: Setup,
}

/// Does its job; `false` when that failed, which the starting process knows then.
///
/// # Errors
/// When there is nobody to tell.
pub(crate) fn main(options: &Options) -> Result<bool> {
    let Err(error) = work(options) else {
        return Ok(true);
    };
    say(&match error.downcast::<Ends>() {
        Ok(ends) => Answer::Ended(ends),
        Err(error) => Answer::Failed(format!("{error:#}")),
    })?;
    Ok(false)
}

fn work(options: &Options) -> Result<()> {
    let Setup {
        provider,
        job,
        core,
    } = &options.setup;
    if let Some(core) = core {
        pin(*core)?;
    }
    raise_limit()?;
    let provider = ForeignProvider::new(Library::open(&options.lib)?, provider);
    let more = match job {
        Job::Regions(_) => Flags::RMA,
        _ => Flags::empty(),
    };
    let info = find(&provider, more)?;
    let fabric = provider.fabric(&info.fabric).context("fi_fabric")?;
    let domain = fabric.serial_domain(&info).context("fi_domain")?;
    let took = match *job {
        Job::Hub => return hub(&domain, &info),
        Job::Peers(count) => return peers(&domain, &info, count),
        Job::Posted(count) => matching::posted(&domain, &info, count),
        Job::Unexpected(count) => matching::unexpected(&domain, &info, count),
        Job::Regions(count) => regions::measure(&domain, &info, count),
    };
    say(&Answer::Took(took?))
}

/// Lets this process have as many files as it may.
fn raise_limit() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("cannot raise the limit of open files")
}

fn hub<D: Domain>(domain: &Arc<D>, info: &Info) -> Result<()> {
    let mut hub = Hub::open(domain, info)?;
    serve(vec![hub.address()?], |order| match order {
        Order::Connect(addresses) => hub.connect(&addresses),
        Order::RoundTrips => hub.round_trips(),
        Order::Idle => hub.idle(),
        other => bail!("a hub does not know {other:?}"),
    })
}

fn peers<D: Domain>(domain: &Arc<D>, info: &Info, count: u64) -> Result<()> {
    let mut peers = Peers::open(domain, info, count)?;
    serve(peers.addresses()?, |order| {
        match order {
            Order::Answer(hub) => peers.answer(&hub)?,
            Order::Serve => peers.serve()?,
            other => bail!("a peer does not know {other:?}"),
        }
        Ok(Figures::new())
    })
}

/// Carries out orders until there are no more.
fn serve(
    addresses: Vec<Vec<u8>>,
    mut carry_out: impl FnMut(Order) -> Result<Figures>,
) -> Result<()> {
    say(&Answer::Open(addresses))?;
    for line in stdin().lines() {
        let order = serde_json::from_str(&line?).context("an order that makes no sense")?;
        say(&Answer::Took(carry_out(order)?))?;
    }
    Ok(())
}

fn say(answer: &Answer) -> Result<()> {
    let mut out = stdout().lock();
    serde_json::to_writer(&mut out, answer)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}
