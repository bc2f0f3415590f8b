//! Reads and writes of a peer's memory, and what they have in common with atomics when they start.

use ripstop_core::provider::RmaCall;
use ripstop_engine::Iov;
use ripstop_engine::id::{ConnId, EpId, WorkId};
use ripstop_engine::stream::{Engine, Level, Rma, RmaKind, RmaPlan};
use ripstop_mem::UserBuf;
use ripstop_types::{Context, Errno, FiAddr, Flags, Result, RmaIov};
use ripstop_wire::xnet::base::{RmaIovs, WRITE_LEN};

use crate::region::attach::MIN_ATTACH_BYTES;
use crate::state::State;
use crate::state::ep::level;
use crate::state::fast_path::{SLOW_READ_FLAGS, SLOW_SEND_FLAGS};
use crate::transport::in_place::InPlace as _;
use crate::transport::registering::Registering as _;
use crate::transport::{InPlaceOf, RegisteringOf, Transport};
use crate::tx::send::CopiedPayload;

/// What [`State::start`] sends, and how.
#[derive(Clone, Copy)]
pub(crate) struct StartArgs<'a> {
    /// The buffers of what is sent, all of the first before the second.
    pub(crate) payload: [&'a Iov<UserBuf>; 2],
    /// Nothing of them is sent: a read names the memory that its response goes to.
    pub(crate) no_payload: bool,
    /// See [`Send::is_silent`](ripstop_engine::stream::Send::is_silent): an error is returned, or nobody hears of it.
    pub(crate) silent: bool,
    /// More follows at once (`FI_MORE`).
    pub(crate) more: bool,
}

impl<T: Transport> State<T> {
    /// Posts a write of one buffer to one segment, without flags of its own. The frequent case is a
    /// short one that goes into the stream before anything is noted of it.
    #[inline(always)]
    pub(crate) fn write_one(
        &mut self,
        ep: EpId,
        buf: UserBuf,
        to: RmaIov,
        peer: FiAddr,
        context: Context,
    ) -> Result<()> {
        if self.write_short(ep, buf, to, peer, Some(context)) {
            return Ok(());
        }
        self.write_other(ep, buf, (to.addr, to.len, to.key), peer, context)
    }

    /// Writes a short buffer to one segment, if it can go into the stream before anything is noted of it. `context` is
    /// that of its completion, if it may have one. `false` says that nothing was done.
    #[inline(always)]
    fn write_short(
        &mut self,
        ep: EpId,
        buf: UserBuf,
        to: RmaIov,
        peer: FiAddr,
        context: Option<Context>,
    ) -> bool {
        if let Some(state) = self.eps.get(ep)
            && buf.len() < state.fast.plain_write_below
            && buf.len() as u64 == to.len
            && let id = state.route(peer)
            && let Some(connection) = self.connections.find(id)
            && !connection.mapped
            && let Some(link) = &connection.link
            && let Some(header) = self.engine.try_write_now(id, to)
            && match RegisteringOf::<T>::SUPPORTED {
                true => RegisteringOf::<T>::write_now(link, to, buf),
                false => InPlaceOf::<T>::send_short(link, &header, buf),
            }
        {
            let completion = context.filter(|_| state.fast.send_completes);
            self.engine.written_now(state.fast.write_cq, completion);
            self.wake_any_waiters();
            return true;
        }
        false
    }

    /// Goes on with [`State::write_one`] where it is not the frequent case. No closure of
    /// `off_fast_path`: it would be written to memory and read in other units, 40 ns a write.
    #[inline(never)]
    fn write_other(
        &mut self,
        ep: EpId,
        buf: UserBuf,
        (addr, len, key): (u64, u64, u64),
        peer: FiAddr,
        context: Context,
    ) -> Result<()> {
        let call = RmaCall {
            remote: &[RmaIov { addr, len, key }],
            peer,
            data: None,
            context,
            flags: None,
        };
        self.write(ep, &[buf], &call)
    }

    /// Posts a read. One of a short piece may be given to the device before anything is written.
    #[inline(always)]
    pub(crate) fn read(&mut self, ep: EpId, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()> {
        if RegisteringOf::<T>::SUPPORTED && self.read_now(ep, iov, call) {
            return Ok(());
        }
        self.read_other(ep, iov, call)
    }

    /// Reads one segment to one buffer, if the device can be told at once; `false` says that nothing was done.
    #[inline(always)]
    fn read_now(&mut self, ep: EpId, iov: &[UserBuf], call: &RmaCall<'_>) -> bool {
        if let (&[buf], &[from]) = (iov, call.remote)
            && let Some(state) = self.eps.get(ep)
            && buf.len() < state.fast.read_below
            && buf.len() as u64 == from.len
            && let Some(completes) = match call.flags {
                None => Some(state.fast.send_completes),
                Some(flags) if flags.intersects(SLOW_READ_FLAGS) => None,
                Some(flags) => Some(!state.tx_selective || flags.contains(Flags::COMPLETION)),
            }
            && let Some(id) = state.route(call.peer)
            && let Some(connection) = self.connections.get(id)
            && let Some(link) = &connection.link
            && self.engine.read_now(id, buf, call.context, completes)
        {
            let reads = RegisteringOf::<T>::read_now(link, from, buf);
            if !reads {
                self.engine.unread_now(id);
            }
            return reads;
        }
        false
    }

    #[inline(never)]
    fn read_other(&mut self, ep: EpId, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()> {
        self.post_rma(ep, RmaKind::Read, Iov::new(iov)?, call, None)
    }

    /// Posts a write.
    pub(crate) fn write(&mut self, ep: EpId, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()> {
        if InPlaceOf::<T>::SUPPORTED && self.write_now(ep, iov, call, false) {
            return Ok(());
        }
        self.post_rma(ep, RmaKind::Write, Iov::new(iov)?, call, None)
    }

    /// Writes one buffer to one segment, if that can be done at once from where it is; `false` says
    /// that [`State::post_rma`] is the way, also to what is wrong with it. What may be copied by attach goes
    /// into the stream only once that was tried.
    #[inline]
    fn write_now(
        &mut self,
        ep: EpId,
        iov: &[UserBuf],
        call: &RmaCall<'_>,
        attach_tried: bool,
    ) -> bool {
        let (&[buf], &[to], None) = (iov, call.remote, call.data) else {
            return false;
        };
        let Some(state) = self.eps.get(ep) else {
            return false;
        };
        let given = call.flags.unwrap_or(state.tx_flags);
        let fits = buf.len() < state.fast.write_below && buf.len() as u64 == to.len;
        if !fits || given.intersects(SLOW_SEND_FLAGS) {
            return false;
        }
        let completes = !state.tx_selective || given.contains(Flags::COMPLETION);
        let completion = completes.then_some(call.context);
        let (id, cq) = (state.route(call.peer), state.fast.write_cq);
        let may_attach = !attach_tried && buf.len() >= state.fast.min_attach;
        if self.put_mapped(id, buf, &to) {
            self.engine.written_now(cq, completion);
            self.note_direct_access(to.len);
            return true;
        }
        if may_attach {
            return false;
        }
        if !self.write_in_place(id, buf, to) {
            return false;
        }
        self.engine.written_now(cq, completion);
        self.wake_any_waiters();
        true
    }

    /// Writes a header and all of a buffer to the link, before anything is noted of it; `false` says that nothing was
    /// written.
    #[inline]
    fn write_in_place(&self, id: Option<ConnId>, buf: UserBuf, to: RmaIov) -> bool {
        let connection = self.connections.find(id);
        if let Some(link) = connection.and_then(|connection| connection.link.as_ref())
            && InPlaceOf::<T>::sends_whole(link, buf.len())
            && let Some(header) = self.engine.try_write_now(id, to)
        {
            // An error shows again.
            return InPlaceOf::<T>::send_message(link, &header, WRITE_LEN, buf).is_ok();
        }
        false
    }

    /// Posts a read or write, for deferred work if its id is given.
    pub(crate) fn post_rma(
        &mut self,
        ep: EpId,
        kind: RmaKind,
        iov: Iov<UserBuf>,
        call: &RmaCall<'_>,
        work: Option<WorkId>,
    ) -> Result<()> {
        let state = self.ep(ep).ok_or(Errno::EOPBADSTATE)?;
        state.may_start(state.has_rma)?;
        let given = call.flags.unwrap_or(state.tx_flags);
        if iov.len() > state.max_msg_size as u64 {
            return Err(Errno::EMSGSIZE);
        }
        let inject = kind == RmaKind::Write && given.contains(Flags::INJECT);
        if inject && iov.len() > state.inject_size as u64 {
            return Err(Errno::EMSGSIZE);
        }
        if RegisteringOf::<T>::SUPPORTED && level(kind, given) == Level::Committed {
            return Err(refused!(
                T::EpData,
                EOPNOTSUPP,
                "no device makes a write durable: leave out FI_COMMIT_COMPLETE, or use the provider tcp"
            ));
        }
        if RegisteringOf::<T>::SUPPORTED && call.remote.is_empty() {
            return Err(refused!(
                T::EpData,
                EINVAL,
                "a device reads and writes one piece of memory or more; name one of no bytes (rma_iov_count 1)"
            ));
        }
        let mut rma = Rma {
            kind,
            iov,
            remote: RmaIovs::new(call.remote).map_err(|_| Errno::EINVAL)?,
            data: call.data,
            context: call.context,
            completion: !state.tx_selective || given.contains(Flags::COMPLETION),
            inject,
            level: level(kind, given),
            work: false,
        };
        if RegisteringOf::<T>::SUPPORTED
            && kind == RmaKind::Write
            && rma.level == Level::Sent
            && RegisteringOf::<T>::writes_from(rma.iov.segments())
        {
            rma.level = Level::Delivered;
        }
        if let Some(id) = work {
            (rma.work, rma.completion, rma.context) = (true, true, id.index());
            // What the peer denies is to be known before its end is told.
            if kind == RmaKind::Write && rma.level == Level::Sent {
                rma.level = Level::Delivered;
            }
        }
        if !given.contains(Flags::TRIGGER)
            && (self.rma_mapped(ep, call.peer, &rma) || self.rma_attached(ep, call.peer, &mut rma))
        {
            return Ok(());
        }
        if InPlaceOf::<T>::SUPPORTED
            && kind == RmaKind::Write
            && work.is_none()
            && rma.level == Level::Sent
            && rma.iov.len() >= MIN_ATTACH_BYTES
            && self.write_now(ep, rma.iov.segments(), call, true)
        {
            return Ok(());
        }
        self.obey_fence_and_trigger(ep, call.peer, given)?;
        self.start_rma(ep, call.peer, &rma, given.contains(Flags::MORE))
    }

    /// Posts a small write whose buffer is free at once.
    pub(crate) fn inject_write(
        &mut self,
        ep: EpId,
        buf: UserBuf,
        remote: RmaIov,
        data: Option<u64>,
        peer: FiAddr,
    ) -> Result<()> {
        let state = self.ep(ep).ok_or(Errno::EOPBADSTATE)?;
        state.may_start(state.has_rma)?;
        if buf.len() > state.inject_size {
            return Err(Errno::EMSGSIZE);
        }
        let level = state.injected_level(RmaKind::Write);
        if data.is_none() && self.write_short(ep, buf, remote, peer, None) {
            return Ok(());
        }
        if data.is_none()
            && InPlaceOf::<T>::SUPPORTED
            && self.inject_in_place(ep, buf, remote, peer)
        {
            return Ok(());
        }
        let rma = Rma {
            kind: RmaKind::Write,
            iov: Iov::one(buf),
            remote: RmaIovs::one(remote),
            data,
            context: 0,
            completion: false,
            inject: true,
            level,
            work: false,
        };
        if self.rma_mapped(ep, peer, &rma) {
            return Ok(());
        }
        self.start_rma(ep, peer, &rma, false)
    }

    /// Posts an injected write from where it is, if it can go into the stream before anything is noted of it; `false` says
    /// that nothing was done.
    fn inject_in_place(&mut self, ep: EpId, buf: UserBuf, to: RmaIov, peer: FiAddr) -> bool {
        let Some(state) = self.eps.get(ep) else {
            return false;
        };
        let id = state.route(peer);
        let fits = buf.len() < state.fast.plain_write_below && buf.len() as u64 == to.len;
        let done = fits && !self.is_mapped(id) && self.write_in_place(id, buf, to);
        if done {
            self.wake_any_waiters();
        }
        done
    }

    /// Does what `FI_FENCE` and `FI_TRIGGER` ask of the operation that is posted next: with a fence it waits for those
    /// before it, and a triggered one is refused.
    ///
    /// # Errors
    /// `EINVAL` for `FI_TRIGGER`, which is no flag of a call without a threshold; those of [`State::route`].
    pub(crate) fn obey_fence_and_trigger(
        &mut self,
        ep: EpId,
        peer: FiAddr,
        flags: Flags,
    ) -> Result<()> {
        if !flags.intersects(Flags::FENCE | Flags::TRIGGER) {
            return Ok(());
        }
        if flags.contains(Flags::TRIGGER) {
            // Without a threshold, which `provider::Endpoint::trigger` takes.
            return Err(Errno::EINVAL);
        }
        self.fence(ep, peer)
    }

    /// Has the operation that is posted next wait for those before it.
    fn fence(&mut self, ep: EpId, peer: FiAddr) -> Result<()> {
        let id = self.route(ep, peer, false)?;
        self.engine.fence(id);
        Ok(())
    }

    /// Starts a read or write over the stream, once direct access was tried.
    fn start_rma(&mut self, ep: EpId, peer: FiAddr, rma: &Rma<UserBuf>, more: bool) -> Result<()> {
        if let Some(beyond) = key_beyond(rma.remote.as_slice(), RegisteringOf::<T>::MAX_KEY) {
            return Err(refused!(
                T::EpData,
                EINVAL,
                "{beyond:#x} is no key of a device's memory, which has 32 bits: give what fi_mr_key says at the peer"
            ));
        }
        let args = StartArgs {
            payload: [&rma.iov, &Iov::EMPTY],
            no_payload: rma.kind == RmaKind::Read,
            silent: rma.is_silent(),
            more,
        };
        let start = |engine: &mut Engine<UserBuf>, id, header: &mut _| engine.rma(id, rma, header);
        self.start(ep, peer, args, start)
    }

    /// Starts a read, write or atomic: `start` has the engine accept it, which puts its header into the array.
    pub(crate) fn start<const HEADER: usize>(
        &mut self,
        ep: EpId,
        peer: FiAddr,
        StartArgs {
            payload,
            no_payload,
            silent,
            more,
        }: StartArgs<'_>,
        start: impl Fn(&mut Engine<UserBuf>, ConnId, &mut [u8; HEADER]) -> Result<RmaPlan>,
    ) -> Result<()> {
        let id = self.route(ep, peer, silent)?;
        if silent {
            self.admit_silent(id)?;
        }
        let mut header = [0; HEADER];
        let buffered = match self.accept(|engine| start(engine, id, &mut header))? {
            RmaPlan::Append(buffered) => buffered,
            RmaPlan::Postpone { slot } => return self.postpone(id, payload, slot),
        };
        let copied = match buffered.inline {
            true => CopiedPayload::User(payload.map(|iov| iov.segments())),
            false => CopiedPayload::NOTHING,
        };
        let header = header.get(..buffered.header_len).unwrap_or_default();
        if let Err(error) = self.stage(id, header, &copied) {
            return self.lose_queued(id, error, silent);
        }
        let len = payload.iter().map(|iov| iov.len()).sum();
        let may_wait = buffered.inline || no_payload || self.may_wait_uncopied(id, len);
        self.write_out(id, may_wait, more && !silent);
        if silent {
            self.hand_over(id);
        }
        Ok(())
    }
}

/// The first key that is larger than any can be.
fn key_beyond(remote: &[RmaIov], max: u64) -> Option<u64> {
    let mut keys = remote.iter().map(|piece| piece.key);
    keys.find(|key| *key > max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_no_longer_than_those_there_are() {
        let with = |key| RmaIov {
            addr: 0,
            len: 1,
            key,
        };
        let device = u64::from(u32::MAX);
        assert_eq!(key_beyond(&[with(1), with(device)], device), None);
        assert_eq!(key_beyond(&[with(1), with(1 << 32)], device), Some(1 << 32));
        assert_eq!(key_beyond(&[with(u64::MAX)], u64::MAX), None);
    }
}
