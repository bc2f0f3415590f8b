//! Cross-memory attach: direct access to memory of a peer that cannot be mapped, by its address
//! (`process_vm_readv(2)`). It serves large operations where it is faster than the stream, or the owner
//! computes or has no processor. An owner that polls copies parts of long ones ([`State::help_access`]).
//!
//! Order and the end of a region are kept as in [`direct`](crate::region::direct). A region is offered only
//! to a peer that asks for it: programs register far more memory than a status page has slots.

use std::time::Duration;

use ripstop_core::provider::Copies;
use ripstop_engine::id::{ConnId, EpId, MrId};
use ripstop_engine::stream::{Level, Rma, RmaKind};
use ripstop_mem::UserBuf;
use ripstop_mem::ring::JointAccess;
use ripstop_types::FiAddr;

use crate::region::direct::sole_place;
use crate::region::exposed::is_counted;
use crate::state::{Exposed, State};
use crate::system::System as _;
use crate::transport::direct_access::{AttachState, Attached, DirectAccess as _};
use crate::transport::joint_copy::JointCopy as _;
use crate::transport::offer::{Lent, Offer};
use crate::transport::{DirectOf, JointOf, Transport};

/// The shortest operation in bytes: it takes a system call or two.
pub(crate) const MIN_ATTACH_BYTES: u64 = Copies::MIN_BYTES;

/// The shortest operation in bytes that the owner helps with: it has to see that first.
const MIN_JOINT_ACCESS_BYTES: u64 = 64 << 10;

/// Operations that go by the stream after the peer was seen to make progress, before that is checked
/// again.
const STREAM_OPS: u32 = 7;

/// How long an operation for which attach is faster makes progress until all that was sent before is
/// applied, and until the owner has answered which memory the key means: as long as something arrives at
/// least this often, and in all this long and a nanosecond more for each byte of it and of what is under
/// way. The pause is that of an owner that is itself at such an operation, and is longer by half a
/// nanosecond for each byte, as its operations are taken to be as long as this one.
const MIN_SETTLE_PAUSE: Duration = Duration::from_millis(1);
const MIN_SETTLE_TIME: Duration = Duration::from_millis(2);

/// Rounds of progress between two reads of the clock.
const ROUNDS_PER_CLOCK_READ: u32 = 16;

/// Operations that do not wait, at most, after waits that were in vain.
const MAX_UNSETTLED_OPS: u32 = 63;

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
            let (Some(exposed), Some(connection)) = (exposed, self.connections.get_mut(id)) else {
                continue;
            };
            if let (true, Some(link)) = (connection.is_up(), &connection.link)
                && !is_counted(&self.engine, connection.ep)
            {
                DirectOf::<T>::offer(link, &exposed.offer);
                connection.offered = true;
            }
        }
        self.tell_applied(usize::MAX);
    }

    /// The region of a key, once it is exposed; `None` where it is not, or is for peers to map.
    fn exposed_by_address(&mut self, key: u64) -> Option<MrId> {
        let (region, mr) = self.engine.mr_named(key)?;
        let memory = mr.whole()?;
        let (addr, len) = (memory.addr() as u64, memory.len() as u64);
        let is_closing = self.withdrawn.iter().any(|w| w.region == region);
        if len < MIN_ATTACH_BYTES || mr.counter.is_some() || is_closing {
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
            grant: self.open_grant()?,
            key,
            base,
            memory,
        };
        self.push_exposed(region, offer);
        Some(region)
    }

    /// Copies parts of what a peer reads or writes in memory of this side, if it is at that now.
    #[inline]
    pub(crate) fn help_access(&self, link: &T::Link) {
        if let Some(access) = JointOf::<T>::asked_access(link) {
            self.help_with(link, access);
        }
    }

    /// The peer's word for what it reads or writes is not taken: the region must be one that was offered, with that right.
    #[cold]
    fn help_with(&self, link: &T::Link, access: JointAccess) -> Option<()> {
        let grant = access.grant?;
        let Exposed { region, offer, .. } = self.exposed.iter().find(|e| e.offer.grant == grant)?;
        let Lent::At {
            addr, read, write, ..
        } = offer.memory
        else {
            return None;
        };
        let may = match access.write {
            true => write,
            false => read,
        };
        let (_, mr) = self
            .engine
            .mr_named(offer.key)
            .filter(|(id, _)| id == region && may)?;
        let at = usize::try_from(access.target.checked_sub(addr)?).ok()?;
        let memory = mr.whole()?.slice(at, usize::try_from(access.len).ok()?)?;
        JointOf::<T>::help_access(link, access, memory);
        Some(())
    }
}

// The initiator.
impl<T: Transport> State<T> {
    /// Carries out a large read or write in the memory of a peer; `false` says that it is to go by the stream, with
    /// the level that it has then.
    #[inline]
    pub(crate) fn rma_attached(&mut self, ep: EpId, peer: FiAddr, rma: &mut Rma<UserBuf>) -> bool {
        DirectOf::<T>::SUPPORTED
            && rma.iov.len() >= MIN_ATTACH_BYTES
            && self.attach_for(ep, peer, rma).is_some()
    }

    #[inline(never)]
    fn attach_for(&mut self, ep: EpId, peer: FiAddr, rma: &mut Rma<UserBuf>) -> Option<()> {
        if self.ops_before_attach > 0 {
            self.ops_before_attach -= 1;
            return None;
        }
        let place = sole_place(rma)?;
        let id = self.eps.get(ep)?.route(peer)?;
        let write = rma.kind == RmaKind::Write;
        let crowded = self.yield_policy.is_crowded();
        let mut wait = None;
        // The owner was asked for the region.
        let mut asked = false;
        loop {
            let connection = self.connections.get(id)?;
            let link = connection.link.as_ref().filter(|_| connection.is_up())?;
            let is_long = !rma.inject && place.len >= MIN_JOINT_ACCESS_BYTES;
            let state = AttachState {
                settled: self.engine.is_settled(Some(id)),
                crowded,
                // Where the owner is not through in time it goes by the stream, and may not be refused then: the caller would
                // have a buffer that the owner is at.
                joint: !crowded && is_long && self.engine.has_room(ep),
            };
            let segments = rma.iov.segments();
            let outcome = match asked && !DirectOf::<T>::prefers_attach(link, &place, write) {
                true => Attached::Asked,
                false => DirectOf::<T>::attach(link, &place, write, segments, state),
            };
            match outcome {
                Attached::Done => {
                    self.report_direct_rma(id, rma, place.len);
                    if wait.is_some() {
                        self.unsettled_ops = 0;
                    }
                    return Some(());
                }
                Attached::UseStream => return None,
                Attached::OwnerCopies => {
                    if write && rma.level == Level::Sent {
                        rma.level = Level::Delivered;
                    }
                    return None;
                }
                Attached::PeerPolling => {
                    self.ops_before_attach = STREAM_OPS;
                    return None;
                }
                Attached::Unapplied | Attached::Asked if self.ops_before_settling > 0 => {
                    self.ops_before_settling -= 1;
                    return None;
                }
                Attached::Unapplied | Attached::Asked if self.works.busy => return None,
                Attached::Unapplied => {}
                Attached::Asked => asked = true,
            }
            let wait = wait.get_or_insert_with(|| {
                let under_way = self.engine.conn(id).map_or(0, |conn| {
                    conn.unsent() + place.len * conn.awaited_reads() as u64
                });
                Settling::new(T::System::now(), place.len, under_way)
            });
            if !wait.goes_on(self.progress_all(), T::System::now) {
                self.unsettled_ops = (2 * self.unsettled_ops + 1).min(MAX_UNSETTLED_OPS);
                self.ops_before_settling = self.unsettled_ops;
                return None;
            }
            match crowded {
                true => std::thread::yield_now(),
                false => std::hint::spin_loop(),
            }
        }
    }
}

/// The wait until what was sent before is applied.
struct Settling {
    /// When it is in vain, and when it is if nothing arrives meanwhile.
    end: Duration,
    pause_end: Duration,
    max_pause: Duration,
    rounds: u32,
    /// Something has arrived since the last read of the clock.
    arrived: bool,
}

impl Settling {
    /// For an operation of `len` bytes, behind `under_way` bytes on its connection.
    fn new(now: Duration, len: u64, under_way: u64) -> Self {
        let max_pause = MIN_SETTLE_PAUSE + Duration::from_nanos(len / 2);
        Self {
            end: now + MIN_SETTLE_TIME + Duration::from_nanos(under_way + len),
            pause_end: now + max_pause,
            max_pause,
            rounds: 0,
            arrived: false,
        }
    }

    /// After a round of progress, in which something has `arrived` or not: whether there is to be another.
    fn goes_on(&mut self, arrived: bool, now: impl FnOnce() -> Duration) -> bool {
        self.arrived |= arrived;
        self.rounds += 1;
        if !self.rounds.is_multiple_of(ROUNDS_PER_CLOCK_READ) {
            return true;
        }
        let now = now();
        if std::mem::take(&mut self.arrived) {
            self.pause_end = now + self.max_pause;
        }
        now < self.end.min(self.pause_end)
    }
}
