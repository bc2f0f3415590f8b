//! Endpoints as the driver knows them.

use std::sync::Arc;

use ripstop_core::EventQueue;
use ripstop_core::provider::Token;
use ripstop_engine::id::{ConnId, SrxId};
use ripstop_types::{Errno, Flags, Result};

use crate::conn::rdm::Rdm;
use crate::transport::Transport;
use crate::tx::fast::FastPath;

/// The part of an endpoint that MSG has.
#[derive(Debug)]
pub(crate) struct Msg<T: Transport> {
    pub(crate) eq: Option<Arc<EventQueue>>,
    /// The connection of a request that may be accepted.
    pub(crate) request: Option<crate::conn::accept::Request<T>>,
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

    /// Why it does not send messages.
    #[cold]
    pub(crate) fn no_send(&self) -> Errno {
        if self.tx_ready {
            log_warn!(
                T,
                EpData,
                "an endpoint without the capability FI_SEND sends no messages; ask fi_getinfo for it"
            );
        }
        Errno::EOPBADSTATE
    }
}

#[cold]
fn no_rma<T: Transport>() -> Errno {
    log_warn!(
        T,
        EpData,
        "an endpoint starts reads, writes and atomics only with the capability FI_RMA or FI_ATOMIC, \
         and FI_READ or FI_WRITE where others of that kind are given; ask fi_getinfo for them"
    );
    Errno::ENOSYS
}
