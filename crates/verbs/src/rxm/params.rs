//! Parameters: those of connections (`FI_OFI_RXM_*`), and those of devices (`FI_VERBS_*`).

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_stream::{Defaults, Tunables};
use ripstop_types::Result;

use crate::devices::{self, Device};

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
    pub(crate) verbs: Arc<crate::params::Params>,
    devices: Mutex<Vec<Arc<Device>>>,
}

impl AsRef<Tunables> for Params {
    fn as_ref(&self) -> &Tunables {
        &self.shared
    }
}

impl Params {
    pub(crate) fn read() -> Self {
        Self {
            shared: Tunables::read("ofi_rxm", DEFAULTS),
            verbs: Arc::new(crate::params::Params::read()),
            devices: Mutex::default(),
        }
    }

    /// The devices, found by the first call, and by each that asks for that.
    ///
    /// # Errors
    /// As for [`devices::find`].
    pub(crate) fn devices(&self, again: bool) -> Result<Vec<Arc<Device>>> {
        let mut found = self.devices.lock();
        if found.is_empty() || again {
            let all = devices::find(&self.verbs)?;
            *found = all.into_iter().map(Arc::new).collect();
        }
        Ok(found.clone())
    }

    /// The first address of the first device.
    pub(crate) fn first_address(&self) -> SocketAddr {
        let devices = self.devices(false).unwrap_or_default();
        let mut all = devices.iter().flat_map(|device| &device.addresses);
        let none = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        all.next().map_or(none, |local| local.addr)
    }
}
