//! Operations that wait for a counter, with copies of all but their payload (man page `fi_trigger(3)`).

mod payload;

use std::sync::Arc;

use ripstop_core::provider::{CollCall, DataCall, RecvKind, RmaCall, SendKind, Token};
use ripstop_engine::Iov;
use ripstop_engine::id::{CounterId, CqId, EpId, LaneId, SrxId};
use ripstop_engine::stream::{RmaKind, Unposted, Work};
use ripstop_engine::triggered::Queue;
use ripstop_mem::{UserBuf, copy_in};
use ripstop_os::EventFd;
use ripstop_types::{
    AtomicKind, AtomicOp, Context, Datatype, Errno, FiAddr, Flags, Result, RmaIov,
};

use self::payload::Payload;
use crate::state::fast_path::SLOW_RECV_FLAGS;

/// What waits in a domain.
#[derive(Debug, Default)]
pub(crate) struct Works {
    pub(crate) queue: Queue<Held>,
    /// Wakes whoever sleeps when a pass has left something to be started. There from the first
    /// operation on.
    pub(crate) again: Option<Arc<EventFd>>,
    /// Operations are being started, or must not be now.
    pub(crate) busy: bool,
}

/// An operation that waits.
#[derive(Debug)]
pub(crate) struct Held {
    /// The name of deferred work; `None` for a triggered operation.
    pub(crate) token: Option<Token>,
    pub(crate) op: Op,
}

impl Held {
    /// Work that changes the successes of a counter.
    pub(crate) const fn change(token: Token, counter: CounterId, value: u64, add: bool) -> Self {
        Self {
            token: Some(token),
            op: match add {
                true => Op::Add(counter, value),
                false => Op::Set(counter, value),
            },
        }
    }

    /// A data transfer; `work` names deferred work and its counter, if any.
    pub(crate) fn data(
        at: At,
        call: &DataCall<'_>,
        work: Option<(Token, Option<CounterId>)>,
    ) -> Result<Self> {
        let mut data = Data::of(at, call)?;
        data.flags = data.flags.map(|flags| flags - Flags::TRIGGER);
        if let Some((_, counter)) = work {
            let flags = *data.flags.get_or_insert_default();
            let special = data.receives() && flags.intersects(SLOW_RECV_FLAGS);
            if special || matches!(data.call, Call::Collective(_)) {
                return Err(Errno::ENOSYS);
            }
            let asked = flags.contains(Flags::COMPLETION);
            data.work = Some(Work {
                counter,
                entry: asked.then_some(data.context),
            });
        }
        Ok(Self {
            token: work.map(|(token, _)| token),
            op: Op::Data(Box::new(data)),
        })
    }

    pub(crate) const fn owner(&self) -> Owner {
        match &self.op {
            Op::Data(data) => data.at.owner(),
            Op::Starting(owner) => *owner,
            Op::Set(..) | Op::Add(..) => Owner::Nobody,
        }
    }

    /// The order in which operations are started is kept by endpoint and direction.
    pub(crate) fn lane(&self) -> Option<LaneId> {
        let lane = |id: u32, of: u32| LaneId::new(id.wrapping_mul(3).wrapping_add(of));
        match &self.op {
            Op::Data(data) => match data.at {
                At::Ep(id) => lane(id.number(), u32::from(data.receives())),
                At::Srx(at) => lane(at.id.number(), 2),
            },
            _ => None,
        }
    }

    pub(crate) fn receives(&self) -> bool {
        matches!(&self.op, Op::Data(data) if data.receives())
    }

    /// Whether it will change this counter.
    pub(crate) fn changes(&self, counter: CounterId) -> bool {
        match &self.op {
            Op::Set(own, _) | Op::Add(own, _) => *own == counter,
            Op::Data(data) => data.work.is_some_and(|work| work.counter == Some(counter)),
            Op::Starting(_) => false,
        }
    }
}

/// Where a data transfer is posted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    Ep(EpId),
    /// A shared receive context.
    Srx(SrxAt),
}

impl At {
    pub(crate) const fn owner(self) -> Owner {
        match self {
            Self::Ep(id) => Owner::Ep(id),
            Self::Srx(at) => Owner::Srx(at.id),
        }
    }
}

/// A shared receive context, as receives are posted there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SrxAt {
    pub(crate) id: SrxId,
    /// Where peeks and failures are reported, if anywhere.
    pub(crate) cq: Option<CqId>,
    /// Peeks report the source.
    pub(crate) source: bool,
    /// Upper bits of a source that name a context of the peer.
    pub(crate) ctx_bits: u8,
}

/// Whose operation it is; what is nobody's changes a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Ep(EpId),
    Srx(SrxId),
    Nobody,
}

#[derive(Debug)]
pub(crate) enum Op {
    Set(CounterId, u64),
    Add(CounterId, u64),
    Data(Box<Data>),
    /// Its data transfer is being posted.
    Starting(Owner),
}

/// A data transfer, with copies of all but the payload.
#[derive(Debug)]
pub(crate) struct Data {
    pub(crate) at: At,
    pub(crate) call: Call,
    pub(crate) iov: Iov<UserBuf>,
    /// What `iov` is of, where the payload was copied.
    copy: Option<Payload>,
    pub(crate) remote: Vec<RmaIov>,
    pub(crate) peer: FiAddr,
    pub(crate) data: Option<u64>,
    pub(crate) context: Context,
    pub(crate) flags: Option<Flags>,
    /// Of deferred work: what is told of its end.
    pub(crate) work: Option<Work>,
}

impl Data {
    fn of(at: At, call: &DataCall<'_>) -> Result<Self> {
        let input;
        let rma = |peer, data, context, flags| RmaCall {
            remote: &[],
            peer,
            data,
            context,
            flags,
        };
        let (own, iov, rma) = match *call {
            DataCall::Send {
                kind,
                iov,
                data,
                dest,
                context,
                flags,
            } => (Call::Send(kind), iov, rma(dest, data, context, Some(flags))),
            DataCall::Recv {
                kind,
                iov,
                src,
                context,
                flags,
            } => (Call::Recv(kind), iov, rma(src, None, context, Some(flags))),
            DataCall::Read(iov, rma) => (Call::Rma(RmaKind::Read), iov, rma),
            DataCall::Write(iov, rma) => (Call::Rma(RmaKind::Write), iov, rma),
            DataCall::Atomic(iov, call) => {
                let own = Call::Atomic(Box::new(Atomic {
                    kind: call.kind,
                    datatype: call.datatype,
                    op: call.op,
                    compare: call.compare.to_vec(),
                    result: call.result.to_vec(),
                }));
                let rma = RmaCall {
                    remote: call.remote,
                    ..rma(call.peer, call.data, call.context, call.flags)
                };
                (own, iov, rma)
            }
            DataCall::Collective([first, result], call) => {
                input = first;
                let own = Call::Collective(Box::new((call, result)));
                let iov = std::slice::from_ref(&input);
                (
                    own,
                    iov,
                    rma(FiAddr::UNSPEC, None, call.context, call.flags),
                )
            }
        };
        Ok(Self {
            at,
            call: own,
            iov: Iov::new(iov)?,
            copy: None,
            remote: rma.remote.to_vec(),
            peer: rma.peer,
            data: rma.data,
            context: rma.context,
            flags: rma.flags,
            work: None,
        })
    }

    pub(crate) const fn receives(&self) -> bool {
        matches!(self.call, Call::Recv(_))
    }

    /// What an atomic compares with.
    pub(crate) fn compare(&self) -> &[UserBuf] {
        match &self.call {
            Call::Atomic(atomic) => &atomic.compare,
            _ => &[],
        }
    }

    /// Copies the payload and what is compared with, whose memory is the caller's again after the
    /// call. `flags` inject it, and stay its flags whatever those of the endpoint become: the copy is
    /// freed as soon as the operation is posted.
    pub(crate) fn copy_payload(&mut self, flags: Flags) {
        let len = self.iov.len() as usize;
        let more: usize = self.compare().iter().map(|buf| buf.len()).sum();
        let mut bytes = vec![0; len + more];
        let mut at = 0;
        for segment in self.iov.segments().iter().chain(self.compare()) {
            at += copy_in(&mut bytes[at..], *segment);
        }
        let copy = Payload::new(bytes);
        self.iov = Iov::one(copy.buf().first(len));
        if let Call::Atomic(atomic) = &mut self.call
            && !atomic.compare.is_empty()
        {
            atomic.compare = vec![copy.buf().skip(len)];
        }
        self.copy = Some(copy);
        self.flags = Some(flags);
    }

    /// What it is, as completions say it.
    fn told_as(&self) -> Flags {
        match &self.call {
            Call::Send(SendKind::Msg) => Flags::SEND | Flags::MSG,
            Call::Send(SendKind::Tagged(_)) => Flags::SEND | Flags::TAGGED,
            Call::Recv(RecvKind::Msg) => Flags::RECV | Flags::MSG,
            Call::Recv(RecvKind::Tagged { .. }) => Flags::RECV | Flags::TAGGED,
            Call::Rma(RmaKind::Read) => Flags::RMA | Flags::READ,
            Call::Rma(_) => Flags::RMA | Flags::WRITE,
            Call::Atomic(atomic) if atomic.kind == AtomicKind::Plain => {
                Flags::ATOMIC | Flags::WRITE
            }
            Call::Atomic(_) => Flags::ATOMIC | Flags::READ,
            Call::Collective(_) => Flags::COLLECTIVE,
        }
    }

    pub(crate) fn unposted(&self) -> Unposted {
        Unposted {
            context: self.context,
            flags: self.told_as(),
            tag: match self.call {
                Call::Recv(RecvKind::Tagged { tag, .. }) => tag,
                _ => 0,
            },
            work: self.work,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Call {
    Send(SendKind),
    Recv(RecvKind),
    Rma(RmaKind),
    Atomic(Box<Atomic>),
    /// With its result.
    Collective(Box<(CollCall, UserBuf)>),
}

#[derive(Debug)]
pub(crate) struct Atomic {
    pub(crate) kind: AtomicKind,
    pub(crate) datatype: Datatype,
    pub(crate) op: AtomicOp,
    pub(crate) compare: Vec<UserBuf>,
    pub(crate) result: Vec<UserBuf>,
}
