//! Floating point of 16 and 8 bits.
//!
//! Numbers are computed in double precision and rounded once to the small format. That is the
//! correctly rounded result: a double has more than twice the digits of each format and two more,
//! and sums, differences and products of such numbers are never subnormal doubles.

use core::cmp::Ordering;
use core::marker::PhantomData;

use super::number::Number;

/// A layout of sign, exponent and fraction, from the highest bit down.
pub(super) trait Format: Copy {
    /// Bytes.
    const SIZE: usize;
    /// Bits of the exponent, whose bias is half its range.
    const EXPONENT: u32;
    /// Bits of the fraction.
    const FRACTION: u32;
    /// Whether the highest exponent means infinity and NaN. If not, only the highest number
    /// is a NaN, and there is no infinity.
    const HAS_INFINITY: bool;
}

macro_rules! formats {
    ($($(#[$meta:meta])* $name:ident, $layout:ident: $size:literal, $exponent:literal, $fraction:literal, $infinite:literal;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub(super) struct $layout;

        impl Format for $layout {
            const SIZE: usize = $size;
            const EXPONENT: u32 = $exponent;
            const FRACTION: u32 = $fraction;
            const HAS_INFINITY: bool = $infinite;
        }

        $(#[$meta])*
        pub(super) type $name = SmallFloat<$layout>;
    )*};
}

formats! {
    /// IEEE 754 half precision.
    Float16, Float16Layout: 2, 5, 10, true;
    /// The upper half of a single.
    Bfloat16, Bfloat16Layout: 2, 8, 7, true;
    /// OFP8 E4M3.
    E4M3, E4M3Layout: 1, 4, 3, false;
    /// OFP8 E5M2.
    E5M2, E5M2Layout: 1, 5, 2, true;
}

/// Bits of a double's fraction.
const DOUBLE_FRACTION: u32 = f64::MANTISSA_DIGITS - 1;
/// The bias of a double's exponent.
const DOUBLE_BIAS: i32 = f64::MAX_EXP - 1;

/// A number of a format, as its bits.
#[derive(Clone, Copy)]
pub(super) struct SmallFloat<F> {
    bits: u16,
    format: PhantomData<F>,
}

impl<F: Format> SmallFloat<F> {
    /// The highest exponent field, of infinity and NaN where there are infinities.
    const MAX_EXPONENT_FIELD: u16 = ((1u16 << F::EXPONENT) - 1) << F::FRACTION;
    /// The sign bit.
    const SIGN: u16 = 1 << (F::EXPONENT + F::FRACTION);
    /// The bits of the largest number.
    const LARGEST: u16 = if F::HAS_INFINITY {
        Self::MAX_EXPONENT_FIELD - 1
    } else {
        Self::SIGN - 2
    };
    /// The bits of a NaN.
    const NAN: u16 = if F::HAS_INFINITY {
        Self::MAX_EXPONENT_FIELD | (1 << (F::FRACTION - 1))
    } else {
        Self::SIGN - 1
    };
    /// What a number beyond the largest becomes.
    const OVERFLOW: u16 = if F::HAS_INFINITY {
        Self::MAX_EXPONENT_FIELD
    } else {
        Self::LARGEST
    };
    /// The exponent of the smallest normal number.
    const MIN_EXPONENT: i32 = 2 - (1 << (F::EXPONENT - 1));

    /// The number with these bits.
    const fn new(bits: u16) -> Self {
        Self {
            bits,
            format: PhantomData,
        }
    }

    /// The value, exactly.
    fn decode(self) -> f64 {
        let magnitude = self.bits & (Self::SIGN - 1);
        let value = if magnitude > Self::LARGEST {
            if F::HAS_INFINITY && magnitude == Self::MAX_EXPONENT_FIELD {
                f64::INFINITY
            } else {
                f64::NAN
            }
        } else {
            let fraction = magnitude & ((1 << F::FRACTION) - 1);
            let field = i32::from(magnitude >> F::FRACTION);
            let (digits, exponent) = match field {
                0 => (fraction, Self::MIN_EXPONENT),
                _ => (
                    fraction | (1 << F::FRACTION),
                    Self::MIN_EXPONENT + field - 1,
                ),
            };
            f64::from(digits) * power_of_two(exponent - F::FRACTION as i32)
        };
        if self.bits & Self::SIGN == 0 {
            value
        } else {
            -value
        }
    }

    /// The nearest number, of two equally near ones the even one.
    fn encode(value: f64) -> Self {
        let sign = if value.is_sign_negative() {
            Self::SIGN
        } else {
            0
        };
        if value.is_nan() {
            return Self::new(sign | Self::NAN);
        }
        Self::new(sign | Self::magnitude(value.abs()))
    }

    /// The bits of a value that is positive, 0 or infinite.
    fn magnitude(value: f64) -> u16 {
        if value == f64::INFINITY {
            return Self::OVERFLOW;
        }
        if value < f64::MIN_POSITIVE {
            return 0;
        }
        let bits = value.to_bits();
        let implicit = 1u64 << DOUBLE_FRACTION;
        let digits = bits & (implicit - 1) | implicit;
        let exponent = (bits >> DOUBLE_FRACTION) as i32 - DOUBLE_BIAS;
        // The exponent that the result's last digit belongs to.
        let scale = exponent.max(Self::MIN_EXPONENT);
        let drop = DOUBLE_FRACTION - F::FRACTION + (scale - exponent).unsigned_abs();
        if drop > DOUBLE_FRACTION + 1 {
            return 0; // less than half of the smallest number
        }
        let (kept, dropped, half) = (
            digits >> drop,
            digits & ((1 << drop) - 1),
            1u64 << (drop - 1),
        );
        let up = dropped > half || (dropped == half && kept & 1 == 1);
        // A carry out of the fraction goes into the exponent, as it should.
        let field = u64::from((scale - Self::MIN_EXPONENT).unsigned_abs());
        let magnitude = (field << F::FRACTION) + kept + u64::from(up);
        if magnitude > u64::from(Self::LARGEST) {
            Self::OVERFLOW
        } else {
            magnitude as u16
        }
    }
}

/// Two to a power that a normal double can hold.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + DOUBLE_BIAS) as u64) << DOUBLE_FRACTION)
}

impl<F: Format> Number for SmallFloat<F> {
    const ZERO: Self = Self::new(0);
    // The bias as exponent field.
    const ONE: Self = Self::new(((1 << (F::EXPONENT - 1)) - 1) << F::FRACTION);

    #[inline]
    fn get(bytes: &[u8]) -> Self {
        let bits = if F::SIZE == 1 {
            bytes.first().map_or(0, |byte| u16::from(*byte))
        } else {
            bytes
                .first_chunk()
                .map_or(0, |bytes| u16::from_ne_bytes(*bytes))
        };
        Self::new(bits)
    }

    #[inline]
    fn put(self, bytes: &mut [u8]) {
        if F::SIZE == 1 {
            if let Some(byte) = bytes.first_mut() {
                *byte = self.bits as u8;
            }
        } else if let Some(bytes) = bytes.first_chunk_mut() {
            *bytes = self.bits.to_ne_bytes();
        }
    }

    #[inline]
    fn plus(self, other: Self) -> Self {
        Self::encode(self.decode() + other.decode())
    }

    #[inline]
    fn minus(self, other: Self) -> Self {
        Self::encode(self.decode() - other.decode())
    }

    #[inline]
    fn times(self, other: Self) -> Self {
        Self::encode(self.decode() * other.decode())
    }

    #[inline]
    fn order(self, other: Self) -> Option<Ordering> {
        self.decode().partial_cmp(&other.decode())
    }
}
