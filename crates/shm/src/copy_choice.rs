//! The choice between the two ways of a long payload: through the ring, which both sides copy at the same
//! time, or by cross-memory attach, one copy that the kernel makes for one side. Which is faster depends
//! on the machine, and on how far apart the two processors are at the moment, by a factor of three and
//! more either way. So each connection measures what both ways cost, and now and then tries the other one.
//!
//! A long payload passes through the ring in parts, so its cost is the time from its first byte to its
//! last. A short one is copied by one side and then by the other; with the way of the lines between the
//! processors that takes two and a half times what a copy takes at one side. The cost of attach depends
//! on the length, since a call costs as much as some 10 KiB.

use std::time::Duration;

use ripstop_core::provider::Copies;

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

/// Exponents of the shortest and the longest class of lengths. A class is a power of two and what is
/// longer, up to the next; the last one has all that is longer.
const MIN_EXPONENT: u32 = 13;
const MAX_EXPONENT: u32 = 23;
const _: () = assert!(
    Copies::MIN_BYTES == 1 << MIN_EXPONENT,
    "what may take another way is counted"
);
const CLASSES: usize = (MAX_EXPONENT - MIN_EXPONENT + 1) as usize;

/// The exponent of the length from which payloads are copied by attach before anything is known.
const FIRST_LIMIT: u8 = 14;

/// As an exponent: no length that there is. The peer tries attach now and then.
pub(crate) const NO_LIMIT: u8 = 63;

/// The longest payload in bytes that takes the other way to see what that costs, where more is known: what
/// comes behind it waits. Longer ones take the way that is faster for it.
pub(crate) const MAX_TRIAL_BYTES: u64 = 256 << 10;

/// Payloads until the other way is tried: at first, and at most, after doubling each time that it was
/// found no better.
const MIN_BETWEEN_TRIALS: u32 = 4;
const MAX_BETWEEN_TRIALS: u32 = 1024;

/// Measurements of a way before it counts. The first ones often hold page faults.
const MIN_SAMPLES: u8 = 4;

/// Copies by attach that are not timed after one that was, once the ways were compared.
const UNTIMED_ATTACHES: u32 = 7;

/// Measurements over which the average is taken, about.
const AVERAGED: u32 = 8;

/// A way is given up for the other where that is faster by this part of its cost.
const MARGIN: u32 = 16;

/// The exponent of the shortest long payload.
const LONG_EXPONENT: u32 = 16;

/// A way of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Ring,
    Attach,
}

/// What one connection knows of the two ways.
#[derive(Debug)]
pub(crate) struct CopyChoice {
    mode: CopyMode,
    /// One copy to the ring or from it.
    ring_copy: Cost,
    /// A long payload through the ring, by class of length.
    ring_long: [Cost; CLASSES],
    /// By class of length.
    attach: [Cost; CLASSES],
    /// The way of each class at the moment.
    ways: [Way; CLASSES],
    until_trial: u32,
    between_trials: u32,
    /// Copies by attach until one is timed.
    untimed_attaches: u32,
    /// The exponent that the peer knows.
    told: u8,
    /// The limit may have changed since the peer was told.
    is_limit_stale: bool,
}

/// The cost of a way.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Picoseconds a byte.
    ps: u32,
    /// Measurements, up to [`MIN_SAMPLES`].
    samples: u8,
}

impl Cost {
    /// Takes one measurement: the least of the first ones, then a moving average, in which one that was
    /// disturbed counts as twice as long as usual at most.
    fn note(&mut self, len: u64, elapsed: Duration) {
        let found = elapsed.as_nanos().saturating_mul(1000) / u128::from(len.max(1));
        let found = u32::try_from(found).unwrap_or(u32::MAX >> 1).max(1);
        self.ps = match self.samples {
            0 => found,
            1..MIN_SAMPLES => self.ps.min(found),
            MIN_SAMPLES.. if found < self.ps => self.ps - (self.ps - found) / AVERAGED,
            MIN_SAMPLES.. => self.ps + (found - self.ps).min(self.ps) / AVERAGED,
        };
        self.samples = MIN_SAMPLES.min(self.samples + 1);
    }

    /// The cost in picoseconds a byte, if it is known.
    fn known(&self) -> Option<u32> {
        (self.samples >= MIN_SAMPLES).then_some(self.ps)
    }
}

/// The class of a length.
fn class(len: u64) -> usize {
    let exponent = len.max(1).ilog2().clamp(MIN_EXPONENT, MAX_EXPONENT);
    (exponent - MIN_EXPONENT) as usize
}

impl CopyChoice {
    pub(crate) fn new(mode: CopyMode) -> Self {
        let way = match mode {
            CopyMode::Ring => Way::Ring,
            CopyMode::Attach | CopyMode::Auto => Way::Attach,
        };
        Self {
            mode,
            ring_copy: Cost::default(),
            ring_long: [Cost::default(); CLASSES],
            attach: [Cost::default(); CLASSES],
            ways: [way; CLASSES],
            until_trial: MIN_BETWEEN_TRIALS,
            between_trials: MIN_BETWEEN_TRIALS,
            untimed_attaches: 0,
            told: 0,
            is_limit_stale: true,
        }
    }

    /// The faster way of a payload of this length, as far as is known.
    pub(crate) fn preferred(&self, len: u64) -> Way {
        self.way(class(len))
    }

    /// That of a class. What is longer than [`MAX_TRIAL_BYTES`] follows it once both ways of that are
    /// known: the measurements of a few long payloads depend on what the other side copies meanwhile, and
    /// would change the way again and again.
    fn way(&self, class: usize) -> Way {
        let trial = self::class(MAX_TRIAL_BYTES);
        match class > trial && self.is_judged(trial) {
            true => self.ways[trial],
            false => self.ways[class],
        }
    }

    /// Whether both ways of a class are known.
    fn is_judged(&self, class: usize) -> bool {
        self.ring_cost(class).is_some() && self.attach[class].known().is_some()
    }

    /// The way of the next payload of this length: the faster one, or now and then the other.
    pub(crate) fn next_way(&mut self, len: u64) -> Way {
        let way = self.preferred(len);
        if self.mode != CopyMode::Auto || len > MAX_TRIAL_BYTES && self.knows_ring(len) {
            return way;
        }
        match self.until_trial.checked_sub(1) {
            Some(left) => {
                self.until_trial = left;
                way
            }
            None => {
                self.between_trials = (2 * self.between_trials).min(MAX_BETWEEN_TRIALS);
                self.until_trial = self.between_trials;
                match way {
                    Way::Ring => Way::Attach,
                    Way::Attach => Way::Ring,
                }
            }
        }
    }

    /// Whether the time of the next copy by attach is to be taken: of the first ones, then now and then.
    pub(crate) fn is_attach_timed(&mut self) -> bool {
        let left = self.untimed_attaches.checked_sub(1);
        self.untimed_attaches = left.unwrap_or(match self.between_trials {
            ..=MIN_BETWEEN_TRIALS => 0,
            _ => UNTIMED_ATTACHES,
        });
        left.is_none()
    }

    /// Whether the user demands that payloads are copied by attach.
    pub(crate) fn is_attach_demanded(&self) -> bool {
        self.mode == CopyMode::Attach
    }

    /// Payloads cannot be copied by attach, or not any more.
    pub(crate) fn give_up_attach(&mut self) {
        self.mode = CopyMode::Ring;
        self.ways = [Way::Ring; CLASSES];
        self.is_limit_stale = true;
    }

    /// A payload took this long by attach.
    pub(crate) fn note_attach(&mut self, len: u64, elapsed: Duration) {
        let class = class(len);
        self.is_limit_stale |= self.attach[class].known().is_none();
        self.attach[class].note(len, elapsed);
        self.choose(class);
    }

    /// One copy to the ring or from it took this long.
    pub(crate) fn note_copy(&mut self, len: u64, elapsed: Duration) {
        self.ring_copy.note(len, elapsed);
        self.choose_all();
    }

    /// Whether it is known what one copy to the ring or from it costs.
    pub(crate) fn knows_ring_copies(&self) -> bool {
        self.ring_copy.known().is_some()
    }

    /// So much of a long payload took this long through the ring.
    pub(crate) fn note_streamed(&mut self, len: u64, elapsed: Duration) {
        let class = class(len);
        self.ring_long[class].note(len, elapsed);
        self.choose(class);
    }

    /// Whether it is known what a payload longer than [`MAX_TRIAL_BYTES`] costs through the ring, or by which
    /// way the longest shorter ones are faster.
    fn knows_ring(&self, len: u64) -> bool {
        self.ring_cost(class(len)).is_some() || self.is_judged(class(MAX_TRIAL_BYTES))
    }

    /// What the ring costs in picoseconds a byte, if it is known.
    fn ring_cost(&self, class: usize) -> Option<u32> {
        match class < (LONG_EXPONENT - MIN_EXPONENT) as usize {
            true => Some(self.ring_copy.known()?.saturating_mul(5) / 2),
            false => self.ring_long[class].known(),
        }
    }

    fn choose_all(&mut self) {
        for class in 0..CLASSES {
            self.choose(class);
        }
    }

    fn choose(&mut self, class: usize) {
        let (Some(ring), Some(attach)) = (self.ring_cost(class), self.attach[class].known()) else {
            return;
        };
        if self.mode != CopyMode::Auto {
            return;
        }
        let way = match self.ways[class] {
            Way::Attach if attach - attach / MARGIN > ring => Way::Ring,
            Way::Ring if ring - ring / MARGIN > attach => Way::Attach,
            _ => return,
        };
        self.ways[class] = way;
        self.is_limit_stale = true;
        // The measurements may have misled: the other way is tried again soon.
        (self.until_trial, self.between_trials) = (MIN_BETWEEN_TRIALS, MIN_BETWEEN_TRIALS);
    }

    /// The exponent of the length from which messages are copied by attach: [`NO_LIMIT`] if that is not
    /// faster, 0 if it cannot be. `None` if the peer knows, as it does of 0 at first.
    pub(crate) fn take_limit(&mut self) -> Option<u8> {
        if !std::mem::take(&mut self.is_limit_stale) {
            return None;
        }
        // What is shorter than was ever copied is not asked for.
        let wanted = |at: &usize| {
            self.way(*at) == Way::Attach
                && (self.attach[*at].known().is_some() || *at >= class(1 << FIRST_LIMIT))
        };
        let limit = match (0..CLASSES).find(wanted) {
            Some(first) => MIN_EXPONENT as u8 + first as u8,
            None if self.mode == CopyMode::Ring => 0,
            None => NO_LIMIT,
        };
        let told = std::mem::replace(&mut self.told, limit);
        (told != limit).then_some(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    /// Transfers of a length, of which the two ways take so many nanoseconds, as a receiver makes them.
    fn run(choice: &mut CopyChoice, len: u64, ring: u64, attach: u64, count: u32) -> u32 {
        let mut by_ring = 0;
        for _ in 0..count {
            match choice.next_way(len) {
                Way::Ring => {
                    by_ring += 1;
                    choice.note_streamed(len, Duration::from_nanos(ring));
                }
                Way::Attach => choice.note_attach(len, Duration::from_nanos(attach)),
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

    #[test]
    fn short_payloads_cost_both_copies_through_the_ring() {
        for (copy, way) in [(900, Way::Attach), (300, Way::Ring)] {
            let mut choice = CopyChoice::new(CopyMode::Auto);
            for _ in 0..MIN_SAMPLES {
                choice.note_copy(16 * KIB, Duration::from_nanos(copy));
                choice.note_attach(16 * KIB, Duration::from_nanos(1000));
                choice.note_streamed(256 * KIB, Duration::from_micros(1));
            }
            assert_eq!(choice.preferred(16 * KIB), way);
        }
    }

    #[test]
    fn a_change_of_the_machine_is_followed() {
        let mut choice = CopyChoice::new(CopyMode::Auto);
        run(&mut choice, 256 * KIB, 22_000, 15_000, 10_000);
        assert_eq!(choice.ways[class(256 * KIB)], Way::Attach);
        run(&mut choice, 256 * KIB, 6_000, 15_000, 20_000);
        assert_eq!(choice.ways[class(256 * KIB)], Way::Ring);
        run(&mut choice, 256 * KIB, 125_000, 15_000, 20_000);
        assert_eq!(choice.ways[class(256 * KIB)], Way::Attach);
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
        choice.note_attach(64 * KIB, Duration::from_millis(4));
        assert_eq!(choice.ways[class(64 * KIB)], Way::Attach);
    }

    #[test]
    fn the_peer_is_told_once_of_each_limit() {
        let mut choice = CopyChoice::new(CopyMode::Auto);
        assert_eq!(choice.take_limit(), Some(FIRST_LIMIT));
        assert_eq!(choice.take_limit(), None);
        for _ in 0..MIN_SAMPLES {
            choice.note_copy(16 * KIB, Duration::from_nanos(800));
            choice.note_attach(16 * KIB, Duration::from_micros(4));
            choice.note_attach(32 * KIB, Duration::from_micros(2));
        }
        assert_eq!(choice.take_limit(), Some(15));
        assert_eq!(choice.take_limit(), None);
        for exponent in MIN_EXPONENT..=MAX_EXPONENT {
            for _ in 0..200 {
                choice.note_attach(1 << exponent, Duration::from_secs(1));
                choice.note_streamed(1 << exponent, Duration::from_nanos(1));
                choice.note_copy(1 << exponent, Duration::from_nanos(1));
            }
        }
        assert_eq!(choice.take_limit(), Some(NO_LIMIT));
        choice.give_up_attach();
        assert_eq!(choice.take_limit(), Some(0));
        assert_eq!(choice.take_limit(), None);
    }

    #[test]
    fn what_the_user_wants_is_not_measured_away() {
        for (mode, by_ring) in [(CopyMode::Ring, 1000), (CopyMode::Attach, 0)] {
            let mut choice = CopyChoice::new(mode);
            assert_eq!(run(&mut choice, 64 * KIB, 9_000, 9_000, 1000), by_ring);
        }
    }
}
