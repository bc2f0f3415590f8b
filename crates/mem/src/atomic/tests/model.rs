//! What each operation should give, computed the plain way: integers as 128-bit numbers cut
//! to size, floating point as doubles, small formats by looking for the nearest number.

extern crate std;

use std::vec;
use std::vec::Vec;

use ripstop_types::{AtomicOp, Datatype};

/// A small generator (xorshift64*).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Values of a datatype to try: edges and a few at random.
pub(super) fn values(datatype: Datatype) -> Vec<Vec<u8>> {
    if datatype.is_integer() {
        return integers(datatype.size());
    }
    let part = part(datatype);
    let reals: Vec<Vec<u8>> = reals(part).iter().map(|v| encode(part, *v)).collect();
    if !datatype.is_complex() {
        return reals;
    }
    let mut values = Vec::new();
    for (i, re) in reals.iter().enumerate() {
        for im in [&reals[0], &reals[3], &reals[(i * 5 + 2) % reals.len()]] {
            values.push([&re[..], im].concat());
        }
    }
    values
}

fn integers(size: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(size as u64);
    let top = 1u128 << (8 * size - 1);
    let mut values = vec![0, 1, 2, 3, 100, top - 1, top, top + 1, top - 3];
    values.extend([u128::MAX, u128::MAX - 1, u128::MAX - 99]);
    for _ in 0..10 {
        values.push(u128::from(random.next()) << 64 | u128::from(random.next()));
    }
    values.into_iter().map(|v| cut(v, size)).collect()
}

fn reals(part: Datatype) -> Vec<f64> {
    let mut values = vec![0.0, 1.0, 2.5, -0.0, -1.0, f64::NAN, 3.0, -96.0, 448.0];
    if part != Datatype::LongDouble && !cfg!(miri) {
        // These have no exact products in a double; a test of its own looks at `long double`.
        values.extend([65504.0, 57344.0, f64::MAX, f64::MIN_POSITIVE, 1e-40, 0.1]);
        values.extend([f64::MIN, 3.4e38, 1e-30, 6e-8, -2e-8, 0.015_625]);
    }
    values.extend([f64::INFINITY, f64::NEG_INFINITY]);
    values
}

/// What `op` makes of `old`.
pub(super) fn element(
    datatype: Datatype,
    op: AtomicOp,
    old: &[u8],
    operand: &[u8],
    compare: &[u8],
) -> Vec<u8> {
    if datatype.is_integer() {
        integer(datatype, op, old, operand, compare)
    } else if datatype.is_complex() {
        complex(datatype, op, old, operand, compare)
    } else {
        real(datatype, op, old, operand, compare)
    }
}

/// Whether an outcome is the expected one: the same bits, but after arithmetic any NaN is like
/// any other.
pub(super) fn same(datatype: Datatype, op: AtomicOp, got: &[u8], expected: &[u8]) -> bool {
    if datatype.is_integer() || !matches!(op, AtomicOp::Sum | AtomicOp::Diff | AtomicOp::Prod) {
        return got == expected;
    }
    let part = part(datatype);
    let parts = got.chunks(part.size()).zip(expected.chunks(part.size()));
    parts
        .into_iter()
        .all(|(a, b)| a == b || (decode(part, a).is_nan() && decode(part, b).is_nan()))
}

fn cut(value: u128, size: usize) -> Vec<u8> {
    match size {
        1 => (value as u8).to_ne_bytes().to_vec(),
        2 => (value as u16).to_ne_bytes().to_vec(),
        4 => (value as u32).to_ne_bytes().to_vec(),
        8 => (value as u64).to_ne_bytes().to_vec(),
        _ => value.to_ne_bytes().to_vec(),
    }
}

/// The integer, extended with zeros.
fn raw(bytes: &[u8]) -> u128 {
    let mut wide = [0; 16];
    if cfg!(target_endian = "little") {
        wide[..bytes.len()].copy_from_slice(bytes);
    } else {
        wide[16 - bytes.len()..].copy_from_slice(bytes);
    }
    u128::from_ne_bytes(wide)
}

fn integer(datatype: Datatype, op: AtomicOp, t: &[u8], b: &[u8], c: &[u8]) -> Vec<u8> {
    let signed = matches!(
        datatype,
        Datatype::Int8 | Datatype::Int16 | Datatype::Int32 | Datatype::Int64 | Datatype::Int128
    );
    // Adding half of the range makes the order of signed numbers that of unsigned ones.
    let bits = 8 * datatype.size() as u32;
    let mask = u128::MAX >> (128 - bits);
    let key = |v: u128| {
        if signed {
            v.wrapping_add(1 << (bits - 1)) & mask
        } else {
            v
        }
    };
    let (t, b, c) = (raw(t), raw(b), raw(c));
    let swap = |swap: bool| if swap { b } else { t };
    let new = match op {
        AtomicOp::Min => swap(key(b) < key(t)),
        AtomicOp::Max => swap(key(b) > key(t)),
        AtomicOp::Sum => t.wrapping_add(b),
        AtomicOp::Prod => t.wrapping_mul(b),
        AtomicOp::Diff => t.wrapping_sub(b),
        AtomicOp::Lor => u128::from(t != 0 || b != 0),
        AtomicOp::Land => u128::from(t != 0 && b != 0),
        AtomicOp::Lxor => u128::from((t != 0 && b == 0) || (t == 0 && b != 0)),
        AtomicOp::Bor => t | b,
        AtomicOp::Band => t & b,
        AtomicOp::Bxor => t ^ b,
        AtomicOp::AtomicRead => t,
        AtomicOp::AtomicWrite => b,
        AtomicOp::Cswap => swap(c == t),
        AtomicOp::CswapNe => swap(c != t),
        AtomicOp::CswapLe => swap(key(c) <= key(t)),
        AtomicOp::CswapLt => swap(key(c) < key(t)),
        AtomicOp::CswapGe => swap(key(c) >= key(t)),
        AtomicOp::CswapGt => swap(key(c) > key(t)),
        AtomicOp::Mswap => (b & c) | (t & !c),
    };
    cut(new, datatype.size())
}

/// The datatype of a complex number's parts.
fn part(datatype: Datatype) -> Datatype {
    match datatype {
        Datatype::FloatComplex => Datatype::Float,
        Datatype::DoubleComplex => Datatype::Double,
        Datatype::LongDoubleComplex => Datatype::LongDouble,
        other => other,
    }
}

/// Exponent and fraction bits of a small format.
fn layout(datatype: Datatype) -> (u32, u32) {
    match datatype {
        Datatype::Float16 => (5, 10),
        Datatype::Bfloat16 => (8, 7),
        Datatype::Float8E4M3 => (4, 3),
        _ => (5, 2),
    }
}

/// Two to a power, exactly; Miri's `powi` is not.
fn power_of_two(exponent: i32) -> f64 {
    let factor = if exponent < 0 { 0.5 } else { 2.0 };
    (0..exponent.abs()).fold(1.0, |power, _| power * factor)
}

/// The value of a small format's bits.
fn value(datatype: Datatype, bits: u16) -> f64 {
    let (exponent, fraction) = layout(datatype);
    let sign = if bits >> (exponent + fraction) & 1 == 1 {
        -1.0
    } else {
        1.0
    };
    let field = i32::from(bits >> fraction) & ((1 << exponent) - 1);
    let part = f64::from(bits & ((1 << fraction) - 1)) / f64::from(1 << fraction);
    let bias = (1 << (exponent - 1)) - 1;
    let top = field == (1 << exponent) - 1;
    if datatype == Datatype::Float8E4M3 {
        if bits & 0x7f == 0x7f {
            return f64::NAN;
        }
    } else if top {
        return if part == 0.0 {
            sign * f64::INFINITY
        } else {
            f64::NAN
        };
    }
    if field == 0 {
        sign * part * power_of_two(1 - bias)
    } else {
        sign * (1.0 + part) * power_of_two(field - bias)
    }
}

/// The bits of the nearest number of a small format, found by halving: the order of positive
/// numbers is that of their bits.
fn nearest(datatype: Datatype, number: f64) -> u16 {
    let (exponent, fraction) = layout(datatype);
    let sign = u16::from(number.is_sign_negative()) << (exponent + fraction);
    let top = ((1 << exponent) - 1) << fraction;
    if number.is_nan() {
        return sign | (top + (1 << fraction) - 1);
    }
    let number = number.abs();
    let (largest, beyond) = match datatype {
        Datatype::Float8E4M3 => (0x7e, 0x7e),
        _ => (top - 1, top),
    };
    let (mut low, mut high) = (0, largest + 1);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if value(datatype, middle) <= number {
            low = middle;
        } else {
            high = middle;
        }
    }
    let below = value(datatype, low);
    let above = if low == largest {
        // The number that would come next if the exponent had no end.
        2.0 * below - value(datatype, low - 1)
    } else {
        value(datatype, low + 1)
    };
    let twice = 2.0 * number;
    let up = twice > below + above || (twice == below + above && low & 1 == 1);
    sign | match up {
        true if low == largest => beyond,
        true => low + 1,
        false => low,
    }
}

fn decode(datatype: Datatype, bytes: &[u8]) -> f64 {
    match datatype {
        Datatype::Float => f32::from_ne_bytes(bytes.try_into().unwrap()).into(),
        Datatype::Double => f64::from_ne_bytes(bytes.try_into().unwrap()),
        Datatype::LongDouble => {
            let digits = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let field = u16::from_le_bytes(bytes[8..10].try_into().unwrap());
            let sign = if field >> 15 == 1 { -1.0 } else { 1.0 };
            match i32::from(field & 0x7fff) {
                0x7fff if digits << 1 == 0 => sign * f64::INFINITY,
                0x7fff => f64::NAN,
                field => {
                    assert_eq!(digits & 0x7ff, 0, "a double has no room for this");
                    sign * digits as f64 * power_of_two((field - 16383 - 63).max(-1000))
                }
            }
        }
        _ if datatype.size() == 1 => value(datatype, bytes[0].into()),
        _ => value(datatype, u16::from_ne_bytes(bytes.try_into().unwrap())),
    }
}

fn encode(datatype: Datatype, number: f64) -> Vec<u8> {
    match datatype {
        Datatype::Float => (number as f32).to_ne_bytes().to_vec(),
        Datatype::Double => number.to_ne_bytes().to_vec(),
        Datatype::LongDouble => {
            let bits = number.to_bits();
            let fraction = bits << 12 >> 1;
            let (field, digits) = match (bits >> 52 & 0x7ff) as u16 {
                0 => (0, 0),
                0x7ff => (0x7fff, fraction | 1 << 63),
                field => (field + 16383 - 1023, fraction | 1 << 63),
            };
            let mut bytes = digits.to_le_bytes().to_vec();
            bytes.extend((field | (bits >> 63 << 15) as u16).to_le_bytes());
            bytes.extend([0; 6]);
            bytes
        }
        _ if datatype.size() == 1 => vec![nearest(datatype, number) as u8],
        _ => nearest(datatype, number).to_ne_bytes().to_vec(),
    }
}

fn logical(op: AtomicOp, t: bool, b: bool) -> f64 {
    f64::from(u8::from(match op {
        AtomicOp::Lor => t || b,
        AtomicOp::Land => t && b,
        _ => (t && !b) || (!t && b),
    }))
}

fn real(datatype: Datatype, op: AtomicOp, old: &[u8], operand: &[u8], compare: &[u8]) -> Vec<u8> {
    let (t, b) = (decode(datatype, old), decode(datatype, operand));
    let c = if op.takes_comparison() {
        decode(datatype, compare)
    } else {
        0.0
    };
    let swap = |swap: bool| if swap { operand } else { old }.to_vec();
    match op {
        AtomicOp::Min => swap(b < t),
        AtomicOp::Max => swap(b > t),
        AtomicOp::Sum => encode(datatype, t + b),
        AtomicOp::Diff => encode(datatype, t - b),
        AtomicOp::Prod => encode(datatype, t * b),
        AtomicOp::Lor | AtomicOp::Land | AtomicOp::Lxor => {
            encode(datatype, logical(op, t != 0.0, b != 0.0))
        }
        AtomicOp::AtomicWrite => swap(true),
        AtomicOp::Cswap => swap(c == t),
        AtomicOp::CswapNe => swap(c != t),
        AtomicOp::CswapLe => swap(c <= t),
        AtomicOp::CswapLt => swap(c < t),
        AtomicOp::CswapGe => swap(c >= t),
        AtomicOp::CswapGt => swap(c > t),
        _ => swap(false),
    }
}

fn complex(datatype: Datatype, op: AtomicOp, t: &[u8], b: &[u8], c: &[u8]) -> Vec<u8> {
    let part = part(datatype);
    let half = part.size();
    let get = |bytes: &[u8]| [decode(part, &bytes[..half]), decode(part, &bytes[half..])];
    let put = |re: f64, im: f64| [encode(part, re), encode(part, im)].concat();
    // One step of arithmetic, rounded.
    let step = |number: f64| decode(part, &encode(part, number));
    let (x, y) = (get(t), get(b));
    match op {
        AtomicOp::Sum => put(x[0] + y[0], x[1] + y[1]),
        AtomicOp::Diff => put(x[0] - y[0], x[1] - y[1]),
        AtomicOp::Prod => put(
            step(x[0] * y[0]) - step(x[1] * y[1]),
            step(x[0] * y[1]) + step(x[1] * y[0]),
        ),
        AtomicOp::Lor | AtomicOp::Land | AtomicOp::Lxor => {
            put(logical(op, x != [0.0; 2], y != [0.0; 2]), 0.0)
        }
        AtomicOp::AtomicWrite => b.to_vec(),
        AtomicOp::Cswap if get(c) == x => b.to_vec(),
        AtomicOp::CswapNe if get(c) != x => b.to_vec(),
        _ => t.to_vec(),
    }
}
