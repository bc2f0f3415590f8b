//! The choice between the two ways of a long payload: through the ring, which both sides copy at the same
//! time, or by cross-memory attach, one copy that the kernel makes for one side. Which is faster depends
//! on the machine, and on how far apart the two processors are at the moment, by a factor of three and
//! more either way.
//!
//! So each connection has a [`CopyChoice`]. It is told how long copies of both ways took, keeps for each
//! class of lengths the way that is faster, and now and then sends a payload the other way, so that the
//! cost of that stays known: such a payload is a *trial*.
//!
//! - What **attach** costs depends on the length, since a call costs as much as some 10 KiB, and on how
//!   many payloads are copied by one call.
//! - Through the **ring** a payload costs a copy at each side. This side knows how long its own copies take,
//!   from the ring and to it, where payloads go both ways. Where one payload or part comes right behind the
//!   other (a stream), it also knows how long both sides take together: a reader waits for the writer then, or
//!   a writer for room. Where each message answers another (ping-pong), a side waits for more than that, which
//!   does not count ([`Flow`](crate::copy_cost::Flow)). All of this depends on what the other side copies meanwhile, so it is
//!   measured as it happens, and forgotten when it is old.

use std::ops::{Index, IndexMut};
use std::time::Duration;

use ripstop_core::provider::Copies;

use crate::copy_cost::{Cost, RingCopy, RingCost, TimedCopy};

/// What the user wants (`FI_SHM_COPY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyMode {
    /// All payloads go through the ring, unless the peer does not poll it.
    Ring,
    /// Long payloads are copied by attach wherever that is allowed.
    Attach,
    /// What is faster, as measured.
    Auto,
}

/// Exponents of the shortest and the longest [`LengthClass`].
const MIN_EXPONENT: u32 = 12;
const MAX_EXPONENT: u32 = 23;
const _: () = assert!(
    Copies::MIN_BYTES == 1 << MIN_EXPONENT,
    "what may take another way is counted"
);

/// The shortest payloads that are got from the sender before anything is known ([`GetLimit`]).
const FIRST_LIMIT: LengthClass = LengthClass::of(16 << 10);

/// The longest payload in bytes that may be a trial once the cost of the ring is known: what comes behind it waits.
/// Longer ones take the way that is faster for it.
const MAX_TRIAL_BYTES: u64 = 256 << 10;

/// Payloads between two trials: at first, and at most, after doubling each time that the other way was found
/// no better.
const MIN_BETWEEN_TRIALS: u32 = 4;
const MAX_BETWEEN_TRIALS: u32 = 1024;

/// Measurements of attach, once a class has changed to it, before that may go back to the ring. What was known of attach
/// is old then, and where both sides send, either copies faster once the other has changed, too.
const SETTLING_SAMPLES: u8 = 32;

/// Where attach is the way of a class and its cost is known, every 8th copy is timed: with all of them timed, and the
/// check of the process, the clock was 8 % of the time of 8 KiB.
const COPIES_PER_TIMED: u32 = 8;

/// A way is given up for the other where that is faster by more than one 16th of its cost.
const MARGIN: u32 = 16;

/// A class of lengths of payloads: a power of two and what is longer, up to the next. The first class has all that is
/// shorter, too, and the last one all that is longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LengthClass(u8);

impl LengthClass {
    /// How many there are.
    const COUNT: usize = (MAX_EXPONENT - MIN_EXPONENT + 1) as usize;

    /// The class of a length.
    const fn of(len: u64) -> Self {
        let exponent = (len | 1).ilog2();
        Self(match exponent {
            ..MIN_EXPONENT => 0,
            MIN_EXPONENT..=MAX_EXPONENT => (exponent - MIN_EXPONENT) as u8,
            _ => (MAX_EXPONENT - MIN_EXPONENT) as u8,
        })
    }

    /// The first one.
    const SHORTEST: Self = Self(0);

    /// That of the longest payloads that may be trials.
    const LONGEST_TRIED: Self = Self::of(MAX_TRIAL_BYTES);

    /// The class of payloads of twice the length, if there is one.
    fn next(self) -> Option<Self> {
        let next = self.0 + 1;
        (usize::from(next) < Self::COUNT).then_some(Self(next))
    }

    /// All of them, from the shortest on.
    fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    /// The exponent of its shortest length, but for what is shorter than all classes.
    const fn exponent(self) -> u8 {
        MIN_EXPONENT as u8 + self.0
    }
}

/// A value for each class of lengths.
#[derive(Clone, Copy, Debug, Default)]
struct ByClass<T>([T; LengthClass::COUNT]);

impl<T> Index<LengthClass> for ByClass<T> {
    type Output = T;

    fn index(&self, class: LengthClass) -> &T {
        &self.0[usize::from(class.0)]
    }
}

impl<T> IndexMut<LengthClass> for ByClass<T> {
    fn index_mut(&mut self, class: LengthClass) -> &mut T {
        &mut self.0[usize::from(class.0)]
    }
}

/// Which messages this side gets, as it tells the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GetLimit {
    /// None: it cannot. The peer takes this for granted until it is told something else.
    CannotGet,
    /// None but trials, since the ring is faster.
    TrialsOnly,
    /// Those from `1 << exponent` bytes on; of shorter ones only trials.
    From {
        /// That of the shortest length of a class.
        exponent: u8,
    },
}

impl GetLimit {
    /// The exponent that stands for it on the wire, see
    /// [`DirectAccess::take_get_limit`](ripstop_stream::DirectAccess::take_get_limit).
    pub(crate) const fn wire_exponent(self) -> u8 {
        match self {
            Self::CannotGet => 0,
            // Longer than any message.
            Self::TrialsOnly => 63,
            Self::From { exponent } => exponent,
        }
    }
}

/// A way of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Ring,
    Attach,
}

impl Way {
    const fn other(self) -> Self {
        match self {
            Self::Ring => Self::Attach,
            Self::Attach => Self::Ring,
        }
    }
}

/// When the next trial is due.
#[derive(Debug)]
struct TrialCountdown {
    /// Payloads until then.
    left: u32,
    /// The value that it started from.
    between: u32,
}

impl TrialCountdown {
    const fn new() -> Self {
        Self {
            left: MIN_BETWEEN_TRIALS,
            between: MIN_BETWEEN_TRIALS,
        }
    }

    /// Whether the next payload is a trial. After that there are twice as many until another one.
    fn is_next(&mut self) -> bool {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            return false;
        }
        self.between = (2 * self.between).min(MAX_BETWEEN_TRIALS);
        self.left = self.between;
        true
    }
}

/// What one connection knows of the two ways.
#[derive(Debug)]
pub(crate) struct CopyChoice {
    mode: CopyMode,
    /// Copies from the ring, and to it.
    ring_reads: RingCost,
    ring_writes: RingCost,
    attach: ByClass<Cost>,
    /// The shortest class that takes attach, as longer ones do; `None` where all take the ring. A byte of a longer
    /// payload costs attach less than one of a shorter payload, and the ring the same.
    attach_from: Option<LengthClass>,
    /// Measurements of attach until a class may change to the ring.
    until_settled: u8,
    trials: TrialCountdown,
    /// Copies by attach until one is timed.
    until_timed: u32,
    /// What the peer was told.
    told: GetLimit,
    /// The limit may have changed since the peer was told.
    is_limit_stale: bool,
}

impl CopyChoice {
    pub(crate) fn new(mode: CopyMode) -> Self {
        let attach_from = match mode {
            CopyMode::Ring => None,
            CopyMode::Attach | CopyMode::Auto => Some(LengthClass::SHORTEST),
        };
        Self {
            mode,
            ring_reads: RingCost::default(),
            ring_writes: RingCost::default(),
            attach: ByClass::default(),
            attach_from,
            until_settled: 0,
            trials: TrialCountdown::new(),
            until_timed: 0,
            told: GetLimit::CannotGet,
            is_limit_stale: true,
        }
    }

    /// The faster way of a payload of this length, as far as is known.
    pub(crate) fn preferred(&self, len: u64) -> Way {
        self.way(LengthClass::of(len))
    }

    /// That of a class. What is longer than [`MAX_TRIAL_BYTES`] follows it once both ways of that are
    /// known: the measurements of a few long payloads depend on what the other side copies meanwhile, and
    /// would change the way again and again.
    fn way(&self, class: LengthClass) -> Way {
        match self.follows_longest_tried(class) {
            true => self.own_way(LengthClass::LONGEST_TRIED),
            false => self.own_way(class),
        }
    }

    /// The way of a class by its own measurements.
    fn own_way(&self, class: LengthClass) -> Way {
        match self.attach_from.is_some_and(|shortest| class >= shortest) {
            true => Way::Attach,
            false => Way::Ring,
        }
    }

    /// Whether a class follows the longest one that is tried.
    fn follows_longest_tried(&self, class: LengthClass) -> bool {
        class > LengthClass::LONGEST_TRIED && self.knows_both(LengthClass::LONGEST_TRIED)
    }

    /// Forgets what attach costs for some classes.
    fn forget_attach(&mut self, is_old: impl Fn(LengthClass) -> bool) {
        for class in LengthClass::all().filter(|class| is_old(*class)) {
            self.attach[class] = Cost::default();
        }
    }

    /// Whether both ways of a class are known.
    fn knows_both(&self, class: LengthClass) -> bool {
        self.ring_cost().is_some() && self.attach[class].known().is_some()
    }

    /// The way of the next payload of this length: the faster one, or the other where it is a trial.
    pub(crate) fn next_way(&mut self, len: u64) -> Way {
        let way = self.preferred(len);
        let may_be_trial =
            self.mode == CopyMode::Auto && (len <= MAX_TRIAL_BYTES || self.ring_cost().is_none());
        match may_be_trial && self.trials.is_next() {
            true => way.other(),
            false => way,
        }
    }

    /// Whether the user demands that payloads are copied by attach.
    pub(crate) fn is_attach_demanded(&self) -> bool {
        self.mode == CopyMode::Attach
    }

    /// Payloads cannot be copied by attach, or not any more.
    pub(crate) fn give_up_attach(&mut self) {
        self.mode = CopyMode::Ring;
        self.attach_from = None;
        self.is_limit_stale = true;
    }

    /// Whether the next copy by attach, of a payload of this length, is to be timed.
    pub(crate) fn times_attach(&mut self, len: u64) -> bool {
        let class = LengthClass::of(len);
        let is_settled = self.until_settled == 0 && self.attach[class].known().is_some();
        if self.way(class) == Way::Ring || !is_settled {
            return true;
        }
        match self.until_timed.checked_sub(1) {
            Some(left) => {
                self.until_timed = left;
                false
            }
            None => {
                self.until_timed = COPIES_PER_TIMED - 1;
                true
            }
        }
    }

    /// Payloads were copied by attach, by this side or the peer. Through the ring, this side would have made such copies
    /// of them, so what these cost still counts. Both sides then compare the same two sums: with one of them at attach
    /// and the other at the ring, the latter would see no cost but that of its reads, and be content.
    pub(crate) fn note_moved(&mut self, instead_of: RingCopy) {
        let (same, others) = self.ring_costs(instead_of);
        same.copies.keep();
        others.note_other();
    }

    /// The cost of such copies through the ring, and of those in the other direction.
    fn ring_costs(&mut self, what: RingCopy) -> (&mut RingCost, &mut RingCost) {
        match what {
            RingCopy::Read => (&mut self.ring_reads, &mut self.ring_writes),
            RingCopy::Write => (&mut self.ring_writes, &mut self.ring_reads),
        }
    }

    /// So many payloads of a length were copied by one call of attach, which took this long for each.
    pub(crate) fn note_attach(
        &mut self,
        instead_of: RingCopy,
        len: u64,
        count: usize,
        each: Duration,
    ) {
        self.note_moved(instead_of);
        let class = LengthClass::of(len);
        self.is_limit_stale |= self.attach[class].known().is_none();
        for _ in 0..count {
            self.attach[class].note(len, each);
            self.until_settled = self.until_settled.saturating_sub(1);
        }
        if let Some(ring) = self.ring_cost() {
            self.choose(class, ring);
        }
    }

    /// A copy through the ring was timed. Returns whether the next one is to be timed too.
    pub(crate) fn note_copy(&mut self, copy: &TimedCopy) -> bool {
        let (same, others) = self.ring_costs(copy.what);
        same.note(copy);
        others.note_other();
        if others.first_ended.take().is_some() {
            // No pair is timed over copies in the other direction: its period would hold what these cost this side, which
            // counts by itself, and how long the program took to turn round.
            same.first_ended = None;
        }
        let is_half_pair = same.first_ended.is_some() || others.first_ended.is_some();
        let Some(ring) = self.ring_cost() else {
            return true;
        };
        for class in LengthClass::all() {
            self.choose(class, ring);
        }
        is_half_pair
    }

    /// What the ring costs in picoseconds a byte, if it is known.
    fn ring_cost(&self) -> Option<u32> {
        let (reads, writes) = (&self.ring_reads, &self.ring_writes);
        let copies = match (reads.copies.known(), writes.copies.known()) {
            (None, None) => None,
            (reads, writes) => Some(reads.unwrap_or(0).saturating_add(writes.unwrap_or(0))),
        };
        copies
            .max(reads.periods.known())
            .max(writes.periods.known())
    }

    /// Chooses the way of a class anew, where the cost of attach is known, too, and the other way is clearly faster.
    /// The ring costs `ring`.
    fn choose(&mut self, class: LengthClass, ring: u32) {
        let Some(attach) = self.attach[class].known() else {
            return;
        };
        if self.mode != CopyMode::Auto || self.follows_longest_tried(class) {
            return;
        }
        match self.own_way(class) {
            Way::Attach if self.until_settled > 0 => return,
            Way::Attach if attach - attach / MARGIN > ring => {
                self.attach_from = class.next();
                // What is known of those that change with it is older.
                self.forget_attach(|other| other < class);
            }
            Way::Ring if ring - ring / MARGIN > attach => {
                self.attach_from = Some(class);
                self.until_settled = SETTLING_SAMPLES;
                self.forget_attach(|other| other > class);
            }
            _ => return,
        }
        self.is_limit_stale = true;
        // The measurements may have misled: the other way is tried again soon.
        self.trials = TrialCountdown::new();
    }

    /// The limit to tell the peer; `None` while it is the one that it was told last, at first
    /// [`GetLimit::CannotGet`].
    pub(crate) fn take_limit(&mut self) -> Option<GetLimit> {
        if !std::mem::take(&mut self.is_limit_stale) {
            return None;
        }
        // What is shorter than was ever copied is not asked for.
        let wanted = |class: &LengthClass| {
            self.way(*class) == Way::Attach && (self.knows_both(*class) || *class >= FIRST_LIMIT)
        };
        let limit = match LengthClass::all().find(wanted) {
            Some(class) => GetLimit::From {
                exponent: class.exponent(),
            },
            None if self.mode == CopyMode::Ring => GetLimit::CannotGet,
            None => GetLimit::TrialsOnly,
        };
        let told = std::mem::replace(&mut self.told, limit);
        (told != limit).then_some(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy_cost::{Flow, MIN_SAMPLES, OTHERS_UNTIL_STALE};

    const KIB: u64 = 1024;

    /// A read that began with the test.
    fn read_in_stream(len: u64, ended: Duration) -> TimedCopy {
        TimedCopy {
            what: RingCopy::Read,
            len,
            began: Duration::ZERO,
            ended,
            flow: Flow::Stream,
        }
    }

    /// Transfers of a length, of which the two ways take this many nanoseconds, as a receiver makes them.
    fn run(choice: &mut CopyChoice, len: u64, ring: u64, attach: u64, count: u32) -> u32 {
        let mut by_ring = 0;
        for _ in 0..count {
            match choice.next_way(len) {
                Way::Ring => {
                    by_ring += 1;
                    choice.note_copy(&read_in_stream(len, Duration::from_nanos(ring)));
                }
                Way::Attach => {
                    choice.note_attach(RingCopy::Read, len, 1, Duration::from_nanos(attach))
                }
            }
        }
        by_ring
    }

    #[test]
    fn the_faster_way_is_taken_and_the_other_tried_now_and_then() {
        let mut choice = CopyChoice::new(CopyMode::Auto);
        let by_ring = run(&mut choice, 256 * KIB, 26_000, 9_000, 10_000);
        assert!((2..40).contains(&by_ring), "{by_ring} by the slower ring");
        let mut choice = CopyChoice::new(CopyMode::Auto);
        let by_ring = run(&mut choice, 256 * KIB, 5_500, 21_000, 10_000);
        assert!(
            (9_900..9_998).contains(&by_ring),
            "{by_ring} by the faster ring"
        );
    }

    /// The time, as the copies of a test have taken it, and how they follow each other.
    struct Clock {
        now: Duration,
        flow: Flow,
    }

    impl Clock {
        const fn new(flow: Flow) -> Self {
            let now = Duration::ZERO;
            Self { now, flow }
        }

        fn copy(&mut self, choice: &mut CopyChoice, what: RingCopy, nanos: u64) {
            self.copy_of(choice, what, 16 * KIB, nanos);
        }

        fn copy_of(&mut self, choice: &mut CopyChoice, what: RingCopy, len: u64, nanos: u64) {
            let began = self.now;
            self.now += Duration::from_nanos(nanos);
            choice.note_copy(&TimedCopy {
                what,
                len,
                began,
                ended: self.now,
                flow: self.flow,
            });
        }
    }

    #[test]
    fn a_get_of_a_length_that_is_known_is_seldom_timed() {
        let mut choice = CopyChoice::new(CopyMode::Auto);
        for _ in 0..MIN_SAMPLES {
            assert!(choice.times_attach(64 * KIB), "nothing is known");
            choice.note_attach(RingCopy::Read, 64 * KIB, 1, Duration::from_nanos(3000));
        }
        let timed = (0..800).filter(|_| choice.times_attach(64 * KIB)).count();
        assert_eq!(timed, 100);
        assert!(choice.times_attach(8 * KIB), "another length is not known");
    }

    #[test]
    fn where_payloads_go_both_ways_the_ring_costs_both_copies() {
        let mut choice = CopyChoice::new(CopyMode::Auto);
        let mut clock = Clock::new(Flow::Other);
        for _ in 0..MIN_SAMPLES {
            clock.copy(&mut choice, RingCopy::Read, 900);
            choice.note_attach(RingCopy::Read, 16 * KIB, 1, Duration::from_nanos(1200));
        }
        assert_eq!(choice.preferred(16 * KIB), Way::Ring);
        for _ in 0..MIN_SAMPLES {
            clock.copy(&mut choice, RingCopy::Read, 900);
            clock.copy(&mut choice, RingCopy::Write, 900);
        }
        assert_eq!(choice.preferred(16 * KIB), Way::Attach);
        // This side sends nothing any more.
        for _ in 0..OTHERS_UNTIL_STALE {
            clock.copy(&mut choice, RingCopy::Read, 900);
            choice.note_attach(RingCopy::Read, 16 * KIB, 1, Duration::from_nanos(1200));
        }
        assert_eq!(choice.preferred(16 * KIB), Way::Ring);
    }

    #[test]
    fn a_sender_that_takes_longer_counts_where_parts_follow_each_other() {
        for (gap, way) in [(1500, Way::Attach), (50_000, Way::Ring)] {
            let mut choice = CopyChoice::new(CopyMode::Auto);
            let mut clock = Clock::new(Flow::Stream);
            for _ in 0..2 * MIN_SAMPLES {
                clock.now += Duration::from_nanos(gap);
                clock.copy(&mut choice, RingCopy::Read, 500);
                choice.note_attach(RingCopy::Read, 16 * KIB, 8, Duration::from_nanos(1200));
            }
            assert_eq!(choice.preferred(16 * KIB), way, "{gap} ns between parts");
        }
    }

    #[test]
    fn a_writer_that_waits_for_room_counts_that() {
        let mut choice = CopyChoice::new(CopyMode::Auto);
        let mut clock = Clock::new(Flow::Stream);
        for copies in 0..8 * u64::from(MIN_SAMPLES) {
            // There is room for two at once.
            clock.now += Duration::from_nanos(1000 * (copies % 2));
            clock.copy_of(&mut choice, RingCopy::Write, 4 * KIB, 200);
            choice.note_attach(RingCopy::Read, 4 * KIB, 1, Duration::from_nanos(300));
        }
        assert_eq!(choice.preferred(4 * KIB), Way::Attach);
        for _ in 0..100 {
            clock.copy_of(&mut choice, RingCopy::Write, 4 * KIB, 200);
            choice.note_attach(RingCopy::Read, 4 * KIB, 1, Duration::from_nanos(300));
        }
        assert_eq!(choice.preferred(4 * KIB), Way::Ring);
    }

    #[test]
    fn a_round_trip_is_no_cost_of_the_ring() {
        for what in [RingCopy::Read, RingCopy::Write] {
            for (flow, way) in [(Flow::Other, Way::Ring), (Flow::Stream, Way::Attach)] {
                let mut choice = CopyChoice::new(CopyMode::Auto);
                let mut clock = Clock::new(flow);
                for _ in 0..4 * MIN_SAMPLES {
                    // The other side answers.
                    clock.now += Duration::from_nanos(1100);
                    clock.copy_of(&mut choice, what, 4 * KIB, 300);
                    choice.note_attach(RingCopy::Read, 4 * KIB, 1, Duration::from_nanos(800));
                }
                assert_eq!(choice.preferred(4 * KIB), way, "{what:?}");
            }
        }
    }

    #[test]
    fn a_change_of_the_machine_is_followed() {
        let mut choice = CopyChoice::new(CopyMode::Auto);
        run(&mut choice, 256 * KIB, 22_000, 15_000, 10_000);
        assert_eq!(choice.preferred(256 * KIB), Way::Attach);
        run(&mut choice, 256 * KIB, 6_000, 15_000, 20_000);
        assert_eq!(choice.preferred(256 * KIB), Way::Ring);
        run(&mut choice, 256 * KIB, 125_000, 15_000, 20_000);
        assert_eq!(choice.preferred(256 * KIB), Way::Attach);
    }

    #[test]
    fn copies_in_both_directions_by_turns_are_no_stream() {
        let mut choice = CopyChoice::new(CopyMode::Auto);
        let mut clock = Clock::new(Flow::Stream);
        for _ in 0..8 * MIN_SAMPLES {
            for what in [RingCopy::Write, RingCopy::Read] {
                clock.copy(&mut choice, what, 600);
                // The program turns round.
                clock.now += Duration::from_nanos(500);
            }
            choice.note_attach(RingCopy::Read, 16 * KIB, 1, Duration::from_nanos(1500));
        }
        assert_eq!(choice.preferred(16 * KIB), Way::Ring);
    }

    #[test]
    fn a_length_takes_shorter_ones_to_the_ring_and_longer_ones_to_attach() {
        let mut choice = CopyChoice::new(CopyMode::Auto);
        run(&mut choice, 16 * KIB, 1000, 4000, 100);
        let ways = |choice: &CopyChoice| [8, 16, 32].map(|kib| choice.preferred(kib * KIB));
        assert_eq!(ways(&choice), [Way::Ring, Way::Ring, Way::Attach]);
        run(&mut choice, 32 * KIB, 2000, 4000, 100);
        assert_eq!(ways(&choice), [Way::Ring; 3]);
        let knows = |choice: &CopyChoice, kib| choice.knows_both(LengthClass::of(kib * KIB));
        assert!(knows(&choice, 32) && !knows(&choice, 16), "old");
        run(&mut choice, 16 * KIB, 4000, 1000, 1000);
        assert_eq!(ways(&choice), [Way::Ring, Way::Attach, Way::Attach]);
        assert_eq!(choice.take_limit(), Some(GetLimit::From { exponent: 14 }));
        assert!(knows(&choice, 16) && !knows(&choice, 32), "old");
        run(&mut choice, 32 * KIB, 2000, 4000, 10_000);
        assert_eq!(ways(&choice), [Way::Ring; 3]);
    }

    #[test]
    fn what_goes_by_attach_instead_still_has_its_cost_through_the_ring() {
        for (sends, way) in [(true, Way::Attach), (false, Way::Ring)] {
            let mut choice = CopyChoice::new(CopyMode::Auto);
            let mut clock = Clock::new(Flow::Other);
            for _ in 0..MIN_SAMPLES {
                clock.copy(&mut choice, RingCopy::Write, 900);
                clock.copy(&mut choice, RingCopy::Read, 900);
            }
            for _ in 0..2 * OTHERS_UNTIL_STALE {
                if sends {
                    // The peer gets what this side sends.
                    choice.note_moved(RingCopy::Write);
                }
                choice.note_attach(RingCopy::Read, 16 * KIB, 1, Duration::from_nanos(1200));
            }
            assert_eq!(choice.preferred(16 * KIB), way, "sends: {sends}");
        }
    }

    #[test]
    fn attach_is_measured_for_a_while_before_the_ring_is_taken_again() {
        const LEN: u64 = 16 * KIB;
        for (attach, way) in [(1700, Way::Attach), (4600, Way::Ring)] {
            let mut choice = CopyChoice::new(CopyMode::Auto);
            let mut clock = Clock::new(Flow::Other);
            run(&mut choice, LEN, 3200, 4600, 100);
            assert_eq!(choice.preferred(LEN), Way::Ring);
            while choice.preferred(LEN) == Way::Ring {
                choice.note_attach(RingCopy::Read, LEN, 1, Duration::from_nanos(4600));
                clock.copy(&mut choice, RingCopy::Read, 8000);
            }
            for _ in 1..SETTLING_SAMPLES {
                assert!(choice.times_attach(LEN));
                choice.note_attach(RingCopy::Read, LEN, 1, Duration::from_nanos(attach));
                clock.copy(&mut choice, RingCopy::Read, 2800);
                assert_eq!(choice.preferred(LEN), Way::Attach, "too soon");
            }
            choice.note_attach(RingCopy::Read, LEN, 1, Duration::from_nanos(attach));
            assert_eq!(choice.preferred(LEN), way);
        }
    }

    #[test]
    fn a_trial_of_attach_is_always_timed() {
        let mut choice = CopyChoice::new(CopyMode::Auto);
        run(&mut choice, 16 * KIB, 1600, 4600, 100);
        assert_eq!(choice.preferred(16 * KIB), Way::Ring);
        assert!((0..100).all(|_| choice.times_attach(16 * KIB)));
    }

    #[test]
    fn the_longest_take_the_way_of_those_that_can_be_tried() {
        let mut choice = CopyChoice::new(CopyMode::Auto);
        // Alone, the ring is faster.
        let by_ring = run(&mut choice, 16 << 20, 1_700_000, 3_000_000, 1000);
        assert!(by_ring > 900, "{by_ring}");
        run(&mut choice, 256 * KIB, 20_000, 10_000, 1000);
        assert_eq!(run(&mut choice, 16 << 20, 1_700_000, 3_000_000, 1000), 0);
    }

    #[test]
    fn one_disturbed_measurement_changes_nothing() {
        let mut choice = CopyChoice::new(CopyMode::Auto);
        run(&mut choice, 64 * KIB, 7_000, 3_000, 100);
        choice.note_attach(RingCopy::Read, 64 * KIB, 1, Duration::from_millis(4));
        assert_eq!(choice.preferred(64 * KIB), Way::Attach);
    }

    #[test]
    fn the_peer_is_told_once_of_each_limit() {
        let mut choice = CopyChoice::new(CopyMode::Auto);
        assert_eq!(choice.take_limit(), Some(GetLimit::From { exponent: 14 }));
        assert_eq!(choice.take_limit(), None);
        for _ in 0..MIN_SAMPLES {
            choice.note_copy(&read_in_stream(16 * KIB, Duration::from_nanos(2000)));
            choice.note_attach(RingCopy::Read, 16 * KIB, 1, Duration::from_micros(4));
            choice.note_attach(RingCopy::Read, 32 * KIB, 1, Duration::from_micros(2));
        }
        assert_eq!(choice.take_limit(), Some(GetLimit::From { exponent: 15 }));
        assert_eq!(choice.take_limit(), None);
        for exponent in MIN_EXPONENT..=MAX_EXPONENT {
            for _ in 0..200 {
                choice.note_attach(RingCopy::Read, 1 << exponent, 1, Duration::from_secs(1));
                choice.note_copy(&read_in_stream(1 << exponent, Duration::from_nanos(1)));
            }
        }
        assert_eq!(choice.take_limit(), Some(GetLimit::TrialsOnly));
        choice.give_up_attach();
        assert_eq!(choice.take_limit(), Some(GetLimit::CannotGet));
        assert_eq!(choice.take_limit(), None);
    }

    #[test]
    fn the_wire_has_exponents_of_limits() {
        let from = |exponent| GetLimit::From { exponent };
        for (limit, exponent) in [
            (GetLimit::CannotGet, 0),
            (GetLimit::TrialsOnly, 63),
            (from(12), 12),
            (from(23), 23),
        ] {
            assert_eq!(limit.wire_exponent(), exponent, "{limit:?}");
        }
    }

    #[test]
    fn what_the_user_wants_is_not_measured_away() {
        for (mode, by_ring) in [(CopyMode::Ring, 1000), (CopyMode::Attach, 0)] {
            let mut choice = CopyChoice::new(mode);
            assert_eq!(run(&mut choice, 64 * KIB, 9_000, 9_000, 1000), by_ring);
        }
    }
}
