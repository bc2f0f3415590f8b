//! A block divided among the members.

use super::{Buf, Range};

/// A run of bytes in as many parts as there are members, of about one length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    /// Parts.
    pub(super) n: u32,
    /// Bytes that stay together.
    pub(super) unit: u64,
    /// Bytes in all, a multiple of the unit.
    pub(super) total: u64,
}

impl Blocks {
    /// Where part `index` begins; that behind the last is the end.
    pub(super) fn start(&self, index: u32) -> u64 {
        let units = self.total.checked_div(self.unit).unwrap_or(0);
        let (n, index) = (u64::from(self.n), u64::from(index.min(self.n)));
        let each = units.checked_div(n).unwrap_or(0);
        let more = units.checked_rem(n).unwrap_or(0);
        // The first parts take one more each.
        let units = each.saturating_mul(index).saturating_add(index.min(more));
        units.saturating_mul(self.unit)
    }

    /// The parts from `first` on.
    pub(super) fn range(&self, buf: Buf, first: u32, count: u32) -> Range {
        let at = self.start(first);
        let end = self.start(first.saturating_add(count));
        Range::new(buf, at, end.saturating_sub(at))
    }

    /// The length of the longest part.
    pub(super) fn longest(&self) -> u64 {
        self.start(1)
    }
}
