//! Connected endpoints.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ripstop_core::eq::{EqAttr, Event, EventQueue};
use ripstop_core::provider::{Domain, Endpoint as _, Fabric, PassiveEp as _, Provider};
use ripstop_core::{FidToken, Hints, Info};
use ripstop_types::{Errno, WaitObj};

use super::args::Args;
use super::control::{Control, PATIENCE};
use super::link::Link;
use super::{reach, say, suite};
use crate::endpoint::Opening;

/// What events call the listening endpoint and the connected one.
const LISTENER: FidToken = FidToken(1);
const ENDPOINT: FidToken = FidToken(2);
/// How long one wait for an event is.
const LOOK: Duration = Duration::from_millis(100);

/// Runs either side.
///
/// # Errors
/// What stands in the way.
pub(super) fn run<P: Provider>(
    provider: &Arc<P>,
    args: &Args,
    hints: Hints,
    info: Info,
) -> Result<()> {
    match &args.server {
        None => serve(provider, args, &info),
        Some(server) => connect(provider, args, hints, server),
    }
}

fn serve<P: Provider>(provider: &Arc<P>, args: &Args, info: &Info) -> Result<()> {
    say(args, "waiting for a client");
    let mut control = Control::accept(args)?;
    let fabric = provider.fabric(&info.fabric).context("fi_fabric")?;
    let eq = open_queue()?;
    let listener = fabric.passive_ep(info, LISTENER).context("fi_passive_ep")?;
    listener.bind_eq(&eq).context("fi_pep_bind")?;
    listener.listen().context("fi_listen")?;
    let own = listener.name().context("fi_getname")?;
    say(args, &format!("listening at {own}"));
    control.send_address(&own)?;

    let request = match event(&eq, &control)? {
        Event::ConnReq { info, .. } => info,
        other => bail!("unexpected event {other:?}"),
    };
    let domain = fabric.safe_domain(&request).context("fi_domain")?;
    let largest = suite::largest(args, request.ep.max_msg_size);
    let mut link = open(&domain, &request, &eq, args, largest)?;
    link.ep.accept(&[]).context("fi_accept")?;
    connected(&eq, &control)?;
    exchange(&mut link, &mut control, args, largest)
}

fn connect<P: Provider>(provider: &Arc<P>, args: &Args, hints: Hints, server: &str) -> Result<()> {
    let (mut control, peer, info) = reach(server, args, hints)?;
    say(args, &format!("the server listens at {peer}"));
    let fabric = provider.fabric(&info.fabric).context("fi_fabric")?;
    let eq = open_queue()?;
    let domain = fabric.safe_domain(&info).context("fi_domain")?;
    let largest = suite::largest(args, info.ep.max_msg_size);
    let mut link = open(&domain, &info, &eq, args, largest)?;
    link.ep.connect(&peer, &[]).context("fi_connect")?;
    connected(&eq, &control)?;
    exchange(&mut link, &mut control, args, largest)
}

fn open_queue() -> Result<Arc<EventQueue>> {
    let attr = EqAttr {
        wait_obj: WaitObj::Unspec,
        ..EqAttr::default()
    };
    Ok(Arc::new(EventQueue::open(&attr).context("fi_eq_open")?))
}

fn open<D: Domain>(
    domain: &Arc<D>,
    info: &Info,
    eq: &Arc<EventQueue>,
    args: &Args,
    largest: usize,
) -> Result<Link<D>> {
    let room = info.tx.size + info.rx.size;
    let opening = Opening::new(domain, info, ENDPOINT, room)?;
    opening.ep.bind_eq(eq).context("fi_ep_bind")?;
    Link::enable(domain, opening, info, args.is_tagged(), largest)
}

fn exchange<D: Domain>(
    link: &mut Link<D>,
    control: &mut Control,
    args: &Args,
    largest: usize,
) -> Result<()> {
    say(args, "connected");
    let result = suite::run(link, control, args, largest);
    // The other side may have been faster.
    let _ = link.ep.shutdown();
    result
}

fn connected(eq: &EventQueue, control: &Control) -> Result<()> {
    match event(eq, control)? {
        Event::Connected { .. } => Ok(()),
        Event::Shutdown { .. } => bail!("the connection from {} broke", control.peer),
        other => bail!("unexpected event {other:?}"),
    }
}

/// The next event, while the other side is there.
fn event(eq: &EventQueue, control: &Control) -> Result<Event> {
    let start = Instant::now();
    loop {
        match eq.sread(Some(LOOK)) {
            Ok(event) => return Ok(event),
            Err(Errno::EAVAIL) => {
                let error = eq.read_error(true).context("fi_eq_readerr")?;
                bail!("no connection with {}: {}", control.peer, error.err);
            }
            Err(Errno::EAGAIN | Errno::ETIMEDOUT | Errno::EINTR) => {}
            Err(error) => return Err(error).context("fi_eq_sread"),
        }
        ensure!(
            !control.is_gone(),
            "the fi_pingpong at {} has ended",
            control.peer
        );
        ensure!(
            start.elapsed() < PATIENCE,
            "{} did not connect for {} s: give both sides the same options",
            control.peer,
            PATIENCE.as_secs()
        );
    }
}
