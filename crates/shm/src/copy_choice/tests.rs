//! Measurements of the two ways, as a test makes them up, and the way that is chosen by them.

use ripstop_mem::ring::Backlog;

use super::*;
use crate::copy_cost::{Flow, MIN_SAMPLES, OTHERS_UNTIL_STALE};

const KIB: u64 = 1024;

/// A read from the ring of a payload for which the ring takes so many nanoseconds: half of them, as nothing is known of what the
/// peer's copy takes.
fn read_alone(len: u64, ring: u64) -> TimedCopy {
    TimedCopy {
        what: RingCopy::Read,
        len,
        began: Duration::ZERO,
        ended: Duration::from_nanos(ring.div_ceil(2)),
        flow: Flow::Other,
        backlog: None,
    }
}

/// Transfers of a length, of which the two ways take this many nanoseconds, as a receiver makes them.
fn run(choice: &mut CopyChoice, len: u64, ring: u64, attach: u64, count: u32) -> u32 {
    let mut by_ring = 0;
    for _ in 0..count {
        match choice.next_way(len) {
            Way::Ring => {
                by_ring += 1;
                choice.note_copy(&read_alone(len, ring));
            }
            Way::Attach => choice.note_attach(RingCopy::Read, len, 1, Duration::from_nanos(attach)),
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
            backlog: None,
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
        clock.copy(&mut choice, RingCopy::Read, 500);
        choice.note_attach(RingCopy::Read, 16 * KIB, 1, Duration::from_nanos(1200));
    }
    // The peer's copies are taken to be as dear.
    assert_eq!(choice.preferred(16 * KIB), Way::Ring);
    for _ in 0..MIN_SAMPLES {
        clock.copy(&mut choice, RingCopy::Read, 500);
        clock.copy(&mut choice, RingCopy::Write, 1500);
    }
    assert_eq!(choice.preferred(16 * KIB), Way::Attach);
    // This side sends nothing any more.
    for _ in 0..OTHERS_UNTIL_STALE {
        clock.copy(&mut choice, RingCopy::Read, 500);
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

/// Writes of 8 KiB, of which `ahead` at most are under way: a copy takes 600 ns, and the peer reads one in `reads` ns. By attach
/// one takes 700 ns. Returns the way of the next one.
fn way_of_writes_ahead(ahead: u64, reads: u64) -> Way {
    const COPY: u64 = 600;
    let mut choice = CopyChoice::new(CopyMode::Auto);
    let read_by = |now: u64, written: u64| (now / reads).min(written);
    let (mut now, mut written) = (0_u64, 0_u64);
    for _ in 0..400 {
        // The last but `ahead` is acknowledged.
        now = now.max((written + 1).saturating_sub(ahead) * reads);
        let began = now;
        now += COPY;
        written += 1;
        let lines = |payloads: u64| (payloads * 8 * KIB / 64) as u32;
        choice.note_copy(&TimedCopy {
            what: RingCopy::Write,
            len: 8 * KIB,
            began: Duration::from_nanos(began),
            ended: Duration::from_nanos(now),
            flow: Flow::Other,
            backlog: Some(Backlog::of_lines(
                lines(written),
                lines(read_by(now, written)),
            )),
        });
        let attach = Duration::from_nanos(700);
        choice.note_attach(RingCopy::Write, 8 * KIB, 1, attach);
    }
    choice.preferred(8 * KIB)
}

#[test]
fn a_writer_that_waits_for_acknowledgements_counts_the_peers_reads() {
    assert_eq!(way_of_writes_ahead(64, 1000), Way::Attach);
    assert_eq!(way_of_writes_ahead(64, 650), Way::Ring, "it reads fast");
    // What its reads take is not known. It is taken to be as much as the writes take, though both are at work at once.
    assert_eq!(way_of_writes_ahead(2, 650), Way::Attach, "there are few");
    assert_eq!(
        way_of_writes_ahead(64, 10_000),
        Way::Attach,
        "it does more than read"
    );
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
    let knows = |choice: &CopyChoice, kib| choice.knows_both(LengthClass::of(kib * KIB));
    run(&mut choice, 8 * KIB, 4000, 300, 100);
    assert!(knows(&choice, 8));
    run(&mut choice, 16 * KIB, 1000, 4000, 10_000);
    assert!(!knows(&choice, 8), "it has changed with 16, and is old");
    let ways = |choice: &CopyChoice| [8, 16, 32].map(|kib| choice.preferred(kib * KIB));
    assert_eq!(ways(&choice), [Way::Ring, Way::Ring, Way::Attach]);
    run(&mut choice, 32 * KIB, 2000, 9000, 100);
    assert_eq!(ways(&choice), [Way::Ring; 3]);
    assert!(knows(&choice, 32) && knows(&choice, 16));
    run(&mut choice, 16 * KIB, 4000, 1000, 1000);
    assert_eq!(ways(&choice), [Way::Ring, Way::Attach, Way::Attach]);
    assert_eq!(choice.take_limit(), Some(GetLimit::From { exponent: 14 }));
    assert!(
        knows(&choice, 16) && !knows(&choice, 32),
        "it has changed with 16"
    );
    run(&mut choice, 32 * KIB, 2000, 9000, 10_000);
    assert_eq!(ways(&choice), [Way::Ring; 3]);
}

#[test]
fn what_goes_by_attach_instead_still_has_its_cost_through_the_ring() {
    for (sends, way) in [(true, Way::Attach), (false, Way::Ring)] {
        let mut choice = CopyChoice::new(CopyMode::Auto);
        let mut clock = Clock::new(Flow::Other);
        for _ in 0..MIN_SAMPLES {
            clock.copy(&mut choice, RingCopy::Write, 1500);
            clock.copy(&mut choice, RingCopy::Read, 500);
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
            clock.copy(&mut choice, RingCopy::Read, 4000);
        }
        for _ in 1..SETTLING_SAMPLES {
            assert!(choice.times_attach(LEN));
            choice.note_attach(RingCopy::Read, LEN, 1, Duration::from_nanos(attach));
            clock.copy(&mut choice, RingCopy::Read, 1400);
            assert_eq!(choice.preferred(LEN), Way::Attach, "too soon");
        }
        choice.note_attach(RingCopy::Read, LEN, 1, Duration::from_nanos(attach));
        assert_eq!(choice.preferred(LEN), way);
    }
}

/// Notes up to `rows` rows of trials with these times in nanoseconds, with a copy of 1600 ns through the ring behind each, until
/// 8 KiB takes attach. Returns whether it does.
fn try_rows(choice: &mut CopyChoice, row: &[u64], rows: usize) -> bool {
    for _ in 0..rows {
        for nanos in row {
            choice.note_attach(RingCopy::Read, 8 * KIB, 1, Duration::from_nanos(*nanos));
        }
        if choice.preferred(8 * KIB) == Way::Attach {
            return true;
        }
        choice.note_copy(&read_alone(8 * KIB, 1600));
    }
    false
}

/// Notes `count` copies by attach, then one through the ring.
fn settle(choice: &mut CopyChoice, attach: u64, count: u32) {
    for _ in 0..count {
        choice.note_attach(RingCopy::Read, 8 * KIB, 1, Duration::from_nanos(attach));
    }
    choice.note_copy(&read_alone(8 * KIB, 1600));
}

#[test]
fn trials_in_a_row_count_as_the_least_of_them() {
    let ring = || {
        let mut choice = CopyChoice::new(CopyMode::Auto);
        run(&mut choice, 8 * KIB, 1600, 2600, 100);
        assert_eq!(choice.preferred(8 * KIB), Way::Ring);
        choice
    };
    let cold = [2800, 2400, 2000, 1100, 1900, 1100, 1200, 1100];
    assert!(try_rows(&mut ring(), &cold, 3));
    assert!(
        !try_rows(&mut ring(), &[1800; 8], 1000),
        "the least is dear"
    );
    // With a copy through the ring behind each trial there is no row, so slow ones count in full.
    let mut choice = ring();
    for nanos in cold.iter().cycle().take(1000) {
        assert!(!try_rows(&mut choice, &[*nanos + 300], 1));
    }
}

#[test]
fn the_cheapest_of_a_row_is_that_for_each_byte() {
    let mut choice = CopyChoice::new(CopyMode::Auto);
    run(&mut choice, 8 * KIB, 1600, 2600, 100);
    // By attach a byte takes longer than by the ring, which no copy of another length in the same class hides.
    for _ in 0..100 {
        for len in [8, 9, 15, 8, 15] {
            let each = Duration::from_nanos(210 * len);
            choice.note_attach(RingCopy::Read, len * KIB, 1, each);
        }
        assert_eq!(choice.preferred(8 * KIB), Way::Ring);
        choice.note_copy(&read_alone(8 * KIB, 1600));
    }
    // The one that takes longest is the cheapest.
    for _ in 0..3 {
        for (len, nanos) in [(8, 1700), (15, 1900)] {
            let each = Duration::from_nanos(nanos);
            choice.note_attach(RingCopy::Read, len * KIB, 4, each);
        }
        choice.note_copy(&read_alone(8 * KIB, 1600));
    }
    assert_eq!(choice.preferred(8 * KIB), Way::Attach);
}

#[test]
fn a_row_ends_though_no_copy_goes_through_the_ring() {
    let mut choice = CopyChoice::new(CopyMode::Auto);
    run(&mut choice, 8 * KIB, 1600, 2600, 100);
    let attach = |choice: &mut CopyChoice, nanos| {
        choice.note_attach(RingCopy::Read, 8 * KIB, 1, Duration::from_nanos(nanos));
    };
    // As reads of the memory of a peer that computes, on a machine that gets slower.
    attach(&mut choice, 1550);
    for _ in 0..200 {
        attach(&mut choice, 4000);
    }
    let class = LengthClass::of(8 * KIB);
    let known = choice.attach[class].known().unwrap();
    assert!(known > 400, "{known} ps a byte");
}

#[test]
fn a_change_to_attach_that_was_taken_back_needs_more_the_next_time() {
    let mut choice = CopyChoice::new(CopyMode::Auto);
    run(&mut choice, 8 * KIB, 1600, 2600, 100);
    // In trials it is faster by 3/16, afterwards slower.
    for _ in 0..2 {
        assert!(try_rows(&mut choice, &[1300; 8], 10));
        settle(&mut choice, 1900, 100);
        assert_eq!(choice.preferred(8 * KIB), Way::Ring);
    }
    assert!(!try_rows(&mut choice, &[1300; 8], 100));
    // Where it is much faster it is taken again, and once that is proven a little is enough.
    assert!(try_rows(&mut choice, &[800; 8], 10));
    settle(&mut choice, 800, PROVEN_SAMPLES);
    assert_eq!(choice.preferred(8 * KIB), Way::Attach);
    settle(&mut choice, 1900, 100);
    assert_eq!(choice.preferred(8 * KIB), Way::Ring);
    assert!(try_rows(&mut choice, &[1300; 8], 10));
    settle(&mut choice, 1900, 100);
    // After one change that was taken back an eighth is needed, and a sixteenth is when that is long ago.
    assert!(!try_rows(&mut choice, &[1400; 8], 100));
    assert!(try_rows(
        &mut choice,
        &[1400; 8],
        COPIES_PER_FORGOTTEN as usize
    ));
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
    assert!(!choice.has_new_limit(), "nobody has asked for it");
    assert_eq!(choice.take_limit(), Some(GetLimit::From { exponent: 14 }));
    assert_eq!(choice.take_limit(), None);
    for _ in 0..MIN_SAMPLES {
        choice.note_copy(&read_alone(16 * KIB, 2000));
        choice.note_attach(RingCopy::Read, 16 * KIB, 1, Duration::from_micros(4));
        choice.note_attach(RingCopy::Read, 32 * KIB, 1, Duration::from_micros(2));
    }
    assert_eq!(choice.take_limit(), Some(GetLimit::From { exponent: 15 }));
    assert_eq!(choice.take_limit(), None);
    // A copy through the ring that is found dearer changes it, too.
    for _ in 0..100 {
        assert!(!choice.has_new_limit());
        choice.note_copy(&read_alone(16 * KIB, 5000));
        if choice.preferred(16 * KIB) == Way::Attach {
            break;
        }
    }
    assert!(choice.has_new_limit());
    assert_eq!(choice.take_limit(), Some(GetLimit::From { exponent: 14 }));
    assert!(!choice.has_new_limit());
    for exponent in MIN_EXPONENT..=MAX_EXPONENT {
        for _ in 0..200 {
            choice.note_attach(RingCopy::Read, 1 << exponent, 1, Duration::from_secs(1));
            choice.note_copy(&read_alone(1 << exponent, 1));
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
