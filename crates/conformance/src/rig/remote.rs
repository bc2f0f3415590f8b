//! Memory of one side that the other reads, writes and updates, and the counters of that.

use ripstop_types::{Flags, MrMode};

use super::Rig;
use crate::case::{Step, Stop};
use crate::subject::{Completion, Fid, MrAttr, Remote};

/// Counters of one endpoint's reads and writes, and of those that reach it.
#[derive(Clone, Copy, Debug)]
pub struct RmaCounters {
    /// Its reads.
    pub reads: Fid,
    /// Its writes.
    pub writes: Fid,
    /// Reads of its memory.
    pub read_by_peers: Fid,
    /// Writes to its memory.
    pub written_by_peers: Fid,
}

impl RmaCounters {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> [Fid; 4] {
        [
            self.reads,
            self.writes,
            self.read_by_peers,
            self.written_by_peers,
        ]
    }
}

/// Memory that a side has registered, as its peers know it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The memory.
    pub memory: Fid,
    /// The registration.
    pub mr: Fid,
    /// What peers name it by.
    pub key: u64,
    /// Where it starts for them.
    pub base: u64,
}

impl Target {
    /// A part of it.
    #[must_use]
    pub fn at(&self, offset: usize, len: usize) -> Remote {
        Remote {
            address: self.base.wrapping_add(offset as u64),
            len,
            key: self.key,
        }
    }
}

impl Rig<'_> {
    /// Registers memory with these bytes, for this use.
    ///
    /// # Errors
    ///
    /// Failed when it is refused.
    #[track_caller]
    pub fn expose(&self, side: usize, bytes: &[u8], access: Flags) -> Step<Target> {
        let attr = MrAttr {
            access,
            key: 0x100 + self.exposed.borrow().len() as u64,
            ..MrAttr::default()
        };
        self.expose_as(side, bytes, &attr)
    }

    /// As [`Rig::expose`], registered in another way.
    ///
    /// # Errors
    ///
    /// As [`Rig::expose`].
    #[track_caller]
    pub fn expose_as(&self, side: usize, bytes: &[u8], attr: &MrAttr) -> Step<Target> {
        let memory = self.memory(side, bytes)?;
        self.expose_memory(side, memory, attr)
    }

    /// As [`Rig::expose`] for reads and writes, of memory that peers on the machine may map.
    ///
    /// # Errors
    ///
    /// As [`Rig::expose`].
    #[track_caller]
    pub fn expose_memfd(&self, side: usize, bytes: &[u8]) -> Step<Target> {
        let memory = self.memfd(side, bytes)?;
        let attr = MrAttr {
            access: Flags::REMOTE_READ | Flags::REMOTE_WRITE,
            key: 0x100 + self.exposed.borrow().len() as u64,
            ..MrAttr::default()
        };
        self.expose_memory(side, memory, &attr)
    }

    /// Registers memory that is there.
    ///
    /// # Errors
    ///
    /// As [`Rig::expose`].
    #[track_caller]
    pub fn expose_memory(&self, side: usize, memory: Fid, attr: &MrAttr) -> Step<Target> {
        let mr = self.s.register(memory, attr)?;
        self.exposed.borrow_mut().insert(0, mr);
        self.target(side, memory, mr)
    }

    /// Memory with these bytes, not registered.
    ///
    /// # Errors
    ///
    /// Failed when there is none.
    #[track_caller]
    pub fn memory(&self, side: usize, bytes: &[u8]) -> Step<Fid> {
        let memory = self.s.memory(self.sides[side].domain, bytes.len())?;
        self.fill(memory, bytes)?;
        Ok(memory)
    }

    /// As [`Rig::memory`], such that peers on the machine may map it.
    ///
    /// # Errors
    ///
    /// As [`Rig::memory`].
    #[track_caller]
    pub fn memfd(&self, side: usize, bytes: &[u8]) -> Step<Fid> {
        let domain = self.sides[side].domain;
        let memory = self.s.memory_in_memfd(domain, bytes.len())?;
        self.fill(memory, bytes)?;
        Ok(memory)
    }

    /// Puts bytes into new memory.
    fn fill(&self, memory: Fid, bytes: &[u8]) -> Step<()> {
        self.s.memory_write(memory, 0, bytes)?;
        self.exposed.borrow_mut().push(memory);
        Ok(())
    }

    /// What peers must know of a registration.
    ///
    /// # Errors
    ///
    /// Failed when it has no key.
    #[track_caller]
    pub fn target(&self, side: usize, memory: Fid, mr: Fid) -> Step<Target> {
        let mode = self.info.domain.mr_mode;
        if mode.contains(MrMode::ENDPOINT) {
            self.s.bind(mr, self.sides[side].ep, Flags::empty())?;
            self.s.enable(mr)?;
        }
        let base = match mode.intersects(MrMode::VIRT_ADDR | MrMode::BASIC) {
            true => self.s.memory_address(memory)?,
            false => 0,
        };
        Ok(Target {
            memory,
            mr,
            key: self.s.mr_key(mr)?,
            base,
        })
    }

    /// Closes a registration; its memory stays.
    ///
    /// # Errors
    ///
    /// Failed when it does not close.
    #[track_caller]
    pub fn revoke(&self, target: &Target) -> Step<()> {
        self.exposed.borrow_mut().retain(|fid| *fid != target.mr);
        Ok(self.s.close(target.mr)?)
    }

    /// Waits until memory has these bytes.
    ///
    /// # Errors
    ///
    /// Failed when it has not in time.
    #[track_caller]
    pub fn holds(&self, target: &Target, bytes: &[u8]) -> Step<()> {
        self.until("the bytes in the peer's memory", || {
            let found = self.s.memory_read(target.memory)?;
            Ok((found == bytes).then_some(()))
        })
    }

    /// Memory has still these bytes.
    ///
    /// # Errors
    ///
    /// Failed when it has others.
    #[track_caller]
    pub fn unchanged(&self, target: &Target, bytes: &[u8]) -> Step<()> {
        for _ in 0..50 {
            self.pump()?;
        }
        let found = self.s.memory_read(target.memory)?;
        match found.iter().zip(bytes).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => Err(Stop::fail(format!("byte {at} of the memory has changed"))),
        }
    }

    /// Waits for the completion that a write with remote CQ data leaves at its target.
    ///
    /// # Errors
    ///
    /// Failed when it does not come.
    #[track_caller]
    pub fn announced(&self, side: usize) -> Step<Completion> {
        self.until("a completion of the peer's write", || {
            let mut done = self.sides[side].done.borrow_mut();
            let found = done.iter().position(|d| {
                let entry = d.as_ref().ok();
                entry.is_some_and(|e| e.token.is_none())
            });
            Ok(found.and_then(|at| done.remove(at)).and_then(Result::ok))
        })
    }
}
