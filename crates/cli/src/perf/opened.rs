//! A provider of the object model, Ripstop's own or a library's, whose endpoints are [`Lane`]s.

use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use ripstop_core::hints::Request;
use ripstop_core::provider::{
    AddressVector as _, AvAttr, CompletionQueue as _, Domain, Endpoint as _, Fabric,
    MemoryRegion as _, MrAttr, Provider, RecvKind, RmaCall, SendKind, Sharing,
};
use ripstop_core::registry::Refusal;
use ripstop_core::{Address, DomainAttr, EpAttr, FidToken, Hints, Info};
use ripstop_os::SharedBuf;
use ripstop_types::{EpType, Errno, FiAddr, Flags, MrMode, Progress, RmaIov, Threading, Version};

use super::av::{CHUNK, peer};
use super::lane::{ACK, Done, Lane, Post};
use super::pages::Pages;
use super::protocol::Measured;
use super::subject::{KEY, Lacks, Wanted, home};
use crate::endpoint::{Opening, RECV, SEND, failure, name};

mod member;

pub(super) use member::Collective;

/// Providers whose peers map memory that is allocated for them.
pub(super) const MAPS: [&str; 1] = ["shm"];

/// Those whose peers name memory by its address and by a key of the device.
const BY_DEVICE: [&str; 1] = ["verbs;ofi_rxm"];

/// Bytes that say where memory is: its address, and its key.
const PLACE: usize = 16;

/// Completions read at once.
const BATCH: usize = 16;

/// A fabric, in which domains are opened as locks are needed: one thread, manual progress.
pub(super) struct Opened<P: Provider> {
    /// What it offers.
    info: Info,
    /// The interface version it has.
    api: Version,
    fabric: Arc<P::Fabric>,
    wanted: Wanted,
    /// Memory that is reached can be mapped by peers.
    memfd: bool,
}

impl<P: Provider> Opened<P> {
    /// # Errors
    /// When the provider offers no tagged RDM endpoint here, [`Lacks`] where that is a library's.
    pub(super) fn new(provider: &P, wanted: Wanted, memfd: bool) -> Result<Self> {
        let info = find(provider, wanted, memfd)?;
        let fabric = provider.fabric(&info.fabric).context("fi_fabric")?;
        Ok(Self {
            info,
            api: provider.api_version(),
            fabric,
            wanted,
            memfd,
        })
    }

    /// How it calls itself.
    pub(super) fn measured(&self) -> Measured {
        Measured {
            name: self.info.prov_name().to_owned(),
            api: self.api.to_string(),
        }
    }

    /// A domain without locks.
    fn domain(&self) -> Result<Arc<<P::Fabric as Fabric>::SerialDomain>> {
        self.fabric.serial_domain(&self.info).context("fi_domain")
    }

    /// Opens an endpoint for messages up to this size.
    pub(super) fn lane(
        &self,
        largest: usize,
    ) -> Result<OneToOne<<P::Fabric as Fabric>::SerialDomain>> {
        let memory = (self.wanted == Wanted::Memory).then_some(self.memfd);
        OneToOne::open(&self.domain()?, &self.info, largest, memory)
    }

    /// Opens the endpoint of a member of a group, for operands up to this size.
    pub(super) fn member(
        &self,
        largest: usize,
        rank: usize,
    ) -> Result<Collective<<P::Fabric as Fabric>::SafeDomain>> {
        // One with collectives always locks.
        let domain = self.fabric.safe_domain(&self.info).context("fi_domain")?;
        Collective::open(&domain, &self.info, largest, rank)
    }

    /// The time to insert this many peers into a new address vector, which then stays.
    pub(super) fn insert(&self, count: u32) -> Result<Duration> {
        let attr = AvAttr {
            count: count as usize,
            ..AvAttr::default()
        };
        let av = self.domain()?.av(&attr).context("fi_av_open")?;
        let mut took = Duration::ZERO;
        for first in (0..count).step_by(CHUNK) {
            let chunk: Vec<SocketAddrV4> = (first..count).take(CHUNK).map(peer).collect();
            let mut found = Vec::with_capacity(chunk.len());
            let start = Instant::now();
            av.insert_ip(
                &mut chunk.iter().map(|&addr| Ok(SocketAddr::V4(addr))),
                &mut |addr| found.push(addr),
            );
            took += start.elapsed();
            for addr in found {
                addr.context("fi_av_insert")?;
            }
        }
        // The process ends with the vector in place, so that its growth can be read.
        std::mem::forget(av);
        Ok(took)
    }
}

/// An RDM endpoint that does what is wanted.
fn find<P: Provider>(provider: &P, wanted: Wanted, memfd: bool) -> Result<Info> {
    let hints = Hints {
        caps: wanted.caps(),
        ep: Some(EpAttr {
            ep_type: EpType::Rdm,
            ..EpAttr::default()
        }),
        domain: Some(DomainAttr {
            threading: match wanted {
                Wanted::Groups => Threading::Safe,
                _ => Threading::Domain,
            },
            // Whose pages stay, so that a peer may map them.
            mr_mode: match memfd {
                _ if BY_DEVICE.contains(&provider.name()) => {
                    MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY
                }
                true => MrMode::ALLOCATED,
                false => MrMode::empty(),
            },
            progress: Progress::Manual,
            control_progress: Progress::Manual,
            ..DomainAttr::default()
        }),
        ..Hints::default()
    };
    let mut request = Request {
        version: Version::CURRENT,
        node: home(provider.name()),
        hints: Some(&hints),
        ..Request::default()
    };
    request.flags.set(Flags::SOURCE, request.node.is_some());
    let answer = provider.getinfo(&request);
    if let [Refusal::Failed(Errno::ENODATA, text)] = &answer.refusals[..] {
        return Err(Lacks(format!("no {wanted}: {text}")).into());
    }
    let reasons = answer.refusals.iter().map(ToString::to_string);
    let reasons = reasons.collect::<Vec<_>>().join("; ");
    let first = answer.infos.into_iter().next();
    first.ok_or_else(|| anyhow!("fi_getinfo: no {wanted}: {reasons}"))
}

/// An endpoint of the object model.
pub(super) struct OneToOne<D: Domain> {
    /// What the peer reaches; goes before the memory.
    _reached: Option<Arc<D::Mr>>,
    /// Address and key of that, to peers.
    place: Option<(u64, u64)>,
    /// The same of the peer's.
    peer_place: (u64, u64),
    ep: Arc<D::Endpoint>,
    cq: Arc<D::Cq>,
    av: Arc<D::Av>,
    inject_size: usize,
    peer: FiAddr,
    /// All that this endpoint has met, by rank from 1 on, where it is the first.
    peers: Vec<FiAddr>,
    _target: Option<SharedBuf>,
    from: Pages,
    into: Pages,
}

impl<D: Domain> OneToOne<D> {
    /// `memory` says whether what the peer reaches is a memfd; none when it reaches nothing.
    fn open(domain: &Arc<D>, info: &Info, largest: usize, memory: Option<bool>) -> Result<Self> {
        let Opening { ep, cq } = Opening::new(domain, info, FidToken::NONE, 0)?;
        let av = domain.av(&AvAttr::default()).context("fi_av_open")?;
        ep.bind_av(&av).context("fi_ep_bind")?;
        ep.enable().context("fi_enable")?;
        let into = Pages::of(2, largest);
        let target = match memory {
            Some(true) => Some(SharedBuf::zeroed(largest).context("memory for peers")?),
            _ => None,
        };
        let reachable = target.as_ref().map_or(into.buf(), SharedBuf::buf);
        let attr = MrAttr {
            iov: vec![reachable],
            access: Flags::REMOTE_READ | Flags::REMOTE_WRITE,
            offset: 0,
            requested_key: KEY,
            flags: Flags::empty(),
            shared: target
                .as_ref()
                .map_or(Sharing::Never, |t| Sharing::Part(t.part().clone())),
        };
        let reached = match memory.is_some() {
            true => Some(domain.mr(&attr).context("fi_mr_reg")?),
            false => None,
        };
        let by_address = MrMode::VIRT_ADDR | MrMode::BASIC;
        let base = match info.domain.mr_mode.intersects(by_address) {
            true => reachable.addr() as u64,
            false => 0,
        };
        let place = reached.as_ref().map(|reached| (base, reached.key()));
        Ok(Self {
            _reached: reached,
            place,
            peer_place: (0, 0),
            _target: target,
            ep,
            cq,
            av,
            inject_size: info.tx.inject_size,
            peer: FiAddr::UNSPEC,
            peers: Vec::new(),
            from: Pages::of(1, largest),
            into,
        })
    }
}

impl<D: Domain> OneToOne<D> {
    /// Reads the queue once, and hands over the tag of each message that was received.
    #[inline]
    fn read(&self, mut received: impl FnMut(u64)) -> Result<Done> {
        let mut done = Done::default();
        let read = self.cq.read(BATCH, |entry| {
            if entry.context == SEND {
                done.sent += 1;
            } else {
                done.received += 1;
                received(entry.tag);
            }
        });
        match read {
            Ok(_) | Err(Errno::EAGAIN) => Ok(done),
            Err(Errno::EAVAIL) => Err(failure(&*self.cq, name)),
            Err(error) => bail!("fi_cq_read: {error}"),
        }
    }
}

/// Whether an operation was posted.
#[inline]
fn posted(call: &'static str, result: ripstop_types::Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno::EAGAIN) => Ok(false),
        Err(error) => bail!("{call}: {error}"),
    }
}

/// An address like this one of ours, from the bytes that its owner has sent.
///
/// # Errors
/// For bytes that are no address of this kind.
pub fn address(own: &Address, bytes: &[u8]) -> Result<Address> {
    Ok(match own {
        Address::Raw(format, _) => Address::Raw(*format, bytes.to_vec()),
        own => Address::from_bytes(own.format(), bytes)?,
    })
}

/// Address and key of a peer's memory, as it has sent them.
fn place_of(bytes: [u8; PLACE]) -> (u64, u64) {
    let [a, b] = [0, 8].map(|at| {
        let half = std::array::from_fn(|i| bytes[at + i]);
        u64::from_ne_bytes(half)
    });
    (a, b)
}

impl<D: Domain> Lane for OneToOne<D> {
    fn address(&self) -> Result<Vec<u8>> {
        let mut bytes = self.ep.name().context("fi_getname")?.to_bytes();
        if let Some((addr, key)) = self.place {
            bytes.extend([addr.to_ne_bytes(), key.to_ne_bytes()].concat());
        }
        Ok(bytes)
    }

    fn meet(&mut self, mut address: &[u8]) -> Result<()> {
        if self.place.is_some() {
            let (rest, place) = address
                .split_last_chunk::<PLACE>()
                .context("the peer does not say where its memory is")?;
            if self.peers.is_empty() {
                self.peer_place = place_of(*place);
            }
            address = rest;
        }
        let address = self::address(&self.ep.name().context("fi_getname")?, address)?;
        self.peers
            .push(self.av.insert(&address).context("fi_av_insert")?);
        self.peer = self.peers[0];
        Ok(())
    }

    fn inject_size(&self) -> usize {
        self.inject_size
    }

    #[inline]
    fn post(&mut self, what: Post, size: usize) -> Result<bool> {
        let (ep, peer) = (&self.ep, self.peer);
        let (from, into) = (self.from.buf().first(size), self.into.buf().first(size));
        // The front of the peer's memory.
        let (addr, key) = self.peer_place;
        let remote = [RmaIov {
            addr,
            len: size as u64,
            key,
        }];
        let call = RmaCall {
            remote: &remote,
            peer,
            data: None,
            context: SEND,
            flags: None,
        };
        let (name, posted) = match what {
            Post::Inject(tag) => {
                let kind = SendKind::Tagged(tag);
                ("fi_tinject", ep.inject(kind, from, None, peer))
            }
            Post::Send(tag) => {
                let kind = SendKind::Tagged(tag);
                ("fi_tsend", ep.send(kind, &[from], None, peer, SEND, None))
            }
            Post::Recv(tag) => {
                let kind = RecvKind::Tagged { tag, ignore: 0 };
                ("fi_trecv", ep.recv(kind, &[into], peer, RECV, None))
            }
            Post::RecvAny { tag, ignore } => {
                let kind = RecvKind::Tagged { tag, ignore };
                let any = FiAddr::UNSPEC;
                ("fi_trecv", ep.recv(kind, &[into], any, RECV, None))
            }
            Post::Acknowledge { rank, whole } => {
                let kind = SendKind::Tagged(ACK);
                let to = self.peers.get(rank - 1).copied().unwrap_or(peer);
                match whole {
                    true => ("fi_tsend", ep.send(kind, &[from], None, to, SEND, None)),
                    false => ("fi_tinject", ep.inject(kind, from, None, to)),
                }
            }
            Post::Write => ("fi_write", ep.write(&[from], &call)),
            Post::Read => ("fi_read", ep.read(&[from], &call)),
        };
        self::posted(name, posted)
    }

    #[inline]
    fn poll(&mut self) -> Result<Done> {
        self.read(|_| {})
    }

    fn poll_tags(&mut self, tags: &mut Vec<u64>) -> Result<Done> {
        self.read(|tag| tags.push(tag))
    }

    fn peers(&self) -> usize {
        self.peers.len()
    }
}
