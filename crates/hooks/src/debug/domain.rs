//! What is known of a domain, and what is made of the calls on its objects.

use core::sync::atomic::Ordering;
use core::{fmt, ptr};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ripstop_abi as abi;
use ripstop_core::fi_info;
use ripstop_core::log::Subsys;

use super::endpoint::Endpoint;
use super::objects::Name;
use super::operations::{Operation, Operations, Other, digest};
use super::regions::{Found, Regions};
use super::report::{Misuse, Report};
use super::threads::{Busy, Threading};
use crate::attrs;
use crate::call::{Call, Kind, Registration, Transfer};
use crate::completions::Completion;
use crate::hook::{Opened, With};
use crate::queues::Queues;

/// A domain.
#[derive(Debug)]
pub(super) struct Domain {
    provider: Arc<str>,
    threading: Threading,
    /// Operations need descriptors of their memory (`FI_MR_LOCAL`).
    is_local: bool,
    /// The program sees to it that queues do not overrun (`FI_RM_DISABLED`).
    may_overrun: bool,
    state: Mutex<State>,
    regions: Mutex<Regions>,
    busy: Mutex<Busy>,
}

#[derive(Debug, Default)]
struct State {
    operations: Operations,
    /// The operations whose posts are under way, by where their call is described.
    posting: HashMap<usize, u64>,
    /// The reports of the endpoints with operations.
    reports: HashMap<u64, Arc<Report>>,
}

/// The domains that are open.
static DOMAINS: Mutex<Vec<Weak<Domain>>> = Mutex::new(Vec::new());

impl Domain {
    pub(super) fn open(opened: &Opened<'_>) -> Arc<Self> {
        let (mut mr_mode, mut mode, mut rm, mut threading) = (0, 0, abi::FI_RM_UNSPEC, 0);
        if let With::Info(info) = opened.with
            && let Some(attr) = attrs::domain(info)
        {
            (mr_mode, mode) = (attr.mr_mode, info.mode | attr.mode);
            (rm, threading) = (attr.resource_mgmt, attr.threading);
        }
        let domain = Arc::new(Self {
            provider: opened.provider.into(),
            threading: Threading::of(threading),
            is_local: mr_mode & abi::FI_MR_LOCAL != 0 || mode & abi::FI_LOCAL_MR != 0,
            may_overrun: rm == abi::FI_RM_DISABLED,
            state: Mutex::default(),
            regions: Mutex::default(),
            busy: Mutex::default(),
        });
        let mut all = DOMAINS.lock();
        all.retain(|domain| domain.strong_count() > 0);
        all.push(Arc::downgrade(&domain));
        domain
    }

    /// A call on an object of it begins.
    pub(super) fn enter(
        &self,
        name: Name,
        endpoint: Option<&Endpoint>,
        call: &Call,
        report: &Report,
    ) {
        if self.threading == Threading::Safe {
            return;
        }
        let other = self.busy.lock().enter(self.threading, name, endpoint, call);
        if let Some((other, on)) = other {
            let threading = self.threading;
            report.say(
                Misuse::Threads,
                call.info.name,
                format_args!(
                    "another thread is in {other} of {on}, and the domain was opened with FI_THREAD_{threading}: \
                     serialize these calls, or ask for FI_THREAD_SAFE"
                ),
            );
        }
    }

    /// It has returned.
    pub(super) fn leave(&self, name: Name, endpoint: Option<&Endpoint>, call: &Call) {
        if self.threading != Threading::Safe {
            self.busy.lock().leave(self.threading, name, endpoint, call);
        }
    }

    /// An operation is about to be posted.
    pub(super) fn post(
        &self,
        endpoint: &Endpoint,
        queues: &Queues,
        call: &Call,
        transfer: &Transfer,
    ) {
        if !endpoint.is_followed(transfer, queues) {
            return;
        }
        let flags = endpoint.flags(transfer);
        let mut pieces = Vec::new();
        if flags & (abi::FI_PEEK | abi::FI_DISCARD | abi::FI_INJECT) == 0 {
            transfer.buffers.each(transfer.desc, |piece| {
                pieces.push((piece.buf, piece.desc.addr()));
            });
        }
        let is_payload = matches!(transfer.kind, Kind::Send | Kind::Write);
        let is_compared = is_payload && endpoint.is_host_memory && !pieces.is_empty();
        let payload = (is_compared && !self.is_target(&pieces)).then(|| digest(&pieces));
        let operation = Operation {
            call: call.info,
            kind: transfer.kind,
            endpoint: endpoint.name,
            queue: endpoint.queue(transfer.kind).id.load(Ordering::Relaxed),
            context: transfer.context.addr(),
            is_multi: queues.is_multi(transfer),
            pieces,
            payload,
            is_posting: true,
            is_one_of_several: false,
        };
        let mut state = self.state.lock();
        if let Some(id) = state.operations.insert(operation) {
            state.posting.insert(ptr::from_ref(call).addr(), id);
        }
    }

    /// Whether peers may write some of it.
    fn is_target(&self, pieces: &[(ripstop_mem::UserBuf, usize)]) -> bool {
        let regions = self.regions.lock();
        let mut each = pieces.iter();
        each.any(|(buf, _)| regions.is_target(buf.addr(), buf.len()))
    }

    /// The call that was to post an operation has returned.
    pub(super) fn posted(
        &self,
        endpoint: &Endpoint,
        call: &Call,
        transfer: &Transfer,
        result: isize,
        report: &Arc<Report>,
    ) {
        endpoint.check(call, transfer, report);
        let mut state = self.state.lock();
        let id = state.posting.remove(&ptr::from_ref(call).addr());
        if result < 0 {
            if let Some(id) = id {
                state.operations.remove(id);
            }
            return;
        }
        let (mut overlap, mut context, mut sent) = (None, None, 0);
        if let Some(id) = id
            && state.operations.accepted(id).is_some()
        {
            state
                .reports
                .entry(endpoint.name.id)
                .or_insert_with(|| Arc::clone(report));
            overlap = state.operations.overlapping(id);
            context = state
                .operations
                .same_context(id)
                .filter(|_| endpoint.lends_contexts);
            if let Some((other, _)) = overlap {
                state.operations.forget_payload(id);
                state.operations.forget_payload(other);
            }
            if transfer.kind.is_transmit() {
                let queue = endpoint.queue(transfer.kind).id.load(Ordering::Relaxed);
                sent = state.operations.sent(queue);
            }
        }
        drop(state);
        let name = call.info.name;
        tell_of_others(name, overlap.map(|(_, other)| other), context, report);
        let room = endpoint.queue(transfer.kind).room.load(Ordering::Relaxed);
        if self.may_overrun && room > 0 && sent > room {
            report.say(
                Misuse::Overrun,
                name,
                format_args!(
                    "{sent} operations that write an entry are under way or unread, and the queue has room for \
                     {room} (FI_RM_DISABLED): read completions before, or open a larger queue"
                ),
            );
        }
        self.check_descs(endpoint, call, transfer, report);
    }

    /// Looks at the descriptors of an operation.
    fn check_descs(&self, endpoint: &Endpoint, call: &Call, transfer: &Transfer, report: &Report) {
        let skipped = abi::FI_INJECT | abi::FI_PEEK | abi::FI_DISCARD | abi::FI_TRIGGER;
        if !self.is_local || transfer.is_injected || endpoint.flags(transfer) & skipped != 0 {
            return;
        }
        let name = call.info.name;
        let regions = self.regions.lock();
        let say = |what: fmt::Arguments<'_>| report.say(Misuse::Desc, name, what);
        transfer.buffers.each(transfer.desc, |piece| {
            let (desc, start, len) = (piece.desc.addr(), piece.buf.addr(), piece.buf.len());
            if desc == 0 {
                return say(format_args!(
                    "no descriptor for {len} bytes at {start:#x}, which FI_MR_LOCAL demands: register the memory \
                     and pass fi_mr_desc"
                ));
            }
            match regions.find(desc, start, len) {
                Found::Fits => {}
                Found::Elsewhere(region) => say(format_args!(
                    "the descriptor is of {region}, which does not have all of {len} bytes at {start:#x}"
                )),
                Found::Closed(region) => {
                    say(format_args!("the descriptor is of {region}, which is closed"));
                }
                Found::Unknown if self.is_of_another(desc) => say(format_args!(
                    "the descriptor is of another domain: register the memory in that of the endpoint"
                )),
                Found::Unknown => {}
            }
        });
    }

    /// Whether another domain has this descriptor.
    fn is_of_another(&self, desc: usize) -> bool {
        let all = DOMAINS.lock().clone();
        let others = all.iter().filter_map(Weak::upgrade);
        let mut others = others.filter(|other| !ptr::eq(&raw const **other, self));
        others.any(|other| other.regions.lock().has(desc))
    }

    /// A completion was read from a queue.
    pub(super) fn completed(&self, queue: u64, entry: Completion, in_error: bool) {
        let mut state = self.state.lock();
        let Some(operation) = state.operations.completed(queue, entry, in_error) else {
            return;
        };
        let report = state.reports.get(&operation.endpoint.id).cloned();
        drop(state);
        let (Some(payload), Some(report), false) =
            (operation.payload, report, operation.is_one_of_several)
        else {
            return;
        };
        if digest(&operation.pieces) == payload || self.is_target(&operation.pieces) {
            return;
        }
        let first = operation.pieces.first().map_or(0, |(buf, _)| buf.addr());
        report.say(
            Misuse::Changed,
            operation.call.name,
            format_args!(
                "what it sent from {first:#x} was changed between the call and its completion, so the peer may \
                 have got either: leave memory alone until the completion is read"
            ),
        );
    }

    /// Memory was registered.
    pub(super) fn registered(&self, name: Name, memory: Registration, desc: usize) {
        self.regions.lock().insert(name, memory, desc);
    }

    /// A region was closed.
    pub(super) fn unregistered(&self, name: Name, desc: usize, report: &Report) {
        let is_shared = self.regions.lock().remove(name, desc);
        if desc == 0 || is_shared {
            return;
        }
        // Without FI_MR_LOCAL receives may do without their descriptor, and often are never completed.
        let only_transmits = !self.is_local;
        let user = self.state.lock().operations.with_desc(desc, only_transmits);
        if let Some(Other { call, endpoint, .. }) = user {
            report.say(
                Misuse::Region,
                "fi_close",
                format_args!(
                    "{} of {endpoint} has its descriptor and is under way: close regions behind the completions \
                     of what uses them",
                    call.name
                ),
            );
        }
    }

    /// An endpoint was closed, which ends its operations.
    pub(super) fn endpoint_closed(&self, id: u64) {
        let mut state = self.state.lock();
        state.reports.remove(&id);
        let count = state.operations.endpoint_closed(id);
        drop(state);
        if count > 0 {
            let provider = &*self.provider;
            fi_info!(
                provider,
                Subsys::EpData,
                "FI_HOOK=debug: endpoint {id} was closed with {count} operations under way, which have no completions"
            );
        }
    }

    /// The domain is closed.
    pub(super) fn closed(self: &Arc<Self>) {
        DOMAINS
            .lock()
            .retain(|domain| !ptr::eq(domain.as_ptr(), Arc::as_ptr(self)));
    }
}

/// Tells of operations that have the memory or the context of one that was posted by this call.
fn tell_of_others(
    name: &'static str,
    overlap: Option<Other>,
    context: Option<Other>,
    report: &Report,
) {
    if let Some(other) = overlap {
        let Other {
            call,
            endpoint,
            memory,
            writes,
            ..
        } = other;
        let (start, len) = memory;
        let verb = if writes { "writes" } else { "reads" };
        report.say(
                Misuse::Overlap,
                name,
                format_args!(
                    "its memory is also that of {} of {endpoint}, which is under way and {verb} {len} bytes at \
                     {start:#x}: read that one's completion before, or use other memory",
                    call.name
                ),
            );
    }
    if let Some(Other {
        call,
        endpoint,
        context,
        ..
    }) = context
    {
        report.say(
                Misuse::Context,
                name,
                format_args!(
                    "its context {context:#x} is that of {} of {endpoint}, which is under way, and the provider \
                     writes contexts (FI_CONTEXT): give each operation one of its own",
                    call.name
                ),
            );
    }
}
