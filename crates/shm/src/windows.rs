//! Regions of the peer that this side has mapped, to be accessed without the rings.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ripstop_mem::ring::{Grant, Window};
use ripstop_os::Shareable;
use ripstop_types::RmaIov;

use crate::records::{OfferedRegion, RegionInfo};

/// The longest region that is mapped: a peer must not use up this process's address space.
const MAX_WINDOW_BYTES: u64 = 1 << 38;

/// The mapped regions of one peer: at most one for each grant slot, and one for each key.
#[derive(Debug, Default)]
pub struct Windows(Vec<MappedRegion>);

#[derive(Debug)]
struct MappedRegion {
    info: RegionInfo,
    window: Window,
}

impl Windows {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Maps a region that the peer has offered, in place of one with the same slot or key. The error says
    /// why it cannot be mapped; it is then accessed by the ring.
    pub(crate) fn map(&mut self, region: OfferedRegion, fd: OwnedFd) -> Result<(), &'static str> {
        let OfferedRegion { info, offset } = region;
        self.0.retain(|mapped| mapped.info.is_beside(&info));
        let len = Some(info.len).filter(|len| *len <= MAX_WINDOW_BYTES);
        let len = len.and_then(|len| usize::try_from(len).ok());
        let len = len.ok_or("it is too long")?;
        let part = Shareable::new(Arc::new(fd), offset, len)
            .map_err(|_| "its memory is none, too short, or not sealed against shrinking")?;
        let window = part.map().map_err(|_| "its memory cannot be mapped")?;
        self.0.push(MappedRegion { info, window });
        Ok(())
    }

    /// The grant and window that contain all of `place`, and its offset in the window.
    pub(crate) fn find(&self, place: &RmaIov) -> Option<(Grant, &Window, usize)> {
        let mapped = self.0.iter().find(|m| m.info.key == place.key)?;
        let at = usize::try_from(mapped.info.find(place)?).ok()?;
        Some((mapped.info.grant, &mapped.window, at))
    }

    /// Unmaps the regions whose grants are no longer valid.
    pub(crate) fn retain(&mut self, is_valid: impl Fn(Grant) -> bool) {
        self.0.retain(|mapped| is_valid(mapped.info.grant));
    }
}

#[cfg(test)]
mod tests {
    use ripstop_os::MemFd;

    use super::*;
    use crate::records::tests::{info, memory, offered};

    #[test]
    fn regions_are_found_by_key_and_bounds() {
        let mut windows = Windows::default();
        windows.map(offered(), memory(4096)).unwrap();
        let place = |addr, len, key| RmaIov { addr, len, key };
        let key = info().key;
        let at = |place| windows.find(&place).map(|(_, _, at)| at);
        assert_eq!(at(place(0x1000, 4096, key)), Some(0));
        assert_eq!(at(place(0x1fff, 1, key)), Some(4095));
        for (addr, len, key) in [
            (0xfff, 1, key),
            (0x1000, 4097, key),
            (0x2000, 1, key),
            (0x1001, u64::MAX, key),
            (0x1000, 0, key),
            (0x1000, 1, 4),
        ] {
            assert_eq!(at(place(addr, len, key)), None, "{addr:#x} {len}");
        }
    }

    #[test]
    fn slot_and_key_have_one_region_each() {
        let mut windows = Windows::default();
        windows.map(offered(), memory(4096)).unwrap();
        let next = RegionInfo {
            grant: Grant::new(6, 1).unwrap(),
            ..info()
        };
        let at = |info, offset| OfferedRegion { info, offset };
        windows.map(at(next, 0), memory(4096)).unwrap();
        assert_eq!(windows.0.len(), 1, "the same key");
        let other = RegionInfo { key: 4, ..next };
        windows.map(at(other, 0), memory(4096)).unwrap();
        assert_eq!(windows.0.len(), 1, "the same slot");
        // One that is refused takes the place as well: what was there does not stand any more.
        for (fd, len, offset) in [
            (memory(4095), 4096, 0),
            (memory(4096), 4096, 1),
            (memory(4096), MAX_WINDOW_BYTES + 1, 0),
            (MemFd::create("test", 4096).unwrap().into(), 4097, 0),
            (std::fs::File::open("/proc/self/exe").unwrap().into(), 1, 0),
        ] {
            let bad = RegionInfo { len, ..other };
            assert!(windows.map(at(bad, offset), fd).is_err());
            assert!(windows.is_empty());
        }
    }
}
