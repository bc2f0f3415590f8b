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
    assert_eq!(op!(alias, msg.send(buf, 5, NONE, to, contexts[1])), 0);
    let part = iov(&mut hello);
    let msg = fi_msg {
        msg_iov: &raw const part,
        iov_count: 1,
        addr: to,
        context: contexts[0],
        ..Default::default()
    };
    assert_eq!(op!(a, msg.sendmsg(&msg, FI_TRIGGER)), 0);
    for context in contexts {
        let any = FI_ADDR_UNSPEC;
        assert_eq!(op!(b, msg.recv(room, 16, NONE, any, NONE)), 0);
        assert_eq!(op!(go, ops.add(1)), 0);
        let mut seen = [
            completion::<fi_cq_tagged_entry>(pair.cq),
            completion(pair.cq),
        ];
        seen.sort_by_key(|entry| entry.op_context.is_null());
        assert_eq!(seen[0].op_context, context);
        assert_eq!(&got[..5], b"hello");
    }
    // One that waits is cancelled by its context.
    assert_eq!(op!(alias, msg.send(buf, 5, NONE, to, contexts[1])), 0);
    assert_eq!(op!(go, ops.set(0)), 0);
    assert_eq!(op!(alias, msg.send(buf, 5, NONE, to, contexts[0])), 0);
    let cancel = unsafe { (*(*a).ops).cancel.unwrap() };
    assert_eq!(unsafe { cancel(a.cast(), contexts[0]) }, 0);
    assert_eq!(unsafe { cancel(a.cast(), contexts[0]) }, 0);
    assert_eq!(close(alias), 0);
    // What has been sent is received before all closes.
    let any = FI_ADDR_UNSPEC;
    assert_eq!(op!(b, msg.recv(room, 16, NONE, any, NONE)), 0);
    let mut codes = Vec::new();
    until("all entries", || {
        let mut entry = fi_cq_tagged_entry::default();
        let to = ptr::from_mut(&mut entry).cast::<c_void>();
        match op!(pair.cq, ops.read(to, 1)) {
            1 => codes.push(0),
            code if code == -FI_EAVAIL as isize => {
                let mut error = fi_cq_err_entry::default();
                assert_eq!(op!(pair.cq, ops.readerr(&mut error, 0)), 1);
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
    refused(FI_EDOMAIN, &mut |bad| bad.triggering_cntr = theirs);
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
    for (ep, code) in [
        (ptr::null_mut(), FI_EINVAL),
        (other.eps[0], FI_EDOMAIN),
        (pair.cq.cast(), FI_EINVAL),
    ] {
        let mut op = fi_op_msg {
            ep,
            ..Default::default()
        };
        refused(code, &mut |bad| {
            bad.op_type = FI_OP_SEND;
            bad.op.msg = &mut op;
        });
    }
    unsafe { (*counting).cntr = theirs };
    refused(FI_EDOMAIN, &mut |_| ());
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
    assert_eq!(control(domain, FI_FLUSH_WORK, &mut flushed), -FI_EDOMAIN);
    flushed.triggering_cntr = go;
    assert_eq!(control(domain, FI_FLUSH_WORK, &mut flushed), 0);

    let a = pair.eps[0];
    let part = iovec::default();
    let mut context = fi_triggered_context::default();
    for (event_type, cntr, code) in [
        (FI_TRIGGER_THRESHOLD, ptr::null_mut(), FI_EINVAL),
        (FI_TRIGGER_THRESHOLD, theirs, FI_EDOMAIN),
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
        assert_eq!(op!(a, msg.sendmsg(&msg, FI_TRIGGER)), -code as isize);
        msg.context = NONE;
        assert_eq!(op!(a, msg.sendmsg(&msg, FI_TRIGGER)), -FI_EINVAL as isize);
        assert_eq!(op!(a, msg.recvmsg(&msg, FI_TRIGGER)), -FI_EINVAL as isize);
    }
    for object in [go, second, theirs] {
        assert_eq!(close(object), 0);
    }
}
