//! Active endpoints.

use std::sync::Arc;

use ripstop_core::av::set::{AvSetAttr, UNIVERSE};
use ripstop_core::provider::{
    self as model, AtomicCall, CollCall, DataCall, Direction, EpOption, JoinCall, RecvKind,
    RmaCall, SendKind, Threshold, Token,
};
use ripstop_core::{Address, EventQueue};
use ripstop_mem::UserBuf;
use ripstop_types::{AtomicOp, Context, Datatype, EpType, Errno, FiAddr, Flags, Result, RmaIov};

use super::{Missing, refuse, told};
use crate::object::Object;
use crate::object::endpoint::{getopt, number, setopt};
use crate::threading::{Lock as _, Threading};
use crate::{Addr, Atomic, Av, Counter, Cq, Domain, Endpoint, Error, Group, SharedRx, SharedTx};

/// What posting an operation has come to.
#[inline]
fn posted(result: crate::Result<()>) -> Result<()> {
    match result {
        Ok(()) => Ok(()),
        Err(error) => Err(refused(error)),
    }
}

#[cold]
fn refused(error: Error) -> Errno {
    match error.is_again() {
        true => Errno::EAGAIN,
        false => told(error),
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
    fn recv_with(
        &self,
        kind: RecvKind,
        iov: &[UserBuf],
        src: FiAddr,
        context: Context,
        flags: Flags,
    ) -> Result<()> {
        if flags.contains(Flags::CLAIM) && self.domain().unbooked {
            return refuse(
                Errno::ENOSYS,
                "FI_CLAIM needs memory at its context: receive the message, or discard it",
            );
        }
        posted(match kind {
            RecvKind::Tagged { tag, ignore } => {
                self.trecvmsg(iov, (tag, ignore), flags, src, context)
            }
            RecvKind::Msg => self.recvmsg(iov, src, flags, context),
        })
    }

    /// A read or write that the plainest call cannot say.
    fn rma(&self, reads: bool, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()> {
        posted(match (call.remote, call.flags, call.data) {
            ([place], None, None) => self.rmav(reads, iov, *place, call.peer, call.context),
            (_, flags, data) => {
                let flags = flags.unwrap_or_else(|| self.default_flags(Direction::Tx));
                self.rmamsg(reads, iov, call, with_data(flags, data))
            }
        })
    }
}

impl<M: Threading> model::Endpoint for Endpoint<M> {
    type Domain = Domain<M>;

    fn ep_type(&self) -> EpType {
        self.ep_type
    }

    fn bind_cq(&self, cq: &Arc<Cq<M>>, flags: Flags) -> Result<()> {
        self.bind(Object::Cq(cq.clone()), flags).map_err(told)
    }

    fn bind_counter(&self, counter: &Arc<Counter<M>>, flags: Flags) -> Result<()> {
        let counter = Object::Counter(counter.clone());
        self.bind(counter, flags).map_err(told)
    }

    fn bind_av(&self, av: &Arc<Av<M>>) -> Result<()> {
        let to = Object::Av(av.clone());
        self.bind(to, Flags::empty()).map_err(told)?;
        self.av.with(|bound| *bound = Some(av.clone()));
        Ok(())
    }

    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()> {
        let pump = self.domain().fabric().pump(eq)?;
        self.bind_own_eq(pump.queue()).map_err(told)?;
        self.pump.with(|to| *to = Some(pump));
        Ok(())
    }

    fn bind_srx(&self, srx: &Arc<SharedRx<M>>) -> Result<()> {
        let to = Object::SharedRx(srx.clone());
        self.bind(to, Flags::empty()).map_err(told)
    }

    fn bind_peer_rx(&self, rx: &Arc<Missing<M>>) -> Result<()> {
        rx.never()
    }

    fn bind_stx(&self, stx: &Arc<SharedTx<M>>) -> Result<()> {
        let to = Object::SharedTx(stx.clone());
        self.bind(to, Flags::empty()).map_err(told)
    }

    fn enable(&self) -> Result<()> {
        self.start().map_err(told)
    }

    fn name(&self) -> Result<Address> {
        let format = self.domain().format();
        let name = self.getname().and_then(|name| name.address(format));
        name.map_err(told)
    }

    fn set_name(&self, address: &Address) -> Result<()> {
        self.setname(&Addr::from(address)).map_err(told)
    }

    fn peer(&self) -> Result<Address> {
        let format = self.domain().format();
        let peer = self.getpeer().and_then(|peer| peer.address(format));
        peer.map_err(told)
    }

    fn connect(&self, address: &Address, data: &[u8]) -> Result<()> {
        let to = Addr::from(address);
        self.start_connecting(&to, data).map_err(told)
    }

    fn accept(&self, data: &[u8]) -> Result<()> {
        self.start_accepting(data).map_err(told)
    }

    fn shutdown(&self) -> Result<()> {
        self.disconnect().map_err(told)
    }

    fn option(&self, option: EpOption) -> Result<usize> {
        let len = size_of::<usize>();
        let bytes = getopt(self.ops(), self.owned.fid(), number(option), len);
        let bytes = bytes.map_err(told)?.try_into();
        Ok(usize::from_ne_bytes(bytes.map_err(|_| Errno::ENOPROTOOPT)?))
    }

    fn set_option(&self, option: EpOption, value: usize) -> Result<()> {
        let (fid, value) = (self.owned.fid(), value.to_ne_bytes());
        setopt(self.ops(), fid, number(option), &value).map_err(told)
    }

    fn op_flags(&self, direction: Direction) -> Flags {
        let said = self.own_flags(direction);
        said.unwrap_or_else(|_| self.default_flags(direction))
    }

    fn set_op_flags(&self, direction: Direction, flags: Flags) -> Result<()> {
        self.set_flags(direction, flags).map_err(told)
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
        if let ([buf], None) = (iov, flags) {
            return posted(match kind {
                SendKind::Msg => self.send_one(*buf, data, dest, context),
                SendKind::Tagged(tag) => self.tsend_one(*buf, tag, data, dest, context),
            });
        }
        let flags = flags.unwrap_or_else(|| self.default_flags(Direction::Tx));
        let (flags, data) = (with_data(flags, data), data.unwrap_or(0));
        posted(match kind {
            SendKind::Msg => self.sendmsg(iov, dest, data, flags, context),
            SendKind::Tagged(tag) => self.tsendmsg(iov, tag, (data, flags), dest, context),
        })
    }

    // With the kind known, one call is left of it.
    #[inline(always)]
    fn inject(&self, kind: SendKind, buf: UserBuf, data: Option<u64>, dest: FiAddr) -> Result<()> {
        posted(match kind {
            SendKind::Msg => self.inject_one(buf, data, dest),
            SendKind::Tagged(tag) => self.tinject_one(buf, tag, data, dest),
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
        match (iov, flags, kind) {
            ([buf], None, RecvKind::Msg) => posted(self.recv_one(*buf, src, context)),
            ([buf], None, RecvKind::Tagged { tag, ignore }) => {
                posted(self.trecv_one(*buf, (tag, ignore), src, context))
            }
            _ => {
                let flags = flags.unwrap_or_else(|| self.default_flags(Direction::Rx));
                self.recv_with(kind, iov, src, context, flags)
            }
        }
    }

    #[inline]
    fn read(&self, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()> {
        match (iov, call.remote, call.flags) {
            ([buf], [remote], None) if buf.len() as u64 == remote.len => {
                posted(self.read_one(*buf, *remote, call.peer, call.context))
            }
            _ => self.rma(true, iov, call),
        }
    }

    #[inline]
    fn write(&self, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()> {
        match (iov, call.remote, call.flags) {
            ([buf], [remote], None) if buf.len() as u64 == remote.len => {
                posted(self.write_one(*buf, call.data, *remote, call.peer, call.context))
            }
            _ => self.rma(false, iov, call),
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
        posted(self.inject_write_one(buf, data, remote, peer))
    }

    fn atomic(&self, operand: &[UserBuf], call: &AtomicCall<'_>) -> Result<()> {
        let mut asked = Atomic::from(call);
        if let (None, Some(_)) = (call.flags, call.data) {
            let flags = self.default_flags(Direction::Tx);
            asked.flags = Some(with_data(flags, call.data));
        }
        let groups = [operand, call.compare, call.result];
        posted(self.atomic_by_number(groups, &asked))
    }

    fn inject_atomic(
        &self,
        operand: UserBuf,
        datatype: Datatype,
        op: AtomicOp,
        remote: RmaIov,
        peer: FiAddr,
    ) -> Result<()> {
        let what = (datatype.number(), op.number());
        posted(self.inject_atomic_by_number(operand, what, remote, peer))
    }

    fn join(self: &Arc<Self>, call: &JoinCall<'_>, token: Token) -> Result<Arc<Group<M>>> {
        if self.name.with(|name| name.is_none()) {
            return refuse(
                Errno::ENOEQ,
                "fi_join_collective: bind an event queue first",
            );
        }
        let Some(av) = self.av.with(|av| av.clone()) else {
            return refuse(
                Errno::ENOAV,
                "fi_join_collective: bind an address vector first",
            );
        };
        let all = call.members == av.all();
        let universe = if all { UNIVERSE } else { Flags::empty() };
        let attr = AvSetAttr {
            count: call.members.len(),
            start: FiAddr::NOTAVAIL,
            end: FiAddr::NOTAVAIL,
            stride: 0,
            comm_key: false,
            flags: call.operations | universe,
        };
        let join = || {
            let set = av.set(&attr)?;
            if !all {
                call.members.iter().try_for_each(|peer| set.insert(*peer))?;
            }
            let at = (set.addr()?, Flags::empty());
            let mut group = self.join_set(&set, at, (token, call.context))?;
            group.set = Some(set);
            Ok(Arc::new(group))
        };
        join().map_err(told)
    }

    fn group_size(&self, group: FiAddr) -> Result<usize> {
        self.known_group(group).ok_or(Errno::EINVAL)
    }

    fn collective(&self, input: UserBuf, result: UserBuf, call: &CollCall) -> Result<()> {
        posted(self.start_collective([input, result], &call.into(), None))
    }

    fn trigger(&self, call: &DataCall<'_>, when: Threshold<'_, Domain<M>>) -> Result<()> {
        posted(self.post_triggered(call, when))
    }

    fn cancel(&self, context: Context) -> Result<()> {
        // That it has ended is an answer.
        self.cancel_one(context).map_err(|error| error.errno)
    }
}
