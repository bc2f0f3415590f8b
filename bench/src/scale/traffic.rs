//! Messages of 8 bytes and waiting for them, whatever library is below.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use ripstop_core::provider::{CompletionQueue, Domain, Endpoint, RecvKind, SendKind};
use ripstop_mem::{Parked, UserBuf};
use ripstop_types::{Errno, FiAddr};

/// Bytes of a message.
pub(super) const SIZE: usize = 8;

/// The context of all sends and writes; a receive has another.
pub(super) const SENT: usize = 0;

/// How long a measurement may take that is repeated as often as there is time.
pub(super) const TIME: Duration = Duration::from_secs(2);

/// How long nothing may happen before a point is given up.
const PATIENCE: Duration = Duration::from_secs(8);
/// Empty reads between two looks at the clock.
const GLANCE: u32 = 1 << 10;

/// Completions read at once.
const BATCH: usize = 16;

/// How long nothing has happened.
pub(super) struct Patience {
    misses: u32,
    since: Option<Instant>,
    most: Duration,
}

impl Patience {
    /// As long as one side may wait for the other.
    pub(super) fn new() -> Self {
        Self::of(PATIENCE)
    }

    /// A side that only answers waits longer.
    pub(super) fn of(most: Duration) -> Self {
        Self {
            misses: 0,
            since: None,
            most,
        }
    }

    /// Something has happened.
    pub(super) fn hit(&mut self) {
        self.since = None;
    }

    /// Nothing has.
    ///
    /// # Errors
    /// After too long a time.
    #[inline]
    pub(super) fn miss(&mut self) -> Result<()> {
        self.misses = self.misses.wrapping_add(1);
        if self.misses.is_multiple_of(GLANCE) {
            let since = self.since.get_or_insert_with(Instant::now);
            if since.elapsed() > self.most {
                bail!("nothing completed for {} s", self.most.as_secs());
            }
        }
        Ok(())
    }
}

/// What messages are sent from and received into.
pub(super) struct Buffers {
    from: Parked,
    into: Parked,
}

impl Buffers {
    pub(super) fn new() -> Self {
        let memory = || Parked::park(vec![1; SIZE]);
        Self {
            from: memory(),
            into: memory(),
        }
    }

    pub(super) fn from(&self) -> UserBuf {
        self.from.buf()
    }

    /// Posts a receive of a message with this tag, from anybody; `false` when there is no room.
    #[inline]
    pub(super) fn recv<D: Domain>(
        &self,
        ep: &Arc<D::Endpoint>,
        tag: u64,
        context: usize,
    ) -> Result<bool> {
        let kind = RecvKind::Tagged { tag, ignore: 0 };
        let into = self.into.buf();
        let result = ep.recv(kind, &[into], FiAddr::UNSPEC, context, None);
        posted("fi_trecv", result)
    }

    /// Posts a send; `false` when there is no room.
    #[inline]
    pub(super) fn send<D: Domain>(
        &self,
        ep: &Arc<D::Endpoint>,
        tag: u64,
        to: FiAddr,
    ) -> Result<bool> {
        let kind = SendKind::Tagged(tag);
        let from = self.from.buf();
        posted("fi_tsend", ep.send(kind, &[from], None, to, SENT, None))
    }
}

/// Whether an operation was posted.
#[inline]
pub(super) fn posted(call: &'static str, result: ripstop_types::Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno::EAGAIN) => Ok(false),
        Err(error) => bail!("{call}: {error}"),
    }
}

/// One read: how many completions there were; `each` gets their contexts.
#[inline]
pub(super) fn read<C: CompletionQueue>(cq: &C, mut each: impl FnMut(usize)) -> Result<usize> {
    match cq.read(BATCH, |entry| each(entry.context)) {
        Ok(count) => Ok(count),
        Err(Errno::EAGAIN) => Ok(0),
        Err(Errno::EAVAIL) => Err(failure(cq)),
        Err(error) => bail!("fi_cq_read: {error}"),
    }
}

/// The failed operation at hand.
#[cold]
fn failure<C: CompletionQueue>(cq: &C) -> anyhow::Error {
    let mut text = String::new();
    let read = cq.read_error(|error, _| {
        let what = match error.entry.context {
            SENT => "send",
            _ => "receive",
        };
        text = format!("a {what} failed: {}", error.err);
    });
    match read {
        Ok(()) => anyhow!(text),
        Err(error) => anyhow!("fi_cq_readerr: {error}"),
    }
}

/// Nanoseconds of each of `count`.
pub(super) fn each(took: Duration, count: u64) -> f64 {
    took.as_nanos() as f64 / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends() {
        let mut patience = Patience::of(Duration::ZERO);
        let misses = (0..2 * GLANCE).map(|_| patience.miss());
        let ended = misses.filter(Result::is_err).count();
        assert_eq!(ended, 2);
        let mut patience = Patience::new();
        assert!((0..2 * GLANCE).all(|_| patience.miss().is_ok()));
        patience.hit();
        assert!(patience.since.is_none());
    }

    #[test]
    fn times_are_of_one() {
        assert_eq!(each(Duration::from_micros(3), 6), 500.0);
        assert_eq!(each(Duration::from_nanos(7), 0), 7.0);
    }
}
