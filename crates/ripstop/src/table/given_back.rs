//! Messages of receives that were dropped: they go to whoever receives next, as if the dropped
//! receive had never been there.
//!
//! Receives match in the order they were posted, so the number of the receive that a message
//! was matched with says its place among the others (`order`). A message that is given back goes
//! to the oldest receive that fits it; one that already has a later message gives that one on in
//! exchange. While a message is still arriving for a dropped receive, receives that might take
//! it wait, so that none gets a later message first.

use ripstop_core::provider::RecvKind;
use ripstop_types::{Errno, FiAddr};

use super::{Later, RECVS, Slot, State, Table};
use crate::backend::AnyDomain;
use crate::error::Error;
use crate::message::{Action, Completion, Request, Source};

/// A message that no receive has any more.
#[derive(Debug)]
pub(super) struct Message {
    bytes: Vec<u8>,
    completion: Completion,
    /// Bytes at its end that did not fit where it was.
    missing: usize,
    /// Its place among the messages of the endpoint.
    order: usize,
}

/// What dropped receives of an endpoint have left behind.
#[derive(Debug, Default)]
pub(super) struct GivenBack {
    /// Messages that nobody receives yet, in order.
    messages: Vec<Message>,
    /// Dropped receives that the provider still fills.
    pub(super) leaving: Vec<usize>,
}

impl GivenBack {
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.leaving.is_empty()
    }

    fn keep(&mut self, message: Message) {
        let later = |other: &Message| other.order > message.order;
        let at = self.messages.iter().position(later);
        self.messages
            .insert(at.unwrap_or(self.messages.len()), message);
    }
}

/// What a receive accepts, if this is one.
const fn wanted(request: &Request) -> Option<(RecvKind, FiAddr)> {
    match request.action {
        Action::Recv(kind) => Some((kind, request.peer)),
        _ => None,
    }
}

/// Whether a receive accepts a message; `directed` says whether sources count.
fn accepts(request: &Request, message: &Message, directed: bool) -> bool {
    let Some((kind, src)) = wanted(request) else {
        return false;
    };
    let tag_fits = match (kind, message.completion.tag) {
        (RecvKind::Msg, None) => true,
        (RecvKind::Tagged { tag, ignore }, Some(sent)) => (tag ^ sent) & !ignore == 0,
        _ => false,
    };
    let from = message.completion.peer().map(|peer| peer.addr);
    tag_fits && (!directed || !src.is_specified() || from == Some(src))
}

/// Whether some message would be accepted by both.
fn overlap(a: &Request, b: &Request, directed: bool) -> bool {
    let (Some((a, from_a)), Some((b, from_b))) = (wanted(a), wanted(b)) else {
        return false;
    };
    let sources = !directed || !from_a.is_specified() || !from_b.is_specified() || from_a == from_b;
    let tags = match (a, b) {
        (RecvKind::Msg, RecvKind::Msg) => true,
        (
            RecvKind::Tagged { tag, ignore },
            RecvKind::Tagged {
                tag: other,
                ignore: others,
            },
        ) => (tag ^ other) & !ignore & !others == 0,
        _ => false,
    };
    sources && tags
}

impl Slot {
    /// The place of the message it has, or would have.
    fn order(&self) -> usize {
        let extra = self.extra.as_ref().and_then(|extra| extra.order);
        extra.unwrap_or(self.number)
    }

    /// Copies its message, if it is done with one.
    fn message(&self) -> Option<Message> {
        let State::Done(pieces, outcome) = &self.state else {
            return None;
        };
        let (completion, missing) = match outcome {
            Ok(completion) => (completion.clone(), 0),
            Err(error) => (self.extra.as_ref()?.cut.clone()?, error.missing()),
        };
        Some(Message {
            bytes: pieces.front(completion.len),
            completion,
            missing,
            order: self.order(),
        })
    }

    /// Is done, with this message.
    fn put(&mut self, message: Message) {
        let mut pieces = self.take_pieces();
        let Message {
            bytes,
            mut completion,
            missing,
            order,
        } = message;
        completion.len = pieces.fill(&bytes);
        let missing = missing + bytes.len() - completion.len;
        let extra = self.extra.get_or_insert_default();
        (extra.order, extra.cut) = (Some(order), None);
        let outcome = if missing == 0 {
            Ok(completion)
        } else {
            let peer = match &completion.source {
                Source::Address(address) => Some(address.clone()),
                Source::Peer(_) | Source::Unknown => None,
            };
            extra.cut = Some(completion);
            let error = Error::new(Errno::ETRUNC, self.request.operation());
            Err(error.with_missing(missing).with_peer(peer))
        };
        self.state = State::Done(pieces, outcome);
    }
}

impl Table {
    /// A receive that nobody asks for is over: its message, if it has one, goes to another.
    pub(super) fn take_back(&mut self, index: usize, later: &mut Later) {
        let Some(mut slot) = self.slots.try_remove(index) else {
            return;
        };
        later.drop(slot.waker.take());
        if let Some(port) = self.ports.get_mut(slot.ep) {
            port.given_back.leaving.retain(|other| *other != index);
            if let Some(message) = slot.message() {
                port.given_back.keep(message);
            }
            self.hand_on(slot.ep, later);
        }
    }

    /// A receive whose buffer the provider has let go of gets what was meant for it.
    pub(super) fn give(&mut self, index: usize, message: Message, later: &mut Later) {
        let slot = &mut self.slots[index];
        slot.put(message);
        later.wake(slot.waker.take());
        if slot.abandoned {
            self.take_back(index, later);
        } else {
            let ep = slot.ep;
            self.hand_on(ep, later);
        }
    }

    /// Gives the messages that were given back to those who receive, as far as there are any.
    pub(super) fn hand_on(&mut self, ep: usize, later: &mut Later) {
        let Some(port) = self.ports.get_mut(ep) else {
            return;
        };
        for message in std::mem::take(&mut port.given_back.messages) {
            if let Some(left) = self.offer(ep, message, later)
                && let Some(port) = self.ports.get_mut(ep)
            {
                port.given_back.keep(left);
            }
        }
    }

    /// Offers a message to the receives of an endpoint, the oldest first; returns what nobody
    /// takes: this message, or a later one that was given on in exchange.
    fn offer(&mut self, ep: usize, mut message: Message, later: &mut Later) -> Option<Message> {
        let directed = self.directed;
        let receives = self.slots.iter().filter(|(_, slot)| {
            slot.ep == ep && slot.number > 0 && slot.request.is_recv() && !slot.abandoned
        });
        let mut receives: Vec<_> = receives.map(|(index, slot)| (slot.number, index)).collect();
        receives.sort_unstable();
        for (_, index) in receives {
            let slot = &mut self.slots[index];
            if !accepts(&slot.request, &message, directed) {
                continue;
            }
            if let Some(gift) = slot.extra.as_mut().and_then(|extra| extra.gift.as_mut()) {
                if gift.order > message.order {
                    std::mem::swap(gift, &mut message);
                }
                continue;
            }
            match &slot.state {
                State::Done(..) => {
                    if slot.order() > message.order
                        && let Some(own) = slot.message()
                    {
                        slot.put(std::mem::replace(&mut message, own));
                    }
                }
                State::Waiting(_) => {
                    slot.put(message);
                    later.wake(slot.waker.take());
                    self.unqueue(index);
                    return None;
                }
                State::Posted(_) => {
                    let number = slot.number;
                    if self.cancel_posted(index) {
                        // The report of that is on its way, and the buffer free then.
                        self.slots[index].extra().gift = Some(message);
                        return None;
                    }
                    // A message is arriving for it. If that is a later one, they are exchanged
                    // when it is there.
                    if number > message.order {
                        return Some(message);
                    }
                }
            }
        }
        Some(message)
    }

    /// Posts the receives that wait, but none that might take a message which is arriving for a
    /// dropped one, or overtake another that waits for such.
    pub(super) fn post_around(&mut self, domain: &AnyDomain, ep: usize, later: &mut Later) {
        let mut at = 0;
        while let Some(port) = self.ports.get(ep)
            && let Some(index) = port.waiting[RECVS].get(at).copied()
        {
            let request = &self.slots[index].request;
            let leaving = port.given_back.leaving.iter();
            let mut before = leaving.chain(port.waiting[RECVS].iter().take(at));
            let held = before.any(|other| {
                let other = &self.slots[*other].request;
                overlap(request, other, self.directed)
            });
            if held {
                at += 1;
                continue;
            }
            self.ports[ep].waiting[RECVS].remove(at);
            if !self.post(domain, index, later) {
                self.ports[ep].waiting[RECVS].insert(at, index);
                break;
            }
            self.backlog -= 1;
        }
    }

    /// A sender has got a place in the address vector, or lost it: what was given back of it is
    /// from `now`.
    pub(crate) fn rename_given_back(&mut self, before: &Source, now: &Source, later: &mut Later) {
        let mut some = Vec::new();
        for (ep, port) in &mut self.ports {
            for message in &mut port.given_back.messages {
                if message.completion.source == *before {
                    message.completion.source = now.clone();
                    some.push(ep);
                }
            }
        }
        for ep in some {
            self.hand_on(ep, later);
        }
    }

    /// Forgets the messages given back that a receive like this would take; returns how many.
    pub(super) fn forget_given_back(&mut self, ep: usize, request: &Request) -> usize {
        let directed = self.directed;
        let Some(port) = self.ports.get_mut(ep) else {
            return 0;
        };
        let messages = &mut port.given_back.messages;
        let before = messages.len();
        messages.retain(|message| !accepts(request, message, directed));
        before - messages.len()
    }
}
