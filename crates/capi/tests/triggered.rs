//! A C program with triggered operations and deferred work.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::{c_int, c_void};
use core::ptr;

use c::*;
use ripstop_abi::*;

const NONE: *mut c_void = ptr::null_mut();

fn open() -> Pair {
    Pair::open(FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE, |hints| {
        hints.get().caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_TRIGGER;
        hints.domain().mr_mode = 0;
    })
}

fn read(cntr: *mut fid_cntr) -> u64 {
    op!(cntr, ops.read)
}

fn reach(cntr: *mut fid_cntr, value: u64) {
    assert_eq!(op!(cntr, ops.wait, value, 60_000), 0);
}

fn register(domain: *mut fid_domain, bytes: &mut [u8], key: u64) -> *mut fid_mr {
    let mut mr = ptr::null_mut();
    let access = FI_REMOTE_READ | FI_REMOTE_WRITE;
    let (buf, len) = (bytes.as_mut_ptr().cast::<c_void>(), bytes.len());
    let reg = unsafe { (*(*domain).mr).reg.unwrap() };
    let code = unsafe { reg(domain.cast(), buf, len, access, 0, key, 0, &mut mr, NONE) };
    assert_eq!(code, 0);
    mr
}

fn queue(domain: *mut fid_domain, work: &mut fi_deferred_work) -> c_int {
    control(domain, FI_QUEUE_WORK, ptr::from_mut(work))
}

fn work(at: (*mut fid_cntr, u64), done: *mut fid_cntr, op_type: fi_op_type) -> fi_deferred_work {
    fi_deferred_work {
        triggering_cntr: at.0,
        threshold: at.1,
        completion_cntr: done,
        op_type,
        ..Default::default()
    }
}

fn iov(bytes: &mut [u8]) -> iovec {
    iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }
}

fn ioc(bytes: &mut [u8]) -> fi_ioc {
    fi_ioc {
        addr: bytes.as_mut_ptr().cast(),
        count: bytes.len() / 8,
    }
}

#[test]
fn every_operation_can_be_deferred() {
    let pair = open();
    let [a, b] = pair.eps;
    let (go, done) = (cntr(pair.domain), cntr(pair.domain));
    let (mut hello, mut got, mut tagged) = (*b"hello", [0; 5], [0; 5]);
    let mut area = [0_u8; 32];
    let mr = register(pair.domain, &mut area, 5);
    let key = unsafe { (*mr).key };
    let (mut one, mut nine) = (1_u64.to_ne_bytes(), 9_u64.to_ne_bytes());
    let (mut old, mut older, mut back) = ([0; 8], [0; 8], [0; 8]);
    let to = pair.addrs[1];

    let mut parts = [iov(&mut hello), iov(&mut got), iov(&mut tagged)];
    let message = |part: &iovec, addr| fi_msg {
        msg_iov: ptr::from_ref(part),
        iov_count: 1,
        addr,
        ..Default::default()
    };
    let mut recv = fi_op_msg {
        ep: b,
        msg: message(&parts[1], FI_ADDR_UNSPEC),
        flags: 0,
    };
    let mut send = fi_op_msg {
        ep: a,
        msg: message(&parts[0], to),
        flags: 0,
    };
    let tag_message = |part: &iovec, addr| fi_msg_tagged {
        msg_iov: ptr::from_ref(part),
        iov_count: 1,
        addr,
        tag: 3,
        ..Default::default()
    };
    let mut trecv = fi_op_tagged {
        ep: b,
        msg: tag_message(&parts[2], FI_ADDR_UNSPEC),
        flags: 0,
    };
    let mut tsend = fi_op_tagged {
        ep: a,
        msg: tag_message(&parts[0], to),
        flags: 0,
    };
    let mut queued = Vec::new();
    for (op_type, op) in [(FI_OP_RECV, &mut recv), (FI_OP_SEND, &mut send)] {
        let mut next = work((go, 1), done, op_type);
        next.op.msg = op;
        assert_eq!(queue(pair.domain, &mut next), 0);
        queued.push(next);
    }
    for (op_type, op) in [(FI_OP_TRECV, &mut trecv), (FI_OP_TSEND, &mut tsend)] {
        let mut next = work((done, 2), done, op_type);
        next.op.tagged = op;
        assert_eq!(queue(pair.domain, &mut next), 0);
        queued.push(next);
    }
    assert_eq!((read(done), got), (0, [0; 5]));
    assert_eq!(close(go), -FI_EBUSY);
    assert_eq!(close(done), -FI_EBUSY);
    assert_eq!(op!(go, ops.add, 1), 0);
    reach(done, 4);
    assert_eq!((&got, &tagged), (b"hello", b"hello"));

    // The region has offsets, for the mode asks for nothing.
    let place = fi_rma_iov {
        addr: 0,
        len: 8,
        key,
    };
    let remote = |part: &mut iovec, bytes: &mut [u8; 8]| {
        *part = iov(bytes);
        fi_msg_rma {
            msg_iov: part,
            iov_count: 1,
            addr: to,
            rma_iov: &raw const place,
            rma_iov_count: 1,
            ..Default::default()
        }
    };
    let [first, second, _] = &mut parts;
    let mut write = fi_op_rma {
        ep: a,
        msg: remote(first, &mut one),
        flags: 0,
    };
    let mut fetch = fi_op_rma {
        ep: a,
        msg: remote(second, &mut back),
        flags: 0,
    };
    let target = fi_rma_ioc {
        addr: place.addr,
        count: 1,
        key,
    };
    let (adds, sets) = (ioc(&mut one), ioc(&mut nine));
    let (mut to_old, mut to_older) = (ioc(&mut old), ioc(&mut older));
    let atomic = |operand: &fi_ioc, op| fi_msg_atomic {
        msg_iov: ptr::from_ref(operand),
        iov_count: 1,
        addr: to,
        rma_iov: &raw const target,
        rma_iov_count: 1,
        datatype: FI_UINT64,
        op,
        ..Default::default()
    };
    let result = |part: &mut fi_ioc| fi_msg_fetch {
        msg_iov: part,
        iov_count: 1,
        ..Default::default()
    };
    let mut plain = fi_op_atomic {
        ep: a,
        msg: atomic(&adds, FI_SUM),
        flags: 0,
    };
    let mut fetching = fi_op_fetch_atomic {
        ep: a,
        msg: atomic(&adds, FI_SUM),
        fetch: result(&mut to_old),
        flags: 0,
    };
    let mut comparing = fi_op_compare_atomic {
        ep: a,
        msg: atomic(&sets, FI_CSWAP_NE),
        fetch: result(&mut to_older),
        compare: fi_msg_compare {
            msg_iov: &raw const adds,
            iov_count: 1,
            ..Default::default()
        },
        flags: 0,
    };
    let mut next = [
        FI_OP_WRITE,
        FI_OP_ATOMIC,
        FI_OP_FETCH_ATOMIC,
        FI_OP_COMPARE_ATOMIC,
        FI_OP_READ,
    ]
    .map(|op_type| work((done, 5), done, op_type));
    next[0].op.rma = &mut write;
    next[1].op.atomic = &mut plain;
    next[2].op.fetch_atomic = &mut fetching;
    next[3].op.compare_atomic = &mut comparing;
    next[4].op.rma = &mut fetch;
    for (index, next) in next.iter_mut().enumerate() {
        next.threshold = 5 + index as u64;
        assert_eq!(queue(pair.domain, next), 0);
    }
    assert_eq!(op!(done, ops.add, 1), 0);
    reach(done, 10);
    assert_eq!(op!(done, ops.readerr), 0);
    assert_eq!((u64::from_ne_bytes(old), u64::from_ne_bytes(older)), (2, 3));
    assert_eq!(u64::from_ne_bytes(back), 9);

    let mut op = fi_op_cntr {
        cntr: go,
        value: 100,
    };
    let mut set = work((done, 11), ptr::null_mut(), FI_OP_CNTR_SET);
    set.op.cntr = &mut op;
    let mut add = work((done, 11), ptr::null_mut(), FI_OP_CNTR_ADD);
    add.op.cntr = &mut op;
    for next in [&mut set, &mut add] {
        assert_eq!(queue(pair.domain, next), 0);
    }
    assert_eq!(op!(done, ops.add, 1), 0);
    reach(go, 200);
    // Nothing was reported to the queue.
    let mut entry = fi_cq_tagged_entry::default();
    let entry = ptr::from_mut(&mut entry).cast::<c_void>();
    assert_eq!(op!(pair.cq, ops.read, entry, 1), -FI_EAGAIN as isize);
    for object in [go, done] {
        assert_eq!(close(object), 0);
    }
    assert_eq!(close(mr), 0);
}

#[test]
fn an_alias_or_a_flag_triggers() {
    let pair = open();
    let [a, b] = pair.eps;
    let go = cntr(pair.domain);
    let mut alias = ptr::null_mut::<fid>();
    let mut attr = fi_alias {
        fid: &mut alias,
        flags: FI_TRANSMIT | FI_TRIGGER,
    };
    assert_eq!(control(a, FI_ALIAS, &mut attr), 0);
    let alias = alias.cast::<fid_ep>();
    let mut contexts = [1, 2].map(|threshold| fi_triggered_context2 {
        event_type: FI_TRIGGER_THRESHOLD,
        trigger: fi_triggered_context2_trigger {
            threshold: fi_trigger_threshold {
                cntr: go,
                threshold,
            },
        },
    });
    let contexts = contexts
        .each_mut()
        .map(|c| ptr::from_mut(c).cast::<c_void>());
    let (mut hello, mut got) = (*b"hello", [0_u8; 16]);
    let (buf, room) = (hello.as_mut_ptr().cast(), got.as_mut_ptr().cast());
    let to = pair.addrs[1];
    assert_eq!(op!(alias, msg.send, buf, 5, NONE, to, contexts[1]), 0);
    let part = iov(&mut hello);
    let msg = fi_msg {
        msg_iov: &raw const part,
        iov_count: 1,
        addr: to,
        context: contexts[0],
        ..Default::default()
    };
    assert_eq!(op!(a, msg.sendmsg, &msg, FI_TRIGGER), 0);
    for context in contexts {
        let any = FI_ADDR_UNSPEC;
        assert_eq!(op!(b, msg.recv, room, 16, NONE, any, NONE), 0);
        assert_eq!(op!(go, ops.add, 1), 0);
        let mut seen = [
            completion::<fi_cq_tagged_entry>(pair.cq),
            completion(pair.cq),
        ];
        seen.sort_by_key(|entry| entry.op_context.is_null());
        assert_eq!(seen[0].op_context, context);
        assert_eq!(&got[..5], b"hello");
    }
    // One that waits is cancelled by its context.
    assert_eq!(op!(alias, msg.send, buf, 5, NONE, to, contexts[1]), 0);
    assert_eq!(op!(go, ops.set, 0), 0);
    assert_eq!(op!(alias, msg.send, buf, 5, NONE, to, contexts[0]), 0);
    let cancel = unsafe { (*(*a).ops).cancel.unwrap() };
    assert_eq!(unsafe { cancel(a.cast(), contexts[0]) }, 0);
    assert_eq!(
        unsafe { cancel(a.cast(), contexts[0]) },
        -FI_ENOENT as isize
    );
    assert_eq!(close(alias), 0);
    // What has been sent is received before all closes.
    let any = FI_ADDR_UNSPEC;
    assert_eq!(op!(b, msg.recv, room, 16, NONE, any, NONE), 0);
    let mut codes = Vec::new();
    until("all entries", || {
        let mut entry = fi_cq_tagged_entry::default();
        let to = ptr::from_mut(&mut entry).cast::<c_void>();
        match op!(pair.cq, ops.read, to, 1) {
            1 => codes.push(0),
            code if code == -FI_EAVAIL as isize => {
                let mut error = fi_cq_err_entry::default();
                assert_eq!(op!(pair.cq, ops.readerr, &mut error, 0), 1);
                codes.push(error.err);
            }
            _ => {}
        }
        (codes.len() == 3).then_some(())
    });
    codes.sort_unstable();
    assert_eq!(codes, [0, 0, FI_ECANCELED]);
    assert_eq!(close(go), 0);
}

#[test]
fn bad_arguments_are_refused() {
    let (pair, other) = (open(), open());
    let (go, theirs) = (cntr(pair.domain), cntr(other.domain));
    let domain = pair.domain;
    let null = ptr::null_mut::<fi_deferred_work>();
    assert_eq!(control(domain, FI_QUEUE_WORK, null), -FI_EINVAL);
    assert_eq!(control(domain, FI_CANCEL_WORK, null), -FI_EINVAL);
    assert_eq!(control(domain, FI_FLUSH_WORK, null), 0);
    let mut counts = fi_op_cntr { cntr: go, value: 1 };
    let counting = &raw mut counts;
    let good = move || {
        let mut good = work((go, 1), ptr::null_mut(), FI_OP_CNTR_ADD);
        good.op.cntr = counting;
        good
    };
    let refused = |code: c_int, change: &mut dyn FnMut(&mut fi_deferred_work)| {
        let mut bad = good();
        change(&mut bad);
        assert_eq!(queue(domain, &mut bad), -code);
    };
    refused(FI_EINVAL, &mut |bad| bad.triggering_cntr = ptr::null_mut());
    refused(FI_EINVAL, &mut |bad| bad.triggering_cntr = theirs);
    refused(FI_EINVAL, &mut |bad| bad.triggering_cntr = pair.cq.cast());
    refused(FI_EINVAL, &mut |bad| bad.completion_cntr = go);
    refused(FI_EINVAL, &mut |bad| bad.op.cntr = ptr::null_mut());
    refused(FI_ENOSYS, &mut |bad| bad.op_type = FI_OP_CNTR_ADD + 1);
    for op_type in FI_OP_RECV..=FI_OP_COMPARE_ATOMIC {
        refused(FI_EINVAL, &mut |bad| {
            bad.op_type = op_type;
            bad.op.msg = ptr::null_mut();
        });
    }
    for ep in [ptr::null_mut(), other.eps[0], pair.cq.cast()] {
        let mut op = fi_op_msg {
            ep,
            ..Default::default()
        };
        refused(FI_EINVAL, &mut |bad| {
            bad.op_type = FI_OP_SEND;
            bad.op.msg = &mut op;
        });
    }
    unsafe { (*counting).cntr = theirs };
    refused(FI_EINVAL, &mut |_| ());
    unsafe { (*counting).cntr = go };

    let mut kept = good();
    assert_eq!(control(domain, FI_CANCEL_WORK, &mut kept), -FI_ENOENT);
    assert_eq!(queue(domain, &mut kept), 0);
    assert_eq!(control(domain, FI_CANCEL_WORK, &mut kept), 0);
    assert_eq!(queue(domain, &mut kept), 0);
    // Only what waits for the counter that is named.
    let second = cntr(domain);
    let mut flushed = work((second, 0), ptr::null_mut(), FI_OP_CNTR_ADD);
    assert_eq!(control(domain, FI_FLUSH_WORK, &mut flushed), 0);
    assert_eq!(close(go), -FI_EBUSY);
    flushed.triggering_cntr = theirs;
    assert_eq!(control(domain, FI_FLUSH_WORK, &mut flushed), -FI_EINVAL);
    flushed.triggering_cntr = go;
    assert_eq!(control(domain, FI_FLUSH_WORK, &mut flushed), 0);

    let a = pair.eps[0];
    let part = iovec::default();
    let mut context = fi_triggered_context::default();
    for (event_type, cntr, code) in [
        (FI_TRIGGER_THRESHOLD, ptr::null_mut(), FI_EINVAL),
        (FI_TRIGGER_THRESHOLD, theirs, FI_EINVAL),
        (FI_TRIGGER_XPU, go, FI_ENOSYS),
        (FI_TRIGGER_XPU + 1, go, FI_EINVAL),
    ] {
        context.event_type = event_type;
        context.trigger.threshold = fi_trigger_threshold { cntr, threshold: 0 };
        let mut msg = fi_msg {
            msg_iov: &raw const part,
            iov_count: 1,
            addr: pair.addrs[1],
            context: ptr::from_mut(&mut context).cast(),
            ..Default::default()
        };
        assert_eq!(op!(a, msg.sendmsg, &msg, FI_TRIGGER), -code as isize);
        msg.context = NONE;
        assert_eq!(op!(a, msg.sendmsg, &msg, FI_TRIGGER), -FI_EINVAL as isize);
        assert_eq!(op!(a, msg.recvmsg, &msg, FI_TRIGGER), -FI_EINVAL as isize);
    }
    for object in [go, second, theirs] {
        assert_eq!(close(object), 0);
    }
}
