//! Which links are ready: those of the shm provider are polled, epoll reports the others.

use std::sync::Arc;

use ripstop_core::provider::Copies;
use ripstop_mem::ring::Grant;
use ripstop_os::Interest;
use ripstop_shm::Shm;
use ripstop_stream::{ConnId, Readiness, ReadyLink, Transport};
use ripstop_types::Result;

use crate::link::{LnxLink, ShmLink};

type ShmReadiness = <Shm as Transport>::Readiness;

/// The readiness of a domain's links.
#[derive(Debug)]
pub struct LnxReadiness {
    pub(crate) shm: ShmReadiness,
}

impl Readiness<LnxLink> for LnxReadiness {
    const POLLS_LINKS: bool = <ShmReadiness as Readiness<ShmLink>>::POLLS_LINKS;
    const WATCHES_LINKS: bool = true;

    #[inline(always)]
    fn polls(link: &LnxLink) -> bool {
        link.shm().is_some()
    }

    fn open() -> Result<Self> {
        let shm = ShmReadiness::open()?;
        Ok(Self { shm })
    }

    fn add(&mut self, id: ConnId, link: &Arc<LnxLink>) {
        if let Some(link) = link.shm() {
            self.shm.add(id, link);
        }
    }

    fn modify(&mut self, id: ConnId, interest: Interest) {
        self.shm.modify(id, interest);
    }

    fn remove(&mut self, id: ConnId) {
        self.shm.remove(id);
    }

    #[inline]
    fn is_due(&mut self) -> bool {
        self.shm.is_due()
    }

    fn poll(&mut self, ready: &mut Vec<ReadyLink>) {
        self.shm.poll(ready);
    }

    fn arm(&mut self) -> bool {
        self.shm.arm()
    }

    fn disarm(&mut self) {
        self.shm.disarm();
    }

    fn open_grant(&mut self) -> Option<Grant> {
        self.shm.open_grant()
    }

    fn close_grant(&mut self, grant: Grant) {
        self.shm.close_grant(grant);
    }

    fn have_polled(&mut self) {
        self.shm.have_polled();
    }

    fn copies(&self) -> Option<Copies> {
        self.shm.copies()
    }
}
