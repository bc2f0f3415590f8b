//! What runs under callgrind: two endpoints, one message after the other.
//!
//! The functions that [`Operation::function`] names are never inlined, so that callgrind sees
//! where they begin and end.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use ripstop_core::Info;
use ripstop_core::provider::{
    AddressVector as _, CompletionQueue, Domain, Endpoint as _, Fabric as _, MemoryRegion as _,
    MrAttr, Provider, RecvKind, RmaCall, SendKind,
};
use ripstop_foreign::{ForeignProvider, Library};
use ripstop_mem::{Parked, UserBuf, copy_in, copy_out};
use ripstop_types::{Errno, FiAddr, Flags, MrMode, RmaIov};

use crate::open::{Opened, find};
use crate::operation::Operation;

/// Bytes of a message.
const SIZE: usize = 8;
const TAG: u64 = 7;
/// Bytes of a message that is gathered.
const LONG: usize = 4096;
/// Where memory begins: at a page.
const PAGE: usize = 4096;
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
    let provider = ForeignProvider::new(Library::open(lib)?, provider);
    let more = match operation.is_one_sided() {
        true => Flags::RMA,
        false => Flags::empty(),
    };
    let info = find(&provider, more)?;
    let fabric = provider.fabric(&info.fabric).context("fi_fabric")?;
    let domain = fabric.serial_domain(&info).context("fi_domain")?;
    let mut both = Both::open(&domain, &info)?;
    both.connect()?;
    let reached = match operation.is_one_sided() {
        true => Some(both.expose(&domain)?),
        false => None,
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
            Operation::WriteMessage => {
                let [target, _] = reached.as_ref().context("memory to write to")?;
                both.write_message(target)?;
            }
            Operation::RemoteRead => {
                let [target, _] = reached.as_ref().context("memory to read")?;
                both.remote_read(target)?;
            }
            Operation::RemoteReads => {
                let [target, _] = reached.as_ref().context("memory to read")?;
                both.remote_read_burst(target)?;
            }
            Operation::EmptyRead => both.empty_read()?,
            _ => both.inject_message()?,
        }
    }
    println!("{}", both.late);
    Ok(())
}

struct Side<D: Domain> {
    ep: Arc<D::Endpoint>,
    cq: Arc<D::Cq>,
    peer: FiAddr,
}

/// The two ends of the connection.
struct Both<D: Domain> {
    from: Side<D>,
    to: Side<D>,
    _memory: Parked,
    /// Where a message is, and where it goes: a long one, and one that is not.
    long: [UserBuf; 2],
    short: [UserBuf; 2],
    /// What the last write has put there, and where they all go.
    stamp: u64,
    target: UserBuf,
    /// What the peer calls the first byte there.
    target_addr: u64,
    /// Messages that the first read did not find.
    late: u32,
}

/// So many bytes of memory, from one place on.
fn part(memory: UserBuf, from: usize, len: usize) -> Result<UserBuf> {
    memory.slice(from, len).context("a part of the memory")
}

impl<D: Domain> Both<D> {
    fn open(domain: &Arc<D>, info: &Info) -> Result<Self> {
        let open = || Opened::new(domain, info).map(|Opened { ep, cq, av }| (ep, cq, av));
        let ((ep_a, cq_a, av_a), (ep_b, cq_b, av_b)) = (open()?, open()?);
        let (addr_a, addr_b) = (ep_a.name()?, ep_b.name()?);
        let side = |ep, cq, peer| Side { ep, cq, peer };
        let memory = Parked::park(vec![0; 2 * LONG + 2 * PAGE]);
        let start = memory.buf().addr().next_multiple_of(PAGE) - memory.buf().addr();
        let at = memory.buf().skip(start);
        let target = part(at, 2 * LONG, SIZE)?;
        let by_address = info.domain.mr_mode.contains(MrMode::VIRT_ADDR);
        Ok(Self {
            from: side(ep_a, cq_a, av_a.insert(&addr_b)?),
            to: side(ep_b, cq_b, av_b.insert(&addr_a)?),
            long: [part(at, 0, LONG)?, part(at, LONG, LONG)?],
            short: [part(at, 0, SIZE)?, part(at, SIZE, SIZE)?],
            stamp: 0,
            target,
            target_addr: if by_address { target.addr() as u64 } else { 0 },
            _memory: memory,
            late: 0,
        })
    }

    /// The first message, which says `FI_EAGAIN` until there is a connection.
    fn connect(&mut self) -> Result<()> {
        self.call_trecv()?;
        for _ in 0..PATIENCE {
            match self.tinject() {
                Ok(()) => return self.arrive(),
                Err(Errno::EAGAIN) => {
                    read(&*self.from.cq)?;
                    read(&*self.to.cq)?;
                }
                Err(error) => return Err(error).context("fi_tinject"),
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
        read_all(&*self.from.cq)?;
        read_all(&*self.to.cq)
    }

    #[inline(never)]
    fn gathered_message(&mut self) -> Result<()> {
        self.trecv(self.long[1])?;
        self.tsend(self.long[0])?;
        self.completed()?;
        self.arrive()
    }

    /// Lets the peer write to the target and read it; and registers the memory that reads go to.
    fn expose(&self, domain: &Arc<D>) -> Result<[Arc<D::Mr>; 2]> {
        let register = |memory, access, key| {
            let attr = MrAttr::of_buf(memory, access, key);
            domain.mr(&attr).context("fi_mr_reg")
        };
        Ok([
            register(self.target, Flags::REMOTE_WRITE | Flags::REMOTE_READ, 1)?,
            register(self.short[1], Flags::READ, 2)?,
        ])
    }

    #[inline(never)]
    fn write_message(&mut self, to: &Arc<D::Mr>) -> Result<()> {
        self.stamp += 1;
        let stamp = self.stamp.to_ne_bytes();
        let from = self.short[0];
        copy_out(from, &stamp);
        let remote = self.remote(to);
        let written = self.from.ep.write(&[from], &self.call(&remote));
        written.context("fi_write")?;
        self.completed()?;
        for reads in 0..PATIENCE {
            read(&*self.to.cq)?;
            let mut found = [0; SIZE];
            copy_in(&mut found, self.target);
            if found == stamp {
                self.late += u32::from(reads > 0);
                return Ok(());
            }
        }
        bail!("a write did not arrive")
    }

    /// Reads what no read has fetched before.
    fn remote_read(&mut self, from: &Arc<D::Mr>) -> Result<()> {
        self.stamp += 1;
        let stamp = self.stamp.to_ne_bytes();
        copy_out(self.target, &stamp);
        self.remote_read_once(from)?;
        let mut found = [0; SIZE];
        copy_in(&mut found, self.short[1]);
        ensure!(found == stamp, "a read that is complete has not arrived");
        Ok(())
    }

    #[inline(never)]
    fn remote_read_once(&mut self, from: &Arc<D::Mr>) -> Result<()> {
        self.post_read(from)?;
        for rounds in 0..PATIENCE {
            if read(&*self.from.cq)? > 0 {
                self.late += u32::from(rounds > 1);
                return Ok(());
            }
            // It may be the peer that answers.
            read(&*self.to.cq)?;
        }
        bail!("a read did not complete")
    }

    #[inline(never)]
    fn remote_read_burst(&self, from: &Arc<D::Mr>) -> Result<()> {
        for _ in 0..BURST {
            self.post_read(from)?;
        }
        let mut left = BURST;
        for _ in 0..PATIENCE {
            left -= some(self.from.cq.read(left, |_| ()))?;
            if left == 0 {
                return Ok(());
            }
            read(&*self.to.cq)?;
        }
        bail!("reads did not complete")
    }

    #[inline]
    fn post_read(&self, from: &Arc<D::Mr>) -> Result<()> {
        let remote = self.remote(from);
        let posted = self.from.ep.read(&[self.short[1]], &self.call(&remote));
        posted.context("fi_read")
    }

    /// The target, as the peer knows it.
    #[inline]
    fn remote(&self, target: &Arc<D::Mr>) -> [RmaIov; 1] {
        [RmaIov {
            addr: self.target_addr,
            len: SIZE as u64,
            key: target.key(),
        }]
    }

    /// A read or a write of that memory, without flags of its own.
    #[inline]
    const fn call<'a>(&self, remote: &'a [RmaIov]) -> RmaCall<'a> {
        RmaCall {
            remote,
            peer: self.from.peer,
            data: None,
            context: 0,
            flags: None,
        }
    }

    /// Reads until a send or write is complete.
    fn completed(&mut self) -> Result<()> {
        let mut reads = 0;
        while read(&*self.from.cq)? == 0 {
            reads += 1;
            ensure!(reads < PATIENCE, "it did not complete");
        }
        self.late += u32::from(reads > 0);
        Ok(())
    }

    #[inline(never)]
    fn call_trecv(&self) -> Result<()> {
        self.trecv(self.short[1])
    }

    #[inline]
    fn trecv(&self, into: UserBuf) -> Result<()> {
        let kind = RecvKind::Tagged {
            tag: TAG,
            ignore: 0,
        };
        let posted = self.to.ep.recv(kind, &[into], FiAddr::UNSPEC, 0, None);
        posted.context("fi_trecv")
    }

    #[inline(never)]
    fn call_tinject(&self) -> Result<()> {
        self.tinject().context("fi_tinject")
    }

    #[inline]
    fn tinject(&self) -> ripstop_types::Result<()> {
        let kind = SendKind::Tagged(TAG);
        let (from, to) = (self.short[0], self.from.peer);
        self.from.ep.inject(kind, from, None, to)
    }

    #[inline(never)]
    fn call_tsend(&self) -> Result<()> {
        self.tsend(self.short[0])
    }

    #[inline]
    fn tsend(&self, from: UserBuf) -> Result<()> {
        let (kind, peer) = (SendKind::Tagged(TAG), self.from.peer);
        let posted = self.from.ep.send(kind, &[from], None, peer, 0, None);
        posted.context("fi_tsend")
    }

    /// Reads until the receive is complete.
    fn arrive(&mut self) -> Result<()> {
        if self.first_read()? > 0 {
            return Ok(());
        }
        self.late += 1;
        for _ in 0..PATIENCE {
            if read(&*self.to.cq)? > 0 {
                return Ok(());
            }
        }
        bail!("a message did not arrive")
    }

    #[inline(never)]
    fn first_read(&self) -> Result<usize> {
        read(&*self.to.cq)
    }

    #[inline(never)]
    fn empty_read(&self) -> Result<()> {
        ensure!(read(&*self.to.cq)? == 0, "a completion out of nowhere");
        Ok(())
    }
}

/// Reads until a burst is complete.
fn read_all(cq: &impl CompletionQueue) -> Result<()> {
    let mut left = BURST;
    for _ in 0..PATIENCE {
        left -= some(cq.read(left, |_| ()))?;
        if left == 0 {
            return Ok(());
        }
    }
    bail!("a burst did not arrive")
}

/// One read; 0 when there was nothing.
fn read(cq: &impl CompletionQueue) -> Result<usize> {
    some(cq.read(1, |_| ()))
}

/// How many completions a read has returned.
fn some(outcome: ripstop_types::Result<usize>) -> Result<usize> {
    match outcome {
        Ok(count) => Ok(count),
        Err(Errno::EAGAIN) => Ok(0),
        Err(error) => Err(error).context("fi_cq_read"),
    }
}
