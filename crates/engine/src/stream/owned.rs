//! Receive contexts whose receives another provider has (`fi_peer(3)`): every message is
//! unexpected, and announced to the owner, who says what becomes of it.

use ripstop_types::{Completion, Errno, FiAddr, Result};

use crate::Buffer;
use crate::id::{ConnId, CqId, EpId, MessageId, SrxId};
use crate::matching::{ENTRY, Envelope, Matcher, Recv, Unexpected};
use crate::ring::Ring;
use crate::stream::engine::Engine;
use crate::stream::recv::{CopyOut, rx_flags};

/// A message that its receive context's owner is to be asked about.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// What it is called until the owner has answered.
    pub message: MessageId,
    /// What identifies it; the source is the one to be reported.
    pub envelope: Envelope,
}

impl<B: Buffer> Engine<B> {
    /// Opens a receive context whose receives another provider has (`fi_peer(3)`), and is asked
    /// about every message: see [`Engine::next_arrival`].
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn open_owned_srx(&mut self) -> Result<SrxId> {
        let asked = self.asked.insert(Ring::new())?;
        let opened = self.open_srx(Matcher::owned(asked));
        if opened.is_err() {
            self.asked.remove(asked);
        }
        opened
    }

    /// The messages that a context's owner has not been asked about.
    fn asked_of(&mut self, srx: SrxId) -> Option<&mut Ring<MessageId>> {
        self.asked.find_mut(self.srxs.get(srx)?.asked)
    }

    /// A message for an owner takes its place among those to ask about.
    pub(super) fn announce(&mut self, conn_id: ConnId, id: MessageId) {
        let Some(srx) = self.conns.get(conn_id).and_then(|conn| conn.srx) else {
            return;
        };
        if let Some(Err(error)) = self.asked_of(srx).map(|asked| asked.push(id)) {
            return self.break_conn(conn_id, error);
        }
        if let Some(message) = self.unexpected.get_mut(id) {
            message.ask_first = message.payload() > self.limits.ask_first;
        }
        if self.may_keep(id) {
            self.keep(conn_id, id);
        }
    }

    /// Whether a message may be read before its receive is known: not one that is so long that
    /// its owner has to answer first.
    pub(super) fn may_keep(&self, id: MessageId) -> bool {
        self.unexpected
            .get(id)
            .is_some_and(|message| !message.ask_first)
    }

    /// Whether another provider has the receives of a context.
    #[must_use]
    pub fn is_owned(&self, srx: SrxId) -> bool {
        self.srxs.get(srx).is_some_and(Matcher::is_owned)
    }

    /// The first message that the owner of a context has not answered about. Ask the owner, and
    /// then call [`Engine::start`], [`Engine::let_wait`] or [`Engine::drop_message`]; without
    /// any of these the same message is the next one again. One caller at a time.
    pub fn next_arrival(&mut self, srx: SrxId) -> Option<Arrival> {
        loop {
            let id = *self.asked_of(srx)?.front()?;
            match self.unexpected.get_mut(id) {
                Some(message) if message.lost.is_none() => {
                    message.holder = Some(srx);
                    return Some(Arrival {
                        message: id,
                        envelope: Envelope {
                            src: self.source(srx, id),
                            ..self.unexpected.get(id)?.envelope
                        },
                    });
                }
                // The owner could not say anything before it was lost.
                Some(_) => self.take_owned(srx, id),
                None => self.answered(srx, id),
            }
        }
    }

    /// Who has sent a message that waits, as its endpoint reports it; [`FiAddr::NOTAVAIL`] as
    /// long as nobody knows, and for a message that the owner of this context cannot know.
    #[must_use]
    pub fn source(&self, srx: SrxId, message: MessageId) -> FiAddr {
        match self.held(srx, message) {
            Ok(message) => self.source_of(message.ep, true, message.envelope.src),
            Err(_) => FiAddr::NOTAVAIL,
        }
    }

    /// The owner has a receive for a message: its payload goes there, after what this says to
    /// copy. The end is reported to the endpoint's queue; that of a message which was lost
    /// meanwhile at once, to `cq`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a message that the owner of this context cannot know,
    /// [`Errno::ENOMEM`].
    pub fn start(
        &mut self,
        srx: SrxId,
        cq: CqId,
        message: MessageId,
        recv: Recv<B>,
    ) -> Result<Option<CopyOut<B>>> {
        let found = *self.held(srx, message)?;
        if let Some(error) = found.lost {
            self.take_owned(srx, message);
            let context = recv.context;
            self.report_lost(cq, context, &found, error);
            return Ok(None);
        }
        let matcher = self.srxs.get_mut(srx).ok_or(Errno::EINVAL)?;
        let recv_id = matcher.hold(Recv {
            released: true,
            ..recv
        })?;
        matcher.remove_unexpected(&mut self.unexpected, message);
        self.answered(srx, message);
        Ok(self.bind(srx, recv_id, message))
    }

    /// The owner has no receive for a message yet: it waits.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a message that the owner of this context cannot know.
    pub fn let_wait(&mut self, srx: SrxId, message: MessageId) -> Result<()> {
        let found = *self.held(srx, message)?;
        self.answered(srx, message);
        if let (true, Some(conn)) = (found.parked, found.conn) {
            // There may be room to keep it, and to go on behind it.
            self.resume(conn);
        }
        Ok(())
    }

    /// Nobody will receive a message.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a message that the owner of this context cannot know.
    pub fn drop_message(&mut self, srx: SrxId, message: MessageId) -> Result<()> {
        match self.held(srx, message)?.lost {
            Some(_) => self.take_owned(srx, message),
            None => {
                self.answered(srx, message);
                self.discard(srx, message);
            }
        }
        Ok(())
    }

    /// A message that the owner of this very context knows of.
    fn held(&self, srx: SrxId, message: MessageId) -> Result<&Unexpected> {
        let found = self.unexpected.get(message);
        found
            .filter(|message| message.holder == Some(srx))
            .ok_or(Errno::EINVAL)
    }

    /// Takes a message from those to ask about.
    fn answered(&mut self, srx: SrxId, message: MessageId) {
        if let Some(message) = self.unexpected.get_mut(message) {
            message.ask_first = false;
        }
        let Some(asked) = self.asked_of(srx) else {
            return;
        };
        if asked.front() == Some(&message) {
            asked.pop();
        } else if !asked.is_empty() {
            asked.retain(|other| *other != message);
        }
    }

    /// Forgets a message of a context.
    fn take_owned(&mut self, srx: SrxId, message: MessageId) {
        self.answered(srx, message);
        if let Some(matcher) = self.srxs.get_mut(srx) {
            matcher.remove_unexpected(&mut self.unexpected, message);
        }
        self.forget_unexpected(message);
    }

    /// Messages of a context for which `wanted` holds will not come. What an owner knows of
    /// stays, without its payload, until the owner has answered.
    pub(super) fn lose(&mut self, srx: SrxId, error: Errno, wanted: impl Fn(&Unexpected) -> bool) {
        let Some(matcher) = self.srxs.get_mut(srx) else {
            return;
        };
        let owned = matcher.is_owned();
        let unknown = |message: &Unexpected| message.holder.is_none() && wanted(message);
        let mut lost = matcher.split_unexpected(&mut self.unexpected, unknown);
        while let Some(id) = lost.pop_front(&mut self.unexpected) {
            if owned {
                self.answered(srx, id);
            }
            self.forget_unexpected(id);
        }
        if owned {
            self.lose_held(srx, error, wanted);
        }
    }

    #[cold]
    fn lose_held(&mut self, srx: SrxId, error: Errno, wanted: impl Fn(&Unexpected) -> bool) {
        let Some(matcher) = self.srxs.get(srx) else {
            return;
        };
        matcher.each_unexpected(&mut self.unexpected, |_, message| {
            if message.lost.is_some() || !wanted(message) {
                return;
            }
            let weight = match message.parked {
                true => 0,
                false => message.weight(),
            };
            if let Some(slot) = message.slot.take()
                && self.freed.push(slot).is_err()
            {
                // As in `release_slot`: a leak, but no confusion.
            }
            message.lost = Some(error);
            message.conn = None;
            message.parked = false;
            self.kept = self.kept.saturating_sub(weight).saturating_add(ENTRY);
        });
        self.make_room(0);
    }

    /// An endpoint closes: what an owner still knows of its messages is about no endpoint now.
    pub(super) fn leave_lost(&mut self, srx: SrxId, ep: EpId) {
        if let Some(matcher) = self.srxs.get(srx).filter(|matcher| matcher.is_owned()) {
            matcher.each_unexpected(&mut self.unexpected, |_, message| {
                if message.ep == Some(ep) {
                    message.ep = None;
                }
            });
        }
    }

    #[cold]
    fn report_lost(&mut self, cq: CqId, context: usize, message: &Unexpected, err: Errno) {
        let envelope = &message.envelope;
        let entry = Completion {
            context,
            flags: rx_flags(envelope.tag.is_some()),
            tag: envelope.tag.unwrap_or_default(),
            src: self.source_of(message.ep, true, envelope.src),
            ..Completion::BLANK
        };
        if let Some(ep) = self.eps.find(message.ep)
            && let Some(counter) = self.counters.find_mut(ep.config.rx_counter)
        {
            counter.failure();
        }
        self.push_error(Some(cq), entry, err);
    }
}
