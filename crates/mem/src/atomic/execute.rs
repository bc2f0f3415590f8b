#![allow(unsafe_code)]
//! Atomic operations on elements in memory that others may update at the same time.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use ripstop_types::{AtomicOp, Datatype};

use super::compute::apply;
use super::element::AtomicElement;
use super::locked::LockedElement;
use super::{AtomicError, check};
use crate::UserBuf;

/// Executes `op` on the `target.len() / datatype.size()` elements of `target`, and stores their previous
/// values in `result`.
///
/// Elements are updated in ascending order, each in one step, sequentially consistent; the [module's
/// documentation](super) says against what that is atomic. `target` may be written by
/// other calls and by the program's atomics meanwhile, and must be writable unless `op` is
/// [`AtomicOp::AtomicRead`]. `operand`, `compare` and `result` hold elements in this machine's
/// byte order, at any alignment; bytes beyond the length of `target` are ignored.
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
    let args = CheckedArgs {
        datatype,
        op,
        target,
        operand,
        compare,
        result,
    };
    let own_size = target.addr().is_multiple_of(datatype.size());
    match datatype.size() {
        1 => args.run::<1, WordElement<u8>>(),
        2 => args.run::<2, WordElement<u16>>(),
        4 => args.run::<4, WordElement<u32>>(),
        8 if own_size => args.run::<8, WordElement<u64>>(),
        8 => args.run::<8, LockedElement>(),
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        16 if own_size && super::cmpxchg16b::available() => {
            args.run::<16, super::cmpxchg16b::Cmpxchg16bElement>()
        }
        16 => args.run::<16, LockedElement>(),
        _ => args.run::<32, LockedElement>(),
    }
    Ok(())
}

/// The arguments of [`execute`], checked: the lengths and the alignment fit.
struct CheckedArgs<'a> {
    datatype: Datatype,
    op: AtomicOp,
    target: UserBuf,
    operand: &'a [u8],
    compare: &'a [u8],
    result: Option<&'a mut [u8]>,
}

impl CheckedArgs<'_> {
    /// Executes the operation on every element. `P` fits the size and alignment of the target.
    fn run<const N: usize, P: AtomicElement<N>>(mut self) {
        for off in (0..self.target.len()).step_by(N) {
            // `off` is inside the target.
            let place = P::at(self.target.as_ptr().wrapping_add(off));
            let operand = element_at(self.operand, off);
            let compare = element_at(self.compare, off);
            let old = self.update_element(place, operand, compare);
            let result = self.result.as_deref_mut().and_then(|r| r.get_mut(off..));
            if let Some(result) = result.and_then(|r| r.first_chunk_mut()) {
                *result = old;
            }
        }
    }

    /// Executes the operation on one element, and returns its previous value.
    #[inline]
    fn update_element<const N: usize, P: AtomicElement<N>>(
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
        // SAFETY: `place` is an element of the target, of the size and alignment of `P`, and the
        // target of an operation other than a read is writable by `UserBuf::from_raw`.
        if let Some(old) = unsafe { place.single_instruction(self.op, integer, operand, compare) } {
            return old;
        }
        let change = |old: &[u8; N]| {
            let mut new = *old;
            apply(self.datatype, self.op, &operand, &compare, &mut new);
            new
        };
        // SAFETY: the operation is no read, so the target is valid for writes too, and `place` is an
        // element of it that `execute` chose `P` for.
        unsafe { place.update(change) }
    }
}

/// The element at `off`, or zeros if the operation takes none.
#[inline]
fn element_at<const N: usize>(bytes: &[u8], off: usize) -> [u8; N] {
    let rest = bytes.get(off..).unwrap_or(&[]);
    rest.first_chunk().copied().unwrap_or([0; N])
}

/// An element that is one machine word. Its address is aligned to its size.
#[derive(Clone, Copy)]
pub(super) struct WordElement<T>(*mut T);

macro_rules! word_elements {
    ($($int:ty, $atomic:ty, $size:literal;)*) => {$(
        impl AtomicElement<$size> for WordElement<$int> {
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
                // SAFETY: valid for reads and writes and aligned by the caller, and nobody accesses
                // it other than atomically.
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
            unsafe fn single_instruction(
                self,
                op: AtomicOp,
                integer: bool,
                operand: [u8; $size],
                compare: [u8; $size],
            ) -> Option<[u8; $size]> {
                // SAFETY: valid for reads and writes and aligned by the caller, and nobody accesses
                // it other than atomically.
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

word_elements! {
    u8, AtomicU8, 1;
    u16, AtomicU16, 2;
    u32, AtomicU32, 4;
    u64, AtomicU64, 8;
}
