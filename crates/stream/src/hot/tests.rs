use proptest::prelude::*;

use super::*;

type Plain = Hot<()>;

/// A clock that is read only by [`Hot::asks`].
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

    fn asks(&mut self, hot: &mut Plain) -> bool {
        hot.asks(|| {
            self.reads += 1;
            self.now
        })
    }
}

#[test]
fn epoll_is_asked_at_once_and_then_rarely() {
    let (mut hot, mut clock) = (Plain::default(), Fake::new());
    let nano = Duration::from_nanos(1);
    assert!(clock.asks(&mut hot), "the first time");
    for _ in 0..5 {
        assert!(!clock.asks(&mut hot), "at the same time");
        clock.now += RARELY - nano;
        assert!(!clock.asks(&mut hot), "too soon");
        clock.now += nano;
        assert!(clock.asks(&mut hot), "in time");
    }
    hot.poll_next();
    assert!(clock.asks(&mut hot), "something is to be done");
    assert!(!clock.asks(&mut hot), "no more");
}

/// Room to be written is found by looking, so all are polled in a row: the kernel is not asked
/// each time, nor is the clock.
#[test]
fn polls_for_room_ask_epoll_and_the_clock_less_often() {
    let (mut hot, mut clock) = (Plain::default(), Fake::new());
    hot.write_waits();
    let mut asked = 0;
    for _ in 0..WRITES {
        assert_eq!((hot.quick, hot.left), (1, 0), "the next progress polls");
        clock.now += RARELY;
        let asks = clock.asks(&mut hot);
        asked += u32::from(asks);
        hot.restart(asks);
    }
    assert_eq!((asked, clock.reads), (WRITES / ASKS, WRITES / ASKS));
    let asks = clock.asks(&mut hot);
    hot.restart(asks);
    assert!(reads_until_due(&mut hot) >= POLL_EVERY, "it is over");
}

/// A read in vain of the connection that is first, as of [`State::read_quick`] and
/// [`State::progress_all`]; `false` where all are polled in place of that.
fn in_vain(hot: &mut Plain) -> bool {
    if hot.quick > 1 {
        hot.quick -= 1;
        hot.next();
        return true;
    }
    hot.hold();
    if hot.left == 0 {
        return false;
    }
    hot.next();
    hot.hold();
    hot.left = hot.left.saturating_sub(1);
    hot.release();
    true
}

fn reads_until_due(hot: &mut Plain) -> u32 {
    let mut reads = 0;
    while in_vain(hot) {
        reads += 1;
    }
    reads
}

/// Whoever polls all the time: how often the kernel is asked depends on the time alone.
#[test]
fn polls_in_vain_ask_epoll_by_number_and_by_time() {
    for (nanos, most, least) in [
        // An empty look: at most 256 looks late.
        (10, 2_000 + POLL_SELDOM, 2_000),
        // Slow ones.
        (1_000, POLL_EVERY, POLL_EVERY),
        (100_000, POLL_EVERY, POLL_EVERY),
    ] {
        let (mut hot, mut clock) = (Plain::default(), Fake::new());
        hot.remember(1, &Arc::new(()), true);
        let mut asks = clock.asks(&mut hot);
        for _ in 0..10 {
            let mut reads = 0;
            while !asks || reads == 0 {
                hot.restart(asks);
                hot.release();
                let more = reads_until_due(&mut hot);
                reads += more;
                clock.now += more * Duration::from_nanos(nanos);
                asks = clock.asks(&mut hot);
            }
            assert!((least..=most).contains(&reads), "{reads} of {nanos} ns");
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Time passes: so many microseconds.
    Wait(u64),
    Poll,
    PollNext,
    WriteWaits,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..25_u64).prop_map(Step::Wait),
        12 => Just(Step::Poll),
        1 => Just(Step::PollNext),
        1 => Just(Step::WriteWaits),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Read {
    InVain,
    Finds,
    /// What is next of the connections is a header, or is not.
    Plain(bool),
    Hold,
    Release,
    PollSoon,
}

fn read() -> impl Strategy<Value = Read> {
    prop_oneof![
        20 => Just(Read::InVain),
        20 => Just(Read::Finds),
        1 => any::<bool>().prop_map(Read::Plain),
        1 => Just(Read::Hold),
        1 => Just(Read::Release),
        1 => Just(Read::PollSoon),
    ]
}

proptest! {
    /// Whatever happens, epoll is asked when it is time, and only then.
    #[test]
    fn epoll_is_asked_when_it_is_time(steps in prop::collection::vec(step(), 1..400)) {
        let (mut hot, mut clock) = (Plain::default(), Fake::new());
        // When it was asked, unless it is to be asked now; polls for room that are left; all polls.
        let (mut asked, mut room, mut polls) = (None::<Duration>, 0, 0_u32);
        for step in steps {
            match step {
                Step::Wait(micros) => clock.now += Duration::from_micros(micros),
                Step::PollNext => {
                    hot.poll_next();
                    asked = None;
                }
                Step::WriteWaits => {
                    hot.write_waits();
                    (asked, room) = (None, WRITES);
                }
                Step::Poll => {
                    polls += 1;
                    let turn = room == 0 || polls.is_multiple_of(ASKS);
                    let time = asked.is_none_or(|at| clock.now - at >= RARELY);
                    let asks = clock.asks(&mut hot);
                    prop_assert_eq!(asks, turn && time);
                    hot.restart(asks);
                    let reads = if asks { POLL_EVERY } else { POLL_SELDOM };
                    let reads = if room > 0 { 0 } else { reads };
                    prop_assert_eq!(hot.quick - 1 + hot.left, reads);
                    asked = if asks { Some(clock.now) } else { asked };
                    room = room.saturating_sub(1);
                }
            }
        }
    }

    /// Quick reads or not, each read in vain and each 64th that is not bring the poll of all nearer
    /// by one.
    #[test]
    fn the_next_poll_comes_after_so_many_reads(
        soon in any::<bool>(),
        reads in prop::collection::vec(read(), 1..2000),
    ) {
        let mut hot = Plain::default();
        hot.remember(1, &Arc::new(()), true);
        let (mut left, mut finds) = (0, FINDS);
        for read in reads {
            match read {
                Read::InVain => {
                    prop_assert_eq!(in_vain(&mut hot), left > 0);
                    if left == 0 {
                        hot.restart(soon);
                        hot.release();
                        left = if soon { POLL_EVERY } else { POLL_SELDOM };
                    } else {
                        left -= 1;
                    }
                }
                Read::Finds => {
                    // Where it is time to poll, nothing is read before.
                    if left == 0 {
                        continue;
                    }
                    match hot.quick > 1 {
                        true => hot.found(),
                        false => hot.found_more(),
                    }
                    finds -= 1;
                    if finds == 0 {
                        (left, finds) = (left - 1, FINDS);
                    }
                }
                Read::Plain(plain) => {
                    hot.plain = [plain; HOT];
                    hot.release();
                }
                Read::Hold => hot.hold(),
                Read::Release => hot.release(),
                Read::PollSoon => {
                    hot.poll_soon();
                    left = left.min(HOT as u32);
                }
            }
            prop_assert_eq!(hot.quick - 1 + hot.left, left);
        }
    }
}
