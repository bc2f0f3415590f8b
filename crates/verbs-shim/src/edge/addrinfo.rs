#![allow(unsafe_code)]
//! `rdma_getaddrinfo(3)`, and endpoints made of what it finds.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};

use ripstop_core::Address;
use ripstop_types::{Errno, Result};

use crate::edge::args::{Arg, In, Object, Out, Take, Text};
use crate::edge::ids::Sockaddr;
use crate::edge::{exports, minus_one};
use crate::log::{Subsys, refuse};
use crate::sys::{IBV_QPT_RC, IBV_QPT_UD, RDMA_PS_TCP, RDMA_PS_UDP, rdma_addrinfo};

const RAI_PASSIVE: c_int = 1;
const RAI_FAMILY: c_int = 8;

/// What was found, with the addresses that the struct points to.
#[repr(C)]
pub(crate) struct AddrInfo {
    c: rdma_addrinfo,
    _source: Vec<u8>,
    _peer: Vec<u8>,
}

// SAFETY: `#[repr(C)]`, and the struct comes first.
unsafe impl Object for AddrInfo {
    type C = rdma_addrinfo;
}

/// Which side an endpoint is to be, and the address there: where it listens, or its peer.
pub(crate) struct Side(Option<(bool, Sockaddr, c_int)>);

impl Arg for Side {
    type C = *const rdma_addrinfo;

    unsafe fn from_c(c: Self::C) -> Self {
        // SAFETY: the caller passes NULL or what `rdma_getaddrinfo` has found.
        let Some(found) = (unsafe { c.as_ref() }) else {
            return Self(None);
        };
        let passive = found.ai_flags & RAI_PASSIVE != 0;
        let address = if passive {
            found.ai_src_addr
        } else {
            found.ai_dst_addr
        };
        // SAFETY: such a struct has NULL or an address there.
        let address = unsafe { Sockaddr::from_c(address) };
        Self(Some((passive, address, found.ai_port_space)))
    }
}

impl Side {
    /// Whether it listens, and the address.
    ///
    /// # Errors
    /// `EINVAL` without an address; those of [`Sockaddr::get`].
    pub(crate) fn get(&self) -> Result<(bool, SocketAddr)> {
        let (passive, address, _) = self.0.as_ref().ok_or(Errno::EINVAL)?;
        Ok((*passive, address.get()?.ok_or(Errno::EINVAL)?))
    }

    /// The port space of an id for it.
    pub(crate) fn port_space(&self) -> c_int {
        self.0.as_ref().map_or(RDMA_PS_TCP, |(_, _, space)| *space)
    }
}

/// Looks up names; `family` is `AF_INET`, `AF_INET6` or 0.
fn look_up(node: Option<&str>, service: Option<&str>, family: c_int) -> Result<SocketAddr> {
    let port = match service {
        None => 0,
        Some(text) => text.parse().map_err(|_| {
            refuse(
                Subsys::EpCtrl,
                Errno::EINVAL,
                format_args!("service {text}: a port number is"),
            )
        })?,
    };
    let Some(node) = node else {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port));
    };
    let fits = |address: &SocketAddr| match family {
        2 => address.is_ipv4(),
        10 => address.is_ipv6(),
        _ => true,
    };
    let found = (node, port).to_socket_addrs().map_err(|error| {
        refuse(
            Subsys::EpCtrl,
            Errno::EADDRNOTAVAIL,
            format_args!("{node}: {error}"),
        )
    })?;
    let all: Vec<SocketAddr> = found.filter(fits).collect();
    // As hosts without IPv6 are still many.
    let best = all.iter().find(|address| address.is_ipv4()).or(all.first());
    best.copied().ok_or(Errno::EADDRNOTAVAIL)
}

/// The struct of an address on one side.
fn found(address: SocketAddr, passive: bool, datagrams: bool) -> *mut rdma_addrinfo {
    let bytes = Address::Ip(address).to_bytes();
    let (source, peer) = if passive {
        (bytes, Vec::new())
    } else {
        (Vec::new(), bytes)
    };
    let at = |bytes: &Vec<u8>| match bytes.is_empty() {
        true => ptr::null_mut(),
        false => bytes.as_ptr().cast_mut().cast::<c_void>(),
    };
    let c = rdma_addrinfo {
        ai_flags: if passive { RAI_PASSIVE } else { 0 },
        ai_family: if address.is_ipv4() { 2 } else { 10 },
        ai_qp_type: if datagrams { IBV_QPT_UD } else { IBV_QPT_RC },
        ai_port_space: if datagrams { RDMA_PS_UDP } else { RDMA_PS_TCP },
        ai_src_len: source.len() as u32,
        ai_dst_len: peer.len() as u32,
        ai_src_addr: at(&source),
        ai_dst_addr: at(&peer),
        ai_src_canonname: ptr::null_mut(),
        ai_dst_canonname: ptr::null_mut(),
        ai_route_len: 0,
        ai_route: ptr::null_mut(),
        ai_connect_len: 0,
        ai_connect: ptr::null_mut(),
        ai_next: ptr::null_mut(),
    };
    let made = AddrInfo {
        c,
        _source: source,
        _peer: peer,
    };
    made.give()
}

exports! {
    /// `rdma_getaddrinfo(3)`.
    fn rdma_getaddrinfo(
        node: Text<'_>,
        service: Text<'_>,
        hints: In<'_, rdma_addrinfo>,
        result: Out<'_, *mut rdma_addrinfo>,
    ) -> c_int {
        let datagrams = hints.get().is_some_and(|hints| {
            hints.ai_port_space == RDMA_PS_UDP || hints.ai_qp_type == IBV_QPT_UD
        });
        let hints = hints.get().map_or((0, 0), |hints| (hints.ai_flags, hints.ai_family));
        let family = if hints.0 & RAI_FAMILY != 0 { hints.1 } else { 0 };
        let address = look_up(node.get(), service.get(), family);
        minus_one(address.map(|address| {
            result.set(found(address, hints.0 & RAI_PASSIVE != 0, datagrams));
        }))
    }

    /// `rdma_freeaddrinfo(3)`.
    fn rdma_freeaddrinfo(found: Take<AddrInfo>) {
        drop(found.take());
    }
}
