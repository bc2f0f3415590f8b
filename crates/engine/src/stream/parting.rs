//! The end of a connection for packets that has nothing to do, by agreement, so that nothing is lost with it: between two
//! of this library, where a driver has more of them than it wants.
//!
//! One side asks when it has nothing under way, and puts off what is posted from then on. Packets come in order, so when
//! the other reads that, it has read all that was sent before; if it has nothing under way either, it agrees, and all that
//! it has sent is before that. Who reads the agreement closes the connection: what either side has sent was read, which
//! matters where closing takes back what is on its way. If both ask, both agree, and either may be the first to close.

use ripstop_types::{Errno, Result};
use ripstop_wire::rxm::{Body, Parting};

use crate::Buffer;
use crate::id::ConnId;
use crate::stream::conn::Conn;
use crate::stream::engine::Engine;
use crate::stream::packet_state::{Packets, PartState};
use crate::stream::records::Output;

impl<B: Buffer> Conn<B> {
    fn part_state(&self) -> PartState {
        self.packets
            .as_ref()
            .map_or(PartState::Staying, |packets| packets.parting)
    }

    /// Whether what is posted is put off, since the connection may end.
    pub(super) const fn is_parting(&self) -> bool {
        match &self.packets {
            Some(packets) => !matches!(packets.parting, PartState::Staying),
            None => false,
        }
    }

    /// Whether this side has nothing under way.
    fn may_part(&self) -> bool {
        let owes = |packets: &Packets| !packets.expected.is_empty() || packets.served.is_some();
        !self.is_awaited() && self.owed == 0 && !self.packets.as_ref().is_some_and(owes)
    }

    /// Whether the last answer was not written yet.
    fn is_answering(&self) -> bool {
        let answered = self.packets.as_ref().map(|packets| packets.answered);
        answered.is_some_and(|answered| self.sent < answered)
    }

    fn note_answer(&mut self) {
        if let Some(packets) = &mut self.packets {
            packets.answered = self.queued;
        }
    }

    fn set_parting(&mut self, state: PartState) {
        if let Some(packets) = &mut self.packets {
            packets.parting = state;
        }
        self.settle_ready();
    }
}

impl<B: Buffer> Engine<B> {
    /// Whether the peer agrees on ends of connections.
    #[must_use]
    pub fn agrees_to_part(&self, conn_id: ConnId) -> bool {
        let packets = self
            .conns
            .get(conn_id)
            .and_then(|conn| conn.packets.as_ref());
        packets.is_some_and(|packets| packets.parts)
    }

    /// Asks the peer to end a connection, if it understands that and nothing is under way on this side; returns whether
    /// it was asked. [`Output::Parted`] follows, or nothing where the peer has something under way.
    pub fn ask_to_part(&mut self, conn_id: ConnId) -> bool {
        if !self.agrees_to_part(conn_id) || self.is_needed(conn_id) {
            return false;
        }
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return false;
        };
        let may_part = conn.up && !conn.is_parting() && conn.may_part() && conn.is_idle();
        if !may_part || conn.queue_packet(Body::Part(Parting::Ask)).is_err() {
            return false;
        }
        conn.set_parting(PartState::Asked);
        self.mark_output(conn_id);
        true
    }

    /// Whether the peer's end has to be noticed: receives name it as their only source, or it is a member of a group.
    fn is_needed(&self, conn_id: ConnId) -> bool {
        let conn = self.conns.get(conn_id);
        conn.is_some_and(|conn| {
            self.waits_for(conn.ep(), conn.src()) || self.coll.has_member(conn.ep(), conn.src())
        })
    }

    /// Whether this side has asked to end a connection, or both are to.
    #[must_use]
    pub fn is_parting(&self, conn_id: ConnId) -> bool {
        self.conns.get(conn_id).is_some_and(Conn::is_parting)
    }

    /// Whether the peer may close a connection, or has, since all that it has sent was read and it expects nothing more.
    #[must_use]
    pub fn may_be_closed(&self, conn_id: ConnId) -> bool {
        let state = self.conns.get(conn_id).map(Conn::part_state);
        matches!(state, Some(PartState::Crossed | PartState::Agreed))
    }

    pub(super) fn handle_part(&mut self, conn_id: ConnId, said: Parting) -> Result<()> {
        let is_needed = self.is_needed(conn_id);
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        if !conn.packets.as_ref().is_some_and(|packets| packets.parts) {
            return Err(Errno::EPROTO);
        }
        match (said, conn.part_state()) {
            // What is not written of answers stays bounded.
            (Parting::Ask, PartState::Staying) if conn.is_answering() => return Err(Errno::EPROTO),
            (Parting::Ask, PartState::Staying) if is_needed || !conn.may_part() => {
                conn.queue_packet(Body::Part(Parting::Stay))?;
                conn.note_answer();
                self.mark_output(conn_id);
            }
            (Parting::Ask, state @ (PartState::Staying | PartState::Asked)) => {
                conn.queue_packet(Body::Part(Parting::Agree))?;
                conn.set_parting(match state {
                    PartState::Asked => PartState::Crossed,
                    _ => PartState::Agreed,
                });
                self.mark_output(conn_id);
                if state == PartState::Staying {
                    self.output_push(Output::Parted {
                        conn: conn_id,
                        closes: false,
                    })?;
                }
            }
            (Parting::Agree, PartState::Asked | PartState::Crossed) => {
                conn.set_parting(PartState::Agreed);
                self.output_push(Output::Parted {
                    conn: conn_id,
                    closes: true,
                })?;
            }
            (Parting::Stay, PartState::Asked) => {
                conn.set_parting(PartState::Staying);
                self.wake_postponed(conn_id);
            }
            _ => return Err(Errno::EPROTO),
        }
        Ok(())
    }
}
