//! The table from index to peer.

use core::hash::Hasher;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use ripstop_types::{Errno, Result};

use super::WordHasher;

/// Slots of a chunk, 32 KiB; a power of two.
const CHUNK: usize = 4096;

/// In [`Slot::uses`]: the peer is an IPv6 one.
const V6: u16 = 1 << 15;

/// Insertions that a slot can count.
const MAX_USES: u16 = V6 - 1;

/// A peer, in a form that is cheap to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    V4 { ip: u32, port: u16 },
    V6 { host: Host, port: u16 },
}

/// An IPv6 peer without its port. Flow information is kept but is not part of who it is.
#[derive(Clone, Copy, Debug, Eq)]
pub(super) struct Host {
    ip: [u64; 2],
    scope: u32,
    flow: u32,
}

impl PartialEq for Host {
    fn eq(&self, other: &Self) -> bool {
        (self.ip, self.scope) == (other.ip, other.scope)
    }
}

impl Peer {
    pub(super) fn hash(&self) -> u64 {
        let mut hasher = WordHasher(0);
        match *self {
            Self::V4 { ip, port } => hasher.write_u64(u64::from(ip) << 16 | u64::from(port)),
            Self::V6 { host, port } => {
                hasher.write_u64(host.ip[0]);
                hasher.write_u64(host.ip[1]);
                hasher.write_u64(u64::from(host.scope) << 16 | u64::from(port));
            }
        }
        hasher.finish()
    }
}

impl From<&SocketAddr> for Peer {
    fn from(addr: &SocketAddr) -> Self {
        match addr {
            SocketAddr::V4(v4) => Self::V4 {
                ip: v4.ip().to_bits(),
                port: v4.port(),
            },
            SocketAddr::V6(v6) => {
                let bits = v6.ip().to_bits();
                let ip = [(bits >> 64) as u64, bits as u64];
                let host = Host {
                    ip,
                    scope: v6.scope_id(),
                    flow: v6.flowinfo(),
                };
                Self::V6 {
                    host,
                    port: v6.port(),
                }
            }
        }
    }
}

impl From<Peer> for SocketAddr {
    fn from(peer: Peer) -> Self {
        match peer {
            Peer::V4 { ip, port } => SocketAddrV4::new(Ipv4Addr::from_bits(ip), port).into(),
            Peer::V6 { host, port } => {
                let ip = u128::from(host.ip[0]) << 64 | u128::from(host.ip[1]);
                let ip = Ipv6Addr::from_bits(ip);
                SocketAddrV6::new(ip, port, host.flow, host.scope).into()
            }
        }
    }
}

/// One index of the table. With no uses it is free.
#[derive(Clone, Copy)]
struct Slot {
    /// The IPv4 address, or where the IPv6 one is in [`Slots::hosts`].
    word: u32,
    port: u16,
    uses: u16,
}

impl Slot {
    const fn is_free(self) -> bool {
        self.uses == 0
    }

    const fn is_v6(self) -> bool {
        self.uses & V6 != 0
    }
}

#[derive(Default)]
struct Chunk {
    slots: Vec<Slot>,
    /// How many of the slots are free.
    free: usize,
    /// No slot below this one is free.
    lowest: usize,
}

/// Peers by index. Chunks make growth cheap: what is in the table never moves, except within
/// the last chunk.
#[derive(Default)]
pub(super) struct Slots {
    chunks: Vec<Chunk>,
    /// No chunk below this one has a free slot.
    lowest: usize,
    bound: usize,
    hosts: Vec<Host>,
    free_hosts: Vec<u32>,
}

impl Slots {
    /// Makes room for `count` slots, by whole chunks.
    pub(super) fn reserve(&mut self, count: usize) -> Result<()> {
        let chunks = count.div_ceil(CHUNK);
        self.chunks.try_reserve(chunks).map_err(no_memory)?;
        for chunk in 0..chunks {
            let slots = count.saturating_sub(chunk * CHUNK).min(CHUNK);
            let mut chunk = Chunk::default();
            chunk.slots.try_reserve_exact(slots).map_err(no_memory)?;
            self.chunks.push(chunk);
        }
        Ok(())
    }

    pub(super) const fn bound(&self) -> usize {
        self.bound
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<Peer> {
        let slot = self.slot(index)?;
        if slot.is_free() {
            None
        } else {
            self.peer(slot)
        }
    }

    /// Whether the peer at an index is this one.
    #[inline]
    pub(super) fn is(&self, index: u32, peer: &Peer) -> bool {
        let Some(slot) = self.slot(index) else {
            return false;
        };
        match *peer {
            Peer::V4 { ip, port } => {
                !slot.is_free() && !slot.is_v6() && slot.word == ip && slot.port == port
            }
            Peer::V6 { port, .. } => {
                slot.is_v6() && slot.port == port && self.peer(slot) == Some(*peer)
            }
        }
    }

    pub(super) fn hash(&self, index: u32) -> u64 {
        self.get(index).map_or(0, |peer| peer.hash())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Peer)> {
        let end = u32::try_from(self.bound).unwrap_or(u32::MAX);
        (0..end).filter_map(|index| Some((index, self.get(index)?)))
    }

    /// Puts a peer at the lowest free index, with one use. Nothing changes on an error.
    pub(super) fn insert(&mut self, peer: &Peer) -> Result<u32> {
        let (chunk, offset) = self.vacancy()?;
        let index = u32::try_from(chunk * CHUNK + offset).map_err(|_| Errno::EOVERFLOW)?;
        let slot = match *peer {
            Peer::V4 { ip, port } => Slot {
                word: ip,
                port,
                uses: 1,
            },
            Peer::V6 { host, port } => Slot {
                word: self.add_host(host)?,
                port,
                uses: V6 | 1,
            },
        };
        let chunk = self.chunks.get_mut(chunk).ok_or(Errno::ENOMEM)?;
        if let Some(free) = chunk.slots.get_mut(offset) {
            *free = slot;
            chunk.free -= 1;
            chunk.lowest = offset + 1;
        } else {
            chunk.slots.push(slot);
            self.bound += 1;
        }
        Ok(index)
    }

    /// Counts one more use; `false` when the slot cannot count so far.
    pub(super) fn use_again(&mut self, index: u32) -> bool {
        match self.slot_mut(index) {
            Some(slot) if slot.uses & MAX_USES < MAX_USES => {
                slot.uses += 1;
                true
            }
            _ => false,
        }
    }

    /// Counts one use less, unless it is the last; whether it is.
    pub(super) fn use_less(&mut self, index: u32) -> bool {
        match self.slot_mut(index) {
            Some(slot) if slot.uses & MAX_USES > 1 => {
                slot.uses -= 1;
                false
            }
            _ => true,
        }
    }

    pub(super) fn remove(&mut self, index: u32) {
        let (chunk, offset) = place(index);
        let Some(slot) = self.slot_mut(index) else {
            return;
        };
        let removed = core::mem::replace(
            slot,
            Slot {
                word: 0,
                port: 0,
                uses: 0,
            },
        );
        if removed.is_v6() {
            // There is room: `add_host` reserved it.
            self.free_hosts.push(removed.word);
        }
        if let Some(chunk) = self.chunks.get_mut(chunk) {
            chunk.free += 1;
            chunk.lowest = chunk.lowest.min(offset);
        }
        self.lowest = self.lowest.min(chunk);
    }

    /// The chunk and the offset of the lowest free slot, with memory behind it.
    fn vacancy(&mut self) -> Result<(usize, usize)> {
        while let Some(chunk) = self.chunks.get_mut(self.lowest) {
            if chunk.free > 0 {
                let rest = chunk.slots.iter().skip(chunk.lowest);
                let free = rest.take_while(|slot| !slot.is_free()).count();
                return Ok((self.lowest, chunk.lowest + free));
            }
            let offset = chunk.slots.len();
            if offset < CHUNK {
                grow(&mut chunk.slots)?;
                return Ok((self.lowest, offset));
            }
            self.lowest += 1;
        }
        let mut chunk = Chunk::default();
        grow(&mut chunk.slots)?;
        self.chunks.try_reserve(1).map_err(no_memory)?;
        self.chunks.push(chunk);
        Ok((self.lowest, 0))
    }

    /// Keeps an IPv6 address; room to give it back is reserved at once.
    fn add_host(&mut self, host: Host) -> Result<u32> {
        if let Some(free) = self.free_hosts.pop()
            && let Some(place) = self.hosts.get_mut(free as usize)
        {
            *place = host;
            return Ok(free);
        }
        let index = u32::try_from(self.hosts.len()).map_err(|_| Errno::EOVERFLOW)?;
        self.hosts.try_reserve(1).map_err(no_memory)?;
        let missing = self.hosts.len() + 1 - self.free_hosts.len();
        self.free_hosts.try_reserve(missing).map_err(no_memory)?;
        self.hosts.push(host);
        Ok(index)
    }

    #[inline]
    fn peer(&self, slot: Slot) -> Option<Peer> {
        let port = slot.port;
        if slot.is_v6() {
            let host = *self.hosts.get(slot.word as usize)?;
            Some(Peer::V6 { host, port })
        } else {
            Some(Peer::V4 {
                ip: slot.word,
                port,
            })
        }
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<Slot> {
        let (chunk, offset) = place(index);
        self.chunks.get(chunk)?.slots.get(offset).copied()
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot> {
        let (chunk, offset) = place(index);
        self.chunks.get_mut(chunk)?.slots.get_mut(offset)
    }
}

/// Chunk and offset of an index.
#[inline]
const fn place(index: u32) -> (usize, usize) {
    (index as usize / CHUNK, index as usize % CHUNK)
}

/// Makes room for one more slot: small address vectors grow by doubling, up to a chunk.
fn grow(slots: &mut Vec<Slot>) -> Result<()> {
    if slots.len() < slots.capacity() {
        return Ok(());
    }
    let capacity = (slots.len() * 2).clamp(16, CHUNK);
    slots
        .try_reserve_exact(capacity - slots.len())
        .map_err(no_memory)
}

fn no_memory(_: std::collections::TryReserveError) -> Errno {
    Errno::ENOMEM
}
