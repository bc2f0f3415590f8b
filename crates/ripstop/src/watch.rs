//! A connection of which the driver is to report what becomes of it.

use std::sync::Arc;
use std::task::Waker;

use ripstop_core::FidToken;

use crate::later::Later;
use crate::polling::WaiterId;
use crate::running::Core;
use crate::table::Table;

/// What a future has that waits for events about one object: at most one waker there, which
/// leaves with it.
#[derive(Debug)]
pub(crate) struct Watch {
    core: Arc<Core>,
    token: FidToken,
    /// 0 before it has waited.
    number: u64,
}

impl Watch {
    pub(crate) const fn new(core: Arc<Core>, token: FidToken) -> Self {
        Self {
            core,
            token,
            number: 0,
        }
    }

    /// Wakes `waker`, and no earlier one, at the next event.
    pub(crate) fn set(
        &mut self,
        table: &mut Table,
        waker: &Waker,
        later: &mut Later,
    ) -> Option<WaiterId> {
        let connections = &mut table.connections;
        if self.number == 0 {
            connections.watches += 1;
            self.number = connections.watches;
        }
        let entry = connections.entries.get_mut(&self.token)?;
        let same = |old: &Waker| old.will_wake(waker);
        if !entry.wakers.get(&self.number).is_some_and(same) {
            later.drop(entry.wakers.insert(self.number, waker.clone()));
        }
        Some(WaiterId::Watch(self.number))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.number == 0 {
            return;
        }
        self.core.with(|table, later| {
            table.quiet.leave(WaiterId::Watch(self.number));
            if let Some(entry) = table.connections.entries.get_mut(&self.token) {
                later.drop(entry.wakers.remove(&self.number));
            }
        });
    }
}
