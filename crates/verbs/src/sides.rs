//! The requests of both sides of an endpoint that the device has, or will have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use ripstop_ibverbs::{CmId, Qp};
use ripstop_types::Errno;

use crate::batch::{self, Batch, Waits};
use crate::connection::Connection;
use crate::counter::Counting;
use crate::cq::Cq;
use crate::queue::{Posted, Queue, Receives};
use crate::regions::Hit;

/// Set in the number of a request that is a receive.
pub(crate) const RECEIVE: u64 = 1 << 63;

/// What an endpoint and its queues share: the requests that the device has.
pub(crate) struct Sides {
    pub(crate) tx: Mutex<Side<batch::Send>>,
    pub(crate) rx: Mutex<Side<batch::Receive>>,
    pub(crate) id: Arc<CmId>,
    pub(crate) connection: Arc<Connection>,
    pub(crate) counting: Counting,
    /// The context that has the receives, and whether only those are told that ask for it.
    pub(crate) srx: Option<Arc<dyn Receives>>,
    pub(crate) rx_selective: bool,
    /// Set once a request has failed, and the connection with it.
    pub(crate) broken: AtomicBool,
}

/// The requests of one side.
pub(crate) struct Side<T> {
    pub(crate) queue: Queue,
    pub(crate) hit: Hit,
    /// The last requests of the queue that the device does not have yet.
    pub(crate) batch: Batch<T>,
    /// Until the endpoint closes.
    pub(crate) qp: Option<Arc<Qp>>,
}

impl<T: Waits> Side<T> {
    /// The side of a queue pair that reports to `cq`.
    pub(crate) fn new(capacity: usize, cq: &Cq, qp: &Arc<Qp>) -> Self {
        Self {
            queue: Queue::new(capacity),
            hit: Hit::default(),
            batch: Batch::new(&cq.batches),
            qp: Some(Arc::clone(qp)),
        }
    }

    /// Gives what waits to the device.
    ///
    /// # Errors
    /// The requests that it did not take, oldest first, and why.
    pub(crate) fn flush(&mut self) -> core::result::Result<(), (Vec<Posted>, Errno)> {
        let Some(qp) = &self.qp else { return Ok(()) };
        let posted = self.batch.post(qp);
        posted.map_err(|(count, errno)| (self.queue.take_back(count), errno))
    }

    /// The endpoint closes: the queue pair is no longer used from here.
    pub(crate) fn close(&mut self) {
        self.batch.clear();
        self.qp = None;
    }
}

impl Sides {
    /// Whether the queue pair does not look at receives any more.
    pub(crate) fn is_deaf(&self) -> bool {
        self.connection.has_ended() || self.broken.load(Ordering::Acquire)
    }

    /// Gives what waits to the device, of the sides that report to the queue with this count; what fails.
    pub(crate) fn flush(&self, batches: &Arc<AtomicUsize>) -> Vec<(Posted, Errno)> {
        let mut failed = Vec::new();
        let mut tell = |(requests, errno): (Vec<Posted>, Errno)| {
            failed.extend(requests.into_iter().map(|posted| (posted, errno)));
        };
        let mut tx = self.tx.lock();
        if tx.batch.is_of(batches) && !tx.batch.is_empty() {
            tx.flush().unwrap_or_else(&mut tell);
        }
        drop(tx);
        let mut rx = self.rx.lock();
        if rx.batch.is_of(batches) && !rx.batch.is_empty() {
            if self.is_deaf() {
                let count = rx.batch.clear();
                tell((rx.queue.take_back(count), Errno::ENOTCONN));
            } else {
                rx.flush().unwrap_or_else(tell);
            }
        }
        failed
    }

    /// The request that a completion is of, and how many requests have ended with it whose room is free.
    pub(crate) fn end(&self, number: u64) -> Option<(Posted, usize)> {
        let (is_receive, number) = (number & RECEIVE != 0, number & !RECEIVE);
        match (&self.srx, is_receive) {
            (Some(srx), true) => {
                let mut posted = srx.end(number)?;
                posted.reported |= !self.rx_selective;
                // It has given the room back everywhere.
                Some((posted, 0))
            }
            (None, true) => self.rx.lock().queue.end(number),
            (_, false) => self.tx.lock().queue.end(number),
        }
    }
}

/// The number that the device gets for a receive.
pub(crate) const fn receive(number: u64) -> u64 {
    number | RECEIVE
}
