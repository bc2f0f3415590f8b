//! A domain as other processes see it.

use std::collections::{BTreeMap, BTreeSet};

use ripstop_core::status::{
    Counter, Endpoint, MAX_OBJECTS, MAX_PEERS, MAX_WAITS, Peer, PeerState, Queue, Snapshot,
    Traffic, Ways,
};
use ripstop_engine::id::{ConnId, CqId, EpId};
use ripstop_engine::stream::LongMessages;

use crate::state::State;
use crate::state::connection::Phase;
use crate::state::ep::EpState;
use crate::transport::direct_access::DirectAccess as _;
use crate::transport::link::Link as _;
use crate::transport::{DirectOf, Transport};
use crate::watch::found::Found;

/// The protocol of long messages in words.
fn protocol(long: LongMessages) -> String {
    let LongMessages { eager_max, get_min } = long;
    let asked = match eager_max {
        u64::MAX => "eager".to_owned(),
        most => format!("rendezvous above {most} B"),
    };
    match get_min {
        u64::MAX => asked,
        least => format!("got from {least} B, {asked}"),
    }
}

impl<T: Transport> State<T> {
    /// What there is, with what was found to wait, the oldest first.
    pub(super) fn snapshot(&mut self, found: Vec<Found>) -> Snapshot {
        let mut oldest: BTreeMap<ConnId, u64> = BTreeMap::new();
        for one in &found {
            if let Some(conn) = one.conn {
                let age = oldest.entry(conn).or_default();
                *age = one.wait.age.max(*age);
            }
        }
        let connections = self.connections.ids();
        let mut ids: Vec<_> = connections
            .filter(|id| self.connections.get(*id).is_some())
            .collect();
        let all_peers = ids.len() as u32;
        ids.sort_by_key(|id| std::cmp::Reverse(oldest.get(id).copied()));
        ids.truncate(MAX_PEERS);
        let peers = ids.iter();
        let peers = peers
            .filter_map(|id| self.peer(*id, oldest.get(id).copied()))
            .collect();
        let all_waits = found.len() as u32;
        let waits = found.into_iter().take(MAX_WAITS).map(|one| one.wait);
        let mut counters = Vec::new();
        self.engine.visit_counters(&mut |id, [value, errors]| {
            counters.push(Counter { id, value, errors });
        });
        let ways = self.copies().map(|copies| Ways {
            stream: copies.ring,
            mapped: copies.mapped,
            attach: copies.attach,
        });
        Snapshot {
            provider: T::NAME.to_owned(),
            program: self.watch.program.clone(),
            rank: self.watch.rank,
            has_thread: self.watch.has_thread,
            sleeps_outside: self.waiters.any_outside(),
            endpoints: self.endpoints(),
            peers,
            all_peers,
            waits: waits.collect(),
            all_waits,
            counters,
            queues: self.queues(),
            ways,
        }
    }

    fn endpoints(&mut self) -> Vec<Endpoint> {
        let mut endpoints = Vec::new();
        for id in self.eps.ids() {
            let Some(ep) = self.eps.get(id) else { continue };
            let name = match &ep.rdm {
                Some(rdm) => rdm.addr.to_string(),
                None => self.name_of_msg(ep),
            };
            let (is_msg, srx) = (ep.is_msg, ep.srx);
            endpoints.push(Endpoint {
                id: id.number(),
                name,
                is_msg,
                outstanding: self.engine.outstanding(id) as u64,
                receives: self.engine.visit_posted(srx, 0, &mut |_| {}) as u64,
            });
            if endpoints.len() == MAX_OBJECTS {
                break;
            }
        }
        endpoints
    }

    /// The address of a connected endpoint, which is that of its link as soon as it has one.
    fn name_of_msg(&self, ep: &EpState<T>) -> String {
        let id = ep.routes.first().copied().flatten();
        let link = id.and_then(|id| self.connections.get(id)?.link.as_ref());
        let local = link.and_then(|link| link.local_addr().ok());
        let local = local.or_else(|| ep.msg.local.clone());
        local.map(|addr| addr.to_string()).unwrap_or_default()
    }

    /// The queues that endpoints report to.
    fn queues(&self) -> Vec<Queue> {
        let of_ep = |id: EpId| {
            let config = self.engine.ep(id);
            config.map(|config| [config.tx_cq, config.rx_cq])
        };
        let ids: BTreeSet<CqId> = self
            .eps
            .ids()
            .filter_map(of_ep)
            .flatten()
            .flatten()
            .collect();
        let queue = |id: CqId| {
            Some(Queue {
                id: id.number(),
                entries: self.engine.cq(id)?.len() as u64,
            })
        };
        ids.into_iter()
            .take(MAX_OBJECTS)
            .filter_map(queue)
            .collect()
    }

    fn peer(&self, id: ConnId, oldest: Option<u64>) -> Option<Peer> {
        let connection = self.connections.get(id)?;
        let conn = self.engine.conn(id)?;
        let pending = conn.pending();
        let state = match connection.phase {
            Phase::Waiting => PeerState::Waiting,
            Phase::Connecting => PeerState::Connecting,
            Phase::Asked(_) => PeerState::Asked,
            Phase::Up if pending.is_full => PeerState::Full,
            Phase::Up => PeerState::Up,
        };
        let kind = match connection.is_polled() {
            true => "ring",
            false => "socket",
        };
        let link = connection.link.as_ref();
        let way = match link.and_then(|link| link.carrier()) {
            Some(provider) => format!("{provider} {kind}"),
            None => kind.to_owned(),
        };
        let copied = link
            .map(|link| DirectOf::<T>::copied(link))
            .unwrap_or_default();
        let account = link.map(|link| link.account()).unwrap_or_default();
        Some(Peer {
            endpoint: connection.ep.number(),
            name: connection.peer.to_string(),
            pid: connection.peer_pid,
            state,
            way,
            protocol: protocol(conn.long_messages()),
            traffic: account.traffic.map(|traffic| Traffic {
                unit: traffic.unit.to_owned(),
                sent: traffic.sent,
                received: traffic.received,
            }),
            ways: Ways {
                stream: self.long_queued(id) + copied.in_place,
                mapped: copied.mapped,
                attach: copied.attach,
            },
            queued: pending.unsent,
            unexpected: pending.unexpected,
            oldest,
            silence: account.silence.map(|silence| silence.as_nanos() as u64),
        })
    }
}
