//! Requests that the device has, in the order in which they were posted, which is the order in which
//! they end.

use std::collections::VecDeque;

use ripstop_types::{Context, Flags};

/// A request that the device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Posted {
    pub(crate) context: Context,
    /// What its completion says that it was.
    pub(crate) flags: Flags,
    /// Whether its success is told to the program.
    pub(crate) reported: bool,
    /// Bytes of it, for who counts them; of a receive of datagrams the room of the program.
    pub(crate) len: usize,
}

/// Receives that endpoints share, which end in any order.
pub(crate) trait Receives: Send + Sync {
    /// The receive with this number has ended; its room is free.
    fn end(&self, number: u64) -> Option<Posted>;
}

/// The requests of one side of a queue pair. Their numbers count up, so that a completion also says how
/// many requests without one have ended before it.
#[derive(Debug)]
pub(crate) struct Queue {
    requests: VecDeque<Posted>,
    /// The number of the oldest request.
    oldest: u64,
    capacity: usize,
    /// Requests since the last one that the device tells the success of.
    silent: usize,
}

impl Queue {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            requests: VecDeque::new(),
            oldest: 0,
            capacity,
            silent: 0,
        }
    }

    /// The number for the next request, if there is room for it.
    pub(crate) fn next(&mut self) -> Option<u64> {
        let len = self.requests.len();
        let has_room = len < self.capacity && self.requests.try_reserve(1).is_ok();
        has_room.then(|| self.oldest.wrapping_add(len as u64))
    }

    /// Whether the device must tell the success of the next request, although nobody else wants to know:
    /// otherwise nobody would find out that the queue has room again.
    pub(crate) fn is_signal_due(&self) -> bool {
        self.silent + 1 >= self.capacity.div_ceil(4)
    }

    /// A request with the number that [`Queue::next`] gave has been posted; `signaled` if the device
    /// tells its success.
    pub(crate) fn push(&mut self, posted: Posted, signaled: bool) {
        self.requests.push_back(posted);
        self.silent = if signaled { 0 } else { self.silent + 1 };
    }

    /// The request with this number has ended, and all before it, in success if they have not said
    /// otherwise. Gives it, and how many those are in all.
    pub(crate) fn end(&mut self, number: u64) -> Option<(Posted, usize)> {
        let before = usize::try_from(number.wrapping_sub(self.oldest)).ok()?;
        if before >= self.requests.len() {
            return None;
        }
        let ended = self.requests.drain(..=before).next_back()?;
        self.oldest = number.wrapping_add(1);
        Some((ended, before + 1))
    }

    /// The last so many requests were not posted after all; gives them, oldest first.
    pub(crate) fn take_back(&mut self, count: usize) -> Vec<Posted> {
        let at = self.requests.len().saturating_sub(count);
        // Which of them would have been told is not known any more: the next one is.
        self.silent = self.capacity;
        self.requests.split_off(at).into()
    }

    /// The number of the request that was posted last, while there is any.
    pub(crate) fn newest(&self) -> Option<u64> {
        let before = self.requests.len().checked_sub(1)?;
        Some(self.oldest.wrapping_add(before as u64))
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(context: Context) -> Posted {
        Posted {
            context,
            flags: Flags::SEND,
            reported: true,
            len: 0,
        }
    }

    #[test]
    fn a_completion_ends_what_was_posted_before() {
        let mut queue = Queue::new(4);
        for context in 0..4 {
            let number = queue.next().expect("room");
            assert_eq!(number, context as u64);
            queue.push(posted(context), true);
        }
        assert_eq!((queue.next(), queue.newest()), (None, Some(3)));
        assert_eq!(queue.end(4), None);
        assert_eq!(queue.end(2), Some((posted(2), 3)));
        assert_eq!(queue.end(2), None);
        assert_eq!(queue.next(), Some(4));
        assert_eq!(queue.end(3), Some((posted(3), 1)));
        assert_eq!((queue.len(), queue.newest()), (0, None));
    }

    #[test]
    fn the_last_requests_can_be_taken_back() {
        let mut queue = Queue::new(8);
        for context in 0..5 {
            queue.next().expect("room");
            queue.push(posted(context), true);
        }
        assert_eq!(queue.take_back(2), [posted(3), posted(4)]);
        assert!(queue.is_signal_due());
        assert_eq!(queue.next(), Some(3));
        assert_eq!(queue.end(2), Some((posted(2), 3)));
        assert_eq!(queue.take_back(9), []);
    }

    #[test]
    fn a_signal_is_due_before_the_queue_is_full_of_silent_requests() {
        let mut queue = Queue::new(8);
        assert!(!queue.is_signal_due());
        queue.push(posted(0), false);
        assert!(queue.is_signal_due());
        queue.push(posted(1), true);
        assert!(!queue.is_signal_due());
        assert!(Queue::new(1).is_signal_due());
    }
}
