//! Queue pairs: what is posted, what is under way, and in which order it completes.
//!
//! A queue pair has an endpoint of its own from its creation to its end or to an error, so that nothing of it
//! outlives it: when the endpoint is dropped, no buffer is used any more, and the peer learns that this side is
//! gone. Messages are tagged with both queue pair numbers. A completion of the provider marks a request as
//! done; requests leave the front of their queue only, so a program sees them in order.

mod peer_gone;
mod ud;

use std::collections::VecDeque;
use std::time::Instant;

use ripstop_mem::UserBuf;
use ripstop_types::{Errno, FiAddr, Result, RmaIov};
use slab::Slab;

use crate::engine::cq::Cq;
use crate::engine::mr::Sges;
use crate::engine::request::{Came, IMM, MARKS, Op, Recv, SOLICITED, Send, Stage, WRITTEN};
use crate::lent;
use crate::log::{self, Subsys};
use crate::net::{Ended, Port};
use crate::sys::{
    IBV_WC_LOC_LEN_ERR, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_REM_ACCESS_ERR,
    IBV_WC_REM_INV_REQ_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_SUCCESS, IBV_WC_WITH_IMM,
    IBV_WC_WR_FLUSH_ERR, ibv_qp_attr, ibv_qp_cap, ibv_wc,
};

#[cfg(test)]
pub(crate) use ud::Loss;
pub(crate) use ud::{Datagrams, GRH, MTU, PATIENCE};

/// The tag of messages from one queue pair to another.
pub(super) const fn tag(to: u32, from: u32) -> u64 {
    (to as u64) << 40 | (from as u64) << 16
}

/// The queue pairs that a tag names: to which, and from which.
pub(super) const fn ends_of(tag: u64) -> (u32, u32) {
    ((tag >> 40) as u32, (tag >> 16) as u32 & 0x00ff_ffff)
}

/// Where a queue pair is (`ibv_modify_qp(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Reset,
    Init,
    Rtr,
    Rts,
    Err,
}

/// What a queue pair is in error for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The program, or its connection, has ended it.
    Commanded,
    /// The peer cannot be reached.
    PeerGone,
    /// The send at this place of its queue.
    Send(usize, i32),
    /// The receive at this place of its queue.
    Recv(usize, i32),
}

/// What a queue pair is made of.
pub(crate) struct Parts {
    pub(crate) num: u32,
    pub(crate) generation: u16,
    pub(crate) pd: u32,
    pub(crate) send_cq: usize,
    pub(crate) recv_cq: usize,
    pub(crate) srq: Option<usize>,
    pub(crate) all_signaled: bool,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) port: Box<dyn Port>,
    /// Of a queue pair of datagrams.
    pub(crate) ud: Option<Datagrams>,
}

/// A queue pair.
pub(crate) struct Qp {
    pub(crate) num: u32,
    pub(crate) generation: u16,
    pub(crate) pd: u32,
    pub(crate) send_cq: usize,
    pub(crate) recv_cq: usize,
    /// The shared receive queue, in place of one of its own.
    pub(crate) srq: Option<usize>,
    /// Ends of shared receives whose messages came before it was connected.
    pub(super) early: Vec<Ended>,
    pub(crate) all_signaled: bool,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) state: State,
    /// What `ibv_modify_qp` was given.
    pub(crate) attr: ibv_qp_attr,
    /// None after an error.
    pub(crate) port: Option<Box<dyn Port>>,
    pub(crate) peer: Option<FiAddr>,
    /// Of a queue pair of datagrams, which has no peer.
    ud: Option<Datagrams>,
    slot: usize,
    sends: VecDeque<Send>,
    /// Number of the first of `sends`.
    send_base: u32,
    /// How many of `sends` the provider has.
    posted: usize,
    /// Reads and atomics among them that are not done.
    fetching: usize,
    recvs: VecDeque<Recv>,
    recv_base: u32,
    recv_posted: usize,
    /// What it is about to be in error for: a request that could not be posted.
    failing: Option<Failure>,
    /// Its peer is gone, of which the program is told at this time.
    give_up_at: Option<Instant>,
}

impl Qp {
    pub(crate) fn new(parts: Parts, slot: usize) -> Self {
        Self {
            num: parts.num,
            generation: parts.generation,
            pd: parts.pd,
            send_cq: parts.send_cq,
            recv_cq: parts.recv_cq,
            srq: parts.srq,
            early: Vec::new(),
            all_signaled: parts.all_signaled,
            cap: parts.cap,
            state: State::Reset,
            attr: ibv_qp_attr::default(),
            port: Some(parts.port),
            peer: None,
            ud: parts.ud,
            slot,
            sends: VecDeque::new(),
            send_base: 0,
            posted: 0,
            fetching: 0,
            recvs: VecDeque::new(),
            recv_base: 0,
            recv_posted: 0,
            failing: None,
            give_up_at: None,
        }
    }

    /// The queue pair at the other end.
    pub(crate) const fn peer_num(&self) -> u32 {
        self.attr.dest_qp_num
    }

    /// Whether a request uses the region with this key.
    pub(crate) fn uses(&self, key: u32) -> bool {
        let uses =
            |sges: &core::result::Result<Sges, i32>| sges.as_ref().is_ok_and(|s| s.uses(key));
        // An atomic has both: operands that are lent, and memory for its result.
        self.sends.iter().any(|send| uses(&send.sges))
            || self.recvs.iter().any(|recv| uses(&recv.sges))
    }

    /// The context of the request with this number: slot and generation find the queue pair again.
    fn context(&self, recv: bool, number: u32) -> usize {
        usize::from(recv) << 63
            | (self.slot & 0x7fff) << 47
            | usize::from(self.generation & 0x7fff) << 32
            | number as usize
    }

    /// How many requests to send may be added.
    pub(crate) fn room(&self) -> usize {
        let most = self.cap.max_send_wr as usize;
        most.saturating_sub(self.sends.len())
    }

    /// Adds a request to send, which the program may post now.
    ///
    /// # Errors
    /// `ENOMEM` when the queue is full.
    pub(crate) fn post_send(&mut self, send: Send, cqs: &mut Slab<Cq>) -> Result<()> {
        if self.sends.len() >= self.cap.max_send_wr as usize {
            if let Some(lent) = send.lent {
                lent::free(lent);
            }
            return Err(Errno::ENOMEM);
        }
        self.sends.push_back(send);
        self.advance(cqs);
        Ok(())
    }

    /// Adds a receive.
    ///
    /// # Errors
    /// `ENOMEM` when the queue is full.
    pub(crate) fn post_recv(&mut self, recv: Recv, cqs: &mut Slab<Cq>) -> Result<()> {
        if self.recvs.len() >= self.cap.max_recv_wr as usize {
            return Err(Errno::ENOMEM);
        }
        self.recvs.push_back(recv);
        self.advance(cqs);
        Ok(())
    }

    /// Posts what the provider can take. Where a request fails, the queue pair waits for [`Qp::settle`].
    pub(crate) fn advance(&mut self, cqs: &mut Slab<Cq>) {
        if self.state == State::Err {
            self.flush(Failure::Commanded, cqs);
            return;
        }
        if self.failing.is_none() && !self.is_peer_gone() {
            let posted = match self.is_ud() {
                true => self.advance_datagrams(),
                false => self.advance_recvs().and_then(|()| self.advance_sends()),
            };
            self.failing = posted.err();
            if self.is_ud() {
                self.retire(cqs);
            }
        }
    }

    /// Whether a request has failed that could not be posted.
    pub(crate) const fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// Moves to the state of error, if a request has failed that could not be posted: at once, or in time where the peer is
    /// gone. What the provider has completed before is taken by now.
    pub(crate) fn settle(&mut self, cqs: &mut Slab<Cq>) {
        // It is the first that is not posted, wherever that is now.
        let failure = match self.failing {
            None => return,
            Some(Failure::Send(_, status)) => Failure::Send(self.posted, status),
            Some(Failure::Recv(_, status)) => Failure::Recv(self.recv_posted, status),
            Some(other) => other,
        };
        self.fail_in_time(failure, cqs);
    }

    /// Whether something waits for the provider to take it.
    pub(crate) fn is_stalled(&self) -> bool {
        if self.is_failing() || self.is_peer_gone() {
            return false;
        }
        let sends = self.state == State::Rts && self.posted < self.sends.len();
        let recvs =
            matches!(self.state, State::Rtr | State::Rts) && self.recv_posted < self.recvs.len();
        let recvs = if self.is_ud() {
            self.lacks_receives()
        } else {
            recvs
        };
        sends || recvs
    }

    fn advance_recvs(&mut self) -> core::result::Result<(), Failure> {
        let (State::Rtr | State::Rts, Some(peer)) = (self.state, self.peer) else {
            return Ok(());
        };
        while let (Some(recv), Some(port)) = (self.recvs.get(self.recv_posted), &self.port) {
            let at = self.recv_posted;
            let sges = match &recv.sges {
                Ok(sges) => sges,
                Err(status) if at == 0 => return Err(Failure::Recv(0, *status)),
                Err(_) => break,
            };
            let context = self.context(true, self.recv_base.wrapping_add(at as u32));
            let tag = tag(self.num, self.peer_num());
            match port.recv(sges.bufs(), tag, MARKS, peer, context) {
                Ok(()) => self.recv_posted += 1,
                Err(Errno::EAGAIN) => break,
                Err(error) => {
                    log::warn(
                        Subsys::EpData,
                        format_args!(
                            "queue pair {:#08x}: a receive is refused: {error}",
                            self.num
                        ),
                    );
                    return Err(Failure::PeerGone);
                }
            }
        }
        Ok(())
    }

    fn advance_sends(&mut self) -> core::result::Result<(), Failure> {
        let (State::Rts, Some(peer)) = (self.state, self.peer) else {
            return Ok(());
        };
        while let Some(send) = self.sends.get(self.posted) {
            let at = self.posted;
            if let Err(status) = send.sges {
                match at {
                    0 => return Err(Failure::Send(0, status)),
                    _ => break,
                }
            }
            if send.stage == Stage::Writing || (send.fence && self.fetching > 0) {
                break;
            }
            match self.start(at, peer) {
                Ok(()) => {}
                Err(Errno::EAGAIN) => break,
                Err(error) => {
                    log::warn(
                        Subsys::EpData,
                        format_args!(
                            "queue pair {:#08x}: a request is refused: {error}",
                            self.num
                        ),
                    );
                    return Err(Failure::Send(at, status_of(error)));
                }
            }
        }
        Ok(())
    }

    /// Gives the provider the next part of a request.
    fn start(&mut self, at: usize, peer: FiAddr) -> Result<()> {
        let context = self.context(false, self.send_base.wrapping_add(at as u32));
        let tag = tag(self.peer_num(), self.num);
        let (Some(send), Some(port)) = (self.sends.get(at), &self.port) else {
            return Err(Errno::EOPBADSTATE);
        };
        let inline = send.lent.as_ref().map(|lent| [lent.buf()]);
        let sges = send.sges.as_ref().map_or(&Sges::NONE, |sges| sges);
        let bufs: &[UserBuf] = match &inline {
            Some(inline) => inline,
            None => sges.bufs(),
        };
        let remote = |addr, key: u32| RmaIov {
            addr,
            len: send.len(),
            key: key.into(),
        };
        let told = if send.solicited { SOLICITED } else { 0 };
        let mut stage = Stage::Posted;
        match send.op {
            Op::Send { imm: None } => port.send(bufs, tag | told, 0, peer, context)?,
            Op::Send { imm: Some(imm) } => {
                port.send(bufs, tag | told | IMM, imm.into(), peer, context)?;
            }
            Op::Write { imm: Some(imm), .. } if send.stage == Stage::Written => {
                let data = send.len() << 32 | u64::from(imm);
                port.send(&[], tag | told | IMM | WRITTEN, data, peer, context)?;
            }
            Op::Write { addr, key, imm } => {
                port.write(bufs, remote(addr, key), peer, context)?;
                if imm.is_some() {
                    stage = Stage::Writing;
                }
            }
            Op::Read { addr, key } => port.read(bufs, remote(addr, key), peer, context)?,
            Op::Atomic { op, addr, key } => {
                let operands = inline.map_or([UserBuf::EMPTY; 2], |[both]| {
                    let (operand, compare) = both.split_at(8).unwrap_or((both, UserBuf::EMPTY));
                    [operand, compare]
                });
                let result = sges.bufs().first().copied().unwrap_or(UserBuf::EMPTY);
                port.atomic(op, operands, result, remote(addr, key), peer, context)?;
            }
        }
        let fetches = send.op.fetches();
        if let Some(send) = self.sends.get_mut(at) {
            send.stage = stage;
        }
        if stage == Stage::Posted {
            self.posted += 1;
            self.fetching += usize::from(fetches);
        }
        Ok(())
    }

    /// Takes the end of a request from the provider.
    pub(crate) fn ended(&mut self, ended: &Ended, cqs: &mut Slab<Cq>) {
        if self.is_ud() {
            self.datagram_ended(ended, cqs);
            return;
        }
        let number = ended.context as u32;
        let failure = if ended.context >> 63 == 1 {
            let at = number.wrapping_sub(self.recv_base) as usize;
            self.recv_ended(at, ended)
        } else {
            let at = number.wrapping_sub(self.send_base) as usize;
            self.send_ended(at, ended.result)
        };
        match failure {
            Some(failure) => self.fail_in_time(failure, cqs),
            None => {
                self.retire(cqs);
                self.advance(cqs);
            }
        }
    }

    fn send_ended(&mut self, at: usize, result: Result<()>) -> Option<Failure> {
        let send = self.sends.get_mut(at)?;
        if let Err(error) = result {
            log::warn(
                Subsys::EpData,
                format_args!(
                    "queue pair {:#08x}: request {:#x}: {error}",
                    self.num, send.wr_id
                ),
            );
            return Some(Failure::Send(at, status_of(error)));
        }
        match send.stage {
            Stage::Writing => send.stage = Stage::Written,
            Stage::Posted => {
                send.stage = Stage::Done;
                self.fetching -= usize::from(send.op.fetches());
                if let Some(lent) = send.lent.take() {
                    lent::free(lent);
                }
            }
            Stage::Waiting | Stage::Written | Stage::Done => {}
        }
        None
    }

    fn recv_ended(&mut self, at: usize, ended: &Ended) -> Option<Failure> {
        let recv = self.recvs.get_mut(at)?;
        match ended.result {
            Ok(()) => match came(self.num, ended) {
                Some(came) => {
                    recv.came = Some(came);
                    None
                }
                None => Some(Failure::Recv(at, IBV_WC_LOC_LEN_ERR)),
            },
            Err(Errno::ETRUNC) => Some(Failure::Recv(at, IBV_WC_LOC_LEN_ERR)),
            Err(error) => {
                log::info(
                    Subsys::EpData,
                    format_args!("queue pair {:#08x}: its peer is gone: {error}", self.num),
                );
                Some(Failure::PeerGone)
            }
        }
    }

    /// Completes a shared receive that a message of the peer has ended.
    pub(super) fn shared_recv(
        &self,
        recv: &Recv,
        ended: &Ended,
        cqs: &mut Slab<Cq>,
    ) -> Option<Failure> {
        match came(self.num, ended) {
            Some(came) => {
                self.complete_recv(recv, came, cqs);
                None
            }
            None => {
                self.shared_recv_failed(recv, IBV_WC_LOC_LEN_ERR, cqs);
                Some(Failure::Commanded)
            }
        }
    }

    /// Completes a shared receive in error.
    pub(super) fn shared_recv_failed(&self, recv: &Recv, status: i32, cqs: &mut Slab<Cq>) {
        let wc = self.wc(recv.wr_id, status, IBV_WC_RECV);
        self.push(self.recv_cq, wc, false, cqs);
    }

    /// Completes what is done at the front of the queues.
    fn retire(&mut self, cqs: &mut Slab<Cq>) {
        while self
            .sends
            .front()
            .is_some_and(|send| send.stage == Stage::Done)
        {
            let Some(send) = self.sends.pop_front() else {
                break;
            };
            self.send_base = self.send_base.wrapping_add(1);
            self.posted -= 1;
            if send.signaled || self.all_signaled {
                self.complete_send(&send, IBV_WC_SUCCESS, cqs);
            }
        }
        while let Some(came) = self.recvs.front().and_then(|recv| recv.came) {
            let Some(recv) = self.recvs.pop_front() else {
                break;
            };
            self.recv_base = self.recv_base.wrapping_add(1);
            self.recv_posted -= 1;
            self.complete_recv(&recv, came, cqs);
        }
    }

    /// A completion of this queue pair.
    fn wc(&self, wr_id: u64, status: i32, opcode: i32) -> ibv_wc {
        ibv_wc {
            wr_id,
            status,
            opcode,
            qp_num: self.num,
            ..ibv_wc::default()
        }
    }

    fn complete_send(&self, send: &Send, status: i32, cqs: &mut Slab<Cq>) {
        let mut wc = self.wc(send.wr_id, status, send.op.code());
        wc.byte_len = send.len() as u32;
        self.push(self.send_cq, wc, false, cqs);
    }

    fn complete_recv(&self, recv: &Recv, came: Came, cqs: &mut Slab<Cq>) {
        let written = came.marks & WRITTEN != 0;
        let opcode = if written {
            IBV_WC_RECV_RDMA_WITH_IMM
        } else {
            IBV_WC_RECV
        };
        let mut wc = self.wc(recv.wr_id, IBV_WC_SUCCESS, opcode);
        wc.byte_len = came.bytes() as u32;
        wc.src_qp = self.peer_num();
        if came.marks & IMM != 0 {
            wc.wc_flags = IBV_WC_WITH_IMM;
            wc.imm_data = came.data as u32;
        }
        self.push(self.recv_cq, wc, came.marks & SOLICITED != 0, cqs);
    }

    fn push(&self, cq: usize, wc: ibv_wc, solicited: bool, cqs: &mut Slab<Cq>) {
        if let Some(cq) = cqs.get_mut(cq)
            && cq.push(wc, solicited)
        {
            log::warn(
                Subsys::Cq,
                format_args!(
                    "queue pair {:#08x} has filled its completion queue: a device would lose completions; \
                     create the queue longer",
                    self.num
                ),
            );
        }
    }

    /// Moves to the state of error: nothing is under way any more, and everything posted completes.
    pub(crate) fn fail(&mut self, failure: Failure, cqs: &mut Slab<Cq>) {
        self.state = State::Err;
        (self.failing, self.give_up_at) = (None, None);
        self.end_port();
        self.flush(failure, cqs);
    }

    /// Drops the endpoint: nobody uses the buffers after this.
    fn end_port(&mut self) {
        self.port = None;
        if let Some(ud) = &mut self.ud {
            ud.forget();
        }
    }

    /// Counts everything posted as gone: what the provider still reports of it must not be taken for the end of
    /// a later request.
    fn count_off(&mut self) {
        self.send_base = self.send_base.wrapping_add(self.sends.len() as u32);
        self.recv_base = self.recv_base.wrapping_add(self.recvs.len() as u32);
    }

    /// Completes everything posted in error; what is done behind what is not has succeeded.
    fn flush(&mut self, failure: Failure, cqs: &mut Slab<Cq>) {
        self.count_off();
        for (at, mut send) in std::mem::take(&mut self.sends).into_iter().enumerate() {
            let status = match failure {
                Failure::Send(failed, status) if failed == at => status,
                Failure::PeerGone if at == 0 => IBV_WC_RETRY_EXC_ERR,
                _ => IBV_WC_WR_FLUSH_ERR,
            };
            let done = send.stage == Stage::Done;
            let status = if done { IBV_WC_SUCCESS } else { status };
            if !done || send.signaled || self.all_signaled {
                self.complete_send(&send, status, cqs);
            }
            if let Some(lent) = send.lent.take() {
                lent::free(lent);
            }
        }
        for (at, recv) in std::mem::take(&mut self.recvs).into_iter().enumerate() {
            let status = match failure {
                Failure::Recv(failed, status) if failed == at => status,
                _ => IBV_WC_WR_FLUSH_ERR,
            };
            match recv.came {
                Some(came) => self.complete_recv(&recv, came, cqs),
                None => {
                    let wc = self.wc(recv.wr_id, status, IBV_WC_RECV);
                    self.push(self.recv_cq, wc, false, cqs);
                }
            }
        }
        (self.posted, self.recv_posted, self.fetching) = (0, 0, 0);
    }

    /// Takes it back to its beginning: requests and completions are gone.
    pub(crate) fn reset(&mut self, cqs: &mut Slab<Cq>) {
        self.state = State::Reset;
        self.clear();
        for cq in [self.send_cq, self.recv_cq] {
            if let Some(cq) = cqs.get_mut(cq) {
                cq.forget(self.num);
            }
        }
    }

    /// Ends it without completions: it is destroyed, or reset.
    pub(crate) fn clear(&mut self) {
        self.end_port();
        (self.failing, self.give_up_at) = (None, None);
        self.count_off();
        for mut send in std::mem::take(&mut self.sends) {
            if let Some(lent) = send.lent.take() {
                lent::free(lent);
            }
        }
        self.recvs.clear();
        (self.posted, self.recv_posted, self.fetching) = (0, 0, 0);
    }
}

/// What the message of a peer says; `None` for one that no peer sends.
fn came(num: u32, ended: &Ended) -> Option<Came> {
    let came = Came {
        marks: ended.tag & MARKS,
        len: ended.len,
        data: ended.data,
    };
    if !came.is_possible() {
        log::warn(
            Subsys::EpData,
            format_args!(
                "queue pair {num:#08x}: its peer tells of a write that no device does: {came:?}"
            ),
        );
        return None;
    }
    Some(came)
}

/// The `enum ibv_wc_status` of an error of the provider.
fn status_of(error: Errno) -> i32 {
    match error {
        Errno::EKEYREJECTED | Errno::EACCES | Errno::EFAULT => IBV_WC_REM_ACCESS_ERR,
        Errno::EINVAL | Errno::EMSGSIZE | Errno::EOPNOTSUPP | Errno::ETRUNC => {
            IBV_WC_REM_INV_REQ_ERR
        }
        _ => IBV_WC_RETRY_EXC_ERR,
    }
}
