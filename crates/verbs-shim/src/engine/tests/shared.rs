//! Shared receive queues.

use super::*;

/// Gives a side a shared receive queue with room for four, and a queue pair that receives there in place of its own.
fn share(side: &mut Side) -> usize {
    let cap = srq::SrqCap {
        max_wr: 4,
        max_sge: 1,
    };
    let id = side.engine.create_srq(side.pd, cap).expect("a queue");
    side.engine.destroy_qp(side.qp).expect("a queue pair");
    (side.qp, side.num) = another(side, id);
    id
}

/// Another queue pair that receives from a shared queue.
fn another(side: &Side, srq: usize) -> (usize, u32) {
    let cap = ibv_qp_cap {
        max_send_wr: 4,
        max_send_sge: 1,
        ..ibv_qp_cap::default()
    };
    let init = QpInit {
        pd: side.pd,
        send_cq: side.cq,
        recv_cq: side.cq,
        srq: Some(srq),
        all_signaled: false,
        cap,
        ud: false,
    };
    let (qp, num, _) = side.engine.create_qp(&init).expect("a queue pair");
    (qp, num)
}

fn post_shared(side: &Side, srq: usize, wr_id: u64, list: &[ibv_sge]) -> Result<()> {
    let mut one = Some((wr_id, list));
    side.engine.post_srq(srq, || one.take())
}

#[test]
fn queue_pairs_take_the_receives_that_they_share() {
    on_both(|kind| {
        let [first, mut second, mut hub] = [(); 3].map(|()| Side::new(kind));
        let shared = share(&mut hub);
        connect(&first, &hub);
        let (own_qp, own_num) = (hub.qp, hub.num);
        (hub.qp, hub.num) = another(&hub, shared);
        // The second one's message comes before the hub's queue pair is connected.
        second
            .modify(IBV_QPS_INIT, &hub)
            .expect("a change of state");
        second.modify(IBV_QPS_RTR, &hub).expect("a change of state");
        second.modify(IBV_QPS_RTS, &hub).expect("a change of state");
        post_shared(&hub, shared, 1, &[hub.sge(100, 8)]).expect("a receive");
        second
            .send(&wr(5, IBV_WR_SEND, NOWHERE), &[second.sge(0, 4)])
            .expect("a send");
        assert_eq!(second.wait().status, IBV_WC_SUCCESS);
        post_shared(&hub, shared, 2, &[hub.sge(120, 8)]).expect("a receive");
        first
            .send(&wr(6, IBV_WR_SEND, NOWHERE), &[first.sge(8, 4)])
            .expect("a send");
        let came = hub.wait();
        assert_eq!(
            (came.wr_id, came.qp_num, came.src_qp),
            (2, own_num, first.num)
        );
        hub.modify(IBV_QPS_INIT, &second)
            .expect("a change of state");
        hub.modify(IBV_QPS_RTR, &second).expect("a change of state");
        let came = hub.wait();
        assert_eq!(
            (came.wr_id, came.qp_num, came.src_qp),
            (1, hub.num, second.num)
        );
        assert_eq!(&hub.bytes()[100..104], &[0, 1, 2, 3]);
        assert_eq!(&hub.bytes()[120..124], &[8, 9, 10, 11]);
        // Receives outlive the peers and queue pairs that could have taken them.
        post_shared(&hub, shared, 3, &[hub.sge(140, 8)]).expect("a receive");
        second.engine.destroy_qp(second.qp).expect("a queue pair");
        (second.qp, second.num) = (usize::MAX, 0);
        assert_eq!(hub.engine.destroy_srq(shared), Err(Errno::EBUSY));
        assert_eq!(hub.engine.dereg_mr(hub.key), Err(Errno::EBUSY));
        first
            .send(&wr(7, IBV_WR_SEND, NOWHERE), &[first.sge(16, 9)])
            .expect("a send");
        // It is longer than its receive.
        let failed = hub.wait();
        assert_eq!((failed.wr_id, failed.status), (3, IBV_WC_LOC_LEN_ERR));
        let state = hub.engine.query_qp(own_qp).expect("attributes").0.qp_state;
        assert_eq!(state, IBV_QPS_ERR);
        hub.engine.destroy_qp(own_qp).expect("a queue pair");
        hub.engine.destroy_qp(hub.qp).expect("a queue pair");
        hub.engine.destroy_srq(shared).expect("a queue");
    });
}

#[test]
fn shared_receives_that_no_device_takes_are_refused() {
    let mut side = Side::new(Kind::Tcp);
    let shared = share(&mut side);
    let post = |list: &[ibv_sge]| post_shared(&side, shared, 1, list);
    assert_eq!(post(&[side.sge(0, 1); 2]), Err(Errno::EINVAL));
    assert_eq!(post(&[side.sge(255, 2)]), Err(Errno::EINVAL));
    assert_eq!(side.recv(1, &[]), Err(Errno::EINVAL));
    (0..4).for_each(|_| post(&[side.sge(0, 1)]).expect("room for a receive"));
    assert_eq!(post(&[side.sge(0, 1)]), Err(Errno::ENOMEM));
    assert_eq!(side.engine.resize_srq(shared, 3), Err(Errno::EINVAL));
    side.engine.resize_srq(shared, 5).expect("more room");
    post(&[side.sge(0, 1)]).expect("room for a receive");
    let none = srq::SrqCap {
        max_wr: 0,
        max_sge: 1,
    };
    let made = side.engine.create_srq(side.pd, none);
    assert_eq!(made, Err(Errno::EINVAL));
}
