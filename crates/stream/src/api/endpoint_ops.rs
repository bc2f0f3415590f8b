//! The calls of active endpoints.

use std::os::fd::RawFd;
use std::sync::Arc;

use ripstop_core::lock::Lock;
use ripstop_core::provider::{
    self, AtomicCall, CollCall, DataCall, Direction, EpOption, JoinCall, RecvKind, RmaCall,
    SendKind, Threshold, Token,
};
use ripstop_core::{Address, EventQueue};
use ripstop_engine::Iov;
use ripstop_engine::triggered::Basis;
use ripstop_mem::UserBuf;
use ripstop_types::{
    AtomicOp, Context, Datatype, EpType, Errno, FiAddr, Flags, Result, RmaIov, flags,
};

use crate::addr::Addr;
use crate::api::av::Av;
use crate::api::core_ep::{Part, RX_FLAGS, TX_FLAGS};
use crate::api::counter::Counter;
use crate::api::cq::Cq;
use crate::api::domain::{Domain, Mode, bind_once};
use crate::api::endpoint::Endpoint;
use crate::api::group::Group;
use crate::api::owned::PeerRx;
use crate::api::srx::SharedRx;
use crate::api::stx::SharedTx;
use crate::state::held::At;
use crate::transport::in_place::InPlace as _;
use crate::transport::listener::Listener as _;
use crate::transport::registering::Registering as _;
use crate::transport::{InPlaceOf, RegisteringOf, Transport};
use crate::tunables::MAX_HELLO;
use crate::tx::send::SendArgs;

impl<T: Transport, K: Mode> provider::Endpoint for Endpoint<T, K> {
    type Domain = Domain<T, K>;

    fn ep_type(&self) -> EpType {
        self.ep_type
    }

    fn bind_cq(&self, cq: &Arc<Cq<T, K>>, flags: Flags) -> Result<()> {
        const KNOWN: Flags = flags![SEND RECV SELECTIVE_COMPLETION];
        if !KNOWN.contains(flags) {
            return Err(Errno::EBADFLAGS);
        }
        if !flags.intersects(Flags::SEND | Flags::RECV) {
            return Err(Errno::EINVAL);
        }
        let (tx, rx) = (flags.contains(Flags::SEND), flags.contains(Flags::RECV));
        if tx && self.part == Part::Rx || rx && self.part == Part::Tx {
            return Err(Errno::EINVAL);
        }
        self.domain.check_same(&cq.domain, "the completion queue")?;
        let mut bound = self.not_enabled()?;
        if tx && bound.tx_cq.is_some() || rx && bound.rx_cq.is_some() {
            return Err(Errno::EINVAL);
        }
        let selective = flags.contains(Flags::SELECTIVE_COMPLETION);
        self.with_ep(|ep| {
            if tx {
                bound.tx_cq = Some(Arc::clone(cq));
                ep.tx_selective = selective;
            }
            if rx {
                bound.rx_cq = Some(Arc::clone(cq));
                ep.rx_selective = selective;
            }
        })
    }

    fn bind_counter(&self, counter: &Arc<Counter<T, K>>, flags: Flags) -> Result<()> {
        const KNOWN: Flags = flags![SEND RECV READ WRITE REMOTE_READ REMOTE_WRITE];
        if !KNOWN.contains(flags) || flags.is_empty() {
            return Err(Errno::EBADFLAGS);
        }
        self.domain.check_same(&counter.domain, "the counter")?;
        let mut bound = self.not_enabled()?;
        let mut counting = bound.counting;
        let places = [
            (Flags::SEND, &mut counting.tx_counter),
            (Flags::RECV, &mut counting.rx_counter),
            (Flags::READ, &mut counting.read_counter),
            (Flags::WRITE, &mut counting.write_counter),
            (Flags::REMOTE_READ, &mut counting.remote_read_counter),
            (Flags::REMOTE_WRITE, &mut counting.remote_write_counter),
        ];
        for (what, place) in places {
            if flags.contains(what) && place.replace(counter.id).is_some() {
                return Err(Errno::EINVAL);
            }
        }
        bound.counting = counting;
        bound.counters.push(Arc::clone(counter));
        Ok(())
    }

    fn bind_av(&self, av: &Arc<Av<T, K>>) -> Result<()> {
        if self.part != Part::Whole {
            return Err(Errno::EINVAL);
        }
        self.domain.check_same(&av.domain, "the address vector")?;
        if self.ep_type != EpType::Rdm {
            // As in C: programs bind one whatever the type is.
            log_info!(
                T::EpCtrl,
                "an endpoint of type {:?} has no use for an address vector; it is not bound",
                self.ep_type
            );
            return Ok(());
        }
        bind_once(&mut self.not_enabled()?.av, av)
    }

    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()> {
        let mut bound = self.bound.lock();
        bind_once(&mut bound.eq, eq)?;
        if let Some(source) = K::source(&self.domain.inner) {
            eq.add_source(&source)?;
        }
        self.with_ep(|ep| ep.msg.eq = Some(Arc::clone(eq)))
    }

    fn bind_srx(&self, srx: &Arc<SharedRx<T, K>>) -> Result<()> {
        self.receive_from(&srx.domain, srx.id)?.srx = Some(Arc::clone(srx));
        Ok(())
    }

    fn bind_peer_rx(&self, rx: &Arc<PeerRx<T, K>>) -> Result<()> {
        if self.ep_type != EpType::Rdm {
            return Err(refused!(
                T::EpCtrl,
                EINVAL,
                "receives that another provider has (FI_PEER) are for endpoints of type FI_EP_RDM; \
                 this one is of type {:?}",
                self.ep_type
            ));
        }
        self.receive_from(&rx.domain, rx.id)?.peer_rx = Some(Arc::clone(rx));
        Ok(())
    }

    fn bind_stx(&self, stx: &Arc<SharedTx<T, K>>) -> Result<()> {
        if self.part == Part::Rx {
            return Err(Errno::EINVAL);
        }
        self.domain
            .check_same(&stx.domain, "the shared transmit context")?;
        bind_once(&mut self.not_enabled()?.stx, stx)
    }

    fn enable(&self) -> Result<()> {
        let mut bound = self.bound.lock();
        if bound.enabled {
            return Ok(());
        }
        let reported = self.check_bound(&bound)?;
        if bound.counting.rx_counter.is_none()
            && let Some(counter) = bound.srx.as_ref().and_then(|srx| srx.counter())
        {
            bound.counting.rx_counter = Some(counter);
        }
        if let Some(sep) = &self.sep {
            sep.listen(&self.core)?;
        }
        let mut state = self.domain.lock();
        if self.ep_type == EpType::Rdm && self.part == Part::Whole {
            let av = bound.av.as_ref().ok_or(Errno::ENOAV)?;
            if let Some(srx) = &bound.srx {
                srx.share_av(av.id, av.rx_ctx_bits)?;
            }
            if let Some(rx) = &bound.peer_rx {
                rx.av.share::<T>(av.id)?;
            }
            self.core.listen(&mut state, av)?;
        }
        state.engine.change_ep(self.id, |config| {
            if self.part != Part::Rx {
                config.tx_cq = bound.tx_cq.as_ref().map(|cq| cq.id);
                config.count_tx_as(&bound.counting);
            }
            if self.part != Part::Tx {
                config.rx_cq = match &bound.peer_rx {
                    Some(rx) => Some(rx.cq),
                    None => bound.rx_cq.as_ref().map(|cq| cq.id),
                };
                config.count_rx_as(&bound.counting);
            }
        });
        if let (Some(srx), Some(cq)) = (&bound.srx, &bound.rx_cq) {
            srx.note_cq(cq.id);
        }
        let (sends, receives) = self.directions();
        let ep = state.ep(self.id).ok_or(Errno::EOPBADSTATE)?;
        if self.part != Part::Rx {
            ep.tx_ready = reported.tx;
            ep.has_tx = reported.tx && sends;
            ep.counted = bound.counting.tx_counter.is_some();
            ep.writes_counted = bound.counting.write_counter.is_some();
        }
        if self.part != Part::Tx {
            ep.peer_rx = receives && bound.peer_rx.is_some();
            ep.has_rx = receives && reported.rx && !ep.peer_rx;
        }
        state.update_fast_path(self.id);
        state.start_watching();
        bound.enabled = true;
        Ok(())
    }

    fn name(&self) -> Result<Address> {
        if let Some(sep) = &self.sep {
            return provider::ScalableEp::name(&**sep);
        }
        self.with_ep(|ep| {
            let addr = match &ep.rdm {
                Some(rdm) => Some(&rdm.addr),
                None => ep.msg.local.as_ref().or(ep.msg.source.as_ref()),
            };
            addr.map(Addr::to_address).ok_or(Errno::EOPBADSTATE)
        })?
    }

    fn set_name(&self, address: &Address) -> Result<()> {
        let wanted = T::Addr::from_address(address)?;
        if self.part != Part::Whole {
            return Err(Errno::EINVAL);
        }
        if self.bound.lock().enabled {
            return Err(Errno::EOPBADSTATE);
        }
        let params = &self.domain.fabric.params;
        self.with_ep(|ep| {
            match &mut ep.rdm {
                Some(rdm) => {
                    rdm.listener = T::rename(params, &wanted)?;
                    rdm.addr = rdm.listener.local_addr()?;
                }
                None => {
                    ep.msg.source = Some(wanted);
                    ep.msg.bound = None;
                    ep.msg.local = None;
                }
            }
            Ok(())
        })?
    }

    fn peer(&self) -> Result<Address> {
        if self.ep_type == EpType::Rdm {
            return Err(Errno::ENOSYS);
        }
        self.with_ep(|ep| {
            let peer = ep.msg.peer.as_ref();
            peer.map(Addr::to_address).ok_or(Errno::ENOTCONN)
        })?
    }

    fn connect(&self, address: &Address, data: &[u8]) -> Result<()> {
        let peer = T::Addr::from_address(address)?;
        self.change_connection(true, |state| state.msg_connect(self.id, peer, data))
    }

    fn accept(&self, data: &[u8]) -> Result<()> {
        self.change_connection(true, |state| state.msg_accept(self.id, data))
    }

    fn shutdown(&self) -> Result<()> {
        self.change_connection(false, |state| {
            state.drain(self.id);
            state.msg_shutdown(self.id)
        })
    }

    fn fd(&self) -> Result<RawFd> {
        self.domain.lock().msg_fd(self.id)
    }

    fn option(&self, option: EpOption) -> Result<usize> {
        let mut state = self.domain.lock();
        let ep = state.ep(self.id).ok_or(Errno::EOPBADSTATE)?;
        match option {
            EpOption::MinMultiRecv => {
                let srx = ep.srx;
                Ok(*state.min_multi_recv(srx)? as usize)
            }
            EpOption::CmDataSize if ep.is_msg => Ok(MAX_HELLO),
            EpOption::FirewallAddr if T::KNOWS_FIREWALLS && !ep.is_msg => {
                Ok(usize::from(T::is_firewalled(&state.params)))
            }
            option => Ok(*ep.limit(option).ok_or(Errno::ENOPROTOOPT)?),
        }
    }

    fn set_option(&self, option: EpOption, value: usize) -> Result<()> {
        let mut state = self.domain.lock();
        let ep = state.ep(self.id).ok_or(Errno::EOPBADSTATE)?;
        if option == EpOption::MinMultiRecv {
            let srx = ep.srx;
            *state.min_multi_recv(srx)? = value as u64;
            return Ok(());
        }
        let inject_size = self.domain.info.tx.inject_size.max(ep.inject_size);
        let most_atomic = T::max_atomic(&self.domain.fabric.params).min(self.max_msg_size);
        let limit = ep.limit(option).ok_or(Errno::ENOPROTOOPT)?;
        let most = match option {
            EpOption::MaxAtomicSize => most_atomic,
            EpOption::MaxMsgSize | EpOption::MaxTaggedSize | EpOption::MaxRmaSize => {
                self.max_msg_size
            }
            _ => inject_size,
        };
        if value > most {
            return Err(refused!(
                T::EpCtrl,
                EINVAL,
                "an option cannot be set to {value} bytes: the endpoint has {most}; set it to that \
                 or less"
            ));
        }
        *limit = value;
        state.update_fast_path(self.id);
        Ok(())
    }

    fn op_flags(&self, direction: Direction) -> Flags {
        self.with_ep(|ep| match direction {
            Direction::Tx => ep.tx_flags,
            Direction::Rx => ep.rx_flags,
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
        self.with_ep(|ep| match direction {
            Direction::Tx => ep.tx_flags = flags,
            Direction::Rx => ep.rx_flags = flags,
        })
    }

    #[inline(always)]
    fn send(
        &self,
        kind: SendKind,
        iov: &[UserBuf],
        data: Option<u64>,
        dest: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        let args = SendArgs {
            kind,
            data,
            dest,
            context,
            flags,
        };
        let mut state = self.inner.state.lock();
        if let [buf] = iov {
            return state.send_one(self.id, *buf, args);
        }
        state.send(self.id, &Iov::new(iov)?, &args, 0)
    }

    #[inline(always)]
    fn inject(&self, kind: SendKind, buf: UserBuf, data: Option<u64>, dest: FiAddr) -> Result<()> {
        let mut state = self.inner.state.lock();
        state.inject_one(self.id, kind, buf, data, dest)
    }

    #[inline(always)]
    fn recv(
        &self,
        kind: RecvKind,
        iov: &[UserBuf],
        src: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        let mut state = self.inner.state.lock();
        if let [buf] = iov {
            return state.recv_one(self.id, kind, *buf, src, context, flags);
        }
        state.recv(self.id, kind, Iov::new(iov)?, src, context, flags)
    }

    #[inline(always)]
    fn read(&self, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()> {
        let mut state = self.inner.state.lock();
        state.read(self.id, iov, call)
    }

    #[inline(always)]
    fn write(&self, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()> {
        let mut state = self.inner.state.lock();
        let at_once = InPlaceOf::<T>::SUPPORTED || RegisteringOf::<T>::SUPPORTED;
        if at_once && let (&[buf], &[to], None, None) = (iov, call.remote, call.data, call.flags) {
            return state.write_one(self.id, buf, to, call.peer, call.context);
        }
        state.write(self.id, iov, call)
    }

    fn inject_write(
        &self,
        buf: UserBuf,
        remote: RmaIov,
        data: Option<u64>,
        peer: FiAddr,
    ) -> Result<()> {
        let mut state = self.domain.lock();
        state.inject_write(self.id, buf, remote, data, peer)
    }

    fn atomic(&self, operand: &[UserBuf], call: &AtomicCall<'_>) -> Result<()> {
        let operand = Iov::new(operand)?;
        let mut state = self.domain.lock();
        state.post_atomic(self.id, operand, call, None)
    }

    fn inject_atomic(
        &self,
        operand: UserBuf,
        datatype: Datatype,
        op: AtomicOp,
        remote: RmaIov,
        peer: FiAddr,
    ) -> Result<()> {
        let mut state = self.domain.lock();
        state.inject_atomic(self.id, operand, (datatype, op), remote, peer)
    }

    fn trigger(&self, call: &DataCall<'_>, when: Threshold<'_, Domain<T, K>>) -> Result<()> {
        let held = self.held(call, None)?;
        let when = self.domain.reached(when, Basis::Successes)?;
        self.domain.lock().hold(when, held)
    }

    fn join(self: &Arc<Self>, call: &JoinCall<'_>, token: Token) -> Result<Arc<Group<T, K>>> {
        if self.ep_type != EpType::Rdm || self.part != Part::Whole {
            return Err(Errno::ENOSYS);
        }
        Group::join(&self.domain, self, self.id, call, token)
    }

    fn group_size(&self, group: FiAddr) -> Result<usize> {
        self.domain.lock().group_size(self.id, group)
    }

    fn collective(&self, input: UserBuf, result: UserBuf, call: &CollCall) -> Result<()> {
        let mut state = self.domain.lock();
        state.post_coll(self.id, input, result, call)
    }

    fn cancel(&self, context: Context) -> Result<()> {
        let mut state = self.domain.lock();
        let config = *state.engine.ep(self.id).ok_or(Errno::EOPBADSTATE)?;
        let srx = config.srx.ok_or(Errno::EOPBADSTATE)?;
        let mut done = state.engine.cancel(srx, config.rx_cq, context);
        if done == Err(Errno::ENOENT) {
            done = state.cancel_triggered(At::Ep(self.id), context);
        }
        if done == Err(Errno::ENOENT) {
            done = state.engine.cancel_tx(self.id, context);
        }
        state.after();
        match done {
            Err(Errno::ENOENT) if state.engine.is_owned(srx) => Err(Errno::ENOSYS),
            done => done,
        }
    }
}
