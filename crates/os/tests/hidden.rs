//! A process that has asked the kernel to be hidden from others; alone in its file, since all threads
//! of the process are.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use ripstop_os::{Backings, SharedBuf, Unfit};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

#[test]
fn who_is_hidden_lends_no_memory() {
    let memory = SharedBuf::zeroed(1 << 20).unwrap();
    let mut backings = Backings::default();
    assert!(backings.find(memory.buf()).is_ok());
    set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
    assert_eq!(backings.find(memory.buf()).err(), Some(Unfit::Hidden));
    drop(memory);
}
