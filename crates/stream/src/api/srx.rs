//! Shared receive contexts.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use ripstop_core::RxAttr;
use ripstop_core::provider::{self, DataCall, EpOption, RecvKind, Threshold, Token};
use ripstop_engine::Iov;
use ripstop_engine::id::{AvId, CounterId, CqId, SrxId};
use ripstop_engine::matching::Matcher;
use ripstop_engine::triggered::Basis;
use ripstop_mem::UserBuf;
use ripstop_types::{Context, Errno, FiAddr, Flags, Result};

use crate::api::counter::Counter;
use crate::api::cq::Cq;
use crate::api::domain::{Domain, Mode};
use crate::rx::post::{new_recv, recv_flags};
use crate::state::ep::PeerContext;
use crate::state::held::{At, Held, Owner, SrxAt};
use crate::transport::Transport;
use crate::tunables::MIN_MULTI_RECV;

/// The address vector that the endpoints with a receive context have in common, once there is one.
#[derive(Debug)]
pub(crate) struct OneAv(AtomicU32);

impl OneAv {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// An endpoint with this address vector uses the context: sources have one meaning.
    pub(crate) fn share<T: Transport>(&self, av: AvId) -> Result<()> {
        let order = Ordering::Relaxed;
        match self.0.compare_exchange(0, av.number(), order, order) {
            Err(known) if known != av.number() => Err(refused!(
                T::EpCtrl,
                EINVAL,
                "endpoints that share a receive context must be bound to one address vector"
            )),
            _ => Ok(()),
        }
    }
}

/// A shared receive context.
#[derive(Debug)]
pub struct SharedRx<T: Transport, K: Mode> {
    pub(crate) domain: Arc<Domain<T, K>>,
    pub(crate) id: SrxId,
    flags: Flags,
    /// Peeks report the source.
    source: bool,
    /// The number of the queue that [`SharedRx::cq`] gives; 0 before there is one.
    cq: AtomicU32,
    pub(crate) av: OneAv,
    /// Upper bits of a source that name a context of the peer.
    ctx_bits: AtomicU8,
    /// What is bound to the context; it lives as long.
    bound_cq: OnceLock<Arc<Cq<T, K>>>,
    counter: OnceLock<Arc<Counter<T, K>>>,
}

impl<T: Transport, K: Mode> SharedRx<T, K> {
    pub(crate) fn open(domain: &Arc<Domain<T, K>>, attr: &RxAttr) -> Result<Arc<Self>> {
        let caps = domain.info.caps;
        let matcher = Matcher::new(MIN_MULTI_RECV, caps.contains(Flags::DIRECTED_RECV));
        let id = domain.lock().engine.open_srx(matcher)?;
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            id,
            flags: attr.op_flags,
            source: caps.contains(Flags::SOURCE),
            cq: AtomicU32::new(0),
            av: OneAv::new(),
            ctx_bits: AtomicU8::new(0),
            bound_cq: OnceLock::new(),
            counter: OnceLock::new(),
        }))
    }

    /// The counter bound to the context, for an endpoint without one.
    pub(crate) fn counter(&self) -> Option<CounterId> {
        self.counter.get().map(|counter| counter.id)
    }

    /// An endpoint with this address vector uses the context.
    pub(crate) fn share_av(&self, av: AvId, ctx_bits: u8) -> Result<()> {
        self.av.share::<T>(av)?;
        self.ctx_bits.store(ctx_bits, Ordering::Relaxed);
        Ok(())
    }

    /// An endpoint with this receive queue uses the context.
    pub(crate) fn note_cq(&self, cq: CqId) {
        if self.cq().is_none() {
            self.cq.store(cq.number(), Ordering::Relaxed);
        }
    }

    /// Where peeks and cancelled receives are reported: the queue bound to the context, or
    /// that of its first endpoint.
    fn cq(&self) -> Option<CqId> {
        CqId::new(self.cq.load(Ordering::Relaxed))
    }

    /// Where receives that were put off are posted.
    fn place(&self) -> At {
        At::Srx(SrxAt {
            id: self.id,
            cq: self.cq(),
            source: self.source,
            ctx_bits: self.ctx_bits.load(Ordering::Relaxed),
        })
    }

    /// What its domain holds until a counter has come far enough.
    pub(crate) fn held(
        &self,
        call: &DataCall<'_>,
        work: Option<(Token, Option<CounterId>)>,
    ) -> Result<Held> {
        if !self.domain.info.caps.contains(Flags::TRIGGER) {
            return Err(Errno::EOPNOTSUPP);
        }
        let peeks = matches!(call, DataCall::Recv { flags, .. } if flags.contains(Flags::PEEK));
        if peeks && self.cq().is_none() {
            return Err(Errno::ENOCQ);
        }
        Held::data(self.place(), call, work)
    }
}

impl<T: Transport, K: Mode> Drop for SharedRx<T, K> {
    fn drop(&mut self) {
        let mut state = self.domain.lock();
        state.drop_works_of(Owner::Srx(self.id), None);
        state.engine.close_srx(self.id);
        state.after();
    }
}

impl<T: Transport, K: Mode> provider::SharedRx for SharedRx<T, K> {
    type Domain = Domain<T, K>;

    fn bind_cq(&self, cq: &Arc<Cq<T, K>>, flags: Flags) -> Result<()> {
        if flags != Flags::RECV {
            return Err(Errno::EBADFLAGS);
        }
        self.domain.check_same(&cq.domain, "the completion queue")?;
        let bound = self.bound_cq.set(Arc::clone(cq));
        bound.map_err(|_| Errno::EINVAL)?;
        self.cq.store(cq.id.number(), Ordering::Relaxed);
        Ok(())
    }

    fn bind_counter(&self, counter: &Arc<Counter<T, K>>, flags: Flags) -> Result<()> {
        if flags != Flags::RECV {
            return Err(Errno::EBADFLAGS);
        }
        self.domain.check_same(&counter.domain, "the counter")?;
        // Receives are counted by the endpoint that gets them; the context only keeps its own
        // counter alive for endpoints that have none.
        let bound = self.counter.set(Arc::clone(counter));
        bound.map_err(|_| Errno::EINVAL)
    }

    fn recv(
        &self,
        kind: RecvKind,
        iov: &[UserBuf],
        src: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        let src = PeerContext::source(src, self.ctx_bits.load(Ordering::Relaxed));
        let recv = new_recv(kind, Iov::new(iov)?, src, context);
        let flags = flags.unwrap_or_else(|| recv_flags(self.flags, &recv));
        let cq = self.cq();
        if flags.contains(Flags::PEEK) && cq.is_none() {
            return Err(Errno::ENOCQ);
        }
        self.domain
            .lock()
            .recv_with_flags(self.id, cq, self.source, recv, flags)
    }

    fn trigger(&self, call: &DataCall<'_>, when: Threshold<'_, Domain<T, K>>) -> Result<()> {
        let held = self.held(call, None)?;
        let when = self.domain.reached(when, Basis::Successes)?;
        self.domain.lock().hold(when, held)
    }

    fn cancel(&self, context: Context) -> Result<()> {
        let mut state = self.domain.lock();
        let cq = self.cq();
        let done = match state.engine.cancel(self.id, cq, context) {
            Err(Errno::ENOENT) => state.cancel_triggered(self.place(), context),
            done => done,
        };
        state.after();
        done
    }

    fn option(&self, option: EpOption) -> Result<usize> {
        match option {
            EpOption::MinMultiRecv => Ok(*self.domain.lock().min_multi_recv(self.id)? as usize),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn set_option(&self, option: EpOption, value: usize) -> Result<()> {
        if option != EpOption::MinMultiRecv {
            return Err(Errno::ENOPROTOOPT);
        }
        *self.domain.lock().min_multi_recv(self.id)? = value as u64;
        Ok(())
    }
}
