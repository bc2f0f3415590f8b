//! Regions that are closed while peers are still at work in them.

use std::time::{Duration, Instant};

use crate::backend::AnyMr;
use crate::lent::{Memory, Over};

/// How often a thread that waits for that looks.
pub(crate) const LOOK: Duration = Duration::from_micros(200);

/// How long peers may take to finish what they have begun in a region that closes.
pub(crate) const CLOSING: Duration = Duration::from_secs(1);

/// A registration whose owner is gone, while peers are at work there.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) mr: AnyMr,
    pub(crate) memory: Memory,
    pub(crate) end: Instant,
}

/// Those of a domain.
#[derive(Debug, Default)]
pub(crate) struct Leaving(pub(crate) Vec<Closing>);

impl Leaving {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Frees what no peer is at work in any more, or for too long.
    pub(crate) fn advance(&mut self) {
        let now = Instant::now();
        let over = |closing: &mut Closing| closing.mr.try_close(now >= closing.end);
        for closing in self.0.extract_if(.., over) {
            closing.memory.free(Over::Closed);
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        for closing in self.0.drain(..) {
            if closing.mr.try_close(true) {
                closing.memory.free(Over::Closed);
            }
        }
    }
}
