//! What a domain tells other processes of itself: a snapshot of its endpoints, its peers and what it
//! waits for, as bytes (`docs/design/status-page.md`). Whoever decodes may be given anything.

mod field;
#[cfg(test)]
mod tests;

pub use field::Malformed;

use field::{Field, Input, fieldless, record};

use crate::provider::Copied;

/// The most bytes that a snapshot has.
pub const MAX_SNAPSHOT: usize = 60 << 10;

/// Peers in a snapshot, at most.
pub const MAX_PEERS: usize = 128;

/// Waits in a snapshot, at most.
pub const MAX_WAITS: usize = 64;

/// Endpoints, counters and queues in a snapshot, at most, of each.
pub const MAX_OBJECTS: usize = 32;

fieldless! {
    /// How far a connection has come.
    pub enum PeerState {
        /// An attempt waits to be repeated, or for the peer to connect.
        Waiting = 0,
        /// A connection is being made.
        Connecting = 1,
        /// The peer has been asked and has not answered.
        Asked = 2,
        /// Messages flow.
        Up = 3,
        /// Too many messages of the peer wait for receives: it is not read.
        Full = 4,
    }
}

fieldless! {
    /// What an operation waits for.
    pub enum WaitKind {
        /// A receive that names its source.
        Receive = 0,
        /// Receives of any source.
        AnyReceive = 1,
        /// A message that is announced: the receiver has no receive for it, or makes no progress.
        Announced = 2,
        /// Bytes for which the peer has no room.
        Unsent = 3,
        /// Messages of the peer wait for receives, too many of them.
        Unread = 4,
        /// A connection.
        Connecting = 5,
        /// A read that is not answered, or what is to be acknowledged.
        Answer = 6,
        /// A group that others have not joined.
        Join = 7,
        /// A collective operation for which others have not come so far.
        Collective = 8,
        /// Work that is below its threshold.
        Threshold = 9,
        /// The rest of a message that a receive has matched.
        Arriving = 10,
    }
}

record! {
    /// An endpoint.
    pub struct Endpoint {
        /// Its number in the domain.
        pub id: u32,
        /// Its address, as in log lines; empty while it has none.
        pub name: String,
        /// Whether it is connected (`FI_EP_MSG`).
        pub is_msg: bool,
        /// Operations that it has started and that are not done.
        pub outstanding: u64,
        /// Receives that are posted or being filled, in its own context or the shared one it uses.
        pub receives: u64,
    }
}

record! {
    /// A peer that there is a connection with.
    pub struct Peer {
        /// The endpoint, by its number.
        pub endpoint: u32,
        /// Its address, as in log lines.
        pub name: String,
        /// Its process, once it has said so.
        pub pid: Option<u32>,
        /// How far the connection has come.
        pub state: PeerState,
        /// By which way bytes go: `ring` or `socket`, behind the provider's name in a domain that uses
        /// several.
        pub way: String,
        /// The protocol of long messages.
        pub protocol: String,
        /// What was sent and received, where that is known.
        pub traffic: Option<Traffic>,
        /// By which way long payloads went.
        pub ways: Ways,
        /// Bytes that wait to be written.
        pub queued: u64,
        /// Messages of the peer that wait here for a receive.
        pub unexpected: u32,
        /// How long its oldest operation has waited, in ns.
        pub oldest: Option<u64>,
        /// For how long its machine has answered nothing of what is sent again and again, in ns; `None` as
        /// long as the network seems to carry it.
        pub silence: Option<u64>,
    }
}

record! {
    /// What has gone over a connection.
    pub struct Traffic {
        /// What is counted: `bytes`, or `entries` of a ring, each of which has a small message or a part
        /// of a longer one.
        pub unit: String,
        /// Sent since it was made.
        pub sent: u64,
        /// Received since it was made.
        pub received: u64,
    }
}

record! {
    /// A counter (`fi_cntr(3)`).
    #[derive(Copy)]
    pub struct Counter {
        /// Its number in the domain.
        pub id: u32,
        /// Successes, or bytes.
        pub value: u64,
        /// Errors.
        pub errors: u64,
    }
}

record! {
    /// A completion queue.
    #[derive(Copy)]
    pub struct Queue {
        /// Its number in the domain.
        pub id: u32,
        /// Entries that the program has not read.
        pub entries: u64,
    }
}

record! {
    /// By which way long payloads went, those that [`Copies`](crate::provider::Copies) counts; in a connection all of
    /// them, in a domain where there are several ways.
    #[derive(Copy)]
    pub struct Ways {
        /// Through a ring or socket.
        pub stream: Copied,
        /// Through memory that both sides map.
        pub mapped: Copied,
        /// By cross-memory attach.
        pub attach: Copied,
    }
}

impl Field for Copied {
    fn put(&self, out: &mut Vec<u8>) {
        self.payloads.put(out);
        self.bytes.put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            payloads: Field::take(input)?,
            bytes: Field::take(input)?,
        })
    }
}

record! {
    /// An operation that waits, or several that wait for the same.
    pub struct Wait {
        /// For what.
        pub kind: WaitKind,
        /// The endpoint, by its number.
        pub endpoint: u32,
        /// The call that has posted it.
        pub call: String,
        /// The peer, if it is for one.
        pub peer: Option<String>,
        /// Its process, if that is known.
        pub pid: Option<u32>,
        /// The tag, and the bits of it that do not matter.
        pub tag: Option<Tag>,
        /// Its length in bytes.
        pub len: u64,
        /// For how long, in ns.
        pub age: u64,
        /// How many wait so, with this one.
        pub count: u32,
        /// More about it: the operation of a group, or what a counter is at.
        pub note: String,
    }
}

record! {
    /// What a receive looks at in a tag.
    #[derive(Copy)]
    pub struct Tag {
        /// The tag.
        pub tag: u64,
        /// The bits that do not matter.
        pub ignore: u64,
    }
}

record! {
    /// A domain, at one moment.
    pub struct Snapshot {
        /// The provider.
        pub provider: String,
        /// The program.
        pub program: String,
        /// The number that a launcher gave to the process.
        pub rank: Option<u32>,
        /// Whether a thread of the library makes progress when the program does not.
        pub has_thread: bool,
        /// The program may sleep on a descriptor that it was lent.
        pub sleeps_outside: bool,
        /// Its endpoints.
        pub endpoints: Vec<Endpoint>,
        /// Peers, those that are waited for first.
        pub peers: Vec<Peer>,
        /// How many there are in all.
        pub all_peers: u32,
        /// What waits, the oldest first.
        pub waits: Vec<Wait>,
        /// How many there are in all.
        pub all_waits: u32,
        /// Counters.
        pub counters: Vec<Counter>,
        /// Completion queues.
        pub queues: Vec<Queue>,
        /// Ways of long payloads.
        pub ways: Option<Ways>,
    }
}

impl Snapshot {
    /// As bytes, at most [`MAX_SNAPSHOT`]: what does not fit is left out, peers and waits from the end.
    #[must_use]
    pub fn encode(&mut self) -> Vec<u8> {
        self.endpoints.truncate(MAX_OBJECTS);
        self.counters.truncate(MAX_OBJECTS);
        self.queues.truncate(MAX_OBJECTS);
        self.peers.truncate(MAX_PEERS);
        self.waits.truncate(MAX_WAITS);
        loop {
            let mut bytes = Vec::new();
            self.put(&mut bytes);
            if bytes.len() <= MAX_SNAPSHOT {
                return bytes;
            }
            // Names are bounded, so that this ends with what does fit.
            self.peers.truncate(self.peers.len() / 2);
            self.waits.truncate(self.waits.len() * 3 / 4);
        }
    }

    /// What [`Snapshot::encode`] gave. The bytes may be anything, and take no more memory than a
    /// small multiple of their number.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut input = Input::new(bytes);
        let snapshot = Self::take(&mut input)?;
        input.end()?;
        Ok(snapshot)
    }
}

impl Wait {
    /// What would end it.
    #[must_use]
    pub const fn ends_by(&self) -> &'static str {
        match self.kind {
            WaitKind::Receive => "a message of that peer",
            WaitKind::AnyReceive => "a message of any peer",
            WaitKind::Announced => "a receive that the peer posts for it",
            WaitKind::Unsent => "the peer reading what it was sent",
            WaitKind::Unread => "receives that this process posts for them",
            WaitKind::Connecting => "the peer making progress at that address",
            WaitKind::Answer => "the peer making progress",
            WaitKind::Join => "that member joining the same group",
            WaitKind::Collective => "that member calling the same operation",
            WaitKind::Threshold => "the counter reaching the threshold",
            WaitKind::Arriving => "the peer sending the rest",
        }
    }

    /// The call with what it is about.
    #[must_use]
    pub fn text(&self) -> String {
        use core::fmt::Write as _;

        let mut text = self.call.clone();
        let mut about = Vec::new();
        match self.tag {
            Some(Tag { tag, ignore: 0 }) => about.push(format!("tag {tag:#x}")),
            Some(Tag { tag, ignore }) => about.push(format!("tag {tag:#x}, ignoring {ignore:#x}")),
            None => {}
        }
        if self.len > 0 {
            about.push(format!("{} bytes", self.len));
        }
        if self.count > 1 {
            let unit = match self.kind {
                WaitKind::Unread => "messages",
                _ => "operations",
            };
            about.push(format!("{} {unit}", self.count));
        }
        if !self.note.is_empty() {
            about.push(self.note.clone());
        }
        if !about.is_empty() {
            // Text takes whatever is written.
            let _ = write!(text, " ({})", about.join(", "));
        }
        if let Some(peer) = &self.peer {
            let word = match self.kind {
                WaitKind::Receive
                | WaitKind::AnyReceive
                | WaitKind::Unread
                | WaitKind::Arriving => "from",
                WaitKind::Join | WaitKind::Collective => "with",
                _ => "to",
            };
            let _ = write!(text, " {word} {peer}");
        }
        text
    }
}
