//! The table from index to peer.

use core::hash::BuildHasher as _;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, TryReserveError};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use ripstop_types::{Errno, Result};
use rustc_hash::FxBuildHasher;

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
    ip: Ipv6Addr,
    scope: u32,
    flow: u32,
}

impl PartialEq for Host {
    fn eq(&self, other: &Self) -> bool {
        (self.ip, self.scope) == (other.ip, other.scope)
    }
}

impl Peer {
    /// A fast hash. Peers are inserted by the program alone, so nobody can make them collide from
    /// outside.
    pub(super) fn hash(&self) -> u64 {
        match *self {
            Self::V4 { ip, port } => FxBuildHasher.hash_one(u64::from(ip) << 16 | u64::from(port)),
            Self::V6 { host, port } => FxBuildHasher.hash_one((host.ip, host.scope, port)),
        }
    }
}

impl From<&SocketAddr> for Peer {
    fn from(addr: &SocketAddr) -> Self {
        let port = addr.port();
        match addr {
            SocketAddr::V4(v4) => Self::V4 {
                ip: v4.ip().to_bits(),
                port,
            },
            SocketAddr::V6(v6) => {
                let host = Host {
                    ip: *v6.ip(),
                    scope: v6.scope_id(),
                    flow: v6.flowinfo(),
                };
                Self::V6 { host, port }
            }
        }
    }
}

impl From<Peer> for SocketAddr {
    fn from(peer: Peer) -> Self {
        match peer {
            Peer::V4 { ip, port } => SocketAddrV4::new(Ipv4Addr::from_bits(ip), port).into(),
            Peer::V6 { host, port } => {
                SocketAddrV6::new(host.ip, port, host.flow, host.scope).into()
            }
        }
    }
}

/// One index of the table. With no uses it is free.
#[derive(Clone, Copy, Default)]
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

/// Peers by index. Chunks make growth cheap: what is in the table never moves, except within
/// the last chunk.
#[derive(Default)]
pub(super) struct Slots {
    /// All but the last that is in use are full.
    chunks: Vec<Vec<Slot>>,
    /// Slots in use or used before.
    pub(super) bound: usize,
    /// Those without a peer, the lowest first.
    free: BinaryHeap<Reverse<u32>>,
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
            let mut chunk = Vec::new();
            chunk.try_reserve_exact(slots).map_err(no_memory)?;
            self.chunks.push(chunk);
        }
        Ok(())
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
        let index = match self.free.peek() {
            Some(&Reverse(index)) => index,
            None => self.make_room()?,
        };
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
        if let Some(free) = self.slot_mut(index) {
            *free = slot;
            self.free.pop();
        } else if let Some(chunk) = self.chunks.get_mut(place(index).0) {
            chunk.push(slot);
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
        let Some(slot) = self.slot_mut(index) else {
            return;
        };
        let removed = core::mem::take(slot);
        if removed.is_v6() {
            // There is room: `add_host` reserved it.
            self.free_hosts.push(removed.word);
        }
        self.free.push(Reverse(index));
    }

    /// The index behind the last slot, with memory for it: small address vectors grow by doubling,
    /// up to a chunk.
    fn make_room(&mut self) -> Result<u32> {
        let index = u32::try_from(self.bound).map_err(|_| Errno::EOVERFLOW)?;
        let chunk = place(index).0;
        if chunk == self.chunks.len() {
            self.chunks.try_reserve(1).map_err(no_memory)?;
            self.chunks.push(Vec::new());
        }
        let slots = self.chunks.get_mut(chunk).ok_or(Errno::ENOMEM)?;
        if slots.len() == slots.capacity() {
            let more = (slots.len() * 2).clamp(16, CHUNK) - slots.len();
            slots.try_reserve_exact(more).map_err(no_memory)?;
        }
        Ok(index)
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
        self.chunks.get(chunk)?.get(offset).copied()
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot> {
        let (chunk, offset) = place(index);
        self.chunks.get_mut(chunk)?.get_mut(offset)
    }
}

/// Chunk and offset of an index.
#[inline]
const fn place(index: u32) -> (usize, usize) {
    (index as usize / CHUNK, index as usize % CHUNK)
}

fn no_memory(_: TryReserveError) -> Errno {
    Errno::ENOMEM
}
