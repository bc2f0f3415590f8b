//! Transport addresses, and their text (`fi_av_straddr`).

use core::fmt;
use core::str::FromStr;
use std::net::{Ipv6Addr, SocketAddr};

use ripstop_types::AddrFormat;
use thiserror::Error;

use crate::resolve::family;
use crate::sockaddr::{self, field};

/// A transport address: what goes into address vectors and comes out of `fi_getname`.
///
/// `Display` prints it as `fi_av_straddr` does: `fi_sockaddr_in://127.0.0.1:1234`,
/// `fi_sockaddr_in6://[::1]:1234`, or the string of a shared-memory address. The first two
/// forms also parse back (`FromStr`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// `struct sockaddr_in` or `struct sockaddr_in6`.
    Ip(SocketAddr),
    /// `FI_ADDR_STR` (`fi_shm://...`), without the final NUL.
    Str(String),
    /// Any other format, as the bytes of its C structure.
    Raw(AddrFormat, Vec<u8>),
}

/// Bytes or text that are not an address of the stated format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not an address: expected {}", expected(*.format))]
pub struct AddressError {
    /// The format that was expected.
    pub format: AddrFormat,
}

/// What an address of a format looks like.
const fn expected(format: AddrFormat) -> &'static str {
    match format {
        AddrFormat::SockaddrIn => "16 bytes of struct sockaddr_in",
        AddrFormat::SockaddrIn6 => "28 bytes of struct sockaddr_in6",
        AddrFormat::Sockaddr | AddrFormat::SockaddrIp => {
            "struct sockaddr_in (16 bytes) or struct sockaddr_in6 (28 bytes)"
        }
        AddrFormat::Str => "a NUL-terminated UTF-8 string",
        AddrFormat::IbUd => "fi_addr_ib_ud://GID:QPN/LID/PKEY/SL",
        _ => "fi_sockaddr_in://A.B.C.D:PORT or fi_sockaddr_in6://[ADDRESS]:PORT",
    }
}

impl Address {
    /// The string address that node and service stand for (`fi_shm(7)`): a node that is an
    /// address (it contains `://`) as it is; `fi_ns://` before what a service makes unique,
    /// `fi_shm://` before what endpoints of that name share, by default the process.
    #[must_use]
    pub fn string(node: Option<&str>, service: Option<&str>) -> Self {
        Self::Str(match (node, service) {
            (Some(node), _) if node.contains("://") => node.to_owned(),
            (Some(node), Some(service)) => format!("fi_ns://{node}:{service}"),
            (None, Some(service)) => format!("fi_ns://{service}"),
            (Some(node), None) => format!("fi_shm://{node}"),
            (None, None) => Self::process_name(),
        })
    }

    /// The string address of this process (`fi_shm(7)`), as long as that of any other one: MPICH takes
    /// the length of its own addresses for that of all processes.
    #[must_use]
    pub fn process_name() -> String {
        // Linux has process ids of up to 7 digits.
        format!("fi_shm://{:07}", ripstop_os::pid())
    }

    /// Reads the bytes of a C address of `format`; with `FI_FORMAT_UNSPEC` the address family
    /// decides.
    ///
    /// # Errors
    /// [`AddressError`] when bytes are missing or the family does not belong to the format.
    pub fn from_bytes(format: AddrFormat, bytes: &[u8]) -> Result<Self, AddressError> {
        let fail = AddressError { format };
        match format {
            AddrFormat::Str => {
                let text = bytes.split(|&b| b == 0).next().unwrap_or_default();
                let text = core::str::from_utf8(text).map_err(|_| fail)?;
                Ok(Self::Str(text.to_owned()))
            }
            AddrFormat::SockaddrIb | AddrFormat::IbUd => Ok(Self::Raw(format, bytes.to_vec())),
            _ => {
                let addr = sockaddr::decode(bytes).filter(family(format).ok_or(fail)?);
                addr.map(Self::Ip).ok_or(fail)
            }
        }
    }

    /// The bytes of the C structure; a string ends in NUL.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Ip(addr) => sockaddr::encode(addr).to_vec(),
            Self::Str(text) => {
                let mut bytes = text.as_bytes().to_vec();
                bytes.push(0);
                bytes
            }
            Self::Raw(_, bytes) => bytes.clone(),
        }
    }

    /// Length of [`Address::to_bytes`].
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Ip(addr) => sockaddr::encode(addr).len(),
            Self::Str(text) => text.len().saturating_add(1),
            Self::Raw(_, bytes) => bytes.len(),
        }
    }

    /// Whether the address has no bytes at all, which only a raw one can.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The exact format: an IP address says which kind.
    #[must_use]
    pub const fn format(&self) -> AddrFormat {
        match self {
            Self::Ip(SocketAddr::V4(_)) => AddrFormat::SockaddrIn,
            Self::Ip(SocketAddr::V6(_)) => AddrFormat::SockaddrIn6,
            Self::Str(_) => AddrFormat::Str,
            Self::Raw(format, _) => *format,
        }
    }

    /// The IP address and port, if it is one.
    #[must_use]
    pub const fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(addr) => Some(*addr),
            _ => None,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(addr: SocketAddr) -> Self {
        Self::Ip(addr)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(SocketAddr::V4(v4)) => {
                write!(f, "fi_sockaddr_in://{}:{}", v4.ip(), v4.port())
            }
            Self::Ip(SocketAddr::V6(v6)) => {
                write!(f, "fi_sockaddr_in6://[{}]:{}", v6.ip(), v6.port())
            }
            Self::Str(text) => f.write_str(text),
            Self::Raw(AddrFormat::SockaddrIb, bytes) => fmt_sockaddr_ib(f, bytes),
            Self::Raw(AddrFormat::IbUd, bytes) => fmt_ib_ud(f, bytes),
            Self::Raw(_, bytes) => fmt_hex(f, bytes),
        }
    }
}

/// `struct sockaddr_ib`: family, pkey, flowinfo, 16 bytes of GID, service id, mask, scope.
fn fmt_sockaddr_ib(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let (Some(pkey), Some(gid), Some(sid), Some(scope)) = (
        field(bytes, 2).map(u16::from_be_bytes),
        field::<16>(bytes, 8).map(Ipv6Addr::from),
        field(bytes, 24).map(u64::from_be_bytes),
        field(bytes, 40).map(u64::from_be_bytes),
    ) else {
        return fmt_hex(f, bytes);
    };
    let port_space = (sid >> 16) & 0xfff;
    let scope = scope & 0xff;
    write!(
        f,
        "fi_sockaddr_ib://[{gid}]:{pkey:#x}:{port_space:#x}:{scope:#x}"
    )
}

/// `FI_ADDR_IB_UD`: 16 bytes of GID, queue pair, LID, partition key, ..., service level.
fn fmt_ib_ud(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let (Some(gid), Some(qpn), Some(lid), Some(pkey), Some([sl])) = (
        field::<16>(bytes, 0).map(Ipv6Addr::from),
        field(bytes, 16).map(u32::from_ne_bytes),
        field(bytes, 20).map(u16::from_ne_bytes),
        field(bytes, 22).map(u16::from_ne_bytes),
        field::<1>(bytes, 26),
    ) else {
        return fmt_hex(f, bytes);
    };
    write!(f, "fi_addr_ib_ud://{gid}:{qpn:x}/{lid:x}/{pkey:x}/{sl:x}")
}

/// Reads what [`fmt_ib_ud`] writes: `GID:QPN/LID/PKEY/SL`, all but the GID in hexadecimal digits.
fn parse_ib_ud(text: &str) -> Option<Vec<u8>> {
    let (gid, rest) = text.rsplit_once(':')?;
    let gid: Ipv6Addr = gid.parse().ok()?;
    let mut parts = rest.split('/');
    let mut part = |most: u32| {
        let number = u32::from_str_radix(parts.next()?, 16).ok()?;
        (number <= most).then_some(number)
    };
    let qpn = part(u32::MAX)?;
    let lid = part(u16::MAX.into())? as u16;
    let pkey = part(u16::MAX.into())? as u16;
    let sl = part(u8::MAX.into())? as u8;
    if parts.next().is_some() {
        return None;
    }
    let mut bytes = gid.octets().to_vec();
    bytes.extend(qpn.to_ne_bytes());
    bytes.extend(lid.to_ne_bytes());
    bytes.extend(pkey.to_ne_bytes());
    // No service.
    bytes.extend([0, 0, sl]);
    bytes.resize(32, 0);
    Some(bytes)
}

fn fmt_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    f.write_str("0x")?;
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl FromStr for Address {
    type Err = AddressError;

    /// Parses `fi_sockaddr_in://HOST:PORT` and `fi_sockaddr_in6://[HOST]:PORT` with numeric
    /// hosts, and `fi_addr_ib_ud://GID:QPN/LID/PKEY/SL`; the scheme may be in any case. Any other `fi_...://` text is a
    /// string address.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let unknown = AddressError {
            format: AddrFormat::Unspec,
        };
        let (scheme, rest) = text.split_once("://").ok_or(unknown)?;
        let ip = |of_family: fn(&SocketAddr) -> bool| {
            let addr = rest.parse().ok().filter(of_family);
            addr.map(Self::Ip).ok_or(unknown)
        };
        match scheme.to_ascii_lowercase().as_str() {
            "fi_sockaddr_in" => ip(SocketAddr::is_ipv4),
            "fi_sockaddr_in6" => ip(SocketAddr::is_ipv6),
            "fi_addr_ib_ud" => {
                let bytes = parse_ib_ud(rest).ok_or(AddressError {
                    format: AddrFormat::IbUd,
                })?;
                Ok(Self::Raw(AddrFormat::IbUd, bytes))
            }
            _ if scheme.starts_with("fi_") => Ok(Self::Str(text.to_owned())),
            _ => Err(unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_and_parses_ip_addresses() {
        for text in [
            "fi_sockaddr_in://127.0.0.1:1234",
            "fi_sockaddr_in6://[fe80::1]:80",
        ] {
            let addr: Address = text.parse().unwrap();
            assert_eq!(addr.to_string(), text);
            assert_eq!(
                Address::from_bytes(addr.format(), &addr.to_bytes()),
                Ok(addr.clone())
            );
            assert_eq!(
                Address::from_bytes(AddrFormat::SockaddrIp, &addr.to_bytes()),
                Ok(addr)
            );
        }
        for text in [
            "127.0.0.1:1",
            "fi_sockaddr_in://[::1]:1",
            "fi_sockaddr_in://host:1",
            "",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn string_addresses_end_in_nul() {
        let addr = Address::Str("fi_shm://42:0:0".into());
        let bytes = addr.to_bytes();
        assert_eq!(bytes.last(), Some(&0));
        assert_eq!(bytes.len(), addr.len());
        assert_eq!(Address::from_bytes(AddrFormat::Str, &bytes), Ok(addr));
    }

    #[test]
    fn the_family_must_belong_to_the_format() {
        let v4: Address = "fi_sockaddr_in://1.2.3.4:5".parse().unwrap();
        let error = Address::from_bytes(AddrFormat::SockaddrIn6, &v4.to_bytes()).unwrap_err();
        assert!(error.to_string().contains("sockaddr_in6"));
    }

    #[test]
    fn infiniband_addresses_print_their_parts() {
        let mut bytes = vec![0; 48];
        bytes[2..4].copy_from_slice(&[0xff, 0xff]);
        bytes[8..24].copy_from_slice(&"fe80::1".parse::<Ipv6Addr>().unwrap().octets());
        bytes[24..32].copy_from_slice(&0x0000_0000_013f_0000_u64.to_be_bytes());
        let addr = Address::Raw(AddrFormat::SockaddrIb, bytes);
        assert_eq!(
            addr.to_string(),
            "fi_sockaddr_ib://[fe80::1]:0xffff:0x13f:0x0"
        );
        assert_eq!(
            Address::Raw(AddrFormat::SockaddrIb, vec![1, 2]).to_string(),
            "0x0102"
        );
    }

    #[test]
    fn queue_pairs_of_datagrams_print_and_parse() {
        let text = "fi_addr_ib_ud://fe80::2:3:4:5:12a4/7/ffff/3";
        let addr: Address = text.parse().unwrap();
        let bytes = addr.to_bytes();
        assert_eq!((addr.format(), bytes.len()), (AddrFormat::IbUd, 32));
        assert_eq!(bytes[16..20], 0x12a4_u32.to_ne_bytes());
        assert_eq!(bytes[20..22], 7_u16.to_ne_bytes());
        assert_eq!((bytes[24], bytes[25], bytes[26]), (0, 0, 3));
        assert_eq!(addr.to_string(), text);
        for wrong in [
            "fi_addr_ib_ud://",
            "fi_addr_ib_ud://fe80::1",
            "fi_addr_ib_ud://1.2.3.4:1/0/0/0",
            "fi_addr_ib_ud://fe80::1:1/10000/0/0",
            "fi_addr_ib_ud://fe80::1:1/0/0",
            "fi_addr_ib_ud://fe80::1:1/0/0/0/0",
        ] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }
}
