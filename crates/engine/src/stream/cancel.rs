//! What becomes of an operation that the program cancels (`fi_cancel`, man page `fi_endpoint(3)`), by how far it has come.
//!
//! A receive that no message has matched, and an operation that waits for its connection, end at once with
//! `FI_ECANCELED`. So does what has failed, if the error was not read yet. What is under way goes on, and the call says
//! that it found nothing to cancel; but should it fail later, its error is `FI_ECANCELED`, too. Programs do not expect any
//! other error of what they have cancelled: Mercury drops it, and waits for the operation's end for ever.

use ripstop_types::{Context, Errno, Flags, Result};

use crate::Buffer;
use crate::id::{CqId, EpId, SrxId};
use crate::stream::awaited::IndexedTx;
use crate::stream::conn::Conn;
use crate::stream::engine::Engine;
use crate::stream::request::{CANCELLED, Postponed, TxInfo, WORK, Wait};

impl<B: Buffer> Engine<B> {
    /// Cancels the oldest receive with this context, whose errors go to `rx_cq`.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] when none waits for a message, and none has failed whose error was not read.
    pub fn cancel(&mut self, srx: SrxId, rx_cq: Option<CqId>, context: Context) -> Result<()> {
        let waiting = self.end_recv(srx, rx_cq, context, Errno::ECANCELED);
        if waiting != Err(Errno::ENOENT) {
            return waiting;
        }
        let is_recv = |flags: Flags| flags.contains(Flags::RECV);
        if let Some(cq) = self.cqs.find_mut(rx_cq)
            && cq.cancel_unread(context, is_recv)
        {
            return Ok(());
        }
        if let Some(matcher) = self.srxs.get_mut(srx) {
            matcher.note_cancel(context);
        }
        Err(Errno::ENOENT)
    }

    /// Cancels the oldest operation of an endpoint with this context that sends, reads or writes.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] when none waits for its connection, and none has failed whose error was not read.
    pub fn cancel_tx(&mut self, ep: EpId, context: Context) -> Result<()> {
        let Some(tx_cq) = self.ep(ep).map(|config| config.tx_cq) else {
            return Err(Errno::ENOENT);
        };
        for id in self.conns.every_id() {
            let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.config.ep == ep) else {
                continue;
            };
            if let Some(postponed) = conn.take_postponed(context) {
                self.fail_postponed(id, postponed, Errno::ECANCELED);
                self.wake_postponed(id);
                return Ok(());
            }
        }
        let is_tx = |flags: Flags| !flags.intersects(Flags::RECV | Flags::COLLECTIVE);
        if let Some(cq) = self.cqs.find_mut(tx_cq)
            && cq.cancel_unread(context, is_tx)
        {
            return Ok(());
        }
        self.note_cancelled_tx(ep, context);
        Err(Errno::ENOENT)
    }

    /// Marks what is under way with this context.
    fn note_cancelled_tx(&mut self, ep: EpId, context: Context) {
        for id in self.conns.every_id() {
            if let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.config.ep == ep) {
                conn.note_cancel(context);
            }
        }
    }
}

impl TxInfo {
    /// Whether it is what a program posted with this context.
    fn is_posted_with(&self, context: Context) -> bool {
        let other = WORK | Flags::COLLECTIVE | Flags::REMOTE_READ;
        self.context == context && !self.flags.intersects(other)
    }

    /// The same as if the program had not cancelled it.
    pub(super) const fn without_cancel(&self) -> Self {
        Self {
            flags: self.flags.difference(CANCELLED),
            ..*self
        }
    }
}

impl<B: Buffer> Conn<B> {
    /// Takes the oldest operation with this context out of those that are put off. If it was to come behind a fence,
    /// so are those that were posted after it.
    fn take_postponed(&mut self, context: Context) -> Option<Postponed<B>> {
        let mut place = 0..self.postponed.len();
        let place = place.find(|place| {
            let postponed = self.postponed.get(*place);
            postponed.is_some_and(|Postponed { posted, .. }| {
                !posted.is_silent() && posted.info().is_posted_with(context)
            })
        })?;
        let taken = self.postponed.remove(place)?;
        match (taken.wait, self.postponed.iter_mut().nth(place)) {
            (Wait::All, Some(next)) => next.wait = Wait::All,
            (Wait::All, None) => self.fence = true,
            _ => {}
        }
        if !self.fence {
            self.settle_ready();
        }
        Some(taken)
    }

    /// Marks what was posted with this context and is under way.
    fn note_cancel(&mut self, context: Context) {
        let indexed = self.indexed.iter_mut().map(IndexedTx::info_mut);
        let reads = self.reads.iter_mut();
        let under_way = (self.dones.iter_mut().map(|done| &mut done.info))
            .chain(self.acks.iter_mut())
            .chain(indexed)
            .chain(
                reads
                    .filter(|read| read.message.is_none())
                    .map(|read| &mut read.info),
            );
        for info in under_way.filter(|info| info.is_posted_with(context)) {
            info.flags |= CANCELLED;
        }
    }
}
