//! One of the measuring processes.

use std::io::{Write as _, stdin, stdout};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ripstop_core::provider::Provider;
use ripstop_foreign::{ForeignProvider, Library};
use ripstop_lnx::LnxProvider;
use ripstop_shm::ShmProvider;
use ripstop_tcp::{RxmTcpProvider, TcpProvider};
use ripstop_verbs::RxmVerbsProvider;

use super::args::WorkerOptions;
use super::av::resident;
use super::bare::{self, Bare, Memory, Sockets};
use super::lane::{self, Lane as _};
use super::member::InGroup;
use super::opened::Opened;
use super::protocol::{Answer, Kind, Measured, Order, Sample, Setup, Side, Test};
use super::subject::{Lacks, Wanted};
use super::{cores, handover};
use crate::exit::Told;

/// Obeys until its input ends.
///
/// # Errors
/// [`Told`] after an error, which the starting process knows then.
pub fn main(options: &WorkerOptions) -> Result<()> {
    let Err(error) = measure(options) else {
        return Ok(());
    };
    let answer = match error.downcast_ref() {
        Some(Lacks(what)) => Answer::Lacks(what.clone()),
        None => Answer::Failed(format!("{error:#}")),
    };
    // If nobody listens any more there is nobody to tell.
    let _ = say(&answer);
    Err(Told(1).into())
}

fn measure(options: &WorkerOptions) -> Result<()> {
    let setup = &options.setup;
    if let Some(core) = setup.core {
        cores::pin(core)?;
    }
    let side = Side::of(setup.rank);
    match (&options.lib, setup.provider.as_str()) {
        (None, "tcp") if setup.bare => plain(Sockets::new(side, setup.largest)?, side),
        (None, "shm") if setup.bare => plain(Memory::new(side, setup.largest)?, side),
        (Some(path), name) => obey(&ForeignProvider::new(Library::open(path)?, name), setup),
        (None, "tcp") => obey(&TcpProvider::new(), setup),
        (None, "tcp;ofi_rxm") => obey(&RxmTcpProvider::new(), setup),
        (None, "shm") => obey(&ShmProvider::new(), setup),
        (None, "lnx") => obey(&LnxProvider::new(), setup),
        (None, "verbs;ofi_rxm") => obey(&RxmVerbsProvider::new(), setup),
        (None, other) => {
            bail!("Ripstop has no provider {other}: choose tcp, shm, lnx or verbs;ofi_rxm")
        }
    }
}

fn obey<P: Provider>(provider: &P, setup: &Setup) -> Result<()> {
    let side = Side::of(setup.rank);
    let site = &Opened::new(provider, setup.wanted, setup.memfd)?;
    if setup.wanted == Wanted::Groups {
        let mut member = InGroup::new(site.member(setup.largest, setup.rank)?);
        let address = member.address()?;
        return serve(site.measured(), address, |order| match order {
            Order::Meet(addresses) => member.join(&addresses).map(|()| Sample::default()),
            Order::Run(test) => measured(test, member.take(test)),
            other => bail!("a member of a group does not know {other:?}"),
        });
    }
    let mut lane = site.lane(setup.largest.max(lane::ACK_SIZE))?;
    let address = lane.address()?;
    serve(site.measured(), address, |order| match order {
        Order::Meet(addresses) => {
            let peers = others(&addresses, side)?;
            let met = peers.iter().try_for_each(|peer| lane.meet(peer));
            met.map(|()| Sample::default())
        }
        Order::Run(test) if test.kind == Kind::Insert => {
            let before = resident()?;
            let took = sample(site.insert(test.count)?);
            let bytes = resident()?.saturating_sub(before);
            Ok(Sample { bytes, ..took })
        }
        Order::Run(test) => measured(test, lane::take(&mut lane, setup.rank, test)),
        Order::HandOver { name, count } => handover::take(&name, side, count).map(sample),
    })
}

/// As [`obey`], without a library.
fn plain<B: Bare>(mut bare: B, side: Side) -> Result<()> {
    let address = bare.address()?;
    serve(Measured::default(), address, |order| match order {
        Order::Meet(addresses) => {
            let peer = others(&addresses, side)?
                .first()
                .context("nobody to meet")?;
            bare.meet(peer).map(|()| Sample::default())
        }
        Order::Run(test) => measured(test, bare::take(&mut bare, side, test)),
        Order::HandOver { name, count } => handover::take(&name, side, count).map(sample),
    })
}

/// The addresses of a process's peers: the first has all others, and they have it.
fn others(addresses: &[Vec<u8>], side: Side) -> Result<&[Vec<u8>]> {
    let (first, rest) = addresses.split_at_checked(1).context("nobody to meet")?;
    Ok(match side {
        Side::Client => rest,
        Side::Server => first,
    })
}

/// Carries out orders until there are no more.
fn serve(
    provider: Measured,
    address: Vec<u8>,
    mut carry_out: impl FnMut(Order) -> Result<Sample>,
) -> Result<()> {
    say(&Answer::Ready { address, provider })?;
    for line in stdin().lines() {
        let order = serde_json::from_str(&line?).context("an order that makes no sense")?;
        say(&Answer::Took(carry_out(order)?))?;
    }
    Ok(())
}

/// A sample of a test, or what went wrong in which.
fn measured(test: Test, took: Result<Duration>) -> Result<Sample> {
    let Test { kind, size, .. } = test;
    took.map(sample)
        .with_context(|| format!("{kind:?} of {size} bytes"))
}

/// A sample of this time.
fn sample(took: Duration) -> Sample {
    Sample {
        nanos: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
        bytes: 0,
    }
}

fn say(answer: &Answer) -> Result<()> {
    let mut out = stdout().lock();
    serde_json::to_writer(&mut out, answer)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}
