//! Address vector sets (man page `fi_av_set(3)`): some peers of an address vector, in an order.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ripstop_types::{AvType, Collective, Errno, FiAddr, Flags, Result};

use crate::log::Subsys;

/// Attributes of a set (`struct fi_av_set_attr`).
#[derive(Clone, Copy, Debug)]
pub struct AvSetAttr {
    /// Members expected, or 0; a set made with a range has no more at first.
    pub count: usize,
    /// The first address of a range, or [`FiAddr::NOTAVAIL`].
    pub start: FiAddr,
    /// The last address, or [`FiAddr::NOTAVAIL`].
    pub end: FiAddr,
    /// Every how many-th address of the range; 0 without one.
    pub stride: u64,
    /// Whether there is a key of a group that the application manages.
    pub comm_key: bool,
    /// `FI_UNIVERSE`, and the operations the set is for (`FI_BARRIER_SET` and so on).
    pub flags: Flags,
}

/// All peers of the address vector are members (`FI_UNIVERSE`).
pub const UNIVERSE: Flags = Flags::from_bits_retain(1 << 57);

/// The flag of an operation a set is for: `FI_BARRIER_SET` to `FI_GATHER_SET`.
#[must_use]
pub const fn set_flag(coll: Collective) -> Flags {
    Flags::from_bits_retain(1 << (40 + coll.number()))
}

/// Some peers of an address vector, each once. Any thread may use it at any time.
#[derive(Debug)]
pub struct AvSet {
    members: Mutex<Vec<FiAddr>>,
    operations: Flags,
    addr: FiAddr,
}

/// Sets made so far, to give each an address.
static SETS: AtomicU64 = AtomicU64::new(0);

/// Marks the addresses of sets. No peer and no group has such.
const MARK: u64 = 1 << 62;

impl AvSet {
    /// A set of peers among `all` of an address vector, in ascending order.
    ///
    /// # Errors
    /// [`Errno::EBADFLAGS`] for unknown flags, [`Errno::EOPNOTSUPP`] for a key,
    /// [`Errno::EINVAL`] for a range of a map, half a range, a range that goes backwards, a
    /// range without a stride or the other way round, and one with more members than said.
    pub fn new(attr: &AvSetAttr, av_type: AvType, all: &[FiAddr]) -> Result<Self> {
        let every: Flags = Collective::ALL.into_iter().map(set_flag).collect();
        if !(every | UNIVERSE).contains(attr.flags) {
            let why = "flags has unknown ones; leave them out";
            return Err(refused(why, Errno::EBADFLAGS));
        }
        if attr.comm_key {
            let why = "there are no keys; set comm_key_size to 0";
            return Err(refused(why, Errno::EOPNOTSUPP));
        }
        let (start, end) = (attr.start, attr.end);
        let members: Vec<FiAddr> = match (start.is_specified(), end.is_specified()) {
            (true, true) => {
                if av_type == AvType::Map || attr.stride == 0 || end.0 < start.0 {
                    let why = "start_addr, end_addr and stride are no range: they need a vector of type \
                               FI_AV_TABLE, a stride, and go upwards";
                    return Err(refused(why, Errno::EINVAL));
                }
                let within = |addr: &&FiAddr| {
                    (start.0..=end.0).contains(&addr.0)
                        && (addr.0 - start.0).is_multiple_of(attr.stride)
                };
                all.iter().filter(within).copied().collect()
            }
            (false, false) if attr.flags.contains(UNIVERSE) => all.to_vec(),
            (false, false) => Vec::new(),
            _ => {
                let why = "a range has both start_addr and end_addr; set both or FI_ADDR_NOTAVAIL";
                return Err(refused(why, Errno::EINVAL));
            }
        };
        if attr.count != 0 && members.len() > attr.count {
            let why = "the range has more members than count says";
            return Err(refused(why, Errno::EINVAL));
        }
        let asked = attr.flags - UNIVERSE;
        Ok(Self {
            members: Mutex::new(members),
            operations: if asked.is_empty() { every } else { asked },
            addr: FiAddr(MARK | SETS.fetch_add(1, Ordering::Relaxed)),
        })
    }

    /// The members, in order.
    #[must_use]
    pub fn members(&self) -> Vec<FiAddr> {
        self.members.lock().clone()
    }

    /// The operations it is for.
    #[must_use]
    pub const fn operations(&self) -> Flags {
        self.operations
    }

    /// The address of all members (`fi_av_set_addr`), which is for joining only.
    #[must_use]
    pub const fn addr(&self) -> FiAddr {
        self.addr
    }

    /// Adds the members of another set that are not there, at the end (`fi_av_set_union`).
    pub fn union(&self, other: &Self) {
        let theirs = other.members();
        let mut ours = self.members.lock();
        let mut known: HashSet<FiAddr> = ours.iter().copied().collect();
        ours.extend(theirs.into_iter().filter(|addr| known.insert(*addr)));
    }

    /// Keeps the members that another set has too (`fi_av_set_intersect`).
    pub fn intersect(&self, other: &Self) {
        let theirs: HashSet<FiAddr> = other.members().into_iter().collect();
        self.members.lock().retain(|addr| theirs.contains(addr));
    }

    /// Removes the members that another set has (`fi_av_set_diff`).
    pub fn diff(&self, other: &Self) {
        let theirs: HashSet<FiAddr> = other.members().into_iter().collect();
        self.members.lock().retain(|addr| !theirs.contains(addr));
    }

    /// Adds a member at the end (`fi_av_set_insert`). The caller checks that the address vector
    /// has it.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for one that is there.
    pub fn insert(&self, addr: FiAddr) -> Result<()> {
        let mut members = self.members.lock();
        if members.contains(&addr) {
            return Err(Errno::EINVAL);
        }
        members.push(addr);
        Ok(())
    }

    /// Removes a member; the others keep their order (`fi_av_set_remove`).
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for one that is not there.
    pub fn remove(&self, addr: FiAddr) -> Result<()> {
        let mut members = self.members.lock();
        let at = members.iter().position(|member| *member == addr);
        members.remove(at.ok_or(Errno::EINVAL)?);
        Ok(())
    }
}

/// Why a set is refused.
#[cold]
fn refused(why: &str, errno: Errno) -> Errno {
    crate::fi_warn!("core", Subsys::Av, "fi_av_set: {why}");
    errno
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: AvSetAttr = AvSetAttr {
        count: 0,
        start: FiAddr::NOTAVAIL,
        end: FiAddr::NOTAVAIL,
        stride: 0,
        comm_key: false,
        flags: Flags::empty(),
    };

    fn addrs(numbers: &[u64]) -> Vec<FiAddr> {
        numbers.iter().map(|number| FiAddr(*number)).collect()
    }

    fn of(numbers: &[u64]) -> AvSet {
        let set = AvSet::new(&EMPTY, AvType::Map, &[]).unwrap();
        for addr in addrs(numbers) {
            set.insert(addr).unwrap();
        }
        set
    }

    #[test]
    fn ranges_take_every_so_many_th_that_there_is() {
        let all = addrs(&[0, 1, 2, 4, 5, 6, 7, 8, 9]);
        let range = |start, end, stride, count| {
            let attr = AvSetAttr {
                count,
                start: FiAddr(start),
                end: FiAddr(end),
                stride,
                ..EMPTY
            };
            AvSet::new(&attr, AvType::Table, &all).map(|set| set.members())
        };
        assert_eq!(range(1, 9, 2, 0), Ok(addrs(&[1, 5, 7, 9])));
        assert_eq!(range(0, 0, 1, 1), Ok(addrs(&[0])));
        assert_eq!(range(0, u64::MAX - 1, 4, 3), Ok(addrs(&[0, 4, 8])));
        assert_eq!(range(0, 9, 1, 8), Err(Errno::EINVAL));
        assert_eq!(range(0, 9, 0, 0), Err(Errno::EINVAL));
        assert_eq!(range(5, 4, 1, 0), Err(Errno::EINVAL));
        assert_eq!(range(0, u64::MAX, 1, 0), Err(Errno::EINVAL));
    }

    #[test]
    fn attributes_are_checked() {
        let all = addrs(&[3, 4]);
        let new = |attr| AvSet::new(&attr, AvType::Map, &all);
        let whole = AvSetAttr {
            flags: UNIVERSE,
            ..EMPTY
        };
        assert_eq!(new(whole).unwrap().members(), all);
        assert!(new(EMPTY).unwrap().members().is_empty());
        let range = AvSetAttr {
            start: FiAddr(3),
            end: FiAddr(4),
            stride: 1,
            ..EMPTY
        };
        assert_eq!(new(range).err(), Some(Errno::EINVAL), "a map has no ranges");
        let keyed = AvSetAttr {
            comm_key: true,
            ..EMPTY
        };
        assert_eq!(new(keyed).err(), Some(Errno::EOPNOTSUPP));
        let odd = AvSetAttr {
            flags: Flags::READ,
            ..EMPTY
        };
        assert_eq!(new(odd).err(), Some(Errno::EBADFLAGS));
        let some = AvSetAttr {
            flags: set_flag(Collective::Reduce),
            ..EMPTY
        };
        let operations = new(some).unwrap().operations();
        assert!(operations.contains(set_flag(Collective::Reduce)));
        assert!(!operations.contains(set_flag(Collective::Barrier)));
        let any = new(EMPTY).unwrap();
        assert!(any.operations().contains(set_flag(Collective::Gather)));
        assert_ne!(any.addr(), new(EMPTY).unwrap().addr());
    }

    #[test]
    fn sets_keep_their_order() {
        let set = of(&[5, 1, 9, 3]);
        set.union(&of(&[4, 9, 2]));
        assert_eq!(set.members(), addrs(&[5, 1, 9, 3, 4, 2]));
        set.intersect(&of(&[2, 3, 5, 7, 9]));
        assert_eq!(set.members(), addrs(&[5, 9, 3, 2]));
        set.diff(&of(&[9, 8]));
        assert_eq!(set.members(), addrs(&[5, 3, 2]));
        assert_eq!(set.insert(FiAddr(3)), Err(Errno::EINVAL));
        set.remove(FiAddr(3)).unwrap();
        assert_eq!(set.remove(FiAddr(3)), Err(Errno::EINVAL));
        set.insert(FiAddr(3)).unwrap();
        assert_eq!(set.members(), addrs(&[5, 2, 3]));
        set.union(&set);
        set.intersect(&set);
        assert_eq!(set.members(), addrs(&[5, 2, 3]));
        set.diff(&set);
        assert!(set.members().is_empty());
    }
}
