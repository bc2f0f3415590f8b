//! What fabrics and domains open.

use std::sync::Arc;

use ripstop_core::eq::EventQueue;
use ripstop_core::log::Subsys;
use ripstop_core::provider::{self, AvAttr, CollLimit, CounterAttr, CqAttr, MrAttr, Token, Work};
use ripstop_core::{FabricAttr, Info, RxAttr, TxAttr, fi_warn};
use ripstop_os::Dmabuf;
use ripstop_types::{AtomicKind, AtomicOp, Collective, Datatype, Errno, Result};

use crate::atomic;
use crate::counter::Counter;
use crate::cq::Cq;
use crate::dgram::Av;
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::fabric::Fabric;
use crate::mr::Mr;
use crate::none::{NoGroup, NoPeerRx, NoScalableEp, NoSharedTx};
use crate::params::NAME;
use crate::passive::PassiveEp;
use crate::shared_rx::SharedRx;

impl provider::Fabric for Fabric {
    type SafeDomain = Domain;
    type SerialDomain = Domain;
    type PassiveEp = PassiveEp;

    fn attr(&self) -> &FabricAttr {
        &self.attr
    }

    fn safe_domain(self: &Arc<Self>, info: &Info) -> Result<Arc<Domain>> {
        Domain::open(self, info)
    }

    fn serial_domain(self: &Arc<Self>, info: &Info) -> Result<Arc<Domain>> {
        Domain::open(self, info)
    }

    fn passive_ep(self: &Arc<Self>, info: &Info, token: Token) -> Result<Arc<PassiveEp>> {
        PassiveEp::open(self, info, token)
    }
}

/// Refuses an object that this provider does not have.
fn lacks<T>(what: &str) -> Result<T> {
    fi_warn!(
        NAME,
        Subsys::Domain,
        "there are no {what} here: fi_getinfo does not offer any"
    );
    Err(Errno::ENOSYS)
}

impl provider::Domain for Domain {
    type Endpoint = Endpoint;
    type ScalableEp = NoScalableEp;
    type SharedRx = SharedRx;
    type PeerRx = NoPeerRx;
    type SharedTx = NoSharedTx;
    type Cq = Cq;
    type Counter = Counter;
    type Av = Av;
    type Mr = Mr;
    type Group = NoGroup;

    fn endpoint(self: &Arc<Self>, info: &Info, token: Token) -> Result<Arc<Endpoint>> {
        Endpoint::open(self, info, token)
    }

    fn scalable_ep(self: &Arc<Self>, _: &Info, _: Token) -> Result<Arc<NoScalableEp>> {
        lacks("scalable endpoints")
    }

    fn shared_rx(self: &Arc<Self>, attr: &RxAttr) -> Result<Arc<SharedRx>> {
        match self.attr.max_srq > 0 && self.port.is_none() {
            true => SharedRx::open(self, attr),
            false => lacks("shared receive contexts"),
        }
    }

    fn peer_rx(self: &Arc<Self>) -> Result<Arc<NoPeerRx>> {
        lacks("receives of other providers").map_err(|_| Errno::EINVAL)
    }

    fn shared_tx(self: &Arc<Self>, _: &TxAttr) -> Result<Arc<NoSharedTx>> {
        lacks("shared transmit contexts")
    }

    fn cq(self: &Arc<Self>, attr: &CqAttr) -> Result<Arc<Cq>> {
        Cq::open(self, attr)
    }

    fn counter(self: &Arc<Self>, attr: &CounterAttr) -> Result<Arc<Counter>> {
        Counter::open(self, attr)
    }

    fn av(self: &Arc<Self>, attr: &AvAttr) -> Result<Arc<Av>> {
        Av::open(self, attr)
    }

    fn mr(self: &Arc<Self>, attr: &MrAttr) -> Result<Arc<Mr>> {
        Mr::register(self, attr)
    }

    const REGISTERS_DMABUFS: bool = true;

    fn mr_dmabuf(self: &Arc<Self>, dmabuf: &Dmabuf<'_>, attr: &MrAttr) -> Result<Arc<Mr>> {
        Mr::register_dmabuf(self, dmabuf, attr)
    }

    fn atomic_limit(&self, kind: AtomicKind, datatype: Datatype, op: AtomicOp) -> Result<usize> {
        match self.attr.atomics && self.port.is_none() {
            true => atomic::limit(kind, datatype, op),
            false => Err(Errno::EOPNOTSUPP),
        }
    }

    fn queue_work(self: &Arc<Self>, _: &Work<'_, Self>) -> Result<()> {
        lacks("triggered operations")
    }

    fn cancel_work(&self, _: Token) -> Result<()> {
        Err(Errno::ENOENT)
    }

    fn flush_work(self: &Arc<Self>, _: Option<&Arc<Counter>>) -> Result<()> {
        Ok(())
    }

    fn collective_limit(
        &self,
        _: Collective,
        _: Option<Datatype>,
        _: Option<AtomicOp>,
    ) -> Result<CollLimit> {
        Err(Errno::EOPNOTSUPP)
    }

    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()> {
        let mut bound = self.eq.lock();
        if bound.is_some() {
            return Err(Errno::EINVAL);
        }
        *bound = Some(Arc::clone(eq));
        Ok(())
    }
}
