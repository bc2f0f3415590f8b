//! The hook `perf`: how often each call is made, how many bytes it moves, and how long operations take
//! from their post to the read of their completion, for each peer.
//!
//! A table is written when a fabric is closed, when the process ends with fabrics open, and on a
//! signal where one is named (`report.rs`).

mod histogram;
mod report;
mod rows;

use core::sync::atomic::Ordering;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_os::clock::{self, Scale};

use crate::call::{Call, Detail, Transfer};
use crate::completions;
use crate::counting::{Threads, bump};
use crate::hook::{Begins, Ends, Hook, Opened, Watch, like};
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

/// Operations of one row that are all timed.
const TIMED_FIRST: u64 = 4096;

/// Behind those, every so many-th one is timed: reading the clock costs as much as all of the counting.
const TIMED_EACH: u64 = 64;

/// Longer operations, in bytes, are always timed: beside them the clock costs nothing.
const TIMED_BYTES: usize = 4096;

/// Whether an operation behind so many others is timed.
#[inline]
const fn is_timed(before: u64, bytes: usize) -> bool {
    before < TIMED_FIRST || before.is_multiple_of(TIMED_EACH) || bytes >= TIMED_BYTES
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

    /// An operation is posted. It counts as accepted until the call says otherwise.
    #[inline]
    fn post(&self, call: &Call, transfer: &Transfer, object: &Object) {
        let (recent, queues) = (&object.recent, &object.queues);
        let Some((number, row)) = self.rows.of(recent, call.info, transfer.peer) else {
            return;
        };
        let before = row.calls.load(Ordering::Relaxed);
        bump(&row.calls, 1, self.threads);
        bump(&row.bytes, transfer.bytes as u64, self.threads);
        if is_timed(before, transfer.bytes) && queues.completes(transfer) {
            let posted = Posted {
                call: call.info,
                start: clock::counter(),
                is_multi: queues.is_multi(transfer),
                data: [number as u64, 0, 0, 0],
            };
            self.pending.insert(transfer.context, &posted);
        }
    }

    /// The post was refused.
    #[cold]
    fn refuse(&self, call: &Call, transfer: &Transfer, recent: &Recent) {
        let Some((_, row)) = self.rows.of(recent, call.info, transfer.peer) else {
            return;
        };
        bump(&row.refused, 1, self.threads);
        bump(&row.calls, 1_u64.wrapping_neg(), self.threads);
        let bytes = transfer.bytes as u64;
        bump(&row.bytes, bytes.wrapping_neg(), self.threads);
        self.pending.refuse(transfer.context, call.info);
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
struct Object {
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

    fn ends(&self) -> Ends {
        Ends::AllButPosts
    }
}

impl Watch for Object {
    #[inline]
    fn before(&self, call: &Call) {
        if let Some(transfer) = call.transfer() {
            self.stats.post(call, transfer, self);
        }
    }

    #[inline]
    fn after(&self, call: &Call, result: isize) {
        let stats = &*self.stats;
        match &call.detail {
            Detail::Transfer(transfer) => {
                if result < 0 {
                    stats.refuse(call, transfer, &self.recent);
                }
                return;
            }
            Detail::Entries(entries) if result > 0 => {
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
