//! What is kept of operations until it is written: the newest so many.

use std::collections::VecDeque;

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

/// The newest records.
#[derive(Debug)]
pub(super) struct Ring {
    records: VecDeque<Record>,
    room: usize,
    /// How many older ones were dropped.
    pub(super) dropped: u64,
}

impl Ring {
    pub(super) const fn new(room: usize) -> Self {
        let records = VecDeque::new();
        Self {
            records,
            room,
            dropped: 0,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, record: Record) {
        if self.records.len() >= self.room {
            self.records.pop_front();
            self.dropped += 1;
        }
        self.records.push_back(record);
    }

    pub(super) fn take(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stay() {
        static CALL: CallInfo = CallInfo {
            name: "fi_send",
            kind: None,
        };
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
