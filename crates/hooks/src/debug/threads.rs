//! Two threads at once in what a program has promised to serialize (`fi_domain(3)`, *threading*).
//!
//! The promise is about transfers and completions: control calls may always be made by any thread.

use core::fmt;
use std::collections::HashMap;
use std::thread::{self, ThreadId};

use ripstop_abi as abi;

use super::endpoint::Endpoint;
use super::objects::Name;
use crate::call::{Call, Detail};

/// What a program serializes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Threading {
    /// Nothing that is looked at.
    Safe,
    /// All of the domain.
    Domain,
    /// What shares a completion queue or counter.
    Completion,
    /// Each endpoint.
    Endpoint,
}

impl Threading {
    pub(super) const fn of(threading: abi::fi_threading) -> Self {
        match threading {
            abi::FI_THREAD_DOMAIN => Self::Domain,
            abi::FI_THREAD_COMPLETION => Self::Completion,
            abi::FI_THREAD_ENDPOINT => Self::Endpoint,
            _ => Self::Safe,
        }
    }

    /// What a call on this object is alone with, by numbers of objects; 0 is the domain.
    fn keys(self, name: Name, endpoint: Option<&Endpoint>, call: &Call) -> Vec<u64> {
        let is_data = match call.detail {
            Detail::Transfer(_) | Detail::Entries(_) | Detail::ErrorEntry(_) => true,
            _ => matches!(
                call.info.name,
                "fi_cntr_read" | "fi_cntr_readerr" | "fi_cntr_wait"
            ),
        };
        if !is_data {
            return Vec::new();
        }
        match (self, endpoint) {
            (Self::Safe, _) => Vec::new(),
            (Self::Domain, _) => vec![0],
            (Self::Completion, Some(endpoint)) => endpoint.completion_objects(call),
            (Self::Endpoint, Some(endpoint)) => vec![endpoint.name.id],
            (Self::Completion, None) => vec![name.id],
            (Self::Endpoint, None) => Vec::new(),
        }
    }
}

impl fmt::Display for Threading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Safe => "SAFE",
            Self::Domain => "DOMAIN",
            Self::Completion => "COMPLETION",
            Self::Endpoint => "ENDPOINT",
        })
    }
}

/// A thread in a call.
#[derive(Debug)]
struct Within {
    thread: ThreadId,
    call: &'static str,
    name: Name,
    /// How often: a provider may call its own objects.
    depth: usize,
}

/// The calls that are under way in a domain, by what they are alone with.
#[derive(Debug, Default)]
pub(super) struct Busy(HashMap<u64, Within>);

impl Busy {
    /// A call begins; the call and the object of another thread that should not be there.
    pub(super) fn enter(
        &mut self,
        threading: Threading,
        name: Name,
        endpoint: Option<&Endpoint>,
        call: &Call,
    ) -> Option<(&'static str, Name)> {
        let thread = thread::current().id();
        let mut other = None;
        for key in threading.keys(name, endpoint, call) {
            let within = self.0.entry(key).or_insert(Within {
                thread,
                call: call.info.name,
                name,
                depth: 0,
            });
            match within.thread == thread {
                true => within.depth += 1,
                false => other = Some((within.call, within.name)),
            }
        }
        other
    }

    /// It has returned.
    pub(super) fn leave(
        &mut self,
        threading: Threading,
        name: Name,
        endpoint: Option<&Endpoint>,
        call: &Call,
    ) {
        let thread = thread::current().id();
        for key in threading.keys(name, endpoint, call) {
            let Some(within) = self
                .0
                .get_mut(&key)
                .filter(|within| within.thread == thread)
            else {
                continue;
            };
            within.depth -= 1;
            if within.depth == 0 {
                self.0.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{CallInfo, Entries};

    static READ: CallInfo = CallInfo::new("fi_cq_read", None);

    /// A read of a completion queue.
    fn read() -> Call {
        let (buf, sources) = (core::ptr::null(), core::ptr::null());
        Call {
            info: &READ,
            detail: Detail::Entries(Entries { buf, sources }),
        }
    }

    /// Whether a thread of its own meets another one in a read of this queue.
    fn is_met(busy: &mut Busy, threading: Threading, name: Name) -> bool {
        thread::scope(|scope| {
            let enter = || busy.enter(threading, name, None, &read()).is_some();
            scope.spawn(enter).join().unwrap()
        })
    }

    #[test]
    fn a_second_thread_is_seen_where_calls_are_serialized() {
        let queue = |id| Name {
            class: abi::FI_CLASS_CQ,
            id,
            addr: 0,
        };
        let call = read();
        for (threading, other_is_met) in [
            (Threading::Domain, true),
            (Threading::Completion, false),
            (Threading::Safe, false),
        ] {
            let mut busy = Busy::default();
            assert!(busy.enter(threading, queue(1), None, &call).is_none());
            // The provider calls its own object.
            assert!(busy.enter(threading, queue(1), None, &call).is_none());
            busy.leave(threading, queue(1), None, &call);
            let other = is_met(&mut busy, threading, queue(2));
            assert_eq!(other, other_is_met, "{threading}");
            let same = is_met(&mut busy, threading, queue(1));
            assert_eq!(same, threading != Threading::Safe, "{threading}");
            busy.leave(threading, queue(1), None, &call);
        }
    }
}
