//! The hook `debug`: what a program does wrong, each named by its call in a line of the log at level
//! `warn`, with what to do instead.
//!
//! Only what no program may do is told. What cannot be seen for certain is left out: an operation
//! is followed only where its completion is read from a queue, and its end is not learned from a counter
//! (`operations`).

mod domain;
mod endpoint;
mod objects;
mod operations;
mod ranges;
mod regions;
mod report;
mod threads;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::fi_log;
use ripstop_core::log::{self, Level};

use crate::call::{Call, Detail};
use crate::completions;
use crate::hook::{Hook, Opened, Watch, With, like};
use crate::queues::Queues;
use domain::Domain;
use endpoint::Endpoint;
use objects::Name;
use report::{Misuse, Report};

pub(crate) use objects::{at_end, is_closed, used_when_closed};

/// See the module.
#[derive(Debug)]
pub(crate) struct Debug;

/// After so long a completion in error that nobody has read is told of, in milliseconds.
const UNREAD_MS: u64 = 1000;

/// ... if the queue was read so often meanwhile.
const UNREAD_TIMES: u64 = 100;

/// What watches one object.
#[derive(Debug)]
struct Object {
    report: Arc<Report>,
    domain: Option<Arc<Domain>>,
    /// Of an endpoint; an alias has that of what it is an alias of.
    endpoint: Option<Arc<Endpoint>>,
    queues: Queues,
    /// How many entries a completion queue has room for; 0 if it is not known.
    room: usize,
    /// Of a region.
    desc: usize,
    /// Since when a completion in error is there, and how often reads have said so.
    unread_since: AtomicU64,
    unread_times: AtomicU64,
    /// Whether the last call was told to come again.
    is_again: AtomicBool,
}

impl Hook for Debug {
    fn open(&self, opened: &Opened<'_>, parent: Option<&Arc<dyn Watch>>) -> Arc<dyn Watch> {
        let parent = parent.and_then(|parent| like::<Object>(parent));
        let name = Name {
            class: opened.class,
            id: opened.id,
            addr: opened.addr,
        };
        let report = Arc::new(Report::new(name, opened.provider));
        objects::opened(name, parent.map(|parent| parent.report.name.id));
        let of_parent = parent.and_then(|parent| parent.domain.clone());
        let domain = match opened.class {
            abi::FI_CLASS_DOMAIN => Some(Domain::open(opened)),
            _ => of_parent,
        };
        let queues = Queues::of(opened, parent.map(|parent| &parent.queues));
        let of_parent = parent.and_then(|parent| parent.endpoint.clone());
        let endpoint = match (opened.class, opened.with) {
            (_, With::Alias(_)) => of_parent,
            _ => Endpoint::of(opened, of_parent),
        };
        let mut object = Object {
            report,
            domain,
            endpoint,
            queues,
            room: 0,
            desc: 0,
            unread_since: AtomicU64::new(0),
            unread_times: AtomicU64::new(0),
            is_again: AtomicBool::new(false),
        };
        match opened.with {
            With::Cq { size, .. } => object.room = size,
            With::Region(memory, desc) => {
                object.desc = desc.addr();
                if let Some(domain) = &object.domain {
                    domain.registered(object.report.name, memory, desc.addr());
                }
            }
            _ => {}
        }
        Arc::new(object)
    }

    fn passed_by(&self, addr: usize) {
        objects::taken(addr);
    }

    fn tells_of_closed(&self) -> bool {
        true
    }
}

impl Object {
    /// A read of a completion queue has returned.
    fn read(&self, call: &Call, result: isize) {
        if result != -abi::FI_EAVAIL as isize {
            self.unread_since.store(0, Ordering::Relaxed);
            return;
        }
        let now = log::now_ms().max(1);
        let since = self.unread_since.load(Ordering::Relaxed);
        if since == 0 {
            self.unread_times.store(0, Ordering::Relaxed);
            self.unread_since.store(now, Ordering::Relaxed);
            return;
        }
        let times = self.unread_times.fetch_add(1, Ordering::Relaxed);
        if now.saturating_sub(since) >= UNREAD_MS && times >= UNREAD_TIMES {
            self.unread_since.store(0, Ordering::Relaxed);
            self.report.say(
                Misuse::UnreadError,
                call.info.name,
                format_args!(
                    "-FI_EAVAIL for {UNREAD_MS} ms, and fi_cq_readerr was not called: it takes the entry in \
                     error, behind which all others wait"
                ),
            );
        }
    }

    /// As C's hook does: what each call has returned, at level `trace`.
    fn trace(&self, call: &Call, result: isize) {
        let (provider, subsys) = (&*self.report.provider, self.report.name.subsys());
        let again = result == -abi::FI_EAGAIN as isize;
        let was_again = self.is_again.swap(again, Ordering::Relaxed);
        if again && was_again {
            return;
        }
        let (name, on) = (call.info.name, self.report.name);
        fi_log!(
            provider,
            Level::Trace,
            subsys,
            "{name} of {on} returned {result}"
        );
    }

    /// The object was closed, or is refused to.
    fn tell_of_users(&self, is_closed: bool) {
        let (children, users) = objects::users_of(self.report.name.id);
        let mut all = users;
        let with_children = matches!(
            self.report.name.class,
            abi::FI_CLASS_FABRIC | abi::FI_CLASS_DOMAIN
        );
        if with_children || !is_closed {
            all.extend(children);
        }
        let is_plain = matches!(
            self.report.name.class,
            abi::FI_CLASS_EP | abi::FI_CLASS_SEP | abi::FI_CLASS_MR | abi::FI_CLASS_PEP
        );
        if all.is_empty() || (is_plain && is_closed) {
            return;
        }
        let names = objects::list(&all);
        let what = if is_closed {
            "was closed"
        } else {
            "is refused"
        };
        self.report.say(
            Misuse::Users,
            "fi_close",
            format_args!("it {what} while these use it: {names}; close them before"),
        );
    }
}

impl Watch for Object {
    fn before(&self, call: &Call) {
        if let Detail::Bind(addr) = call.detail
            && let Some(name) = objects::closed_at(addr)
        {
            self.report.say(
                Misuse::Closed,
                call.info.name,
                format_args!("what is bound was closed before: {name}; the call is refused"),
            );
        }
        let Some(domain) = &self.domain else { return };
        domain.enter(
            self.report.name,
            self.endpoint.as_deref(),
            call,
            &self.report,
        );
        if let (Some(transfer), Some(endpoint)) = (call.transfer(), &self.endpoint) {
            domain.post(endpoint, &self.queues, call, transfer);
        }
    }

    fn after(&self, call: &Call, result: isize) {
        let meta = (&*self.report.provider, self.report.name.subsys());
        if log::enabled(meta.0, Level::Trace, meta.1) {
            self.trace(call, result);
        }
        match &call.detail {
            Detail::Close if result == -abi::FI_EBUSY as isize => self.tell_of_users(false),
            Detail::Entries(_) => self.read(call, result),
            Detail::ErrorEntry(_) if result > 0 => self.unread_since.store(0, Ordering::Relaxed),
            _ => {}
        }
        if let Some(endpoint) = &self.endpoint {
            endpoint.called(call, result);
        }
        let Some(domain) = &self.domain else { return };
        let id = self.report.name.id;
        domain.leave(self.report.name, self.endpoint.as_deref(), call);
        match &call.detail {
            Detail::Transfer(transfer) => {
                if let Some(endpoint) = &self.endpoint {
                    domain.posted(endpoint, call, transfer, result, &self.report);
                }
            }
            Detail::Entries(entries) => {
                entries.each(self.queues.entry_length(), result, |entry| {
                    domain.completed(id, entry, false);
                });
            }
            Detail::ErrorEntry(entry) => {
                if let Some(entry) = completions::in_error(*entry, result) {
                    domain.completed(id, entry, true);
                }
            }
            _ => {}
        }
    }

    fn bound(&self, other: &Arc<dyn Watch>, flags: u64) {
        let Some(other) = like::<Self>(other) else {
            return;
        };
        let directions = match other.report.name.class {
            abi::FI_CLASS_CQ => abi::FI_TRANSMIT | abi::FI_RECV,
            _ => u64::MAX,
        };
        let counts = matches!(
            other.report.name.class,
            abi::FI_CLASS_CQ | abi::FI_CLASS_CNTR
        );
        if counts && flags & directions == 0 {
            // Bound for nothing, it is not in use.
            return;
        }
        self.queues.bound(&other.queues, flags);
        objects::bound(self.report.name.id, other.report.name.id);
        if let Some(endpoint) = &self.endpoint {
            let other_name = other.report.name;
            endpoint.bound(other_name, flags, &other.queues, other.room);
        }
    }

    fn closed(&self) {
        let name = self.report.name;
        self.tell_of_users(true);
        if let Some(domain) = &self.domain {
            match name.class {
                abi::FI_CLASS_MR => domain.unregistered(name, self.desc, &self.report),
                abi::FI_CLASS_DOMAIN => domain.closed(),
                _ => domain.endpoint_closed(name.id),
            }
        }
        objects::closed(name);
        self.report.closed();
    }
}
