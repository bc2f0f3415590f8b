//! Endpoints that are named by an IP address and a port.

use std::cmp::Ordering;
use std::net::{IpAddr, SocketAddr};

use ripstop_core::av::SharedTable;
use ripstop_core::{Address, AddressTable};
use ripstop_types::{Errno, FiAddr, Result};

use crate::addr::{Addr, Own, Peers};

impl Addr for SocketAddr {
    type Table = IpTable;

    fn from_address(address: &Address) -> Result<Self> {
        match address {
            Address::Ip(addr) => Ok(*addr),
            _ => Err(Errno::EINVAL),
        }
    }

    fn to_address(&self) -> Address {
        Address::Ip(*self)
    }

    fn canonical(self) -> Self {
        Self::new(self.ip().to_canonical(), self.port())
    }

    fn context(&self, index: u8) -> Option<Self> {
        let port = self.port().checked_add(u16::from(index))?;
        Some(Self::new(self.ip(), port))
    }

    fn endpoint_of(&self, index: u8) -> Self {
        let port = self.port().saturating_sub(u16::from(index));
        Self::new(self.ip(), port)
    }

    fn order(&self, other: &Self) -> Ordering {
        (self.ip(), self.port()).cmp(&(other.ip(), other.port()))
    }

    fn digest(&self, byte: &mut dyn FnMut(u8)) {
        let ip = match self.ip().to_canonical() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let port = self.port().to_be_bytes();
        ip.octets().into_iter().chain(port).for_each(byte);
    }

    fn is_own(&self, own: &Self) -> Result<Own> {
        Ok(if self.port() != own.port() {
            Own::No
        } else if self.ip() == own.ip() {
            Own::Exact
        } else if ripstop_os::net::is_local(self.ip())? {
            Own::Local
        } else {
            Own::No
        })
    }
}

/// The peers of an address vector.
#[derive(Debug)]
pub enum IpTable {
    /// Of this one alone.
    Own(AddressTable),
    /// Of all that have its name.
    Shared(SharedTable),
}

impl Peers<SocketAddr> for IpTable {
    fn new() -> Self {
        Self::Own(AddressTable::new())
    }

    fn open_shared(name: &str, count: usize, read_only: bool) -> Result<Self> {
        SharedTable::open(name, count, read_only).map(Self::Shared)
    }

    fn lookup(&self, peer: FiAddr) -> Option<SocketAddr> {
        match self {
            Self::Own(table) => table.lookup(peer),
            Self::Shared(table) => table.lookup(peer),
        }
    }

    fn find(&mut self, addr: &SocketAddr) -> FiAddr {
        match self {
            Self::Own(table) => table.find(addr),
            Self::Shared(table) => table.find(addr),
        }
    }

    fn insert(&mut self, addr: &SocketAddr) -> Result<FiAddr> {
        match self {
            Self::Own(table) => table.insert(addr),
            Self::Shared(table) => table.insert(addr),
        }
    }

    fn remove(&mut self, peer: FiAddr) -> Result<Option<SocketAddr>> {
        match self {
            Self::Own(table) => table.remove(peer),
            Self::Shared(table) => table.remove(peer),
        }
    }

    fn addresses(&self) -> Vec<FiAddr> {
        match self {
            Self::Own(table) => table.iter().map(|(addr, _)| addr).collect(),
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
