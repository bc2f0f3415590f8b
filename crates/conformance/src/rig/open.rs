//! Opening what a case needs: hints, the offer under test, and endpoints that know each other.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use ripstop_core::{Address, DomainAttr, EpAttr, FabricAttr, Hints, Info};
use ripstop_types::{
    AddrFormat, EpType, Errno, FiAddr, Flags, Mode, MrMode, Progress, Threading, WaitObj,
};

use super::port::free_port;
use super::{A, B, Rig, RmaCounters, Side, Spec};
use crate::case::{Cx, Step, Stop, offered};
use crate::subject::{Error, Fid, Query, Result as CallResult, Subject};

/// Hints for the provider, endpoint type and threading level under test.
#[must_use]
pub fn hints(cx: &Cx<'_>) -> Hints {
    let progress = match (cx.setup.threading, cx.setup.is_automatic) {
        (Threading::Safe, _) => Progress::Unspec,
        (_, false) => Progress::Manual,
        (_, true) => Progress::Auto,
    };
    let prefix = match cx.ep_type {
        EpType::Dgram => Mode::MSG_PREFIX,
        _ => Mode::empty(),
    };
    Hints {
        caps: Flags::empty(),
        mode: Mode::CONTEXT | Mode::CONTEXT2 | Mode::RX_CQ_DATA | prefix,
        ep: Some(EpAttr {
            ep_type: cx.ep_type,
            ..EpAttr::default()
        }),
        domain: Some(DomainAttr {
            threading: cx.setup.threading,
            control_progress: progress,
            progress,
            mr_mode: MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY | MrMode::LOCAL,
            ..DomainAttr::default()
        }),
        fabric: Some(FabricAttr {
            prov_name: Some(cx.setup.provider.clone()),
            ..FabricAttr::default()
        }),
        ..Hints::default()
    }
}

/// A query for a local address that peers on this host reach; of datagrams for any, since theirs need not be of IP.
#[must_use]
pub fn query(cx: &Cx<'_>, hints: Hints) -> Query {
    let local = !cx.setup.provider.contains("shm") && cx.ep_type != EpType::Dgram;
    Query {
        node: local.then(|| cx.setup.node.to_string()),
        flags: if local { Flags::SOURCE } else { Flags::empty() },
        hints: Some(hints),
        ..Query::default()
    }
}

/// An address of a format that nobody has: a free port, or a name.
///
/// # Errors
///
/// When there is none.
pub fn free(format: AddrFormat) -> Step<Address> {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    if format == AddrFormat::Str {
        let (pid, name) = (std::process::id(), NAMES.fetch_add(1, Ordering::Relaxed));
        return Ok(Address::Str(format!("fi_ns://conformance-{pid}:{name}")));
    }
    Ok(Address::Ip(free_port()))
}

/// The answers of the provider under test: asking for `tcp` also finds what is layered on it.
///
/// # Errors
///
/// `FI_ENODATA` when all answers are of others, and what the call said.
pub fn of_provider(cx: &Cx<'_>, answers: CallResult<Vec<Info>>) -> CallResult<Vec<Info>> {
    let answers = answers?;
    let any = !answers.is_empty();
    let own = answers.into_iter();
    let own: Vec<_> = own.filter(|i| i.prov_name() == cx.setup.provider).collect();
    if any && own.is_empty() {
        return Err(Error::Call {
            call: "fi_getinfo",
            errno: Errno::ENODATA,
        });
    }
    Ok(own)
}

/// The first answer to what the spec asks.
///
/// # Errors
///
/// Not offered when there is none.
#[track_caller]
pub fn offer(cx: &Cx<'_>, spec: &Spec) -> Step<Info> {
    let mut hints = hints(cx);
    spec.fill(&mut hints);
    let mut query = query(cx, hints);
    query.version = spec.version;
    match of_provider(cx, cx.s.getinfo(&query)) {
        Ok(infos) => infos
            .into_iter()
            .next()
            .ok_or_else(|| Stop::fail("fi_getinfo succeeded with an empty list")),
        Err(e) if e.is(Errno::ENODATA) => Err(Stop::not_offered(format!(
            "fi_getinfo: FI_ENODATA for {} with {:?}",
            cx.setup.provider, spec.caps
        ))),
        Err(e) => Err(e.into()),
    }
}

#[track_caller]
pub(super) fn rig<'a>(cx: &Cx<'a>, spec: &Spec) -> Step<Rig<'a>> {
    if cx.ep_type == EpType::Msg {
        let (mut rig, name) = listening(cx, spec)?;
        rig.dial(spec, &name, &[])?;
        let (request, _) = rig.request(rig.eqs[B])?;
        rig.answer(spec, &request, &[])?;
        rig.connected(A)?;
        rig.connected(B)?;
        return Ok(rig);
    }
    let mut rig = bare(cx, spec)?;
    let domain = rig.s.domain(rig.fabric, &rig.info)?;
    if spec.events {
        rig.eqs = vec![rig.s.eq(rig.fabric, spec.eq_wait)?];
    }
    addressed(&mut rig, spec, domain)?;
    Ok(rig)
}

/// Sides that all know each other.
pub struct Mesh<'a> {
    /// The sides.
    pub rig: Rig<'a>,
    /// What a side calls another: `names[side][other]`.
    pub names: Vec<Vec<FiAddr>>,
}

impl<'a> Mesh<'a> {
    /// So many reliable datagram endpoints, each in a domain of its own.
    ///
    /// # Errors
    ///
    /// As [`Rig::open`].
    #[track_caller]
    pub fn open(cx: &Cx<'a>, spec: &Spec, count: usize) -> Step<Self> {
        let mut rig = bare(cx, spec)?;
        for side in 0..count {
            rig.s.place(side);
            let domain = rig.s.domain(rig.fabric, &rig.info)?;
            let side = rig.add(spec, domain)?;
            rig.sides.push(side);
        }
        rig.s.place(A);
        let known = |side| {
            let sides = rig.sides.iter();
            let names = sides.map(|other| rig.insert(side, other.name.as_ref()));
            names.collect::<Step<Vec<_>>>()
        };
        let names = (0..count).map(known).collect::<Step<_>>()?;
        Ok(Self { rig, names })
    }
}

/// The two sides of reliable datagram endpoints.
fn addressed(rig: &mut Rig<'_>, spec: &Spec, domain: Fid) -> Step<()> {
    for side in [A, B] {
        let is_apart = rig.s.place(side);
        if is_apart && side == B && spec.events {
            rig.eqs.push(rig.s.eq(rig.fabric, spec.eq_wait)?);
        }
        let domain = match side {
            B if spec.two_domains || is_apart => rig.s.domain(rig.fabric, &rig.info)?,
            _ => domain,
        };
        let side = rig.add(spec, domain)?;
        rig.sides.push(side);
    }
    rig.s.place(A);
    for (side, peer) in [(A, B), (B, A)] {
        let name = rig.sides[peer].name.clone();
        rig.sides[side].peer = rig.insert(side, name.as_ref())?;
    }
    Ok(())
}

impl Rig<'_> {
    /// An endpoint with its queues; with the first side's where the spec says so.
    #[track_caller]
    fn prepare(&self, spec: &Spec, domain: Fid, info: &Info) -> Step<Side> {
        let cq = match (spec.one_cq, self.sides.first()) {
            (true, Some(first)) => first.cq,
            _ => self.s.cq(domain, spec.cq)?,
        };
        let mut side = prepare_on(self.s, spec, domain, info, cq)?;
        if let Some(wait) = spec.counters {
            let first = self.sides.first().and_then(|s| s.tx_cntr);
            let (tx, rx) = match (spec.one_cntr, first) {
                (true, Some(cntr)) => (cntr, cntr),
                (true, None) => {
                    let cntr = self.s.cntr(domain, wait)?;
                    (cntr, cntr)
                }
                _ => (self.s.cntr(domain, wait)?, self.s.cntr(domain, wait)?),
            };
            if tx == rx {
                self.s.bind(side.ep, tx, Flags::SEND | Flags::RECV)?;
            } else {
                self.s.bind(side.ep, tx, Flags::SEND)?;
                self.s.bind(side.ep, rx, Flags::RECV)?;
            }
            (side.tx_cntr, side.rx_cntr) = (Some(tx), Some(rx));
        }
        if spec.rma_counters {
            let counter = |flags| -> Step<Fid> {
                let cntr = self.s.cntr(domain, WaitObj::None)?;
                self.s.bind(side.ep, cntr, flags)?;
                Ok(cntr)
            };
            side.rma_cntrs = Some(RmaCounters {
                reads: counter(Flags::READ)?,
                writes: counter(Flags::WRITE)?,
                read_by_peers: counter(Flags::REMOTE_READ)?,
                written_by_peers: counter(Flags::REMOTE_WRITE)?,
            });
        }
        Ok(side)
    }

    /// Opens a reliable datagram endpoint with its queues, and enables it.
    ///
    /// # Errors
    ///
    /// Failed when something does not open.
    #[track_caller]
    pub fn add(&self, spec: &Spec, domain: Fid) -> Step<Side> {
        let mut side = self.prepare(spec, domain, &self.info)?;
        let av = match (spec.one_av, self.sides.first().and_then(|s| s.av)) {
            (true, Some(first)) => first,
            _ => self.s.av(domain, spec.av)?,
        };
        self.s.bind(side.ep, av, Flags::empty())?;
        if let (true, Some(eq)) = (spec.events, self.eqs.last()) {
            self.s.bind(side.ep, *eq, Flags::empty())?;
        }
        self.s.enable(side.ep)?;
        side.av = Some(av);
        side.name = Some(self.s.name(side.ep)?);
        Ok(side)
    }

    /// Tells a side of an address.
    ///
    /// # Errors
    ///
    /// Failed when it is not accepted.
    #[track_caller]
    pub fn insert(&self, side: usize, name: Option<&Address>) -> Step<FiAddr> {
        let (Some(av), Some(name)) = (self.sides[side].av, name) else {
            return Err(Stop::fail("no address vector on this endpoint type"));
        };
        let found = self.s.av_insert(av, std::slice::from_ref(name))?;
        match found[..] {
            [addr] if addr.is_specified() => Ok(addr),
            _ => Err(Stop::fail(format!(
                "fi_av_insert gave {found:?} for {name}"
            ))),
        }
    }
}

/// An endpoint with its completion queues, not enabled.
///
/// # Errors
///
/// Failed when something does not open.
#[track_caller]
pub fn prepare(s: &dyn Subject, spec: &Spec, domain: Fid, info: &Info) -> Step<Side> {
    let cq = s.cq(domain, spec.cq)?;
    prepare_on(s, spec, domain, info, cq)
}

#[track_caller]
fn prepare_on(s: &dyn Subject, spec: &Spec, domain: Fid, info: &Info, cq: Fid) -> Step<Side> {
    let rx_cq = match spec.split_cq {
        true => s.cq(domain, spec.cq)?,
        false => cq,
    };
    // Before the endpoint, which takes a connection request.
    let srx = match spec.shared_rx {
        true => Some(offered(
            s.shared_rx(domain, info),
            &[Errno::ENOSYS],
            "fi_srx_context",
        )?),
        false => None,
    };
    let ep = s.endpoint(domain, info)?;
    if let Some(srx) = srx {
        s.bind(ep, srx, Flags::empty())?;
    }
    if spec.split_cq || !spec.selective.is_empty() {
        for (queue, direction) in [(cq, Flags::SEND), (rx_cq, Flags::RECV)] {
            let selective = match spec.selective.contains(direction) {
                true => Flags::SELECTIVE_COMPLETION,
                false => Flags::empty(),
            };
            s.bind(ep, queue, direction | selective)?;
        }
    } else {
        s.bind(ep, cq, Flags::SEND | Flags::RECV)?;
    }
    Ok(Side {
        domain,
        ep,
        srx,
        cq,
        rx_cq,
        tx_cntr: None,
        rx_cntr: None,
        rma_cntrs: None,
        av: None,
        eq: None,
        name: None,
        peer: FiAddr::UNSPEC,
        done: RefCell::new(VecDeque::new()),
    })
}

/// A passive endpoint that listens on a local address, its queue and its address.
///
/// # Errors
///
/// Failed when something does not open.
#[track_caller]
pub fn listener(s: &dyn Subject, fabric: Fid, info: &Info, eq: Fid) -> Step<(Fid, Address)> {
    let pep = s.passive_ep(fabric, info)?;
    s.bind(pep, eq, Flags::empty())?;
    s.listen(pep)?;
    let name = s.name(pep)?;
    Ok((pep, name))
}

impl Rig<'_> {
    /// Opens an endpoint that connects, and asks for the connection.
    ///
    /// # Errors
    ///
    /// Failed when something does not open or the call is refused.
    #[track_caller]
    pub fn dial(&mut self, spec: &Spec, to: &Address, data: &[u8]) -> Step<usize> {
        let domain = self.domain(A, spec, &self.info.clone())?;
        let mut side = self.prepare(spec, domain, &self.info)?;
        let eq = self.eqs[A];
        self.s.bind(side.ep, eq, Flags::empty())?;
        self.s.enable(side.ep)?;
        side.eq = Some(eq);
        self.s.connect(side.ep, to, data)?;
        self.sides.push(side);
        Ok(self.sides.len() - 1)
    }

    /// Opens the endpoint that accepts a request, and accepts it.
    ///
    /// # Errors
    ///
    /// Failed when something does not open or the call is refused.
    #[track_caller]
    pub fn answer(&mut self, spec: &Spec, request: &Info, data: &[u8]) -> Step<usize> {
        let domain = self.domain(B, spec, request)?;
        let mut side = self.prepare(spec, domain, request)?;
        let eq = self.eqs[B];
        self.s.bind(side.ep, eq, Flags::empty())?;
        self.s.enable(side.ep)?;
        side.eq = Some(eq);
        self.s.accept(side.ep, data)?;
        self.sides.push(side);
        Ok(self.sides.len() - 1)
    }

    /// The first side's domain, or one of its own where there is none, the spec says so, or sides
    /// are apart.
    #[track_caller]
    fn domain(&self, side: usize, spec: &Spec, info: &Info) -> Step<Fid> {
        let is_apart = self.s.place(side);
        let domain = match self.sides.first() {
            Some(first) if !spec.two_domains && !is_apart => Ok(first.domain),
            _ => Ok(self.s.domain(self.fabric, info)?),
        };
        self.s.place(A);
        domain
    }
}

/// A fabric with a listener, its address, and no endpoint yet. `A`'s event queue is
/// `rig.eqs[A]`, the listener's `rig.eqs[B]`.
///
/// # Errors
///
/// As [`Rig::open`].
#[track_caller]
pub fn listening<'a>(cx: &Cx<'a>, spec: &Spec) -> Step<(Rig<'a>, Address)> {
    let mut rig = bare(cx, spec)?;
    for side in [A, B] {
        cx.s.place(side);
        rig.eqs.push(cx.s.eq(rig.fabric, spec.eq_wait)?);
    }
    let (pep, name) = listener(cx.s, rig.fabric, &rig.info, rig.eqs[B])?;
    cx.s.place(A);
    rig.pep = Some(pep);
    Ok((rig, name))
}

/// A fabric and nothing in it.
///
/// # Errors
///
/// As [`Rig::open`].
#[track_caller]
pub fn bare<'a>(cx: &Cx<'a>, spec: &Spec) -> Step<Rig<'a>> {
    let info = offer(cx, spec)?;
    let fabric = cx.s.fabric(&info)?;
    Ok(Rig {
        s: cx.s,
        info,
        fabric,
        sides: Vec::new(),
        exposed: RefCell::new(Vec::new()),
        pep: None,
        eqs: Vec::new(),
        events: RefCell::new(Vec::new()),
        tokens: Cell::new(0),
    })
}
