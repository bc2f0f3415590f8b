//! Requests that the device or the peer refuses.

use super::*;

#[test]
fn what_a_peer_denies_ends_the_queue_pair() {
    on_both(|kind| {
        let [a, b] = pair(kind);
        let mut wrong = remote(&b, 0);
        wrong.key = wrong.key.wrapping_add(1);
        a.recv(1, &[a.sge(0, 8)]).expect("a receive");
        let outside = remote(&b, 252);
        a.send(
            &wr(
                2,
                IBV_WR_RDMA_WRITE,
                if kind == Kind::Tcp { wrong } else { outside },
            ),
            &[a.sge(0, 8)],
        )
        .expect("a write");
        let failed = a.wait();
        assert_eq!((failed.wr_id, failed.status), (2, IBV_WC_REM_ACCESS_ERR));
        let flushed = a.wait();
        assert_eq!((flushed.wr_id, flushed.status), (1, IBV_WC_WR_FLUSH_ERR));
        // Later requests complete at once.
        a.send(&wr(3, IBV_WR_SEND, NOWHERE), &[]).expect("a send");
        assert_eq!(
            (
                a.wait().wr_id,
                a.engine.query_qp(a.qp).expect("attributes").0.qp_state
            ),
            (3, IBV_QPS_ERR)
        );
    });
}

#[test]
fn memory_that_is_not_registered_so_is_refused() {
    on_both(|kind| {
        let [a, b] = pair(kind);
        let other = a.engine.alloc_pd();
        let foreign = a
            .engine
            .reg_mr(other, a.memory.buf(), ALL)
            .expect("a region");
        let list = [ibv_sge {
            lkey: foreign,
            ..a.sge(0, 8)
        }];
        b.recv(9, &[b.sge(0, 8)]).expect("a receive");
        a.send(&wr(1, IBV_WR_SEND, NOWHERE), &[a.sge(0, 1)])
            .expect("a send");
        a.send(&wr(2, IBV_WR_SEND, NOWHERE), &list).expect("a send");
        assert_eq!(
            [a.wait(), a.wait()].map(|wc| (wc.wr_id, wc.status)),
            [(1, IBV_WC_SUCCESS), (2, IBV_WC_LOC_PROT_ERR)]
        );
        assert_eq!(a.engine.dealloc_pd(other), Err(Errno::EBUSY));
        a.engine.dereg_mr(foreign).expect("a region");
        a.engine.dealloc_pd(other).expect("a domain");
        // Past the end, and to write memory that is registered to be read.
        let [c, d] = pair(kind);
        c.recv(3, &[c.sge(250, 8)]).expect("a receive");
        assert_eq!(c.wait().status, IBV_WC_LOC_PROT_ERR);
        let read_only = d.engine.reg_mr(d.pd, d.memory.buf(), 0).expect("a region");
        let list = [ibv_sge {
            lkey: read_only,
            ..d.sge(0, 8)
        }];
        d.recv(4, &list).expect("a receive");
        assert_eq!(d.wait().status, IBV_WC_LOC_PROT_ERR);
    });
}

#[test]
fn a_message_longer_than_its_receive_is_an_error() {
    on_both(|kind| {
        let [a, b] = pair(kind);
        b.recv(1, &[b.sge(0, 2)]).expect("a receive");
        a.send(&wr(2, IBV_WR_SEND, NOWHERE), &[a.sge(0, 8)])
            .expect("a send");
        let short = b.wait();
        assert_eq!((short.wr_id, short.status), (1, IBV_WC_LOC_LEN_ERR));
    });
}

#[test]
fn requests_that_no_device_takes_are_refused() {
    let [a, b] = pair(Kind::Tcp);
    let send = |list: &[ibv_sge]| a.send(&wr(1, IBV_WR_SEND, NOWHERE), list);
    assert_eq!(send(&[a.sge(0, 1); 3]), Err(Errno::EINVAL));
    let unknown = Op::of(12, 0, &NOWHERE).map(|_| ());
    assert_eq!(unknown, Err(Errno::EOPNOTSUPP));
    let inline = |len| {
        let posting = a.engine.posting(a.qp);
        posting.and_then(|mut p| p.send(&wr(1, IBV_WR_SEND, NOWHERE), &[], Some(vec![0; len])))
    };
    assert_eq!(inline(33), Err(Errno::EINVAL));
    // The peer has no receives, so nothing completes.
    for _ in 0..4 {
        send(&[a.sge(0, 1)]).expect("room for a send");
    }
    assert_eq!(send(&[a.sge(0, 1)]), Err(Errno::ENOMEM));
    for id in 0..4 {
        a.recv(id, &[]).expect("room for a receive");
    }
    assert_eq!(a.recv(4, &[]), Err(Errno::ENOMEM));
    assert_eq!(a.recv(4, &[a.sge(0, 1); 2]), Err(Errno::EINVAL));
    assert_eq!(a.engine.destroy_cq(a.cq), Err(Errno::EBUSY));
    assert_eq!(a.modify(IBV_QPS_INIT, &b), Err(Errno::EINVAL));
    assert_eq!(
        a.engine
            .reg_mr(a.pd, a.memory.buf(), IBV_ACCESS_REMOTE_WRITE),
        Err(Errno::EINVAL)
    );
    assert_eq!(
        a.engine.reg_mr(a.pd, a.memory.buf(), 1 << 6),
        Err(Errno::EOPNOTSUPP)
    );
}

#[test]
fn word_of_a_write_that_no_device_does_is_an_error() {
    on_both(|kind| {
        for (len, data) in [(0, (device::MAX_MSG + 1) << 32), (4, 8 << 32)] {
            let [a, b] = pair(kind);
            a.recv(1, &[a.sge(0, 8)]).expect("a receive");
            {
                let mut inner = b.engine.inner.lock();
                let (qp, _, _) = inner.qp(b.qp).expect("a queue pair");
                let (port, peer) = (qp.port.as_ref().expect("an endpoint"), qp.peer);
                // With immediate data, and of a write.
                let tag = u64::from(a.num) << 40 | u64::from(b.num) << 16 | 3;
                let bytes = b.memory.buf().slice(0, len).expect("memory");
                port.send(&[bytes], tag, data, peer.expect("a peer"), usize::MAX >> 1)
                    .expect("a message");
            }
            let told = a.wait();
            assert_eq!((told.wr_id, told.status), (1, IBV_WC_LOC_LEN_ERR));
        }
    });
}
