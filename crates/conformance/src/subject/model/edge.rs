//! Calls whose point is the C interface.

use std::os::fd::OwnedFd;
use std::time::Duration;

use ripstop_core::{Address, Info};
use ripstop_foreign as lib;
use ripstop_types::{AtomicKind, Errno, FiAddr, Flags, WaitObj};

use rustix::event::{PollFd, PollFlags, poll};

use super::foreign::{Foreign, Opens, Other, option_number, raw};
use super::table::{Object, Queue};
use super::{Model, refused};
use crate::subject::{CEdge, CqAttr, EpOption, Error, Fid, Result, timespec};

impl<M: Opens> Model<Foreign<M>> {
    fn raw(&self, fid: Fid) -> Result<lib::Object<M>> {
        raw(&self.table.get(fid)?)
    }

    fn open(&self, object: Object<Foreign<M>>) -> Fid {
        let fid = self.table.number();
        self.table.put(fid, object, None, None)
    }

    fn waits(&self, set: Fid) -> Result<std::sync::Arc<lib::WaitSet>> {
        match self.table.get(set)? {
            Object::Other(Other::Waits(set)) => Ok(set),
            _ => Err(Error::Missing("use that as a wait set")),
        }
    }

    fn polls(&self, set: Fid) -> Result<std::sync::Arc<lib::PollSet<M>>> {
        match self.table.get(set)? {
            Object::Other(Other::Polls(set)) => Ok(set),
            _ => Err(Error::Missing("use that as a poll set")),
        }
    }

    /// What may be in a poll set.
    fn member(&self, fid: Fid) -> Result<lib::Object<M>> {
        match self.raw(fid)? {
            object @ (lib::Object::Cq(_) | lib::Object::Counter(_) | lib::Object::Av(_)) => {
                Ok(object)
            }
            _ => Err(Error::Missing("put that into a poll set")),
        }
    }
}

impl<M: Opens> CEdge for Model<Foreign<M>> {
    fn name_into(&self, fid: Fid, len: usize) -> (Result<()>, usize) {
        match self.raw(fid) {
            Ok(object) => {
                let (answer, need) = object.name_into(len);
                (answer.map_err(Error::from), need)
            }
            Err(error) => (Err(error), 0),
        }
    }

    fn lookup_into(&self, av: Fid, addr: FiAddr, len: usize) -> Result<(Vec<u8>, usize)> {
        Ok(self.table.av(av)?.lookup_into(addr, len)?)
    }

    fn straddr_into(&self, av: Fid, addr: &Address, len: usize) -> Result<(String, usize)> {
        Ok(self.table.av(av)?.straddr_into(addr, len)?)
    }

    fn insert_bytes(&self, av: Fid, bytes: &[u8], count: usize) -> Result<(usize, Vec<FiAddr>)> {
        let av = self.table.av(av)?;
        Ok(av.insert_bytes(bytes, count, Flags::empty())?)
    }

    fn backlog(&self, pep: Fid, backlog: i32) -> Result<()> {
        Ok(self.table.pep(pep)?.backlog(backlog)?)
    }

    fn eq_for_writing(&self, fabric: Fid, wait: WaitObj) -> Result<Fid> {
        let eq = self.table.fabric(fabric)?.eq(wait, Flags::WRITE, None)?;
        Ok(self.open(Object::Eq(eq)))
    }

    fn eq_write(&self, eq: Fid, event: u32, data: u64) -> Result<()> {
        Ok(self.table.eq(eq)?.write(event, data)?)
    }

    fn eq_read_written(&self, eq: Fid, len: usize, flags: Flags) -> Result<(u32, u64, usize)> {
        Ok(self.table.eq(eq)?.read_written(len, None, flags)?)
    }

    fn null_calls(&self, fid: Option<Fid>) -> Result<Vec<(&'static str, i64)>> {
        Ok(match fid {
            Some(fid) => self.raw(fid)?.null_calls(),
            None => self.way.provider.library().null_calls(),
        })
    }

    fn readerr_bytes(&self, cq: Fid, known: usize) -> Result<Vec<u8>> {
        Ok(self.table.cq(cq)?.cq.readerr_bytes(known)?)
    }

    fn wait_object(&self, fid: Fid) -> Result<WaitObj> {
        let raw = self.raw(fid)?.wait_object()?;
        let object = u32::try_from(raw).ok().and_then(WaitObj::from_raw);
        object.ok_or(refused("fi_control", Errno::EOTHER))
    }

    fn poll_fds(&self, fid: Fid, timeout: Duration) -> Result<bool> {
        let copies = self.raw(fid)?.poll_fds()?;
        let mut fds: Vec<_> = copies
            .iter()
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        let ready = poll(&mut fds, timespec(timeout).as_ref());
        Ok(ready.map_err(|e| refused("poll", Errno(e.raw_os_error())))? > 0)
    }

    fn socket(&self, ep: Fid) -> Result<OwnedFd> {
        Ok(self.raw(ep)?.socket()?)
    }

    fn insert_flagged(&self, av: Fid, addr: &Address, flags: Flags) -> Result<FiAddr> {
        let (_, found) = self
            .table
            .av(av)?
            .insert_bytes(&addr.to_bytes(), 1, flags)?;
        let found = found.first().copied().filter(|found| found.is_specified());
        found.ok_or(refused("fi_av_insert", Errno::EINVAL))
    }

    fn option_into(&self, ep: Fid, option: EpOption, len: usize) -> (Result<()>, usize) {
        match self.raw(ep) {
            Ok(ep) => {
                let (answer, need) = ep.option_into(option_number(option), len);
                (answer.map_err(Error::from), need)
            }
            Err(error) => (Err(error), 0),
        }
    }

    fn set_option_bytes(&self, ep: Fid, option: EpOption, bytes: &[u8]) -> Result<()> {
        Ok(self.raw(ep)?.set_option(option_number(option), bytes)?)
    }

    fn alias_and_close(&self, ep: Fid, flags: Flags) -> Result<[(&'static str, i64); 2]> {
        Ok(self.table.ep(ep)?.alias_and_close(flags)?)
    }

    fn atomic_valid(
        &self,
        ep: Fid,
        domain: Fid,
        kind: AtomicKind,
        (datatype, op): (u32, u32),
    ) -> Result<(usize, usize)> {
        let count = self.table.ep(ep)?.atomic_valid(kind, datatype, op)?;
        let domain = self.table.domain(domain)?;
        let (_, size) = domain.query_atomic(kind, datatype, op)?;
        Ok((count, size))
    }

    fn join_at(&self, ep: Fid, set: Fid, addr: FiAddr, flags: Flags) -> Result<Fid> {
        let (endpoint, set) = (self.table.ep(ep)?, self.table.set(set)?);
        self.put_group(ep, |name| {
            Ok(endpoint.join_set(&set, (addr, flags), (name, 0))?.into())
        })
    }

    fn query_coll_numbers(
        &self,
        domain: Fid,
        (coll, datatype, op): (u32, u32, u32),
        flags: u64,
    ) -> Result<()> {
        let domain = self.table.domain(domain)?;
        domain.query_collective(coll, datatype, op, flags)?;
        Ok(())
    }

    fn poll_set(&self, domain: Fid) -> Result<Fid> {
        let set = self.table.domain(domain)?.poll_set()?;
        Ok(self.open(Object::Other(Other::Polls(set))))
    }

    fn poll_add(&self, set: Fid, member: Fid) -> Result<()> {
        Ok(self.polls(set)?.add(self.member(member)?)?)
    }

    fn poll_del(&self, set: Fid, member: Fid) -> Result<()> {
        Ok(self.polls(set)?.remove(&self.member(member)?)?)
    }

    fn poll_all(&self, set: Fid, max: usize) -> Result<Vec<Fid>> {
        let found = self.polls(set)?.poll(max)?;
        let known = |id| {
            self.table
                .find(|object| raw(object).is_ok_and(|o| o.id() == id))
        };
        let unknown = refused("fi_poll", Errno::EOTHER);
        found
            .into_iter()
            .map(|id| known(id).ok_or(unknown))
            .collect()
    }

    fn wait_set(&self, fabric: Fid, wait: WaitObj) -> Result<Fid> {
        let set = self.table.fabric(fabric)?.wait_set(wait)?;
        Ok(self.open(Object::Other(Other::Waits(set))))
    }

    fn cq_in(&self, domain: Fid, set: Fid, attr: CqAttr) -> Result<Fid> {
        let set = self.waits(set)?;
        let domain = self.table.domain(domain)?;
        let cq = domain.cq_with(&attr.open(), attr.threshold, Some(&set))?;
        let threshold = attr.threshold;
        Ok(self.open(Object::Cq(Queue { cq, threshold })))
    }

    fn eq_in(&self, fabric: Fid, set: Fid) -> Result<Fid> {
        let set = self.waits(set)?;
        let fabric = self.table.fabric(fabric)?;
        let eq = fabric.eq(WaitObj::Set, Flags::WRITE, Some(&set))?;
        Ok(self.open(Object::Eq(eq)))
    }

    fn cntr_in(&self, domain: Fid, set: Fid) -> Result<Fid> {
        let set = self.waits(set)?;
        let domain = self.table.domain(domain)?;
        let counter = domain.counter_with(WaitObj::Set, Some(&set))?;
        Ok(self.open(Object::Cntr(counter)))
    }

    fn wait_for(&self, set: Fid, timeout: Duration) -> Result<()> {
        Ok(self.waits(set)?.wait(Some(timeout))?)
    }

    fn strerror(&self, errno: Errno) -> String {
        self.way.provider.library().strerror(errno)
    }

    fn cq_strerror(&self, cq: Fid, prov_errno: i32) -> Result<String> {
        Ok(self.table.cq(cq)?.cq.strerror(prov_errno))
    }

    fn info_text(&self, info: &Info) -> Result<String> {
        let text = lib::provider::text(info);
        text.ok_or(Error::Missing("print an info of another library"))
    }
}
