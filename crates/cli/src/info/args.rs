//! The options of `fi_info`, as users know them, and the hints they make.

use clap::Parser;
use ripstop_core::names::CNames;
use ripstop_core::{DomainAttr, EpAttr, FabricAttr, Hints};
use ripstop_types::{AddrFormat, EpType, Flags, Mode, MrMode};

/// Displays what fabric interfaces the providers of this machine offer.
#[derive(Parser)]
#[command(name = "fi_info", disable_version_flag = true, infer_long_args = true)]
pub(super) struct Args {
    /// Source name or address.
    #[arg(short, long = "src_addr", value_name = "ADDR")]
    src_addr: Option<String>,

    /// Name or address of the peer.
    #[arg(short, long, value_name = "NAME", conflicts_with = "src_addr")]
    node: Option<String>,

    /// Port number.
    #[arg(short = 'P', long, value_name = "PNUM")]
    pub(super) port: Option<String>,

    /// One or more capabilities, as FI_MSG|FI_TAGGED.
    #[arg(short, long, value_name = "CAP1|CAP2..", value_parser = caps)]
    caps: Option<Flags>,

    /// One or more modes the program can live with; all of them when not given.
    #[arg(short, long, value_name = "MOD1|MOD2..", value_parser = modes)]
    mode: Option<Mode>,

    /// Endpoint type: FI_EP_MSG, FI_EP_RDM or FI_EP_DGRAM.
    #[arg(short = 't', long = "ep_type", value_name = "EPTYPE", value_parser = ep_type)]
    ep_type: Option<EpType>,

    /// Domain name.
    #[arg(short, long, value_name = "DOMAIN")]
    domain: Option<String>,

    /// Fabric name.
    #[arg(short, long, value_name = "FABRIC")]
    fabric: Option<String>,

    /// Address format: FI_SOCKADDR_IN, FI_SOCKADDR_IN6, ...
    #[arg(short, long = "addr_format", value_name = "FMT", value_parser = addr_format)]
    addr_format: Option<AddrFormat>,

    /// Provider name, or a list of them such as tcp;shm or ^udp.
    #[arg(short, long, value_name = "PROV")]
    provider: Option<String>,

    /// Print the environment variables that libfabric reads.
    #[arg(short, long)]
    env: bool,

    /// Print the environment variables whose name contains SUBSTR.
    #[arg(short, long, value_name = "SUBSTR")]
    pub(super) getenv: Option<String>,

    /// Print the fi_info structures whose text contains SUBSTR.
    #[arg(short, long, value_name = "SUBSTR")]
    pub(super) info: Option<String>,

    /// List the providers.
    #[arg(short, long)]
    pub(super) list: bool,

    /// Print the whole fi_info structures.
    #[arg(short, long)]
    verbose: bool,

    /// Print for each provider why it does not match.
    #[arg(long)]
    pub(super) why: bool,

    /// Print everything for machines: one JSON object.
    #[arg(long)]
    pub(super) json: bool,

    /// With --env or --getenv: print the variables as docs/environment.md has them.
    #[arg(long, conflicts_with = "json")]
    pub(super) markdown: bool,

    /// Print version information.
    #[arg(long)]
    pub(super) version: bool,
}

impl Args {
    /// The node, of either sense.
    pub(super) fn node(&self) -> Option<&str> {
        self.src_addr.as_deref().or(self.node.as_deref())
    }

    /// Whether the whole structures are to be printed.
    pub(super) fn is_verbose(&self) -> bool {
        self.verbose || self.info.is_some()
    }

    /// Whether environment variables are to be printed instead of interfaces.
    pub(super) fn shows_environment(&self) -> bool {
        self.env || self.getenv.is_some()
    }

    /// Flags of the `fi_getinfo` call.
    pub(super) fn flags(&self) -> Flags {
        let mut flags = Flags::empty();
        flags.set(Flags::SOURCE, self.src_addr.is_some());
        flags.set(Flags::PROV_ATTR_ONLY, self.list);
        flags
    }

    /// What was asked for, or nothing when no option asks. A program that only looks can live
    /// with every mode.
    pub(super) fn hints(&self) -> Option<Hints> {
        let asks = self.caps.is_some()
            || self.mode.is_some()
            || self.ep_type.is_some()
            || self.addr_format.is_some()
            || self.provider.is_some()
            || self.domain.is_some()
            || self.fabric.is_some();
        asks.then(|| Hints {
            caps: self.caps.unwrap_or_default(),
            mode: self.mode.unwrap_or(Mode::from_bits_retain(u64::MAX)),
            addr_format: self.addr_format.unwrap_or_default(),
            ep: Some(EpAttr {
                ep_type: self.ep_type.unwrap_or_default(),
                ..EpAttr::default()
            }),
            domain: Some(DomainAttr {
                name: self.domain.clone(),
                mode: Mode::from_bits_retain(u64::MAX),
                mr_mode: MrMode::from_bits_retain(u32::MAX) - (MrMode::BASIC | MrMode::SCALABLE),
                ..DomainAttr::default()
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

/// Finds the value that one of `values` has this name in the C headers, in any case.
fn named<T: CNames + Copy>(what: &str, text: &str, values: &[T]) -> Result<T, String> {
    let found = values
        .iter()
        .find(|value| value.c_names().eq_ignore_ascii_case(text));
    found.copied().ok_or_else(|| {
        let names: Vec<String> = values.iter().map(CNames::c_names).collect();
        format!("{text} is no {what}; there are {}", names.join(", "))
    })
}

/// Names joined by `|`.
fn named_bits<T>(what: &str, text: &str, values: &[T]) -> Result<T, String>
where
    T: CNames + Copy + Default + std::ops::BitOr<Output = T>,
{
    text.split('|')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .try_fold(T::default(), |bits, name| {
            Ok(bits | named(what, name, values)?)
        })
}

/// The values of a type that have these names.
macro_rules! values {
    ($type:ident: $($name:ident)+) => { [$($type::$name),+] };
}

fn caps(text: &str) -> Result<Flags, String> {
    let caps = values! { Flags:
        MSG RMA TAGGED ATOMIC MULTICAST COLLECTIVE READ WRITE RECV SEND REMOTE_READ REMOTE_WRITE
        MULTI_RECV REMOTE_CQ_DATA TRIGGER FENCE RMA_PMEM SOURCE_ERR LOCAL_COMM REMOTE_COMM
        SHARED_AV RMA_EVENT SOURCE NAMED_RX_CTX DIRECTED_RECV PEER HMEM
    };
    named_bits("capability", text, &caps)
}

fn modes(text: &str) -> Result<Mode, String> {
    let modes = values! { Mode: CONTEXT MSG_PREFIX ASYNC_IOV RX_CQ_DATA LOCAL_MR CONTEXT2 };
    named_bits("mode", text, &modes)
}

fn ep_type(text: &str) -> Result<EpType, String> {
    named(
        "endpoint type",
        text,
        &values! { EpType: Unspec Msg Dgram Rdm },
    )
}

fn addr_format(text: &str) -> Result<AddrFormat, String> {
    let formats = values! { AddrFormat:
        Unspec Sockaddr SockaddrIp SockaddrIn SockaddrIn6 SockaddrIb Str IbUd
    };
    named("address format", text, &formats)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["fi_info"].iter().chain(options))
    }

    fn refusal(options: &[&str]) -> String {
        match parse(options) {
            Ok(_) => panic!("{options:?} is accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_options_users_know_are_accepted() {
        let options = "-n 127.0.0.1 -P 7 -c fi_msg|FI_TAGGED -m FI_CONTEXT -t FI_EP_RDM \
                       -a FI_SOCKADDR_IN -p tcp -d lo -f 127.0.0.0/8";
        let options: Vec<&str> = options.split(' ').collect();
        let args = parse(&options).expect("known options");
        let hints = args.hints().expect("hints");
        assert_eq!(hints.caps, Flags::MSG | Flags::TAGGED);
        assert_eq!(hints.mode, Mode::CONTEXT);
        assert_eq!(hints.ep.map(|ep| ep.ep_type), Some(EpType::Rdm));
        assert_eq!(hints.addr_format, AddrFormat::SockaddrIn);
        assert_eq!(args.node(), Some("127.0.0.1"));
        assert!(!args.is_verbose());
        assert!(parse(&["-i", "lo"]).expect("known").is_verbose());
    }

    #[test]
    fn no_question_means_no_hints() {
        let args = parse(&["-s", "::1", "-l"]).expect("known options");
        assert!(args.hints().is_none());
        assert_eq!(args.flags(), Flags::SOURCE | Flags::PROV_ATTR_ONLY);
        assert!(parse(&["--env"]).expect("known").shows_environment());
        assert!(parse(&["-g", "TCP"]).expect("known").shows_environment());
        assert!(
            parse(&["--prov", "tcp"])
                .expect("a prefix")
                .hints()
                .is_some()
        );
    }

    #[test]
    fn wrong_names_are_refused_with_the_right_ones() {
        assert!(refusal(&["-t", "rdm"]).contains("FI_EP_RDM"));
        assert!(refusal(&["-c", "FI_MSG|FI_NONSENSE"]).contains("FI_DIRECTED_RECV"));
        assert!(refusal(&["-a", "ipv4"]).contains("FI_SOCKADDR_IN"));
        assert!(refusal(&["-m", "x"]).contains("FI_CONTEXT2"));
    }

    #[test]
    fn every_option_fits() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }
}
