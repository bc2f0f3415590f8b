//! Keeps messages that come before what they are for, finds them again, and forgets them.

use ripstop_types::{Errno, FiAddr, Result};

use crate::Buffer;
use crate::coll::action::{Action, Purpose};
use crate::coll::collectives::Collectives;
use crate::coll::early::Early;
use crate::coll::message::{Gone, Kind, Message};
use crate::id::{CollOpId, ConnId, EarlyId, EpId, GroupId, SlotId};

impl<B: Buffer> Collectives<B> {
    /// Keeps a message, see [`Arrival::Keep`](super::Arrival::Keep). Returns what to tell
    /// [`Collectives::arrived`] if it has a payload.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn keep(
        &mut self,
        from: (EpId, FiAddr, ConnId),
        message: Message,
        slot: Option<SlotId>,
    ) -> Result<EarlyId> {
        self.make_room(1)?;
        let id = self.early.insert(Early {
            slot,
            ..Early::new(from, message)
        })?;
        if message.len == 0 {
            self.wake_for(id);
        }
        Ok(id)
    }

    /// Notes a message of a later step whose payload goes to its place at once. Returns what to
    /// tell [`Collectives::arrived`].
    pub(super) fn note_ahead(
        &mut self,
        from: (EpId, FiAddr, ConnId),
        message: Message,
    ) -> Result<EarlyId> {
        self.make_room(1)?;
        self.early.insert(Early {
            placed: true,
            ..Early::new(from, message)
        })
    }

    /// An operation ends in error: what arrives for its later steps goes nowhere.
    pub(super) fn drop_ahead(&mut self, group: GroupId, seq: u32) {
        let Some(group) = self.groups.get(group) else {
            return;
        };
        let (ep, name) = (group.ep, group.id);
        let is = |early: &Early| {
            early.placed && (early.ep, early.message.group, early.message.seq) == (ep, name, seq)
        };
        while let Some(id) = self.find_early(is) {
            if let Some(early) = self.early.remove(id)
                && !early.whole
                && let Some(conn) = early.conn
            {
                let of = Purpose::Early(id);
                self.push_owed(Action::Drop { conn, of });
            }
        }
    }

    /// Whether a message of a later step has come already, or is arriving.
    pub(super) fn is_ahead(&self, group: GroupId, message: &Message) -> bool {
        let ep = self.ep_of(group);
        let is = |early: &Early| {
            let of = &early.message;
            early.placed
                && Some(early.ep) == ep
                && (of.group, of.seq, of.from, of.tag)
                    == (message.group, message.seq, message.from, message.tag)
        };
        self.find_early(is).is_some()
    }

    /// How many long messages that have not been sent to a member it has granted.
    pub(super) fn granted_by(&self, (group, seq): (GroupId, u32), peer: u32) -> u32 {
        let Some(group) = self.groups.get(group) else {
            return 0;
        };
        let of = |id: EarlyId| {
            let early = self.early.get(id)?;
            let message = &early.message;
            let is = message.kind == Kind::Ready
                && (message.seq, message.from) == (seq, peer)
                && (early.ep, message.group) == (group.ep, group.id)
                && group.is_member(peer, early.src);
            is.then_some(message.tag)
        };
        self.early.ids().filter_map(of).fold(0, u32::saturating_add)
    }

    /// One of the messages that a member has granted is about to be sent.
    pub(super) fn use_grant(&mut self, id: EarlyId) {
        if let Some(early) = self.early.get_mut(id) {
            early.message.tag = early.message.tag.saturating_sub(1);
            if early.message.tag == 0 {
                self.forget_early(id);
            }
        }
    }

    /// The payload of an early message has come.
    pub(super) fn early_arrived(&mut self, id: EarlyId) {
        if let Some(early) = self.early.get_mut(id) {
            early.whole = true;
            self.wake_for(id);
        }
    }

    /// The operation that a message was kept for may have come to it meanwhile.
    fn wake_for(&mut self, id: EarlyId) {
        let Some(early) = self.early.get(id) else {
            return;
        };
        let Message {
            kind, group, seq, ..
        } = early.message;
        let ep = early.ep;
        let Some(group) = self.find_group(ep, group) else {
            if !self.joins(ep) && !matches!(kind, Kind::Join | Kind::Decline) {
                self.forget_early(id);
            }
            return;
        };
        let next = self.groups.get(group).map_or(0, |group| group.next);
        match self.find_op(group, seq) {
            Some(op) if kind == Kind::Gone => {
                self.forget_early(id);
                self.fail(op, Errno::ENOMEM, Some(Gone::Memory));
            }
            Some(op) => self.wake(op),
            // It has ended without this.
            None if next.wrapping_sub(seq) <= u32::MAX / 2 && seq != next => self.forget_early(id),
            None => {}
        }
    }

    fn find_early(&self, wanted: impl Fn(&Early) -> bool) -> Option<EarlyId> {
        if self.early.is_empty() {
            return None;
        }
        self.early.position(wanted)
    }

    /// The place of a whole message for this step of an operation.
    pub(super) fn early_for(
        &self,
        kind: Kind,
        (group, seq): (GroupId, u32),
        (peer, tag): (u32, u32),
    ) -> Option<EarlyId> {
        let group = self.groups.get(group)?;
        self.find_early(|early| {
            let message = &early.message;
            let tagged = kind == Kind::Ready || message.tag == tag;
            early.whole
                && message.kind == kind
                && tagged
                && (message.seq, message.from) == (seq, peer)
                && (early.ep, message.group) == (group.ep, group.id)
                && group.is_member(peer, early.src)
        })
    }

    /// Whether a member has said already that it has another operation in mind.
    pub(super) fn early_differs(&self, id: CollOpId) -> bool {
        let op = self.ops.get(id);
        let Some((op, group)) = op.and_then(|op| Some((op, self.groups.get(op.group)?))) else {
            return false;
        };
        let differs = |early: &Early| {
            let message = &early.message;
            matches!(message.kind, Kind::Data | Kind::Ready)
                && (early.ep, message.group, message.seq) == (group.ep, group.id, op.seq)
                && group.is_member(message.from, early.src)
                && message.check != op.check
        };
        self.find_early(differs).is_some()
    }

    /// Takes an early word that an operation has ended elsewhere.
    pub(super) fn early_end(&mut self, group: GroupId, seq: u32) -> Option<Gone> {
        let known = self.groups.get(group)?;
        let (ep, id) = (known.ep, known.id);
        let found = self.find_early(|early| {
            let Message {
                kind,
                group,
                seq: of,
                tag,
                ..
            } = early.message;
            let ends = kind == Kind::Gone && Gone::told(tag) != Gone::Done;
            ends && (early.ep, group, of) == (ep, id, seq)
        })?;
        let reason = Gone::told(self.early.get(found)?.message.tag);
        self.forget_early(found);
        Some(reason)
    }

    /// Takes an early message about a group that is being joined.
    pub(super) fn take_joining(
        &mut self,
        kind: Kind,
        ep: EpId,
        digest: u64,
        wanted: impl Fn(&Message, FiAddr) -> bool,
    ) -> Option<Message> {
        let found = self.find_early(|early| {
            let message = &early.message;
            message.kind == kind
                && (early.ep, message.group) == (ep, digest)
                && wanted(message, early.src)
        })?;
        let message = self.early.get(found)?.message;
        self.forget_early(found);
        Some(message)
    }

    /// Forgets an early message, and frees what it took.
    pub(super) fn forget_early(&mut self, id: EarlyId) {
        let Some(early) = self.early.get(id) else {
            return;
        };
        // One that is arriving stays until it has: its connection writes there.
        if !early.whole && early.conn.is_some() {
            return;
        }
        if let Some(early) = self.early.remove(id)
            && !early.placed
        {
            self.push_owed(Action::Forget {
                conn: early.conn,
                slot: early.slot,
                len: early.message.len,
            });
        }
    }

    /// Forgets the early messages that are of no use.
    pub(super) fn forget_all(&mut self, useless: impl Fn(&Self, &Early) -> bool) {
        for id in self.early.every_id() {
            let Some(early) = self.early.get(id).copied() else {
                continue;
            };
            if useless(self, &early) {
                self.forget_early(id);
            }
        }
    }

    /// There is no memory for the payload of a message that is arriving.
    pub(super) fn early_lost(&mut self, id: EarlyId) {
        let Some(early) = self.early.get_mut(id) else {
            return;
        };
        early.whole = true;
        if early.placed {
            let (ep, Message { group, seq, .. }) = (early.ep, early.message);
            let group = self.find_group(ep, group);
            if let Some(op) = group.and_then(|group| self.find_op(group, seq)) {
                self.no_memory(op);
            }
            return;
        }
        // What stays is the word that the operation cannot be done here.
        early.message.kind = Kind::Gone;
        early.message.tag = Gone::Memory.number();
        if let Some(slot) = early.slot.take() {
            self.push(Action::Free { slot });
        }
        self.wake_for(id);
    }

    /// A connection closes over which nothing is missed: what came whole stays, without an
    /// account.
    pub fn forget_conn(&mut self, conn: ConnId) {
        for id in self.early.every_id() {
            let Some(early) = self
                .early
                .get_mut(id)
                .filter(|early| early.conn == Some(conn))
            else {
                continue;
            };
            early.conn = None;
            let joins = matches!(early.message.kind, Kind::Join | Kind::Decline);
            if !early.whole || joins {
                self.forget_early(id);
            }
        }
    }
}
