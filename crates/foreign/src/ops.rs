#![allow(unsafe_code)]
//! The book of posted operations, for libraries that need memory at a context.

use std::ffi::c_void;
use std::mem::{MaybeUninit, size_of};
use std::ptr::NonNull;

use ripstop_abi::{
    FI_TRIGGER_THRESHOLD, fi_context2, fi_trigger_threshold, fi_triggered_context2,
    fi_triggered_context2_trigger, fid_cntr,
};
use ripstop_types::{Context, Errno, Flags};

use crate::{Error, Result};

/// How an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// With its only completion.
    Plain,
    /// With the completion that carries `FI_MULTI_RECV`.
    Multi,
    /// A success keeps the context for the claim by the endpoint with this address.
    PeekClaim(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Posted,
    Claimed,
}

struct Slot {
    state: State,
    kind: Kind,
    context: Context,
}

/// Operations that may be posted at once in a domain.
const CAPACITY: usize = 1 << 16;

const SIZE: usize = size_of::<fi_context2>();

/// One domain's operations. What C gets as a context is the address of one of [`CAPACITY`]
/// `fi_context2`, which it may write (modes `FI_CONTEXT` and `FI_CONTEXT2`) and Rust never reads.
pub(crate) struct Book {
    memory: NonNull<[MaybeUninit<fi_context2>]>,
    slots: Vec<Slot>,
    free: Vec<usize>,
}

// SAFETY: the memory is used as addresses only; what C writes there it writes from any thread.
unsafe impl Send for Book {}

impl Book {
    /// One without room, or with room for as many as there may be.
    pub(crate) fn new(used: bool) -> Self {
        let capacity = if used { CAPACITY } else { 0 };
        Self {
            memory: NonNull::from(Box::leak(Box::new_uninit_slice(capacity))),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Enters an operation, unless the book is full; gives what C gets.
    #[inline]
    pub(crate) fn enter(&mut self, kind: Kind, context: Context) -> Option<*mut c_void> {
        let slot = Slot {
            state: State::Posted,
            kind,
            context,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index] = slot;
                index
            }
            None if self.slots.len() < self.memory.len() => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
            None => return None,
        };
        Some(self.address(index))
    }

    /// What C has of a posted operation with this context.
    pub(crate) fn posted(&self, context: Context) -> Option<*mut c_void> {
        let found = |slot: &Slot| slot.state == State::Posted && slot.context == context;
        Some(self.address(self.slots.iter().position(found)?))
    }

    /// Takes back an operation that C refused.
    pub(crate) fn withdraw(&mut self, address: *mut c_void) {
        if let Some(index) = self.find(address) {
            self.leave(index);
        }
    }

    /// Posts the receive of the message that a peek with this context, of the endpoint at `ep`, has
    /// claimed.
    pub(crate) fn claim(&mut self, ep: usize, context: Context) -> Option<*mut c_void> {
        let found = |slot: &Slot| {
            slot.state == State::Claimed
                && slot.context == context
                && slot.kind == Kind::PeekClaim(ep)
        };
        let index = self.slots.iter().position(found)?;
        self.slots[index].state = State::Posted;
        self.slots[index].kind = Kind::Plain;
        Some(self.address(index))
    }

    /// Makes a refused claim claimable again.
    pub(crate) fn reclaim(&mut self, ep: usize, address: *mut c_void) {
        if let Some(index) = self.find(address) {
            self.slots[index].state = State::Claimed;
            self.slots[index].kind = Kind::PeekClaim(ep);
        }
    }

    /// Books a completion with these flags, or an error: the context of the operation, 0 when it is
    /// none of ours.
    pub(crate) fn complete(
        &mut self,
        address: *mut c_void,
        flags: Flags,
        error: Option<Errno>,
    ) -> Context {
        let Some(index) = self.find(address) else {
            return 0;
        };
        let Slot { kind, context, .. } = self.slots[index];
        match kind {
            Kind::PeekClaim(_) if error.is_none() => self.slots[index].state = State::Claimed,
            Kind::Multi
                if !flags.contains(Flags::MULTI_RECV) && error != Some(Errno::ECANCELED) => {}
            _ => self.leave(index),
        }
        context
    }

    fn address(&self, index: usize) -> *mut c_void {
        let start: *mut fi_context2 = self.memory.as_ptr().cast();
        start.wrapping_add(index).cast()
    }

    /// The posted operation at this address, whatever C passes.
    #[inline]
    fn find(&self, address: *mut c_void) -> Option<usize> {
        let offset = address.addr().checked_sub(self.memory.addr().get())?;
        let index = offset / SIZE;
        let slot = self.slots.get(index)?;
        (offset.is_multiple_of(SIZE) && slot.state == State::Posted).then_some(index)
    }

    #[inline]
    fn leave(&mut self, index: usize) {
        self.slots[index].state = State::Free;
        self.free.push(index);
    }
}

/// Writes into the context of an operation that is about to be posted what it waits for: so many
/// successes of a counter. The context is one of a book.
pub(crate) fn arm(context: *mut c_void, cntr: *mut fid_cntr, successes: u64) -> Result<()> {
    let threshold = usize::try_from(successes);
    let threshold = threshold.map_err(|_| Error::new("fi_sendmsg", Errno::EINVAL))?;
    let condition = fi_triggered_context2 {
        event_type: FI_TRIGGER_THRESHOLD,
        trigger: fi_triggered_context2_trigger {
            threshold: fi_trigger_threshold { cntr, threshold },
        },
    };
    // SAFETY: the context is a `fi_context2` of a book, which is as large, and whose operation has
    // not been posted.
    unsafe { context.cast::<fi_triggered_context2>().write(condition) };
    Ok(())
}

impl Drop for Book {
    fn drop(&mut self) {
        // SAFETY: `new` leaked the box, and the domain that C had these addresses for has closed.
        drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_book_takes_no_more_until_one_has_ended() {
        let mut book = Book::new(true);
        let posted: Vec<_> = (1..=CAPACITY)
            .map(|context| book.enter(Kind::Plain, context).unwrap())
            .collect();
        assert_eq!(book.enter(Kind::Plain, 1), None);
        assert_eq!(book.posted(7), Some(posted[6]));
        assert_eq!(book.complete(posted[6], Flags::empty(), None), 7);
        assert_eq!(book.posted(7), None);
        // Whatever C passes.
        assert_eq!(book.complete(posted[6], Flags::empty(), None), 0);
        assert_eq!(book.complete(std::ptr::null_mut(), Flags::empty(), None), 0);
        assert_eq!(book.enter(Kind::Multi, 8), Some(posted[6]));
        assert_eq!(Book::new(false).enter(Kind::Plain, 1), None);
    }

    #[test]
    fn a_claim_is_of_the_endpoint_that_peeked() {
        let mut book = Book::new(true);
        let at = book.enter(Kind::PeekClaim(1), 5);
        assert_eq!(book.claim(1, 5), None, "nothing is found yet");
        assert_eq!(book.complete(at.unwrap(), Flags::empty(), None), 5);
        assert_eq!(book.claim(2, 5), None);
        assert_eq!(book.claim(1, 5), at);
        book.reclaim(1, at.unwrap());
        assert_eq!(book.claim(1, 5), at);
        assert_eq!(book.complete(at.unwrap(), Flags::empty(), None), 5);
        assert_eq!(book.claim(1, 5), None);
    }
}
