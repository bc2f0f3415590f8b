//! Memory regions (man page `fi_mr(3)`): which memory a peer may reach, under which key.

use alloc::vec::Vec;

use ripstop_types::{Errno, Result, RmaIov};

use crate::Buffer;
use crate::pool::{NIL, Pool};

/// What peers may do with a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Read it (`FI_REMOTE_READ`).
    pub read: bool,
    /// Write it (`FI_REMOTE_WRITE`).
    pub write: bool,
}

impl Access {
    /// To read.
    pub const READ: Self = Self {
        read: true,
        write: false,
    };
    /// To write.
    pub const WRITE: Self = Self {
        read: false,
        write: true,
    };

    const fn allows(self, wanted: Self) -> bool {
        (self.read || !wanted.read) && (self.write || !wanted.write)
    }
}

/// Why an access is denied; nothing is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// No region has the key.
    Key,
    /// The region is not for this access.
    Access,
    /// Not all bytes are inside.
    Bounds,
}

/// A region that peers may reach.
#[derive(Clone, Copy, Debug)]
pub struct Mr<B> {
    /// Its memory.
    pub memory: B,
    /// The address peers use for its first byte: 0, or where it is (`FI_MR_VIRT_ADDR`).
    pub base: u64,
    /// Its key.
    pub key: u64,
    /// What peers may do.
    pub access: Access,
    /// The counter of writes by peers (`fi_mr_bind`), or [`NIL`].
    pub counter: u32,
    /// Operations that use the memory now.
    pub(crate) users: u32,
}

impl<B: Buffer> Mr<B> {
    /// A region without a counter.
    #[must_use]
    pub const fn new(memory: B, base: u64, key: u64, access: Access) -> Self {
        Self {
            memory,
            base,
            key,
            access,
            counter: NIL,
            users: 0,
        }
    }

    fn part(&self, iov: &RmaIov) -> Option<B> {
        let from = usize::try_from(iov.addr.checked_sub(self.base)?).ok()?;
        let len = usize::try_from(iov.len).ok()?;
        self.memory.slice(from, len)
    }
}

/// The regions of a domain.
#[derive(Debug)]
pub struct MrTable<B> {
    regions: Pool<Mr<B>>,
    /// Key and region, sorted by key.
    keys: Vec<(u64, u32)>,
}

impl<B: Buffer> Default for MrTable<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Buffer> MrTable<B> {
    /// No regions.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            regions: Pool::new(u32::MAX as usize),
            keys: Vec::new(),
        }
    }

    /// Adds a region; returns its id.
    ///
    /// # Errors
    /// [`Errno::ENOKEY`] when another region has the key, [`Errno::ENOMEM`].
    pub fn insert(&mut self, mr: Mr<B>) -> Result<u32> {
        let Err(at) = self.find(mr.key) else {
            return Err(Errno::ENOKEY);
        };
        let id = self.regions.insert(mr)?;
        if let Err(error) = insert_at(&mut self.keys, at, (mr.key, id)) {
            self.regions.remove(id);
            return Err(error);
        }
        Ok(id)
    }

    /// Takes a region away: peers are denied from now on.
    pub fn remove(&mut self, id: u32) -> Option<Mr<B>> {
        let mr = self.regions.remove(id)?;
        if let Ok(at) = self.find(mr.key) {
            self.keys.remove(at);
        }
        Some(mr)
    }

    /// A region.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&Mr<B>> {
        self.regions.get(id)
    }

    /// A region, to be changed. Its key is not for changing.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut Mr<B>> {
        self.regions.get_mut(id)
    }

    fn find(&self, key: u64) -> core::result::Result<usize, usize> {
        self.keys.binary_search_by_key(&key, |(key, _)| *key)
    }

    /// The memory a peer names, and the region it is in. No bytes are nowhere: they need no
    /// key and have no region.
    ///
    /// # Errors
    /// [`Denied`].
    #[inline]
    pub fn resolve(&self, iov: &RmaIov, access: Access) -> core::result::Result<(B, u32), Denied> {
        if iov.len == 0 {
            return Ok((B::EMPTY, NIL));
        }
        let at = self.find(iov.key).map_err(|_| Denied::Key)?;
        let (_, id) = *self.keys.get(at).ok_or(Denied::Key)?;
        let mr = self.regions.get(id).ok_or(Denied::Key)?;
        if !mr.access.allows(access) {
            return Err(Denied::Access);
        }
        let part = mr.part(iov).ok_or(Denied::Bounds)?;
        Ok((part, id))
    }
}

/// Inserts into a vector that has room.
fn insert_at<T: Copy>(vec: &mut Vec<T>, at: usize, value: T) -> Result<()> {
    crate::ring::try_push(vec, value)?;
    if let Some(tail) = vec.get_mut(at..) {
        tail.rotate_right(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Mem(usize, usize);

    impl Buffer for Mem {
        const EMPTY: Self = Self(0, 0);

        fn len(self) -> usize {
            self.1
        }

        fn address(self) -> usize {
            self.0
        }

        fn slice(self, off: usize, len: usize) -> Option<Self> {
            (off.checked_add(len)? <= self.1).then(|| Self(self.0.wrapping_add(off), len))
        }
    }

    fn iov(addr: u64, len: u64, key: u64) -> RmaIov {
        RmaIov { addr, len, key }
    }

    #[test]
    fn keys_are_found_in_any_order_and_only_once() {
        let mut table = MrTable::new();
        let keys = [7, 0, u64::MAX, 3, 5];
        for key in keys {
            let mr = Mr::new(Mem(key as usize, 10), 0, key, Access::READ);
            table.insert(mr).unwrap();
            assert_eq!(table.insert(mr), Err(Errno::ENOKEY));
        }
        for key in keys {
            let (memory, id) = table.resolve(&iov(2, 3, key), Access::READ).unwrap();
            assert_eq!(memory, Mem((key as usize).wrapping_add(2), 3));
            assert_eq!(table.remove(id).unwrap().key, key);
            assert_eq!(
                table.resolve(&iov(2, 3, key), Access::READ),
                Err(Denied::Key)
            );
        }
    }

    #[test]
    fn nothing_outside_is_reached() {
        let mut table = MrTable::new();
        let both = Access {
            read: true,
            write: true,
        };
        table
            .insert(Mr::new(Mem(4096, 100), 4096, 1, both))
            .unwrap();
        table
            .insert(Mr::new(Mem(0, 100), 0, 2, Access::WRITE))
            .unwrap();
        let ask = |addr, len, key| table.resolve(&iov(addr, len, key), Access::READ);
        assert_eq!(ask(4096, 100, 1).unwrap().0, Mem(4096, 100));
        assert_eq!(ask(4195, 1, 1).unwrap().0, Mem(4195, 1));
        for (addr, len) in [
            (4095, 1),
            (4096, 101),
            (4196, 1),
            (u64::MAX, 2),
            (4097, u64::MAX),
        ] {
            assert_eq!(ask(addr, len, 1), Err(Denied::Bounds), "{addr} {len}");
        }
        assert_eq!(ask(0, 1, 2), Err(Denied::Access));
        assert_eq!(ask(0, 0, 9), Ok((Mem(0, 0), NIL)));
    }
}
