//! Address vectors that processes of one machine share by name (`FI_SHARED_AV`, man page
//! `fi_av(3)`).
//!
//! The memory is a header and an array of entries; the fabric address of a peer is the index of
//! its entry, in every process. An entry is claimed by counting up, written, and then
//! published by its state, so nobody waits for a process that dies. An index whose peer was
//! removed is not used again: a process that has a connection for it keeps its meaning.

use core::fmt::Debug;
use core::hash::Hash;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::atomic::Ordering::{Acquire, Release};

use ripstop_os::NamedMemory;
use ripstop_types::{Errno, FiAddr, Result};

use crate::log::Subsys;

/// The longest form of a peer, in words of 64 bits.
const MAX_WORDS: usize = 32;

/// A peer as an entry of a vector says it.
pub trait Shareable: Clone + Eq + Hash + Debug {
    /// Tells vectors of this form from anything else, and from later ones.
    const MAGIC: [u8; 8];
    /// How many words say it, 32 at most.
    const WORDS: usize;

    /// Whether anybody can be reached there.
    fn is_reachable(&self) -> bool;

    /// Writes the words, which are zeroes, [`Shareable::WORDS`] of them.
    fn encode(&self, words: &mut [u64]);

    /// Reads words that another process has written; `None` for what it cannot mean.
    fn decode(words: &[u64]) -> Option<Self>;
}

/// Offsets in the header.
const AT_MAGIC: usize = 0;
const AT_CLAIMED: usize = 8;
const HEADER: usize = 64;

/// Entries without a count from the program.
const DEFAULT_COUNT: usize = 16 * 1024;

/// Most entries: an index has 32 bits.
const MAX_COUNT: usize = u32::MAX as usize;

/// In the first word of an IP address, whose others are the host.
const V4: u64 = 4 << 48;
const V6: u64 = 6 << 48;

/// States of an entry; a number of insertions is added to the first.
const USED: u64 = 1 << 32;
const GONE: u64 = 1 << 33;

/// An address vector in memory that has a name. Not synchronised within a process, as
/// [`AddressTable`](super::AddressTable).
#[derive(Debug)]
pub struct SharedTable<A> {
    memory: NamedMemory,
    read_only: bool,
    /// Where known peers are; an entry is looked at again before it is believed.
    index: HashMap<A, u32>,
    /// Entries below this one are in `index`, or gone.
    seen: u32,
    /// What the program may look up fabric addresses in (`fi_av_attr::map_addr`).
    map: Box<[u64]>,
}

/// Says why there is no address vector to share, where that is not for its name.
#[cold]
fn no_room(name: &str, len: usize, error: Errno) {
    let advice = match error {
        Errno::ENOSPC | Errno::ENOMEM => "free room in /dev/shm, or ask for fewer peers",
        Errno::EFBIG => "raise the limit on the size of files (ulimit -f)",
        Errno::EMFILE => "raise the limit on open files (ulimit -n)",
        Errno::EACCES | Errno::EPERM => "let this user write to /dev/shm",
        _ => return,
    };
    crate::fi_warn!(
        "core",
        Subsys::Av,
        "no memory of {len} bytes for the shared address vector {name} ({error}); {advice}"
    );
}

impl<A: Shareable> SharedTable<A> {
    /// Bytes of an entry: its state, and the words of the peer.
    const ENTRY: usize = {
        assert!(A::WORDS <= MAX_WORDS, "too long for an entry");
        8 * (1 + A::WORDS)
    };

    /// Opens the address vector of this name, or makes it with room for `count` peers, 0 for
    /// 16,384. `read_only` opens one that others have open.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a name longer than 200 bytes or with a `/`, or memory that is
    /// not an address vector; [`Errno::ENOENT`] for `read_only` if nobody has it open;
    /// [`Errno::ENOMEM`] and those of shared memory.
    pub fn open(name: &str, count: usize, read_only: bool) -> Result<Self> {
        let count = match count {
            0 => DEFAULT_COUNT,
            count if count <= MAX_COUNT => count,
            _ => return Err(Errno::ENOMEM),
        };
        let name = format!("av-{name}");
        let memory = match read_only {
            true => NamedMemory::open(&name)?,
            false => {
                let len = HEADER + count * Self::ENTRY;
                let made = NamedMemory::create(&name, len);
                made.inspect_err(|error| no_room(&name, len, *error))?.0
            }
        };
        if !is_vector(&memory, A::MAGIC) {
            return Err(Errno::EINVAL);
        }
        let room = (memory.region().len() - HEADER) / Self::ENTRY;
        Ok(Self {
            map: (0..room as u64).collect(),
            memory,
            read_only,
            index: HashMap::new(),
            seen: 0,
        })
    }

    /// The fabric address of each peer by order of insertion, for programs that share no more
    /// than the order.
    #[must_use]
    pub fn map(&self) -> &[u64] {
        &self.map
    }

    /// Inserts a peer. One that is there already keeps its index, and has to be removed once
    /// more.
    ///
    /// # Errors
    /// [`Errno::EACCES`] when opened for reading only; [`Errno::EADDRNOTAVAIL`] for an
    /// address that nobody can be reached at; [`Errno::ENOMEM`] when it is full.
    pub fn insert(&mut self, addr: &A) -> Result<FiAddr> {
        if self.read_only {
            return Err(Errno::EACCES);
        }
        if !addr.is_reachable() {
            return Err(Errno::EADDRNOTAVAIL);
        }
        self.look_for_news();
        if let Some(known) = self.index.get(addr).copied()
            && self.change_uses(known, 1)?
        {
            return Ok(FiAddr(known.into()));
        }
        let entry = self.claim()?;
        let at = Self::offset(entry);
        let region = self.memory.region();
        let mut words = [0; MAX_WORDS];
        let words = words.get_mut(..A::WORDS).unwrap_or_default();
        addr.encode(words);
        for (word, value) in words.iter().enumerate() {
            let at = at + 8 + word * 8;
            region.store_u64(at, *value, Release).map_err(bad)?;
        }
        region.store_u64(at, USED + 1, Release).map_err(bad)?;
        self.index.insert(addr.clone(), entry);
        Ok(FiAddr(entry.into()))
    }

    /// Takes back one insertion; with the last one the peer is gone, in all processes.
    /// Returns its address then.
    ///
    /// # Errors
    /// [`Errno::EACCES`] when opened for reading only, [`Errno::EINVAL`] when there is no
    /// such peer.
    pub fn remove(&mut self, peer: FiAddr) -> Result<Option<A>> {
        if self.read_only {
            return Err(Errno::EACCES);
        }
        let entry = u32::try_from(peer.0).map_err(|_| Errno::EINVAL)?;
        let known = self.peer(entry).ok_or(Errno::EINVAL)?;
        if !self.change_uses(entry, -1)? {
            return Err(Errno::EINVAL);
        }
        Ok(self.peer(entry).is_none().then_some(known))
    }

    /// The address of a peer.
    #[must_use]
    pub fn lookup(&self, peer: FiAddr) -> Option<A> {
        self.peer(u32::try_from(peer.0).ok()?)
    }

    /// The peer with an address, or [`FiAddr::NOTAVAIL`].
    pub fn find(&mut self, addr: &A) -> FiAddr {
        let known = |table: &Self| {
            let entry = *table.index.get(addr)?;
            let found = table.peer(entry)?;
            (found == *addr).then_some(FiAddr(entry.into()))
        };
        known(self).unwrap_or_else(|| {
            self.look_for_news();
            known(self).unwrap_or(FiAddr::NOTAVAIL)
        })
    }

    const fn offset(entry: u32) -> usize {
        HEADER + entry as usize * Self::ENTRY
    }

    fn state(&self, entry: u32) -> u64 {
        let state = self.memory.region().load_u64(Self::offset(entry), Acquire);
        state.unwrap_or(GONE)
    }

    /// The peer in an entry. What is written there does not change once it is published.
    fn peer(&self, entry: u32) -> Option<A> {
        if self.state(entry) & (USED | GONE) != USED {
            return None;
        }
        let mut words = [0; MAX_WORDS];
        let words = words.get_mut(..A::WORDS)?;
        for (word, value) in words.iter_mut().enumerate() {
            let at = Self::offset(entry) + 8 + word * 8;
            *value = self.memory.region().load_u64(at, Acquire).ok()?;
        }
        A::decode(words)
    }

    /// Takes the next entry.
    fn claim(&self) -> Result<u32> {
        let all = self.map.len() as u64;
        let next = |claimed| Ok((claimed < all).then(|| claimed + 1));
        let entry = self.update(AT_CLAIMED, next)?.ok_or(Errno::ENOMEM)?;
        u32::try_from(entry).map_err(|_| Errno::ENOMEM)
    }

    /// Counts an insertion or a removal; `false` if the peer is gone. At 0 it goes.
    fn change_uses(&self, entry: u32, change: i32) -> Result<bool> {
        let changed = self.update(Self::offset(entry), |state| {
            if state & (USED | GONE) != USED {
                return Ok(None);
            }
            let uses = (state as u32).checked_add_signed(change);
            Ok(Some(match uses.ok_or(Errno::EOVERFLOW)? {
                0 => GONE,
                uses => USED + u64::from(uses),
            }))
        });
        Ok(changed?.is_some())
    }

    /// Replaces a word, which other processes may change meanwhile, by what `change` makes of it,
    /// unless that is `None`. Returns what it was.
    fn update(
        &self,
        at: usize,
        change: impl Fn(u64) -> Result<Option<u64>>,
    ) -> Result<Option<u64>> {
        let region = self.memory.region();
        let mut word = region.load_u64(at, Acquire).map_err(bad)?;
        while let Some(new) = change(word)? {
            match region.compare_exchange_u64(at, word, new).map_err(bad)? {
                Ok(_) => return Ok(Some(word)),
                Err(found) => word = found,
            }
        }
        Ok(None)
    }

    /// Takes note of what other processes have inserted.
    fn look_for_news(&mut self) {
        let claimed = self.memory.region().load_u64(AT_CLAIMED, Acquire);
        let claimed = claimed.unwrap_or(0).min(self.map.len() as u64) as u32;
        let mut whole = true;
        for entry in self.seen..claimed {
            match self.peer(entry) {
                Some(peer) => {
                    let known = self.index.get(&peer).copied();
                    if known.and_then(|known| self.peer(known)).as_ref() != Some(&peer) {
                        self.index.insert(peer, entry);
                    }
                }
                // Being written, or its writer is dead; or the peer is gone.
                None => whole &= self.state(entry) & GONE != 0,
            }
            if whole {
                self.seen = entry + 1;
            }
        }
    }
}

/// The bounds of the memory are checked when it is opened.
fn bad(_: ripstop_mem::RegionError) -> Errno {
    Errno::EINVAL
}

fn is_vector(memory: &NamedMemory, magic: [u8; 8]) -> bool {
    // New memory is an empty vector, and whoever comes first says so.
    let (region, magic) = (memory.region(), u64::from_be_bytes(magic));
    let named = region.compare_exchange_u64(AT_MAGIC, 0, magic);
    let ours = matches!(named, Ok(Ok(_))) || named == Ok(Err(magic));
    region.len() > HEADER && ours
}

impl Shareable for SocketAddr {
    const MAGIC: [u8; 8] = *b"RSTOPAV1";
    const WORDS: usize = 3;

    fn is_reachable(&self) -> bool {
        self.port() != 0 && !self.ip().is_unspecified()
    }

    fn encode(&self, words: &mut [u64]) {
        let port = u64::from(self.port()) << 32;
        let encoded = match self {
            Self::V4(v4) => [V4 | port, u64::from(v4.ip().to_bits()), 0],
            Self::V6(v6) => {
                let bits = v6.ip().to_bits();
                let host = [(bits >> 64) as u64, bits as u64];
                [V6 | port | u64::from(v6.scope_id()), host[0], host[1]]
            }
        };
        words.copy_from_slice(&encoded);
    }

    fn decode(words: &[u64]) -> Option<Self> {
        let &[kind, high, low] = words else {
            return None;
        };
        let port = (kind >> 32) as u16;
        match kind & (0xffff << 48) {
            V4 => {
                let ip = Ipv4Addr::from_bits(u32::try_from(high).ok()?);
                Some(Self::new(IpAddr::V4(ip), port))
            }
            V6 => {
                let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
                Some(SocketAddrV6::new(ip, port, 0, kind as u32).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type SharedTable = super::SharedTable<SocketAddr>;

    fn name(test: &str) -> String {
        format!("test-{}-{test}", ripstop_os::pid())
    }

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn an_index_means_one_peer_in_every_table() {
        let name = name("same");
        let mut first = SharedTable::open(&name, 4, false).unwrap();
        let mut reader = SharedTable::open(&name, 0, true).unwrap();
        let mut second = SharedTable::open(&name, 100, false).unwrap();
        assert_eq!(first.insert(&addr(1)), Ok(FiAddr(0)));
        assert_eq!(second.insert(&addr(2)), Ok(FiAddr(1)));
        assert_eq!(second.insert(&addr(1)), Ok(FiAddr(0)), "known by the other");
        let v6: SocketAddr = "[fe80::1%3]:7".parse().unwrap();
        assert_eq!(first.insert(&v6), Ok(FiAddr(2)));
        for (n, peer) in [addr(1), addr(2), v6].into_iter().enumerate() {
            assert_eq!(reader.lookup(FiAddr(n as u64)), Some(peer));
            assert_eq!(reader.find(&peer), FiAddr(n as u64));
        }
        assert_eq!(reader.map(), [0, 1, 2, 3], "as long as it was made");
        assert_eq!(reader.insert(&addr(3)), Err(Errno::EACCES));
        assert_eq!(reader.remove(FiAddr(0)), Err(Errno::EACCES));
        assert_eq!(first.insert(&addr(3)), Ok(FiAddr(3)));
        assert_eq!(first.insert(&addr(4)), Err(Errno::ENOMEM));
        assert_eq!(first.insert(&addr(0)), Err(Errno::EADDRNOTAVAIL));
    }

    #[test]
    fn a_peer_goes_with_its_last_insertion() {
        let name = name("gone");
        let mut first = SharedTable::open(&name, 4, false).unwrap();
        let mut second = SharedTable::open(&name, 4, false).unwrap();
        assert_eq!(first.insert(&addr(1)), Ok(FiAddr(0)));
        assert_eq!(second.insert(&addr(1)), Ok(FiAddr(0)));
        assert_eq!(first.remove(FiAddr(0)), Ok(None));
        assert_eq!(second.remove(FiAddr(0)), Ok(Some(addr(1))));
        assert_eq!(first.find(&addr(1)), FiAddr::NOTAVAIL);
        assert_eq!(first.lookup(FiAddr(0)), None);
        assert_eq!(first.remove(FiAddr(0)), Err(Errno::EINVAL));
        assert_eq!(first.insert(&addr(1)), Ok(FiAddr(1)), "a new index");
        assert_eq!(second.find(&addr(1)), FiAddr(1));
        for peer in [FiAddr(9), FiAddr::NOTAVAIL, FiAddr(1 << 33)] {
            assert_eq!(first.lookup(peer), None);
            assert_eq!(first.remove(peer), Err(Errno::EINVAL));
        }
    }

    #[test]
    fn what_another_process_writes_is_checked() {
        let name = name("hostile");
        let mut table = SharedTable::open(&name, 4, false).unwrap();
        let (raw, made) = NamedMemory::create(&format!("av-{name}"), 1).unwrap();
        assert!(!made);
        let store = |at, value| raw.region().store_u64(at, value, Release).unwrap();
        store(AT_CLAIMED, u64::MAX);
        store(HEADER, USED + 1);
        store(HEADER + 8, 9 << 48);
        assert_eq!(table.lookup(FiAddr(0)), None, "no such family");
        assert_eq!(table.find(&addr(1)), FiAddr::NOTAVAIL);
        assert_eq!(table.insert(&addr(1)), Err(Errno::ENOMEM));
        drop(table);
        store(AT_MAGIC, 1);
        let refused = SharedTable::open(&name, 4, false);
        assert_eq!(refused.err(), Some(Errno::EINVAL));
    }

    #[test]
    fn there_is_nothing_to_read_before_somebody_opens_it() {
        let opened = SharedTable::open(&name("none"), 0, true);
        assert_eq!(opened.err(), Some(Errno::ENOENT));
    }
}
