//! From the stream to user memory.

use ripstop_engine::Iov;
use ripstop_engine::id::ConnId;
use ripstop_engine::matching::{ENTRY, Recv, Want};
use ripstop_engine::stream::{CopyOut, RecvFlags, RxWant};
use ripstop_types::{Context, Errno, Result};

use super::{Event, Node, Phase, Slot};
use crate::memory::SimBuf;
use crate::network::Network;
use crate::tap::{Seen, Tap};

impl Node {
    /// Posts a receive.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when the queue is full.
    pub fn post_recv(&mut self, net: &mut Network, recv: Recv<SimBuf>) -> Result<()> {
        if self.config.owned {
            self.post_own(net, recv);
            return Ok(());
        }
        if let Some(id) = self.engine.post_recv(self.srx, recv)? {
            while let Some(copy) = self.engine.next_match(self.srx, id) {
                self.copy(&copy);
                // What else is to be done may be done now or later.
                if self.rng.bool() {
                    self.after(net);
                }
            }
        }
        self.after(net);
        Ok(())
    }

    /// Looks for a message.
    ///
    /// # Panics
    /// If the engine refuses.
    pub fn peek(&mut self, net: &mut Network, want: Want, context: Context, flags: RecvFlags) {
        let done = self.engine.peek(self.ep, want, context, flags);
        done.expect("the endpoint is open");
        self.after(net);
    }

    /// Receives or drops a message that was set aside.
    ///
    /// # Errors
    /// [`Errno::ENOMSG`] when none is.
    pub fn claim(&mut self, net: &mut Network, recv: Recv<SimBuf>, flags: RecvFlags) -> Result<()> {
        if let Some(copy) = self.engine.claim(self.ep, recv, flags)? {
            self.copy(&copy);
        }
        self.after(net);
        Ok(())
    }

    /// Cancels a receive.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] when it is not posted.
    pub fn cancel(&mut self, context: Context) -> Result<()> {
        match self.config.owned {
            true => self.cancel_own(context),
            false => self.engine.cancel(self.srx, Some(self.cq), context),
        }
    }

    pub(super) fn copy(&mut self, copy: &CopyOut<SimBuf>) {
        let kept = match self.slots.get(&copy.slot) {
            Some(slot) => &slot.bytes[..copy.len as usize],
            None => {
                assert_eq!(copy.len, 0, "copied from a slot that has no memory yet");
                &[]
            }
        };
        self.memory.scatter(&copy.iov, copy.at, kept);
    }

    /// Reads a connection once; returns whether anything moved.
    pub(super) fn read(&mut self, net: &mut Network, id: ConnId) -> bool {
        let Some(stream) = self.streams.get(&id) else {
            return false;
        };
        let Some(end) = stream.end else { return false };
        let up = matches!(stream.phase, Phase::Up);
        if !stream.inbox.is_empty() {
            return false;
        }
        if up && matches!(self.engine.rx_want(id), RxWant::Blocked) {
            return false;
        }
        if up && !self.engine.rx_in_header(id) && self.rng.bool() {
            return self.read_payload(net, id);
        }
        let mut bytes = vec![0; self.rng.usize(1..=600)];
        let outcome = net.read(end, &mut bytes);
        if let Ok(count) = outcome
            && let Some(stream) = self.streams.get_mut(&id)
        {
            stream.inbox.extend(&bytes[..count]);
            self.consume(net, id);
        }
        self.moved(net, id, outcome)
    }

    /// Reads payload straight to its place.
    fn read_payload(&mut self, net: &mut Network, id: ConnId) -> bool {
        let Some(end) = self.streams.get(&id).and_then(|s| s.end) else {
            return false;
        };
        let len = match self.engine.rx_want(id) {
            RxWant::Place(_, _, len)
            | RxWant::Store(_, _, len)
            | RxWant::Keep(_, _, _, len)
            | RxWant::Discard(len) => len,
            RxWant::Header | RxWant::Blocked => return false,
            RxWant::Job => panic!("a job was left"),
        };
        let mut bytes = vec![0; len.min(600) as usize];
        let outcome = net.read(end, &mut bytes);
        if let Ok(count) = outcome {
            let taken = self.place(id, &bytes[..count]);
            self.run_job(id);
            // The bytes are read: what could not be placed waits.
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.inbox.extend(&bytes[taken..count]);
            }
            self.after(net);
        }
        self.moved(net, id, outcome)
    }

    /// Hands on what was read, as far as the engine takes it.
    pub(super) fn consume(&mut self, net: &mut Network, id: ConnId) {
        if self.shake_hands(net, id) {
            return;
        }
        loop {
            self.run_job(id);
            let Some(stream) = self.streams.get_mut(&id) else {
                return;
            };
            if stream.inbox.is_empty() || !matches!(stream.phase, Phase::Up) {
                break;
            }
            let in_header = self.engine.rx_in_header(id);
            let bytes = stream.inbox.make_contiguous().to_vec();
            if in_header && self.rng.bool() && self.whole(id) {
                continue;
            }
            if in_header {
                // Handed over in pieces of any size.
                let some = self.rng.usize(1..=bytes.len());
                if let Err(error) = self.header(id, some) {
                    let _ = self.engine.wire_error();
                    return self.lost(net, id, error);
                }
                continue;
            }
            let taken = self.place(id, &bytes);
            if taken == 0 {
                break;
            }
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.inbox.drain(..taken);
            }
        }
        self.after(net);
    }

    /// Takes a small message that has arrived whole, if the engine has a place for it.
    fn whole(&mut self, id: ConnId) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else {
            return false;
        };
        let bytes = stream.inbox.make_contiguous();
        let Some(whole) = self.engine.rx_whole(id, bytes) else {
            return false;
        };
        let Some(end) = stream.end else { return false };
        let (header, rest) = bytes.split_at(whole.header_len);
        let payload = &rest[..whole.len];
        self.memory.scatter(&Iov::one(whole.memory), 0, payload);
        if let Some(tap) = &mut stream.tap {
            let seen = tap.take(stream.order, header);
            let seen = seen.expect("a whole header");
            self.events.push(Event::Header { end, seen });
            if whole.len > 0 {
                let bytes = whole.len as u64;
                self.events.push(Event::Placed { end, bytes });
            }
        }
        stream.inbox.drain(..whole.header_len + whole.len);
        true
    }

    /// Gives the engine some bytes of a header.
    fn header(&mut self, id: ConnId, some: usize) -> Result<()> {
        let stream = self.streams.get_mut(&id).ok_or(Errno::ENOTCONN)?;
        let bytes: Vec<u8> = stream.inbox.iter().copied().take(some).collect();
        let used = self.engine.rx_header(id, &bytes)?;
        assert!(used > 0, "a header takes bytes");
        stream.inbox.drain(..used);
        let end = stream.end.ok_or(Errno::ENOTCONN)?;
        let tap = stream.tap.as_mut();
        let seen = tap.and_then(|tap| tap.take(stream.order, &bytes[..used]));
        if let Some(seen) = seen.filter(|seen| *seen != Seen::Other) {
            self.events.push(Event::Header { end, seen });
        }
        Ok(())
    }

    /// Puts payload where the engine says; returns how many bytes it took.
    fn place(&mut self, id: ConnId, bytes: &[u8]) -> usize {
        let Some(stream) = self.streams.get(&id) else {
            return 0;
        };
        let (end, tap) = (stream.end, stream.tap.as_ref());
        let watched = tap.is_some_and(Tap::in_message);
        let other = tap.is_some_and(|tap| !tap.in_message());
        let short = self.is_short();
        let fit = |len: u64| usize::try_from(len).map_or(bytes.len(), |len| len.min(bytes.len()));
        let taken = match self.engine.rx_want(id) {
            RxWant::Blocked | RxWant::Header => return 0,
            RxWant::Job => panic!("a job was left"),
            RxWant::Discard(len) => fit(len),
            RxWant::Place(iov, at, len) => {
                let len = fit(len);
                self.memory.scatter(iov, at, &bytes[..len]);
                len
            }
            RxWant::Store(iov, at, len) => {
                let len = fit(len);
                self.memory.scatter(iov, at, &bytes[..len]);
                len
            }
            RxWant::Keep(slot, total, at, len) => {
                if !self.slots.contains_key(&slot) {
                    if short && at == 0 {
                        self.engine.rx_no_memory(id);
                        // A message waits; an atomic is refused.
                        return self.place(id, bytes);
                    }
                    let empty = Slot {
                        bytes: vec![0; total as usize],
                        conn: Some(id),
                        other,
                    };
                    self.slots.insert(slot, empty);
                    self.assert_bounded(id);
                }
                let slot = self.slots.entry(slot).or_default();
                assert_eq!((slot.bytes.len() as u64, slot.conn), (total, Some(id)));
                let len = fit(len);
                slot.bytes[at as usize..][..len].copy_from_slice(&bytes[..len]);
                len
            }
        };
        let bytes = taken as u64;
        if let Some(end) = end.filter(|_| watched) {
            self.events.push(Event::Placed { end, bytes });
        }
        self.engine.rx_placed(id, bytes);
        taken
    }

    /// Asserts that no more is kept for a connection, and for all, than allowed.
    fn assert_bounded(&self, id: ConnId) {
        let limits = self.config.limits;
        let (mut count, mut bytes, mut all) = (0, 0, 0);
        for slot in self.slots.values().filter(|slot| !slot.other) {
            let len = slot.bytes.len() as u64;
            all += len + ENTRY;
            if slot.conn == Some(id) {
                count += 1;
                bytes += len + ENTRY;
            }
        }
        assert!(bytes <= limits.kept_bytes, "{bytes} bytes kept");
        assert!(count <= limits.kept_messages, "{count} messages kept");
        assert!(all <= limits.kept_total, "{all} bytes kept for all");
    }
}
