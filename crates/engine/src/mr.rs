//! Memory regions (man page `fi_mr(3)`): which memory a peer may reach, under which key.

use alloc::vec::Vec;

use ripstop_types::{Errno, Result, RmaIov};

use crate::id::{CounterId, MrId};
use crate::pool::Pool;
use crate::{Buffer, Iov, Reached};

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

/// The most pieces of memory that one region has (`mr_iov_limit`).
pub const PIECES: usize = 4;

/// A region that peers may reach.
#[derive(Clone, Copy, Debug)]
pub struct Mr<B> {
    /// Its first piece of memory; the others follow it, as peers see it, without a gap.
    pub memory: B,
    rest: Iov<B>,
    /// The address peers use for its first byte: 0, or where it is (`FI_MR_VIRT_ADDR`).
    pub base: u64,
    /// Its key.
    pub key: u64,
    /// What peers may do.
    pub access: Access,
    /// The counter of writes by peers (`fi_mr_bind`), if any.
    pub counter: Option<CounterId>,
    /// Operations that use the memory now.
    pub(crate) users: u32,
}

impl<B: Buffer> Mr<B> {
    /// A region without a counter.
    #[must_use]
    pub const fn new(memory: B, base: u64, key: u64, access: Access) -> Self {
        Self {
            memory,
            rest: Iov::EMPTY,
            base,
            key,
            access,
            counter: None,
            users: 0,
        }
    }

    /// A region with more pieces of memory.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for more than [`PIECES`] in all, or too many bytes.
    pub fn with(mut self, rest: &[B]) -> Result<Self> {
        if rest.len() >= PIECES {
            return Err(Errno::EINVAL);
        }
        self.rest = Iov::new(rest)?;
        Ok(self)
    }

    /// Its memory, if that is one piece.
    #[must_use]
    pub fn whole(&self) -> Option<&B> {
        self.rest.segments().is_empty().then_some(&self.memory)
    }

    /// Adds the memory that a peer names. Its pieces are within the region or none is added.
    fn add_part(&self, iov: &RmaIov, parts: &mut Reached<B>) -> core::result::Result<(), Denied> {
        let offset = iov.addr.checked_sub(self.base).ok_or(Denied::Bounds)?;
        let from = usize::try_from(offset).map_err(|_| Denied::Bounds)?;
        let len = usize::try_from(iov.len).map_err(|_| Denied::Bounds)?;
        if let Some(part) = self.memory.slice(from, len) {
            return parts.push(part).map_err(|_| Denied::Bounds);
        }
        self.add_pieces(from, len, parts)
    }

    #[cold]
    fn add_pieces(
        &self,
        from: usize,
        len: usize,
        parts: &mut Reached<B>,
    ) -> core::result::Result<(), Denied> {
        let (mut skip, mut left) = (from, len);
        let first = core::iter::once(&self.memory);
        for piece in first.chain(self.rest.segments()) {
            let start = skip.min(piece.len());
            let take = piece.len().saturating_sub(start).min(left);
            skip = skip.saturating_sub(start);
            left = left.saturating_sub(take);
            if take > 0 {
                let part = piece.slice(start, take).ok_or(Denied::Bounds)?;
                parts.push(part).map_err(|_| Denied::Bounds)?;
            }
        }
        match left {
            0 => Ok(()),
            _ => Err(Denied::Bounds),
        }
    }
}

/// The regions of a domain.
#[derive(Debug)]
pub struct MrTable<B> {
    regions: Pool<MrId, Mr<B>>,
    /// Key and region, sorted by key. A region that was removed leaves its key, so that removal does not
    /// move all that follow.
    keys: Vec<(u64, Option<MrId>)>,
    /// Keys without a region.
    vacant: usize,
}

/// Keys without a region that are always kept.
const MIN_VACANT: usize = 32;

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
            regions: Pool::new(),
            keys: Vec::new(),
            vacant: 0,
        }
    }

    /// Adds a region; returns its id.
    ///
    /// # Errors
    /// [`Errno::ENOKEY`] when another region has the key, [`Errno::ENOMEM`].
    pub fn insert(&mut self, mr: Mr<B>) -> Result<MrId> {
        let at = match self.find(mr.key) {
            Ok(at) if self.is_vacant(at) => at,
            Ok(_) => return Err(Errno::ENOKEY),
            // The key before may give way as well as the one behind.
            Err(at) => match at.checked_sub(1) {
                Some(before) if self.is_vacant(before) => before,
                _ => at,
            },
        };
        let id = self.regions.insert(mr)?;
        let entry = (mr.key, Some(id));
        let vacancy = self.keys.get_mut(at).filter(|(_, region)| region.is_none());
        if let Some(place) = vacancy {
            *place = entry;
            self.vacant = self.vacant.saturating_sub(1);
        } else if let Err(error) = insert_at(&mut self.keys, at, entry) {
            self.regions.remove(id);
            return Err(error);
        }
        Ok(id)
    }

    fn is_vacant(&self, at: usize) -> bool {
        self.keys
            .get(at)
            .is_some_and(|(_, region)| region.is_none())
    }

    /// Takes a region away: peers are denied from now on.
    pub fn remove(&mut self, id: MrId) -> Option<Mr<B>> {
        let mr = self.regions.remove(id)?;
        if let Ok(at) = self.find(mr.key)
            && let Some((_, region)) = self.keys.get_mut(at)
        {
            *region = None;
            self.vacant = self.vacant.saturating_add(1);
        }
        if self.vacant > MIN_VACANT.max(self.keys.len() / 2) {
            self.keys.retain(|(_, region)| region.is_some());
            self.vacant = 0;
        }
        Some(mr)
    }

    /// A region.
    #[must_use]
    pub fn get(&self, id: MrId) -> Option<&Mr<B>> {
        self.regions.get(id)
    }

    /// A region, to be changed. Its key is not for changing.
    pub fn get_mut(&mut self, id: MrId) -> Option<&mut Mr<B>> {
        self.regions.get_mut(id)
    }

    fn find(&self, key: u64) -> core::result::Result<usize, usize> {
        self.keys.binary_search_by_key(&key, |(key, _)| *key)
    }

    /// Adds the memory a peer names to `parts`; returns the region it is in. No bytes are
    /// nowhere: they need no key and have no region.
    ///
    /// # Errors
    /// [`Denied`]; `parts` is of no use then.
    #[inline]
    pub fn resolve(
        &self,
        iov: &RmaIov,
        access: Access,
        parts: &mut Reached<B>,
    ) -> core::result::Result<Option<MrId>, Denied> {
        if iov.len == 0 {
            return Ok(None);
        }
        let at = self.find(iov.key).map_err(|_| Denied::Key)?;
        let (_, id) = *self.keys.get(at).ok_or(Denied::Key)?;
        let id = id.ok_or(Denied::Key)?;
        let mr = self.regions.get(id).ok_or(Denied::Key)?;
        if !mr.access.allows(access) {
            return Err(Denied::Access);
        }
        mr.add_part(iov, parts)?;
        Ok(Some(id))
    }
}

impl<B: Buffer> MrTable<B> {
    /// The region that has a key, and its id.
    #[must_use]
    pub fn named(&self, key: u64) -> Option<(MrId, &Mr<B>)> {
        let id = self.keys.get(self.find(key).ok()?)?.1?;
        Some((id, self.regions.get(id)?))
    }

    /// The memory that a peer may write, if it is one piece of a region without a counter, and
    /// not empty. `None` says no more than that [`MrTable::resolve`] tells.
    #[inline]
    #[must_use]
    pub fn plain(&self, to: &RmaIov) -> Option<B> {
        let id = self.keys.get(self.find(to.key).ok()?)?.1?;
        let mr = self.regions.get(id)?;
        if to.len == 0 || !mr.access.allows(Access::WRITE) || mr.counter.is_some() {
            return None;
        }
        let from = usize::try_from(to.addr.checked_sub(mr.base)?).ok()?;
        mr.memory.slice(from, usize::try_from(to.len).ok()?)
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
    use crate::common::Mem;

    fn iov(addr: u64, len: u64, key: u64) -> RmaIov {
        RmaIov { addr, len, key }
    }

    /// The memory that is named, and its region.
    fn ask(
        table: &MrTable<Mem>,
        iov: RmaIov,
    ) -> core::result::Result<(Vec<Mem>, Option<MrId>), Denied> {
        let mut parts = Reached::EMPTY;
        let id = table.resolve(&iov, Access::READ, &mut parts)?;
        Ok((parts.segments().to_vec(), id))
    }

    /// Against a map, with few keys, so that they come back, and with many regions removed at once.
    #[test]
    fn keys_come_and_go_as_in_a_map() {
        let mut table = MrTable::new();
        let mut model = alloc::collections::BTreeMap::new();
        let mut random = 1_u64;
        for step in 0..20_000_u32 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let key = random >> 40 & 0x3ff;
            // More are added in one half of each 4,000 steps, and more are removed in the other.
            let adds = (random >> 20) % 4 < if step % 4000 < 2000 { 3 } else { 1 };
            let known = model.get(&key).copied();
            match (adds, known) {
                (true, None) => {
                    let mr = Mr::new(Mem(0, 10), 0, key, Access::READ);
                    model.insert(key, table.insert(mr).unwrap());
                }
                (true, Some(_)) => {
                    let mr = Mr::new(Mem(0, 10), 0, key, Access::READ);
                    assert_eq!(table.insert(mr), Err(Errno::ENOKEY));
                }
                (false, Some(id)) => {
                    assert_eq!(table.remove(id).unwrap().key, key);
                    model.remove(&key);
                }
                (false, None) => assert!(table.named(key).is_none()),
            }
            assert!(table.keys.is_sorted_by(|one, next| one.0 < next.0));
            assert!(table.keys.len() <= 2 * model.len() + 2 * MIN_VACANT + 2);
        }
        for (key, id) in &model {
            assert_eq!(table.named(*key).map(|(id, _)| id), Some(*id));
        }
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
            let (memory, id) = ask(&table, iov(2, 3, key)).unwrap();
            assert_eq!(memory, [Mem((key as usize).wrapping_add(2), 3)]);
            assert_eq!(table.remove(id.unwrap()).unwrap().key, key);
            assert_eq!(ask(&table, iov(2, 3, key)), Err(Denied::Key));
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
        let ask = |addr, len, key| ask(&table, iov(addr, len, key));
        assert_eq!(ask(4096, 100, 1).unwrap().0, [Mem(4096, 100)]);
        assert_eq!(ask(4195, 1, 1).unwrap().0, [Mem(4195, 1)]);
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
        assert_eq!(ask(0, 0, 9), Ok((Vec::new(), None)));
    }

    #[test]
    fn pieces_follow_one_another() {
        let mut table = MrTable::new();
        let pieces = [Mem(500, 0), Mem(9000, 30), Mem(70, 40)];
        let mr = Mr::new(Mem(4000, 10), 4000, 1, Access::READ);
        table.insert(mr.with(&pieces).unwrap()).unwrap();
        assert!(mr.with(&[Mem(1, 1); 4]).is_err());
        let ask = |from: u64, len| ask(&table, iov(4000 + from, len, 1)).map(|(parts, _)| parts);
        let all = alloc::vec![Mem(4000, 10), Mem(9000, 30), Mem(70, 40)];
        assert_eq!(ask(0, 80), Ok(all));
        assert_eq!(ask(0, 10), Ok(alloc::vec![Mem(4000, 10)]));
        assert_eq!(ask(9, 2), Ok(alloc::vec![Mem(4009, 1), Mem(9000, 1)]));
        assert_eq!(ask(10, 30), Ok(alloc::vec![Mem(9000, 30)]));
        assert_eq!(ask(20, 25), Ok(alloc::vec![Mem(9010, 20), Mem(70, 5)]));
        assert_eq!(ask(79, 1), Ok(alloc::vec![Mem(109, 1)]));
        for (from, len) in [(80, 1), (79, 2), (0, 81), (1 << 40, 1), (0, u64::MAX)] {
            assert_eq!(ask(from, len), Err(Denied::Bounds), "{from} {len}");
        }
    }
}
