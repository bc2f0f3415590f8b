//! The providers that the tools bring.

use std::sync::{Arc, LazyLock};

use ripstop_core::registry::{Priority, Registration, Registry, registry};
use ripstop_shm::ShmProvider;
use ripstop_tcp::TcpProvider;

/// The providers with their types, and what keeps them listed.
struct Listed {
    tcp: Arc<TcpProvider>,
    shm: Arc<ShmProvider>,
    _registrations: [Registration; 2],
}

static LISTED: LazyLock<Listed> = LazyLock::new(|| {
    // The registry reads the parameters of the core first, those of logging among them.
    let registry = registry();
    let tcp = Arc::new(TcpProvider::new());
    let shm = Arc::new(ShmProvider::new());
    Listed {
        _registrations: [
            registry.register(tcp.clone(), Priority::Version),
            registry.register(shm.clone(), Priority::Version),
        ],
        tcp,
        shm,
    }
});

/// The registry of this process with every provider in it.
pub fn load() -> &'static Registry {
    LazyLock::force(&LISTED);
    registry()
}

/// The tcp provider.
#[must_use]
pub fn tcp() -> Arc<TcpProvider> {
    LISTED.tcp.clone()
}

/// The shm provider.
#[must_use]
pub fn shm() -> Arc<ShmProvider> {
    LISTED.shm.clone()
}
