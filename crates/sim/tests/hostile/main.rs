//! A peer that does not keep to the protocol: nothing panics, what waited for it ends, and
//! what others do is not disturbed.

mod endings;
mod moves;
mod scene;

use proptest::prelude::*;
use ripstop_wire::ByteOrder;
use ripstop_wire::xnet::base::{Header, Op, RmaIov, RmaIovs};

use crate::moves::{Move, step, step_in_packets};
use crate::scene::Scene;

fn play(steps: &[Move], seed: u64, order: ByteOrder, spoil: Option<(usize, u8)>) {
    perform_all(Scene::new(seed, order, (seed % 2) as u8), steps, spoil);
}

fn perform_all(mut scene: Scene, steps: &[Move], spoil: Option<(usize, u8)>) {
    for _ in 0..60 {
        scene.round();
    }
    let mut friendly = 0;
    for step in steps {
        scene.perform(step);
        if let Some((at, bits)) = spoil
            && let Some(byte) = scene.outbox.get_mut(at)
        {
            *byte ^= bits;
        }
        if friendly < 12 {
            scene.exchange(friendly);
            friendly += 1;
        }
    }
    scene.finish(friendly);
}

#[test]
fn a_send_to_a_peer_that_is_gone_ends_though_its_message_is_unread() {
    // It is longer than what is kept, so the end of the stream is never read.
    let unread = Move::Header(Header::new(Op::Msg, 1 << 40), 3000);
    play(&[Move::Send(0, true), unread], 0, ByteOrder::Little, None);
}

#[test]
fn what_a_look_sets_aside_may_end_with_its_connection() {
    // The payload is still to come when the foe breaks the protocol; with this seed the victim
    // reads that between its look and its claim.
    let to_come = Header {
        tag: 1,
        op_data: 1,
        ..Header::new(Op::TagRts, 0)
    };
    let remote = RmaIov {
        key: 1,
        ..RmaIov::default()
    };
    let not_allowed = Header {
        rma: RmaIovs::new(&[remote]).expect("one"),
        ..Header::new(Op::ReadReq, 0)
    };
    let steps = [
        Move::Header(to_come, 0),
        Move::Header(not_allowed, 0),
        Move::Send(1001, false),
        Move::Run(3),
        Move::Peek(1, true, false),
    ];
    let seed = 18_113_139_743_827_611_449;
    play(&steps, seed, ByteOrder::Little, None);
    play(&steps, seed, ByteOrder::Little, Some((40, 1)));
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn well_formed_nonsense_disturbs_nobody(
        steps in prop::collection::vec(step(), 1..60),
        seed: u64,
        big: bool,
    ) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        play(&steps, seed, order, None);
    }

    #[test]
    fn ends_of_connections_that_nobody_has_agreed_on_disturb_nobody(
        steps in prop::collection::vec(step_in_packets(), 1..60),
        seed: u64,
    ) {
        perform_all(Scene::in_packets(seed), &steps, None);
    }

    #[test]
    fn spoilt_bytes_disturb_nobody(
        steps in prop::collection::vec(step(), 1..40),
        seed: u64,
        at in 0..64usize,
        bits in 1..=255u8,
    ) {
        play(&steps, seed, ByteOrder::Little, Some((at, bits)));
    }

    #[test]
    fn any_bytes_at_all_disturb_nobody(
        bytes in prop::collection::vec(any::<u8>(), 1..400),
        seed: u64,
    ) {
        play(&[Move::Recv(0, 100, false), Move::Garbage(bytes)], seed, ByteOrder::Little, None);
    }

    #[test]
    fn any_bytes_instead_of_a_greeting_disturb_nobody(
        bytes in prop::collection::vec(any::<u8>(), 1..400),
        keep in 0..41usize,
        seed: u64,
    ) {
        let mut scene = Scene::new(seed, ByteOrder::Little, 1);
        scene.outbox.truncate(keep);
        scene.outbox.extend(bytes);
        for number in 0..4 {
            scene.exchange(number);
        }
        scene.finish(4);
    }
}
