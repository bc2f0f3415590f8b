//! From a node and a service to a socket address, as `fi_getinfo(3)` takes them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use ripstop_types::{AddrFormat, Errno};
use thiserror::Error;

/// What to resolve.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// Host name or numeric address. Without one the query is for this host.
    pub node: Option<&'a str>,
    /// Port number or service name; none is port 0.
    pub service: Option<&'a str>,
    /// Which family to take; any IP format that is not one family takes the first answer.
    pub format: AddrFormat,
    /// The address is to listen at: without a node, any address of this host.
    pub passive: bool,
    /// The node must be numeric: nobody is asked.
    pub numeric: bool,
}

/// Why there is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ResolveError {
    /// The format is not one of sockets.
    #[error("leave node and service NULL, as addresses here are not of IP")]
    Format,
    /// `FI_NUMERICHOST` was given, and the node is not a number.
    #[error("give node as a numeric address, or clear FI_NUMERICHOST")]
    NotNumeric,
    /// The name service does not know node or service, or did not answer.
    #[error("{}", remedy_of(*.0))]
    Unknown(Errno),
    /// The node is known, but has no address of the family.
    #[error("ask for the other addr_format, or a node that has this one")]
    Family,
}

/// What a caller can do about a name service that gave no address.
const fn remedy_of(errno: Errno) -> &'static str {
    match errno {
        Errno::EAGAIN => "try again, as the name service did not answer",
        _ => {
            "give node as a name that resolves or a numeric address, \
             and service as a port number or a name in /etc/services"
        }
    }
}

/// Resolves a query, which has a node, a service or both. May ask name servers, and so
/// block, unless it is numeric. Where both families will do and no node is given, it is IPv4.
///
/// # Errors
/// [`ResolveError`] says which part of the query has no meaning.
pub fn resolve(query: &Query<'_>) -> Result<SocketAddr, ResolveError> {
    let family = family(query.format).ok_or(ResolveError::Format)?;
    if query.numeric && !query.node.is_none_or(is_numeric) {
        return Err(ResolveError::NotNumeric);
    }
    let (node, service) = (query.node, query.service);
    let mut answers = ripstop_os::net::resolve(node, service, query.numeric, query.passive)
        .map_err(ResolveError::Unknown)?;
    if node.is_none() {
        answers.sort_by_key(SocketAddr::is_ipv6);
    }
    let first = answers.into_iter().find(family);
    first.ok_or(ResolveError::Family)
}

/// The local address from which this host reaches `dest`, with port 0. Nothing is sent.
///
/// # Errors
/// The operating system's, when it has no route.
pub fn source_for(dest: &SocketAddr) -> std::io::Result<SocketAddr> {
    let any = match dest {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(dest)?;
    let mut source = socket.local_addr()?;
    source.set_port(0);
    Ok(source)
}

/// Which addresses an address format takes; `None` for one that is not of sockets.
pub(crate) fn family(format: AddrFormat) -> Option<fn(&SocketAddr) -> bool> {
    match format {
        AddrFormat::SockaddrIn => Some(SocketAddr::is_ipv4),
        AddrFormat::SockaddrIn6 => Some(SocketAddr::is_ipv6),
        AddrFormat::Unspec | AddrFormat::Sockaddr | AddrFormat::SockaddrIp => Some(|_| true),
        _ => None,
    }
}

/// A numeric address, of IPv6 also with a zone (`fe80::1%eth0`).
fn is_numeric(node: &str) -> bool {
    let address = node
        .split_once('%')
        .map_or(node, |(address, _zone)| address);
    address.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERY: Query<'static> = Query {
        node: None,
        service: None,
        format: AddrFormat::SockaddrIp,
        passive: false,
        numeric: true,
    };

    #[test]
    fn numeric_nodes_need_no_name_service() {
        let v4 = Query {
            node: Some("10.0.0.1"),
            service: Some("7471"),
            ..QUERY
        };
        assert_eq!(resolve(&v4), Ok("10.0.0.1:7471".parse().unwrap()));
        let v6 = Query {
            node: Some("::1"),
            format: AddrFormat::SockaddrIn6,
            ..QUERY
        };
        assert_eq!(resolve(&v6), Ok("[::1]:0".parse().unwrap()));
        let wrong = Query {
            node: Some("::1"),
            format: AddrFormat::SockaddrIn,
            ..QUERY
        };
        assert_eq!(resolve(&wrong), Err(ResolveError::Family));
    }

    #[test]
    fn without_a_node_the_query_is_for_this_host() {
        let listen = Query {
            service: Some("80"),
            passive: true,
            ..QUERY
        };
        assert_eq!(resolve(&listen), Ok("0.0.0.0:80".parse().unwrap()));
        let reach = Query {
            service: Some("80"),
            format: AddrFormat::SockaddrIn6,
            ..QUERY
        };
        assert_eq!(resolve(&reach), Ok("[::1]:80".parse().unwrap()));
    }

    #[test]
    fn refuses_what_has_no_meaning() {
        let host = Query {
            node: Some("no-number.example"),
            ..QUERY
        };
        assert_eq!(resolve(&host), Err(ResolveError::NotNumeric));
        let service = Query {
            node: Some("::1"),
            service: Some("no such service"),
            ..QUERY
        };
        assert!(matches!(resolve(&service), Err(ResolveError::Unknown(_))));
        let format = Query {
            format: AddrFormat::Str,
            ..QUERY
        };
        assert_eq!(resolve(&format), Err(ResolveError::Format));
    }

    #[test]
    fn loopback_is_reached_from_loopback() {
        let dest = "127.0.0.1:9".parse().unwrap();
        assert_eq!(source_for(&dest).unwrap(), "127.0.0.1:0".parse().unwrap());
    }
}
