//! Reads that a device carries out.

use ripstop_types::{Flags, RmaIov};
use ripstop_wire::rxm::{Body, Message};
use ripstop_wire::xnet::base::{RmaIovs, emit_response};

use super::*;
use alloc::vec;

const LEN: usize = 8;

fn read(context: usize) -> Rma<Mem> {
    let from = RmaIov {
        addr: 0x40,
        len: LEN as u64,
        key: 9,
    };
    Rma {
        kind: RmaKind::Read,
        iov: Iov::one(Mem(0x1000, LEN)),
        remote: RmaIovs::one(from),
        data: None,
        context,
        completion: true,
        inject: false,
        level: Level::Sent,
        work: false,
    }
}

impl Fixture {
    fn by_device(mut self) -> Self {
        self.up_read_by(Extensions::empty(), ReadBy::Device);
        self
    }

    fn read_now(&mut self, context: usize, completion: bool) -> bool {
        let memory = Mem(0x1000, LEN);
        self.engine.read_now(self.conn, memory, context, completion)
    }

    /// Posts a read the usual way.
    fn read(&mut self, context: usize) -> Result<RmaPlan> {
        let mut header = [0; MAX_HEADER];
        self.engine.rma(self.conn, &read(context), &mut header)
    }

    /// So many reads are done; returns how many headers of that were taken at once.
    fn reads_done(&mut self, count: usize) -> usize {
        let bytes = emit_response(ByteOrder::Little, 0).repeat(count);
        self.engine.rx_reads_done(self.conn, &bytes) / 16
    }

    /// How many reads the link is told of.
    fn tell_reads(&mut self) -> usize {
        core::iter::from_fn(|| self.engine.tell_read(self.conn)).count()
    }
}

#[test]
fn a_read_that_is_given_to_the_device_at_once_ends_as_any_other() {
    let mut f = Fixture::down();
    assert!(!f.read_now(1, true));
    let mut f = f.by_device();
    let counter = f.counter;
    f.engine
        .change_ep(f.ep, |config| config.read_counter = Some(counter));
    assert!(f.read_now(1, true) && f.read_now(2, false) && f.read_now(3, true));
    assert_eq!((f.output(), f.tell_reads()), (vec![], 0));
    assert_eq!((f.engine.outstanding(f.ep), f.done()), (3, vec![]));
    // With something else behind it, and a part of a header.
    let mut bytes = emit_response(ByteOrder::Little, 0).repeat(2);
    bytes.extend([0; 16]);
    assert_eq!(f.engine.rx_reads_done(f.conn, &bytes), 32);
    let done = f.pop().unwrap();
    assert_eq!((done.context, done.flags), (1, Flags::RMA | Flags::READ));
    assert_eq!(f.done(), []);
    let bytes = emit_response(ByteOrder::Little, 0);
    assert_eq!(f.engine.rx_reads_done(f.conn, &bytes[..15]), 0);
    assert_eq!(f.engine.rx_header(f.conn, &bytes[..7]), Ok(7));
    assert_eq!(f.engine.rx_reads_done(f.conn, &bytes), 0);
    assert_eq!(f.engine.rx_header(f.conn, &bytes[7..]), Ok(9));
    assert_eq!(f.done(), [3]);
    assert_eq!(f.engine.outstanding(f.ep), 0);
    let counted = f.engine.counter(counter).unwrap();
    assert_eq!(counted.value, 3);
    // There is no more.
    assert_eq!(f.reads_done(1), 0);
    assert_eq!(f.engine.rx_header(f.conn, &bytes), Err(Errno::EPROTO));
}

#[test]
fn a_read_that_the_device_does_not_take_was_never_posted() {
    let mut f = Fixture::ordered_down().by_device();
    assert!(f.read_now(1, true) && f.read_now(2, true));
    f.engine.unread_now(f.conn);
    assert_eq!(f.engine.outstanding(f.ep), 1);
    assert!(f.engine.conn(f.conn).unwrap().holds_after_reads());
    assert_eq!(f.reads_done(2), 1);
    assert_eq!(f.done(), [1]);
    assert!(f.read_now(3, true));
    f.engine.unread_now(f.conn);
    assert!(!f.engine.conn(f.conn).unwrap().holds_after_reads());
    assert!(matches!(f.send(4, None, 5), Ok(SendPlan::Packet { .. })));
    f.flush();
    assert!(f.read_now(5, true));
    assert!(matches!(f.send(6, None, 5), Ok(SendPlan::Postpone { .. })));
}

#[test]
fn a_read_is_given_to_the_device_in_its_turn() {
    let mut f = Fixture::ordered_down().by_device();
    // Something is to be written first.
    f.send(1, None, 5).unwrap();
    assert!(!f.read_now(2, true));
    f.flush();
    // So is the request of another read, which the link is not told of.
    assert!(matches!(f.read(2), Ok(RmaPlan::Append(_))));
    assert!(!f.read_now(3, true));
    f.flush();
    assert!(!f.read_now(3, true));
    assert_eq!(f.tell_reads(), 1);
    // Others before it hold up what follows reads, but no read.
    assert!(f.read_now(3, true));
    assert_eq!(f.tell_reads(), 0);
    assert!(matches!(f.send(4, None, 5), Ok(SendPlan::Postpone { .. })));
    assert!(!f.read_now(5, true));
    assert_eq!(f.done(), [1]);
    // What was put off goes on when both are done.
    assert_eq!(f.reads_done(1), 1);
    assert!(f.engine.is_quiet());
    assert_eq!(f.reads_done(1), 1);
    assert!(!f.engine.is_quiet());
    assert_eq!(f.start_postponed(), Ok(Some(4)));
    f.flush();
    assert_eq!(f.done(), [2, 3, 4]);
    // A fence does as well.
    assert!(f.read_now(6, true));
    f.engine.fence(f.conn);
    assert!(!f.read_now(7, true));
    assert!(matches!(f.read(7), Ok(RmaPlan::Postpone { .. })));
    assert_eq!(f.start_postponed(), Ok(None));
    assert_eq!(f.reads_done(1), 1);
    assert_eq!(f.start_postponed(), Ok(Some(7)));
}

#[test]
fn no_more_reads_are_posted_than_there_is_room_for() {
    let mut f = Fixture::down().by_device();
    f.engine.change_ep(f.ep, |config| config.tx_size = 2);
    assert!(f.read_now(1, true) && f.read_now(2, true));
    assert!(!f.read_now(3, true));
    assert_eq!(f.reads_done(1), 1);
    assert!(f.read_now(3, true));
    // A connection that ends fails them.
    f.engine.close_conn(f.conn, Errno::ECONNRESET);
    assert_eq!(f.done(), [1]);
    let lost = Errno::ECONNRESET;
    assert_eq!(f.failed(), [(2, lost), (3, lost)]);
    assert_eq!(f.engine.outstanding(f.ep), 0);
    assert!(!f.read_now(4, true));
}

#[test]
fn the_end_of_an_announced_message_is_no_plain_one() {
    let mut f = Fixture::down().by_device();
    f.recv(1, Some(5), 300);
    let message = Message {
        tag: Some(5),
        data: None,
        len: 300,
    };
    let memory = RmaIovs::one(RmaIov {
        addr: 0x40,
        len: 300,
        key: 9,
    });
    let announced = Body::Rendezvous {
        message,
        id: 4,
        memory,
    };
    f.packet(announced).unwrap();
    f.flush();
    assert_eq!(f.tell_reads(), 1);
    assert!(f.read_now(2, true));
    // It is done by the header of its response, behind which nothing comes.
    assert_eq!(f.reads_done(2), 0);
    f.header(&Header::new(Op::ReadRsp, 0)).unwrap();
    assert!(f.engine.rx_in_header(f.conn));
    assert_eq!(f.done(), [1]);
    assert_eq!(f.reads_done(1), 1);
    assert_eq!(f.done(), [2]);
    // What follows is told of in its turn.
    f.flush();
    assert!(f.read_now(3, true));
}

#[test]
fn only_a_device_ends_reads_without_payload() {
    let mut f = Fixture::down();
    f.up_in_packets();
    f.read(1).unwrap();
    f.flush();
    assert_eq!(f.reads_done(1), 0);
    assert_eq!(f.header(&Header::new(Op::ReadRsp, 0)), Err(Errno::EPROTO));
}
