//! The providers that this library brings, and how a C fabric of each is opened.

use core::ffi::c_void;
use std::sync::{Arc, OnceLock};

use ripstop_abi as abi;
use ripstop_core::FabricAttr;
use ripstop_core::log::Subsys;
use ripstop_core::provider::Provider;
use ripstop_core::registry::{Registration, registry};
use ripstop_lnx::LnxProvider;
use ripstop_shm::ShmProvider;
use ripstop_tcp::{RxmTcpProvider, TcpProvider};
use ripstop_types::{Errno, Result};
use ripstop_verbs::{RxmVerbsProvider, VerbsProvider};

use crate::fabric;

/// Opens a fabric with a provider, whose types are behind its operation tables.
type Open = dyn Fn(&FabricAttr, *mut c_void) -> Result<*mut abi::fid_fabric> + Send + Sync;

/// A provider that is listed.
struct Listed {
    name: String,
    open: Box<Open>,
    /// Keeps it listed.
    _registration: Registration,
}

static LISTED: OnceLock<Vec<Listed>> = OnceLock::new();

/// Lists the providers, once.
pub(crate) fn load() {
    listed();
}

fn listed() -> &'static [Listed] {
    LISTED.get_or_init(|| {
        // The registry reads the parameters of the core first, those of logging among them.
        let _ready = registry();
        vec![
            list(TcpProvider::new()),
            list(RxmTcpProvider::new()),
            list(ShmProvider::new()),
            list(LnxProvider::new()),
            list(VerbsProvider::new()),
            list(RxmVerbsProvider::new()),
        ]
    })
}

fn list<P: Provider>(provider: P) -> Listed {
    let provider = Arc::new(provider);
    let opens = Arc::clone(&provider);
    Listed {
        name: provider.name().to_owned(),
        open: Box::new(move |attr, context| {
            let fabric = opens.fabric(attr)?;
            Ok(fabric::object(fabric, attr, context))
        }),
        _registration: registry().register(provider),
    }
}

/// Opens a fabric with the provider that its attributes name.
///
/// # Errors
/// [`Errno::ENODEV`] for a provider that is not there; those of the provider.
pub(crate) fn open_fabric(attr: &FabricAttr, context: *mut c_void) -> Result<*mut abi::fid_fabric> {
    let name = attr.prov_name.as_deref().ok_or(Errno::EINVAL)?;
    let listed = listed();
    let provider = registry().provider(name).ok_or(Errno::ENODEV)?;
    let same = |entry: &&Listed| entry.name.eq_ignore_ascii_case(provider.name());
    let entry = listed.iter().find(same).ok_or(Errno::ENODEV)?;
    let fabric = (entry.open)(attr, context)?;
    let opened = attr.name.as_deref().unwrap_or_default();
    ripstop_core::fi_info!("core", Subsys::Core, "Opened fabric: {opened}");
    Ok(fabric)
}
