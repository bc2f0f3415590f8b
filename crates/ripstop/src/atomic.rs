//! Atomics on a peer's memory.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ripstop_types::{AtomicKind, AtomicOp, Datatype};
use sealed::Sealed;

use crate::error::Result;
use crate::message::{Action, Peer, Remote};
use crate::op::{Op, Outcome};
use crate::port::Port;

mod sealed {
    /// See [`Element`](super::Element).
    pub trait Sealed: Copy {
        const DATATYPE: super::Datatype;
        fn put(self, into: &mut Vec<u8>);
        fn get(bytes: &[u8]) -> Self;
    }
}

/// What an atomic works on: the integers of 8 to 128 bits, `f32` and `f64`.
pub trait Element: Sealed {}

impl<T: Sealed> Element for T {}

macro_rules! elements {
    ($($type:ty => $datatype:ident;)*) => {$(
        impl Sealed for $type {
            const DATATYPE: Datatype = Datatype::$datatype;

            fn put(self, into: &mut Vec<u8>) {
                into.extend_from_slice(&self.to_ne_bytes());
            }

            fn get(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(bytes.try_into().unwrap_or_default())
            }
        }
    )*};
}

elements! {
    i8 => Int8;
    u8 => Uint8;
    i16 => Int16;
    u16 => Uint16;
    i32 => Int32;
    u32 => Uint32;
    i64 => Int64;
    u64 => Uint64;
    i128 => Int128;
    u128 => Uint128;
    f32 => Float;
    f64 => Double;
}

fn bytes<T: Element>(elements: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(elements));
    elements.iter().for_each(|element| element.put(&mut bytes));
    bytes
}

/// An atomic under way (man page `fi_atomic(3)`): a future, as an [`Op`] is, with the same ways
/// to wait. It ends with the values that were there before, or with none if it does not fetch.
///
/// Dropping it is sound at any time; it is carried out all the same.
#[must_use = "an atomic that is dropped cannot be asked whether it was refused"]
pub struct Atomic<T: Element> {
    op: Op<[Vec<u8>; 3]>,
    values: PhantomData<fn() -> T>,
}

impl Port {
    /// Starts an atomic on as many elements as there are operands.
    pub(crate) fn atomic<T: Element>(
        self: &Arc<Self>,
        kind: AtomicKind,
        op: AtomicOp,
        [operands, compare]: [&[T]; 2],
        place: (Option<Peer>, Remote),
    ) -> Atomic<T> {
        let buffers = [bytes(operands), bytes(compare)];
        self.start_atomic((kind, op), buffers, operands.len(), place)
    }

    /// Starts to read `count` elements.
    pub(crate) fn atomic_read<T: Element>(
        self: &Arc<Self>,
        count: usize,
        place: (Option<Peer>, Remote),
    ) -> Atomic<T> {
        let what = (AtomicKind::Fetch, AtomicOp::AtomicRead);
        self.start_atomic(what, [Vec::new(), Vec::new()], count, place)
    }

    fn start_atomic<T: Element>(
        self: &Arc<Self>,
        (kind, op): (AtomicKind, AtomicOp),
        [operands, compare]: [Vec<u8>; 2],
        count: usize,
        (peer, at): (Option<Peer>, Remote),
    ) -> Atomic<T> {
        let len = count.saturating_mul(size_of::<T>());
        let room = match kind {
            AtomicKind::Plain => 0,
            AtomicKind::Fetch | AtomicKind::Compare => len,
        };
        let bufs = [operands, compare, vec![0; room]];
        let action = Action::Atomic {
            kind,
            datatype: T::DATATYPE,
            op,
            at: at.iov(len as u64),
        };
        Atomic {
            op: self.start(bufs, peer, action),
            values: PhantomData,
        }
    }
}

impl<T: Element> Atomic<T> {
    fn values((done, [_, _, result]): Outcome<[Vec<u8>; 3]>) -> Result<Vec<T>> {
        done.map(|_| result.chunks_exact(size_of::<T>()).map(T::get).collect())
    }

    /// Waits until the operation is over, driving the domain meanwhile.
    ///
    /// # Errors
    /// `FI_EOPNOTSUPP` for an operation that the datatype does not have, or a peer without
    /// atomics; what the peer refuses: `FI_EKEYREJECTED`, `FI_EACCES`, `FI_EFAULT`, and
    /// `FI_EINVAL` for memory that is not aligned to the datatype.
    pub fn wait(self) -> Result<Vec<T>> {
        Self::values(self.op.wait())
    }

    /// As [`wait`](Self::wait), at most for `timeout`.
    ///
    /// # Errors
    /// The operation itself, still under way, when the time is over.
    pub fn wait_timeout(self, timeout: Duration) -> std::result::Result<Result<Vec<T>>, Self> {
        match self.op.wait_timeout(timeout) {
            Ok(outcome) => Ok(Self::values(outcome)),
            Err(op) => Err(Self {
                op,
                values: PhantomData,
            }),
        }
    }

    /// Makes progress and returns the outcome if the operation is over; never blocks. Once it
    /// has given the outcome it gives `None`.
    pub fn try_complete(&mut self) -> Option<Result<Vec<T>>> {
        self.op.try_complete().map(Self::values)
    }
}

impl<T: Element> Future for Atomic<T> {
    /// The errors: as for [`wait`](Self::wait).
    type Output = Result<Vec<T>>;

    /// # Panics
    /// When it is polled again after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.get_mut().op).poll(cx).map(Self::values)
    }
}

impl<T: Element> fmt::Debug for Atomic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Atomic").field(&self.op).finish()
    }
}
