//! The options of `fi_pingpong`, as users know them, and the hints they make.

use std::net::{SocketAddr, ToSocketAddrs as _};

use anyhow::{Context as _, Result};
use clap::Parser;
use ripstop_core::{Address, DomainAttr, EpAttr, FabricAttr, Hints};
use ripstop_types::{EpType, Flags, Mode, MrMode, Progress, Threading};

/// Sends messages there and back between a client and a server, and prints how long it takes.
///
/// Without an address it is the server, with one the client of the server there. Both need the
/// same options.
#[derive(Parser)]
#[command(name = "fi_pingpong", disable_version_flag = true)]
pub(super) struct Args {
    /// Name or address of the server.
    #[arg(value_name = "srv_addr")]
    pub(super) server: Option<String>,

    /// Source control port number (server: 47592, client: any).
    #[arg(short = 'B', value_name = "src_port", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) src_port: Option<u16>,

    /// Destination control port number (client: 47592).
    #[arg(short = 'P', value_name = "dst_port", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) dst_port: Option<u16>,

    /// Domain name.
    #[arg(short, value_name = "domain")]
    domain: Option<String>,

    /// Fabric name.
    #[arg(short, value_name = "fabric")]
    fabric: Option<String>,

    /// Source address associated with the domain name.
    #[arg(short, value_name = "source address")]
    source: Option<String>,

    /// Provider name, such as tcp.
    #[arg(short, value_name = "provider")]
    provider: Option<String>,

    /// Endpoint type: msg, rdm or dgram.
    #[arg(short, value_name = "ep_type", value_parser = ep_type, default_value = "dgram")]
    pub(super) ep_type: EpType,

    /// Number of iterations.
    #[arg(short = 'I', value_name = "number", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    pub(super) iterations: u32,

    /// Transfer size in bytes, or 'all'.
    #[arg(short = 'S', value_name = "size", value_parser = sizes)]
    pub(super) size: Option<Sizes>,

    /// Check the data of each message.
    #[arg(short)]
    pub(super) check: bool,

    /// Transmit mode: msg or tagged.
    #[arg(short, value_name = "transmit mode", value_parser = ["msg", "tagged"])]
    #[arg(default_value = "msg", ignore_case = true)]
    mode: String,

    /// Print what is being done.
    #[arg(short)]
    pub(super) verbose: bool,

    /// Use IPv6 between client and server.
    #[arg(short = '6')]
    pub(super) ipv6: bool,
}

/// What `-S` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    /// Every power of two and halfway to the next.
    All,
    /// This one.
    One(usize),
}

impl Args {
    /// Whether this is the client.
    pub(super) fn is_client(&self) -> bool {
        self.server.is_some()
    }

    /// Whether messages have tags.
    pub(super) fn is_tagged(&self) -> bool {
        self.mode.eq_ignore_ascii_case("tagged")
    }

    /// What the options ask of a provider. One thread makes all calls.
    ///
    /// # Errors
    /// When the source address does not resolve.
    pub(super) fn hints(&self) -> Result<Hints> {
        let src_addr = self.source.as_deref().map(resolve).transpose()?;
        let caps = if self.is_tagged() {
            Flags::TAGGED
        } else {
            Flags::MSG
        };
        Ok(Hints {
            caps,
            mode: Mode::CONTEXT | Mode::CONTEXT2 | Mode::MSG_PREFIX,
            addr_format: src_addr.as_ref().map(Address::format).unwrap_or_default(),
            src_addr,
            ep: Some(EpAttr {
                ep_type: self.ep_type,
                ..EpAttr::default()
            }),
            domain: Some(DomainAttr {
                name: self.domain.clone(),
                mr_mode: MrMode::LOCAL | MrMode::ALLOCATED | MrMode::PROV_KEY | MrMode::VIRT_ADDR,
                ..DomainAttr::driven(Threading::Domain, Progress::Manual)
            }),
            fabric: Some(FabricAttr {
                name: self.fabric.clone(),
                prov_name: self.provider.clone(),
                ..FabricAttr::default()
            }),
            ..Hints::default()
        })
    }
}

fn resolve(name: &str) -> Result<Address> {
    let advice = || format!("-s {name}: give a name that resolves or a numeric address");
    let mut found = (name, 0).to_socket_addrs().with_context(advice)?;
    let first: SocketAddr = found.next().with_context(advice)?;
    Ok(first.into())
}

fn ep_type(text: &str) -> Result<EpType, String> {
    match text.to_ascii_lowercase().as_str() {
        "msg" => Ok(EpType::Msg),
        "rdm" => Ok(EpType::Rdm),
        "dgram" => Ok(EpType::Dgram),
        _ => Err("give msg, rdm or dgram".to_owned()),
    }
}

fn sizes(text: &str) -> Result<Sizes, String> {
    if text.eq_ignore_ascii_case("all") {
        return Ok(Sizes::All);
    }
    let size = text
        .parse::<i32>()
        .ok()
        .and_then(|size| usize::try_from(size).ok());
    size.map(Sizes::One)
        .ok_or_else(|| format!("give bytes from 0 to {}, or all", i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["fi_pingpong"].iter().chain(options))
    }

    #[test]
    fn the_options_users_know_are_accepted() {
        let options = "-p tcp -e RDM -d lo -f 127.0.0.0/8 -s 127.0.0.1 \
                       -I 7 -S all -c -m tagged -B 1000 -P 1001 -v -6 ::1";
        let options: Vec<&str> = options.split(' ').collect();
        let args = parse(&options).expect("known options");
        assert!(args.is_client() && args.is_tagged() && args.check && args.ipv6 && args.verbose);
        assert_eq!((args.iterations, args.size), (7, Some(Sizes::All)));
        let hints = args.hints().expect("an address");
        assert_eq!(hints.caps, Flags::TAGGED);
        assert_eq!(
            hints.src_addr,
            Some("fi_sockaddr_in://127.0.0.1:0".parse().expect("one"))
        );
    }

    #[test]
    fn a_server_needs_no_option() {
        let args = parse(&[]).expect("nothing");
        assert!(!args.is_client() && !args.is_tagged());
        assert_eq!(
            (args.ep_type, args.iterations, args.size),
            (EpType::Dgram, 10, None)
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for options in [
            ["-S", "x"],
            ["-S", "-5"],
            ["-I", "many"],
            ["-I", "-1"],
            ["-P", "70000"],
            ["-e", "tcp"],
            ["-m", "atomic"],
            ["-B", "0"],
            ["-S", "99999999999"],
        ] {
            assert!(parse(&options).is_err(), "{options:?}");
        }
        let unknown = parse(&["-s", "no.such.name.invalid"])
            .expect("known")
            .hints();
        assert!(unknown.is_err());
    }
}
