//! Requests that wait for those that the program posts next (`FI_MORE`), so that the device is told of all of them
//! at once.
//!
//! They have their numbers, and room in queues, as if they were posted. The next request without the flag takes
//! them along, and so does one that is injected, whose buffer is free at once. Whoever reads a completion queue,
//! waits for it or finds a queue full gives them to the device too: a program that posts no more loses nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ripstop_ibverbs::{
    AddressHandle, Destination, Operation, Qp, RecvRequest, SendFlags, SendRequest, Sge,
};
use ripstop_types::{Errno, Result};

use crate::params::IOV_MOST;
use crate::ud::Way;

/// Requests that the device is told of at once.
const MOST: usize = 32;

/// A request to send that waits.
pub(crate) struct Send {
    pub(crate) number: u64,
    pub(crate) operation: Operation,
    pub(crate) flags: SendFlags,
    /// Where a datagram goes.
    pub(crate) to: Option<To>,
}

/// A destination, with the handle that it is reached by.
pub(crate) struct To {
    pub(crate) handle: Arc<AddressHandle>,
    pub(crate) qp: u32,
    pub(crate) qkey: u32,
}

impl To {
    /// Where a way leads.
    pub(crate) fn of(way: &Way) -> Self {
        let to = way.destination();
        Self {
            handle: Arc::clone(&way.handle),
            qp: to.qp,
            qkey: to.qkey,
        }
    }

    fn destination(&self) -> Destination<'_> {
        Destination {
            handle: &self.handle,
            qp: self.qp,
            qkey: self.qkey,
        }
    }
}

/// A receive that waits.
pub(crate) struct Receive {
    pub(crate) number: u64,
}

/// What both have in common.
pub(crate) trait Waits: Sized {
    /// Posts them in this order; how many were posted, and why not the next.
    fn post(qp: &Qp, requests: &[Waiting<Self>]) -> core::result::Result<(), (usize, Errno)>;
}

/// A request with its memory.
pub(crate) struct Waiting<T> {
    request: T,
    pieces: [Sge; IOV_MOST],
    count: usize,
}

impl Waits for Send {
    fn post(qp: &Qp, requests: &[Waiting<Self>]) -> core::result::Result<(), (usize, Errno)> {
        let mut list = Vec::with_capacity(requests.len());
        for waiting in requests {
            let Self {
                number,
                operation,
                flags,
                ref to,
            } = waiting.request;
            let made = SendRequest::new(number, operation, waiting.pieces(), flags);
            let request = made.map_err(|error| (0, error))?;
            list.push(match to {
                Some(to) => request.to(to.destination()),
                None => request,
            });
        }
        qp.post_send(&mut list)
            .map_err(|error| (error.posted, error.errno))
    }
}

impl Waits for Receive {
    fn post(qp: &Qp, requests: &[Waiting<Self>]) -> core::result::Result<(), (usize, Errno)> {
        let mut list = Vec::with_capacity(requests.len());
        for waiting in requests {
            let made = RecvRequest::new(waiting.request.number, waiting.pieces());
            list.push(made.map_err(|error| (0, error))?);
        }
        qp.post_recv(&mut list)
            .map_err(|error| (error.posted, error.errno))
    }
}

impl<T> Waiting<T> {
    fn pieces(&self) -> &[Sge] {
        &self.pieces[..self.count]
    }
}

/// The requests of one side that wait.
pub(crate) struct Batch<T> {
    requests: Vec<Waiting<T>>,
    /// How many batches of a completion queue are not empty.
    waiting: Arc<AtomicUsize>,
}

impl<T: Waits> Batch<T> {
    /// Of a side that reports to the queue with this count.
    pub(crate) fn new(waiting: &Arc<AtomicUsize>) -> Self {
        Self {
            requests: Vec::new(),
            waiting: Arc::clone(waiting),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether the device has to be told now.
    pub(crate) fn is_full(&self) -> bool {
        self.requests.len() >= MOST
    }

    /// Whether it is counted there.
    pub(crate) fn is_of(&self, waiting: &Arc<AtomicUsize>) -> bool {
        Arc::ptr_eq(&self.waiting, waiting)
    }

    /// Has a request wait.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub(crate) fn push(&mut self, request: T, pieces: &[Sge]) -> Result<()> {
        let mut waiting = Waiting {
            request,
            pieces: [Sge::default(); IOV_MOST],
            count: pieces.len(),
        };
        waiting.pieces[..pieces.len()].copy_from_slice(pieces);
        self.requests.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        if self.is_empty() {
            self.waiting.fetch_add(1, Ordering::AcqRel);
        }
        self.requests.push(waiting);
        Ok(())
    }

    /// Gives all to the device.
    ///
    /// # Errors
    /// How many of the last ones it did not take, and why.
    pub(crate) fn post(&mut self, qp: &Qp) -> core::result::Result<(), (usize, Errno)> {
        let posted = T::post(qp, &self.requests);
        let count = self.clear();
        posted.map_err(|(posted, errno)| (count - posted, errno))
    }

    /// Forgets them; returns how many there were.
    pub(crate) fn clear(&mut self) -> usize {
        let count = self.requests.len();
        if count > 0 {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        }
        self.requests.clear();
        count
    }
}

impl<T> std::fmt::Debug for Batch<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({} requests)", self.requests.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_knows_which_batches_wait() {
        let waiting = Arc::new(AtomicUsize::new(0));
        let mut batches = [Batch::new(&waiting), Batch::new(&waiting)];
        let count = || waiting.load(Ordering::Relaxed);
        for number in 0..MOST as u64 {
            assert!(!batches[0].is_full());
            let pieces = [Sge::default(); 2];
            batches[0].push(Receive { number }, &pieces).expect("room");
            assert_eq!(count(), 1);
        }
        assert!(batches[0].is_full() && batches[1].is_empty());
        batches[1].push(Receive { number: 0 }, &[]).expect("room");
        assert_eq!(count(), 2);
        assert_eq!((batches[0].clear(), batches[0].clear()), (MOST, 0));
        assert_eq!(count(), 1);
        assert!(!batches[0].is_of(&Arc::default()) && batches[0].is_of(&waiting));
    }
}
