//! Operations from their post to their completion, found again by their context.
//!
//! A table of fixed size, so that following operations never allocates and is bounded. Each
//! operation is in one of a few slots behind that of its context; where all are taken, it is not followed,
//! and counted as such. Posts and completions of several threads meet in it without a lock.

use core::ffi::c_void;
use core::hint::cold_path;
use core::ptr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ripstop_abi as abi;

use crate::call::{CallInfo, Transfer};
use crate::call_cell::CallCell;
use crate::counting::{Threads, bump};

/// The windows of a table, a power of two.
const WINDOWS: usize = 1 << 11;

/// The slots of a window, all that one context can be in.
const SLOTS: usize = 8;

/// A slot that is being filled. No context is at this address.
const FILLING: usize = 1;

/// One operation.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    call: CallCell,
    start: AtomicU64,
    is_multi: AtomicU64,
    data: [AtomicU64; 4],
}

/// An operation that was posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    /// The call that posted it.
    pub(crate) call: &'static CallInfo,
    /// When, by `clock::counter`.
    pub(crate) start: u64,
    /// Whether it is a multi-receive buffer, which more completions follow for.
    pub(crate) is_multi: bool,
    /// What the hook keeps of it.
    pub(crate) data: [u64; 4],
}

/// The slots that the contexts of one hash value can be in.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Window {
    /// 0 for a free slot. A cache line.
    contexts: [AtomicUsize; SLOTS],
    slots: [Slot; SLOTS],
}

impl Window {
    /// Each slot with its context.
    #[inline(always)]
    fn each(&self) -> impl Iterator<Item = (&AtomicUsize, &Slot)> {
        self.contexts.iter().zip(&self.slots)
    }
}

/// The operations that are under way in one domain.
#[derive(Debug)]
pub(crate) struct Pending {
    windows: Box<[Window]>,
    /// How many there are, so that a completion of an operation that is not followed costs little.
    count: AtomicU64,
    threads: Threads,
    /// How many were not followed.
    unfollowed: AtomicU64,
}

impl Pending {
    pub(crate) fn new(threads: Threads) -> Self {
        Self {
            windows: (0..WINDOWS).map(|_| Window::default()).collect(),
            count: AtomicU64::new(0),
            threads,
            unfollowed: AtomicU64::new(0),
        }
    }

    /// The slots that this context can be in.
    #[inline(always)]
    fn window(&self, context: usize) -> Option<&Window> {
        let mixed = (context >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.windows.get((mixed >> 32) & (WINDOWS - 1))
    }

    /// Whether operations with this context can be found again.
    #[inline]
    pub(crate) fn can_follow(context: *mut c_void) -> bool {
        context.addr() > FILLING
    }

    /// Notes an operation; false if it is not followed.
    #[inline(always)]
    pub(crate) fn insert(&self, context: *mut c_void, posted: &Posted) -> bool {
        let context = context.addr();
        if context <= FILLING {
            bump(&self.unfollowed, 1, self.threads);
            return false;
        }
        for (place, slot) in self.window(context).into_iter().flat_map(Window::each) {
            if place.load(Ordering::Relaxed) != 0 {
                continue;
            }
            let (free, filling) = (0, FILLING);
            let claimed = match self.threads {
                Threads::One => true,
                Threads::Several => place
                    .compare_exchange(free, filling, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok(),
            };
            if claimed {
                slot.call.store(posted.call, Ordering::Relaxed);
                slot.start.store(posted.start, Ordering::Relaxed);
                let is_multi = u64::from(posted.is_multi);
                slot.is_multi.store(is_multi, Ordering::Relaxed);
                for (place, value) in slot.data.iter().zip(posted.data) {
                    place.store(value, Ordering::Relaxed);
                }
                bump(&self.count, 1, self.threads);
                place.store(context, Ordering::Release);
                return true;
            }
        }
        cold_path();
        bump(&self.unfollowed, 1, self.threads);
        false
    }

    /// Whether no operation is followed now.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Finds the operation of a completion with these flags. It is taken out, but for a
    /// multi-receive buffer that goes on.
    #[inline(always)]
    pub(crate) fn complete(&self, context: *mut c_void, flags: u64) -> Option<Posted> {
        self.find(context.addr(), |posted| {
            let fits = posted.call.kind.is_none_or(|kind| kind.fits(flags));
            let goes_on = posted.is_multi && flags & abi::FI_MULTI_RECV == 0;
            fits.then_some(!goes_on)
        })
    }

    /// Takes out an operation that this call was refused.
    #[cold]
    pub(crate) fn refuse(&self, context: *mut c_void, call: &'static CallInfo) {
        self.find(context.addr(), |posted| {
            ptr::eq(posted.call, call).then_some(true)
        });
    }

    /// The first operation of this context that `is_it` says whether to take out.
    #[inline(always)]
    fn find(&self, context: usize, is_it: impl Fn(&Posted) -> Option<bool>) -> Option<Posted> {
        if context <= FILLING || self.is_empty() {
            return None;
        }
        for (place, slot) in self.window(context)?.each() {
            if place.load(Ordering::Acquire) != context {
                continue;
            }
            let posted = slot.read()?;
            let Some(take) = is_it(&posted) else { continue };
            if !take {
                return Some(posted);
            }
            let taken = match self.threads {
                Threads::One => {
                    place.store(0, Ordering::Relaxed);
                    true
                }
                Threads::Several => place
                    .compare_exchange(context, 0, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok(),
            };
            if taken {
                bump(&self.count, 1_u64.wrapping_neg(), self.threads);
                return Some(posted);
            }
        }
        None
    }

    /// How many operations were not followed.
    pub(crate) fn unfollowed(&self) -> u64 {
        self.unfollowed.load(Ordering::Relaxed)
    }

    /// The operations that have not completed.
    pub(crate) fn remaining(&self) -> impl Iterator<Item = Posted> {
        let all = self.windows.iter().flat_map(Window::each);
        let taken = all.filter(|(context, _)| context.load(Ordering::Acquire) > FILLING);
        taken.filter_map(|(_, slot)| slot.read())
    }
}

impl Slot {
    #[inline(always)]
    fn read(&self) -> Option<Posted> {
        Some(Posted {
            call: self.call.load(Ordering::Relaxed)?,
            start: self.start.load(Ordering::Relaxed),
            is_multi: self.is_multi.load(Ordering::Relaxed) != 0,
            data: self
                .data
                .each_ref()
                .map(|data| data.load(Ordering::Relaxed)),
        })
    }
}

impl Transfer {
    /// Whether it stays under way for several completions. No tagged receive does.
    pub(crate) fn is_multi(&self, by_default: u64) -> bool {
        !self.is_tagged && self.flags.unwrap_or(by_default) & abi::FI_MULTI_RECV != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Kind;

    static SEND: CallInfo = CallInfo::new("fi_send", Some(Kind::Send));
    static RECV: CallInfo = CallInfo::new("fi_recv", Some(Kind::Recv));

    fn posted(call: &'static CallInfo, is_multi: bool, start: u64) -> Posted {
        Posted {
            call,
            start,
            is_multi,
            data: [start; 4],
        }
    }

    #[test]
    fn completions_find_their_operations() {
        for threads in [Threads::One, Threads::Several] {
            let pending = Pending::new(threads);
            let context = ptr::without_provenance_mut(0x1000);
            assert!(pending.insert(context, &posted(&SEND, false, 1)));
            assert!(pending.insert(context, &posted(&RECV, true, 2)));
            assert_eq!(pending.complete(context, abi::FI_RECV).unwrap().start, 2);
            let last = abi::FI_RECV | abi::FI_MULTI_RECV;
            assert_eq!(pending.complete(context, last).unwrap().start, 2);
            assert!(pending.complete(context, abi::FI_RECV).is_none());
            assert_eq!(pending.remaining().count(), 1);
            pending.refuse(context, &RECV);
            assert_eq!(pending.complete(context, 0).unwrap().data, [1; 4]);
            assert_eq!(pending.remaining().count(), 0);
        }
    }

    #[test]
    fn what_has_no_room_or_no_context_is_counted() {
        let pending = Pending::new(Threads::One);
        let context = ptr::without_provenance_mut(0x2000);
        for _ in 0..SLOTS {
            assert!(pending.insert(context, &posted(&SEND, false, 1)));
        }
        assert!(!pending.insert(context, &posted(&SEND, false, 1)));
        assert!(!pending.insert(ptr::null_mut(), &posted(&SEND, false, 1)));
        assert_eq!(pending.unfollowed(), 2);
    }
}
