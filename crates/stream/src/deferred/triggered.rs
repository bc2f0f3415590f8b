//! Operations that wait for a counter (man page `fi_trigger(3)`): held here, and posted when the
//! engine says that it is their turn.
//!
//! While any wait there is a [`Waiter`] for them, so that they are looked at wherever sleeping
//! threads would be woken: after everything that may change a counter.

use std::mem;
use std::sync::Arc;

use ripstop_core::provider::{AtomicCall, CollCall, DataCall, RecvKind, RmaCall, SendKind, Token};
use ripstop_engine::Iov;
use ripstop_engine::counter::Counter;
use ripstop_engine::id::{CounterId, CqId, EpId, SrxId, WorkId};
use ripstop_engine::stream::{RmaKind, Unposted, Work};
use ripstop_engine::triggered::{FREE, Queue, When};
use ripstop_mem::{Parked, UserBuf, copy_in};
use ripstop_os::{EventFd, Interest};
use ripstop_types::{
    AtomicKind, AtomicOp, Context, Datatype, Errno, FiAddr, Flags, Result, RmaIov,
};

use crate::conn::rdm::Named;
use crate::state::waiters::Waited;
use crate::state::{State, token};
use crate::system::Poller as _;
use crate::transport::Transport;
use crate::tx::send::{SPECIAL, new_recv};

/// Most operations started in one go; those behind them come with the next progress.
const MAX_STARTS_PER_PASS: usize = 4096;

/// What waits in a domain.
#[derive(Debug)]
pub(crate) struct Works {
    queue: Queue<Held>,
    /// Wakes whoever sleeps when a pass has left something to be started. There from the first
    /// operation on.
    again: Option<Arc<EventFd>>,
    /// Operations are being started, or must not be now.
    pub(crate) busy: bool,
}

impl Default for Works {
    fn default() -> Self {
        Self {
            queue: Queue::new(),
            again: None,
            busy: false,
        }
    }
}

/// An operation that waits.
#[derive(Debug)]
pub(crate) struct Held {
    /// The name of deferred work; `None` for a triggered operation.
    token: Option<Token>,
    op: Op,
}

/// Where a data transfer is posted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    Ep(EpId),
    /// A shared receive context.
    Srx(SrxAt),
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

impl At {
    const fn owner(self) -> Owner {
        match self {
            Self::Ep(id) => Owner::Ep(id),
            Self::Srx(at) => Owner::Srx(at.id),
        }
    }
}

#[derive(Debug)]
enum Op {
    Set(CounterId, u64),
    Add(CounterId, u64),
    Data(Box<Data>),
    /// Its data transfer is being posted.
    Starting(Owner),
}

/// A data transfer, with copies of all but the payload.
#[derive(Debug)]
struct Data {
    at: At,
    call: Call,
    iov: Iov<UserBuf>,
    /// What `iov` is of, where the payload was copied.
    copy: Option<Parked>,
    remote: Vec<RmaIov>,
    peer: FiAddr,
    data: Option<u64>,
    context: Context,
    flags: Option<Flags>,
    /// Of deferred work: what is told of its end.
    work: Option<Work>,
}

#[derive(Debug)]
enum Call {
    Send(SendKind),
    Recv(RecvKind),
    Rma(RmaKind),
    Atomic(Box<Atomic>),
    /// With its result.
    Collective(Box<(CollCall, UserBuf)>),
}

#[derive(Debug)]
struct Atomic {
    kind: AtomicKind,
    datatype: Datatype,
    op: AtomicOp,
    compare: Vec<UserBuf>,
    result: Vec<UserBuf>,
}

impl Drop for Data {
    fn drop(&mut self) {
        // Injected payload is copied again when it is posted, so nobody uses it.
        drop(self.copy.take().map(Parked::unpark));
    }
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
        let Some((token, counter)) = work else {
            data.flags = data.flags.map(|flags| flags - Flags::TRIGGER);
            return Ok(Self {
                token: None,
                op: Op::Data(Box::new(data)),
            });
        };
        let flags = data.flags.unwrap_or_default();
        let special = matches!(data.call, Call::Recv(_)) && flags.intersects(SPECIAL);
        if special || matches!(data.call, Call::Collective(_)) {
            return Err(Errno::ENOSYS);
        }
        let asked = flags.contains(Flags::COMPLETION);
        data.flags = Some(flags - Flags::TRIGGER);
        data.work = Some(Work {
            counter,
            entry: asked.then_some(data.context),
        });
        Ok(Self {
            token: Some(token),
            op: Op::Data(Box::new(data)),
        })
    }

    const fn owner(&self) -> Owner {
        match &self.op {
            Op::Data(data) => data.at.owner(),
            Op::Starting(owner) => *owner,
            Op::Set(..) | Op::Add(..) => Owner::Nobody,
        }
    }

    /// The order in which operations are started is kept by endpoint and direction.
    fn lane(&self) -> u32 {
        let lane = |id: u32, of: u32| id.wrapping_mul(3).wrapping_add(of);
        match &self.op {
            Op::Data(data) => match data.at {
                At::Ep(id) => lane(id.number(), u32::from(data.receives())),
                At::Srx(at) => lane(at.id.number(), 2),
            },
            _ => FREE,
        }
    }

    fn receives(&self) -> bool {
        matches!(&self.op, Op::Data(data) if data.receives())
    }

    /// Whether it will change this counter.
    fn changes(&self, counter: CounterId) -> bool {
        match &self.op {
            Op::Set(own, _) | Op::Add(own, _) => *own == counter,
            Op::Data(data) => data.work.is_some_and(|work| work.counter == Some(counter)),
            Op::Starting(_) => false,
        }
    }
}

impl Data {
    fn of(at: At, call: &DataCall<'_>) -> Result<Self> {
        let operand;
        let (own, iov, remote, peer, data, context, flags) = match *call {
            DataCall::Send {
                kind,
                iov,
                data,
                dest,
                context,
                flags,
            } => (
                Call::Send(kind),
                iov,
                None,
                dest,
                data,
                context,
                Some(flags),
            ),
            DataCall::Recv {
                kind,
                iov,
                src,
                context,
                flags,
            } => (Call::Recv(kind), iov, None, src, None, context, Some(flags)),
            DataCall::Read(iov, rma) => Self::one_sided(Call::Rma(RmaKind::Read), iov, &rma),
            DataCall::Write(iov, rma) => Self::one_sided(Call::Rma(RmaKind::Write), iov, &rma),
            DataCall::Atomic(iov, atomic) => {
                let own = Call::Atomic(Box::new(Atomic {
                    kind: atomic.kind,
                    datatype: atomic.datatype,
                    op: atomic.op,
                    compare: atomic.compare.to_vec(),
                    result: atomic.result.to_vec(),
                }));
                let AtomicCall {
                    remote,
                    peer,
                    data,
                    context,
                    flags,
                    ..
                } = atomic;
                (own, iov, Some(remote), peer, data, context, flags)
            }
            DataCall::Collective([input, result], call) => {
                let (context, flags) = (call.context, call.flags);
                operand = input;
                let own = Call::Collective(Box::new((call, result)));
                let iov = std::slice::from_ref(&operand);
                (own, iov, None, FiAddr::UNSPEC, None, context, flags)
            }
        };
        Ok(Self {
            at,
            call: own,
            iov: Iov::new(iov)?,
            copy: None,
            remote: remote.map(<[RmaIov]>::to_vec).unwrap_or_default(),
            peer,
            data,
            context,
            flags,
            work: None,
        })
    }

    #[expect(
        clippy::type_complexity,
        reason = "the parts of a call, taken apart at once"
    )]
    const fn one_sided<'a>(
        own: Call,
        iov: &'a [UserBuf],
        rma: &RmaCall<'a>,
    ) -> (
        Call,
        &'a [UserBuf],
        Option<&'a [RmaIov]>,
        FiAddr,
        Option<u64>,
        Context,
        Option<Flags>,
    ) {
        let RmaCall {
            remote,
            peer,
            data,
            context,
            flags,
        } = *rma;
        (own, iov, Some(remote), peer, data, context, flags)
    }

    const fn receives(&self) -> bool {
        matches!(self.call, Call::Recv(_))
    }

    /// What an atomic compares with.
    fn compare(&self) -> &[UserBuf] {
        match &self.call {
            Call::Atomic(atomic) => &atomic.compare,
            _ => &[],
        }
    }

    /// Copies the payload and what is compared with, whose memory is the caller's again after the
    /// call.
    fn copy_payload(&mut self) {
        let len = self.iov.len() as usize;
        let more: usize = self.compare().iter().map(|buf| buf.len()).sum();
        let mut bytes = vec![0; len + more];
        let mut at = 0;
        for segment in self.iov.segments().iter().chain(self.compare()) {
            at += copy_in(&mut bytes[at..], *segment);
        }
        let copy = Parked::park(bytes);
        self.iov = Iov::one(copy.buf().first(len));
        if let Call::Atomic(atomic) = &mut self.call
            && !atomic.compare.is_empty()
        {
            atomic.compare = vec![copy.buf().skip(len)];
        }
        self.copy = Some(copy);
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

    fn unposted(&self) -> Unposted {
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

impl<T: Transport> State<T> {
    /// Holds an operation until its turn comes, which may be now.
    #[cold]
    pub(crate) fn hold(&mut self, when: When, mut held: Held) -> Result<()> {
        if let Op::Data(data) = &mut held.op {
            self.check(data)?;
        }
        let event = self.again()?;
        let lane = held.lane();
        self.works.queue.add(when, lane, held)?;
        if !self.waiters.has_work() {
            self.waiters.arm(&event, Waited::Work);
        }
        self.wake_waiters();
        self.after();
        Ok(())
    }

    /// Refuses what can never be posted, and copies payload that is injected.
    fn check(&self, data: &mut Data) -> Result<()> {
        let id = match data.at {
            At::Ep(id) => id,
            At::Srx(_) if !data.receives() => return Err(Errno::EINVAL),
            At::Srx(_) => return Ok(()),
        };
        let Some(Some(ep)) = self.eps.get(id.index()) else {
            return Err(Errno::EOPBADSTATE);
        };
        let injects = match &data.call {
            Call::Recv(_) if ep.has_rx => return Ok(()),
            Call::Recv(_) => return Err(Errno::EOPBADSTATE),
            Call::Send(_) if ep.has_tx => true,
            Call::Send(_) => return Err(ep.no_send()),
            Call::Rma(kind) => {
                ep.may_start(ep.has_rma)?;
                *kind == RmaKind::Write
            }
            Call::Atomic(_) => {
                ep.may_start(ep.has_atomics)?;
                true
            }
            Call::Collective(_) if !ep.tx_ready => return Err(Errno::EOPBADSTATE),
            Call::Collective(_) if ep.has_coll => return Ok(()),
            Call::Collective(_) => return Err(Errno::ENOSYS),
        };
        let inject = injects && data.flags.unwrap_or(ep.tx_flags).contains(Flags::INJECT);
        let compare = data.compare().iter().map(|buf| buf.len() as u64).sum();
        if inject && compare > 0 && !ep.injects(data.iov.len(), compare) {
            return Err(Errno::EMSGSIZE);
        }
        let (most, longest) = match &data.call {
            Call::Atomic(_) => (ep.inject_atomic, ep.max_atomic),
            _ => (ep.inject_size, ep.max_msg_size),
        };
        let most = if inject { most.min(longest) } else { longest };
        if data.iov.len() > most as u64 {
            return Err(Errno::EMSGSIZE);
        }
        // The buffers of deferred work are not looked at before it starts.
        if inject && data.work.is_none() {
            data.copy_payload();
        }
        Ok(())
    }

    /// What wakes sleeping threads to go on with what a pass has left.
    fn again(&mut self) -> Result<Arc<EventFd>> {
        if let Some(event) = &self.works.again {
            return Ok(Arc::clone(event));
        }
        let event = EventFd::new().inspect_err(lacks!(
            T,
            Domain,
            "descriptor that wakes threads (eventfd2)"
        ));
        let event = Arc::new(event?);
        self.epoll.add(&*event, token::WORK, Interest::READ)?;
        self.works.again = Some(Arc::clone(&event));
        Ok(event)
    }

    /// The event of what a pass has left: the end of the poll goes on with it.
    #[cold]
    pub(crate) fn drain_again(&self) {
        if let Some(event) = &self.works.again {
            let _ = event.drain();
        }
    }

    /// Whether operations wait for a counter.
    #[inline]
    pub(crate) const fn has_works(&self) -> bool {
        !self.works.queue.is_empty()
    }

    /// Starts the operations whose turn has come, up to a bound.
    #[cold]
    #[inline(never)]
    pub(crate) fn run_works(&mut self) {
        if mem::replace(&mut self.works.busy, true) {
            return;
        }
        self.works.queue.retry();
        let mut moved = false;
        for _ in 0..MAX_STARTS_PER_PASS {
            let Some(id) = self.next_work(&mut moved) else {
                self.works.busy = false;
                return;
            };
            moved |= self.start_held(id);
        }
        self.works.busy = false;
        if let Some(event) = &self.works.again {
            // Should this fail, the next change of a counter goes on.
            let _ = event.signal();
        }
    }

    /// Whose turn it is. Data that has moved may have changed any counter.
    fn next_work(&mut self, moved: &mut bool) -> Option<u32> {
        let Self { engine, works, .. } = self;
        let counter = |id| engine.counter(id).copied();
        let next = works.queue.next(counter);
        if next.is_some() || !mem::take(moved) {
            return next;
        }
        works.queue.look_everywhere();
        works.queue.next(counter)
    }

    /// Starts an operation whose turn it is; returns whether data may have moved.
    fn start_held(&mut self, id: u32) -> bool {
        let Some(held) = self.works.queue.get_mut(id) else {
            return false;
        };
        let starting = Op::Starting(held.owner());
        match mem::replace(&mut held.op, starting) {
            Op::Set(counter, value) => self.end_change(id, counter, |c| c.value = value),
            Op::Add(counter, value) => self.end_change(id, counter, |c| {
                c.value = c.value.wrapping_add(value);
            }),
            Op::Data(data) => {
                self.start_data(id, data);
                return true;
            }
            Op::Starting(_) => {}
        }
        false
    }

    fn end_change(&mut self, id: u32, counter: CounterId, change: impl FnOnce(&mut Counter)) {
        self.works.queue.take(id);
        if let Some(values) = self.engine.counter_mut(counter) {
            change(values);
        }
        self.works.queue.changed(counter);
    }

    fn start_data(&mut self, id: u32, data: Box<Data>) {
        match self.post_data(&data) {
            Err(Errno::EAGAIN) => {
                if let Some(held) = self.works.queue.get_mut(id) {
                    held.op = Op::Data(data);
                    self.works.queue.hold(id);
                }
            }
            done => {
                self.works.queue.take(id);
                if let Err(error) = done {
                    self.fail_held(&data, error);
                }
            }
        }
    }

    /// Says that a data transfer will not be posted.
    fn fail_held(&mut self, data: &Data, error: Errno) {
        let unposted = data.unposted();
        match data.at {
            At::Ep(ep) => self.engine.fail_unposted(ep, &unposted, error),
            At::Srx(at) => self.engine.fail_unposted_shared(at.cq, &unposted, error),
        }
    }

    fn post_data(&mut self, data: &Data) -> Result<()> {
        let work = match data.work {
            Some(work) => Some(self.engine.open_work(work)?),
            None => None,
        };
        let posted = self.post_call(data, work);
        if let (Err(_), Some(work)) = (posted, work) {
            self.engine.forget_work(work);
        }
        posted
    }

    fn post_call(&mut self, data: &Data, work: Option<WorkId>) -> Result<()> {
        let ep = match data.at {
            At::Ep(ep) => ep,
            At::Srx(at) => return self.post_shared(at, data, work),
        };
        let rma = RmaCall {
            remote: &data.remote,
            peer: data.peer,
            data: data.data,
            context: data.context,
            flags: data.flags,
        };
        match &data.call {
            Call::Send(kind) => {
                let (mut send, given) =
                    self.message(ep, *kind, &data.iov, data.data, data.context, data.flags)?;
                if let Some(id) = work {
                    send.work = true;
                    send.completion = true;
                    send.context = id.index();
                }
                self.send_message(ep, data.peer, &send, given)
            }
            Call::Recv(kind) => self.recv_for(
                ep,
                *kind,
                data.iov,
                data.peer,
                data.context,
                data.flags,
                work,
            ),
            Call::Rma(kind) => self.post_rma(ep, *kind, data.iov, &rma, work),
            Call::Atomic(atomic) => self.post_atomic(
                ep,
                data.iov,
                &AtomicCall {
                    kind: atomic.kind,
                    datatype: atomic.datatype,
                    op: atomic.op,
                    compare: &atomic.compare,
                    result: &atomic.result,
                    remote: &data.remote,
                    peer: data.peer,
                    data: data.data,
                    context: data.context,
                    flags: data.flags,
                },
                work,
            ),
            Call::Collective(call) => {
                let (call, result) = &**call;
                let input = data.iov.segments().first().copied().unwrap_or_default();
                let call = CollCall {
                    flags: data.flags,
                    ..*call
                };
                self.post_coll(ep, input, *result, &call)
            }
        }
    }

    /// Posts a receive on a shared context.
    fn post_shared(&mut self, at: SrxAt, data: &Data, work: Option<WorkId>) -> Result<()> {
        let Call::Recv(kind) = data.call else {
            return Err(Errno::EINVAL);
        };
        let src = Named::source(data.peer, at.ctx_bits);
        let mut recv = new_recv(kind, data.iov, src, data.context);
        if let Some(work) = work {
            recv = recv.for_work(work);
        }
        let flags = data.flags.unwrap_or_default();
        self.recv_shared(at.id, at.cq, at.source, recv, flags)
    }

    /// Drops the operations for which `wanted` holds; returns how many.
    #[cold]
    fn drop_works(&mut self, wanted: impl Fn(&When, &Held) -> bool) -> usize {
        let queue = &mut self.works.queue;
        let (mut from, mut count) = (0, 0);
        while let Some(id) = queue.find(from, &wanted) {
            queue.take(id);
            from = id;
            count += 1;
        }
        if self.works.queue.is_empty() {
            self.waiters.drop_work();
        }
        count
    }

    /// Drops what waits of an endpoint or context: receives, what it starts, or both.
    pub(crate) fn drop_works_of(&mut self, owner: Owner, receives: Option<bool>) {
        if self.has_works() {
            self.drop_works(|_, held| {
                held.owner() == owner && receives.is_none_or(|receives| held.receives() == receives)
            });
        }
    }

    /// Drops what waits for a counter or will change it.
    pub(crate) fn drop_works_with(&mut self, counter: CounterId) {
        if self.has_works() {
            self.drop_works(|when, held| when.counter == counter || held.changes(counter));
        }
    }

    /// Whether anything waits for a counter or will change it.
    pub(crate) fn works_with(&self, counter: CounterId) -> bool {
        let wanted = |when: &When, held: &Held| when.counter == counter || held.changes(counter);
        self.works.queue.find(0, wanted).is_some() || self.engine.counts_work(counter)
    }

    /// Takes back the deferred work of this name.
    pub(crate) fn cancel_work(&mut self, name: Token) -> Result<()> {
        match self.drop_works(|_, held| held.token == Some(name)) {
            0 => Err(Errno::ENOENT),
            _ => Ok(()),
        }
    }

    /// Takes back all deferred work, or that which waits for one counter.
    pub(crate) fn flush_work(&mut self, counter: Option<CounterId>) {
        self.drop_works(|when, held| {
            held.token.is_some() && counter.is_none_or(|counter| when.counter == counter)
        });
    }

    /// Cancels the triggered operation that has waited longest with this context.
    #[cold]
    pub(crate) fn cancel_triggered(&mut self, at: At, context: Context) -> Result<()> {
        let wanted = |_: &When, held: &Held| match &held.op {
            Op::Data(data) => {
                let own = data.at.owner() == at.owner() && data.context == context;
                own && held.token.is_none()
            }
            _ => false,
        };
        let id = self.works.queue.first(wanted).ok_or(Errno::ENOENT)?;
        if let Some(Held {
            op: Op::Data(mut data),
            ..
        }) = self.works.queue.take(id)
        {
            // Where failures are reported may have become known since.
            data.at = at;
            self.fail_held(&data, Errno::ECANCELED);
        }
        Ok(())
    }
}
