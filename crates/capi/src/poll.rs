#![allow(unsafe_code)]
//! Poll sets (`fi_poll(3)`): many queues and counters asked at once.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_abi as abi;
use ripstop_core::provider::{CompletionQueue, Counter, Domain};
use ripstop_types::{Errno, Result};

use crate::counter;
use crate::cq::CqBody;
use crate::edge::{AnyFid, In, Out, arguments, trampolines};
use crate::errno::{self, code, fail};
use crate::object::domain::{DomainBody, same_domain};
use crate::object::{self, Body, Room, This};
use crate::tables::{operations, table};

/// What a poll set's object holds.
struct PollBody<D: Domain> {
    domain: Arc<D>,
    members: Mutex<Vec<Member<D>>>,
}

/// A queue or counter. It cannot be closed while it is here, so its `fid` is valid.
struct Member<D: Domain> {
    fid: *mut abi::fid,
    what: What<D>,
}

enum What<D: Domain> {
    Cq(Arc<D::Cq>),
    /// With the values last seen.
    Counter(Arc<D::Counter>, [u64; 2]),
}

impl<D: Domain> Body for PollBody<D> {
    type Head = abi::fid_poll;

    fn in_use(&self) -> bool {
        // Its members go with it.
        false
    }
}

impl<D: Domain> Member<D> {
    /// Makes progress; whether there is something to read.
    fn has_news(&mut self) -> bool {
        match &mut self.what {
            What::Cq(cq) => cq.poll(),
            What::Counter(counter, seen) => {
                let now = [counter.read(), counter.read_error()];
                core::mem::replace(seen, now) != now
            }
        }
    }

    /// Makes progress; what it has stays news.
    fn progress(&self) {
        match &self.what {
            What::Cq(cq) => _ = cq.poll(),
            What::Counter(counter, _) => _ = counter.read(),
        }
    }
}

impl<D: Domain> PollBody<D> {
    const POLL: &'static abi::fi_ops_poll = operations!(fi_ops_poll [D] { poll poll_add poll_del });
}

trampolines! { [D: Domain]
    /// `fi_poll_open`.
    pub(crate) extern "C" fn open(
        parent: This<DomainBody<D>>, attr: In<*mut abi::fi_poll_attr>,
        pollset: Out<*mut abi::fid_poll>,
    ) -> c_int {
        pollset.open(|| {
            if attr.get().is_some_and(|attr| attr.flags != 0) {
                return Err(errno::refused("fi_poll_open", NO_FLAGS, Errno::EBADFLAGS));
            }
            let head = abi::fid_poll {
                fid: object::fid(abi::FI_CLASS_POLL, core::ptr::null_mut(), PollBody::<D>::CLOSING),
                ops: table(PollBody::<D>::POLL),
            };
            let body = PollBody {
                domain: Arc::clone(&parent.domain),
                members: Mutex::default(),
            };
            Ok(Room::<PollBody<D>>::new().fill(head, body))
        })
    }

    extern "C" fn poll_add(this: This<PollBody<D>>, fid: AnyFid, flags: u64) -> c_int {
        if flags != 0 {
            return fail(errno::refused("fi_poll_add", NO_FLAGS, Errno::EBADFLAGS));
        }
        code(member::<D>(&this.domain, fid).map(|what| {
            let fid = fid.as_ptr();
            let mut members = this.members.lock();
            if members.iter().all(|member| member.fid != fid) {
                members.push(Member { fid, what });
            }
        }))
    }

    extern "C" fn poll_del(this: This<PollBody<D>>, fid: AnyFid, flags: u64) -> c_int {
        if flags != 0 {
            return fail(errno::refused("fi_poll_del", NO_FLAGS, Errno::EBADFLAGS));
        }
        let mut members = this.members.lock();
        let known = members.len();
        members.retain(|member| member.fid != fid.as_ptr());
        match members.len() < known {
            true => 0,
            false => {
                let why = "the object is not in the poll set";
                fail(errno::refused("fi_poll_del", why, Errno::EINVAL))
            }
        }
    }

    extern "C" fn poll(this: This<PollBody<D>>, contexts: Contexts(contexts, count)) -> c_int {
        match contexts.room() {
            Ok(room) => contexts.fill(room, &mut this.members.lock()),
            Err(error) => fail(error),
        }
    }
}

/// Why flags are refused.
const NO_FLAGS: &str = "no flags are defined; set flags to 0";

fn member<D: Domain>(domain: &Arc<D>, fid: AnyFid<'_>) -> Result<What<D>> {
    match fid.class() {
        Some(class @ abi::FI_CLASS_CQ) => {
            let cq = fid.cast::<CqBody<D>>(class)?;
            same_domain("the completion queue", domain, &cq.domain)?;
            Ok(What::Cq(Arc::clone(&cq.cq)))
        }
        Some(abi::FI_CLASS_CNTR) => {
            let counter = Arc::clone(counter::of_domain::<D>(fid, domain)?);
            // What was counted before is news, as in C.
            Ok(What::Counter(counter, [0; 2]))
        }
        _ => {
            let why = "a poll set has completion queues and counters only";
            Err(errno::refused("fi_poll_add", why, Errno::EINVAL))
        }
    }
}

arguments! {
    /// Where `fi_poll` writes contexts: null, or as many as the count beside it says.
    struct Contexts { at: *mut *mut c_void, count: c_int }
}

impl Contexts<'_> {
    /// How many contexts there is room for.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a negative count, and for null with a count.
    fn room(&self) -> Result<usize> {
        match usize::try_from(self.count) {
            Ok(room) if room == 0 || !self.at.is_null() => Ok(room),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Writes the contexts of members that have something, which are `room` at most, as
    /// [`Contexts::room`] says; returns how many. All members make progress.
    fn fill<D: Domain>(&self, room: usize, members: &mut [Member<D>]) -> c_int {
        let mut found = 0;
        for member in members {
            if found == room {
                member.progress();
                continue;
            }
            if member.has_news() {
                // SAFETY: an object is open as long as it is a member.
                let context = unsafe { (*member.fid).context };
                // SAFETY: not null, and one of `room` elements.
                unsafe { self.at.wrapping_add(found).write(context) };
                found += 1;
            }
        }
        found as c_int
    }
}
