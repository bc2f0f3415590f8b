//! Parameters (`FI_TCP_*`), read once.

use std::net::SocketAddr;
use std::time::Duration;

use ripstop_core::fi_warn;
use ripstop_core::ip::{LocalAddress, local_addresses};
use ripstop_core::log::Subsys;
use ripstop_core::param::{ParamType, Unused};
use ripstop_core::params;
use ripstop_os::{Keepalive, PortRange};
use ripstop_stream::{Defaults, Tunables};
use ripstop_types::Result;

/// Provider name, and the prefix of its parameters.
pub(crate) const NAME: &str = "tcp";

const DEFAULTS: Defaults = Defaults {
    max_inject: 128,
    connect_timeout: 5000,
    max_saved_bytes: 64 << 20,
    max_saved_total: 1 << 30,
};

/// A host that is gone is noticed after 5 + 2 * 2 seconds of silence.
pub(crate) const KEEPALIVE: Keepalive = Keepalive {
    idle: Duration::from_secs(5),
    interval: Duration::from_secs(2),
    count: 2,
};

/// As long as keep-alive takes, for connections on which bytes wait for an answer.
pub(crate) const SILENCE: Duration = Duration::from_secs(9);

/// What C's tcp reads and this provider has no use for.
const UNUSED: [Unused; 7] = [
    Unused::new(
        "prov_name",
        ParamType::String,
        "C renames its provider for tests by it",
    ),
    Unused::new(
        "max_rx_size",
        ParamType::Size,
        "what is kept of a message without a posted buffer takes as much memory as it is long",
    ),
    Unused::new(
        "staging_sbuf_size",
        ParamType::Int,
        "small messages to one peer leave together from 16 KiB of each connection",
    ),
    Unused::new(
        "prefetch_rbuf_size",
        ParamType::Int,
        "several messages are read by one system call in any case",
    ),
    Unused::new(
        "zerocopy_size",
        ParamType::Size,
        "the system copies all payloads, as with C's default",
    ),
    Unused::new(
        "trace_msg",
        ParamType::Bool,
        "single messages are not logged",
    ),
    Unused::new(
        "io_uring",
        ParamType::Bool,
        "sockets are used by system calls, as with C's default",
    ),
];

/// Values of all parameters of the provider (`FI_TCP_*`).
#[derive(Debug)]
pub struct Params {
    pub(crate) iface: Option<String>,
    ports: Option<PortRange>,
    pub(crate) nodelay: bool,
    /// Peers cannot connect to this process.
    pub(crate) firewall_addr: bool,
    shared: Tunables,
}

impl AsRef<Tunables> for Params {
    fn as_ref(&self) -> &Tunables {
        &self.shared
    }
}

impl Params {
    /// Declares and reads all.
    #[must_use]
    pub fn read() -> Self {
        let p = params();
        let prov = Some(NAME);
        let iface = p.declare_optional::<String>(prov, "iface", "Specify interface name");
        let low = p.declare::<i32>(prov, "port_low_range", 0, "define port low range");
        let high = p.declare::<i32>(prov, "port_high_range", 0, "define port high range");
        p.define_unused(prov, &UNUSED);
        Self {
            iface,
            ports: ports(low, high),
            shared: Tunables::read(NAME, DEFAULTS),
            nodelay: p.declare(
                prov,
                "nodelay",
                true,
                "send small segments at once, TCP_NODELAY (default: true)",
            ),
            firewall_addr: p.declare(
                prov,
                "firewall_addr",
                false,
                "this process is behind a firewall: reliable datagram endpoints tell peers not to \
                 connect to them, but to wait until they connect (default: false)",
            ),
        }
    }

    /// The addresses of this machine, the best first.
    ///
    /// # Errors
    /// Of the system.
    pub fn addresses(&self) -> Result<Vec<LocalAddress>> {
        let interfaces = ripstop_os::net::interfaces()?;
        Ok(local_addresses(&interfaces, self.iface.as_deref()))
    }

    /// The port range for an address that names no port.
    pub(crate) fn range_for(&self, addr: &SocketAddr) -> Option<PortRange> {
        if addr.port() == 0 { self.ports } else { None }
    }
}

fn ports(low: i32, high: i32) -> Option<PortRange> {
    if low == 0 && high == 0 {
        return None;
    }
    match (u16::try_from(low), u16::try_from(high.min(65535))) {
        (Ok(low), Ok(high)) if low <= high && high > 0 => PortRange::new(low, high),
        _ => {
            fi_warn!(
                NAME,
                Subsys::EpCtrl,
                "FI_TCP_PORT_LOW_RANGE={low} and FI_TCP_PORT_HIGH_RANGE={high} are ignored: \
                 set both, the low one not above the high one"
            );
            None
        }
    }
}
