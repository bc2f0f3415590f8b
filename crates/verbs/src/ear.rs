//! What an endpoint hears of its device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ripstop_types::Errno;

use crate::cq::Cq;
use crate::sides::Sides;
use crate::watch::{Hears, Told};

/// Hears for an enabled endpoint what the device tells of its queue pair.
pub(crate) struct Ear {
    pub(crate) sides: Arc<Sides>,
    pub(crate) tx_cq: Arc<Cq>,
    pub(crate) rx_cq: Arc<Cq>,
}

impl Ear {
    pub(crate) fn new(sides: &Arc<Sides>, tx_cq: &Arc<Cq>, rx_cq: &Arc<Cq>) -> Arc<Self> {
        Arc::new(Self {
            sides: Arc::clone(sides),
            tx_cq: Arc::clone(tx_cq),
            rx_cq: Arc::clone(rx_cq),
        })
    }
}

impl Hears for Ear {
    fn told(&self, what: Told, device: &str) {
        match what {
            Told::LastReceive => {}
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
