//! Connections that end by agreement.

use alloc::vec::Vec;

use ripstop_types::{Errno, FiAddr};
use ripstop_wire::ByteOrder;
use ripstop_wire::rxm::{BASE_LEN, Body, Packet, Parting};
use ripstop_wire::xnet::base;
use ripstop_wire::xnet::cm::Extensions;

use super::Fixture;
use crate::Iov;
use crate::coll::{Joining, Task};
use crate::common::Mem;
use crate::id::GroupId;
use crate::matching::{Recv, Want};
use crate::stream::{Chunk, CollAction, Output, PacketTerms, ReadBy, SendPlan, Terms};

impl Fixture {
    fn up_for_parting(parts: bool) -> Self {
        let mut fixture = Self::down();
        let terms = Terms {
            packets: Some(PacketTerms {
                number: 3,
                eager_max: 100,
                segmented_max: 0,
                announced: ReadBy::Stream,
                parts,
            }),
            order: ByteOrder::Little,
            has_rendezvous: false,
            extensions: Extensions::empty(),
        };
        fixture.engine.conn_up(fixture.conn, terms);
        fixture
    }

    /// What is said of the end of the connection; all that waits is written.
    fn said(&mut self) -> Vec<Parting> {
        let mut chunks = [Chunk::TxBuffer(0); 32];
        let count = self.engine.transmit(self.conn, &mut chunks);
        let mut bytes = Vec::new();
        for chunk in &chunks[..count] {
            match chunk {
                Chunk::Control {
                    header: piece,
                    skip,
                } => bytes.extend_from_slice(&piece[*skip as usize..]),
                other => panic!("{other:?}"),
            }
        }
        self.engine.sent(self.conn, bytes.len());
        let units = bytes.chunks(base::BASE_LEN + BASE_LEN);
        let parting = |unit: &[u8]| {
            let packet = &unit[base::BASE_LEN..];
            match Packet::parse(ByteOrder::Little, packet, BASE_LEN as u64) {
                Ok(Packet {
                    body: Body::Part(parting),
                    ..
                }) => parting,
                other => panic!("{other:?}"),
            }
        };
        units.map(parting).collect()
    }

    /// Whether both sides end the connection, and whether this one closes it.
    fn parted(&mut self) -> Option<bool> {
        let conn = self.conn;
        let mut outputs = core::iter::from_fn(|| self.engine.pop_output());
        outputs.find_map(|output| match output {
            Output::Parted { conn: id, closes } if id == conn => Some(closes),
            _ => None,
        })
    }

    fn is_postponed(&mut self, context: usize) -> bool {
        matches!(
            self.send(context, Some(5), 5),
            Ok(SendPlan::Postpone { .. })
        )
    }
}

#[test]
fn what_is_posted_after_the_question_goes_by_another_connection() {
    let mut f = Fixture::up_for_parting(true);
    assert!(f.engine.ask_to_part(f.conn));
    assert!(!f.engine.ask_to_part(f.conn));
    assert!(f.is_postponed(1));
    assert_eq!(f.said(), [Parting::Ask]);
    assert_eq!(f.start_postponed(), Ok(None));
    assert_eq!(f.parted(), None);
    f.packet(Body::Part(Parting::Agree)).unwrap();
    assert_eq!(f.parted(), Some(true));
    assert_eq!(f.start_postponed(), Ok(None));
    let next = f.open_conn(f.ep, 7);
    f.engine.move_postponed(f.conn, next);
    f.engine.close_conn(f.conn, Errno::ECONNABORTED);
    f.conn = next;
    assert_eq!((f.failed(), f.done()), (Vec::new(), Vec::new()));
    f.up_in_packets();
    assert_eq!(f.start_postponed(), Ok(Some(1)));
}

#[test]
fn a_peer_with_something_under_way_stays() {
    let mut f = Fixture::up_for_parting(true);
    assert!(f.engine.ask_to_part(f.conn));
    assert_eq!(f.said(), [Parting::Ask]);
    assert!(f.is_postponed(1));
    f.packet(Body::Part(Parting::Stay)).unwrap();
    assert!(!f.engine.is_parting(f.conn));
    assert_eq!(f.start_postponed(), Ok(Some(1)));
    // And so does this side.
    f.packet(Body::Part(Parting::Ask)).unwrap();
    assert_eq!(f.parted(), None);
    assert!(!f.engine.is_parting(f.conn));
    assert!(!f.engine.ask_to_part(f.conn));
}

#[test]
fn a_side_with_nothing_under_way_agrees() {
    let mut f = Fixture::up_for_parting(true);
    f.packet(Body::Part(Parting::Ask)).unwrap();
    assert_eq!(f.parted(), Some(false));
    assert_eq!(f.said(), [Parting::Agree]);
    assert!(f.is_postponed(1));
    assert_eq!(f.packet(Body::Part(Parting::Ask)), Err(Errno::EPROTO));
}

#[test]
fn sides_that_both_ask_both_agree() {
    let mut f = Fixture::up_for_parting(true);
    assert!(f.engine.ask_to_part(f.conn));
    f.packet(Body::Part(Parting::Ask)).unwrap();
    // The peer may be the first to close; this side may not before it knows that its own question was read.
    assert!(f.engine.may_be_closed(f.conn));
    assert_eq!(f.parted(), None);
    assert_eq!(f.said(), [Parting::Ask, Parting::Agree]);
    assert_eq!(f.packet(Body::Part(Parting::Stay)), Err(Errno::EPROTO));
    f.packet(Body::Part(Parting::Agree)).unwrap();
    assert_eq!(f.parted(), Some(true));
}

#[test]
fn the_end_of_a_peer_that_receives_name_is_to_be_noticed() {
    let mut f = Fixture::up_for_parting(true);
    let want = Want {
        tag: None,
        src: FiAddr(7),
    };
    f.post(Recv::new(Iov::one(Mem(0x2000, 5)), want, 1));
    assert!(!f.engine.ask_to_part(f.conn));
    f.packet(Body::Part(Parting::Ask)).unwrap();
    assert_eq!(f.said(), [Parting::Stay]);
    assert_eq!(f.parted(), None);
}

impl Fixture {
    /// Joins a group of the peer, as its first member, and this side.
    fn join_peer(&mut self) -> GroupId {
        let joined = self.engine.join_group(&Joining {
            ep: self.ep,
            members: &[FiAddr(7), FiAddr(8)],
            me: 1,
            digest: 5,
        });
        joined.unwrap()
    }

    /// How a group was joined, if that is over.
    fn joined(&mut self) -> Option<Option<Errno>> {
        let mut actions = core::iter::from_fn(|| self.engine.coll_next());
        actions.find_map(|action| match action {
            CollAction::Task(Task::Joined { error, .. }) => Some(error),
            _ => None,
        })
    }
}

#[test]
fn the_connection_to_a_member_of_a_group_stays_until_that_is_left() {
    let mut f = Fixture::up_for_parting(true);
    let group = f.join_peer();
    assert!(!f.engine.ask_to_part(f.conn));
    f.packet(Body::Part(Parting::Ask)).unwrap();
    assert_eq!(f.said(), [Parting::Stay]);
    f.engine.close_group(group);
    assert!(f.engine.ask_to_part(f.conn));
}

#[test]
fn no_member_is_lost_with_a_connection_whose_end_was_agreed_on() {
    for agreed in [true, false] {
        let mut f = Fixture::up_for_parting(true);
        assert!(f.engine.ask_to_part(f.conn));
        f.join_peer();
        assert_eq!(f.joined(), None);
        if agreed {
            f.packet(Body::Part(Parting::Agree)).unwrap();
        }
        f.engine.close_conn(f.conn, Errno::ECONNABORTED);
        let lost = (!agreed).then_some(Some(Errno::ECONNABORTED));
        assert_eq!(f.joined(), lost);
    }
}

#[test]
fn who_asks_again_before_the_answer_was_written_breaks_the_protocol() {
    let mut f = Fixture::up_for_parting(true);
    let want = Want {
        tag: None,
        src: FiAddr(7),
    };
    f.post(Recv::new(Iov::one(Mem(0x2000, 5)), want, 1));
    for _ in 0..2 {
        f.packet(Body::Part(Parting::Ask)).unwrap();
        assert_eq!(f.said(), [Parting::Stay]);
    }
    f.packet(Body::Part(Parting::Ask)).unwrap();
    assert_eq!(f.packet(Body::Part(Parting::Ask)), Err(Errno::EPROTO));
}

#[test]
fn peers_of_other_libraries_are_not_asked() {
    let mut f = Fixture::up_for_parting(false);
    assert!(!f.engine.ask_to_part(f.conn));
    for said in [Parting::Ask, Parting::Agree] {
        assert_eq!(f.packet(Body::Part(said)), Err(Errno::EPROTO));
    }
    let mut f = Fixture::up_for_parting(true);
    for said in [Parting::Agree, Parting::Stay] {
        assert_eq!(f.packet(Body::Part(said)), Err(Errno::EPROTO));
    }
}
