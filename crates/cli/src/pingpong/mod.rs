//! `fi_pingpong`: messages there and back between two programs (man page `fi_pingpong(1)`).
//!
//! Either side may be libfabric's own tool: options, table, control connection and data are the
//! same.

mod args;
mod control;
mod data;
mod link;
mod msg;
mod rdm;
mod show;
mod suite;

use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Parser as _;
use ripstop_core::hints::Request;
use ripstop_core::provider::Provider;
use ripstop_core::registry::Refusal;
use ripstop_core::{Address, Hints, Info};
use ripstop_types::{EpType, Errno, Version};

use crate::exit::Told;
use crate::{objects, providers};
use args::Args;
use control::Control;

/// The tool.
///
/// # Errors
/// What stands in the way, with what to do about it.
pub fn main() -> Result<()> {
    let args = Args::parse();
    let hints = args.hints()?;
    providers::note_hooks("fi_pingpong of C libfabric is one");
    // A wrong option ends the program now and not when the other side is there.
    let info = find(&hints)?;
    if let Some(provider) = objects::find(info.prov_name()) {
        return run(&provider, &args, hints, info);
    }
    match info.prov_name() {
        "tcp" => run(&providers::tcp(), &args, hints, info),
        "tcp;ofi_rxm" => run(&providers::rxm(), &args, hints, info),
        "shm" => run(&providers::shm(), &args, hints, info),
        "lnx" => run(&providers::lnx(), &args, hints, info),
        "verbs" => run(&providers::verbs(), &args, hints, info),
        "verbs;ofi_rxm" => run(&providers::rxm_verbs(), &args, hints, info),
        other => bail!("fi_pingpong cannot open provider {other}: choose another one with -p"),
    }
}

fn run<P: Provider>(provider: &Arc<P>, args: &Args, hints: Hints, info: Info) -> Result<()> {
    match args.ep_type {
        EpType::Msg => msg::run(provider, args, hints, info),
        _ => rdm::run(provider, args, hints, info),
    }
}

/// Reaches the server: the control connection, the server's address, and the best interface towards it.
fn reach(server: &str, args: &Args, hints: Hints) -> Result<(Control, Address, Info)> {
    let mut control = Control::connect(server, args)?;
    let peer = control.recv_address()?;
    let info = find(&Hints {
        addr_format: peer.format(),
        dest_addr: Some(peer.clone()),
        ..hints
    })?;
    Ok((control, peer, info))
}

/// The best interface that meets the hints.
fn find(hints: &Hints) -> Result<Info> {
    let request = Request {
        version: Version::CURRENT,
        hints: Some(hints),
        ..Request::default()
    };
    let none = match providers::load().getinfo(&request) {
        Ok(infos) => match infos.into_iter().next() {
            Some(info) => return Ok(info),
            None => return Err(Told::from(Errno::ENODATA).into()),
        },
        Err(none) => none,
    };
    let is_other = |(_, why): &(String, Refusal)| matches!(why, Refusal::NotAsked(_));
    if let Some((_, Refusal::NotAsked(asked))) = none.refusals.first()
        && none.refusals.iter().all(is_other)
    {
        let mut names: Vec<&str> = none
            .refusals
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        names.dedup();
        eprintln!(
            "error: no provider is named {asked}: give one of {} to -p",
            names.join(", ")
        );
        return Err(Told::from(none.errno).into());
    }
    eprintln!("error: fi_getinfo: {none}");
    if hints
        .ep
        .as_ref()
        .is_some_and(|ep| ep.ep_type == EpType::Dgram)
    {
        eprintln!(
            "only verbs has datagram endpoints, over an RDMA device: give -e rdm or -e msg on both sides"
        );
    }
    Err(Told::from(none.errno).into())
}

/// Says what is being done, with `-v`.
fn say(args: &Args, what: &str) {
    if args.verbose {
        let side = if args.is_client() { "client" } else { "server" };
        eprintln!("{side}: {what}");
    }
}
