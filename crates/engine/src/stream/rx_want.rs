//! Where the next bytes that a connection receives go.

use crate::coll::Place;
use crate::id::{ConnId, SlotId};
use crate::stream::arriving::{RxState, Target};
use crate::stream::conn::Conn;
use crate::stream::engine::Engine;
use crate::{Buffer, Iov, Reached};

/// Where the driver puts the next bytes of the stream.
#[derive(Debug)]
pub enum RxWant<'a, B> {
    /// To [`Engine::rx_header`].
    Header,
    /// Into user memory.
    Place {
        /// Its segments.
        iov: &'a Iov<B>,
        /// Where in them the next byte goes.
        at: u64,
        /// How many bytes go there.
        len: u64,
    },
    /// Into registered memory, which others may use meanwhile.
    Store {
        /// Its segments.
        iov: &'a Reached<B>,
        /// Where in them the next byte goes.
        at: u64,
        /// How many bytes go there.
        len: u64,
    },
    /// Into a slot.
    Keep {
        /// Which one.
        slot: SlotId,
        /// How many bytes it must hold in all.
        total: u64,
        /// Where in it the next byte goes.
        at: u64,
        /// How many bytes go there.
        len: u64,
    },
    /// Nowhere; this many bytes are dropped.
    Discard(u64),
    /// Do not read: see [`Engine::pop_resumed`].
    Blocked,
    /// First do what [`Engine::job`] says.
    Job,
}

impl<B: Buffer> Engine<B> {
    /// Whether the next bytes are (part of) a header.
    #[inline]
    #[must_use]
    pub fn rx_in_header(&self, conn_id: ConnId) -> bool {
        self.conns
            .get(conn_id)
            .is_some_and(|conn| conn.rx == RxState::Header)
    }

    /// Where the next bytes go.
    #[inline]
    #[must_use]
    pub fn rx_want(&self, conn_id: ConnId) -> RxWant<'_, B> {
        let Some(conn) = self.conns.get(conn_id) else {
            return RxWant::Blocked;
        };
        match conn.rx {
            RxState::Header => RxWant::Header,
            RxState::Job => RxWant::Job,
            RxState::Blocked { .. } => RxWant::Blocked,
            RxState::Payload { target, done, left } => {
                let want = self.payload_want(conn, target, done, left);
                want.unwrap_or(RxWant::Discard(left))
            }
        }
    }

    /// Where the next bytes of a payload go, of which `at` were placed and `len` are left; `None` where
    /// they are dropped.
    #[inline(always)]
    fn payload_want<'a>(
        &'a self,
        conn: &'a Conn<B>,
        target: Target,
        at: u64,
        len: u64,
    ) -> Option<RxWant<'a, B>> {
        let place = |iov| RxWant::Place { iov, at, len };
        let want = match target {
            Target::Discard | Target::Refused => return None,
            Target::Write => RxWant::Store {
                iov: &conn.write.iov,
                at,
                len,
            },
            Target::Operands => RxWant::Keep {
                slot: conn.write.atomic.and_then(|atomic| atomic.slot)?,
                total: conn.envelope.len,
                at,
                len,
            },
            Target::Coll => match conn.incoming.place {
                Place::User(_) => place(&conn.incoming.iov),
                Place::Slot {
                    slot,
                    total,
                    at: start,
                    ..
                } => RxWant::Keep {
                    slot,
                    total,
                    at: start.saturating_add(at),
                    len,
                },
            },
            Target::Result(index) => place(&conn.indexed.get(index)?.atomic()?.result),
            Target::Read => place(&conn.reads.front()?.iov),
            Target::Unexpected(id) => {
                let message = self.unexpected.get(id)?;
                RxWant::Keep {
                    slot: message.slot?,
                    total: message.envelope.len,
                    at,
                    len,
                }
            }
            Target::Recv(id, base) => {
                let recv = self.srxs.find(conn.srx)?.recv(id)?;
                let at = base.saturating_add(at);
                let room = recv.iov.len().saturating_sub(at);
                if room == 0 {
                    return None;
                }
                RxWant::Place {
                    iov: &recv.iov,
                    at,
                    len: len.min(room),
                }
            }
        };
        Some(want)
    }
}
