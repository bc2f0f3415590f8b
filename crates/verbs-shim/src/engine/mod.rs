//! An open device: its queue pairs, completion queues, regions, and who makes them go on.
//!
//! Everything is behind one lock. Calls that post or poll take it; so does the thread that serves a program
//! which sleeps until a completion queue has something, or which posts what the provider cannot take at once.

pub(crate) mod ah;
pub(crate) mod cq;
pub(crate) mod mr;
mod posting;
pub(crate) mod qp;
mod request;
mod service;
pub(crate) mod srq;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, Result};
use slab::Slab;

use crate::device::{self, Choice, MAX_CQE, MAX_INLINE, MAX_QP, MAX_QP_WR, MAX_SGE, ip_of};
use crate::log::{self, Subsys, refuse};
use crate::net::{self, Ended, Net};
use crate::sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_STATE,
    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, ibv_gid, ibv_qp_attr,
    ibv_qp_cap, ibv_wc,
};
use cq::{Channel, Cq, Told};
use mr::Mr;
use posting::Posting;
pub(crate) use qp::GRH;
use qp::{Datagrams, Failure, Parts, Qp, State};
pub(crate) use request::{Asked, Op, Remote, To};
use srq::Srq;

/// What a queue pair is created with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpInit {
    pub(crate) pd: u32,
    pub(crate) send_cq: usize,
    pub(crate) recv_cq: usize,
    /// In place of a receive queue of its own.
    pub(crate) srq: Option<usize>,
    pub(crate) all_signaled: bool,
    pub(crate) cap: ibv_qp_cap,
    /// It is one of datagrams (UD).
    pub(crate) ud: bool,
}

struct Inner {
    qps: Slab<Qp>,
    cqs: Slab<Cq>,
    srqs: Slab<Srq>,
    mrs: HashMap<u32, Mr>,
    /// Protection domains, with the number of their address handles.
    pds: Slab<usize>,
    generation: u16,
    next_key: u32,
    /// Room for what the provider reports, empty between calls.
    ends: Vec<Ended>,
    /// Some requests wait for the provider to take them.
    stalled: bool,
    /// Some queue pairs have requests that could not be posted.
    failing: bool,
    /// The peers of some queue pairs are gone, of which the program was not told yet.
    peers_gone: bool,
    serving: bool,
    closed: bool,
    /// Queue pairs of datagrams, which the thread serves while the program does not poll.
    datagrams: usize,
    /// The program has polled since the thread looked.
    polled: bool,
}

impl Inner {
    fn qp(&mut self, qp: usize) -> Result<(&mut Qp, &mut Slab<Cq>, &HashMap<u32, Mr>)> {
        let found = self.qps.get_mut(qp).ok_or(Errno::EINVAL)?;
        Ok((found, &mut self.cqs, &self.mrs))
    }

    /// Takes the end of a request from the provider.
    fn ended(&mut self, ended: &Ended) {
        if ended.context >> 63 == 0 && ended.context & srq::MARK != 0 {
            self.shared_ended(ended);
            return;
        }
        let slot = ended.context >> 47 & 0x7fff;
        let generation = (ended.context >> 32 & 0x7fff) as u16;
        // Else it is of a queue pair that is gone.
        if let Some(qp) = self
            .qps
            .get_mut(slot)
            .filter(|qp| qp.generation == generation)
        {
            qp.ended(ended, &mut self.cqs);
            self.failing |= qp.is_failing();
            self.peers_gone |= qp.is_peer_gone();
            self.stalled |= qp.is_ud() && qp.is_stalled();
        }
    }

    /// Tells a queue from an earlier one at its place.
    fn next_generation(&mut self) -> u16 {
        self.generation = self.generation % 0x7fff + 1;
        self.generation
    }

    /// Fails the queue pairs whose peers have been gone for as long as a device would repeat requests.
    fn give_up(&mut self) {
        let Self { qps, cqs, .. } = self;
        let now = Instant::now();
        qps.iter_mut().for_each(|(_, qp)| qp.give_up(now, cqs));
        self.peers_gone = qps.iter().any(|(_, qp)| qp.is_peer_gone());
    }

    /// Posts what the provider did not take before.
    fn retry(&mut self) {
        if !self.stalled {
            return;
        }
        self.stalled = false;
        for (slot, srq) in &mut self.srqs {
            if srq.is_stalled() {
                srq.advance(slot);
                self.stalled |= srq.is_stalled();
            }
        }
        for (_, qp) in &mut self.qps {
            if qp.is_stalled() {
                qp.advance(&mut self.cqs);
                self.stalled |= qp.is_stalled();
                self.failing |= qp.is_failing();
            }
        }
    }
}

/// An open device.
pub(crate) struct Engine {
    pub(crate) choice: Choice,
    net: Box<dyn Net>,
    inner: Mutex<Inner>,
    /// Wakes the thread that serves.
    service: Condvar,
}

impl Engine {
    /// Opens the device that the environment chooses.
    ///
    /// # Errors
    /// Those of `device::choose`; those of the provider.
    pub(crate) fn open() -> Result<Arc<Self>> {
        Self::of(device::choose()?)
    }

    /// Opens the device that is chosen.
    ///
    /// # Errors
    /// Those of the provider.
    pub(crate) fn of(choice: Choice) -> Result<Arc<Self>> {
        let net = net::open(choice.kind, choice.ip)?;
        log::info(
            Subsys::Domain,
            format_args!(
                "{} is {} at {}",
                device::NAME,
                choice.kind.name(),
                choice.ip
            ),
        );
        Ok(Arc::new(Self {
            choice,
            net,
            inner: Mutex::new(Inner {
                qps: Slab::new(),
                cqs: Slab::new(),
                srqs: Slab::new(),
                mrs: HashMap::new(),
                pds: Slab::new(),
                generation: 0,
                next_key: fastrand::u32(1..0x00ff_ffff) << 8,
                ends: Vec::new(),
                stalled: false,
                failing: false,
                peers_gone: false,
                serving: false,
                closed: false,
                datagrams: 0,
                polled: false,
            }),
            service: Condvar::new(),
        }))
    }

    /// Ends the thread that serves. Objects that are open still work.
    pub(crate) fn close(&self) {
        self.inner.lock().closed = true;
        self.service.notify_all();
        self.net.wake();
    }

    /// The gid of its port.
    pub(crate) fn gid(&self) -> ibv_gid {
        device::gid_of(self.choice.ip)
    }

    // Protection domains

    pub(crate) fn alloc_pd(&self) -> u32 {
        self.inner.lock().pds.insert(0) as u32
    }

    /// # Errors
    /// `EBUSY` while regions, queues or address handles use it (`ibv_alloc_pd(3)`).
    pub(crate) fn dealloc_pd(&self, pd: u32) -> Result<()> {
        let mut inner = self.inner.lock();
        let used = inner.mrs.values().any(|mr| mr.pd == pd)
            || inner.qps.iter().any(|(_, qp)| qp.pd == pd)
            || inner.srqs.iter().any(|(_, srq)| srq.pd == pd)
            || inner
                .pds
                .get(pd as usize)
                .is_some_and(|handles| *handles > 0);
        if used {
            let why = format_args!("the protection domain has regions, queues or address handles");
            return Err(refuse(Subsys::Domain, Errno::EBUSY, why));
        }
        inner
            .pds
            .try_remove(pd as usize)
            .map(drop)
            .ok_or(Errno::EINVAL)
    }

    // Memory regions

    /// Registers memory; returns its key, which is the local and the remote one.
    ///
    /// # Errors
    /// Those of [`mr::access`]; resource errors.
    pub(crate) fn reg_mr(&self, pd: u32, memory: UserBuf, access: u32) -> Result<u32> {
        let flags = mr::access(access)?;
        let key = {
            let mut inner = self.inner.lock();
            // Keys of regions that ended are not used again soon.
            loop {
                let key = inner.next_key;
                inner.next_key = key.wrapping_add(0x101).max(1);
                if !inner.mrs.contains_key(&key) {
                    break key;
                }
            }
        };
        let region = self.net.register(memory, flags, key)?;
        let region = Mr {
            memory,
            pd,
            writable: access & IBV_ACCESS_LOCAL_WRITE != 0,
            _region: region,
        };
        self.inner.lock().mrs.insert(key, region);
        Ok(key)
    }

    /// Ends a registration. Queue pairs that still use the memory move to the state of error, so that
    /// nobody does.
    ///
    /// # Errors
    /// `EINVAL` for an unknown key, `EBUSY` for memory of shared receives.
    pub(crate) fn dereg_mr(&self, key: u32) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.srqs.iter().any(|(_, srq)| srq.uses(key)) {
            let why =
                format_args!("a shared receive queue has memory of the region: destroy it first");
            return Err(refuse(Subsys::Mr, Errno::EBUSY, why));
        }
        let region = inner.mrs.remove(&key).ok_or(Errno::EINVAL)?;
        self.catch_up(&mut inner);
        let Inner { qps, cqs, .. } = &mut *inner;
        for (_, qp) in qps.iter_mut().filter(|(_, qp)| qp.uses(key)) {
            log::warn(
                Subsys::Mr,
                format_args!(
                    "queue pair {:#08x} moves to the state of error: memory of its requests is deregistered",
                    qp.num
                ),
            );
            qp.fail(Failure::Commanded, cqs);
        }
        drop(inner);
        drop(region);
        Ok(())
    }

    // Completion queues

    /// # Errors
    /// `EINVAL` for no entries, or more than the device has (`ibv_create_cq(3)`).
    pub(crate) fn create_cq(
        &self,
        entries: i32,
        channel: Option<Arc<Channel<Told>>>,
    ) -> Result<usize> {
        let capacity = usize::try_from(entries).unwrap_or(0);
        if capacity == 0 || capacity > MAX_CQE {
            let why = format_args!("a completion queue of {entries} entries: 1 to {MAX_CQE}");
            return Err(refuse(Subsys::Cq, Errno::EINVAL, why));
        }
        let cq = Cq::new(capacity, channel);
        Ok(self.inner.lock().cqs.insert(cq))
    }

    /// Says how a new queue is called in events.
    pub(crate) fn call_cq(&self, cq: usize, told: Told) {
        if let Some(cq) = self.inner.lock().cqs.get_mut(cq) {
            cq.call(told);
        }
    }

    /// # Errors
    /// `EINVAL` for fewer entries than it holds, or more than the device has.
    pub(crate) fn resize_cq(&self, cq: usize, entries: i32) -> Result<()> {
        let capacity = usize::try_from(entries).unwrap_or(0);
        let mut inner = self.inner.lock();
        let cq = inner.cqs.get_mut(cq).ok_or(Errno::EINVAL)?;
        let fits = (1..=MAX_CQE).contains(&capacity) && cq.resize(capacity);
        fits.then_some(()).ok_or(Errno::EINVAL)
    }

    /// # Errors
    /// `EBUSY` while queue pairs complete there.
    pub(crate) fn destroy_cq(&self, cq: usize) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.cqs.get(cq).ok_or(Errno::EINVAL)?.users > 0 {
            let why = format_args!("the completion queue has queue pairs");
            return Err(refuse(Subsys::Cq, Errno::EBUSY, why));
        }
        inner.cqs.remove(cq);
        Ok(())
    }

    /// Takes completions of a queue; returns how many.
    ///
    /// # Errors
    /// `EINVAL` for a queue that there is not.
    pub(crate) fn poll(&self, cq: usize, into: &mut [ibv_wc]) -> Result<usize> {
        let mut inner = self.inner.lock();
        inner.polled = true;
        if inner.cqs.get(cq).ok_or(Errno::EINVAL)?.is_empty() {
            self.progress(&mut inner);
        }
        let queue = inner.cqs.get_mut(cq).ok_or(Errno::EINVAL)?;
        let mut taken = 0;
        for (at, wc) in into.iter_mut().zip(std::iter::from_fn(|| queue.pop())) {
            *at = wc;
            taken += 1;
        }
        Ok(taken)
    }

    /// Asks for an event of the next completion.
    ///
    /// # Errors
    /// `EINVAL` for a queue that there is not; of starting the thread that serves.
    pub(crate) fn arm(self: &Arc<Self>, cq: usize, solicited: bool) -> Result<()> {
        let mut inner = self.inner.lock();
        inner.cqs.get_mut(cq).ok_or(Errno::EINVAL)?.arm(solicited);
        self.serve(&mut inner)
    }

    // Queue pairs

    /// Creates a queue pair; returns its handle, its number, and what it has.
    ///
    /// # Errors
    /// `EINVAL` for more than the device has, `ENOMEM` for too many queue pairs, `EOPNOTSUPP` for datagrams to a shared
    /// receive queue; of opening an endpoint.
    pub(crate) fn create_qp(&self, init: &QpInit) -> Result<(usize, u32, ibv_qp_cap)> {
        let cap = init.cap;
        let sizes = cap.max_send_wr.max(cap.max_recv_wr) <= MAX_QP_WR
            && cap.max_send_sge.max(cap.max_recv_sge) <= MAX_SGE as u32
            && cap.max_inline_data <= MAX_INLINE;
        if !sizes {
            let why = format_args!(
                "a queue pair with {cap:?}: at most {MAX_QP_WR} requests, {MAX_SGE} elements, {MAX_INLINE} \
                 bytes inline"
            );
            return Err(refuse(Subsys::EpCtrl, Errno::EINVAL, why));
        }
        if init.ud && init.srq.is_some() {
            let why = format_args!("datagrams do not go to shared receive queues");
            return Err(refuse(Subsys::EpCtrl, Errno::EOPNOTSUPP, why));
        }
        if self.inner.lock().qps.len() >= MAX_QP {
            let why = format_args!("there are {MAX_QP} queue pairs");
            return Err(refuse(Subsys::EpCtrl, Errno::ENOMEM, why));
        }
        let opened = {
            let inner = self.inner.lock();
            let shared = init.srq.map(|srq| inner.srqs.get(srq).ok_or(Errno::EINVAL));
            let shared = shared.transpose()?.map(|srq| &*srq.shared);
            self.net.port(None, shared)
        };
        let (endpoint, port) = opened.map_err(|error| {
            refuse(
                Subsys::EpCtrl,
                error,
                format_args!("no endpoint for a queue pair"),
            )
        })?;
        // The upper bits tell it from an earlier one at the same port.
        let num = u32::from(fastrand::u8(1..)) << 16 | u32::from(port);
        let mut inner = self.inner.lock();
        let parts = Parts {
            num,
            generation: inner.next_generation(),
            pd: init.pd,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            all_signaled: init.all_signaled,
            cap: ibv_qp_cap {
                // It has none of its own beside a shared one.
                max_recv_wr: init.srq.map_or(cap.max_recv_wr, |_| 0),
                ..cap
            },
            port: endpoint,
            ud: init.ud.then(|| Datagrams::new(self.gid())),
        };
        inner.datagrams += usize::from(init.ud);
        if let Some(srq) = init.srq {
            inner.srqs.get_mut(srq).ok_or(Errno::EINVAL)?.users += 1;
        }
        for cq in [init.send_cq, init.recv_cq] {
            inner.cqs.get_mut(cq).ok_or(Errno::EINVAL)?.users += 1;
        }
        let entry = inner.qps.vacant_entry();
        let handle = entry.key();
        entry.insert(Qp::new(parts, handle));
        Ok((handle, num, cap))
    }

    /// Destroys a queue pair: its requests and completions are gone. Datagrams may take a second to arrive.
    ///
    /// # Errors
    /// `EINVAL` for one that there is not.
    pub(crate) fn destroy_qp(&self, qp: usize) -> Result<()> {
        self.linger(qp);
        let mut inner = self.inner.lock();
        let mut qp = inner.qps.try_remove(qp).ok_or(Errno::EINVAL)?;
        qp.clear();
        inner.datagrams -= usize::from(qp.is_ud());
        if let Some(srq) = qp.srq.and_then(|srq| inner.srqs.get_mut(srq)) {
            srq.users -= 1;
        }
        inner.drop_early(std::mem::take(&mut qp.early));
        for cq in [qp.send_cq, qp.recv_cq] {
            if let Some(cq) = inner.cqs.get_mut(cq) {
                cq.users -= 1;
                cq.forget(qp.num);
            }
        }
        drop(inner);
        for peer in qp.take_peers().into_iter().chain(qp.peer) {
            self.net.remove(peer);
        }
        Ok(())
    }

    /// Changes state and attributes (`ibv_modify_qp(3)`).
    ///
    /// # Errors
    /// `EINVAL` for a change that the manual page does not have or attributes that lack, `EOPNOTSUPP` for
    /// states that this device does not have, `EHOSTUNREACH` for a peer that it cannot reach.
    pub(crate) fn modify_qp(
        self: &Arc<Self>,
        id: usize,
        attr: &ibv_qp_attr,
        mask: i32,
    ) -> Result<()> {
        let mut inner = self.inner.lock();
        if mask & IBV_QP_STATE != 0 && attr.qp_state == IBV_QPS_ERR {
            self.catch_up(&mut inner);
        }
        let Inner { qps, cqs, srqs, .. } = &mut *inner;
        let qp = qps.get_mut(id).ok_or(Errno::EINVAL)?;
        if mask & IBV_QP_STATE == 0 {
            device::keep(&mut qp.attr, attr, mask);
            return Ok(());
        }
        let (from, to) = (qp.state, attr.qp_state);
        let wrong = |why: &str| {
            let why = format_args!("queue pair from {from:?} to state {to}: {why}");
            refuse(Subsys::EpCtrl, Errno::EINVAL, why)
        };
        match (from, to) {
            (_, IBV_QPS_ERR) => qp.fail(Failure::Commanded, cqs),
            (_, IBV_QPS_RESET) => {
                if from != State::Reset {
                    qp.reset(cqs);
                    if let Some(peer) = qp.peer.take() {
                        self.net.remove(peer);
                    }
                }
                self.reopen(qp, srqs)?;
            }
            (State::Reset | State::Init, IBV_QPS_INIT) => {
                if mask & IBV_QP_PORT != 0 && attr.port_num != 1 {
                    return Err(wrong("there is port 1 only"));
                }
                if qp.is_ud() && from == State::Reset && mask & IBV_QP_QKEY == 0 {
                    return Err(wrong("datagrams need IBV_QP_QKEY"));
                }
                // It has none where a change to RESET has failed.
                self.reopen(qp, srqs)?;
                qp.state = State::Init;
            }
            (State::Init, IBV_QPS_RTR) if qp.is_ud() => qp.state = State::Rtr,
            (State::Init, IBV_QPS_RTR) => {
                if mask & (IBV_QP_AV | IBV_QP_DEST_QPN) != IBV_QP_AV | IBV_QP_DEST_QPN {
                    return Err(wrong("it needs IBV_QP_AV and IBV_QP_DEST_QPN"));
                }
                if attr.ah_attr.is_global == 0 {
                    return Err(wrong(
                        "peers are found by gid (is_global): choose gid index 0",
                    ));
                }
                self.connect(qp, attr)?;
                qp.state = State::Rtr;
            }
            (State::Rtr | State::Rts, IBV_QPS_RTS) => qp.state = State::Rts,
            (_, IBV_QPS_INIT | IBV_QPS_RTR | IBV_QPS_RTS) => {
                return Err(wrong("the manual page has no such change"));
            }
            (_, other) => {
                let why = format_args!("queue pairs here have no state {other}");
                return Err(refuse(Subsys::EpCtrl, Errno::EOPNOTSUPP, why));
            }
        }
        device::keep(&mut qp.attr, attr, mask);
        qp.advance(cqs);
        let early = match qp.state {
            State::Reset | State::Init if to != IBV_QPS_RESET => Vec::new(),
            _ => std::mem::take(&mut qp.early),
        };
        match to {
            IBV_QPS_RESET | IBV_QPS_ERR => inner.drop_early(early),
            _ => inner.take_early(early),
        }
        self.posted(&mut inner, id);
        // Without a thread, datagrams are taken when the program polls.
        let _ = self.serve(&mut inner);
        Ok(())
    }

    /// Opens the endpoint of a queue pair that has none, under its number.
    fn reopen(&self, qp: &mut Qp, srqs: &Slab<Srq>) -> Result<()> {
        if qp.port.is_none() {
            let shared = qp.srq.and_then(|srq| srqs.get(srq));
            let shared = shared.map(|srq| &*srq.shared);
            let opened = self
                .net
                .port(Some(qp.num as u16), shared)
                .map_err(|error| {
                    let why = format_args!("no endpoint for queue pair {:#08x}", qp.num);
                    refuse(Subsys::EpCtrl, error, why)
                })?;
            qp.port = Some(opened.0);
        }
        Ok(())
    }

    /// Finds the peer that attributes name.
    fn connect(&self, qp: &mut Qp, attr: &ibv_qp_attr) -> Result<()> {
        let ip = ip_of(attr.ah_attr.dgid);
        if self.choice.kind == net::Kind::Shm && ip != self.choice.ip {
            let why = format_args!("{ip} is not this host, and shm reaches no other");
            return Err(refuse(Subsys::EpCtrl, Errno::EHOSTUNREACH, why));
        }
        let peer = self
            .net
            .insert(ip, attr.dest_qp_num as u16)
            .map_err(|error| refuse(Subsys::Av, error, format_args!("no peer at {ip}")))?;
        qp.peer = Some(peer);
        Ok(())
    }

    /// What `ibv_query_qp` says: state, attributes and sizes.
    ///
    /// # Errors
    /// `EINVAL` for a queue pair that there is not.
    pub(crate) fn query_qp(&self, qp: usize) -> Result<(ibv_qp_attr, QpInit)> {
        let mut inner = self.inner.lock();
        let (qp, _, _) = inner.qp(qp)?;
        let mut attr = qp.attr;
        attr.qp_state = match qp.state {
            State::Reset => IBV_QPS_RESET,
            State::Init => IBV_QPS_INIT,
            State::Rtr => IBV_QPS_RTR,
            State::Rts => IBV_QPS_RTS,
            State::Err => IBV_QPS_ERR,
        };
        attr.cur_qp_state = attr.qp_state;
        attr.cap = qp.cap;
        let init = QpInit {
            pd: qp.pd,
            send_cq: qp.send_cq,
            recv_cq: qp.recv_cq,
            srq: qp.srq,
            all_signaled: qp.all_signaled,
            cap: qp.cap,
            ud: qp.is_ud(),
        };
        Ok((attr, init))
    }

    /// Starts to post a list of requests to a queue pair.
    ///
    /// # Errors
    /// `EINVAL` for a queue pair that there is not.
    pub(crate) fn posting(self: &Arc<Self>, qp: usize) -> Result<Posting<'_>> {
        let mut inner = self.inner.lock();
        inner.qp(qp)?;
        Ok(Posting {
            engine: self,
            inner,
            qp,
        })
    }
}
