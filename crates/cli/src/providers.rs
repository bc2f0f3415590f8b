//! The providers that the tools bring.

use std::sync::{Arc, OnceLock};

use ripstop_core::registry::{Priority, Registration, Registry, registry};
use ripstop_tcp::TcpProvider;

/// The registry of this process with every provider in it.
pub fn load() -> &'static Registry {
    static LISTED: OnceLock<Vec<Registration>> = OnceLock::new();
    // The registry reads the parameters of the core first, those of logging among them.
    let registry = registry();
    LISTED.get_or_init(|| vec![registry.register(Arc::new(TcpProvider::new()), Priority::Version)]);
    registry
}
