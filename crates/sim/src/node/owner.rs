//! A node whose receives are not the engine's: it is their owner itself, and matches.

use ripstop_engine::cq::ErrorEntry;
use ripstop_engine::id::MessageId;
use ripstop_engine::matching::Recv;
use ripstop_engine::stream::Arrival;
use ripstop_types::{Completion, CompletionError, Context, Errno, FiAddr, Flags, Result};

use super::Node;
use crate::memory::SimBuf;
use crate::network::Network;

/// What the owner of receives has.
#[derive(Debug, Default)]
pub(super) struct Owner {
    /// Receives that wait for a message, in the order they were posted.
    posted: Vec<Recv<SimBuf>>,
    /// Messages that wait for a receive, in the order they came.
    waiting: Vec<Arrival>,
}

impl Owner {
    pub(super) fn assert_empty(&self) {
        assert!(self.posted.is_empty(), "receives left");
        assert!(self.waiting.is_empty(), "messages left");
    }
}

impl Node {
    /// Whether a receive takes a message: its sender may have become known since it came.
    fn takes(&self, recv: &Recv<SimBuf>, arrival: &Arrival) -> bool {
        let mut want = recv.want;
        if !self.config.directed {
            want.src = FiAddr::UNSPEC;
        }
        want.accepts(
            arrival.envelope.tag,
            self.engine.source(self.srx, arrival.message),
        )
    }

    /// Posts a receive of the owner's.
    pub(super) fn post_own(&mut self, net: &mut Network, recv: Recv<SimBuf>) {
        assert!(!recv.multi, "an owner divides its buffers itself");
        let mut waiting = self.owner.waiting.iter();
        match waiting.position(|arrival| self.takes(&recv, arrival)) {
            Some(index) => {
                let arrival = self.owner.waiting.remove(index);
                self.give(arrival.message, recv);
            }
            None => self.owner.posted.push(recv),
        }
        self.after(net);
    }

    fn give(&mut self, message: MessageId, recv: Recv<SimBuf>) {
        let started = self.engine.start(self.srx, self.cq, message, recv);
        if let Some(copy) = started.expect("the message waits") {
            self.copy(&copy);
        }
    }

    /// Answers the engine about one message; returns whether there was one.
    pub(super) fn answer(&mut self) -> bool {
        let Some(arrival) = self.engine.next_arrival(self.srx) else {
            return false;
        };
        let mut posted = self.owner.posted.iter();
        if let Some(index) = posted.position(|recv| self.takes(recv, &arrival)) {
            let recv = self.owner.posted.remove(index);
            self.give(arrival.message, recv);
        } else {
            self.owner.waiting.push(arrival);
            let waits = self.engine.let_wait(self.srx, arrival.message);
            waits.expect("it is asked about");
        }
        true
    }

    /// Cancels a receive of the owner's.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] when it is not posted.
    pub(super) fn cancel_own(&mut self, context: Context) -> Result<()> {
        let posted = &mut self.owner.posted;
        let index = posted.iter().position(|recv| recv.context == context);
        let recv = posted.remove(index.ok_or(Errno::ENOENT)?);
        let kind = match recv.want.tag {
            Some(_) => Flags::TAGGED,
            None => Flags::MSG,
        };
        let entry = Completion {
            context,
            flags: kind | Flags::RECV,
            len: 0,
            buf: 0,
            data: 0,
            tag: recv.want.tag.map_or(0, |(tag, _)| tag),
            src: FiAddr::NOTAVAIL,
        };
        let cq = self.engine.cq_mut(self.cq).ok_or(Errno::EINVAL)?;
        cq.push_error(ErrorEntry::new(CompletionError {
            entry,
            olen: 0,
            err: Errno::ECANCELED,
            prov_errno: Errno::ECANCELED.0,
        }));
        Ok(())
    }
}
