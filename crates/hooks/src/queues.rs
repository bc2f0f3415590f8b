//! Which operations of an endpoint have an entry in a completion queue.

use core::sync::atomic::{AtomicU32, Ordering};

use ripstop_abi as abi;

use crate::call::{Kind, Transfer};
use crate::completions;
use crate::hook::{Opened, With};

/// The transmit side has a queue.
const TX: u32 = 1;
/// The receive side has a queue.
const RX: u32 = 1 << 1;
/// Only operations with `FI_COMPLETION` have an entry, of the transmit side.
const TX_SELECTIVE: u32 = 1 << 2;
/// The same of the receive side.
const RX_SELECTIVE: u32 = 1 << 3;

/// What a hook knows of the completions of one object.
#[derive(Debug)]
pub(crate) struct Queues {
    bound: AtomicU32,
    /// The flags of operations whose calls have none.
    tx_flags: u64,
    rx_flags: u64,
    /// Of a completion queue.
    entry_length: usize,
    is_queue: bool,
}

impl Queues {
    /// Those of an object that was just opened from another one.
    pub(crate) fn of(opened: &Opened<'_>, parent: Option<&Self>) -> Self {
        let (mut tx_flags, mut rx_flags) =
            parent.map_or((0, 0), |parent| (parent.tx_flags, parent.rx_flags));
        let mut entry_length = 0;
        // Receives of a shared context complete where endpoints that use it have their queues.
        let mut bound = match opened.class {
            abi::FI_CLASS_SRX_CTX => RX,
            _ => 0,
        };
        match opened.with {
            With::Info(_) => (tx_flags, rx_flags) = opened.op_flags(),
            With::Alias(flags) => {
                bound = parent.map_or(0, |parent| parent.bound.load(Ordering::Relaxed));
                if flags & abi::FI_TRANSMIT != 0 {
                    tx_flags = flags;
                }
                if flags & abi::FI_RECV != 0 {
                    rx_flags = flags;
                }
            }
            With::Cq { format, .. } => entry_length = completions::length(format),
            With::Nothing | With::Owner | With::Region(..) => {}
        }
        Self {
            bound: AtomicU32::new(bound),
            tx_flags,
            rx_flags,
            entry_length,
            is_queue: opened.class == abi::FI_CLASS_CQ,
        }
    }

    /// Another object was bound to this one.
    pub(crate) fn bound(&self, other: &Self, flags: u64) {
        if !other.is_queue {
            return;
        }
        let selective = flags & abi::FI_SELECTIVE_COMPLETION != 0;
        let mut bits = 0;
        if flags & abi::FI_TRANSMIT != 0 {
            bits |= if selective { TX | TX_SELECTIVE } else { TX };
        }
        if flags & abi::FI_RECV != 0 {
            bits |= if selective { RX | RX_SELECTIVE } else { RX };
        }
        self.bound.fetch_or(bits, Ordering::Relaxed);
    }

    /// The length of an entry of this queue, 0 if it is not known.
    #[inline]
    pub(crate) const fn entry_length(&self) -> usize {
        self.entry_length
    }

    /// Whether an entry follows for an operation, if it succeeds.
    #[inline]
    pub(crate) fn completes(&self, transfer: &Transfer) -> bool {
        if transfer.is_injected {
            return false;
        }
        let bound = self.bound.load(Ordering::Relaxed);
        let (queue, selective, by_default) = if transfer.kind.is_transmit() {
            (TX, TX_SELECTIVE, self.tx_flags)
        } else {
            (RX, RX_SELECTIVE, self.rx_flags)
        };
        let asked = transfer.flags.unwrap_or(by_default) & abi::FI_COMPLETION != 0;
        bound & queue != 0 && (bound & selective == 0 || asked)
    }

    /// Whether only operations of this kind that ask for it have an entry.
    pub(crate) fn is_selective(&self, kind: Kind) -> bool {
        let bit = match kind.is_transmit() {
            true => TX_SELECTIVE,
            false => RX_SELECTIVE,
        };
        self.bound.load(Ordering::Relaxed) & bit != 0
    }

    /// Whether more than one entry may follow for it.
    #[inline]
    pub(crate) fn is_multi(&self, transfer: &Transfer) -> bool {
        transfer.kind == Kind::Recv && transfer.is_multi(self.rx_flags)
    }
}
