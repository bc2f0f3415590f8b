//! A connection: one stream between two endpoints.

use ripstop_types::{FiAddr, Result};
use ripstop_wire::ByteOrder;
use ripstop_wire::rxm::MAX_UNIT_HEADER;
use ripstop_wire::xnet::base::BASE_LEN;
use ripstop_wire::xnet::cm::Extensions;

use crate::Buffer;
use crate::id::{EpId, MessageId, SlotId, SrxId};
use crate::matching::Envelope;
use crate::ring::Ring;
use crate::stream::arriving::{ArrivingWrite, Incoming, RxState, Target};
use crate::stream::awaited::{CtsEntry, IndexedTx, ReadEntry};
use crate::stream::indices::IndexTable;
use crate::stream::packet_state::Packets;
use crate::stream::request::{Posted, Postponed, TxDone, TxInfo, Wait};

/// Most bytes of a peer's name kept with a connection: its whole address.
pub const PEER_NAME: usize = crate::cq::ERROR_DATA;

/// Control messages that one plain write takes: those of as many payloads as are got by one call.
pub const CONTROLS_AT_ONCE: usize = 8;

/// The shortest payload in bytes that [`Conn::long_queued`] counts.
pub const LONG_PAYLOAD_BYTES: u64 = 4 << 10;

/// Payloads of [`LONG_PAYLOAD_BYTES`] and more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongQueued {
    /// How many were queued.
    pub payloads: u64,
    /// Their bytes in all.
    pub bytes: u64,
}

/// What is known of a connection when it is made.
#[derive(Clone, Copy, Debug)]
pub struct ConnConfig {
    /// The endpoint it belongs to.
    pub ep: EpId,
    /// The peer in the endpoint's address vector, if it is there.
    pub src: FiAddr,
    /// The peer's address, for error entries.
    pub name: [u8; PEER_NAME],
    /// How much of `name` is used.
    pub name_len: u8,
}

impl ConnConfig {
    /// The peer's address as bytes.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.name
            .get(..usize::from(self.name_len))
            .unwrap_or_default()
    }
}

/// Where bytes of the stream come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<B> {
    /// The driver's transmit buffer.
    TxBuffer,
    /// The same, and the next message does not join: control messages go out behind it.
    Sealed,
    /// User memory.
    User(B),
    /// A header of its own.
    Header([u8; BASE_LEN]),
    /// A slot, from this offset on.
    Slot(SlotId, u64),
}

/// A run of bytes of the stream to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<B> {
    pub(super) source: Source<B>,
    pub(super) len: u64,
    /// Whether a message starts here.
    pub(super) start: bool,
}

/// What to write to the stream next.
#[derive(Clone, Copy, Debug)]
pub enum Chunk<B> {
    /// The rest of a control message, or of the header of a payload.
    Control {
        /// All of it.
        header: [u8; BASE_LEN],
        /// How many bytes of it were written before.
        skip: u8,
    },
    /// This many bytes from the front of the transmit buffer, behind earlier such chunks.
    TxBuffer(usize),
    /// Bytes of user memory.
    User {
        /// The buffer.
        buffer: B,
        /// Where in it they start.
        at: usize,
        /// How many there are.
        len: usize,
    },
    /// Bytes of a slot.
    Slot {
        /// Which one.
        slot: SlotId,
        /// Where in it they start.
        at: usize,
        /// How many there are.
        len: usize,
    },
}

/// A connection's state; see [`Engine`](super::Engine) for its operations.
#[derive(Debug)]
pub struct Conn<B> {
    pub(super) config: ConnConfig,
    /// The receive context that its messages are matched in.
    pub(super) srx: Option<SrxId>,
    /// The handshake is done.
    pub(super) up: bool,
    /// Its messages are in packets.
    pub(super) packets: Option<Packets>,
    /// What is posted next need not be postponed, see [`Self::settle_ready`].
    pub(super) ready_to_send: bool,
    /// It is the sending end of an endpoint's connection to itself.
    pub(super) to_itself: bool,
    /// Messages shorter than this, of any kind, may be written before anything of them is noted, if
    /// `ready_to_send`: those of that length do not wait for their receive.
    pub(super) send_now_limit: u64,
    /// The same of injected messages, of which none is got.
    pub(super) inject_now_limit: u64,
    /// The same of messages in packets.
    pub(super) packet_now_limit: u64,
    /// What is posted next waits for what was posted before.
    pub(super) fence: bool,
    /// See [`EpConfig::after_reads`](super::EpConfig::after_reads).
    pub(super) after_reads: bool,
    /// The byte order of headers.
    pub(super) order: ByteOrder,
    /// Tagged messages longer than this wait for their receive.
    pub(super) eager_max: u64,
    /// The same, if the peer sets no limit.
    pub(super) own_eager_max: u64,
    /// Messages from this many bytes on are got by the receiver, as it has said.
    pub(super) get_min: u64,
    /// The receiver gets messages if it is asked to.
    pub(super) can_get: bool,
    /// Payloads that the receiver has got since [`Engine::take_has_peer_got`](super::Engine::take_has_peer_got).
    pub(super) got_by_peer: u8,
    /// Messages until the next trials: messages that go the other way (by the stream, or to be got), so that the receiver
    /// learns which of the two is faster.
    pub(super) get_countdown: u32,
    /// The value that it started from.
    pub(super) between_trials: u32,
    /// How many trials of the present row are still to be sent.
    pub(super) trials_left: u32,
    /// The peer was told to hold back all but short messages.
    pub(super) limits_peer: bool,
    /// What both sides have of the protocol beyond that of C peers.
    pub(super) extensions: Extensions,

    /// What is to be written, in the order of the stream.
    pub(super) segments: Ring<Segment<B>>,
    /// Bytes of the first segment that were written.
    pub(super) front_sent: u64,
    /// Bytes of the segments that are in the transmit buffer.
    pub(super) buffered: usize,
    /// The position in the stream behind the last segment; control messages do not count.
    pub(super) queued: u64,
    /// Payloads of [`LONG_PAYLOAD_BYTES`] and more that were queued.
    pub(super) long_queued: LongQueued,
    /// The position up to which the stream was written.
    pub(super) sent: u64,
    /// Operations that are queued, in the order in which their last bytes are written.
    pub(super) dones: Ring<TxDone>,
    /// Operations that were written and wait for the peer's acknowledgement, in order.
    pub(super) acks: Ring<TxInfo>,
    /// Messages whose payload waits at this side for the receiver, and atomics in packets that wait for their result.
    pub(super) indexed: IndexTable<IndexedTx<B>>,
    /// Reads whose response has not come whole, in order.
    pub(super) reads: Ring<ReadEntry<B>>,
    /// How many of them, from the oldest on, the driver has told its link of.
    pub(super) told_reads: usize,
    /// Responses to the peer's reads that have not left whole.
    pub(super) owed: u32,
    /// Bytes of those that are kept for that.
    pub(super) fetched: u64,
    /// Operations that are not queued yet, in order.
    pub(super) postponed: Ring<Postponed<B>>,
    /// Control messages, which are written before the next message.
    pub(super) control: Ring<[u8; BASE_LEN]>,
    /// Bytes of the first of them that were written.
    pub(super) control_sent: u8,

    /// The header that is arriving.
    pub(super) header: [u8; MAX_UNIT_HEADER],
    /// Bytes of it that have come.
    pub(super) header_have: u8,
    /// What the next bytes of the stream are.
    pub(super) rx: RxState,
    /// The message that is arriving.
    pub(super) envelope: Envelope,
    /// Messages of the peer whose payload waits there, and has its place here.
    pub(super) cts: IndexTable<CtsEntry>,
    /// The write or atomic that is arriving.
    pub(super) write: ArrivingWrite<B>,
    /// The payload of a member of a group that is arriving.
    pub(super) incoming: Incoming<B>,
    /// What its unexpected messages that are kept count, see [`Limits::kept_bytes`](super::Limits::kept_bytes).
    pub(super) kept: u64,
    /// How many they are.
    pub(super) kept_count: u32,
    /// Noted as waiting for room that other connections take.
    pub(super) starved: bool,
}

impl<B: Buffer> Conn<B> {
    pub(super) fn new(config: ConnConfig, srx: Option<SrxId>) -> Self {
        Self {
            srx,
            up: false,
            packets: None,
            ready_to_send: false,
            to_itself: false,
            send_now_limit: 0,
            inject_now_limit: 0,
            packet_now_limit: 0,
            fence: false,
            after_reads: false,
            order: ByteOrder::NATIVE,
            eager_max: u64::MAX,
            own_eager_max: u64::MAX,
            get_min: u64::MAX,
            can_get: false,
            got_by_peer: 0,
            get_countdown: 0,
            trials_left: 0,
            between_trials: 0,
            limits_peer: false,
            extensions: Extensions::empty(),
            segments: Ring::new(),
            front_sent: 0,
            buffered: 0,
            queued: 0,
            long_queued: LongQueued {
                payloads: 0,
                bytes: 0,
            },
            sent: 0,
            dones: Ring::new(),
            acks: Ring::new(),
            indexed: IndexTable::new(),
            reads: Ring::new(),
            told_reads: 0,
            owed: 0,
            fetched: 0,
            postponed: Ring::new(),
            control: Ring::new(),
            control_sent: 0,
            header: [0; MAX_UNIT_HEADER],
            header_have: 0,
            rx: RxState::Header,
            envelope: Envelope {
                tag: None,
                src: config.src,
                data: None,
                len: 0,
                ack: false,
            },
            cts: IndexTable::new(),
            write: ArrivingWrite::NOTHING,
            incoming: Incoming::NOTHING,
            kept: 0,
            kept_count: 0,
            starved: false,
            config,
        }
    }

    /// Says whether what is posted next may be sent now, without being queued.
    pub(super) const fn set_ready_to_send(&mut self, ready: bool) {
        self.ready_to_send = ready;
        let to_get = self.get_attention_min();
        // The header of a packet is longer than those that are put together at once.
        let limit = match ready && !self.to_itself {
            true => self.eager_max.saturating_add(1),
            false => 0,
        };
        (self.inject_now_limit, self.packet_now_limit) = match self.packets {
            None => (limit, 0),
            Some(_) => (0, limit),
        };
        self.send_now_limit = match self.inject_now_limit < to_get {
            true => self.inject_now_limit,
            false => to_get,
        };
    }

    /// Finds out whether what is posted next may be sent now.
    pub(super) const fn settle_ready(&mut self) {
        let ready =
            self.up && self.postponed.is_empty() && !self.holds_after_reads() && !self.is_parting();
        self.set_ready_to_send(ready);
    }

    /// Whether what is posted now waits for reads that are not answered, unless it is a read.
    #[must_use]
    pub const fn holds_after_reads(&self) -> bool {
        self.after_reads && !self.reads.is_empty()
    }

    /// Whether nothing but such reads stands before what is posted next.
    pub(super) const fn awaits_only_reads(&self) -> bool {
        self.up
            && self.postponed.is_empty()
            && !self.fence
            && !self.is_parting()
            && self.holds_after_reads()
    }

    /// Whether a read that is posted next may be sent now.
    pub(super) const fn may_read(&self) -> bool {
        self.ready_to_send || self.awaits_only_reads()
    }

    /// Whether the first operation that was put off has to wait for answers.
    pub(super) fn front_waits(&self) -> bool {
        match self.postponed.front().map(|postponed| postponed.wait) {
            None | Some(Wait::Turn) => false,
            Some(Wait::Reads) => !self.reads.is_empty(),
            Some(Wait::All) => self.is_fenced(),
        }
    }

    /// Tagged messages longer than this wait for their receive from now on.
    pub(super) const fn set_eager_max(&mut self, longest_eager: u64) {
        self.eager_max = longest_eager;
        self.set_ready_to_send(self.ready_to_send);
    }

    /// The endpoint it belongs to.
    #[must_use]
    pub const fn ep(&self) -> EpId {
        self.config.ep
    }

    /// The peer in the endpoint's address vector, or [`FiAddr::NOTAVAIL`].
    #[must_use]
    pub const fn src(&self) -> FiAddr {
        self.config.src
    }

    /// The peer's address as bytes.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.config.name()
    }

    /// Whether the handshake is done.
    #[inline]
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.up
    }

    /// Whether operations wait for [`Engine::start_postponed`].
    ///
    /// [`Engine::start_postponed`]: super::Engine::start_postponed
    #[inline]
    #[must_use]
    pub const fn has_postponed(&self) -> bool {
        !self.postponed.is_empty()
    }

    /// Whether something waits to be written.
    #[inline]
    #[must_use]
    pub const fn has_output(&self) -> bool {
        !self.segments.is_empty() || !self.control.is_empty()
    }

    /// Whether nothing waits to be written, and no operation is postponed.
    #[inline]
    #[must_use]
    pub const fn is_flushed(&self) -> bool {
        !self.has_output() && self.postponed.is_empty()
    }

    /// Bytes of messages not yet written.
    #[inline]
    #[must_use]
    pub const fn unsent(&self) -> u64 {
        self.queued.wrapping_sub(self.sent)
    }

    /// Reads of the peer's memory that it has not answered.
    #[must_use]
    pub const fn awaited_reads(&self) -> usize {
        self.reads.len()
    }

    /// Bytes in the transmit buffer not yet written.
    #[inline]
    #[must_use]
    pub const fn buffered(&self) -> usize {
        self.buffered
    }

    /// The payloads of [`LONG_PAYLOAD_BYTES`] and more that were queued to be written.
    #[must_use]
    pub const fn long_queued(&self) -> LongQueued {
        self.long_queued
    }

    /// Whether something waits to be written that needs no memory of the program.
    #[must_use]
    pub const fn has_injected_output(&self) -> bool {
        self.buffered > 0 || !self.control.is_empty()
    }

    /// Whether nothing but the transmit buffer waits, so that one plain write of it is enough.
    #[inline]
    #[must_use]
    pub fn only_buffered(&self) -> bool {
        self.control.is_empty()
            && self.segments.len() == 1
            && self
                .segments
                .front()
                .is_some_and(|s| matches!(s.source, Source::TxBuffer | Source::Sealed))
    }

    /// All that waits to be written, and how many bytes that is, if it is no more than
    /// [`CONTROLS_AT_ONCE`] control messages: one plain write of them is enough.
    #[must_use]
    pub fn only_control(&self) -> Option<([u8; CONTROLS_AT_ONCE * BASE_LEN], usize)> {
        let few = self.control.len() <= CONTROLS_AT_ONCE;
        if !few || !self.segments.is_empty() || self.control_sent > 0 {
            return None;
        }
        let mut bytes = [0; CONTROLS_AT_ONCE * BASE_LEN];
        let (rooms, _) = bytes.as_chunks_mut::<BASE_LEN>();
        let mut count = 0usize;
        for room in rooms {
            let Some(message) = self.control.get(count) else {
                break;
            };
            *room = message;
            count = count.wrapping_add(1);
        }
        (count > 0).then_some((bytes, count.wrapping_mul(BASE_LEN)))
    }

    /// Whether a response is arriving.
    pub(super) const fn rx_is_read(&self) -> bool {
        matches!(
            self.rx,
            RxState::Payload {
                target: Target::Read,
                ..
            }
        )
    }

    /// How much of a message of this length, whose header has come, follows that.
    pub(super) const fn payload_len(&self, message: u64) -> u64 {
        match &self.packets {
            Some(Packets {
                segment: Some(segment),
                ..
            }) => segment.len,
            _ => message,
        }
    }

    /// The rest of an unexpected message that has not come whole goes to `to`.
    pub(super) fn redirect(&mut self, id: MessageId, to: Target) {
        let unexpected = Target::Unexpected(id);
        if let RxState::Payload { target, .. } = &mut self.rx
            && *target == unexpected
        {
            *target = to;
        } else if let Some(entry) = self.cts.iter_mut().find(|cts| cts.target == unexpected) {
            entry.target = to;
        }
    }

    /// The rest of the write that is arriving goes nowhere.
    pub(super) const fn refuse_rest(&mut self) {
        if let RxState::Payload { target, .. } = &mut self.rx {
            *target = Target::Refused;
        }
    }

    /// Queues a control message, to go out at the next end of a message. Messages sent later
    /// must not move that end away.
    pub(super) fn queue_control(&mut self, bytes: [u8; BASE_LEN]) -> Result<()> {
        self.control.push(bytes)?;
        if let Some(back) = self.segments.back_mut()
            && matches!(back.source, Source::TxBuffer)
        {
            back.source = Source::Sealed;
        }
        Ok(())
    }

    /// Whether what it has to send may still be read from user memory, or what it reads is yet
    /// to be put there.
    #[must_use]
    pub const fn reads_memory(&self) -> bool {
        self.has_output()
            || !self.postponed.is_empty()
            || !self.indexed.is_empty()
            || !self.reads.is_empty()
    }

    /// Whether a message on its way goes to a posted receive.
    #[must_use]
    pub const fn fills_receives(&self) -> bool {
        let target = match self.rx {
            RxState::Payload { target, .. } => matches!(target, Target::Recv(..)),
            RxState::Header | RxState::Job | RxState::Blocked { .. } => false,
        };
        target || !self.cts.is_empty()
    }

    /// Whether the next bytes to be read begin a header.
    #[inline(always)]
    pub(super) fn at_header(&self) -> bool {
        self.rx == RxState::Header && self.header_have == 0
    }

    /// Whether nothing was posted on it, received by it or waits for it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.is_awaited() && self.at_header()
    }

    /// Whether the index of a rendezvous has two bytes.
    pub(super) const fn has_wide_indices(&self) -> bool {
        self.extensions.contains(Extensions::INDEX)
    }

    /// How many messages wait until their receiver asks for them.
    pub(super) fn announced(&self) -> u32 {
        let entries = self.indexed.entries();
        let messages = entries.filter(|(_, entry)| entry.message().is_some());
        u32::try_from(messages.count()).unwrap_or(u32::MAX)
    }

    /// Whether the peer has what this operation needs.
    pub(super) const fn has(&self, posted: &Posted<B>) -> bool {
        match posted {
            Posted::Send(_) | Posted::Rma(_) => true,
            Posted::Atomic(_) => self.has_atomics(),
            Posted::Coll(_) => self.extensions.contains(Extensions::COLL),
        }
    }

    /// Whether there is an index for one more rendezvous of this side.
    pub(super) const fn has_index(&self) -> bool {
        self.indexed.has_room(self.has_wide_indices())
    }

    /// Whether operations that were posted on it are not done.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.has_output()
            || !self.dones.is_empty()
            || !self.acks.is_empty()
            || !self.postponed.is_empty()
            || !self.indexed.is_empty()
            || !self.reads.is_empty()
            || !self.cts.is_empty()
    }
}
