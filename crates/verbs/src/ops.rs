//! The calls of endpoints.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ripstop_core::eq::EventQueue;
use ripstop_core::log::Subsys;
use ripstop_core::provider::{
    self, AtomicCall, CollCall, DataCall, Direction, EpOption, JoinCall, RecvKind, RmaCall,
    SendKind, Threshold, Token, same_domain,
};
use ripstop_core::{Address, ProgressSource, fi_warn};
use ripstop_ibverbs::{Operation, Remote};
use ripstop_mem::UserBuf;
use ripstop_types::{
    AtomicKind, AtomicOp, Context, Datatype, EpType, Errno, FiAddr, Flags, Result, RmaIov, flags,
};

use crate::atomic;
use crate::call::has_no_tags;
use crate::counter::Counter;
use crate::cq::Cq;
use crate::dgram::Av;
use crate::domain::Domain;
use crate::endpoint::{Bound, Endpoint};
use crate::link::Link;
use crate::none::{NoGroup, NoPeerRx, NoSharedTx};
use crate::params::NAME;
use crate::passive::ip;
use crate::post::{Sending, flags_of};
use crate::private_data;
use crate::shared_rx::SharedRx;

/// Flags that an endpoint may have as its default for sends, and for receives.
const TX_FLAGS: Flags = flags![INJECT INJECT_COMPLETE TRANSMIT_COMPLETE COMPLETION];
const RX_FLAGS: Flags = Flags::COMPLETION;

/// The peer's memory of a call, which is one piece.
fn remote(pieces: &[RmaIov], iov: &[UserBuf]) -> Result<Remote> {
    let [piece] = pieces else {
        return Err(Errno::EINVAL);
    };
    let len: u64 = iov.iter().map(|buf| buf.len() as u64).sum();
    if piece.len != len {
        return Err(Errno::EINVAL);
    }
    let key = u32::try_from(piece.key).map_err(|_| {
        fi_warn!(
            NAME,
            Subsys::EpData,
            "the key {:#x} is none of this provider, whose keys have 32 bits (mr_key_size)",
            piece.key
        );
        Errno::EINVAL
    })?;
    Ok(Remote {
        addr: piece.addr,
        key,
    })
}

/// Remote CQ data as the wire has it.
fn immediate(data: Option<u64>) -> Result<Option<u32>> {
    let fits = |data| {
        u32::try_from(data).map_err(|_| {
            fi_warn!(
                NAME,
                Subsys::EpData,
                "remote CQ data has 32 bits here (cq_data_size); {data:#x} does not fit"
            );
            Errno::EINVAL
        })
    };
    data.map(fits).transpose()
}

/// A message that is not tagged.
fn untagged(kind: SendKind) -> Result<()> {
    match kind {
        SendKind::Msg => Ok(()),
        SendKind::Tagged(_) => Err(has_no_tags()),
    }
}

impl Endpoint {
    /// What can be changed until the endpoint is enabled.
    fn unfinished(&self) -> Result<parking_lot::MutexGuard<'_, Bound>> {
        let bound = self.bound.lock();
        match self.live.get() {
            None => Ok(bound),
            Some(_) => Err(Errno::EOPBADSTATE),
        }
    }
}

impl provider::Endpoint for Endpoint {
    type Domain = Domain;

    fn ep_type(&self) -> EpType {
        self.info.ep.ep_type
    }

    fn bind_cq(&self, cq: &Arc<Cq>, flags: Flags) -> Result<()> {
        const KNOWN: Flags = flags![SEND RECV SELECTIVE_COMPLETION];
        if !KNOWN.contains(flags) {
            return Err(Errno::EBADFLAGS);
        }
        let (tx, rx) = (flags.contains(Flags::SEND), flags.contains(Flags::RECV));
        if !tx && !rx {
            return Err(Errno::EINVAL);
        }
        same_domain(NAME, "the completion queue", &self.domain, &cq.domain)?;
        let mut bound = self.unfinished()?;
        if tx && bound.tx_cq.is_some() || rx && bound.rx_cq.is_some() {
            return Err(Errno::EINVAL);
        }
        let selective = flags.contains(Flags::SELECTIVE_COMPLETION);
        if tx {
            bound.tx_cq = Some(Arc::clone(cq));
            bound.tx_selective = selective;
        }
        if rx {
            bound.rx_cq = Some(Arc::clone(cq));
            bound.rx_selective = selective;
        }
        Ok(())
    }

    fn bind_counter(&self, counter: &Arc<Counter>, flags: Flags) -> Result<()> {
        const KNOWN: Flags = flags![SEND RECV READ WRITE REMOTE_READ REMOTE_WRITE];
        if !KNOWN.contains(flags) || flags.is_empty() {
            return Err(Errno::EBADFLAGS);
        }
        same_domain(NAME, "the counter", &self.domain, &counter.domain)?;
        self.unfinished()?.counting.bind(counter, flags)
    }

    fn bind_av(&self, av: &Arc<Av>) -> Result<()> {
        let datagrams = self.link.datagrams()?;
        same_domain(NAME, "the address vector", &self.domain, &av.domain)?;
        let _unfinished = self.unfinished()?;
        datagrams.bind(av)
    }

    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()> {
        let connection = self.link.connection().map_err(|_| Errno::EINVAL)?;
        let source: Arc<dyn ProgressSource> = self.domain.fabric.cm.clone();
        connection.bind(eq)?;
        eq.add_source(&source)
    }

    fn bind_srx(&self, srx: &Arc<SharedRx>) -> Result<()> {
        same_domain(NAME, "the receive context", &self.domain, &srx.domain)?;
        let mut bound = self.unfinished()?;
        match bound.srx {
            Some(_) => Err(Errno::EINVAL),
            None => {
                bound.srx = Some(Arc::clone(srx));
                Ok(())
            }
        }
    }

    fn bind_peer_rx(&self, rx: &Arc<NoPeerRx>) -> Result<()> {
        match **rx {}
    }

    fn bind_stx(&self, stx: &Arc<NoSharedTx>) -> Result<()> {
        match **stx {}
    }

    fn enable(&self) -> Result<()> {
        self.go_live()
    }

    fn name(&self) -> Result<Address> {
        if let Link::Datagrams(datagrams) = &self.link {
            return datagrams.name();
        }
        let bound = self.bound.lock();
        let local = bound.id.as_ref().and_then(|id| id.local_addr());
        local
            .or(bound.source)
            .map(Address::Ip)
            .ok_or(Errno::EOPBADSTATE)
    }

    fn set_name(&self, address: &Address) -> Result<()> {
        self.link.connection()?;
        let address = ip(address)?;
        let mut bound = self.unfinished()?;
        if bound.id.is_some() {
            return Err(Errno::EOPBADSTATE);
        }
        bound.source = Some(address);
        Ok(())
    }

    fn peer(&self) -> Result<Address> {
        self.link.connection()?.peer().map(Address::Ip)
    }

    fn connect(&self, address: &Address, data: &[u8]) -> Result<()> {
        let connection = self.link.connection()?;
        let peer = ip(address)?;
        self.go_live()?;
        connection.connect(&peer, data)
    }

    fn accept(&self, data: &[u8]) -> Result<()> {
        let connection = self.link.connection()?;
        if self.info.handle.is_none() {
            fi_warn!(
                NAME,
                Subsys::EpCtrl,
                "fi_accept is for endpoints that were opened with the info of a connection request"
            );
            return Err(Errno::EINVAL);
        }
        self.go_live()?;
        connection.accept(data)
    }

    fn shutdown(&self) -> Result<()> {
        let connection = self.link.connection()?;
        self.flush();
        connection.shut_down()
    }

    fn option(&self, option: EpOption) -> Result<usize> {
        match option {
            EpOption::CmDataSize if self.domain.port.is_none() => Ok(private_data::MOST),
            EpOption::MaxMsgSize | EpOption::MaxRmaSize => Ok(self.info.ep.max_msg_size),
            EpOption::InjectMsgSize | EpOption::InjectRmaSize => Ok(self.info.tx.inject_size),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn set_option(&self, _: EpOption, _: usize) -> Result<()> {
        Err(Errno::ENOPROTOOPT)
    }

    fn op_flags(&self, direction: Direction) -> Flags {
        match direction {
            Direction::Tx => flags_of(&self.tx_flags),
            Direction::Rx => flags_of(&self.rx_flags),
        }
    }

    fn set_op_flags(&self, direction: Direction, flags: Flags) -> Result<()> {
        let (known, place) = match direction {
            Direction::Tx => (TX_FLAGS, &self.tx_flags),
            Direction::Rx => (RX_FLAGS, &self.rx_flags),
        };
        if !known.contains(flags) {
            return Err(Errno::EINVAL);
        }
        place.store(flags.bits(), Ordering::Relaxed);
        Ok(())
    }

    fn send(
        &self,
        kind: SendKind,
        iov: &[UserBuf],
        data: Option<u64>,
        dest: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        untagged(kind)?;
        self.has(Flags::MSG)?;
        let sending = Sending {
            dest,
            operation: Operation::Send(immediate(data)?),
            context,
            says: flags![MSG SEND],
            flags,
            is_inject: false,
        };
        self.post(iov, &sending)
    }

    fn inject(&self, kind: SendKind, buf: UserBuf, data: Option<u64>, dest: FiAddr) -> Result<()> {
        untagged(kind)?;
        self.has(Flags::MSG)?;
        let sending = Sending {
            dest,
            operation: Operation::Send(immediate(data)?),
            context: 0,
            says: flags![MSG SEND],
            flags: Some(Flags::INJECT),
            is_inject: true,
        };
        self.post(&[buf], &sending)
    }

    fn recv(
        &self,
        kind: RecvKind,
        iov: &[UserBuf],
        _: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        match kind {
            RecvKind::Msg => self.post_receive(iov, context, flags),
            RecvKind::Tagged { .. } => Err(has_no_tags()),
        }
    }

    fn read(&self, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()> {
        self.has(Flags::RMA)?;
        let sending = Sending {
            dest: FiAddr::UNSPEC,
            operation: Operation::Read(remote(call.remote, iov)?),
            context: call.context,
            says: flags![RMA READ],
            flags: call.flags,
            is_inject: false,
        };
        self.post(iov, &sending)
    }

    fn write(&self, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()> {
        self.has(Flags::RMA)?;
        let sending = Sending {
            dest: FiAddr::UNSPEC,
            operation: Operation::Write(remote(call.remote, iov)?, immediate(call.data)?),
            context: call.context,
            says: flags![RMA WRITE],
            flags: call.flags,
            is_inject: false,
        };
        self.post(iov, &sending)
    }

    fn inject_write(&self, buf: UserBuf, at: RmaIov, data: Option<u64>, _: FiAddr) -> Result<()> {
        self.has(Flags::RMA)?;
        let sending = Sending {
            dest: FiAddr::UNSPEC,
            operation: Operation::Write(remote(&[at], &[buf])?, immediate(data)?),
            context: 0,
            says: flags![RMA WRITE],
            flags: Some(Flags::INJECT),
            is_inject: true,
        };
        self.post(&[buf], &sending)
    }

    fn atomic(&self, operand: &[UserBuf], call: &AtomicCall<'_>) -> Result<()> {
        self.has(Flags::ATOMIC)?;
        atomic::limit(call.kind, call.datatype, call.op)?;
        if call.data.is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        let local = match call.kind {
            AtomicKind::Plain => operand,
            _ => call.result,
        };
        let made = atomic::request(operand, call, remote(call.remote, local)?)?;
        // What is fetched is written later, so nothing of it is free at once.
        let flags = call.flags.map(|flags| match made.writes {
            true => flags,
            false => flags - Flags::INJECT,
        });
        let sending = Sending {
            dest: FiAddr::UNSPEC,
            operation: made.operation,
            context: call.context,
            says: made.says,
            flags,
            is_inject: false,
        };
        self.post(local, &sending)
    }

    fn inject_atomic(
        &self,
        operand: UserBuf,
        datatype: Datatype,
        op: AtomicOp,
        at: RmaIov,
        _: FiAddr,
    ) -> Result<()> {
        self.has(Flags::ATOMIC)?;
        atomic::limit(AtomicKind::Plain, datatype, op)?;
        if operand.len() != atomic::LEN {
            return Err(Errno::EINVAL);
        }
        let sending = Sending {
            dest: FiAddr::UNSPEC,
            operation: Operation::Write(remote(&[at], &[operand])?, None),
            context: 0,
            says: flags![ATOMIC WRITE],
            flags: Some(Flags::INJECT),
            is_inject: true,
        };
        self.post(&[operand], &sending)
    }

    fn join(self: &Arc<Self>, _: &JoinCall<'_>, _: Token) -> Result<Arc<NoGroup>> {
        Err(Errno::ENOSYS)
    }

    fn group_size(&self, _: FiAddr) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    fn collective(&self, _: UserBuf, _: UserBuf, _: &CollCall) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    fn trigger(&self, _: &DataCall<'_>, _: Threshold<'_, Domain>) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// A device takes no request back, as C's verbs says it.
    fn cancel(&self, _: Context) -> Result<()> {
        Err(Errno::ENOSYS)
    }
}
