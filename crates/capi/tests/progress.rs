//! Who makes progress over `tcp;ofi_rxm`: C's programs that do not ask for a thread get none
//! (`docs/design/rxm.md`). One test, since it counts the threads of its process.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use c::*;
use ripstop_abi::*;

/// What hints ask of progress, for all operations and for those of control, and the answer for both of them.
const ANSWERS: [(fi_progress, fi_progress, fi_progress); 7] = [
    (FI_PROGRESS_UNSPEC, FI_PROGRESS_UNSPEC, FI_PROGRESS_MANUAL),
    (FI_PROGRESS_UNSPEC, FI_PROGRESS_MANUAL, FI_PROGRESS_MANUAL),
    (FI_PROGRESS_MANUAL, FI_PROGRESS_UNSPEC, FI_PROGRESS_MANUAL),
    (FI_PROGRESS_MANUAL, FI_PROGRESS_MANUAL, FI_PROGRESS_MANUAL),
    (FI_PROGRESS_AUTO, FI_PROGRESS_UNSPEC, FI_PROGRESS_AUTO),
    (FI_PROGRESS_AUTO, FI_PROGRESS_AUTO, FI_PROGRESS_AUTO),
    // Programs of version 1 can ask for automatic progress of connections alone.
    (FI_PROGRESS_UNSPEC, FI_PROGRESS_AUTO, FI_PROGRESS_AUTO),
];

fn answered(info: &Info) -> [fi_progress; 2] {
    let domain = info.domain();
    [domain.data_progress, domain.control_progress]
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Opens what the answer describes and sends a message; returns how many threads there are then.
fn threads_of(info: Info) -> usize {
    let pair = Pair::of(info, FI_CQ_FORMAT_CONTEXT, FI_WAIT_UNSPEC);
    let [from, at] = pair.eps;
    let (none, any) = (core::ptr::null_mut(), FI_ADDR_UNSPEC);
    assert_eq!(op!(at, msg.recv(none, 0, none, any, none)), 0);
    post(pair.cq, || op!(from, msg.inject(none, 0, pair.addrs[1])));
    let _: fi_cq_entry = completion(pair.cq);
    threads()
}

#[test]
fn programs_that_ask_for_no_thread_get_none() {
    let own = threads();
    // Hints without attributes of a domain.
    let hints = Info::hints();
    hints.fabric().prov_name = dup(c"tcp;ofi_rxm");
    let domain = core::mem::replace(&mut hints.get().domain_attr, core::ptr::null_mut());
    let info = getinfo(NOW, None, None, 0, Some(&hints)).unwrap();
    hints.get().domain_attr = domain;
    assert_eq!(answered(&info), [FI_PROGRESS_MANUAL; 2]);
    for (data, control, answer) in ANSWERS {
        let asked = format!("data {data}, control {control}");
        let info = loopback(FI_EP_RDM, |hints| {
            hints.fabric().prov_name = dup(c"tcp;ofi_rxm");
            hints.domain().data_progress = data;
            hints.domain().control_progress = control;
        });
        assert_eq!(answered(&info), [answer; 2], "{asked}");
        let started = usize::from(answer == FI_PROGRESS_AUTO);
        assert_eq!(threads_of(info), own + started, "{asked}");
        // A thread that was joined can be listed for a moment.
        until("the thread to end", || (threads() == own).then_some(()));
    }
}
