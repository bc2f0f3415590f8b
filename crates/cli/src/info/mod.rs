//! `fi_info`: what the providers of this machine offer (man page `fi_info(1)`).

mod args;
mod environment;
mod json;
mod long;
mod short;
mod why;

use anyhow::bail;
use clap::Parser as _;
use ripstop_core::Info;
use ripstop_core::hints::Request;
use ripstop_core::registry::{NoInfo, Registry};
use ripstop_types::{Errno, Version};

use crate::exit::Told;
use crate::providers;
use crate::{out, outln};
use args::Args;

/// The tool.
///
/// # Errors
/// [`Told`] with the number of the `fi_getinfo` error, [`Errno::ENODATA`] when nothing matches.
pub fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.version {
        print_version();
        return Ok(());
    }
    run(&args)
}

/// `ripstop info`: everything that is there, with the reasons for what is not.
///
/// # Errors
/// As for [`main`].
pub fn print_json() -> anyhow::Result<()> {
    run(&Args::parse_from(["fi_info", "--json", "--why"]))
}

/// `--version`.
fn print_version() {
    outln!("fi_info: {}", env!("CARGO_PKG_VERSION"));
    outln!("libfabric: {}", ripstop_capi::RELEASE);
    outln!("libfabric api: {}", Version::CURRENT);
}

fn run(args: &Args) -> anyhow::Result<()> {
    let registry = providers::load_to_show();
    let hints = args.hints();
    let request = Request {
        version: Version::CURRENT,
        node: args.node(),
        service: args.port.as_deref(),
        flags: args.flags(),
        hints: hints.as_ref(),
        ..Request::default()
    };
    let found = registry.getinfo(&request);
    if args.why && !args.json {
        why::print(registry, &request);
    }
    if args.json {
        json::print(
            args,
            registry,
            &request,
            found.as_deref().unwrap_or_default(),
        );
    }
    let infos = found.map_err(|none| refused(args, &none))?;
    if args.json || args.why {
        return Ok(());
    }
    if let Some(part) = args.getenv.as_deref()
        && environment::listed(Some(part)).next().is_none()
    {
        bail!("no variable has {part} in its name: fi_info -e prints all of them");
    }
    print(args, registry, &infos);
    Ok(())
}

/// What the options ask to see.
fn print(args: &Args, registry: &Registry, infos: &[Info]) {
    if args.shows_environment() && args.markdown {
        out!("{}", environment::markdown(args.getenv.as_deref()));
    } else if args.shows_environment() {
        environment::print(args.getenv.as_deref());
    } else if args.is_verbose() {
        long::print(registry, infos, args.info.as_deref());
    } else if args.list {
        short::print_providers(infos);
    } else {
        short::print(infos);
    }
}

/// Says that nothing matches.
fn refused(args: &Args, none: &NoInfo) -> Told {
    let errno = none.errno;
    eprintln!("fi_getinfo: -{} ({errno})", errno.0);
    match errno {
        Errno::ENODATA if args.why => {}
        Errno::ENODATA => eprintln!("run the same command with --why to see what does not match"),
        _ => eprintln!("{none}"),
    }
    errno.into()
}
