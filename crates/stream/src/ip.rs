//! Endpoints that are named by an IP address and a port.

use std::cmp::Ordering;
use std::net::{IpAddr, SocketAddr};

use ripstop_core::{Address, AddressTable};
use ripstop_types::{Errno, Result};

use crate::addr::{Addr, Own};
use crate::table::Table;

impl Addr for SocketAddr {
    type Table = Table<AddressTable, Self>;

    /// That of IPv6, `struct sockaddr_in6`.
    const LEN: usize = 28;

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

    fn reached_by(&self, link: impl FnOnce() -> Option<Self>) -> Self {
        match self.ip().is_unspecified().then(link).flatten() {
            Some(link) => Self::new(link.ip().to_canonical(), self.port()),
            None => *self,
        }
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
