//! Operations that wait until a counter reaches a threshold (man page `fi_trigger(3)`).
//!
//! A [`Queue`] says whose turn it is; what the operations are, and how they are started, is the
//! driver's. Those that wait for one counter come in the order of their thresholds, and those
//! with the same threshold in the order they were queued. Operations of one lane (the sends of
//! an endpoint, say) are started in the order their turns came, also when one could not be
//! started at once.

use alloc::vec::Vec;

use ripstop_types::{Errno, Result};

use crate::counter::Counter;
use crate::id::{CounterId, LaneId, TriggeredId};
use crate::pool::{List, Pool};
use crate::ring::{Ring, try_push};

/// What counts towards a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Successes, for a triggered operation.
    Successes,
    /// Successes and errors, for deferred work.
    All,
}

/// What an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// The counter.
    pub counter: CounterId,
    /// What of it counts.
    pub basis: Basis,
    /// The least value at which the operation is started.
    pub threshold: u64,
}

impl Basis {
    /// How far a counter has come.
    #[must_use]
    pub const fn of(self, counter: &Counter) -> u64 {
        match self {
            Self::Successes => counter.value,
            Self::All => counter.value.saturating_add(counter.errors),
        }
    }
}

/// Where an operation is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// This far from the front of the heap of its counter.
    Heap(usize),
    /// Its turn came; it waits in its lane.
    Lane,
    /// Its turn is now.
    Out,
}

#[derive(Debug)]
struct Item<T> {
    when: When,
    /// Rises with every operation queued.
    order: u64,
    lane: Option<LaneId>,
    place: Place,
    op: T,
}

/// The operations that wait for one counter: a binary heap of their ids.
#[derive(Debug, Default)]
struct Heap {
    ids: Vec<TriggeredId>,
    /// It is in the list of those that are not empty.
    listed: bool,
    /// It is to be looked at.
    due: bool,
}

#[derive(Debug, Default)]
struct Lane {
    list: List<TriggeredId>,
    /// Its first operation could not be started.
    blocked: bool,
    /// It is in the list of lanes to be tried.
    listed: bool,
}

/// See the module. `T` is what the driver needs to start an operation.
#[derive(Debug)]
pub struct Queue<T> {
    items: Pool<TriggeredId, Item<T>>,
    order: u64,
    /// Two for each counter, by basis.
    heaps: Vec<Heap>,
    /// Heaps that are not empty, and some that are.
    busy: Vec<usize>,
    /// Heaps to be looked at.
    due: Ring<usize>,
    lanes: Vec<Lane>,
    /// Lanes that are not empty.
    full: Vec<LaneId>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Queue<T> {
    /// An empty queue. Memory is taken as operations come.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            items: Pool::new(),
            order: 0,
            heaps: Vec::new(),
            busy: Vec::new(),
            due: Ring::new(),
            lanes: Vec::new(),
            full: Vec::new(),
        }
    }

    /// Number of operations.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Queues an operation, in a lane unless it can always be started. All memory it will need
    /// here is taken now.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`]; nothing is queued then.
    pub fn add(&mut self, when: When, lane: Option<LaneId>, op: T) -> Result<TriggeredId> {
        let heap = heap_of(when.counter, when.basis).ok_or(Errno::ENOMEM)?;
        reach(&mut self.heaps, heap)?;
        if let Some(lane) = lane {
            reach(&mut self.lanes, lane.index())?;
            let lanes = self.lanes.len();
            reserve(&mut self.full, lanes)?;
        }
        let heaps = self.heaps.len();
        reserve(&mut self.busy, heaps)?;
        self.due.reserve(heaps, 0)?;
        let ids = &mut self.heaps.get_mut(heap).ok_or(Errno::ENOMEM)?.ids;
        ids.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.order = self.order.wrapping_add(1);
        let id = self.items.insert(Item {
            when,
            order: self.order,
            lane,
            place: Place::Out,
            op,
        })?;
        let at = ids.len();
        // There is room.
        let _ = try_push(ids, id);
        self.settle_up(heap, at, id);
        self.list(heap);
        self.look_at(heap);
        Ok(id)
    }

    /// What the driver needs to start an operation.
    #[must_use]
    pub fn get(&self, id: TriggeredId) -> Option<&T> {
        Some(&self.items.get(id)?.op)
    }

    /// The operations whose turn has not come.
    pub fn waiting(&self) -> impl Iterator<Item = (TriggeredId, When, &T)> {
        self.items.ids().filter_map(|id| {
            let item = self.items.get(id)?;
            matches!(item.place, Place::Heap(_)).then_some((id, item.when, &item.op))
        })
    }

    /// As [`Queue::get`], to be changed.
    pub fn get_mut(&mut self, id: TriggeredId) -> Option<&mut T> {
        Some(&mut self.items.get_mut(id)?.op)
    }

    /// All counters may have changed, and what could not be started may be startable now.
    pub fn retry(&mut self) {
        for lane in &self.full {
            if let Some(lane) = self.lanes.get_mut(lane.index()) {
                lane.blocked = false;
            }
        }
        self.look_everywhere();
    }

    /// All counters may have changed.
    pub fn look_everywhere(&mut self) {
        self.busy.retain(|index| {
            let Some(heap) = self.heaps.get_mut(*index) else {
                return false;
            };
            heap.listed = !heap.ids.is_empty();
            if heap.listed && !heap.due {
                // There is room for all.
                heap.due = self.due.push(*index).is_ok();
            }
            heap.listed
        });
    }

    /// A counter has changed.
    pub fn changed(&mut self, counter: CounterId) {
        for basis in [Basis::Successes, Basis::All] {
            if let Some(heap) = heap_of(counter, basis)
                && self.heaps.get(heap).is_some_and(|h| !h.ids.is_empty())
            {
                self.look_at(heap);
            }
        }
    }

    /// Whose turn it is. The driver starts it and calls [`Queue::take`], or [`Queue::hold`] if
    /// it cannot be started yet. `None` when nobody's, as far as is known: see
    /// [`Queue::changed`] and [`Queue::retry`].
    pub fn next(&mut self, counter: impl Fn(CounterId) -> Option<Counter>) -> Option<TriggeredId> {
        if let Some(id) = self.next_held() {
            return Some(id);
        }
        while let Some(heap) = self.due.front().copied() {
            let Some(id) = self.first_reached(heap, &counter) else {
                self.due.pop();
                if let Some(heap) = self.heaps.get_mut(heap) {
                    heap.due = false;
                }
                continue;
            };
            self.leave_heap(id);
            if self.enter_lane(id) {
                continue;
            }
            return Some(id);
        }
        None
    }

    /// The first of a lane that may be tried.
    fn next_held(&mut self) -> Option<TriggeredId> {
        let mut found = None;
        self.full.retain(|index| {
            let Some(lane) = self.lanes.get_mut(index.index()) else {
                return false;
            };
            if found.is_none() && !lane.blocked {
                found = lane.list.pop_front(&mut self.items);
            }
            lane.listed = !lane.list.is_empty();
            lane.listed
        });
        if let Some(item) = found.and_then(|id| self.items.get_mut(id)) {
            item.place = Place::Out;
        }
        found
    }

    /// The operation whose turn it is cannot be started yet, and neither can those of its lane
    /// whose turns come later, until [`Queue::retry`].
    pub fn hold(&mut self, id: TriggeredId) {
        let Some(item) = self.items.get_mut(id) else {
            return;
        };
        item.place = Place::Lane;
        let Some(id_of_lane) = item.lane else { return };
        let Some(lane) = self.lanes.get_mut(id_of_lane.index()) else {
            return;
        };
        lane.blocked = true;
        lane.list.push_front(&mut self.items, id);
        if !core::mem::replace(&mut lane.listed, true) {
            // There is room for all.
            let _ = try_push(&mut self.full, id_of_lane);
        }
    }

    /// Puts an operation behind others of its lane that wait; `false` when there are none.
    fn enter_lane(&mut self, id: TriggeredId) -> bool {
        if let Some(item) = self.items.get_mut(id)
            && let Some(lane) = self.lanes.get_mut(LaneId::place(item.lane))
            && !lane.list.is_empty()
        {
            item.place = Place::Lane;
            lane.list.push_back(&mut self.items, id);
            return true;
        }
        false
    }

    /// Takes an operation out, wherever it is.
    pub fn take(&mut self, id: TriggeredId) -> Option<T> {
        let item = self.items.get(id)?;
        let lane = item.lane;
        match item.place {
            Place::Heap(_) => self.leave_heap(id),
            Place::Lane => {
                if let Some(lane) = self.lanes.get_mut(LaneId::place(lane)) {
                    lane.list.take(&mut self.items, |other, _| other == id);
                }
            }
            Place::Out => {}
        }
        Some(self.items.remove(id)?.op)
    }

    /// Drops the operations for which `wanted` holds; returns how many.
    pub fn drop_each(&mut self, wanted: impl Fn(&When, &T) -> bool) -> usize {
        let before = self.len();
        for id in self.items.every_id() {
            let item = self.items.get(id);
            if item.is_some_and(|item| wanted(&item.when, &item.op)) {
                self.take(id);
            }
        }
        before.saturating_sub(self.len())
    }

    /// Whether there is an operation for which `wanted` holds.
    #[must_use]
    pub fn any(&self, wanted: impl Fn(&When, &T) -> bool) -> bool {
        self.first(wanted).is_some()
    }

    /// Of the operations for which `wanted` holds, the one that was queued first.
    #[must_use]
    pub fn first(&self, wanted: impl Fn(&When, &T) -> bool) -> Option<TriggeredId> {
        let place = |id| {
            let item = self.items.get(id)?;
            wanted(&item.when, &item.op).then_some((item.order, id))
        };
        let (_, id) = self.items.ids().filter_map(place).min()?;
        Some(id)
    }

    /// The first operation of a heap, if its threshold is reached.
    fn first_reached(
        &self,
        heap: usize,
        counter: impl Fn(CounterId) -> Option<Counter>,
    ) -> Option<TriggeredId> {
        let id = *self.heaps.get(heap)?.ids.first()?;
        let when = self.items.get(id)?.when;
        let now = when.basis.of(&counter(when.counter)?);
        (now >= when.threshold).then_some(id)
    }

    fn list(&mut self, index: usize) {
        if let Some(heap) = self.heaps.get_mut(index)
            && !core::mem::replace(&mut heap.listed, true)
        {
            // There is room for all.
            let _ = try_push(&mut self.busy, index);
        }
    }

    fn look_at(&mut self, index: usize) {
        if let Some(heap) = self.heaps.get_mut(index)
            && !heap.due
        {
            // There is room for all.
            heap.due = self.due.push(index).is_ok();
        }
    }

    /// Whether `a` comes before `b`.
    fn before(&self, a: TriggeredId, b: TriggeredId) -> bool {
        let rank = |id| {
            self.items
                .get(id)
                .map(|item| (item.when.threshold, item.order))
        };
        rank(a) < rank(b)
    }

    fn put(&mut self, heap: usize, at: usize, id: TriggeredId) {
        if let Some(place) = self.heaps.get_mut(heap).and_then(|h| h.ids.get_mut(at)) {
            *place = id;
        }
        if let Some(item) = self.items.get_mut(id) {
            item.place = Place::Heap(at);
        }
    }

    fn at(&self, heap: usize, at: usize) -> Option<TriggeredId> {
        self.heaps.get(heap)?.ids.get(at).copied()
    }

    /// Finds the place of `id`, at or before the free place `at`.
    fn settle_up(&mut self, heap: usize, mut at: usize, id: TriggeredId) {
        while let Some(above) = at.checked_sub(1).map(|below| below >> 1) {
            match self.at(heap, above) {
                Some(parent) if self.before(id, parent) => self.put(heap, at, parent),
                _ => break,
            }
            at = above;
        }
        self.put(heap, at, id);
    }

    /// Finds the place of `id`, at or behind the free place `at`.
    fn settle_down(&mut self, heap: usize, mut at: usize, id: TriggeredId) {
        loop {
            let left = at.saturating_mul(2).saturating_add(1);
            let right = left.saturating_add(1);
            let Some(mut child) = self.at(heap, left) else {
                break;
            };
            let mut below = left;
            if let Some(other) = self.at(heap, right)
                && self.before(other, child)
            {
                (child, below) = (other, right);
            }
            if !self.before(child, id) {
                break;
            }
            self.put(heap, at, child);
            at = below;
        }
        self.put(heap, at, id);
    }

    /// Takes an operation out of its heap.
    fn leave_heap(&mut self, id: TriggeredId) {
        let Some(item) = self.items.get_mut(id) else {
            return;
        };
        let (Place::Heap(at), Some(heap)) = (
            core::mem::replace(&mut item.place, Place::Out),
            heap_of(item.when.counter, item.when.basis),
        ) else {
            return;
        };
        let Some(last) = self.heaps.get_mut(heap).and_then(|h| h.ids.pop()) else {
            return;
        };
        if last == id {
            return;
        }
        // The last one fills the gap, and goes up or down from there.
        let above = at.checked_sub(1).map(|below| below >> 1);
        match above.and_then(|above| self.at(heap, above)) {
            Some(parent) if self.before(last, parent) => self.settle_up(heap, at, last),
            _ => self.settle_down(heap, at, last),
        }
    }
}

fn heap_of(counter: CounterId, basis: Basis) -> Option<usize> {
    let pair = counter.index().checked_mul(2)?;
    pair.checked_add(usize::from(basis == Basis::All))
}

/// Makes a table long enough for an index.
fn reach<T: Default>(table: &mut Vec<T>, index: usize) -> Result<()> {
    while table.len() <= index {
        try_push(table, T::default())?;
    }
    Ok(())
}

/// Makes room for `count` entries in all.
fn reserve<T>(table: &mut Vec<T>, count: usize) -> Result<()> {
    let more = count.saturating_sub(table.len());
    table.try_reserve(more).map_err(|_| Errno::ENOMEM)
}

#[cfg(test)]
mod tests;
