//! Versions of the interface.

use core::fmt;

/// An interface version, `FI_VERSION(major, minor)` (man page `fi_version(3)`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub struct Version(pub u32);

impl Version {
    /// The version of the interface this library implements.
    pub const CURRENT: Self = Self::new(2, 6);

    /// Builds a version from its two parts.
    #[must_use]
    pub const fn new(major: u16, minor: u16) -> Self {
        Self(((major as u32) << 16) | minor as u32)
    }

    /// The major number.
    #[must_use]
    pub const fn major(self) -> u32 {
        self.0 >> 16
    }

    /// The minor number.
    #[must_use]
    pub const fn minor(self) -> u32 {
        self.0 & 0xffff
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major(), self.minor())
    }
}
