//! Parameters: those of packets (`FI_OFI_RXM_*`), those of devices (`FI_VERBS_*`), and what C has none of
//! (`FI_RIPSTOP_RXM_*`).

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_stream::{Defaults, Tunables, rxm};
use ripstop_types::Result;

use crate::devices::{self, Device};
use crate::rxm::cache;

/// The prefix of parameters that C lacks: they are for this provider alone, and not for C's `ofi_rxm`.
pub(crate) const OURS: &str = "ripstop_rxm";

const DEFAULTS: Defaults = Defaults {
    max_inject: 128,
    connect_timeout: 5000,
    max_saved_bytes: 64 << 20,
    max_saved_total: 1 << 30,
};

/// Values of all parameters of the provider.
#[derive(Debug)]
pub struct Params {
    shared: Tunables,
    pub(crate) rxm: rxm::Settings,
    pub(crate) verbs: Arc<crate::params::Params>,
    /// Connections of a domain beyond which idle ones end.
    pub(crate) max_connections: usize,
    devices: Mutex<Vec<Arc<Device>>>,
}

impl AsRef<Tunables> for Params {
    fn as_ref(&self) -> &Tunables {
        &self.shared
    }
}

impl Params {
    pub(crate) fn read() -> Self {
        let rxm = rxm::Settings::read();
        // Declares them.
        cache::settings();
        Self {
            shared: Tunables::read_others(OURS, DEFAULTS, rxm.given()),
            rxm,
            verbs: Arc::new(crate::params::Params::read()),
            max_connections: ripstop_core::params().declare(
                Some(OURS),
                "max_connections",
                0,
                "connections of a domain, beyond which the one that was used longest ago is closed while it has nothing \
                 to do, if its peer is of this library; the next operation makes it anew. Each takes 2.5 MiB with the \
                 defaults. 0 for as many as there are peers (default: 0)",
            ),
            devices: Mutex::default(),
        }
    }

    /// The devices, found by the first call, and by each that asks for that, unless the user says which do.
    ///
    /// # Errors
    /// As for [`devices::find`].
    pub(crate) fn devices(&self, again: bool) -> Result<Vec<Arc<Device>>> {
        let again = self.rxm.rescan.unwrap_or(again);
        let mut found = self.devices.lock();
        if found.is_empty() || again {
            let all = devices::find(&self.verbs)?;
            *found = all.into_iter().map(Arc::new).collect();
        }
        Ok(found.clone())
    }

    /// The first address of the device with this name, or of the first one.
    pub(crate) fn first_address(&self, device: Option<&str>) -> SocketAddr {
        let devices = self.devices(false).unwrap_or_default();
        let all = devices.iter().flat_map(|device| {
            let addresses = device.addresses.iter();
            addresses.map(|local| (device.name.as_str(), local.addr))
        });
        first_of(all, device)
    }
}

/// Of these addresses, each with its device.
fn first_of<'a>(
    mut all: impl Iterator<Item = (&'a str, SocketAddr)>,
    device: Option<&str>,
) -> SocketAddr {
    let found = all.find(|(name, _)| device.is_none_or(|device| device == *name));
    let none = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    found.map_or(none, |(_, addr)| addr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_an_address_is_at_the_device_of_its_domain() {
        let at = |host| SocketAddr::from(([10, 0, 0, host], 0));
        let all = [("rxe0", at(1)), ("rxe0", at(2)), ("rxe1", at(3))];
        assert_eq!(first_of(all.into_iter(), Some("rxe1")), at(3));
        assert_eq!(first_of(all.into_iter(), None), at(1));
        let none = SocketAddr::from(([0, 0, 0, 0], 0));
        assert_eq!(first_of(all.into_iter(), Some("mlx5_0")), none);
    }
}
