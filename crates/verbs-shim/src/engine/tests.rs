//! Two devices of one process: what a program sees of its queue pairs, over tcp and over shm.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use ripstop_mem::{Parked, copy_in};

use super::*;
use crate::lent;
use crate::net::Kind;
use crate::sys::{
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_SEND_FENCE,
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WC_FETCH_ADD, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR,
    IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM,
    IBV_WC_REM_ACCESS_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_SEND, IBV_WC_SUCCESS, IBV_WC_WITH_IMM,
    IBV_WC_WR_FLUSH_ERR, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, ibv_sge,
};

/// What a hang takes.
const HANG: Duration = Duration::from_secs(60);

/// Every access that peers may have.
const ALL: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_ATOMIC;

/// A device with a queue pair and a region.
struct Side {
    engine: Arc<Engine>,
    pd: u32,
    cq: usize,
    qp: usize,
    num: u32,
    memory: Parked,
    key: u32,
}

impl Drop for Side {
    fn drop(&mut self) {
        // Some tests have destroyed it.
        let _ = self.engine.destroy_qp(self.qp);
        let mut inner = self.engine.inner.lock();
        inner.srqs.clear();
        inner.mrs.clear();
        let memory = std::mem::replace(&mut self.memory, Parked::park(Vec::new()));
        lent::free(memory);
    }
}

impl Side {
    fn new(kind: Kind) -> Self {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let engine = Engine::of(Choice { kind, ip }).expect("a device");
        let pd = engine.alloc_pd();
        let cq = engine.create_cq(64, None).expect("a queue");
        let cap = ibv_qp_cap {
            max_send_wr: 4,
            max_recv_wr: 4,
            max_send_sge: 2,
            max_recv_sge: 1,
            max_inline_data: 32,
        };
        let init = QpInit {
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            all_signaled: false,
            cap,
        };
        let (qp, num, _) = engine.create_qp(&init).expect("a queue pair");
        let memory = Parked::park((0..=255).collect());
        let key = engine.reg_mr(pd, memory.buf(), ALL).expect("a region");
        Self {
            engine,
            pd,
            cq,
            qp,
            num,
            memory,
            key,
        }
    }

    fn modify(&self, state: i32, peer: &Self) -> Result<()> {
        let mut attr = ibv_qp_attr {
            qp_state: state,
            port_num: 1,
            dest_qp_num: peer.num,
            ..ibv_qp_attr::default()
        };
        (attr.ah_attr.dgid, attr.ah_attr.is_global) = (peer.engine.gid(), 1);
        let mask = match state {
            IBV_QPS_RTR => IBV_QP_AV | IBV_QP_DEST_QPN,
            _ => 0,
        };
        self.engine.modify_qp(self.qp, &attr, mask | IBV_QP_STATE)
    }

    fn sge(&self, at: u64, length: u32) -> ibv_sge {
        ibv_sge {
            addr: self.address(at),
            length,
            lkey: self.key,
        }
    }

    fn address(&self, at: u64) -> u64 {
        self.memory.buf().addr() as u64 + at
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 256];
        copy_in(&mut bytes, self.memory.buf());
        bytes
    }

    fn send(&self, wr: &Asked, list: &[ibv_sge]) -> Result<()> {
        self.engine.posting(self.qp)?.send(wr, list, None)
    }

    fn recv(&self, wr_id: u64, list: &[ibv_sge]) -> Result<()> {
        self.engine.posting(self.qp)?.recv(wr_id, list)
    }

    /// The next completion.
    fn wait(&self) -> ibv_wc {
        let since = Instant::now();
        let mut wc = [ibv_wc::default()];
        while self.engine.poll(self.cq, &mut wc).expect("a queue") == 0 {
            assert!(since.elapsed() < HANG, "no completion");
            std::thread::yield_now();
        }
        wc[0]
    }
}

/// Two sides whose queue pairs are connected.
fn pair(kind: Kind) -> [Side; 2] {
    let sides = [Side::new(kind), Side::new(kind)];
    for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
        sides[0]
            .modify(state, &sides[1])
            .expect("a change of state");
        sides[1]
            .modify(state, &sides[0])
            .expect("a change of state");
    }
    sides
}

/// A signalled request.
fn wr(wr_id: u64, opcode: i32, remote: Remote) -> Asked {
    let (op, operands) = Op::of(opcode, 0x0102_0304, &remote).expect("an operation");
    Asked {
        wr_id,
        op,
        operands,
        flags: IBV_SEND_SIGNALED,
    }
}

/// What a send names of the peer's memory.
const NOWHERE: Remote = Remote {
    addr: 0,
    key: 0,
    compare_add: 0,
    swap: 0,
};

/// The address and key of a write or read.
fn remote(side: &Side, at: u64) -> Remote {
    Remote {
        addr: side.address(at),
        key: side.key,
        ..NOWHERE
    }
}

/// Those of an atomic that adds 1.
fn add(side: &Side, at: u64) -> Remote {
    Remote {
        compare_add: 1,
        ..remote(side, at)
    }
}

fn on_both(test: impl Fn(Kind)) {
    for kind in [Kind::Tcp, Kind::Shm] {
        test(kind);
    }
}

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
        for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
            a.modify(state, b).expect("a change of state");
            b.modify(state, a).expect("a change of state");
        }
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

#[test]
fn a_queue_that_is_armed_tells_of_a_completion_once() {
    on_both(|kind| {
        let [a, b] = pair(kind);
        let channel = Channel::new().expect("a pipe");
        let cq = b
            .engine
            .create_cq(8, Some(Arc::clone(&channel)))
            .expect("a queue");
        let told = Told {
            cq: 5,
            context: 6,
            ..Told::default()
        };
        b.engine.call_cq(cq, told);
        let cap = b.engine.query_qp(b.qp).expect("attributes").1.cap;
        let init = QpInit {
            pd: b.pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            all_signaled: true,
            cap,
        };
        let (qp, num, _) = b.engine.create_qp(&init).expect("a queue pair");
        let mut c = b;
        (c.qp, c.num, c.cq) = (qp, num, cq);
        let d = Side::new(kind);
        for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
            c.modify(state, &d).expect("a change of state");
            d.modify(state, &c).expect("a change of state");
        }
        c.recv(1, &[]).expect("a receive");
        c.engine.arm(cq, false).expect("a queue");
        d.send(&wr(2, IBV_WR_SEND, NOWHERE), &[]).expect("a send");
        // Nobody polls here: the thread of the device does.
        let told = channel.take(Some).expect("an event");
        assert_eq!((told.cq, told.context), (5, 6));
        assert_eq!(c.wait().wr_id, 1);
        assert_eq!(d.wait().wr_id, 2);
        c.engine.close();
        drop(a);
    });
}

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
        for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
            first.modify(state, &hub).expect("a change of state");
            hub.modify(state, &first).expect("a change of state");
        }
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
