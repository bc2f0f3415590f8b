//! A queue pair with its buffers: what a link writes goes out by it, and what arrives is read from it.

mod packets;
mod reads;
mod receives;
mod units;
mod writes;

use packets::Sending;
use receives::{RECEIVES, front_alone};
use units::{ComingUnit, SendingUnit};
pub(crate) use writes::DIRECT_MIN;
use writes::Writing;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use ripstop_core::log::Subsys;
use ripstop_core::{fi_info, fi_warn};
use ripstop_ibverbs::{
    CmId, CompletionChannel, Cq, Mr, Operation, Qp, QpCap, RecvArea, Remote, SendArea, SendFlags,
    SendRequest, Sge, Status, Wc, WcKind,
};
use ripstop_mem::{UserBuf, copy_in};
use ripstop_os::{IoVec, IoVecMut};
use ripstop_types::{Errno, Result};
use ripstop_wire::ByteOrder;
use ripstop_wire::rxm::{BASE_LEN, Body, MESSAGE_LEN, Packet, PacketKind};
use ripstop_wire::xnet::base;

use crate::rxm::NAME;
use crate::rxm::credits::Credits;
use crate::rxm::devices::Opened;
use crate::rxm::ear::Ear;
use crate::rxm::incoming::{Inbox, Incoming};
use crate::rxm::outgoing::{Started, UnitHeader};
use crate::rxm::params::Params;
use crate::watch::Of;

/// What a connection has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// The longest packet in bytes.
    packet_max: usize,
    /// Bytes from one buffer of an area to the next.
    stride: usize,
    /// Receives, each with a buffer for one packet.
    receives: u16,
    /// Buffers for packets and writes that are under way.
    sends: u16,
    /// Room in the queue of requests to send, without that for credits.
    requests: u16,
    /// Most bytes of a packet or write that are to go inline (`FI_VERBS_INLINE_SIZE`); 0 for as many as the device takes.
    inline: usize,
}

impl Shape {
    /// What the parameters say.
    pub(crate) fn new(params: &Params) -> Self {
        let settings = &params.rxm;
        let packet_max = BASE_LEN + settings.eager_max as usize;
        Self {
            packet_max,
            stride: packet_max.next_multiple_of(64),
            receives: settings.msg_rx_size,
            sends: (settings.msg_tx_size / 4).max(1),
            requests: settings.msg_tx_size,
            inline: params.verbs.inline_size,
        }
    }

    const fn buffer_at(&self, slot: u16) -> usize {
        slot as usize * self.stride
    }

    /// So many receives whose packets were read are posted again at once: few enough that the peer never lacks them.
    fn posted_again_at_once(&self) -> usize {
        usize::from(self.receives / 16).clamp(1, RECEIVES)
    }

    /// The buffer behind the others, for packets with credits.
    const fn credit_send(&self) -> u16 {
        self.sends
    }
}

/// Completions that are taken at a time.
const COMPLETIONS: usize = 16;

/// How often that is done before the caller has its turn, whatever a peer sends.
const ROUNDS: usize = 16;

/// Marks the number of a request whose end the engine waits for.
const ACKED: u64 = 1 << 32;

/// Marks the number of a read.
const READ: u64 = 1 << 33;

/// Marks the number of a write from memory of the program.
const DIRECT: u64 = 1 << 35;

/// Marks the number of a request after which its read is done.
const LAST: u64 = 1 << 34;

/// A unit of which not all has been taken or posted.
#[derive(Debug)]
enum Outgoing {
    /// Its header, or none.
    Header,
    /// A message.
    Message(Sending),
    /// A unit of a collective.
    Unit(SendingUnit),
    /// A write.
    Write(Writing),
    /// A read: its requests that are not posted.
    Read(VecDeque<(Option<Sge>, Remote)>),
}

/// Memory of vectors that are empty.
#[derive(Debug, Default)]
struct Spare {
    places: Vec<Place>,
    requests: VecDeque<(Option<Sge>, Remote)>,
}

/// Local memory that a read goes to.
#[derive(Debug, Default)]
struct Place {
    memory: Vec<UserBuf>,
    regions: Vec<Arc<Mr>>,
}

/// What is registered as long as a read is under way.
#[derive(Debug)]
enum Regions {
    /// A region of the program, which has all of it.
    One { _region: Arc<Mr> },
    /// Those of the place.
    All(Place),
}

/// What the peer reads of a message that was announced.
#[derive(Debug)]
enum Announced {
    /// Memory of the program.
    Lent { _regions: Vec<Arc<Mr>> },
    /// A copy, since the memory was the program's again at once.
    Copied { _copy: SendArea },
}

/// See the module. The queue pair ends first when it is dropped.
#[derive(Debug)]
pub(crate) struct Pipe {
    qp: Qp,
    shape: Shape,
    cq: Arc<Cq>,
    channel: Arc<CompletionChannel>,
    sends: SendArea,
    receives: RecvArea,
    free: Vec<u16>,
    credit_free: bool,
    /// Requests that the queue takes.
    room: usize,
    /// Packets and writes of at most so many bytes go inline (`IBV_SEND_INLINE`): the device need not read them from memory.
    inline_max: usize,
    credits: Credits,
    /// The number that packets to the peer say.
    to: u64,
    /// What the next message in segments is called.
    next_segmented: u64,
    outgoing: Outgoing,
    header: UnitHeader,
    inbox: Inbox,
    /// The unit of a collective that is arriving.
    coming: ComingUnit,
    /// Receives of packets that were read to their end, not posted again yet.
    done: Vec<u16>,
    /// Where the next reads go, in the order of their requests in the stream.
    places: VecDeque<Place>,
    /// The regions that reads which are posted go to, in order.
    reading: VecDeque<Regions>,
    /// The regions of the program that writes are under way from, in order.
    lent: VecDeque<Arc<Mr>>,
    /// Open as long as the queue pair is there.
    device: Arc<Opened>,
    ear: Arc<Ear>,
    /// Room for the next reads, used again and again.
    spare: Spare,
    /// Messages that the peer may read.
    announced: HashMap<u16, Announced>,
    ended: bool,
    /// Requests that have completed.
    pub(crate) activity: u64,
    /// Room for what the device tells.
    completions: [Wc; COMPLETIONS],
    /// The last look at the completion queue did not come to its end.
    is_behind: bool,
}

impl Pipe {
    /// The queue pair of an id that has a device, with all receives posted.
    pub(crate) fn open(id: &Arc<CmId>, device: Arc<Opened>, shape: Shape) -> Result<Self> {
        let Opened { context, pd, .. } = &*device;
        let channel = CompletionChannel::new(context)?;
        let inline_max = device.inline_max(shape.inline)?;
        let (requests, receives) = (usize::from(shape.requests) + 1, shape.receives);
        let cq = Cq::new(context, requests + usize::from(receives), Some(&channel))?;
        let cap = QpCap {
            send: requests as u32,
            recv: receives.into(),
            send_sge: 1,
            recv_sge: 1,
            inline: u32::try_from(inline_max).unwrap_or(u32::MAX),
        };
        let qp = Qp::new(id, pd, &cq, &cq, None, cap)?;
        let pipe = Self {
            qp,
            shape,
            cq,
            channel,
            sends: SendArea::new(pd, shape.buffer_at(shape.sends + 1))?,
            receives: RecvArea::new(pd, shape.buffer_at(receives))?,
            free: (0..shape.sends).collect(),
            credit_free: true,
            room: shape.requests.into(),
            inline_max,
            credits: Credits::new(receives.into()),
            to: 0,
            next_segmented: 0,
            outgoing: Outgoing::Header,
            header: UnitHeader::new(),
            inbox: Inbox::new(),
            coming: ComingUnit::default(),
            done: Vec::new(),
            places: VecDeque::new(),
            reading: VecDeque::new(),
            lent: VecDeque::new(),
            ear: Ear::new(),
            device,
            spare: Spare::default(),
            announced: HashMap::new(),
            ended: false,
            activity: 0,
            completions: [Wc::default(); COMPLETIONS],
            is_behind: false,
        };
        let slots: Vec<u16> = (0..receives).collect();
        let mut lists = slots.chunks(RECEIVES);
        lists.try_for_each(|slots| pipe.post_receives(slots))?;
        for of in pipe.heard_of() {
            let ear: Weak<Ear> = Arc::downgrade(&pipe.ear);
            pipe.device.watch.add(of, ear);
        }
        Ok(pipe)
    }

    /// What the device tells of that is about this connection.
    fn heard_of(&self) -> [Of; 2] {
        [Of::Qp(self.qp.number()), Of::Queue(self.cq.key())]
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// The device is gone.
    pub(crate) fn lose_device(&self) {
        self.ear.lose();
        self.device.watch.lose();
    }

    /// What the peer calls the connection, and whether it bounds by credits what it is sent.
    pub(crate) fn agree(&mut self, to: u64, bounded: bool) {
        self.to = to;
        self.credits.agree(bounded);
    }

    /// The connection stands: packets may go out.
    pub(crate) fn stand(&mut self) {
        self.credits.stand();
        self.give_credits();
    }

    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Has the next completion make the descriptor readable.
    pub(crate) fn arm(&self) {
        if let Err(error) = self.cq.arm() {
            fi_warn!(NAME, Subsys::Cq, "a thread may sleep too long: {error}");
        }
    }

    /// Makes the descriptor unreadable.
    pub(crate) fn drain(&self) {
        // What cannot be read is reported again.
        let _ = self.channel.drain();
    }

    /// Whether there is something to read, the end counted.
    pub(crate) fn is_readable(&mut self) -> bool {
        if self.inbox.is_empty() {
            self.poll();
        }
        !self.inbox.is_empty() || self.ended || self.is_behind
    }

    /// Whether a packet would be taken now.
    pub(crate) fn has_room(&mut self) -> bool {
        self.poll();
        let slot = !self.free.is_empty() && self.room > 0;
        self.ended
            || match &self.outgoing {
                Outgoing::Message(sending) if sending.has_slot() => true,
                Outgoing::Unit(unit) if unit.is_read() => false,
                Outgoing::Unit(unit) if unit.has_slot() => true,
                Outgoing::Write(writing) if writing.is_empty() => false,
                Outgoing::Write(writing) => {
                    let sends = writing.data.is_none() || self.credits.may_send();
                    writing.slot.is_some() || slot && sends
                }
                Outgoing::Read(_) => false,
                Outgoing::Header | Outgoing::Message(_) | Outgoing::Unit(_) => {
                    slot && self.credits.may_send()
                }
            }
    }

    /// Whether nothing that was written is on its way any more, and the peer has read what was copied for it.
    pub(crate) fn is_delivered(&mut self) -> bool {
        self.poll();
        let nothing_begun = matches!(self.outgoing, Outgoing::Header);
        let is_copy = |announced: &Announced| matches!(announced, Announced::Copied { .. });
        let idle = self.room == usize::from(self.shape.requests) && self.credit_free;
        self.ended || (nothing_begun && idle && !self.announced.values().any(is_copy))
    }

    /// Takes what was completed.
    pub(crate) fn poll(&mut self) {
        self.is_behind = true;
        let mut any = false;
        for _ in 0..ROUNDS {
            let count = self.cq.poll(&mut self.completions).unwrap_or_else(|error| {
                fi_warn!(NAME, Subsys::Cq, "the device tells no completions: {error}");
                self.ended = true;
                0
            });
            any |= count > 0;
            self.activity += count as u64;
            for at in 0..count {
                self.complete(at);
            }
            if count < COMPLETIONS {
                self.is_behind = false;
                break;
            }
        }
        if !self.is_behind && self.ear.heard().is_some() {
            self.ended = true;
        }
        // What waits does so for a completion.
        if any && !self.ended {
            self.advance();
        }
    }

    /// Handles the completion that was taken at this place.
    #[inline]
    fn complete(&mut self, at: usize) {
        let completion = &self.completions[at];
        let status = completion.status();
        if status != Status::SUCCESS {
            return self.fail(status);
        }
        let id = completion.id();
        if let (WcKind::RecvWrite, Some(data)) = (completion.kind(), completion.immediate()) {
            let written = Incoming::Written(id as u16, data, completion.len());
            return self.inbox.push(written);
        }
        if completion.kind() == WcKind::Recv {
            return self.received(id as u16, completion.len());
        }
        if id as u16 == self.shape.credit_send() && id & READ == 0 {
            self.credit_free = true;
            return self.give_credits();
        }
        self.room += 1;
        match id & (READ | DIRECT) {
            0 => self.free.push(id as u16),
            DIRECT => drop(self.lent.pop_front()),
            _ if id & LAST != 0 => self.end_read(),
            _ => {}
        }
        if id & ACKED != 0 {
            self.inbox.push(Incoming::Acknowledgement);
        }
    }

    fn fail(&mut self, status: Status) {
        if self.ended {
            return;
        }
        self.ended = true;
        if status == Status::FLUSHED {
            fi_info!(NAME, Subsys::EpData, "a connection has ended");
        } else {
            fi_warn!(
                NAME,
                Subsys::EpData,
                "a connection ends, a request on it failed: {status}"
            );
        }
    }

    /// A packet has arrived.
    fn received(&mut self, slot: u16, len: usize) {
        let mut front = [0; BASE_LEN];
        self.receives.read(self.shape.buffer_at(slot), &mut front);
        if len == BASE_LEN
            && let Ok(packet) = Packet::parse(ByteOrder::NATIVE, &front, len as u64)
        {
            match packet.body {
                Body::Credit(more) => {
                    self.credits.add(more);
                    self.done.push(slot);
                    self.post_again();
                    return self.give_credits();
                }
                Body::ReadDone(id) => {
                    let index = u16::try_from(id).ok();
                    drop(index.and_then(|index| self.announced.remove(&index)));
                }
                _ => {}
            }
        }
        let [_, kind, ..] = front;
        if kind == PacketKind::Unit.number() {
            return self.received_unit(slot, len, &front);
        }
        let alone = front_alone(&front, len);
        self.inbox.push(Incoming::Packet { slot, len, alone });
    }

    fn note_failure(&mut self, posted: Result<()>) {
        if let Err(error) = posted {
            fi_warn!(NAME, Subsys::EpData, "a request is not taken: {error}");
            self.ended = true;
        }
    }

    fn post_buffer(&self, slot: u16, len: usize, operation: Operation, mark: u64) -> Result<()> {
        let memory = [self.sends.sge(self.shape.buffer_at(slot), len)?];
        // To some devices a piece of no bytes is one of very many.
        let pieces = memory.get(..len.min(1)).unwrap_or_default();
        let mut flags = SendFlags::SIGNALED;
        flags.set(SendFlags::INLINE, len <= self.inline_max);
        self.post_flagged(u64::from(slot) | mark, operation, pieces, flags)
    }

    fn post(&self, id: u64, operation: Operation, memory: &[Sge]) -> Result<()> {
        self.post_flagged(id, operation, memory, SendFlags::SIGNALED)
    }

    fn post_flagged(
        &self,
        id: u64,
        operation: Operation,
        memory: &[Sge],
        flags: SendFlags,
    ) -> Result<()> {
        let request = SendRequest::new(id, operation, memory, flags)?;
        self.qp
            .post_send(&mut [request])
            .map_err(|error| error.errno)
    }

    /// Takes a buffer, and room in the queue for its request.
    fn take_slot(&mut self) -> Option<u16> {
        if self.room == 0 {
            return None;
        }
        let slot = self.free.pop()?;
        self.room -= 1;
        Some(slot)
    }
}

// Writing.
impl Pipe {
    /// Takes bytes of the engine's stream; returns how many.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] while there is no room; any other ends the connection.
    pub(crate) fn send(&mut self, vecs: &[IoVec<'_>]) -> Result<usize> {
        if self.ended {
            return Err(self.ear.heard().unwrap_or(Errno::ECONNRESET));
        }
        let mut polled = false;
        let mut total = 0;
        for vec in vecs {
            let mut skip = 0;
            while skip < vec.len() {
                match self.step(vec, skip) {
                    Ok(used) => skip += used,
                    Err(Errno::EAGAIN) if !polled => {
                        self.poll();
                        polled = true;
                    }
                    Err(Errno::EAGAIN) if total + skip > 0 => return Ok(total + skip),
                    Err(Errno::EAGAIN) => return Err(Errno::EAGAIN),
                    Err(error) => {
                        fi_warn!(
                            NAME,
                            Subsys::EpData,
                            "a connection ends, a request is not made: {error}"
                        );
                        self.ended = true;
                        return Err(error);
                    }
                }
            }
            total += skip;
        }
        Ok(total)
    }

    /// Takes some bytes of `vec` behind the first `skip`, of which there are more.
    fn step(&mut self, vec: &IoVec<'_>, skip: usize) -> Result<usize> {
        match &mut self.outgoing {
            Outgoing::Header => {
                let (used, started) = self.header.take(vec, skip)?;
                if let Some(started) = started {
                    self.begin(started)?;
                }
                Ok(used)
            }
            Outgoing::Message(_) => self.fill_packet(vec, skip),
            Outgoing::Unit(unit) if unit.is_read() => Err(Errno::EAGAIN),
            Outgoing::Unit(_) => self.fill_unit(vec, skip),
            Outgoing::Write(writing) if writing.is_empty() => Err(Errno::EAGAIN),
            Outgoing::Write(_) => self.fill_write(vec, skip),
            Outgoing::Read(_) => Err(Errno::EAGAIN),
        }
    }

    /// Takes a buffer for what goes out without being written to the link, a packet or a write, if nothing is being
    /// written. Where there is no room it looks for what has completed, once.
    fn take_slot_now(&mut self, packet: bool) -> Option<u16> {
        let may_send = |pipe: &Self| !packet || pipe.credits.may_send();
        if self.free.is_empty() || self.room == 0 || !may_send(self) {
            self.poll();
        }
        if self.ended || !self.is_between_units() || !may_send(self) {
            return None;
        }
        self.take_slot()
    }

    /// Whether nothing is being written to the link.
    const fn is_between_units(&self) -> bool {
        matches!(self.outgoing, Outgoing::Header) && self.header.is_empty()
    }

    /// Sends a message by a packet at once: its header behind that of the unit, and its payload. `false` says that
    /// nothing was done: there is no room, or something is being written to the link.
    pub(crate) fn send_now(&mut self, header: &[u8; MESSAGE_LEN], payload: UserBuf) -> bool {
        let Some((_, header)) = header.split_first_chunk::<{ base::BASE_LEN }>() else {
            return false;
        };
        let len = header.len() + payload.len();
        if len > self.shape.packet_max {
            return false;
        }
        let Some(slot) = self.take_slot_now(true) else {
            return false;
        };
        self.credits.spend();
        let room = self.sends.bytes(self.shape.buffer_at(slot), len);
        let (front, rest) = room.split_at_mut(header.len().min(room.len()));
        front.copy_from_slice(header);
        copy_in(rest, payload);
        let posted = self.post_buffer(slot, len, Operation::Send(None), 0);
        let is_posted = posted.is_ok();
        self.note_failure(posted);
        is_posted
    }

    fn begin(&mut self, started: Started) -> Result<()> {
        match started {
            Started::Acknowledgement => {}
            Started::Packet(len, ack) => {
                let sending = Sending::new(len, ack, self.shape.packet_max);
                self.outgoing = Outgoing::Message(sending.ok_or(Errno::EMSGSIZE)?);
            }
            Started::Unit(header, payload) => {
                self.outgoing = Outgoing::Unit(SendingUnit::new(header, payload));
                self.advance();
            }
            Started::Write(to, len, ack, data) => {
                self.outgoing = Outgoing::Write(Writing::new(to, len, ack, data));
                self.advance();
            }
            Started::Read(from) => {
                let requests = self.requests(&from)?;
                self.outgoing = Outgoing::Read(requests);
                self.post_reads();
            }
        }
        Ok(())
    }

    /// Posts what needs no more bytes of the stream, as far as there is room.
    #[inline]
    fn advance(&mut self) {
        if !matches!(self.outgoing, Outgoing::Header | Outgoing::Message(_)) {
            self.advance_begun();
        }
    }

    #[inline(never)]
    fn advance_begun(&mut self) {
        let filled = match &self.outgoing {
            Outgoing::Read(_) => return self.post_reads(),
            Outgoing::Write(writing) if writing.is_empty() => self.fill_write(&IoVec::EMPTY, 0),
            Outgoing::Unit(unit) if unit.is_read() => self.fill_unit(&IoVec::EMPTY, 0),
            _ => return,
        };
        match filled {
            Ok(_) | Err(Errno::EAGAIN) => {}
            Err(error) => self.note_failure(Err(error)),
        }
    }
}

// Reading.
impl Pipe {
    /// Reads units of the engine's stream into `vecs`; returns how many bytes, 0 at the end.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] while there is nothing.
    pub(crate) fn recv(&mut self, vecs: &mut [IoVecMut<'_>]) -> Result<usize> {
        if self.inbox.is_empty() {
            self.poll();
            if self.inbox.is_empty() {
                return self.found_nothing();
            }
        }
        let (receives, shape) = (&self.receives, self.shape);
        let copy = |slot, range: std::ops::Range<usize>, vec: &mut IoVecMut<'_>, skip| {
            receives.read_to(shape.buffer_at(slot) + range.start, range.len(), vec, skip)
        };
        let read = self.inbox.read(copy, vecs, &mut self.done);
        self.post_again();
        match read {
            Err(Errno::EAGAIN) => self.found_nothing(),
            read => read,
        }
    }

    /// As [`Inbox::payload_ready`].
    pub(crate) fn payload_ready(&self) -> usize {
        self.inbox.payload_ready()
    }

    /// What a read says that finds nothing.
    fn found_nothing(&self) -> Result<usize> {
        match (self.ended, self.ear.heard()) {
            (false, _) => Err(Errno::EAGAIN),
            (true, Some(Errno::ENODEV)) => Err(Errno::ENODEV),
            (true, _) => Ok(0),
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        for of in self.heard_of() {
            self.device.watch.remove(of);
        }
    }
}

fn remote(addr: u64, key: u64) -> Result<Remote> {
    let key = u32::try_from(key).map_err(|_| Errno::EKEYREJECTED)?;
    Ok(Remote { addr, key })
}
