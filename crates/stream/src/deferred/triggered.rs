//! Operations that wait for a counter (man page `fi_trigger(3)`): held here, and posted when the
//! engine says that it is their turn.
//!
//! While any wait there is a waiter for them, so that they are looked at wherever sleeping
//! threads would be woken: after everything that may change a counter.

use std::mem;
use std::sync::Arc;

use ripstop_core::provider::{AtomicCall, CollCall, RmaCall, Token};
use ripstop_engine::counter::Counter;
use ripstop_engine::id::{CounterId, TriggeredId, WorkId};
use ripstop_engine::stream::RmaKind;
use ripstop_engine::triggered::When;
use ripstop_os::{EventFd, Interest};
use ripstop_types::{Context, Errno, Flags, Result};

use crate::logging::EVENT_FD;
use crate::rx::post::new_recv;
use crate::state::ep::PeerContext;
use crate::state::held::{At, Call, Data, Held, Op, Owner, SrxAt};
use crate::state::waiters::Waited;
use crate::state::{State, token};
use crate::system::Poller as _;
use crate::transport::Transport;
use crate::tx::send::SendArgs;

/// Most operations started in one go; those behind them come with the next progress.
const MAX_STARTS_PER_PASS: usize = 4096;

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
        let Some(ep) = self.eps.get(id) else {
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
        let given = data.flags.unwrap_or(ep.tx_flags);
        let inject = injects && given.contains(Flags::INJECT);
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
            data.copy_payload(given);
        }
        Ok(())
    }

    /// What wakes sleeping threads to go on with what a pass has left.
    fn again(&mut self) -> Result<Arc<EventFd>> {
        if let Some(event) = &self.works.again {
            return Ok(Arc::clone(event));
        }
        let event = EventFd::new().inspect_err(lacks!(T::Domain, EVENT_FD));
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
    fn next_work(&mut self, moved: &mut bool) -> Option<TriggeredId> {
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
    fn start_held(&mut self, id: TriggeredId) -> bool {
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

    fn end_change(
        &mut self,
        id: TriggeredId,
        counter: CounterId,
        change: impl FnOnce(&mut Counter),
    ) {
        self.works.queue.take(id);
        if let Some(values) = self.engine.counter_mut(counter) {
            change(values);
        }
        self.works.queue.changed(counter);
    }

    fn start_data(&mut self, id: TriggeredId, data: Box<Data>) {
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
                let args = SendArgs {
                    kind: *kind,
                    data: data.data,
                    dest: data.peer,
                    context: data.context,
                    flags: data.flags,
                };
                let (mut send, given) = self.message(ep, &data.iov, &args)?;
                if let Some(id) = work {
                    send.work = true;
                    send.completion = true;
                    send.context = id.index();
                }
                self.send_message(ep, data.peer, &send, given)
            }
            Call::Recv(kind) => {
                let recv = new_recv(*kind, data.iov, data.peer, data.context);
                self.recv_for(ep, recv, data.flags, work)
            }
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
        let src = PeerContext::source(data.peer, at.ctx_bits);
        let mut recv = new_recv(kind, data.iov, src, data.context);
        if let Some(work) = work {
            recv = recv.for_work(work);
        }
        let flags = data.flags.unwrap_or_default();
        self.recv_with_flags(at.id, at.cq, at.source, recv, flags)
    }

    /// Drops the operations for which `wanted` holds; returns how many.
    #[cold]
    fn drop_works(&mut self, wanted: impl Fn(&When, &Held) -> bool) -> usize {
        let count = self.works.queue.drop_each(wanted);
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
        self.works.queue.any(wanted) || self.engine.counts_work(counter)
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
