use proptest::prelude::*;
use ripstop_engine::id::ConnId;

use super::*;

type Active = ActiveConnections<()>;

/// A clock that is read only by [`ActiveConnections::asks`].
#[derive(Default)]
struct Fake {
    now: Duration,
    reads: u32,
}

impl Fake {
    /// Long after the machine has started.
    fn new() -> Self {
        Self {
            now: Duration::from_secs(1000),
            reads: 0,
        }
    }

    fn polls_epoll(&mut self, active: &mut Active) -> bool {
        active.polls_epoll(false, || {
            self.reads += 1;
            self.now
        })
    }
}

#[test]
fn epoll_is_asked_at_once_and_then_rarely() {
    let (mut active, mut clock) = (Active::default(), Fake::new());
    let nano = Duration::from_nanos(1);
    assert!(clock.polls_epoll(&mut active), "the first time");
    for _ in 0..5 {
        assert!(!clock.polls_epoll(&mut active), "at the same time");
        clock.now += EPOLL_INTERVAL - nano;
        assert!(!clock.polls_epoll(&mut active), "too soon");
        clock.now += nano;
        assert!(clock.polls_epoll(&mut active), "in time");
    }
    active.poll_next();
    assert!(clock.polls_epoll(&mut active), "something is to be done");
    assert!(!clock.polls_epoll(&mut active), "no more");
}

/// Room to be written is found by looking, so all are polled in a row: the kernel is not asked
/// each time, nor is the clock.
#[test]
fn polls_for_room_ask_epoll_and_the_clock_less_often() {
    let (mut active, mut clock) = (Active::default(), Fake::new());
    active.wait_for_room();
    let mut epoll_at = 0;
    for _ in 0..ROOM_POLLS {
        assert_eq!(
            (active.fast_budget, active.budget),
            (1, 0),
            "the next progress is a full poll"
        );
        clock.now += EPOLL_INTERVAL;
        let polls_epoll = clock.polls_epoll(&mut active);
        epoll_at += u32::from(polls_epoll);
        active.refill(polls_epoll);
    }
    assert_eq!(
        (epoll_at, clock.reads),
        (
            ROOM_POLLS / ROOM_POLLS_PER_EPOLL,
            ROOM_POLLS / ROOM_POLLS_PER_EPOLL
        )
    );
    let polls_epoll = clock.polls_epoll(&mut active);
    active.refill(polls_epoll);
    assert!(reads_until_due(&mut active) >= POLL_BUDGET, "it is over");
}

/// A poll of an active connection that finds nothing, as `State::fast_poll` and
/// `State::progress_all` do it; `false` where a full poll takes its place.
fn idle_poll(active: &mut Active) -> bool {
    if active.fast_budget > 1 {
        active.fast_budget -= 1;
        active.note_idle();
        return true;
    }
    active.suspend_fast_polls();
    if active.budget == 0 {
        return false;
    }
    active.note_idle();
    active.suspend_fast_polls();
    active.budget = active.budget.saturating_sub(1);
    active.resume_fast_polls();
    true
}

fn reads_until_due(active: &mut Active) -> u32 {
    let mut reads = 0;
    while idle_poll(active) {
        reads += 1;
    }
    reads
}

/// Whoever polls all the time: how often the kernel is asked depends on the time alone.
#[test]
fn idle_polls_ask_epoll_by_number_and_by_time() {
    for (nanos, most, least) in [
        // A poll of links alone: at most 256 polls late.
        (10, 2_000 + POLL_BUDGET_WITHOUT_EPOLL, 2_000),
        // Slow ones.
        (1_000, POLL_BUDGET, POLL_BUDGET),
        (100_000, POLL_BUDGET, POLL_BUDGET),
    ] {
        let (mut active, mut clock) = (Active::default(), Fake::new());
        active.add(ConnId::FIRST, &Arc::new(()), true);
        let mut polls_epoll = clock.polls_epoll(&mut active);
        for _ in 0..10 {
            let mut reads = 0;
            while !polls_epoll || reads == 0 {
                active.refill(polls_epoll);
                active.resume_fast_polls();
                let more = reads_until_due(&mut active);
                reads += more;
                clock.now += more * Duration::from_nanos(nanos);
                polls_epoll = clock.polls_epoll(&mut active);
            }
            assert!((least..=most).contains(&reads), "{reads} of {nanos} ns");
        }
    }
}

/// Polls that always find something, each a time slice after the one before, or soon after it.
#[test]
fn slow_finds_leave_time_for_a_full_poll() {
    let slice = SLOW_FINDS_TICKS.div_ceil(FINDS_PER_UNIT);
    for fast in [true, false] {
        for (ticks, finds) in [
            (slice, FINDS_PER_UNIT),
            (5 * slice, FINDS_PER_UNIT),
            (slice - 1, FINDS_PER_UNIT * POLL_BUDGET),
            (0, FINDS_PER_UNIT * POLL_BUDGET),
        ] {
            let mut active = Active::default();
            active.add(ConnId::FIRST, &Arc::new(()), true);
            active.refill(true);
            active.resume_fast_polls();
            if !fast {
                active.suspend_fast_polls();
            }
            let mut now = 7_u32.wrapping_sub(ticks);
            active.finds_since = now;
            let mut count = 0;
            while active.fast_budget - 1 + active.budget > 0 {
                now = now.wrapping_add(ticks);
                match fast {
                    true => active.found(|| now),
                    false => active.found_slow(|| now),
                }
                count += 1;
            }
            assert_eq!(count, finds, "{ticks} ticks each, fast {fast}");
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Time passes: so many microseconds.
    Wait(u64),
    Poll,
    PollNext,
    WaitForRoom,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..25_u64).prop_map(Step::Wait),
        12 => Just(Step::Poll),
        1 => Just(Step::PollNext),
        1 => Just(Step::WaitForRoom),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Read {
    Idle,
    Finds,
    /// The next bytes of the connections are a header, or are not.
    HeaderNext(bool),
    Suspend,
    Resume,
    PollSoon,
}

fn read() -> impl Strategy<Value = Read> {
    prop_oneof![
        20 => Just(Read::Idle),
        20 => Just(Read::Finds),
        1 => any::<bool>().prop_map(Read::HeaderNext),
        1 => Just(Read::Suspend),
        1 => Just(Read::Resume),
        1 => Just(Read::PollSoon),
    ]
}

proptest! {
    /// Whatever happens, epoll is asked when it is time, and only then.
    #[test]
    fn epoll_is_asked_when_it_is_time(steps in prop::collection::vec(step(), 1..400)) {
        let (mut active, mut clock) = (Active::default(), Fake::new());
        // When it was asked, unless it is to be asked now; polls for room that are left; all polls.
        let (mut epoll_at, mut room, mut polls) = (None::<Duration>, 0, 0_u32);
        for step in steps {
            match step {
                Step::Wait(micros) => clock.now += Duration::from_micros(micros),
                Step::PollNext => {
                    active.poll_next();
                    epoll_at = None;
                }
                Step::WaitForRoom => {
                    active.wait_for_room();
                    (epoll_at, room) = (None, ROOM_POLLS);
                }
                Step::Poll => {
                    polls += 1;
                    let turn = room == 0 || polls.is_multiple_of(ROOM_POLLS_PER_EPOLL);
                    let time = epoll_at.is_none_or(|at| clock.now - at >= EPOLL_INTERVAL);
                    let polls_epoll = clock.polls_epoll(&mut active);
                    prop_assert_eq!(polls_epoll, turn && time);
                    active.refill(polls_epoll);
                    let reads = if polls_epoll { POLL_BUDGET } else { POLL_BUDGET_WITHOUT_EPOLL };
                    let reads = if room > 0 { 0 } else { reads };
                    prop_assert_eq!(active.fast_budget - 1 + active.budget, reads);
                    epoll_at = if polls_epoll { Some(clock.now) } else { epoll_at };
                    room = room.saturating_sub(1);
                }
            }
        }
    }

    /// Each idle poll and each 64th successful one spends one unit of poll budget, fast or not.
    #[test]
    fn idle_polls_and_every_64th_find_spend_the_budget(
        soon in any::<bool>(),
        reads in prop::collection::vec(read(), 1..2000),
    ) {
        let mut active = Active::default();
        active.add(ConnId::FIRST, &Arc::new(()), true);
        let (mut budget, mut finds_left) = (0, FINDS_PER_UNIT);
        for read in reads {
            match read {
                Read::Idle => {
                    prop_assert_eq!(idle_poll(&mut active), budget > 0);
                    if budget == 0 {
                        active.refill(soon);
                        active.resume_fast_polls();
                        budget = if soon { POLL_BUDGET } else { POLL_BUDGET_WITHOUT_EPOLL };
                    } else {
                        budget -= 1;
                    }
                }
                Read::Finds => {
                    // Where it is time to poll, nothing is read before.
                    if budget == 0 {
                        continue;
                    }
                    match active.fast_budget > 1 {
                        true => active.found(|| 0),
                        false => active.found_slow(|| 0),
                    }
                    finds_left -= 1;
                    if finds_left == 0 {
                        (budget, finds_left) = (budget - 1, FINDS_PER_UNIT);
                    }
                }
                Read::HeaderNext(header_next) => {
                    active.header_next = [header_next; ACTIVE];
                    active.resume_fast_polls();
                }
                Read::Suspend => active.suspend_fast_polls(),
                Read::Resume => active.resume_fast_polls(),
                Read::PollSoon => {
                    active.poll_soon();
                    budget = budget.min(ACTIVE as u32);
                }
            }
            prop_assert_eq!(active.fast_budget - 1 + active.budget, budget);
        }
    }
}
