//! What is known of an endpoint: its queues, its limits, and whether it is enabled.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_abi as abi;

use super::objects::Name;
use super::report::{Misuse, Report};
use crate::attrs;
use crate::call::{Buffers, Call, Detail, Kind, Transfer};
use crate::hook::{Opened, With};
use crate::queues::Queues;

/// A completion queue, as one side of an endpoint uses it.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Its number; 0 without one.
    pub(super) id: AtomicU64,
    /// How many entries it has room for; 0 if it is not known.
    pub(super) room: AtomicUsize,
    /// Whether its entries have flags.
    pub(super) has_flags: AtomicBool,
}

/// One side of an endpoint.
#[derive(Debug, Default)]
struct Side {
    queue: Queue,
    /// Counters, from which a program may learn that operations have ended.
    counters: Mutex<Vec<u64>>,
    /// How many buffers an operation may have; 0 if it is not known.
    iov_limit: usize,
}

/// An endpoint and its aliases.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) name: Name,
    /// The scalable endpoint that a context is of.
    parent: Option<Arc<Self>>,
    tx: Side,
    rx: Side,
    is_enabled: AtomicBool,
    /// The program has changed what its operations do by default.
    is_changed: AtomicBool,
    /// How much can be injected; 0 if it is not known.
    inject: AtomicUsize,
    /// Payload has room for a header in front, which does not count.
    has_prefix: bool,
    /// Contexts are structs that the provider writes (`FI_CONTEXT`).
    pub(super) lends_contexts: bool,
    /// What the flags of operations are by default.
    tx_flags: u64,
    /// What is lent is memory of this machine, which can be looked at.
    pub(super) is_host_memory: bool,
}

impl Endpoint {
    /// That of an object that was just opened; `None` for what makes no transfers.
    pub(super) fn of(opened: &Opened<'_>, parent: Option<Arc<Self>>) -> Option<Arc<Self>> {
        let is_context = matches!(opened.class, abi::FI_CLASS_TX_CTX | abi::FI_CLASS_RX_CTX);
        if !is_context && !matches!(opened.class, abi::FI_CLASS_EP | abi::FI_CLASS_SEP) {
            return None;
        }
        let name = Name {
            class: opened.class,
            id: opened.id,
            addr: opened.addr,
        };
        let mut made = Self {
            name,
            parent: None,
            tx: Side::default(),
            rx: Side::default(),
            is_enabled: AtomicBool::new(false),
            is_changed: AtomicBool::new(false),
            inject: AtomicUsize::new(0),
            has_prefix: false,
            lends_contexts: false,
            tx_flags: 0,
            is_host_memory: false,
        };
        if let With::Info(info) = opened.with {
            let (tx, rx) = (attrs::tx(info), attrs::rx(info));
            let tx_mode = tx.map_or(0, |attr| attr.mode);
            let mode = info.mode | tx_mode | rx.map_or(0, |attr| attr.mode);
            made.tx.iov_limit = tx.map_or(0, |attr| attr.iov_limit);
            made.rx.iov_limit = rx.map_or(0, |attr| attr.iov_limit);
            made.inject = AtomicUsize::new(tx.map_or(0, |attr| attr.inject_size));
            made.tx_flags = tx.map_or(0, |attr| attr.op_flags);
            made.has_prefix = mode & abi::FI_MSG_PREFIX != 0;
            made.lends_contexts = mode & (abi::FI_CONTEXT | abi::FI_CONTEXT2) != 0;
            made.is_host_memory = info.caps & abi::FI_HMEM == 0;
        } else if let Some(parent) = parent.filter(|_| is_context) {
            made.tx.iov_limit = parent.tx.iov_limit;
            made.rx.iov_limit = parent.rx.iov_limit;
            made.inject = AtomicUsize::new(parent.inject.load(Ordering::Relaxed));
            made.tx_flags = parent.tx_flags;
            made.has_prefix = parent.has_prefix;
            made.lends_contexts = parent.lends_contexts;
            made.is_host_memory = parent.is_host_memory;
            // Its own attributes are not seen, so its flags are not known.
            made.is_changed = AtomicBool::new(true);
            made.parent = Some(parent);
        }
        Some(Arc::new(made))
    }

    const fn side(&self, kind: Kind) -> &Side {
        if kind.is_transmit() {
            &self.tx
        } else {
            &self.rx
        }
    }

    /// The queue of operations of this kind.
    pub(super) const fn queue(&self, kind: Kind) -> &Queue {
        &self.side(kind).queue
    }

    /// Another object was bound to it.
    pub(super) fn bound(&self, other: Name, flags: u64, queues: &Queues, room: usize) {
        let is_tx = flags & (abi::FI_TRANSMIT | abi::FI_SEND | abi::FI_READ | abi::FI_WRITE) != 0;
        let is_rx = flags & abi::FI_RECV != 0;
        let sides = [(is_tx, &self.tx), (is_rx, &self.rx)];
        for side in sides
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, side)| side)
        {
            match other.class {
                abi::FI_CLASS_CQ => {
                    let has_flags = queues.entry_length() > size_of::<abi::fi_cq_entry>();
                    side.queue.room.store(room, Ordering::Relaxed);
                    side.queue.has_flags.store(has_flags, Ordering::Relaxed);
                    side.queue.id.store(other.id, Ordering::Release);
                }
                abi::FI_CLASS_CNTR => side.counters.lock().push(other.id),
                _ => {}
            }
        }
    }

    /// What operations of this call share with others: queue and counters, or the endpoint alone.
    pub(super) fn completion_objects(&self, call: &Call) -> Vec<u64> {
        let kind = call.info.kind.unwrap_or(Kind::Send);
        let side = self.side(kind);
        let mut all = side.counters.lock().clone();
        let queue = side.queue.id.load(Ordering::Relaxed);
        all.extend(Some(queue).filter(|queue| *queue != 0));
        if all.is_empty() {
            all.push(self.name.id);
        }
        all
    }

    /// A call on it has returned.
    pub(super) fn called(&self, call: &Call, result: isize) {
        if result != 0 {
            return;
        }
        match call.detail {
            Detail::Control(abi::FI_ENABLE) => self.is_enabled.store(true, Ordering::Relaxed),
            Detail::Control(abi::FI_SETOPSFLAG) => self.is_changed.store(true, Ordering::Relaxed),
            Detail::Option(
                abi::FI_OPT_INJECT_MSG_SIZE
                | abi::FI_OPT_INJECT_TAGGED_SIZE
                | abi::FI_OPT_INJECT_RMA_SIZE
                | abi::FI_OPT_INJECT_ATOMIC_SIZE,
            ) => self.inject.store(0, Ordering::Relaxed),
            Detail::None if matches!(call.info.name, "fi_connect" | "fi_accept") => {
                self.is_enabled.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// The flags of an operation.
    pub(super) fn flags(&self, transfer: &Transfer) -> u64 {
        let by_default = match transfer.kind.is_transmit() {
            true => self.tx_flags,
            false => 0,
        };
        transfer.flags.unwrap_or(by_default)
    }

    /// Whether the end of an operation is seen: its completion is read from a queue, which is the only way by which
    /// the program learns of it.
    pub(super) fn is_followed(&self, transfer: &Transfer, queues: &Queues) -> bool {
        let side = self.side(transfer.kind);
        let has_flags = side.queue.has_flags.load(Ordering::Relaxed);
        let is_known = transfer.flags.is_some() || !self.is_changed.load(Ordering::Relaxed);
        side.queue.id.load(Ordering::Acquire) != 0
            && side.counters.lock().is_empty()
            && self.flags(transfer) & abi::FI_TRIGGER == 0
            && (is_known || !queues.is_selective(transfer.kind))
            && (has_flags || !queues.is_multi(transfer))
            && queues.completes(transfer)
    }

    /// Looks at an operation that was posted, or refused.
    pub(super) fn check(&self, call: &Call, transfer: &Transfer, report: &Report) {
        let name = call.info.name;
        let is_enabled = |endpoint: &Self| endpoint.is_enabled.load(Ordering::Relaxed);
        if !is_enabled(self) && !self.parent.as_deref().is_some_and(is_enabled) {
            report.say(
                Misuse::Disabled,
                name,
                format_args!("the endpoint is not enabled: call fi_enable before"),
            );
        }
        let given = transfer.flags.unwrap_or_default();
        let is_injected = transfer.is_injected || given & abi::FI_INJECT != 0;
        let inject = self.inject.load(Ordering::Relaxed);
        let may_inject = inject == 0 || self.has_prefix || transfer.bytes <= inject;
        if is_injected && transfer.kind.is_transmit() && !may_inject {
            let bytes = transfer.bytes;
            report.say(
                Misuse::Inject,
                name,
                format_args!(
                    "{bytes} bytes are injected, and tx_attr->inject_size is {inject}: send more without FI_INJECT"
                ),
            );
        }
        let limit = self.side(transfer.kind).iov_limit;
        if let Buffers::Many { count, .. } = transfer.buffers
            && limit != 0
            && count > limit
        {
            report.say(
                Misuse::Buffers,
                name,
                format_args!("{count} buffers, and iov_limit is {limit}: use several operations"),
            );
        }
    }
}
