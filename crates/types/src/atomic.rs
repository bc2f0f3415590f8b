//! What atomic operations act on and what they do (man page `fi_atomic(3)`).

numbered! {
    /// The type of one element of an atomic operation (`enum fi_datatype`). The values are those
    /// of `rdma/fi_domain.h`; `FI_VOID`, which only collectives use, is not among them.
    ///
    /// Elements are in the byte order of the machine that holds them.
    pub enum Datatype: u8 as u32 {
        /// Signed 8-bit integer (`FI_INT8`).
        Int8 = 0,
        /// Unsigned 8-bit integer (`FI_UINT8`).
        Uint8 = 1,
        /// Signed 16-bit integer (`FI_INT16`).
        Int16 = 2,
        /// Unsigned 16-bit integer (`FI_UINT16`).
        Uint16 = 3,
        /// Signed 32-bit integer (`FI_INT32`).
        Int32 = 4,
        /// Unsigned 32-bit integer (`FI_UINT32`).
        Uint32 = 5,
        /// Signed 64-bit integer (`FI_INT64`).
        Int64 = 6,
        /// Unsigned 64-bit integer (`FI_UINT64`).
        Uint64 = 7,
        /// IEEE 754 single precision (`FI_FLOAT`).
        Float = 8,
        /// IEEE 754 double precision (`FI_DOUBLE`).
        Double = 9,
        /// Two [`Float`](Self::Float)s, real part first (`FI_FLOAT_COMPLEX`).
        FloatComplex = 10,
        /// Two [`Double`](Self::Double)s, real part first (`FI_DOUBLE_COMPLEX`).
        DoubleComplex = 11,
        /// C's `long double` (`FI_LONG_DOUBLE`). On x86-64 the 80-bit extended format in 16 bytes,
        /// of which the last 6 are padding.
        LongDouble = 12,
        /// Two [`LongDouble`](Self::LongDouble)s, real part first (`FI_LONG_DOUBLE_COMPLEX`).
        LongDoubleComplex = 13,
        /// Signed 128-bit integer (`FI_INT128`).
        Int128 = 14,
        /// Unsigned 128-bit integer (`FI_UINT128`).
        Uint128 = 15,
        /// IEEE 754 half precision (`FI_FLOAT16`).
        Float16 = 16,
        /// The upper half of a single: 8 bits of exponent, 7 of fraction (`FI_BFLOAT16`).
        Bfloat16 = 17,
        /// OFP8 with 4 bits of exponent and 3 of fraction, without infinities (`FI_FLOAT8_E4M3`).
        Float8E4M3 = 18,
        /// OFP8 with 5 bits of exponent and 2 of fraction (`FI_FLOAT8_E5M2`).
        Float8E5M2 = 19,
    }
}

impl Datatype {
    /// The bytes of one element, from 1 to 32: a power of two, C's `sizeof` on x86-64.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 | Self::Float8E4M3 | Self::Float8E5M2 => 1,
            Self::Int16 | Self::Uint16 | Self::Float16 | Self::Bfloat16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float => 4,
            Self::Int64 | Self::Uint64 | Self::Double | Self::FloatComplex => 8,
            Self::Int128 | Self::Uint128 | Self::DoubleComplex | Self::LongDouble => 16,
            Self::LongDoubleComplex => 32,
        }
    }

    /// What an element's address must be a multiple of, in bytes: C's `alignof` on x86-64.
    /// A complex number wants the alignment of its parts, everything else that of its size.
    #[must_use]
    pub const fn align(self) -> usize {
        match self {
            Self::FloatComplex => 4,
            Self::DoubleComplex => 8,
            Self::LongDoubleComplex => 16,
            _ => self.size(),
        }
    }

    /// Whether this is an integer, on which bitwise operations are defined.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        matches!(
            self,
            Self::Int8
                | Self::Uint8
                | Self::Int16
                | Self::Uint16
                | Self::Int32
                | Self::Uint32
                | Self::Int64
                | Self::Uint64
                | Self::Int128
                | Self::Uint128
        )
    }

    /// Whether this is a complex number, which has no order.
    #[must_use]
    pub const fn is_complex(self) -> bool {
        matches!(
            self,
            Self::FloatComplex | Self::DoubleComplex | Self::LongDoubleComplex
        )
    }
}

numbered! {
    /// What an atomic operation does to each element of the target (`enum fi_op`). The values are
    /// those of `rdma/fi_domain.h`; `FI_NOOP`, which only collectives use, is not among them.
    ///
    /// Below, `t` is the element at the target, `b` that of the operand, `c` that of the comparison.
    pub enum AtomicOp: u8 as u32 {
        /// `if b < t { t = b }` (`FI_MIN`).
        Min = 0,
        /// `if b > t { t = b }` (`FI_MAX`).
        Max = 1,
        /// `t = t + b`; integers wrap (`FI_SUM`).
        Sum = 2,
        /// `t = t * b`; integers wrap (`FI_PROD`).
        Prod = 3,
        /// `t = t || b`, 1 for true (`FI_LOR`).
        Lor = 4,
        /// `t = t && b`, 1 for true (`FI_LAND`).
        Land = 5,
        /// `t = t | b` (`FI_BOR`).
        Bor = 6,
        /// `t = t & b` (`FI_BAND`).
        Band = 7,
        /// `t = (t && !b) || (!t && b)`, 1 for true (`FI_LXOR`).
        Lxor = 8,
        /// `t = t ^ b` (`FI_BXOR`).
        Bxor = 9,
        /// Nothing: the result is `t` (`FI_ATOMIC_READ`).
        AtomicRead = 10,
        /// `t = b` (`FI_ATOMIC_WRITE`).
        AtomicWrite = 11,
        /// `if c == t { t = b }` (`FI_CSWAP`).
        Cswap = 12,
        /// `if c != t { t = b }` (`FI_CSWAP_NE`).
        CswapNe = 13,
        /// `if c <= t { t = b }` (`FI_CSWAP_LE`).
        CswapLe = 14,
        /// `if c < t { t = b }` (`FI_CSWAP_LT`).
        CswapLt = 15,
        /// `if c >= t { t = b }` (`FI_CSWAP_GE`).
        CswapGe = 16,
        /// `if c > t { t = b }` (`FI_CSWAP_GT`).
        CswapGt = 17,
        /// `t = (b & c) | (t & !c)` (`FI_MSWAP`).
        Mswap = 18,
        /// `t = t - b`; integers wrap (`FI_DIFF`).
        Diff = 19,
    }
}

impl AtomicOp {
    /// Whether the operation takes an operand: all but [`AtomicRead`](Self::AtomicRead) do.
    #[must_use]
    pub const fn takes_operand(self) -> bool {
        !matches!(self, Self::AtomicRead)
    }

    /// Whether the operation takes a comparison besides: those of
    /// [`AtomicKind::Compare`] do.
    #[must_use]
    pub const fn takes_comparison(self) -> bool {
        matches!(
            self,
            Self::Cswap
                | Self::CswapNe
                | Self::CswapLe
                | Self::CswapLt
                | Self::CswapGe
                | Self::CswapGt
                | Self::Mswap
        )
    }

    /// Whether the operation is defined on this datatype: bits only on integers, an order only
    /// on what is not complex.
    #[must_use]
    pub const fn acts_on(self, datatype: Datatype) -> bool {
        match self {
            Self::Bor | Self::Band | Self::Bxor | Self::Mswap => datatype.is_integer(),
            Self::Min
            | Self::Max
            | Self::CswapLe
            | Self::CswapLt
            | Self::CswapGe
            | Self::CswapGt => !datatype.is_complex(),
            _ => true,
        }
    }
}

numbered! {
    /// The three families of atomic calls. The numbers are ours: C has none.
    pub enum AtomicKind: u8 as u8 {
        /// `fi_atomic` and its forms: an operand, no result.
        Plain = 0,
        /// `fi_fetch_atomic` and its forms: an operand (none for
        /// [`AtomicRead`](AtomicOp::AtomicRead)), and the old value as the result.
        Fetch = 1,
        /// `fi_compare_atomic` and its forms: an operand, a comparison, and the old value as the
        /// result.
        Compare = 2,
    }
}

impl AtomicKind {
    /// Whether calls of this kind take this operation on this datatype: what
    /// `fi_atomicvalid`, `fi_fetch_atomicvalid` and `fi_compare_atomicvalid` answer where the
    /// target can compute the datatype.
    ///
    /// As in the C library, except that [`Diff`](AtomicOp::Diff) and the datatypes of 16 and 8
    /// bits of floating point, which its providers refuse, are allowed.
    #[must_use]
    pub const fn allows(self, op: AtomicOp, datatype: Datatype) -> bool {
        let taken = match self {
            Self::Plain => op.takes_operand() && !op.takes_comparison(),
            Self::Fetch => !op.takes_comparison(),
            Self::Compare => op.takes_comparison(),
        };
        taken && op.acts_on(datatype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_there_and_back() {
        for number in 0..20 {
            assert_eq!(Datatype::from_number(number).unwrap().number(), number);
            assert_eq!(AtomicOp::from_number(number).unwrap().number(), number);
        }
        for number in [20, 255, 256, 257, u32::MAX] {
            assert_eq!(Datatype::from_number(number), None);
            assert_eq!(AtomicOp::from_number(number), None);
        }
        for number in 0..=u8::MAX {
            let kind = AtomicKind::from_number(number);
            assert_eq!(kind.map(AtomicKind::number), (number < 3).then_some(number));
        }
    }

    #[test]
    fn sizes_are_those_of_c() {
        let sizes = [
            1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 8, 16, 16, 32, 16, 16, 2, 2, 1, 1,
        ];
        let aligns = [
            1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 4, 8, 16, 16, 16, 16, 2, 2, 1, 1,
        ];
        for (i, datatype) in Datatype::ALL.into_iter().enumerate() {
            assert_eq!(datatype.size(), sizes[i], "{datatype:?}");
            assert_eq!(datatype.align(), aligns[i], "{datatype:?}");
        }
    }

    #[test]
    fn the_table_of_what_is_valid() {
        let count = |kind: AtomicKind| {
            let pairs = |op| Datatype::ALL.map(|d| kind.allows(op, d));
            let all = AtomicOp::ALL.into_iter().flat_map(pairs);
            all.filter(|valid| *valid).count()
        };
        // Sum, Prod, Lor, Land, Lxor, AtomicWrite, Diff on all 20; Min and Max on the 17 that
        // are not complex; three of bits on the 10 integers.
        assert_eq!(count(AtomicKind::Plain), 7 * 20 + 2 * 17 + 3 * 10);
        assert_eq!(count(AtomicKind::Fetch), 8 * 20 + 2 * 17 + 3 * 10);
        assert_eq!(count(AtomicKind::Compare), 2 * 20 + 4 * 17 + 10);

        use Datatype::{Double, DoubleComplex, Int128};
        assert!(AtomicKind::Plain.allows(AtomicOp::Bxor, Int128));
        assert!(!AtomicKind::Fetch.allows(AtomicOp::Bxor, Double));
        assert!(!AtomicKind::Plain.allows(AtomicOp::AtomicRead, Int128));
        assert!(!AtomicKind::Plain.allows(AtomicOp::Max, DoubleComplex));
        assert!(AtomicKind::Compare.allows(AtomicOp::CswapNe, DoubleComplex));
        assert!(!AtomicKind::Compare.allows(AtomicOp::CswapGe, DoubleComplex));
        assert!(!AtomicKind::Compare.allows(AtomicOp::Mswap, Double));
        assert!(!AtomicKind::Fetch.allows(AtomicOp::Cswap, Int128));
    }
}
