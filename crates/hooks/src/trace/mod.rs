//! The hook `trace`: a file that Perfetto opens, with each operation from its post to the read of its
//! completion.
//!
//! What is kept is bounded: the newest operations of each domain (`ring.rs`). The file is written when
//! the last open fabric is closed, and when the process ends with fabrics open (`write.rs`).

mod proto;
mod ring;
mod write;

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::params;
use ripstop_os::clock::{self, Scale};

use crate::call::{Call, Detail, Transfer};
use crate::completions;
use crate::hook::{Begins, Hook, Opened, Watch, like};
use crate::pending::{Pending, Posted};
use crate::queues::Queues;
use crate::unwritten::Unwritten;
use ring::{End, Record, Ring};

pub(crate) use write::at_end;

/// How many operations of a domain are kept by default.
const RECORDS: usize = 1 << 18;

/// See the module.
#[derive(Debug)]
pub(crate) struct Trace;

/// The operations of one domain.
#[derive(Debug)]
struct Operations {
    provider: String,
    pending: Pending,
    ring: Ring,
    scale: Scale,
}

/// Those that are not yet written.
static ALL: Unwritten<Operations> = Unwritten::new();

impl Operations {
    fn new(opened: &Opened<'_>) -> Arc<Self> {
        let room = params().get::<usize>(None, "trace_records");
        ALL.add(Self {
            provider: opened.provider.to_owned(),
            pending: Pending::new(opened.threads()),
            ring: Ring::new(room.unwrap_or(RECORDS).max(1), opened.threads()),
            scale: Scale::start(),
        })
    }

    /// A completion was read.
    #[inline(always)]
    fn completed(&self, posted: &Posted, end: End) {
        self.ring.push(&Record::of(posted, end));
    }

    /// A completion in error was read, with this result.
    #[cold]
    fn failed(&self, entry: *const abi::fi_cq_err_entry, result: isize) {
        let entry = completions::in_error(entry, result);
        let posted = entry.and_then(|entry| self.pending.complete(entry.context, entry.flags));
        if let Some(posted) = posted {
            self.completed(&posted, End::Failed(clock::counter()));
        }
    }
}

impl Record {
    /// An operation that was found again.
    #[inline(always)]
    fn of(posted: &Posted, end: End) -> Self {
        let [endpoint, peer, bytes, tag] = posted.data;
        Self {
            call: posted.call,
            endpoint,
            start: posted.start,
            end,
            bytes,
            peer,
            tag,
        }
    }
}

/// What watches one object.
#[derive(Debug)]
pub(crate) struct Object {
    operations: Arc<Operations>,
    id: u64,
    is_root: bool,
    queues: Queues,
    /// Whether the last operation was not accepted: programs try such ones again and again.
    is_refused: AtomicBool,
}

impl Hook for Trace {
    fn open(&self, opened: &Opened<'_>, parent: Option<&Arc<dyn Watch>>) -> Arc<dyn Watch> {
        if opened.class == abi::FI_CLASS_FABRIC {
            write::begin();
        }
        let parent = parent.and_then(|parent| like::<Object>(parent));
        let operations = match (opened.class, parent) {
            (abi::FI_CLASS_DOMAIN, _) | (_, None) => Operations::new(opened),
            (_, Some(parent)) => Arc::clone(&parent.operations),
        };
        Arc::new(Object {
            operations,
            id: opened.id,
            is_root: opened.class == abi::FI_CLASS_FABRIC,
            queues: Queues::of(opened, parent.map(|parent| &parent.queues)),
            is_refused: AtomicBool::new(false),
        })
    }

    fn begins(&self) -> Begins {
        Begins::OfTransfers
    }
}

impl Object {
    /// An operation as it is posted now.
    #[inline(always)]
    fn posted(&self, call: &Call, transfer: &Transfer) -> Posted {
        Posted {
            call: call.info,
            start: clock::counter(),
            is_multi: self.queues.is_multi(transfer),
            data: [self.id, transfer.peer, transfer.bytes as u64, transfer.tag],
        }
    }

    /// An operation was not accepted.
    #[cold]
    fn refused(&self, call: &Call, transfer: &Transfer, result: isize) {
        self.operations.pending.refuse(transfer.context, call.info);
        if !self.is_refused.swap(true, Ordering::Relaxed) {
            let posted = self.posted(call, transfer);
            self.operations.completed(&posted, End::Refused(result));
        }
    }
}

impl Object {
    /// See [`Watch::before`].
    #[inline(always)]
    pub(crate) fn before(&self, call: &Call) {
        let Some(transfer) = call.transfer() else {
            return;
        };
        if self.queues.completes(transfer) {
            let posted = self.posted(call, transfer);
            self.operations.pending.insert(transfer.context, &posted);
        }
    }

    /// See [`Watch::after`].
    #[inline(always)]
    pub(crate) fn after(&self, call: &Call, result: isize) {
        let operations = &*self.operations;
        match &call.detail {
            Detail::Transfer(transfer) if result < 0 => self.refused(call, transfer, result),
            Detail::Transfer(transfer) => {
                if self.is_refused.load(Ordering::Relaxed) {
                    self.is_refused.store(false, Ordering::Relaxed);
                }
                let completes = self.queues.completes(transfer);
                if !completes || !Pending::can_follow(transfer.context) {
                    operations.completed(&self.posted(call, transfer), End::Unseen);
                }
            }
            Detail::Entries(entries) if result > 0 => {
                let now = clock::counter();
                entries.each(self.queues.entry_length(), result, |entry| {
                    if let Some(posted) = operations.pending.complete(entry.context, entry.flags) {
                        operations.completed(&posted, End::Completed(now));
                    }
                });
            }
            Detail::ErrorEntry(entry) => operations.failed(*entry, result),
            _ => {}
        }
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
            write::closed();
        }
    }
}
