//! Cross-memory attach: direct access to memory of a peer that cannot be mapped, by its address
//! (`process_vm_readv(2)`). It serves large operations where it is faster than the stream, or the owner
//! computes or has no processor.
//!
//! Order and the end of a region are kept as in [`direct`](crate::region::direct). A region is offered only
//! to a peer that asks for it: programs register far more memory than a status page has slots.

use ripstop_engine::id::{ConnId, EpId, MrId};
use ripstop_engine::stream::{Rma, RmaKind};
use ripstop_mem::UserBuf;
use ripstop_types::FiAddr;

use crate::region::direct::sole_place;
use crate::region::exposed::is_counted;
use crate::state::{Exposed, State};
use crate::transport::direct_access::{Attached, DirectAccess as _};
use crate::transport::offer::{Lent, Offer};
use crate::transport::readiness::Readiness as _;
use crate::transport::{DirectOf, Transport};

/// The shortest operation in bytes: it takes a system call or two.
const MIN_ATTACH_BYTES: u64 = 16 << 10;

/// Operations that go by the stream after the peer was seen to make progress, before that is checked
/// again.
const STREAM_OPS: u32 = 7;

/// How often progress is made until all that was sent before is applied, by an operation for which attach
/// is faster: once for each of these bytes of it and of what is not sent yet, and [`MIN_SETTLE_POLLS`]
/// times more. After an owner that did not poll meanwhile, [`UNSETTLED_OPS`] operations do not wait.
const BYTES_PER_SETTLE_POLL: u64 = 64;
const MIN_SETTLE_POLLS: u64 = 1024;
const UNSETTLED_OPS: u32 = 63;

// The owner.
impl<T: Transport> State<T> {
    /// Offers a peer the regions of these keys by their address, where that may be. Of others it
    /// hears nothing.
    #[cold]
    pub(crate) fn lend(&mut self, id: ConnId, keys: &[u64]) {
        if !T::uses_attach(&self.params) {
            return;
        }
        for key in keys {
            let region = self.exposed_by_address(*key);
            let exposed = region.and_then(|region| {
                let mut exposed = self.exposed.iter();
                exposed.find(|exposed| exposed.region == region)
            });
            let (Some(exposed), Some(connection)) = (exposed, self.connections.get(id)) else {
                continue;
            };
            if let (true, Some(link)) = (connection.is_up(), &connection.link)
                && !is_counted(&self.engine, connection.ep)
            {
                DirectOf::<T>::offer(link, &exposed.offer);
            }
        }
        self.tell_applied(usize::MAX);
    }

    /// The region of a key, once it is exposed; `None` where it is not, or is for peers to map.
    fn exposed_by_address(&mut self, key: u64) -> Option<MrId> {
        let (region, mr) = self.engine.mr_named(key)?;
        let memory = mr.whole()?;
        let (addr, len) = (memory.addr() as u64, memory.len() as u64);
        if len < MIN_ATTACH_BYTES || mr.counter.is_some() {
            return None;
        }
        if let Some(exposed) = self.exposed.iter().find(|e| e.region == region) {
            return matches!(exposed.offer.memory, Lent::At { .. }).then_some(region);
        }
        let memory = Lent::At {
            addr,
            len,
            read: mr.access.read,
            write: mr.access.write,
        };
        let base = mr.base;
        // Where no slot is free, peers access the region by the stream.
        let offer = Offer {
            grant: self.readiness.open_grant()?,
            key,
            base,
            memory,
        };
        self.exposed.push(Exposed { region, offer });
        Some(region)
    }
}

// The initiator.
impl<T: Transport> State<T> {
    /// Carries out a large read or write in the memory of a peer that does not poll; `false` says
    /// that it is to go by the stream.
    #[inline]
    pub(crate) fn rma_attached(&mut self, ep: EpId, peer: FiAddr, rma: &Rma<UserBuf>) -> bool {
        DirectOf::<T>::SUPPORTED
            && rma.iov.len() >= MIN_ATTACH_BYTES
            && self.attach_for(ep, peer, rma).is_some()
    }

    #[inline(never)]
    fn attach_for(&mut self, ep: EpId, peer: FiAddr, rma: &Rma<UserBuf>) -> Option<()> {
        if self.ops_before_attach > 0 {
            self.ops_before_attach -= 1;
            return None;
        }
        let place = sole_place(rma)?;
        let id = self.eps.get(ep)?.route(peer)?;
        let (write, segments) = (rma.kind == RmaKind::Write, rma.iov.segments());
        let crowd = self.yield_policy.is_crowded();
        let unsent = self.engine.conn(id).map_or(0, |conn| conn.unsent());
        for _ in 0..MIN_SETTLE_POLLS + (unsent + place.len) / BYTES_PER_SETTLE_POLL {
            let connection = self.connections.get(id)?;
            let link = connection.link.as_ref().filter(|_| connection.is_up())?;
            let outcome = match self.engine.is_settled(Some(id)) {
                true => DirectOf::<T>::attach(link, &place, write, segments, crowd),
                false if DirectOf::<T>::prefers_attach(link, &place, write) => Attached::Unapplied,
                false => Attached::UseStream,
            };
            match outcome {
                Attached::Done => {
                    self.report_direct_rma(id, rma, place.len);
                    return Some(());
                }
                Attached::UseStream => return None,
                Attached::PeerPolling => {
                    self.ops_before_attach = STREAM_OPS;
                    return None;
                }
                Attached::Unapplied if self.ops_before_settling > 0 => {
                    self.ops_before_settling -= 1;
                    return None;
                }
                Attached::Unapplied if self.works.busy => return None,
                Attached::Unapplied => self.progress(),
            }
            std::hint::spin_loop();
        }
        self.ops_before_settling = UNSETTLED_OPS;
        None
    }
}
