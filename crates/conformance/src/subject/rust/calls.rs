use std::time::Duration;

use ripstop_core::av::Symmetric;
use ripstop_core::eq::Event as CoreEvent;
use ripstop_core::hints::Request;
use ripstop_core::provider::{
    self, AddressVector, CompletionQueue, Counter, Domain, Endpoint, Group, MemoryRegion,
    PassiveEp, Provider, ScalableEp, SharedRx,
};
use ripstop_core::registry::registry;
use ripstop_core::{Address, FidToken, Info};
use ripstop_mem::{Parked, copy_in, copy_out};
use ripstop_os::SharedBuf;
use ripstop_types::{
    AddrFormat, AtomicKind, CmEvent, Collective, Errno, FiAddr, Flags, Version, WaitObj,
};
use rustix::event::{PollFd, PollFlags, poll};

use super::atomic;
use super::open::event_token;
use super::table::{Bytes, Object};
use super::{Kind, Rust, of, refused};
use crate::subject::{
    About, AvAttr, AvSetAttr, Claimed, Coll, CollLimit, Completion, CqAttr, CqError, Direction,
    EpOption, EqError, Error, Event, Fid, Inject, MrAttr, Post, Query, Remote, Result, SetChange,
    Subject, Token, When, WorkId, WorkOp, timespec,
};

/// Entries a read takes at most.
const BATCH: usize = 16;

/// Bytes of connection data that fit.
const CM_DATA: usize = 256;

fn core_option(option: EpOption) -> Result<provider::EpOption> {
    match option {
        EpOption::MinMultiRecv => Ok(provider::EpOption::MinMultiRecv),
        EpOption::CmDataSize => Ok(provider::EpOption::CmDataSize),
        EpOption::MaxMsgSize => Ok(provider::EpOption::MaxMsgSize),
        EpOption::InjectMsgSize => Ok(provider::EpOption::InjectMsgSize),
        EpOption::MaxAtomicSize => Ok(provider::EpOption::MaxAtomicSize),
        EpOption::InjectAtomicSize => Ok(provider::EpOption::InjectAtomicSize),
        EpOption::Unknown => Err(Error::Missing("name an unknown option")),
    }
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

impl<P: Provider, K: Kind<P::Fabric>> Rust<P, K> {
    /// Inserts the addresses of a pattern: how many went in, and what each is called.
    fn insert_pattern(&self, av: Fid, pattern: &Symmetric<'_>) -> Result<(usize, Vec<FiAddr>)> {
        let av = self.table.av(av)?;
        let mut addresses = of("av insert", pattern.addresses())?;
        let (mut inserted, mut found) = (0, Vec::new());
        av.insert_ip(&mut addresses, &mut |outcome| {
            inserted += usize::from(outcome.is_ok());
            found.push(outcome.unwrap_or(FiAddr::NOTAVAIL));
        });
        Ok((inserted, found))
    }
}

impl<P: Provider, K: Kind<P::Fabric>> Subject for Rust<P, K> {
    fn about(&self) -> About {
        About {
            name: "rust".to_owned(),
            version: Version::CURRENT,
        }
    }

    fn getinfo(&self, query: &Query) -> Result<Vec<Info>> {
        let request = Request {
            version: query.version.unwrap_or(Version::CURRENT),
            node: query.node.as_deref(),
            service: query.service.as_deref(),
            flags: query.flags,
            hints: query.hints.as_ref(),
        };
        let found = registry().getinfo(&request);
        found.map_err(|none| refused("getinfo", none.errno))
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

    fn context(&self, sep: Fid, direction: Direction, index: usize, _info: &Info) -> Result<Fid> {
        self.open_context(sep, direction, index)
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
            // A shared context is in use as soon as it is open.
            Object::Srx(_) => Ok(()),
            Object::Ep(ep) => of("enable", ep.enable()),
            Object::Sep(sep) => of("enable", sep.enable()),
            _ => Err(Error::Missing("enable that")),
        }
    }

    fn option(&self, ep: Fid, option: EpOption) -> Result<usize> {
        let option = core_option(option)?;
        let found = match self.table.get(ep)? {
            Object::Ep(ep) => ep.option(option),
            Object::Srx(srx) => srx.option(option),
            // The bound that `PassiveEp::reject` names.
            Object::Pep(_) if option == provider::EpOption::CmDataSize => Ok(CM_DATA),
            _ => return Err(Error::Missing("read an option of that")),
        };
        of("option", found)
    }

    fn set_option(&self, ep: Fid, option: EpOption, value: usize) -> Result<()> {
        let option = core_option(option)?;
        let set = match self.table.get(ep)? {
            Object::Ep(ep) => ep.set_option(option, value),
            Object::Srx(srx) => srx.set_option(option, value),
            _ => return Err(Error::Missing("set an option of that")),
        };
        of("set_option", set)
    }

    fn op_flags(&self, ep: Fid, direction: Direction) -> Result<Flags> {
        Ok(self.table.ep(ep)?.op_flags(core_direction(direction)))
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
        let av = self.table.av(av)?;
        let one = |addr| av.insert(addr).unwrap_or(FiAddr::NOTAVAIL);
        Ok(addrs.iter().map(one).collect())
    }

    fn av_insert_as(&self, av: Fid, addr: &Address, id: FiAddr) -> Result<FiAddr> {
        of("av insert_as", self.table.av(av)?.insert_as(addr, id))
    }

    fn av_set_user_id(&self, av: Fid, addr: FiAddr, id: FiAddr) -> Result<()> {
        of("av set_user_id", self.table.av(av)?.set_user_id(addr, id))
    }

    fn av_insertsvc(&self, av: Fid, node: &str, service: Option<&str>) -> Result<FiAddr> {
        // Refused where addresses are those of IP.
        let string = Address::string(Some(node), service);
        if let Ok(addr) = self.table.av(av)?.insert(&string) {
            return Ok(addr);
        }
        let service = service.ok_or(refused("av insert", Errno::EINVAL))?;
        let (_, found) = self.av_insertsym(av, (node, 1), (service, 1))?;
        match found[..] {
            [addr] if addr.is_specified() => Ok(addr),
            _ => Err(refused("av insert", Errno::EINVAL)),
        }
    }

    fn av_insertsym(
        &self,
        av: Fid,
        (node, nodes): (&str, usize),
        (service, services): (&str, usize),
    ) -> Result<(usize, Vec<FiAddr>)> {
        let pattern = Symmetric {
            node,
            nodes,
            service,
            services,
            format: AddrFormat::Sockaddr,
        };
        self.insert_pattern(av, &pattern)
    }

    fn av_remove(&self, av: Fid, addrs: &[FiAddr]) -> Result<()> {
        let av = self.table.av(av)?;
        let mut outcome = Ok(());
        for addr in addrs.iter().rev() {
            outcome = outcome.and(of("av remove", av.remove(*addr)));
        }
        outcome
    }

    fn av_lookup(&self, av: Fid, addr: FiAddr) -> Result<Address> {
        of("av lookup", self.table.av(av)?.lookup(addr))
    }

    fn av_straddr(&self, _av: Fid, addr: &Address) -> Result<String> {
        Ok(addr.to_string())
    }

    fn cq_read(&self, cq: Fid, max: usize) -> Result<Vec<Completion>> {
        let mut read = Vec::new();
        let cq = self.table.cq(cq)?.cq;
        of("cq read", cq.read(max.min(BATCH), |c| read.push(*c)))?;
        let read = read.into_iter();
        Ok(read.map(|c| self.table.completion(c, false)).collect())
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
        Ok(read.map(|c| self.table.completion(c, false)).collect())
    }

    fn cq_readerr(&self, cq: Fid) -> Result<CqError> {
        let mut read = None;
        let cq = self.table.cq(cq)?.cq;
        let entry = cq.read_error(|error, data| read = Some((*error, data.to_vec())));
        of("cq read_error", entry)?;
        let (error, err_data) = read.ok_or(Error::Missing("say what the error is"))?;
        Ok(CqError {
            entry: self.table.completion(error.entry, true),
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

    fn trywait(&self, _fabric: Fid, fids: &[Fid]) -> Result<()> {
        for fid in fids {
            let ready = match self.table.get(*fid)? {
                Object::Cq(o) => o.cq.try_wait(),
                Object::Eq(o) => o.try_wait(),
                Object::Cntr(o) => o.try_wait(),
                _ => return Err(Error::Missing("wait on that")),
            };
            of("try_wait", ready)?;
        }
        Ok(())
    }

    fn poll_fd(&self, fid: Fid, timeout: Duration) -> Result<bool> {
        let object = self.table.get(fid)?;
        let fd = match &object {
            Object::Cq(o) => o.cq.wait_fd(),
            Object::Eq(o) => o.wait_fd(),
            Object::Cntr(o) => o.wait_fd(),
            _ => return Err(Error::Missing("give the descriptor of that")),
        };
        let mut fds = [PollFd::from_borrowed_fd(of("wait_fd", fd)?, PollFlags::IN)];
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
        Ok(self.table.mr(mr)?.key())
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
        let domain = self.table.domain(domain)?;
        let (datatype, op) = atomic::known(what)?;
        let limit = domain.atomic_limit(kind, datatype, op);
        of("atomic_limit", limit)
    }

    fn av_set(&self, av: Fid, attr: AvSetAttr) -> Result<Fid> {
        self.do_av_set(av, &attr)
    }

    fn change_set(&self, set: Fid, change: SetChange) -> Result<()> {
        self.do_change_set(set, change)
    }

    fn set_addr(&self, set: Fid) -> Result<FiAddr> {
        Ok(self.table.set(set)?.set.addr())
    }

    fn join(&self, ep: Fid, set: Fid) -> Result<Fid> {
        self.do_join(ep, set)
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
        self.do_query_collective(domain, coll, what)
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
        of("eq read", self.table.eq(eq)?.read()).map(event)
    }

    fn eq_sread(&self, eq: Fid, timeout: Duration) -> Result<Event> {
        of("eq sread", self.table.eq(eq)?.sread(Some(timeout))).map(event)
    }

    fn eq_readerr(&self, eq: Fid) -> Result<EqError> {
        let error = of("eq read_error", self.table.eq(eq)?.read_error(true))?;
        let object = fid(error.fid);
        let known = event_token(object).is_ok() && self.table.get(object).is_ok();
        Ok(EqError {
            fid: known.then_some(object),
            err: error.err,
            data: error.err_data,
        })
    }
}
