//! A C program that makes mistakes, and one that makes none, under the hook `debug`.
// Everything a C program does is unsafe; the mistakes are those that the library survives.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::c_void;
use core::ptr;
use std::time::{Duration, Instant};

use c::program::{is_program, run};
use c::*;
use ripstop_abi::*;

/// The begin of each line of the hook.
const PREFIX: &str = "FI_HOOK=debug: ";

/// What the hook has said in a run of this test.
fn said(test: &str) -> Vec<String> {
    let output = run(test, &[("FI_HOOK", "debug")]);
    let errors = String::from_utf8_lossy(&output.stderr);
    let lines = errors.lines().filter_map(|line| line.split_once(PREFIX));
    lines.map(|(_, line)| line.to_owned()).collect()
}

/// Whether a line has all of these parts, in this order.
fn has_parts(line: &str, parts: &[&str]) -> bool {
    let mut rest = line;
    parts.iter().all(|part| match rest.split_once(part) {
        Some((_, behind)) => {
            rest = behind;
            true
        }
        None => false,
    })
}

/// A test: its program, in a process of its own, must be told of these things, in this order, and of nothing
/// else.
fn check(test: &str, program: fn(), expected: &[&[&str]]) {
    if is_program() {
        return program();
    }
    let said = said(test);
    let fits = said.len() == expected.len()
        && said
            .iter()
            .zip(expected)
            .all(|(line, parts)| has_parts(line, parts));
    assert!(fits, "expected {expected:#?}, and it said {said:#?}");
}

/// Two endpoints over the loopback of tcp.
fn pair(change: impl FnOnce(&Info)) -> Pair {
    let info = loopback(FI_EP_RDM, |hints| {
        hints.get().caps |= FI_RMA;
        hints.domain().mr_mode = 0;
    });
    change(&info);
    Pair::of(info, FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE)
}

/// Memory of a program, which stays as long as the process.
fn memory(len: usize) -> *mut u8 {
    Box::leak(vec![0_u8; len].into_boxed_slice()).as_mut_ptr()
}

/// A context of an operation, which stays as long as the process.
fn context() -> *mut c_void {
    ptr::from_mut(Box::leak(Box::<fi_context2>::default())).cast()
}

/// A message of this memory, with tag 1, no descriptor and a context of its own.
fn message(buf: *mut u8, len: usize) -> Message {
    Message {
        buf,
        len,
        desc: ptr::null_mut(),
        tag: 1,
        at: context(),
    }
}

struct Message {
    buf: *mut u8,
    len: usize,
    desc: *mut c_void,
    tag: u64,
    at: *mut c_void,
}

impl Message {
    /// With the descriptor of this region.
    fn of(mut self, mr: *mut fid_mr) -> Self {
        self.desc = unsafe { (*mr).mem_desc };
        self
    }

    fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    fn context(mut self, at: *mut c_void) -> Self {
        self.at = at;
        self
    }

    /// Posts a receive of it at this endpoint; what the call returns.
    fn receive_at(&self, ep: *mut fid_ep) -> isize {
        let Self {
            len, desc, tag, at, ..
        } = *self;
        op!(
            ep,
            tagged.recv(self.buf.cast(), len, desc, FI_ADDR_UNSPEC, tag, 0, at)
        )
    }

    /// Sends it from the first endpoint to the second one; what the call returns.
    fn send_once(&self, pair: &Pair) -> isize {
        let Self {
            len, desc, tag, at, ..
        } = *self;
        let buf = self.buf.cast_const().cast();
        op!(
            pair.eps[0],
            tagged.send(buf, len, desc, pair.addrs[1], tag, at)
        )
    }

    /// Posts a receive of it at the second endpoint.
    fn receive(&self, pair: &Pair) {
        post(pair.cq, || self.receive_at(pair.eps[1]));
    }

    /// Sends it from the first endpoint to the second one.
    fn send(&self, pair: &Pair) {
        post(pair.cq, || self.send_once(pair));
    }
}

/// Reads so many completions.
fn complete(pair: &Pair, count: usize) {
    for _ in 0..count {
        completion::<fi_cq_tagged_entry>(pair.cq);
    }
}

/// Registers memory for all that the two do with it.
fn register(pair: &Pair, buf: *mut u8, len: usize) -> *mut fid_mr {
    let mut mr = ptr::null_mut();
    let access = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
    let domain: *mut fid = pair.domain.cast();
    let reg = unsafe { (*(*pair.domain).mr).reg.unwrap() };
    let code = unsafe {
        reg(
            domain,
            buf.cast_const().cast(),
            len,
            access,
            0,
            7,
            0,
            &mut mr,
            ptr::null_mut(),
        )
    };
    assert_eq!(code, 0);
    mr
}

#[test]
fn memory_and_contexts_under_way() {
    check(
        "memory_and_contexts_under_way",
        share_memory_and_contexts,
        &[
            &["fi_tsend of endpoint", "was changed between the call"],
            &[
                "fi_trecv of endpoint",
                "its memory is also that of fi_trecv of endpoint",
            ],
            &[
                "fi_tsend of endpoint",
                "its memory is also that of fi_trecv of endpoint",
            ],
            &[
                "fi_trecv of endpoint",
                "its context",
                "is that of fi_trecv of endpoint",
            ],
        ],
    );
}

fn share_memory_and_contexts() {
    let changed = pair(|_| {});
    let (from, to) = (memory(1000), memory(1000));
    message(to, 1000).receive(&changed);
    message(from, 1000).send(&changed);
    unsafe { from.write(1) };
    complete(&changed, 2);
    drop(changed);

    let overlapping = pair(|_| {});
    message(to, 100).receive(&overlapping);
    message(to.wrapping_add(99), 100)
        .tag(2)
        .receive(&overlapping);
    drop(overlapping);

    let used = pair(|_| {});
    message(to, 100).receive(&used);
    message(to.wrapping_add(50), 8).tag(2).send(&used);
    drop(used);

    let lent = pair(|info| info.get().mode |= FI_CONTEXT);
    let at = context();
    message(to, 100).context(at).receive(&lent);
    message(to.wrapping_add(500), 100)
        .tag(2)
        .context(at)
        .receive(&lent);
}

#[test]
fn descriptors_and_regions() {
    check(
        "descriptors_and_regions",
        use_wrong_descriptors,
        &[
            &["fi_trecv of endpoint", "no descriptor for 100 bytes"],
            &[
                "fi_tsend of endpoint",
                "which does not have all of 200 bytes",
            ],
            &[
                "fi_close of memory region",
                "fi_trecv of endpoint",
                "has its descriptor",
            ],
            &[
                "fi_trecv of endpoint",
                "the descriptor is of another domain",
            ],
        ],
    );
}

fn use_wrong_descriptors() {
    let (left, right) = (memory(1000), memory(1000));
    let local = |info: &Info| info.domain().mr_mode |= FI_MR_LOCAL;
    let without = pair(local);
    message(left, 100).receive(&without);
    drop(without);

    let elsewhere = pair(local);
    let mr = register(&elsewhere, left, 100);
    message(left, 200).of(mr).send(&elsewhere);
    let other = register(&elsewhere, right, 1000);
    message(right, 1000).of(other).receive(&elsewhere);
    // The receive may have completed, but nobody has read that.
    close_all!(other);

    complete(&elsewhere, 2);

    let second = pair(local);
    message(right, 100).of(mr).receive(&second);
    close_all!(mr);
}

#[test]
fn limits_and_states() {
    check(
        "limits_and_states",
        exceed_limits,
        &[
            &[
                "fi_tinject of endpoint",
                "bytes are injected, and tx_attr->inject_size is",
            ],
            &["fi_tsendv of endpoint", "100 buffers, and iov_limit is"],
            &["fi_trecv of endpoint", "the endpoint is not enabled"],
            &[
                "fi_tsend of endpoint",
                "operations that write an entry are under way or unread",
            ],
            &[
                "fi_tsend of endpoint",
                "Overrun, told of before",
                "times more",
            ],
            &[
                "fi_cq_read of completion queue",
                "fi_cq_readerr was not called",
            ],
        ],
    );
}

fn exceed_limits() {
    let buf = memory(1 << 20);
    let limited = pair(|_| {});
    let code = op!(
        limited.eps[0],
        tagged.inject(buf.cast_const().cast(), 1 << 20, limited.addrs[1], 1)
    );
    assert!(code < 0);
    let iov = [iovec {
        iov_base: buf.cast(),
        iov_len: 1,
    }; 100];
    let code = op!(
        limited.eps[0],
        tagged.sendv(
            iov.as_ptr(),
            ptr::null_mut(),
            100,
            limited.addrs[1],
            1,
            context()
        )
    );
    assert!(code < 0);
    let idle = bound(limited.domain, &limited.info, limited.av, limited.cq);
    assert!(message(buf, 1).receive_at(idle) <= 0);
    close_all!(idle);
    drop(limited);

    let full = pair(|info| info.domain().resource_mgmt = FI_RM_DISABLED);
    // The queue has room for 64.
    for _ in 0..66 {
        assert_eq!(message(buf, 8).send_once(&full), 0);
    }
    drop(full);

    let unread = pair(|_| {});
    let at = context();
    message(buf, 8).context(at).receive(&unread);
    assert_eq!(fid_cancel(unread.eps[1], at), 0);
    let mut entry = fi_cq_tagged_entry::default();
    let end = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < end {
        let code = op!(unread.cq, ops.read(ptr::from_mut(&mut entry).cast(), 1));
        assert!(code == -FI_EAVAIL as isize || code == -FI_EAGAIN as isize);
    }
}

fn fid_cancel(ep: *mut fid_ep, context: *mut c_void) -> isize {
    let cancel = unsafe { (*(*ep).ops).cancel.unwrap() };
    unsafe { cancel(ep.cast(), context) }
}

#[test]
fn objects_that_others_use() {
    check(
        "objects_that_others_use",
        close_what_others_use,
        &[
            &[
                "fi_close of domain",
                "is refused while these use it: ",
                "endpoint",
            ],
            &[
                "fi_close of completion queue",
                "is refused while these use it: endpoint",
            ],
            &["fi_bind of endpoint", "was closed before: completion queue"],
            &[
                "the process ends and fi_close was not called for fabric",
                "domain",
                "endpoint",
            ],
        ],
    );
}

fn close_what_others_use() {
    let pair = pair(|_| {});
    assert_eq!(close(pair.domain), -FI_EBUSY);
    assert_eq!(close(pair.cq), -FI_EBUSY);
    let short = cq(pair.domain, FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE);
    close_all!(short);
    let ep = endpoint(pair.domain, &pair.info);
    assert_eq!(bind(ep, short, FI_TRANSMIT), -FI_EINVAL);
    core::mem::forget(pair);
}

#[test]
fn a_program_without_mistakes() {
    check("a_program_without_mistakes", make_no_mistakes, &[]);
}

fn make_no_mistakes() {
    for format in [FI_CQ_FORMAT_TAGGED, FI_CQ_FORMAT_CONTEXT] {
        let info = loopback(FI_EP_RDM, |hints| {
            hints.get().mode = FI_CONTEXT | FI_CONTEXT2
        });
        let pair = Pair::of(info, format, FI_WAIT_NONE);
        let (from, to, unwanted) = (memory(1 << 20), memory(1 << 20), memory(2));
        let mr = register(&pair, to, 1 << 20);
        for len in [0, 1, 100, 1 << 20] {
            // What nobody wants may go to one place.
            message(unwanted, 1).tag(2).receive(&pair);
            message(unwanted, 2).tag(2).receive(&pair);
            message(to, len).of(mr).receive(&pair);
            message(from, len).send(&pair);
            complete(&pair, 2);
            unsafe { to.write(1) };
            unsafe { from.write(2) };
            // A context for two operations, where the provider does not write it.
            let at = context();
            message(to, 10).context(at).receive(&pair);
            message(from, 10).context(at).send(&pair);
            complete(&pair, 2);
        }
        close_all!(mr);
    }
}
