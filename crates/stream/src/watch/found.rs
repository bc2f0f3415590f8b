//! Finds what waits in the tables of a domain.

use std::collections::BTreeMap;
use std::time::Duration;

use ripstop_core::status::{Tag, Wait, WaitKind};
use ripstop_engine::coll::Held;
use ripstop_engine::id::{ConnId, EpId, SrxId};
use ripstop_engine::stream::{Pending, Queued, Waiting};
use ripstop_types::{FiAddr, Flags};

use crate::addr::Peers as _;
use crate::state::State;
use crate::state::held::Op;
use crate::state::watch::Key;
use crate::transport::Transport;
use crate::transport::link::Link as _;

/// Receives of either kind of one context that a pass looks at.
const MAX_RECEIVES: usize = 64;

/// Receives that a pass looks at in all.
const MAX_ALL_RECEIVES: usize = 1024;

/// Announced messages of one connection that a pass looks at.
const MAX_ANNOUNCED: usize = 16;

/// Works that a pass looks at.
const MAX_WORKS: usize = 64;

/// Something that waits.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) key: Key,
    pub(super) conn: Option<ConnId>,
    pub(super) wait: Wait,
}

/// The call that posts such an operation.
const fn call_of(flags: Flags) -> &'static str {
    if flags.contains(Flags::COLLECTIVE) {
        "a message of a collective operation"
    } else if flags.contains(Flags::ATOMIC) {
        "fi_atomic"
    } else if flags.contains(Flags::READ) {
        "fi_read"
    } else if flags.contains(Flags::WRITE) {
        "fi_write"
    } else if flags.contains(Flags::TAGGED) {
        "fi_tsend"
    } else {
        "fi_send"
    }
}

fn wait(kind: WaitKind, endpoint: EpId, call: &str, age: Duration) -> Wait {
    Wait {
        kind,
        endpoint: endpoint.number(),
        call: call.to_owned(),
        peer: None,
        pid: None,
        tag: None,
        len: 0,
        age: age.as_nanos() as u64,
        count: 1,
        note: String::new(),
    }
}

impl<T: Transport> State<T> {
    /// Everything that waits, in any order.
    pub(super) fn find_waits(&mut self, now: Duration) -> Vec<Found> {
        let mut found = Vec::new();
        self.find_receives(now, &mut found);
        for id in self.connections.ids() {
            let pending = self
                .engine
                .conn(id)
                .map(ripstop_engine::stream::Conn::pending);
            if let Some(pending) = pending {
                self.find_on_connection(id, &pending, now, &mut found);
            }
        }
        self.find_in_groups(now, &mut found);
        self.find_works(now, &mut found);
        found
    }

    /// The receives of each context, for the first endpoint that uses it.
    fn find_receives(&mut self, now: Duration, found: &mut Vec<Found>) {
        let mut contexts: BTreeMap<SrxId, EpId> = BTreeMap::new();
        for id in self.eps.ids() {
            if let Some(ep) = self.eps.get(id).filter(|ep| ep.has_rx && !ep.peer_rx) {
                contexts.entry(ep.srx).or_insert(id);
            }
        }
        let mut left = MAX_ALL_RECEIVES;
        for (srx, ep) in contexts {
            if left == 0 {
                break;
            }
            let mut waiting = Vec::new();
            self.engine
                .visit_posted(srx, MAX_RECEIVES, &mut |recv| waiting.push(recv));
            left = left.saturating_sub(waiting.len());
            // Of any source: one line for those with tags, and one for those without.
            let mut of_any: [Option<Found>; 2] = [None, None];
            for recv in waiting {
                let one = self.found_receive((srx, ep), &recv, now);
                if one.wait.kind == WaitKind::Receive {
                    found.push(one);
                    continue;
                }
                match &mut of_any[usize::from(recv.want.tag.is_some())] {
                    Some(all) => {
                        all.wait.count += 1;
                        if one.wait.age > all.wait.age {
                            let count = all.wait.count;
                            *all = one;
                            all.wait.count = count;
                        }
                    }
                    first @ None => *first = Some(one),
                }
            }
            found.extend(of_any.into_iter().flatten());
        }
    }

    fn found_receive(&mut self, (srx, ep): (SrxId, EpId), recv: &Waiting, now: Duration) -> Found {
        let key = Key::Recv(srx, recv.id);
        let age = self.watch.age(key, recv.is_new, 0, now);
        let source = self.engine.named_source(srx, &recv.want);
        let kind = match source {
            Some(_) => WaitKind::Receive,
            None => WaitKind::AnyReceive,
        };
        let call = match recv.want.tag {
            Some(_) => "fi_trecv",
            None => "fi_recv",
        };
        let mut wait = wait(kind, ep, call, age);
        wait.len = recv.len;
        wait.tag = recv.want.tag.map(|(tag, ignore)| Tag { tag, ignore });
        let mut conn = None;
        if let Some(source) = source {
            conn = self.connection_of(ep, source);
            wait.peer = Some(self.name_of(ep, source));
            wait.pid = conn.and_then(|id| self.connections.get(id)?.peer_pid);
        } else if let Some(of_msg) = self.eps.get(ep).filter(|ep| ep.is_msg && !ep.shared_srx) {
            wait.peer = of_msg.msg.peer.as_ref().map(ToString::to_string);
        }
        Found { key, conn, wait }
    }

    /// The connection with a peer of an endpoint, if there is one.
    fn connection_of(&self, ep: EpId, peer: FiAddr) -> Option<ConnId> {
        let index = usize::try_from(peer.0).ok()?;
        *self.eps.get(ep)?.routes.get(index)?
    }

    /// A peer of an endpoint by its address, as in log lines.
    fn name_of(&self, ep: EpId, peer: FiAddr) -> String {
        let rdm = self.eps.get(ep).and_then(|ep| ep.rdm.as_ref());
        let av = rdm.and_then(|rdm| self.avs.find(rdm.av));
        match av.and_then(|av| av.lookup(peer)) {
            Some(addr) => addr.to_string(),
            None => format!("fi_addr {}", peer.0),
        }
    }

    fn find_on_connection(
        &mut self,
        id: ConnId,
        pending: &Pending,
        now: Duration,
        found: &mut Vec<Found>,
    ) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let (ep, pid, is_up) = (connection.ep, connection.peer_pid, connection.is_up());
        let is_rma = |queued: &Queued| queued.flags.intersects(Flags::RMA.union(Flags::ATOMIC));
        let peer = &connection.peer;
        let mut add = |key: Key, mut wait: Wait| {
            wait.peer = Some(peer.to_string());
            wait.pid = pid;
            found.push(Found {
                key,
                conn: Some(id),
                wait,
            });
        };
        if let Some(queued) = pending.postponed.filter(|_| !is_up) {
            let key = Key::Connecting(id);
            let age = self.watch.age(key, false, 0, now);
            add(key, of_queue(WaitKind::Connecting, ep, &queued, age));
        }
        if pending.unsent > 0 && is_up {
            let key = Key::Unsent(id);
            let age = self.watch.age(key, false, pending.sent, now);
            let mut wait = wait(WaitKind::Unsent, ep, "data", age);
            wait.len = pending.unsent;
            add(key, wait);
        }
        if let Some(queued) = pending.reads {
            let key = Key::Reads(id);
            let age = self.watch.age(key, false, queued.mark, now);
            add(key, of_queue(WaitKind::Answer, ep, &queued, age));
        }
        if let Some(queued) = pending.acks {
            let key = Key::Acks(id);
            let age = self.watch.age(key, false, queued.mark, now);
            let kind = match is_rma(&queued) {
                true => WaitKind::Answer,
                false => WaitKind::Announced,
            };
            add(key, of_queue(kind, ep, &queued, age));
        }
        if let Some(queued) = pending.arriving {
            let key = Key::Arriving(id);
            let age = self.watch.age(key, false, queued.mark, now);
            let mut wait = of_queue(WaitKind::Arriving, ep, &queued, age);
            wait.call = "the rest of a message".to_owned();
            add(key, wait);
        }
        if pending.is_full {
            let key = Key::Full(id);
            let account = connection.link.as_ref().map(|link| link.account());
            // Whoever reads it now and then makes progress.
            let traffic = account.and_then(|account| account.traffic);
            let read = traffic.map_or(0, |traffic| traffic.received);
            let age = self.watch.age(key, false, read, now);
            let mut wait = wait(WaitKind::Unread, ep, "reading of messages", age);
            wait.count = pending.unexpected.max(1);
            add(key, wait);
        }
        if pending.announced > 0 {
            let watch = &mut self.watch;
            self.engine.visit_announced(id, MAX_ANNOUNCED, &mut |one| {
                let key = Key::Announced(id, one.index);
                let age = watch.age(key, one.is_new, 0, now);
                let mut wait = wait(WaitKind::Announced, ep, call_of(one.flags), age);
                wait.len = one.len;
                add(key, wait);
            });
        }
    }

    fn find_in_groups(&mut self, now: Duration, found: &mut Vec<Found>) {
        let mut held = Vec::new();
        self.engine.visit_groups(&mut |one| held.push(one));
        for Held {
            ep,
            operation,
            members,
            rank,
            member,
            others,
            age,
        } in held
        {
            let number = operation.map_or(u32::MAX, |(_, number)| number);
            let key = Key::Group(ep.number(), member.0, number);
            self.watch.age(key, age.is_zero(), 0, now);
            let (kind, call) = match operation {
                Some(_) => (WaitKind::Collective, "a collective operation"),
                None => (WaitKind::Join, "fi_join_collective"),
            };
            let mut wait = wait(kind, ep, call, age);
            wait.note = match operation {
                Some((coll, number)) => format!("{coll:?} {number} of a group of {members}"),
                None => format!("a group of {members}"),
            };
            wait.note += &format!(", member {rank}");
            if others > 0 {
                wait.note += &format!(" and {others} more");
            }
            wait.peer = Some(self.name_of(ep, member));
            let conn = self.connection_of(ep, member);
            wait.pid = conn.and_then(|id| self.connections.get(id)?.peer_pid);
            found.push(Found { key, conn, wait });
        }
    }

    fn find_works(&mut self, now: Duration, found: &mut Vec<Found>) {
        let Self {
            works,
            engine,
            watch,
            ..
        } = self;
        for (id, when, held) in works.queue.waiting().take(MAX_WORKS) {
            let Some(counter) = engine.counter(when.counter) else {
                continue;
            };
            let value = when.basis.of(counter);
            let key = Key::Work(id);
            let age = watch.age(key, false, value ^ when.threshold.rotate_left(32), now);
            let ep = match (held.owner(), &held.op) {
                (crate::state::held::Owner::Ep(ep), _) => ep,
                (_, Op::Set(..) | Op::Add(..) | Op::Data(_) | Op::Starting(_)) => EpId::FIRST,
            };
            let mut wait = wait(WaitKind::Threshold, ep, "triggered work", age);
            let id = when.counter.number();
            wait.note = format!("counter {id} is at {value} of {}", when.threshold);
            found.push(Found {
                key,
                conn: None,
                wait,
            });
        }
    }

    /// What a line of the log says of the connection that a wait is about.
    pub(super) fn state_of(&self, found: &Found) -> &'static str {
        if found.wait.peer.is_none() {
            return "";
        }
        match found.conn.and_then(|id| self.connections.get(id)) {
            None => ", and there is no connection",
            Some(connection) if connection.is_up() => ", and the connection is up",
            Some(_) => ", and the connection is being made",
        }
    }
}

fn of_queue(kind: WaitKind, ep: EpId, queued: &Queued, age: Duration) -> Wait {
    let mut wait = wait(kind, ep, call_of(queued.flags), age);
    wait.len = queued.len;
    wait.count = u32::try_from(queued.count).unwrap_or(u32::MAX);
    wait
}
