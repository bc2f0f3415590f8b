//! Changes of state: errors, resets, and peers that go.

use super::*;

#[test]
fn a_peer_that_goes_ends_what_waits_for_it() {
    on_both(|kind| {
        let [a, b] = pair(kind);
        // A message that has arrived stays received.
        a.recv(1, &[a.sge(0, 8)]).expect("a receive");
        a.recv(2, &[a.sge(0, 8)]).expect("a receive");
        b.send(&wr(3, IBV_WR_SEND, NOWHERE), &[b.sge(0, 8)])
            .expect("a send");
        assert_eq!(b.wait().status, IBV_WC_SUCCESS);
        a.send(&wr(4, IBV_WR_SEND, NOWHERE), &[a.sge(0, 8)])
            .expect("a send");
        b.engine.destroy_qp(b.qp).expect("a queue pair");
        let mut ends = [a.wait(), a.wait(), a.wait()].map(|wc| (wc.wr_id, wc.status));
        ends.sort_unstable();
        let [received, flushed, (4, sent)] = ends else {
            panic!("{ends:?}");
        };
        assert_eq!(received, (1, IBV_WC_SUCCESS));
        assert_eq!(flushed, (2, IBV_WC_WR_FLUSH_ERR));
        // The peer's library may have had it when the queue pair went.
        assert!(
            [IBV_WC_RETRY_EXC_ERR, IBV_WC_SUCCESS].contains(&sent),
            "{sent}"
        );
    });
}

/// Sets the time after which a device would give a peer up: 8 times 16.8 ms.
fn set_patience(side: &Side) -> Duration {
    let attr = ibv_qp_attr {
        timeout: 12,
        retry_cnt: 7,
        ..ibv_qp_attr::default()
    };
    let mask = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT;
    side.engine
        .modify_qp(side.qp, &attr, mask)
        .expect("attributes");
    Duration::from_nanos(8 * (4096 << 12))
}

#[test]
fn a_peer_that_goes_is_reported_when_a_device_would_give_it_up() {
    on_both(|kind| {
        for armed in [false, true] {
            let [a, b] = pair(kind);
            let patience = set_patience(&a);
            a.recv(1, &[a.sge(0, 8)]).expect("a receive");
            let since = Instant::now();
            b.engine.destroy_qp(b.qp).expect("a queue pair");
            a.send(&wr(2, IBV_WR_SEND, NOWHERE), &[a.sge(0, 8)])
                .expect("a send");
            if armed {
                // The thread of the device looks; nobody polls.
                a.engine.arm(a.cq, false).expect("a queue");
                let queued = || {
                    a.engine
                        .inner
                        .lock()
                        .cqs
                        .get(a.cq)
                        .is_some_and(|cq| !cq.is_empty())
                };
                while !queued() {
                    assert!(since.elapsed() < HANG, "no completion");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            let mut ends = [a.wait(), a.wait()].map(|wc| (wc.wr_id, wc.status));
            assert!(since.elapsed() >= patience, "{:?}", since.elapsed());
            ends.sort_unstable();
            let gone = [(1, IBV_WC_WR_FLUSH_ERR), (2, IBV_WC_RETRY_EXC_ERR)];
            assert_eq!(ends, gone);
            a.engine.close();
        }
    });
}

#[test]
fn a_queue_pair_can_end_before_it_reports_that_its_peer_is_gone() {
    on_both(|kind| {
        let [a, b] = pair(kind);
        let patience = set_patience(&a);
        a.recv(1, &[a.sge(0, 8)]).expect("a receive");
        b.engine.destroy_qp(b.qp).expect("a queue pair");
        a.send(&wr(2, IBV_WR_SEND, NOWHERE), &[a.sge(0, 8)])
            .expect("a send");
        let since = Instant::now();
        let is_gone = || {
            let inner = a.engine.inner.lock();
            inner.qps.get(a.qp).is_some_and(Qp::is_peer_gone)
        };
        while !is_gone() {
            assert_eq!(a.engine.poll(a.cq, &mut [ibv_wc::default()]), Ok(0));
            assert!(since.elapsed() < HANG, "nothing heard of the peer");
        }
        // What is posted now goes to nobody, not even to another queue pair with the number of the peer.
        a.send(&wr(3, IBV_WR_SEND, NOWHERE), &[a.sge(0, 8)])
            .expect("a send");
        a.modify(IBV_QPS_ERR, &b).expect("a change of state");
        let ends = [a.wait(), a.wait(), a.wait()].map(|wc| (wc.wr_id, wc.status));
        assert_eq!(ends, [2, 3, 1].map(|wr_id| (wr_id, IBV_WC_WR_FLUSH_ERR)));
        std::thread::sleep(patience);
        assert_eq!(a.engine.poll(a.cq, &mut [ibv_wc::default()]), Ok(0));
    });
}

#[test]
fn what_has_arrived_is_not_lost_in_an_error() {
    on_both(|kind| {
        for by_region in [false, true] {
            let [a, b] = pair(kind);
            a.recv(1, &[a.sge(0, 8)]).expect("a receive");
            a.recv(2, &[a.sge(0, 8)]).expect("a receive");
            b.send(&wr(3, IBV_WR_SEND, NOWHERE), &[b.sge(8, 8)])
                .expect("a send");
            assert_eq!(b.wait().status, IBV_WC_SUCCESS);
            if by_region {
                a.engine.dereg_mr(a.key).expect("a region");
            } else {
                a.modify(IBV_QPS_ERR, &b).expect("a change of state");
            }
            assert_eq!(
                [a.wait(), a.wait()].map(|wc| (wc.wr_id, wc.status)),
                [(1, IBV_WC_SUCCESS), (2, IBV_WC_WR_FLUSH_ERR)]
            );
        }
    });
}

#[test]
fn what_has_arrived_is_not_lost_when_a_request_fails() {
    on_both(|kind| {
        for sends in [false, true] {
            let [a, b] = pair(kind);
            a.recv(1, &[a.sge(0, 8)]).expect("a receive");
            b.send(&wr(2, IBV_WR_SEND, NOWHERE), &[b.sge(8, 8)])
                .expect("a send");
            assert_eq!(b.wait().status, IBV_WC_SUCCESS);
            let wrong = ibv_sge {
                lkey: 0,
                ..a.sge(0, 8)
            };
            if sends {
                a.send(&wr(3, IBV_WR_SEND, NOWHERE), &[wrong])
                    .expect("a send");
            } else {
                a.recv(3, &[wrong]).expect("a receive");
            }
            assert_eq!(
                [a.wait(), a.wait()].map(|wc| (wc.wr_id, wc.status)),
                [(1, IBV_WC_SUCCESS), (3, IBV_WC_LOC_PROT_ERR)]
            );
        }
    });
}

#[test]
fn a_queue_pair_that_is_reset_forgets_what_was() {
    on_both(|kind| {
        let sides = pair(kind);
        let [a, b] = &sides;
        let send = |wr_id, at| {
            b.send(&wr(wr_id, IBV_WR_SEND, NOWHERE), &[b.sge(at, 8)])
                .expect("a send");
            assert_eq!(b.wait().status, IBV_WC_SUCCESS);
        };
        a.recv(1, &[a.sge(0, 8)]).expect("a receive");
        a.recv(2, &[a.sge(0, 8)]).expect("a receive");
        send(10, 8);
        // It is in the completion queue, and the other one is with the provider.
        assert_eq!(a.engine.poll(a.cq, &mut []), Ok(0));
        send(11, 8);
        for _ in 0..2 {
            a.modify(IBV_QPS_RESET, b).expect("a change of state");
            b.modify(IBV_QPS_RESET, a).expect("a change of state");
        }
        connect(a, b);
        a.recv(3, &[a.sge(0, 8)]).expect("a receive");
        a.recv(4, &[a.sge(8, 8)]).expect("a receive");
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(50) {
            assert_eq!(a.engine.poll(a.cq, &mut [ibv_wc::default()]), Ok(0));
        }
        send(12, 16);
        let came = a.wait();
        assert_eq!(
            (came.wr_id, came.status, came.byte_len),
            (3, IBV_WC_SUCCESS, 8)
        );
        assert_eq!(&a.bytes()[..8], &[16, 17, 18, 19, 20, 21, 22, 23]);
    });
}
