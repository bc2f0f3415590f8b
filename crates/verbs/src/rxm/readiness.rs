//! Which links of a domain are ready: their completion queues are polled.

use std::sync::Arc;

use ripstop_os::Interest;
use ripstop_stream::{ConnId, Readiness, ReadyLink};
use ripstop_types::Result;

use crate::rxm::link::RdmaLink;

/// Links that an idle poll of the active link visits, in turn.
const LINKS_PER_IDLE_POLL: usize = 4;

/// A link, and what the domain waits for on it.
#[derive(Debug)]
struct PolledLink {
    id: ConnId,
    interest: Interest,
    link: Arc<RdmaLink>,
}

impl PolledLink {
    fn ready(&self) -> Option<ReadyLink> {
        let what = self.link.ready(self.interest);
        (what.read || what.write).then_some(ReadyLink { id: self.id, what })
    }
}

/// The links of one domain. Used under its lock.
#[derive(Debug, Default)]
pub struct RdmaReadiness {
    links: Vec<PolledLink>,
    /// The one that was visited last.
    next: usize,
    /// Links that wait for room.
    awaiting_room: usize,
}

impl RdmaReadiness {
    fn index_of(&self, id: ConnId) -> Option<usize> {
        self.links.iter().position(|link| link.id == id)
    }
}

impl Readiness<RdmaLink> for RdmaReadiness {
    const POLLS_LINKS: bool = true;

    fn open() -> Result<Self> {
        Ok(Self::default())
    }

    fn add(&mut self, id: ConnId, link: &Arc<RdmaLink>) {
        self.links.push(PolledLink {
            id,
            interest: Interest::READ,
            link: Arc::clone(link),
        });
    }

    fn modify(&mut self, id: ConnId, interest: Interest) {
        if let Some(index) = self.index_of(id)
            && let Some(link) = self.links.get_mut(index)
        {
            self.awaiting_room -= usize::from(link.interest.write);
            self.awaiting_room += usize::from(interest.write);
            link.interest = interest;
        }
    }

    fn remove(&mut self, id: ConnId) {
        if let Some(index) = self.index_of(id) {
            let gone = self.links.swap_remove(index);
            self.awaiting_room -= usize::from(gone.interest.write);
        }
    }

    fn is_due(&mut self) -> bool {
        // A single link is the active one, which the caller has just read.
        if self.links.len() <= 1 && self.awaiting_room == 0 {
            return false;
        }
        for _ in 0..LINKS_PER_IDLE_POLL.min(self.links.len()) {
            self.next = (self.next + 1) % self.links.len();
            if self.links[self.next].ready().is_some() {
                return true;
            }
        }
        false
    }

    fn poll(&mut self, ready: &mut Vec<ReadyLink>) {
        ready.extend(self.links.iter().filter_map(PolledLink::ready));
    }

    fn arm(&mut self) -> bool {
        for link in &self.links {
            link.link.arm();
        }
        self.links.iter().any(|link| link.ready().is_some())
    }

    fn disarm(&mut self) {}
}
