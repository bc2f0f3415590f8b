//! Endpoints of the provider, and messages between them.

#[path = "other.rs"]
pub(crate) mod other;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ripstop_core::hints::Request;
use ripstop_core::provider::{
    AddressVector, AvAttr, CompletionQueue, CqAttr, Domain, Endpoint, Fabric as _, MrAttr,
    Provider as _, RecvKind, SendKind, Sharing, Token,
};
use ripstop_core::registry::ProviderInfo as _;
use ripstop_core::{Address, DomainAttr, Hints, Info};
use ripstop_mem::{Parked, UserBuf, copy_in};
use ripstop_shm::{Fabric, ShmProvider};
use ripstop_types::{Errno, FiAddr, Flags, Progress, Result, Threading, Version, WaitObj};

/// Longest time that anything may take on a machine that does much else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Within which what waits for a peer that was killed has ended: 2 s where `RIPSTOP_KILL_STRICT` is
/// set, for a machine that does nothing else. Where others want the processor, only what hangs takes
/// longer than [`PATIENCE`].
pub(crate) fn noticed_within() -> Duration {
    match std::env::var_os("RIPSTOP_KILL_STRICT") {
        Some(_) => Duration::from_secs(2),
        None => PATIENCE,
    }
}

/// To register memory that peers reach from its first byte on.
pub(crate) fn mr_attr(memory: UserBuf, key: u64, access: Flags, shared: Sharing) -> MrAttr {
    MrAttr {
        iov: vec![memory],
        access,
        offset: 0,
        requested_key: key,
        flags: Flags::empty(),
        shared,
    }
}

pub(crate) fn info(node: Option<&str>, threading: Threading) -> Info {
    info_for(
        Flags::MSG | Flags::TAGGED,
        node,
        threading,
        Progress::Manual,
    )
}

pub(crate) fn info_for(
    caps: Flags,
    node: Option<&str>,
    threading: Threading,
    progress: Progress,
) -> Info {
    let hints = Hints {
        caps,
        domain: Some(DomainAttr::driven(threading, progress)),
        ..Hints::default()
    };
    let request = Request {
        version: Version::CURRENT,
        node,
        flags: node.map_or(Flags::empty(), |_| Flags::SOURCE),
        hints: Some(&hints),
        ..Request::default()
    };
    let answer = ShmProvider::new().getinfo(&request);
    assert!(answer.refusals.is_empty(), "{:?}", answer.refusals);
    answer.infos.into_iter().next().expect("an interface")
}

pub(crate) fn fabric(info: &Info) -> Arc<Fabric> {
    ShmProvider::new().fabric(&info.fabric).unwrap()
}

pub(crate) type Safe = <Fabric as ripstop_core::provider::Fabric>::SafeDomain;

pub(crate) fn safe(info: &Info) -> Arc<Safe> {
    fabric(info).safe_domain(info).unwrap()
}

/// An endpoint with what belongs to it.
pub(crate) struct End<D: Domain> {
    pub(crate) ep: Arc<D::Endpoint>,
    pub(crate) cq: Arc<D::Cq>,
    pub(crate) av: Arc<D::Av>,
}

pub(crate) fn try_open<D: Domain>(domain: &Arc<D>, info: &Info) -> Result<End<D>> {
    let cq = domain.cq(&CqAttr {
        wait: WaitObj::Unspec,
        ..CqAttr::default()
    })?;
    let av = domain.av(&AvAttr::default())?;
    let ep = domain.endpoint(info, Token(0))?;
    ep.bind_cq(&cq, Flags::SEND | Flags::RECV)?;
    ep.bind_av(&av)?;
    ep.enable()?;
    Ok(End { ep, cq, av })
}

pub(crate) fn open<D: Domain>(domain: &Arc<D>, info: &Info) -> End<D> {
    try_open(domain, info).unwrap()
}

impl<D: Domain> End<D> {
    pub(crate) fn name(&self) -> Address {
        self.ep.name().unwrap()
    }

    pub(crate) fn knows(&self, peer: &Address) -> FiAddr {
        self.av.insert(peer).unwrap()
    }

    pub(crate) fn post(&self, room: &Parked) {
        let posted = self
            .ep
            .recv(RecvKind::Msg, &[room.buf()], FiAddr::UNSPEC, 1, None);
        posted.unwrap();
    }

    pub(crate) fn send(&self, text: &Parked, to: FiAddr) -> Result<()> {
        let start = Instant::now();
        loop {
            let sent = self
                .ep
                .send(SendKind::Msg, &[text.buf()], None, to, 2, None);
            match sent {
                Err(Errno::EAGAIN) if start.elapsed() < PATIENCE => {
                    let _ = self.cq.read(0, |_| ());
                }
                outcome => return outcome,
            }
        }
    }

    /// Waits for completions by polling.
    pub(crate) fn poll(&self, mut count: usize) {
        let stop = Instant::now() + PATIENCE;
        while count > 0 {
            assert!(Instant::now() < stop, "{count} are still to come");
            match self.cq.read(count, |_| ()) {
                Ok(more) => count -= more,
                Err(Errno::EAGAIN) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Waits for an error entry.
    pub(crate) fn fails(&self) -> Errno {
        let stop = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < stop, "it does not fail");
            match self.cq.read(1, |_| ()) {
                Err(Errno::EAVAIL) => break,
                Ok(_) | Err(Errno::EAGAIN) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        let mut found = None;
        let read = self.cq.read_error(|error, _| found = Some(error.err));
        read.unwrap();
        found.unwrap()
    }
}

/// Bytes that tell their place.
pub(crate) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at + at / 251 + seed) as u8).collect()
}

/// What is in a buffer that nothing uses any more. The memory stays: to free it would be `unsafe`, which
/// the crate forbids its unit tests, and they include this file.
pub(crate) fn bytes(parked: Parked) -> Vec<u8> {
    let mut bytes = vec![0; parked.buf().len()];
    copy_in(&mut bytes, parked.buf());
    bytes
}
