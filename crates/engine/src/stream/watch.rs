//! What waits, for who asks why nothing happens. Nothing here is on the way of an operation: the driver
//! calls it about once a second.

use ripstop_types::{FiAddr, Flags};

use super::{Conn, Engine};
use crate::Buffer;
use crate::coll::Held;
use crate::id::{ConnId, RecvId, SrxId};
use crate::matching::{Recv, Want};
use crate::stream::arriving::{RxState, Target};
use crate::stream::recv::rx_flags;
use crate::stream::request::TxInfo;

/// Operations in one queue of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Queued {
    /// How many.
    pub count: usize,
    /// What tells the first one from those that were there before it, nearly always.
    pub mark: u64,
    /// What the first one is.
    pub flags: Flags,
    /// Its length in bytes.
    pub len: u64,
}

/// What is under way on a connection.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// Operations that wait for the connection, or behind others that do.
    pub postponed: Option<Queued>,
    /// Bytes that were queued and not taken by the link.
    pub unsent: u64,
    /// The position of the first of them.
    pub sent: u64,
    /// Reads that are not answered.
    pub reads: Option<Queued>,
    /// What is written and to be acknowledged.
    pub acks: Option<Queued>,
    /// Messages that have a receive, and have not come whole: one that comes, then those that were asked
    /// for. The length is of what the first one lacks.
    pub arriving: Option<Queued>,
    /// Messages that are announced and not asked for.
    pub announced: u32,
    /// Messages of the peer that wait here for a receive.
    pub unexpected: u32,
    /// Too many of them: the peer is not read.
    pub is_full: bool,
}

/// A message that was announced and has not been asked for.
#[derive(Clone, Copy, Debug)]
pub struct Announced {
    /// By which both sides name it.
    pub index: u16,
    /// It is seen for the first time.
    pub is_new: bool,
    /// Which kind of message it is.
    pub flags: Flags,
    /// Its length in bytes.
    pub len: u64,
}

/// A receive that waits for a message.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Its id in its context.
    pub id: RecvId,
    /// It is seen for the first time.
    pub is_new: bool,
    /// What it accepts.
    pub want: Want,
    /// Bytes that it has room for.
    pub len: u64,
}

fn queued(count: usize, mark: u64, info: &TxInfo) -> Queued {
    Queued {
        count,
        mark: mark ^ (info.context as u64).rotate_left(32),
        flags: info.flags,
        len: info.len,
    }
}

impl<B: Buffer> Conn<B> {
    /// What is under way.
    #[must_use]
    pub fn pending(&self) -> Pending {
        let mark = |head: usize| (head as u64).rotate_left(48);
        let postponed = self.postponed.front();
        let reads = self.reads.front();
        let acks = self.acks.front();
        Pending {
            postponed: postponed.map(|first| {
                let info = first.posted.info();
                queued(self.postponed.len(), mark(self.postponed.head()), &info)
            }),
            unsent: self.unsent(),
            sent: self.sent,
            reads: reads
                .map(|first| queued(self.reads.len(), mark(self.reads.head()), &first.info)),
            acks: acks.map(|first| queued(self.acks.len(), mark(self.acks.head()), first)),
            arriving: self.arriving(),
            announced: self.announced(),
            unexpected: self.kept_count,
            is_full: matches!(self.rx, RxState::Blocked(_)),
        }
    }

    fn arriving(&self) -> Option<Queued> {
        let asked = self.cts.entries();
        let mut asked = asked.filter(|(_, entry)| matches!(entry.target, Target::Recv(..)));
        let (mark, envelope, len, others) = match self.rx {
            RxState::Payload {
                target: Target::Recv(..),
                done,
                left,
            } => (done, &self.envelope, left, asked.count()),
            _ => {
                let (index, first) = asked.next()?;
                let mark = u64::from(index).rotate_left(32);
                (mark, &first.envelope, first.envelope.len, asked.count())
            }
        };
        Some(Queued {
            count: others.saturating_add(1),
            mark: mark ^ (others as u64).rotate_left(48),
            flags: rx_flags(envelope.tag.is_some()),
            len,
        })
    }
}

/// How long messages reach a peer.
#[derive(Clone, Copy, Debug)]
pub struct LongMessages {
    /// Tagged messages longer than this wait for their receive; the largest number where none does.
    pub eager_max: u64,
    /// Messages from this many bytes on are got by the receiver; the largest number where none is.
    pub get_min: u64,
}

impl<B: Buffer> Conn<B> {
    /// How long messages reach the peer at present.
    #[must_use]
    pub const fn long_messages(&self) -> LongMessages {
        LongMessages {
            eager_max: self.eager_max,
            get_min: self.get_min,
        }
    }
}

impl<B: Buffer> Engine<B> {
    /// Shows the first `most` messages that a connection has announced and that were not asked for.
    pub fn visit_announced(&mut self, id: ConnId, most: usize, visit: &mut dyn FnMut(Announced)) {
        let Some(conn) = self.conns.get_mut(id) else {
            return;
        };
        let entries = conn.indexed.entries_mut();
        let messages = entries.filter_map(|(index, entry)| Some((index, entry.message_mut()?)));
        for (index, entry) in messages.take(most) {
            visit(Announced {
                index,
                is_new: !core::mem::replace(&mut entry.seen, true),
                flags: entry.info.flags,
                len: entry.info.len,
            });
        }
    }

    /// Shows the first `most` receives of either kind that wait in a context. Returns how many receives it
    /// has.
    pub fn visit_posted(
        &mut self,
        srx: SrxId,
        most: usize,
        visit: &mut dyn FnMut(Waiting),
    ) -> usize {
        let Some(matcher) = self.srxs.get_mut(srx) else {
            return 0;
        };
        matcher.visit_posted(most, &mut |id, recv: &Recv<B>, is_new| {
            visit(Waiting {
                id,
                is_new,
                want: recv.want,
                len: recv.iov.len(),
            });
        });
        matcher.receives()
    }

    /// Shows what waits for other members of groups.
    pub fn visit_groups(&self, visit: &mut dyn FnMut(Held)) {
        self.coll.visit_held(visit);
    }

    /// Ids and values of counters.
    pub fn visit_counters(&self, visit: &mut dyn FnMut(u32, [u64; 2])) {
        for id in self.counters.ids() {
            if let Some(counter) = self.counters.get(id) {
                visit(id.number(), [counter.value, counter.errors]);
            }
        }
    }

    /// The source that a receive names, if it does and its context looks at it.
    #[must_use]
    pub fn named_source(&self, srx: SrxId, want: &Want) -> Option<FiAddr> {
        let directed = self.srxs.get(srx).is_some_and(|matcher| matcher.directed);
        (directed && want.src.is_specified()).then_some(want.src)
    }
}
