//! The peers of an address vector: those of it alone, or those of all that have its name.

use std::net::SocketAddr;

use ripstop_core::AddressTable;
use ripstop_core::av::{NameTable, Shareable, SharedTable};
use ripstop_types::{FiAddr, Result};

use crate::addr::{Addr, Peers};

/// The peers of an address vector; `O` is the table of one that has no name.
#[derive(Debug)]
pub enum Table<O, A> {
    /// Of this one alone.
    Own(O),
    /// Of all that have its name.
    Shared(SharedTable<A>),
}

impl<O: Peers<A>, A: Addr + Shareable> Peers<A> for Table<O, A> {
    fn with_room(count: usize) -> Result<Self> {
        O::with_room(count).map(Self::Own)
    }

    fn open_shared(name: &str, count: usize, read_only: bool) -> Result<Self> {
        SharedTable::open(name, count, read_only).map(Self::Shared)
    }

    fn lookup(&self, peer: FiAddr) -> Option<A> {
        match self {
            Self::Own(table) => table.lookup(peer),
            Self::Shared(table) => table.lookup(peer),
        }
    }

    fn find(&mut self, addr: &A) -> FiAddr {
        match self {
            Self::Own(table) => table.find(addr),
            Self::Shared(table) => table.find(addr),
        }
    }

    fn insert(&mut self, addr: &A) -> Result<FiAddr> {
        match self {
            Self::Own(table) => table.insert(addr),
            Self::Shared(table) => table.insert(addr),
        }
    }

    fn remove(&mut self, peer: FiAddr) -> Result<Option<A>> {
        match self {
            Self::Own(table) => table.remove(peer),
            Self::Shared(table) => table.remove(peer),
        }
    }

    fn addresses(&self) -> Vec<FiAddr> {
        match self {
            Self::Own(table) => table.addresses(),
            Self::Shared(table) => {
                let all = 0..table.map().len() as u64;
                let there = |addr: &FiAddr| table.lookup(*addr).is_some();
                all.map(FiAddr).filter(there).collect()
            }
        }
    }

    fn map(&self) -> &[u64] {
        match self {
            Self::Own(_) => &[],
            Self::Shared(table) => table.map(),
        }
    }
}

/// What a table of one address vector, of addresses of this type, is to the others: it has no name.
macro_rules! own {
    ($addr:ty) => {
        fn find(&mut self, addr: &$addr) -> FiAddr {
            Self::find(self, addr)
        }

        fn insert(&mut self, addr: &$addr) -> Result<FiAddr> {
            Self::insert(self, addr)
        }

        fn remove(&mut self, peer: FiAddr) -> Result<Option<$addr>> {
            Self::remove(self, peer)
        }

        fn addresses(&self) -> Vec<FiAddr> {
            self.iter().map(|(addr, _)| addr).collect()
        }
    };
}

impl Peers<SocketAddr> for AddressTable {
    own!(SocketAddr);

    fn with_room(count: usize) -> Result<Self> {
        Self::with_capacity(count)
    }

    fn lookup(&self, peer: FiAddr) -> Option<SocketAddr> {
        self.lookup(peer)
    }
}

impl<A: Addr> Peers<A> for NameTable<A> {
    own!(A);

    /// Names are of any length: there is nothing to prepare.
    fn with_room(_: usize) -> Result<Self> {
        Ok(Self::new())
    }

    fn lookup(&self, peer: FiAddr) -> Option<A> {
        self.lookup(peer).cloned()
    }
}
