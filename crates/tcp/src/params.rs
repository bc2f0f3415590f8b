//! Parameters (`FI_TCP_*`), read once.

use std::net::SocketAddr;
use std::time::Duration;

use ripstop_core::param::params;
use ripstop_os::{Keepalive, PortRange};

/// Provider name, and the prefix of its parameters.
pub(crate) const NAME: &str = "tcp";

/// Most bytes of connection data.
pub(crate) const MAX_HELLO: usize = ripstop_wire::xnet::cm::MAX_DATA as usize;

/// Least free bytes at which a multi-receive buffer stays posted, until the caller says
/// otherwise.
pub(crate) const MIN_MULTI_RECV: u64 = 16 * 1024;

/// Pending connections of a listener.
pub(crate) const BACKLOG: i32 = 4096;

/// Pause before a refused connection is tried again; it doubles each time.
pub(crate) const FIRST_RETRY: Duration = Duration::from_millis(50);

/// A host that is gone is noticed after 5 + 2 * 2 seconds of silence.
pub(crate) const KEEPALIVE: Keepalive = Keepalive {
    idle: Duration::from_secs(5),
    interval: Duration::from_secs(2),
    count: 2,
};

/// Values of all parameters.
#[derive(Debug)]
pub struct Params {
    pub(crate) iface: Option<String>,
    ports: Option<PortRange>,
    pub(crate) tx_size: usize,
    pub(crate) rx_size: usize,
    pub(crate) max_inject: usize,
    pub(crate) inline: usize,
    pub(crate) rendezvous: u64,
    pub(crate) kept_bytes: u64,
    pub(crate) kept_messages: u32,
    pub(crate) kept_total: u64,
    pub(crate) nodelay: bool,
    pub(crate) no_thread: bool,
    pub(crate) timeout: Duration,
    /// How long a peer that is connected may take to start its part of a handshake.
    pub(crate) answer: Duration,
}

impl Params {
    /// Declares and reads all.
    pub(crate) fn read() -> Self {
        let p = params();
        let prov = Some(NAME);
        let iface = p.declare_optional::<String>(prov, "iface", "Specify interface name");
        let low = p.declare::<i32>(prov, "port_low_range", 0, "define port low range");
        let high = p.declare::<i32>(prov, "port_high_range", 0, "define port high range");
        let max_inject = p.declare::<usize>(
            prov,
            "max_inject",
            128,
            "maximum size for inject messages (default: 128)",
        );
        let timeout = p.declare::<usize>(
            prov,
            "connect_timeout",
            5000,
            "how long to try to reach a peer, or to wait for the rest of a handshake or header, \
             in milliseconds (default: 5000)",
        );
        let answer = p.declare::<usize>(
            prov,
            "answer_timeout",
            600_000,
            "how long a process that is connected may take before it answers, as one does that \
             computes and makes no progress, in milliseconds (default: 600000)",
        );
        // What is injected must fit into the staging buffer together with its header.
        let max_inject = max_inject.min(crate::stage::STAGE / 2);
        Self {
            iface,
            ports: ports(low, high),
            tx_size: p.declare(
                prov,
                "tx_size",
                1024,
                "define default tx context size (default: 1024)",
            ),
            rx_size: p.declare(
                prov,
                "rx_size",
                1024,
                "define default rx context size (default: 1024)",
            ),
            max_inject,
            inline: 2048.max(max_inject),
            rendezvous: p.declare::<usize>(
                prov,
                "rendezvous_size",
                512 * 1024,
                "tagged messages larger than this are sent once the peer has a buffer for them, \
                 if the peer can do so (default: 524288)",
            ) as u64,
            kept_bytes: p.declare::<usize>(
                prov,
                "max_saved_bytes",
                64 << 20,
                "how many bytes of messages without a posted buffer are kept for one peer before \
                 the peer has to wait (default: 67108864)",
            ) as u64,
            kept_messages: u32::try_from(p.declare::<usize>(
                prov,
                "max_saved",
                64 * 1024,
                "how many messages without a posted buffer are kept for one peer before the peer \
                 has to wait (default: 65536)",
            ))
            .unwrap_or(u32::MAX),
            kept_total: p.declare::<usize>(
                prov,
                "max_saved_total",
                1 << 30,
                "how many bytes of messages without a posted buffer are kept for all peers of a \
                 domain together, those that have left included (default: 1073741824)",
            ) as u64,
            nodelay: p.declare(
                prov,
                "nodelay",
                true,
                "send small segments at once, TCP_NODELAY (default: true)",
            ),
            no_thread: p.declare(
                prov,
                "disable_auto_progress",
                false,
                "prevent auto-progress thread from starting",
            ),
            timeout: Duration::from_millis(timeout.max(1) as u64),
            answer: Duration::from_millis(answer.max(1) as u64),
        }
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
            log_warn!(
                EpCtrl,
                "FI_TCP_PORT_LOW_RANGE={low} and FI_TCP_PORT_HIGH_RANGE={high} are ignored: \
                 set both, the low one not above the high one"
            );
            None
        }
    }
}
