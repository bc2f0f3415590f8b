//! Active endpoints.

use std::sync::Arc;
use std::time::Duration;

use ripstop_core::lock::{Lock, Locking};
use ripstop_core::provider::{self, Direction, EpOption, RecvKind, SendKind, Token};
use ripstop_core::{Address, EventQueue, Info};
use ripstop_engine::Iov;
use ripstop_engine::matching::Matcher;
use ripstop_engine::pool::NIL;
use ripstop_engine::xnet::EpConfig;
use ripstop_mem::UserBuf;
use ripstop_os::{Interest, Socket};
use ripstop_types::{Context, EpType, Errno, FiAddr, Flags, Result};

use crate::av::Av;
use crate::counter::Counter;
use crate::cq::Cq;
use crate::domain::{Domain, Mode, default_source};
use crate::params::{BACKLOG, MAX_HELLO, MIN_MULTI_RECV};
use crate::passive::{ConnRequest, PassiveEp};
use crate::post::ACKED;
use crate::srx::SharedRx;
use crate::state::{EpState, Msg, Rdm, State, put, token};
use crate::stx::SharedTx;

/// How long a closing endpoint tries to hand over messages that were injected.
const LINGER: Duration = Duration::from_millis(500);

/// Flags an endpoint may have as its default for sends.
const TX_FLAGS: Flags = ACKED
    .union(Flags::INJECT)
    .union(Flags::INJECT_COMPLETE)
    .union(Flags::COMPLETION);

/// Flags an endpoint may have as its default for receives.
const RX_FLAGS: Flags = Flags::COMPLETION.union(Flags::MULTI_RECV);

/// What is bound to an endpoint; it lives as long as the endpoint.
#[derive(Debug)]
struct Bound<K: Mode> {
    tx_cq: Option<Arc<Cq<K>>>,
    rx_cq: Option<Arc<Cq<K>>>,
    counters: Vec<Arc<Counter<K>>>,
    av: Option<Arc<Av<K>>>,
    eq: Option<Arc<EventQueue>>,
    srx: Option<Arc<SharedRx<K>>>,
    stx: Option<Arc<SharedTx<K>>>,
    tx_counter: u32,
    rx_counter: u32,
    enabled: bool,
}

/// An active endpoint of the tcp provider.
pub struct Endpoint<K: Mode> {
    domain: Arc<Domain<K>>,
    id: u32,
    ep_type: EpType,
    caps: Flags,
    bound: <K as Locking>::Lock<Bound<K>>,
}

impl<K: Mode> std::fmt::Debug for Endpoint<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("id", &self.id)
            .field("ep_type", &self.ep_type)
            .finish_non_exhaustive()
    }
}

impl<K: Mode> Endpoint<K> {
    pub(crate) fn open(domain: &Arc<Domain<K>>, info: &Info, token: Token) -> Result<Arc<Self>> {
        let is_msg = match info.ep.ep_type {
            EpType::Msg => true,
            EpType::Rdm => false,
            EpType::Unspec | EpType::Dgram => return Err(Errno::EINVAL),
        };
        let source = match &info.src_addr {
            Some(Address::Ip(addr)) => Some(*addr),
            Some(_) => return Err(Errno::EINVAL),
            None => None,
        };
        let mut msg = Msg {
            source,
            ..Msg::default()
        };
        let mut rdm = None;
        if is_msg {
            if let Some(handle) = &info.handle {
                if let Some(pep) = handle.downcast::<PassiveEp>() {
                    let socket = pep.take_socket()?;
                    msg.local = Some(socket.local_addr()?);
                    msg.bound = Some(socket);
                } else {
                    let request = handle.downcast::<ConnRequest>().ok_or(Errno::EINVAL)?;
                    msg.request = Some(request.take().ok_or(Errno::EINVAL)?);
                }
            }
        } else {
            let wanted = source.unwrap_or_else(|| default_source(&domain.fabric, None));
            let listener = Socket::tcp_bound(&wanted, domain.fabric.params.range_for(&wanted))
                .inspect_err(|error| {
                    log_warn!(
                        EpCtrl,
                        "{wanted}: cannot be bound: {error}; choose another source address"
                    );
                })?;
            let addr = listener.local_addr()?;
            rdm = Some(Rdm {
                listener,
                addr,
                av: NIL,
                peers: std::collections::HashMap::new(),
            });
        }
        let rx_size = info.rx.size.max(1);
        let directed = info.caps.contains(Flags::DIRECTED_RECV);
        let mut state = domain.lock();
        let matcher = Matcher::new(rx_size, MIN_MULTI_RECV, directed);
        let srx = state.engine.open_srx(matcher)?;
        let id = state.engine.open_ep(EpConfig {
            srx,
            tx_cq: NIL,
            rx_cq: NIL,
            tx_counter: NIL,
            rx_counter: NIL,
            tx_size: info.tx.size.max(1),
            source: info.caps.contains(Flags::SOURCE) && !is_msg,
            source_err: info.caps.contains(Flags::SOURCE_ERR) && !is_msg,
        })?;
        let ep = EpState {
            token,
            routes: Vec::new(),
            is_msg,
            inject_size: info.tx.inject_size,
            max_msg_size: info.ep.max_msg_size,
            tx_flags: info.tx.op_flags & TX_FLAGS,
            rx_flags: info.rx.op_flags & RX_FLAGS,
            tx_selective: false,
            rx_selective: false,
            has_tx: false,
            has_rx: false,
            shared_srx: false,
            srx,
            rdm,
            msg,
        };
        put(&mut state.eps, id, ep);
        drop(state);
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            id,
            ep_type: info.ep.ep_type,
            caps: info.caps,
            bound: <K as Locking>::Lock::new(Bound {
                tx_cq: None,
                rx_cq: None,
                counters: Vec::new(),
                av: None,
                eq: None,
                srx: None,
                stx: None,
                tx_counter: NIL,
                rx_counter: NIL,
                enabled: false,
            }),
        }))
    }

    fn with_ep<T>(&self, act: impl FnOnce(&mut EpState) -> Result<T>) -> Result<T> {
        act(self.domain.lock().ep(self.id).ok_or(Errno::EOPBADSTATE)?)
    }

    /// Writes what is staged, so that injected messages are not lost with the endpoint.
    fn drain(&self, state: &mut State) {
        let end = ripstop_os::clock::now() + LINGER;
        let ids: Vec<u32> = state.engine.conns_of(self.id).collect();
        for id in ids {
            loop {
                state.flush(id);
                let waits = state
                    .engine
                    .conn(id)
                    .is_some_and(|conn| conn.is_up() && conn.staged() > 0);
                if !waits || ripstop_os::clock::now() >= end {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn enable_rdm(&self, state: &mut State, bound: &Bound<K>) -> Result<()> {
        let av = bound.av.as_ref().ok_or(Errno::ENOAV)?;
        let epoll = Arc::clone(&state.epoll);
        let ep = state.ep(self.id).ok_or(Errno::EOPBADSTATE)?;
        let rdm = ep.rdm.as_mut().ok_or(Errno::EOPBADSTATE)?;
        rdm.av = av.id;
        rdm.listener.listen(BACKLOG)?;
        epoll.add(
            &rdm.listener,
            token::LISTENER | u64::from(self.id),
            Interest::READ,
        )
    }
}

impl<K: Mode> Drop for Endpoint<K> {
    fn drop(&mut self) {
        let mut state = self.domain.lock();
        self.drain(&mut state);
        state
            .accepting
            .retain(|_, accepting| accepting.ep != self.id);
        let ids: Vec<u32> = state.engine.conns_of(self.id).collect();
        let (srx, shared) = state
            .ep(self.id)
            .map_or((NIL, true), |ep| (ep.srx, ep.shared_srx));
        // Without the endpoint nothing is reported for what still waits.
        state.engine.close_ep(self.id);
        for id in ids {
            state.drop_stream(id, Errno::ECANCELED);
        }
        if !shared {
            state.engine.close_srx(srx);
        }
        if let Some(slot) = state.eps.get_mut(self.id as usize) {
            *slot = None;
        }
        state.after();
    }
}

impl<K: Mode> provider::Endpoint for Endpoint<K> {
    type Domain = Domain<K>;

    fn ep_type(&self) -> EpType {
        self.ep_type
    }

    fn bind_cq(&self, cq: &Arc<Cq<K>>, flags: Flags) -> Result<()> {
        const KNOWN: Flags = Flags::SEND
            .union(Flags::RECV)
            .union(Flags::SELECTIVE_COMPLETION);
        if !KNOWN.contains(flags) {
            return Err(Errno::EBADFLAGS);
        }
        if !flags.intersects(Flags::SEND | Flags::RECV) {
            return Err(Errno::EINVAL);
        }
        if !Arc::ptr_eq(&cq.domain, &self.domain) {
            return Err(Errno::EDOMAIN);
        }
        let selective = flags.contains(Flags::SELECTIVE_COMPLETION);
        let mut bound = self.bound.lock();
        let taken = (flags.contains(Flags::SEND) && bound.tx_cq.is_some())
            || (flags.contains(Flags::RECV) && bound.rx_cq.is_some());
        if taken || bound.enabled {
            return Err(Errno::EINVAL);
        }
        if flags.contains(Flags::SEND) {
            bound.tx_cq = Some(Arc::clone(cq));
            self.with_ep(|ep| {
                ep.tx_selective = selective;
                Ok(())
            })?;
        }
        if flags.contains(Flags::RECV) {
            bound.rx_cq = Some(Arc::clone(cq));
            self.with_ep(|ep| {
                ep.rx_selective = selective;
                Ok(())
            })?;
        }
        Ok(())
    }

    fn bind_counter(&self, counter: &Arc<Counter<K>>, flags: Flags) -> Result<()> {
        const KNOWN: Flags = Flags::SEND
            .union(Flags::RECV)
            .union(Flags::READ)
            .union(Flags::WRITE)
            .union(Flags::REMOTE_READ)
            .union(Flags::REMOTE_WRITE);
        if !KNOWN.contains(flags) || flags.is_empty() {
            return Err(Errno::EBADFLAGS);
        }
        if !Arc::ptr_eq(&counter.domain, &self.domain) {
            return Err(Errno::EDOMAIN);
        }
        let mut bound = self.bound.lock();
        if bound.enabled {
            return Err(Errno::EINVAL);
        }
        if flags.contains(Flags::SEND) {
            if bound.tx_counter != NIL {
                return Err(Errno::EINVAL);
            }
            bound.tx_counter = counter.id;
        }
        if flags.contains(Flags::RECV) {
            if bound.rx_counter != NIL {
                return Err(Errno::EINVAL);
            }
            bound.rx_counter = counter.id;
        }
        bound.counters.push(Arc::clone(counter));
        Ok(())
    }

    fn bind_av(&self, av: &Arc<Av<K>>) -> Result<()> {
        if self.ep_type != EpType::Rdm || !Arc::ptr_eq(&av.domain, &self.domain) {
            return Err(Errno::EINVAL);
        }
        let mut bound = self.bound.lock();
        if bound.av.is_some() || bound.enabled {
            return Err(Errno::EINVAL);
        }
        bound.av = Some(Arc::clone(av));
        Ok(())
    }

    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()> {
        let mut bound = self.bound.lock();
        if bound.eq.is_some() {
            return Err(Errno::EINVAL);
        }
        bound.eq = Some(Arc::clone(eq));
        if let Some(source) = K::source(&self.domain.inner) {
            eq.add_source(&source)?;
        }
        self.with_ep(|ep| {
            ep.msg.eq = Some(Arc::clone(eq));
            Ok(())
        })
    }

    fn bind_srx(&self, srx: &Arc<SharedRx<K>>) -> Result<()> {
        if !Arc::ptr_eq(&srx.domain, &self.domain) {
            return Err(Errno::EINVAL);
        }
        let mut bound = self.bound.lock();
        if bound.srx.is_some() || bound.enabled {
            return Err(Errno::EINVAL);
        }
        bound.srx = Some(Arc::clone(srx));
        let mut state = self.domain.lock();
        let ep = state.ep(self.id).ok_or(Errno::EOPBADSTATE)?;
        let own = std::mem::replace(&mut ep.srx, srx.id);
        ep.shared_srx = true;
        state
            .engine
            .change_ep(self.id, |config| config.srx = srx.id);
        state.engine.close_srx(own);
        Ok(())
    }

    fn bind_stx(&self, stx: &Arc<SharedTx<K>>) -> Result<()> {
        if !Arc::ptr_eq(&stx.domain, &self.domain) {
            return Err(Errno::EINVAL);
        }
        let mut bound = self.bound.lock();
        if bound.stx.is_some() || bound.enabled {
            return Err(Errno::EINVAL);
        }
        bound.stx = Some(Arc::clone(stx));
        Ok(())
    }

    fn enable(&self) -> Result<()> {
        let mut bound = self.bound.lock();
        if bound.enabled {
            return Ok(());
        }
        let sends = self.caps.intersects(Flags::SEND) || !self.caps.intersects(Flags::RECV);
        let receives = self.caps.intersects(Flags::RECV) || !self.caps.intersects(Flags::SEND);
        if sends && bound.tx_cq.is_none() && bound.tx_counter == NIL {
            return Err(Errno::ENOCQ);
        }
        if receives && bound.rx_cq.is_none() && bound.rx_counter == NIL {
            return Err(Errno::ENOCQ);
        }
        if self.ep_type == EpType::Msg && bound.eq.is_none() {
            return Err(Errno::ENOEQ);
        }
        if bound.rx_counter == NIL
            && let Some(counter) = bound.srx.as_ref().and_then(|srx| srx.counter())
        {
            bound.rx_counter = counter;
        }
        let mut state = self.domain.lock();
        if self.ep_type == EpType::Rdm {
            if let (Some(srx), Some(av)) = (&bound.srx, &bound.av) {
                srx.share_av(av.id)?;
            }
            self.enable_rdm(&mut state, &bound)?;
        }
        state.engine.change_ep(self.id, |config| {
            config.tx_cq = bound.tx_cq.as_ref().map_or(NIL, |cq| cq.id);
            config.rx_cq = bound.rx_cq.as_ref().map_or(NIL, |cq| cq.id);
            config.tx_counter = bound.tx_counter;
            config.rx_counter = bound.rx_counter;
        });
        if let (Some(srx), Some(cq)) = (&bound.srx, &bound.rx_cq) {
            srx.note_cq(&mut state, cq.id);
        }
        let ep = state.ep(self.id).ok_or(Errno::EOPBADSTATE)?;
        ep.has_tx = sends;
        ep.has_rx = receives;
        bound.enabled = true;
        Ok(())
    }

    fn name(&self) -> Result<Address> {
        self.with_ep(|ep| {
            let addr = match &ep.rdm {
                Some(rdm) => Some(rdm.addr),
                None => ep.msg.local.or(ep.msg.source),
            };
            addr.map(Address::Ip).ok_or(Errno::EOPBADSTATE)
        })
    }

    fn set_name(&self, address: &Address) -> Result<()> {
        let Address::Ip(wanted) = address else {
            return Err(Errno::EINVAL);
        };
        if self.bound.lock().enabled {
            return Err(Errno::EOPBADSTATE);
        }
        let range = self.domain.fabric.params.range_for(wanted);
        self.with_ep(|ep| {
            match &mut ep.rdm {
                Some(rdm) => {
                    rdm.listener = Socket::tcp_bound(wanted, range)?;
                    rdm.addr = rdm.listener.local_addr()?;
                }
                None => {
                    ep.msg.source = Some(*wanted);
                    ep.msg.bound = None;
                    ep.msg.local = None;
                }
            }
            Ok(())
        })
    }

    fn peer(&self) -> Result<Address> {
        if self.ep_type == EpType::Rdm {
            return Err(Errno::ENOSYS);
        }
        self.with_ep(|ep| ep.msg.peer.map(Address::Ip).ok_or(Errno::ENOTCONN))
    }

    fn connect(&self, address: &Address, data: &[u8]) -> Result<()> {
        let Address::Ip(peer) = address else {
            return Err(Errno::EINVAL);
        };
        if self.ep_type != EpType::Msg {
            return Err(Errno::ENOSYS);
        }
        self.enable()?;
        let mut state = self.domain.lock();
        state.msg_connect(self.id, *peer, data)?;
        state.after();
        Ok(())
    }

    fn accept(&self, data: &[u8]) -> Result<()> {
        if self.ep_type != EpType::Msg {
            return Err(Errno::ENOSYS);
        }
        self.enable()?;
        let mut state = self.domain.lock();
        state.msg_accept(self.id, data)?;
        state.after();
        Ok(())
    }

    fn shutdown(&self) -> Result<()> {
        if self.ep_type != EpType::Msg {
            return Err(Errno::ENOSYS);
        }
        let mut state = self.domain.lock();
        self.drain(&mut state);
        state.msg_shutdown(self.id)?;
        state.after();
        Ok(())
    }

    fn option(&self, option: EpOption) -> Result<usize> {
        let mut state = self.domain.lock();
        let ep = state.ep(self.id).ok_or(Errno::EOPBADSTATE)?;
        match option {
            EpOption::MinMultiRecv => {
                let srx = ep.srx;
                let matcher = state.engine.srx_mut(srx).ok_or(Errno::EOPBADSTATE)?;
                Ok(matcher.min_multi_recv as usize)
            }
            EpOption::CmDataSize if ep.is_msg => Ok(MAX_HELLO),
            EpOption::MaxMsgSize | EpOption::MaxTaggedSize => Ok(ep.max_msg_size),
            EpOption::InjectMsgSize | EpOption::InjectTaggedSize => Ok(ep.inject_size),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn set_option(&self, option: EpOption, value: usize) -> Result<()> {
        let mut state = self.domain.lock();
        let ep = state.ep(self.id).ok_or(Errno::EOPBADSTATE)?;
        match option {
            EpOption::MinMultiRecv => {
                let srx = ep.srx;
                let matcher = state.engine.srx_mut(srx).ok_or(Errno::EOPBADSTATE)?;
                matcher.min_multi_recv = value as u64;
                Ok(())
            }
            EpOption::MaxMsgSize | EpOption::MaxTaggedSize => {
                ep.max_msg_size = value;
                Ok(())
            }
            EpOption::InjectMsgSize | EpOption::InjectTaggedSize => {
                if value > self.domain.info.tx.inject_size.max(ep.inject_size) {
                    return Err(Errno::EINVAL);
                }
                ep.inject_size = value;
                Ok(())
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn op_flags(&self, direction: Direction) -> Flags {
        self.with_ep(|ep| {
            Ok(match direction {
                Direction::Tx => ep.tx_flags,
                Direction::Rx => ep.rx_flags,
            })
        })
        .unwrap_or_default()
    }

    fn set_op_flags(&self, direction: Direction, flags: Flags) -> Result<()> {
        let allowed = match direction {
            Direction::Tx => TX_FLAGS,
            Direction::Rx => RX_FLAGS,
        };
        if !allowed.contains(flags) {
            return Err(Errno::EINVAL);
        }
        self.with_ep(|ep| {
            match direction {
                Direction::Tx => ep.tx_flags = flags,
                Direction::Rx => ep.rx_flags = flags,
            }
            Ok(())
        })
    }

    #[inline]
    fn send(
        &self,
        kind: SendKind,
        iov: &[UserBuf],
        data: Option<u64>,
        dest: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        let iov = Iov::new(iov)?;
        self.domain
            .lock()
            .send(self.id, kind, iov, data, dest, context, flags)
    }

    #[inline]
    fn inject(&self, kind: SendKind, buf: UserBuf, data: Option<u64>, dest: FiAddr) -> Result<()> {
        self.domain.lock().inject(self.id, kind, buf, data, dest)
    }

    #[inline]
    fn recv(
        &self,
        kind: RecvKind,
        iov: &[UserBuf],
        src: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        let iov = Iov::new(iov)?;
        self.domain
            .lock()
            .recv(self.id, kind, iov, src, context, flags)
    }

    fn cancel(&self, context: Context) -> Result<()> {
        let mut state = self.domain.lock();
        let config = *state.engine.ep(self.id).ok_or(Errno::EOPBADSTATE)?;
        let done = state.engine.cancel(config.srx, config.rx_cq, context);
        state.after();
        done
    }
}
