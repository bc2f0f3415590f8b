//! The names under which the shm provider knows the endpoints of lnx.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ripstop_core::Address;
use ripstop_shm::Shm;
use ripstop_stream::{Addr as _, Transport};
use ripstop_types::Result;

/// The name of an endpoint of the shm provider.
pub(crate) type Name = <Shm as Transport>::Addr;

/// What the names of Unix sockets of lnx start with; no endpoint of the shm provider has it unless a
/// program chooses such a name itself.
const PREFIX: &str = "fi_lnx://lnx/";

/// The name under which the shm provider knows an endpoint of lnx.
///
/// # Errors
/// None: no address is too long for a name.
pub(crate) fn shm_name(addr: &SocketAddr) -> Result<Name> {
    Name::from_address(&Address::Str(format!("{PREFIX}{addr}")))
}

/// The address in a name of [`shm_name`], which a peer has sent.
pub(crate) fn addr_of(name: &Name) -> Option<SocketAddr> {
    match name.to_address() {
        Address::Str(text) => text.strip_prefix(PREFIX)?.parse().ok(),
        _ => None,
    }
}

/// The address of an endpoint that listens at all addresses of this machine, on the port of `addr`.
pub(crate) const fn at_any(addr: &SocketAddr) -> SocketAddr {
    let any = match addr.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(any, addr.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_addresses() {
        for text in ["127.0.0.1:1", "10.1.2.3:65535", "[::1]:4000", "0.0.0.0:7"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(addr_of(&shm_name(&addr).unwrap()), Some(addr));
        }
        for other in ["fi_shm://1:0:0", "fi_lnx://lnx/", "fi_lnx://lnx/1.2.3.4"] {
            let name = Name::from_address(&Address::Str(other.to_owned())).unwrap();
            assert_eq!(addr_of(&name), None, "{other}");
        }
    }
}
