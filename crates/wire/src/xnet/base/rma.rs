//! Segments of a peer's memory, as headers name them.

use crate::WireError;

use super::MAX_RMA;

pub use ripstop_types::RmaIov;

const NOTHING: RmaIov = RmaIov {
    addr: 0,
    len: 0,
    key: 0,
};

/// Up to four segments, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RmaIovs {
    // Those past `count` are always `RmaIov::default()`, so that the derived equality holds.
    iovs: [RmaIov; MAX_RMA as usize],
    count: u8,
}

impl RmaIovs {
    /// No segments.
    pub const NONE: Self = Self {
        iovs: [NOTHING; MAX_RMA as usize],
        count: 0,
    };

    /// These segments.
    ///
    /// # Errors
    ///
    /// [`WireError::RmaCount`] if there are more than [`MAX_RMA`].
    pub fn new(iovs: &[RmaIov]) -> Result<Self, WireError> {
        let count = u8::try_from(iovs.len()).unwrap_or(u8::MAX);
        Self::read(count, iovs.iter().map(|iov| Ok(*iov)))
    }

    /// One segment.
    #[must_use]
    pub const fn one(iov: RmaIov) -> Self {
        Self {
            iovs: [iov, NOTHING, NOTHING, NOTHING],
            count: 1,
        }
    }

    pub(crate) fn read(
        count: u8,
        iovs: impl Iterator<Item = Result<RmaIov, WireError>>,
    ) -> Result<Self, WireError> {
        if count > MAX_RMA {
            return Err(WireError::RmaCount {
                found: count,
                max: MAX_RMA,
            });
        }
        let mut all = Self {
            count,
            ..Self::NONE
        };
        for (place, iov) in all.iovs.iter_mut().zip(iovs.take(usize::from(count))) {
            *place = iov?;
        }
        Ok(all)
    }

    /// The segments.
    #[must_use]
    pub fn as_slice(&self) -> &[RmaIov] {
        self.iovs.get(..usize::from(self.count)).unwrap_or(&[])
    }

    /// How many there are, at most [`MAX_RMA`].
    #[must_use]
    pub const fn count(&self) -> u8 {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The sum of their lengths in bytes.
    ///
    /// # Errors
    ///
    /// [`WireError::RmaOverflow`] if it does not fit 64 bits.
    pub fn total_len(&self) -> Result<u64, WireError> {
        self.as_slice().iter().try_fold(0u64, |sum, iov| {
            sum.checked_add(iov.len).ok_or(WireError::RmaOverflow)
        })
    }
}
