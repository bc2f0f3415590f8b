//! The objects of `verbs;ofi_rxm`.

use std::sync::Arc;

use ripstop_core::provider::{
    AvAttr, CqAttr, Domain as _Domain, Endpoint as _, Fabric as _Fabric, Provider,
};
use ripstop_core::{FidToken, Info};
use ripstop_types::{AvType, Flags};
use ripstop_verbs::RxmVerbsProvider;

type Fabric = <RxmVerbsProvider as Provider>::Fabric;
pub(crate) type Domain = <Fabric as _Fabric>::SafeDomain;
pub(crate) type Endpoint = <Domain as _Domain>::Endpoint;
pub(crate) type Cq = <Domain as _Domain>::Cq;
pub(crate) type Av = <Domain as _Domain>::Av;

/// An endpoint of what is offered, for so many peers, with its domain and what is bound to it.
pub(crate) fn open(
    provider: &RxmVerbsProvider,
    info: &Info,
    peers: usize,
) -> (Arc<Domain>, Arc<Endpoint>, Arc<Cq>, Arc<Av>) {
    let fabric = provider.fabric(&info.fabric).expect("a fabric");
    let domain = fabric.safe_domain(info).expect("a domain");
    let cq = domain.cq(&CqAttr::default()).expect("a queue");
    let attr = AvAttr {
        av_type: AvType::Table,
        count: peers,
        ..AvAttr::default()
    };
    let av = domain.av(&attr).expect("an address vector");
    let ep = domain.endpoint(info, FidToken(1)).expect("an endpoint");
    ep.bind_cq(&cq, Flags::SEND | Flags::RECV).expect("bound");
    ep.bind_av(&av).expect("bound");
    ep.enable().expect("enabled");
    (domain, ep, cq, av)
}
