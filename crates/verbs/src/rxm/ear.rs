//! What connections and listeners hear of their device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ripstop_types::Errno;

use crate::watch::{Hears, Told};

/// Hears for a queue pair and its completion queue. Threads that sleep are woken by the device's watch.
#[derive(Debug, Default)]
pub(crate) struct Ear(AtomicU8);

const FAILED: u8 = 1;
const GONE: u8 = 2;

impl Ear {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Why the connection has ended, if the device has said so.
    #[inline]
    pub(crate) fn heard(&self) -> Option<Errno> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            GONE => Some(Errno::ENODEV),
            _ => Some(Errno::ECONNRESET),
        }
    }

    /// The connection has heard itself that the device is gone.
    pub(crate) fn lose(&self) {
        self.0.store(GONE, Ordering::Release);
    }
}

impl Hears for Ear {
    fn told(&self, what: Told, _: &str) {
        match what {
            Told::Failed => _ = self.0.fetch_max(FAILED, Ordering::AcqRel),
            Told::Gone => self.lose(),
            Told::LastReceive => {}
        }
    }
}
