//! Peers that follow a pattern (`fi_av_insertsym`, `fi_av_insertsvc`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ripstop_types::{AddrFormat, Errno, Result};

use crate::resolve::{Query, resolve};

/// `nodes` hosts with `services` ports each: numeric addresses count up from `node`, names
/// by the number they end in (`node07`, `node08`), ports from `service`.
#[derive(Clone, Copy, Debug)]
pub struct Symmetric<'a> {
    /// The first host.
    pub node: &'a str,
    /// How many hosts.
    pub nodes: usize,
    /// The first port; the name of a service if there is but one.
    pub service: &'a str,
    /// How many ports on each host.
    pub services: usize,
    /// The family to resolve names to.
    pub format: AddrFormat,
}

impl<'a> Symmetric<'a> {
    /// All addresses, host by host. Names are resolved one by one, which may block.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] when hosts or ports run out of numbers, or a name or service does not
    /// end in one; an item of the iterator is an error when its name does not resolve.
    pub fn addresses(&self) -> Result<impl Iterator<Item = Result<SocketAddr>> + use<'a>> {
        let hosts = Hosts::new(self.node, self.nodes)?;
        let ports = Ports::new(self.service, self.services)?;
        let (format, nodes, services) = (self.format, self.nodes, self.services);
        Ok((0..nodes).flat_map(move |host| {
            let (hosts, ports) = (hosts.clone(), ports.clone());
            (0..services).map(move |port| hosts.address(host, &ports, port, format))
        }))
    }
}

#[derive(Clone)]
enum Hosts<'a> {
    Ip(IpAddr),
    /// The one name there is.
    Name(&'a str),
    /// What stands before the number, the number, and its least number of digits.
    Numbered(&'a str, usize, usize),
}

impl<'a> Hosts<'a> {
    fn new(node: &'a str, count: usize) -> Result<Self> {
        let last = count.saturating_sub(1);
        if let Ok(ip) = node.parse() {
            return offset(ip, last).map(|_| Self::Ip(ip)).ok_or(Errno::EINVAL);
        }
        if count <= 1 {
            return Ok(Self::Name(node));
        }
        let prefix = node.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = node.strip_prefix(prefix).unwrap_or_default();
        let first: usize = digits.parse().map_err(|_| Errno::EINVAL)?;
        first.checked_add(last).ok_or(Errno::EINVAL)?;
        let width = if digits.starts_with('0') {
            digits.len()
        } else {
            0
        };
        Ok(Self::Numbered(prefix, first, width))
    }

    fn address(
        &self,
        host: usize,
        ports: &Ports<'_>,
        port: usize,
        format: AddrFormat,
    ) -> Result<SocketAddr> {
        match *self {
            Self::Ip(ip) => {
                let ip = offset(ip, host).ok_or(Errno::EINVAL)?;
                match *ports {
                    Ports::From(first) => Ok(SocketAddr::new(ip, first + port as u16)),
                    Ports::Name(service) => look_up(&ip.to_string(), service, format),
                }
            }
            Self::Name(name) => look_up(name, &ports.text(port), format),
            Self::Numbered(prefix, first, width) => {
                let name = format!("{prefix}{:0width$}", first + host);
                look_up(&name, &ports.text(port), format)
            }
        }
    }
}

#[derive(Clone)]
enum Ports<'a> {
    From(u16),
    Name(&'a str),
}

impl<'a> Ports<'a> {
    fn new(service: &'a str, count: usize) -> Result<Self> {
        let last = u16::try_from(count.saturating_sub(1)).map_err(|_| Errno::EINVAL)?;
        match service.parse::<u16>() {
            Ok(first) => first
                .checked_add(last)
                .map(|_| Self::From(first))
                .ok_or(Errno::EINVAL),
            Err(_) if count <= 1 => Ok(Self::Name(service)),
            Err(_) => Err(Errno::EINVAL),
        }
    }

    fn text(&self, port: usize) -> String {
        match *self {
            Self::From(first) => (usize::from(first) + port).to_string(),
            Self::Name(name) => name.to_owned(),
        }
    }
}

/// The address `steps` after this one, if there is one in the family.
fn offset(ip: IpAddr, steps: usize) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => {
            let steps = u32::try_from(steps).ok()?;
            Some(Ipv4Addr::from_bits(ip.to_bits().checked_add(steps)?).into())
        }
        IpAddr::V6(ip) => {
            Some(Ipv6Addr::from_bits(ip.to_bits().checked_add(steps as u128)?).into())
        }
    }
}

fn look_up(node: &str, service: &str, format: AddrFormat) -> Result<SocketAddr> {
    let query = Query {
        node: Some(node),
        service: Some(service),
        format,
        passive: false,
        numeric: false,
    };
    resolve(&query).map_err(|_| Errno::ENODATA)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(node: &str, nodes: usize, service: &str, services: usize) -> Result<Vec<String>> {
        let format = AddrFormat::SockaddrIp;
        let pattern = Symmetric {
            node,
            nodes,
            service,
            services,
            format,
        };
        let addresses: Result<Vec<SocketAddr>> = pattern.addresses()?.collect();
        Ok(addresses?.iter().map(SocketAddr::to_string).collect())
    }

    #[test]
    fn addresses_and_ports_count_up() {
        let expected = ["10.0.0.255:5", "10.0.0.255:6", "10.0.1.0:5", "10.0.1.0:6"];
        assert_eq!(all("10.0.0.255", 2, "5", 2).unwrap(), expected);
        assert_eq!(
            all("fe::ffff", 2, "5", 1).unwrap(),
            ["[fe::ffff]:5", "[fe::1:0]:5"]
        );
        assert_eq!(all("10.0.0.1", 0, "5", 2).unwrap(), [""; 0]);
    }

    #[test]
    fn numbers_run_out() {
        assert_eq!(all("255.255.255.255", 2, "5", 1), Err(Errno::EINVAL));
        assert_eq!(all("10.0.0.1", 1, "65535", 2), Err(Errno::EINVAL));
        assert_eq!(all("10.0.0.1", 1, "http", 2), Err(Errno::EINVAL));
        assert_eq!(all("node", 2, "5", 1), Err(Errno::EINVAL));
    }

    #[test]
    fn names_count_by_their_last_number() {
        let Ok(Hosts::Numbered(prefix, first, width)) = Hosts::new("rack2-node08", 4) else {
            panic!("a numbered name")
        };
        assert_eq!((prefix, first, width), ("rack2-node", 8, 2));
        assert!(matches!(
            Hosts::new("n7", 2),
            Ok(Hosts::Numbered("n", 7, 0))
        ));
    }

    #[test]
    fn local_names_resolve() {
        assert_eq!(all("localhost", 1, "99", 2).unwrap().len(), 2);
    }
}
