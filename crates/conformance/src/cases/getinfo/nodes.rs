//! Node, service and addresses.

use std::net::{IpAddr, SocketAddr};

use ripstop_core::{Address, Info};
use ripstop_types::{Errno, Flags};

use super::super::has_ipv6;
use super::{ask, best};
use crate::case::{Cx, Outcome, Step, Stop, cases, refused};
use crate::ensure;
use crate::subject::Query;

cases! {
    pub(super) const CASES;
    fi_getinfo {
        both dest_node: "node and service become the destination, with a source to reach it";
        both source_node: "with FI_SOURCE, node and service become the source";
        both service_alone: "with FI_SOURCE a service alone fixes the port";
        both ipv6: "IPv6 nodes work like IPv4 ones";
        both hostname: "a host name is resolved";
        both numeric_host: "FI_NUMERICHOST refuses a name and takes an address";
        both unresolvable: "a name that does not resolve finds nothing";
        both bad_service: "a service that is none finds nothing";
        both hints_src_addr: "the source address of the hints is used";
        both hints_dest_addr: "the destination of the hints is used when no node is given";
        both node_over_dest_addr: "a node takes the place of the destination in the hints";
        both local_first: "a peer on this host is first reached from a local address";
        both all_interfaces:
            "without an address there is an answer for the loopback interface, and it is not first";
    }
}

/// Only IP providers take these.
fn ip(cx: &Cx<'_>) -> Outcome {
    match best(cx)?.src_addr {
        Some(Address::Ip(_)) => Ok(()),
        other => Err(Stop::not_offered(format!("addresses are {other:?}"))),
    }
}

/// What the provider makes of a node that is a number, and a port: an address of IP, or a string.
fn made(cx: &Cx<'_>, node: &str, port: u16) -> Step<Address> {
    match best(cx)?.src_addr {
        Some(Address::Ip(_)) => Ok(Address::Ip(at(&format!("{node}:{port}"))?)),
        Some(Address::Str(_)) => Ok(Address::Str(format!("fi_ns://{node}:{port}"))),
        other => Err(Stop::not_offered(format!("addresses are {other:?}"))),
    }
}

fn of(addr: Option<&Address>) -> Option<SocketAddr> {
    addr.and_then(Address::ip)
}

fn at(text: &str) -> Step<SocketAddr> {
    text.parse().map_err(Stop::fail)
}

fn to(cx: &Cx<'_>, node: Option<&str>, service: Option<&str>, flags: Flags) -> Step<Vec<Info>> {
    let infos = ask(cx, |q| towards(q, node, service, flags));
    infos.map_err(|e| Stop::fail(format!("{node:?} {service:?}: {e}")))
}

fn towards(query: &mut Query, node: Option<&str>, service: Option<&str>, flags: Flags) {
    query.node = node.map(str::to_owned);
    query.service = service.map(str::to_owned);
    query.flags = flags;
}

fn dest_node(cx: &Cx<'_>) -> Outcome {
    let wanted = made(cx, "127.0.0.1", 4711)?;
    for info in to(cx, Some("127.0.0.1"), Some("4711"), Flags::empty())? {
        let dest = info.dest_addr;
        ensure!(dest.as_ref() == Some(&wanted), "dest_addr is {dest:?}");
        let src = info.src_addr.as_ref().map(Address::format);
        ensure!(src == Some(wanted.format()), "src_addr is {src:?}");
    }
    Ok(())
}

fn source_node(cx: &Cx<'_>) -> Outcome {
    let wanted = made(cx, "127.0.0.1", 4711)?;
    for info in to(cx, Some("127.0.0.1"), Some("4711"), Flags::SOURCE)? {
        let src = info.src_addr;
        ensure!(src.as_ref() == Some(&wanted), "src_addr is {src:?}");
        ensure!(
            info.dest_addr.is_none(),
            "dest_addr is {:?}",
            info.dest_addr
        );
    }
    Ok(())
}

fn service_alone(cx: &Cx<'_>) -> Outcome {
    best(cx)?;
    for info in to(cx, None, Some("4711"), Flags::SOURCE)? {
        let fixed = match &info.src_addr {
            Some(Address::Ip(src)) => src.port() == 4711,
            Some(Address::Str(src)) => src == "fi_ns://4711",
            other => return Err(Stop::not_offered(format!("addresses are {other:?}"))),
        };
        ensure!(fixed, "src_addr is {:?}", info.src_addr);
    }
    Ok(())
}

fn ipv6(cx: &Cx<'_>) -> Outcome {
    ip(cx)?;
    has_ipv6()?;
    for info in to(cx, Some("::1"), Some("4711"), Flags::empty())? {
        let dest = of(info.dest_addr.as_ref());
        ensure!(dest == Some(at("[::1]:4711")?), "dest_addr is {dest:?}");
    }
    for info in to(cx, Some("::1"), Some("4711"), Flags::SOURCE)? {
        let src = of(info.src_addr.as_ref());
        ensure!(src == Some(at("[::1]:4711")?), "src_addr is {src:?}");
    }
    Ok(())
}

fn hostname(cx: &Cx<'_>) -> Outcome {
    ip(cx)?;
    for info in to(cx, Some("localhost"), Some("4711"), Flags::empty())? {
        let dest = of(info.dest_addr.as_ref());
        let local = dest.is_some_and(|d| d.ip().is_loopback() && d.port() == 4711);
        ensure!(local, "dest_addr is {dest:?}");
    }
    Ok(())
}

fn numeric_host(cx: &Cx<'_>) -> Outcome {
    ip(cx)?;
    to(cx, Some("127.0.0.1"), Some("4711"), Flags::NUMERICHOST)?;
    let named = ask(cx, |q| {
        towards(q, Some("localhost"), Some("4711"), Flags::NUMERICHOST)
    });
    refused(named, &[Errno::ENODATA], "localhost with FI_NUMERICHOST")
}

fn unresolvable(cx: &Cx<'_>) -> Outcome {
    ip(cx)?;
    // A name longer than any may be: no query leaves this host.
    let name = "a".repeat(300);
    let asked = ask(cx, |q| towards(q, Some(&name), None, Flags::empty()));
    refused(asked, &[Errno::ENODATA], "a name of 300 letters")
}

fn bad_service(cx: &Cx<'_>) -> Outcome {
    ip(cx)?;
    let service = Some("no such service");
    let asked = ask(cx, |q| {
        towards(q, Some("127.0.0.1"), service, Flags::empty())
    });
    refused(asked, &[Errno::ENODATA], "a service that does not exist")
}

fn hints_src_addr(cx: &Cx<'_>) -> Outcome {
    let src = made(cx, "127.0.0.1", 4711)?;
    let infos = ask(cx, |q| {
        if let Some(hints) = &mut q.hints {
            hints.addr_format = src.format();
            hints.src_addr = Some(src.clone());
        }
    })?;
    for info in infos {
        ensure!(
            info.src_addr.as_ref() == Some(&src),
            "src_addr is {:?}",
            info.src_addr
        );
    }
    Ok(())
}

fn hints_dest_addr(cx: &Cx<'_>) -> Outcome {
    let dest = made(cx, "127.0.0.1", 4711)?;
    let infos = ask(cx, |q| {
        if let Some(hints) = &mut q.hints {
            hints.addr_format = dest.format();
            hints.dest_addr = Some(dest.clone());
        }
    })?;
    for info in infos {
        ensure!(
            info.dest_addr.as_ref() == Some(&dest),
            "dest_addr is {:?}",
            info.dest_addr
        );
    }
    Ok(())
}

fn node_over_dest_addr(cx: &Cx<'_>) -> Outcome {
    let other = made(cx, "127.0.0.2", 1)?;
    let wanted = made(cx, "127.0.0.1", 4711)?;
    let infos = ask(cx, |q| {
        towards(q, Some("127.0.0.1"), Some("4711"), Flags::empty());
        if let Some(hints) = &mut q.hints {
            hints.addr_format = other.format();
            hints.dest_addr = Some(other.clone());
        }
    })?;
    for info in infos {
        let dest = info.dest_addr;
        ensure!(dest.as_ref() == Some(&wanted), "dest_addr is {dest:?}");
    }
    Ok(())
}

fn local_first(cx: &Cx<'_>) -> Outcome {
    ip(cx)?;
    let infos = to(cx, Some("127.0.0.1"), Some("4711"), Flags::empty())?;
    let src = infos.first().and_then(|i| of(i.src_addr.as_ref()));
    let local = src
        .map(|s| s.ip())
        .is_some_and(|ip: IpAddr| ip.is_loopback());
    ensure!(local, "the first answer's source is {src:?}");
    Ok(())
}

fn all_interfaces(cx: &Cx<'_>) -> Outcome {
    ip(cx)?;
    let infos = ask(cx, |_| ())?;
    let loopback = |i: &Info| of(i.src_addr.as_ref()).is_some_and(|s| s.ip().is_loopback());
    ensure!(
        infos.iter().any(loopback),
        "no answer for the loopback interface"
    );
    let others = infos.iter().any(|i| !loopback(i));
    let first = infos.first().is_some_and(loopback);
    ensure!(!(first && others), "the loopback interface comes first");
    Ok(())
}
