//! The calls of a [`Subject`](crate::subject::Subject), by the traits of `ripstop_core::provider`.

use std::time::Duration;

use ripstop_core::eq::Event as CoreEvent;
use ripstop_core::hints::Request;
use ripstop_core::provider::{
    self, AddressVector, CompletionQueue, Counter, Endpoint, Group, MemoryRegion, PassiveEp,
    ScalableEp, SharedRx,
};
use ripstop_core::{Address, FidToken, Info};
use ripstop_mem::{Parked, copy_in, copy_out};
use ripstop_os::SharedBuf;
use ripstop_types::{AtomicKind, CmEvent, Collective, Errno, FiAddr, Flags, WaitObj};
use rustix::event::{PollFd, PollFlags, poll};

use super::open::event_token;
use super::table::{Bytes, Object};
use super::{Model, Way, of, refused};
use crate::subject::{
    About, AvAttr, AvSetAttr, CEdge, Claimed, Coll, CollLimit, Completion, CqAttr, CqError,
    Direction, EpOption, EqError, Error, Event, Fid, Inject, MrAttr, Post, Query, Remote, Result,
    SetChange, Subject, Token, When, WorkId, WorkOp, timespec,
};

/// Entries a read takes at most.
const BATCH: usize = 16;

/// The key of memory that has none (`FI_KEY_NOTAVAIL`).
const NO_KEY: u64 = u64::MAX;

fn core_option(option: EpOption) -> Option<provider::EpOption> {
    Some(match option {
        EpOption::MinMultiRecv => provider::EpOption::MinMultiRecv,
        EpOption::CmDataSize => provider::EpOption::CmDataSize,
        EpOption::MaxMsgSize => provider::EpOption::MaxMsgSize,
        EpOption::InjectMsgSize => provider::EpOption::InjectMsgSize,
        EpOption::MaxAtomicSize => provider::EpOption::MaxAtomicSize,
        EpOption::InjectAtomicSize => provider::EpOption::InjectAtomicSize,
        EpOption::FirewallAddr => provider::EpOption::FirewallAddr,
        EpOption::Unknown => return None,
    })
}

fn core_direction(direction: Direction) -> provider::Direction {
    match direction {
        Direction::Tx => provider::Direction::Tx,
        Direction::Rx => provider::Direction::Rx,
    }
}

fn fid(token: FidToken) -> Fid {
    Fid(u32::try_from(token.0).unwrap_or_default())
}

fn event(event: CoreEvent) -> Event {
    match event {
        CoreEvent::ConnReq { pep, info, data } => Event::ConnReq {
            pep: fid(pep),
            info,
            data,
        },
        CoreEvent::Connected { ep, data } => Event::Connected { ep: fid(ep), data },
        CoreEvent::Shutdown { ep } => Event::Shutdown { ep: fid(ep) },
        CoreEvent::Done {
            event: CmEvent::JoinComplete,
            fid: group,
            ..
        } => Event::Joined { group: fid(group) },
        other => Event::Other(other.code()),
    }
}

impl<W: Way> Subject for Model<W> {
    fn about(&self) -> About {
        self.way.about()
    }

    fn open(&self) -> usize {
        self.table.open()
    }

    fn getinfo(&self, query: &Query) -> Result<Vec<Info>> {
        let mut request = Request {
            version: query.version.unwrap_or_default(),
            node: query.node.as_deref(),
            service: query.service.as_deref(),
            flags: query.flags,
            hints: query.hints.as_ref(),
            ..Request::default()
        };
        self.way.getinfo(&mut request, query.version.is_none())
    }

    fn fabric(&self, info: &Info) -> Result<Fid> {
        self.open_fabric(info)
    }

    fn domain(&self, fabric: Fid, info: &Info) -> Result<Fid> {
        self.open_domain(fabric, info)
    }

    fn endpoint(&self, domain: Fid, info: &Info) -> Result<Fid> {
        self.open_endpoint(domain, info)
    }

    fn shared_rx(&self, domain: Fid, info: &Info) -> Result<Fid> {
        self.open_srx(domain, info)
    }

    fn shared_tx(&self, domain: Fid, info: &Info) -> Result<Fid> {
        self.open_stx(domain, info)
    }

    fn scalable_ep(&self, domain: Fid, info: &Info) -> Result<Fid> {
        self.open_sep(domain, info)
    }

    fn context(&self, sep: Fid, direction: Direction, index: usize, info: &Info) -> Result<Fid> {
        self.open_context(sep, direction, index, info)
    }

    fn passive_ep(&self, fabric: Fid, info: &Info) -> Result<Fid> {
        self.open_pep(fabric, info)
    }

    fn eq(&self, fabric: Fid, wait: WaitObj) -> Result<Fid> {
        self.open_eq(fabric, wait)
    }

    fn cq(&self, domain: Fid, attr: CqAttr) -> Result<Fid> {
        self.open_cq(domain, attr)
    }

    fn cntr(&self, domain: Fid, wait: WaitObj) -> Result<Fid> {
        self.open_cntr(domain, wait)
    }

    fn av(&self, domain: Fid, attr: AvAttr) -> Result<Fid> {
        self.open_av(domain, attr, None)
    }

    fn av_named(&self, domain: Fid, attr: AvAttr, name: &str, read_only: bool) -> Result<Fid> {
        self.open_av(domain, attr, Some((name, read_only)))
    }

    fn close(&self, fid: Fid) -> Result<()> {
        self.do_close(fid)
    }

    fn bind(&self, fid: Fid, to: Fid, flags: Flags) -> Result<()> {
        self.do_bind(fid, to, flags)
    }

    fn enable(&self, ep: Fid) -> Result<()> {
        match self.table.get(ep)? {
            Object::Ep(ep) => of("enable", ep.enable()),
            Object::Sep(sep) => of("enable", sep.enable()),
            object => W::enable(&object),
        }
    }

    fn option(&self, ep: Fid, option: EpOption) -> Result<usize> {
        let object = self.table.get(ep)?;
        let found = match (&object, core_option(option)) {
            (Object::Ep(ep), Some(option)) => ep.option(option),
            (Object::Srx(srx), Some(option)) => srx.option(option),
            _ => return W::option(&object, option),
        };
        of("option", found)
    }

    fn set_option(&self, ep: Fid, option: EpOption, value: usize) -> Result<()> {
        let object = self.table.get(ep)?;
        let set = match (&object, core_option(option)) {
            (Object::Ep(ep), Some(option)) => ep.set_option(option, value),
            (Object::Srx(srx), Some(option)) => srx.set_option(option, value),
            _ => return W::set_option(&object, option, value),
        };
        of("set_option", set)
    }

    fn op_flags(&self, ep: Fid, direction: Direction) -> Result<Flags> {
        W::op_flags(&*self.table.ep(ep)?, core_direction(direction))
    }

    fn set_op_flags(&self, ep: Fid, direction: Direction, flags: Flags) -> Result<()> {
        let ep = self.table.ep(ep)?;
        let set = ep.set_op_flags(core_direction(direction), flags);
        of("set_op_flags", set)
    }

    fn cancel(&self, ep: Fid, token: Token) -> Result<()> {
        self.do_cancel(ep, token)
    }

    fn av_insert(&self, av: Fid, addrs: &[Address]) -> Result<Vec<FiAddr>> {
        W::av_insert(&self.table.av(av)?, addrs)
    }

    fn av_insert_as(&self, av: Fid, addr: &Address, id: FiAddr) -> Result<FiAddr> {
        of("av insert_as", self.table.av(av)?.insert_as(addr, id))
    }

    fn av_set_user_id(&self, av: Fid, addr: FiAddr, id: FiAddr) -> Result<()> {
        of("av set_user_id", self.table.av(av)?.set_user_id(addr, id))
    }

    fn av_insertsvc(&self, av: Fid, node: &str, service: Option<&str>) -> Result<FiAddr> {
        W::av_insertsvc(&*self.table.av(av)?, node, service)
    }

    fn av_insertsym(
        &self,
        av: Fid,
        node: (&str, usize),
        service: (&str, usize),
    ) -> Result<(usize, Vec<FiAddr>)> {
        W::av_insertsym(&*self.table.av(av)?, node, service)
    }

    fn av_remove(&self, av: Fid, addrs: &[FiAddr]) -> Result<()> {
        W::av_remove(&*self.table.av(av)?, addrs)
    }

    fn av_lookup(&self, av: Fid, addr: FiAddr) -> Result<Address> {
        of("av lookup", self.table.av(av)?.lookup(addr))
    }

    fn av_straddr(&self, av: Fid, addr: &Address) -> Result<String> {
        W::av_straddr(&*self.table.av(av)?, addr)
    }

    fn cq_read(&self, cq: Fid, max: usize) -> Result<Vec<Completion>> {
        let mut read = Vec::new();
        let cq = self.table.cq(cq)?.cq;
        of("cq read", cq.read(max.min(BATCH), |c| read.push(*c)))?;
        let read = read.into_iter();
        Ok(read.map(|c| self.table.completion(c, None)).collect())
    }

    fn cq_sread(&self, cq: Fid, threshold: usize, timeout: Duration) -> Result<Vec<Completion>> {
        let mut read = Vec::new();
        let queue = self.table.cq(cq)?;
        let threshold = if queue.threshold { threshold } else { 1 };
        let count = queue
            .cq
            .sread(BATCH, threshold, Some(timeout), |c| read.push(*c));
        of("cq sread", count)?;
        let read = read.into_iter();
        Ok(read.map(|c| self.table.completion(c, None)).collect())
    }

    fn cq_readerr(&self, cq: Fid) -> Result<CqError> {
        let mut read = None;
        let cq = self.table.cq(cq)?.cq;
        let entry = cq.read_error(|error, data| read = Some((*error, data.to_vec())));
        of("cq read_error", entry)?;
        let (error, err_data) = read.ok_or(Error::Missing("say what the error is"))?;
        Ok(CqError {
            entry: self.table.completion(error.entry, Some(error.err)),
            err: error.err,
            olen: error.olen,
            prov_errno: error.prov_errno,
            err_data,
        })
    }

    fn cq_signal(&self, cq: Fid) -> Result<()> {
        of("cq signal", self.table.cq(cq)?.cq.signal())
    }

    fn cntr_read(&self, cntr: Fid) -> Result<u64> {
        Ok(self.table.cntr(cntr)?.read())
    }

    fn cntr_readerr(&self, cntr: Fid) -> Result<u64> {
        Ok(self.table.cntr(cntr)?.read_error())
    }

    fn cntr_add(&self, cntr: Fid, value: u64) -> Result<()> {
        self.table.cntr(cntr)?.add(value);
        Ok(())
    }

    fn cntr_set(&self, cntr: Fid, value: u64) -> Result<()> {
        self.table.cntr(cntr)?.set(value);
        Ok(())
    }

    fn cntr_adderr(&self, cntr: Fid, value: u64) -> Result<()> {
        self.table.cntr(cntr)?.add_error(value);
        Ok(())
    }

    fn cntr_seterr(&self, cntr: Fid, value: u64) -> Result<()> {
        self.table.cntr(cntr)?.set_error(value);
        Ok(())
    }

    fn cntr_wait(&self, cntr: Fid, threshold: u64, timeout: Duration) -> Result<()> {
        let cntr = self.table.cntr(cntr)?;
        of("counter wait", cntr.wait(threshold, Some(timeout)))
    }

    fn trywait(&self, fabric: Fid, fids: &[Fid]) -> Result<()> {
        let objects = fids.iter().map(|fid| self.table.get(*fid));
        let objects = objects.collect::<Result<Vec<_>>>()?;
        W::trywait(&self.table.fabric(fabric)?, &objects)
    }

    fn poll_fd(&self, fid: Fid, timeout: Duration) -> Result<bool> {
        let object = self.table.get(fid)?;
        let fd = match &object {
            Object::Cq(o) => of("wait_fd", o.cq.wait_fd())?,
            Object::Cntr(o) => of("wait_fd", o.wait_fd())?,
            Object::Eq(o) => W::eq_fd(o)?,
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
        self.new_memory(domain, Bytes::Private(Parked::park(vec![0; len])))
    }

    fn memory_in_memfd(&self, domain: Fid, len: usize) -> Result<Fid> {
        let memory = of("memfd_create", SharedBuf::zeroed(len))?;
        self.new_memory(domain, Bytes::Shared(memory))
    }

    fn register(&self, memory: Fid, attr: &MrAttr) -> Result<Fid> {
        self.do_register(memory, attr)
    }

    fn mr_key(&self, mr: Fid) -> Result<u64> {
        match self.table.mr(mr)?.key() {
            NO_KEY => Err(refused("mr_key", Errno::ENOKEY)),
            key => Ok(key),
        }
    }

    fn memory_address(&self, memory: Fid) -> Result<u64> {
        Ok(self.table.memory(memory)?.buf().addr() as u64)
    }

    fn memory_read(&self, memory: Fid) -> Result<Vec<u8>> {
        let buf = self.table.memory(memory)?.buf();
        let mut bytes = vec![0; buf.len()];
        copy_in(&mut bytes, buf);
        Ok(bytes)
    }

    fn memory_write(&self, memory: Fid, offset: usize, bytes: &[u8]) -> Result<()> {
        let buf = self.table.memory(memory)?.buf();
        let part = buf.slice(offset, bytes.len());
        copy_out(part.ok_or(Error::Missing("write there"))?, bytes);
        Ok(())
    }

    fn inject_write(&self, ep: Fid, inject: Inject<'_>, to: Remote) -> Result<()> {
        self.do_inject_write(ep, inject, to)
    }

    fn inject_atomic(
        &self,
        ep: Fid,
        inject: Inject<'_>,
        what: (u32, u32),
        to: Remote,
    ) -> Result<()> {
        self.do_inject_atomic(ep, inject, what, to)
    }

    fn query_atomic(&self, domain: Fid, kind: AtomicKind, what: (u32, u32)) -> Result<usize> {
        W::query_atomic(&*self.table.domain(domain)?, kind, what)
    }

    fn av_set(&self, av: Fid, attr: AvSetAttr) -> Result<Fid> {
        let set = W::av_set(&self.table.av(av)?, &attr)?;
        let fid = self.table.number();
        Ok(self.table.put(fid, Object::Set(set), None, None))
    }

    fn change_set(&self, set: Fid, change: SetChange) -> Result<()> {
        let set = self.table.set(set)?;
        W::change_set(&*set, change, &|other| self.table.set(other))
    }

    fn set_addr(&self, set: Fid) -> Result<FiAddr> {
        W::set_addr(&*self.table.set(set)?)
    }

    fn join(&self, ep: Fid, set: Fid) -> Result<Fid> {
        let (endpoint, set) = (self.table.ep(ep)?, self.table.set(set)?);
        self.put_group(ep, |name| W::join(&endpoint, &set, name))
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
        W::query_collective(&*self.table.domain(domain)?, coll, what)
    }

    fn name(&self, fid: Fid) -> Result<Address> {
        let name = match self.table.get(fid)? {
            Object::Pep(pep) => pep.name(),
            Object::Ep(ep) => ep.name(),
            Object::Sep(sep) => sep.name(),
            _ => return Err(Error::Missing("name that")),
        };
        of("name", name)
    }

    fn set_name(&self, fid: Fid, addr: &Address) -> Result<()> {
        let set = match self.table.get(fid)? {
            Object::Pep(pep) => pep.set_name(addr),
            Object::Ep(ep) => ep.set_name(addr),
            _ => return Err(Error::Missing("name that")),
        };
        of("set_name", set)
    }

    fn peer(&self, ep: Fid) -> Result<Address> {
        of("peer", self.table.ep(ep)?.peer())
    }

    fn listen(&self, pep: Fid) -> Result<()> {
        of("listen", self.table.pep(pep)?.listen())
    }

    fn connect(&self, ep: Fid, addr: &Address, data: &[u8]) -> Result<()> {
        of("connect", self.table.ep(ep)?.connect(addr, data))
    }

    fn accept(&self, ep: Fid, data: &[u8]) -> Result<()> {
        of("accept", self.table.ep(ep)?.accept(data))
    }

    fn reject(&self, pep: Fid, info: &Info, data: &[u8]) -> Result<()> {
        of("reject", self.table.pep(pep)?.reject(info, data))
    }

    fn shutdown(&self, ep: Fid) -> Result<()> {
        of("shutdown", self.table.ep(ep)?.shutdown())
    }

    fn eq_read(&self, eq: Fid) -> Result<Event> {
        W::eq_read(&*self.table.eq(eq)?).map(event)
    }

    fn eq_sread(&self, eq: Fid, timeout: Duration) -> Result<Event> {
        W::eq_sread(&*self.table.eq(eq)?, timeout).map(event)
    }

    fn eq_readerr(&self, eq: Fid) -> Result<EqError> {
        let error = W::eq_readerr(&*self.table.eq(eq)?)?;
        let object = fid(error.fid);
        let known = event_token(object).is_ok() && self.table.get(object).is_ok();
        Ok(EqError {
            fid: known.then_some(object),
            err: error.err,
            data: error.err_data,
        })
    }

    fn c_edge(&self) -> Option<&dyn CEdge> {
        W::edge(self)
    }
}
