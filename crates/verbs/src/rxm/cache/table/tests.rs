//! The table against a plain one: a list of entries, newest last.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const PAGE: usize = 16;
const MOST: usize = 4;
const BYTES: usize = 200;

/// What is done to both.
#[derive(Clone, Debug)]
enum Step {
    /// A transfer finds its memory or begins an entry.
    Use(u32, Range<usize>, bool),
    /// What was begun first is finished, or not.
    Finish(bool),
    /// The oldest use ends.
    Release,
    Gone(Range<usize>, bool),
    Take,
    EndIdle,
    Forget(u32),
}

fn range(longest: usize) -> impl Strategy<Value = Range<usize>> {
    (0..300_usize, 1..=longest).prop_map(|(start, len)| start..start + len)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..2_u32, range(120), any::<bool>()).prop_map(|(device, range, write)| Step::Use(device, range, write)),
        6 => any::<bool>().prop_map(Step::Finish),
        4 => Just(Step::Release),
        2 => (range(64), any::<bool>()).prop_map(|(range, pages)| Step::Gone(range, pages)),
        2 => Just(Step::Take),
        1 => Just(Step::EndIdle),
        1 => (0..2_u32).prop_map(Step::Forget),
    ]
}

fn access(write: bool) -> Access {
    match write {
        true => Access::LOCAL_WRITE,
        false => Access::REMOTE_READ,
    }
}

/// An entry of the plain table; `None` while it is being registered.
#[derive(Debug)]
struct Plain {
    slot: Slot,
    device: u32,
    bytes: Range<usize>,
    access: Access,
    region: Option<u32>,
}

fn pages(bytes: &Range<usize>) -> Range<usize> {
    bytes.start / PAGE * PAGE..bytes.end.next_multiple_of(PAGE)
}

fn meet(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

#[derive(Debug)]
struct Both {
    table: Table<u32>,
    /// Those that can be found, or are being made; the newest last.
    plain: Vec<Plain>,
    begun: Vec<Begun>,
    used: Vec<Arc<u32>>,
    next: u32,
    /// Regions that ended and were not taken.
    ended: Vec<u32>,
    made: HashMap<u32, std::sync::Weak<u32>>,
}

impl Both {
    fn new() -> Self {
        Self {
            table: Table::new(MOST, BYTES, PAGE),
            plain: Vec::new(),
            begun: Vec::new(),
            used: Vec::new(),
            next: 0,
            ended: Vec::new(),
            made: HashMap::new(),
        }
    }

    /// Ends those of the plain table for which this holds.
    fn end(&mut self, ends: impl Fn(&Plain) -> bool) -> Vec<Plain> {
        let (gone, stay) = std::mem::take(&mut self.plain)
            .into_iter()
            .partition(|it| ends(it));
        self.plain = stay;
        let gone: Vec<Plain> = gone;
        self.ended.extend(gone.iter().filter_map(|it| it.region));
        gone
    }

    fn evict(&mut self) -> bool {
        let used = &self.used;
        let oldest = self.plain.iter().find(|it| {
            let region = it.region;
            region.is_some_and(|region| used.iter().all(|used| **used != region))
        });
        let Some(slot) = oldest.map(|it| it.slot) else {
            return false;
        };
        self.end(|it| it.slot == slot);
        true
    }

    fn use_memory(&mut self, device: u32, bytes: &Range<usize>, access: Access) {
        let fits = |it: &Plain| {
            let inside = it.bytes.start <= bytes.start && bytes.end <= it.bytes.end;
            it.device == device && inside && it.access.contains(access)
        };
        let at = self
            .plain
            .iter()
            .position(|it| fits(it) && it.region.is_some());
        let found = self.table.find(device, bytes, access);
        assert_eq!(
            found.as_deref().copied(),
            at.and_then(|at| self.plain[at].region)
        );
        if let (Some(region), Some(at)) = (found, at) {
            let it = self.plain.remove(at);
            self.plain.push(it);
            self.used.push(region);
            return;
        }
        let begun = self.table.begin(device, bytes.clone(), access);
        if bytes.len() > BYTES {
            assert_eq!(begun, None);
            return;
        }
        let replaced = self.end(|it| it.device == device && meet(&it.bytes, bytes));
        let all = replaced.iter().fold(access, |all, it| all | it.access);
        loop {
            let total: usize = self.plain.iter().map(|it| it.bytes.len()).sum();
            if self.plain.len() < MOST && total + bytes.len() <= BYTES {
                break;
            }
            if !self.evict() {
                assert_eq!(begun, None);
                return;
            }
        }
        let begun = begun.expect("there is room");
        assert_eq!(begun.access, all);
        self.begun.push(begun);
        self.plain.push(Plain {
            slot: begun.slot,
            device,
            bytes: bytes.clone(),
            access: all,
            region: None,
        });
    }

    fn finish(&mut self, is_registered: bool) {
        if self.begun.is_empty() {
            return;
        }
        let begun = self.begun.remove(0);
        let at = self
            .plain
            .iter()
            .position(|it| it.slot == begun.slot && it.region.is_none());
        if !is_registered {
            self.table.abandon(begun.slot, true);
            if let Some(at) = at {
                self.plain.remove(at);
            }
            return;
        }
        self.next += 1;
        let region = Arc::new(self.next);
        self.made.insert(self.next, Arc::downgrade(&region));
        let kept = Arc::clone(&region);
        let back = self.table.finish(begun.slot, kept, begun.access);
        assert_eq!(back.is_none(), at.is_some());
        if let Some(at) = at {
            let mut it = self.plain.remove(at);
            it.region = Some(self.next);
            self.plain.push(it);
        }
        self.used.push(region);
    }

    fn take(&mut self) {
        while let Some(taken) = self.table.take_ended() {
            if let Some(region) = taken.region {
                let at = self.ended.iter().position(|ended| *ended == *region);
                self.ended.remove(at.expect("it has ended, once"));
            }
        }
        assert!(self.ended.is_empty(), "{:?}", self.ended);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Use(device, bytes, write) => self.use_memory(device, &bytes, access(write)),
            Step::Finish(is_registered) => self.finish(is_registered),
            Step::Release => {
                if !self.used.is_empty() {
                    self.used.remove(0);
                }
            }
            Step::Gone(range, is_pages) => {
                let range = pages(&range);
                self.end(|it| meet(&pages(&it.bytes), &range));
                let given = match is_pages {
                    true => Given::Pages,
                    false => Given::Addresses,
                };
                self.table.gone(range, given);
            }
            Step::Take => self.take(),
            Step::EndIdle => {
                while self.table.evict() {
                    assert!(self.evict());
                }
                assert!(!self.evict());
            }
            Step::Forget(device) => {
                self.table.forget(device);
                self.end(|it| it.device == device);
            }
        }
    }

    /// What holds at all times.
    fn check(&self) {
        let room = MOST + SPARE;
        let table = &self.table;
        let capacities = (table.entries.capacity(), table.free.capacity());
        assert_eq!(capacities, (room, room));
        assert_eq!(
            (table.ended.capacity(), table.keys.capacity()),
            (room, room)
        );
        let total: usize = self.plain.iter().map(|it| it.bytes.len()).sum();
        assert_eq!((table.bytes, table.keys.len()), (total, self.plain.len()));
        for from in 0..25 {
            let range = from * PAGE..(from + 3) * PAGE;
            let all = self.plain.iter().map(|it| pages(&it.bytes));
            let first = all.filter(|it| meet(it, &range)).map(|it| it.start).min();
            assert_eq!(table.first_in_use(&range).map(|it| it.start), first);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_table_is_as_a_plain_one(steps in prop::collection::vec(step(), 1..200)) {
        let mut both = Both::new();
        for step in steps {
            both.step(step);
            both.check();
        }
        // All that was made ends, once nobody has it.
        for _ in 0..both.begun.len() {
            both.finish(false);
        }
        both.step(Step::Forget(0));
        both.step(Step::Forget(1));
        both.used.clear();
        both.take();
        assert!(both.made.values().all(|made| made.strong_count() == 0));
    }
}

/// What was watched for an entry, less what is not mapped any more.
#[test]
fn what_is_mapped_anew_is_left_alone() {
    let mut table: Table<u32> = Table::new(MOST, 1000, PAGE);
    let mut left = |bytes: Range<usize>, gone: Range<usize>, given| {
        let begun = table.begin(0, bytes, Access::REMOTE_READ).expect("room");
        table.gone(gone, given);
        table.finish(begun.slot, Arc::new(1), begun.access);
        table.take_ended().expect("it has ended").pages
    };
    let given = Given::Addresses;
    assert_eq!(left(20..100, 0..32, given), 32..112);
    assert_eq!(left(20..100, 96..160, given), 16..96);
    assert_eq!(left(20..100, 32..48, given), 16..32);
    assert!(left(20..100, 0..160, given).is_empty());
    assert_eq!(left(20..100, 0..160, Given::Pages), 16..112);
}
