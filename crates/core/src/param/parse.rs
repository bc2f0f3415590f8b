//! Numbers and truth values as libfabric reads them from text.

/// A number of 64 bits with sign, in the way of C's `strtol` with base 0. Text after the
/// number, or none, is not a number.
pub(super) fn integer(text: &str) -> Option<i64> {
    i64::try_from(number(text)?).ok()
}

/// A `size_t`; a negative number counts down from the largest, as in C.
pub(super) fn size(text: &str) -> Option<usize> {
    let number = number(text)?;
    let up = if number < 0 { 1 << u64::BITS } else { 0 };
    usize::try_from(number + up).ok()
}

/// A truth value.
pub(super) fn boolean(text: &str) -> Option<bool> {
    let is = |words: [&str; 4]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(["0", "false", "no", "off"]) {
        Some(false)
    } else if is(["1", "true", "yes", "on"]) {
        Some(true)
    } else {
        None
    }
}

/// A number of at most 64 bits and a sign.
fn number(text: &str) -> Option<i128> {
    let text = text.trim_ascii();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let hex = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match hex {
        Some(digits) => (digits, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    // `from_str_radix` would take a second sign.
    let plain = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let value = u64::from_str_radix(digits, radix).ok().filter(|_| plain)?;
    Some(sign * i128::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_bases_of_c() {
        let cases = [
            ("0", Some(0)),
            ("42", Some(42)),
            (" -7 ", Some(-7)),
            ("+8", Some(8)),
            ("0x10", Some(16)),
            ("0XfF", Some(255)),
            ("010", Some(8)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            ("--1", None),
            ("+-1", None),
            ("0x", None),
            ("08", None),
            ("10k", None),
            ("ten", None),
        ];
        for (text, value) in cases {
            assert_eq!(integer(text), value, "{text:?}");
        }
    }

    #[test]
    fn sizes_reach_both_ends() {
        assert_eq!(size("-1"), Some(usize::MAX));
        assert_eq!(size("18446744073709551615"), Some(usize::MAX));
        assert_eq!(size("18446744073709551616"), None);
    }

    #[test]
    fn truth_has_four_words_each() {
        for (text, value) in [
            ("YES", Some(true)),
            ("oFF", Some(false)),
            ("2", None),
            ("", None),
        ] {
            assert_eq!(boolean(text), value);
        }
    }
}
