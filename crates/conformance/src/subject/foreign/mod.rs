//! Any `libfabric.so.1`, through its C interface.

mod cm;
mod coll;
mod edge;
mod post;
mod rma;
mod table;
mod work;

use std::sync::Arc;
use std::time::Duration;

use ripstop_core::hints::Request;
use ripstop_core::{Address, Handle, Info, provider};
use ripstop_foreign as lib;
use ripstop_foreign::{Bound, Close as _, Library};
use ripstop_types::{AtomicKind, Collective, Errno, FiAddr, Flags, WaitObj};
use rustix::event::{PollFd, PollFlags, poll};

use super::{
    About, AvAttr, AvSetAttr, CEdge, Claimed, Coll, CollLimit, Completion, CqAttr, CqError,
    Direction, EpOption, EqError, Error, Event, Fid, Inject, MrAttr, Post, Query, Remote, Result,
    SetChange, Subject, Token, When, WorkId, WorkOp, timespec,
};
use table::{Object, Table};

/// A library, and the objects opened in it. With mode [`lib::Shared`] it may be used from
/// several threads.
pub struct Foreign<M: lib::Threading> {
    library: Library,
    table: Table<M>,
}

/// Marks an [`Info`] as the one with this number here.
struct InfoKey(usize);

/// Marks an [`Info`] as that of the connection request with this number.
struct RequestKey(usize);

impl From<lib::Error> for Error {
    fn from(error: lib::Error) -> Self {
        Self::Call {
            call: error.call,
            errno: error.errno,
        }
    }
}

/// A call refused here, before the library.
pub(super) fn refused(call: &'static str, errno: Errno) -> Error {
    Error::Call { call, errno }
}

pub(super) fn to_lib(addr: &Address) -> lib::Addr {
    lib::Addr::from_bytes(&addr.to_bytes())
}

/// The `FI_OPT_*` number and the bytes of the value.
fn option_number(option: EpOption) -> i32 {
    match option {
        EpOption::MinMultiRecv => 0,
        EpOption::CmDataSize => 1,
        EpOption::MaxMsgSize => 12,
        EpOption::MaxAtomicSize => 15,
        EpOption::InjectMsgSize => 16,
        EpOption::InjectAtomicSize => 19,
        EpOption::Unknown => 12_345,
    }
}

impl<M: lib::Threading> Foreign<M> {
    /// The way into an opened library.
    #[must_use]
    pub fn new(library: Library) -> Self {
        Self {
            library,
            table: Table::new(),
        }
    }

    /// The info as the library gave it.
    fn with_info<R>(&self, info: &Info, f: impl FnOnce(&lib::Info) -> Result<R>) -> Result<R> {
        let handle = info.handle.as_ref();
        if let Some(key) = handle.and_then(Handle::downcast::<InfoKey>) {
            let info = self.table.with(|t| t.infos.get(key.0).cloned());
            let info = info.ok_or(Error::Missing("open an info of another library"))?;
            return f(&info);
        }
        if let Some(key) = handle.and_then(Handle::downcast::<RequestKey>) {
            let request = self.table.with(|t| t.requests.remove(&key.0));
            let request = request.ok_or(Error::Missing("use a request twice"))?;
            let result = f(request.info());
            self.table.with(|t| t.requests.insert(key.0, request));
            return result;
        }
        Err(Error::Missing("open an info that getinfo did not give"))
    }

    fn open_av(&self, domain: Fid, attr: &provider::AvAttr) -> Result<Fid> {
        let av = self.table.domain(domain)?.av(attr)?;
        let format = self.table.format(domain);
        Ok(self.table.insert(Object::Av(av), format))
    }

    fn keep_info(&self, info: lib::Info) -> Info {
        let mut attrs = info.attrs();
        let key = self.table.with(|t| {
            t.infos.push(Arc::new(info));
            t.infos.len() - 1
        });
        attrs.handle = Some(Handle::new(InfoKey(key)));
        attrs
    }
}

impl<M: lib::Threading> Subject for Foreign<M> {
    fn about(&self) -> About {
        About {
            name: self.library.path().display().to_string(),
            version: self.library.version(),
        }
    }

    fn getinfo(&self, query: &Query) -> Result<Vec<Info>> {
        let newest = self.library.version().min(ripstop_types::Version::CURRENT);
        let infos = self.library.getinfo(&Request {
            version: query.version.unwrap_or(newest),
            node: query.node.as_deref(),
            service: query.service.as_deref(),
            flags: query.flags,
            hints: query.hints.as_ref(),
        })?;
        Ok(infos.into_iter().map(|i| self.keep_info(i)).collect())
    }

    fn fabric(&self, info: &Info) -> Result<Fid> {
        let fabric = self.with_info(info, |i| Ok(self.library.fabric(i)?))?;
        Ok(self.table.insert(Object::Fabric(fabric), info.addr_format))
    }

    fn domain(&self, fabric: Fid, info: &Info) -> Result<Fid> {
        let fabric = self.table.fabric(fabric)?;
        let domain = self.with_info(info, |i| Ok(fabric.domain(i)?))?;
        Ok(self.table.insert(Object::Domain(domain), info.addr_format))
    }

    fn endpoint(&self, domain: Fid, info: &Info) -> Result<Fid> {
        let domain = self.table.domain(domain)?;
        let handle = info.handle.as_ref();
        let builder = match handle.and_then(Handle::downcast::<RequestKey>) {
            Some(key) => {
                let request = self.table.with(|t| t.requests.remove(&key.0));
                domain.accepting(request.ok_or(Error::Missing("use a request twice"))?)?
            }
            None => self.with_info(info, |i| Ok(domain.endpoint(i)?))?,
        };
        Ok(self
            .table
            .insert_ep(builder.without_enable()?, info.addr_format))
    }

    fn shared_rx(&self, domain: Fid, info: &Info) -> Result<Fid> {
        let domain = self.table.domain(domain)?;
        let srx = self.with_info(info, |i| Ok(domain.shared_rx(i)?))?;
        Ok(self
            .table
            .insert_ep(srx.without_enable()?, info.addr_format))
    }

    fn shared_tx(&self, domain: Fid, info: &Info) -> Result<Fid> {
        let stx = self.table.domain(domain)?;
        let stx = self.with_info(info, |i| Ok(stx.shared_tx(i)?))?;
        Ok(self.table.insert(Object::Stx(stx), info.addr_format))
    }

    fn scalable_ep(&self, domain: Fid, info: &Info) -> Result<Fid> {
        let domain = self.table.domain(domain)?;
        let sep = self.with_info(info, |i| Ok(domain.scalable_ep(i)?))?;
        Ok(self
            .table
            .insert_ep(sep.without_enable()?, info.addr_format))
    }

    fn context(&self, sep: Fid, direction: Direction, index: usize, info: &Info) -> Result<Fid> {
        let transmit = direction == Direction::Tx;
        let sep = self.table.ep(sep)?;
        let sep = table::read(&sep);
        let context = self.with_info(info, |i| Ok(sep.context(transmit, index, i)?))?;
        Ok(self
            .table
            .insert_ep(context.without_enable()?, info.addr_format))
    }

    fn passive_ep(&self, fabric: Fid, info: &Info) -> Result<Fid> {
        let fabric = self.table.fabric(fabric)?;
        let pep = self.with_info(info, |i| Ok(fabric.passive_ep(i)?))?;
        Ok(self.table.insert_pep(pep, info.addr_format))
    }

    fn eq(&self, fabric: Fid, wait: WaitObj) -> Result<Fid> {
        let eq = self.table.fabric(fabric)?.eq(0, wait)?;
        let format = self.table.format(fabric);
        Ok(self.table.insert(Object::Eq(eq), format))
    }

    fn cq(&self, domain: Fid, attr: CqAttr) -> Result<Fid> {
        let cq = self.table.domain(domain)?.cq(edge::cq_attr(attr))?;
        let format = self.table.format(domain);
        Ok(self.table.insert(Object::Cq(cq), format))
    }

    fn cntr(&self, domain: Fid, wait: WaitObj) -> Result<Fid> {
        let cntr = self.table.domain(domain)?.cntr(wait)?;
        let format = self.table.format(domain);
        Ok(self.table.insert(Object::Cntr(cntr), format))
    }

    fn av(&self, domain: Fid, attr: AvAttr) -> Result<Fid> {
        self.open_av(domain, &attr.open(None))
    }

    fn av_named(&self, domain: Fid, attr: AvAttr, name: &str, read_only: bool) -> Result<Fid> {
        self.open_av(domain, &attr.open(Some((name, read_only))))
    }

    fn close(&self, fid: Fid) -> Result<()> {
        let (object, format) = self.table.take(fid)?;
        let closed = match object {
            Object::Fabric(o) => o.close().map_err(|(o, e)| (Object::Fabric(o), e.into())),
            Object::Domain(o) => o.close().map_err(|(o, e)| (Object::Domain(o), e.into())),
            Object::Eq(o) => o.close().map_err(|(o, e)| (Object::Eq(o), e.into())),
            Object::Cq(o) => o.close().map_err(|(o, e)| (Object::Cq(o), e.into())),
            Object::Cntr(o) => o.close().map_err(|(o, e)| (Object::Cntr(o), e.into())),
            Object::Av(o) => o.close().map_err(|(o, e)| (Object::Av(o), e.into())),
            Object::Pep(o) => table::close_shared(o).map_err(|(o, e)| (Object::Pep(o), e)),
            Object::Ep(o) => table::close_ep(o).map_err(|(o, e)| (Object::Ep(o), e)),
            Object::Mr(o) => table::close_mr(o).map_err(|(o, e)| (Object::Mr(o), e)),
            Object::Stx(o) => o.close().map_err(|(o, e)| (Object::Stx(o), e.into())),
            Object::Polls(o) => table::close_polls(o).map_err(|(o, e)| (Object::Polls(o), e)),
            Object::Waits(o) => o.close().map_err(|(o, e)| (Object::Waits(o), e.into())),
            Object::Set(o) => o.close().map_err(|(o, e)| (Object::Set(o), e.into())),
            Object::Group(o) => table::close_group(o).map_err(|(o, e)| (Object::Group(o), e)),
            // Freed with its domain.
            Object::Memory(_) => Ok(()),
        };
        closed.map_err(|(object, error)| {
            self.table.put_back(fid, object, format);
            error
        })
    }

    fn bind(&self, fid: Fid, to: Fid, flags: Flags) -> Result<()> {
        let to = self.table.get(to)?;
        let ep = match self.table.get(fid)? {
            Object::Ep(ep) => ep,
            Object::Pep(pep) => {
                return match to {
                    Object::Eq(eq) => Ok(pep.bind(&eq)?),
                    _ => Err(Error::Missing("bind that to a passive endpoint")),
                };
            }
            Object::Mr(mr) => return rma::bind(&mr, &to, flags),
            _ => return Err(Error::Missing("bind something to that")),
        };
        let ep = table::read(&ep);
        let other;
        let to = match &to {
            Object::Cq(o) => Bound::Cq(o),
            Object::Cntr(o) => Bound::Cntr(o),
            Object::Av(o) => Bound::Av(o),
            Object::Eq(o) => Bound::Eq(o),
            Object::Domain(o) => Bound::Domain(o),
            Object::Fabric(o) => Bound::Fabric(o),
            Object::Ep(o) => {
                other = table::read(o);
                Bound::Endpoint(&other)
            }
            Object::Pep(_) => return Err(Error::Missing("bind a passive endpoint")),
            Object::Stx(o) => Bound::SharedTx(o),
            Object::Memory(_) | Object::Mr(_) => return Err(Error::Missing("bind memory")),
            Object::Polls(_) | Object::Waits(_) | Object::Set(_) | Object::Group(_) => {
                return Err(Error::Missing("bind a set"));
            }
        };
        Ok(ep.bind(&to, flags)?)
    }

    fn enable(&self, ep: Fid) -> Result<()> {
        match self.table.get(ep)? {
            Object::Mr(mr) => Ok(mr.enable()?),
            _ => Ok(table::read(&self.table.ep(ep)?).enable()?),
        }
    }

    fn option(&self, ep: Fid, option: EpOption) -> Result<usize> {
        let number = option_number(option);
        let bytes = match self.table.get(ep)? {
            Object::Pep(pep) => pep.getopt(number, size_of::<usize>())?,
            _ => table::read(&self.table.ep(ep)?).getopt(number, size_of::<usize>())?,
        };
        let bytes = bytes.try_into();
        bytes
            .map(usize::from_ne_bytes)
            .map_err(|_| refused("fi_getopt", Errno::EOTHER))
    }

    fn set_option(&self, ep: Fid, option: EpOption, value: usize) -> Result<()> {
        let ep = self.table.ep(ep)?;
        let mut ep = table::write(&ep);
        Ok(ep.setopt(option_number(option), &value.to_ne_bytes())?)
    }

    fn op_flags(&self, ep: Fid, direction: Direction) -> Result<Flags> {
        Ok(table::read(&self.table.ep(ep)?).op_flags(direction == Direction::Tx)?)
    }

    fn set_op_flags(&self, ep: Fid, direction: Direction, flags: Flags) -> Result<()> {
        Ok(table::read(&self.table.ep(ep)?).set_op_flags(direction == Direction::Tx, flags)?)
    }

    fn cancel(&self, ep: Fid, token: Token) -> Result<()> {
        let ep = self.table.ep(ep)?;
        let op = self.table.with(|t| t.ops.get(&token).copied());
        let op = op.ok_or(Error::Missing("cancel what was never posted"))?;
        Ok(table::read(&ep).cancel(op.op)?)
    }

    fn av_insert(&self, av: Fid, addrs: &[Address]) -> Result<Vec<FiAddr>> {
        let addrs: Vec<_> = addrs.iter().map(to_lib).collect();
        Ok(self.table.av(av)?.insert_all(&addrs)?)
    }

    fn av_insert_as(&self, av: Fid, addr: &Address, id: FiAddr) -> Result<FiAddr> {
        Ok(self.table.av(av)?.insert_as(&to_lib(addr), id)?)
    }

    fn av_set_user_id(&self, av: Fid, addr: FiAddr, id: FiAddr) -> Result<()> {
        Ok(self.table.av(av)?.set_user_id(addr, id)?)
    }

    fn av_insertsvc(&self, av: Fid, node: &str, service: Option<&str>) -> Result<FiAddr> {
        Ok(self.table.av(av)?.insert_service(node, service)?)
    }

    fn av_insertsym(
        &self,
        av: Fid,
        node: (&str, usize),
        service: (&str, usize),
    ) -> Result<(usize, Vec<FiAddr>)> {
        Ok(self.table.av(av)?.insert_symmetric(node, service)?)
    }

    fn av_remove(&self, av: Fid, addrs: &[FiAddr]) -> Result<()> {
        Ok(self.table.av(av)?.remove(addrs)?)
    }

    fn av_lookup(&self, av: Fid, addr: FiAddr) -> Result<Address> {
        let found = self.table.av(av)?.lookup(addr)?;
        self.table.to_address("fi_av_lookup", av, &found)
    }

    fn av_straddr(&self, av: Fid, addr: &Address) -> Result<String> {
        Ok(self.table.av(av)?.straddr(&to_lib(addr))?)
    }

    fn cq_read(&self, cq: Fid, max: usize) -> Result<Vec<Completion>> {
        let mut out = Vec::new();
        self.table.cq(cq)?.read_up_to(&mut out, max)?;
        Ok(out.into_iter().map(|c| self.table.completion(c)).collect())
    }

    fn cq_sread(&self, cq: Fid, threshold: usize, timeout: Duration) -> Result<Vec<Completion>> {
        let mut out = Vec::new();
        self.table
            .cq(cq)?
            .sread(&mut out, threshold, Some(timeout))?;
        Ok(out.into_iter().map(|c| self.table.completion(c)).collect())
    }

    fn cq_readerr(&self, cq: Fid) -> Result<CqError> {
        let error = self.table.cq(cq)?.readerr()?;
        Ok(CqError {
            entry: self.table.completion(error.entry),
            err: error.err,
            olen: error.olen,
            prov_errno: error.prov_errno,
            err_data: error.err_data,
        })
    }

    fn cq_signal(&self, cq: Fid) -> Result<()> {
        Ok(self.table.cq(cq)?.signal()?)
    }

    fn cntr_read(&self, cntr: Fid) -> Result<u64> {
        Ok(self.table.cntr(cntr)?.read())
    }

    fn cntr_readerr(&self, cntr: Fid) -> Result<u64> {
        Ok(self.table.cntr(cntr)?.readerr())
    }

    fn cntr_add(&self, cntr: Fid, value: u64) -> Result<()> {
        Ok(self.table.cntr(cntr)?.add(value)?)
    }

    fn cntr_set(&self, cntr: Fid, value: u64) -> Result<()> {
        Ok(self.table.cntr(cntr)?.set(value)?)
    }

    fn cntr_adderr(&self, cntr: Fid, value: u64) -> Result<()> {
        Ok(self.table.cntr(cntr)?.adderr(value)?)
    }

    fn cntr_seterr(&self, cntr: Fid, value: u64) -> Result<()> {
        Ok(self.table.cntr(cntr)?.seterr(value)?)
    }

    fn cntr_wait(&self, cntr: Fid, threshold: u64, timeout: Duration) -> Result<()> {
        Ok(self.table.cntr(cntr)?.wait(threshold, Some(timeout))?)
    }

    fn trywait(&self, fabric: Fid, fids: &[Fid]) -> Result<()> {
        let fabric = self.table.fabric(fabric)?;
        let objects = fids.iter().map(|f| self.table.get(*f));
        let objects = objects.collect::<Result<Vec<_>>>()?;
        let waitable = objects.iter().map(|o| -> Result<&dyn lib::Waitable> {
            match o {
                Object::Cq(o) => Ok(o),
                Object::Eq(o) => Ok(o),
                Object::Cntr(o) => Ok(o),
                _ => Err(Error::Missing("wait on that")),
            }
        });
        Ok(fabric.trywait(&waitable.collect::<Result<Vec<_>>>()?)?)
    }

    fn poll_fd(&self, fid: Fid, timeout: Duration) -> Result<bool> {
        let object = self.table.get(fid)?;
        let fd = match &object {
            Object::Cq(cq) => cq.wait_fd()?,
            Object::Eq(eq) => eq.wait_fd()?,
            _ => return Err(Error::Missing("give the descriptor of that")),
        };
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        let ready = poll(&mut fds, timespec(timeout).as_ref());
        Ok(ready.map_err(|e| refused("poll", Errno(e.raw_os_error())))? > 0)
    }

    fn post(&self, ep: Fid, post: &Post) -> Result<()> {
        self.do_post(ep, post)
    }

    fn inject(&self, ep: Fid, inject: Inject<'_>) -> Result<()> {
        self.do_inject(ep, inject)
    }

    fn overwrite(&self, ep: Fid, token: Token) -> Result<()> {
        self.do_overwrite(ep, token)
    }

    fn peek(&self, ep: Fid, post: &Post, flags: Flags) -> Result<()> {
        self.do_peek(ep, post, flags)
    }

    fn claim(&self, ep: Fid, claimed: Claimed, post: &Post) -> Result<()> {
        self.do_claim(ep, claimed, post)
    }

    fn trigger(&self, ep: Fid, post: &Post, when: When) -> Result<()> {
        self.do_trigger(ep, post, when)
    }

    fn queue_work(&self, domain: Fid, when: When, op: &WorkOp<'_>) -> Result<WorkId> {
        self.do_queue_work(domain, when, op)
    }

    fn cancel_work(&self, domain: Fid, work: WorkId) -> Result<()> {
        self.do_cancel_work(domain, work)
    }

    fn flush_work(&self, domain: Fid, cntr: Option<Fid>) -> Result<()> {
        self.do_flush_work(domain, cntr)
    }

    fn memory(&self, domain: Fid, len: usize) -> Result<Fid> {
        let memory = self.table.domain(domain)?.region(len);
        let format = self.table.format(domain);
        Ok(self.table.insert(Object::Memory(memory), format))
    }

    fn memory_in_memfd(&self, domain: Fid, len: usize) -> Result<Fid> {
        let memory = self.table.domain(domain)?.region_in_memfd(len)?;
        let format = self.table.format(domain);
        Ok(self.table.insert(Object::Memory(memory), format))
    }

    fn register(&self, memory: Fid, attr: &MrAttr) -> Result<Fid> {
        let mr = rma::register(&self.table.memory(memory)?, attr)?;
        let format = self.table.format(memory);
        Ok(self.table.insert(Object::Mr(Arc::new(mr)), format))
    }

    fn mr_key(&self, mr: Fid) -> Result<u64> {
        Ok(self.table.mr(mr)?.key()?)
    }

    fn memory_address(&self, memory: Fid) -> Result<u64> {
        Ok(self.table.memory(memory)?.address())
    }

    fn memory_read(&self, memory: Fid) -> Result<Vec<u8>> {
        let memory = self.table.memory(memory)?;
        let mut bytes = vec![0; memory.len()];
        memory.read(0, &mut bytes);
        Ok(bytes)
    }

    fn memory_write(&self, memory: Fid, offset: usize, bytes: &[u8]) -> Result<()> {
        self.table.memory(memory)?.write(offset, bytes);
        Ok(())
    }

    fn inject_write(&self, ep: Fid, inject: Inject<'_>, to: Remote) -> Result<()> {
        let ep = self.table.ep(ep)?;
        let ep = table::read(&ep);
        let Inject { bytes, addr, .. } = inject;
        post::overwritten(bytes, |bytes| match inject.data {
            None => ep.inject_write(bytes, addr, to.address, to.key),
            Some(data) => ep.inject_writedata(bytes, data, addr, to.address, to.key),
        })
    }

    fn inject_atomic(
        &self,
        ep: Fid,
        inject: Inject<'_>,
        what: (u32, u32),
        to: Remote,
    ) -> Result<()> {
        let ep = self.table.ep(ep)?;
        let ep = table::read(&ep);
        post::overwritten(inject.bytes, |bytes| {
            ep.inject_atomic(bytes, what, inject.addr, to.address, to.key)
        })
    }

    fn query_atomic(
        &self,
        domain: Fid,
        kind: AtomicKind,
        (datatype, op): (u32, u32),
    ) -> Result<usize> {
        let (count, _) = self
            .table
            .domain(domain)?
            .query_atomic(kind, datatype, op)?;
        Ok(count)
    }

    fn av_set(&self, av: Fid, attr: AvSetAttr) -> Result<Fid> {
        self.do_av_set(av, &attr)
    }

    fn change_set(&self, set: Fid, change: SetChange) -> Result<()> {
        self.do_change_set(set, change)
    }

    fn set_addr(&self, set: Fid) -> Result<FiAddr> {
        Ok(self.table.set(set)?.addr()?)
    }

    fn join(&self, ep: Fid, set: Fid) -> Result<Fid> {
        let addr = self.table.set(set)?.addr()?;
        self.do_join(ep, set, addr, Flags::empty())
    }

    fn group_addr(&self, group: Fid) -> Result<FiAddr> {
        Ok(self.table.group(group)?.addr())
    }

    fn collective(&self, ep: Fid, call: &Coll) -> Result<()> {
        self.do_collective(ep, call)
    }

    fn query_collective(
        &self,
        domain: Fid,
        coll: Collective,
        what: (u32, u32),
    ) -> Result<CollLimit> {
        let (datatype, op) = match coll {
            Collective::Barrier => (lib::FI_VOID, lib::FI_NOOP),
            coll if coll.reduces() => what,
            _ => (what.0, lib::FI_NOOP),
        };
        self.do_query_collective(domain, (coll.number(), datatype, op), 0)
    }

    fn name(&self, fid: Fid) -> Result<Address> {
        self.do_name(fid)
    }

    fn set_name(&self, fid: Fid, addr: &Address) -> Result<()> {
        self.do_set_name(fid, addr)
    }

    fn peer(&self, ep: Fid) -> Result<Address> {
        let found = table::read(&self.table.ep(ep)?).getpeer()?;
        self.table.to_address("fi_getpeer", ep, &found)
    }

    fn listen(&self, pep: Fid) -> Result<()> {
        Ok(self.table.pep(pep)?.listen()?)
    }

    fn connect(&self, ep: Fid, addr: &Address, data: &[u8]) -> Result<()> {
        Ok(table::read(&self.table.ep(ep)?).connect(&to_lib(addr), data)?)
    }

    fn accept(&self, ep: Fid, data: &[u8]) -> Result<()> {
        Ok(table::read(&self.table.ep(ep)?).accept(data)?)
    }

    fn reject(&self, pep: Fid, info: &Info, data: &[u8]) -> Result<()> {
        self.do_reject(pep, info, data)
    }

    fn shutdown(&self, ep: Fid) -> Result<()> {
        Ok(table::read(&self.table.ep(ep)?).shutdown()?)
    }

    fn eq_read(&self, eq: Fid) -> Result<Event> {
        let event = self.table.eq(eq)?.read()?;
        Ok(self.event(event))
    }

    fn eq_sread(&self, eq: Fid, timeout: Duration) -> Result<Event> {
        let event = self.table.eq(eq)?.sread(Some(timeout))?;
        Ok(self.event(event))
    }

    fn eq_readerr(&self, eq: Fid) -> Result<EqError> {
        let error = self.table.eq(eq)?.readerr()?;
        Ok(EqError {
            fid: self.table.with(|t| t.ids.get(&error.id).copied()),
            err: error.err,
            data: error.err_data,
        })
    }

    fn c_edge(&self) -> Option<&dyn CEdge> {
        Some(self)
    }
}
