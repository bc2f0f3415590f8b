//! What runs under callgrind: two endpoints, one message after the other.
//!
//! The functions that [`Operation::function`] names are never inlined, so that callgrind sees
//! where they begin and end.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use ripstop_foreign::{
    Addr, AvAttr, Cq, CqAttr, Domain, Endpoint, Error, Hints, Info, Library, Mr, Query, Region,
    Single,
};
use ripstop_types::{EpType, FiAddr, Flags, Progress, Threading};

use crate::operation::Operation;

/// Bytes of a message.
const SIZE: usize = 8;
const TAG: u64 = 7;
/// Bytes of a message that is gathered.
const LONG: usize = 4096;
/// Messages of a burst.
const BURST: usize = 64;
/// Messages before those that are counted: they connect and fill caches of the library.
const WARM_UP: u32 = 100;
/// Reads after which a message counts as lost.
const PATIENCE: u32 = 1_000_000;

/// Sends and receives `messages` messages, or reads an empty queue as often.
///
/// # Errors
/// What the library says; a message that does not arrive.
pub(crate) fn run(lib: &Path, provider: &str, operation: Operation, messages: u32) -> Result<()> {
    let library = Library::open(lib)?;
    let info = find(&library, provider, operation)?;
    let domain = library.fabric(&info)?.domain(&info)?;
    let mut both = Both::open(&domain, &info)?;
    both.connect()?;
    let written = match operation {
        Operation::WriteMessage => Some(both.expose()?),
        _ => None,
    };
    for _ in 0..WARM_UP {
        both.inject_message()?;
        both.send_message()?;
    }
    both.late = 0;
    for _ in 0..messages {
        match operation {
            Operation::SendMessage | Operation::Tsend => both.send_message()?,
            Operation::Burst => both.send_burst()?,
            Operation::GatheredMessage => both.gathered_message()?,
            Operation::WriteMessage => written.iter().try_for_each(|to| both.write_message(to))?,
            Operation::EmptyRead => both.empty_read()?,
            _ => both.inject_message()?,
        }
    }
    println!("{}", both.late);
    Ok(())
}

fn find(library: &Library, provider: &str, operation: Operation) -> Result<Info> {
    let more = match operation {
        Operation::WriteMessage => Flags::RMA,
        _ => Flags::empty(),
    };
    let mut query = Query::hints(Hints {
        provider: Some(provider.to_owned()),
        ep_type: EpType::Rdm,
        caps: Flags::MSG | Flags::TAGGED | more,
        threading: Threading::Domain,
        control_progress: Progress::Manual,
        data_progress: Progress::Manual,
        ..Hints::default()
    });
    if matches!(provider, "tcp" | "udp") {
        query.node = Some("127.0.0.1".to_owned());
        query.flags = Flags::SOURCE;
    }
    let found = library.getinfo(&query)?;
    found
        .into_iter()
        .next()
        .context("fi_getinfo: an empty list")
}

struct Side {
    ep: Endpoint<Single>,
    cq: Cq<Single>,
    peer: FiAddr,
}

/// The two ends of the connection.
struct Both {
    from: Side,
    to: Side,
    region: Region<Single>,
    /// What the last write has put there, and where they all go.
    stamp: u64,
    target: Region<Single>,
    /// Messages that the first read did not find.
    late: u32,
}

impl Both {
    fn open(domain: &Domain<Single>, info: &Info) -> Result<Self> {
        let open = || -> Result<_> {
            let cq = domain.cq(CqAttr::default())?;
            let av = domain.av(AvAttr::default())?;
            let builder = domain.endpoint(info)?;
            let ep = builder
                .bind_cq(&cq, Flags::SEND | Flags::RECV)?
                .bind_av(&av)?
                .enable()?;
            Ok((ep, cq, av))
        };
        let ((ep_a, cq_a, av_a), (ep_b, cq_b, av_b)) = (open()?, open()?);
        let (addr_a, addr_b): (Addr, Addr) = (ep_a.getname()?, ep_b.getname()?);
        let side = |ep, cq, peer| Side { ep, cq, peer };
        Ok(Self {
            from: side(ep_a, cq_a, av_a.insert(&addr_b)?),
            to: side(ep_b, cq_b, av_b.insert(&addr_a)?),
            region: domain.region(2 * LONG),
            stamp: 0,
            target: domain.region(SIZE),
            late: 0,
        })
    }

    /// The first message, which says `FI_EAGAIN` until there is a connection.
    fn connect(&mut self) -> Result<()> {
        self.call_trecv()?;
        for _ in 0..PATIENCE {
            match self.from.ep.tinject(&[0; SIZE], self.from.peer, TAG) {
                Ok(()) => return self.arrive(),
                Err(error) if !error.is_again() => return Err(error.into()),
                Err(_) => {
                    read(&self.from.cq)?;
                    read(&self.to.cq)?;
                }
            }
        }
        bail!("no connection came about")
    }

    #[inline(never)]
    fn inject_message(&mut self) -> Result<()> {
        self.call_trecv()?;
        self.call_tinject()?;
        self.arrive()
    }

    #[inline(never)]
    fn send_message(&mut self) -> Result<()> {
        self.call_trecv()?;
        self.call_tsend()?;
        self.completed()?;
        self.arrive()
    }

    #[inline(never)]
    fn send_burst(&mut self) -> Result<()> {
        for _ in 0..BURST {
            self.call_trecv()?;
        }
        for _ in 0..BURST {
            self.call_tsend()?;
        }
        read_all(&self.from.cq)?;
        read_all(&self.to.cq)
    }

    #[inline(never)]
    fn gathered_message(&mut self) -> Result<()> {
        let (from, into) = (
            self.region.slice(0..LONG),
            self.region.slice(LONG..2 * LONG),
        );
        let posted = self.to.ep.trecv(into, FiAddr::UNSPEC, TAG, 0, 0);
        posted.map_err(Error::from)?;
        let posted = self.from.ep.tsend(from, self.from.peer, TAG, 0);
        posted.map_err(Error::from)?;
        self.completed()?;
        self.arrive()
    }

    /// Lets the peer write to the target.
    fn expose(&self) -> Result<Mr<Single>> {
        Ok(self.target.register(Flags::REMOTE_WRITE, 1)?)
    }

    #[inline(never)]
    fn write_message(&mut self, to: &Mr<Single>) -> Result<()> {
        self.stamp += 1;
        let stamp = self.stamp.to_ne_bytes();
        self.region.write(0, &stamp);
        let (from, key) = (self.region.slice(0..SIZE), to.key()?);
        let posted = self.from.ep.write(from, self.from.peer, 0, key, 0);
        posted.map_err(Error::from)?;
        self.completed()?;
        for reads in 0..PATIENCE {
            read(&self.to.cq)?;
            let mut found = [0; SIZE];
            self.target.read(0, &mut found);
            if found == stamp {
                self.late += u32::from(reads > 0);
                return Ok(());
            }
        }
        bail!("a write did not arrive")
    }

    /// Reads until a send or write is complete.
    fn completed(&mut self) -> Result<()> {
        let mut reads = 0;
        while read(&self.from.cq)? == 0 {
            reads += 1;
            ensure!(reads < PATIENCE, "it did not complete");
        }
        self.late += u32::from(reads > 0);
        Ok(())
    }

    #[inline(never)]
    fn call_trecv(&self) -> Result<()> {
        let into = self.region.slice(SIZE..2 * SIZE);
        let posted = self.to.ep.trecv(into, FiAddr::UNSPEC, TAG, 0, 0);
        posted.map_err(Error::from)?;
        Ok(())
    }

    #[inline(never)]
    fn call_tinject(&self) -> Result<()> {
        self.from.ep.tinject(&[0; SIZE], self.from.peer, TAG)?;
        Ok(())
    }

    #[inline(never)]
    fn call_tsend(&self) -> Result<()> {
        let posted = self
            .from
            .ep
            .tsend(self.region.slice(0..SIZE), self.from.peer, TAG, 0);
        posted.map_err(Error::from)?;
        Ok(())
    }

    /// Reads until the receive is complete.
    fn arrive(&mut self) -> Result<()> {
        if self.first_read()? > 0 {
            return Ok(());
        }
        self.late += 1;
        for _ in 0..PATIENCE {
            if read(&self.to.cq)? > 0 {
                return Ok(());
            }
        }
        bail!("a message did not arrive")
    }

    #[inline(never)]
    fn first_read(&self) -> Result<usize> {
        read(&self.to.cq)
    }

    #[inline(never)]
    fn empty_read(&self) -> Result<()> {
        ensure!(read(&self.to.cq)? == 0, "a completion out of nowhere");
        Ok(())
    }
}

/// Reads until a burst is complete.
fn read_all(cq: &Cq<Single>) -> Result<()> {
    let mut left = BURST;
    for _ in 0..PATIENCE {
        match cq.reap(left) {
            Ok(count) => left -= count,
            Err(error) if error.is_again() => {}
            Err(error) => return Err(error.into()),
        }
        if left == 0 {
            return Ok(());
        }
    }
    bail!("a burst did not arrive")
}

/// One read; 0 when there was nothing.
fn read(cq: &Cq<Single>) -> Result<usize> {
    match cq.reap(1) {
        Ok(count) => Ok(count),
        Err(error) if error.is_again() => Ok(0),
        Err(error) => Err(error.into()),
    }
}
