//! The provider through the object model: one program, since each would be built with all of the provider.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../conformance/src/subject/model/freed.rs"]
mod freed;
#[path = "../common/pair.rs"]
mod pair;
#[path = "../../../conformance/src/rig/port.rs"]
mod port;

mod coll;
mod msg;
mod peer;
mod rdm;
mod rxm;
mod scalable;
mod triggered;

use std::sync::Arc;

use ripstop_core::provider::Provider;
use ripstop_core::registry::ProviderInfo;
use ripstop_core::{Address, Hints, Info};

/// The first interface that matches, and its fabric.
fn fabric<P: Provider + ProviderInfo>(provider: &P, hints: &Hints) -> (Info, Arc<P::Fabric>) {
    let info = common::first(provider, hints);
    let fabric = provider.fabric(&info.fabric).unwrap();
    (info, fabric)
}

/// An address where nobody listens.
fn nobody() -> Address {
    Address::Ip(port::free_port())
}
