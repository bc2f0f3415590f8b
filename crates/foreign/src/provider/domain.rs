//! Domains.

use std::sync::Arc;

use ripstop_abi::{FI_NOOP, FI_VOID};
use ripstop_core::provider::{
    self as model, AvAttr, CollLimit, CounterAttr, CqAttr, MrAttr, Token, Work,
};
use ripstop_core::{EventQueue, Info, RxAttr, TxAttr};
use ripstop_types::{AtomicKind, AtomicOp, Collective, Datatype, Errno, Result, WaitObj};

use super::{Missing, refuse, told};
use crate::threading::Threading;
use crate::{Av, Counter, Cq, Domain, Endpoint, Form, Group, Mr, ScalableEp, SharedRx, SharedTx};

impl<M: Threading> model::Domain for Domain<M> {
    type Endpoint = Endpoint<M>;
    type ScalableEp = ScalableEp<M>;
    type SharedRx = SharedRx<M>;
    type PeerRx = Missing<M>;
    type SharedTx = SharedTx<M>;
    type Cq = Cq<M>;
    type Counter = Counter<M>;
    type Av = Av<M>;
    type Mr = Mr<M>;
    type Group = Group<M>;

    fn endpoint(self: &Arc<Self>, info: &Info, token: Token) -> Result<Arc<Endpoint<M>>> {
        self.open_endpoint(info, token).map(Arc::new).map_err(told)
    }

    fn scalable_ep(self: &Arc<Self>, info: &Info, token: Token) -> Result<Arc<ScalableEp<M>>> {
        self.open_sep(info, token).map(Arc::new).map_err(told)
    }

    fn shared_rx(self: &Arc<Self>, attr: &RxAttr) -> Result<Arc<SharedRx<M>>> {
        self.open_srx(attr).map(Arc::new).map_err(told)
    }

    fn peer_rx(self: &Arc<Self>) -> Result<Arc<Missing<M>>> {
        refuse(
            Errno::EINVAL,
            "a library matches its receives itself: leave out FI_PEER",
        )
    }

    fn shared_tx(self: &Arc<Self>, attr: &TxAttr) -> Result<Arc<SharedTx<M>>> {
        self.open_stx(attr).map(Arc::new).map_err(told)
    }

    fn cq(self: &Arc<Self>, attr: &CqAttr) -> Result<Arc<Cq<M>>> {
        let threshold = attr.wait != WaitObj::None;
        self.cq_with(attr, threshold, None).map_err(told)
    }

    fn counter(self: &Arc<Self>, attr: &CounterAttr) -> Result<Arc<Counter<M>>> {
        if attr.bytes {
            return refuse(Errno::ENOSYS, "fi_cntr_open: bytes are not counted here");
        }
        self.counter_with(attr.wait, None).map_err(told)
    }

    fn av(self: &Arc<Self>, attr: &AvAttr) -> Result<Arc<Av<M>>> {
        self.open_av(attr).map(Arc::new).map_err(told)
    }

    fn mr(self: &Arc<Self>, attr: &MrAttr) -> Result<Arc<Mr<M>>> {
        let form = match attr.iov.len() {
            1 => Form::Reg,
            _ => Form::Regv,
        };
        self.register(form, attr).map_err(told)
    }

    fn atomic_limit(&self, kind: AtomicKind, datatype: Datatype, op: AtomicOp) -> Result<usize> {
        let found = self.query_atomic(kind, datatype.number(), op.number());
        // That there is none is an answer.
        found.map(|(count, _)| count).map_err(|_| Errno::EOPNOTSUPP)
    }

    fn queue_work(self: &Arc<Self>, work: &Work<'_, Self>) -> Result<()> {
        self.queue(work).map_err(told)
    }

    fn cancel_work(&self, token: Token) -> Result<()> {
        // That it has started is an answer.
        self.cancel_all(token).map_err(|error| error.errno)
    }

    fn flush_work(self: &Arc<Self>, counter: Option<&Arc<Counter<M>>>) -> Result<()> {
        self.flush(counter.map(Arc::as_ref)).map_err(told)
    }

    fn collective_limit(
        &self,
        coll: Collective,
        datatype: Option<Datatype>,
        op: Option<AtomicOp>,
    ) -> Result<CollLimit> {
        let datatype = datatype.map_or(FI_VOID, Datatype::number);
        let op = op.map_or(FI_NOOP, AtomicOp::number);
        let found = self.query_collective(coll.number(), datatype, op, 0);
        found.map_err(|_| Errno::EOPNOTSUPP)
    }

    fn bind_eq(&self, _: &Arc<EventQueue>) -> Result<()> {
        refuse(
            Errno::ENOSYS,
            "fi_domain_bind: a domain reports no events here",
        )
    }
}
