//! A library behind the C interface as a [`Lane`].

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use ripstop_foreign::{
    Addr, Av, AvAttr, Cq, CqAttr, Domain, Endpoint, Error, Fabric, Hints, Info, Library, Mr, Query,
    Region, Rejected, Single,
};
use ripstop_types::{EpType, Errno, FiAddr, Flags, MrMode, Progress, Threading};

use super::av::{CHUNK, peer};
use super::lane::{Done, Lane, Site};
use super::subject::{KEY, Lacks, Wanted, home};
use member::ForeignMember;

mod member;

const SEND: u64 = 1;
const RECV: u64 = 2;
/// Completions read at once.
const BATCH: usize = 16;

/// An open domain of a library: one thread, manual progress.
pub(super) struct Opened {
    library: Library,
    info: Info,
    fabric: Fabric,
    domain: Domain<Single>,
    wanted: Wanted,
    /// Memory that is reached can be mapped by peers.
    memfd: bool,
}

impl Opened {
    /// # Errors
    /// When the library does not load, [`Lacks`] when it has no such endpoint of this provider.
    pub(super) fn new(path: &Path, provider: &str, wanted: Wanted, memfd: bool) -> Result<Self> {
        let library = Library::open(path)?;
        let info = find(&library, provider, wanted, memfd)?;
        let fabric = library.fabric(&info)?;
        let domain = fabric.domain(&info)?;
        Ok(Self {
            library,
            info,
            fabric,
            domain,
            wanted,
            memfd,
        })
    }
}

impl Site for Opened {
    type Lane = Foreign;
    type Member = ForeignMember;

    fn member(&self, largest: usize, rank: usize) -> Result<Self::Member> {
        ForeignMember::open(self, largest, rank)
    }

    fn lane(&self, largest: usize) -> Result<Self::Lane> {
        let cq = self.domain.cq(CqAttr::default())?;
        let av = self.domain.av(AvAttr::default())?;
        let builder = self.domain.endpoint(&self.info)?;
        let ep = builder
            .bind_cq(&cq, Flags::SEND | Flags::RECV)?
            .bind_av(&av)?
            .enable()?;
        let inject_size = self.info.inject_size();
        let into = match self.memfd {
            true => self.domain.region_in_memfd(largest)?,
            false => self.domain.region(largest),
        };
        let open = Flags::REMOTE_READ | Flags::REMOTE_WRITE;
        let reached = match self.wanted == Wanted::Memory {
            true => Some(into.register(open, KEY)?),
            false => None,
        };
        Ok(Foreign {
            _reached: reached,
            ep,
            cq,
            av,
            inject_size,
            peer: FiAddr::UNSPEC,
            small: vec![1; inject_size.min(largest)],
            from: self.domain.region(largest),
            into,
        })
    }

    fn provider(&self) -> String {
        self.info.provider()
    }

    fn api(&self) -> String {
        self.library.version().to_string()
    }

    fn insert(&self, count: u32) -> Result<Duration> {
        let av = self.domain.av(AvAttr {
            count: count as usize,
            ..AvAttr::default()
        })?;
        let mut took = Duration::ZERO;
        for first in (0..count).step_by(CHUNK) {
            let peers = (first..count).take(CHUNK).map(peer);
            let chunk: Vec<Addr> = peers
                .map(|addr| Addr::from(std::net::SocketAddr::V4(addr)))
                .collect();
            let start = Instant::now();
            let found = av.insert_all(&chunk)?;
            took += start.elapsed();
            anyhow::ensure!(
                found.iter().all(|addr| addr.is_specified()),
                "fi_av_insert did not take every peer"
            );
        }
        // The process ends with the vector in place, so that its growth can be read.
        std::mem::forget(av);
        Ok(took)
    }
}

/// An RDM endpoint that does what is wanted.
fn find(library: &Library, provider: &str, wanted: Wanted, memfd: bool) -> Result<Info> {
    let mut query = Query::hints(Hints {
        provider: Some(provider.to_owned()),
        ep_type: EpType::Rdm,
        caps: wanted.caps(),
        // Whose pages stay, so that a peer may map them.
        mr_mode: match memfd {
            true => MrMode::ALLOCATED,
            false => MrMode::empty(),
        },
        threading: Threading::Domain,
        control_progress: Progress::Manual,
        data_progress: Progress::Manual,
        ..Hints::default()
    });
    query.node = home(provider).map(str::to_owned);
    query.flags.set(Flags::SOURCE, query.node.is_some());
    let found = library.getinfo(&query).map_err(|error| {
        let (path, there) = (library.path().display(), providers(library));
        let text = format!("{path} offers no {wanted} of provider {provider}; it has {there}");
        match error.errno {
            Errno::ENODATA => anyhow::Error::from(Lacks(text)),
            _ => anyhow::Error::from(error).context(text),
        }
    })?;
    found
        .into_iter()
        .next()
        .ok_or_else(|| anyhow!("fi_getinfo: an empty list"))
}

/// The names of a library's providers.
fn providers(library: &Library) -> String {
    let query = Query {
        flags: Flags::PROV_ATTR_ONLY,
        ..Query::default()
    };
    let found = library.getinfo(&query).unwrap_or_default();
    let names: Vec<String> = found.iter().map(Info::provider).collect();
    names.join(", ")
}

/// An endpoint of a library.
pub(super) struct Foreign {
    ep: Endpoint<Single>,
    cq: Cq<Single>,
    av: Av<Single>,
    inject_size: usize,
    peer: FiAddr,
    small: Vec<u8>,
    from: Region<Single>,
    into: Region<Single>,
    /// What the peer reaches of it.
    _reached: Option<Mr<Single>>,
}

/// The failure at hand, of an operation that its token names.
#[cold]
fn failure(cq: &Cq<Single>, name: impl FnOnce(u64) -> &'static str) -> anyhow::Error {
    match cq.readerr() {
        Ok(error) => {
            let what = name(error.entry.token);
            anyhow!("a {what} failed: {} ({})", error.err, error.prov_text)
        }
        Err(error) => error.into(),
    }
}

/// Sends have one token, receives the other.
fn name(token: u64) -> &'static str {
    match token {
        SEND => "send",
        _ => "receive",
    }
}

/// Whether an operation was posted.
#[inline]
fn posted<T, P>(result: std::result::Result<T, Rejected<P>>) -> Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(refused) if refused.is_again() => Ok(false),
        Err(refused) => Err(Error::from(refused).into()),
    }
}

impl Lane for Foreign {
    fn address(&self) -> Result<Vec<u8>> {
        Ok(self.ep.getname()?.as_bytes().to_vec())
    }

    fn meet(&mut self, address: &[u8]) -> Result<()> {
        self.peer = self.av.insert(&Addr::from_bytes(address))?;
        Ok(())
    }

    fn inject_size(&self) -> usize {
        self.inject_size
    }

    #[inline]
    fn inject(&mut self, tag: u64, size: usize) -> Result<bool> {
        let Some(bytes) = self.small.get(..size) else {
            bail!("fi_tinject: {size} bytes are too many");
        };
        match self.ep.tinject(bytes, self.peer, tag) {
            Ok(()) => Ok(true),
            Err(error) if error.is_again() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    #[inline]
    fn send(&mut self, tag: u64, size: usize) -> Result<bool> {
        posted(
            self.ep
                .tsend(self.from.slice(0..size), self.peer, tag, SEND),
        )
    }

    #[inline]
    fn recv(&mut self, tag: u64, size: usize) -> Result<bool> {
        posted(
            self.ep
                .trecv(self.into.slice(0..size), self.peer, tag, 0, RECV),
        )
    }

    #[inline]
    fn write(&mut self, size: usize) -> Result<bool> {
        posted(
            self.ep
                .write(self.from.slice(0..size), self.peer, 0, KEY, SEND),
        )
    }

    #[inline]
    fn read(&mut self, size: usize) -> Result<bool> {
        posted(
            self.ep
                .read(self.from.slice(0..size), self.peer, 0, KEY, SEND),
        )
    }

    #[inline]
    fn poll(&mut self) -> Result<Done> {
        let mut done = Done::default();
        let read = self.cq.reap_each(BATCH, |token| {
            if token == SEND {
                done.sent += 1;
            } else {
                done.received += 1;
            }
        });
        match read {
            Ok(_) => Ok(done),
            Err(error) if error.is_again() => Ok(done),
            Err(error) if error.errno == Errno::EAVAIL => Err(failure(&self.cq, name)),
            Err(error) => Err(error.into()),
        }
    }
}
