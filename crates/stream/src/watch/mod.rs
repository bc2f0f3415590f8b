//! Once a second: what waits, for the log (`FI_LOG_STALL`) and for other processes
//! (`docs/design/status-page.md`). No call that posts or polls does anything for it.

mod found;
mod show;

use std::collections::BTreeSet;
use std::time::Duration;

use ripstop_core::status::WaitKind;

use crate::state::State;
use crate::transport::Transport;
use crate::watch::found::Found;

/// Lines of the log that one pass writes, at most.
const MAX_LINES: usize = 8;

impl<T: Transport> State<T> {
    /// A pass: called when the timer has gone off.
    #[cold]
    pub(crate) fn look_at_waits(&mut self, now: Duration) {
        self.watch.begin_pass(now);
        let mut found = self.find_waits(now);
        self.watch.end_pass();
        found.sort_by_key(|found| std::cmp::Reverse(found.wait.age));
        self.tell_of_stalled(&found);
        if self.watch.sleepers.has_page() {
            let snapshot = self.snapshot(found).encode();
            let polled = !self.unattended;
            self.watch.sleepers.publish(&snapshot, now, polled);
        }
    }

    /// Lines about what has waited for long.
    fn tell_of_stalled(&mut self, found: &[Found]) {
        let mut lines = 0;
        // What waits for one peer in one way ends together: the oldest stands for all.
        let mut told = BTreeSet::new();
        for found in found {
            let Found { key, wait, .. } = found;
            let age = Duration::from_nanos(wait.age);
            // An idle server waits for anybody, and sleeps if it can.
            let is_idle = wait.kind == WaitKind::AnyReceive;
            if is_idle && self.watch.sleepers.any() {
                continue;
            }
            if lines == MAX_LINES || !self.watch.is_told(*key, age) {
                continue;
            }
            if !told.insert((wait.kind as u8, wait.peer.as_deref())) {
                continue;
            }
            lines += 1;
            let (text, seconds) = (wait.text(), age.as_secs());
            let (by, pid) = (wait.ends_by(), ripstop_os::pid());
            let state = self.state_of(found);
            match is_idle {
                true => log_info!(
                    T::EpData,
                    "{text} has waited {seconds} s{state}; it ends by {by}"
                ),
                false => log_warn!(
                    T::EpData,
                    "{text} has waited {seconds} s{state}; it ends by {by} (`ripstop why {pid}` follows \
                     it on this machine; FI_LOG_STALL)"
                ),
            }
        }
    }
}
