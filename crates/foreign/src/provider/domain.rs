//! Domains.

use std::fmt;
use std::sync::Arc;

use ripstop_abi::{FI_NOOP, FI_VOID};
use ripstop_core::provider::{
    self as model, AvAttr, CollLimit, CounterAttr, CqAttr, MrAttr, Token, Work,
};
use ripstop_core::{EventQueue, Info, RxAttr, TxAttr};
use ripstop_types::{
    AddrFormat, AtomicKind, AtomicOp, Collective, Datatype, Errno, MrMode, Result,
};

use super::events::Origin;
use super::{Av, Counter, Cq, Endpoint, Fabric, Group, Missing, Mr, OURS, origin, refuse, told};
use crate::{DomainOptions, Threading};

/// A domain of a library.
pub struct Domain<M: Threading> {
    domain: crate::Domain<M>,
    format: AddrFormat,
    fabric: Arc<Fabric>,
}

impl<M: Threading> fmt::Debug for Domain<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Domain")
    }
}

impl<M: Threading> Domain<M> {
    pub(super) fn open(fabric: &Arc<Fabric>, origin: &Origin) -> Result<Arc<Self>> {
        let info = origin.info();
        if info.mr_mode().contains(MrMode::LOCAL) {
            return refuse(
                Errno::EINVAL,
                "no descriptors of local memory are kept here: ask fi_getinfo without FI_MR_LOCAL",
            );
        }
        // Where contexts are memory of the library's, the book of operations has it.
        let unbooked = !info.mode().intersects(OURS);
        let options = DomainOptions {
            unbooked,
            sources: Some(origin.names_sources()),
            ..DomainOptions::default()
        };
        let domain = fabric.fabric.domain_with(info, options).map_err(told)?;
        Ok(Arc::new(Self {
            domain,
            format: AddrFormat::from_raw(info.addr_format()).unwrap_or_default(),
            fabric: fabric.clone(),
        }))
    }

    pub(super) const fn format(&self) -> AddrFormat {
        self.format
    }

    pub(super) const fn fabric(&self) -> &Arc<Fabric> {
        &self.fabric
    }
}

impl<M: Threading> model::Domain for Domain<M> {
    type Endpoint = Endpoint<M>;
    type ScalableEp = Missing<M>;
    type SharedRx = Missing<M>;
    type PeerRx = Missing<M>;
    type SharedTx = Missing<M>;
    type Cq = Cq<M>;
    type Counter = Counter<M>;
    type Av = Av<M>;
    type Mr = Mr<M>;
    type Group = Group<M>;

    fn endpoint(self: &Arc<Self>, info: &Info, token: Token) -> Result<Arc<Endpoint<M>>> {
        let origin = origin(info)?;
        let builder = match origin.request()? {
            Some(request) => self.domain.accepting(request),
            None => self.domain.endpoint(origin.info()),
        };
        let endpoint = Endpoint::new(self, builder.map_err(told)?, info, token);
        Ok(Arc::new(endpoint))
    }

    fn scalable_ep(self: &Arc<Self>, _: &Info, _: Token) -> Result<Arc<Missing<M>>> {
        refuse(
            Errno::ENOSYS,
            "fi_scalable_ep: open endpoints of one context",
        )
    }

    fn shared_rx(self: &Arc<Self>, _: &RxAttr) -> Result<Arc<Missing<M>>> {
        refuse(
            Errno::ENOSYS,
            "fi_srx_context: post receives to each endpoint",
        )
    }

    fn peer_rx(self: &Arc<Self>) -> Result<Arc<Missing<M>>> {
        refuse(
            Errno::EINVAL,
            "a library matches its receives itself: leave out FI_PEER",
        )
    }

    fn shared_tx(self: &Arc<Self>, _: &TxAttr) -> Result<Arc<Missing<M>>> {
        refuse(
            Errno::ENOSYS,
            "fi_stx_context: leave each endpoint its own context",
        )
    }

    fn cq(self: &Arc<Self>, attr: &CqAttr) -> Result<Arc<Cq<M>>> {
        Cq::open(&self.fabric.fabric, &self.domain, attr).map(Arc::new)
    }

    fn counter(self: &Arc<Self>, attr: &CounterAttr) -> Result<Arc<Counter<M>>> {
        Counter::open(&self.fabric.fabric, &self.domain, attr).map(Arc::new)
    }

    fn av(self: &Arc<Self>, attr: &AvAttr) -> Result<Arc<Av<M>>> {
        Av::open(&self.domain, self.format, attr).map(Arc::new)
    }

    fn mr(self: &Arc<Self>, attr: &MrAttr) -> Result<Arc<Mr<M>>> {
        Mr::open(&self.domain, attr).map(Arc::new)
    }

    fn atomic_limit(&self, kind: AtomicKind, datatype: Datatype, op: AtomicOp) -> Result<usize> {
        let found = self
            .domain
            .query_atomic(kind, datatype.number(), op.number());
        // That there is none is an answer.
        found.map(|(count, _)| count).map_err(|_| Errno::EOPNOTSUPP)
    }

    fn queue_work(self: &Arc<Self>, _: &Work<'_, Self>) -> Result<()> {
        refuse(Errno::ENOSYS, "FI_QUEUE_WORK: post the operation itself")
    }

    fn cancel_work(&self, _: Token) -> Result<()> {
        // None can be queued.
        Err(Errno::ENOENT)
    }

    fn flush_work(self: &Arc<Self>, _: Option<&Arc<Counter<M>>>) -> Result<()> {
        Ok(())
    }

    fn collective_limit(
        &self,
        coll: Collective,
        datatype: Option<Datatype>,
        op: Option<AtomicOp>,
    ) -> Result<CollLimit> {
        let datatype = datatype.map_or(FI_VOID, Datatype::number);
        let op = op.map_or(FI_NOOP, AtomicOp::number);
        let found = self
            .domain
            .query_collective(coll.number(), datatype, op, 0)
            .map_err(|_| Errno::EOPNOTSUPP)?;
        Ok(CollLimit {
            count: found.count,
            members: found.members,
        })
    }

    fn bind_eq(&self, _: &Arc<EventQueue>) -> Result<()> {
        refuse(
            Errno::ENOSYS,
            "fi_domain_bind: a domain reports no events here",
        )
    }
}
