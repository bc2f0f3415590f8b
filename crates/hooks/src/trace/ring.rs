//! What is kept of operations until it is written: the newest so many.

use core::hint::cold_path;

use crate::call::CallInfo;

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

impl Record {
    /// What stands in places that were not yet used.
    const NONE: Self = {
        static NO_CALL: CallInfo = CallInfo::new("", None);
        Self {
            call: &NO_CALL,
            endpoint: 0,
            start: 0,
            end: End::Unseen,
            bytes: 0,
            peer: 0,
            tag: 0,
        }
    };
}

/// The newest records.
#[derive(Debug)]
pub(super) struct Ring {
    /// As many as there is room for, made with the first one: a page that is touched first costs more than ten
    /// records.
    records: Vec<Record>,
    room: usize,
    /// Where the next one goes.
    next: usize,
    /// How many of `records` were pushed.
    len: usize,
    /// How many older ones were dropped.
    pub(super) dropped: u64,
}

impl Ring {
    pub(super) const fn new(room: usize) -> Self {
        Self {
            records: Vec::new(),
            room,
            next: 0,
            len: 0,
            dropped: 0,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, record: Record) {
        if self.records.is_empty() {
            cold_path();
            self.records = vec![Record::NONE; self.room];
        }
        let Some(place) = self.records.get_mut(self.next) else {
            return;
        };
        *place = record;
        self.next += 1;
        if self.next == self.records.len() {
            self.next = 0;
        }
        match self.len < self.records.len() {
            true => self.len += 1,
            false => self.dropped += 1,
        }
    }

    /// The records, oldest first. What is pushed later is lost.
    pub(super) fn take(&mut self) -> Vec<Record> {
        let mut records = std::mem::take(&mut self.records);
        if self.len == records.len() {
            records.rotate_left(self.next);
        }
        records.truncate(self.len);
        (self.next, self.len, self.room) = (0, 0, 0);
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stay() {
        static CALL: CallInfo = CallInfo::new("fi_send", None);
        let mut ring = Ring::new(4);
        for start in 0..10 {
            ring.push(Record {
                call: &CALL,
                endpoint: 1,
                start,
                end: End::Unseen,
                bytes: 0,
                peer: 0,
                tag: 0,
            });
        }
        assert_eq!(ring.dropped, 6);
        let starts: Vec<u64> = ring.take().iter().map(|record| record.start).collect();
        assert_eq!(starts, [6, 7, 8, 9]);
    }
}
