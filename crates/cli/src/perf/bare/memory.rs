//! Plain programs over memory: messages are copied into a buffer that both processes map and out of
//! it again; writes and reads are cross-memory attach, one copy by the kernel.

use std::fs::OpenOptions;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result, bail};
use ripstop_mem::Region;
use ripstop_mem::ring::Window;
use ripstop_os::{
    AttachError, IoVec, IoVecMut, NamedMemory, Process, Remote, Shareable, SharedBuf,
};
use serde::{Deserialize, Serialize};

use super::{Bare, Wait};
use crate::perf::pages::Pages;
use crate::perf::protocol::{Kind, Side, Test};

/// Bytes of the buffer of each direction; the caches have room for it.
const BUFFER: usize = 64 << 10;
/// Bytes of a slot of it, for messages up to [`SMALL`] and for parts of longer ones.
const SMALL: usize = 1 << 10;
const PART: usize = 16 << 10;
/// Bytes between two counters, so that no two share a line that the processor fetches with another.
const APART: usize = 256;
/// Counters of a side: parts that it has put, and got, and how often it was over with its part.
const COUNTERS: usize = 3;
const PUT: usize = 0;
const GOT: usize = 1;
const OVER: usize = 2;

/// What the other process must know.
#[derive(Debug, Serialize, Deserialize)]
struct Known {
    pid: u32,
    /// The descriptor of the buffer in which it finds what comes to it.
    buffer: i32,
    /// Where its memory to be read and written is.
    from: u64,
    into: u64,
}

/// One of the two processes.
pub(in crate::perf) struct Memory {
    side: Side,
    counters: Option<NamedMemory>,
    /// The buffer of what comes, and that of what goes, which is the other process's.
    coming: SharedBuf,
    going: Option<Window>,
    from: Pages,
    into: Pages,
    peer: Option<(Process, Known)>,
    /// Parts that were put and got, and attaches that are over, in all.
    put: u64,
    got: u64,
    over: u64,
}

impl Memory {
    pub(in crate::perf) fn new(side: Side, largest: usize) -> Result<Self> {
        Ok(Self {
            side,
            counters: None,
            coming: SharedBuf::zeroed(BUFFER).context("memory for two processes")?,
            going: None,
            from: Pages::of(1, largest),
            into: Pages::of(2, largest),
            peer: None,
            put: 0,
            got: 0,
            over: 0,
        })
    }

    /// Sends and receives so many messages of a size at once, each in parts of a slot.
    fn flow(&mut self, size: usize, out: u32, back: u32) -> Result<()> {
        let (Some(going), Some(counters)) = (&self.going, &self.counters) else {
            bail!("not connected");
        };
        let counters = Counters(counters.region(), self.side);
        let coming = self.coming.window();
        let slot = if size <= SMALL { SMALL } else { PART };
        let parts = size.div_ceil(slot) as u64;
        let slots = (BUFFER / slot) as u64;
        let (from, into) = (self.from.buf(), self.into.buf());
        let part = |turn: u64| {
            let off = (turn % parts) as usize * slot;
            (off, slot.min(size - off))
        };
        let (out, back) = (u64::from(out) * parts, u64::from(back) * parts);
        let (mut put, mut got) = (0, 0);
        let (mut freed, mut there) = (counters.theirs(GOT)?, counters.theirs(PUT)?);
        let mut wait = Wait::default();
        while put < out || got < back {
            let before = put + got;
            if put < out {
                if self.put - freed >= slots {
                    freed = counters.theirs(GOT)?;
                }
                if self.put - freed < slots {
                    let (off, len) = part(put);
                    let bytes = from.slice(off, len).context("a part")?;
                    going.put((self.put % slots) as usize * slot, bytes)?;
                    (put, self.put) = (put + 1, self.put + 1);
                    counters.announce(PUT, self.put)?;
                }
            }
            if got < back {
                if self.got == there {
                    there = counters.theirs(PUT)?;
                }
                if self.got < there {
                    let (off, len) = part(got);
                    let bytes = into.slice(off, len).context("a part")?;
                    coming.get((self.got % slots) as usize * slot, bytes)?;
                    (got, self.got) = (got + 1, self.got + 1);
                    counters.announce(GOT, self.got)?;
                }
            }
            if put + got == before {
                wait.turn()?;
            } else {
                wait = Wait::default();
            }
        }
        Ok(())
    }

    /// So many attaches of a size by this side; `false` where the system refuses.
    fn attach(&mut self, write: bool, size: usize, count: u32) -> Result<bool> {
        let Some((process, known)) = &self.peer else {
            bail!("not connected");
        };
        let start = if write { known.into } else { known.from };
        let remote = [Remote {
            base: usize::try_from(start)?,
            len: size,
        }];
        let (from, into) = (self.from.buf().first(size), self.into.buf().first(size));
        for _ in 0..count {
            let moved = match write {
                true => process.write(&remote, &[IoVec::from_user(from)]),
                false => process.read(&remote, &mut [IoVecMut::from_user(into)]),
            };
            match moved {
                Ok(moved) if moved == size => {}
                Ok(moved) => bail!("attach moved {moved} of {size} bytes"),
                Err(AttachError::NotAllowed) => return Ok(false),
                Err(error) => return Err(error).context("attach"),
            }
        }
        Ok(true)
    }

    /// Waits until the other side has done as many attaches as this one, of which one more is over.
    fn both_over(&mut self) -> Result<()> {
        self.over += 1;
        let counters = self.counters.as_ref().context("not connected")?;
        let counters = Counters(counters.region(), self.side);
        counters.announce(OVER, self.over)?;
        let mut wait = Wait::default();
        while counters.theirs(OVER)? < self.over {
            wait.turn()?;
        }
        Ok(())
    }
}

/// The counters of both sides. Each stores its own and loads the other's.
struct Counters<'m>(Region<'m>, Side);

impl Counters<'_> {
    fn at(side: Side, counter: usize) -> usize {
        let first = if side == Side::Client { 0 } else { COUNTERS };
        (first + counter) * APART
    }

    fn theirs(&self, counter: usize) -> Result<u64> {
        let other = match self.1 {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        };
        let at = Self::at(other, counter);
        Ok(self.0.load_u64(at, Ordering::Acquire)?)
    }

    fn announce(&self, counter: usize, value: u64) -> Result<()> {
        let at = Self::at(self.1, counter);
        Ok(self.0.store_u64(at, value, Ordering::Release)?)
    }
}

impl Bare for Memory {
    fn address(&self) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec(&Known {
            pid: std::process::id(),
            buffer: self.coming.part().as_fd().as_raw_fd(),
            from: self.from.buf().addr() as u64,
            into: self.into.buf().addr() as u64,
        })?)
    }

    fn meet(&mut self, peer: &[u8]) -> Result<()> {
        let known: Known = serde_json::from_slice(peer)?;
        let path = format!("/proc/{}/fd/{}", known.pid, known.buffer);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = Arc::new(file.with_context(|| path.clone())?.into());
        let part = Shareable::new(file, 0, BUFFER).with_context(|| path.clone())?;
        self.going = Some(part.map().context(path)?);
        let own = std::process::id();
        let client = match self.side {
            Side::Client => own,
            Side::Server => known.pid,
        };
        let name = format!("perf-bare-{client}-{}", own.max(known.pid));
        let (memory, _) = NamedMemory::create(&name, 2 * COUNTERS * APART)?;
        self.counters = Some(memory);
        let process = Process::open(known.pid).context("the other process")?;
        self.peer = Some((process, known));
        Ok(())
    }

    fn exchange(&mut self, side: Side, test: Test, count: u32) -> Result<bool> {
        let Test { kind, size, .. } = test;
        let write = matches!(kind, Kind::Write | Kind::WriteBoth);
        match (kind, side) {
            (Kind::Latency, Side::Client) => {
                for _ in 0..count {
                    self.flow(size, 1, 0)?;
                    self.flow(size, 0, 1)?;
                }
            }
            (Kind::Latency, Side::Server) => {
                for _ in 0..count {
                    self.flow(size, 0, 1)?;
                    self.flow(size, 1, 0)?;
                }
            }
            (Kind::Exchange, _) => {
                for _ in 0..count {
                    self.flow(size, 1, 1)?;
                }
            }
            (Kind::Stream, Side::Client) => {
                self.flow(size, count, 0)?;
                self.both_over()?;
            }
            (Kind::Stream, Side::Server) => {
                self.flow(size, 0, count)?;
                self.both_over()?;
            }
            (Kind::StreamBoth, _) => self.flow(size, count, count)?,
            (Kind::Write | Kind::Read, Side::Client) | (Kind::WriteBoth | Kind::ReadBoth, _) => {
                let allowed = self.attach(write, size, count)?;
                self.both_over()?;
                return Ok(allowed);
            }
            (Kind::Write | Kind::Read, Side::Server) => {
                // Whether it was allowed, the other side knows; it does not come again if not.
                let allowed = self.attach(write, 1, 1)?;
                self.both_over()?;
                return Ok(allowed);
            }
            (Kind::Gather | Kind::Barrier | Kind::Allreduce | Kind::Insert, _) => return Ok(false),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::take;
    use super::*;

    #[test]
    fn every_kind_ends_on_both_sides() {
        let mut client = Memory::new(Side::Client, 100_000).expect("memory");
        let mut server = Memory::new(Side::Server, 100_000).expect("memory");
        let (to, back) = (server.address(), client.address());
        let kinds = [
            Kind::Latency,
            Kind::Exchange,
            Kind::Stream,
            Kind::StreamBoth,
            Kind::Read,
            Kind::ReadBoth,
        ];
        let tests = kinds
            .into_iter()
            .flat_map(|kind| [1, 100_000].map(|size| Test::new(kind, size, 32)));
        let tests: Vec<Test> = tests.collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                server.meet(&back.expect("an address")).expect("a client");
                for &test in &tests {
                    take(&mut server, Side::Server, test).expect("served");
                }
            });
            client.meet(&to.expect("an address")).expect("a server");
            for &test in &tests {
                let took = take(&mut client, Side::Client, test).expect("a sample");
                // Attach may be forbidden here.
                let reads = matches!(test.kind, Kind::Read | Kind::ReadBoth);
                assert!(reads || !took.is_zero(), "{test:?}");
            }
        });
        let mut came = vec![0; 100_000];
        ripstop_mem::copy_in(&mut came, client.into.buf());
        assert!(came.iter().all(|&byte| byte == 1), "all has come");
    }
}
