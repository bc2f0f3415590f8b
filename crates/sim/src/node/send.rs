//! From a post to the stream.

use ripstop_engine::Buffer as _;
use ripstop_engine::id::ConnId;
use ripstop_engine::stream::{Chunk, Replayed, SEND_HEADER, Send, SendPlan, SmallMessage};
use ripstop_types::{Errno, Result};
use ripstop_wire::xnet::base::MAX_HEADER;

use super::{Event, Node, Phase, Slot};
use crate::memory::SimBuf;
use crate::network::Network;

impl Node {
    /// Posts a message to a peer.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when a queue is full, [`Errno::ENOMEM`].
    ///
    /// # Panics
    /// If the engine asks for something it should not.
    pub fn send(&mut self, net: &mut Network, peer: u32, send: &Send<SimBuf>) -> Result<()> {
        let conn = match self.peers.get(&peer) {
            Some(conn) => *conn,
            None => self.connect(net, peer)?,
        };
        if self.rng.bool() && self.write_at_once(net, conn, send) {
            return Ok(());
        }
        if self.rng.bool() && self.join(conn, send) {
            return Ok(());
        }
        match self.engine.send(conn, send)? {
            SendPlan::Append {
                header,
                header_len,
                inline,
            } => {
                let header = &header[..usize::from(header_len)];
                let payload = if inline {
                    self.memory.gather(&send.iov)
                } else {
                    assert!(!send.inject, "injected, and not copied");
                    Vec::new()
                };
                self.stage(conn, header, &payload, send.context);
            }
            SendPlan::Defer { slot } => {
                assert_eq!(slot.is_some(), send.inject && !send.iov.is_empty());
                if slot.is_some() && self.is_short() {
                    self.engine.take_back(conn);
                    self.after(net);
                    return Err(Errno::ENOMEM);
                }
                if let Some(slot) = slot {
                    let bytes = self.memory.gather(&send.iov);
                    self.slots.insert(slot, Slot::of(bytes));
                }
                let context = send.context;
                self.events.push(Event::Deferred { conn, context });
            }
        }
        // A driver may write at once, or put it off until more has come together.
        if self.rng.bool() {
            self.flush(net, conn);
        } else if let Some(stream) = self.streams.get_mut(&conn) {
            stream.dirty = true;
        }
        Ok(())
    }

    /// Writes a message before the engine notes anything of it, if that may be; a part of it
    /// at least.
    fn write_at_once(&mut self, net: &mut Network, id: ConnId, send: &Send<SimBuf>) -> bool {
        let mut header = [0; SEND_HEADER];
        let (tag, data, len) = (send.tag, send.data, send.iov.len());
        if send.ack || len > self.engine.longest_sent_now(send.inject) {
            return false;
        }
        let header_len = self
            .engine
            .try_send_now(Some(id), tag, data, len, &mut header);
        let Some(header_len) = header_len else {
            return false;
        };
        let Some(stream) = self.streams.get_mut(&id) else {
            return false;
        };
        let Some(end) = stream.end.filter(|_| stream.preamble.is_empty()) else {
            return false;
        };
        assert!(stream.stage.is_empty(), "something waits");
        let payload = self.memory.gather(&send.iov);
        let bytes = [&header[..header_len], &payload].concat();
        // An error shows again when the message is written the usual way.
        let Ok(count) = net.write(end, &bytes) else {
            return false;
        };
        if count < bytes.len() {
            let plan = self.engine.send_partly_written(id, send);
            assert!(matches!(plan, Ok(SendPlan::Append { inline: true, .. })));
        }
        self.stage(id, &header[..header_len], &payload, send.context);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.stage.drain(..count);
            stream.dirty |= count < bytes.len();
        }
        if count < bytes.len() {
            assert_eq!(self.engine.sent(id, count), count);
        } else {
            let (tagged, completion) = (tag.is_some(), send.completion);
            self.engine
                .sent_now(self.ep, tagged, send.context, len, completion);
        }
        true
    }

    /// Puts a small message behind those that wait to be written.
    fn join(&mut self, id: ConnId, send: &Send<SimBuf>) -> bool {
        let len = send.iov.len();
        let silent = send.inject && !send.completion;
        let noted = send.completion || silent;
        if send.ack || !noted || len > self.engine.longest_sent_now(send.inject) {
            return false;
        }
        let message = SmallMessage {
            tag: send.tag,
            data: send.data,
            len,
            context: send.context,
            completion: send.completion,
        };
        let mut header = [0; SEND_HEADER];
        let Some(header_len) = self.engine.coalesce(Some(id), &message, &mut header) else {
            return false;
        };
        let payload = self.memory.gather(&send.iov);
        self.stage(id, &header[..header_len], &payload, send.context);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.dirty = true;
        }
        true
    }

    pub(super) fn stage(&mut self, conn: ConnId, header: &[u8], payload: &[u8], context: usize) {
        let stream = self.streams.get_mut(&conn).expect("it is up");
        stream.stage.extend(header);
        stream.stage.extend(payload);
        let limit = self.config.limits.tx_buffer;
        assert!(stream.stage.len() <= limit, "more staged than fits");
        let end = stream.end.expect("it is up");
        self.events.push(Event::Staged { conn, end, context });
    }

    /// Sends one message that was accepted before the connection was up; returns whether
    /// there was one and it could be.
    fn replay(&mut self, conn: ConnId) -> bool {
        let mut header = [0; MAX_HEADER];
        match self.engine.replay(conn, &mut header) {
            Ok(None) => false,
            Err(error) => {
                assert_eq!(error, Errno::EAGAIN);
                false
            }
            Ok(Some(Replayed {
                deferred,
                header_len,
                inline,
            })) => {
                let copied = deferred.slot.and_then(|slot| self.slots.get(&slot));
                let payload = match copied {
                    Some(slot) => slot.bytes.clone(),
                    None if inline => {
                        let mut bytes = self.memory.gather(deferred.posted.iov());
                        for more in deferred.posted.more() {
                            bytes.extend(self.memory.bytes(*more));
                        }
                        bytes
                    }
                    None => Vec::new(),
                };
                assert!(inline || payload.is_empty(), "a copy that is not used");
                let header = &header[..header_len];
                self.stage(conn, header, &payload, deferred.posted.context());
                self.engine.free_slot(deferred.slot);
                while let Some(slot) = self.engine.pop_freed() {
                    self.slots.remove(&slot);
                }
                true
            }
        }
    }

    /// Writes once what a connection has; returns whether anything moved.
    pub(super) fn flush(&mut self, net: &mut Network, id: ConnId) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else {
            return false;
        };
        let Some(end) = stream.end.filter(|_| !stream.write_ended) else {
            stream.dirty = false;
            return false;
        };
        stream.dirty = true;
        if !stream.preamble.is_empty() {
            let bytes = stream.preamble.make_contiguous();
            let written = net.write(end, bytes);
            if let Ok(count) = written {
                stream.preamble.drain(..count);
            }
            return self.wrote(net, id, written);
        }
        if !matches!(stream.phase, Phase::Up) {
            return false;
        }
        let Some(conn) = self.engine.conn(id) else {
            return false;
        };
        if !conn.has_output() {
            stream.dirty = false;
            let replayed = conn.has_deferred() && self.replay(id);
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.dirty = replayed;
            }
            return replayed;
        }
        assert_eq!(conn.buffered(), stream.stage.len());
        let mut chunks = [Chunk::TxBuffer(0); 8];
        let room = self.rng.usize(1..=chunks.len());
        let only_staged = conn.only_buffered();
        let count = self.engine.transmit(id, &mut chunks[..room]);
        let mut bytes = Vec::new();
        let mut from_stage = Vec::new();
        let mut stage = stream.stage.iter().copied();
        for chunk in &chunks[..count] {
            let before = bytes.len();
            match chunk {
                Chunk::Control(control, skip) => bytes.extend(&control[usize::from(*skip)..]),
                Chunk::TxBuffer(len) => bytes.extend(stage.by_ref().take(*len)),
                Chunk::Kept(slot, skip, len) => {
                    bytes.extend(&self.slots[slot].bytes[*skip..*skip + *len]);
                }
                Chunk::User(buf, skip, len) => {
                    let part = buf.part(*skip, *len);
                    assert_eq!(part.len(), *len, "outside of the buffer");
                    bytes.extend(self.memory.bytes(part));
                }
            }
            let is_stage = matches!(chunk, Chunk::TxBuffer(_));
            from_stage.extend((before..bytes.len()).map(|_| is_stage));
        }
        assert!(!bytes.is_empty(), "it said it has output");
        assert!(!only_staged || bytes.len() == stream.stage.len());
        let written = net.write(end, &bytes);
        if let Ok(count) = written {
            let staged = self.engine.sent(id, count);
            let expected = from_stage[..count].iter().filter(|is| **is).count();
            assert_eq!(staged, expected);
            stream.stage.drain(..staged);
        }
        self.wrote(net, id, written)
    }

    /// Handles the outcome of a write: a stream that is up is read to its end.
    fn wrote(&mut self, net: &mut Network, id: ConnId, outcome: Result<usize>) -> bool {
        let failed = self.config.reads_on && outcome.is_err_and(|error| error != Errno::EAGAIN);
        match self.streams.get_mut(&id) {
            Some(stream) if failed && matches!(stream.phase, Phase::Up) => {
                stream.write_ended = true;
                true
            }
            _ => self.moved(net, id, outcome),
        }
    }

    /// Handles the outcome of a write or read.
    pub(super) fn moved(&mut self, net: &mut Network, id: ConnId, outcome: Result<usize>) -> bool {
        match outcome {
            Ok(count) => count > 0,
            Err(Errno::EAGAIN) => false,
            Err(error) => {
                self.ended(net, id, error);
                true
            }
        }
    }

    /// Whether there is no memory just now.
    pub(super) fn is_short(&mut self) -> bool {
        self.rng.u8(..) < self.config.shortage
    }
}
