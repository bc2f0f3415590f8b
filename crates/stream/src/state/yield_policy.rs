//! When a thread that polls gives up its processor.

use std::time::Duration;

/// How many idle polls there are between yields.
#[derive(Clone, Copy, Debug)]
struct IdlePolls {
    /// Before the first yield.
    first: u32,
    /// Between two after that.
    next: u32,
}

/// Counts the program's polls of a domain that find nothing, and says when to yield.
///
/// After many idle polls in a row, what the program waits for may be the work of a thread that has
/// no processor. A yield costs a short system call now and then where every thread has a processor,
/// and nothing while messages come.
///
/// If another thread ran for a short time during a yield, there is a crowd: others wait as this one
/// does, and from then on every idle poll yields. If another thread ran for long, it computes, and
/// each yield costs its whole time slice: this thread then keeps its processor for longer, since it
/// and its peer get on only while both of them run.
#[derive(Debug)]
pub(crate) struct YieldPolicy {
    /// Those without a crowd.
    usual: IdlePolls,
    /// Both beside a thread that computes.
    beside_work: u32,
    /// Idle polls until the next yield; never 0 between two polls.
    left: u32,
    /// What `left` is after a poll that found something.
    first: u32,
    /// The next yield is measured: the first one since a poll found something, and each in a crowd.
    measures: bool,
    /// Yields in which nobody else ran, until the crowd is taken to be gone; 0 without one.
    crowd: u32,
    /// Part of a payload has come, and more is to come.
    arriving: bool,
    /// Whether a payload that is arriving puts off a yield, see [`YieldPolicy::next_yield`].
    awaits_payload: bool,
}

/// What to do now that a yield is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum YieldNow {
    /// Poll on.
    No,
    /// Yield.
    Yes,
    /// Yield, and report with [`YieldPolicy::note_yield`] how long that took.
    Measure,
}

/// Whether other threads ran during a yield.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    None,
    /// For a short time: they wait as well.
    Wait,
    /// For long: they compute.
    Work,
}

impl YieldPolicy {
    /// Idle polls before the first yield, where each poll is a system call.
    const FIRST: u32 = 64;
    /// Idle polls between two yields after that.
    const NEXT: u32 = 8;
    /// Both where a poll is no system call: 5 us, in which a message comes and goes several times.
    const WITHOUT_CALLS: u32 = 1024;
    /// Both beside a thread that computes, where each poll is a system call and where none is: a
    /// sixth of a millisecond and more, the twentieth part of a time slice. With eight times as many,
    /// two that share their processor with it wait four times as long for each other.
    const BESIDE_WORK: u32 = 512;
    const BESIDE_WORK_WITHOUT_CALLS: u32 = 32 * 1024;
    /// Both in a crowd.
    const CROWDED: u32 = 1;
    /// A yield to another thread takes longer than this: three times what it takes where there is
    /// none, and half of what it does where the other one polls as well. Where all is slow, as under
    /// valgrind, the system's count of switches tells them apart.
    const ALONE: Duration = Duration::from_nanos(1500);
    /// A thread that runs longer than this does not wait for anything. To yield to it at every poll
    /// would cost its whole time slice for each message.
    const BUSY: Duration = Duration::from_millis(1);
    /// Yields in a row in which nobody else ran, after which a crowd is taken to be gone.
    const CROWD_GONE: u32 = 16;

    /// For a transport whose idle polls are system calls (`calls`), or are not and are much faster.
    pub(crate) const fn new(calls: bool) -> Self {
        let (first, next, beside_work) = match calls {
            true => (Self::FIRST, Self::NEXT, Self::BESIDE_WORK),
            false => (
                Self::WITHOUT_CALLS,
                Self::WITHOUT_CALLS,
                Self::BESIDE_WORK_WITHOUT_CALLS,
            ),
        };
        Self {
            usual: IdlePolls { first, next },
            beside_work,
            left: first,
            first,
            measures: true,
            crowd: 0,
            arriving: false,
            awaits_payload: calls,
        }
    }

    /// From now on idle polls are system calls, or are not. What is known of other threads is
    /// forgotten if that changes.
    pub(crate) const fn set_calls(&mut self, calls: bool) {
        if self.awaits_payload != calls {
            *self = Self::new(calls);
        }
    }

    /// A poll found something.
    #[inline]
    pub(crate) const fn note_found(&mut self) {
        self.left = self.first;
        self.measures = true;
    }

    /// A poll found nothing. Returns whether a yield is due, which
    /// [`Inner::pause`](crate::api::domain::Inner::pause) does without the domain's lock.
    #[inline]
    pub(crate) const fn is_yield_due(&mut self) -> bool {
        self.left = self.left.wrapping_sub(1);
        self.left == 0
    }

    /// What to do now that a yield is due. In a crowd that is nothing while a payload arrives
    /// through the kernel: its sender has a processor, and the bytes are best taken while they are
    /// in the caches. A sender over shared memory may wait for this processor to go on, once the
    /// little that fits there is full.
    #[inline]
    pub(crate) const fn next_yield(&mut self) -> YieldNow {
        if !self.measures {
            self.left = self.usual.next;
            return YieldNow::Yes;
        }
        if self.arriving && self.awaits_payload {
            self.arriving = false;
            self.left = self.usual.first;
            return YieldNow::No;
        }
        self.left = self.usual.next;
        YieldNow::Measure
    }

    /// Whether other threads wait for the processor as this one does.
    pub(crate) const fn is_crowded(&self) -> bool {
        self.crowd > 0
    }

    /// A part of a payload has come, and there is `more` of it.
    pub(crate) const fn note_payload(&mut self, more: bool) {
        self.arriving = more;
    }

    /// A yield took so long; `switched` says whether another thread ran meanwhile
    /// ([`thread::switches`](ripstop_os::thread::switches)). Returns whether one did for a while.
    pub(crate) fn note_yield(&mut self, took: Duration, switched: bool) -> bool {
        let others = match took {
            _ if took <= Self::ALONE || !switched => Others::None,
            _ if took <= Self::BUSY => Others::Wait,
            _ => Others::Work,
        };
        self.note(others);
        others != Others::None
    }

    fn note(&mut self, others: Others) {
        self.crowd = match others {
            Others::None => self.crowd.saturating_sub(1),
            Others::Wait => Self::CROWD_GONE,
            Others::Work => 0,
        };
        self.measures = self.crowd > 0 || others == Others::Work;
        (self.first, self.left) = match (self.crowd, others) {
            (_, Others::Work) => (self.beside_work, self.beside_work),
            (0, _) => (self.usual.first, self.usual.next),
            _ => (Self::CROWDED, Self::CROWDED),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until_yield(policy: &mut YieldPolicy) -> u32 {
        (1..).find(|_| policy.is_yield_due()).unwrap()
    }

    #[test]
    fn yields_after_many_idle_polls() {
        let mut policy = YieldPolicy::new(true);
        assert_eq!(until_yield(&mut policy), YieldPolicy::FIRST);
        assert_eq!(policy.next_yield(), YieldNow::Measure);
        policy.note(Others::None);
        for _ in 0..3 {
            assert_eq!(until_yield(&mut policy), YieldPolicy::NEXT);
            assert_eq!(policy.next_yield(), YieldNow::Yes);
        }
        policy.note_found();
        assert_eq!(until_yield(&mut policy), YieldPolicy::FIRST);
        assert_eq!(policy.next_yield(), YieldNow::Measure);
    }

    #[test]
    fn in_a_crowd_every_idle_poll_yields() {
        let mut policy = YieldPolicy::new(true);
        assert_eq!(until_yield(&mut policy), YieldPolicy::FIRST);
        policy.note(Others::Wait);
        for _ in 0..100 {
            assert_eq!(until_yield(&mut policy), YieldPolicy::CROWDED);
            assert_eq!(policy.next_yield(), YieldNow::Measure);
            policy.note(Others::Wait);
            policy.note_found();
            assert_eq!(until_yield(&mut policy), YieldPolicy::CROWDED);
            policy.note(Others::None);
        }
    }

    #[test]
    fn a_crowd_that_is_gone_is_forgotten() {
        let mut policy = YieldPolicy::new(true);
        policy.note(Others::Wait);
        for _ in 0..YieldPolicy::CROWD_GONE {
            assert_eq!(until_yield(&mut policy), YieldPolicy::CROWDED);
            policy.note(Others::None);
        }
        assert_eq!(until_yield(&mut policy), YieldPolicy::NEXT);
        policy.note_found();
        assert_eq!(until_yield(&mut policy), YieldPolicy::FIRST);
    }

    #[test]
    fn in_a_crowd_a_payload_that_is_arriving_puts_off_a_yield() {
        let mut policy = YieldPolicy::new(true);
        policy.note(Others::Wait);
        policy.note_payload(true);
        assert_eq!(until_yield(&mut policy), YieldPolicy::CROWDED);
        assert_eq!(policy.next_yield(), YieldNow::No);
        // Not for ever.
        assert_eq!(until_yield(&mut policy), YieldPolicy::FIRST);
        assert_eq!(policy.next_yield(), YieldNow::Measure);
        policy.note_payload(true);
        policy.note_payload(false);
        assert_eq!(policy.next_yield(), YieldNow::Measure);
    }

    #[test]
    fn in_a_crowd_a_payload_in_shared_memory_does_not_put_off_a_yield() {
        let mut policy = YieldPolicy::new(false);
        policy.note(Others::Wait);
        policy.note_payload(true);
        assert_eq!(until_yield(&mut policy), YieldPolicy::CROWDED);
        assert_eq!(policy.next_yield(), YieldNow::Measure);
    }

    #[test]
    fn beside_a_busy_thread_the_processor_is_kept_for_longer() {
        for (calls, long) in [
            (true, YieldPolicy::BESIDE_WORK),
            (false, YieldPolicy::BESIDE_WORK_WITHOUT_CALLS),
        ] {
            let mut policy = YieldPolicy::new(calls);
            policy.note(Others::Wait);
            for _ in 0..3 {
                policy.note(Others::Work);
                assert_eq!(until_yield(&mut policy), long);
                assert_eq!(policy.next_yield(), YieldNow::Measure);
                policy.note(Others::Work);
                policy.note_found();
                assert_eq!(until_yield(&mut policy), long);
                assert_eq!(policy.next_yield(), YieldNow::Measure);
            }
            // It is gone.
            policy.note(Others::None);
            assert_eq!(until_yield(&mut policy), policy.usual.next);
            policy.note_found();
            assert_eq!(until_yield(&mut policy), policy.usual.first);
        }
    }

    #[test]
    fn a_slow_machine_is_no_crowd() {
        let mut policy = YieldPolicy::new(true);
        let long = Duration::from_micros(100);
        for _ in 0..3 {
            assert!(!policy.note_yield(long, false));
            assert_eq!(until_yield(&mut policy), YieldPolicy::NEXT);
        }
        assert!(!policy.note_yield(Duration::ZERO, true));
        assert!(policy.note_yield(long, true));
        assert_eq!(until_yield(&mut policy), YieldPolicy::CROWDED);
    }
}
