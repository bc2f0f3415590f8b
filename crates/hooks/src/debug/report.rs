//! Lines of the log about what a program does wrong: once for each object, call and kind, and how often
//! when the object is closed.

use core::fmt;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_core::fi_warn;

use super::objects::Name;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Misuse {
    /// Operations share memory that one of them writes.
    Overlap,
    /// The payload of an operation was changed before its completion.
    Changed,
    /// The context of an operation under way is used by another one.
    Context,
    /// An object was closed that others use.
    Users,
    /// An object that was closed is used.
    Closed,
    /// A completion queue may have more entries than room.
    Overrun,
    /// A region was closed that operations use.
    Region,
    /// The endpoint is not enabled.
    Disabled,
    /// A descriptor is missing, or wrong.
    Desc,
    /// More than can be injected.
    Inject,
    /// More buffers than an operation may have.
    Buffers,
    /// A completion in error is not read.
    UnreadError,
    /// Two threads at once.
    Threads,
}

/// What is told of one object.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) name: Name,
    pub(super) provider: Arc<str>,
    said: Mutex<HashMap<(Misuse, &'static str), u64>>,
}

impl Report {
    pub(super) fn new(name: Name, provider: &str) -> Self {
        Self {
            name,
            provider: provider.into(),
            said: Mutex::default(),
        }
    }

    /// Tells it, unless the same was told before.
    pub(super) fn say(&self, misuse: Misuse, call: &'static str, what: fmt::Arguments<'_>) {
        let mut said = self.said.lock();
        let times = said.entry((misuse, call)).or_insert(0);
        *times += 1;
        if *times > 1 {
            return;
        }
        drop(said);
        let (provider, subsys, name) = (&*self.provider, self.name.subsys(), self.name);
        fi_warn!(provider, subsys, "FI_HOOK=debug: {call} of {name}: {what}");
    }

    /// The object is closed: how often what was told has come again.
    pub(super) fn closed(&self) {
        let said = core::mem::take(&mut *self.said.lock());
        let (provider, subsys, name) = (&*self.provider, self.name.subsys(), self.name);
        for ((misuse, call), times) in said.into_iter().filter(|(_, times)| *times > 1) {
            let more = times - 1;
            fi_warn!(
                provider,
                subsys,
                "FI_HOOK=debug: {call} of {name}: {misuse:?}, told of before, {more} times more"
            );
        }
    }
}
