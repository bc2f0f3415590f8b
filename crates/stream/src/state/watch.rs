//! What a domain keeps to say what waits, and for how long (`docs/design/status-page.md`).

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ripstop_core::{DEFAULT_STALL, params};
use ripstop_engine::id::{ConnId, RecvId, SrxId, TriggeredId};
use ripstop_os::StatusPage;

/// How often a domain looks at what waits.
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// After a longer time between two passes the process was away: it computed, or was stopped.
const MAX_GAP: Duration = Duration::from_secs(2);

/// Variables by which launchers number the processes of a job: PMI, PMIx, Open MPI, Slurm.
const RANKS: [&str; 4] = [
    "PMI_RANK",
    "PMIX_RANK",
    "OMPI_COMM_WORLD_RANK",
    "SLURM_PROCID",
];

/// Whose age is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A receive of a context.
    Recv(SrxId, RecvId),
    /// A message that a connection has announced, by its index.
    Announced(ConnId, u16),
    /// The operations that wait for a connection.
    Connecting(ConnId),
    /// Bytes that wait for room.
    Unsent(ConnId),
    /// Reads that wait for their answer.
    Reads(ConnId),
    /// What is to be acknowledged.
    Acks(ConnId),
    /// Messages that have not come whole.
    Arriving(ConnId),
    /// A peer that is not read.
    Full(ConnId),
    /// Work below its threshold.
    Work(TriggeredId),
    /// What waits for a member of a group: the endpoint's number, the member, and which operation.
    Group(u32, u64, u32),
}

/// Since when something waits.
#[derive(Debug)]
struct Age {
    /// What it was when it was seen last: another value is another operation, or progress.
    mark: u64,
    since: Duration,
    /// The age at which the log hears of it next.
    tell_at: Duration,
    /// The pass that has seen it last.
    pass: u32,
}

/// Threads that sleep in a call; other processes see how many.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    count: AtomicU32,
    page: Option<StatusPage>,
}

impl Sleepers {
    /// A thread is about to sleep.
    pub(crate) fn enter(&self) {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        self.show(before.wrapping_add(1));
    }

    /// It has slept.
    pub(crate) fn leave(&self) {
        let before = self.count.fetch_sub(1, Ordering::Relaxed);
        self.show(before.wrapping_sub(1));
    }

    /// Whether any thread sleeps.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Two threads at once may show the older count, until the next pass.
    fn show(&self, count: u32) {
        if let Some(page) = &self.page {
            page.note_sleepers(count);
        }
    }

    /// Writes a snapshot where there is a page.
    pub(crate) fn publish(&self, snapshot: &[u8], now: Duration, polled: bool) {
        if let Some(page) = &self.page {
            page.publish(snapshot, now, polled);
            self.show(self.count.load(Ordering::Relaxed));
        }
    }

    pub(crate) const fn has_page(&self) -> bool {
        self.page.is_some()
    }
}

/// See the module. The default looks at nothing.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// From which age on the log tells of what waits; zero if never.
    pub(crate) stall: Duration,
    pub(crate) sleepers: Arc<Sleepers>,
    pub(crate) has_thread: bool,
    /// The name of the program.
    pub(crate) program: String,
    /// The number that a launcher gave to the process.
    pub(crate) rank: Option<u32>,
    looked_at: Duration,
    pass: u32,
    ages: HashMap<Key, Age>,
}

impl Watch {
    /// As the environment says, with a page if there can be one.
    pub(crate) fn new() -> Self {
        let params = params();
        let stall = params.get(None, "log_stall").unwrap_or(DEFAULT_STALL);
        let shows = params.get(None, "status_page").unwrap_or(true);
        let page = shows.then(StatusPage::create).and_then(|page| {
            let lacks = |error: &_| {
                ripstop_core::fi_info!(
                    "core",
                    ripstop_core::log::Subsys::Domain,
                    "no status page, so that ripstop top and ripstop why see nothing of this process: \
                     {error}; XDG_RUNTIME_DIR, /dev/shm or /tmp must be writable"
                );
            };
            page.inspect_err(lacks).ok()
        });
        let program = std::env::args_os().next().unwrap_or_default();
        let name = Path::new(&program).file_name().unwrap_or_default();
        let number = |name| std::env::var(name).ok()?.parse().ok();
        Self {
            stall: Duration::from_secs(stall as u64),
            sleepers: Arc::new(Sleepers {
                count: AtomicU32::new(0),
                page,
            }),
            program: name.to_string_lossy().into_owned(),
            rank: RANKS.into_iter().find_map(number),
            ..Self::default()
        }
    }

    /// Whether anybody wants to know.
    pub(crate) fn is_on(&self) -> bool {
        !self.stall.is_zero() || self.sleepers.has_page()
    }

    /// Whether it is time for a pass.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.is_on() && now.saturating_sub(self.looked_at) >= WATCH_INTERVAL * 9 / 10
    }

    /// A pass begins. While nobody made progress, what has come was not seen: that time does not count.
    pub(crate) fn begin_pass(&mut self, now: Duration) {
        let since = now.saturating_sub(self.looked_at);
        if since > MAX_GAP {
            for age in self.ages.values_mut() {
                age.since += since - WATCH_INTERVAL;
            }
        }
        self.looked_at = now;
        self.pass = self.pass.wrapping_add(1);
    }

    /// A pass is over: what it has not seen is gone.
    pub(crate) fn end_pass(&mut self) {
        let pass = self.pass;
        self.ages.retain(|_, age| age.pass == pass);
    }

    /// For how long something waits that is seen now. With another mark, or if it is new, it was
    /// something else that waited before.
    pub(crate) fn age(&mut self, key: Key, is_new: bool, mark: u64, now: Duration) -> Duration {
        let stall = self.stall;
        let age = self.ages.entry(key).or_insert(Age {
            mark,
            since: now,
            tell_at: stall,
            pass: 0,
        });
        if is_new || age.mark != mark {
            (age.mark, age.since, age.tell_at) = (mark, now, stall);
        }
        age.pass = self.pass;
        now.saturating_sub(age.since)
    }

    /// Whether the log hears of something of this age now: at first when it has stalled, then each time
    /// that the age has doubled.
    pub(crate) fn is_told(&mut self, key: Key, waited: Duration) -> bool {
        let stall = self.stall;
        let Some(age) = self.ages.get_mut(&key) else {
            return false;
        };
        if stall.is_zero() || waited < age.tell_at {
            return false;
        }
        age.tell_at = waited.saturating_mul(2);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn an_age_ends_with_its_operation() {
        let mut watch = Watch::default();
        let key = Key::Unsent(ConnId::FIRST);
        for second in 1..=5 {
            watch.begin_pass(S * second);
            assert_eq!(watch.age(key, false, 7, S * second), S * (second - 1));
            watch.end_pass();
        }
        watch.begin_pass(S * 6);
        assert_eq!(watch.age(key, false, 8, S * 6), Duration::ZERO, "progress");
        watch.end_pass();
        watch.begin_pass(S * 7);
        assert_eq!(
            watch.age(key, true, 8, S * 7),
            Duration::ZERO,
            "another one"
        );
        watch.end_pass();
        watch.begin_pass(S * 8);
        watch.end_pass();
        watch.begin_pass(S * 9);
        assert_eq!(
            watch.age(key, false, 8, S * 9),
            Duration::ZERO,
            "it was gone"
        );
    }

    #[test]
    fn the_time_that_a_process_was_away_does_not_count() {
        let mut watch = Watch::default();
        let key = Key::Unsent(ConnId::FIRST);
        let mut ages = Vec::new();
        for second in [1, 2, 3, 63, 64] {
            watch.begin_pass(S * second);
            ages.push(watch.age(key, false, 7, S * second).as_secs());
            watch.end_pass();
        }
        assert_eq!(ages, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn the_log_hears_of_it_each_time_it_has_doubled() {
        let mut watch = Watch {
            stall: S * 2,
            ..Watch::default()
        };
        let key = Key::Full(ConnId::FIRST);
        let mut told = Vec::new();
        for second in 0..40 {
            watch.begin_pass(S * second);
            let age = watch.age(key, false, 0, S * second);
            if watch.is_told(key, age) {
                told.push(second);
            }
            watch.end_pass();
        }
        assert_eq!(told, [2, 4, 8, 16, 32]);
        watch.stall = Duration::ZERO;
        assert!(!watch.is_told(key, S * 100), "switched off");
    }
}
