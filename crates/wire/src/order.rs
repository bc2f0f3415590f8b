//! Byte orders.

/// The order of the bytes of a number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first: network order.
    Big,
}

impl ByteOrder {
    /// The order of the machine this was built for.
    pub const NATIVE: Self = if cfg!(target_endian = "big") {
        Self::Big
    } else {
        Self::Little
    };

    /// The order two hosts speak once they know each other: their own if they share it,
    /// otherwise network order.
    #[must_use]
    pub const fn negotiated(ours: Self, theirs: Self) -> Self {
        match (ours, theirs) {
            (Self::Little, Self::Little) => Self::Little,
            _ => Self::Big,
        }
    }

    /// Reads a 16-bit number.
    #[inline]
    #[must_use]
    pub const fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    /// Reads a 32-bit number.
    #[inline]
    #[must_use]
    pub const fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// Reads a 64-bit number.
    #[inline]
    #[must_use]
    pub const fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }

    /// The bytes of a 16-bit number.
    #[inline]
    #[must_use]
    pub const fn bytes16(self, value: u16) -> [u8; 2] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// The bytes of a 32-bit number.
    #[inline]
    #[must_use]
    pub const fn bytes32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// The bytes of a 64-bit number.
    #[inline]
    #[must_use]
    pub const fn bytes64(self, value: u64) -> [u8; 8] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ByteOrder::{self, Big, Little};

    #[test]
    fn two_little_endian_hosts_keep_their_order_and_all_others_use_network_order() {
        assert_eq!(ByteOrder::negotiated(Little, Little), Little);
        assert_eq!(ByteOrder::negotiated(Little, Big), Big);
        assert_eq!(ByteOrder::negotiated(Big, Little), Big);
        assert_eq!(ByteOrder::negotiated(Big, Big), Big);
    }

    #[test]
    fn native_is_the_order_of_this_machine() {
        assert_eq!(ByteOrder::NATIVE.bytes64(1), 1u64.to_ne_bytes());
        assert_eq!(ByteOrder::NATIVE.bytes32(1), 1u32.to_ne_bytes());
        assert_eq!(ByteOrder::NATIVE.bytes16(1), 1u16.to_ne_bytes());
    }
}
