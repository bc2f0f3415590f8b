//! The address vector of IP providers (man page `fi_av(3)`).
//!
//! A peer is known by the index of its insertion, which is its [`FiAddr`] in address vectors
//! of either type. An IPv4 peer takes 8 bytes in a table that grows by chunks, and 5 to 12
//! bytes in a hash index from address to peer: a million peers fit in 20 MB, and growing
//! never holds the table twice.

mod names;
pub mod set;
mod shared;
mod slots;
mod symmetric;

use std::collections::HashMap;
use std::net::SocketAddr;

use hashbrown::HashTable;
use ripstop_types::{Errno, FiAddr, Result};

pub use names::NameTable;
pub use shared::{Shareable, SharedTable};
use slots::{Peer, Slots};
pub use symmetric::Symmetric;

/// IP peers by index and by address.
///
/// Not synchronised: who shares it between threads puts a lock around it.
#[derive(Default)]
pub struct AddressTable {
    slots: Slots,
    index: HashTable<u32>,
    /// Insertions of a peer beyond those its slot can count.
    more_uses: HashMap<u32, u32>,
}

impl core::fmt::Debug for AddressTable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl AddressTable {
    /// An empty address vector.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An address vector with room for `count` IPv4 peers (`fi_av_attr::count`). Others can
    /// be inserted all the same.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn with_capacity(count: usize) -> Result<Self> {
        let mut av = Self::new();
        av.index
            .try_reserve(count, |_| 0)
            .map_err(|_| Errno::ENOMEM)?;
        av.slots.reserve(count)?;
        Ok(av)
    }

    /// Inserts a peer at the lowest unused index. A peer that is there already keeps its
    /// index, and has to be removed once more.
    ///
    /// # Errors
    /// [`Errno::EADDRNOTAVAIL`] for an address without a port or without a host, which
    /// nobody can be reached at; [`Errno::ENOMEM`], and [`Errno::EOVERFLOW`] beyond 2^32 - 1
    /// peers, both without effect.
    pub fn insert(&mut self, addr: &SocketAddr) -> Result<FiAddr> {
        if addr.port() == 0 || addr.ip().is_unspecified() {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let peer = Peer::from(addr);
        let hash = peer.hash();
        let slots = &self.slots;
        if let Some(&known) = self.index.find(hash, |&i| slots.is(i, &peer)) {
            self.use_again(known)?;
            return Ok(FiAddr(known.into()));
        }
        self.index
            .try_reserve(1, |&i| slots.hash(i))
            .map_err(|_| Errno::ENOMEM)?;
        let index = self.slots.insert(&peer)?;
        let slots = &self.slots;
        self.index.insert_unique(hash, index, |&i| slots.hash(i));
        Ok(FiAddr(index.into()))
    }

    /// Takes back one insertion. With the last one the peer is gone: its address is returned
    /// and its index can be used again.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] when there is no such peer.
    pub fn remove(&mut self, peer: FiAddr) -> Result<Option<SocketAddr>> {
        let index = u32::try_from(peer.0).map_err(|_| Errno::EINVAL)?;
        let known = self.slots.get(index).ok_or(Errno::EINVAL)?;
        if !self.is_last_use(index) {
            return Ok(None);
        }
        if let Ok(entry) = self.index.find_entry(known.hash(), |&i| i == index) {
            entry.remove();
        }
        self.slots.remove(index);
        Ok(Some(known.into()))
    }

    /// The address of a peer.
    #[inline]
    #[must_use]
    pub fn lookup(&self, peer: FiAddr) -> Option<SocketAddr> {
        let index = u32::try_from(peer.0).ok()?;
        self.slots.get(index).map(SocketAddr::from)
    }

    /// The peer with an address, or [`FiAddr::NOTAVAIL`]. IPv4 addresses are also found in
    /// the form that IPv6 sockets give them (`::ffff:10.0.0.1`), and flow information is not
    /// looked at.
    #[must_use]
    pub fn find(&self, addr: &SocketAddr) -> FiAddr {
        let exact = self.find_exact(&Peer::from(addr));
        let canonical = addr.ip().to_canonical();
        match exact {
            Some(index) => FiAddr(index.into()),
            None if canonical != addr.ip() => self.find(&SocketAddr::new(canonical, addr.port())),
            None => FiAddr::NOTAVAIL,
        }
    }

    /// Number of peers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is no peer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// All peers in the order of their index.
    pub fn iter(&self) -> impl Iterator<Item = (FiAddr, SocketAddr)> {
        self.slots
            .iter()
            .map(|(index, peer)| (FiAddr(index.into()), peer.into()))
    }

    fn find_exact(&self, peer: &Peer) -> Option<u32> {
        self.index
            .find(peer.hash(), |&i| self.slots.is(i, peer))
            .copied()
    }

    fn use_again(&mut self, index: u32) -> Result<()> {
        if self.slots.use_again(index) {
            return Ok(());
        }
        self.more_uses.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let more = self.more_uses.entry(index).or_default();
        *more = more.checked_add(1).ok_or(Errno::EOVERFLOW)?;
        Ok(())
    }

    /// Counts one use less; whether that was the last.
    fn is_last_use(&mut self, index: u32) -> bool {
        let Some(more) = self.more_uses.get_mut(&index) else {
            return self.slots.use_less(index);
        };
        *more -= 1;
        if *more == 0 {
            self.more_uses.remove(&index);
        }
        false
    }
}

#[cfg(test)]
mod tests;
