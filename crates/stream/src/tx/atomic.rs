//! Atomics on a peer's memory; and the jobs that the engine gives for atomics of peers on the memory of this process.

use ripstop_core::provider::AtomicCall;
use ripstop_engine::id::{ConnId, EpId, SlotId, WorkId};
use ripstop_engine::stream::{Atomic, Engine, Job, Level, RmaKind};
use ripstop_engine::{Iov, Reached};
use ripstop_mem::{UserBuf, atomic};
use ripstop_types::{AtomicKind, AtomicOp, Datatype, Errno, FiAddr, Flags, Result, RmaIov};
use ripstop_wire::rxm::MAX_UNIT_HEADER;
use ripstop_wire::xnet::base::RmaIovs;

use crate::state::State;
use crate::state::ep::{EpState, level};
use crate::transport::Transport;
use crate::tunables::TX_BUFFER;
use crate::tx::rma::StartArgs;

impl<T: Transport> State<T> {
    /// Posts an atomic, for deferred work if its id is given.
    pub(crate) fn post_atomic(
        &mut self,
        ep: EpId,
        operand: Iov<UserBuf>,
        call: &AtomicCall<'_>,
        work: Option<WorkId>,
    ) -> Result<()> {
        let in_packets = T::is_in_packets(&self.params);
        let state = self.ep(ep).ok_or(Errno::EOPBADSTATE)?;
        state.may_start(state.has_atomics)?;
        let given = call.flags.unwrap_or(state.tx_flags);
        let plain = call.kind == AtomicKind::Plain;
        let compare = Iov::new(call.compare)?;
        if call
            .remote
            .iter()
            .fold(0, |sum: u64, iov| sum.saturating_add(iov.len))
            > state.max_atomic as u64
        {
            return Err(Errno::EMSGSIZE);
        }
        // Results are written later whatever the flags say.
        let inject = given.contains(Flags::INJECT);
        if inject && !state.injects(operand.len(), compare.len()) {
            return Err(Errno::EMSGSIZE);
        }
        let level = level(RmaKind::Atomic, given);
        if in_packets && (call.data.is_some() || level == Level::Committed) {
            return Err(refused!(
                T::EpData,
                EOPNOTSUPP,
                "an atomic in packets has neither completion data nor FI_COMMIT_COMPLETE: leave them out, \
                 or use the provider tcp"
            ));
        }
        let mut atomic = Atomic {
            kind: call.kind,
            datatype: call.datatype,
            op: call.op,
            operand,
            compare,
            result: Iov::new(call.result)?,
            remote: RmaIovs::new(call.remote).map_err(|_| Errno::EINVAL)?,
            data: call.data,
            context: call.context,
            completion: !state.tx_selective || given.contains(Flags::COMPLETION),
            inject,
            level,
            work: false,
        };
        if let Some(id) = work {
            (atomic.work, atomic.completion) = (true, true);
            atomic.context = id.index();
            // As for a write.
            if plain && atomic.level == Level::Sent {
                atomic.level = Level::Delivered;
            }
        }
        if !given.contains(Flags::TRIGGER) && self.atomic_mapped(ep, call.peer, &atomic) {
            return Ok(());
        }
        self.obey_fence_and_trigger(ep, call.peer, given)?;
        self.start_atomic(ep, call.peer, &atomic, given.contains(Flags::MORE))
    }

    /// Posts a plain atomic whose operands are free at once.
    pub(crate) fn inject_atomic(
        &mut self,
        ep: EpId,
        operand: UserBuf,
        (datatype, op): (Datatype, AtomicOp),
        remote: RmaIov,
        peer: FiAddr,
    ) -> Result<()> {
        let state = self.ep(ep).ok_or(Errno::EOPBADSTATE)?;
        state.may_start(state.has_atomics)?;
        if remote.len > state.max_atomic as u64 || operand.len() > state.inject_atomic {
            return Err(Errno::EMSGSIZE);
        }
        let atomic = Atomic {
            kind: AtomicKind::Plain,
            datatype,
            op,
            operand: Iov::one(operand),
            compare: Iov::EMPTY,
            result: Iov::EMPTY,
            remote: RmaIovs::one(remote),
            data: None,
            context: 0,
            completion: false,
            inject: true,
            level: state.injected_level(RmaKind::Atomic),
            work: false,
        };
        if self.atomic_mapped(ep, peer, &atomic) {
            return Ok(());
        }
        self.start_atomic(ep, peer, &atomic, false)
    }

    /// Starts an atomic over the stream, once direct access was tried.
    fn start_atomic(
        &mut self,
        ep: EpId,
        peer: FiAddr,
        atomic: &Atomic<UserBuf>,
        more: bool,
    ) -> Result<()> {
        if !atomic::supported(atomic.datatype) {
            return Err(Errno::EOPNOTSUPP);
        }
        let args = StartArgs {
            payload: [&atomic.operand, &atomic.compare],
            no_payload: atomic.op == AtomicOp::AtomicRead,
            silent: atomic.is_silent(),
            more,
        };
        let start = |engine: &mut Engine<UserBuf>, id, header: &mut [u8; MAX_UNIT_HEADER]| {
            engine.atomic(id, atomic, header)
        };
        self.start(ep, peer, args, start)
    }

    /// Does what the engine asks for before the connection is read on.
    pub(crate) fn run_job(&mut self, id: ConnId) {
        let Some(job) = self.engine.job(id) else {
            return;
        };
        match job {
            Job::Atomic {
                target,
                datatype,
                op,
                operands,
                compare,
                fetch,
            } => {
                let job = AtomicJob {
                    target: *target,
                    datatype,
                    op,
                    operands,
                    compare,
                };
                self.run_atomic(id, &job, fetch);
            }
            Job::Commit(target) => {
                let target = *target;
                let commit = |part: &UserBuf| ripstop_os::make_durable(*part);
                let done = target.segments().iter().try_for_each(commit);
                if let Err(error) = done {
                    log_warn!(T::EpData, "a write could not be made durable: {error}");
                }
                self.engine.job_done(id, done.is_ok(), None);
            }
            Job::Collective => {
                self.run_coll(true);
                self.engine.coll_job_done(id);
            }
        }
    }

    /// Carries out an atomic, and tells the engine: with the slot of the previous values, if it is to `fetch` them.
    fn run_atomic(&mut self, id: ConnId, job: &AtomicJob, fetch: bool) {
        if !fetch {
            let done = self.execute(job, None);
            return self.engine.job_done(id, done.is_ok(), None);
        }
        let Ok(slot) = self.engine.fetched_slot() else {
            return self.engine.job_done(id, false, None);
        };
        let done = self.fetch_into(slot, job);
        self.engine.job_done(id, done.is_ok(), Some(slot));
    }

    /// Carries out an atomic, with the previous values to a slot.
    fn fetch_into(&mut self, slot: SlotId, job: &AtomicJob) -> Result<()> {
        // Out of the table while the operands are read from there.
        self.slots.make(slot, job.target.len())?;
        let mut result = self.slots.take(slot);
        let done = self.execute(job, Some(&mut result));
        self.slots.put(slot, result);
        done
    }

    /// Carries out an atomic, with the previous values to `result`.
    fn execute(&self, job: &AtomicJob, mut result: Option<&mut [u8]>) -> Result<()> {
        let len = job.target.len() as usize;
        let operands = job.operands.map(|slot| self.slots.get(slot));
        let (operand, compare) = operands
            .unwrap_or_default()
            .split_at_checked(len)
            .unwrap_or_default();
        let mut at = 0;
        for part in job.target.segments() {
            let range = at..at + part.len();
            at = range.end;
            let operand = operand.get(range.clone()).unwrap_or_default();
            let compare = match job.compare {
                true => compare.get(range.clone()).unwrap_or_default(),
                false => &[],
            };
            let result = result.as_deref_mut().and_then(|bytes| bytes.get_mut(range));
            atomic::execute(job.datatype, job.op, *part, operand, compare, result)
                .map_err(|_| Errno::EINVAL)?;
        }
        Ok(())
    }
}

impl<T: Transport> EpState<T> {
    /// Whether operands of this many bytes, and as many to compare with, are copied by the call that
    /// posts them: each up to the longest inject, and both as far as the transmit buffer has room.
    pub(crate) const fn injects(&self, operand: u64, compare: u64) -> bool {
        let most = self.inject_atomic as u64;
        let room = (TX_BUFFER - MAX_UNIT_HEADER) as u64;
        operand <= most && compare <= most && operand.saturating_add(compare) <= room
    }
}

/// An atomic of a peer, to be carried out on memory of this process.
struct AtomicJob {
    target: Reached<UserBuf>,
    datatype: Datatype,
    op: AtomicOp,
    /// The slot with the operands, if it takes any; what they are compared with follows them there.
    operands: Option<SlotId>,
    /// Whether anything follows them.
    compare: bool,
}
