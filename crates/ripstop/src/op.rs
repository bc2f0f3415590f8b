//! Operations under way.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ripstop_core::provider::RecvKind;
use ripstop_types::FiAddr;

use crate::buf::{Bufs, Pieces};
use crate::error::Result;
use crate::later::Later;
use crate::message::{Action, Completion, Peer, Request};
use crate::port::Port;
use crate::table::Table;

/// What an operation ends with: success or error, and in both cases the buffer.
pub type Outcome<B> = (Result<Completion>, B);

/// A send or receive under way. It was started by the call that returned it, whether or not
/// anybody waits for it; messages are sent and receives are matched in the order of those
/// calls.
///
/// It can be awaited on any runtime, [waited for](Self::wait) without one, or
/// [looked at](Self::try_complete) from a loop. Each way gives the buffer back.
///
/// # Dropping
///
/// Dropping an operation is sound at any time: the buffer belongs to the operation until that
/// is over, and is freed then. A send that is dropped still goes out. A receive that is
/// dropped is cancelled, and a message that it was already matched with goes to the next
/// receive that fits it, in its order, as if the dropped one had never been posted; so a
/// `select!` loop that receives anew each time gets every message. Where the message is still
/// arriving, receives that might take it wait until it is there. What is not received by
/// anybody is kept until its endpoint closes, or is [discarded](crate::Endpoint::discard).
///
/// An operation keeps its endpoint open. When an endpoint closes with sends of dropped
/// operations under way, those whose bytes the provider has not taken are lost.
#[must_use = "a receive that is dropped is cancelled; a send that is dropped cannot be asked \
              whether it arrived"]
pub struct Op<B: Bufs> {
    port: Arc<Port>,
    index: usize,
    /// Polled before: what was there at once has been looked for.
    polled: bool,
    taken: bool,
    bufs: PhantomData<fn() -> B>,
}

impl<B: Bufs> Op<B> {
    pub(crate) const fn new(port: Arc<Port>, index: usize, bufs: PhantomData<fn() -> B>) -> Self {
        Self {
            port,
            index,
            polled: false,
            taken: false,
            bufs,
        }
    }

    /// Makes progress and returns the outcome if the operation is over; never blocks. Once it
    /// has given the outcome it gives `None`.
    #[inline]
    pub fn try_complete(&mut self) -> Option<Outcome<B>> {
        if self.taken {
            return None;
        }
        let core = self.port.core();
        let take = |table: &mut Table, later: &mut Later| table.take(self.index, later);
        let taken = core.with(|table, later| core.find(table, later, true, take));
        taken.map(|outcome| self.give(outcome))
    }

    /// Gives the outcome, and the buffers as they came.
    fn give(&mut self, (result, pieces): (Result<Completion>, Pieces)) -> Outcome<B> {
        self.taken = true;
        (result, B::from_pieces(pieces))
    }

    /// Waits until the operation is over, driving the domain meanwhile.
    pub fn wait(mut self) -> Outcome<B> {
        loop {
            if let Some(outcome) = self.wait_until(None) {
                return outcome;
            }
        }
    }

    /// As [`wait`](Self::wait), at most for `timeout`.
    ///
    /// # Errors
    /// The operation itself, still under way, when the time is over: wait again, cancel or
    /// drop it.
    pub fn wait_timeout(mut self, timeout: Duration) -> std::result::Result<Outcome<B>, Self> {
        let end = Instant::now().checked_add(timeout);
        self.wait_until(end).ok_or(self)
    }

    fn wait_until(&mut self, end: Option<Instant>) -> Option<Outcome<B>> {
        let port = Arc::clone(&self.port);
        let core = port.core();
        if let Some(outcome) = core.spin(end, || self.try_complete()) {
            return Some(outcome);
        }
        core.block(end, |cx| Pin::new(&mut *self).poll(cx))
    }

    /// Asks for the operation to be cancelled (`fi_cancel(3)`). Its outcome tells what came
    /// of that: `FI_ECANCELED`, or what it is when it was too late. A receive can be cancelled
    /// until a message has matched it, anything else only while it waits for room in the endpoint or for its peer to be
    /// connected. What fails after that ends with `FI_ECANCELED`.
    pub fn cancel(&self) {
        let core = self.port.core();
        core.with(|table, later| table.cancel(&core.domain, self.index, later));
    }
}

impl<B: Bufs> Future for Op<B> {
    type Output = Outcome<B>;

    /// # Panics
    /// When it is polled again after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        assert!(
            !this.taken,
            "an operation was polled after its outcome was taken"
        );
        // Often it is over by now, and nobody needs to be woken.
        let advance = !std::mem::replace(&mut this.polled, true);
        let index = this.index;
        let taken = this.port.core().poll(
            cx.waker(),
            advance,
            |table, later| table.take(index, later),
            |table, later| table.set_waker(index, cx.waker(), later),
        );
        taken.map(|outcome| this.give(outcome))
    }
}

impl<B: Bufs> Drop for Op<B> {
    fn drop(&mut self) {
        if !self.taken {
            let core = self.port.core();
            core.with(|table, later| {
                table.abandon(&core.domain, self.index, later);
                core.succeed(table, later);
            });
        }
    }
}

impl<B: Bufs> fmt::Debug for Op<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Op")
            .field("index", &self.index)
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

impl Port {
    /// Starts an operation; `peer` is the one it concerns, if that is a matter of choice.
    #[inline]
    pub(crate) fn start<B: Bufs>(
        self: &Arc<Self>,
        bufs: B,
        peer: Option<Peer>,
        action: Action,
    ) -> Op<B> {
        let pieces = bufs.into_pieces();
        let core = self.core();
        let (peer, refused) = match self.resolve(peer) {
            Ok(peer) => (peer, None),
            Err(errno) => (FiAddr::UNSPEC, Some(errno)),
        };
        let request = Request { action, peer };
        let index = core.with(|table, later| match refused {
            None => table.start(&core.domain, self.ep, request, pieces, later),
            Some(errno) => table.refuse(self.ep, request, pieces, errno),
        });
        Op::new(Arc::clone(self), index, PhantomData)
    }

    pub(crate) fn recv<B: Bufs>(
        self: &Arc<Self>,
        bufs: B,
        kind: RecvKind,
        from: Option<Peer>,
    ) -> Op<B> {
        self.start(bufs, from, Action::Recv(kind))
    }
}
