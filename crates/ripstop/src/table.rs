//! The operations of a domain, from the call to the moment somebody takes the outcome.
//!
//! A buffer is in exactly one place: here while the operation waits for room, lent to the
//! provider while it is posted, here again when it is done. It leaves the table with whoever
//! awaits the operation, or is freed here when nobody does any more.
//!
//! The table has one lock for a domain, held while the provider is called: so a completion is
//! read and attributed in one step, and an endpoint closes with no completion under way.
//! Nothing foreign runs under it: wakers are collected in [`Later`] and called afterwards.

mod given_back;
mod reap;

use std::collections::VecDeque;
use std::task::Waker;

use given_back::{GivenBack, Message};
use ripstop_core::Info;
use ripstop_core::provider::RecvKind;
use ripstop_mem::{Parked, UserBuf};
use ripstop_types::{AddrFormat, Errno, FiAddr, Flags};
use slab::Slab;

use crate::backend::{AnyDomain, AnyEndpoint};
use crate::buf::Pieces;
use crate::cm::Connections;
use crate::error::{Error, Result};
use crate::later::Later;
use crate::leaving::Leaving;
use crate::lent::{Lent, Over, reclaim};
use crate::message::{Action, Completion, Request};
use crate::polling::{Quiet, WaiterId};

/// The queue of receives that wait for room; the other one is that of sends.
const RECVS: usize = 1;

/// A context is the index of a slot plus one, and above it the slot's generation.
const INDEX_BITS: u32 = usize::BITS / 2;

const INDEX_MASK: usize = (1 << INDEX_BITS) - 1;

#[derive(Debug)]
enum State {
    /// The endpoint's queue was full: to be posted in its turn.
    Waiting(Pieces),
    /// The provider has it.
    Posted(Lent),
    /// Over.
    Done(Pieces, Result<Completion>),
}

#[derive(Debug)]
struct Slot {
    state: State,
    request: Request,
    ep: usize,
    /// Counts the operations of the domain in the order they began; 0 for one that was refused.
    number: usize,
    waker: Option<Waker>,
    /// Nobody will ask for the outcome.
    abandoned: bool,
    /// Receives only, and only where others were dropped or messages do not fit.
    extra: Option<Box<Extra>>,
}

/// What few receives have.
#[derive(Debug, Default)]
struct Extra {
    /// The place of its message among those of the endpoint, where that is not its own number.
    order: Option<usize>,
    /// What it will be given as soon as the provider has let go of its buffer.
    gift: Option<Message>,
    /// It is done, with a message that did not fit.
    cut: Option<Completion>,
}

impl Slot {
    const fn new(ep: usize, request: Request, number: usize, state: State) -> Self {
        Self {
            state,
            request,
            ep,
            number,
            waker: None,
            abandoned: false,
            extra: None,
        }
    }

    /// What its context says above the index.
    const fn generation(&self) -> usize {
        self.number & INDEX_MASK
    }

    /// What the provider calls it, if it has this index.
    const fn context(&self, index: usize) -> usize {
        (self.generation() << INDEX_BITS) | (index + 1)
    }

    /// Its buffers. What it is next has to be said at once.
    fn take_pieces(&mut self) -> Pieces {
        match std::mem::replace(&mut self.state, State::Waiting(Pieces::default())) {
            State::Waiting(pieces) | State::Done(pieces, _) => pieces,
            State::Posted(lent) => lent.reclaim(Over::Ended),
        }
    }

    fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }
}

/// An endpoint of the domain.
#[derive(Debug)]
pub(crate) struct Port {
    /// Gone when the domain has failed.
    pub(crate) object: Option<AnyEndpoint>,
    /// Operations that wait for room: sends, receives.
    waiting: [VecDeque<usize>; 2],
    given_back: GivenBack,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Slab<Slot>,
    pub(crate) ports: Slab<Port>,
    pub(crate) connections: Connections,
    /// Regions whose owner is gone.
    pub(crate) leaving: Leaving,
    /// Operations that have begun.
    begun: usize,
    /// Operations that were over.
    ended: usize,
    pub(crate) quiet: Quiet,
    /// Operations that tasks wait for, oldest first, and some that are over.
    awaited: VecDeque<usize>,
    /// How often progress was made.
    pub(crate) advances: u64,
    /// Operations in all `waiting` queues.
    backlog: usize,
    /// For bytes that are injected.
    scratch: Vec<u8>,
    domain_id: u32,
    /// How the provider's addresses are written.
    format: AddrFormat,
    /// Receives may name their source.
    directed: bool,
}

impl Table {
    pub(crate) fn new(domain_id: u32, info: &Info) -> Self {
        Self {
            domain_id,
            format: info.addr_format,
            directed: info.caps.contains(Flags::DIRECTED_RECV),
            slots: Slab::new(),
            ports: Slab::new(),
            connections: Connections::default(),
            leaving: Leaving::default(),
            begun: 0,
            ended: 0,
            quiet: Quiet::default(),
            awaited: VecDeque::new(),
            advances: 0,
            backlog: 0,
            scratch: Vec::new(),
        }
    }

    /// Whether something is to be looked at again before long.
    pub(crate) const fn has_backlog(&self) -> bool {
        self.backlog > 0 || !self.leaving.is_empty()
    }

    pub(crate) fn open_port(&mut self, object: AnyEndpoint) -> usize {
        self.ports.insert(Port {
            object: Some(object),
            waiting: [VecDeque::new(), VecDeque::new()],
            given_back: GivenBack::default(),
        })
    }

    /// An endpoint at the provider, unless the domain has failed.
    pub(crate) fn object(&self, ep: usize) -> Option<&AnyEndpoint> {
        self.ports.get(ep)?.object.as_ref()
    }

    /// Takes an endpoint out of use. All its operations are over then.
    pub(crate) fn close_port(&mut self, domain: &AnyDomain, ep: usize, later: &mut Later) {
        if let Some(port) = self.ports.get_mut(ep) {
            port.object = None;
        }
        self.end_all(ep, Errno::ECANCELED, later);
        // Entries it left in the queue are of nothing now: out with them.
        self.reap(domain, later);
        self.ports.try_remove(ep);
    }

    /// Ends what an endpoint without a provider's object still has.
    fn end_all(&mut self, ep: usize, errno: Errno, later: &mut Later) {
        if let Some(port) = self.ports.get_mut(ep) {
            let waiting: usize = port.waiting.iter().map(VecDeque::len).sum();
            self.backlog -= waiting;
            port.waiting.iter_mut().for_each(VecDeque::clear);
            port.given_back = GivenBack::default();
        }
        let of_ep = |(index, slot): (usize, &Slot)| (slot.ep == ep).then_some(index);
        let indices: Vec<usize> = self.slots.iter().filter_map(of_ep).collect();
        for index in indices {
            let error = Error::new(errno, self.slots[index].request.operation());
            self.settle(index, Err(error), later);
        }
    }

    /// Starts an operation and returns its index. It is posted, waits for room, or is over
    /// already because the provider refused it.
    pub(crate) fn start(
        &mut self,
        domain: &AnyDomain,
        ep: usize,
        request: Request,
        pieces: Pieces,
        later: &mut Later,
    ) -> usize {
        self.begun = self.begun.wrapping_add(1);
        let slot = Slot::new(ep, request, self.begun, State::Waiting(pieces));
        let index = self.slots.insert(slot);
        let first = self.ports.get(ep).is_some_and(|port| {
            let alone = !request.is_recv() || port.given_back.is_empty();
            alone && port.waiting[queue(&request)].is_empty()
        });
        if !first || !self.post(domain, index, later) {
            let port = &mut self.ports[ep];
            port.waiting[queue(&request)].push_back(index);
            self.backlog += 1;
            if request.is_recv() && !port.given_back.is_empty() {
                self.hand_on(ep, later);
                self.post_around(domain, ep, later);
            }
        }
        index
    }

    /// An operation that is over before it began. Returns its index.
    pub(crate) fn refuse(
        &mut self,
        ep: usize,
        request: Request,
        pieces: Pieces,
        errno: Errno,
    ) -> usize {
        let error = Error::new(errno, request.operation());
        let state = State::Done(pieces, Err(error));
        self.slots.insert(Slot::new(ep, request, 0, state))
    }

    /// Hands an operation to the provider; returns whether it had room.
    #[inline]
    fn post(&mut self, domain: &AnyDomain, index: usize, later: &mut Later) -> bool {
        let slot = &mut self.slots[index];
        let State::Waiting(pieces) = &mut slot.state else {
            return true;
        };
        let lent = Lent::park(std::mem::take(pieces));
        let posted = match &self.ports[slot.ep].object {
            None => Err(Errno::EOPBADSTATE),
            Some(_) if index >= INDEX_MASK => Err(Errno::EAGAIN),
            Some(object) => lent.with(|iov| {
                let iov = iov.ok_or(Errno::EINVAL)?;
                object.post(&slot.request, iov, slot.context(index))
            }),
        };
        match posted {
            Ok(()) => {
                slot.state = State::Posted(lent);
                true
            }
            // Refused, so that the provider keeps nothing of it.
            Err(Errno::EAGAIN) => {
                slot.state = State::Waiting(lent.reclaim(Over::Refused));
                false
            }
            Err(errno) => {
                slot.state = State::Waiting(lent.reclaim(Over::Refused));
                let error = self.error(domain, index, errno);
                self.settle(index, Err(error), later);
                true
            }
        }
    }

    /// Posts what waited, as far as there is room now.
    fn post_waiting(&mut self, domain: &AnyDomain, later: &mut Later) {
        for ep in 0..self.ports.capacity() {
            for queue in 0..2 {
                let port = self.ports.get(ep);
                if queue == RECVS && port.is_some_and(|port| !port.given_back.is_empty()) {
                    self.post_around(domain, ep, later);
                    continue;
                }
                while let Some(port) = self.ports.get_mut(ep)
                    && let Some(index) = port.waiting[queue].pop_front()
                {
                    if !self.post(domain, index, later) {
                        self.ports[ep].waiting[queue].push_front(index);
                        break;
                    }
                    self.backlog -= 1;
                }
            }
        }
    }

    /// Makes a call of which the provider copies the bytes. Where there is no room or connection yet,
    /// makes progress first, so that a loop around this gets on.
    pub(crate) fn inject(
        &mut self,
        domain: &AnyDomain,
        ep: usize,
        bytes: &[u8],
        call: impl Fn(&AnyEndpoint, UserBuf) -> std::result::Result<(), Errno>,
        later: &mut Later,
    ) -> std::result::Result<(), Errno> {
        match self.inject_at_once(ep, bytes, &call) {
            Err(Errno::EAGAIN) => {
                self.reap(domain, later);
                self.inject_at_once(ep, bytes, call)
            }
            done => done,
        }
    }

    fn inject_at_once(
        &mut self,
        ep: usize,
        bytes: &[u8],
        call: impl Fn(&AnyEndpoint, UserBuf) -> std::result::Result<(), Errno>,
    ) -> std::result::Result<(), Errno> {
        let port = self.ports.get(ep).ok_or(Errno::EOPBADSTATE)?;
        let object = port.object.as_ref().ok_or(Errno::EOPBADSTATE)?;
        if !port.waiting[0].is_empty() {
            // It would overtake them.
            return Err(Errno::EAGAIN);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(bytes);
        let lent = Parked::park(scratch);
        let done = call(object, lent.buf());
        self.scratch = reclaim(lent, Over::Copied);
        done
    }

    /// Drops the messages that have come for a receive like this, at most `most`; returns how many.
    pub(crate) fn discard(
        &mut self,
        domain: &AnyDomain,
        ep: usize,
        (kind, peer): (RecvKind, FiAddr),
        most: usize,
        later: &mut Later,
    ) -> std::result::Result<usize, Errno> {
        let [receive, request] =
            [Action::Recv(kind), Action::Discard(kind)].map(|action| Request { action, peer });
        let mut count = self.forget_given_back(ep, &receive);
        while count < most {
            self.begun = self.begun.wrapping_add(1);
            let state = State::Waiting(Pieces::default());
            let slot = Slot::new(ep, request, self.begun, state);
            let index = self.slots.insert(slot);
            if !self.post(domain, index, later) {
                self.slots.remove(index);
                break;
            }
            // The report of it may stand behind many others.
            let mut taken = self.take(index, later);
            while taken.is_none() && self.reap(domain, later) {
                taken = self.take(index, later);
            }
            match taken {
                Some((Ok(_), _)) => count += 1,
                Some((Err(error), _)) if error.errno() == Errno::ENOMSG => break,
                Some((Err(error), _)) => return Err(error.errno()),
                None => {
                    self.abandon(domain, index, later);
                    break;
                }
            }
        }
        Ok(count)
    }

    /// An operation is over, and the provider has nothing of it any more.
    fn settle(&mut self, index: usize, outcome: Result<Completion>, later: &mut Later) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        if matches!(slot.state, State::Done(..)) {
            return;
        }
        slot.state = State::Done(slot.take_pieces(), outcome);
        self.ended = self.ended.wrapping_add(1);
        self.quiet.leave(WaiterId::Op(slot.number));
        later.wake(slot.waker.take());
        if !slot.request.is_recv() {
            if slot.abandoned {
                self.slots.remove(index);
            }
            return;
        }
        let ep = slot.ep;
        if slot.abandoned {
            self.take_back(index, later);
        } else if let Some(port) = self.ports.get(ep)
            && !port.given_back.is_empty()
        {
            // It may have a message that is another's now, or be one's that never came.
            self.hand_on(ep, later);
        }
    }

    /// The outcome of an operation, once.
    #[inline]
    pub(crate) fn take(
        &mut self,
        index: usize,
        later: &mut Later,
    ) -> Option<(Result<Completion>, Pieces)> {
        if !matches!(self.slots.get(index)?.state, State::Done(..)) {
            return None;
        }
        let slot = self.slots.remove(index);
        later.drop(slot.waker);
        match slot.state {
            State::Done(pieces, outcome) => Some((outcome, pieces)),
            State::Waiting(_) | State::Posted(_) => None,
        }
    }

    /// Wakes `waker` when the operation is over.
    pub(crate) fn set_waker(
        &mut self,
        index: usize,
        waker: &Waker,
        later: &mut Later,
    ) -> Option<WaiterId> {
        let slot = self.slots.get_mut(index)?;
        let id = WaiterId::Op(slot.number);
        if !slot.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
            match slot.waker.replace(waker.clone()) {
                None => self.list_awaited(index),
                old => later.drop(old),
            }
        }
        Some(id)
    }

    fn list_awaited(&mut self, index: usize) {
        /// So many that are over are kept at least before they are taken out.
        const SPARE: usize = 64;
        self.awaited.push_back(index);
        if self.awaited.len() > 2 * self.slots.len() + SPARE {
            let slots = self.slots.iter();
            let awaited = slots.filter(|(_, slot)| slot.waker.is_some());
            self.awaited = awaited.map(|(index, _)| index).collect();
        }
    }

    /// Wakes a task that waits, if there is one, so that it polls the domain in place of one that does
    /// not wait any more.
    pub(crate) fn call_successor(&mut self, later: &mut Later) {
        while let Some(index) = self.awaited.pop_front() {
            let slot = self.slots.get(index);
            if let Some(waker) = slot.and_then(|slot| slot.waker.as_ref()) {
                later.wake(Some(waker.clone()));
                self.awaited.push_back(index);
                return;
            }
        }
    }

    /// Whether a task that waits may be the only one.
    pub(crate) fn is_one_awaited(&self) -> bool {
        self.awaited.len() < 2
    }

    /// What has begun and what was over until now: where neither changes, nothing happens.
    pub(crate) const fn steps(&self) -> (usize, usize) {
        (self.begun, self.ended)
    }

    /// Takes an operation out of the queue in which it waits for room.
    fn unqueue(&mut self, index: usize) {
        let Slot { ep, request, .. } = &self.slots[index];
        if let Some(port) = self.ports.get_mut(*ep) {
            let waiting = &mut port.waiting[queue(request)];
            let before = waiting.len();
            waiting.retain(|other| *other != index);
            self.backlog -= before - waiting.len();
        }
    }

    /// Whether the provider gives up an operation, which it reports then.
    fn cancel_posted(&self, index: usize) -> bool {
        let slot = &self.slots[index];
        let object = self.object(slot.ep);
        object.is_some_and(|object| object.cancel(slot.context(index)).is_ok())
    }

    /// Cancels what can be cancelled: what waits for room or for its peer to be connected, and a receive that no
    /// message has matched.
    pub(crate) fn cancel(&mut self, domain: &AnyDomain, index: usize, later: &mut Later) {
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        match slot.state {
            State::Done(..) => {}
            State::Waiting(_) => {
                self.unqueue(index);
                let error = self.error(domain, index, Errno::ECANCELED);
                self.settle(index, Err(error), later);
            }
            State::Posted(_) => {
                // What is under way completes by itself.
                if self.cancel_posted(index) {
                    self.reap(domain, later);
                }
            }
        }
    }

    /// Nobody will ask for the outcome: a send goes on, a receive is cancelled, and the message
    /// it has is there for others.
    pub(crate) fn abandon(&mut self, domain: &AnyDomain, index: usize, later: &mut Later) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        slot.abandoned = true;
        self.quiet.leave(WaiterId::Op(slot.number));
        later.drop(slot.waker.take());
        let (number, ep, is_recv) = (slot.number, slot.ep, slot.request.is_recv());
        match (is_recv, matches!(slot.state, State::Done(..))) {
            (false, false) => {}
            (false, true) => {
                self.slots.remove(index);
            }
            (true, true) => self.take_back(index, later),
            (true, false) => {
                self.cancel(domain, index, later);
                let there = |table: &Self| {
                    let slot = table.slots.get(index);
                    slot.is_some_and(|slot| slot.number == number)
                };
                if there(self) {
                    // Its message may be whole already.
                    self.reap(domain, later);
                }
                if there(self)
                    && let Some(port) = self.ports.get_mut(ep)
                {
                    port.given_back.leaving.push(index);
                }
            }
        }
    }

    /// Whether any task waits to be woken.
    pub(crate) fn is_awaited(&self) -> bool {
        let mut slots = self.slots.iter();
        slots.any(|(_, slot)| slot.waker.is_some()) || self.connections.awaited()
    }

    /// Operations that are not over, or whose outcome nobody took yet.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }
}

/// Which of the two queues of an endpoint an operation waits in.
const fn queue(request: &Request) -> usize {
    request.is_recv() as usize
}
