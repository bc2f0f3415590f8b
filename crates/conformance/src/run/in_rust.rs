//! The Rust object model: each provider is built into this program, for both kinds of domain.

use ripstop_core::registry::registry;
use ripstop_lnx::LnxProvider;
use ripstop_shm::ShmProvider;
use ripstop_tcp::{RxmTcpProvider, TcpProvider};
use ripstop_types::{EpType, Threading};
use ripstop_verbs::{RxmVerbsProvider, VerbsProvider};

use super::{Plan, Threads};
use crate::subject::Subject;
use crate::subject::model::{Model, Rust, Safe, Serial};

/// Uses a provider of the Rust object model.
macro_rules! with {
    ($provider:expr, $setup:expr, $ep_type:expr, $body:expr) => {
        // Connected endpoints always lock, and those with a thread that makes progress.
        if $setup.level() == "domain" && $ep_type == EpType::Rdm {
            let s = Box::leak(Box::new(Model::new(Rust::<_, Serial>::new($provider))));
            $body(s, None)
        } else {
            let s = Box::leak(Box::new(Model::new(Rust::<_, Safe>::new($provider))));
            let is_safe = $setup.threading == Threading::Safe;
            let threads = is_safe.then_some(&*s as &(dyn Subject + Sync));
            $body(s, threads)
        }
    };
}

/// Opens the way into the provider of a plan, for endpoints of a type. It stays open.
pub(super) fn on_subject<T>(
    plan: &Plan,
    ep_type: EpType,
    body: impl FnOnce(&'static dyn Subject, Threads) -> T,
) -> anyhow::Result<T> {
    // The registry reads the parameters of the core first, those of logging among them.
    let _ready = registry();
    match plan.setup.provider.as_str() {
        "tcp" => Ok(with!(TcpProvider::new(), plan.setup, ep_type, body)),
        "tcp;ofi_rxm" => Ok(with!(RxmTcpProvider::new(), plan.setup, ep_type, body)),
        "shm" => Ok(with!(ShmProvider::new(), plan.setup, ep_type, body)),
        "lnx" => Ok(with!(LnxProvider::new(), plan.setup, ep_type, body)),
        "verbs" => Ok(with!(VerbsProvider::new(), plan.setup, ep_type, body)),
        "verbs;ofi_rxm" => Ok(with!(RxmVerbsProvider::new(), plan.setup, ep_type, body)),
        other => anyhow::bail!(
            "the Rust object model has no provider {other}; it has tcp, tcp;ofi_rxm, shm, lnx, verbs and verbs;ofi_rxm"
        ),
    }
}
