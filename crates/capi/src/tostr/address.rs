#![allow(unsafe_code)]
//! Addresses of every format as text, from a caller's bytes.

use core::ffi::{CStr, c_char};
use core::net::Ipv6Addr;
use core::slice;

use ripstop_abi as abi;
use ripstop_core::{Address, sockaddr};
use ripstop_types::AddrFormat;

use crate::text::Text;

/// `AF_IB` on Linux.
const AF_IB: u16 = 27;
/// Bytes of a `struct sockaddr_ib`.
const SOCKADDR_IB_LEN: usize = 48;

/// The bytes of an address as `fi_av_straddr` prints them, or `None` for a format or family
/// without a text form. `len` is how many bytes the caller says there are, where it says so.
///
/// # Safety
///
/// `addr` is valid for reads of `len` bytes, or, without `len`, of as many as an address of
/// this format (and, for a socket address, of this family) has.
pub(crate) unsafe fn printed(format: u32, addr: *const u8, len: Option<usize>) -> Option<Text> {
    if format == abi::FI_ADDR_STR {
        // SAFETY: text that ends by itself or after `len` bytes, by the contract of this function.
        return Some(unsafe { string(addr, len) });
    }
    // SAFETY: that many bytes, or an address of this format, so that a socket address has a family.
    let size = unsafe { size_of_address(format, addr, len) }?;
    if len.is_some_and(|len| len < size) {
        return None;
    }
    // SAFETY: no more than `len`, or as many bytes as an address of this format has.
    let bytes = unsafe { slice::from_raw_parts(addr, size) };
    let mut text = Text::default();
    if let Some(known) = address(format, bytes) {
        text.fmt(format_args!("{known}"));
        return Some(text);
    }
    of_other_provider(&mut text, format, bytes, addr)?;
    Some(text)
}

/// The bytes of an address as text, as [`printed`] has them.
pub(super) fn bytes(format: u32, bytes: &[u8]) -> Option<Text> {
    // SAFETY: that many bytes.
    unsafe { printed(format, bytes.as_ptr(), Some(bytes.len())) }
}

/// # Safety
///
/// `addr` is valid for reads of `len` bytes, or a C string without `len`.
unsafe fn string(addr: *const u8, len: Option<usize>) -> Text {
    let mut text = Text::default();
    match len {
        Some(len) => {
            // SAFETY: that many bytes, by the contract of this function.
            let bytes = unsafe { slice::from_raw_parts(addr, len) };
            text.bytes(bytes.split(|&b| b == 0).next().unwrap_or_default());
        }
        // SAFETY: a C string, by the contract of this function.
        None => text.bytes(unsafe { CStr::from_ptr(addr.cast::<c_char>()) }.to_bytes()),
    }
    text
}

/// How many bytes an address of this format has that the text shows.
///
/// # Safety
///
/// For socket addresses `addr` is valid for reads of two bytes, or `len` is less.
pub(crate) unsafe fn size_of_address(
    format: u32,
    addr: *const u8,
    len: Option<usize>,
) -> Option<usize> {
    match format {
        abi::FI_SOCKADDR | abi::FI_SOCKADDR_IP => {
            if len.is_some_and(|len| len < size_of::<u16>()) {
                return None;
            }
            // SAFETY: at least two bytes, by the contract of this function and the check above.
            match unsafe { addr.cast::<u16>().read_unaligned() } {
                sockaddr::AF_INET => Some(sockaddr::SOCKADDR_IN_LEN),
                sockaddr::AF_INET6 => Some(sockaddr::SOCKADDR_IN6_LEN),
                AF_IB if format == abi::FI_SOCKADDR => Some(SOCKADDR_IB_LEN),
                _ => None,
            }
        }
        abi::FI_SOCKADDR_IN => Some(sockaddr::SOCKADDR_IN_LEN),
        abi::FI_SOCKADDR_IN6 => Some(sockaddr::SOCKADDR_IN6_LEN),
        abi::FI_SOCKADDR_IB => Some(SOCKADDR_IB_LEN),
        abi::FI_ADDR_IB_UD => Some(27),
        abi::FI_ADDR_EFA => Some(24),
        abi::FI_ADDR_PSMX2 => Some(16),
        abi::FI_ADDR_PSMX3 => Some(32),
        abi::FI_ADDR_OPX => Some(8),
        abi::FI_ADDR_CXI => Some(4),
        abi::FI_ADDR_MLX | abi::FI_ADDR_UCX => Some(0),
        _ => None,
    }
}

/// The address, for formats that Ripstop speaks.
fn address(format: u32, bytes: &[u8]) -> Option<Address> {
    let format = match bytes.len() {
        SOCKADDR_IB_LEN => AddrFormat::SockaddrIb,
        _ => AddrFormat::from_raw(format)?,
    };
    Address::from_bytes(format, bytes).ok()
}

/// Appends an address of a provider that only C has. `bytes` are as many as [`size_of_address`] says; `addr` is where
/// they are, which is all that is printed of some.
fn of_other_provider(text: &mut Text, format: u32, bytes: &[u8], addr: *const u8) -> Option<()> {
    let field = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let mut put = |args: core::fmt::Arguments<'_>| text.fmt(args);
    match format {
        abi::FI_ADDR_EFA => {
            let gid = Ipv6Addr::from(*bytes.first_chunk::<16>()?);
            let qpn = u16::from_ne_bytes(*bytes.get(16..)?.first_chunk()?);
            let qkey = u32::from_ne_bytes(*bytes.get(20..)?.first_chunk()?);
            put(format_args!("fi_addr_efa://[{gid}]:{qpn}:{qkey}"));
        }
        abi::FI_ADDR_PSMX2 => {
            let (a, b) = (field(0)?, field(8)?);
            put(format_args!("fi_addr_psmx2://{a:x}:{b:x}"));
        }
        abi::FI_ADDR_PSMX3 => {
            let (a, b, c, d) = (field(0)?, field(8)?, field(16)?, field(24)?);
            put(format_args!("fi_addr_psmx3://{a:x}:{b:x}:{c:x}:{d:x}"));
        }
        abi::FI_ADDR_OPX => put(format_args!("fi_addr_opx://{:016x}", field(0)?)),
        abi::FI_ADDR_CXI => {
            let nic = u32::from_ne_bytes(*bytes.first_chunk()?);
            put(format_args!("fi_addr_cxi://0x{nic:08x}"));
        }
        abi::FI_ADDR_MLX => put(format_args!("fi_addr_mlx://{addr:p}")),
        abi::FI_ADDR_UCX => put(format_args!("fi_addr_ucx://{addr:p}")),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(format: u32, bytes: &[u8]) -> Option<String> {
        let text = super::bytes(format, bytes)?;
        Some(String::from_utf8(text.as_bytes().to_vec()).unwrap())
    }

    #[test]
    fn socket_addresses_go_by_their_family() {
        let v6 = sockaddr::encode(&"[fe80::1]:80".parse().unwrap());
        let printed = Some("fi_sockaddr_in6://[fe80::1]:80".to_owned());
        assert_eq!(text(abi::FI_SOCKADDR, &v6), printed);
        assert_eq!(text(abi::FI_SOCKADDR_IP, &v6), printed);
        assert_eq!(text(abi::FI_SOCKADDR_IN6, &v6), printed);
        assert_eq!(text(abi::FI_SOCKADDR, &[9, 0, 0, 0]), None);
        assert_eq!(text(abi::FI_SOCKADDR, &[2]), None);
        assert_eq!(text(abi::FI_SOCKADDR, &v6[..20]), None);
        assert_eq!(text(abi::FI_FORMAT_UNSPEC, &v6), None);
    }

    #[test]
    fn strings_end_at_nul_or_at_their_length() {
        assert_eq!(
            text(abi::FI_ADDR_STR, b"fi_shm://1\0x").unwrap(),
            "fi_shm://1"
        );
        assert_eq!(text(abi::FI_ADDR_STR, b"fi_shm").unwrap(), "fi_shm");
    }

    #[test]
    fn formats_of_other_providers_are_known() {
        let bytes: Vec<u8> = (0..32).collect();
        assert_eq!(
            text(abi::FI_ADDR_EFA, &bytes).unwrap(),
            "fi_addr_efa://[1:203:405:607:809:a0b:c0d:e0f]:4368:387323156"
        );
        assert_eq!(
            text(abi::FI_ADDR_OPX, &bytes).unwrap(),
            "fi_addr_opx://0706050403020100"
        );
        assert_eq!(
            text(abi::FI_ADDR_CXI, &bytes).unwrap(),
            "fi_addr_cxi://0x03020100"
        );
        assert_eq!(text(abi::FI_ADDR_PSMX3, &bytes[..31]), None);
    }
}
