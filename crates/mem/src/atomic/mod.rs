//! Atomic operations on registered memory (man page `fi_atomic(3)`). Providers call [`execute`] for an
//! operation on a region, and [`reduce`] in collectives.
//!
//! # What is atomic against what
//!
//! Every [`execute`] updates each element in one step as seen by every other [`execute`] of
//! this process on the same element with the same datatype, whichever thread, endpoint or domain
//! it comes from. Whether that also holds against the program's own atomic instructions (and, in
//! shared memory, against other processes) depends on the element's size:
//!
//! | size | datatypes | also atomic against the processor's atomics |
//! |---|---|---|
//! | 1, 2, 4 and 8 B | integers, floating point | yes, of the same size |
//! | 8 B | complex float | if 8-byte aligned, where it is one 8-byte word; else no |
//! | 16 B | 128-bit integers, long double, complex double | on x86-64 with `cmpxchg16b` (every processor since 2006), if 16-byte aligned; else no |
//! | 32 B | complex long double | no |
//!
//! Where the answer is no, a lock of this process guards the update, and other observers may see a part
//! of it. Only elements are atomic, never the whole array.
//!
//! An operation that leaves an element as it is does not write it. A read of 16 bytes on a
//! processor with `cmpxchg16b` but without AVX (none built since 2013) needs writable memory.
//!
//! # What is computed
//!
//! - Integers wrap. Logical operations give 1 or 0 of the datatype; a NaN is true.
//! - Comparisons are of values: 0.0 equals -0.0, and a NaN is neither equal to, less nor greater
//!   than anything, so it is never replaced by a minimum or maximum. The C library compares
//!   floating point of [`Cswap`](AtomicOp::Cswap) by its bits; the manual page says `==`.
//! - A complex product is `(ac - bd) + (ad + bc)i`; infinities are not recovered from NaNs.
//! - Half precision, bfloat16 and OFP8 are computed in double precision and rounded once, to
//!   nearest, ties to even. Beyond the largest value, those with infinities become infinite,
//!   and E4M3, which has none, stays at ±448.
//! - Of a `long double`, only the 10 bytes of the value are written; the padding stays.
//!
//! [`supported`] tells which datatypes this build can compute: a kernel has no floating point, and
//! `long double` is known for x86-64 only.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod cmpxchg16b;
mod compute;
mod element;
mod execute;
#[cfg(not(target_os = "none"))]
mod float;
mod locked;
#[cfg(all(target_arch = "x86_64", not(target_os = "none")))]
mod long_double;
mod number;
mod reduce;
#[cfg(not(target_os = "none"))]
mod small_float;
#[cfg(test)]
mod tests;

use core::fmt;

pub use execute::execute;
pub use reduce::reduce;
use ripstop_types::{AtomicOp, Datatype};

/// Why an atomic operation was refused. Nothing was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicError {
    /// The target's address is not a multiple of [`Datatype::align`].
    Misaligned,
    /// The target is not a whole number of elements, or the operand, the comparison or the
    /// result is shorter than it.
    Length,
    /// This build cannot compute the datatype; see [`supported`].
    Unsupported,
    /// The operation is not defined on the datatype; see [`AtomicOp::acts_on`].
    Invalid,
}

impl fmt::Display for AtomicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Misaligned => {
                "atomic operation at an address that is not aligned for its datatype"
            }
            Self::Length => {
                "atomic operation on a part of an element, or with a buffer shorter than its target"
            }
            Self::Unsupported => "atomic operation on a datatype that this machine cannot compute",
            Self::Invalid => "atomic operation that is not defined on its datatype",
        })
    }
}

impl core::error::Error for AtomicError {}

/// Whether this build can compute elements of this datatype: integers always; floating point
/// except in a kernel; `long double` and its complex numbers on x86-64 outside a kernel only.
#[must_use]
pub const fn supported(datatype: Datatype) -> bool {
    let floats = cfg!(not(target_os = "none"));
    match datatype {
        Datatype::LongDouble | Datatype::LongDoubleComplex => {
            floats && cfg!(target_arch = "x86_64")
        }
        _ => floats || datatype.is_integer(),
    }
}

/// Whether the operation can be done on elements of this datatype at all.
const fn check(op: AtomicOp, datatype: Datatype) -> Result<(), AtomicError> {
    if !supported(datatype) {
        Err(AtomicError::Unsupported)
    } else if !op.acts_on(datatype) {
        Err(AtomicError::Invalid)
    } else {
        Ok(())
    }
}
