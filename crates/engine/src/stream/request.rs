//! What is posted: messages, reads, writes, atomics and the steps of collectives, and what is kept of
//! them while they wait for their connection.

use ripstop_types::{AtomicKind, AtomicOp, Context, Datatype, Errno, Flags, Result};
use ripstop_wire::xnet::base::{MAX_RMA, RmaIovs};

use crate::coll::{Message, Place};
use crate::id::{CollOpId, MrId, SlotId};
use crate::{Buffer, Iov};

/// What a one-sided operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmaKind {
    /// Fetches the peer's memory.
    Read,
    /// Changes the peer's memory.
    Write,
    /// An atomic, which is posted in its own way.
    Atomic,
}

/// What marks the completion flags of one-sided operations.
pub(super) const ONE_SIDED: Flags = Flags::RMA.union(Flags::ATOMIC);

/// When a write is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// When its last byte has been given to the stream.
    #[default]
    Sent,
    /// When the peer has placed it.
    Delivered,
    /// When the peer has made it durable.
    Committed,
}

/// A read or write to be posted.
#[derive(Clone, Copy, Debug)]
pub struct Rma<B> {
    /// Which of the two.
    pub kind: RmaKind,
    /// The local memory.
    pub iov: Iov<B>,
    /// The peer's, of the same length in all.
    pub remote: RmaIovs,
    /// Remote CQ data of a write.
    pub data: Option<u64>,
    /// The caller's context.
    pub context: Context,
    /// Whether success is reported.
    pub completion: bool,
    /// The payload of a write must be copied before the call returns.
    pub inject: bool,
    /// When a write is done.
    pub level: Level,
    /// As [`Send::work`](super::Send::work).
    pub work: bool,
}

impl<B: Buffer> Rma<B> {
    /// As [`Send::is_silent`](super::Send::is_silent).
    #[inline(always)]
    #[must_use]
    pub const fn is_silent(&self) -> bool {
        self.inject && !self.completion
    }

    pub(super) fn info(&self) -> TxInfo {
        TxInfo {
            context: self.context,
            flags: match self.kind {
                RmaKind::Read => marked(Flags::RMA.union(Flags::READ), self.work),
                RmaKind::Write | RmaKind::Atomic => {
                    marked(Flags::RMA.union(Flags::WRITE), self.work)
                }
            },
            completion: self.completion,
            ack: self.level != Level::Sent,
            len: self.iov.len(),
        }
    }
}

/// Most bytes of memory that one atomic changes.
pub const MAX_ATOMIC: usize = 64 * 1024;

/// An atomic to be posted.
#[derive(Clone, Copy, Debug)]
pub struct Atomic<B> {
    /// Whether it fetches, and compares.
    pub kind: AtomicKind,
    /// What the memory holds.
    pub datatype: Datatype,
    /// What is done with it.
    pub op: AtomicOp,
    /// The operands; none for [`AtomicOp::AtomicRead`].
    pub operand: Iov<B>,
    /// What to compare with, or masks; as long as the operands.
    pub compare: Iov<B>,
    /// Where to put what was there before, for those that fetch.
    pub result: Iov<B>,
    /// The peer's memory.
    pub remote: RmaIovs,
    /// Remote CQ data.
    pub data: Option<u64>,
    /// The caller's context.
    pub context: Context,
    /// Whether success is reported.
    pub completion: bool,
    /// The operands must be copied before the call returns.
    pub inject: bool,
    /// When it is done; one that fetches is never done before it is delivered.
    pub level: Level,
    /// As [`Send::work`](super::Send::work).
    pub work: bool,
}

impl<B: Buffer> Atomic<B> {
    /// As [`Send::is_silent`](super::Send::is_silent).
    #[inline(always)]
    #[must_use]
    pub const fn is_silent(&self) -> bool {
        self.inject && !self.completion
    }

    pub(super) fn info(&self) -> TxInfo {
        let fetches = self.kind != AtomicKind::Plain;
        TxInfo {
            context: self.context,
            flags: match fetches {
                true => marked(Flags::ATOMIC.union(Flags::READ), self.work),
                false => marked(Flags::ATOMIC.union(Flags::WRITE), self.work),
            },
            completion: self.completion,
            ack: !fetches && self.level != Level::Sent,
            len: self.remote.total_len().unwrap_or_default(),
        }
    }

    /// Whether [`Engine::atomic`](super::Engine::atomic) would find nothing wrong with it.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.check().is_ok()
    }

    /// Whether the lengths fit each other, the kind and the datatype.
    pub(super) fn check(&self) -> Result<()> {
        if !self.kind.allows(self.op, self.datatype) {
            return Err(Errno::EOPNOTSUPP);
        }
        let len = self.remote.total_len()?;
        let size = self.datatype.size() as u64;
        let whole = |len: u64| len.checked_rem(size) == Some(0);
        if len == 0 || !self.remote.as_slice().iter().all(|iov| whole(iov.len)) {
            return Err(Errno::EINVAL);
        }
        if len > MAX_ATOMIC as u64 {
            return Err(Errno::EMSGSIZE);
        }
        let lengths = (self.operand.len(), self.compare.len(), self.result.len());
        let expected = match (self.kind, self.op) {
            (AtomicKind::Plain, _) => (len, 0, 0),
            (AtomicKind::Fetch, AtomicOp::AtomicRead) => (0, 0, len),
            (AtomicKind::Fetch, _) => (len, 0, len),
            (AtomicKind::Compare, _) => (len, len, len),
        };
        if lengths == expected {
            Ok(())
        } else {
            Err(Errno::EINVAL)
        }
    }
}

/// A message to a member, to be posted.
#[derive(Clone, Copy, Debug)]
pub struct CollSend<B> {
    pub(super) message: Message,
    /// The operation that is told when it has left, if any.
    pub(super) op: Option<CollOpId>,
    /// Its payload, unless that is in a slot.
    pub iov: Iov<B>,
    /// The slot with its payload and where it begins there.
    pub kept: Option<(SlotId, u64)>,
}

impl<B: Buffer> CollSend<B> {
    pub(super) fn new(message: Message, op: Option<CollOpId>, payload: &Place<B>) -> Self {
        let (iov, kept) = match payload {
            Place::User(buffer) => (Iov::one(*buffer), None),
            Place::Slot { slot, at, .. } => (Iov::EMPTY, Some((*slot, *at))),
        };
        Self {
            message,
            op,
            iov,
            kept,
        }
    }

    /// Bytes of payload.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.message.len
    }

    /// Whether there is no payload.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.message.len == 0
    }

    pub(super) const fn info(&self) -> TxInfo {
        TxInfo {
            context: CollOpId::place(self.op),
            flags: Flags::COLLECTIVE,
            completion: false,
            ack: false,
            len: self.message.len,
        }
    }
}

/// A message to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Send<B> {
    /// The tag of a tagged message.
    pub tag: Option<u64>,
    /// Remote CQ data.
    pub data: Option<u64>,
    /// The payload.
    pub iov: Iov<B>,
    /// The caller's context.
    pub context: Context,
    /// Whether success is reported.
    pub completion: bool,
    /// The payload must be copied before the call returns.
    pub inject: bool,
    /// Done only when the peer has acknowledged (transmit and delivery complete).
    pub ack: bool,
    /// The context is the id of deferred work ([`Engine::open_work`](super::Engine::open_work)), and `completion` is set.
    pub work: bool,
}

impl<B: Buffer> Send<B> {
    /// Whether it is injected and has no completion: nothing but the return of its call says that it is sent.
    #[inline(always)]
    #[must_use]
    pub const fn is_silent(&self) -> bool {
        self.inject && !self.completion
    }

    #[inline]
    pub(super) fn info(&self) -> TxInfo {
        TxInfo {
            context: self.context,
            flags: marked(tx_flags(self.tag.is_some()), self.work),
            completion: self.completion,
            ack: self.ack,
            len: self.iov.len(),
        }
    }
}

/// The longest header of a message, in bytes: with completion data, tag and rendezvous size.
pub const SEND_HEADER: usize = 40;

/// What was posted.
#[derive(Clone, Copy, Debug)]
pub enum Posted<B> {
    /// A message.
    Send(Send<B>),
    /// A read or write.
    Rma(Rma<B>),
    /// An atomic.
    Atomic(Atomic<B>),
    /// A message to a member of a group.
    Coll(CollSend<B>),
}

impl<B: Buffer> Posted<B> {
    /// The memory it sends from, or reads into.
    #[must_use]
    pub const fn iov(&self) -> &Iov<B> {
        match self {
            Self::Send(send) => &send.iov,
            Self::Rma(rma) => &rma.iov,
            Self::Atomic(atomic) => &atomic.operand,
            Self::Coll(send) => &send.iov,
        }
    }

    /// What it sends behind that.
    #[must_use]
    pub fn more(&self) -> &[B] {
        match self {
            Self::Send(_) | Self::Rma(_) | Self::Coll(_) => &[],
            Self::Atomic(atomic) => atomic.compare.segments(),
        }
    }

    /// What it sends from a slot instead: the slot, and where it begins there.
    #[must_use]
    pub const fn kept(&self) -> Option<(SlotId, u64, u64)> {
        match self {
            Self::Coll(send) => match send.kept {
                Some((slot, at)) => Some((slot, at, send.len())),
                None => None,
            },
            Self::Send(_) | Self::Rma(_) | Self::Atomic(_) => None,
        }
    }

    /// The caller's context.
    #[must_use]
    pub const fn context(&self) -> Context {
        match self {
            Self::Send(send) => send.context,
            Self::Rma(rma) => rma.context,
            Self::Atomic(atomic) => atomic.context,
            Self::Coll(send) => send.info().context,
        }
    }

    /// Whether an order after reads is about it: messages, and what changes the peer's memory.
    pub(super) const fn follows_reads(&self) -> bool {
        match self {
            Self::Send(_) | Self::Atomic(_) => true,
            Self::Rma(rma) => !matches!(rma.kind, RmaKind::Read),
            Self::Coll(_) => false,
        }
    }

    /// Whether nothing but the return of its call says that it is sent, so that there is nothing to cancel.
    pub(super) const fn is_silent(&self) -> bool {
        match self {
            Self::Send(send) => send.is_silent(),
            Self::Rma(rma) => rma.is_silent(),
            Self::Atomic(atomic) => atomic.is_silent(),
            Self::Coll(_) => false,
        }
    }

    /// Whether its payload must be copied before the call that posts it returns.
    pub(super) const fn is_injected(&self) -> bool {
        match self {
            Self::Send(send) => send.inject,
            Self::Rma(rma) => rma.inject,
            Self::Atomic(atomic) => atomic.inject,
            Self::Coll(_) => false,
        }
    }

    pub(super) fn info(&self) -> TxInfo {
        match self {
            Self::Send(send) => send.info(),
            Self::Rma(rma) => rma.info(),
            Self::Atomic(atomic) => atomic.info(),
            Self::Coll(send) => send.info(),
        }
    }
}

/// An operation that was accepted and is not queued yet: its connection is not up, what was posted before it
/// is to be done first (`FI_FENCE`, orders after reads), or another one before it is postponed.
#[derive(Clone, Copy, Debug)]
pub struct Postponed<B> {
    /// The operation.
    pub posted: Posted<B>,
    /// Where its payload was copied, if it was.
    pub slot: Option<SlotId>,
    /// What it waits for.
    pub(super) wait: Wait,
}

/// What an operation that was put off waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Those put off before it, or the connection.
    Turn,
    /// The answers to all reads before it as well (`FI_ORDER_WAR`, `FI_ORDER_SAR`).
    Reads,
    /// All that was posted before it to be done at the peer (`FI_FENCE`).
    All,
}

/// The regions that one operation of a peer uses.
pub(super) type Regions = [Option<MrId>; MAX_RMA as usize];

pub(super) const NO_REGIONS: Regions = [None; MAX_RMA as usize];

/// What becomes of an operation when its bytes have left.
#[derive(Clone, Copy, Debug)]
pub(super) struct TxInfo {
    pub(super) context: Context,
    pub(super) flags: Flags,
    pub(super) completion: bool,
    pub(super) ack: bool,
    pub(super) len: u64,
}

/// An operation that is done when the stream position `end` has been sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct TxDone {
    pub(super) end: u64,
    pub(super) info: TxInfo,
}

impl TxDone {
    pub(super) const BLANK: Self = Self {
        end: 0,
        info: TxInfo {
            context: 0,
            flags: Flags::empty(),
            completion: false,
            ack: false,
            len: 0,
        },
    };
}

/// The flags of an operation that may be one of deferred work.
#[inline]
pub(super) const fn marked(flags: Flags, work: bool) -> Flags {
    if work { flags.union(WORK) } else { flags }
}

#[inline]
pub(super) const fn tx_flags(tagged: bool) -> Flags {
    if tagged {
        Flags::SEND.union(Flags::TAGGED)
    } else {
        Flags::SEND.union(Flags::MSG)
    }
}

/// What the driver must do for a message that was accepted.
#[derive(Clone, Copy, Debug)]
pub enum SendPlan {
    /// Append the header, and the payload too if `inline`, to the connection's transmit buffer.
    Append {
        /// The header.
        header: [u8; SEND_HEADER],
        /// Its length in bytes.
        header_len: u8,
        /// Whether the payload follows in the transmit buffer.
        inline: bool,
    },
    /// As `Append`, with the header of [`Engine::packet`](super::Engine::packet).
    Packet {
        /// What it is called until its receiver has read it, if it is too long for one packet.
        index: Option<u16>,
        /// Whether the payload follows in the transmit buffer.
        inline: bool,
    },
    /// The connection is not up yet, or an earlier operation is postponed (see [`Postponed`]). If this names a
    /// slot, copy the payload there; the message is sent when its turn comes, by
    /// [`Engine::start_postponed`](super::Engine::start_postponed). Without memory for it, call [`Engine::take_back`](super::Engine::take_back).
    Postpone {
        /// The slot, if the payload is copied.
        slot: Option<SlotId>,
    },
}

/// What marks operations that are not just messages.
pub(super) const RARE: Flags = ONE_SIDED
    .union(WORK)
    .union(Flags::COLLECTIVE)
    .union(CANCELLED);

/// Marks, in the flags of an operation that was posted, that its context is the id of deferred
/// work. It belongs to the range of `Flags` that the interface leaves to providers, and is never
/// reported.
pub(super) const WORK: Flags = Flags::from_bits_retain(1 << 62);

/// Marks, in the flags of an operation that is under way, that the program has cancelled it: should
/// it fail, its error is `FI_ECANCELED`. As [`WORK`], it is never reported.
pub(super) const CANCELLED: Flags = Flags::from_bits_retain(1 << 61);
