//! Whose receives are not the provider's (`fi_peer(3)`): the owner, which matches them itself.

use ripstop_core::provider::{Arrival, Done, PeerRx as _};
use ripstop_types::{Completion, CompletionError, Errno, Flags};

use crate::model::{Posted, address};
use crate::node::{Entry, Node};

/// What the owner of a node's receives has.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    /// Receives that wait for a message, in the order they were posted, with their contexts.
    posted: Vec<(usize, Posted)>,
    /// Messages that wait for a receive, in the order they came.
    waiting: Vec<Arrival>,
}

impl Owner {
    /// Whether a receive takes a message: its sender may have become known since it came.
    fn takes(node: &Node, recv: &Posted, arrival: &Arrival) -> bool {
        let Some(rx) = &node.peer_rx else {
            return false;
        };
        let source = rx.source(arrival.message);
        let from = recv
            .src
            .is_none_or(|src| node.fi_addr(address(src)) == source);
        from && match (recv.tag, arrival.tag) {
            (None, None) => true,
            (Some((wanted, ignore)), Some(tag)) => (wanted ^ tag) & !ignore == 0,
            _ => false,
        }
    }

    fn give(node: &Node, message: u32, (context, recv): &(usize, Posted)) {
        if let Some(rx) = &node.peer_rx {
            let started = rx.start(message, &recv.iov, *context);
            started.expect("the message waits");
        }
    }

    /// Posts a receive.
    pub(crate) fn post(&mut self, node: &Node, context: usize, recv: Posted) {
        let mut waiting = self.waiting.iter();
        let first = waiting.position(|arrival| Self::takes(node, &recv, arrival));
        let recv = (context, recv);
        match first {
            Some(index) => Self::give(node, self.waiting.remove(index).message, &recv),
            None => self.posted.push(recv),
        }
    }

    /// Takes a receive back; the entry says so.
    pub(crate) fn cancel(&mut self, context: usize) -> Option<Entry> {
        let index = self
            .posted
            .iter()
            .position(|(other, _)| *other == context)?;
        let (_, recv) = self.posted.remove(index);
        let kind = match recv.tag {
            Some(_) => Flags::TAGGED,
            None => Flags::MSG,
        };
        let entry = Completion {
            context,
            flags: kind | Flags::RECV,
            ..Completion::BLANK
        };
        let error = CompletionError {
            entry,
            olen: 0,
            err: Errno::ECANCELED,
            prov_errno: Errno::ECANCELED.0,
        };
        Some(Entry::Failure(error, Vec::new()))
    }

    /// Whether a message waits for a receive, and which tag it has.
    pub(crate) fn first_waiting(&self) -> Option<Option<u64>> {
        self.waiting.first().map(|arrival| arrival.tag)
    }

    /// Answers about messages that came; returns what has ended.
    pub(crate) fn answer(&mut self, node: &Node) -> Vec<Entry> {
        let mut ended = Vec::new();
        let Some(rx) = &node.peer_rx else {
            return ended;
        };
        while let Some(arrival) = rx.next_arrival() {
            let mut posted = self.posted.iter();
            match posted.position(|(_, recv)| Self::takes(node, recv, &arrival)) {
                Some(index) => Self::give(node, arrival.message, &self.posted.remove(index)),
                None => {
                    let waits = rx.let_wait(arrival.message);
                    waits.expect("it is asked about");
                    self.waiting.push(arrival);
                }
            }
        }
        rx.take_done(usize::MAX, |done| {
            ended.push(match done {
                Done::Ok(completion) => Entry::Success(completion),
                Done::Failed(error, data) => Entry::Failure(error, data),
            });
        });
        ended
    }
}
