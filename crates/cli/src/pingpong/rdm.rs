//! Reliable datagram endpoints: no connection, an address vector.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use ripstop_core::provider::{AddressVector as _, AvAttr, Domain, Endpoint as _, Fabric, Provider};
use ripstop_core::{Address, FidToken, Hints, Info};

use super::args::Args;
use super::control::Control;
use super::link::Link;
use super::{reach, say, suite};
use crate::endpoint::Opening;

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
    let Some(server) = &args.server else {
        say(args, "waiting for a client");
        let control = Control::accept(args)?;
        return exchange(provider, args, &info, control, None);
    };
    let (control, peer, info) = reach(server, args, hints)?;
    say(args, &format!("the server is at {peer}"));
    exchange(provider, args, &info, control, Some(peer))
}

/// Opens everything, tells the own address, and starts. The client knows the peer by now.
fn exchange<P: Provider>(
    provider: &Arc<P>,
    args: &Args,
    info: &Info,
    mut control: Control,
    peer: Option<Address>,
) -> Result<()> {
    let fabric = provider.fabric(&info.fabric).context("fi_fabric")?;
    let domain = fabric.serial_domain(info).context("fi_domain")?;
    let av = domain.av(&AvAttr::default()).context("fi_av_open")?;
    let room = info.tx.size + info.rx.size;
    let opening = Opening::new(&domain, info, FidToken::NONE, room)?;
    opening.ep.bind_av(&av).context("fi_ep_bind")?;
    let largest = suite::largest(args, info.ep.max_msg_size);
    let mut link = Link::enable(&domain, opening, info, args.is_tagged(), largest)?;

    let own = link.ep.name().context("fi_getname")?;
    say(args, &format!("this side is at {own}"));
    control.send_address(&own)?;
    let peer = match peer {
        Some(peer) => peer,
        None => control.recv_address()?,
    };
    link.peer = av.insert(&peer).context("fi_av_insert")?;
    suite::run(&mut link, &mut control, args, largest)
}
