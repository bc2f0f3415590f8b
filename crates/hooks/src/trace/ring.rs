//! What is kept of operations until it is written: the newest so many.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;

use crate::call::CallInfo;
use crate::call_cell::CallCell;
use crate::counting::{Threads, take_number};

/// How an operation ended, as far as the hook has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Its completion was read at this moment.
    Completed(u64),
    /// Its completion in error was.
    Failed(u64),
    /// No completion of its own follows: it is injected, or has no queue or no context to be found by.
    Unseen,
    /// It is under way when the trace is written.
    Pending,
    /// It was not accepted, and the one before it on this endpoint was.
    Refused(isize),
}

impl End {
    /// As two numbers, of which the first says which one it is.
    #[inline(always)]
    const fn to_numbers(self) -> [u64; 2] {
        match self {
            Self::Completed(at) => [0, at],
            Self::Failed(at) => [1, at],
            Self::Unseen => [2, 0],
            Self::Pending => [3, 0],
            Self::Refused(code) => [4, code as u64],
        }
    }

    const fn from_numbers(numbers: [u64; 2]) -> Self {
        match numbers {
            [0, at] => Self::Completed(at),
            [1, at] => Self::Failed(at),
            [2, _] => Self::Unseen,
            [3, _] => Self::Pending,
            [_, code] => Self::Refused(code as isize),
        }
    }
}

/// An operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) call: &'static CallInfo,
    /// The number of the endpoint.
    pub(super) endpoint: u64,
    /// When it was posted, by `clock::counter`.
    pub(super) start: u64,
    pub(super) end: End,
    pub(super) bytes: u64,
    pub(super) peer: u64,
    pub(super) tag: u64,
}

/// The place of a record. A cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Place {
    /// Null where nothing was stored yet.
    call: CallCell,
    numbers: [AtomicU64; 7],
}

impl Place {
    #[inline(always)]
    fn store(&self, record: &Record) {
        let [end, at] = record.end.to_numbers();
        let Record {
            endpoint,
            start,
            bytes,
            peer,
            tag,
            ..
        } = *record;
        let numbers = [endpoint, start, end, at, bytes, peer, tag];
        for (place, number) in self.numbers.iter().zip(numbers) {
            place.store(number, Ordering::Relaxed);
        }
        self.call.store(record.call, Ordering::Release);
    }

    fn load(&self) -> Option<Record> {
        let call = self.call.load(Ordering::Acquire)?;
        let numbers = self.numbers.each_ref();
        let numbers = numbers.map(|number| number.load(Ordering::Relaxed));
        let [endpoint, start, end, at, bytes, peer, tag] = numbers;
        Some(Record {
            call,
            endpoint,
            start,
            end: End::from_numbers([end, at]),
            bytes,
            peer,
            tag,
        })
    }
}

/// The newest records. Nothing here waits for another thread: a lock takes as long as the rest of a record.
#[derive(Debug)]
pub(super) struct Ring {
    /// A power of two of them, made with the first record: a page that is touched first costs more
    /// than ten records.
    places: OnceLock<Box<[Place]>>,
    /// How many of the newest records are kept.
    room: usize,
    /// How many records were pushed.
    pushed: AtomicUsize,
    threads: Threads,
}

impl Ring {
    pub(super) const fn new(room: usize, threads: Threads) -> Self {
        Self {
            places: OnceLock::new(),
            room,
            pushed: AtomicUsize::new(0),
            threads,
        }
    }

    #[inline(always)]
    pub(super) fn push(&self, record: &Record) {
        let places = self.places.get_or_init(|| self.places());
        let number = take_number(&self.pushed, self.threads);
        if let Some(place) = places.get(number & (places.len() - 1)) {
            place.store(record);
        }
    }

    #[cold]
    fn places(&self) -> Box<[Place]> {
        let count = self.room.next_power_of_two();
        (0..count).map(|_| Place::default()).collect()
    }

    /// The records, oldest first. Of one that another thread pushes at this moment, parts may be those
    /// of the record that it replaces.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> {
        let places = self.places.get().map(|places| &places[..]);
        let places = places.unwrap_or_default();
        let numbers = self.dropped()..self.pushed.load(Ordering::Relaxed);
        numbers.filter_map(|number| places.get(number & (places.len() - 1))?.load())
    }

    /// How many older ones were dropped.
    pub(super) fn dropped(&self) -> usize {
        let pushed = self.pushed.load(Ordering::Relaxed);
        pushed.saturating_sub(self.room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static CALL: CallInfo = CallInfo::new("fi_send", None);

    fn record(start: u64, end: End) -> Record {
        Record {
            call: &CALL,
            endpoint: 1,
            start,
            end,
            bytes: 2,
            peer: 3,
            tag: 4,
        }
    }

    #[test]
    fn the_newest_stay() {
        for threads in [Threads::One, Threads::Several] {
            let ring = Ring::new(3, threads);
            for start in 0..10 {
                ring.push(&record(start, End::Unseen));
            }
            assert_eq!(ring.dropped(), 7);
            let starts: Vec<u64> = ring.records().map(|record| record.start).collect();
            assert_eq!(starts, [7, 8, 9]);
        }
    }

    #[test]
    fn records_come_back_as_they_were() {
        let ring = Ring::new(8, Threads::One);
        let ends = [
            End::Completed(7),
            End::Failed(8),
            End::Unseen,
            End::Pending,
            End::Refused(-11),
        ];
        for end in ends {
            ring.push(&record(5, end));
        }
        let found: Vec<Record> = ring.records().collect();
        let found_ends: Vec<End> = found.iter().map(|record| record.end).collect();
        assert_eq!(found_ends, ends);
        let Record {
            call,
            endpoint,
            start,
            bytes,
            peer,
            tag,
            ..
        } = found[0];
        assert_eq!((endpoint, start, bytes, peer, tag), (1, 5, 2, 3, 4));
        assert!(core::ptr::eq(call, &CALL));
        assert_eq!(ring.dropped(), 0);
    }

    #[test]
    fn threads_push_without_a_loss() {
        let ring = Ring::new(1 << 10, Threads::Several);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let ring = &ring;
                scope.spawn(move || {
                    for each in 0..256 {
                        ring.push(&record(thread << 8 | each, End::Unseen));
                    }
                });
            }
        });
        let mut starts: Vec<u64> = ring.records().map(|record| record.start).collect();
        starts.sort_unstable();
        assert_eq!(starts, (0..1 << 10).collect::<Vec<u64>>());
    }
}
