//! Queue pairs of datagrams (UD).

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::engine::qp::{Loss, MTU};
use crate::sys::{IBV_SEND_SOLICITED, IBV_WC_GRH, ibv_ah_attr};

const KEY: u32 = 0x1234;

/// Bytes of the memory of these sides.
const ROOM: usize = 2 * (GRH + MTU);

/// The number of an endpoint that there is not: a port that nobody is given.
const NOBODY: u32 = 0x0007_0001;

fn init(side: &Side) -> QpInit {
    QpInit {
        pd: side.pd,
        send_cq: side.cq,
        recv_cq: side.cq,
        srq: None,
        all_signaled: false,
        cap: ibv_qp_cap {
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 32,
        },
        ud: true,
    }
}

/// Takes a queue pair of datagrams to the state in which it sends.
fn ready(side: &Side) {
    let mut attr = ibv_qp_attr {
        port_num: 1,
        qkey: KEY,
        ..ibv_qp_attr::default()
    };
    for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
        attr.qp_state = state;
        let mask = IBV_QP_STATE
            | if state == IBV_QPS_INIT {
                IBV_QP_QKEY
            } else {
                0
            };
        side.engine
            .modify_qp(side.qp, &attr, mask)
            .expect("a change of state");
    }
}

/// A side with a queue pair of datagrams that sends and receives.
fn side(kind: Kind) -> Side {
    let mut side = Side::new(kind);
    side.engine.destroy_qp(side.qp).expect("a queue pair");
    side.engine.dereg_mr(side.key).expect("a region");
    let pattern = (0..ROOM).map(|at| (at % 251) as u8).collect();
    lent::free(std::mem::replace(&mut side.memory, Parked::park(pattern)));
    let region = side.engine.reg_mr(side.pd, side.memory.buf(), ALL);
    side.key = region.expect("a region");
    let made = side.engine.create_qp(&init(&side)).expect("a queue pair");
    (side.qp, side.num) = (made.0, made.1);
    ready(&side);
    side
}

fn to(peer: &Side) -> To {
    To {
        ip: peer.engine.choice.ip,
        num: peer.num,
        key: KEY,
    }
}

/// A signalled datagram with this immediate data.
fn datagram(imm: u32, to: To) -> Asked {
    Asked {
        wr_id: imm.into(),
        op: Op::Send { imm: Some(imm) },
        operands: [0; 2],
        flags: IBV_SEND_SIGNALED,
        to: Some(to),
    }
}

/// Sends one, whose request succeeds.
#[track_caller]
fn send(from: &Side, imm: u32, to: To, len: u32) {
    from.send(&datagram(imm, to), &[from.sge(0, len)])
        .expect("a datagram");
    let wc = from.wait();
    assert_eq!(
        (wc.wr_id, wc.status, wc.opcode),
        (imm.into(), IBV_WC_SUCCESS, IBV_WC_SEND)
    );
}

fn recv(side: &Side, wr_id: u64) {
    let list = [side.sge(0, (GRH + MTU) as u32)];
    side.recv(wr_id, &list).expect("a receive");
}

fn losses(side: &Side, loss: Loss) -> u64 {
    side.engine.inner.lock().qps[side.qp].losses(loss)
}

/// Polls until so many datagrams are lost.
#[track_caller]
fn wait_for_losses(side: &Side, loss: Loss, count: u64) {
    let since = Instant::now();
    while losses(side, loss) < count {
        let mut none = [ibv_wc::default()];
        assert_eq!(side.engine.poll(side.cq, &mut none), Ok(0));
        assert!(since.elapsed() < HANG, "{:?}", losses(side, loss));
    }
    assert_eq!(losses(side, loss), count);
}

fn bytes(side: &Side) -> Vec<u8> {
    let mut bytes = vec![0; ROOM];
    copy_in(&mut bytes, side.memory.buf());
    bytes
}

#[test]
fn a_datagram_arrives_behind_a_header_that_leads_back() {
    on_both(|kind| {
        let [a, b] = [side(kind), side(kind)];
        let pieces = [b.sge(0, 50), b.sge(200, 60)];
        b.recv(7, &pieces).expect("a receive");
        let list = [a.sge(3, 30), a.sge(100, 30)];
        a.send(&datagram(0x0102_0304, to(&b)), &list)
            .expect("a datagram");
        assert_eq!(a.wait().status, IBV_WC_SUCCESS);
        let wc = b.wait();
        assert_eq!((wc.wr_id, wc.status), (7, IBV_WC_SUCCESS));
        assert_eq!((wc.opcode, wc.byte_len), (IBV_WC_RECV, 100));
        assert_eq!((wc.qp_num, wc.src_qp), (b.num, a.num));
        assert_eq!(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
        assert_eq!(wc.imm_data, 0x0102_0304);
        let found = bytes(&b);
        let came: Vec<u8> = found[..50]
            .iter()
            .chain(&found[200..250])
            .copied()
            .collect();
        assert_eq!(&came[..8], &[0x60, 0, 0, 0, 0, 88, 0x1b, 64]);
        assert_eq!(came[8..24], a.engine.gid().0);
        assert_eq!(came[24..40], b.engine.gid().0);
        let sent: Vec<u8> = (3..33).chain(100..130).collect();
        assert_eq!(came[40..], sent);
        // What is behind it stays.
        assert_eq!(found[250..260], bytes(&a)[250..260]);
        let header = came.first_chunk::<GRH>();
        let way = ah::way_back(1, &wc, header).expect("a way");
        let ip = b.engine.create_ah(b.pd, &way).expect("a handle");
        recv(&a, 8);
        let back = To {
            ip,
            num: wc.src_qp,
            key: KEY,
        };
        send(&b, 9, back, 0);
        let wc = a.wait();
        assert_eq!((wc.wr_id, wc.byte_len, wc.imm_data), (8, 40, 9));
        // To itself.
        recv(&a, 10);
        a.send(&datagram(11, to(&a)), &[]).expect("a datagram");
        let mut both = [a.wait().wr_id, a.wait().wr_id];
        both.sort_unstable();
        assert_eq!(both, [10, 11]);
    });
}

#[test]
fn datagrams_that_find_no_receive_are_dropped_and_none_is_kept() {
    const COUNT: u32 = 100_000;
    on_both(|kind| {
        let [a, b] = [side(kind), side(kind)];
        // What the allocator keeps back of freed memory, as AddressSanitizer's does, it has after the first round.
        let mut grown = 0;
        for round in 1..=2_u64 {
            let before = resident();
            // The receiver does not call: its own thread takes what comes.
            for imm in 0..COUNT {
                send(&a, imm, to(&b), MTU as u32);
            }
            let since = Instant::now();
            while losses(&b, Loss::NoReceive) < round * u64::from(COUNT) {
                assert!(since.elapsed() < HANG, "they are not dropped");
                std::thread::sleep(Duration::from_millis(1));
            }
            grown = resident().saturating_sub(before);
        }
        // All of one round are 400 MiB.
        assert!(grown < 256 << 20, "{grown} bytes more");
        recv(&b, 1);
        send(&a, COUNT, to(&b), 8);
        let wc = b.wait();
        assert_eq!((wc.wr_id, wc.imm_data, wc.byte_len), (1, COUNT, 48));
        assert_eq!(losses(&a, Loss::Stuck), 0);
    });
}

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number
        .and_then(|kib| kib.parse::<u64>().ok())
        .expect("a size")
        << 10
}

#[test]
fn receives_end_while_the_program_does_not_poll() {
    on_both(|kind| {
        let [a, b] = [side(kind), side(kind)];
        recv(&b, 1);
        send(&a, 2, to(&b), 8);
        let since = Instant::now();
        while b.engine.inner.lock().cqs[b.cq].is_empty() {
            assert!(since.elapsed() < HANG, "nobody takes it");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(b.wait().imm_data, 2);
    });
}

#[test]
fn datagrams_with_another_key_are_dropped() {
    on_both(|kind| {
        let [a, b] = [side(kind), side(kind)];
        recv(&b, 1);
        let wrong = To {
            key: KEY + 1,
            ..to(&b)
        };
        send(&a, 2, wrong, 8);
        wait_for_losses(&b, Loss::Key, 1);
        // The upper half means the sender's own.
        let own = To {
            key: 1 << 31,
            ..to(&b)
        };
        send(&a, 3, own, 8);
        let wc = b.wait();
        assert_eq!((wc.wr_id, wc.imm_data), (1, 3));
    });
}

#[test]
fn lengths_are_those_of_a_datagram() {
    on_both(|kind| {
        let [a, b, c] = [side(kind), side(kind), side(kind)];
        recv(&b, 1);
        send(&a, 2, to(&b), MTU as u32);
        assert_eq!(b.wait().byte_len as usize, GRH + MTU);
        assert_eq!(bytes(&b)[GRH..GRH + MTU], bytes(&a)[..MTU]);
        // Longer than its receive: that one is lost, and nothing else.
        b.recv(3, &[b.sge(0, 47)]).expect("a receive");
        recv(&b, 4);
        send(&a, 5, to(&b), 8);
        send(&a, 6, to(&b), 8);
        let short = b.wait();
        assert_eq!((short.wr_id, short.status), (3, IBV_WC_LOC_LEN_ERR));
        assert_eq!(b.wait().imm_data, 6);
        // Longer than any.
        let list = [c.sge(0, MTU as u32), c.sge(0, 1)];
        c.send(&datagram(7, to(&b)), &list).expect("a request");
        let long = c.wait();
        assert_eq!((long.wr_id, long.status), (7, IBV_WC_LOC_LEN_ERR));
        let state = c.engine.query_qp(c.qp).expect("attributes").0.qp_state;
        assert_eq!(state, IBV_QPS_ERR);
    });
}

#[test]
fn peers_that_are_not_there_cost_datagrams_and_nothing_else() {
    on_both(|kind| {
        let [a, b] = [side(kind), side(kind)];
        let mut nobody = vec![To {
            num: NOBODY,
            ..to(&b)
        }];
        if kind == Kind::Tcp {
            // A gid that no device has.
            let ip = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
            nobody.push(To { ip, ..to(&b) });
        }
        for place in nobody {
            let since = Instant::now();
            // They cost once what a peer may take that takes nothing.
            (0..2000).for_each(|imm| send(&a, imm, place, 8));
            assert!(since.elapsed() < HANG / 6, "{place:?} blocks the others");
            recv(&b, 1);
            send(&a, 1000, to(&b), 8);
            assert_eq!(b.wait().imm_data, 1000);
        }
        let since = Instant::now();
        while losses(&a, Loss::Unreachable) == 0 {
            let mut none = [ibv_wc::default()];
            assert_eq!(a.engine.poll(a.cq, &mut none), Ok(0));
            assert!(since.elapsed() < HANG, "the loss is not noted");
        }
    });
}

#[test]
fn a_peer_that_takes_nothing_does_not_block_the_others() {
    on_both(|kind| {
        let [a, b, c] = [side(kind), side(kind), side(kind)];
        // As of a process that is stopped.
        let stopped = b.engine.inner.lock();
        let since = Instant::now();
        let mut imm = 0;
        while losses(&a, Loss::Stuck) == 0 {
            send(&a, imm, to(&b), MTU as u32);
            imm += 1;
            assert!(since.elapsed() < HANG, "{imm} datagrams are taken");
        }
        for imm in 0..100 {
            send(&a, imm, to(&b), 8);
            recv(&c, 1);
            send(&a, imm, to(&c), 8);
            assert_eq!(c.wait().imm_data, imm);
        }
        assert_eq!(losses(&a, Loss::Stuck), 101);
        drop(stopped);
        // It goes on where it was.
        wait_for_losses(&b, Loss::NoReceive, u64::from(imm) - 1);
        wait_for_last(&a, &b);
    });
}

#[test]
fn senders_out_of_step_are_received_each_in_its_order() {
    const COUNT: u32 = 2000;
    on_both(|kind| {
        let [a, b, hub] = [side(kind), side(kind), side(kind)];
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (from, pause) in [(&a, 3), (&b, 7)] {
                let (hub, done) = (&hub, &done);
                scope.spawn(move || {
                    let mut imm = 0;
                    while !done.load(Ordering::Relaxed) {
                        send(from, imm, to(hub), 1 + imm % 500);
                        imm += 1;
                        if imm % pause == 0 {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut next = [(a.num, 0, 0), (b.num, 0, 0)];
            (0..8).for_each(|id| recv(&hub, id));
            while next.iter().any(|(_, _, count)| *count < COUNT) {
                let wc = hub.wait();
                assert_eq!(wc.status, IBV_WC_SUCCESS);
                let from = next.iter_mut().find(|(num, ..)| *num == wc.src_qp);
                let (_, least, count) = from.expect("one of the senders");
                assert!(wc.imm_data >= *least, "{} after {least}", wc.imm_data);
                assert_eq!(wc.byte_len, 41 + wc.imm_data % 500);
                (*least, *count) = (wc.imm_data + 1, *count + 1);
                recv(&hub, wc.wr_id);
            }
            done.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn others_go_on_when_one_ends() {
    on_both(|kind| {
        let [a, b, hub, other] = [(); 4].map(|()| side(kind));
        for imm in 0..500 {
            send(&a, imm, to(&hub), MTU as u32);
            send(&b, imm, to(&hub), MTU as u32);
        }
        // With its last ones on the way.
        drop(a);
        wait_for_last(&b, &hub);
        // The receiver ends.
        for imm in 0..500 {
            send(&b, imm, to(&hub), MTU as u32);
            send(&b, imm, to(&other), MTU as u32);
        }
        let gone = to(&hub);
        drop(hub);
        for imm in 0..500 {
            send(&b, imm, gone, MTU as u32);
        }
        wait_for_last(&b, &other);
        let state = b.engine.query_qp(b.qp).expect("attributes").0.qp_state;
        assert_eq!(state, IBV_QPS_RTS);
    });
}

/// Sends datagrams until one is received.
#[track_caller]
fn wait_for_last(from: &Side, at: &Side) {
    const LAST: u32 = 77_777;
    recv(at, 1);
    let since = Instant::now();
    loop {
        assert!(since.elapsed() < HANG, "none is received");
        send(from, LAST, to(at), 8);
        let mut wc = [ibv_wc::default()];
        let found = at.engine.poll(at.cq, &mut wc).expect("a queue");
        if wc[0].imm_data == LAST {
            return;
        }
        if found > 0 {
            recv(at, 1);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn datagrams_arrive_when_their_queue_pair_is_destroyed_behind_them() {
    on_both(|kind| {
        let [a, b] = [side(kind), side(kind)];
        (0..60).for_each(|id| recv(&b, id));
        (0..60).for_each(|imm| send(&a, imm, to(&b), MTU as u32));
        drop(a);
        for imm in 0..60 {
            assert_eq!(b.wait().imm_data, imm);
        }
    });
}

#[test]
fn a_queue_pair_in_error_or_reset_forgets_its_datagrams() {
    on_both(|kind| {
        let [a, b] = [side(kind), side(kind)];
        recv(&b, 1);
        recv(&b, 2);
        send(&a, 3, to(&b), 8);
        assert_eq!(b.wait().wr_id, 1);
        let to_state = |state| {
            let attr = ibv_qp_attr {
                qp_state: state,
                ..ibv_qp_attr::default()
            };
            b.engine.modify_qp(b.qp, &attr, IBV_QP_STATE)
        };
        to_state(IBV_QPS_ERR).expect("a change of state");
        let wc = b.wait();
        assert_eq!((wc.wr_id, wc.status), (2, IBV_WC_WR_FLUSH_ERR));
        to_state(IBV_QPS_RESET).expect("a change of state");
        // The key is asked for again.
        assert_eq!(to_state(IBV_QPS_INIT), Err(Errno::EINVAL));
        ready(&b);
        wait_for_last(&a, &b);
    });
}

#[test]
fn word_of_it_goes_by_a_channel() {
    on_both(|kind| {
        let [a, mut b] = [side(kind), side(kind)];
        b.engine.destroy_qp(b.qp).expect("a queue pair");
        let channel = cq::Channel::new().expect("a pipe");
        let told = Arc::clone(&channel);
        b.cq = b.engine.create_cq(8, Some(told)).expect("a queue");
        (b.qp, b.num, _) = b.engine.create_qp(&init(&b)).expect("a queue pair");
        ready(&b);
        b.engine.arm(b.cq, true).expect("a queue");
        recv(&b, 1);
        recv(&b, 2);
        send(&a, 3, to(&b), 8);
        let mut solicited = datagram(4, to(&b));
        solicited.flags |= IBV_SEND_SOLICITED;
        a.send(&solicited, &[]).expect("a datagram");
        channel.take(Some).expect("an event");
        let inner = b.engine.inner.lock();
        assert!(!inner.cqs[b.cq].is_armed());
        drop(inner);
        assert_eq!([b.wait().imm_data, b.wait().imm_data], [3, 4]);
    });
}

#[test]
fn what_no_queue_pair_of_datagrams_does_is_refused() {
    let [a, b] = [side(Kind::Tcp), side(Kind::Tcp)];
    let without = Asked {
        to: None,
        ..datagram(1, to(&b))
    };
    assert_eq!(a.send(&without, &[]), Err(Errno::EINVAL));
    let write = Asked {
        to: Some(to(&b)),
        ..wr(1, IBV_WR_RDMA_WRITE, remote(&b, 0))
    };
    assert_eq!(a.send(&write, &[]), Err(Errno::EINVAL));
    let cap = srq::SrqCap {
        max_wr: 1,
        max_sge: 1,
    };
    let shared = a.engine.create_srq(a.pd, cap).expect("a queue");
    let with_shared = QpInit {
        srq: Some(shared),
        ..init(&a)
    };
    let made = a.engine.create_qp(&with_shared).map(drop);
    assert_eq!(made, Err(Errno::EOPNOTSUPP));
    // Memory that is not registered so.
    let wrong = ibv_sge {
        lkey: 0,
        ..a.sge(0, 1)
    };
    a.send(&datagram(2, to(&b)), &[wrong]).expect("a request");
    assert_eq!(a.wait().status, IBV_WC_LOC_PROT_ERR);
}

#[test]
fn address_handles_that_lead_nowhere_are_refused() {
    let [tcp, shm] = [Side::new(Kind::Tcp), Side::new(Kind::Shm)];
    let local = ibv_ah_attr {
        dgid: tcp.engine.gid(),
        is_global: 1,
        port_num: 1,
        ..ibv_ah_attr::default()
    };
    let foreign = ibv_ah_attr {
        dgid: device::gid_of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))),
        ..local
    };
    let group = ibv_ah_attr {
        dgid: device::gid_of(IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1))),
        ..local
    };
    let by_lid = ibv_ah_attr {
        is_global: 0,
        ..local
    };
    let port = ibv_ah_attr {
        port_num: 2,
        ..local
    };
    for side in [&tcp, &shm] {
        let create = |attr| side.engine.create_ah(side.pd, attr).map(drop);
        assert_eq!(create(&group), Err(Errno::EOPNOTSUPP));
        assert_eq!(create(&by_lid), Err(Errno::EINVAL));
        assert_eq!(create(&port), Err(Errno::EINVAL));
    }
    assert_eq!(
        shm.engine.create_ah(shm.pd, &foreign),
        Err(Errno::EHOSTUNREACH)
    );
    let pd = tcp.engine.alloc_pd();
    tcp.engine.create_ah(pd, &foreign).expect("a handle");
    assert_eq!(tcp.engine.dealloc_pd(pd), Err(Errno::EBUSY));
    tcp.engine.destroy_ah(pd);
    tcp.engine.dealloc_pd(pd).expect("a domain");
}
