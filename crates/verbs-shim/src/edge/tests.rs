//! What a program sees that builds requests by calls, and reads completions field by field.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ripstop_mem::{Parked, copy_in};
use ripstop_types::{Errno, Result};

use crate::edge::ah::create_ah;
use crate::edge::args::Must;
use crate::edge::ids::{given_up, object};
use crate::edge::made::{Ah, Context, Cq, Mr, Pd, Qp};
use crate::edge::objects::{alloc_pd, create_cq_ex, create_qp_ex, modify_qp, pointer, register};
use crate::edge::wr::{address, at, begin, complete, inline, memory};
use crate::edge::{device, poll};
use crate::engine::Remote;
use crate::lent;
use crate::sys::{
    IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_EX_WITH_BASIC, IBV_QP_EX_WITH_SENDS, IBV_QP_INIT_ATTR_PD,
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_QKEY, IBV_QP_STATE, IBV_QPS_INIT, IBV_QPS_RTR,
    IBV_QPS_RTS, IBV_QPT_RC, IBV_QPT_UD, IBV_SEND_SIGNALED, IBV_WC_RDMA_WRITE, IBV_WC_RECV,
    IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SEND, IBV_WC_STANDARD_FLAGS, IBV_WC_SUCCESS,
    IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, ibv_ah_attr,
    ibv_cq_init_attr_ex, ibv_data_buf, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr_ex, ibv_sge,
};

/// What a hang takes.
const HANG: Duration = Duration::from_secs(60);

/// Extended attributes of a completion queue.
fn cq_attr(wc_flags: u64) -> ibv_cq_init_attr_ex {
    ibv_cq_init_attr_ex {
        cqe: 16,
        cq_context: ptr::null_mut(),
        channel: ptr::null_mut(),
        comp_vector: 0,
        wc_flags,
        comp_mask: 0,
        flags: 0,
        parent_domain: ptr::null_mut(),
    }
}

/// Extended attributes of a queue pair.
fn qp_attr(cq: &Cq, qp_type: i32, send_ops_flags: u64) -> ibv_qp_init_attr_ex {
    ibv_qp_init_attr_ex {
        qp_context: ptr::null_mut(),
        send_cq: pointer(cq),
        recv_cq: pointer(cq),
        srq: ptr::null_mut(),
        cap: ibv_qp_cap {
            max_send_wr: 3,
            max_recv_wr: 4,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 16,
        },
        qp_type,
        sq_sig_all: 0,
        comp_mask: IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        pd: ptr::null_mut(),
        xrcd: ptr::null_mut(),
        create_flags: 0,
        max_tso_header: 0,
        rwq_ind_tbl: ptr::null_mut(),
        rx_hash_conf: [0; 3],
        source_qpn: 0,
        send_ops_flags,
    }
}

/// A device with a queue pair and a region.
struct Side<'a> {
    context: Must<'a, Context>,
    pd: Must<'a, Pd>,
    cq: Must<'a, Cq>,
    qp: Must<'a, Qp>,
    memory: Parked,
    mr: Must<'a, Mr>,
    key: u32,
}

impl Side<'_> {
    fn new() -> Self {
        Self::of(IBV_QPT_RC, IBV_QP_EX_WITH_BASIC)
    }

    /// One whose queue pair is of this type and has these operations.
    fn of(qp_type: i32, operations: u64) -> Self {
        let context = object::<Context>(device::open().expect("a device"));
        let pd = object::<Pd>(alloc_pd(&context));
        let cq = create_cq_ex(&context, &cq_attr(IBV_WC_STANDARD_FLAGS)).expect("a queue");
        let cq = object::<Cq>(cq.cast());
        let mut init = qp_attr(&cq, qp_type, operations);
        let qp = object::<Qp>(create_qp_ex(&pd, &mut init).expect("a queue pair"));
        let memory = Parked::park((0..64).collect());
        let start = memory.buf().addr();
        let mr = register(
            &pd,
            ptr::with_exposed_provenance_mut(start),
            64,
            start as u64,
            7,
        );
        let mr = object::<Mr>(mr.expect("a region"));
        Self {
            context,
            pd,
            cq,
            qp,
            memory,
            key: mr.c.lkey,
            mr,
        }
    }

    fn connect(&self, peer: &Self, state: i32) {
        let mut attr = ibv_qp_attr {
            qp_state: state,
            dest_qp_num: peer.qp.c.qp_base.qp_num,
            ..ibv_qp_attr::default()
        };
        (attr.ah_attr.dgid, attr.ah_attr.is_global) = (peer.context.engine.gid(), 1);
        let mask = match state {
            IBV_QPS_RTR => IBV_QP_AV | IBV_QP_DEST_QPN,
            IBV_QPS_INIT => IBV_QP_QKEY,
            _ => 0,
        };
        modify_qp(&self.qp, &attr, mask | IBV_QP_STATE).expect("a change of state");
    }

    fn sge(&self, at: u64, length: u32) -> ibv_sge {
        ibv_sge {
            addr: self.memory.buf().addr() as u64 + at,
            length,
            lkey: self.key,
        }
    }

    fn recv(&self, wr_id: u64, list: &[ibv_sge]) {
        let posting = self.qp.engine.posting(self.qp.id);
        posting
            .and_then(|mut posting| posting.recv(wr_id, list))
            .expect("a receive");
    }

    /// Begins a request with this number.
    fn begin(&self, wr_id: u64, opcode: i32, remote: Remote) {
        self.qp.c.wr_id.store(wr_id, Relaxed);
        self.qp.c.wr_flags.store(IBV_SEND_SIGNALED, Relaxed);
        begin(&self.qp, opcode, 0x0403_0201, remote);
    }

    /// Polls so many completions; their numbers, states, opcodes and lengths.
    fn poll(&self, count: usize) -> Vec<(u64, i32, i32, u32)> {
        let since = Instant::now();
        let mut found = Vec::new();
        while found.len() < count {
            assert!(since.elapsed() < HANG, "no completion");
            let mut next = poll::start(&self.cq, None);
            let started = next.is_ok();
            while next.is_ok() {
                let c = &self.cq.c;
                let wc = *self.cq.current.get();
                found.push((
                    c.wr_id.load(Relaxed),
                    c.status.load(Relaxed),
                    wc.opcode,
                    wc.byte_len,
                ));
                next = poll::next(&self.cq, &mut self.cq.current.get());
            }
            assert_eq!(next, Err(Errno::ENOENT));
            if started {
                self.cq.current.end();
            }
        }
        found
    }

    /// Destroys the objects.
    fn end(self) {
        self.qp.engine.destroy_qp(self.qp.id).expect("a queue pair");
        self.context.engine.dereg_mr(self.key).expect("a region");
        drop(given_up::<Qp>(pointer(&*self.qp)).take());
        drop(given_up::<Mr>(pointer(&*self.mr)).take());
        self.cq.engine.destroy_cq(self.cq.id).expect("a queue");
        drop(given_up::<Cq>(pointer(&*self.cq)).take());
        drop(given_up::<Pd>(pointer(&*self.pd)).take());
        self.context.engine.close();
        drop(given_up::<Context>(pointer(&*self.context)).take());
        lent::free(self.memory);
    }
}

#[test]
fn requests_are_built_and_read_by_calls() {
    let [a, b] = [Side::new(), Side::new()];
    for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
        a.connect(&b, state);
        b.connect(&a, state);
    }
    (1..4).for_each(|id| b.recv(id, &[b.sge(48, 16)]));
    drop(a.qp.building.begin());
    a.begin(10, IBV_WR_SEND, Remote::default());
    memory(&a.qp, &[a.sge(0, 4)]);
    a.begin(11, IBV_WR_RDMA_WRITE_WITH_IMM, at(b.sge(32, 0).addr, b.key));
    memory(&a.qp, &[a.sge(8, 8)]);
    a.begin(12, IBV_WR_RDMA_WRITE, at(b.sge(40, 0).addr, b.key));
    let mut text = *b"inline";
    let buf = ibv_data_buf {
        addr: text.as_mut_ptr().cast::<c_void>(),
        length: text.len(),
    };
    inline(&a.qp, &[buf]);
    complete(&a.qp).expect("three requests");
    let done = a.poll(3).into_iter();
    let done: Vec<_> = done
        .map(|(id, status, opcode, _)| (id, status, opcode))
        .collect();
    let sent = [
        (10, IBV_WC_SEND),
        (11, IBV_WC_RDMA_WRITE),
        (12, IBV_WC_RDMA_WRITE),
    ];
    assert_eq!(done, sent.map(|(id, opcode)| (id, IBV_WC_SUCCESS, opcode)));
    let came = [
        (1, IBV_WC_SUCCESS, IBV_WC_RECV, 4),
        (2, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM, 8),
    ];
    assert_eq!(b.poll(2), came);
    let mut bytes = [0; 64];
    copy_in(&mut bytes, b.memory.buf());
    assert_eq!(&bytes[32..46], b"\x08\x09\x0a\x0b\x0c\x0d\x0e\x0finline");
    assert_eq!(&bytes[48..52], &[0, 1, 2, 3]);
    [a, b].into_iter().for_each(Side::end);
}

#[test]
fn requests_that_cannot_be_built_are_refused_as_a_whole() {
    let side = Side::new();
    let build = |requests: &[&dyn Fn()]| -> Result<()> {
        drop(side.qp.building.begin());
        requests.iter().for_each(|request| request());
        complete(&side.qp)
    };
    let send = || side.begin(1, IBV_WR_SEND, Remote::default());
    let too_many = || memory(&side.qp, &[side.sge(0, 1); 5]);
    let long = || {
        let buf = ibv_data_buf {
            addr: ptr::null_mut(),
            length: usize::MAX,
        };
        inline(&side.qp, &[buf, buf]);
    };
    assert_eq!(build(&[&too_many]), Err(Errno::EINVAL));
    assert_eq!(build(&[&send, &too_many]), Err(Errno::EINVAL));
    assert_eq!(build(&[&send, &long]), Err(Errno::EINVAL));
    assert_eq!(
        build(&[&|| side.begin(1, 12, Remote::default())]),
        Err(Errno::EOPNOTSUPP)
    );
    assert_eq!(build(&[&send, &send, &send, &send]), Err(Errno::ENOMEM));
    assert_eq!(build(&[]), Ok(()));
    let unknown = create_qp_ex(&side.pd, &mut qp_attr(&side.cq, IBV_QPT_RC, 1 << 7));
    assert_eq!(unknown.map(|_| ()), Err(Errno::EOPNOTSUPP));
    let times = create_cq_ex(&side.context, &cq_attr(1 << 7));
    assert_eq!(times.map(|_| ()), Err(Errno::EOPNOTSUPP));
    side.end();
}

#[test]
fn datagrams_are_built_with_the_handle_they_go_to() {
    let [a, b] = [(); 2].map(|()| Side::of(IBV_QPT_UD, IBV_QP_EX_WITH_SENDS));
    for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
        a.connect(&b, state);
        b.connect(&a, state);
    }
    let attr = ibv_ah_attr {
        dgid: b.context.engine.gid(),
        is_global: 1,
        port_num: 1,
        ..ibv_ah_attr::default()
    };
    let [handle, foreign] = [&a.pd, &b.pd].map(|pd| create_ah(pd, &attr).expect("a handle"));
    let [handle, foreign] = [handle, foreign].map(object::<Ah>);
    let num = b.qp.c.qp_base.qp_num;
    let build = |ah| {
        drop(a.qp.building.begin());
        a.begin(10, IBV_WR_SEND_WITH_IMM, Remote::default());
        address(&a.qp, ah, num, 0);
        memory(&a.qp, &[a.sge(0, 4)]);
        complete(&a.qp)
    };
    b.recv(1, &[b.sge(0, 64)]);
    assert_eq!(build(None), Err(Errno::EINVAL));
    assert_eq!(build(Some(&foreign)), Err(Errno::EINVAL));
    assert_eq!(build(Some(&handle)), Ok(()));
    assert_eq!(a.poll(1), [(10, IBV_WC_SUCCESS, IBV_WC_SEND, 4)]);
    assert_eq!(b.poll(1), [(1, IBV_WC_SUCCESS, IBV_WC_RECV, 44)]);
    let mut bytes = [0; 64];
    copy_in(&mut bytes, b.memory.buf());
    assert_eq!(bytes[40..44], [0, 1, 2, 3]);
    // Operations that datagrams do not have.
    let init = &mut qp_attr(&a.cq, IBV_QPT_UD, IBV_QP_EX_WITH_BASIC);
    let made = create_qp_ex(&a.pd, init).map(|_| ());
    assert_eq!(made, Err(Errno::EOPNOTSUPP));
    assert_eq!(
        a.context.engine.dealloc_pd(a.pd.c.handle),
        Err(Errno::EBUSY)
    );
    for ah in [handle, foreign] {
        ah.engine.destroy_ah(ah.pd);
        drop(given_up::<Ah>(pointer(&*ah)).take());
    }
    [a, b].into_iter().for_each(Side::end);
}
