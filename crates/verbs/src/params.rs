//! Parameters (`FI_VERBS_*`), read once.

use ripstop_core::param::{ParamType, Unused};
use ripstop_core::params;
use ripstop_types::Version;

/// Provider name, and the prefix of its parameters.
pub(crate) const NAME: &str = "verbs";

/// The provider's version, derived from that of the interface as the C library does for its own
/// providers.
pub(crate) const VERSION: Version = {
    let minor = Version::CURRENT.minor();
    Version::new((Version::CURRENT.major() * 100 + minor) as u16, 0)
};

/// Most pieces of memory of a request, whatever is asked: requests are made on the stack.
pub(crate) const IOV_MOST: usize = 16;

/// What C's verbs reads and this provider has no use for.
const UNUSED: [Unused; 8] = [
    Unused::new(
        "prefer_xrc",
        ParamType::Bool,
        "connections of the transport XRC are not offered",
    ),
    Unused::new(
        "xrcd_filename",
        ParamType::String,
        "connections of the transport XRC are not offered",
    ),
    Unused::new(
        "use_odp",
        ParamType::Bool,
        "the pages of registered memory stay where they are",
    ),
    Unused::new(
        "dgram_use_name_server",
        ParamType::Bool,
        "no server tells addresses of datagram endpoints; programs exchange them",
    ),
    Unused::new(
        "dgram_name_server_port",
        ParamType::Int,
        "no server tells addresses of datagram endpoints; programs exchange them",
    ),
    Unused::new(
        "nic_affinity_policy",
        ParamType::String,
        "devices come in the order of their speed",
    ),
    Unused::new(
        "affinity_device",
        ParamType::String,
        "devices come in the order of their speed",
    ),
    Unused::new(
        "nic_affinity_config",
        ParamType::String,
        "devices come in the order of their speed",
    ),
];

/// Values of all parameters of the provider.
#[derive(Debug)]
pub(crate) struct Params {
    pub(crate) tx_size: usize,
    pub(crate) rx_size: usize,
    pub(crate) tx_iov_limit: usize,
    pub(crate) rx_iov_limit: usize,
    pub(crate) inline_size: usize,
    pub(crate) min_rnr_timer: u8,
    pub(crate) cqread_bunch_size: usize,
    pub(crate) gid_idx: u8,
    pub(crate) use_dmabuf: bool,
    device_name: Option<String>,
    iface: Option<String>,
}

/// Declares and reads which GID is used.
fn gid_idx() -> u8 {
    let help = "the entry of a port's table of GIDs that datagram endpoints have, and that the fabric's name is of, 0 to \
                255 (default: 0); connections choose theirs themselves";
    let index: i32 = params().declare(Some(NAME), "gid_idx", 0, help);
    index.clamp(0, 255) as u8
}

impl Params {
    /// Declares and reads all.
    pub(crate) fn read() -> Self {
        let p = params();
        let prov = Some(NAME);
        let size = |name, default: usize, help| p.declare::<usize>(prov, name, default, help);
        let read = Self {
            tx_size: size(
                "tx_size",
                384,
                "requests to send that an endpoint has room for, where the program does not say \
                 (default: 384)",
            )
            .max(1),
            rx_size: size(
                "rx_size",
                384,
                "receives that an endpoint has room for, where the program does not say (default: 384)",
            )
            .max(1),
            tx_iov_limit: size(
                "tx_iov_limit",
                4,
                "pieces of memory of a send, read or write, up to 16 (default: 4)",
            )
            .clamp(1, IOV_MOST),
            rx_iov_limit: size(
                "rx_iov_limit",
                4,
                "pieces of memory of a receive, up to 16 (default: 4)",
            )
            .clamp(1, IOV_MOST),
            inline_size: size(
                "inline_size",
                256,
                "bytes of a message (with verbs;ofi_rxm: of a packet, its header counted, or of a write) that are \
                 given to the device with the request, which is as much as fi_inject takes; less where the \
                 device takes less (default: 256)",
            ),
            min_rnr_timer: p
                .declare::<i32>(
                    prov,
                    "min_rnr_timer",
                    12,
                    "how long a peer waits that finds no receive, as the code of InfiniBand, 0 to 31 \
                     (default: 12, which is 0.64 ms)",
                )
                .clamp(0, 31) as u8,
            cqread_bunch_size: size(
                "cqread_bunch_size",
                8,
                "completions that are taken from the device at a time (default: 8)",
            )
            .clamp(1, 64),
            gid_idx: gid_idx(),
            use_dmabuf: p.declare(
                prov,
                "use_dmabuf",
                true,
                "register memory of dma-bufs (FI_MR_DMABUF), where the device does that (default: yes)",
            ),
            device_name: p.declare_optional(
                prov,
                "device_name",
                "use only devices whose names begin with one of these, name1,name2 (default: all)",
            ),
            iface: p.declare_optional(
                prov,
                "iface",
                "use only addresses of interfaces whose names begin with one of these, name1,name2 \
                 (default: all)",
            ),
        };
        p.define_unused(prov, &UNUSED);
        read
    }

    /// Whether a device is to be used.
    pub(crate) fn wants_device(&self, name: &str) -> bool {
        wants(self.device_name.as_deref(), name)
    }

    /// Whether the addresses of an interface are to be used.
    pub(crate) fn wants_interface(&self, name: &str) -> bool {
        wants(self.iface.as_deref(), name)
    }
}

/// Whether a list of prefixes has one of a name. There is no list where all are wanted.
fn wants(list: Option<&str>, name: &str) -> bool {
    list.is_none_or(|list| {
        list.split(',')
            .any(|prefix| name.starts_with(prefix.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_of_prefixes() {
        assert!(wants(None, "rxe0"));
        assert!(wants(Some("mlx5_1, rxe"), "rxe0"));
        assert!(!wants(Some("mlx5_1"), "mlx5_0"));
    }
}
