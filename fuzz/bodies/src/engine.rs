//! Body for the engine that receives what a peer sends, `ripstop_engine::stream`.

use ripstop_engine::coll::{Joining, Request, Task};
use ripstop_engine::id::{ConnId, CqId, EpId, SrxId};
use ripstop_engine::matching::{Matcher, Recv, Want};
use ripstop_engine::mr::{Access, Mr};
use ripstop_engine::stream::{
    Atomic, CollAction, ConnConfig, Engine, EpConfig, Job, Level, Limits, MAX_ATOMIC, PEER_NAME,
    PacketTerms, ReadBy, RxWant, Send, Terms,
};
use ripstop_engine::{Buffer, Iov};
use ripstop_types::{AtomicKind, AtomicOp, Collective, Datatype, Errno, FiAddr, Flags};
use ripstop_wire::ByteOrder;
use ripstop_wire::rxm::{
    AtomicHead, AtomicResult, Body, MAX_UNIT_HEADER, Message, Packet, Part, Segment, emit_packet,
};
use ripstop_wire::xnet::base::{
    Answer, BaseFlags, Coll, CollKind, Header, MAX_HEADER, Op, Reason, RmaIov, RmaIovs,
};
use ripstop_wire::xnet::cm::Extensions;

/// Memory of which only the length matters.
#[derive(Clone, Copy)]
struct Mem(usize);

impl Buffer for Mem {
    const EMPTY: Self = Self(0);

    fn len(self) -> usize {
        self.0
    }

    fn address(self) -> usize {
        0x1000
    }

    fn slice(self, off: usize, len: usize) -> Option<Self> {
        (off.checked_add(len)? <= self.0).then_some(Self(len))
    }
}

const LIMITS: Limits = Limits {
    tx_buffer: 1024,
    inline: 64,
    eager_max: 100,
    kept_bytes: 200,
    kept_messages: 3,
    kept_longest: 150,
    kept_total: 700,
    ask_first: 50,
};

/// How often each posted operation has ended, by its context.
type Ended = [u32; 8];

/// The operations that were posted, of which the last is a multi-receive buffer.
const MULTI: usize = 5;

/// The collective operation that is started when the peer says that the group is there.
const COLLECTIVE: usize = 6;

/// An atomic that fetches.
const ATOMIC: usize = 7;

/// What the two members of the group have in common.
const DIGEST: u64 = 5;

/// The length of memory that the peer may reach, and its key.
const REGION: usize = 300;
const KEY: u64 = 7;

struct Fixture {
    engine: Engine<Mem>,
    srx: SrxId,
    cq: CqId,
    ep: EpId,
    conn: ConnId,
    /// The collective operation has been.
    started: bool,
    ended: Ended,
}

impl Fixture {
    fn new(order: ByteOrder, packets: Option<PacketTerms>) -> Self {
        let mut engine = Engine::new(LIMITS);
        let srx = engine.open_srx(Matcher::new(16, false)).unwrap();
        let cq = engine.open_cq(8).unwrap();
        let ep = engine.open_ep(EpConfig {
            srx: Some(srx),
            tx_cq: Some(cq),
            rx_cq: Some(cq),
            tx_size: 8,
            ..EpConfig::NONE
        });
        let ep = ep.unwrap();
        let access = Access {
            read: true,
            write: true,
        };
        let region = Mr::new(Mem(REGION), 0, KEY, access);
        engine.open_mr(region).unwrap();
        let conn = engine.open_conn(ConnConfig {
            ep,
            src: FiAddr(0),
            name: [0; PEER_NAME],
            name_len: 0,
        });
        let conn = conn.unwrap();
        engine.conn_up(
            conn,
            Terms {
                packets,
                order,
                has_rendezvous: packets.is_none(),
                extensions: match packets {
                    Some(_) => Extensions::REFUSE | Extensions::COLL,
                    None => Extensions::all(),
                },
            },
        );
        let joining = Joining {
            ep,
            members: &[FiAddr(0), FiAddr(1)],
            me: 1,
            digest: DIGEST,
        };
        // A connection to a member is not ended by agreement: half of those for packets have none.
        if packets.is_none_or(|packets| packets.announced == ReadBy::Stream) {
            engine.join_group(&joining).unwrap();
        }
        let mut fixture = Self {
            engine,
            srx,
            cq,
            ep,
            conn,
            started: false,
            ended: [0; 8],
        };
        fixture.run_coll();
        let staged = fixture.engine.conn(conn).unwrap().buffered();
        assert_eq!(fixture.engine.sent(conn, staged), staged);
        fixture
    }

    /// Does what the engine asks for its group. There is no memory to be copied.
    fn run_coll(&mut self) {
        while let Some(action) = self.engine.coll_next() {
            match action {
                CollAction::Send { ep, to, send } => {
                    let mut header = [0; MAX_HEADER];
                    let posted = self.engine.post_coll(self.conn, &send, &mut header);
                    if let Err(error) = posted {
                        self.engine.coll_unreachable(ep, to, &send, error);
                    }
                }
                CollAction::Task(Task::Joined { group, error: None }) => {
                    let request = Request {
                        coll: Collective::Allreduce,
                        datatype: Datatype::Uint64,
                        op: AtomicOp::Sum,
                        count: 5,
                        root: 0,
                        input: Mem(40),
                        result: Mem(40),
                        context: COLLECTIVE,
                    };
                    self.engine.start_coll(group, request).unwrap();
                    self.started = true;
                }
                CollAction::Task(_) => {}
            }
        }
    }

    /// A message that waits for an acknowledgement, a rendezvous, and an atomic.
    fn send(&mut self) {
        for (context, len) in [(0, 10), (1, 500)] {
            let send = Send {
                tag: Some(7),
                data: None,
                iov: Iov::one(Mem(len)),
                context,
                completion: true,
                inject: false,
                ack: true,
                work: false,
            };
            self.engine.send(self.conn, &send).unwrap();
        }
        let atomic = Atomic {
            kind: AtomicKind::Fetch,
            datatype: Datatype::Uint64,
            op: AtomicOp::Sum,
            operand: Iov::one(Mem(16)),
            compare: Iov::EMPTY,
            result: Iov::one(Mem(16)),
            remote: place(8, 16, KEY),
            data: None,
            context: ATOMIC,
            completion: true,
            inject: false,
            level: Level::Sent,
            work: false,
        };
        let mut header = [0; MAX_UNIT_HEADER];
        self.engine.atomic(self.conn, &atomic, &mut header).unwrap();
        let staged = self.engine.conn(self.conn).unwrap().buffered();
        assert_eq!(self.engine.sent(self.conn, staged), staged);
    }

    /// Receives for tags 0 and 1, one for any tag, and a buffer for plain messages.
    fn post(&mut self, context: usize) {
        let tag = [Some((0, 0)), Some((1, 0)), Some((0, u64::MAX)), None][context - 2];
        let want = Want {
            tag,
            src: FiAddr::UNSPEC,
        };
        let mut recv = Recv::new(Iov::one(Mem(300)), want, context);
        recv.multi = context == MULTI;
        if let Some(id) = self.engine.post_recv(self.srx, recv).unwrap() {
            while let Some(copy) = self.engine.next_match(self.srx, id) {
                assert!(copy.at + copy.len <= copy.iov.len());
            }
        }
    }

    /// Takes bytes of the stream; an error ends it.
    fn take(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let len = bytes.len() as u64;
        let placed = match self.engine.rx_want(self.conn) {
            RxWant::Header => {
                let used = self.engine.rx_header(self.conn, bytes)?;
                assert!(0 < used && used <= bytes.len());
                return Ok(used);
            }
            RxWant::Blocked => return Ok(0),
            RxWant::Job => {
                let fetch = matches!(
                    self.engine.job(self.conn),
                    Some(Job::Atomic { fetch: true, .. })
                );
                let slot = fetch.then(|| self.engine.fetched_slot().unwrap());
                if matches!(self.engine.job(self.conn), Some(Job::Collective)) {
                    self.run_coll();
                    self.engine.coll_job_done(self.conn);
                } else {
                    self.engine.job_done(self.conn, true, slot);
                }
                return self.take(bytes);
            }
            RxWant::Place { iov, at, len: room } => {
                assert!(0 < room && at + room <= iov.len());
                room.min(len)
            }
            RxWant::Store { iov, at, len: room } => {
                assert!(0 < room && at + room <= iov.len());
                room.min(len)
            }
            RxWant::Keep {
                total,
                at,
                len: room,
                ..
            } => {
                let most = LIMITS.kept_bytes.max(2 * MAX_ATOMIC as u64);
                assert!(at + room <= total && total <= most);
                room.min(len)
            }
            RxWant::Discard(left) => left.min(len),
        };
        self.engine.rx_placed(self.conn, placed);
        Ok(placed as usize)
    }

    /// Does what the engine asks for; returns why the connection cannot go on, if so.
    fn after(&mut self) -> Option<Errno> {
        assert!(self.engine.kept() <= LIMITS.kept_total);
        while self.engine.pop_freed().is_some() {}
        while let Some(conn) = self.engine.pop_resumed() {
            self.engine.rx_retry(conn);
        }
        while self.engine.pop_output().is_some() {
            self.run_coll();
            while self.engine.conn(self.conn).unwrap().has_output() {
                self.engine.sent(self.conn, 1000);
            }
        }
        self.note();
        self.engine.pop_broken().map(|(_, error)| error)
    }

    fn note(&mut self) {
        let cq = self.engine.cq_mut(self.cq).unwrap();
        loop {
            let entry = match cq.pop() {
                Ok(completion) => completion,
                Err(Errno::EAVAIL) => cq.pop_error().unwrap().error.entry,
                Err(_) => break,
            };
            // Writes by the peer, and refusals of what nobody waits for, have no context.
            if !entry.flags.intersects(Flags::REMOTE_WRITE | Flags::WRITE) {
                self.ended[entry.context] += 1;
            }
        }
        for (context, ended) in self.ended.iter().enumerate() {
            assert!(*ended <= 1 || context == MULTI, "{context} ended twice");
        }
    }
}

/// Any stream, after one byte that says what it meets: in which byte order it is read, in
/// pieces of which length, and how much of it comes before the receives are posted.
pub fn receive(data: &[u8]) {
    receive_with(data, None);
}

/// As [`receive()`], with messages in packets.
pub fn receive_packets(data: &[u8]) {
    let terms = PacketTerms {
        number: 3,
        eager_max: LIMITS.eager_max,
        segmented_max: 2 * LIMITS.eager_max,
        announced: match data.first() {
            Some(0..0x80) | None => ReadBy::Stream,
            Some(0x80..) => ReadBy::Device,
        },
        parts: true,
    };
    receive_with(data, Some(terms));
}

fn receive_with(data: &[u8], packets: Option<PacketTerms>) {
    let Some((how, mut stream)) = data.split_first() else {
        return;
    };
    let order = [ByteOrder::Little, ByteOrder::Big][usize::from(how & 1)];
    let piece = [1, 3, 16, 24, 40, 1000, 7, 17][usize::from((how >> 1) & 7)];
    let mut late = usize::from(how >> 4) * 8;
    let mut f = Fixture::new(order, packets);
    f.send();
    let mut posted = 2;
    let mut reason = None;
    while reason.is_none() && !stream.is_empty() {
        let taken = match f.take(&stream[..piece.min(stream.len())]) {
            Ok(taken) => taken,
            Err(error) => {
                reason = Some(error);
                break;
            }
        };
        stream = &stream[taken..];
        if (taken == 0 || late < taken) && posted <= MULTI {
            f.post(posted);
            posted += 1;
        } else if taken == 0 {
            break;
        }
        late = late.saturating_sub(taken);
        reason = f.after();
    }
    let conn = f.conn;
    f.engine
        .close_conn(conn, reason.unwrap_or(Errno::ECONNRESET));
    f.run_coll();
    f.note();
    assert_eq!(f.ended[COLLECTIVE], u32::from(f.started));
    assert_eq!(f.ended[..2], [1, 1], "sends end");
    assert_eq!(f.ended[ATOMIC], 1, "the atomic ends");
    let left = (2..posted).filter(|context| f.ended[*context] == 0);
    for context in left.collect::<Vec<_>>() {
        f.engine
            .cancel(f.srx, Some(f.cq), context)
            .expect("it is posted");
    }
    let (srx, ep) = (f.srx, f.ep);
    f.engine.close_ep(ep);
    f.run_coll();
    assert_eq!(f.engine.kept(), 0);
    assert!(f.engine.srx_mut(srx).unwrap().nothing_unexpected());
}

/// A header and the bytes of payload behind it.
type Unit = (Header, u64);

/// Messages, and a tagged one by rendezvous.
fn message_streams() -> [Vec<Unit>; 4] {
    let message = |op, tag, len| {
        let header = Header {
            tag,
            ..Header::new(op, len)
        };
        (header, len)
    };
    let rts = Header {
        op_data: 3,
        rts_size: 40,
        tag: 1,
        ..Header::new(Op::TagRts, 0)
    };
    let data = Header {
        op_data: 3,
        ..Header::new(Op::Data, 40)
    };
    [
        vec![message(Op::Tag, 0, 20), message(Op::Tag, 9, 30)],
        vec![message(Op::Msg, 0, 50), message(Op::Msg, 0, 260)],
        vec![(rts, 0), (data, 40), (Header::ack(), 0)],
        vec![(Header::cts(1), 0), message(Op::Tag, 1, 150), (rts, 0)],
    ]
}

fn place(addr: u64, len: u64, key: u64) -> RmaIovs {
    RmaIovs::one(RmaIov { addr, len, key })
}

/// Writes, reads, and atomics: sums of 64-bit integers, and a compare and swap.
fn memory_streams() -> [Vec<Unit>; 3] {
    let place = |addr, len| place(addr, len, KEY);
    let write = |addr, len| {
        let header = Header {
            rma: place(addr, len),
            flags: BaseFlags::DELIVERY_COMPLETE,
            ..Header::new(Op::Write, len)
        };
        (header, len)
    };
    let read = Header {
        rma: place(8, 64),
        ..Header::new(Op::ReadReq, 0)
    };
    let sum = Header {
        rma: place(0, 16),
        op_data: 7,
        atomic: 2,
        ..Header::new(Op::FetchAtomic, 16)
    };
    let swap = Header {
        rma: place(8, 8),
        op_data: 7,
        atomic: 12,
        ..Header::new(Op::CompareAtomic, 16)
    };
    [
        vec![write(4, 40), (read, 0), write(290, 20)],
        vec![(sum, 16), (swap, 16), (read, 0)],
        vec![(Header::refuse(Answer::None, Reason::Key), 0), (swap, 16)],
    ]
}

/// Collective operations, before and after the peer has joined.
fn collective_streams() -> [Vec<Unit>; 3] {
    let coll = |kind, group, check, seq, tag, len| {
        let coll = Coll {
            kind,
            group,
            check,
            seq,
            tag,
            from: 0,
            len,
        };
        (Header::coll(coll), len)
    };
    let joined = coll(CollKind::Joined, DIGEST, 77, 1, 0, 0);
    [
        vec![joined, coll(CollKind::Data, 77, 1, 0, 0, 40)],
        vec![coll(CollKind::Data, 77, 1, 0, 0, 40), joined],
        vec![
            joined,
            coll(CollKind::Ask, 77, 1, 0, 1, 0),
            coll(CollKind::Gone, 77, 0, 1, 0, 0),
        ],
    ]
}

/// Seeds for [`receive()`].
pub fn receive_seeds() -> Vec<Vec<u8>> {
    let streams = collective_streams().into_iter();
    let streams = streams.chain(memory_streams()).chain(message_streams());
    seeds(&streams.collect::<Vec<_>>(), |order, header, out| {
        header.emit(order, out).unwrap()
    })
}

/// Each stream in both byte orders, for several ways to read it.
fn seeds<H>(
    streams: &[Vec<(H, u64)>],
    emit: impl Fn(ByteOrder, &H, &mut [u8]) -> usize,
) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (index, stream) in streams.iter().enumerate() {
        for how in [0x0a, 0x26, 0x4c, 0xf3] {
            let mut seed = vec![how ^ ((index as u8) << 1)];
            for (header, payload) in stream {
                let order = [ByteOrder::Little, ByteOrder::Big][usize::from(how & 1)];
                let mut bytes = [0; MAX_UNIT_HEADER];
                let len = emit(order, header, &mut bytes);
                seed.extend(&bytes[..len]);
                seed.extend(vec![0; *payload as usize]);
            }
            seeds.push(seed);
        }
    }
    seeds
}

/// A unit of a connection for packets.
enum InPackets {
    Packet(Body, BaseFlags),
    Plain(Header),
}

const fn packet(body: Body) -> (InPackets, u64) {
    let len = body.payload_len();
    (InPackets::Packet(body, BaseFlags::empty()), len)
}

/// Messages whole, in segments that alternate, and announced; and the end of what this side announces.
fn packet_streams() -> [Vec<(InPackets, u64)>; 6] {
    let message = |tag, len| Message {
        tag,
        data: Some(4),
        len,
    };
    let segment = |id, number, part, len| {
        let segment = Segment {
            id,
            number,
            part,
            len,
        };
        packet(Body::Segment(message(Some(id), 240), segment))
    };
    let rendezvous = packet(Body::Rendezvous {
        message: message(Some(1), 240),
        id: 12,
        memory: place(0, 240, 5),
    });
    let plain = |header, len| (InPackets::Plain(header), len);
    let read = |memory| {
        let header = Header {
            rma: memory,
            ..Header::new(Op::ReadReq, 0)
        };
        plain(header, 0)
    };
    let answer = plain(Header::new(Op::ReadRsp, 240), 240);
    let (datatype, sum) = (Datatype::Uint64 as u8, AtomicOp::Sum as u8);
    let atomic = |kind, op, operands_len| {
        packet(Body::Atomic(AtomicHead {
            id: 20,
            kind,
            datatype,
            op: op as u8,
            memory: place(8, 2, KEY),
            operands_len,
        }))
    };
    let result = |status, len| {
        packet(Body::AtomicResult(AtomicResult {
            id: 2,
            kind: AtomicKind::Fetch,
            datatype,
            op: sum,
            status,
            len,
        }))
    };
    let acknowledged = InPackets::Packet(
        Body::Eager(message(Some(1), 90)),
        BaseFlags::DELIVERY_COMPLETE,
    );
    [
        vec![
            packet(Body::Eager(message(Some(0), 20))),
            packet(Body::Eager(message(None, 90))),
            (acknowledged, 90),
        ],
        vec![
            segment(0, 0, Part::First, 100),
            segment(1, 0, Part::First, 100),
            segment(0, 1, Part::Middle, 100),
            segment(1, 1, Part::Last, 140),
            segment(0, 2, Part::Last, 40),
        ],
        vec![rendezvous, answer],
        vec![
            plain(Header::ack(), 0),
            read(place(1 << 63, 500, 1)),
            read(place(8, 64, KEY)),
            read(place(8, 64, KEY + 1)),
            packet(Body::ReadDone(1)),
        ],
        vec![
            atomic(AtomicKind::Plain, AtomicOp::Sum, 16),
            atomic(AtomicKind::Fetch, AtomicOp::AtomicRead, 0),
            atomic(AtomicKind::Compare, AtomicOp::Cswap, 32),
            atomic(AtomicKind::Compare, AtomicOp::Sum, 32),
        ],
        vec![plain(Header::ack(), 0), result(0, 16)],
    ]
}

/// Seeds for [`receive_packets()`].
pub fn receive_packets_seeds() -> Vec<Vec<u8>> {
    let of_group = |(header, len)| (InPackets::Plain(header), len);
    let collectives = collective_streams().map(|units| units.into_iter().map(of_group).collect());
    let streams: Vec<_> = packet_streams().into_iter().chain(collectives).collect();
    seeds(&streams, |order, unit, out| match unit {
        InPackets::Packet(body, flags) => {
            let packet = Packet {
                conn: 0,
                body: *body,
            };
            emit_packet(order, *flags, &packet, out).unwrap()
        }
        InPackets::Plain(header) => header.emit(order, out).unwrap(),
    })
}
