//! Endpoints as the driver knows them.

use std::collections::HashMap;
use std::sync::Arc;

use ripstop_core::EventQueue;
use ripstop_core::provider::{EpOption, Token};
use ripstop_engine::id::{AvId, ConnId, CqId, SrxId};
use ripstop_engine::pool::Place;
use ripstop_engine::stream::{Level, RmaKind};
use ripstop_types::{Errno, FiAddr, Flags, Result};
use ripstop_wire::xnet::rdm::CONTEXTS;

use crate::state::accepting::Request;
use crate::state::fast_path::{
    ACKED, FastPath, SLOW_RECV_FLAGS, SLOW_SEND_FLAGS, max_sent_at_once,
};
use crate::transport::in_place::InPlace as _;
use crate::transport::registering::Registering as _;
use crate::transport::{InPlaceOf, RegisteringOf, Transport};

/// The part of an endpoint that MSG has.
#[derive(Debug)]
pub(crate) struct Msg<T: Transport> {
    pub(crate) eq: Option<Arc<EventQueue>>,
    /// The connection of a request that may be accepted.
    pub(crate) request: Option<Request<T>>,
    /// Source address to connect from.
    pub(crate) source: Option<T::Addr>,
    /// A listener taken over from a passive endpoint, to connect with.
    pub(crate) bound: Option<T::Listener>,
    pub(crate) local: Option<T::Addr>,
    pub(crate) peer: Option<T::Addr>,
    /// The connection has ended; the endpoint cannot be used again.
    pub(crate) ended: bool,
    /// Data for the peer, to be sent with the request.
    pub(crate) hello: Vec<u8>,
}

impl<T: Transport> Default for Msg<T> {
    fn default() -> Self {
        Self {
            eq: None,
            request: None,
            source: None,
            bound: None,
            local: None,
            peer: None,
            ended: false,
            hello: Vec::new(),
        }
    }
}

/// An endpoint as the driver knows it, by the engine's id.
#[derive(Debug)]
pub(crate) struct EpState<T: Transport> {
    pub(crate) token: Token,
    /// Connection by fabric address, or for MSG the only one.
    pub(crate) routes: Vec<Option<ConnId>>,
    pub(crate) is_msg: bool,
    pub(crate) inject_size: usize,
    pub(crate) max_msg_size: usize,
    /// Of injected atomics; `inject_size` is that of all others.
    pub(crate) inject_atomic: usize,
    /// Of atomics, in bytes of the peer's memory.
    pub(crate) max_atomic: usize,
    pub(crate) tx_flags: Flags,
    pub(crate) rx_flags: Flags,
    /// It may start reads and writes.
    pub(crate) has_rma: bool,
    /// It may start atomics.
    pub(crate) has_atomics: bool,
    pub(crate) has_coll: bool,
    pub(crate) tx_selective: bool,
    pub(crate) rx_selective: bool,
    /// What it starts has somewhere to be reported, and is taken from now on.
    pub(crate) tx_ready: bool,
    /// It is so, and may send messages.
    pub(crate) has_tx: bool,
    /// It may receive messages, and does from now on.
    pub(crate) has_rx: bool,
    /// The code point of its packets (`tclass`), or none for the system's own.
    pub(crate) dscp: Option<u8>,
    /// It has a counter of sends.
    pub(crate) counted: bool,
    /// It has a counter of writes.
    pub(crate) writes_counted: bool,
    pub(crate) shared_srx: bool,
    /// Its receives are another provider's.
    pub(crate) peer_rx: bool,
    pub(crate) srx: SrxId,
    pub(crate) fast: FastPath,
    pub(crate) rdm: Option<Rdm<T>>,
    /// Why an RDM endpoint cannot be used any more.
    pub(crate) lost: Option<Errno>,
    pub(crate) msg: Msg<T>,
}

impl<T: Transport> EpState<T> {
    /// Whether it may start a read, write or atomic, `offered` by its capabilities.
    ///
    /// # Errors
    /// [`Errno::EOPBADSTATE`] before it is enabled, and [`Errno::ENOSYS`] where its capabilities have
    /// it not.
    #[inline]
    pub(crate) fn may_start(&self, offered: bool) -> Result<()> {
        match (self.tx_ready, offered) {
            (true, true) => Ok(()),
            (false, _) => Err(Errno::EOPBADSTATE),
            (true, false) => Err(no_rma::<T>()),
        }
    }

    /// The size that an option is about, where it is about one.
    pub(crate) const fn limit(&mut self, option: EpOption) -> Option<&mut usize> {
        Some(match option {
            EpOption::MaxMsgSize | EpOption::MaxTaggedSize | EpOption::MaxRmaSize => {
                &mut self.max_msg_size
            }
            EpOption::InjectMsgSize | EpOption::InjectTaggedSize | EpOption::InjectRmaSize => {
                &mut self.inject_size
            }
            EpOption::MaxAtomicSize => &mut self.max_atomic,
            EpOption::InjectAtomicSize => &mut self.inject_atomic,
            EpOption::MinMultiRecv | EpOption::CmDataSize | EpOption::FirewallAddr => return None,
        })
    }

    /// Why it does not send messages.
    #[cold]
    pub(crate) fn no_send(&self) -> Errno {
        if self.tx_ready {
            log_warn!(
                T::EpData,
                "an endpoint without the capability FI_SEND sends no messages; ask fi_getinfo for it"
            );
        }
        Errno::EOPBADSTATE
    }

    /// The connection to a peer, where there is one.
    #[inline]
    pub(crate) fn route(&self, dest: FiAddr) -> Option<ConnId> {
        let index = if self.is_msg { 0 } else { dest.0 as usize };
        self.routes.get(index).copied().flatten()
    }

    /// The connection has ended: no message will come any more.
    pub(crate) fn end(&mut self) {
        self.msg.ended = true;
        self.has_rx = false;
        self.fast.plain_recv = false;
    }

    /// Its device is gone: no message will come any more, and none leaves.
    pub(crate) fn lose(&mut self, error: Errno) {
        self.lost = Some(error);
        self.has_rx = false;
        self.fast.plain_recv = false;
    }

    /// Whether it has a connection or can make one.
    pub(crate) fn connection(&self) -> Option<ConnId> {
        let only = self.routes.first().copied().flatten();
        only.filter(|_| self.is_msg)
    }

    /// When an injected write or atomic is done: its call takes no flags, so those of the endpoint
    /// hold. Where nothing counts it nobody learns that a peer has placed it, and no peer is asked
    /// to say so.
    pub(crate) fn injected_level(&self, kind: RmaKind) -> Level {
        match level(kind, self.tx_flags) {
            Level::Delivered if !self.writes_counted => Level::Sent,
            level => level,
        }
    }
}

#[cold]
fn no_rma<T: Transport>() -> Errno {
    refused!(
        T::EpData,
        ENOSYS,
        "an endpoint starts reads and writes only with the capability FI_RMA, and atomics with FI_ATOMIC; \
         ask fi_getinfo for them"
    )
}

/// The level that flags ask for. A read is done when its data is here.
pub(crate) fn level(kind: RmaKind, flags: Flags) -> Level {
    if kind == RmaKind::Read {
        Level::Sent
    } else if flags.contains(Flags::COMMIT_COMPLETE) {
        Level::Committed
    } else if flags.intersects(Flags::DELIVERY_COMPLETE | Flags::TRANSMIT_COMPLETE) {
        Level::Delivered
    } else {
        Level::Sent
    }
}

/// The part of an endpoint that RDM has.
#[derive(Debug)]
pub(crate) struct Rdm<T: Transport> {
    pub(crate) listener: T::Listener,
    pub(crate) addr: T::Addr,
    /// The address vector, once the endpoint is enabled.
    pub(crate) av: Option<AvId>,
    /// Which context of a scalable endpoint it is; 0 for a plain one.
    pub(crate) context: u8,
    /// Upper bits of a fabric address that name a context of the peer.
    pub(crate) ctx_bits: u8,
    /// The connection for each peer's address.
    pub(crate) peers: HashMap<T::Addr, ConnId>,
    /// Why peers were not reached to which the program injects; it is not told yet.
    pub(crate) unreached: HashMap<T::Addr, Errno>,
    /// By fabric address, whether there was a connection, which ended.
    pub(crate) ended: Vec<bool>,
}

impl<T: Transport> Rdm<T> {
    /// Notes that the connection with a peer has ended. If nobody listens at its address from now on, its process
    /// has ended as well.
    pub(crate) fn note_ended(&mut self, addr: FiAddr) {
        let Some(index) = usize::try_from(addr.0).ok().filter(|_| addr.is_specified()) else {
            return;
        };
        if self.ended.len() <= index {
            self.ended.resize(index + 1, false);
        }
        self.ended[index] = true;
    }

    /// Whether there was a connection with a peer, which ended.
    pub(crate) fn was_connected(&self, addr: FiAddr) -> bool {
        let index = usize::try_from(addr.0).ok();
        index.and_then(|index| self.ended.get(index)) == Some(&true)
    }
}

/// A receive context of a peer, as a fabric address names it (`fi_rx_addr`, man page `fi_av(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerContext {
    /// The peer.
    pub(crate) addr: FiAddr,
    /// Which of its contexts; 0 for a plain endpoint.
    pub(crate) context: u8,
}

impl PeerContext {
    /// What `fi_rx_addr` has put together.
    pub(crate) fn split(dest: FiAddr, bits: u8) -> Result<Self> {
        let bits = u32::from(bits);
        if bits == 0 {
            return Ok(Self::whole(dest));
        }
        let context = dest.0.checked_shr(u64::BITS - bits).unwrap_or(0);
        Ok(Self {
            addr: FiAddr(dest.0 & (u64::MAX >> bits)),
            context: u8::try_from(context)
                .ok()
                .filter(|context| *context < CONTEXTS)
                .ok_or(Errno::EINVAL)?,
        })
    }

    /// The source of a receive, which is a peer whichever of its contexts the program has named.
    pub(crate) const fn source(named: FiAddr, bits: u8) -> FiAddr {
        match bits {
            1..64 if named.is_specified() => FiAddr(named.0 & (u64::MAX >> bits)),
            _ => named,
        }
    }

    /// A peer as a whole.
    pub(crate) const fn whole(addr: FiAddr) -> Self {
        Self { addr, context: 0 }
    }
}

impl FastPath {
    /// For an endpoint as it is now, whose sends and writes complete in `cq`; injected and other
    /// messages may take the fast path up to these lengths in bytes.
    pub(crate) fn of<T: Transport>(
        ep: &EpState<T>,
        inject: u64,
        send: u64,
        cq: Place<CqId>,
    ) -> Self {
        let bound = |longest: u64, most: usize| {
            let longest = usize::try_from(longest).unwrap_or(usize::MAX);
            longest.min(most).min(max_sent_at_once::<T>()) + 1
        };
        let mut fast = Self {
            send_completes: !ep.tx_selective || ep.tx_flags.contains(Flags::COMPLETION),
            counted: ep.counted,
            plain_recv: ep.has_rx
                && !ep.rx_flags.intersects(SLOW_RECV_FLAGS)
                && ep.rdm.as_ref().is_none_or(|rdm| rdm.ctx_bits == 0),
            recv_completes: !ep.rx_selective || ep.rx_flags.contains(Flags::COMPLETION),
            write_cq: cq,
            ..Self::default()
        };
        if ep.has_tx {
            // What is counted once the peer has it is noted before it is written.
            if !(ep.counted && ep.tx_flags.intersects(ACKED)) {
                fast.inject_below = bound(inject, ep.inject_size);
            }
            fast.send_below = bound(send, ep.max_msg_size);
        }
        let at_once = InPlaceOf::<T>::SUPPORTED || RegisteringOf::<T>::SUPPORTED;
        if ep.tx_ready && ep.has_rma && !ep.writes_counted && at_once {
            fast.write_below = bound(send, ep.max_msg_size);
        }
        if ep.tx_ready && ep.has_rma && RegisteringOf::<T>::SUPPORTED {
            fast.read_below = bound(u64::from(u32::MAX), ep.max_msg_size);
        }
        if !ep.tx_flags.intersects(SLOW_SEND_FLAGS) {
            (fast.plain_send_below, fast.plain_write_below) = (fast.send_below, fast.write_below);
        }
        fast
    }
}
