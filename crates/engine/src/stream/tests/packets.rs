//! Messages in packets, as the C library sends them.

use alloc::collections::BTreeMap;
use alloc::vec;

use proptest::prelude::*;
use ripstop_types::{Flags, RmaIov};
use ripstop_wire::rxm::{
    Body, MAX_UNIT_HEADER, MESSAGE_LEN, Message, Packet, Part, Segment, emit_packet,
};
use ripstop_wire::xnet::base::{Answer, BaseFlags, Reason, RmaIovs};

use super::*;
use crate::id::SlotId;
use crate::mr::{Access, Mr};

/// How many messages there are, each with its own tag.
const MESSAGES: usize = 6;

/// Where the receive of each message is.
const PLACE: usize = 0x10_0000;

/// The longest segment.
const SEGMENT: usize = 100;

/// The context of a message that was dropped.
const DROPPED: usize = 1000;

impl Fixture {
    pub(super) fn up_in_packets(&mut self) {
        self.up_in_packets_with(Extensions::empty());
    }

    fn up_in_packets_with(&mut self, extensions: Extensions) {
        self.up_read_by(extensions, ReadBy::Stream);
    }

    pub(super) fn up_read_by(&mut self, extensions: Extensions, announced: ReadBy) {
        self.up_with_segments(extensions, announced, 0);
    }

    pub(super) fn up_with_segments(
        &mut self,
        extensions: Extensions,
        announced: ReadBy,
        segmented_max: u64,
    ) {
        let terms = Terms {
            packets: Some(PacketTerms {
                number: 3,
                eager_max: 100,
                segmented_max,
                announced,
                parts: true,
            }),
            order: ByteOrder::Little,
            has_rendezvous: false,
            extensions,
        };
        self.engine.conn_up(self.conn, terms);
    }

    pub(super) fn packet(&mut self, body: Body) -> Result<()> {
        let mut bytes = [0; MAX_UNIT_HEADER];
        let packet = Packet { conn: 0, body };
        let len = emit_packet(ByteOrder::Little, BaseFlags::empty(), &packet, &mut bytes).unwrap();
        let used = self.engine.rx_header(self.conn, &bytes[..len])?;
        assert_eq!(used, len);
        Ok(())
    }

    fn segment(&mut self, id: u64, len: u64, number: u32, part: Part, bytes: u16) -> Result<()> {
        let message = Message {
            tag: Some(id),
            data: None,
            len,
        };
        let segment = Segment {
            id,
            number,
            part,
            len: bytes,
        };
        self.packet(Body::Segment(message, segment))
    }
}

/// What the peer sends: for each message its length, whether it is in segments, and how much was sent.
struct Peer {
    lens: [usize; MESSAGES],
    sent: [usize; MESSAGES],
    numbers: [u32; MESSAGES],
    began: [bool; MESSAGES],
    /// Units that the receiver has not read: the header, and the part of a message behind it.
    stream: Vec<(Body, usize, usize, usize)>,
}

impl Peer {
    /// Sends the next packet of a message.
    fn step(&mut self, id: usize) {
        let (len, sent) = (self.lens[id], self.sent[id]);
        if self.began[id] && sent == len {
            return;
        }
        let message = Message {
            tag: Some(id as u64),
            data: None,
            len: len as u64,
        };
        let more = (len - sent).min(SEGMENT);
        let body = match len <= SEGMENT {
            true => Body::Eager(message),
            false => {
                let part = match sent {
                    0 => Part::First,
                    _ if sent + more == len => Part::Last,
                    _ => Part::Middle,
                };
                let segment = Segment {
                    id: 70 + id as u64,
                    number: self.numbers[id],
                    part,
                    len: more as u16,
                };
                Body::Segment(message, segment)
            }
        };
        self.stream.push((body, id, sent, more));
        self.began[id] = true;
        self.numbers[id] += 1;
        self.sent[id] += more;
    }
}

const fn byte(id: usize, at: usize) -> u8 {
    (id * 31 + at * 7 + at / 256) as u8
}

/// The receiver's memory, and what it has been told.
#[derive(Default)]
struct Receiver {
    user: BTreeMap<usize, u8>,
    slots: BTreeMap<SlotId, Vec<u8>>,
    done: Vec<usize>,
    failed: Vec<(usize, Errno)>,
    dropped: usize,
}

impl Receiver {
    /// Reads all that there is and that the engine takes; `reading` is how far the first unit has come.
    fn drive(&mut self, f: &mut Fixture, peer: &mut Peer, reading: &mut Option<usize>) {
        loop {
            while let Some(slot) = f.engine.pop_freed() {
                self.slots.remove(&slot);
            }
            while let Some(conn) = f.engine.pop_resumed() {
                f.engine.rx_retry(conn);
            }
            loop {
                match f.pop() {
                    Ok(completion) if completion.context == DROPPED => self.dropped += 1,
                    Ok(completion) => self.done.push(completion.context),
                    Err(Errno::EAVAIL) => self.failed.extend(f.failed()),
                    Err(_) => break,
                }
            }
            let Some(&(body, id, from, len)) = peer.stream.first() else {
                return;
            };
            let Some(have) = *reading else {
                if f.engine.rx_in_header(f.conn) {
                    f.packet(body).unwrap();
                    *reading = Some(0);
                }
                if !f.engine.rx_in_header(f.conn)
                    && matches!(f.engine.rx_want(f.conn), RxWant::Blocked)
                {
                    return;
                }
                if len == 0 {
                    (*reading, _) = (None, peer.stream.remove(0));
                }
                continue;
            };
            let count = match f.engine.rx_want(f.conn) {
                RxWant::Blocked => return,
                RxWant::Place {
                    iov,
                    at,
                    len: count,
                } => {
                    for more in 0..count as usize {
                        let to = iov.address() + at as usize + more;
                        self.user.insert(to, byte(id, from + have + more));
                    }
                    count
                }
                RxWant::Keep {
                    slot,
                    total,
                    at,
                    len: count,
                } => {
                    let slot = self.slots.entry(slot).or_default();
                    slot.resize(total as usize, 0);
                    for more in 0..count as usize {
                        slot[at as usize + more] = byte(id, from + have + more);
                    }
                    count
                }
                RxWant::Discard(count) => count,
                other => panic!("{other:?}"),
            };
            f.engine.rx_placed(f.conn, count);
            *reading = Some(have + count as usize);
            if have + count as usize == len {
                (*reading, _) = (None, peer.stream.remove(0));
            }
        }
    }

    fn post(&mut self, f: &mut Fixture, id: usize, len: usize) {
        let want = Want {
            tag: Some((id as u64, 0)),
            src: FiAddr::UNSPEC,
        };
        let place = Mem(PLACE * (id + 1), len);
        let recv = Recv::new(Iov::one(place), want, id);
        for copy in f.post(recv) {
            let to = copy.iov.address() + copy.at as usize;
            let from = &self.slots[&copy.slot];
            let bytes = from[..copy.len as usize].iter();
            self.user.extend((to..).zip(bytes.copied()));
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// The peer sends the next packet of a message.
    Send(usize),
    /// The receiver reads.
    Read,
    /// A receive is posted.
    Post(usize),
    /// A message that has begun to come is dropped.
    Drop(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..MESSAGES).prop_map(Step::Send),
        3 => Just(Step::Read),
        2 => (0..MESSAGES).prop_map(Step::Post),
        1 => (0..MESSAGES).prop_map(Step::Drop),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// Whatever the order in which segments of several messages come, and receives are posted or
    /// messages dropped meanwhile: each byte arrives in its place, and each message once.
    #[test]
    fn segments_find_their_places(
        lens in prop::array::uniform6(0..6 * SEGMENT),
        short in prop::array::uniform6(prop::bool::weighted(0.2)),
        kept_longest in prop_oneof![Just(0), Just(u64::MAX)],
        steps in steps(),
    ) {
        let limits = Limits { kept_bytes: 1 << 20, kept_total: 1 << 20, kept_messages: 100, kept_longest, ..LIMITS };
        let mut f = Fixture::of(limits, |engine| engine.open_srx(Matcher::new(16, true)));
        f.up_in_packets();
        let mut peer = Peer {
            lens,
            sent: [0; MESSAGES],
            numbers: [0; MESSAGES],
            began: [false; MESSAGES],
            stream: Vec::new(),
        };
        let mut receiver = Receiver::default();
        let mut reading = None;
        let room = |id: usize| if short[id] { lens[id] / 2 } else { lens[id] };
        let (mut posted, mut dropped) = ([false; MESSAGES], [false; MESSAGES]);
        let finish = (0..MESSAGES).flat_map(|id| vec![Step::Post(id)].into_iter().chain(vec![Step::Send(id); 7]));
        for step in steps.into_iter().chain(finish).chain([Step::Read]) {
            match step {
                Step::Send(id) => peer.step(id),
                Step::Read => receiver.drive(&mut f, &mut peer, &mut reading),
                Step::Post(id) if !posted[id] && !dropped[id] => {
                    posted[id] = true;
                    receiver.post(&mut f, id, room(id));
                    receiver.drive(&mut f, &mut peer, &mut reading);
                }
                Step::Drop(id) if !posted[id] && !dropped[id] => {
                    let want = Want { tag: Some((id as u64, 0)), src: FiAddr::UNSPEC };
                    let flags = RecvFlags { peek: true, discard: true, ..RecvFlags::default() };
                    dropped[id] = f.engine.peek(f.ep, want, DROPPED, flags).unwrap();
                    let told = receiver.failed.len();
                    receiver.failed.extend(f.failed());
                    if !dropped[id] {
                        prop_assert_eq!(receiver.failed.remove(told), (DROPPED, Errno::ENOMSG));
                    }
                    receiver.drive(&mut f, &mut peer, &mut reading);
                }
                Step::Post(_) | Step::Drop(_) => {}
            }
        }
        prop_assert!(peer.stream.is_empty(), "{:?}", f.engine.rx_want(f.conn));
        let mut ended: Vec<usize> = receiver.done;
        ended.extend(receiver.failed.iter().map(|(context, error)| {
            assert_eq!(*error, Errno::ETRUNC);
            assert!(short[*context]);
            *context
        }));
        ended.sort_unstable();
        let expected: Vec<usize> = (0..MESSAGES).filter(|id| !dropped[*id]).collect();
        prop_assert_eq!(ended, expected);
        prop_assert_eq!(receiver.dropped, dropped.iter().filter(|dropped| **dropped).count());
        for id in (0..MESSAGES).filter(|id| !dropped[*id]) {
            for at in 0..room(id) {
                prop_assert_eq!(receiver.user.get(&(PLACE * (id + 1) + at)), Some(&byte(id, at)));
            }
        }
        let conn = f.engine.conn(f.conn).unwrap();
        prop_assert!(conn.is_idle(), "nothing is left");
        prop_assert_eq!(f.engine.kept(), 0);
    }
}

#[test]
fn segments_out_of_order_are_refused() {
    let first = |f: &mut Fixture| {
        f.recv(1, Some(4), 300);
        f.segment(4, 300, 0, Part::First, 100).unwrap();
        f.engine.rx_placed(f.conn, 100);
    };
    type Wrong = (u64, u64, u32, Part, u16);
    let wrong: [Wrong; 9] = [
        // Another of the same name begins.
        (4, 300, 0, Part::First, 100),
        // One that has not begun.
        (5, 300, 1, Part::Middle, 100),
        // One is left out, or comes again.
        (4, 300, 2, Part::Middle, 100),
        (4, 300, 0, Part::Middle, 100),
        // The message has another length now.
        (4, 400, 1, Part::Middle, 100),
        // It is at its end too early, too late or behind it.
        (4, 300, 1, Part::Last, 100),
        (4, 300, 1, Part::Middle, 200),
        (4, 300, 1, Part::Last, 201),
        (4, 300, 1, Part::Middle, 0),
    ];
    for (id, len, number, part, bytes) in wrong {
        let mut f = Fixture::down();
        f.up_in_packets();
        first(&mut f);
        let refused = f.segment(id, len, number, part, bytes);
        assert_eq!(refused, Err(Errno::EPROTO), "{number} {part:?} {bytes}");
        f.engine.close_conn(f.conn, Errno::ECONNRESET);
        assert_eq!(f.failed(), [(1, Errno::ECONNRESET)]);
    }
}

#[test]
fn a_sender_cannot_begin_messages_without_end() {
    let mut f = Fixture::down();
    f.up_in_packets();
    let begin = |f: &mut Fixture, id| {
        f.recv(1, Some(id), 300);
        f.segment(id, 300, 0, Part::First, 100)?;
        f.engine.rx_placed(f.conn, 100);
        Ok::<(), Errno>(())
    };
    for id in 0..256 {
        begin(&mut f, id).unwrap();
    }
    assert_eq!(begin(&mut f, 256), Err(Errno::EPROTO));
}

#[test]
fn a_fence_waits_until_an_announced_message_was_read() {
    let mut f = Fixture::down();
    f.up_in_packets();
    let Ok(SendPlan::Packet {
        index: Some(index), ..
    }) = f.send(1, Some(5), 300)
    else {
        panic!("it is too long for one packet");
    };
    f.flush();
    f.engine.fence(f.conn);
    assert!(matches!(f.send(2, None, 5), Ok(SendPlan::Postpone { .. })));
    assert_eq!(f.start_postponed(), Ok(None));
    assert_eq!(f.engine.pop_output(), None);
    f.packet(Body::ReadDone(u64::from(index))).unwrap();
    assert_eq!(f.done(), [1]);
    // Nothing else tells the driver that the turn of the other one has come.
    assert_eq!(f.engine.pop_output(), Some(Output::Conn(f.conn)));
    assert_eq!(f.start_postponed(), Ok(Some(2)));
    f.flush();
    assert_eq!(f.done(), [2]);
}

/// A read of `len` bytes from an address on, with a key.
pub(super) fn read_of(addr: u64, len: u64, key: u64) -> Header {
    Header {
        rma: RmaIovs::one(RmaIov { addr, len, key }),
        ..Header::new(Op::ReadReq, 0)
    }
}

/// Where an announced message of which only the index is told seems to be.
pub(super) const ANNOUNCED: u64 = 1 << 63;

impl Fixture {
    pub(super) fn announce(&mut self, context: usize) -> u64 {
        let plan = self.send(context, Some(5), 300);
        let Ok(SendPlan::Packet {
            index: Some(index), ..
        }) = plan
        else {
            panic!("{plan:?}");
        };
        self.flush();
        index.into()
    }
}

#[test]
fn a_short_message_is_sent_before_anything_is_noted_of_it() {
    let mut f = Fixture::down();
    let sent = |f: &Fixture, data, len| {
        let mut header = [0; MESSAGE_LEN];
        let sent = f
            .engine
            .try_send_packet_now(Some(f.conn), Some(7), data, len, &mut header);
        sent.then_some(header)
    };
    assert_eq!(sent(&f, None, 5), None);
    f.up_in_packets();
    for data in [None, Some(9)] {
        let send = Send {
            tag: Some(7),
            data,
            iov: Iov::one(Mem(0x1000, 5)),
            context: 1,
            completion: true,
            inject: false,
            ack: false,
            work: false,
        };
        let mut usual = [0; MAX_UNIT_HEADER];
        let len = f.engine.packet(f.conn, &send, None, &mut usual);
        assert_eq!(
            sent(&f, data, 5).as_ref().map(|header| &header[..]),
            Some(&usual[..len])
        );
    }
    // What is announced, and what something waits in front of, is for the usual way.
    assert!(sent(&f, None, 100).is_some() && sent(&f, None, 101).is_none());
    assert!(matches!(f.send(1, None, 5), Ok(SendPlan::Packet { .. })));
    assert_eq!(sent(&f, None, 5), None);
    f.flush();
    assert!(sent(&f, None, 5).is_some());
    // Only packets have such headers.
    let mut other = Fixture::new();
    assert_eq!(sent(&other, None, 5), None);
    assert!(
        other
            .engine
            .rx_whole_packet(other.conn, &[0; 100])
            .is_none()
    );
}

#[test]
fn a_whole_message_in_a_packet_is_taken_in_one_step() {
    let mut f = Fixture::down();
    f.up_in_packets();
    let unit = |tag, data, len: u64, payload: usize| {
        let message = Message { tag, data, len };
        let packet = Packet {
            conn: 0,
            body: Body::Eager(message),
        };
        let mut bytes = vec![0; MAX_UNIT_HEADER];
        let flags = BaseFlags::empty();
        let len = emit_packet(ByteOrder::Little, flags, &packet, &mut bytes).unwrap();
        bytes.resize(len + payload, 0xee);
        bytes
    };
    let bytes = unit(Some(5), None, 8, 8);
    // It has no receive.
    assert!(f.engine.rx_whole_packet(f.conn, &bytes).is_none());
    f.recv(1, Some(5), 64);
    f.recv(2, Some(6), 64);
    // Not all is there; it says more than that.
    assert!(f.engine.rx_whole_packet(f.conn, &bytes[..87]).is_none());
    let with_data = unit(Some(5), Some(1), 8, 8);
    assert!(f.engine.rx_whole_packet(f.conn, &with_data).is_none());
    let more = [&bytes[..], &bytes].concat();
    let whole = f.engine.rx_whole_packet(f.conn, &more).unwrap();
    assert_eq!((whole.header_len, whole.len), (MESSAGE_LEN, 8));
    assert_eq!(f.done(), [1]);
    // Sole, for the queue that is being read.
    assert!(f.engine.rx_sole_packet(f.conn, &more).is_none());
    let next = unit(Some(6), None, 8, 8);
    let small = f.engine.rx_sole_packet(f.conn, &next).unwrap();
    let (whole, completion) = f.engine.rx_fast::<true>(f.conn, f.cq, small).unwrap();
    assert_eq!((whole.len, completion.context, completion.tag), (8, 2, 6));
    assert!(f.engine.rx_in_header(f.conn));
}

#[test]
fn what_a_device_wrote_is_told_with_its_length() {
    let mut f = Fixture::down();
    f.up_read_by(Extensions::empty(), ReadBy::Device);
    // The device has checked key and bounds: there is no region here.
    let written = Header {
        cq_data: Some(7),
        rma: RmaIovs::one(RmaIov {
            addr: 0,
            len: 1000,
            key: 0,
        }),
        ..Header::new(Op::Write, 1000)
    };
    f.header(&written).unwrap();
    let told = f.pop().unwrap();
    assert_eq!((told.len, told.data), (1000, 7));
    let flags = Flags::RMA | Flags::REMOTE_WRITE | Flags::REMOTE_CQ_DATA;
    assert_eq!(told.flags, flags);
    // What comes next is a header.
    f.header(&written).unwrap();
    assert_eq!(f.pop().unwrap().len, 1000);
}

#[test]
fn announced_messages_and_regions_do_not_share_keys() {
    let mut f = Fixture::down();
    f.up_in_packets();
    let access = Access {
        read: true,
        write: false,
    };
    let open = |f: &mut Fixture, key| {
        let region = Mr::new(Mem(0x9000, 64), 0, key, access);
        f.engine.open_mr(region).unwrap();
    };
    open(&mut f, u64::MAX - 1);
    let index = f.announce(1);
    open(&mut f, index);
    for (header, len) in [
        (read_of(ANNOUNCED, 300, index), 300),
        (read_of(0, 64, index), 64),
        (read_of(0, 64, u64::MAX - 1), 64),
        (read_of(ANNOUNCED + 100, 200, index), 200),
    ] {
        f.header(&header).unwrap();
        let answers = f.control();
        let [answer] = &answers[..] else {
            panic!("{answers:?}");
        };
        assert_eq!((answer.op, answer.payload_len), (Op::ReadRsp, len));
        f.flush();
    }
    // Beyond its end.
    let beyond = f.header(&read_of(ANNOUNCED + 300, 1, index));
    assert_eq!(beyond, Err(Errno::EPROTO));
}

#[test]
fn what_is_denied_is_refused_where_the_peer_knows_that() {
    let mut f = Fixture::down();
    f.up_in_packets_with(Extensions::REFUSE);
    let index = f.announce(1);
    for (header, reason) in [
        (read_of(0, 8, 77), Reason::Key),
        // No message has this index.
        (read_of(ANNOUNCED, 8, index + 1), Reason::Key),
        (read_of(u64::MAX - 20, 8, u64::MAX), Reason::Key),
    ] {
        f.header(&header).unwrap();
        let refused = Some((Answer::Response, reason));
        let answers = f.control();
        assert_eq!(
            answers.iter().map(|h| h.refusal).collect::<Vec<_>>(),
            [refused]
        );
        f.flush();
    }
}

#[test]
fn reading_an_announced_message_cannot_be_refused() {
    let mut f = Fixture::down();
    f.up_in_packets_with(Extensions::REFUSE);
    f.recv(1, Some(4), 300);
    let message = Message {
        tag: Some(4),
        data: None,
        len: 300,
    };
    let announced = Body::Rendezvous {
        message,
        id: 9,
        memory: RmaIovs::one(RmaIov {
            addr: 0,
            len: 300,
            key: 1,
        }),
    };
    f.packet(announced).unwrap();
    f.flush();
    let refused = f.header(&Header::refuse(Answer::Response, Reason::Key));
    assert_eq!(refused, Err(Errno::EPROTO));
    f.engine.close_conn(f.conn, Errno::EPROTO);
    assert_eq!(f.failed(), [(1, Errno::EPROTO)]);
}
