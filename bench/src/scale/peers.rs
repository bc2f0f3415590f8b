//! One endpoint, the hub, and its peers, which are endpoints of other processes.
//!
//! The hub sends a message to each peer, which answers: then both sides have their connection. One
//! peer is alone in its process, so that what it does takes the same time at every point.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::yield_now;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ripstop_cli::perf::{address, resident};
use ripstop_core::Info;
use ripstop_core::provider::{AddressVector as _, AvAttr, CqAttr, Domain, Endpoint as _};
use ripstop_types::FiAddr;

use super::protocol::{Ends, at};
use super::record::{Figure, Figures};
use super::traffic::{Buffers, Patience, SENT, TIME, each, read};
use crate::open::{Opened, enabled};

/// Tags of the first message to a peer, of one that goes there and back, and of the last one.
const FIRST: u64 = 1;
const PING: u64 = 2;
const END: u64 = 3;

/// Peers that are connected to at once.
const WINDOW: u64 = 64;

/// Round trips of a sample, if there is time, and before it.
const ROUND_TRIPS: u64 = 4_000;
const WARM_UP: u64 = 200;
/// Reads of a quiet queue of a sample, if there is time.
const IDLE_READS: u64 = 50_000;
/// Operations between two looks at the clock.
const GLANCE: u64 = 16;

/// How long peers wait for the hub, which has others to serve.
const LONG: Duration = Duration::from_secs(30);

/// The endpoint that all peers are connected to.
pub(super) struct Hub<D: Domain> {
    ends: Opened<D>,
    buffers: Buffers,
    peers: Vec<FiAddr>,
}

impl<D: Domain> Hub<D> {
    pub(super) fn open(domain: &Arc<D>, info: &Info) -> Result<Self> {
        Ok(Self {
            ends: Opened::new(domain, info)?,
            buffers: Buffers::new(),
            peers: Vec::new(),
        })
    }

    pub(super) fn address(&self) -> Result<Vec<u8>> {
        Ok(self.ends.ep.name().context("fi_getname")?.to_bytes())
    }

    /// Connects to all endpoints with these addresses: memory and time of each.
    ///
    /// # Errors
    /// [`Ends`], what the library says.
    pub(super) fn connect(&mut self, addresses: &[Vec<u8>]) -> Result<Figures> {
        let own = self.ends.ep.name().context("fi_getname")?;
        self.peers.reserve(addresses.len());
        let before = resident()?;
        for (number, bytes) in (0..).zip(addresses) {
            let peer = self.ends.av.insert(&address(&own, bytes)?);
            self.peers.push(at(number, peer.context("fi_av_insert"))?);
        }
        let start = Instant::now();
        self.greet_all()?;
        let took = start.elapsed();
        let count = addresses.len() as u64;
        let grown = resident()?.saturating_sub(before);
        Ok([
            (Figure::Connect, each(took, count)),
            (Figure::Memory, grown as f64 / count.max(1) as f64),
        ]
        .into())
    }

    /// A message to each peer and one back, [`WINDOW`] of them at once.
    fn greet_all(&self) -> Result<()> {
        let count = self.peers.len() as u64;
        let (mut receives, mut sends, mut sent, mut received) = (0, 0, 0, 0);
        let mut patience = Patience::new();
        while sent < count || received < count {
            while receives < count.min(received + WINDOW)
                && self.buffers.recv::<D>(&self.ends.ep, FIRST, 1)?
            {
                receives += 1;
            }
            while sends < receives {
                let peer = self.peers[usize::try_from(sends)?];
                if !at(received, self.buffers.send::<D>(&self.ends.ep, FIRST, peer))? {
                    break;
                }
                sends += 1;
            }
            let found = read(&*self.ends.cq, |context| {
                *(if context == SENT {
                    &mut sent
                } else {
                    &mut received
                }) += 1;
            });
            if at(received, found)? > 0 {
                patience.hit();
            } else {
                at(received, patience.miss())?;
                yield_now();
            }
        }
        Ok(())
    }

    /// Round trips with the first peer: the time of one, and of a read while it waits for an answer.
    ///
    /// # Errors
    /// What the library says.
    pub(super) fn round_trips(&self) -> Result<Figures> {
        for _ in 0..WARM_UP {
            self.round_trip()?;
        }
        let (mut reads, mut reading, mut count) = (0, Duration::ZERO, 0);
        let start = Instant::now();
        while count < ROUND_TRIPS && start.elapsed() < TIME {
            for _ in 0..GLANCE {
                let (trip_reads, trip_reading) = self.round_trip()?;
                reads += trip_reads;
                reading += trip_reading;
            }
            count += GLANCE;
        }
        let took = start.elapsed();
        self.send(END)?;
        self.wait(1)?;
        Ok([
            (Figure::RoundTrip, each(took, count)),
            (Figure::Read, each(reading, reads)),
        ]
        .into())
    }

    /// One round trip: the number of reads that it took, and their time.
    fn round_trip(&self) -> Result<(u64, Duration)> {
        let mut patience = Patience::new();
        while !self.buffers.recv::<D>(&self.ends.ep, PING, 1)? {
            patience.miss()?;
        }
        self.send(PING)?;
        let start = Instant::now();
        let reads = self.wait(2)?;
        Ok((reads, start.elapsed()))
    }

    fn send(&self, tag: u64) -> Result<()> {
        let (mut patience, peer) = (Patience::new(), self.peers[0]);
        while !self.buffers.send::<D>(&self.ends.ep, tag, peer)? {
            read(&*self.ends.cq, |_| ())?;
            patience.miss()?;
        }
        Ok(())
    }

    /// Reads until so many completions have come: the number of reads.
    fn wait(&self, completions: usize) -> Result<u64> {
        let (mut reads, mut found) = (0, 0);
        let mut patience = Patience::new();
        while found < completions {
            found += read(&*self.ends.cq, |_| ())?;
            reads += 1;
            patience.miss()?;
        }
        Ok(reads)
    }

    /// The time of a read that finds nothing.
    ///
    /// # Errors
    /// What the library says.
    pub(super) fn idle(&self) -> Result<Figures> {
        let mut count = 0;
        let start = Instant::now();
        while count < IDLE_READS && start.elapsed() < TIME {
            for _ in 0..GLANCE {
                read(&*self.ends.cq, |_| ())?;
            }
            count += GLANCE;
        }
        Ok([(Figure::IdleRead, each(start.elapsed(), count))].into())
    }
}

/// Endpoints of one domain, with one queue and one address vector.
pub(super) struct Peers<D: Domain> {
    eps: Vec<Arc<D::Endpoint>>,
    cq: Arc<D::Cq>,
    av: Arc<D::Av>,
    buffers: Buffers,
    hub: FiAddr,
}

impl<D: Domain> Peers<D> {
    /// Opens so many endpoints. Each has a receive posted, whose context is one more than its number.
    ///
    /// # Errors
    /// [`Ends`], what the library says.
    pub(super) fn open(domain: &Arc<D>, info: &Info, count: u64) -> Result<Self> {
        let mut peers = Self {
            eps: Vec::new(),
            cq: domain.cq(&CqAttr::default()).context("fi_cq_open")?,
            av: domain.av(&AvAttr::default()).context("fi_av_open")?,
            buffers: Buffers::new(),
            hub: FiAddr::UNSPEC,
        };
        for number in 0..count {
            let ep = at(number, enabled(domain, info, &peers.cq, &peers.av))?;
            let context = peers.eps.len() + 1;
            if !at(number, peers.buffers.recv::<D>(&ep, FIRST, context))? {
                let why = "fi_trecv: no room for one receive".to_owned();
                return Err(Ends { at: number, why }.into());
            }
            peers.eps.push(ep);
        }
        Ok(peers)
    }

    pub(super) fn addresses(&self) -> Result<Vec<Vec<u8>>> {
        let names = self.eps.iter().map(|ep| ep.name());
        let bytes = names.map(|name| Ok(name.context("fi_getname")?.to_bytes()));
        bytes.collect()
    }

    /// Answers the first message to each endpoint.
    ///
    /// # Errors
    /// What the library says.
    pub(super) fn answer(&mut self, hub: &[u8]) -> Result<()> {
        let own = self.eps[0].name().context("fi_getname")?;
        let hub = self.av.insert(&address(&own, hub)?);
        self.hub = hub.context("fi_av_insert")?;
        let (mut due, mut sent) = (VecDeque::new(), 0);
        let mut patience = Patience::of(LONG);
        while sent < self.eps.len() {
            while let Some(&number) = due.front() {
                if !self.buffers.send::<D>(&self.eps[number], FIRST, self.hub)? {
                    break;
                }
                due.pop_front();
            }
            let found = read(&*self.cq, |context| match context {
                SENT => sent += 1,
                context => due.push_back(context - 1),
            })?;
            if found > 0 {
                patience.hit();
            } else {
                patience.miss()?;
                yield_now();
            }
        }
        Ok(())
    }

    /// Answers at the first endpoint until the last message.
    ///
    /// # Errors
    /// What the library says.
    pub(super) fn serve(&self) -> Result<()> {
        let ep = &self.eps[0];
        let (ping, end) = (1, 2);
        self.buffers.recv::<D>(ep, END, end)?;
        self.buffers.recv::<D>(ep, PING, ping)?;
        let mut patience = Patience::of(LONG);
        let (mut due, mut ended) = (0, false);
        while !ended {
            let found = read(&*self.cq, |context| {
                due += u32::from(context == ping);
                ended |= context == end;
            })?;
            while due > 0 {
                self.buffers.recv::<D>(ep, PING, ping)?;
                while !self.buffers.send::<D>(ep, PING, self.hub)? {
                    read(&*self.cq, |_| ())?;
                    patience.miss()?;
                }
                due -= 1;
            }
            if found > 0 {
                patience.hit();
            } else {
                patience.miss()?;
            }
        }
        Ok(())
    }
}
