//! Connections made when first needed, by either side.

use ripstop_engine::id::ConnId;
use ripstop_engine::stream::Terms;
use ripstop_engine::stream::cm::CmReader;
use ripstop_engine::stream::rdm::{Decision, Progress, decide};
use ripstop_types::{Errno, Result};
use ripstop_wire::ByteOrder;
use ripstop_wire::xnet::cm::{Extensions, Header, Kind};
use ripstop_wire::xnet::rdm::Greeting;

use super::{Accepting, Event, Node, NodeConfig, Phase, Stream};
use crate::network::{End, Nanos, Network};
use crate::tap::Tap;

/// Pause before a refused attempt is repeated.
const RETRY: Nanos = 10_000;

impl Stream {
    fn new(peer: u32, watched: bool, deadline: Nanos) -> Self {
        Self {
            peer,
            peer_pid: None,
            end: None,
            phase: Phase::Waiting(0),
            order: ByteOrder::NATIVE,
            deadline,
            dirty: true,
            write_ended: false,
            preamble: Default::default(),
            stage: Default::default(),
            inbox: Default::default(),
            tap: watched.then(Tap::default),
        }
    }
}

impl Node {
    /// Starts a connection to a peer.
    pub(super) fn connect(&mut self, net: &mut Network, peer: u32) -> Result<ConnId> {
        let conn = self.open_conn(peer)?;
        let deadline = net.now() + self.config.patience;
        let stream = Stream::new(peer, self.watches(peer), deadline);
        self.streams.insert(conn, stream);
        self.peers.insert(peer, conn);
        self.ask(net, conn);
        Ok(conn)
    }

    fn watches(&self, peer: u32) -> bool {
        !self.config.hostile.contains(&peer)
    }

    /// Opens a stream for a connection that waits, and asks for it.
    fn ask(&mut self, net: &mut Network, conn: ConnId) {
        let greeting = Greeting {
            version: u8::from(self.config.rendezvous),
            ..Greeting::request(0, self.address as u16, self.pid)
        };
        let message = self.message(Kind::Request, &greeting.emit());
        let address = self.address;
        let Some(stream) = self.streams.get_mut(&conn) else {
            return;
        };
        stream.end = Some(net.connect(address, stream.peer));
        stream.preamble = message.into();
        stream.inbox.clear();
        stream.phase = Phase::Asking(Box::default());
        stream.dirty = true;
    }

    fn message(&self, kind: Kind, data: &[u8]) -> Vec<u8> {
        let header = Header {
            extensions: spoken(&self.config),
            kind,
            host: self.config.order,
            data_len: data.len() as u16,
        };
        let mut message = header.emit().expect("short data").to_vec();
        message.extend_from_slice(data);
        message
    }

    /// Accepts streams, reads requests, and repeats attempts that failed.
    pub(super) fn progress_connecting(&mut self, net: &mut Network) -> bool {
        let mut moved = false;
        while let Some(end) = net.accept(self.address) {
            let reader = CmReader::new();
            self.accepting.push(Accepting { end, reader });
            moved = true;
        }
        for mut accepting in std::mem::take(&mut self.accepting) {
            match read_message(net, &mut accepting, &mut moved) {
                Err(Errno::EAGAIN) => self.accepting.push(accepting),
                Err(_) => {
                    net.close(accepting.end);
                    moved = true;
                }
                Ok(()) => {
                    self.handle_request(net, &accepting);
                    moved = true;
                }
            }
        }
        let now = net.now();
        let due = |stream: &Stream| matches!(stream.phase, Phase::Waiting(at) if at <= now);
        let due: Vec<ConnId> = self
            .streams
            .iter()
            .filter(|(_, stream)| due(stream))
            .map(|(conn, _)| *conn)
            .collect();
        for conn in due {
            self.ask(net, conn);
            moved = true;
        }
        moved
    }

    /// When this node next has something to do without being asked.
    #[must_use]
    pub fn next_timer(&self) -> Option<Nanos> {
        let timer = |stream: &Stream| match stream.phase {
            Phase::Waiting(at) => Some(at),
            Phase::Asking(_) | Phase::Up => None,
        };
        self.streams.values().filter_map(timer).min()
    }

    /// Somebody asks for a connection.
    fn handle_request(&mut self, net: &mut Network, accepting: &Accepting) {
        let Accepting { end, reader } = accepting;
        let Some((header, data)) = reader.message() else {
            return;
        };
        let (Kind::Request, Ok(greeting)) = (header.kind, Greeting::parse(data)) else {
            return net.close(*end);
        };
        let order = ByteOrder::negotiated(self.config.order, header.host);
        let peer = u32::from(greeting.port);
        let old = self.peers.get(&peer).copied();
        let progress = match old.and_then(|old| self.streams.get(&old)) {
            None => Progress::None,
            Some(stream) => match stream.phase {
                // Refused before: the peer has its reason to ask now.
                Phase::Waiting(_) => Progress::None,
                Phase::Asking(_) => Progress::Asking,
                Phase::Up => Progress::Up {
                    pid: stream.peer_pid,
                },
            },
        };
        let decision = decide(progress, peer.cmp(&self.address), greeting.pid);
        let waits = old.and_then(|old| self.streams.get(&old));
        let waits = waits.is_some_and(|stream| matches!(stream.phase, Phase::Waiting(_)));
        let decision = match decision {
            Decision::Accept if waits => Decision::AcceptInstead,
            decision => decision,
        };
        if decision == Decision::Refuse {
            let message = self.message(Kind::Reject, &[]);
            // Nothing was written before, so that there is room.
            let _ = net.write(*end, &message);
            return net.close(*end);
        }
        let conn = self.open_conn(peer).expect("memory");
        let mut stream = Stream::new(peer, self.watches(peer), 0);
        let answer = if self.config.rendezvous {
            greeting.answer(self.pid)
        } else {
            Greeting {
                version: 0,
                ..greeting.answer(self.pid)
            }
        };
        stream.preamble = self.message(Kind::Response, &answer.emit()).into();
        stream.end = Some(*end);
        stream.order = order;
        stream.phase = Phase::Up;
        stream.peer_pid = Some(greeting.pid);
        self.streams.insert(conn, stream);
        let granted = answer.granted().is_ok_and(|p| p.has_rendezvous());
        let agreed = agreed(&self.config, header.host, header.extensions);
        self.engine.conn_up(conn, terms(order, granted, agreed));
        // The process that is gone may have sent more than was read: the end of a stream that was
        // up is behind that, and closes it.
        let goes = match decision {
            Decision::Replace => !self.config.reads_on,
            decision => decision != Decision::Loopback,
        };
        if let Some(old) = old.filter(|_| goes) {
            // What has not touched the old stream goes over to the new one.
            self.engine.move_deferred(old, conn);
            self.events.push(Event::Moved {
                from: old,
                to: conn,
            });
            self.lost(net, old, Errno::ECONNRESET);
        }
        if decision != Decision::Loopback {
            self.peers.insert(peer, conn);
        }
        self.flush(net, conn);
    }

    /// Reads the answer to a request; returns whether the connection is not up.
    pub(super) fn shake_hands(&mut self, net: &mut Network, id: ConnId) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else {
            return true;
        };
        let Phase::Asking(reader) = &mut stream.phase else {
            return !matches!(stream.phase, Phase::Up);
        };
        while !reader.room().is_empty() {
            let Some(byte) = stream.inbox.pop_front() else {
                return true;
            };
            reader.room()[0] = byte;
            match reader.filled(1) {
                Ok(true) => break,
                Ok(false) => {}
                Err(_) => {
                    self.lost(net, id, Errno::EPROTO);
                    return true;
                }
            }
        }
        let Some((header, data)) = reader.message() else {
            return true;
        };
        let (Kind::Response, Ok(greeting)) = (header.kind, Greeting::parse(data)) else {
            self.ended(net, id, Errno::ECONNREFUSED);
            return true;
        };
        let order = ByteOrder::negotiated(self.config.order, header.host);
        let agreed = agreed(&self.config, header.host, header.extensions);
        let granted = match greeting.granted() {
            Ok(protocol) => protocol.has_rendezvous() && self.config.rendezvous,
            Err(_) => {
                self.lost(net, id, Errno::EPROTO);
                return true;
            }
        };
        stream.peer_pid = Some(greeting.pid);
        stream.order = order;
        stream.phase = Phase::Up;
        self.engine.conn_up(id, terms(order, granted, agreed));
        self.flush(net, id);
        false
    }

    /// A stream has ended: a connection that was up is lost; an attempt is repeated a little
    /// later while there is time, or the peer asks in between.
    pub(super) fn ended(&mut self, net: &mut Network, id: ConnId, error: Errno) {
        let now = net.now();
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if matches!(stream.phase, Phase::Up) || now + RETRY > stream.deadline {
            return self.lost(net, id, error);
        }
        if let Some(end) = stream.end.take() {
            net.close(end);
        }
        stream.preamble.clear();
        stream.phase = Phase::Waiting(now + RETRY);
    }
}

/// Reads a request as far as it has arrived.
fn read_message(net: &mut Network, accepting: &mut Accepting, moved: &mut bool) -> Result<()> {
    loop {
        let room = accepting.reader.room();
        if room.is_empty() {
            return Ok(());
        }
        let count = net.read(accepting.end, room)?;
        *moved = true;
        let complete = accepting.reader.filled(count);
        if complete.map_err(|error| error.errno())? {
            return Ok(());
        }
    }
}

/// The stream a node would write to a peer with; for tests that cut it.
impl Node {
    /// The stream of the connection used for a peer, if there is one.
    #[must_use]
    pub fn end_of(&self, peer: u32) -> Option<End> {
        self.streams.get(self.peers.get(&peer)?)?.end
    }
}

const fn spoken(config: &NodeConfig) -> Extensions {
    match config.extended {
        true => Extensions::ALL,
        false => Extensions::NONE,
    }
}

/// What is spoken with who sent a header that says this.
fn agreed(config: &NodeConfig, host: ByteOrder, theirs: Extensions) -> Extensions {
    let both = spoken(config).both(theirs);
    match host == config.order {
        true => both,
        false => both.without(Extensions::ATOMIC),
    }
}

const fn terms(order: ByteOrder, rendezvous: bool, extensions: Extensions) -> Terms {
    Terms {
        order,
        rendezvous,
        extensions,
    }
}
