//! Fabric addresses.

use core::fmt;

/// A fabric address (`fi_addr_t`): the handle an address vector gives for a peer
/// (man page `fi_av(3)`).
///
/// For [`AvType::Table`](crate::AvType) and, in this library, also for a map, the value is
/// the index of the peer in insertion order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct FiAddr(pub u64);

impl FiAddr {
    /// `FI_ADDR_UNSPEC`: any source, or no address.
    pub const UNSPEC: Self = Self(u64::MAX);
    /// `FI_ADDR_NOTAVAIL`: the address is not in the address vector (same value as
    /// [`FiAddr::UNSPEC`] in the C headers).
    pub const NOTAVAIL: Self = Self(u64::MAX);

    /// Whether this names a peer, that is, is not [`FiAddr::UNSPEC`].
    #[inline]
    #[must_use]
    pub const fn is_specified(self) -> bool {
        self.0 != u64::MAX
    }
}

impl fmt::Debug for FiAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_specified() {
            write!(f, "FiAddr({})", self.0)
        } else {
            f.write_str("FiAddr(UNSPEC)")
        }
    }
}
