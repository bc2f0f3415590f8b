//! Traffic classes (man page `fi_endpoint(3)`): what a program says of its traffic, as a number.
//! 0 is no class, 0x100 and up a differentiated services code point (`fi_tc_dscp_set`), 0x200
//! and up a label (`FI_TC_BEST_EFFORT` and those after it).

/// `FI_TC_BEST_EFFORT`, the default.
pub const BEST_EFFORT: u32 = LABEL;

/// Marks a code point.
const DSCP: u32 = 0x100;
/// Marks a label; also the first one.
const LABEL: u32 = 0x200;

/// The code points of the labels, in the order of their numbers: default forwarding for
/// best effort, AF21 (low-latency data) for low latency, EF for dedicated access, AF11
/// (high-throughput data) for bulk data, LE (RFC 8622) for scavengers, CS6 for network control.
const LABELS: [u8; 6] = [0, 18, 46, 10, 1, 48];

/// The code point (0 to 63) that packets of a class carry in IP, or `None` for a number that is
/// no class. 0, which is no class, has that of the default.
#[must_use]
pub const fn dscp(class: u32) -> Option<u8> {
    let low = class & 0xff;
    match class & !0xff {
        0 if low == 0 => Some(0),
        DSCP if low < 64 => Some(low as u8),
        LABEL if low < LABELS.len() as u32 => Some(LABELS[low as usize]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_code_point() {
        assert_eq!(dscp(0), Some(0));
        assert_eq!(dscp(BEST_EFFORT), Some(0));
        for point in 0..64 {
            assert_eq!(dscp(DSCP | point), Some(point as u8));
        }
        let labels = [0, 18, 46, 10, 1, 48];
        for (label, point) in (0x200..).zip(labels) {
            assert_eq!(dscp(label), Some(point));
        }
    }

    #[test]
    fn other_numbers_are_no_class() {
        for class in [1, 63, 0x100 | 64, 0x1ff, 0x206, 0x300, 0x1000, u32::MAX] {
            assert_eq!(dscp(class), None, "{class:#x}");
        }
    }
}
