//! The requests of both sides of an endpoint that the device has, or will have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use ripstop_core::log::Subsys;
use ripstop_core::{fi_info, fi_warn};
use ripstop_ibverbs::{AddressHandle, CmId, Qp};
use ripstop_types::Errno;

use crate::batch::{self, Batch, Waits};
use crate::connection::{Connection, Posts};
use crate::counter::Counting;
use crate::params::NAME;
use crate::queue::{Posted, Queue, Receives};
use crate::regions::Hit;

/// Set in the number of a request that is a receive.
pub(crate) const RECEIVE: u64 = 1 << 63;

/// What is behind the queue pair of an enabled endpoint.
pub(crate) enum Far {
    /// The id that connects it, and the connection.
    Connection {
        id: Arc<CmId>,
        connection: Arc<Connection>,
    },
    /// Anybody.
    Datagrams,
}

/// What an endpoint and its queues share: the requests that the device has.
pub(crate) struct Sides {
    pub(crate) tx: Mutex<Side<batch::Send>>,
    pub(crate) rx: Mutex<Side<batch::Receive>>,
    pub(crate) far: Far,
    pub(crate) counting: Counting,
    /// The context that has the receives, and whether only those are told that ask for it.
    pub(crate) srx: Option<Arc<dyn Receives>>,
    pub(crate) rx_selective: bool,
    /// Set once a request has failed, and the connection with it; of datagrams until the queue pair has begun anew.
    pub(crate) broken: AtomicBool,
    /// Set once the device is gone: it gets no request any more.
    pub(crate) lost: AtomicBool,
}

/// The requests of one side.
pub(crate) struct Side<T> {
    pub(crate) queue: Queue,
    pub(crate) hit: Hit,
    /// The last requests of the queue that the device does not have yet.
    pub(crate) batch: Batch<T>,
    /// Until the endpoint closes.
    pub(crate) qp: Option<Arc<Qp>>,
    /// Handles of peers that were removed, each with the number of the last request that may need it.
    kept: Vec<(u64, Arc<AddressHandle>)>,
}

impl<T: Waits> Side<T> {
    /// The side of a queue pair that reports to the queue with this count of batches.
    pub(crate) fn new(capacity: usize, batches: &Arc<AtomicUsize>, qp: &Arc<Qp>) -> Self {
        Self {
            queue: Queue::new(capacity),
            hit: Hit::default(),
            batch: Batch::new(batches),
            qp: Some(Arc::clone(qp)),
            kept: Vec::new(),
        }
    }

    /// Keeps the handle of a peer that was removed for as long as requests are under way there.
    pub(crate) fn keep(&mut self, handle: &Arc<AddressHandle>) {
        if let Some(newest) = self.queue.newest() {
            self.kept.push((newest, Arc::clone(handle)));
        }
    }

    fn end(&mut self, number: u64) -> Option<(Posted, usize)> {
        let ended = self.queue.end(number);
        if !self.kept.is_empty() {
            self.kept.retain(|(last, _)| *last > number);
        }
        ended
    }

    /// How many requests the device has.
    fn held(&self) -> usize {
        self.queue.len() - self.batch.len()
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

    /// Takes all requests, oldest first: the device will say nothing of them any more.
    fn take_all(&mut self) -> Vec<Posted> {
        self.batch.clear();
        self.queue.take_back(self.queue.len())
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
        match &self.far {
            Far::Connection { connection, .. } => {
                connection.has_ended() || self.broken.load(Ordering::Acquire)
            }
            Far::Datagrams => false,
        }
    }

    /// Whether the device is gone.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Whether the queue pair has failed and will begin anew, so that nothing can be posted meanwhile.
    #[inline]
    pub(crate) fn is_recovering(&self) -> bool {
        matches!(self.far, Far::Datagrams) && self.broken.load(Ordering::Acquire)
    }

    /// A request has failed, and nothing is sent or received any more.
    #[cold]
    pub(crate) fn break_off(&self, why: &str) {
        self.await_posts();
        let (what, ended) = match &self.far {
            Far::Connection { id, .. } => {
                let peer = id.peer_addr().map(|addr| addr.to_string());
                let peer = peer.unwrap_or_else(|| "its peer".to_owned());
                // The queue pair works no more, and the peer has to be told.
                (format!("the connection with {peer}"), id.disconnect())
            }
            Far::Datagrams => {
                // What is posted until then fails; some devices do not look at receives that come later.
                let (tx, _rx) = (self.tx.lock(), self.rx.lock());
                let ended = tx.qp.as_ref().map_or(Ok(()), |qp| qp.fail());
                ("a datagram endpoint".to_owned(), ended)
            }
        };
        fi_warn!(NAME, Subsys::EpData, "{what} fails: {why}");
        if let Err(error) = ended {
            fi_info!(NAME, Subsys::EpCtrl, "{what} is gone already: {error}");
        }
    }

    /// The device is gone: it gets no more requests, and ends those it has, as far as it still can.
    pub(crate) fn lose(&self, device: &str) {
        self.lost.store(true, Ordering::Release);
        match &self.far {
            Far::Connection { connection, .. } => connection.lose_device(device),
            Far::Datagrams => {
                let (tx, _rx) = (self.tx.lock(), self.rx.lock());
                let failed = tx.qp.as_ref().map_or(Ok(()), |qp| qp.fail());
                if let Err(error) = failed {
                    fi_info!(
                        NAME,
                        Subsys::EpCtrl,
                        "a datagram endpoint is gone already: {error}"
                    );
                }
            }
        }
    }

    /// What a lost device has not ended, of the sides that report to the queue with this count.
    pub(crate) fn abandoned(&self, batches: &Arc<AtomicUsize>) -> Vec<Posted> {
        let mut left = Vec::new();
        let mut tx = self.tx.lock();
        if tx.batch.is_of(batches) {
            left.append(&mut tx.take_all());
        }
        drop(tx);
        let mut rx = self.rx.lock();
        if rx.batch.is_of(batches) {
            left.append(&mut rx.take_all());
        }
        left
    }

    /// A request of datagrams has failed: the others follow, and the queue pair begins anew once the device has none.
    #[cold]
    pub(crate) fn recover(&self) {
        let (tx, rx) = (self.tx.lock(), self.rx.lock());
        let Some(qp) = tx.qp.as_ref().filter(|_| self.is_recovering()) else {
            return;
        };
        if self.is_lost() {
            return;
        }
        if tx.held() > 0 || rx.held() > 0 {
            return;
        }
        if let Err(error) = qp.restart() {
            fi_warn!(
                NAME,
                Subsys::EpCtrl,
                "a datagram endpoint cannot be used any more: {error}; close it"
            );
        }
        self.broken.store(false, Ordering::Release);
    }

    /// Gives what waits to the device, of the sides that report to the queue with this count; what fails.
    pub(crate) fn flush(&self, batches: &Arc<AtomicUsize>) -> Vec<(Posted, Errno)> {
        let mut failed = Vec::new();
        if self.is_recovering() {
            return failed;
        }
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
            (_, false) => self.tx.lock().end(number),
        }
    }
}

impl Posts for Sides {
    /// Who posts receives looks at [`is_deaf`](Sides::is_deaf) under the same lock.
    fn await_posts(&self) {
        drop(self.rx.lock());
    }
}

/// The number that the device gets for a receive.
pub(crate) const fn receive(number: u64) -> u64 {
    number | RECEIVE
}
