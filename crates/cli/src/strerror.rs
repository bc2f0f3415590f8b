//! `fi_strerror`: the text of an error number (man page `fi_strerror(1)`).

use crate::outln;
use anyhow::Context as _;
use clap::Parser;
use ripstop_types::Errno;

/// Displays the error string for a numeric error code of the fabric interfaces.
#[derive(Parser)]
#[command(name = "fi_strerror", version, allow_negative_numbers = true)]
struct Args {
    /// Hexadecimal (0x), octal (0) or decimal; the sign does not matter.
    #[arg(value_name = "FI_ERROR_CODE")]
    code: String,
}

/// The tool.
///
/// # Errors
/// When the argument is no number of 32 bits.
pub fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let code = parse(&args.code).with_context(|| {
        format!(
            "'{}' is not an error code: give a number of 32 bits such as -11, 0x103 or 0403",
            args.code
        )
    })?;
    outln!("{}", text(code));
    Ok(())
}

/// A number as C's `strtol` reads it with base 0.
fn parse(text: &str) -> Option<i32> {
    let text = text.trim_start();
    let (negative, digits) = match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let digits = std::str::from_utf8(digits).ok()?;
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (digits.get(2..)?, 16),
        [b'0', _, ..] => (digits.get(1..)?, 8),
        _ => (digits, 10),
    };
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    let number = i64::from_str_radix(digits, radix).ok()?;
    i32::try_from(if negative { -number } else { number }).ok()
}

/// The text of an error: Ripstop's own for fabric errors, the system's for the others.
fn text(code: i32) -> String {
    let errno = Errno(code.checked_abs().unwrap_or(i32::MAX));
    if errno.0 >= Errno::EOTHER.0 {
        return errno.text().to_owned();
    }
    let said = std::io::Error::from_raw_os_error(errno.0).to_string();
    let number = format!(" (os error {})", errno.0);
    said.strip_suffix(&number).unwrap_or(&said).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_any_base_and_sign() {
        for (given, expected) in [
            ("11", Some(11)),
            ("-11", Some(-11)),
            ("+11", Some(11)),
            ("0x103", Some(259)),
            ("-0X103", Some(-259)),
            ("0403", Some(259)),
            ("0", Some(0)),
            ("", None),
            ("-", None),
            ("0x", None),
            ("08", None),
            ("--1", None),
            ("0x-1", None),
            ("12a", None),
            ("4294967296", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(parse(given), expected, "{given:?}");
        }
    }

    #[test]
    fn texts_are_those_of_libfabric() {
        assert_eq!(text(0), "Success");
        assert_eq!(text(-11), "Resource temporarily unavailable");
        assert_eq!(text(18), "Invalid cross-device link");
        assert_eq!(text(-259), "Error available");
        assert_eq!(text(300), "Unspecified error");
        assert_eq!(text(i32::MIN), "Unspecified error");
    }
}
