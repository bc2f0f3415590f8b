//! What goes with a message: options of a send, and what is known of it at the end.

use ripstop_core::Address;
use ripstop_core::provider::{RecvKind, SendKind};
use ripstop_types::{AtomicKind, AtomicOp, Datatype, FiAddr, Flags, RmaIov};

use crate::error::Operation;

/// A peer in a domain's address vector, from [`Domain::insert`](crate::Domain::insert)
/// (`fi_addr_t`, man page `fi_av(3)`). Valid for all endpoints of that domain until it is
/// removed; another domain refuses it with `FI_EINVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer {
    pub(crate) addr: FiAddr,
    pub(crate) domain: u32,
}

impl Peer {
    /// The `fi_addr_t`: the peer's place in the order of insertion.
    #[must_use]
    pub const fn fi_addr(self) -> FiAddr {
        self.addr
    }
}

/// Where a received message came from (`FI_SOURCE`, `FI_SOURCE_ERR`). A message that arrived is
/// received whether or not its sender is known, or still there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A peer that the domain knew when the message was matched.
    Peer(Peer),
    /// A sender that is not in the address vector: [insert](crate::Domain::insert) this address
    /// to answer it.
    Address(Address),
    /// Not said: on a connection, where there is only one peer, for a send, by a provider
    /// without the capability, or where memory to note the sender had run out.
    Unknown,
}

/// A successful operation (man page `fi_cq(3)`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// Bytes received, from the front of the buffer; for a send, the bytes of the message.
    pub len: usize,
    /// The sender's tag, for a tagged receive.
    pub tag: Option<u64>,
    /// The sender's immediate data (`FI_REMOTE_CQ_DATA`), if it gave any.
    pub data: Option<u64>,
    /// The sender of a received message.
    pub source: Source,
}

impl Completion {
    /// The sender, if the domain knows it.
    #[must_use]
    pub const fn peer(&self) -> Option<Peer> {
        match self.source {
            Source::Peer(peer) => Some(peer),
            Source::Address(_) | Source::Unknown => None,
        }
    }
}

/// A message with more to it than bytes: tag, immediate data, and when it counts as done
/// (`struct fi_msg`, `struct fi_msg_tagged` and the flags of `fi_sendmsg`, man pages `fi_msg(3)`
/// and `fi_tagged(3)`). Nothing set, it is a plain message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct SendMsg {
    tag: Option<u64>,
    data: Option<u64>,
    flags: Flags,
}

impl SendMsg {
    /// A plain message.
    pub const fn new() -> Self {
        Self {
            tag: None,
            data: None,
            flags: Flags::empty(),
        }
    }

    /// A tagged message; only tagged receives match it.
    pub const fn tag(mut self, tag: u64) -> Self {
        self.tag = Some(tag);
        self
    }

    /// Immediate data for the peer's completion (`FI_REMOTE_CQ_DATA`).
    pub const fn data(mut self, data: u64) -> Self {
        self.data = Some(data);
        self
    }

    /// Done when the peer has the whole message, in a buffer posted for it or kept until there
    /// is one (`FI_DELIVERY_COMPLETE`).
    pub const fn delivery_complete(self) -> Self {
        self.flag(Flags::DELIVERY_COMPLETE)
    }

    /// Done when the message cannot be lost on the way any more (`FI_TRANSMIT_COMPLETE`).
    pub const fn transmit_complete(self) -> Self {
        self.flag(Flags::TRANSMIT_COMPLETE)
    }

    /// Done when the buffer may be used again (`FI_INJECT_COMPLETE`), which is the providers'
    /// default.
    pub const fn inject_complete(self) -> Self {
        self.flag(Flags::INJECT_COMPLETE)
    }

    /// Another send on this endpoint follows at once, so that the provider may hold this one
    /// back to write both together (`FI_MORE`).
    pub const fn more(self) -> Self {
        self.flag(Flags::MORE)
    }

    const fn flag(mut self, flag: Flags) -> Self {
        self.flags = self.flags.union(flag);
        self
    }

    pub(crate) const fn action(self) -> Action {
        Action::Send {
            kind: self.kind(),
            data: self.data,
            flags: if self.flags.is_empty() {
                None
            } else {
                Some(self.flags)
            },
        }
    }

    pub(crate) const fn kind(self) -> SendKind {
        match self.tag {
            Some(tag) => SendKind::Tagged(tag),
            None => SendKind::Msg,
        }
    }

    pub(crate) const fn immediate(self) -> Option<u64> {
        self.data
    }
}

/// What is asked of a provider, apart from the buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) action: Action,
    /// The peer it names, or [`FiAddr::UNSPEC`].
    pub(crate) peer: FiAddr,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// A send.
    Send {
        kind: SendKind,
        data: Option<u64>,
        flags: Option<Flags>,
    },
    /// A receive.
    Recv(RecvKind),
    /// Drops a message that has come for a receive like this.
    Discard(RecvKind),
    /// A read of a peer's memory.
    Read(Remote),
    /// A write of a peer's memory.
    Write {
        to: Remote,
        data: Option<u64>,
        flags: Flags,
    },
    /// An atomic on a peer's memory; its buffers are operands, comparisons and room for the
    /// result, each empty if there is none.
    Atomic {
        kind: AtomicKind,
        datatype: Datatype,
        op: AtomicOp,
        at: RmaIov,
    },
}

impl Request {
    pub(crate) const fn operation(&self) -> Operation {
        match self.action {
            Action::Send { kind, .. } => match kind {
                SendKind::Msg => Operation::Send,
                SendKind::Tagged(_) => Operation::TaggedSend,
            },
            Action::Recv(kind) | Action::Discard(kind) => match kind {
                RecvKind::Msg => Operation::Recv,
                RecvKind::Tagged { .. } => Operation::TaggedRecv,
            },
            Action::Read(_) => Operation::Read,
            Action::Write { .. } => Operation::Write,
            Action::Atomic { .. } => Operation::Atomic,
        }
    }

    pub(crate) const fn is_recv(&self) -> bool {
        matches!(self.action, Action::Recv(_))
    }
}

/// A place in a peer's [`Region`](crate::Region): an address and the region's key. Peers learn
/// it by message, or whatever way they find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Where: an address or an offset, as the region's owner said.
    pub addr: u64,
    /// The region's key.
    pub key: u64,
}

impl Remote {
    /// The place so many bytes on.
    #[must_use]
    pub const fn offset(self, bytes: u64) -> Self {
        Self {
            addr: self.addr.wrapping_add(bytes),
            key: self.key,
        }
    }

    pub(crate) const fn iov(self, len: u64) -> RmaIov {
        RmaIov {
            addr: self.addr,
            len,
            key: self.key,
        }
    }
}
