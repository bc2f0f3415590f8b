//! The providers that the tools bring.

use std::sync::{Arc, LazyLock};

use ripstop_core::params;
use ripstop_core::provider::Provider;
use ripstop_core::registry::{Registration, Registry, registry};
use ripstop_lnx::LnxProvider;
use ripstop_shm::ShmProvider;
use ripstop_tcp::{RxmTcpProvider, TcpProvider};
use ripstop_verbs::{RxmVerbsProvider, VerbsProvider};

use crate::objects;

/// A provider, and what keeps it listed.
struct Listed<P>(Arc<P>, #[expect(dead_code, reason = "kept")] Registration);

static TCP: LazyLock<Listed<TcpProvider>> = LazyLock::new(|| list(TcpProvider::new));
static RXM: LazyLock<Listed<RxmTcpProvider>> = LazyLock::new(|| list(RxmTcpProvider::new));
static SHM: LazyLock<Listed<ShmProvider>> = LazyLock::new(|| list(ShmProvider::new));
static LNX: LazyLock<Listed<LnxProvider>> = LazyLock::new(|| list(LnxProvider::new));
static VERBS: LazyLock<Listed<VerbsProvider>> = LazyLock::new(|| list(VerbsProvider::new));

static RXM_VERBS: LazyLock<Listed<RxmVerbsProvider>> =
    LazyLock::new(|| list(RxmVerbsProvider::new));

fn list<P: Provider>(new: fn() -> P) -> Listed<P> {
    // The registry reads the parameters of the core first, those of logging among them.
    let registry = registry();
    let provider = Arc::new(new());
    let registration = registry.register(provider.clone());
    Listed(provider, registration)
}

/// The registry of this process with every provider in it, to open objects of.
pub fn load() -> &'static Registry {
    load_all(false)
}

/// The same, to show what there is: nothing of providers from shared objects can be opened.
pub fn load_to_show() -> &'static Registry {
    load_all(true)
}

fn load_all(is_shown: bool) -> &'static Registry {
    LazyLock::force(&TCP);
    LazyLock::force(&RXM);
    LazyLock::force(&SHM);
    LazyLock::force(&LNX);
    LazyLock::force(&VERBS);
    LazyLock::force(&RXM_VERBS);
    objects::list(registry(), is_shown);
    registry()
}

/// Says that `FI_HOOK` does nothing, where it is set and this program uses the Rust objects; and what to do instead.
pub fn note_hooks(instead: &str) {
    // The registry declares the parameters of the core.
    let _ready = registry();
    let hooks = params().get::<String>(None, "hook").unwrap_or_default();
    if !hooks.is_empty() {
        eprintln!(
            "note: FI_HOOK={hooks} has no effect on Ripstop in Rust, only on programs of libfabric.so.1: {instead}"
        );
    }
}

/// The tcp provider.
#[must_use]
pub fn tcp() -> Arc<TcpProvider> {
    TCP.0.clone()
}

/// The provider of reliable datagrams in packets over tcp.
#[must_use]
pub fn rxm() -> Arc<RxmTcpProvider> {
    RXM.0.clone()
}

/// The lnx provider.
#[must_use]
pub fn lnx() -> Arc<LnxProvider> {
    LNX.0.clone()
}

/// The verbs provider.
#[must_use]
pub fn verbs() -> Arc<VerbsProvider> {
    VERBS.0.clone()
}

/// The shm provider.
#[must_use]
pub fn shm() -> Arc<ShmProvider> {
    SHM.0.clone()
}

/// The provider of reliable datagrams in packets over RDMA devices.
#[must_use]
pub fn rxm_verbs() -> Arc<RxmVerbsProvider> {
    RXM_VERBS.0.clone()
}
