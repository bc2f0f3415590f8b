use std::sync::Arc;
use std::time::Duration;

use ripstop_core::{Address, Info};
use ripstop_foreign as lib;
use ripstop_foreign::Bound;
use ripstop_types::{AtomicKind, Errno, FiAddr, Flags, WaitObj};

use super::table::Object;
use super::{Foreign, option_number, refused, table, to_lib};
use crate::subject::{CEdge, CqAttr, EpOption, Error, Fid, Result};

impl<M: lib::Threading> Foreign<M> {
    /// Calls `f` with what may be in a poll set.
    fn with_member<R>(
        &self,
        fid: Fid,
        f: impl FnOnce(&Bound<'_, M>) -> lib::Result<R>,
    ) -> Result<R> {
        Ok(match self.table.get(fid)? {
            Object::Cq(o) => f(&Bound::Cq(&o)),
            Object::Cntr(o) => f(&Bound::Cntr(&o)),
            Object::Av(o) => f(&Bound::Av(&o)),
            _ => return Err(Error::Missing("put that into a poll set")),
        }?)
    }
}

/// How the suite opens a queue, in the library's words.
pub(super) fn cq_attr(attr: CqAttr) -> lib::CqAttr {
    lib::CqAttr {
        size: attr.size,
        format: attr.format,
        wait: attr.wait,
        threshold: attr.threshold,
    }
}

impl<M: lib::Threading> CEdge for Foreign<M> {
    fn name_into(&self, fid: Fid, len: usize) -> (Result<()>, usize) {
        let (answer, need) = match self.table.get(fid) {
            Ok(Object::Pep(pep)) => pep.getname_into(len),
            Ok(Object::Ep(ep)) => table::read(&ep).getname_into(len),
            Ok(_) => return (Err(Error::Missing("name that")), 0),
            Err(e) => return (Err(e), 0),
        };
        (answer.map_err(Error::from), need)
    }

    fn lookup_into(&self, av: Fid, addr: FiAddr, len: usize) -> Result<(Vec<u8>, usize)> {
        Ok(self.table.av(av)?.lookup_into(addr, len)?)
    }

    fn straddr_into(&self, av: Fid, addr: &Address, len: usize) -> Result<(String, usize)> {
        Ok(self.table.av(av)?.straddr_into(&to_lib(addr), len)?)
    }

    fn insert_bytes(&self, av: Fid, bytes: &[u8], count: usize) -> Result<(usize, Vec<FiAddr>)> {
        let av = self.table.av(av)?;
        Ok(av.insert_bytes(bytes, count, Flags::empty())?)
    }

    fn backlog(&self, pep: Fid, backlog: i32) -> Result<()> {
        Ok(self.table.pep(pep)?.backlog(backlog)?)
    }

    fn eq_for_writing(&self, fabric: Fid, wait: WaitObj) -> Result<Fid> {
        let eq = self.table.fabric(fabric)?.eq_for_writing(wait)?;
        let format = self.table.format(fabric);
        Ok(self.table.insert(Object::Eq(eq), format))
    }

    fn eq_write(&self, eq: Fid, event: u32, data: u64) -> Result<()> {
        Ok(self.table.eq(eq)?.write(event, data)?)
    }

    fn eq_read_written(&self, eq: Fid, len: usize, flags: Flags) -> Result<(u32, u64, usize)> {
        Ok(self.table.eq(eq)?.read_written(len, None, flags)?)
    }

    fn null_calls(&self, fid: Option<Fid>) -> Result<Vec<(&'static str, i64)>> {
        let Some(fid) = fid else {
            return Ok(self.library.null_calls());
        };
        Ok(match self.table.get(fid)? {
            Object::Fabric(o) => o.null_calls(),
            Object::Domain(o) => o.null_calls(),
            Object::Cq(o) => o.null_calls(),
            Object::Eq(o) => o.null_calls(),
            Object::Cntr(o) => o.null_calls(),
            Object::Ep(o) => table::read(&o).null_calls(),
            _ => return Err(Error::Missing("give null to that")),
        })
    }

    fn readerr_bytes(&self, cq: Fid, known: usize) -> Result<Vec<u8>> {
        Ok(self.table.cq(cq)?.readerr_bytes(known)?)
    }

    fn wait_object(&self, fid: Fid) -> Result<WaitObj> {
        let raw = match self.table.get(fid)? {
            Object::Cq(o) => o.wait_object()?,
            Object::Eq(o) => o.wait_object()?,
            _ => return Err(Error::Missing("ask for the wait object of that")),
        };
        let object = u32::try_from(raw).ok().and_then(WaitObj::from_raw);
        object.ok_or(refused("fi_control", Errno::EOTHER))
    }

    fn option_into(&self, ep: Fid, option: EpOption, len: usize) -> (Result<()>, usize) {
        match self.table.ep(ep) {
            Ok(ep) => {
                let (answer, need) = table::read(&ep).getopt_into(option_number(option), len);
                (answer.map_err(Error::from), need)
            }
            Err(error) => (Err(error), 0),
        }
    }

    fn set_option_bytes(&self, ep: Fid, option: EpOption, bytes: &[u8]) -> Result<()> {
        let ep = self.table.ep(ep)?;
        Ok(table::write(&ep).setopt(option_number(option), bytes)?)
    }

    fn alias_and_close(&self, ep: Fid, flags: Flags) -> Result<[(&'static str, i64); 2]> {
        Ok(table::read(&self.table.ep(ep)?).alias_and_close(flags)?)
    }

    fn atomic_valid(
        &self,
        ep: Fid,
        domain: Fid,
        kind: AtomicKind,
        (datatype, op): (u32, u32),
    ) -> Result<(usize, usize)> {
        let ep = self.table.ep(ep)?;
        let count = table::read(&ep).atomic_valid(kind, datatype, op)?;
        let (_, size) = self
            .table
            .domain(domain)?
            .query_atomic(kind, datatype, op)?;
        Ok((count, size))
    }

    fn join_at(&self, ep: Fid, set: Fid, addr: FiAddr, flags: Flags) -> Result<Fid> {
        self.do_join(ep, set, addr, flags)
    }

    fn query_coll_numbers(&self, domain: Fid, what: (u32, u32, u32), flags: u64) -> Result<()> {
        self.do_query_collective(domain, what, flags).map(|_| ())
    }

    fn poll_set(&self, domain: Fid) -> Result<Fid> {
        let set = self.table.domain(domain)?.poll_set()?;
        let format = self.table.format(domain);
        Ok(self.table.insert(Object::Polls(Arc::new(set)), format))
    }

    fn poll_add(&self, set: Fid, member: Fid) -> Result<()> {
        let set = self.table.polls(set)?;
        let id = self.with_member(member, |bound| set.add(bound))?;
        self.table.with(|t| t.ids.insert(id, member));
        Ok(())
    }

    fn poll_del(&self, set: Fid, member: Fid) -> Result<()> {
        let set = self.table.polls(set)?;
        self.with_member(member, |bound| set.remove(bound))
    }

    fn poll_all(&self, set: Fid, max: usize) -> Result<Vec<Fid>> {
        let found = self.table.polls(set)?.poll(max)?;
        let known = |id| self.table.with(|t| t.ids.get(&id).copied());
        let unknown = refused("fi_poll", Errno::EOTHER);
        found
            .into_iter()
            .map(|id| known(id).ok_or(unknown))
            .collect()
    }

    fn wait_set(&self, fabric: Fid, wait: WaitObj) -> Result<Fid> {
        let set = self.table.fabric(fabric)?.wait_set(wait)?;
        let format = self.table.format(fabric);
        Ok(self.table.insert(Object::Waits(set), format))
    }

    fn cq_in(&self, domain: Fid, set: Fid, attr: CqAttr) -> Result<Fid> {
        let set = self.table.waits(set)?;
        let cq = self.table.domain(domain)?.cq_in(&set, cq_attr(attr))?;
        let format = self.table.format(domain);
        Ok(self.table.insert(Object::Cq(cq), format))
    }

    fn eq_in(&self, fabric: Fid, set: Fid) -> Result<Fid> {
        let set = self.table.waits(set)?;
        let eq = self.table.fabric(fabric)?.eq_in(&set)?;
        let format = self.table.format(fabric);
        Ok(self.table.insert(Object::Eq(eq), format))
    }

    fn cntr_in(&self, domain: Fid, set: Fid) -> Result<Fid> {
        let set = self.table.waits(set)?;
        let cntr = self.table.domain(domain)?.cntr_in(&set)?;
        let format = self.table.format(domain);
        Ok(self.table.insert(Object::Cntr(cntr), format))
    }

    fn wait_for(&self, set: Fid, timeout: Duration) -> Result<()> {
        Ok(self.table.waits(set)?.wait(Some(timeout))?)
    }

    fn strerror(&self, errno: Errno) -> String {
        self.library.strerror(errno)
    }

    fn cq_strerror(&self, cq: Fid, prov_errno: i32) -> Result<String> {
        Ok(self.table.cq(cq)?.strerror(prov_errno))
    }

    fn info_text(&self, info: &Info) -> Result<String> {
        self.with_info(info, |i| Ok(i.to_string()))
    }
}
