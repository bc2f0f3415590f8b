#![allow(unsafe_code)]
//! Updating elements in memory that others may update at the same time.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use ripstop_types::{AtomicOp, Datatype};

use super::compute::element;
use super::locked::Locked;
use super::{AtomicError, check};
use crate::UserBuf;

/// Does `op` on every element of `target`, which is `target.len() / datatype.size()` of them,
/// and puts the values they had into `result`.
///
/// Element by element in ascending order, each in one step, sequentially consistent; against
/// what it is atomic is said in the [module's documentation](super). `target` may be written by
/// other calls and by the program's atomics meanwhile, and must be writable unless `op` is
/// [`AtomicOp::AtomicRead`]. `operand`, `compare` and `result` hold elements in this machine's
/// byte order, at any alignment; what they have beyond the length of `target` is ignored.
/// `operand` may be empty for [`AtomicOp::AtomicRead`], and `compare` for an operation without
/// comparison.
///
/// # Errors
///
/// [`AtomicError`], with nothing read or written.
pub fn execute(
    datatype: Datatype,
    op: AtomicOp,
    target: UserBuf,
    operand: &[u8],
    compare: &[u8],
    result: Option<&mut [u8]>,
) -> Result<(), AtomicError> {
    check(op, datatype)?;
    let len = target.len();
    if !len.is_multiple_of(datatype.size())
        || (op.takes_operand() && operand.len() < len)
        || (op.takes_comparison() && compare.len() < len)
        || result.as_ref().is_some_and(|result| result.len() < len)
    {
        return Err(AtomicError::Length);
    }
    if len > 0 && !target.addr().is_multiple_of(datatype.align()) {
        return Err(AtomicError::Misaligned);
    }
    let work = Work {
        datatype,
        op,
        target,
        operand,
        compare,
        result,
    };
    let own_size = target.addr().is_multiple_of(datatype.size());
    match datatype.size() {
        1 => work.run::<1, Word<u8>>(),
        2 => work.run::<2, Word<u16>>(),
        4 => work.run::<4, Word<u32>>(),
        8 if own_size => work.run::<8, Word<u64>>(),
        8 => work.run::<8, Locked>(),
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        16 if own_size && super::wide::available() => work.run::<16, super::wide::Pair>(),
        16 => work.run::<16, Locked>(),
        _ => work.run::<32, Locked>(),
    }
    Ok(())
}

/// One element of `N` bytes in memory that others may change, and a way to change it.
pub(super) trait Place<const N: usize>: Copy {
    /// The element at `ptr`.
    fn at(ptr: *mut u8) -> Self;

    /// Its value.
    ///
    /// # Safety
    ///
    /// `at` was given a pointer that is valid for reads of `N` bytes (and for writes, where
    /// [`wide`](super::wide) says so), aligned as the implementation demands, and nobody accesses
    /// these bytes meanwhile other than atomically.
    unsafe fn load(self) -> [u8; N];

    /// Replaces its value by what `f` makes of it, and gives the value before. `f` may be
    /// called several times.
    ///
    /// # Safety
    ///
    /// As for [`load`](Self::load), and the pointer is valid for writes.
    unsafe fn update(self, f: impl FnMut(&[u8; N]) -> [u8; N]) -> [u8; N];

    /// The value before, if there is one instruction that does `op` and it was done. `integer`
    /// tells whether the element is one.
    ///
    /// # Safety
    ///
    /// As for [`update`](Self::update).
    unsafe fn direct(
        self,
        _op: AtomicOp,
        _integer: bool,
        _operand: [u8; N],
        _compare: [u8; N],
    ) -> Option<[u8; N]> {
        None
    }
}

/// The arguments of [`execute`], checked: the lengths and the alignment fit.
struct Work<'a> {
    datatype: Datatype,
    op: AtomicOp,
    target: UserBuf,
    operand: &'a [u8],
    compare: &'a [u8],
    result: Option<&'a mut [u8]>,
}

impl Work<'_> {
    /// Does the operation on every element. `P` fits the size and alignment of the target.
    fn run<const N: usize, P: Place<N>>(mut self) {
        for off in (0..self.target.len()).step_by(N) {
            // `off` is inside the target.
            let place = P::at(self.target.as_ptr().wrapping_add(off));
            let operand = elements(self.operand, off);
            let compare = elements(self.compare, off);
            let old = self.one(place, operand, compare);
            let result = self.result.as_deref_mut().and_then(|r| r.get_mut(off..));
            if let Some(result) = result.and_then(|r| r.first_chunk_mut()) {
                *result = old;
            }
        }
    }

    /// Does the operation on one element of the target, and gives the value before.
    #[inline]
    fn one<const N: usize, P: Place<N>>(
        &self,
        place: P,
        operand: [u8; N],
        compare: [u8; N],
    ) -> [u8; N] {
        if self.op == AtomicOp::AtomicRead {
            // SAFETY: the target is valid by `UserBuf::from_raw`, `place` is an element of it,
            // and `execute` chose `P` by size and alignment.
            return unsafe { place.load() };
        }
        let integer = self.datatype.is_integer();
        // SAFETY: as above; the target of an operation other than a read is writable.
        if let Some(old) = unsafe { place.direct(self.op, integer, operand, compare) } {
            return old;
        }
        let change = |old: &[u8; N]| {
            let mut new = *old;
            element(self.datatype, self.op, &operand, &compare, &mut new);
            new
        };
        // SAFETY: as above.
        unsafe { place.update(change) }
    }
}

/// The element at `off`, or zeros where an operation takes none.
#[inline]
fn elements<const N: usize>(bytes: &[u8], off: usize) -> [u8; N] {
    let rest = bytes.get(off..).unwrap_or(&[]);
    rest.first_chunk().copied().unwrap_or([0; N])
}

/// An element that is one machine word. Its address is aligned to its size.
#[derive(Clone, Copy)]
pub(super) struct Word<T>(*mut T);

macro_rules! words {
    ($($int:ty, $atomic:ty, $size:literal;)*) => {$(
        impl Place<$size> for Word<$int> {
            #[inline]
            fn at(ptr: *mut u8) -> Self {
                Self(ptr.cast())
            }

            #[inline]
            unsafe fn load(self) -> [u8; $size] {
                // SAFETY: valid and aligned by the caller, and nobody accesses it other than
                // atomically. An atomic reference lets others write.
                let cell = unsafe { <$atomic>::from_ptr(self.0) };
                cell.load(Ordering::SeqCst).to_ne_bytes()
            }

            #[inline]
            unsafe fn update(self, mut f: impl FnMut(&[u8; $size]) -> [u8; $size]) -> [u8; $size] {
                // SAFETY: as in `load`.
                let cell = unsafe { <$atomic>::from_ptr(self.0) };
                let mut old = cell.load(Ordering::SeqCst);
                loop {
                    let new = <$int>::from_ne_bytes(f(&old.to_ne_bytes()));
                    if new == old {
                        return old.to_ne_bytes();
                    }
                    match cell.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::SeqCst) {
                        Ok(_) => return old.to_ne_bytes(),
                        Err(found) => old = found,
                    }
                }
            }

            #[inline]
            unsafe fn direct(
                self,
                op: AtomicOp,
                integer: bool,
                operand: [u8; $size],
                compare: [u8; $size],
            ) -> Option<[u8; $size]> {
                // SAFETY: as in `load`.
                let cell = unsafe { <$atomic>::from_ptr(self.0) };
                let operand = <$int>::from_ne_bytes(operand);
                let compare = <$int>::from_ne_bytes(compare);
                let order = Ordering::SeqCst;
                let old = match op {
                    AtomicOp::AtomicWrite => cell.swap(operand, order),
                    AtomicOp::Sum if integer => cell.fetch_add(operand, order),
                    AtomicOp::Diff if integer => cell.fetch_sub(operand, order),
                    AtomicOp::Band => cell.fetch_and(operand, order),
                    AtomicOp::Bor => cell.fetch_or(operand, order),
                    AtomicOp::Bxor => cell.fetch_xor(operand, order),
                    AtomicOp::Cswap if integer => cell
                        .compare_exchange(compare, operand, order, order)
                        .unwrap_or_else(|found| found),
                    _ => return None,
                };
                Some(old.to_ne_bytes())
            }
        }
    )*};
}

words! {
    u8, AtomicU8, 1;
    u16, AtomicU16, 2;
    u32, AtomicU32, 4;
    u64, AtomicU64, 8;
}
