//! What fabrics and domains open.

use std::sync::Arc;
use std::time::Duration;

use ripstop_core::lock::{Serial, Shared};
use ripstop_core::provider::{
    self, AvAttr, CollLimit, Copies, CounterAttr, CqAttr, MrAttr, Token, Work, WorkOp,
};
use ripstop_core::{EventQueue, FabricAttr, Info, RxAttr, TxAttr, params};
use ripstop_engine::triggered::Basis;
use ripstop_types::{AtomicKind, AtomicOp, Collective, Datatype, Errno, Flags, Result};

use crate::api::av::Av;
use crate::api::counter::Counter;
use crate::api::cq::Cq;
use crate::api::domain::{Domain, Mode};
use crate::api::endpoint::Endpoint;
use crate::api::fabric::Fabric;
use crate::api::group::Group;
use crate::api::mr::Mr;
use crate::api::owned::PeerRx;
use crate::api::passive::PassiveEp;
use crate::api::scalable::ScalableEp;
use crate::api::srx::SharedRx;
use crate::api::stx::SharedTx;
use crate::deferred::coll::{MAX_MEMBERS, check_elements};
use crate::state::held::Held;
use crate::transport::Transport;

impl<T: Transport, K: Mode> provider::Domain for Domain<T, K> {
    type Endpoint = Endpoint<T, K>;
    type ScalableEp = ScalableEp<T, K>;
    type SharedRx = SharedRx<T, K>;
    type PeerRx = PeerRx<T, K>;
    type SharedTx = SharedTx<T, K>;
    type Cq = Cq<T, K>;
    type Counter = Counter<T, K>;
    type Av = Av<T, K>;
    type Mr = Mr<T, K>;
    type Group = Group<T, K>;

    fn endpoint(self: &Arc<Self>, info: &Info, token: Token) -> Result<Arc<Endpoint<T, K>>> {
        Endpoint::open(self, info, token)
    }

    fn scalable_ep(self: &Arc<Self>, info: &Info, token: Token) -> Result<Arc<ScalableEp<T, K>>> {
        ScalableEp::open(self, info, token)
    }

    fn shared_rx(self: &Arc<Self>, attr: &RxAttr) -> Result<Arc<SharedRx<T, K>>> {
        SharedRx::open(self, attr)
    }

    fn peer_rx(self: &Arc<Self>) -> Result<Arc<PeerRx<T, K>>> {
        // Owners such as lnx open domains with what `fi_getinfo(3)` gave them, and keep it there.
        if !self.info.caps.contains(Flags::PEER) {
            return Err(refused!(
                T::EpCtrl,
                EINVAL,
                "a receive context of another provider needs an interface with FI_PEER; ask for it \
                 in the caps of the hints"
            ));
        }
        PeerRx::open(self)
    }

    fn shared_tx(self: &Arc<Self>, attr: &TxAttr) -> Result<Arc<SharedTx<T, K>>> {
        SharedTx::open(self, attr)
    }

    fn cq(self: &Arc<Self>, attr: &CqAttr) -> Result<Arc<Cq<T, K>>> {
        Cq::open(self, attr)
    }

    fn counter(self: &Arc<Self>, attr: &CounterAttr) -> Result<Arc<Counter<T, K>>> {
        Counter::open(self, attr)
    }

    fn av(self: &Arc<Self>, attr: &AvAttr) -> Result<Arc<Av<T, K>>> {
        Av::open(self, attr)
    }

    fn mr(self: &Arc<Self>, attr: &MrAttr) -> Result<Arc<Mr<T, K>>> {
        Mr::register(self, attr)
    }

    fn atomic_limit(&self, kind: AtomicKind, datatype: Datatype, op: AtomicOp) -> Result<usize> {
        if !kind.allows(op, datatype) || !ripstop_mem::atomic::supported(datatype) {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(T::max_atomic(&self.fabric.params) / datatype.size())
    }

    fn queue_work(self: &Arc<Self>, work: &Work<'_, Self>) -> Result<()> {
        let when = self.reached(work.when, Basis::All)?;
        let counter_id = |counter: &Option<&Arc<Counter<T, K>>>| {
            counter.map(|counter| self.counter_id(counter)).transpose()
        };
        let held = match &work.op {
            WorkOp::Set(counter, value) => {
                Held::change(work.token, self.counter_id(counter)?, *value, false)
            }
            WorkOp::Add(counter, value) => {
                Held::change(work.token, self.counter_id(counter)?, *value, true)
            }
            WorkOp::Data { ep, call, done } => {
                self.check_same(&ep.domain, "the endpoint")?;
                ep.held(call, Some((work.token, counter_id(done)?)))?
            }
            WorkOp::SharedRecv { srx, call, done } => {
                self.check_same(&srx.domain, "the receive context")?;
                srx.held(call, Some((work.token, counter_id(done)?)))?
            }
        };
        self.lock().hold(when, held)
    }

    fn cancel_work(&self, token: Token) -> Result<()> {
        self.lock().cancel_work(token)
    }

    fn flush_work(self: &Arc<Self>, counter: Option<&Arc<Counter<T, K>>>) -> Result<()> {
        let counter = counter
            .map(|counter| self.counter_id(counter))
            .transpose()?;
        self.lock().flush_work(counter);
        Ok(())
    }

    fn collective_limit(
        &self,
        coll: Collective,
        datatype: Option<Datatype>,
        op: Option<AtomicOp>,
    ) -> Result<CollLimit> {
        if !self.info.caps.contains(Flags::COLLECTIVE) {
            return Err(Errno::EOPNOTSUPP);
        }
        let barrier = coll == Collective::Barrier;
        if barrier != datatype.is_none() || coll.reduces() != op.is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        if let (Some(datatype), Some(op)) = (datatype, op) {
            check_elements(coll, datatype, op)?;
        }
        let size = datatype.map_or(0, Datatype::size);
        Ok(CollLimit {
            count: self.info.ep.max_msg_size.checked_div(size).unwrap_or(0),
            members: MAX_MEMBERS,
        })
    }

    fn set_answer_timeout(&self, time: Duration) {
        self.lock().answer_timeout = time;
    }

    fn set_default_answer_timeout(&self, time: Duration) {
        if params().raw(Some(T::PARAMS), "answer_timeout").is_err() {
            self.set_answer_timeout(time);
        }
    }

    fn copies(&self) -> Option<Copies> {
        self.lock().copies()
    }

    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()> {
        if let Some(source) = K::source(&self.inner) {
            eq.add_source(&source)?;
        }
        Ok(())
    }
}

impl<T: Transport> provider::Fabric for Fabric<T> {
    type SafeDomain = Domain<T, Shared>;
    type SerialDomain = Domain<T, Serial>;
    type PassiveEp = PassiveEp<T>;

    fn attr(&self) -> &FabricAttr {
        &self.attr
    }

    fn safe_domain(self: &Arc<Self>, info: &Info) -> Result<Arc<Domain<T, Shared>>> {
        Domain::open(self, info)
    }

    fn serial_domain(self: &Arc<Self>, info: &Info) -> Result<Arc<Domain<T, Serial>>> {
        if <Self as provider::Fabric>::needs_lock(info) {
            return Err(Errno::EINVAL);
        }
        Domain::open(self, info)
    }

    fn passive_ep(self: &Arc<Self>, info: &Info, token: Token) -> Result<Arc<PassiveEp<T>>> {
        PassiveEp::open(self, info, token)
    }
}
