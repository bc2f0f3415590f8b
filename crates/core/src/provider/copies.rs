//! Which ways long payloads have taken.

use core::{fmt, ops};

/// Payloads that were copied, by one way or some of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// How many.
    pub payloads: u64,
    /// Their bytes in all.
    pub bytes: u64,
}

impl Copied {
    /// One payload of so many bytes.
    #[must_use]
    pub const fn one(bytes: u64) -> Self {
        Self { payloads: 1, bytes }
    }
}

impl ops::Add for Copied {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            payloads: self.payloads.wrapping_add(other.payloads),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { payloads, bytes } = self;
        write!(f, "{payloads} ({bytes} bytes)")
    }
}

/// The payloads of [`Copies::MIN_BYTES`] and more that a domain has copied since it was opened, by the
/// way they took ([`Domain::copies`](super::Domain::copies)). Each payload is counted in one of the two
/// processes: in the sending one if it goes through the ring, else in the one that copies it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Sent through the ring that both processes share.
    pub ring: Copied,
    /// Copied by cross-memory attach, from the peer or to it.
    pub attach: Copied,
    /// How many of these payloads both processes have copied, each a part.
    pub joint: u64,
    /// Copied from or to regions of peers that are mapped here.
    pub mapped: Copied,
    /// Connections whose peer's memory may not be reached by cross-memory attach, of those that tried.
    pub attach_refused: u64,
}

impl Copies {
    /// Shorter payloads, in bytes, are not counted: they always take the ring, unless they are written to a
    /// mapped region.
    pub const MIN_BYTES: u64 = 4 << 10;
}

impl fmt::Display for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            ring,
            attach,
            joint,
            mapped,
            attach_refused,
        } = self;
        write!(
            f,
            "payloads of {} KiB and more: {ring} were sent through the ring, {attach} were copied by \
             cross-memory attach, {joint} of them by both sides, {mapped} in mapped regions; connections \
             on which attach is refused: {attach_refused}",
            Self::MIN_BYTES >> 10
        )
    }
}
