//! A C program that uses its buffers again as soon as a call with `FI_INJECT` has returned.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::{CStr, c_void};
use core::ptr;

use c::*;
use ripstop_abi::*;

const NONE: *mut c_void = ptr::null_mut();
const KEY: u64 = 5;

struct Run {
    pair: Pair,
    mr: *mut fid_mr,
    target: Box<[u64; 2]>,
}

impl Run {
    fn new(provider: &CStr) -> Self {
        let pair = Pair::over(provider, 0);
        let mut target = Box::new([0_u64; 2]);
        let mut mr = ptr::null_mut();
        let access = FI_REMOTE_READ | FI_REMOTE_WRITE;
        let reg = unsafe { (*(*pair.domain).mr).reg.unwrap() };
        let (domain, start) = (pair.domain.cast(), target.as_mut_ptr().cast::<c_void>());
        let code = unsafe { reg(domain, start, 16, access, 0, KEY, 0, &mut mr, NONE) };
        assert_eq!(code, 0);
        Self { pair, mr, target }
    }

    /// What the peer's memory holds now.
    fn word(&self) -> u64 {
        unsafe { self.target.as_ptr().read_volatile() }
    }

    /// Carries out an atomic of a kind with flags, and overwrites what it was given at once. The
    /// result is there when the operation is done.
    fn atomic(
        &self,
        kind: usize,
        op: fi_op,
        given: [u64; 2],
        flags: u64,
        was: &mut u64,
        ctx: *mut c_void,
    ) {
        let [mut operand, mut compare] = given;
        let part = |word: *mut u64| fi_ioc {
            addr: word.cast(),
            count: 1,
        };
        let place = fi_rma_ioc {
            addr: 0,
            count: 1,
            key: KEY,
        };
        let operands = part(&mut operand);
        let (compares, mut results) = (part(&mut compare), part(was));
        let msg = fi_msg_atomic {
            msg_iov: &operands,
            iov_count: 1,
            addr: self.pair.addrs[1],
            rma_iov: &place,
            rma_iov_count: 1,
            datatype: FI_UINT64,
            op,
            context: ctx,
            ..Default::default()
        };
        let ep = self.pair.eps[0];
        let no = ptr::null_mut();
        post(self.pair.cq, || match kind {
            0 => op!(ep, atomic.writemsg(&msg, flags)),
            1 => op!(ep, atomic.readwritemsg(&msg, &mut results, no, 1, flags)),
            _ => op!(
                ep,
                atomic.compwritemsg(&msg, &compares, no, 1, &mut results, no, 1, flags)
            ),
        });
        for word in [&mut operand, &mut compare] {
            unsafe { ptr::from_mut(word).write_volatile(0xEEEE_EEEE_EEEE_EEEE) };
        }
    }

    fn done(&self) {
        let _entry: fi_cq_entry = completion(self.pair.cq);
    }

    fn close(self) {
        assert_eq!(close(self.mr), 0);
    }
}

fn triggered_operands_are_copied(provider: &CStr) {
    let run = Run::new(provider);
    let go = cntr(run.pair.domain);
    let mut context = fi_triggered_context2 {
        event_type: FI_TRIGGER_THRESHOLD,
        trigger: fi_triggered_context2_trigger {
            threshold: fi_trigger_threshold {
                cntr: go,
                threshold: 1,
            },
        },
    };
    let context = ptr::from_mut(&mut context).cast();
    let flags = FI_INJECT | FI_COMPLETION | FI_TRIGGER;
    let (mut first, mut second) = (9, 9);
    run.atomic(2, FI_CSWAP, [7, 0], flags, &mut first, context);
    run.atomic(1, FI_SUM, [3, 0], flags, &mut second, context);
    assert_eq!(run.word(), 0);
    assert_eq!(op!(go, ops.add(1)), 0);
    run.done();
    run.done();
    assert_eq!((first, second, run.word()), (0, 7, 10));
    assert_eq!(close(go), 0);
    run.close();
}

#[test]
fn tcp_copies_operands_of_triggered_atomics() {
    triggered_operands_are_copied(c"tcp");
}

#[test]
fn shm_copies_operands_of_triggered_atomics() {
    triggered_operands_are_copied(c"shm");
}

/// Operands longer than the longest inject are refused, each by itself; results may be longer.
#[test]
fn what_is_too_long_to_be_copied_is_refused() {
    let run = Run::new(c"tcp");
    let most = run.pair.info.tx().inject_size;
    let mut room = vec![0_u64; most / 8 + 1];
    let start: *mut c_void = room.as_mut_ptr().cast();
    let place = fi_rma_ioc {
        addr: 0,
        count: room.len(),
        key: KEY,
    };
    let part = fi_ioc {
        addr: start,
        count: room.len(),
    };
    let msg = fi_msg_atomic {
        msg_iov: &part,
        iov_count: 1,
        addr: run.pair.addrs[1],
        rma_iov: &place,
        rma_iov_count: 1,
        datatype: FI_UINT64,
        op: FI_SUM,
        ..Default::default()
    };
    let (ep, no, mut result) = (run.pair.eps[0], ptr::null_mut(), part);
    let code = op!(ep, atomic.readwritemsg(&msg, &mut result, no, 1, FI_INJECT));
    assert_eq!(code, -FI_EMSGSIZE as isize);
    run.close();
}
