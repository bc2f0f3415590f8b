//! What each operation makes of small whole numbers, which every datatype can hold exactly.

use ripstop_types::{AtomicKind, AtomicOp, Datatype};

/// What memory holds before: a row for each operation.
pub(super) const TARGET: [u64; 5] = [3, 1, 6, 0, 5];
/// The operands.
pub(super) const OPERAND: [u64; 5] = [2, 1, 4, 0, 0];
/// What it is compared with.
pub(super) const COMPARE: [u64; 5] = [3, 2, 1, 0, 7];

/// The bits of a small whole number in a floating-point format.
fn float(n: u64, fraction: u32, bias: u64) -> u64 {
    let Some(exponent) = n.checked_ilog2() else {
        return 0;
    };
    let below = n - (1 << exponent);
    let bits = match fraction.checked_sub(exponent) {
        Some(up) => below << up,
        None => below >> (exponent - fraction),
    };
    (u64::from(exponent) + bias) << fraction | bits
}

/// The 80-bit extended format, in 16 bytes.
fn extended(n: u64) -> Vec<u8> {
    let (whole, exponent) = match n.checked_ilog2() {
        None => (0, 0),
        Some(log) => (n << (63 - log), 0x3fff + log as u16),
    };
    let mut bytes = whole.to_le_bytes().to_vec();
    bytes.extend(exponent.to_le_bytes());
    bytes.resize(16, 0);
    bytes
}

/// One element that is this number.
fn element(datatype: Datatype, n: u64) -> Vec<u8> {
    let imaginary = |part: Datatype| [element(part, n), element(part, 0)].concat();
    let bits = match datatype {
        Datatype::Float => float(n, 23, 127),
        Datatype::Double => float(n, 52, 1023),
        Datatype::Float16 => float(n, 10, 15),
        Datatype::Bfloat16 => float(n, 7, 127),
        Datatype::Float8E4M3 => float(n, 3, 7),
        Datatype::Float8E5M2 => float(n, 2, 15),
        Datatype::LongDouble => return extended(n),
        Datatype::FloatComplex => return imaginary(Datatype::Float),
        Datatype::DoubleComplex => return imaginary(Datatype::Double),
        Datatype::LongDoubleComplex => return imaginary(Datatype::LongDouble),
        _ => n,
    };
    let mut bytes = bits.to_le_bytes().to_vec();
    bytes.resize(datatype.size(), 0);
    bytes
}

/// Elements that are these numbers.
pub(in crate::cases) fn elements(datatype: Datatype, numbers: &[u64]) -> Vec<u8> {
    let all = numbers.iter().map(|n| element(datatype, *n));
    all.collect::<Vec<_>>().concat()
}

/// The bytes that count: a long double ends in padding.
pub(in crate::cases) fn significant(datatype: Datatype, bytes: &[u8]) -> Vec<u8> {
    let padded = matches!(datatype, Datatype::LongDouble | Datatype::LongDoubleComplex);
    let counts = |(i, byte): (usize, &u8)| (!padded || i % 16 < 10).then_some(*byte);
    bytes.iter().enumerate().filter_map(counts).collect()
}

/// What an operation leaves where `t` was, by fi_atomic(3).
pub(in crate::cases) fn after(op: AtomicOp, [t, b, c]: [u64; 3]) -> u64 {
    let either = |condition, yes, no| if condition { yes } else { no };
    match op {
        AtomicOp::Min => t.min(b),
        AtomicOp::Max => t.max(b),
        AtomicOp::Sum => t + b,
        AtomicOp::Prod => t * b,
        AtomicOp::Diff => t - b,
        AtomicOp::Lor => either(t != 0 || b != 0, 1, 0),
        AtomicOp::Land => either(t != 0 && b != 0, 1, 0),
        AtomicOp::Lxor => either((t != 0) != (b != 0), 1, 0),
        AtomicOp::Bor => t | b,
        AtomicOp::Band => t & b,
        AtomicOp::Bxor => t ^ b,
        AtomicOp::AtomicRead => t,
        AtomicOp::AtomicWrite => b,
        AtomicOp::Cswap => either(c == t, b, t),
        AtomicOp::CswapNe => either(c != t, b, t),
        AtomicOp::CswapLe => either(c <= t, b, t),
        AtomicOp::CswapLt => either(c < t, b, t),
        AtomicOp::CswapGe => either(c >= t, b, t),
        AtomicOp::CswapGt => either(c > t, b, t),
        AtomicOp::Mswap => (b & c) | (t & !c),
    }
}

/// What the row of an operation holds afterwards.
pub(super) fn results(op: AtomicOp) -> Vec<u64> {
    let rows = TARGET.iter().zip(OPERAND).zip(COMPARE);
    rows.map(|((t, b), c)| after(op, [*t, b, c])).collect()
}

/// Every operation of a kind on every datatype, whether or not it makes sense.
pub(in crate::cases) fn pairs() -> impl Iterator<Item = (Datatype, AtomicOp)> {
    let ops = |datatype| AtomicOp::ALL.map(|op| (datatype, op));
    Datatype::ALL.into_iter().flat_map(ops)
}

/// The three kinds.
pub(super) const KINDS: [AtomicKind; 3] =
    [AtomicKind::Plain, AtomicKind::Fetch, AtomicKind::Compare];
