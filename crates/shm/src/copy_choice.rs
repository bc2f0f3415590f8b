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
//!   from the ring and to it, where payloads go both ways. Where they go one way only, the peer's copy is taken to be as
//!   dear as this side's, which it works on the same memory as. Where one payload or part comes right behind the
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

/// The way changes when the other one is cheaper by more than a 16th. Each change to attach that was taken back doubles this
/// for the next such change, up to a quarter ([`TakenBack`]).
const MARGIN: u32 = 16;
const MAX_MARGIN_DOUBLINGS: u32 = 2;

/// A change to attach counts as right once attach was measured this often without a change back.
const PROVEN_SAMPLES: u32 = 512;

/// Copies through the ring that were timed, after which one change that was taken back is forgotten: what was measured then is
/// old.
const COPIES_PER_FORGOTTEN: u32 = 1024;

/// Trials that are in one row at most: as many as a sender makes of its messages (`TRIALS_IN_A_ROW` of the engine).
const MAX_ROW: u32 = 8;

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

/// Trials of attach in a row, of one class: no copy through the ring was timed between them. The first ones find cold caches and
/// take up to three times as long as in steady use, so each trial of a row counts as the cheapest of them.
#[derive(Clone, Copy, Debug)]
struct TrialRow {
    class: LengthClass,
    /// What attach was known to cost before.
    before: Cost,
    /// How many there were.
    count: u32,
    /// Length and time of the one that is the cheapest for each byte.
    cheapest: (u64, Duration),
}

/// The cheaper one of two copies, of these lengths and times, for each byte.
fn cheaper(one: (u64, Duration), other: (u64, Duration)) -> (u64, Duration) {
    let times = |(_, each): (u64, Duration), (len, _): (u64, Duration)| {
        each.as_nanos().saturating_mul(len.into())
    };
    match times(other, one) < times(one, other) {
        true => other,
        false => one,
    }
}

/// Changes to attach that were taken back: trials had said too little of it. They make the next change need a larger gain, so that
/// the way does not go to and fro.
#[derive(Debug, Default)]
struct TakenBack {
    /// How many, up to [`MAX_MARGIN_DOUBLINGS`].
    changes: u32,
    /// Measurements of attach until the last change to it is proven, which forgets all of them; 0 if there is nothing to prove.
    until_proven: u32,
    /// Timed copies through the ring until one of them is forgotten.
    until_forgotten: u32,
}

impl TakenBack {
    /// By which part of its cost the ring must be dearer for a change to attach.
    const fn margin(&self) -> u32 {
        MARGIN >> self.changes
    }

    /// A class changes to attach.
    const fn note_change(&mut self) {
        self.until_proven = PROVEN_SAMPLES;
    }

    /// A class changes to the ring.
    fn note_change_back(&mut self) {
        if self.until_proven > 0 {
            self.until_proven = 0;
            self.changes = (self.changes + 1).min(MAX_MARGIN_DOUBLINGS);
            self.until_forgotten = COPIES_PER_FORGOTTEN;
        }
    }

    /// Attach was measured so many times where it is the way.
    const fn note_attaches(&mut self, count: u32) {
        if self.until_proven > 0 {
            self.until_proven = self.until_proven.saturating_sub(count);
            if self.until_proven == 0 {
                self.changes = 0;
            }
        }
    }

    /// A copy through the ring was timed.
    const fn note_copy(&mut self) {
        if self.changes > 0 {
            self.until_forgotten = self.until_forgotten.saturating_sub(1);
            if self.until_forgotten == 0 {
                self.changes -= 1;
                self.until_forgotten = COPIES_PER_FORGOTTEN;
            }
        }
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
    /// The trials of attach that were made last, until a copy through the ring is timed.
    row: Option<TrialRow>,
    /// A copy through the ring was timed since the way of a class changed. What is copied by attach before that is no trial: it was
    /// on its way when the class changed to the ring.
    has_timed_ring: bool,
    /// The shortest class that takes attach, as longer ones do; `None` where all take the ring. A byte of a longer
    /// payload costs attach less than one of a shorter payload, and the ring the same.
    attach_from: Option<LengthClass>,
    /// Measurements of attach until a class may change to the ring.
    until_settled: u8,
    taken_back: TakenBack,
    trials: TrialCountdown,
    /// Copies by attach until one is timed.
    until_timed: u32,
    /// What the peer was told.
    told: GetLimit,
    /// The limit may have changed since the peer was told.
    is_limit_stale: bool,
    /// It was asked for, to tell the peer.
    is_limit_taken: bool,
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
            row: None,
            has_timed_ring: false,
            attach_from,
            until_settled: 0,
            taken_back: TakenBack::default(),
            trials: TrialCountdown::new(),
            until_timed: 0,
            told: GetLimit::CannotGet,
            is_limit_stale: true,
            is_limit_taken: false,
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

    /// Payloads were copied by attach, by this side or the peer. Through the ring, each would have been a copy of the kind
    /// `instead_of` at this side, so the last cost of these still counts. Without, a side that reads from the ring what its
    /// peer sends, while the peer gets by attach what this side sends, would know the cost of its reads only.
    pub(crate) fn note_moved(&mut self, instead_of: RingCopy) {
        let (same, others) = self.ring_costs(instead_of);
        same.copies.keep();
        others.note_other();
    }

    /// What copies through the ring of this kind cost, and what those in the other direction do.
    fn ring_costs(&mut self, what: RingCopy) -> (&mut RingCost, &mut RingCost) {
        match what {
            RingCopy::Read => (&mut self.ring_reads, &mut self.ring_writes),
            RingCopy::Write => (&mut self.ring_writes, &mut self.ring_reads),
        }
    }

    /// So many payloads of a length were copied by one call of attach, which took this long for each; `instead_of` as for
    /// [`note_moved`](Self::note_moved).
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
        match self.way(class) {
            Way::Ring if self.has_timed_ring => self.note_trials(class, len, count as u32, each),
            Way::Ring | Way::Attach => self.note_attaches(class, len, count as u32, each),
        }
        if let Some(ring) = self.ring_cost() {
            self.choose(class, ring);
        }
    }

    /// `count` payloads were copied by attach that were no trials, in `each` on average.
    fn note_attaches(&mut self, class: LengthClass, len: u64, count: u32, each: Duration) {
        self.row = None;
        self.attach[class].note_equal(len, each, count);
        let settled = u8::try_from(count).unwrap_or(u8::MAX);
        self.until_settled = self.until_settled.saturating_sub(settled);
        self.taken_back.note_attaches(count);
    }

    /// `count` payloads of a class that takes the ring were copied by attach, in `each` on average: trials, or for a peer that
    /// is idle.
    fn note_trials(&mut self, class: LengthClass, len: u64, count: u32, each: Duration) {
        let before = self.row.take();
        let row = match before.filter(|row| row.class == class && row.count < MAX_ROW) {
            Some(row) => TrialRow {
                count: row.count.saturating_add(count),
                cheapest: cheaper(row.cheapest, (len, each)),
                ..row
            },
            None => TrialRow {
                class,
                before: self.attach[class],
                count,
                cheapest: (len, each),
            },
        };
        self.attach[class] = row.before;
        let (len, each) = row.cheapest;
        self.attach[class].note_equal(len, each, row.count);
        self.row = Some(row);
    }

    /// A copy through the ring was timed. Returns whether the next one is to be timed too.
    pub(crate) fn note_copy(&mut self, copy: &TimedCopy) -> bool {
        self.row = None;
        self.has_timed_ring = true;
        self.taken_back.note_copy();
        let (same, others) = self.ring_costs(copy.what);
        same.note(copy);
        others.note_other();
        if others.first_ended.take().is_some() {
            // No pair is timed over copies in the other direction: its period would hold what these cost this side, which
            // counts by itself, and how long the program took to turn round.
            same.first_ended = None;
        }
        let wants_next = same.wants_next() || others.first_ended.is_some();
        let Some(ring) = self.ring_cost() else {
            return true;
        };
        for class in LengthClass::all() {
            self.choose(class, ring);
        }
        wants_next
    }

    /// What the ring costs in picoseconds a byte, if it is known.
    fn ring_cost(&self) -> Option<u32> {
        let (reads, writes) = (&self.ring_reads, &self.ring_writes);
        let periods = reads.periods.known().max(writes.periods.known());
        let copies = match (reads.copies.known(), writes.copies.known()) {
            (None, None) => None,
            (Some(reads), Some(writes)) => Some(reads.saturating_add(writes)),
            // What the peer's copy costs shows in the periods. Else it is taken to be as dear as this side's.
            (Some(one), None) | (None, Some(one)) if periods.is_none() => {
                Some(one.saturating_mul(2))
            }
            (one, other) => one.or(other),
        };
        copies.max(periods)
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
                let before = self.attach_from;
                self.attach_from = class.next();
                self.taken_back.note_change_back();
                // What is known of those that change with it is older.
                self.forget_attach(|other| {
                    other < class && before.is_some_and(|from| from <= other)
                });
            }
            Way::Ring if ring - ring / self.taken_back.margin() > attach => {
                let before = self.attach_from.replace(class);
                self.until_settled = SETTLING_SAMPLES;
                self.taken_back.note_change();
                self.forget_attach(|other| other > class && before.is_none_or(|from| other < from));
            }
            _ => return,
        }
        self.is_limit_stale = true;
        (self.row, self.has_timed_ring) = (None, false);
        // The measurements may have misled: the other way is tried again soon.
        self.trials = TrialCountdown::new();
    }

    /// Whether the limit may have changed since it was taken, which it was before: else the peer has no use for it.
    pub(crate) const fn has_new_limit(&self) -> bool {
        self.is_limit_taken && self.is_limit_stale
    }

    /// The limit to tell the peer; `None` while it is the one that it was told last, at first
    /// [`GetLimit::CannotGet`].
    pub(crate) fn take_limit(&mut self) -> Option<GetLimit> {
        self.is_limit_taken = true;
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
mod tests;
