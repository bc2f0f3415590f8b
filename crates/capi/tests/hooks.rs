//! A C program under the hooks that are built in.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::c_void;
use core::ptr;
use std::process::{Command, Output};

use c::*;
use ripstop_abi::*;

/// Set in the process that is the program.
const PROGRAM: &str = "RIPSTOP_HOOKS_PROGRAM";

/// Whether this process is the program of the test.
fn is_program() -> bool {
    std::env::var_os(PROGRAM).is_some()
}

/// Runs a test again in a process of its own, with these variables, as the library reads them once.
fn run(test: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    command.env(PROGRAM, "1").envs(variables.iter().copied());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let ran = output.status.success() && said.contains("1 passed");
    assert!(ran, "{test} with {variables:?}:\n{said}{errors}");
    output
}

/// Sends so many messages of so many bytes to the other end, which has posted receives.
fn exchange(pair: &Pair, count: usize, bytes: usize) {
    let sent = vec![7_u8; bytes];
    let mut received = vec![0_u8; bytes];
    let (mut tx, mut rx) = (fi_context2::default(), fi_context2::default());
    let (tx, rx) = (ptr::from_mut(&mut tx), ptr::from_mut(&mut rx));
    for _ in 0..count {
        let buf: *mut c_void = received.as_mut_ptr().cast();
        post(pair.cq, || {
            op!(
                pair.eps[1],
                tagged.recv(buf, bytes, ptr::null_mut(), FI_ADDR_UNSPEC, 1, 0, rx.cast())
            )
        });
        let buf: *const c_void = sent.as_ptr().cast();
        post(pair.cq, || {
            op!(
                pair.eps[0],
                tagged.send(buf, bytes, ptr::null_mut(), pair.addrs[1], 1, tx.cast())
            )
        });
        let mut contexts: Vec<*mut c_void> = (0..2)
            .map(|_| completion::<fi_cq_tagged_entry>(pair.cq).op_context)
            .collect();
        contexts.sort_unstable();
        let mut both = [tx.cast(), rx.cast()];
        both.sort_unstable();
        assert_eq!(contexts, both);
    }
    assert_eq!(received, sent);
}

/// Whether the endpoints of a pair have tables of their own: those of a provider are of all its
/// endpoints.
fn are_hooked(pair: &Pair) -> bool {
    let [left, right] = pair.eps.map(|ep| unsafe { (*ep).tagged });
    !ptr::eq(left, right)
}

#[test]
fn noop_lies_over_each_object() {
    if is_program() {
        let pair = Pair::open(FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE, |_| {});
        assert!(are_hooked(&pair));
        exchange(&pair, 10, 1000);
        return;
    }
    run("noop_lies_over_each_object", &[("FI_HOOK", "noop")]);
    run(
        "noop_lies_over_each_object",
        &[("FI_HOOK", "ofi_hook_noop;noop")],
    );
}

#[test]
fn without_a_hook_the_tables_are_the_providers() {
    if is_program() {
        let pair = Pair::open(FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE, |_| {});
        assert!(!are_hooked(&pair));
        exchange(&pair, 10, 1000);
        return;
    }
    run("without_a_hook_the_tables_are_the_providers", &[]);
}

#[test]
fn a_name_that_is_no_hook_is_a_line_in_the_log() {
    if is_program() {
        let pair = Pair::open(FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE, |_| {});
        assert!(!are_hooked(&pair));
        return;
    }
    let output = run(
        "a_name_that_is_no_hook_is_a_line_in_the_log",
        &[("FI_HOOK", "nope")],
    );
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("FI_HOOK names nope"), "{errors}");
}
