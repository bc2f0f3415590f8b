//! Posted receives and unexpected messages, between two endpoints of one thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ripstop_core::Info;
use ripstop_core::provider::{AddressVector as _, Domain, Endpoint as _};
use ripstop_types::FiAddr;

use super::protocol::{at, grouped};
use super::record::{Figure, Figures};
use super::traffic::{Buffers, Patience, TIME, each, read};
use crate::open::Opened;

/// The tag that follows others, when all before it have arrived. Others count from 0.
const FENCE: u64 = u64::MAX >> 8;

/// Messages of a sample, if there is time.
const MESSAGES: u64 = 2_000;

/// Sends under way at once.
const WINDOW: u64 = 64;

/// The two endpoints.
struct Pair<D: Domain> {
    from: Opened<D>,
    to: Opened<D>,
    dest: FiAddr,
    buffers: Buffers,
}

/// The time to post receives, and to send a message into the one that was posted last.
///
/// # Errors
/// [`Ends`](super::protocol::Ends), what the library says.
pub(super) fn posted<D: Domain>(domain: &Arc<D>, info: &Info, count: u64) -> Result<Figures> {
    let pair = Pair::open(domain, info)?;
    let start = Instant::now();
    for tag in 0..count {
        let posted = pair.buffers.recv::<D>(&pair.to.ep, tag, 1);
        let posted = posted.and_then(|posted| {
            ensure!(posted, "fi_trecv: FI_EAGAIN");
            Ok(())
        });
        at(tag, posted)?;
    }
    let post = each(start.elapsed(), count);
    let last = count - 1;
    let matched = pair.repeat(|pair| {
        let start = Instant::now();
        pair.send(last)?;
        pair.wait(1, 1)?;
        let took = start.elapsed();
        pair.recv(last)?;
        Ok(took)
    })?;
    Ok([(Figure::Post, post), (Figure::MatchLast, matched)].into())
}

/// The time until an unexpected message is held, and to receive the one that arrived last.
///
/// # Errors
/// [`Ends`](super::protocol::Ends), what the library says.
pub(super) fn unexpected<D: Domain>(domain: &Arc<D>, info: &Info, count: u64) -> Result<Figures> {
    let pair = Pair::open(domain, info)?;
    let start = Instant::now();
    pair.send_all(count)?;
    let taken = pair.fence();
    taken.with_context(|| format!("not all of {} messages are taken in", grouped(count)))?;
    let hold = each(start.elapsed(), count);
    let last = count - 1;
    let found = pair.repeat(|pair| {
        let start = Instant::now();
        pair.recv(last)?;
        pair.wait(0, 1)?;
        let took = start.elapsed();
        pair.send(last)?;
        pair.wait(1, 0)?;
        pair.fence()?;
        Ok(took)
    })?;
    Ok([(Figure::Hold, hold), (Figure::Find, found)].into())
}

impl<D: Domain> Pair<D> {
    /// Two endpoints that are connected.
    fn open(domain: &Arc<D>, info: &Info) -> Result<Self> {
        let (from, to) = (Opened::new(domain, info)?, Opened::new(domain, info)?);
        let name = to.ep.name().context("fi_getname")?;
        let pair = Self {
            dest: from.av.insert(&name).context("fi_av_insert")?,
            from,
            to,
            buffers: Buffers::new(),
        };
        // A program knows those that it receives from.
        let name = pair.from.ep.name().context("fi_getname")?;
        pair.to.av.insert(&name).context("fi_av_insert")?;
        pair.fence()?;
        Ok(pair)
    }

    fn recv(&self, tag: u64) -> Result<()> {
        let mut patience = Patience::new();
        while !self.buffers.recv::<D>(&self.to.ep, tag, 1)? {
            self.poll()?;
            patience.miss()?;
        }
        Ok(())
    }

    /// Posts a send, whose completion the caller waits for.
    fn send(&self, tag: u64) -> Result<()> {
        let mut patience = Patience::new();
        while !self.buffers.send::<D>(&self.from.ep, tag, self.dest)? {
            self.poll()?;
            patience.miss()?;
        }
        Ok(())
    }

    /// Reads both queues once: how many sends and receives have completed.
    #[inline]
    fn poll(&self) -> Result<(usize, usize)> {
        let sent = read(&*self.from.cq, |_| ())?;
        let received = read(&*self.to.cq, |_| ())?;
        Ok((sent, received))
    }

    /// Reads until so many sends and receives have completed.
    fn wait(&self, sends: usize, receives: usize) -> Result<()> {
        let (mut sent, mut received) = (0, 0);
        let mut patience = Patience::new();
        while sent < sends || received < receives {
            let found = self.poll()?;
            sent += found.0;
            received += found.1;
            patience.miss()?;
        }
        Ok(())
    }

    /// Sends messages with the tags below `count`, which nobody waits for.
    fn send_all(&self, count: u64) -> Result<()> {
        let (mut sends, mut sent) = (0, 0);
        let mut patience = Patience::new();
        while sent < count {
            while sends < count.min(sent + WINDOW)
                && at(
                    sent,
                    self.buffers.send::<D>(&self.from.ep, sends, self.dest),
                )?
            {
                sends += 1;
            }
            let found = at(sent, self.poll())?.0;
            sent += found as u64;
            if found > 0 {
                patience.hit();
            } else {
                at(sent, patience.miss())?;
            }
        }
        Ok(())
    }

    /// Sends a message and receives it: then all before it have arrived.
    fn fence(&self) -> Result<()> {
        self.recv(FENCE)?;
        self.send(FENCE)?;
        self.wait(1, 1)
    }

    /// The median time of `once`, as often as there is time.
    fn repeat(&self, once: impl Fn(&Self) -> Result<Duration>) -> Result<f64> {
        let mut nanos = Vec::new();
        let start = Instant::now();
        for _ in 0..MESSAGES {
            nanos.push(each(once(self)?, 1));
            if start.elapsed() > TIME {
                break;
            }
        }
        Ok(ripstop_cli::perf::median(&nanos))
    }
}
