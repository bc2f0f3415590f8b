//! Direct access: reads, writes and atomics in regions of a peer that this side has mapped.
//!
//! An operation is carried out directly only if nothing that was posted before on its connection is
//! still under way, so that it keeps its place in the order: the link checks what is in the stream,
//! and the engine the rest. In every other case it goes by the stream.

use ripstop_engine::Iov;
use ripstop_engine::id::{ConnId, EpId};
use ripstop_engine::stream::{Atomic, Level, Rma, RmaKind};
use ripstop_mem::UserBuf;
use ripstop_mem::ring::Window;
use ripstop_types::{AtomicKind, FiAddr, Flags, RmaIov};

use crate::state::{DIRECT_BYTES_BUDGET, State};
use crate::transport::direct_access::DirectAccess as _;
use crate::transport::{DirectOf, Transport};

/// The longest direct access in bytes: other operations of the domain wait for it.
pub(crate) const MAX_DIRECT_BYTES: u64 = 64 << 20;

/// The longest direct atomic in bytes.
const MAX_DIRECT_ATOMIC: usize = 256;

/// Direct accesses, if all are short, until progress is made: see [`State::note_direct_access`].
const DIRECT_OPS_BUDGET: u32 = 32;

impl<T: Transport> State<T> {
    /// The connection to a peer, if it [is mapped](Self::is_mapped).
    #[inline]
    fn mapped_route(&self, ep: EpId, peer: FiAddr) -> Option<ConnId> {
        let id = self.eps.get(ep)?.route(peer);
        id.filter(|_| self.is_mapped(id))
    }

    /// Whether the peer of a connection has offered regions, and nothing is under way there.
    #[inline]
    pub(crate) fn is_mapped(&self, id: Option<ConnId>) -> bool {
        let connection = self.connections.find(id);
        DirectOf::<T>::SUPPORTED
            && connection.is_some_and(|connection| connection.mapped)
            && self.engine.is_settled(id)
    }

    /// Calls `act` on the window of a place, over a connection that [is mapped](Self::is_mapped).
    #[inline]
    fn access<R>(
        &mut self,
        id: Option<ConnId>,
        place: &RmaIov,
        act: impl FnOnce(&Window, usize) -> Option<R>,
    ) -> Option<R> {
        let connection = self.connections.find_mut(id)?;
        let link = connection.link.as_ref()?;
        DirectOf::<T>::access_window(link, &mut connection.windows, place, act)
    }

    /// Writes one buffer to a region that is mapped; `false` says that nothing was done.
    #[inline]
    pub(crate) fn put_mapped(&mut self, id: Option<ConnId>, buf: UserBuf, to: &RmaIov) -> bool {
        let put = |window: &Window, at| window.put(at, buf).ok();
        self.is_mapped(id) && self.access(id, to, put).is_some()
    }

    /// Carries out a read or write in a region that is mapped; `false` says that nothing was done.
    #[inline(never)]
    pub(crate) fn rma_mapped(&mut self, ep: EpId, peer: FiAddr, rma: &Rma<UserBuf>) -> bool {
        let (Some(place), Some(id)) = (sole_place(rma), self.mapped_route(ep, peer)) else {
            return false;
        };
        let segments = rma.iov.segments();
        let done = match rma.kind {
            RmaKind::Write => self.access(Some(id), &place, |window, at| {
                each(segments, at, |at, buf| window.put(at, buf).ok())
            }),
            RmaKind::Read => self.access(Some(id), &place, |window, at| {
                each(segments, at, |at, buf| window.get(at, buf).ok())
            }),
            RmaKind::Atomic => None,
        };
        if done.is_some() {
            self.report_direct_rma(id, rma, place.len);
        }
        done.is_some()
    }

    /// A read or write of `len` bytes was carried out directly.
    #[inline(always)]
    pub(crate) fn report_direct_rma(&mut self, id: ConnId, rma: &Rma<UserBuf>, len: u64) {
        let what = match rma.kind {
            RmaKind::Read => Flags::READ,
            RmaKind::Write | RmaKind::Atomic => Flags::WRITE,
        };
        let completion = rma.completion.then_some(rma.context);
        self.engine
            .done_directly(id, Flags::RMA.union(what), completion, len);
        self.note_direct_access(len);
    }

    /// Carries out an atomic in a region that is mapped, if that is atomic against all others;
    /// `false` says that nothing was done.
    #[inline(never)]
    pub(crate) fn atomic_mapped(
        &mut self,
        ep: EpId,
        peer: FiAddr,
        atomic: &Atomic<UserBuf>,
    ) -> bool {
        let &[place] = atomic.remote.as_slice() else {
            return false;
        };
        let plain = atomic.data.is_none() && atomic.level != Level::Committed && !atomic.work;
        let len = place.len as usize;
        if !plain || len > MAX_DIRECT_ATOMIC || !atomic.is_sound() {
            return false;
        }
        let Some(id) = self.mapped_route(ep, peer) else {
            return false;
        };
        let (mut operand, mut compare) = ([0; MAX_DIRECT_ATOMIC], [0; MAX_DIRECT_ATOMIC]);
        let mut result = [0; MAX_DIRECT_ATOMIC];
        let (given, compared) = (
            gather(&atomic.operand, &mut operand),
            gather(&atomic.compare, &mut compare),
        );
        let fetches = atomic.kind != AtomicKind::Plain;
        let fetched = result.get_mut(..len).filter(|_| fetches);
        let done = self.access(Some(id), &place, |window, at| {
            if !window.is_atomic(atomic.datatype, at) {
                return None;
            }
            let what = (atomic.datatype, atomic.op);
            let done = window.update(what, (at, len), given, compared, fetched);
            done.ok()
        });
        if done.is_none() {
            return false;
        }
        let what = match fetches {
            true => Flags::READ,
            false => Flags::WRITE,
        };
        if fetches {
            let bytes = result.get(..len).unwrap_or_default();
            crate::state::place::copy_user(&atomic.result, 0, place.len, bytes);
        }
        let completion = atomic.completion.then_some(atomic.context);
        self.engine
            .done_directly(id, Flags::ATOMIC.union(what), completion, place.len);
        self.note_direct_access(place.len);
        true
    }

    /// A direct access of `len` bytes was carried out and reported: makes progress if the budget of
    /// such accesses is spent.
    #[inline]
    pub(crate) fn note_direct_access(&mut self, len: u64) {
        self.wake_any_waiters();
        let cost = u32::try_from(len)
            .unwrap_or(u32::MAX)
            .max(DIRECT_BYTES_BUDGET / DIRECT_OPS_BUDGET);
        match self.direct_budget.checked_sub(cost) {
            Some(left) => self.direct_budget = left,
            None => self.progress_after_direct(len),
        }
    }

    /// Makes progress after many direct accesses, the last one of `len` bytes, which need none. A program
    /// that always finds the completion of its last one in its queue, which is then read without progress,
    /// would never make any. Beside long ones, all can be polled: peers may have asked for regions.
    #[cold]
    #[inline(never)]
    fn progress_after_direct(&mut self, len: u64) {
        self.direct_budget = DIRECT_BYTES_BUDGET;
        match len >= u64::from(DIRECT_BYTES_BUDGET / DIRECT_OPS_BUDGET) {
            _ if self.works.busy => {}
            true => self.poll_all(),
            false => self.progress(),
        }
    }
}

/// The place of a read or write that may be carried out directly.
pub(crate) fn sole_place(rma: &Rma<UserBuf>) -> Option<RmaIov> {
    let &[place] = rma.remote.as_slice() else {
        return None;
    };
    let plain = rma.data.is_none() && rma.level != Level::Committed && !rma.work;
    let fits = place.len <= MAX_DIRECT_BYTES && rma.iov.len() == place.len;
    (plain && fits).then_some(place)
}

/// Calls `act` with each buffer and its place, one behind the other from `at` on.
fn each(
    segments: &[UserBuf],
    mut at: usize,
    mut act: impl FnMut(usize, UserBuf) -> Option<()>,
) -> Option<()> {
    for buf in segments {
        act(at, *buf)?;
        at += buf.len();
    }
    Some(())
}

/// Copies operands, which have room; returns them.
fn gather<'a>(iov: &Iov<UserBuf>, room: &'a mut [u8; MAX_DIRECT_ATOMIC]) -> &'a [u8] {
    let mut done = 0;
    for segment in iov.segments() {
        let rest = room.get_mut(done..).unwrap_or_default();
        done += ripstop_mem::copy_in(rest, *segment);
    }
    room.get(..done).unwrap_or_default()
}
