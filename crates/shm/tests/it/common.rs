//! What the tests of this program have in common: endpoints, other processes, and groups of processes under load.

#[path = "../common/deaths.rs"]
mod deaths;
#[path = "../common/endpoints.rs"]
mod endpoints;
#[path = "../common/flow.rs"]
mod flow;
#[path = "../common/group.rs"]
pub(crate) mod group;
#[path = "../common/load/mod.rs"]
pub(crate) mod load;
#[path = "../common/talk.rs"]
mod talk;

use std::time::Instant;

use ripstop_core::provider::{CompletionQueue as _, Domain};
use ripstop_types::Errno;

pub(crate) use endpoints::*;

impl<D: Domain> End<D> {
    /// Waits for completions in the kernel.
    pub(crate) fn sleep(&self, mut count: usize) {
        let stop = Instant::now() + PATIENCE;
        while count > 0 {
            match self.cq.sread(count, 1, Some(PATIENCE), |_| ()) {
                Ok(more) => count -= more,
                Err(error) => assert_eq!(error, Errno::EAGAIN),
            }
            assert!(Instant::now() < stop, "{count} are still to come");
        }
    }
}
