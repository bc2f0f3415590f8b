#![allow(unsafe_code)]
//! Names to addresses.

use std::ffi::CString;
use std::net::SocketAddr;
use std::ptr;

use ripstop_types::{Errno, Result};
use rustix::net::SocketAddrAny;

use crate::errno::last_errno;

/// The IPv4 and IPv6 stream addresses of `node` (a name or an address, `%scope` allowed) and
/// `service` (a name such as `http` or a port number), in the system's order of preference, each
/// once. At least one of the two must be given.
///
/// Without `node`, the addresses are those to listen on (`0.0.0.0`, `::`) if `passive`, those of
/// the loopback interface if not. With `numeric_only`, `node` must be an address, and no name
/// service is asked.
///
/// This may block for as long as the name service takes.
///
/// # Errors
///
/// `EINVAL` for neither node nor service, or a zero byte in one; `ENODATA` if the name or the
/// service is not known (or is not an address where one is asked for); `EAGAIN` if the name
/// service did not answer; `ENOMEM`.
pub fn resolve(
    node: Option<&str>,
    service: Option<&str>,
    numeric_only: bool,
    passive: bool,
) -> Result<Vec<SocketAddr>> {
    if node.is_none() && service.is_none() {
        return Err(Errno::EINVAL);
    }
    let mut flags = 0;
    if numeric_only {
        flags |= libc::AI_NUMERICHOST;
    }
    if passive {
        flags |= libc::AI_PASSIVE;
    }
    let mut addrs: Vec<SocketAddr> = Vec::new();
    for addr in look_up(&c_string(node)?, &c_string(service)?, flags)? {
        if !addrs.contains(&addr) {
            addrs.push(addr);
        }
    }
    if addrs.is_empty() {
        return Err(Errno::ENODATA);
    }
    Ok(addrs)
}

fn c_string(text: Option<&str>) -> Result<Option<CString>> {
    text.map(|text| CString::new(text).map_err(|_| Errno::EINVAL))
        .transpose()
}

/// The stream addresses that `getaddrinfo(3)` lists.
fn look_up(
    node: &Option<CString>,
    service: &Option<CString>,
    flags: i32,
) -> Result<Vec<SocketAddr>> {
    let hints = libc::addrinfo {
        ai_flags: flags,
        ai_family: libc::AF_UNSPEC,
        ai_socktype: libc::SOCK_STREAM,
        ai_protocol: libc::IPPROTO_TCP,
        ai_addrlen: 0,
        ai_addr: ptr::null_mut(),
        ai_canonname: ptr::null_mut(),
        ai_next: ptr::null_mut(),
    };
    let c_ptr = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |t| t.as_ptr());
    let mut list = ptr::null_mut();
    // SAFETY: the strings are null or end in a zero byte, and they, `hints` and `list`
    // outlive the call.
    let code = unsafe { libc::getaddrinfo(c_ptr(node), c_ptr(service), &hints, &mut list) };
    if code != 0 {
        return Err(gai_errno(code));
    }
    let mut addrs = Vec::new();
    let mut next = list.cast_const();
    // SAFETY: null, or a node of the list, which is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: `getaddrinfo` gives a whole socket address and its length.
        let addr = unsafe { SocketAddrAny::read(entry.ai_addr.cast(), entry.ai_addrlen) };
        addrs.extend(SocketAddr::try_from(addr));
        next = entry.ai_next;
    }
    // SAFETY: `getaddrinfo` made the list, and nothing of it is used any more.
    unsafe { libc::freeaddrinfo(list) };
    Ok(addrs)
}

/// What to tell about an error of `getaddrinfo(3)`.
fn gai_errno(code: i32) -> Errno {
    match code {
        libc::EAI_AGAIN => Errno::EAGAIN,
        libc::EAI_MEMORY => Errno::ENOMEM,
        libc::EAI_BADFLAGS => Errno::EINVAL,
        libc::EAI_SYSTEM => last_errno(),
        _ => Errno::ENODATA,
    }
}
