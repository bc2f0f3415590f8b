//! Transport addresses for calls into the library.

use std::ffi::CStr;

use ripstop_core::Address;
use ripstop_types::{AddrFormat, Errno};

use crate::{Error, Result};

/// A transport address in the form the C library takes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Addr {
    bytes: Vec<u8>,
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const IN_LEN: usize = 16;
const IN6_LEN: usize = 28;

/// Zero bytes kept behind an address handed to C, so that a library which takes a longer
/// address than the one given reads zeroes and not foreign memory.
pub(crate) const PAD: usize = 512;

impl Addr {
    /// An address from its bytes, for instance those another process sent.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.to_vec(),
        }
    }

    /// The bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same in the words of the object model.
    pub(crate) fn address(&self, format: AddrFormat) -> Result<Address> {
        match Address::from_bytes(format, &self.bytes) {
            // A format of a kind of network that the object model does not know.
            Err(_) if format == AddrFormat::Unspec => Ok(Address::Raw(format, self.bytes.clone())),
            found => found.map_err(|_| Error::new("fi_getname", Errno::EOTHER)),
        }
    }

    /// The bytes followed by padding, checked against what `format` needs.
    pub(crate) fn padded(&self, call: &'static str, format: u32) -> Result<Vec<u8>> {
        if !self.fits(format) {
            return Err(Error::new(call, Errno::EINVAL));
        }
        let mut bytes = Vec::with_capacity(self.bytes.len() + PAD);
        bytes.extend_from_slice(&self.bytes);
        bytes.resize(self.bytes.len() + PAD, 0);
        Ok(bytes)
    }

    /// Many addresses packed as `fi_av_insert`(3) takes them.
    pub(crate) fn pack(addrs: &[Self], format: u32) -> Result<Vec<u8>> {
        let refused = Error::new("fi_av_insert", Errno::EINVAL);
        let len = addrs.first().map_or(0, |a| a.bytes.len());
        if AddrFormat::from_raw(format) == Some(AddrFormat::Str) {
            return Self::pack_strings(addrs).ok_or(refused);
        }
        if addrs
            .iter()
            .any(|a| a.bytes.len() != len || !a.fits(format))
        {
            return Err(refused);
        }
        if addrs.len() > 1 && stride(format, &addrs[0].bytes) != Some(len) {
            return Err(refused);
        }
        let mut bytes = Vec::with_capacity(addrs.len() * len + PAD);
        for addr in addrs {
            bytes.extend_from_slice(&addr.bytes);
        }
        bytes.resize(bytes.len() + PAD, 0);
        Ok(bytes)
    }

    /// One string after the other, each with its NUL.
    fn pack_strings(addrs: &[Self]) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for addr in addrs {
            let text = CStr::from_bytes_with_nul(&addr.bytes).ok()?;
            bytes.extend_from_slice(text.to_bytes_with_nul());
        }
        bytes.resize(bytes.len() + PAD, 0);
        Some(bytes)
    }

    fn fits(&self, format: u32) -> bool {
        match stride(format, &self.bytes) {
            Some(need) => self.bytes.len() == need,
            None => !self.bytes.is_empty() && self.bytes.len() <= PAD,
        }
    }
}

/// The length of one address in an array, where the format fixes it.
pub(crate) fn stride(format: u32, bytes: &[u8]) -> Option<usize> {
    let family = match bytes {
        [a, b, ..] => u16::from_ne_bytes([*a, *b]),
        _ => 0,
    };
    match AddrFormat::from_raw(format)? {
        AddrFormat::SockaddrIn => Some(IN_LEN),
        AddrFormat::SockaddrIn6 => Some(IN6_LEN),
        AddrFormat::Sockaddr | AddrFormat::SockaddrIp | AddrFormat::Unspec => match family {
            AF_INET => Some(IN_LEN),
            AF_INET6 => Some(IN6_LEN),
            _ => None,
        },
        _ => None,
    }
}

impl From<&Address> for Addr {
    fn from(addr: &Address) -> Self {
        let bytes = addr.to_bytes();
        Self { bytes }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use ripstop_core::sockaddr;

    use super::*;

    fn ip(text: &str) -> Addr {
        let addr: SocketAddr = text.parse().unwrap();
        Addr::from_bytes(&sockaddr::encode(&addr))
    }

    #[test]
    fn a_short_address_is_refused() {
        let short = Addr::from_bytes(&[2, 0, 0, 1]);
        assert!(
            short
                .padded("fi_connect", AddrFormat::SockaddrIn.raw())
                .is_err()
        );
        let v4 = ip("127.0.0.1:5");
        assert!(
            v4.padded("fi_connect", AddrFormat::SockaddrIn6.raw())
                .is_err()
        );
        assert!(
            v4.padded("fi_connect", AddrFormat::SockaddrIn.raw())
                .is_ok()
        );
    }

    #[test]
    fn only_equal_addresses_pack() {
        let v4 = ip("127.0.0.1:5");
        let v6 = ip("[::1]:5");
        let ip = AddrFormat::SockaddrIp.raw();
        assert_eq!(
            Addr::pack(&[v4.clone(), v4.clone()], ip).unwrap().len(),
            2 * IN_LEN + PAD
        );
        assert!(Addr::pack(&[v4, v6], ip).is_err());
    }

    #[test]
    fn strings_pack_one_after_the_other() {
        let [short, long] =
            ["fi_ns://a\0", "fi_ns://bc\0"].map(|text| Addr::from_bytes(text.as_bytes()));
        let strings = AddrFormat::Str.raw();
        let packed = Addr::pack(&[short.clone(), long], strings).unwrap();
        assert_eq!(&packed[..packed.len() - PAD], b"fi_ns://a\0fi_ns://bc\0");
        for bad in ["", "open", "a\0b\0"] {
            let bad = Addr::from_bytes(bad.as_bytes());
            assert!(
                Addr::pack(&[short.clone(), bad.clone()], strings).is_err(),
                "{bad:?}"
            );
        }
    }
}
