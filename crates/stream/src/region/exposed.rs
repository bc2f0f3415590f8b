//! Regions of this side that peers access directly, past the stream: to whom they are offered, and
//! how they are taken back.

use std::sync::Arc;

use ripstop_engine::id::{ConnId, EpId, MrId};
use ripstop_engine::stream::Engine;
use ripstop_mem::UserBuf;
use ripstop_mem::ring::Grant;
use ripstop_os::Shareable;

use crate::region::close::MAX_CLOSE_WAIT;
use crate::state::yield_policy::YieldNow;
use crate::state::{Exposed, State};
use crate::system::System as _;
use crate::transport::direct_access::DirectAccess as _;
use crate::transport::joint_copy::JointCopy as _;
use crate::transport::link::Link as _;
use crate::transport::offer::{Lent, Offer};
use crate::transport::readiness::Readiness as _;
use crate::transport::{DirectOf, JointOf, Transport};

/// Connections that are checked in each call: is all that came by them applied?
const MAX_TOLD_CONNECTIONS: usize = 8;

impl<T: Transport> State<T> {
    /// Offers a region to all peers that may map it, now and when they connect.
    #[cold]
    pub(crate) fn expose(&mut self, region: MrId, key: u64, base: u64, part: &Shareable) {
        let Some(grant) = self.open_grant() else {
            return;
        };
        let offer = Offer {
            grant,
            key,
            base,
            memory: Lent::Part(part.clone()),
        };
        self.push_exposed(region, offer);
        for id in self.connections.ids() {
            self.offer_last(id, 1);
        }
        self.tell_applied(usize::MAX);
    }

    /// Opens a grant of a slot that no peer claims. One that was given up in an earlier region of the slot ([`State::stop_waiting_for`])
    /// may still claim it, and would be waited for in this one, too.
    pub(crate) fn open_grant(&mut self) -> Option<Grant> {
        let mut claimed = Vec::new();
        let grant = loop {
            let grant = self.readiness.open_grant();
            match grant.filter(|grant| {
                self.links_up()
                    .any(|link| DirectOf::<T>::is_claimed(link, *grant))
            }) {
                Some(grant) => claimed.push(grant),
                None => break grant,
            }
        };
        for grant in claimed {
            self.readiness.close_grant(grant);
        }
        grant
    }

    /// A region is open for those who are offered it.
    pub(crate) fn push_exposed(&mut self, region: MrId, offer: Offer) {
        let number = self.exposures;
        self.exposures += 1;
        self.exposed.push(Exposed {
            region,
            offer,
            number,
        });
    }

    /// Offers a region anew if its memory is another one now, or none.
    #[cold]
    pub(crate) fn expose_again(
        &mut self,
        region: MrId,
        key: u64,
        base: u64,
        part: Option<&Shareable>,
    ) {
        let exposed = self.exposed.iter().find(|e| e.region == region);
        let same = match (exposed.map(|e| &e.offer.memory), part) {
            (Some(Lent::Part(old)), Some(new)) => old == new,
            // Whatever is at its address.
            (Some(Lent::At { .. }) | None, None) => true,
            _ => false,
        };
        if same {
            return;
        }
        self.conceal(region);
        if let Some(part) = part {
            self.expose(region, key, base, part);
        }
    }

    /// Offers what there is to a peer that has just connected.
    #[cold]
    pub(crate) fn offer_all(&mut self, id: ConnId) {
        self.offer_last(id, usize::MAX);
    }

    fn offer_last(&mut self, id: ConnId, count: usize) {
        let Self {
            engine,
            connections,
            exposed,
            ..
        } = self;
        let Some(connection) = connections.get_mut(id) else {
            return;
        };
        let (true, Some(link)) = (connection.is_up(), &connection.link) else {
            return;
        };
        if !is_counted(engine, connection.ep) {
            let skipped = exposed.len().saturating_sub(count);
            for exposed in exposed.iter().skip(skipped) {
                if let Lent::Part(_) = exposed.offer.memory {
                    // A peer that is not told accesses the region by the stream.
                    DirectOf::<T>::offer(link, &exposed.offer);
                    connection.offered = true;
                }
            }
        }
    }

    /// Takes a region back from the peers that access it directly: waits until they have left it,
    /// for [`MAX_CLOSE_WAIT`] at most.
    pub(crate) fn conceal(&mut self, region: MrId) {
        self.withdraw(region);
        let end = T::System::now() + MAX_CLOSE_WAIT;
        while self.is_reached(region) {
            if T::System::now() >= end {
                self.stop_waiting_for(region);
                break;
            }
            self.progress();
            self.poll_all();
            T::System::yield_now();
        }
        self.forget_withdrawn(region);
    }

    /// Nobody is waited for any more that was at work in a region that is closed.
    pub(crate) fn forget_withdrawn(&mut self, region: MrId) {
        self.withdrawn
            .retain(|withdrawn| withdrawn.region != region);
        if !self.half_closed.is_empty() {
            self.release_half_closed();
        }
    }

    /// No peer begins to reach a region directly any more.
    pub(crate) fn withdraw(&mut self, region: MrId) {
        while let Some(place) = self.exposed.iter().position(|e| e.region == region) {
            let exposed = self.exposed.swap_remove(place);
            let grant = exposed.offer.grant;
            self.readiness.close_grant(grant);
            for link in self.links_up().filter(|link| !link.has_ended()) {
                DirectOf::<T>::withdraw(link, grant);
            }
            // A connection that ends before all have left the region is to be waited for, too.
            self.withdrawn.push(exposed);
        }
    }

    /// A peer did not leave a region in time: it is not waited for any longer.
    #[cold]
    pub(crate) fn stop_waiting_for(&self, region: MrId) {
        let closing = self.withdrawn.iter();
        closing
            .filter(|withdrawn| withdrawn.region == region)
            .for_each(|withdrawn| withdrawn.offer.abandon());
        log_warn!(
            T::EpData,
            "a peer that reaches a region directly did not leave it within {MAX_CLOSE_WAIT:?}: it may \
             still write there"
        );
    }

    /// Whether a peer that lives is at work in a region that is closing, also one whose connection is closed.
    pub(crate) fn is_reached(&self, region: MrId) -> bool {
        let mut offered = self.withdrawn.iter().filter(|w| w.region == region);
        offered.any(|withdrawn| {
            let grant = withdrawn.offer.grant;
            let half_closed = self.half_closed.iter();
            let half_closed = half_closed.filter_map(|closed| closed.reaching(withdrawn));
            self.links_up().chain(half_closed).any(|link| {
                DirectOf::<T>::is_claimed(link, grant) && !DirectOf::<T>::peer_has_left(link)
            })
        })
    }

    /// The links of connections that are up.
    fn links_up(&self) -> impl Iterator<Item = &Arc<T::Link>> {
        let connections = self.connections.iter();
        let up = connections.filter(|connection| connection.is_up());
        up.filter_map(|connection| connection.link.as_ref())
    }

    /// Helps peers that reach what this side has exposed, and tells them that all they have sent is applied, where
    /// it is, so that they may reach it; some of the peers, in turn.
    #[cold]
    pub(crate) fn tell_applied(&mut self, most: usize) {
        let count = self.connections.places();
        // Where threads share a processor, this side has none to spare.
        let may_help = JointOf::<T>::SUPPORTED && !self.yield_policy.is_crowded();
        // Place 0 is nobody's.
        for _ in 1..count.min(most.saturating_add(1)) {
            self.last_told = match self.last_told + 1 {
                next if next < count => next,
                _ => 1,
            };
            let id = ConnId::new(self.last_told as u32);
            let Some(connection) = self.connections.find(id) else {
                continue;
            };
            if let (true, Some(link)) = (may_help, &connection.link) {
                self.help_access(link);
            }
            if let Some(link) = &connection.link
                && connection.leftover.is_empty()
                && connection.interest.read
                && self.engine.rx_is_settled(id)
            {
                DirectOf::<T>::tell_applied(link);
            }
        }
    }

    /// What to do now that a yield is due. Peers may be among those that run meanwhile: they see on
    /// the status page that this side polls, and leave its exposed memory to it.
    pub(crate) fn next_yield(&mut self) -> YieldNow {
        let yields = self.yield_policy.next_yield();
        if yields != YieldNow::No {
            self.have_polled();
        }
        yields
    }

    /// As [`State::tell_applied`], after a look at what has come.
    #[inline]
    pub(crate) fn have_polled(&mut self) {
        if DirectOf::<T>::SUPPORTED {
            self.readiness.have_polled();
            if !self.exposed.is_empty() {
                self.tell_applied(MAX_TOLD_CONNECTIONS);
            }
        }
    }
}

/// Whether what peers do at an endpoint's memory is to be counted.
pub(crate) fn is_counted(engine: &Engine<UserBuf>, ep: EpId) -> bool {
    engine
        .ep(ep)
        .is_none_or(|ep| ep.remote_write_counter.is_some() || ep.remote_read_counter.is_some())
}
