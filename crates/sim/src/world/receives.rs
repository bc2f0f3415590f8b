//! Steps that receive messages, or look for them.

use ripstop_core::provider::{Endpoint as _, RecvKind};
use ripstop_types::{Errno, FiAddr, Flags, Result};

use super::World;
use crate::memory::CANARY;
use crate::model::{Host, Posted, address};

impl World {
    /// A receive with buffers of these lengths.
    pub(super) fn recv(
        &mut self,
        host: Host,
        tag: Option<(u64, u64)>,
        src: Option<Host>,
        segments: &[usize],
        completion: bool,
    ) -> Posted {
        let src = src.map(|src| self.host(src));
        let node = self.node(host);
        let src = src.filter(|src| node.fi_addr(address(*src)) != FiAddr::NOTAVAIL);
        let src = src.filter(|_| self.setup.nodes[host].directed);
        let canaries = vec![CANARY; segments.iter().sum()];
        Posted {
            host,
            tag,
            src,
            iov: self.buffers(segments, &canaries),
            completion: completion || !self.setup.nodes[host].selective,
            multi: false,
            claim: false,
        }
    }

    fn call_recv(&mut self, recv: &Posted, context: usize, special: Flags) -> Result<()> {
        let mut flags = special;
        let selective = self.setup.nodes[recv.host].selective;
        flags.set(Flags::COMPLETION, recv.completion && selective);
        flags.set(Flags::MULTI_RECV, recv.multi);
        let given = (!flags.is_empty() || self.rng.bool()).then_some(flags);
        let node = self.node(recv.host);
        let src = recv
            .src
            .map_or(FiAddr::UNSPEC, |src| node.fi_addr(address(src)));
        let kind = match recv.tag {
            None => RecvKind::Msg,
            Some((tag, ignore)) => RecvKind::Tagged { tag, ignore },
        };
        node.ep.recv(kind, &recv.iov, src, context, given)
    }

    pub(super) fn post(&mut self, recv: Posted) {
        let context = self.model.context();
        let host = recv.host;
        if self.setup.nodes[host].owned {
            // What is not multi-receive, which an owner divides itself.
            let recv = Posted {
                completion: true,
                multi: false,
                ..recv
            };
            self.turns.turn.set(host);
            let node = self.nodes[host].as_ref().expect("it is not away");
            self.owners[host].post(node, context, recv.clone());
            self.model.posted(context, recv);
            return self.sync(host);
        }
        match self.call_recv(&recv, context, Flags::empty()) {
            Ok(()) => self.model.posted(context, recv),
            Err(error) => assert_eq!(error, Errno::EAGAIN),
        }
        self.sync_or_not(host);
    }

    /// Looks for a message; returns whether there was one.
    pub(super) fn peek(&mut self, what: Posted, claim: bool, discard: bool) -> bool {
        let context = self.model.context();
        let mut flags = Flags::PEEK;
        flags.set(Flags::CLAIM, claim);
        flags.set(Flags::DISCARD, discard);
        let host = what.host;
        let done = self.call_recv(&what, context, flags);
        done.expect("a look is always taken");
        self.model.peeked(context, what.clone(), claim, discard);
        self.sync(host);
        let found = self.model.outcome(context);
        let found = found.expect("a look ends at once");
        if found && claim && !discard {
            self.claims.push((host, context, what));
        }
        found
    }

    pub(super) fn claim(&mut self, host: Host, which: usize, len: usize, discard: bool) {
        let claims = self.claims.iter().enumerate();
        let own: Vec<usize> = claims
            .filter(|(_, (owner, ..))| *owner == host)
            .map(|(index, _)| index)
            .collect();
        let special = match discard {
            true => Flags::CLAIM | Flags::DISCARD,
            false => Flags::CLAIM,
        };
        let Some(index) = own.get(which % own.len().max(1)) else {
            // Nothing is set aside for this one.
            let recv = self.recv(host, Some((0, 1)), None, &[len], true);
            let context = self.model.context();
            let done = self.call_recv(&recv, context, special);
            assert_eq!(done, Err(Errno::ENOMSG));
            return;
        };
        let (_, context, what) = self.claims.remove(*index);
        let iov = self.buffers(&[len], &vec![CANARY; len]);
        let claim = Posted {
            iov,
            claim: true,
            ..what
        };
        let done = self.call_recv(&claim, context, special);
        match (done, discard) {
            (Ok(()), true) => self.model.peeked(context, claim, true, true),
            (Ok(()), false) => self.model.posted(context, claim),
            (Err(error), _) => assert!(error == Errno::ENOMSG && self.is_troubled(host), "{error}"),
        }
        self.sync(host);
    }

    /// Whether a connection of a node was cut, or one of its peers has ended.
    pub(super) fn is_troubled(&self, host: Host) -> bool {
        (0..self.nodes.len()).any(|other| self.model.is_troubled(host, other))
    }

    /// Takes a receive back, unless it has got a message.
    pub(super) fn cancel(&mut self, host: Host, context: usize) {
        let done = match self.setup.nodes[host].owned {
            false => self.node(host).ep.cancel(context),
            true => match self.owners[host].cancel(context) {
                None => Err(Errno::ENOENT),
                Some(entry) => {
                    self.model.cancelled(context);
                    self.note(host, &entry);
                    return;
                }
            },
        };
        match done {
            Ok(()) => self.model.cancelled(context),
            // It has matched: it ends later, or has without a word.
            Err(Errno::ENOENT) => {}
            Err(error) => panic!("{error}"),
        }
        self.sync(host);
    }

    pub(super) fn cancel_send(&mut self, host: Host, context: usize) {
        match self.node(host).ep.cancel(context) {
            Ok(()) => self.model.cancelled(context),
            // It is under way or done; the latter error where receives are another provider's.
            Err(Errno::ENOENT | Errno::ENOSYS) => {}
            Err(error) => panic!("{error}"),
        }
        self.sync(host);
    }

    /// Receives or drops what waits at all nodes; returns whether anything did.
    pub(super) fn receive_waiting(&mut self) -> bool {
        let mut any = false;
        for host in 0..self.nodes.len() {
            while let Some(tag) = self.owners[host].first_waiting() {
                any = true;
                let len = self.rng.usize(..3000);
                let tag = tag.map(|_| (0, u64::MAX));
                let recv = self.recv(host, tag, None, &[len], true);
                self.post(recv);
            }
            if self.setup.nodes[host].owned {
                continue;
            }
            for tag in [None, Some((0, u64::MAX))] {
                loop {
                    let drops = self.rng.bool();
                    let what = self.recv(host, tag, None, &[], true);
                    if !self.peek(what, false, drops) {
                        break;
                    }
                    any = true;
                    if !drops {
                        let len = self.rng.usize(..3000);
                        let recv = self.recv(host, tag, None, &[len], true);
                        self.post(recv);
                    }
                }
            }
        }
        any
    }
}
