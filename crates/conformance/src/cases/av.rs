//! `fi_av`(3).

mod ids;
mod many;
mod shared;

use std::net::{Ipv4Addr, SocketAddr};

use ripstop_core::Address;
use ripstop_types::{AddrFormat, AvType, Errno, FiAddr};

use crate::case::{Case, Cx, Outcome, Step, Stop, cases, in_use, refused};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, offer};
use crate::subject::{AvAttr, Fid, Post, Query};

pub(super) fn cases() -> Vec<Case> {
    [OWN, many::CASES, ids::CASES, shared::CASES].concat()
}

cases! {
    const OWN;
    fi_av {
        rdm lookup: "an inserted address is looked up as it was";
        rdm lookup_short: "a lookup into a short buffer is cut off and tells the length";
        rdm lookup_unset: "looking up what is not there is FI_EINVAL";
        rdm table_indices: "a table gives indices in the order of insertion";
        rdm table_reuse: "a table reuses the lowest free index";
        rdm map: "a map gives addresses that differ and work";
        rdm insert_none: "inserting no address succeeds with none";
        rdm insert_several: "several addresses are inserted by one call";
        rdm insert_bad: "bytes that are no address are not inserted";
        rdm duplicate: "an address inserted twice can be used and removed twice";
        rdm insertsvc: "node and service are resolved and inserted";
        rdm insertsvc_bad: "a node that does not resolve is not inserted";
        rdm insertsym: "ranges of nodes and services are inserted node by node";
        rdm remove: "a removed address is gone, the others stay";
        rdm remove_unset: "removing what is not there is FI_EINVAL";
        rdm reinsert: "a peer removed and inserted again is reached";
        rdm straddr: "an address as text names format, node and port";
        rdm straddr_short: "text that does not fit is cut off and tells the length";
        rdm ipv6: "IPv6 addresses are kept as well";
        rdm busy: "a bound address vector does not close";
        rdm shared: "endpoints share an address vector";
    }
}

/// An address vector, and what makes addresses for it.
struct Vector {
    av: Fid,
    format: AddrFormat,
}

impl Vector {
    /// Whether addresses are strings (`FI_ADDR_STR`) instead of those of IP.
    fn has_strings(&self) -> bool {
        self.format == AddrFormat::Str
    }

    /// The address of one of many peers that nobody tries to reach: an IP address with its port,
    /// or a string of those.
    fn peer(&self, i: usize) -> Step<Address> {
        let (host, port) = (i / 1000, 1000 + i % 1000);
        let host = u32::try_from(host).map_err(Stop::fail)?;
        let host = Ipv4Addr::from(0x7f00_0001 + host);
        match self.has_strings() {
            true => Ok(Address::Str(format!("fi_ns://{host}:{port}"))),
            false => at(&format!("{host}:{port}")),
        }
    }

    /// [`Vector::peer`] as text (`fi_av_straddr`).
    fn text(&self, i: usize) -> Step<String> {
        let peer = self.peer(i)?;
        Ok(match self.has_strings() {
            true => peer.to_string(),
            false => format!("fi_sockaddr_in://{}", ip(&peer)?),
        })
    }
}

/// A domain of its own with an address vector.
fn open(cx: &Cx<'_>, av_type: AvType) -> Step<Vector> {
    let spec = Spec::default().av_type(av_type);
    let info = offer(cx, &spec)?;
    let source = info.src_addr.as_ref().map(Address::format);
    let format = source.unwrap_or(info.addr_format);
    if !matches!(format, AddrFormat::SockaddrIn | AddrFormat::Str) {
        return Err(Stop::not_offered(format!("addresses are {format:?}")));
    }
    let fabric = cx.s.fabric(&info)?;
    let domain = cx.s.domain(fabric, &info)?;
    let av = cx.s.av(domain, spec.av)?;
    Ok(Vector { av, format })
}

fn at(text: &str) -> Step<Address> {
    Ok(Address::Ip(text.parse().map_err(Stop::fail)?))
}

fn ip(addr: &Address) -> Step<SocketAddr> {
    addr.ip()
        .ok_or_else(|| Stop::fail(format!("{addr} is no address of IP")))
}

fn insert(cx: &Cx<'_>, av: Fid, addr: &Address) -> Step<FiAddr> {
    match cx.s.av_insert(av, std::slice::from_ref(addr))?[..] {
        [found] if found.is_specified() => Ok(found),
        ref other => Err(Stop::fail(format!(
            "fi_av_insert gave {other:?} for {addr}"
        ))),
    }
}

fn finds(cx: &Cx<'_>, av: Fid, addr: FiAddr, wanted: &Address) -> Outcome {
    let found = cx.s.av_lookup(av, addr)?;
    ensure!(
        found == *wanted,
        "{addr:?} is {found}, inserted as {wanted}"
    );
    Ok(())
}

fn lookup(cx: &Cx<'_>) -> Outcome {
    for av_type in [AvType::Table, AvType::Map] {
        let vector = open(cx, av_type)?;
        let av = vector.av;
        for i in 0..10 {
            let addr = insert(cx, av, &vector.peer(i)?)?;
            finds(cx, av, addr, &vector.peer(i)?)?;
        }
    }
    Ok(())
}

fn lookup_short(cx: &Cx<'_>) -> Outcome {
    let edge = super::c_edge(cx)?;
    let vector = open(cx, AvType::Table)?;
    let av = vector.av;
    let wanted = vector.peer(7)?;
    let addr = insert(cx, av, &wanted)?;
    let whole = wanted.to_bytes();
    for len in [0, 1, 8, whole.len(), whole.len() + 10] {
        let (bytes, need) = edge.lookup_into(av, addr, len)?;
        ensure!(need == whole.len(), "{len} bytes: told to need {need}");
        let fits = len.min(whole.len());
        ensure!(bytes[..fits] == whole[..fits], "{len} bytes: other bytes");
        ensure!(
            bytes[fits..].iter().all(|b| *b == 0),
            "{len} bytes: written beyond the address"
        );
    }
    Ok(())
}

fn lookup_unset(cx: &Cx<'_>) -> Outcome {
    let vector = open(cx, AvType::Table)?;
    let av = vector.av;
    let set = insert(cx, av, &vector.peer(1)?)?;
    for addr in [
        FiAddr(set.0 + 1),
        FiAddr(1 << 20),
        FiAddr(1 << 40),
        FiAddr::NOTAVAIL,
    ] {
        refused(
            cx.s.av_lookup(av, addr),
            &[Errno::EINVAL],
            &format!("looking up {addr:?}"),
        )?;
    }
    Ok(())
}

fn table_indices(cx: &Cx<'_>) -> Outcome {
    let vector = open(cx, AvType::Table)?;
    let av = vector.av;
    for i in 0..20 {
        let addr = insert(cx, av, &vector.peer(i)?)?;
        ensure!(addr == FiAddr(i as u64), "insertion {i} has index {addr:?}");
    }
    Ok(())
}

fn table_reuse(cx: &Cx<'_>) -> Outcome {
    let vector = open(cx, AvType::Table)?;
    let av = vector.av;
    for i in 0..10 {
        insert(cx, av, &vector.peer(i)?)?;
    }
    cx.s.av_remove(av, &[FiAddr(3)])?;
    cx.s.av_remove(av, &[FiAddr(7)])?;
    let addr = insert(cx, av, &vector.peer(50)?)?;
    ensure!(addr == FiAddr(3), "3 and 7 are free, the next is {addr:?}");
    finds(cx, av, addr, &vector.peer(50)?)?;
    finds(cx, av, FiAddr(4), &vector.peer(4)?)
}

fn map(cx: &Cx<'_>) -> Outcome {
    let vector = open(cx, AvType::Map)?;
    let av = vector.av;
    let mut seen = Vec::new();
    for i in 0..50 {
        let addr = insert(cx, av, &vector.peer(i)?)?;
        ensure!(!seen.contains(&addr), "{addr:?} was given twice");
        seen.push(addr);
    }
    for (i, addr) in seen.into_iter().enumerate() {
        finds(cx, av, addr, &vector.peer(i)?)?;
    }
    Ok(())
}

fn insert_none(cx: &Cx<'_>) -> Outcome {
    let edge = super::c_edge(cx)?;
    let vector = open(cx, AvType::Table)?;
    let av = vector.av;
    let (count, _) = edge.insert_bytes(av, &[], 0)?;
    ensure!(count == 0, "{count} addresses out of none");
    let addr = insert(cx, av, &vector.peer(0)?)?;
    ensure!(addr == FiAddr(0), "the first index is {addr:?}");
    Ok(())
}

fn insert_several(cx: &Cx<'_>) -> Outcome {
    let vector = open(cx, AvType::Table)?;
    let av = vector.av;
    let addrs = (0..30).map(|i| vector.peer(i)).collect::<Step<Vec<_>>>()?;
    let found = cx.s.av_insert(av, &addrs)?;
    ensure!(
        found.len() == 30,
        "{} results for 30 addresses",
        found.len()
    );
    for (found, addr) in found.iter().zip(&addrs) {
        finds(cx, av, *found, addr)?;
    }
    Ok(())
}

fn insert_bad(cx: &Cx<'_>) -> Outcome {
    let edge = super::c_edge(cx)?;
    let vector = open(cx, AvType::Table)?;
    let av = vector.av;
    // An address family that is none, with room for any address; or a string without a word.
    let mut bytes = [0_u8; 16];
    if !vector.has_strings() {
        bytes[0] = 99;
    }
    match edge.insert_bytes(av, &bytes, 1) {
        Ok((count, found)) => {
            ensure!(count == 0, "{count} inserted");
            ensure!(found == [FiAddr::NOTAVAIL], "given as {found:?}");
        }
        Err(e) => ensure!(e.is(Errno::EINVAL), "{e}"),
    }
    // The vector still works.
    let addr = insert(cx, av, &vector.peer(1)?)?;
    finds(cx, av, addr, &vector.peer(1)?)
}

fn duplicate(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().av_type(AvType::Table))?;
    let name = rig.sides[B].name.clone();
    let again = rig.insert(A, name.as_ref())?;
    let (first, Some(av)) = (rig.sides[A].peer, rig.sides[A].av) else {
        return Err(Stop::fail("no address vector"));
    };
    for addr in [again, first] {
        rig.deliver(Post::recv(8), Post::send(*b"either").with(addr))?;
    }
    rig.s.av_remove(av, &[again])?;
    if again != first {
        // The other one still serves.
        rig.exchange(A, B, b"the other")?;
        rig.s.av_remove(av, &[first])?;
    }
    Ok(())
}

fn insertsvc(cx: &Cx<'_>) -> Outcome {
    let vector = open(cx, AvType::Table)?;
    let av = vector.av;
    if vector.has_strings() {
        return insertsvc_string(cx, &vector);
    }
    for (node, service) in [("127.0.0.1", "1234"), ("localhost", "4321")] {
        let addr = cx.s.av_insertsvc(av, node, Some(service))?;
        let found = ip(&cx.s.av_lookup(av, addr)?)?;
        ensure!(found.ip().is_loopback(), "{node} is {found}");
        ensure!(found.port().to_string() == service, "{service} is {found}");
    }
    Ok(())
}

/// Node and service are those of `fi_getinfo`(3); or the node is the address.
fn insertsvc_string(cx: &Cx<'_>, vector: &Vector) -> Outcome {
    let whole = vector.peer(1)?;
    let addr = cx.s.av_insertsvc(vector.av, &whole.to_string(), None)?;
    finds(cx, vector.av, addr, &whole)?;
    for (node, service) in [("here", Some("1234")), ("there", None)] {
        let mut hints = crate::rig::hints(cx);
        hints.addr_format = vector.format;
        let query = Query {
            node: Some(node.to_owned()),
            service: service.map(str::to_owned),
            hints: Some(hints),
            ..Query::default()
        };
        let infos = crate::rig::of_provider(cx, cx.s.getinfo(&query))?;
        let wanted = infos.first().and_then(|info| info.dest_addr.clone());
        let wanted = wanted.ok_or_else(|| Stop::fail(format!("no address for {node}")))?;
        let addr = cx.s.av_insertsvc(vector.av, node, service)?;
        finds(cx, vector.av, addr, &wanted)?;
    }
    Ok(())
}

fn insertsvc_bad(cx: &Cx<'_>) -> Outcome {
    let vector = open(cx, AvType::Table)?;
    let av = vector.av;
    let name = "a".repeat(300);
    match cx.s.av_insertsvc(av, &name, Some("1")) {
        Err(e) if e.errno().is_some() => {}
        Err(e) => return Err(e.into()),
        Ok(addr) => return Err(Stop::fail(format!("inserted as {addr:?}"))),
    }
    let addr = insert(cx, av, &vector.peer(1)?)?;
    finds(cx, av, addr, &vector.peer(1)?)
}

fn insertsym(cx: &Cx<'_>) -> Outcome {
    let vector = open(cx, AvType::Table)?;
    let av = vector.av;
    if vector.has_strings() {
        return Err(Stop::not_offered("strings have no ranges"));
    }
    let (count, found) = cx.s.av_insertsym(av, ("127.0.0.1", 3), ("5000", 2))?;
    ensure!(count == 6, "{count} of 6 inserted");
    let mut wanted = Vec::new();
    for host in 1..=3 {
        for port in 5000..=5001 {
            wanted.push(at(&format!("127.0.0.{host}:{port}"))?);
        }
    }
    for (addr, wanted) in found.iter().zip(&wanted) {
        finds(cx, av, *addr, wanted)?;
    }
    Ok(())
}

fn remove(cx: &Cx<'_>) -> Outcome {
    for av_type in [AvType::Table, AvType::Map] {
        let vector = open(cx, av_type)?;
        let av = vector.av;
        let mut all = Vec::new();
        for i in 0..10 {
            all.push(insert(cx, av, &vector.peer(i)?)?);
        }
        cx.s.av_remove(av, &[all[2], all[5]])?;
        for i in [0, 1, 3, 4, 6, 7, 8, 9] {
            finds(cx, av, all[i], &vector.peer(i)?)?;
        }
        if av_type == AvType::Table {
            refused(
                cx.s.av_lookup(av, all[2]),
                &[Errno::EINVAL],
                "looking up a removed address",
            )?;
        }
    }
    Ok(())
}

fn remove_unset(cx: &Cx<'_>) -> Outcome {
    let vector = open(cx, AvType::Table)?;
    let av = vector.av;
    let set = insert(cx, av, &vector.peer(1)?)?;
    for addr in [
        FiAddr(set.0 + 1),
        FiAddr(1 << 20),
        FiAddr(1 << 40),
        FiAddr::NOTAVAIL,
    ] {
        refused(
            cx.s.av_remove(av, &[addr]),
            &[Errno::EINVAL],
            &format!("removing {addr:?}"),
        )?;
    }
    cx.s.av_remove(av, &[set])?;
    refused(
        cx.s.av_remove(av, &[set]),
        &[Errno::EINVAL],
        "removing twice",
    )
}

fn reinsert(cx: &Cx<'_>) -> Outcome {
    let mut rig = Rig::open(cx, &Spec::default())?;
    let av = rig.av(A)?;
    for _ in 0..3 {
        rig.exchange(A, B, b"here")?;
        let peer = rig.sides[A].peer;
        rig.s.av_remove(av, &[peer])?;
        let name = rig.sides[B].name.clone();
        rig.sides[A].peer = rig.insert(A, name.as_ref())?;
    }
    rig.exchange(A, B, b"again")?;
    rig.exchange(B, A, b"and back")?;
    rig.close()
}

fn straddr(cx: &Cx<'_>) -> Outcome {
    let vector = open(cx, AvType::Table)?;
    let av = vector.av;
    let text = cx.s.av_straddr(av, &vector.peer(4711)?)?;
    let wanted = vector.text(4711)?;
    ensure!(text == wanted, "it is {text}, not {wanted}");
    Ok(())
}

fn straddr_short(cx: &Cx<'_>) -> Outcome {
    let edge = super::c_edge(cx)?;
    let vector = open(cx, AvType::Table)?;
    let av = vector.av;
    let addr = vector.peer(4711)?;
    let (whole, need) = edge.straddr_into(av, &addr, 200)?;
    ensure!(need == whole.len() + 1, "told to need {need} for {whole}");
    for len in [1, 10, whole.len()] {
        let (text, told) = edge.straddr_into(av, &addr, len)?;
        ensure!(told == need, "{len} bytes: told to need {told}");
        ensure!(
            text.len() < len.max(1),
            "{len} bytes: {text} is not terminated in them"
        );
        ensure!(whole.starts_with(&text), "{len} bytes: {text}");
    }
    Ok(())
}

fn ipv6(cx: &Cx<'_>) -> Outcome {
    let mut hints = crate::rig::hints(cx);
    hints.addr_format = ripstop_types::AddrFormat::SockaddrIn6;
    hints.caps = ripstop_types::Flags::MSG;
    let query = Query {
        node: Some("::1".to_owned()),
        flags: ripstop_types::Flags::SOURCE,
        hints: Some(hints),
        ..Query::default()
    };
    let infos = crate::rig::of_provider(cx, cx.s.getinfo(&query));
    let infos = crate::case::offered(infos, &[Errno::ENODATA], "IPv6")?;
    let fabric = cx.s.fabric(&infos[0])?;
    let domain = cx.s.domain(fabric, &infos[0])?;
    let av = cx.s.av(domain, AvAttr::default())?;
    let addr = insert(cx, av, &at("[::1]:4711")?)?;
    finds(cx, av, addr, &at("[::1]:4711")?)?;
    let text = cx.s.av_straddr(av, &at("[::1]:4711")?)?;
    ensure!(text == "fi_sockaddr_in6://[::1]:4711", "it is {text}");
    Ok(())
}

fn busy(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let av = rig.av(A)?;
    in_use(rig.s.close(av), "a bound address vector")?;
    rig.exchange(A, B, b"still there")?;
    rig.close()
}

fn shared(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default().one_av(true))?;
    ensure!(
        rig.sides[A].av == rig.sides[B].av,
        "the suite opened two vectors"
    );
    for _ in 0..3 {
        rig.exchange(A, B, b"there")?;
        rig.exchange(B, A, b"and back")?;
    }
    rig.close()
}
