//! Shared receive contexts: receives that the device gives to whichever endpoint gets a message first.

use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use ripstop_core::log::Subsys;
use ripstop_core::provider::{self, DataCall, EpOption, RecvKind, Threshold, same_domain};
use ripstop_core::{RxAttr, fi_warn};
use ripstop_ibverbs::{RecvRequest, Sge, Srq};
use ripstop_mem::UserBuf;
use ripstop_types::{Context, Errno, FiAddr, Flags, Result, flags};

use crate::call::{has_no_tags, length, refused, registered, unknown};
use crate::counter::{Counter, Source as _};
use crate::cq::Cq;
use crate::domain::Domain;
use crate::params::{IOV_MOST, NAME};
use crate::queue::{Posted, Receives};
use crate::regions::Hit;
use crate::sides;

/// A queue that endpoints of a context report to.
#[derive(Debug)]
struct User {
    cq: Weak<Cq>,
    endpoints: usize,
}

/// The receives that the device has. They end in any order, so each has a place by whose number its
/// completion names it.
#[derive(Debug, Default)]
struct Posts {
    places: Vec<Option<Posted>>,
    free: Vec<u32>,
    /// Which queue gets the completion of a receive is only known when it ends, so each has room for all.
    users: Vec<User>,
    hit: Hit,
}

impl Posts {
    /// A place that is free, if there is one below `capacity`.
    fn place(&mut self, capacity: usize) -> Option<u32> {
        if self.free.is_empty() && self.places.len() < capacity {
            self.places.try_reserve(1).ok()?;
            self.free.try_reserve(capacity).ok()?;
            self.free.push(u32::try_from(self.places.len()).ok()?);
            self.places.push(None);
        }
        self.free.last().copied()
    }

    fn put(&mut self, posted: Posted) {
        if let Some(place) = self.free.pop()
            && let Some(place) = self.places.get_mut(place as usize)
        {
            *place = Some(posted);
        }
    }

    fn end(&mut self, place: u32) -> Option<Posted> {
        let posted = self.places.get_mut(place as usize)?.take()?;
        self.free.push(place);
        Some(posted)
    }

    /// How many receives the device has.
    fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Takes room for one more receive in every queue.
    fn take_room(&self) -> bool {
        let cqs = || self.users.iter().filter_map(|user| user.cq.upgrade());
        for (number, cq) in cqs().enumerate() {
            if !cq.take_room(1) {
                cqs().take(number).for_each(|cq| cq.give_room(1));
                return false;
            }
        }
        true
    }

    fn give_room(&self) {
        for user in &self.users {
            if let Some(cq) = user.cq.upgrade() {
                cq.give_room(1);
            }
        }
    }
}

/// A shared receive context.
#[derive(Debug)]
pub struct SharedRx {
    pub(crate) domain: Arc<Domain>,
    pub(crate) srq: Arc<Srq>,
    capacity: usize,
    iov_limit: usize,
    flags: Flags,
    posts: Mutex<Posts>,
    /// What is bound to the context; it lives as long.
    cq: OnceLock<Arc<Cq>>,
    counter: OnceLock<Arc<Counter>>,
}

impl SharedRx {
    pub(crate) fn open(domain: &Arc<Domain>, attr: &RxAttr) -> Result<Arc<Self>> {
        let params = &domain.fabric.params;
        let or = |asked: usize, default: usize| if asked == 0 { default } else { asked };
        let capacity = or(attr.size, params.rx_size).min(domain.attr.max_srq_wr);
        let most = IOV_MOST.min(domain.attr.max_srq_sge);
        let iov_limit = or(attr.iov_limit, params.rx_iov_limit).min(most);
        let count = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        let srq = Srq::new(&domain.pd, count(capacity), count(iov_limit)).inspect_err(|error| {
            fi_warn!(
                NAME,
                Subsys::EpCtrl,
                "the device has no shared queue of {capacity} receives of {iov_limit} pieces: {error}"
            );
        })?;
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            srq,
            capacity,
            iov_limit,
            flags: attr.op_flags,
            posts: Mutex::default(),
            cq: OnceLock::new(),
            counter: OnceLock::new(),
        }))
    }

    /// The counter of endpoints that have none of their own.
    pub(crate) fn counter(&self) -> Option<&Arc<Counter>> {
        self.counter.get()
    }

    /// An endpoint whose receives are reported to this queue uses the context.
    ///
    /// # Errors
    /// [`Errno::ENOSPC`] where the queue has no room for all receives that are posted.
    pub(crate) fn attach(&self, cq: &Arc<Cq>) -> Result<()> {
        let mut posts = self.posts.lock();
        let is_it = |user: &&mut User| user.cq.as_ptr() == Arc::as_ptr(cq);
        if let Some(user) = posts.users.iter_mut().find(is_it) {
            user.endpoints += 1;
            return Ok(());
        }
        let len = posts.len();
        if !cq.take_room(len) {
            fi_warn!(
                NAME,
                Subsys::EpCtrl,
                "a completion queue has no room for the {len} receives of a shared context; open a larger one"
            );
            return Err(Errno::ENOSPC);
        }
        posts.users.push(User {
            cq: Arc::downgrade(cq),
            endpoints: 1,
        });
        Ok(())
    }

    /// An endpoint that was attached with this queue closes.
    pub(crate) fn detach(&self, cq: &Arc<Cq>) {
        let mut posts = self.posts.lock();
        let len = posts.len();
        posts.users.retain_mut(|user| {
            if user.cq.as_ptr() != Arc::as_ptr(cq) {
                return true;
            }
            user.endpoints -= 1;
            if user.endpoints == 0 {
                cq.give_room(len);
            }
            user.endpoints > 0
        });
    }

    fn try_post(&self, iov: &[UserBuf], posted: Posted) -> Result<()> {
        let mut posts = self.posts.lock();
        let mut list = [Sge::default(); IOV_MOST];
        let count = registered(&self.domain, iov, true, &mut list, &mut posts.hit)?;
        let place = posts.place(self.capacity).ok_or(Errno::EAGAIN)?;
        let request = RecvRequest::new(sides::receive(place.into()), &list[..count])?;
        if !posts.take_room() {
            return Err(Errno::EAGAIN);
        }
        match self.srq.post_recv(&mut [request]) {
            Ok(()) => posts.put(posted),
            Err(error) => {
                posts.give_room();
                return Err(refused(error));
            }
        }
        Ok(())
    }

    /// Takes what the device has said to the queues of the context.
    fn progress(&self) {
        let posts = self.posts.lock();
        let cqs: Vec<_> = posts
            .users
            .iter()
            .filter_map(|user| user.cq.upgrade())
            .collect();
        drop(posts);
        for cq in cqs {
            cq.progress();
        }
    }
}

impl Receives for SharedRx {
    /// The receive with this number has ended; its room is free.
    fn end(&self, number: u64) -> Option<Posted> {
        let mut posts = self.posts.lock();
        let ended = posts.end(u32::try_from(number).ok()?)?;
        posts.give_room();
        Some(ended)
    }
}

impl provider::SharedRx for SharedRx {
    type Domain = Domain;

    fn bind_cq(&self, cq: &Arc<Cq>, flags: Flags) -> Result<()> {
        if flags != Flags::RECV {
            return Err(Errno::EBADFLAGS);
        }
        same_domain(NAME, "the completion queue", &self.domain, &cq.domain)?;
        self.cq.set(Arc::clone(cq)).map_err(|_| Errno::EINVAL)
    }

    fn bind_counter(&self, counter: &Arc<Counter>, flags: Flags) -> Result<()> {
        if flags != Flags::RECV {
            return Err(Errno::EBADFLAGS);
        }
        same_domain(NAME, "the counter", &self.domain, &counter.domain)?;
        self.counter
            .set(Arc::clone(counter))
            .map_err(|_| Errno::EINVAL)
    }

    fn recv(
        &self,
        kind: RecvKind,
        iov: &[UserBuf],
        _: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        const KNOWN: Flags = flags![COMPLETION MORE];
        if let RecvKind::Tagged { .. } = kind {
            return Err(has_no_tags());
        }
        let flags = flags.unwrap_or(self.flags);
        if !KNOWN.contains(flags) {
            return Err(unknown(flags - KNOWN));
        }
        length(iov, self.iov_limit)?;
        let posted = Posted {
            context,
            flags: flags![MSG RECV],
            // Endpoints whose receives have a completion only if they ask for it look at this.
            reported: flags.contains(Flags::COMPLETION),
            len: 0,
        };
        match self.try_post(iov, posted) {
            // What has ended makes room.
            Err(Errno::EAGAIN) => {
                self.progress();
                self.try_post(iov, posted)
            }
            done => done,
        }
    }

    fn trigger(&self, _: &DataCall<'_>, _: Threshold<'_, Domain>) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// A device takes no request back, as C's verbs says it.
    fn cancel(&self, _: Context) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    fn option(&self, _: EpOption) -> Result<usize> {
        Err(Errno::ENOPROTOOPT)
    }

    fn set_option(&self, _: EpOption, _: usize) -> Result<()> {
        Err(Errno::ENOPROTOOPT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(context: Context) -> Posted {
        Posted {
            context,
            flags: Flags::RECV,
            reported: true,
            len: 0,
        }
    }

    #[test]
    fn receives_end_in_any_order() {
        let mut posts = Posts::default();
        for context in 0..3 {
            assert_eq!(posts.place(3), Some(context as u32));
            posts.put(posted(context));
        }
        assert_eq!((posts.place(3), posts.len()), (None, 3));
        assert_eq!(posts.end(1), Some(posted(1)));
        assert_eq!(posts.end(1), None);
        assert_eq!(posts.end(7), None);
        assert_eq!((posts.place(3), posts.len()), (Some(1), 2));
        posts.put(posted(9));
        assert_eq!(posts.end(1), Some(posted(9)));
        assert_eq!(posts.end(0), Some(posted(0)));
        assert_eq!(posts.len(), 1);
    }
}
