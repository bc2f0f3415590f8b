#![allow(unsafe_code)]
//! C socket addresses that the C library has handed out.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The Internet address at `addr`; `None` if `addr` is null or of another family.
///
/// # Safety
///
/// `addr` is null or points to a socket address as large as its family demands, readable and
/// not changing during the call.
pub(super) unsafe fn to_inet(addr: *const libc::sockaddr) -> Option<SocketAddr> {
    if addr.is_null() {
        return None;
    }
    const { assert!(std::mem::offset_of!(libc::sockaddr, sa_family) == 0) };
    // SAFETY: every socket address starts with its family; unaligned, to rely on nothing more.
    let family = unsafe { addr.cast::<libc::sa_family_t>().read_unaligned() };
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: this family is a `sockaddr_in`, by the caller's promise all there.
            let v4 = unsafe { addr.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: this family is a `sockaddr_in6`, by the caller's promise all there.
            let v6 = unsafe { addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}
