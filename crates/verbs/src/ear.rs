//! What an endpoint hears of its device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ripstop_os::clock;
use ripstop_types::Errno;

use crate::counter::Source as _;
use crate::cq::Cq;
use crate::sides::Sides;
use crate::watch::{Hears, Told, Watch};

/// Hears for an enabled endpoint what the device tells of its queue pair.
pub(crate) struct Ear {
    pub(crate) sides: Arc<Sides>,
    pub(crate) tx_cq: Arc<Cq>,
    pub(crate) rx_cq: Arc<Cq>,
    /// The queue pair takes no more shared receives.
    has_last: AtomicBool,
}

impl Ear {
    pub(crate) fn new(sides: &Arc<Sides>, tx_cq: &Arc<Cq>, rx_cq: &Arc<Cq>) -> Arc<Self> {
        Arc::new(Self {
            sides: Arc::clone(sides),
            tx_cq: Arc::clone(tx_cq),
            rx_cq: Arc::clone(rx_cq),
            has_last: AtomicBool::new(false),
        })
    }
}

/// How long a device may take to say that it takes no more receives. Some never say it.
const LAST_RECEIVE: Duration = Duration::from_millis(10);

/// Between two looks at what it says.
const PAUSE: Duration = Duration::from_micros(50);

impl Ear {
    /// The queue pair, which receives from a shared context, is about to be destroyed: ends the receive that it has
    /// begun to fill, which is lost otherwise.
    pub(crate) fn end_shared(&self, watch: &Watch) {
        let end = clock::now() + LAST_RECEIVE;
        while !self.has_last.load(Ordering::Acquire) && clock::now() < end {
            watch.progress();
            std::thread::sleep(PAUSE);
        }
        self.rx_cq.progress();
    }
}

impl Hears for Ear {
    fn told(&self, what: Told, device: &str) {
        match what {
            Told::LastReceive => self.has_last.store(true, Ordering::Release),
            Told::Failed => {
                if !self.sides.broken.swap(true, Ordering::AcqRel) {
                    self.sides.break_off("its queue pair has failed");
                }
            }
            Told::Gone => {
                self.sides.lose(device);
                self.tx_cq.abandon(&self.sides, Errno::ENODEV);
                if !Arc::ptr_eq(&self.tx_cq, &self.rx_cq) {
                    self.rx_cq.abandon(&self.sides, Errno::ENODEV);
                }
            }
        }
    }
}
