//! When a thread that polls lets others run.

use std::time::Duration;

/// Counts the application's polls of a domain that find nothing. After many in a row what it
/// waits for may well be the work of a thread that has no processor, so the poll gives up its
/// own for a moment. Where every thread has one, this costs a short system call now and then,
/// and nothing while messages come.
///
/// When that moment shows that there are others here which wait as this one does, every poll in
/// vain lets them run: each of its own only keeps them from sending what it waits for.
///
/// When it shows that another one computes, which costs its whole time slice, this thread keeps its
/// processor for longer the next time: whom it waits for may run on another one, or will soon, and
/// the two get on only while both of them run.
#[derive(Debug)]
pub(crate) struct Polls {
    /// What these are without a crowd: before the first time, and between two times after that.
    usual: (u32, u32),
    /// What both are beside a thread that computes.
    beside_work: u32,
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
    /// That is waited for, see [`Polls::let_run`].
    patient: bool,
}

impl Polls {
    /// For a transport whose polls in vain ask the kernel, or do not, and are the faster for it.
    pub(crate) const fn new(asking: bool) -> Self {
        let (usual, beside_work) = match asking {
            true => ((Self::FIRST, Self::NEXT), Self::LONG),
            false => ((Self::MANY, Self::MANY), Self::LONG_WITHOUT),
        };
        Self {
            usual,
            beside_work,
            left: usual.0,
            first: usual.0,
            looks: true,
            crowd: 0,
            arriving: false,
            patient: asking,
        }
    }
}

/// What to do after many polls in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Poll on.
    None,
    /// Let other threads run.
    Yield,
    /// As `Yield`, and say with [`Polls::have_run_for`] what came of it.
    Look,
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
    /// Polls in vain before the first time, where each is a system call.
    const FIRST: u32 = 64;
    /// Polls in vain between two times after that.
    const NEXT: u32 = 8;
    /// Both where none is: 5 us, in which a message comes and goes several times.
    const MANY: u32 = 1024;
    /// Both beside a thread that computes, where each is a system call and where none is: a sixth
    /// of a millisecond and more, the twentieth part of a time slice. With eight times as many, two
    /// that share their processor with it wait four times as long for each other.
    const LONG: u32 = 512;
    const LONG_WITHOUT: u32 = 32 * 1024;
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

    /// What to do now that others should be let run. In a crowd that is nothing while a payload
    /// arrives through the kernel: who sends it has a processor, and what it sends is best taken
    /// while it is in the caches. One that writes to shared memory may wait for this processor
    /// to go on when the little that fits there is full.
    #[inline]
    pub(crate) const fn let_run(&mut self) -> Rest {
        if !self.looks {
            self.left = self.usual.1;
            return Rest::Yield;
        }
        if self.arriving && self.patient {
            self.arriving = false;
            self.left = self.usual.0;
            return Rest::None;
        }
        self.left = self.usual.1;
        Rest::Look
    }

    /// Whether others wait for the processor as this thread does.
    pub(crate) const fn in_crowd(&self) -> bool {
        self.crowd > 0
    }

    /// A part of a payload has come.
    pub(crate) const fn payload(&mut self, more: bool) {
        self.arriving = more;
    }

    /// Other threads could run, which took so long; `switched` says whether one of them did
    /// ([`thread::switches`](ripstop_os::thread::switches)). Returns whether there were some.
    pub(crate) fn have_run_for(&mut self, took: Duration, switched: bool) -> bool {
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
            Others::Wait => Self::GONE,
            Others::Work => 0,
        };
        self.looks = self.crowd > 0 || others == Others::Work;
        (self.first, self.left) = match (self.crowd, others) {
            (_, Others::Work) => (self.beside_work, self.beside_work),
            (0, _) => self.usual,
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
        let mut polls = Polls::new(true);
        assert_eq!(until_yield(&mut polls), Polls::FIRST);
        assert_eq!(polls.let_run(), Rest::Look);
        polls.note(Others::None);
        for _ in 0..3 {
            assert_eq!(until_yield(&mut polls), Polls::NEXT);
            assert_eq!(polls.let_run(), Rest::Yield);
        }
        polls.found();
        assert_eq!(until_yield(&mut polls), Polls::FIRST);
        assert_eq!(polls.let_run(), Rest::Look);
    }

    #[test]
    fn in_a_crowd_others_run_at_every_poll_in_vain() {
        let mut polls = Polls::new(true);
        assert_eq!(until_yield(&mut polls), Polls::FIRST);
        polls.note(Others::Wait);
        for _ in 0..100 {
            assert_eq!(until_yield(&mut polls), Polls::CROWDED);
            assert_eq!(polls.let_run(), Rest::Look);
            polls.note(Others::Wait);
            polls.found();
            assert_eq!(until_yield(&mut polls), Polls::CROWDED);
            polls.note(Others::None);
        }
    }

    #[test]
    fn a_crowd_that_is_gone_is_forgotten() {
        let mut polls = Polls::new(true);
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
        let mut polls = Polls::new(true);
        polls.note(Others::Wait);
        polls.payload(true);
        assert_eq!(until_yield(&mut polls), Polls::CROWDED);
        assert_eq!(polls.let_run(), Rest::None);
        // Not for ever.
        assert_eq!(until_yield(&mut polls), Polls::FIRST);
        assert_eq!(polls.let_run(), Rest::Look);
        polls.payload(true);
        polls.payload(false);
        assert_eq!(polls.let_run(), Rest::Look);
    }

    #[test]
    fn in_a_crowd_a_payload_in_shared_memory_is_not_polled_for() {
        let mut polls = Polls::new(false);
        polls.note(Others::Wait);
        polls.payload(true);
        assert_eq!(until_yield(&mut polls), Polls::CROWDED);
        assert_eq!(polls.let_run(), Rest::Look);
    }

    #[test]
    fn beside_a_busy_thread_the_processor_is_kept_for_longer() {
        for (asking, long) in [(true, Polls::LONG), (false, Polls::LONG_WITHOUT)] {
            let mut polls = Polls::new(asking);
            polls.note(Others::Wait);
            for _ in 0..3 {
                polls.note(Others::Work);
                assert_eq!(until_yield(&mut polls), long);
                assert_eq!(polls.let_run(), Rest::Look);
                polls.note(Others::Work);
                polls.found();
                assert_eq!(until_yield(&mut polls), long);
                assert_eq!(polls.let_run(), Rest::Look);
            }
            // It is gone.
            polls.note(Others::None);
            assert_eq!(until_yield(&mut polls), polls.usual.1);
            polls.found();
            assert_eq!(until_yield(&mut polls), polls.usual.0);
        }
    }

    #[test]
    fn a_slow_machine_is_no_crowd() {
        let mut polls = Polls::new(true);
        let long = Duration::from_micros(100);
        for _ in 0..3 {
            assert!(!polls.have_run_for(long, false));
            assert_eq!(until_yield(&mut polls), Polls::NEXT);
        }
        assert!(!polls.have_run_for(Duration::ZERO, true));
        assert!(polls.have_run_for(long, true));
        assert_eq!(until_yield(&mut polls), Polls::CROWDED);
    }
}
