//! Active endpoints.

use std::sync::Arc;

use ripstop_core::lock::{Lock, Locking};
use ripstop_core::provider::{self, DataCall, Token};
use ripstop_core::{EventQueue, Info, caps};
use ripstop_engine::id::{CounterId, EpId, SrxId};
use ripstop_engine::stream::EpConfig;
use ripstop_types::{EpType, Errno, Flags, Result};

use crate::api::av::Av;
use crate::api::core_ep::{EndpointCore, Part};
use crate::api::counter::Counter;
use crate::api::cq::Cq;
use crate::api::domain::{Domain, Inner, Mode};
use crate::api::owned::PeerRx;
use crate::api::scalable::ScalableEp;
use crate::api::source::{bind, rdm_source};
use crate::api::srx::SharedRx;
use crate::api::stx::SharedTx;
use crate::state::State;
use crate::state::ep::EpState;
use crate::state::held::{At, Held};
use crate::transport::Transport;

/// What is bound to an endpoint; it lives as long as the endpoint.
#[derive(Debug)]
pub(crate) struct Bound<T: Transport, K: Mode> {
    pub(crate) tx_cq: Option<Arc<Cq<T, K>>>,
    pub(crate) rx_cq: Option<Arc<Cq<T, K>>>,
    pub(crate) counters: Vec<Arc<Counter<T, K>>>,
    pub(crate) av: Option<Arc<Av<T, K>>>,
    pub(crate) eq: Option<Arc<EventQueue>>,
    pub(crate) srx: Option<Arc<SharedRx<T, K>>>,
    pub(crate) peer_rx: Option<Arc<PeerRx<T, K>>>,
    pub(crate) stx: Option<Arc<SharedTx<T, K>>>,
    /// Which counter counts what; the rest of it is not used.
    pub(crate) counting: EpConfig,
    pub(crate) enabled: bool,
}

/// Whether there is a queue or a counter that tells of what an endpoint sends, and of what it receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported {
    pub(crate) tx: bool,
    pub(crate) rx: bool,
}

type BoundGuard<'a, T, K> = <<K as Locking>::Lock<Bound<T, K>> as Lock<Bound<T, K>>>::Guard<'a>;

/// An active endpoint, or a context of a scalable one.
pub struct Endpoint<T: Transport, K: Mode> {
    pub(crate) domain: Arc<Domain<T, K>>,
    /// The domain's `inner`: saves the fast paths a pointer.
    pub(crate) inner: Arc<Inner<T, K>>,
    pub(crate) id: EpId,
    pub(crate) ep_type: EpType,
    pub(crate) caps: Flags,
    pub(crate) max_msg_size: usize,
    pub(crate) part: Part,
    /// Declared before `bound`, so that it is dropped first.
    pub(crate) core: Arc<EndpointCore<T, K>>,
    pub(crate) bound: <K as Locking>::Lock<Bound<T, K>>,
    /// The scalable endpoint of a context.
    pub(crate) sep: Option<Arc<ScalableEp<T, K>>>,
}

impl<T: Transport, K: Mode> std::fmt::Debug for Endpoint<T, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("id", &self.id)
            .field("ep_type", &self.ep_type)
            .finish_non_exhaustive()
    }
}

impl<T: Transport, K: Mode> Endpoint<T, K> {
    pub(crate) fn open(domain: &Arc<Domain<T, K>>, info: &Info, token: Token) -> Result<Arc<Self>> {
        let core = match info.ep.ep_type {
            EpType::Msg if T::CONNECTED => EndpointCore::open_msg(domain, info, token),
            EpType::Rdm => {
                let source = rdm_source::<T>(&domain.fabric.params, info)?;
                let listener = bind::<T>(&domain.fabric.params, &source)?;
                EndpointCore::open_rdm(domain, info, token, listener, 0)
            }
            other => Err(refused!(
                T::EpCtrl,
                EINVAL,
                "there are no endpoints of type {other:?}; take an info of fi_getinfo"
            )),
        }?;
        Ok(Self::part_of(core, info, Part::Whole, None))
    }

    /// An object for all or part of what `core` is.
    pub(crate) fn part_of(
        core: Arc<EndpointCore<T, K>>,
        info: &Info,
        part: Part,
        sep: Option<Arc<ScalableEp<T, K>>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            domain: Arc::clone(&core.domain),
            inner: Arc::clone(&core.domain.inner),
            id: core.id,
            ep_type: info.ep.ep_type,
            caps: info.caps,
            max_msg_size: info.ep.max_msg_size,
            part,
            core,
            bound: <K as Locking>::Lock::new(Bound {
                tx_cq: None,
                rx_cq: None,
                counters: Vec::new(),
                av: None,
                eq: None,
                srx: None,
                peer_rx: None,
                stx: None,
                counting: EpConfig::NONE,
                enabled: false,
            }),
            sep,
        })
    }

    /// Looks at its state, or changes it.
    pub(crate) fn with_ep<R>(&self, act: impl FnOnce(&mut EpState<T>) -> R) -> Result<R> {
        let mut state = self.domain.lock();
        let done = act(state.ep(self.id).ok_or(Errno::EOPBADSTATE)?);
        state.update_fast_path(self.id);
        Ok(done)
    }

    /// Makes or ends the connection of a connected endpoint, which `enable` says to enable before.
    pub(crate) fn change_connection(
        &self,
        enable: bool,
        act: impl FnOnce(&mut State<T>) -> Result<()>,
    ) -> Result<()> {
        if self.ep_type != EpType::Msg {
            return Err(Errno::ENOSYS);
        }
        if enable {
            provider::Endpoint::enable(self)?;
        }
        let mut state = self.domain.lock();
        act(&mut state)?;
        state.after();
        Ok(())
    }

    /// What is bound to it, to bind more, which is possible until it is enabled.
    pub(crate) fn not_enabled(&self) -> Result<BoundGuard<'_, T, K>> {
        let bound = self.bound.lock();
        match bound.enabled {
            true => Err(Errno::EINVAL),
            false => Ok(bound),
        }
    }

    /// What its domain holds until a counter has come far enough.
    pub(crate) fn held(
        &self,
        call: &DataCall<'_>,
        work: Option<(Token, Option<CounterId>)>,
    ) -> Result<Held> {
        if !self.caps.contains(Flags::TRIGGER) {
            return Err(Errno::EOPNOTSUPP);
        }
        Held::data(At::Ep(self.id), call, work)
    }

    /// Takes its messages from a receive context of this domain instead of its own.
    pub(crate) fn receive_from(
        &self,
        domain: &Arc<Domain<T, K>>,
        srx: SrxId,
    ) -> Result<BoundGuard<'_, T, K>> {
        if self.part != Part::Whole {
            return Err(Errno::EINVAL);
        }
        self.domain.check_same(domain, "the receive context")?;
        let bound = self.not_enabled()?;
        if bound.srx.is_some() || bound.peer_rx.is_some() {
            return Err(Errno::EINVAL);
        }
        let mut state = self.domain.lock();
        let ep = state.ep(self.id).ok_or(Errno::EOPBADSTATE)?;
        let own = std::mem::replace(&mut ep.srx, srx);
        ep.shared_srx = true;
        state
            .engine
            .change_ep(self.id, |config| config.srx = Some(srx));
        state.engine.close_srx(own);
        Ok(bound)
    }

    /// Whether it sends, and whether it receives; what it does to the memory of peers is restricted
    /// apart from that.
    pub(crate) fn directions(&self) -> (bool, bool) {
        match self.part {
            Part::Whole => (
                self.caps.intersects(Flags::SEND) || !self.caps.intersects(Flags::RECV),
                self.caps.intersects(Flags::RECV) || !self.caps.intersects(Flags::SEND),
            ),
            Part::Tx => (true, false),
            Part::Rx => (false, true),
        }
    }

    /// Whether it can be enabled with what is bound to it.
    ///
    /// # Errors
    /// [`Errno::ENOCQ`] where nothing tells of what it does, [`Errno::ENOEQ`].
    pub(crate) fn check_bound(&self, bound: &Bound<T, K>) -> Result<Reported> {
        let (sends, receives) = self.directions();
        let messages = self.caps.intersects(Flags::MSG | Flags::TAGGED);
        let initiates = caps::is_rma_initiator(self.caps);
        let starts = match self.part {
            Part::Whole => sends && messages || initiates || self.caps.contains(Flags::COLLECTIVE),
            Part::Tx => true,
            Part::Rx => false,
        };
        let reported = Reported {
            tx: bound.tx_cq.is_some() || bound.counting.tx_counters() != [None; 3],
            rx: bound.rx_cq.is_some() || bound.counting.rx_counters() != [None; 3],
        };
        if starts && !reported.tx {
            return Err(self.no_cq("sends, reads or writes", "FI_TRANSMIT"));
        }
        // What only peers start needs no queue here.
        if receives && messages && !reported.rx {
            return Err(self.no_cq("receives", "FI_RECV"));
        }
        if self.ep_type == EpType::Msg && bound.eq.is_none() {
            return Err(Errno::ENOEQ);
        }
        Ok(reported)
    }

    /// Why it cannot be enabled: what it does, and the flag that binds what is told of that.
    #[cold]
    fn no_cq(&self, does: &str, flag: &str) -> Errno {
        refused!(
            T::EpCtrl,
            ENOCQ,
            "an endpoint with these capabilities {does}, but has no completion queue or counter for \
             that: bind one with {flag}, or ask fi_getinfo for fewer capabilities"
        )
    }
}

impl<T: Transport, K: Mode> Drop for Endpoint<T, K> {
    fn drop(&mut self) {
        if self.part != Part::Whole {
            self.core.leave(self.part);
        }
    }
}
