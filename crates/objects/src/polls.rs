//! When a thread that polls lets others run.

use std::time::Duration;

use ripstop_os::thread;

/// Counts the application's polls of a domain that find nothing. After many in a row what it
/// waits for may well be the work of a thread that has no processor, so the poll gives up its
/// own for a moment. Where every thread has one, this costs a short system call now and then,
/// and nothing while messages come.
///
/// When that moment shows that there are others here which wait as this one does, every poll in
/// vain lets them run: each of its own only keeps them from sending what it waits for.
#[derive(Debug)]
pub(crate) struct Polls {
    /// Polls in vain until others are let run; never 0 between two polls.
    left: u32,
    /// What that is after a poll that found something.
    first: u32,
    /// To look how long it takes to let others run: the first time since a poll found something,
    /// and in a crowd.
    looks: bool,
    /// Moments without others until they are thought to be gone.
    crowd: u32,
    /// A payload is arriving, and not all of it is there.
    arriving: bool,
    /// What [`thread::switches`] said the last time.
    switches: Option<u64>,
}

impl Default for Polls {
    fn default() -> Self {
        Self {
            left: Self::FIRST,
            first: Self::FIRST,
            looks: true,
            crowd: 0,
            arriving: false,
            switches: None,
        }
    }
}

/// Whether others ran while they could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    None,
    /// For a short while: they wait as well.
    Wait,
    /// For long: they compute.
    Work,
}

impl Polls {
    /// Polls in vain before the first time.
    const FIRST: u32 = 64;
    /// Polls in vain between two times after that.
    const NEXT: u32 = 8;
    /// In a crowd, both.
    const CROWDED: u32 = 1;
    /// It takes longer than this to let another thread run and come back: three times what it
    /// takes where there is none, and half of what it does where the other one polls as well.
    /// Where all is slow, as under valgrind, the system's count of switches tells them apart.
    const ALONE: Duration = Duration::from_nanos(1500);
    /// A thread that runs longer than this does not wait for anything. To give up the processor
    /// for it at every poll would cost its whole time slice for each message.
    const BUSY: Duration = Duration::from_millis(1);
    /// Moments without others until they are thought to be gone.
    const GONE: u32 = 16;

    /// A poll found something.
    #[inline]
    pub(crate) const fn found(&mut self) {
        self.left = self.first;
        self.looks = true;
    }

    /// A poll found nothing; whether to let other threads run, by
    /// [`Inner::pause`](crate::domain::Inner::pause).
    #[inline]
    pub(crate) const fn in_vain(&mut self) -> bool {
        self.left = self.left.wrapping_sub(1);
        self.left == 0
    }

    /// Others are about to be let run. Returns whether to say with [`Polls::have_run_for`] how
    /// long that took.
    #[inline]
    pub(crate) const fn let_run(&mut self) -> bool {
        self.left = Self::NEXT;
        self.looks
    }

    /// A part of a payload has come.
    pub(crate) const fn payload(&mut self, more: bool) {
        self.arriving = more;
    }

    /// Whether to poll on without letting others run, in a crowd. Who sends a payload has a
    /// processor, and what it sends is best taken while it is in the caches.
    pub(crate) fn goes_on(&mut self) -> bool {
        let arriving = std::mem::take(&mut self.arriving);
        if arriving {
            self.left = Self::FIRST;
        }
        arriving
    }

    /// Other threads could run, which took so long. Returns whether there were some.
    pub(crate) fn have_run_for(&mut self, took: Duration) -> bool {
        let others = match took {
            _ if took <= Self::ALONE || !self.switched() => Others::None,
            _ if took <= Self::BUSY => Others::Wait,
            _ => Others::Work,
        };
        self.note(others);
        others != Others::None
    }

    /// Whether the thread has lost its processor since that was asked before.
    fn switched(&mut self) -> bool {
        let before = std::mem::replace(&mut self.switches, thread::switches());
        before.is_some() && before != self.switches
    }

    fn note(&mut self, others: Others) {
        self.crowd = match others {
            Others::None => self.crowd.saturating_sub(1),
            Others::Wait => Self::GONE,
            Others::Work => 0,
        };
        self.looks = self.crowd > 0;
        (self.first, self.left) = match self.crowd {
            0 => (Self::FIRST, Self::NEXT),
            _ => (Self::CROWDED, Self::CROWDED),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until_yield(polls: &mut Polls) -> u32 {
        (1..).find(|_| polls.in_vain()).unwrap()
    }

    #[test]
    fn others_run_after_many_polls_in_vain() {
        let mut polls = Polls::default();
        assert_eq!(until_yield(&mut polls), Polls::FIRST);
        assert!(polls.let_run());
        polls.note(Others::None);
        for _ in 0..3 {
            assert_eq!(until_yield(&mut polls), Polls::NEXT);
            assert!(!polls.let_run());
        }
        polls.found();
        assert_eq!(until_yield(&mut polls), Polls::FIRST);
        assert!(polls.let_run());
    }

    #[test]
    fn in_a_crowd_others_run_at_every_poll_in_vain() {
        let mut polls = Polls::default();
        assert_eq!(until_yield(&mut polls), Polls::FIRST);
        polls.note(Others::Wait);
        for _ in 0..100 {
            assert_eq!(until_yield(&mut polls), Polls::CROWDED);
            assert!(polls.let_run());
            polls.note(Others::Wait);
            polls.found();
            assert_eq!(until_yield(&mut polls), Polls::CROWDED);
            polls.note(Others::None);
        }
    }

    #[test]
    fn a_crowd_that_is_gone_is_forgotten() {
        let mut polls = Polls::default();
        polls.note(Others::Wait);
        for _ in 0..Polls::GONE {
            assert_eq!(until_yield(&mut polls), Polls::CROWDED);
            polls.note(Others::None);
        }
        assert_eq!(until_yield(&mut polls), Polls::NEXT);
        polls.found();
        assert_eq!(until_yield(&mut polls), Polls::FIRST);
    }

    #[test]
    fn in_a_crowd_a_payload_that_is_arriving_is_polled_for() {
        let mut polls = Polls::default();
        polls.note(Others::Wait);
        polls.payload(true);
        assert_eq!(until_yield(&mut polls), Polls::CROWDED);
        assert!(polls.goes_on());
        // Not for ever.
        assert_eq!(until_yield(&mut polls), Polls::FIRST);
        assert!(!polls.goes_on());
        polls.payload(true);
        polls.payload(false);
        assert!(!polls.goes_on());
    }

    #[test]
    fn a_busy_thread_makes_no_crowd() {
        let mut polls = Polls::default();
        polls.note(Others::Wait);
        polls.note(Others::Work);
        assert_eq!(until_yield(&mut polls), Polls::NEXT);
        polls.found();
        assert_eq!(until_yield(&mut polls), Polls::FIRST);
    }

    #[test]
    fn a_slow_machine_is_no_crowd() {
        let mut polls = Polls::default();
        // The first time there is nothing to compare with, and no time is no switch.
        assert!(!polls.have_run_for(Duration::from_micros(100)));
        assert!(!polls.have_run_for(Duration::ZERO));
        assert_eq!(until_yield(&mut polls), Polls::NEXT);
    }
}
