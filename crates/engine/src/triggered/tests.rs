use alloc::collections::BTreeMap;
use alloc::vec;

use proptest::prelude::*;

use super::*;

/// The counter of this number, from 0 on.
fn counter(number: u32) -> CounterId {
    CounterId::new(number + 1).unwrap()
}

fn lane(number: u32) -> Option<LaneId> {
    LaneId::new(number + 1)
}

fn when(number: u32, threshold: u64) -> When {
    When {
        counter: counter(number),
        basis: Basis::Successes,
        threshold,
    }
}

fn at(value: u64) -> impl Fn(CounterId) -> Option<Counter> {
    move |_| {
        Some(Counter {
            value,
            ..Counter::default()
        })
    }
}

/// Takes all whose turn it is.
fn drain(queue: &mut Queue<u32>, value: u64) -> Vec<u32> {
    queue.retry();
    let mut taken = Vec::new();
    while let Some(id) = queue.next(at(value)) {
        taken.push(queue.take(id).unwrap());
    }
    taken
}

#[test]
fn turns_come_by_threshold_and_then_as_queued() {
    let mut queue = Queue::new();
    for (op, threshold) in [(1, 5), (2, 3), (3, 5), (4, 0), (5, 3), (6, 9)] {
        queue.add(when(0, threshold), None, op).unwrap();
    }
    assert_eq!(drain(&mut queue, 0), [4]);
    assert_eq!(drain(&mut queue, 2), []);
    assert_eq!(drain(&mut queue, 8), [2, 5, 1, 3]);
    assert_eq!((queue.len(), queue.is_empty()), (1, false));
    assert_eq!(drain(&mut queue, u64::MAX), [6]);
    assert!(queue.is_empty());
}

#[test]
fn errors_count_for_work_only() {
    let mut queue = Queue::new();
    let all = When {
        basis: Basis::All,
        ..when(0, 3)
    };
    queue.add(when(0, 3), None, 1).unwrap();
    queue.add(all, None, 2).unwrap();
    let failing = |value, errors| {
        move |_| {
            Some(Counter {
                bytes: false,
                value,
                errors,
            })
        }
    };
    let id = queue.next(failing(1, 2)).unwrap();
    assert_eq!(queue.take(id), Some(2));
    queue.retry();
    assert_eq!(queue.next(failing(2, u64::MAX)), None);
    queue.changed(counter(0));
    assert!(queue.next(failing(3, 0)).is_some());
    let never = When {
        threshold: u64::MAX,
        ..all
    };
    queue.add(never, None, 3).unwrap();
    assert_eq!(queue.next(failing(5, u64::MAX - 6)), None);
    queue.changed(counter(0));
    // The sum is as high as can be, not what is left of it.
    assert!(queue.next(failing(5, u64::MAX)).is_some());
}

#[test]
fn a_lane_goes_on_where_it_stopped() {
    let mut queue = Queue::new();
    for op in [10, 11, 12] {
        queue.add(when(0, 1), lane(0), op).unwrap();
    }
    queue.add(when(1, 1), lane(1), 20).unwrap();
    let first = queue.next(at(1)).unwrap();
    assert_eq!(queue.get(first), Some(&10));
    queue.hold(first);
    let other = queue.next(at(1)).unwrap();
    assert_eq!(queue.take(other), Some(20));
    assert_eq!(queue.next(at(1)), None);
    // One that comes later is behind those, whatever its threshold.
    queue.add(when(2, 0), lane(0), 13).unwrap();
    assert_eq!(queue.next(at(1)), None);
    let middle = queue.first(|_, op| *op == 11).unwrap();
    assert_eq!(queue.take(middle), Some(11));
    queue.retry();
    let again = queue.next(at(1)).unwrap();
    assert_eq!(again, first);
    queue.hold(again);
    assert_eq!(queue.next(at(1)), None);
    assert_eq!(drain(&mut queue, 0), [10, 12, 13]);
}

#[test]
fn what_was_taken_is_not_started() {
    let mut queue = Queue::new();
    let id = queue.add(when(0, 1), None, 1).unwrap();
    queue.add(when(7, 0), lane(3), 2).unwrap();
    assert_eq!(queue.take(id), Some(1));
    assert_eq!(queue.take(id), None);
    queue.add(when(7, 1), None, 3).unwrap();
    assert_eq!(drain(&mut queue, 1), [2, 3]);
}

#[derive(Clone, Debug)]
enum Step {
    Add {
        counter: CounterId,
        all: bool,
        threshold: u64,
        lane: Option<LaneId>,
    },
    Count {
        counter: CounterId,
        value: u64,
        errors: u64,
    },
    /// Takes one of those that wait.
    Cancel(usize),
    /// Starts what it can; these lanes have no room.
    Run { blocked: u32, most: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => ((0..3u32).prop_map(counter), any::<bool>(), 0..6u64, 0..4u32).prop_map(
            |(counter, all, threshold, lane)| Step::Add {
                counter,
                all,
                threshold,
                lane: LaneId::new(lane),
            }
        ),
        2 => ((0..3u32).prop_map(counter), 0..6u64, 0..3u64).prop_map(|(counter, value, errors)| Step::Count {
            counter,
            value,
            errors,
        }),
        1 => any::<usize>().prop_map(Step::Cancel),
        2 => (0..16u32, 1..6usize).prop_map(|(blocked, most)| Step::Run { blocked, most }),
    ]
}

/// The same by looking at everything, every time.
#[derive(Default)]
struct Model {
    counters: [Counter; 3],
    /// What waits, by the order it was queued.
    waiting: BTreeMap<u32, (When, Option<LaneId>)>,
    /// What waits for room, by lane.
    lanes: BTreeMap<Option<LaneId>, Vec<u32>>,
}

impl Model {
    /// What waits and is reached, by counter and basis in the order of the turns.
    fn reached(&self) -> BTreeMap<(CounterId, bool), Vec<u32>> {
        let mut turns: BTreeMap<_, Vec<(u64, u32)>> = BTreeMap::new();
        for (op, (when, _)) in &self.waiting {
            if when.basis.of(&self.counters[when.counter.index() - 1]) >= when.threshold {
                let key = (when.counter, when.basis == Basis::All);
                turns.entry(key).or_default().push((when.threshold, *op));
            }
        }
        for turn in turns.values_mut() {
            turn.sort_unstable();
        }
        let ops = |turn: Vec<(u64, u32)>| turn.into_iter().map(|(_, op)| op).collect();
        turns
            .into_iter()
            .map(|(key, turn)| (key, ops(turn)))
            .collect()
    }
}

proptest! {
    #[test]
    fn turns_are_those_of_a_plain_model(steps in prop::collection::vec(step(), 1..200)) {
        let mut queue: Queue<u32> = Queue::new();
        let mut model = Model::default();
        let (mut ids, mut next) = (BTreeMap::new(), 0);
        for step in steps {
            match step {
                Step::Add { counter, all, threshold, lane } => {
                    let basis = if all { Basis::All } else { Basis::Successes };
                    let when = When { counter, basis, threshold };
                    ids.insert(next, queue.add(when, lane, next).unwrap());
                    model.waiting.insert(next, (when, lane));
                    next += 1;
                }
                Step::Count { counter, value, errors } => {
                    model.counters[counter.index() - 1] = Counter { bytes: false, value, errors };
                    queue.changed(counter);
                }
                Step::Cancel(which) => {
                    let all: Vec<u32> = ids.keys().copied().collect();
                    if all.is_empty() {
                        continue;
                    }
                    let op = all[which % all.len()];
                    prop_assert_eq!(queue.take(ids.remove(&op).unwrap()), Some(op));
                    model.waiting.remove(&op);
                    for lane in model.lanes.values_mut() {
                        lane.retain(|other| *other != op);
                    }
                }
                Step::Run { blocked, most } => {
                    run(&mut queue, &mut model, &mut ids, blocked, most)?;
                }
            }
            prop_assert_eq!(queue.len(), ids.len());
        }
        // Nothing is forgotten.
        for counter in &mut model.counters {
            counter.value = u64::MAX;
        }
        run(&mut queue, &mut model, &mut ids, 0, usize::MAX)?;
        prop_assert!(queue.is_empty());
    }
}

/// Starts operations as a driver does, at most `most`, and looks that each was one whose turn
/// it may be.
fn run(
    queue: &mut Queue<u32>,
    model: &mut Model,
    ids: &mut BTreeMap<u32, TriggeredId>,
    blocked: u32,
    most: usize,
) -> core::result::Result<(), TestCaseError> {
    queue.retry();
    let mut stuck = vec![];
    for _ in 0..most {
        let counters = model.counters;
        let Some(id) = queue.next(|counter| counters.get(counter.index() - 1).copied()) else {
            // What is left has not come that far, or waits in a lane without room.
            for op in model.reached().into_values().flatten() {
                let (_, lane) = model.waiting[&op];
                prop_assert!(stuck.contains(&lane), "{op} was forgotten");
            }
            settle(queue, model, ids, &stuck);
            return Ok(());
        };
        let op = *queue.get(id).unwrap();
        let lane = match model.waiting.get(&op) {
            Some((_, lane)) => *lane,
            None => {
                *model
                    .lanes
                    .iter()
                    .find(|(_, ops)| ops.contains(&op))
                    .unwrap()
                    .0
            }
        };
        prop_assert!(!stuck.contains(&lane), "{op} overtakes in lane {lane:?}");
        let before = model.lanes.entry(lane).or_default();
        if let Some(first) = before.first() {
            // Those that had their turn come first, except that the model does not know which
            // of the reached had it.
            prop_assert_eq!(*first, op);
            before.remove(0);
        } else {
            let reached = model.reached();
            let ahead = reached.values().find(|turn| turn.contains(&op)).unwrap();
            for earlier in ahead.iter().take_while(|other| **other != op) {
                let (_, lane) = model.waiting[earlier];
                prop_assert!(stuck.contains(&lane), "{op} comes before {earlier}");
            }
            model.waiting.remove(&op);
        }
        if lane.is_some_and(|lane| blocked & (1 << lane.index()) != 0) {
            queue.hold(id);
            model.lanes.entry(lane).or_default().insert(0, op);
            stuck.push(lane);
        } else {
            prop_assert_eq!(queue.take(id), Some(op));
            ids.remove(&op);
        }
        // What came behind a stuck one has its turn fixed in that lane from now on.
        settle(queue, model, ids, &stuck);
    }
    Ok(())
}

/// Notes in the model which operations the queue has put into the lanes without room.
fn settle(
    queue: &mut Queue<u32>,
    model: &mut Model,
    ids: &BTreeMap<u32, TriggeredId>,
    stuck: &[Option<LaneId>],
) {
    let Queue { items, lanes, .. } = queue;
    for lane in stuck {
        let mut order = Vec::new();
        let list = &lanes[LaneId::place(*lane)].list;
        list.for_each(items, |_, item| order.push(item.op));
        for op in &order {
            assert!(ids.contains_key(op));
            model.waiting.remove(op);
        }
        model.lanes.insert(*lane, order);
    }
}
