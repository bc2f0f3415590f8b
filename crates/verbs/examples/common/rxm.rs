//! The objects of `verbs;ofi_rxm`.

use ripstop_core::provider::{Domain as _Domain, Fabric as _Fabric, Provider};
use ripstop_verbs::RxmVerbsProvider;

type Fabric = <RxmVerbsProvider as Provider>::Fabric;
pub(crate) type Domain = <Fabric as _Fabric>::SafeDomain;
pub(crate) type Endpoint = <Domain as _Domain>::Endpoint;
pub(crate) type Cq = <Domain as _Domain>::Cq;
pub(crate) type Av = <Domain as _Domain>::Av;
