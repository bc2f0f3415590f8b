#![allow(unsafe_code)]
//! The book of posted operations: who waits for which completion, and the memory parked there.

use std::ffi::c_void;
use std::mem::size_of;
use std::ops::Range;
use std::ptr::NonNull;

use ripstop_abi::fi_context2;
use ripstop_types::{Errno, Flags};

use crate::buf::{self, Buf};

/// Names one posted operation until its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId {
    index: u32,
    generation: u32,
}

impl OpId {
    /// No operation in the book: its context is the caller's own number.
    pub(crate) const UNBOOKED: Self = Self {
        index: u32::MAX,
        generation: 0,
    };
}

/// A message reserved by a successful peek with claim, to be received or discarded by the
/// endpoint that peeked. Dropped unused, it stays reserved until the domain closes.
#[derive(Debug)]
pub struct Claim {
    pub(crate) op: OpId,
}

/// What an operation's completion hands back.
#[derive(Debug, Default)]
pub enum Returned {
    /// Nothing: the operation used a slice of a region, or none of ours is known.
    #[default]
    Nothing,
    /// The buffer passed in.
    Buf(Buf),
    /// The buffers passed in, in order.
    Bufs(Vec<Buf>),
    /// A message out of a multi-receive buffer.
    Piece {
        /// The message, copied out; empty when the queue's format does not say where it is.
        bytes: Vec<u8>,
        /// The buffer, with the completion that ends its use.
        released: Option<Buf>,
    },
    /// The message that a peek with claim found.
    Claim(Claim),
}

impl Returned {
    /// The buffer, if exactly one came back.
    #[must_use]
    pub fn into_buf(self) -> Option<Buf> {
        match self {
            Self::Buf(buf) => Some(buf),
            Self::Piece { released, .. } => released,
            _ => None,
        }
    }
}

/// Memory parked with an operation.
#[derive(Debug, Default)]
pub enum Held {
    #[default]
    Nothing,
    One(Buf),
    Many(Vec<Buf>),
}

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
    generation: u32,
    state: State,
    kind: Kind,
    token: u64,
    held: Held,
}

/// The facts of a completion that decide what becomes of its operation.
#[derive(Clone, Copy)]
pub(crate) struct Outcome {
    pub flags: Flags,
    pub len: usize,
    /// Where the data starts, or 0 when the entry does not say.
    pub buf: usize,
    pub error: Option<Errno>,
}

/// A finished operation.
pub(crate) struct Finished {
    pub op: OpId,
    pub token: u64,
    pub returned: Returned,
}

/// One domain's operations. A context handed to C is the address of one of `capacity`
/// `fi_context2`, which C may write (modes `FI_CONTEXT` and `FI_CONTEXT2`) and Rust never reads.
pub(crate) struct Book {
    contexts: NonNull<fi_context2>,
    capacity: usize,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

// SAFETY: the book owns the memory behind `contexts` and uses it only as addresses.
unsafe impl Send for Book {}

const SIZE: usize = size_of::<fi_context2>();

impl Book {
    /// A book of at most `capacity` operations at a time, at least 1.
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, 1 << 24);
        Self {
            contexts: buf::allocate(capacity * SIZE).cast(),
            capacity,
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Enters an operation; gives the memory back when the book is full.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        kind: Kind,
        token: u64,
        held: Held,
    ) -> Result<(OpId, *mut c_void), Held> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < self.capacity => {
                self.slots.push(Slot {
                    generation: 0,
                    state: State::Free,
                    kind,
                    token,
                    held: Held::Nothing,
                });
                (self.slots.len() - 1) as u32
            }
            None => return Err(held),
        };
        let slot = &mut self.slots[index as usize];
        slot.state = State::Posted;
        slot.kind = kind;
        slot.token = token;
        slot.held = held;
        let op = OpId {
            index,
            generation: slot.generation,
        };
        Ok((op, self.context(index)))
    }

    /// The context of an operation that is still posted.
    pub(crate) fn posted(&self, op: OpId) -> Option<*mut c_void> {
        self.slot(op, State::Posted)?;
        Some(self.context(op.index))
    }

    /// The context of a posted operation with this token.
    pub(crate) fn with_token(&self, token: u64) -> Option<*mut c_void> {
        let found = |slot: &Slot| slot.state == State::Posted && slot.token == token;
        let index = self.slots.iter().position(found)?;
        Some(self.context(index as u32))
    }

    /// Overwrites some of the buffers of an operation that is still posted: those that C has given
    /// back already.
    pub(crate) fn overwrite(&mut self, op: OpId, pieces: Range<usize>) {
        if self.slot(op, State::Posted).is_none() {
            return;
        }
        let bufs = match &self.slots[op.index as usize].held {
            Held::Nothing => &[],
            Held::One(buf) => std::slice::from_ref(buf),
            Held::Many(bufs) => &bufs[..],
        };
        for buf in bufs.get(pieces).unwrap_or_default() {
            buf::overwrite(buf);
        }
    }

    /// Takes back an operation that C refused, with its memory.
    pub(crate) fn withdraw(&mut self, op: OpId) -> Held {
        match self.slot(op, State::Posted) {
            Some(_) => self.leave(op.index as usize),
            None => Held::Nothing,
        }
    }

    /// Posts the receive of a claimed message by the endpoint at `ep`, under the same context.
    pub(crate) fn reenter(
        &mut self,
        claim: &Claim,
        ep: usize,
        token: u64,
        held: Held,
    ) -> Result<(OpId, *mut c_void), Held> {
        let context = self.context(claim.op.index);
        match self.slots.get_mut(claim.op.index as usize) {
            Some(slot)
                if slot.generation == claim.op.generation
                    && slot.state == State::Claimed
                    && slot.kind == Kind::PeekClaim(ep) =>
            {
                slot.state = State::Posted;
                slot.kind = Kind::Plain;
                slot.token = token;
                slot.held = held;
                Ok((claim.op, context))
            }
            _ => Err(held),
        }
    }

    /// Makes a refused claim claimable again, and gives back its memory.
    pub(crate) fn reclaim(&mut self, op: OpId, ep: usize) -> Held {
        if self.slot(op, State::Posted).is_none() {
            return Held::Nothing;
        }
        let slot = &mut self.slots[op.index as usize];
        slot.state = State::Claimed;
        slot.kind = Kind::PeekClaim(ep);
        std::mem::take(&mut slot.held)
    }

    /// Books a completion. `None` if `context` is none of a posted operation.
    pub(crate) fn complete(&mut self, context: *mut c_void, outcome: Outcome) -> Option<Finished> {
        let index = self.find(context)?;
        let slot = &mut self.slots[index];
        let op = OpId {
            index: index as u32,
            generation: slot.generation,
        };
        let token = slot.token;
        let returned = match slot.kind {
            Kind::PeekClaim(_) if outcome.error.is_none() => {
                slot.state = State::Claimed;
                Returned::Claim(Claim { op })
            }
            Kind::Multi => self.piece(index, outcome),
            _ => match self.leave(index) {
                Held::Nothing => Returned::Nothing,
                Held::One(buf) => Returned::Buf(buf),
                Held::Many(bufs) => Returned::Bufs(bufs),
            },
        };
        Some(Finished {
            op,
            token,
            returned,
        })
    }

    fn piece(&mut self, index: usize, outcome: Outcome) -> Returned {
        let mut bytes = Vec::new();
        if let Held::One(buf) = &self.slots[index].held {
            let range = outcome
                .buf
                .checked_sub(buf.as_ptr().addr())
                .and_then(|start| Some((start, start.checked_add(outcome.len)?)))
                .filter(|(_, end)| *end <= buf.len());
            if let (Some((start, _)), None) = (range, outcome.error) {
                bytes.reserve_exact(outcome.len);
                // SAFETY: the range lies in the buffer and in the vector's reserve, and C has
                // said with this completion that it writes these bytes no more.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        buf.as_ptr().wrapping_add(start),
                        bytes.as_mut_ptr(),
                        outcome.len,
                    );
                }
                // SAFETY: the copy above initialised `len` bytes within the capacity.
                unsafe { bytes.set_len(outcome.len) };
            }
        }
        let ended =
            outcome.flags.contains(Flags::MULTI_RECV) || outcome.error == Some(Errno::ECANCELED);
        let released = match ended.then(|| self.leave(index)) {
            Some(Held::One(buf)) => Some(buf),
            _ => None,
        };
        Returned::Piece { bytes, released }
    }

    fn slot(&self, op: OpId, state: State) -> Option<&Slot> {
        self.slots
            .get(op.index as usize)
            .filter(|s| s.generation == op.generation && s.state == state)
    }

    fn context(&self, index: u32) -> *mut c_void {
        self.contexts.as_ptr().wrapping_add(index as usize).cast()
    }

    /// The posted operation with this context, whatever C passes.
    #[inline]
    fn find(&self, context: *mut c_void) -> Option<usize> {
        let offset = context.addr().checked_sub(self.contexts.as_ptr().addr())?;
        let index = offset / SIZE;
        let slot = self.slots.get(index)?;
        (offset.is_multiple_of(SIZE) && slot.state == State::Posted).then_some(index)
    }

    #[inline]
    fn leave(&mut self, index: usize) -> Held {
        let slot = &mut self.slots[index];
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index as u32);
        std::mem::take(&mut slot.held)
    }
}

impl Drop for Book {
    fn drop(&mut self) {
        buf::release(self.contexts.cast(), self.capacity * SIZE);
    }
}
