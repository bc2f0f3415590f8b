//! Matching, and what becomes of receives.

use ripstop_engine::matching::{Recv, Want};
use ripstop_engine::stream::RecvFlags;
use ripstop_types::{Completion, Errno, FiAddr, Flags};

use super::{Arrived, CANARY, Expected, Host, Model, Posted, Target, blank, kind};
use crate::memory::SimBuf;
use crate::network::End;
use crate::node::Node;

impl Model {
    /// Two nodes meet: the first knows the address of the second from now on.
    pub fn learned(&mut self, host: Host, peer: u32) {
        self.known.insert((host, peer));
        let Self {
            messages,
            closed,
            sent,
            hosts,
            ..
        } = self;
        for message in messages.iter_mut() {
            let from = sent[message.sent].as_ref().map(|sent| sent.host);
            let from = from.map(|host| hosts[host].facts.address);
            if message.host == host && from == Some(peer) && !closed.contains(&message.end) {
                message.src = FiAddr(u64::from(peer));
            }
        }
    }

    /// Whether a receive takes a message.
    fn accepts(&self, host: Host, want: &Want, message: &Arrived) -> bool {
        let tag = self.sent[message.sent].as_ref().and_then(|s| s.send.tag);
        let tag_fits = match (want.tag, tag) {
            (None, None) => true,
            (Some((wanted, ignore)), Some(tag)) => (wanted ^ tag) & !ignore == 0,
            _ => false,
        };
        let any = !self.hosts[host].facts.directed || want.src == FiAddr::UNSPEC;
        tag_fits && (any || want.src == message.src)
    }

    /// The first message in line that fits; without `claim`, none that is set aside.
    fn first_waiting(&self, host: Host, want: &Want, claim: Option<usize>) -> Option<usize> {
        let waiting = self.hosts[host].unexpected.iter().copied();
        waiting
            .filter(|id| self.messages[*id].claimed == claim)
            .find(|id| self.accepts(host, want, &self.messages[*id]))
    }

    fn record(&mut self, host: Host, recv: &Recv<SimBuf>) -> usize {
        self.recvs.push(Posted {
            host,
            context: recv.context,
            iov: recv.iov,
            want: recv.want,
            completion: recv.completion,
            multi: recv.multi,
            used: 0,
            filling: 0,
            released: false,
        });
        self.recvs.len() - 1
    }

    /// A receive was posted.
    pub fn posted(&mut self, host: Host, recv: &Recv<SimBuf>) {
        let id = self.record(host, recv);
        while !self.recvs[id].released {
            let Some(message) = self.first_waiting(host, &recv.want, None) else {
                self.hosts[host].posted.push(id);
                return;
            };
            self.take(id, message);
        }
    }

    /// What must come of a receive of a message that was set aside: whether there is one.
    pub fn claimed(&mut self, host: Host, recv: &Recv<SimBuf>, flags: RecvFlags) -> bool {
        let any = Want {
            src: FiAddr::UNSPEC,
            ..recv.want
        };
        let Some(message) = self.first_waiting(host, &any, Some(recv.context)) else {
            return false;
        };
        if flags.discard {
            self.report(host, recv.context, message);
            self.drop_message(message);
        } else {
            let id = self.record(host, recv);
            self.take(id, message);
        }
        true
    }

    /// What must come of a look for a message: whether there is one.
    pub fn peeked(&mut self, host: Host, want: &Want, context: usize, flags: RecvFlags) -> bool {
        let Some(message) = self.first_waiting(host, want, None) else {
            let flags = Flags::RECV | kind(want.tag.map(|(tag, _)| tag));
            let completion = Completion {
                tag: want.tag.map_or(0, |(tag, _)| tag),
                ..blank(context, flags)
            };
            self.expect_failure(host, completion, (Errno::ENOMSG, 0, None));
            return false;
        };
        self.report(host, context, message);
        if flags.discard {
            self.drop_message(message);
        } else if flags.claim {
            self.messages[message].claimed = Some(context);
        }
        true
    }

    /// What must come of a cancel: whether the receive was there.
    pub fn cancelled(&mut self, host: Host, context: usize) -> bool {
        let posted = &mut self.hosts[host].posted;
        let recvs = &mut self.recvs;
        let Some(place) = posted.iter().position(|id| recvs[*id].context == context) else {
            return false;
        };
        let recv = &mut recvs[posted.remove(place)];
        recv.released = true;
        if recv.filling > 0 {
            // The last message on its way says that the buffer is released.
            return true;
        }
        let mut flags = Flags::RECV | kind(recv.want.tag.map(|(tag, _)| tag));
        flags.set(Flags::MULTI_RECV, recv.multi);
        let completion = Completion {
            tag: recv.want.tag.map_or(0, |(tag, _)| tag),
            ..blank(context, flags)
        };
        // As everywhere in the C library, this does not count.
        self.expect_failure(host, completion, (Errno::ECANCELED, 0, None));
        true
    }

    /// Contexts of the receives that are posted.
    #[must_use]
    pub fn posted_contexts(&self, host: Host) -> Vec<usize> {
        let posted = self.hosts[host].posted.iter();
        posted.map(|id| self.recvs[*id].context).collect()
    }

    /// Tags and set-aside contexts of the messages that wait.
    #[must_use]
    pub fn waiting(&self, host: Host) -> Vec<(Option<u64>, Option<usize>)> {
        let waiting = self.hosts[host].unexpected.iter();
        waiting
            .map(|id| {
                let message = &self.messages[*id];
                let sent = self.sent[message.sent].as_ref();
                (sent.and_then(|s| s.send.tag), message.claimed)
            })
            .collect()
    }

    /// The payload of each message that waits, with the end it came to, in order of arrival;
    /// that of a rendezvous is still at the sender.
    #[must_use]
    pub fn kept(&self, host: Host) -> Vec<(End, u64)> {
        let waiting = self.hosts[host].unexpected.iter();
        waiting
            .map(|id| match self.messages[*id].index {
                Some(_) => (self.messages[*id].end, 0),
                None => (self.messages[*id].end, self.len(*id)),
            })
            .collect()
    }

    fn len(&self, message: usize) -> u64 {
        let sent = self.sent[self.messages[message].sent].as_ref();
        sent.map_or(0, |sent| sent.payload.len() as u64)
    }

    fn is_whole(&self, message: usize) -> bool {
        !self.partial[&self.messages[message].end].contains(&message)
    }

    /// The completion of a message, without context and place.
    fn completion(&self, message: usize) -> Completion {
        let message = &self.messages[message];
        let sent = self.sent[message.sent].as_ref().expect("it was posted");
        let mut flags = Flags::RECV | kind(sent.send.tag);
        flags.set(Flags::REMOTE_CQ_DATA, sent.send.data.is_some());
        Completion {
            data: sent.send.data.unwrap_or_default(),
            tag: sent.send.tag.unwrap_or_default(),
            src: message.src,
            ..blank(0, flags)
        }
    }

    fn expect_failure(
        &mut self,
        host: Host,
        completion: Completion,
        failure: (Errno, usize, Option<u32>),
    ) {
        self.hosts[host].expected.push(Expected {
            completion,
            failure: Some(failure),
            optional: false,
        });
    }

    fn expect(&mut self, host: Host, completion: Completion) {
        self.hosts[host].expected.push(Expected {
            completion,
            failure: None,
            optional: false,
        });
    }

    /// A message is reported without being received.
    fn report(&mut self, host: Host, context: usize, message: usize) {
        let completion = Completion {
            context,
            len: self.len(message) as usize,
            ..self.completion(message)
        };
        self.expect(host, completion);
    }

    /// A message arrived: its header is complete.
    pub(super) fn arrived(&mut self, message: Arrived) {
        let (host, end, eager) = (message.host, message.end, message.index.is_none());
        let id = self.messages.len();
        let sent = message.sent;
        self.messages.push(message);
        let partial = self.partial.entry(end).or_default();
        partial.push(id);
        if eager && self.len(id) > 0 {
            self.current.insert(end, id);
        } else if eager {
            self.make_whole(id);
        }
        let posted = self.hosts[host].posted.iter().copied();
        let mut posted = posted.filter(|recv| {
            let want = &self.recvs[*recv].want;
            self.accepts(host, want, &self.messages[id])
        });
        match posted.next() {
            Some(recv) => self.take(recv, id),
            None => self.hosts[host].unexpected.push(id),
        }
        assert!(self.sent[sent].is_some());
    }

    /// The header before the payload of a rendezvous arrived.
    pub(super) fn data(&mut self, end: End, index: u8) {
        let asked = |id: &&usize| {
            let message = &self.messages[**id];
            message.index == Some(index) && message.target != Target::Unexpected
        };
        let partial = self
            .partial
            .get(&end)
            .and_then(|ids| ids.iter().find(asked));
        let id = *partial.expect("nobody asked for this payload");
        self.current.insert(end, id);
        if self.len(id) == 0 {
            self.placed(end, 0);
        }
    }

    /// Payload was put in its place.
    pub(super) fn placed(&mut self, end: End, bytes: u64) {
        let id = self.current[&end];
        let message = &mut self.messages[id];
        message.placed += bytes;
        if message.placed < self.len(id) {
            return;
        }
        self.current.remove(&end);
        self.make_whole(id);
        match self.messages[id].target {
            Target::Recv(recv, base) => self.finish(recv, base, id),
            Target::Dropped => self.messages[id].target = Target::Over,
            Target::Unexpected | Target::Over => {}
        }
    }

    fn make_whole(&mut self, id: usize) {
        let message = &self.messages[id];
        if let Some(partial) = self.partial.get_mut(&message.end) {
            partial.retain(|other| *other != id);
        }
        if let Some(sent) = &mut self.sent[message.sent] {
            sent.delivered = true;
        }
    }

    fn unlist(&mut self, id: usize) {
        let message = &self.messages[id];
        let state = &mut self.hosts[message.host];
        state.unexpected.retain(|other| *other != id);
        if let Some(sent) = &mut self.sent[message.sent] {
            sent.matched = true;
        }
    }

    /// A receive takes a message.
    fn take(&mut self, recv_id: usize, id: usize) {
        self.unlist(id);
        let len = self.len(id);
        let recv = &mut self.recvs[recv_id];
        let state = &mut self.hosts[recv.host];
        let mut base = 0;
        if recv.multi {
            let size = recv.iov.len();
            base = recv.used;
            recv.used = size.min(base + len);
            recv.filling += 1;
            recv.released = size - recv.used < state.facts.min_multi_recv.max(1);
        } else {
            recv.released = true;
        }
        if recv.released {
            state.posted.retain(|other| *other != recv_id);
        }
        self.messages[id].target = Target::Recv(recv_id, base);
        if self.is_whole(id) {
            self.finish(recv_id, base, id);
        }
    }

    /// One message fewer is on its way to a receive; returns whether that releases a
    /// multi-receive buffer.
    fn leave(&mut self, recv_id: usize) -> bool {
        let recv = &mut self.recvs[recv_id];
        if !recv.multi {
            return false;
        }
        recv.filling -= 1;
        recv.released && recv.filling == 0
    }

    /// A message is in its place.
    fn finish(&mut self, recv_id: usize, base: u64, id: usize) {
        let last = self.leave(recv_id);
        self.messages[id].target = Target::Over;
        let recv = self.recvs[recv_id].clone();
        let len = self.len(id);
        let room = recv.iov.len() - base;
        let mut completion = Completion {
            context: recv.context,
            len: len.min(room) as usize,
            buf: recv.iov.address() + base as usize,
            ..self.completion(id)
        };
        completion.flags.set(Flags::MULTI_RECV, last);
        let message = &self.messages[id];
        // Also when its connection is gone.
        let sender = self.sent[message.sent].as_ref().map(|sent| sent.host);
        let peer = sender.map(|host| self.hosts[host].facts.address);
        let stranger = message.src == FiAddr::NOTAVAIL;
        let state = &mut self.hosts[recv.host];
        state.received.push((recv_id, base, id));
        if len > room {
            state.rx.1 += 1;
            let excess = (len - room) as usize;
            self.expect_failure(recv.host, completion, (Errno::ETRUNC, excess, peer));
        } else {
            state.rx.0 += 1;
            if stranger && state.facts.source_err {
                self.expect_failure(recv.host, completion, (Errno::EADDRNOTAVAIL, 0, peer));
            } else if recv.completion || last {
                self.expect(recv.host, completion);
            }
        }
    }

    /// A message is not wanted.
    fn drop_message(&mut self, id: usize) {
        self.unlist(id);
        self.messages[id].target = if self.is_whole(id) {
            Target::Over
        } else {
            Target::Dropped
        };
    }

    /// What was arriving at an end will not.
    pub(super) fn fail_receives(&mut self, end: End, peer: u32, error: Errno) {
        self.closed.insert(end);
        self.wires.remove(&end);
        self.current.remove(&end);
        for id in self.partial.remove(&end).unwrap_or_default() {
            let target = std::mem::replace(&mut self.messages[id].target, Target::Over);
            match target {
                Target::Unexpected => {
                    let host = self.messages[id].host;
                    self.hosts[host].unexpected.retain(|other| *other != id);
                }
                Target::Recv(recv, _) => {
                    let last = self.leave(recv);
                    let (host, context) = (self.recvs[recv].host, self.recvs[recv].context);
                    let mut completion = Completion {
                        context,
                        ..self.completion(id)
                    };
                    completion.flags.set(Flags::MULTI_RECV, last);
                    self.hosts[host].rx.1 += 1;
                    self.expect_failure(host, completion, (error, 0, Some(peer)));
                }
                Target::Dropped | Target::Over => {}
            }
        }
        self.partial.insert(end, Vec::new());
    }

    /// The bytes of a message are where they belong, and no others have changed.
    pub(super) fn check_bytes(&self, node: &Node, recv: usize, base: u64, id: usize) {
        let recv = &self.recvs[recv];
        let sent = self.sent[self.messages[id].sent].as_ref();
        let sent = &sent.expect("it was posted").payload;
        let bytes = node.memory.gather(&recv.iov);
        let (before, after) = bytes.split_at(base as usize);
        let len = sent.len().min(after.len());
        assert_eq!(after[..len], sent[..len], "bytes of {id}");
        let untouched = if recv.multi {
            &bytes[recv.used as usize..]
        } else {
            assert!(before.is_empty());
            &after[len..]
        };
        assert!(
            untouched.iter().all(|byte| *byte == CANARY),
            "bytes behind {id}"
        );
    }
}
