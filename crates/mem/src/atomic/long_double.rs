#![allow(unsafe_code)]
//! C's `long double` on x86-64: the 80-bit extended format, computed by the x87 unit.

use core::arch::asm;
use core::cmp::Ordering;

use super::number::Number;

/// The bytes of a value, without the padding behind it.
const BYTES: usize = 10;

/// The bytes of a `long double`'s value.
#[derive(Clone, Copy)]
pub(super) struct LongDouble([u8; BYTES]);

/// Pushes both numbers, does one instruction that pops one of them, and pops the result.
macro_rules! x87 {
    ($instruction:literal, $a:expr, $b:expr) => {{
        let (a, b): (LongDouble, LongDouble) = ($a, $b);
        let mut result = [0u8; BYTES];
        // SAFETY: reads the 10 bytes of `a` and of `b`, writes the 10 of `result`, and leaves
        // the register stack as empty as it found it; all its registers are named.
        unsafe {
            asm!(
                "fld tbyte ptr [{a}]",
                "fld tbyte ptr [{b}]",
                $instruction,
                "fstp tbyte ptr [{result}]",
                a = in(reg) a.0.as_ptr(),
                b = in(reg) b.0.as_ptr(),
                result = in(reg) result.as_mut_ptr(),
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack),
            );
        }
        LongDouble(result)
    }};
}

impl Number for LongDouble {
    const ZERO: Self = Self([0; BYTES]);
    // The digits 1.000 with their leading bit, and the bias as exponent.
    const ONE: Self = Self([0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f]);

    #[inline]
    fn get(bytes: &[u8]) -> Self {
        bytes.first_chunk().map_or(Self::ZERO, |bytes| Self(*bytes))
    }

    #[inline]
    fn put(self, bytes: &mut [u8]) {
        if let Some(bytes) = bytes.first_chunk_mut() {
            *bytes = self.0;
        }
    }

    fn plus(self, other: Self) -> Self {
        x87!("faddp st(1), st", self, other)
    }

    fn minus(self, other: Self) -> Self {
        x87!("fsubp st(1), st", self, other)
    }

    fn times(self, other: Self) -> Self {
        x87!("fmulp st(1), st", self, other)
    }

    fn order(self, other: Self) -> Option<Ordering> {
        let (greater, less, unordered): (u8, u8, u8);
        // SAFETY: reads the 10 bytes of both, and leaves the register stack as empty as it found
        // it; all its registers are named. The pop does not change the flags.
        unsafe {
            asm!(
                "fld tbyte ptr [{b}]",
                "fld tbyte ptr [{a}]",
                "fucomip st, st(1)",
                "fstp st(0)",
                "seta {greater}",
                "setb {less}",
                "setp {unordered}",
                a = in(reg) self.0.as_ptr(),
                b = in(reg) other.0.as_ptr(),
                greater = out(reg_byte) greater,
                less = out(reg_byte) less,
                unordered = out(reg_byte) unordered,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack, readonly),
            );
        }
        if unordered != 0 {
            None
        } else {
            Some(greater.cmp(&less))
        }
    }
}
