//! Regions of the peer that this side may access by their address, and requests for those that it does not know.
//!
//! The owner sends a record with the address of a region only when it is asked ([`Record`](crate::records::Record)),
//! and may leave that unanswered. So a request is repeated, each time after twice as many operations.

use ripstop_mem::ring::Grant;
use ripstop_types::RmaIov;

use crate::records::AddressedRegion;

/// Entries of the cache of requested keys.
const REQUEST_CACHE_KEYS: usize = 64;

/// Large operations on a key until an unanswered request for it is repeated: after the first request,
/// and at most, after doubling each time.
const MIN_OPS_BETWEEN_REQUESTS: u32 = 8;
const MAX_OPS_BETWEEN_REQUESTS: u32 = 1024;

/// The regions of one peer: at most one for each grant slot, and one for each key.
#[derive(Debug)]
pub(crate) struct RemoteRegions {
    known: Vec<AddressedRegion>,
    /// Keys that were requested, by a hash of the key.
    requests: [RequestBackoff; REQUEST_CACHE_KEYS],
}

/// A key that was requested from the peer.
#[derive(Clone, Copy, Debug, Default)]
struct RequestBackoff {
    key: u64,
    /// Operations on it until the request is repeated.
    ops_left: u32,
    /// The value that `ops_left` started from.
    interval: u32,
}

/// A range of a region, with its address in the peer's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemotePlace {
    pub(crate) grant: Grant,
    pub(crate) addr: usize,
    pub(crate) len: usize,
}

impl Default for RemoteRegions {
    fn default() -> Self {
        Self {
            known: Vec::new(),
            requests: [RequestBackoff::default(); REQUEST_CACHE_KEYS],
        }
    }
}

impl RemoteRegions {
    /// Adds a region that the peer lets this side access by its address. It replaces one with the same slot or key.
    pub(crate) fn add(&mut self, region: AddressedRegion) {
        self.known
            .retain(|other| other.info.is_beside(&region.info));
        self.known.push(region);
    }

    /// Drops the regions whose grants are no longer valid. Their keys may be requested anew.
    pub(crate) fn retain(&mut self, is_valid: impl Fn(Grant) -> bool) {
        let Self { known, requests } = self;
        known.retain(|AddressedRegion { info, .. }| {
            let valid = is_valid(info.grant);
            if !valid {
                requests[cache_index(info.key)] = RequestBackoff::default();
            }
            valid
        });
    }

    /// Drops one region, until it is requested again.
    pub(crate) fn forget(&mut self, grant: Grant) {
        self.known.retain(|known| known.info.grant != grant);
    }

    /// Drops all regions.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }

    /// Translates remote memory to an address in the peer's process. `None` unless all of it is in one
    /// region whose rights permit the access.
    pub(crate) fn find(&self, place: &RmaIov, write: bool) -> Option<RemotePlace> {
        let mut known = self.known.iter();
        let AddressedRegion { info, addr, rights } =
            known.find(|known| known.info.key == place.key)?;
        let may = match write {
            true => rights.write,
            false => rights.read,
        };
        let at = info.find(place).filter(|_| may)?;
        Some(RemotePlace {
            grant: info.grant,
            addr: usize::try_from(addr.checked_add(at)?).ok()?,
            len: usize::try_from(place.len).ok()?,
        })
    }

    /// Whether the peer is to be asked for the region with a key that [`find`](Self::find) has not found, now that
    /// there is one more operation on it. If so, the caller asks.
    pub(super) fn request_is_due(&mut self, key: u64) -> bool {
        if self.known.iter().any(|known| known.info.key == key) {
            // The region is known, but does not cover or permit the access.
            return false;
        }
        let backoff = &mut self.requests[cache_index(key)];
        if backoff.key != key {
            *backoff = RequestBackoff::default();
        }
        if backoff.ops_left > 0 {
            backoff.ops_left -= 1;
            return false;
        }
        let interval =
            (2 * backoff.interval).clamp(MIN_OPS_BETWEEN_REQUESTS, MAX_OPS_BETWEEN_REQUESTS);
        *backoff = RequestBackoff {
            key,
            ops_left: interval,
            interval,
        };
        true
    }
}

/// The index of a key in the cache of requested keys.
const fn cache_index(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % REQUEST_CACHE_KEYS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Rights;
    use crate::records::tests::{addressed, info};

    /// Operations on the key of [`info`] until it is requested.
    fn ops_until_request(regions: &mut RemoteRegions) -> u32 {
        let mut ops = 0;
        while !regions.request_is_due(info().key) {
            ops += 1;
        }
        ops
    }

    #[test]
    fn unanswered_requests_are_repeated_less_and_less() {
        let mut regions = RemoteRegions::default();
        for ops in [0, 8, 16, 32, 64, 128, 256, 512, 1024, 1024] {
            assert_eq!(ops_until_request(&mut regions), ops);
        }
    }

    #[test]
    fn regions_are_requested_at_once_when_their_grant_has_ended() {
        let mut regions = RemoteRegions::default();
        assert_eq!(ops_until_request(&mut regions), 0);
        let rights = Rights {
            read: true,
            write: false,
        };
        regions.add(addressed(rights));
        assert!((0..2000).all(|_| !regions.request_is_due(info().key)));
        regions.retain(|_| false);
        assert_eq!(ops_until_request(&mut regions), 0);
    }

    #[test]
    fn places_are_found_within_bounds_and_rights() {
        let mut regions = RemoteRegions::default();
        let info = info();
        let rights = Rights {
            read: true,
            write: false,
        };
        regions.add(addressed(rights));
        let place = |addr, len| RmaIov {
            addr,
            len,
            key: info.key,
        };
        let found = RemotePlace {
            grant: info.grant,
            addr: 0x7010,
            len: 32,
        };
        let inside = place(info.base + 16, 32);
        assert_eq!(regions.find(&inside, false), Some(found));
        assert_eq!(regions.find(&inside, true), None, "it may only be read");
        assert_eq!(regions.find(&place(info.base, info.len + 1), false), None);
        assert_eq!(regions.find(&place(info.base - 1, 2), false), None);
    }
}
