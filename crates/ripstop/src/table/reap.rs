//! Completions of a domain, from its queues to the operations that wait for them.

use ripstop_core::Address;
use ripstop_types::{Completion as Entry, CompletionError, Context, Errno, Flags};

use crate::backend::AnyDomain;
use crate::error::Error;
use crate::later::Later;
use crate::message::{Completion, Peer, Source};
use crate::table::{INDEX_BITS, INDEX_MASK, State, Table};

/// Completions taken from the provider at once.
const BATCH: usize = 16;

/// Batches handled before the lock is given up, so that posting threads get their turn.
const BATCHES: usize = 16;

impl Table {
    /// Makes progress: takes completions from the provider, and posts what waits for room.
    /// Returns whether anything was over.
    pub(crate) fn reap(&mut self, domain: &AnyDomain, later: &mut Later) -> bool {
        self.advances = self.advances.wrapping_add(1);
        let mut any = false;
        for _ in 0..BATCHES {
            let mut batch = [Entry::BLANK; BATCH];
            let mut count = 0;
            let read = domain.read(BATCH, |entry| {
                batch[count] = *entry;
                count += 1;
            });
            any |= count > 0;
            for entry in &batch[..count] {
                self.complete(entry, later);
            }
            match read {
                Ok(_) if count == BATCH => {}
                Ok(_) | Err(Errno::EAGAIN) => break,
                Err(Errno::EAVAIL) => {
                    any = true;
                    self.take_error(domain, later);
                }
                Err(errno) => {
                    self.fail_all(errno, later);
                    break;
                }
            }
        }
        if self.backlog > 0 {
            self.post_waiting(domain, later);
        }
        if !self.leaving.is_empty() {
            self.leaving.advance();
        }
        any
    }

    /// The queue has lost completions. Only closing all endpoints ends the operations then.
    #[cold]
    fn fail_all(&mut self, errno: Errno, later: &mut Later) {
        let eps: Vec<usize> = self.ports.iter().map(|(ep, _)| ep).collect();
        for ep in eps {
            self.ports[ep].object = None;
            self.end_all(ep, errno, later);
        }
    }

    /// The index of a posted operation.
    fn posted(&self, context: Context) -> Option<usize> {
        let index = (context & INDEX_MASK).checked_sub(1)?;
        let slot = self.slots.get(index)?;
        let same = slot.generation() == context >> INDEX_BITS;
        (same && matches!(slot.state, State::Posted(_))).then_some(index)
    }

    #[inline]
    fn complete(&mut self, entry: &Entry, later: &mut Later) {
        let Some(index) = self.posted(entry.context) else {
            return;
        };
        let completion = self.completion(index, entry);
        self.settle(index, Ok(completion), later);
    }

    fn completion(&self, index: usize, entry: &Entry) -> Completion {
        let slot = &self.slots[index];
        if !slot.request.is_recv() {
            let len = match &slot.state {
                State::Posted(lent) => lent.len(),
                _ => 0,
            };
            return Completion {
                len,
                tag: None,
                data: None,
                source: Source::Unknown,
            };
        }
        let has = |flag: Flags| entry.flags.contains(flag);
        Completion {
            len: entry.len,
            tag: has(Flags::TAGGED).then_some(entry.tag),
            data: has(Flags::REMOTE_CQ_DATA).then_some(entry.data),
            source: if entry.src.is_specified() {
                Source::Peer(Peer {
                    addr: entry.src,
                    domain: self.domain_id,
                })
            } else {
                Source::Unknown
            },
        }
    }

    #[cold]
    fn take_error(&mut self, domain: &AnyDomain, later: &mut Later) {
        let mut taken = None;
        let format = self.format;
        // The entry may be gone again only if somebody else reads the queue, which nobody does.
        let _ = domain.read_error(|error, data| {
            taken = Some((*error, Address::from_bytes(format, data).ok()));
        });
        let Some((error, address)) = taken else {
            return;
        };
        // Without an index it was injected, and nobody waits for it.
        let Some(index) = self.posted(error.entry.context) else {
            return;
        };
        if self.slots[index].request.is_recv() {
            return self.recv_error(domain, index, &error, address, later);
        }
        let failed = self.failed(domain, index, &error, address);
        self.settle(index, Err(failed), later);
    }

    #[cold]
    fn recv_error(
        &mut self,
        domain: &AnyDomain,
        index: usize,
        error: &CompletionError,
        address: Option<Address>,
        later: &mut Later,
    ) {
        let slot = &mut self.slots[index];
        if let Some(gift) = slot.extra.as_mut().and_then(|extra| extra.gift.take()) {
            return self.give(index, gift, later);
        }
        let mut completion = self.completion(index, &error.entry);
        if completion.source == Source::Unknown
            && let Some(address) = &address
        {
            completion.source = Source::Address(address.clone());
        }
        let outcome = match error.err {
            // The message is there; only its sender has no place in the address vector.
            Errno::EADDRNOTAVAIL => Ok(completion),
            err => {
                if err == Errno::ETRUNC {
                    self.slots[index].extra().cut = Some(completion);
                }
                Err(self.failed(domain, index, error, address))
            }
        };
        self.settle(index, outcome, later);
    }

    /// What the provider has reported, with the peer that it names if it names one.
    #[cold]
    fn failed(
        &self,
        domain: &AnyDomain,
        index: usize,
        error: &CompletionError,
        address: Option<Address>,
    ) -> Error {
        let failed = self.error(domain, index, error.err);
        let failed = failed.with_missing(error.olen);
        match address {
            Some(_) => failed.with_peer(address),
            None => failed,
        }
    }

    /// An error of an operation, with the peer it names.
    #[cold]
    pub(crate) fn error(&self, domain: &AnyDomain, index: usize, errno: Errno) -> Error {
        let slot = &self.slots[index];
        let peer = match slot.request.peer {
            named if named.is_specified() => domain.lookup(named).ok(),
            _ => self.object(slot.ep).and_then(|object| object.peer().ok()),
        };
        Error::new(errno, slot.request.operation()).with_peer(peer)
    }
}
