//! C socket addresses (`struct sockaddr_in`, `struct sockaddr_in6`) as bytes, in the layout
//! of Linux, built and read without touching C memory.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// `AF_INET` on Linux.
pub const AF_INET: u16 = 2;
/// `AF_INET6` on Linux.
pub const AF_INET6: u16 = 10;
/// Bytes of a `struct sockaddr_in`.
pub const SOCKADDR_IN_LEN: usize = 16;
/// Bytes of a `struct sockaddr_in6`.
pub const SOCKADDR_IN6_LEN: usize = 28;

/// A socket address in C layout, without allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SockaddrBytes {
    bytes: [u8; SOCKADDR_IN6_LEN],
    len: usize,
}

impl core::ops::Deref for SockaddrBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Writes an address in C layout: 16 bytes for IPv4, 28 for IPv6.
#[must_use]
pub fn encode(addr: &SocketAddr) -> SockaddrBytes {
    let mut bytes = [0; SOCKADDR_IN6_LEN];
    bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
    let len = match addr {
        SocketAddr::V4(v4) => {
            bytes[..2].copy_from_slice(&AF_INET.to_ne_bytes());
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            SOCKADDR_IN_LEN
        }
        SocketAddr::V6(v6) => {
            bytes[..2].copy_from_slice(&AF_INET6.to_ne_bytes());
            bytes[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            SOCKADDR_IN6_LEN
        }
    };
    SockaddrBytes { bytes, len }
}

/// Reads an address in C layout. `None` when the family is not IP or bytes are missing;
/// bytes beyond the address are ignored, as C callers pass a `struct sockaddr_storage`.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(field(bytes, 2)?);
    match family(bytes)? {
        AF_INET => {
            // The padding must be there: a shorter buffer is not a `struct sockaddr_in`.
            let _padding: [u8; 8] = field(bytes, 8)?;
            let ip = Ipv4Addr::from(field::<4>(bytes, 4)?);
            Some(SocketAddrV4::new(ip, port).into())
        }
        AF_INET6 => {
            let flowinfo = u32::from_ne_bytes(field(bytes, 4)?);
            let ip = Ipv6Addr::from(field::<16>(bytes, 8)?);
            let scope = u32::from_ne_bytes(field(bytes, 24)?);
            Some(SocketAddrV6::new(ip, port, flowinfo, scope).into())
        }
        _ => None,
    }
}

/// The address family, the first field of every C socket address.
#[must_use]
pub fn family(bytes: &[u8]) -> Option<u16> {
    field(bytes, 0).map(u16::from_ne_bytes)
}

/// The bytes of a field, if they are all there.
pub(crate) fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_has_the_c_layout() {
        let addr: SocketAddr = "127.0.0.1:1234".parse().unwrap();
        let bytes = encode(&addr);
        let mut expected = AF_INET.to_ne_bytes().to_vec();
        expected.extend([0x04, 0xd2, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes.as_ref(), expected);
        assert_eq!(decode(&bytes), Some(addr));
        assert_eq!(decode(&bytes[..15]), None);
    }

    #[test]
    fn ipv6_keeps_flow_and_scope() {
        let ip = "fe80::1".parse().unwrap();
        let addr = SocketAddr::V6(SocketAddrV6::new(ip, 80, 7, 3));
        let bytes = encode(&addr);
        assert_eq!(bytes.len(), SOCKADDR_IN6_LEN);
        assert_eq!(decode(&bytes), Some(addr));
        assert_eq!(decode(&bytes[..27]), None);
    }

    #[test]
    fn longer_storage_is_accepted_and_other_families_are_not() {
        let addr: SocketAddr = "10.1.2.3:9".parse().unwrap();
        let mut storage = encode(&addr).to_vec();
        storage.resize(128, 0xff);
        assert_eq!(decode(&storage), Some(addr));
        storage[0] = 99;
        assert_eq!(decode(&storage), None);
        assert_eq!(decode(&[]), None);
    }
}
