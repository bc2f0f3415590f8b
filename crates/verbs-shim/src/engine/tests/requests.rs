//! Messages, writes, reads and atomics that succeed.

use super::*;

#[test]
fn messages_arrive_in_order() {
    on_both(|kind| {
        let [a, b] = pair(kind);
        for id in 0..2 {
            b.recv(id, &[b.sge(128 + id * 8, 8)]).expect("a receive");
            let list = [a.sge(id * 4, 2), a.sge(id * 4 + 2, 2)];
            a.send(&wr(10 + id, IBV_WR_SEND, NOWHERE), &list)
                .expect("a send");
        }
        for id in 0..2 {
            let (sent, came) = (a.wait(), b.wait());
            assert_eq!(
                (sent.wr_id, sent.status, sent.opcode),
                (10 + id, IBV_WC_SUCCESS, IBV_WC_SEND)
            );
            assert_eq!(
                (came.wr_id, came.status, came.opcode),
                (id, IBV_WC_SUCCESS, IBV_WC_RECV)
            );
            assert_eq!((came.byte_len, came.src_qp, came.qp_num), (4, a.num, b.num));
        }
        assert_eq!(
            &b.bytes()[128..140],
            &[0, 1, 2, 3, 132, 133, 134, 135, 4, 5, 6, 7]
        );
    });
}

#[test]
fn a_write_with_immediate_data_takes_a_receive() {
    on_both(|kind| {
        let [a, b] = pair(kind);
        b.recv(1, &[]).expect("a receive");
        b.recv(2, &[b.sge(0, 8)]).expect("a receive");
        let mut inline = wr(8, IBV_WR_SEND, NOWHERE);
        inline.flags |= IBV_SEND_INLINE;
        a.send(
            &wr(7, IBV_WR_RDMA_WRITE_WITH_IMM, remote(&b, 200)),
            &[a.sge(0, 3)],
        )
        .expect("a write");
        let posting = a.engine.posting(a.qp);
        posting
            .and_then(|mut p| p.send(&inline, &[], Some(vec![9; 5])))
            .expect("a send");
        assert_eq!(
            [a.wait(), a.wait()].map(|wc| (wc.wr_id, wc.status, wc.opcode)),
            [
                (7, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE),
                (8, IBV_WC_SUCCESS, IBV_WC_SEND)
            ]
        );
        let (told, came) = (b.wait(), b.wait());
        assert_eq!(
            (told.wr_id, told.opcode, told.byte_len),
            (1, IBV_WC_RECV_RDMA_WITH_IMM, 3)
        );
        assert_eq!(
            (told.wc_flags, told.imm_data),
            (IBV_WC_WITH_IMM, 0x0102_0304)
        );
        assert_eq!(
            (came.wr_id, came.opcode, came.byte_len),
            (2, IBV_WC_RECV, 5)
        );
        assert_eq!(&b.bytes()[198..204], &[198, 199, 0, 1, 2, 203]);
        assert_eq!(&b.bytes()[..6], &[9, 9, 9, 9, 9, 5]);
    });
}

#[test]
fn reads_and_atomics_return_what_was_there() {
    on_both(|kind| {
        let [a, b] = pair(kind);
        let add = wr(1, IBV_WR_ATOMIC_FETCH_AND_ADD, add(&b, 8));
        let mut read = wr(2, IBV_WR_RDMA_READ, remote(&b, 8));
        read.flags |= IBV_SEND_FENCE;
        a.send(&add, &[a.sge(64, 8)]).expect("an atomic");
        a.send(&read, &[a.sge(80, 8)]).expect("a read");
        assert_eq!(
            [a.wait(), a.wait()].map(|wc| (wc.wr_id, wc.status, wc.opcode)),
            [
                (1, IBV_WC_SUCCESS, IBV_WC_FETCH_ADD),
                (2, IBV_WC_SUCCESS, IBV_WC_RDMA_READ)
            ]
        );
        let bytes = a.bytes();
        assert_eq!(&bytes[64..72], &[8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(&bytes[80..88], &[9, 9, 10, 11, 12, 13, 14, 15]);
    });
}

#[test]
fn an_atomic_uses_the_region_of_its_result() {
    on_both(|kind| {
        let [a, b] = pair(kind);
        let key = a
            .engine
            .reg_mr(a.pd, a.memory.buf(), ALL)
            .expect("a region");
        let wrong = ibv_sge {
            lkey: 0,
            ..a.sge(0, 8)
        };
        let result = ibv_sge {
            lkey: key,
            ..a.sge(64, 8)
        };
        let remote = add(&b, 8);
        // The atomic waits behind a request that fails once the list is posted.
        let mut posting = a.engine.posting(a.qp).expect("a queue pair");
        let mut send = |wr: &Asked, sge| posting.send(wr, &[sge], None);
        send(&wr(1, IBV_WR_SEND, NOWHERE), wrong).expect("a send");
        send(&wr(2, IBV_WR_ATOMIC_FETCH_AND_ADD, remote), result).expect("an atomic");
        let uses = |inner: &mut Inner| inner.qp(a.qp).map(|(qp, ..)| qp.uses(key));
        assert_eq!(uses(&mut posting.inner), Ok(true));
        drop(posting);
        assert_eq!(uses(&mut a.engine.inner.lock()), Ok(false));
        a.engine.dereg_mr(key).expect("a region");
        assert_eq!(
            [a.wait(), a.wait()].map(|wc| (wc.wr_id, wc.status)),
            [(1, IBV_WC_LOC_PROT_ERR), (2, IBV_WC_WR_FLUSH_ERR)]
        );
    });
}
