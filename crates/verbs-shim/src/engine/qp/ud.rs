//! Queue pairs of datagrams (UD): whom they reach, and what comes to them.
//!
//! A datagram is a tagged message; beside it are its key and its immediate data, and in front of its payload the gid of
//! its sender. It is copied when the provider is given it, and its request is done. At the other end it is copied from
//! one of a ring of receives to the receive of the program, or dropped. So nobody's memory is with the provider, and no
//! request waits long for a peer: to one that takes nothing, datagrams are lost.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ripstop_mem::{Parked, UserBuf, copy, copy_in, copy_out};
use ripstop_types::{Errno, FiAddr, Result};
use slab::Slab;

use crate::engine::cq::Cq;
use crate::engine::qp::{Failure, Qp, State, ends_of, tag};
use crate::engine::request::{Asked, DATAGRAM, IMM, Op, SOLICITED, Send, Stage, To};
use crate::lent;
use crate::log::{self, Subsys, refuse};
use crate::net::{Ended, Net, Port};
use crate::sys::{
    IBV_WC_GRH, IBV_WC_LOC_LEN_ERR, IBV_WC_RECV, IBV_WC_SUCCESS, IBV_WC_WITH_IMM, ibv_gid, ibv_wc,
};

/// Most bytes of a datagram: `IBV_MTU_4096`.
pub(crate) const MTU: usize = 4096;

/// Bytes in front of a datagram in the receive of a program (`struct ibv_grh`).
pub(crate) const GRH: usize = 40;

/// Bytes in front of a datagram in its message: the gid of its sender.
const HEADER: usize = 16;

/// Receives of a queue pair that the provider has.
const RING: usize = 128;

/// Most datagrams of a queue pair to one peer that the provider has not sent.
const WINDOW: usize = 64;

/// Most datagrams of a queue pair to all peers that the provider has not sent: at most 16 MiB.
const WINDOWS: usize = 4096;

/// Most peers whose addresses a queue pair keeps.
const PEERS: usize = 1024;

/// How long a datagram waits for a peer that takes nothing, until it and those behind it are lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// An endpoint: the address of its device, and its port.
type Place = (IpAddr, u16);

/// The endpoint that a datagram goes to.
const fn endpoint(to: &To) -> Place {
    (to.ip, to.num as u16)
}

/// A peer of a queue pair.
struct Peer {
    addr: FiAddr,
    /// Its datagrams among the requests.
    waiting: usize,
    /// Those that the provider has.
    under_way: usize,
    /// Since when it takes nothing.
    full: Option<Instant>,
    /// It has taken nothing for too long, or cannot be reached: until it takes one, those that it has no room for are
    /// lost at once.
    stuck: bool,
    /// When it was last used, by the queue pair's clock.
    used: u64,
}

/// Why a datagram is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    Key,
    NoReceive,
    Unreachable,
    Stuck,
}

/// What a queue pair of datagrams has.
pub(crate) struct Datagrams {
    gid: ibv_gid,
    /// Room for a header, and for a message behind it so that its own header is the end of that one.
    ring: Vec<Parked>,
    /// Receives of the ring that the provider does not have.
    idle: Vec<usize>,
    /// Tells the endpoint from earlier ones, of which the provider may still report something.
    epoch: u16,
    peers: HashMap<Place, Peer>,
    under_way: Slab<(Parked, Place)>,
    clock: u64,
    /// One was for a peer that is stuck: whether it takes any again is to be looked at.
    met_stuck: bool,
    /// How many are lost, by [`Loss`].
    losses: [u64; 4],
}

impl Datagrams {
    pub(crate) fn new(gid: ibv_gid) -> Self {
        Self {
            gid,
            ring: Vec::new(),
            idle: Vec::new(),
            epoch: 0,
            peers: HashMap::new(),
            under_way: Slab::new(),
            clock: 0,
            met_stuck: false,
            losses: [0; 4],
        }
    }

    /// Frees what the endpoint had, which is dropped by now, and forgets what waited for peers.
    pub(super) fn forget(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.idle.clear();
        self.ring.drain(..).for_each(lent::free);
        let sent = std::mem::take(&mut self.under_way);
        sent.into_iter().for_each(|(_, (lent, _))| lent::free(lent));
        for peer in self.peers.values_mut() {
            (peer.waiting, peer.under_way) = (0, 0);
            (peer.full, peer.stuck) = (None, false);
        }
    }

    /// The number of a request in its context.
    fn number(&self, at: usize) -> u32 {
        u32::from(self.epoch) << 16 | at as u32
    }

    /// The place in the ring, or among what is under way, of a request that the provider reports.
    fn place_of(&self, context: usize) -> Option<usize> {
        let (epoch, at) = ((context >> 16) as u16, context as u16);
        (epoch == self.epoch).then_some(at.into())
    }

    /// Says that a datagram is lost: a program hears nothing of it.
    fn lost(&mut self, num: u32, loss: Loss) {
        let Some(count) = self.losses.get_mut(loss as usize) else {
            return;
        };
        *count += 1;
        if *count > 1 {
            return;
        }
        let why = match loss {
            Loss::Key => "one with another key (qkey) than the queue pair's is dropped",
            Loss::NoReceive => "one that finds no receive posted is dropped",
            Loss::Unreachable => "one to a peer that cannot be reached is lost",
            Loss::Stuck => "one to a peer that takes none is lost",
        };
        log::warn(
            Subsys::EpData,
            format_args!("datagrams of queue pair {num:#08x}: {why}; others like it are not told"),
        );
    }

    /// The peer there, which is found first if it is new. None where there is no room for one more.
    fn peer(&mut self, place: Place, net: &dyn Net) -> Option<&mut Peer> {
        self.clock += 1;
        if !self.peers.contains_key(&place) {
            if self.peers.len() >= PEERS {
                let unused = self.peers.iter();
                let unused = unused.filter(|(_, peer)| peer.waiting + peer.under_way == 0);
                let oldest = unused.min_by_key(|(_, peer)| peer.used);
                let oldest = oldest.map(|(place, _)| *place)?;
                net.remove(self.peers.remove(&oldest)?.addr);
            }
            let addr = net.insert(place.0, place.1).ok()?;
            let peer = Peer {
                addr,
                waiting: 0,
                under_way: 0,
                full: None,
                stuck: false,
                used: 0,
            };
            self.peers.insert(place, peer);
        }
        let peer = self.peers.get_mut(&place)?;
        peer.used = self.clock;
        Some(peer)
    }

    /// Gives the provider a datagram. Returns whether its request is done: it has gone, or is lost.
    fn start(&mut self, send: &Send, port: &dyn Port, num: u32, context: usize) -> bool {
        let Some((to, peer)) = send.to.and_then(|to| {
            let peer = self.peers.get_mut(&endpoint(&to))?;
            Some((to, peer))
        }) else {
            self.lost(num, Loss::Unreachable);
            return true;
        };
        let room = peer.under_way < WINDOW && self.under_way.len() < WINDOWS;
        let sent = if room {
            let lent = Parked::park(message(self.gid, send));
            let entry = self.under_way.vacant_entry();
            let number = u32::from(self.epoch) << 16 | entry.key() as u32;
            let sent = port.datagram(
                lent.buf(),
                tag(to.num, num) | marks(send),
                u64::from(to.key) << 32 | u64::from(imm(send)),
                peer.addr,
                context | number as usize,
            );
            match sent {
                Ok(()) => drop(entry.insert((lent, endpoint(&to)))),
                Err(_) => lent::free(lent),
            }
            sent
        } else {
            Err(Errno::EAGAIN)
        };
        let loss = match sent {
            Ok(()) => {
                peer.under_way += 1;
                peer.full = None;
                None
            }
            Err(Errno::EAGAIN) => {
                let since = *peer.full.get_or_insert_with(Instant::now);
                if !peer.stuck && since.elapsed() < PATIENCE {
                    return false;
                }
                peer.stuck = true;
                Some(Loss::Stuck)
            }
            Err(_) => Some(Loss::Unreachable),
        };
        peer.waiting = peer.waiting.saturating_sub(1);
        self.met_stuck |= peer.stuck;
        if let Some(loss) = loss {
            self.lost(num, loss);
        }
        true
    }

    /// Takes the end of a datagram that the provider has sent, or could not send.
    fn sent(&mut self, at: usize, num: u32, result: Result<()>) {
        let Some((lent, place)) = self.under_way.try_remove(at) else {
            return;
        };
        lent::free(lent);
        if let Some(peer) = self.peers.get_mut(&place) {
            peer.under_way = peer.under_way.saturating_sub(1);
            // Nobody waits for one that cannot be reached.
            (peer.full, peer.stuck) = (None, result.is_err());
        }
        if result.is_err() {
            self.lost(num, Loss::Unreachable);
        }
    }
}

/// What stands in the tag of a datagram.
fn marks(send: &Send) -> u64 {
    let told = if send.solicited { SOLICITED } else { 0 };
    match send.op {
        Op::Send { imm: Some(_) } => DATAGRAM | told | IMM,
        _ => DATAGRAM | told,
    }
}

/// The immediate data of a datagram, or 0.
fn imm(send: &Send) -> u32 {
    match send.op {
        Op::Send { imm } => imm.unwrap_or(0),
        _ => 0,
    }
}

/// The bytes of a datagram.
fn message(gid: ibv_gid, send: &Send) -> Vec<u8> {
    let inline = send.lent.as_ref().map(|lent| [lent.buf()]);
    let bufs: &[UserBuf] = match (&inline, &send.sges) {
        (Some(inline), _) => inline,
        (None, Ok(sges)) => sges.bufs(),
        (None, Err(_)) => &[],
    };
    let mut bytes = gid.0.to_vec();
    bytes.reserve_exact(send.len() as usize);
    for buf in bufs {
        let at = bytes.len();
        bytes.resize(at + buf.len(), 0);
        copy_in(&mut bytes[at..], *buf);
    }
    bytes
}

/// The header that a program finds in front of a datagram (`struct ibv_grh`), of version 6 whatever the addresses are.
fn grh(from: [u8; HEADER], to: ibv_gid, len: usize, imm: bool) -> [u8; GRH] {
    // The headers of InfiniBand, the payload in whole words, and a checksum.
    let len = 12 + 8 + 4 * usize::from(imm) + len.next_multiple_of(4) + 4;
    let [high, low] = (len as u16).to_be_bytes();
    let mut header = [0; GRH];
    // Next comes a header of InfiniBand (0x1b), 64 routers may be passed.
    header[..8].copy_from_slice(&[0x60, 0, 0, 0, high, low, 0x1b, 64]);
    header[8..24].copy_from_slice(&from);
    header[24..].copy_from_slice(&to.0);
    header
}

impl Qp {
    /// Whether it is one of datagrams.
    pub(crate) const fn is_ud(&self) -> bool {
        self.ud.is_some()
    }

    /// Checks that a request is one of its kind.
    ///
    /// # Errors
    /// `EINVAL` for a request of a queue pair of datagrams that is no datagram.
    pub(crate) fn check(&self, wr: &Asked) -> Result<()> {
        if !self.is_ud() || (wr.to.is_some() && matches!(wr.op, Op::Send { .. })) {
            return Ok(());
        }
        let why = format_args!(
            "queue pair {:#08x} sends datagrams, each with an address handle: it was asked for {:?} to {:?}",
            self.num, wr.op, wr.to
        );
        Err(refuse(Subsys::EpData, Errno::EINVAL, why))
    }

    /// Says where a datagram goes that is about to be posted, and finds its peer. Where it cannot be found, the datagram
    /// will be lost.
    pub(crate) fn route(&mut self, to: To, net: &dyn Net) -> To {
        let posted = self.state == State::Rts && self.room() > 0;
        let ud = self.ud.as_mut().filter(|_| posted);
        if let Some(peer) = ud.and_then(|ud| ud.peer(endpoint(&to), net)) {
            peer.waiting += 1;
        }
        // The upper half of the keys means that of the queue pair itself.
        let key = match to.key >> 31 {
            0 => to.key,
            _ => self.attr.qkey,
        };
        To { key, ..to }
    }

    /// Whether datagrams are on their way to peers that take them.
    pub(crate) fn is_sending(&self) -> bool {
        let peers = self.ud.iter().flat_map(|ud| ud.peers.values());
        let mut taking = peers.filter(|peer| !peer.stuck);
        self.state == State::Rts && taking.any(|peer| peer.waiting + peer.under_way > 0)
    }

    /// Whether a datagram was for a peer that is stuck, since this was last asked. Such requests are done at once, so a
    /// program that sends on may never find its completion queue empty, and poll for more.
    pub(crate) fn take_met_stuck(&mut self) -> bool {
        let ud = self.ud.as_mut();
        ud.is_some_and(|ud| std::mem::take(&mut ud.met_stuck))
    }

    /// Its peers, which it forgets.
    pub(crate) fn take_peers(&mut self) -> Vec<FiAddr> {
        let peers = self.ud.as_mut().map(|ud| std::mem::take(&mut ud.peers));
        let peers = peers.into_iter().flatten();
        peers.map(|(_, peer)| peer.addr).collect()
    }

    /// How many datagrams it has lost, for a test.
    #[cfg(test)]
    pub(crate) fn losses(&self, loss: Loss) -> u64 {
        self.ud.as_ref().map_or(0, |ud| ud.losses[loss as usize])
    }

    /// Whether the provider lacks a receive of the ring.
    pub(super) fn lacks_receives(&self) -> bool {
        let open = self.port.is_some() && self.takes_datagrams();
        self.ud
            .as_ref()
            .is_some_and(|ud| open && (ud.ring.is_empty() || !ud.idle.is_empty()))
    }

    /// Whether datagrams are received, if only to be dropped.
    fn takes_datagrams(&self) -> bool {
        matches!(self.state, State::Init | State::Rtr | State::Rts)
    }

    /// Gives the provider the receives of the ring, and the datagrams that can go.
    pub(super) fn advance_datagrams(&mut self) -> core::result::Result<(), Failure> {
        if self.takes_datagrams() {
            self.post_ring();
        }
        if matches!(self.state, State::Rtr | State::Rts)
            && let Some(Err(status)) = self.recvs.front().map(|recv| &recv.sges)
        {
            return Err(Failure::Recv(0, *status));
        }
        if self.state != State::Rts {
            return Ok(());
        }
        let (num, context) = (self.num, self.context(false, 0));
        while let (Some(send), Some(port), Some(ud)) =
            (self.sends.get_mut(self.posted), &self.port, &mut self.ud)
        {
            if let Err(status) = send.sges {
                return Err(Failure::Send(self.posted, status));
            }
            if !ud.start(send, &**port, num, context) {
                break;
            }
            if let Some(lent) = send.lent.take() {
                // It is copied.
                lent::free(lent);
            }
            send.stage = Stage::Done;
            self.posted += 1;
        }
        Ok(())
    }

    fn post_ring(&mut self) {
        let context = self.context(true, 0);
        let (Some(ud), Some(port)) = (&mut self.ud, &self.port) else {
            return;
        };
        if ud.ring.is_empty() {
            let room = || Parked::park(vec![0; GRH + MTU]);
            ud.ring.extend(std::iter::repeat_with(room).take(RING));
            ud.idle.extend(0..RING);
        }
        while let Some(at) = ud.idle.last().copied() {
            let place = ud.ring.get(at);
            let Some((_, room)) = place.and_then(|lent| lent.buf().split_at(GRH - HEADER)) else {
                break;
            };
            let context = context | ud.number(at) as usize;
            match port.recv(&[room], 0, u64::MAX, FiAddr::UNSPEC, context) {
                Ok(()) => drop(ud.idle.pop()),
                Err(Errno::EAGAIN) => break,
                Err(error) => {
                    // It is tried again.
                    let why = format_args!("a receive of datagrams is refused: {error}");
                    log::info(Subsys::EpData, why);
                    break;
                }
            }
        }
    }

    /// Takes the end of a datagram, one way or the other.
    pub(super) fn datagram_ended(&mut self, ended: &Ended, cqs: &mut Slab<Cq>) {
        let num = self.num;
        let Some(ud) = &mut self.ud else {
            return;
        };
        let Some(at) = ud.place_of(ended.context) else {
            return;
        };
        if ended.context >> 63 == 0 {
            ud.sent(at, num, ended.result);
            return;
        }
        if ended.result.is_ok() {
            self.deliver(at, ended, cqs);
        }
        // The provider gets it back when all that has come is looked at.
        if let Some(ud) = &mut self.ud {
            ud.idle.push(at);
        }
    }

    /// Gives the program the datagram that a receive of the ring has, or drops it.
    fn deliver(&mut self, at: usize, ended: &Ended, cqs: &mut Slab<Cq>) {
        let (to, from) = ends_of(ended.tag);
        let Some(ud) = &mut self.ud else {
            return;
        };
        let fits = (HEADER..=HEADER + MTU).contains(&ended.len);
        let ready = matches!(self.state, State::Rtr | State::Rts);
        if to != self.num || ended.tag & DATAGRAM == 0 || !fits || !ready {
            return;
        }
        if (ended.data >> 32) as u32 != self.attr.qkey {
            ud.lost(to, Loss::Key);
            return;
        }
        let recv = match self.recvs.front() {
            Some(recv) if recv.sges.is_ok() => self.recvs.pop_front(),
            _ => None,
        };
        let Some((recv, Ok(sges))) = recv.as_ref().map(|recv| (recv, &recv.sges)) else {
            ud.lost(to, Loss::NoReceive);
            return;
        };
        let len = GRH + ended.len - HEADER;
        let imm = ended.tag & IMM != 0;
        let whole = ud.ring.get(at).and_then(|lent| lent.buf().slice(0, len));
        let fitting = whole.filter(|_| sges.len() >= len as u64);
        let Some(whole) = fitting else {
            let wc = self.wc(recv.wr_id, IBV_WC_LOC_LEN_ERR, IBV_WC_RECV);
            self.push(self.recv_cq, wc, false, cqs);
            return;
        };
        if let Some((_, header)) = whole.split_at(GRH - HEADER) {
            let mut gid = [0; HEADER];
            copy_in(&mut gid, header);
            copy_out(whole, &grh(gid, ud.gid, len - GRH, imm));
        }
        scatter(sges.bufs(), whole);
        let wc = ibv_wc {
            byte_len: len as u32,
            src_qp: from,
            wc_flags: IBV_WC_GRH | if imm { IBV_WC_WITH_IMM } else { 0 },
            imm_data: if imm { ended.data as u32 } else { 0 },
            ..self.wc(recv.wr_id, IBV_WC_SUCCESS, IBV_WC_RECV)
        };
        self.push(self.recv_cq, wc, ended.tag & SOLICITED != 0, cqs);
    }
}

/// Copies one piece of memory to several, one after the other.
fn scatter(to: &[UserBuf], mut from: UserBuf) {
    for piece in to {
        let Some((now, rest)) = from.split_at(piece.len().min(from.len())) else {
            return;
        };
        copy(*piece, now);
        from = rest;
    }
}
