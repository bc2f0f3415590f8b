//! Two endpoints that can talk, and the bookkeeping every case needs: tokens, retries, waiting
//! with a bound, progress on both sides.

mod open;
mod port;
mod remote;
mod spec;
mod steps;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ripstop_core::{Address, Info};
use ripstop_types::{Errno, FiAddr};

use crate::case::{Cx, Step, Stop};
use crate::pace::soon;
use crate::subject::{
    Claimed, Completion, CqError, EqError, Event, Fid, Inject, Post, Result as CallResult, Subject,
    Token,
};

pub use open::{Mesh, bare, free, hints, listener, listening, of_provider, offer, prepare, query};
pub(crate) use port::free_port;
pub use remote::{RmaCounters, Target};
pub use spec::Spec;

/// The first side.
pub const A: usize = 0;
/// The second side.
pub const B: usize = 1;

/// One endpoint and what belongs to it.
#[derive(Debug)]
pub struct Side {
    /// Its domain.
    pub domain: Fid,
    /// The endpoint.
    pub ep: Fid,
    /// The shared context it receives through.
    pub srx: Option<Fid>,
    /// Where its transmits complete, and its receives unless `rx_cq` is another.
    pub cq: Fid,
    /// Where its receives complete.
    pub rx_cq: Fid,
    /// Counts its transmits.
    pub tx_cntr: Option<Fid>,
    /// Counts its receives.
    pub rx_cntr: Option<Fid>,
    /// Count its reads and writes, and those that reach it.
    pub rma_cntrs: Option<RmaCounters>,
    /// Its address vector, on reliable datagram endpoints.
    pub av: Option<Fid>,
    /// Its event queue, on connected endpoints.
    pub eq: Option<Fid>,
    /// Its transport address.
    pub name: Option<Address>,
    /// The other side, in its address vector.
    pub peer: FiAddr,
    /// Completions that were read and not yet asked for.
    done: RefCell<VecDeque<Done>>,
}

/// How an operation ended.
type Done = std::result::Result<Completion, CqError>;

/// What an event queue had: an event, or a failure.
pub type Happened = std::result::Result<Event, EqError>;

/// A fabric and the endpoints in it, each knowing the next.
pub struct Rig<'a> {
    /// The implementation.
    pub s: &'a dyn Subject,
    /// What was opened.
    pub info: Info,
    /// The fabric.
    pub fabric: Fid,
    /// The endpoints: `A`, `B`, and more if a case opens them.
    pub sides: Vec<Side>,
    /// Memory that peers reach, and its registrations.
    exposed: RefCell<Vec<Fid>>,
    /// The listener, on connected endpoints.
    pub pep: Option<Fid>,
    /// The event queues to read when making progress.
    pub eqs: Vec<Fid>,
    events: RefCell<Vec<(Fid, Happened)>>,
    tokens: Cell<Token>,
}

impl<'a> Rig<'a> {
    /// Two endpoints that know each other, or are connected.
    ///
    /// # Errors
    ///
    /// Not offered when nothing has what the spec asks; failed when something does not open.
    #[track_caller]
    pub fn open(cx: &Cx<'a>, spec: &Spec) -> Step<Self> {
        open::rig(cx, spec)
    }

    /// A token that no operation has had.
    pub fn token(&self) -> Token {
        self.tokens.set(self.tokens.get() + 1);
        self.tokens.get()
    }

    /// Posts, with a token and the peer's address filled in, and makes progress while the
    /// queue is full.
    ///
    /// # Errors
    ///
    /// Failed when the queue stays full or the call says anything else.
    #[track_caller]
    pub fn post(&self, side: usize, post: Post) -> Step<Token> {
        let post = self.filled(side, post);
        let ep = self.sides[side].ep;
        self.retry("a full queue takes another operation", || {
            self.s.post(ep, &post)
        })?;
        Ok(post.token)
    }

    /// Posts once.
    ///
    /// # Errors
    ///
    /// What the call says.
    pub fn try_post(&self, side: usize, post: Post) -> CallResult<Token> {
        let post = self.filled(side, post);
        self.s.post(self.sides[side].ep, &post)?;
        Ok(post.token)
    }

    /// A post with a token and the peer's address filled in.
    pub fn filled(&self, side: usize, mut post: Post) -> Post {
        post.token = self.token();
        if !post.kind.receives() && post.addr == FiAddr::UNSPEC {
            post.addr = self.sides[side].peer;
        }
        post
    }

    /// Injects to the peer, and makes progress while the queue is full.
    ///
    /// # Errors
    ///
    /// Failed when the queue stays full or the call says anything else.
    #[track_caller]
    pub fn inject(
        &self,
        side: usize,
        bytes: &[u8],
        tag: Option<u64>,
        data: Option<u64>,
    ) -> Step<()> {
        let Side { ep, peer, .. } = self.sides[side];
        let inject = Inject {
            bytes,
            tag,
            data,
            addr: peer,
        };
        self.retry("a full queue takes another inject", || {
            self.s.inject(ep, inject)
        })
    }

    /// Receives what a peek has claimed.
    ///
    /// # Errors
    ///
    /// Failed when the call is refused.
    #[track_caller]
    pub fn claim(&self, side: usize, claimed: Token, mut post: Post) -> Step<Token> {
        post.token = self.token();
        self.s.claim(self.sides[side].ep, Claimed(claimed), &post)?;
        Ok(post.token)
    }

    /// Reads every completion queue and event queue once.
    ///
    /// # Errors
    ///
    /// Failed when a read says anything but an entry, an error entry or `FI_EAGAIN`.
    #[track_caller]
    pub fn pump(&self) -> Step<()> {
        for eq in &self.eqs {
            self.pump_eq(*eq)?;
        }
        for (i, side) in self.sides.iter().enumerate() {
            // A queue that sides share is read for the first of them.
            if self.sides[..i].iter().all(|s| s.cq != side.cq) {
                self.pump_queue(side, side.cq)?;
            }
            if side.rx_cq != side.cq {
                self.pump_queue(side, side.rx_cq)?;
            }
        }
        Ok(())
    }

    /// Reads every queue so many times: what can arrive does.
    ///
    /// # Errors
    ///
    /// As [`Rig::pump`].
    #[track_caller]
    pub fn pump_times(&self, times: usize) -> Step<()> {
        for _ in 0..times {
            self.pump()?;
        }
        Ok(())
    }

    /// Reads the completion queues of one side once.
    ///
    /// # Errors
    ///
    /// As [`Rig::pump`].
    #[track_caller]
    pub fn pump_side(&self, side: usize) -> Step<()> {
        let side = &self.sides[side];
        self.pump_queue(side, side.cq)?;
        match side.rx_cq == side.cq {
            true => Ok(()),
            false => self.pump_queue(side, side.rx_cq),
        }
    }

    /// Reads one event queue once.
    ///
    /// # Errors
    ///
    /// As [`Rig::pump`].
    #[track_caller]
    pub fn pump_eq(&self, eq: Fid) -> Step<()> {
        match self.s.eq_read(eq) {
            Ok(event) => self.events.borrow_mut().push((eq, Ok(event))),
            Err(e) if e.is(Errno::EAGAIN) => {}
            Err(e) if e.is(Errno::EAVAIL) => {
                let error = self.s.eq_readerr(eq)?;
                self.events.borrow_mut().push((eq, Err(error)));
            }
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    fn pump_queue(&self, side: &Side, cq: Fid) -> Step<()> {
        match self.s.cq_read(cq, 16) {
            Ok(read) => side.done.borrow_mut().extend(read.into_iter().map(Ok)),
            Err(e) if e.is(Errno::EAGAIN) => {}
            Err(e) if e.is(Errno::EAVAIL) => match self.s.cq_readerr(cq) {
                Ok(error) => side.done.borrow_mut().push_back(Err(error)),
                Err(e) if e.is(Errno::EAGAIN) => {}
                Err(e) => return Err(e.into()),
            },
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    /// Makes progress until `f` has something, at most [`soon`].
    ///
    /// # Errors
    ///
    /// Failed when time is up: "`what` did not happen".
    #[track_caller]
    pub fn until<T>(&self, what: &str, f: impl FnMut() -> Step<Option<T>>) -> Step<T> {
        self.until_within(soon(), what, f)
    }

    /// Makes progress until a call says something else than `FI_EAGAIN`.
    ///
    /// # Errors
    ///
    /// Failed when it fails, or time is up.
    #[track_caller]
    pub fn retry<T>(&self, what: &str, mut call: impl FnMut() -> CallResult<T>) -> Step<T> {
        Ok(self.until(what, || match call() {
            Err(e) if e.is(Errno::EAGAIN) => Ok(None),
            other => Ok(Some(other)),
        })??)
    }

    /// As [`Rig::until`], with a bound of its own.
    ///
    /// # Errors
    ///
    /// As [`Rig::until`].
    #[track_caller]
    pub fn until_within<T>(
        &self,
        bound: Duration,
        what: &str,
        mut f: impl FnMut() -> Step<Option<T>>,
    ) -> Step<T> {
        let start = Instant::now();
        loop {
            if let Some(found) = f()? {
                return Ok(found);
            }
            if start.elapsed() > bound {
                return Err(Stop::fail(format!("within {bound:?}, not: {what}")));
            }
            self.pump()?;
        }
    }

    /// Makes progress everywhere without taking a completion.
    ///
    /// # Errors
    ///
    /// Failed when a read says anything but `FI_EAGAIN` or `FI_EAVAIL`.
    #[track_caller]
    pub fn nudge(&self) -> Step<()> {
        for side in &self.sides {
            for cq in [side.cq, side.rx_cq] {
                match self.s.cq_read(cq, 0) {
                    Ok(_) => {}
                    Err(e) if e.is(Errno::EAGAIN) || e.is(Errno::EAVAIL) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
        Ok(())
    }

    /// As [`Rig::until`], but takes no completion while it waits.
    ///
    /// # Errors
    ///
    /// As [`Rig::until`].
    #[track_caller]
    pub fn watch<T>(&self, what: &str, mut f: impl FnMut() -> Step<Option<T>>) -> Step<T> {
        let start = Instant::now();
        loop {
            if let Some(found) = f()? {
                return Ok(found);
            }
            if start.elapsed() > soon() {
                return Err(Stop::fail(format!("within {:?}, not: {what}", soon())));
            }
            self.nudge()?;
        }
    }

    /// Waits for a transmit to complete, reading that side's queue only; whatever else
    /// completes elsewhere has time to do so, and stays where it is.
    ///
    /// # Errors
    ///
    /// Failed when it does not complete.
    #[track_caller]
    pub fn sent(&self, side: usize, token: Token) -> Step<()> {
        self.watch("a completion of the send", || {
            self.pump_queue(&self.sides[side], self.sides[side].cq)?;
            match self.take(side, token) {
                Some(Ok(_)) => Ok(Some(())),
                Some(Err(e)) => Err(Stop::fail(format!("the send failed: {}", e.err.name()))),
                None => Ok(None),
            }
        })?;
        let end = Instant::now() + Duration::from_millis(20);
        while Instant::now() < end {
            self.nudge()?;
        }
        Ok(())
    }

    /// Waits for what happens next on an event queue of [`Rig::eqs`].
    ///
    /// # Errors
    ///
    /// Failed when nothing happens in time.
    #[track_caller]
    pub fn event(&self, eq: Fid) -> Step<Happened> {
        self.event_within(soon(), eq)
    }

    /// As [`Rig::event`], with a bound of its own.
    ///
    /// # Errors
    ///
    /// As [`Rig::event`].
    #[track_caller]
    pub fn event_within(&self, bound: Duration, eq: Fid) -> Step<Happened> {
        self.until_within(bound, "an event", || Ok(self.take_event(eq)))
    }

    /// Waits for what happens next on any event queue of [`Rig::eqs`].
    ///
    /// # Errors
    ///
    /// As [`Rig::event`].
    #[track_caller]
    pub fn any_event(&self) -> Step<Happened> {
        self.until("an event", || {
            let mut events = self.events.borrow_mut();
            let first = (!events.is_empty()).then(|| events.remove(0));
            Ok(first.map(|(_, event)| event))
        })
    }

    /// What has happened on an event queue of [`Rig::eqs`], if it has been read.
    pub fn take_event(&self, eq: Fid) -> Option<Happened> {
        let mut events = self.events.borrow_mut();
        let found = events.iter().position(|(at, _)| *at == eq)?;
        Some(events.remove(found).1)
    }

    /// Waits for `FI_CONNREQ`: the request and its data.
    ///
    /// # Errors
    ///
    /// Failed when something else happens, or nothing.
    #[track_caller]
    pub fn request(&self, eq: Fid) -> Step<(Info, Vec<u8>)> {
        match self.event(eq)? {
            Ok(Event::ConnReq { info, data, .. }) => Ok((*info, data)),
            other => Err(Stop::fail(format!("expected FI_CONNREQ, got {other:?}"))),
        }
    }

    /// Waits for `FI_CONNECTED` of a side: the peer's data.
    ///
    /// # Errors
    ///
    /// Failed when something else happens, or nothing.
    #[track_caller]
    pub fn connected(&self, side: usize) -> Step<Vec<u8>> {
        let Side { eq, ep, .. } = self.sides[side];
        let eq = eq.ok_or_else(|| Stop::fail("no event queue"))?;
        match self.event(eq)? {
            Ok(Event::Connected { ep: of, data }) if of == ep => Ok(data),
            other => Err(Stop::fail(format!("expected FI_CONNECTED, got {other:?}"))),
        }
    }

    /// The passive endpoint of connected endpoints.
    ///
    /// # Errors
    ///
    /// Failed when there is none.
    #[track_caller]
    pub fn listener(&self) -> Step<Fid> {
        self.pep.ok_or_else(|| Stop::fail("no passive endpoint"))
    }

    /// The address vector of a reliable datagram endpoint.
    ///
    /// # Errors
    ///
    /// Failed when there is none.
    #[track_caller]
    pub fn av(&self, side: usize) -> Step<Fid> {
        let av = self.sides[side].av;
        av.ok_or_else(|| Stop::fail("no address vector"))
    }

    /// The end of an operation, if it has come.
    fn take(&self, side: usize, token: Token) -> Option<Done> {
        self.take_if(side, token, |_| true)
    }

    fn take_if(&self, side: usize, token: Token, wanted: impl Fn(&Done) -> bool) -> Option<Done> {
        let mut done = self.sides[side].done.borrow_mut();
        let found = done.iter().position(|d| {
            let entry = d.as_ref().unwrap_or_else(|e| &e.entry);
            entry.token == Some(token) && wanted(d)
        })?;
        done.remove(found)
    }

    /// The success of an operation, if it has been read.
    pub fn take_done(&self, side: usize, token: Token) -> Option<Completion> {
        self.take_if(side, token, |done| done.is_ok())?.ok()
    }

    /// The failure of an operation, if it has been read.
    pub fn take_failed(&self, side: usize, token: Token) -> Option<CqError> {
        self.take_if(side, token, |done| done.is_err())?.err()
    }

    /// Waits for an operation to end.
    ///
    /// # Errors
    ///
    /// Failed when it does not end in time.
    #[track_caller]
    pub fn end(&self, side: usize, token: Token) -> Step<Done> {
        self.end_within(soon(), side, token)
    }

    /// As [`Rig::end`], with a bound of its own.
    ///
    /// # Errors
    ///
    /// As [`Rig::end`].
    #[track_caller]
    pub fn end_within(&self, bound: Duration, side: usize, token: Token) -> Step<Done> {
        let name = ["A", "B"].get(side).copied().unwrap_or("another side");
        let what = format!("a completion of operation {token} at {name}");
        self.until_within(bound, &what, || Ok(self.take(side, token)))
    }

    /// Waits for an operation to succeed.
    ///
    /// # Errors
    ///
    /// Failed when it does not.
    #[track_caller]
    pub fn done(&self, side: usize, token: Token) -> Step<Completion> {
        match self.end(side, token)? {
            Ok(completion) => Ok(completion),
            Err(e) => Err(Stop::fail(format!(
                "operation failed with {} (provider code {})",
                e.err.name(),
                e.prov_errno
            ))),
        }
    }

    /// Waits for an operation to fail.
    ///
    /// # Errors
    ///
    /// Failed when it succeeds or does not end.
    #[track_caller]
    pub fn failed(&self, side: usize, token: Token) -> Step<CqError> {
        match self.end(side, token)? {
            Err(error) => Ok(error),
            Ok(_) => Err(Stop::fail("the operation succeeded, expected an error")),
        }
    }

    /// Nothing more comes for a while.
    ///
    /// # Errors
    ///
    /// Failed when a completion or an event is left that nobody asked for.
    #[track_caller]
    pub fn quiet(&self) -> Step<()> {
        let end = Instant::now() + Duration::from_millis(20);
        while Instant::now() < end {
            self.pump()?;
        }
        for (side, name) in self.sides.iter().zip(["A", "B", "C"]) {
            if let Some(first) = side.done.borrow().front() {
                return Err(Stop::fail(format!(
                    "an extra completion at {name}: {first:?}"
                )));
            }
        }
        if let Some((_, event)) = self.events.borrow().first() {
            return Err(Stop::fail(format!("an extra event: {event:?}")));
        }
        Ok(())
    }

    /// The end of most cases: nothing more comes, and everything closes.
    ///
    /// # Errors
    ///
    /// As [`Rig::quiet`] and [`Rig::close`].
    #[track_caller]
    pub fn finish(self) -> Step<()> {
        self.quiet()?;
        self.close()
    }

    /// Closes everything, children first, and checks each answer.
    ///
    /// # Errors
    ///
    /// Failed when something does not close.
    #[track_caller]
    pub fn close(self) -> Step<()> {
        let mut fids = Vec::new();
        fids.extend(self.sides.iter().map(|s| s.ep));
        fids.extend(self.pep);
        fids.extend(self.exposed.take());
        for side in &self.sides {
            fids.extend(side.srx);
            fids.extend([side.cq, side.rx_cq]);
            fids.extend(side.tx_cntr);
            fids.extend(side.rx_cntr);
            fids.extend(side.rma_cntrs.iter().flat_map(RmaCounters::all));
            fids.extend(side.av);
            fids.extend(side.eq);
        }
        fids.extend(&self.eqs);
        fids.extend(self.sides.iter().map(|s| s.domain));
        fids.push(self.fabric);
        let mut closed = Vec::new();
        for fid in fids {
            if !closed.contains(&fid) {
                self.s.close(fid)?;
                closed.push(fid);
            }
        }
        Ok(())
    }
}

/// Bytes that tell their place and their message.
#[must_use]
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|i| {
            let mixed = i.wrapping_mul(31) ^ (i / 251) ^ seed.wrapping_mul(97);
            mixed.to_le_bytes()[0]
        })
        .collect()
}

/// Tries a call until it says something else than `FI_EAGAIN`, at most [`soon`].
///
/// # Errors
///
/// What the call says at last.
pub fn again<T>(mut call: impl FnMut() -> CallResult<T>) -> CallResult<T> {
    let start = Instant::now();
    loop {
        match call() {
            Err(e) if e.is(Errno::EAGAIN) && start.elapsed() < soon() => {
                std::thread::sleep(Duration::from_micros(50));
            }
            other => return other,
        }
    }
}
