//! Two devices of one process: what a program sees of its queue pairs, over tcp and over shm.

mod channel;
mod datagrams;
mod refusals;
mod requests;
mod shared;
mod states;

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use ripstop_mem::{Parked, copy_in};

use super::*;
use crate::lent;
use crate::net::Kind;
use crate::sys::{
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_RETRY_CNT,
    IBV_QP_TIMEOUT, IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WC_FETCH_ADD,
    IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV,
    IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_REM_ACCESS_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_SEND,
    IBV_WC_SUCCESS, IBV_WC_WITH_IMM, IBV_WC_WR_FLUSH_ERR, IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, ibv_sge,
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
            ud: false,
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
    #[track_caller]
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
    connect(&sides[0], &sides[1]);
    sides
}

/// Connects the queue pairs of two sides.
fn connect(a: &Side, b: &Side) {
    for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
        a.modify(state, b).expect("a change of state");
        b.modify(state, a).expect("a change of state");
    }
}

/// A signalled request.
fn wr(wr_id: u64, opcode: i32, remote: Remote) -> Asked {
    let (op, operands) = Op::of(opcode, 0x0102_0304, &remote).expect("an operation");
    Asked {
        wr_id,
        op,
        operands,
        flags: IBV_SEND_SIGNALED,
        to: None,
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
