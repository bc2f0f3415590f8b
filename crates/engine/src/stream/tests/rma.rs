use ripstop_types::{Flags, RmaIov};
use ripstop_wire::xnet::base::{Answer, BaseFlags, Reason, RmaIovs};

use super::*;
use crate::id::MrId;
use crate::mr::{Access, Mr};

const BOTH: Access = Access {
    read: true,
    write: true,
};

fn iov(addr: u64, len: u64, key: u64) -> RmaIov {
    RmaIov { addr, len, key }
}

pub(super) fn rma(kind: RmaKind, context: usize, len: usize) -> Rma<Mem> {
    Rma {
        kind,
        iov: Iov::one(Mem(0x1000, len)),
        remote: RmaIovs::one(iov(0x40, len as u64, 9)),
        data: None,
        context,
        completion: true,
        inject: false,
        level: Level::Sent,
        work: false,
    }
}

fn write_of(segments: &[RmaIov]) -> Header {
    let rma = RmaIovs::new(segments).unwrap();
    Header {
        rma,
        ..Header::new(Op::Write, rma.total_len().unwrap())
    }
}

fn read_of(segments: &[RmaIov]) -> Header {
    Header {
        rma: RmaIovs::new(segments).unwrap(),
        ..Header::new(Op::ReadReq, 0)
    }
}

impl Fixture {
    pub(super) fn start(&mut self, rma: &Rma<Mem>) -> Result<RmaPlan> {
        self.engine.rma(self.conn, rma, &mut [0; MAX_HEADER])
    }

    fn open_mr(&mut self, memory: Mem, key: u64, access: Access) -> MrId {
        self.engine
            .open_mr(Mr::new(memory, 0, key, access))
            .unwrap()
    }

    /// The segments the next payload bytes go to, all of one kind.
    fn stores(&self) -> Vec<Mem> {
        match self.engine.rx_want(self.conn) {
            RxWant::Store { iov, at: 0, .. } => iov.segments().to_vec(),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn control(&self) -> Vec<Header> {
        let mut chunks = [Chunk::TxBuffer(0); 32];
        let count = self.engine.transmit(self.conn, &mut chunks);
        chunks[..count]
            .iter()
            .filter_map(|chunk| match chunk {
                Chunk::Control {
                    header: bytes,
                    skip: 0,
                } => Some(Header::parse(ByteOrder::Little, bytes).unwrap()),
                _ => None,
            })
            .collect()
    }

    /// As `new`, with a peer that knows only the C library's protocol.
    pub(super) fn plain() -> Self {
        let mut f = Self::down();
        let terms = Terms {
            packets: None,
            order: ByteOrder::Little,
            has_rendezvous: false,
            extensions: Extensions::empty(),
        };
        f.engine.conn_up(f.conn, terms);
        f
    }
}

#[test]
fn a_write_is_done_when_it_has_left_or_was_acknowledged() {
    let mut f = Fixture::new();
    f.start(&rma(RmaKind::Write, 1, 10)).unwrap();
    let delivered = Rma {
        level: Level::Delivered,
        ..rma(RmaKind::Write, 2, 500)
    };
    f.start(&delivered).unwrap();
    assert_eq!(f.output(), [('s', 40 + 10 + 40), ('u', 500)]);
    f.flush();
    let done = f.pop().unwrap();
    assert_eq!((done.context, done.flags), (1, Flags::RMA | Flags::WRITE));
    assert_eq!(f.done(), []);
    f.header(&Header::ack()).unwrap();
    assert_eq!(f.done(), [2]);
    assert_eq!(f.engine.outstanding(f.ep), 0);
}

#[test]
fn the_two_sides_are_equally_long() {
    let mut f = Fixture::new();
    let mut wrong = rma(RmaKind::Write, 1, 10);
    wrong.remote = RmaIovs::new(&[iov(0, 4, 1), iov(0, 5, 1)]).unwrap();
    assert_eq!(f.start(&wrong).err(), Some(Errno::EINVAL));
    wrong.remote = RmaIovs::NONE;
    assert_eq!(f.start(&wrong).err(), Some(Errno::EINVAL));
    let mut nothing = rma(RmaKind::Write, 1, 0);
    nothing.remote = RmaIovs::NONE;
    f.start(&nothing).unwrap();
    f.flush();
    assert_eq!(f.done(), [1]);
    assert_eq!(f.engine.outstanding(f.ep), 0);
}

#[test]
fn reads_are_done_in_the_order_of_their_responses() {
    let mut f = Fixture::new();
    for context in [1, 2] {
        f.start(&rma(RmaKind::Read, context, 10 * context)).unwrap();
    }
    f.flush();
    assert_eq!(f.header(&Header::new(Op::ReadRsp, 20)), Err(Errno::EPROTO));
    for context in [1, 2] {
        let len = 10 * context as u64;
        f.header(&Header::new(Op::ReadRsp, len)).unwrap();
        assert!(matches!(
            f.engine.rx_want(f.conn),
            RxWant::Place { at: 0, len: left, .. } if left == len
        ));
        f.engine.rx_placed(f.conn, len);
        assert_eq!(f.done(), [context]);
    }
    assert_eq!(f.header(&Header::new(Op::ReadRsp, 0)), Err(Errno::EPROTO));
}

#[test]
fn a_write_lands_in_all_its_segments() {
    let mut f = Fixture::new();
    let mr = f.open_mr(Mem(0x5000, 100), 9, BOTH);
    let counter = f.engine.open_counter(Counter::default()).unwrap();
    f.engine.mr_mut(mr).unwrap().counter = Some(counter);
    let header = Header {
        cq_data: Some(77),
        flags: BaseFlags::DELIVERY_COMPLETE,
        ..write_of(&[iov(90, 10, 9), iov(0, 3, 9)])
    };
    f.header(&header).unwrap();
    assert_eq!(f.stores(), [Mem(0x5000 + 90, 10), Mem(0x5000, 3)]);
    assert!(f.engine.mr_is_busy(mr));
    f.engine.rx_placed(f.conn, 13);
    assert!(!f.engine.mr_is_busy(mr));
    let done = f.pop().unwrap();
    let flags = Flags::RMA | Flags::REMOTE_WRITE | Flags::REMOTE_CQ_DATA;
    assert_eq!((done.flags, done.data, done.len), (flags, 77, 13));
    assert_eq!(f.engine.counter_mut(counter).unwrap().value, 1);
    assert_eq!(f.control(), [Header::ack()]);
}

#[test]
fn what_is_denied_changes_nothing_and_the_connection_goes_on() {
    let mut f = Fixture::new();
    f.open_mr(Mem(0x5000, 100), 9, Access::READ);
    f.open_mr(Mem(0x6000, 100), 8, BOTH);
    let denied = [
        (iov(0, 5, 7), Reason::Key),
        (iov(0, 5, 9), Reason::Access),
        (iov(96, 5, 8), Reason::Bounds),
        (iov(u64::MAX, 5, 8), Reason::Bounds),
    ];
    for (segment, reason) in denied {
        for ack in [false, true] {
            let flags = if ack {
                BaseFlags::DELIVERY_COMPLETE
            } else {
                BaseFlags::empty()
            };
            // One good segment does not help.
            let header = Header {
                flags,
                cq_data: Some(1),
                ..write_of(&[iov(0, 5, 8), segment])
            };
            f.header(&header).unwrap();
            assert!(matches!(f.engine.rx_want(f.conn), RxWant::Discard(10)));
            f.engine.rx_placed(f.conn, 10);
            let answer = if ack { Answer::Ack } else { Answer::None };
            assert_eq!(f.control(), [Header::refuse(answer, reason)]);
            f.flush();
            let refusal = f.engine.pop_refusal().unwrap();
            assert_eq!((refusal.iov, refusal.reason), (segment, reason));
        }
    }
    for key in [7, 8] {
        f.header(&read_of(&[iov(100, 1, key)])).unwrap();
    }
    f.header(&read_of(&[iov(0, 2, 8)])).unwrap();
    let refuse = |reason| Header::refuse(Answer::Response, reason);
    let response = Header::new(Op::ReadRsp, 2);
    let expected = [refuse(Reason::Key), refuse(Reason::Bounds), response];
    assert_eq!(f.control(), expected);
    f.flush();
    assert_eq!(f.done(), []);
}

#[test]
fn a_peer_without_refusals_is_dropped() {
    for header in [write_of(&[iov(0, 5, 7)]), read_of(&[iov(0, 5, 7)])] {
        let mut f = Fixture::plain();
        assert_eq!(f.header(&header), Err(Errno::EKEYREJECTED));
        assert!(f.engine.pop_refusal().is_some());
    }
    let mut f = Fixture::plain();
    let refusal = Header::refuse(Answer::None, Reason::Key);
    assert_eq!(f.header(&refusal), Err(Errno::EPROTO));
}

#[test]
fn a_refusal_ends_the_operation_it_stands_for() {
    let mut f = Fixture::new();
    let delivered = Rma {
        level: Level::Delivered,
        ..rma(RmaKind::Write, 1, 10)
    };
    f.start(&delivered).unwrap();
    f.start(&rma(RmaKind::Read, 2, 10)).unwrap();
    f.start(&rma(RmaKind::Read, 3, 10)).unwrap();
    f.start(&rma(RmaKind::Write, 4, 10)).unwrap();
    f.flush();
    assert_eq!(f.done(), [4]);
    f.header(&Header::refuse(Answer::Response, Reason::Key))
        .unwrap();
    f.header(&Header::refuse(Answer::Ack, Reason::Access))
        .unwrap();
    f.header(&Header::refuse(Answer::None, Reason::Bounds))
        .unwrap();
    let failed = [
        (2, Errno::EKEYREJECTED),
        (1, Errno::EACCES),
        (0, Errno::EFAULT),
    ];
    assert_eq!(f.failed(), failed);
    let ack = Header::refuse(Answer::Ack, Reason::Key);
    assert_eq!(f.header(&ack), Err(Errno::EPROTO), "nothing waits for it");
    f.header(&Header::new(Op::ReadRsp, 10)).unwrap();
    f.engine.rx_placed(f.conn, 4);
    let late = Header::refuse(Answer::Response, Reason::Key);
    f.engine.rx_placed(f.conn, 6);
    assert_eq!(f.done(), [3]);
    assert_eq!(f.header(&late), Err(Errno::EPROTO));
    assert_eq!(f.engine.outstanding(f.ep), 0);
}

#[test]
fn a_closed_region_is_out_of_reach_at_once() {
    let mut f = Fixture::new();
    let mr = f.open_mr(Mem(0x5000, 100), 9, BOTH);
    f.header(&write_of(&[iov(0, 50, 9)])).unwrap();
    f.engine.rx_placed(f.conn, 20);
    assert!(f.engine.mr_is_busy(mr));
    f.engine.close_mr(mr);
    assert!(matches!(f.engine.rx_want(f.conn), RxWant::Discard(30)));
    f.engine.rx_placed(f.conn, 30);
    assert_eq!(f.control(), [Header::refuse(Answer::None, Reason::Key)]);
    f.flush();

    let mr = f.open_mr(Mem(0x5000, 100), 9, BOTH);
    f.header(&read_of(&[iov(0, 50, 9)])).unwrap();
    assert!(f.engine.mr_is_busy(mr));
    f.engine.close_mr(mr);
    assert_eq!(f.engine.pop_broken(), Some((f.conn, Errno::ECANCELED)));
}

#[test]
fn a_response_that_has_left_lets_go_of_its_region() {
    let mut f = Fixture::new();
    let mr = f.open_mr(Mem(0x5000, 100), 9, BOTH);
    for _ in 0..3 {
        f.header(&read_of(&[iov(0, 50, 9), iov(60, 40, 9)]))
            .unwrap();
    }
    let one = [('c', 16), ('u', 50), ('u', 40)];
    assert_eq!(f.output(), [one, one, one].concat());
    f.flush();
    assert!(!f.engine.mr_is_busy(mr));
    f.header(&read_of(&[iov(0, 50, 9)])).unwrap();
    f.engine.close_conn(f.conn, Errno::ECONNRESET);
    assert!(!f.engine.mr_is_busy(mr));
    assert_eq!(f.failed(), []);
}

#[test]
fn a_fence_waits_for_reads_and_holds_back_what_follows() {
    let mut f = Fixture::new();
    f.start(&rma(RmaKind::Read, 1, 10)).unwrap();
    f.flush();
    let fenced = rma(RmaKind::Write, 2, 10);
    f.engine.fence(f.conn);
    assert!(matches!(f.start(&fenced), Ok(RmaPlan::Postpone { .. })));
    assert!(matches!(f.send(3, None, 5), Ok(SendPlan::Postpone { .. })));
    assert_eq!(f.start_postponed(), Ok(None));
    f.header(&Header::new(Op::ReadRsp, 10)).unwrap();
    f.engine.rx_placed(f.conn, 10);
    assert_eq!(f.engine.pop_output(), Some(Output::Conn(f.conn)));
    assert_eq!(f.start_postponed(), Ok(Some(2)));
    assert_eq!(f.start_postponed(), Ok(Some(3)));
    f.flush();
    assert_eq!(f.done(), [1, 2, 3]);
    f.engine.fence(f.conn);
    assert!(matches!(f.start(&fenced), Ok(RmaPlan::Append(_))));
}

/// What the peer says to the oldest read.
fn answer(f: &mut Fixture, len: u64) {
    f.header(&Header::new(Op::ReadRsp, len)).unwrap();
    f.engine.rx_placed(f.conn, len);
}

#[test]
fn what_follows_a_read_waits_for_its_answer_where_that_was_asked_for() {
    let mut f = Fixture::ordered();
    let read = |f: &mut Fixture, context| f.start(&rma(RmaKind::Read, context, 10));
    let write = |f: &mut Fixture, context| f.start(&rma(RmaKind::Write, context, 10));
    // Nothing is read yet.
    assert!(matches!(write(&mut f, 1), Ok(RmaPlan::Append(_))));
    assert!(matches!(f.send(2, None, 5), Ok(SendPlan::Append { .. })));
    // Reads do not wait for each other.
    assert!(matches!(read(&mut f, 3), Ok(RmaPlan::Append(_))));
    assert!(matches!(read(&mut f, 4), Ok(RmaPlan::Append(_))));
    f.flush();
    assert_eq!(f.done(), [1, 2]);
    // No fast way past them.
    let to = iov(0x40, 10, 9);
    assert_eq!(f.engine.try_write_now(Some(f.conn), to), None);
    assert!(f.engine.conn(f.conn).unwrap().holds_after_reads());
    // Writes and messages wait, and reads behind them keep their place.
    assert!(matches!(write(&mut f, 5), Ok(RmaPlan::Postpone { .. })));
    assert!(matches!(f.send(6, None, 5), Ok(SendPlan::Postpone { .. })));
    assert!(matches!(read(&mut f, 7), Ok(RmaPlan::Postpone { .. })));
    assert!(matches!(
        f.send(8, Some(1), 5),
        Ok(SendPlan::Postpone { .. })
    ));
    assert_eq!(f.start_postponed(), Ok(None));
    answer(&mut f, 10);
    assert_eq!(f.engine.pop_output(), None);
    assert_eq!(f.start_postponed(), Ok(None));
    answer(&mut f, 10);
    assert_eq!(f.engine.pop_output(), Some(Output::Conn(f.conn)));
    assert_eq!(f.start_postponed(), Ok(Some(5)));
    assert_eq!(f.start_postponed(), Ok(Some(6)));
    assert_eq!(f.start_postponed(), Ok(Some(7)));
    assert_eq!(f.start_postponed(), Ok(None));
    f.flush();
    assert_eq!(f.done(), [3, 4, 5, 6]);
    answer(&mut f, 10);
    assert_eq!(f.start_postponed(), Ok(Some(8)));
    f.flush();
    assert_eq!(f.done(), [7, 8]);
    // The fast ways are open again.
    assert!(f.engine.try_write_now(Some(f.conn), to).is_some());
    assert_eq!(f.engine.outstanding(f.ep), 0);
}

#[test]
fn a_read_before_the_connection_is_up_is_waited_for_as_well() {
    let mut f = Fixture::ordered_down();
    f.start(&rma(RmaKind::Read, 1, 10)).unwrap();
    f.start(&rma(RmaKind::Write, 2, 10)).unwrap();
    f.up();
    assert_eq!(f.start_postponed(), Ok(Some(1)));
    assert_eq!(f.start_postponed(), Ok(None));
    f.flush();
    answer(&mut f, 10);
    assert_eq!(f.start_postponed(), Ok(Some(2)));
    f.flush();
    assert_eq!(f.done(), [1, 2]);
}

#[test]
fn an_end_of_the_connection_ends_reads_and_writes() {
    let mut f = Fixture::new();
    f.start(&rma(RmaKind::Read, 1, 10)).unwrap();
    f.start(&rma(RmaKind::Write, 2, 500)).unwrap();
    f.engine.close_conn(f.conn, Errno::ECONNRESET);
    let mut failed = f.failed();
    failed.sort_unstable_by_key(|(context, _)| *context);
    assert_eq!(failed, [(1, Errno::ECONNRESET), (2, Errno::ECONNRESET)]);
    assert_eq!(f.engine.outstanding(f.ep), 0);
}

fn emit(header: &Header) -> Vec<u8> {
    let mut bytes = [0; MAX_HEADER];
    let len = header.emit(ByteOrder::Little, &mut bytes).unwrap();
    bytes[..len].to_vec()
}

#[test]
fn a_plain_write_is_placed_at_once() {
    let mut f = Fixture::new();
    f.open_mr(Mem(0x1000, 100), 9, Access::WRITE);
    f.open_mr(Mem(0x2000, 100), 10, Access::READ);
    let counted = f.open_mr(Mem(0x3000, 100), 11, Access::WRITE);
    let counter = f.engine.open_counter(Counter::default()).unwrap();
    f.engine.mr_mut(counted).unwrap().counter = Some(counter);
    let plain = emit(&write_of(&[iov(0x10, 8, 9)]));
    let header_len = plain.len();
    let mut bytes = plain.clone();
    bytes.extend([0; 8]);
    let place = |f: &mut Fixture, bytes: &[u8], more| {
        let whole = f.engine.rx_write(f.conn, bytes, more)?;
        Some((whole.header_len, whole.len, whole.memory))
    };
    let found = Some((header_len, 8, Mem(0x1010, 8)));
    assert_eq!(place(&mut f, &bytes, 0), found);
    assert_eq!(place(&mut f, &bytes[..header_len + 3], 5), found);
    assert_eq!(place(&mut f, &bytes[..header_len + 3], 4), None);
    assert_eq!(place(&mut f, &bytes[..header_len - 1], 99), None);
    // Everything else is for the long way, which tells what is wrong.
    let data = Header {
        cq_data: Some(1),
        ..write_of(&[iov(0, 8, 9)])
    };
    let acked = Header {
        flags: BaseFlags::DELIVERY_COMPLETE,
        ..write_of(&[iov(0, 8, 9)])
    };
    for other in [
        data,
        acked,
        write_of(&[iov(0, 0, 9)]),
        write_of(&[iov(93, 8, 9)]),
        write_of(&[iov(u64::MAX, 8, 9)]),
        write_of(&[iov(0, 8, 8)]),
        write_of(&[iov(0, 8, 10)]),
        write_of(&[iov(0, 8, 11)]),
        write_of(&[iov(0, 4, 9), iov(4, 4, 9)]),
    ] {
        assert_eq!(place(&mut f, &emit(&other), 200), None, "{other:?}");
    }
    assert_eq!(f.engine.rx_header(f.conn, &plain[..4]), Ok(4));
    assert_eq!(place(&mut f, &bytes, 0), None, "in the middle of a header");
}

#[test]
fn short_writes_go_where_plain_ones_go() {
    let mut f = Fixture::new();
    f.open_mr(Mem(0x1000, 100), 9, Access::WRITE);
    f.open_mr(Mem(0x2000, 100), 8, Access::READ);
    let place = |f: &Fixture, header: &[u8]| {
        let writes = f.engine.rx_short_writes(f.conn)?;
        writes.place(header.first_chunk().unwrap())
    };
    let write = emit(&write_of(&[iov(4, 8, 9)]));
    assert_eq!(place(&f, &write), Some(Mem(0x1004, 8)));
    for other in [
        iov(93, 8, 9),
        iov(u64::MAX, 8, 9),
        iov(0, 8, 8),
        iov(0, 8, 7),
    ] {
        assert_eq!(place(&f, &emit(&write_of(&[other]))), None, "{other:?}");
    }
    assert_eq!(place(&f, &emit(&write_of(&[iov(0, 0, 9)]))), None);
    let acked = Header {
        flags: BaseFlags::DELIVERY_COMPLETE,
        ..write_of(&[iov(4, 8, 9)])
    };
    assert_eq!(place(&f, &emit(&acked)), None);
    // In the middle of a header, and where somebody counts.
    assert_eq!(f.engine.rx_header(f.conn, &write[..4]), Ok(4));
    assert!(f.engine.rx_short_writes(f.conn).is_none());
    let mut f = Fixture::new();
    let counter = f.engine.open_counter(Counter::default()).unwrap();
    let count = |config: &mut EpConfig| config.remote_write_counter = Some(counter);
    f.engine.change_ep(f.ep, count);
    assert!(f.engine.rx_short_writes(f.conn).is_none());
}

#[test]
fn a_plain_write_needs_nothing_of_the_queues() {
    let mut f = Fixture::new();
    let to = iov(0x40, 8, 9);
    let header = f.engine.try_write_now(Some(f.conn), to).unwrap();
    let mut bytes = [0; MAX_HEADER];
    let len = write_of(&[to]).emit(ByteOrder::Little, &mut bytes).unwrap();
    assert_eq!(header[..], bytes[..len]);
    f.engine
        .written_now(crate::pool::Place::of(Some(f.cq)), None);
    assert_eq!(f.done(), []);
    f.engine
        .written_now(crate::pool::Place::of(Some(f.cq)), Some(6));
    let done = f.pop().unwrap();
    assert_eq!((done.context, done.flags), (6, Flags::RMA | Flags::WRITE));
    assert_eq!(f.engine.outstanding(f.ep), 0);
    // What waits goes first.
    f.start(&rma(RmaKind::Write, 1, 8)).unwrap();
    assert!(f.engine.try_write_now(Some(f.conn), to).is_none());
    let mut down = Fixture::down();
    assert!(down.engine.try_write_now(Some(down.conn), to).is_none());
    down.up();
    assert!(down.engine.try_write_now(Some(down.conn), to).is_some());
}
