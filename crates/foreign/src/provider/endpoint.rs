//! Active endpoints.

use std::fmt;
use std::sync::{Arc, OnceLock};

use ripstop_core::provider::{
    self as model, AtomicCall, CollCall, DataCall, Direction, EpOption, JoinCall, RecvKind,
    RmaCall, SendKind, Threshold, Token,
};
use ripstop_core::{Address, EventQueue, Info};
use ripstop_mem::UserBuf;
use ripstop_types::{AtomicOp, Context, Datatype, EpType, Errno, FiAddr, Flags, Result, RmaIov};

use super::events::{Name, Pump, addr, address};
use super::{Av, Counter, Cq, Domain, Group, Missing, refuse, told};
use crate::ops::{Kind, OpId};
use crate::payload::MAX_PARTS;
use crate::threading::Lock as _;
use crate::{Atomic, Collecting, EndpointBuilder, Error, Rejected, Threading, endpoint as lib};

/// An endpoint of a library.
pub struct Endpoint<M: Threading> {
    name: M::Lock<Option<Name>>,
    /// Once it is enabled.
    ep: OnceLock<crate::Endpoint<M>>,
    /// Until then.
    builder: M::Lock<Option<EndpointBuilder<M>>>,
    pump: M::Lock<Option<Arc<Pump>>>,
    av: M::Lock<Option<Arc<Av<M>>>>,
    ep_type: EpType,
    /// The default operation flags: of transmits, and of receives.
    op_flags: M::Lock<[Flags; 2]>,
    token: Token,
    domain: Arc<Domain<M>>,
}

impl<M: Threading> fmt::Debug for Endpoint<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({:?})", self.ep_type)
    }
}

/// What posting an operation of the caller's memory has come to.
#[inline]
fn posted<P>(result: std::result::Result<OpId, Rejected<P>>) -> Result<()> {
    done(result.map(drop).map_err(Error::from))
}

#[inline]
fn done(result: crate::Result<()>) -> Result<()> {
    match result {
        Ok(()) => Ok(()),
        Err(error) if error.is_again() => Err(Errno::EAGAIN),
        Err(error) => Err(told(error)),
    }
}

/// The C value of an option.
const fn number(option: EpOption) -> i32 {
    match option {
        EpOption::MinMultiRecv => ripstop_abi::FI_OPT_MIN_MULTI_RECV,
        EpOption::CmDataSize => ripstop_abi::FI_OPT_CM_DATA_SIZE,
        EpOption::MaxMsgSize => ripstop_abi::FI_OPT_MAX_MSG_SIZE,
        EpOption::MaxTaggedSize => ripstop_abi::FI_OPT_MAX_TAGGED_SIZE,
        EpOption::MaxRmaSize => ripstop_abi::FI_OPT_MAX_RMA_SIZE,
        EpOption::MaxAtomicSize => ripstop_abi::FI_OPT_MAX_ATOMIC_SIZE,
        EpOption::InjectMsgSize => ripstop_abi::FI_OPT_INJECT_MSG_SIZE,
        EpOption::InjectTaggedSize => ripstop_abi::FI_OPT_INJECT_TAGGED_SIZE,
        EpOption::InjectRmaSize => ripstop_abi::FI_OPT_INJECT_RMA_SIZE,
        EpOption::InjectAtomicSize => ripstop_abi::FI_OPT_INJECT_ATOMIC_SIZE,
    }
}

/// Flags of a call with remote CQ data or without.
fn with_data(flags: Flags, data: Option<u64>) -> Flags {
    match data {
        Some(_) => flags | Flags::REMOTE_CQ_DATA,
        None => flags,
    }
}

impl<M: Threading> Endpoint<M> {
    pub(super) fn new(
        domain: &Arc<Domain<M>>,
        builder: EndpointBuilder<M>,
        info: &Info,
        token: Token,
    ) -> Self {
        Self {
            name: M::Lock::new(None),
            ep: OnceLock::new(),
            builder: M::Lock::new(Some(builder)),
            pump: M::Lock::new(None),
            av: M::Lock::new(None),
            ep_type: info.ep.ep_type,
            op_flags: M::Lock::new([info.tx.op_flags, info.rx.op_flags]),
            token,
            domain: domain.clone(),
        }
    }

    #[inline]
    fn ep(&self) -> Result<&crate::Endpoint<M>> {
        self.ep.get().ok_or(Errno::EOPBADSTATE)
    }

    /// Does something that only an endpoint that is not enabled takes.
    fn setup<T>(&self, f: impl FnOnce(&mut lib::EpCore<M>) -> crate::Result<T>) -> Result<T> {
        self.builder.with(|builder| match builder {
            Some(builder) => f(&mut builder.core).map_err(told),
            None => refuse(
                Errno::EINVAL,
                "the endpoint is enabled: bind to it before that",
            ),
        })
    }

    /// Does something that an endpoint takes at any time.
    fn any<T>(&self, f: impl FnOnce(&lib::EpCore<M>) -> crate::Result<T>) -> Result<T> {
        match self.ep.get() {
            Some(ep) => f(&ep.core).map_err(told),
            None => self.setup(|core| f(core)),
        }
    }

    /// Enables it, unless it is.
    fn enabled(&self) -> Result<&crate::Endpoint<M>> {
        if self.ep.get().is_none() {
            self.setup(|core| core.enable())?;
            if let Some(builder) = self.builder.with(Option::take) {
                // Whoever else enables it finds no builder.
                drop(self.ep.set(builder.enabled()));
            }
        }
        self.ep()
    }

    fn flags(&self, direction: Direction) -> Flags {
        self.op_flags.with(|flags| flags[direction as usize])
    }

    fn recv_with(
        &self,
        kind: RecvKind,
        iov: &[UserBuf],
        src: FiAddr,
        context: Context,
        flags: Flags,
    ) -> Result<()> {
        let (ep, token) = (self.ep()?, context as u64);
        if flags.contains(Flags::CLAIM) {
            return refuse(
                Errno::ENOSYS,
                "FI_CLAIM needs memory at its context: receive the message, or discard it",
            );
        }
        let ends = match flags.contains(Flags::MULTI_RECV) {
            true => Kind::Multi,
            false => Kind::Plain,
        };
        match kind {
            RecvKind::Tagged { tag, ignore } if flags.contains(Flags::PEEK) => {
                done(ep.tpeek(src, tag, ignore, flags, token).map(drop))
            }
            RecvKind::Tagged { tag, ignore } => {
                posted(ep.trecvmsg(iov, src, tag, ignore, flags, token))
            }
            RecvKind::Msg => posted(ep.post_recvmsg(ends, iov, src, flags, token)),
        }
    }

    fn rma(&self, direction: crate::Direction, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()> {
        let flags = call.flags.unwrap_or_else(|| self.flags(Direction::Tx));
        let flags = with_data(flags, call.data);
        let (data, token) = (call.data.unwrap_or(0), call.context as u64);
        let ep = self.ep()?;
        posted(ep.rmamsg(direction, iov, call.peer, call.remote, (data, flags), token))
    }
}

impl<M: Threading> model::Endpoint for Endpoint<M> {
    type Domain = Domain<M>;

    fn ep_type(&self) -> EpType {
        self.ep_type
    }

    fn bind_cq(&self, cq: &Arc<Cq<M>>, flags: Flags) -> Result<()> {
        self.setup(|core| core.bind_cq(cq.queue(), flags))
    }

    fn bind_counter(&self, counter: &Arc<Counter<M>>, flags: Flags) -> Result<()> {
        self.setup(|core| core.bind_cntr(counter.cntr(), flags))
    }

    fn bind_av(&self, av: &Arc<Av<M>>) -> Result<()> {
        self.setup(|core| core.bind_av(av.vector()))?;
        self.av.with(|bound| *bound = Some(av.clone()));
        Ok(())
    }

    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()> {
        let pump = self.domain.fabric().pump(eq)?;
        let name = self.setup(|core| {
            let id = core.id();
            core.bind_eq(pump.queue())?;
            Ok(pump.name((self.token, 0), || Ok((id, ()))))
        })?;
        self.name
            .with(|to| name.map(|(name, ())| *to = Some(name)))?;
        self.pump.with(|to| *to = Some(pump));
        Ok(())
    }

    fn bind_srx(&self, srx: &Arc<Missing<M>>) -> Result<()> {
        srx.never()
    }

    fn bind_peer_rx(&self, rx: &Arc<Missing<M>>) -> Result<()> {
        rx.never()
    }

    fn bind_stx(&self, stx: &Arc<Missing<M>>) -> Result<()> {
        stx.never()
    }

    fn enable(&self) -> Result<()> {
        self.enabled().map(drop)
    }

    fn name(&self) -> Result<Address> {
        let name = self.any(lib::EpCore::getname)?;
        address(self.domain.format(), &name)
    }

    fn set_name(&self, address: &Address) -> Result<()> {
        self.any(|core| core.setname(&addr(address)))
    }

    fn peer(&self) -> Result<Address> {
        let peer = self.ep()?.getpeer().map_err(told)?;
        address(self.domain.format(), &peer)
    }

    fn connect(&self, address: &Address, data: &[u8]) -> Result<()> {
        self.enabled()?.connect(&addr(address), data).map_err(told)
    }

    fn accept(&self, data: &[u8]) -> Result<()> {
        self.enabled()?.accept(data).map_err(told)
    }

    fn shutdown(&self) -> Result<()> {
        self.ep()?.shutdown().map_err(told)
    }

    fn option(&self, option: EpOption) -> Result<usize> {
        let bytes = self.any(|core| core.getopt(number(option), size_of::<usize>()))?;
        let bytes = bytes.try_into().map_err(|_| Errno::ENOPROTOOPT)?;
        Ok(usize::from_ne_bytes(bytes))
    }

    fn set_option(&self, option: EpOption, value: usize) -> Result<()> {
        self.any(|core| core.setopt(number(option), &value.to_ne_bytes()))
    }

    fn op_flags(&self, direction: Direction) -> Flags {
        self.flags(direction)
    }

    fn set_op_flags(&self, direction: Direction, flags: Flags) -> Result<()> {
        let transmit = direction == Direction::Tx;
        self.ep()?.set_op_flags(transmit, flags).map_err(told)?;
        self.op_flags.with(|all| all[direction as usize] = flags);
        Ok(())
    }

    #[inline]
    fn send(
        &self,
        kind: SendKind,
        iov: &[UserBuf],
        data: Option<u64>,
        dest: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        let (ep, token) = (self.ep()?, context as u64);
        if let ([buf], None) = (iov, flags) {
            return match (kind, data) {
                (SendKind::Msg, None) => posted(ep.send(*buf, dest, token)),
                (SendKind::Msg, Some(data)) => posted(ep.senddata(*buf, data, dest, token)),
                (SendKind::Tagged(tag), None) => posted(ep.tsend(*buf, dest, tag, token)),
                (SendKind::Tagged(tag), Some(data)) => {
                    posted(ep.tsenddata(*buf, data, dest, tag, token))
                }
            };
        }
        let flags = flags.unwrap_or_else(|| self.flags(Direction::Tx));
        let (flags, data) = (with_data(flags, data), data.unwrap_or(0));
        match kind {
            SendKind::Msg => posted(ep.sendmsg(iov, dest, data, flags, token)),
            SendKind::Tagged(tag) => posted(ep.tsendmsg(iov, dest, tag, data, flags, token)),
        }
    }

    // With the kind known, one call is left of it.
    #[inline(always)]
    fn inject(&self, kind: SendKind, buf: UserBuf, data: Option<u64>, dest: FiAddr) -> Result<()> {
        let ep = self.ep()?;
        done(match (kind, data) {
            (SendKind::Msg, None) => ep.inject_from(buf, dest),
            (SendKind::Msg, Some(data)) => ep.injectdata_from(buf, data, dest),
            (SendKind::Tagged(tag), None) => ep.tinject_from(buf, dest, tag),
            (SendKind::Tagged(tag), Some(data)) => ep.tinjectdata_from(buf, data, dest, tag),
        })
    }

    #[inline]
    fn recv(
        &self,
        kind: RecvKind,
        iov: &[UserBuf],
        src: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        let token = context as u64;
        match (iov, flags, kind) {
            ([buf], None, RecvKind::Msg) => posted(self.ep()?.recv(*buf, src, token)),
            ([buf], None, RecvKind::Tagged { tag, ignore }) => {
                posted(self.ep()?.trecv(*buf, src, tag, ignore, token))
            }
            _ => {
                let flags = flags.unwrap_or_else(|| self.flags(Direction::Rx));
                self.recv_with(kind, iov, src, context, flags)
            }
        }
    }

    #[inline]
    fn read(&self, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()> {
        match (iov, call.remote, call.flags) {
            ([buf], [remote], None) if buf.len() as u64 == remote.len => {
                let token = call.context as u64;
                posted(
                    self.ep()?
                        .read(*buf, call.peer, remote.addr, remote.key, token),
                )
            }
            _ => self.rma(crate::Direction::Read, iov, call),
        }
    }

    #[inline]
    fn write(&self, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()> {
        match (iov, call.remote, call.flags, call.data) {
            ([buf], [remote], None, None) if buf.len() as u64 == remote.len => {
                let token = call.context as u64;
                posted(
                    self.ep()?
                        .write(*buf, call.peer, remote.addr, remote.key, token),
                )
            }
            _ => self.rma(crate::Direction::Write, iov, call),
        }
    }

    #[inline]
    fn inject_write(
        &self,
        buf: UserBuf,
        remote: RmaIov,
        data: Option<u64>,
        peer: FiAddr,
    ) -> Result<()> {
        let (ep, RmaIov { addr, key, .. }) = (self.ep()?, remote);
        done(match data {
            None => ep.inject_write_from(buf, peer, addr, key),
            Some(data) => ep.inject_writedata_from(buf, data, peer, addr, key),
        })
    }

    fn atomic(&self, operand: &[UserBuf], call: &AtomicCall<'_>) -> Result<()> {
        let groups = [operand, call.compare, call.result];
        let mut bufs = [UserBuf::EMPTY; MAX_PARTS];
        let mut given = 0;
        for buf in groups.into_iter().flatten() {
            *bufs.get_mut(given).ok_or(Errno::EINVAL)? = *buf;
            given += 1;
        }
        let flags = match (call.flags, call.data) {
            (None, None) => None,
            (flags, data) => {
                let flags = flags.unwrap_or_else(|| self.flags(Direction::Tx));
                Some(with_data(flags, data))
            }
        };
        let asked = Atomic {
            kind: call.kind,
            datatype: call.datatype.number(),
            op: call.op.number(),
            shape: groups.map(<[UserBuf]>::len),
            remote: call.remote,
            peer: call.peer,
            data: call.data.unwrap_or(0),
            flags,
        };
        posted(
            self.ep()?
                .atomic(&bufs[..given], &asked, call.context as u64),
        )
    }

    fn inject_atomic(
        &self,
        operand: UserBuf,
        datatype: Datatype,
        op: AtomicOp,
        remote: RmaIov,
        peer: FiAddr,
    ) -> Result<()> {
        let (what, ep) = ((datatype.number(), op.number()), self.ep()?);
        done(ep.inject_atomic_from(operand, what, peer, remote.addr, remote.key))
    }

    fn join(self: &Arc<Self>, call: &JoinCall<'_>, token: Token) -> Result<Arc<Group<M>>> {
        let ep = self.ep()?;
        let (pump, av) = (self.pump.with(|p| p.clone()), self.av.with(|a| a.clone()));
        let Some(pump) = pump else {
            return refuse(
                Errno::ENOEQ,
                "fi_join_collective: bind an event queue first",
            );
        };
        let Some(av) = av else {
            return refuse(
                Errno::ENOAV,
                "fi_join_collective: bind an address vector first",
            );
        };
        let set = av.set(call.members, call.operations).map_err(told)?;
        let join = || {
            let group = ep.join(&set, set.addr()?, Flags::empty())?;
            Ok((group.id(), group))
        };
        let (name, group) = pump.name((token, call.context), join)?;
        Ok(Arc::new(Group::new(name, group, set)))
    }

    fn group_size(&self, group: FiAddr) -> Result<usize> {
        self.ep()?.known_group(group).ok_or(Errno::EINVAL)
    }

    fn collective(&self, input: UserBuf, result: UserBuf, call: &CollCall) -> Result<()> {
        let asked = Collecting {
            coll: call.coll,
            datatype: call.datatype.number(),
            op: call.op.number(),
            count: call.count,
            group: call.group,
            root: call.root,
            flags: call.flags.unwrap_or_default(),
        };
        let (pair, token) = ([input, result], call.context as u64);
        posted(self.ep()?.collective_from(&pair[..], &asked, None, token))
    }

    fn trigger(&self, _: &DataCall<'_>, _: Threshold<'_, Domain<M>>) -> Result<()> {
        refuse(Errno::EOPNOTSUPP, "FI_TRIGGER: post the operation itself")
    }

    fn cancel(&self, context: Context) -> Result<()> {
        // That it has ended is an answer.
        self.ep()?
            .cancel_token(context as u64)
            .map_err(|error| error.errno)
    }
}
