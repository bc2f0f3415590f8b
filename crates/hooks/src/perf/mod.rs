//! The hook `perf`: how often each call is made, how many bytes it moves, and how long operations take
//! from their post to the read of their completion, for each peer.
//!
//! A table is written when a fabric is closed, when the process ends with fabrics open, and on a
//! signal where one is named (`report.rs`).

mod histogram;
mod report;
mod rows;

use core::hint::cold_path;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_os::clock::{self, Scale};

use crate::call::{Call, CallInfo, Detail, Transfer};
use crate::completions;
use crate::counting::{Threads, bump};
use crate::hook::{Begins, Hook, Opened, Watch, like};
use crate::pending::{Pending, Posted};
use crate::queues::Queues;
use crate::unwritten::Unwritten;
use rows::{Recent, Rows};

pub(crate) use report::at_end;

/// The peer of calls that have none.
const NO_PEER: u64 = abi::FI_ADDR_UNSPEC;

/// See the module.
#[derive(Debug)]
pub(crate) struct Perf;

/// Operations of one kind on one object that are all timed.
const TIMED_FIRST: u64 = 4096;

/// Behind those, one of so many is timed: reading the clock costs as much as all of the counting.
const TIMED_EACH: u64 = 256;

/// Longer operations, in bytes, are always timed: beside them the clock costs nothing.
const TIMED_BYTES: usize = 4096;

/// Whether an operation behind so many others is timed.
///
/// Multiples of the golden ratio choose them, so that they are spread evenly, and also over peers and
/// calls that take turns.
#[inline]
const fn is_timed(before: u64, bytes: usize) -> bool {
    let spread = before.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    before < TIMED_FIRST || spread < u64::MAX / TIMED_EACH || bytes >= TIMED_BYTES
}

/// What is counted of one domain, or of a fabric outside its domains.
#[derive(Debug)]
struct Stats {
    /// The object, for the table's title.
    title: String,
    /// The number of the fabric.
    fabric: u64,
    threads: Threads,
    rows: Rows,
    pending: Pending,
    scale: Scale,
}

/// All that is counted and not yet written for the last time.
static ALL: Unwritten<Stats> = Unwritten::new();

impl Stats {
    fn new(opened: &Opened<'_>, parent: Option<&Self>, threads: Threads) -> Arc<Self> {
        let Opened { id, provider, .. } = opened;
        let kind = if parent.is_some() { "domain" } else { "fabric" };
        ALL.add(Self {
            title: format!("{provider}, {kind} {id}"),
            fabric: parent.map_or(*id, |parent| parent.fabric),
            threads,
            rows: Rows::new(),
            pending: Pending::new(threads),
            scale: Scale::start(),
        })
    }

    /// An operation is about to be posted. What delays it here delays its message, so only what has
    /// to be known before its completion can be read is noted.
    #[inline(always)]
    fn post(&self, call: &Call, transfer: &Transfer, object: &Object) {
        if is_timed(object.recent.turn(call.info), transfer.bytes) {
            self.post_timed(call.info, *transfer, object);
        }
    }

    /// The same for one that is timed. The transfer is a copy, so that no other is in memory.
    #[cold]
    #[inline(never)]
    fn post_timed(&self, call: &'static CallInfo, transfer: Transfer, object: &Object) {
        let (recent, queues) = (&object.recent, &object.queues);
        if !queues.completes(&transfer) {
            return;
        }
        let Some((number, _)) = self.rows.of(recent, call, transfer.peer) else {
            return;
        };
        let posted = Posted {
            call,
            start: clock::counter(),
            is_multi: queues.is_multi(&transfer),
            data: [number as u64, 0, 0, 0],
        };
        self.pending.insert(transfer.context, &posted);
    }

    /// The post was accepted or, with a result below zero, refused.
    #[inline(always)]
    fn posted(&self, call: &Call, transfer: &Transfer, result: isize, recent: &Recent) {
        let Some((_, row)) = self.rows.of(recent, call.info, transfer.peer) else {
            return;
        };
        if result < 0 {
            cold_path();
            bump(&row.refused, 1, self.threads);
            self.pending.refuse(transfer.context, call.info);
            return;
        }
        bump(&row.calls, 1, self.threads);
        bump(&row.bytes, transfer.bytes as u64, self.threads);
    }

    /// A completion in error was read, with this result.
    #[cold]
    fn failed(&self, entry: *const abi::fi_cq_err_entry, result: isize) {
        let entry = completions::in_error(entry, result);
        let posted = entry.and_then(|entry| self.pending.complete(entry.context, entry.flags));
        let row = posted.and_then(|posted| self.rows.at(posted.data[0] as usize));
        if let Some(row) = row {
            bump(&row.in_error, 1, self.threads);
        }
    }

    /// Any other call has returned.
    #[inline]
    fn count(&self, call: &Call, result: isize, recent: &Recent) {
        if let Some((_, row)) = self.rows.of(recent, call.info, NO_PEER) {
            let counter = if result < 0 { &row.refused } else { &row.calls };
            bump(counter, 1, self.threads);
        }
    }
}

/// What watches one object.
#[derive(Debug)]
pub(crate) struct Object {
    stats: Arc<Stats>,
    /// Whether it is what the statistics are of.
    is_root: bool,
    queues: Queues,
    recent: Recent,
}

impl Hook for Perf {
    fn open(&self, opened: &Opened<'_>, parent: Option<&Arc<dyn Watch>>) -> Arc<dyn Watch> {
        report::listen();
        let parent = parent.and_then(|parent| like::<Object>(parent));
        let of_parent = parent.map(|parent| &*parent.stats);
        let own = match opened.class {
            abi::FI_CLASS_FABRIC => Some(Threads::Several),
            abi::FI_CLASS_DOMAIN => Some(opened.threads()),
            _ => None,
        };
        let stats = match (own, parent) {
            (None, Some(parent)) => Arc::clone(&parent.stats),
            (threads, _) => Stats::new(opened, of_parent, threads.unwrap_or(Threads::Several)),
        };
        let queues = Queues::of(opened, parent.map(|parent| &parent.queues));
        Arc::new(Object {
            stats,
            is_root: opened.class == abi::FI_CLASS_FABRIC,
            queues,
            recent: Recent::default(),
        })
    }

    fn begins(&self) -> Begins {
        Begins::OfTransfers
    }
}

impl Object {
    /// See [`Watch::before`].
    #[inline(always)]
    pub(crate) fn before(&self, call: &Call) {
        if let Some(transfer) = call.transfer() {
            self.stats.post(call, transfer, self);
        }
    }

    /// See [`Watch::after`].
    #[inline(always)]
    pub(crate) fn after(&self, call: &Call, result: isize) {
        let stats = &*self.stats;
        match &call.detail {
            Detail::Transfer(transfer) => {
                stats.posted(call, transfer, result, &self.recent);
                return;
            }
            Detail::Entries(entries) if result > 0 && !stats.pending.is_empty() => {
                entries.each(self.queues.entry_length(), result, |entry| {
                    let posted = stats.pending.complete(entry.context, entry.flags);
                    let Some(posted) = posted else { return };
                    let now = clock::counter();
                    if let Some(row) = stats.rows.at(posted.data[0] as usize) {
                        row.completed(now.saturating_sub(posted.start), stats.threads);
                    }
                });
            }
            Detail::ErrorEntry(entry) => stats.failed(*entry, result),
            _ => {}
        }
        stats.count(call, result, &self.recent);
    }
}

impl Watch for Object {
    fn before(&self, call: &Call) {
        self.before(call);
    }

    fn after(&self, call: &Call, result: isize) {
        self.after(call, result);
    }

    fn bound(&self, other: &Arc<dyn Watch>, flags: u64) {
        if let Some(other) = like::<Self>(other) {
            self.queues.bound(&other.queues, flags);
        }
    }

    fn closed(&self) {
        if self.is_root {
            report::closed(self.stats.fabric);
        }
    }
}
