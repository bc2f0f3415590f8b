//! One of the measuring processes.

use std::io::{Write as _, stdin, stdout};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ripstop_core::provider::Provider;
use ripstop_foreign::{ForeignProvider, Library};
use ripstop_shm::ShmProvider;
use ripstop_tcp::TcpProvider;

use super::args::{Side, WorkerOptions};
use super::av::resident;
use super::lane::{self, Lane};
use super::member::{InGroup, Member};
use super::opened::{MAPS, Opened};
use super::protocol::{Answer, Order};
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
    if let Some(core) = options.core {
        cores::pin(core)?;
    }
    let wanted = match (options.rma, options.rank) {
        (true, _) => Wanted::Memory,
        (_, Some(_)) => Wanted::Groups,
        _ => Wanted::Messages,
    };
    let name = options.provider.as_str();
    match (&options.lib, name) {
        (Some(path), name) => {
            let provider = ForeignProvider::new(Library::open(path)?, name);
            obey(&provider, wanted, options.memfd, options)
        }
        // What a program in Rust does that wants its memory reached: peers map it.
        (None, "tcp") => obey(&TcpProvider::new(), wanted, MAPS.contains(&name), options),
        (None, "shm") => obey(&ShmProvider::new(), wanted, MAPS.contains(&name), options),
        (None, other) => bail!("Ripstop has no provider {other}: choose tcp or shm"),
    }
}

fn obey<P: Provider>(
    provider: &P,
    wanted: Wanted,
    memfd: bool,
    options: &WorkerOptions,
) -> Result<()> {
    let site = &Opened::new(provider, wanted, memfd)?;
    if let Some(rank) = options.rank {
        let mut member = InGroup::new(site.member(options.largest, rank)?);
        let address = member.address()?;
        return serve(site, address, |order| {
            carry_out_in_group(&mut member, order)
        });
    }
    let mut lane = site.lane(options.largest.max(lane::ACK_SIZE))?;
    let address = lane.address()?;
    serve(site, address, |order| {
        carry_out(site, &mut lane, options.side, order)
    })
}

/// Carries out orders until there are no more.
fn serve<P: Provider>(
    site: &Opened<P>,
    address: Vec<u8>,
    mut carry_out: impl FnMut(Order) -> Result<Answer>,
) -> Result<()> {
    say(&Answer::Ready {
        address,
        provider: site.provider(),
        api: site.api(),
    })?;
    for line in stdin().lines() {
        let order = serde_json::from_str(&line?).context("an order that makes no sense")?;
        say(&carry_out(order)?)?;
    }
    Ok(())
}

fn carry_out_in_group<M: Member>(member: &mut InGroup<M>, order: Order) -> Result<Answer> {
    Ok(match order {
        Order::Join(addresses) => {
            member.join(&addresses)?;
            Answer::Introduced
        }
        Order::Run(test) => {
            let took = member.take(test);
            let took = took.with_context(|| format!("{:?} of {} bytes", test.kind, test.size))?;
            Answer::Took { nanos: nanos(took) }
        }
        other => bail!("a member of a group does not know {other:?}"),
    })
}

fn carry_out<P: Provider, L: Lane>(
    site: &Opened<P>,
    lane: &mut L,
    side: Side,
    order: Order,
) -> Result<Answer> {
    Ok(match order {
        Order::Peer(address) => {
            lane.meet(&address)?;
            Answer::Introduced
        }
        Order::Run(test) => {
            let took = lane::take(lane, side, test);
            let took = took.with_context(|| format!("{:?} of {} bytes", test.kind, test.size))?;
            Answer::Took { nanos: nanos(took) }
        }
        Order::HandOver { name, count } => {
            let took = handover::take(&name, side, count)?;
            Answer::Took { nanos: nanos(took) }
        }
        Order::Join(_) => bail!("one of a pair joins no group"),
        Order::Insert(count) => {
            let before = resident()?;
            let took = site.insert(count)?;
            Answer::Inserted {
                nanos: nanos(took),
                bytes: resident()?.saturating_sub(before),
            }
        }
    })
}

fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

fn say(answer: &Answer) -> Result<()> {
    let mut out = stdout().lock();
    serde_json::to_writer(&mut out, answer)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}
