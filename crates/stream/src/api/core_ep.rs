//! What an endpoint is to its domain, from open to close: a part of the engine, and for RDM a
//! listener.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ripstop_core::provider::Token;
use ripstop_core::{Info, hints};
use ripstop_engine::id::{ConnId, EpId};
use ripstop_engine::matching::Matcher;
use ripstop_engine::stream::EpConfig;
use ripstop_os::Interest;
use ripstop_types::{EpType, Errno, Flags, Result, flags, tclass};

use crate::api::av::Av;
use crate::api::domain::{Domain, Mode};
use crate::api::passive::{ConnRequest, PassiveEp};
use crate::api::source::source_of;
use crate::attr;
use crate::state::ep::{EpState, Msg, Rdm};
use crate::state::fast_path::{ACKED, FastPath};
use crate::state::held::Owner;
use crate::state::{State, token};
use crate::system::Poller as _;
use crate::transport::Transport;
use crate::transport::listener::Listener as _;
use crate::tunables::{LISTEN_BACKLOG, MIN_MULTI_RECV};

/// Flags an endpoint may have as its default for sends.
pub(crate) const TX_FLAGS: Flags = ACKED.union(flags![INJECT INJECT_COMPLETE COMPLETION]);

/// Flags an endpoint may have as its default for receives.
pub(crate) const RX_FLAGS: Flags = flags![COMPLETION MULTI_RECV];

/// See the module. A plain endpoint has one to itself; the transmit and the receive context of
/// one index of a scalable endpoint share one. When the last of them is dropped, `drop` below closes
/// the endpoint.
#[derive(Debug)]
pub(crate) struct EndpointCore<T: Transport, K: Mode> {
    pub(crate) domain: Arc<Domain<T, K>>,
    pub(crate) id: EpId,
    /// Contexts that are open.
    tx_open: AtomicBool,
    rx_open: AtomicBool,
}

/// The code point of an endpoint's packets: of its own class, else of the domain's.
fn dscp<T: Transport, K: Mode>(domain: &Domain<T, K>, info: &Info) -> Result<Option<u8>> {
    let classes = [info.tx.tclass, domain.info.domain.tclass];
    match classes.into_iter().find(|class| *class != 0) {
        Some(class) => match tclass::dscp(class) {
            Some(point) => Ok(Some(point)),
            None => Err(refused!(
                T::EpCtrl,
                EINVAL,
                "tclass is {class:#x}; set it to an FI_TC_ label, or fi_tc_dscp_set of at most 63"
            )),
        },
        None => Ok(None),
    }
}

/// Whether an endpoint can be what it is opened with: a program may have changed what `fi_getinfo` gave.
fn check<T: Transport, K: Mode>(domain: &Domain<T, K>, info: &Info) -> Result<()> {
    let found = hints::check_opened(&attr::widest_offer::<T>(domain.fabric.tunables()), info);
    for why in &found {
        let why = why.to_string().replacen("hints->", "info->", 1);
        log_warn!(T::EpCtrl, "an endpoint cannot be opened with {why}");
    }
    match found.is_empty() {
        true => Ok(()),
        false => Err(Errno::ENODATA),
    }
}

impl<T: Transport, K: Mode> EndpointCore<T, K> {
    pub(crate) fn open_msg(
        domain: &Arc<Domain<T, K>>,
        info: &Info,
        token: Token,
    ) -> Result<Arc<Self>> {
        let mut msg = Msg {
            source: source_of::<T>(info)?,
            ..Msg::default()
        };
        if let Some(handle) = &info.handle {
            if let Some(pep) = handle.downcast::<PassiveEp<T>>() {
                let listener = pep.take_listener()?;
                msg.local = Some(listener.local_addr()?);
                msg.bound = Some(listener);
            } else {
                let request = handle
                    .downcast::<ConnRequest<T>>()
                    .and_then(|request| request.take());
                msg.request = Some(request.ok_or_else(|| {
                    refused!(
                        T::EpCtrl,
                        EINVAL,
                        "info->handle is a connection request that was accepted or rejected \
                         before, or none of this provider"
                    )
                })?);
            }
        }
        Self::open(domain, info, token, msg, None)
    }

    /// `context` is the index among those of a scalable endpoint, 0 for a plain one.
    pub(crate) fn open_rdm(
        domain: &Arc<Domain<T, K>>,
        info: &Info,
        token: Token,
        listener: T::Listener,
        context: u8,
    ) -> Result<Arc<Self>> {
        let addr = listener.local_addr()?;
        let rdm = Rdm {
            addr: addr.clone(),
            listener,
            av: None,
            context,
            ctx_bits: 0,
            peers: HashMap::new(),
            unreached: HashMap::new(),
            ended: Vec::new(),
        };
        let opened = Self::open(domain, info, token, Msg::default(), Some(rdm))?;
        log_info!(
            T::EpCtrl,
            "an endpoint is open on {}, with the address {addr}",
            info.domain.name.as_deref().unwrap_or_default()
        );
        Ok(opened)
    }

    fn open(
        domain: &Arc<Domain<T, K>>,
        info: &Info,
        token: Token,
        msg: Msg<T>,
        rdm: Option<Rdm<T>>,
    ) -> Result<Arc<Self>> {
        check(domain, info)?;
        let is_msg = info.ep.ep_type == EpType::Msg;
        let directed = info.caps.contains(Flags::DIRECTED_RECV);
        let matcher = Matcher::new(MIN_MULTI_RECV, directed);
        let dscp = dscp(domain, info)?;
        let mut state = domain.lock();
        let srx = state.engine.open_srx(matcher)?;
        let id = state.engine.open_ep(EpConfig {
            srx: Some(srx),
            tx_size: domain.tx_room(info.tx.size),
            source: info.caps.contains(Flags::SOURCE) && !is_msg,
            source_err: info.caps.contains(Flags::SOURCE_ERR) && !is_msg,
            after_reads: info.tx.msg_order.intersects(attr::AFTER_READS),
            ..EpConfig::NONE
        })?;
        let ep = EpState {
            token,
            routes: Vec::new(),
            is_msg,
            inject_size: info.tx.inject_size,
            max_msg_size: info.ep.max_msg_size,
            inject_atomic: info.tx.inject_size,
            max_atomic: info
                .ep
                .max_msg_size
                .min(T::max_atomic(&domain.fabric.params)),
            tx_flags: info.tx.op_flags & TX_FLAGS,
            rx_flags: info.rx.op_flags & RX_FLAGS,
            has_rma: info.caps.contains(Flags::RMA),
            has_atomics: info.caps.contains(Flags::ATOMIC),
            has_coll: info.caps.contains(Flags::COLLECTIVE) && !is_msg,
            tx_selective: false,
            rx_selective: false,
            tx_ready: false,
            has_tx: false,
            has_rx: false,
            dscp,
            counted: false,
            writes_counted: false,
            shared_srx: false,
            peer_rx: false,
            srx,
            fast: FastPath::default(),
            rdm,
            lost: None,
            msg,
        };
        state.eps.insert(id, ep);
        drop(state);
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            id,
            tx_open: AtomicBool::new(false),
            rx_open: AtomicBool::new(false),
        }))
    }

    fn is_open(&self, part: Part) -> &AtomicBool {
        match part {
            Part::Rx => &self.rx_open,
            Part::Tx | Part::Whole => &self.tx_open,
        }
    }

    /// Opens a context, which [`EndpointCore::leave`] ends.
    pub(crate) fn enter(&self, part: Part) -> Result<()> {
        match self.is_open(part).swap(true, Ordering::AcqRel) {
            true => Err(Errno::EBUSY),
            false => Ok(()),
        }
    }

    /// Ends a context: nothing uses the caller's memory or its queues any more. Connections
    /// stay for the other context of the same index, unless they are in the middle of that.
    pub(crate) fn leave(&self, part: Part) {
        let mut state = self.domain.lock();
        state.drop_works_of(Owner::Ep(self.id), Some(part == Part::Rx));
        state.drain(self.id);
        let Some(ep) = state.ep(self.id) else { return };
        let srx = ep.srx;
        match part {
            Part::Rx => ep.has_rx = false,
            Part::Tx | Part::Whole => (ep.tx_ready, ep.has_tx) = (false, false),
        }
        state.update_fast_path(self.id);
        state.engine.change_ep(self.id, |config| match part {
            Part::Rx => {
                config.rx_cq = None;
                config.count_rx_as(&EpConfig::NONE);
            }
            Part::Tx | Part::Whole => {
                config.tx_cq = None;
                config.count_tx_as(&EpConfig::NONE);
            }
        });
        let busy: Vec<ConnId> = state
            .engine
            .conns_of(self.id)
            .filter(|id| {
                state.engine.conn(*id).is_some_and(|conn| match part {
                    Part::Rx => conn.fills_receives(),
                    Part::Tx | Part::Whole => conn.reads_memory(),
                })
            })
            .collect();
        for id in busy {
            state.close_connection(id, Errno::ECANCELED);
        }
        if part == Part::Rx {
            state
                .engine
                .fail_receives(srx, (None, None), Errno::ECANCELED);
        }
        state.after();
        self.is_open(part).store(false, Ordering::Release);
    }

    /// Lets peers connect, and gives them names. Does nothing the second time.
    pub(crate) fn listen(&self, state: &mut State<T>, av: &Av<T, K>) -> Result<()> {
        let epoll = Arc::clone(&state.epoll);
        let ep = state.ep(self.id).ok_or(Errno::EOPBADSTATE)?;
        let rdm = ep.rdm.as_mut().ok_or(Errno::EOPBADSTATE)?;
        if rdm.av.is_some() {
            return Ok(());
        }
        rdm.av = Some(av.id);
        rdm.ctx_bits = av.rx_ctx_bits;
        rdm.listener.listen(LISTEN_BACKLOG)?;
        epoll.add(
            &rdm.listener,
            token::LISTENER | u64::from(self.id.number()),
            Interest::READ,
        )?;
        let ids = av.ids();
        state.engine.change_ep(self.id, |config| config.ids = ids);
        Ok(())
    }
}

impl<T: Transport, K: Mode> Drop for EndpointCore<T, K> {
    fn drop(&mut self) {
        let mut state = self.domain.lock();
        state.drop_works_of(Owner::Ep(self.id), None);
        state.drain(self.id);
        state
            .accepting
            .drop_of(Some(self.id), &self.domain.inner.epoll);
        let ids: Vec<ConnId> = state.engine.conns_of(self.id).collect();
        let own = state.ep(self.id).filter(|ep| !ep.shared_srx);
        let own_srx = own.map(|ep| ep.srx);
        state.await_delivery_of(&ids);
        // Without the endpoint nothing is reported for what still waits.
        state.engine.close_ep(self.id);
        for id in ids {
            state.drop_connection(id, Errno::ECANCELED);
        }
        if let Some(srx) = own_srx {
            state.engine.close_srx(srx);
        }
        // A forked child that has the listener, too, would keep it open, and in epoll.
        if let Some(rdm) = state.ep(self.id).and_then(|ep| ep.rdm.as_ref()) {
            rdm.listener.stop();
            let _ = self.domain.inner.epoll.remove(&rdm.listener);
        }
        state.eps.remove(self.id);
        state.after();
    }
}

/// Which part of an endpoint an object stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// A transmit context of a scalable endpoint.
    Tx,
    /// A receive context of a scalable endpoint.
    Rx,
}
