//! From a node and a service to a socket address, as `fi_getinfo(3)` takes them.

use core::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use ripstop_types::AddrFormat;

/// Where local service names are kept.
const SERVICES: &str = "/etc/services";

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// The format is not one of sockets.
    Format,
    /// The service is neither a port number nor a name in `/etc/services`.
    Service,
    /// `FI_NUMERICHOST` was given, and the node is not a number.
    NotNumeric,
    /// No name service knows the node.
    UnknownNode,
    /// The node is known, but has no address of the family.
    Family,
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => "leave node and service NULL, as addresses here are not of IP",
            Self::Service => "give service as a port number from 0 to 65535",
            Self::NotNumeric => "give node as a numeric address, or clear FI_NUMERICHOST",
            Self::UnknownNode => "give node as a name that resolves, or as a numeric address",
            Self::Family => "ask for the other addr_format, or a node that has this one",
        })
    }
}

impl core::error::Error for ResolveError {}

/// Resolves a query. May ask name servers, and so block, unless it is numeric.
///
/// # Errors
/// [`ResolveError`] says which part of the query has no meaning.
pub fn resolve(query: &Query<'_>) -> Result<SocketAddr, ResolveError> {
    let port = port(query.service)?;
    let family = Family::of(query.format).ok_or(ResolveError::Format)?;
    let Some(node) = query.node else {
        return Ok(SocketAddr::new(family.local(query.passive), port));
    };
    if query.numeric && !is_numeric(node) {
        return Err(ResolveError::NotNumeric);
    }
    let answers = (node, port)
        .to_socket_addrs()
        .map_err(|_| ResolveError::UnknownNode)?;
    family.first(answers).ok_or(ResolveError::Family)
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

/// Families that satisfy an address format.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
    Any,
}

impl Family {
    const fn of(format: AddrFormat) -> Option<Self> {
        match format {
            AddrFormat::SockaddrIn => Some(Self::V4),
            AddrFormat::SockaddrIn6 => Some(Self::V6),
            AddrFormat::Unspec | AddrFormat::Sockaddr | AddrFormat::SockaddrIp => Some(Self::Any),
            _ => None,
        }
    }

    /// This host: any address to listen at, loopback to reach.
    const fn local(self, passive: bool) -> IpAddr {
        match (self, passive) {
            (Self::V6, true) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            (Self::V6, false) => IpAddr::V6(Ipv6Addr::LOCALHOST),
            (_, true) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            (_, false) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }

    fn first(self, mut answers: impl Iterator<Item = SocketAddr>) -> Option<SocketAddr> {
        answers.find(|addr| match self {
            Self::V4 => addr.is_ipv4(),
            Self::V6 => addr.is_ipv6(),
            Self::Any => true,
        })
    }
}

/// A numeric address, of IPv6 also with a zone (`fe80::1%eth0`).
fn is_numeric(node: &str) -> bool {
    let address = node
        .split_once('%')
        .map_or(node, |(address, _zone)| address);
    address.parse::<IpAddr>().is_ok()
}

fn port(service: Option<&str>) -> Result<u16, ResolveError> {
    let Some(service) = service else { return Ok(0) };
    if let Ok(port) = service.parse() {
        return Ok(port);
    }
    std::fs::read_to_string(SERVICES)
        .ok()
        .and_then(|services| named_port(&services, service))
        .ok_or(ResolveError::Service)
}

/// The port of a service in text of the form of `/etc/services`: a name, `PORT/PROTOCOL`,
/// aliases, a comment.
fn named_port(services: &str, name: &str) -> Option<u16> {
    services.lines().find_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let official = words.next()?;
        let port = words.next()?.split('/').next()?;
        let known = official == name || words.any(|alias| alias == name);
        if known { port.parse().ok() } else { None }
    })
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
            service: Some("70000"),
            ..QUERY
        };
        assert_eq!(resolve(&service), Err(ResolveError::Service));
        let format = Query {
            format: AddrFormat::Str,
            ..QUERY
        };
        assert_eq!(resolve(&format), Err(ResolveError::Format));
    }

    #[test]
    fn service_names_come_from_the_table() {
        let table = "# comment\nhttp\t80/tcp\twww www-http # web\nssh 22/tcp\n";
        assert_eq!(named_port(table, "www-http"), Some(80));
        assert_eq!(named_port(table, "ssh"), Some(22));
        assert_eq!(named_port(table, "comment"), None);
    }

    #[test]
    fn loopback_is_reached_from_loopback() {
        let dest = "127.0.0.1:9".parse().unwrap();
        assert_eq!(source_for(&dest).unwrap(), "127.0.0.1:0".parse().unwrap());
    }
}
