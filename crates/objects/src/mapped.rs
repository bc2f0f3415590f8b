//! Regions that peers map, on both sides: the owner's, which are offered to peers, and those of
//! peers, which are reached past the stream.
//!
//! An operation takes this way only where nothing that was posted before on its connection is on
//! its way still, so it keeps its place in the order: the link sees to what is in the stream, and
//! the engine to the rest. Whatever else is the matter, the stream is the way.

use ripstop_engine::Iov;
use ripstop_engine::pool::NIL;
use ripstop_engine::xnet::{Atomic, Level, Rma, RmaKind};
use ripstop_mem::UserBuf;
use ripstop_mem::ring::{Grant, Window};
use ripstop_os::{Shareable, clock};
use ripstop_types::{AtomicKind, FiAddr, Flags, RmaIov};

use crate::pulse::Pulse as _;
use crate::rma::CLOSING;
use crate::state::State;
use crate::transport::{Link as _, Transport};

/// A region of this side that a peer may map.
#[derive(Clone, Debug)]
pub struct Offer {
    /// What stands in the face of this side as long as it may be reached.
    pub grant: Grant,
    /// The region's key.
    pub key: u64,
    /// The address of its first byte as peers name it.
    pub base: u64,
    /// Its memory.
    pub part: Shareable,
}

/// What a domain has offered.
#[derive(Debug)]
pub(crate) struct Exposed {
    region: u32,
    offer: Offer,
}

/// Longest operation that is carried out at once: others of the domain wait for it.
const LONGEST: u64 = 64 << 20;

/// The longest atomic in bytes that is.
const OPERANDS: usize = 256;

/// So many bytes are read and written past the stream until progress is made, or so many small
/// operations.
pub(crate) const BYTES: u32 = 1 << 20;
const COUNT: u32 = 32;

/// Streams that are looked at each time whether all that came by them is applied.
const SOME: usize = 8;

// The owner.
impl<T: Transport> State<T> {
    /// Offers a region to all peers that may map it, now and when they connect.
    #[cold]
    pub(crate) fn expose(&mut self, region: u32, key: u64, base: u64, part: &Shareable) {
        let Some(grant) = self.pulse.open_grant() else {
            return;
        };
        let offer = Offer {
            grant,
            key,
            base,
            part: part.clone(),
        };
        self.exposed.push(Exposed { region, offer });
        for id in 0..self.streams.len() as u32 {
            self.offer_last(id, 1);
        }
        self.tell_applied(usize::MAX);
    }

    /// Offers a region anew if its memory is another one now, or none.
    #[cold]
    pub(crate) fn expose_again(
        &mut self,
        region: u32,
        key: u64,
        base: u64,
        part: Option<&Shareable>,
    ) {
        let exposed = self.exposed.iter().find(|e| e.region == region);
        if exposed.map(|e| &e.offer.part) == part {
            return;
        }
        self.conceal(region);
        if let Some(part) = part {
            self.expose(region, key, base, part);
        }
    }

    /// Offers what there is to a peer that has just connected.
    #[cold]
    pub(crate) fn offer_all(&mut self, id: u32) {
        self.offer_last(id, usize::MAX);
    }

    fn offer_last(&mut self, id: u32, count: usize) {
        let Self {
            engine,
            streams,
            exposed,
            ..
        } = self;
        let Some(Some(stream)) = streams.get(id as usize) else {
            return;
        };
        let (true, Some(link)) = (stream.is_up(), &stream.link) else {
            return;
        };
        // What peers do is to be counted.
        let counted = engine
            .ep(stream.ep)
            .is_none_or(|ep| ep.remote_write_counter != NIL || ep.remote_read_counter != NIL);
        if !counted {
            let skipped = exposed.len().saturating_sub(count);
            for exposed in exposed.iter().skip(skipped) {
                // One that is not told goes by the stream.
                link.offer(&exposed.offer);
            }
        }
    }

    /// Takes a region back from the peers that have mapped it: what they do there now ends first,
    /// unless it takes too long.
    pub(crate) fn conceal(&mut self, region: u32) {
        let place = self.exposed.iter().position(|e| e.region == region);
        let Some(place) = place else { return };
        let grant = self.exposed.swap_remove(place).offer.grant;
        self.pulse.close_grant(grant);
        for link in self.live_links() {
            link.withdraw(grant);
        }
        let end = clock::now() + CLOSING;
        while self.is_reached(grant) {
            if clock::now() >= end {
                log_warn!(
                    T,
                    EpData,
                    "a peer that has mapped a region did not leave it within {CLOSING:?}: it may \
                     still write there"
                );
                return;
            }
            // A peer that has died leaves its claim behind; its end is seen here.
            self.progress();
            self.poll();
            std::thread::yield_now();
        }
    }

    /// Whether a peer that lives is at work in a region.
    fn is_reached(&self, grant: Grant) -> bool {
        self.live_links().any(|link| link.is_claimed(grant))
    }

    /// The links of peers that are not known to be gone.
    fn live_links(&self) -> impl Iterator<Item = &T::Link> {
        let up = self
            .streams
            .iter()
            .flatten()
            .filter(|stream| stream.is_up());
        let links = up.filter_map(|stream| stream.link.as_deref());
        links.filter(|link| !link.has_ended())
    }

    /// Tells peers that all they have sent is applied, where it is, so that they may reach what
    /// this side has exposed; some of the peers, in turn.
    #[cold]
    pub(crate) fn tell_applied(&mut self, most: usize) {
        let count = self.streams.len();
        for _ in 0..most.min(count) {
            self.told = match self.told + 1 {
                next if next < count => next,
                _ => 0,
            };
            let Some(Some(stream)) = self.streams.get(self.told) else {
                continue;
            };
            if let Some(link) = &stream.link
                && stream.leftover.is_empty()
                && stream.interest.read
                && self.engine.rx_is_settled(self.told as u32)
            {
                link.tell_applied();
            }
        }
    }

    /// As [`State::tell_applied`], after a look at what has come.
    #[inline]
    pub(crate) fn have_looked(&mut self) {
        if T::Link::MAPS && !self.exposed.is_empty() {
            self.tell_applied(SOME);
        }
    }
}

// The initiator.
impl<T: Transport> State<T> {
    /// The connection to a peer, if it [is mapped](Self::is_mapped).
    #[inline]
    fn mapped_route(&self, ep: u32, peer: FiAddr) -> Option<u32> {
        let id = self.eps.get(ep as usize)?.as_ref()?.route(peer);
        self.is_mapped(id).then_some(id)
    }

    /// Whether the peer of a connection has offered regions, and nothing is under way there.
    #[inline]
    fn is_mapped(&self, id: u32) -> bool {
        let stream = self.streams.get(id as usize).and_then(Option::as_ref);
        T::Link::MAPS && stream.is_some_and(|stream| stream.mapped) && self.engine.is_settled(id)
    }

    /// Does something in a region of a connection that [is mapped](Self::is_mapped).
    #[inline]
    fn reach<R>(
        &mut self,
        id: u32,
        place: &RmaIov,
        act: impl FnOnce(&Window, usize) -> Option<R>,
    ) -> Option<R> {
        let stream = self.streams.get_mut(id as usize)?.as_mut()?;
        let link = stream.link.as_ref()?;
        link.reach(&mut stream.windows, place, act)
    }

    /// Writes one buffer to a region that is mapped; `false` says that nothing was done.
    #[inline]
    pub(crate) fn put_mapped(&mut self, id: u32, buf: UserBuf, to: &RmaIov) -> bool {
        let put = |window: &Window, at| window.put(at, buf).ok();
        self.is_mapped(id) && self.reach(id, to, put).is_some()
    }

    /// Carries out a read or write in a region that is mapped; `false` says that nothing was done.
    #[inline(never)]
    pub(crate) fn rma_mapped(&mut self, ep: u32, peer: FiAddr, rma: &Rma<UserBuf>) -> bool {
        let &[place] = rma.remote.as_slice() else {
            return false;
        };
        let plain = rma.data.is_none() && rma.level != Level::Committed && !rma.work;
        if !plain || place.len > LONGEST || rma.iov.len() != place.len {
            return false;
        }
        let Some(id) = self.mapped_route(ep, peer) else {
            return false;
        };
        let segments = rma.iov.segments();
        let done = match rma.kind {
            RmaKind::Write => self.reach(id, &place, |window, at| {
                each(segments, at, |at, buf| window.put(at, buf).ok())
            }),
            RmaKind::Read => self.reach(id, &place, |window, at| {
                each(segments, at, |at, buf| window.take(at, buf).ok())
            }),
            RmaKind::Atomic => None,
        };
        if done.is_none() {
            return false;
        }
        let what = match rma.kind {
            RmaKind::Read => Flags::READ,
            RmaKind::Write | RmaKind::Atomic => Flags::WRITE,
        };
        let completion = rma.completion.then_some(rma.context);
        self.engine
            .done_directly(id, Flags::RMA.union(what), completion, place.len);
        self.have_reached(place.len);
        true
    }

    /// Carries out an atomic in a region that is mapped, if that is atomic against all others;
    /// `false` says that nothing was done.
    #[inline(never)]
    pub(crate) fn atomic_mapped(
        &mut self,
        ep: u32,
        peer: FiAddr,
        atomic: &Atomic<UserBuf>,
    ) -> bool {
        let &[place] = atomic.remote.as_slice() else {
            return false;
        };
        let plain = atomic.data.is_none() && atomic.level != Level::Committed && !atomic.work;
        let len = place.len as usize;
        if !plain || len > OPERANDS || !atomic.is_sound() {
            return false;
        }
        let Some(id) = self.mapped_route(ep, peer) else {
            return false;
        };
        let (mut operand, mut compare) = ([0; OPERANDS], [0; OPERANDS]);
        let mut result = [0; OPERANDS];
        let (given, compared) = (
            gather(&atomic.operand, &mut operand),
            gather(&atomic.compare, &mut compare),
        );
        let fetches = atomic.kind != AtomicKind::Plain;
        let fetched = result.get_mut(..len).filter(|_| fetches);
        let done = self.reach(id, &place, |window, at| {
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
            crate::place::copy_user(&atomic.result, 0, place.len, bytes);
        }
        let completion = atomic.completion.then_some(atomic.context);
        self.engine
            .done_directly(id, Flags::ATOMIC.union(what), completion, place.len);
        self.have_reached(place.len);
        true
    }

    /// After so many bytes of an operation that was carried out and reported.
    #[inline]
    pub(crate) fn have_reached(&mut self, len: u64) {
        if !self.waiters.is_empty() {
            self.wake_waiters();
        }
        let cost = u32::try_from(len).unwrap_or(u32::MAX).max(BYTES / COUNT);
        match self.reached.checked_sub(cost) {
            Some(left) => self.reached = left,
            None => self.look_around(),
        }
    }

    /// Makes progress after many operations that needed none. A program that posts one and finds
    /// it in its queue, which is then read without progress, would never make any.
    #[cold]
    #[inline(never)]
    fn look_around(&mut self) {
        self.reached = BYTES;
        if !self.works.busy {
            self.progress();
        }
    }
}

/// Does something with each buffer and its place, one behind the other from `at` on.
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
fn gather<'a>(iov: &Iov<UserBuf>, room: &'a mut [u8; OPERANDS]) -> &'a [u8] {
    let mut done = 0;
    for segment in iov.segments() {
        let rest = room.get_mut(done..).unwrap_or_default();
        done += ripstop_mem::copy_in(rest, *segment);
    }
    room.get(..done).unwrap_or_default()
}
