//! Collective groups and their operations (man page `fi_collective(3)`), on reliable datagram
//! endpoints.

use ripstop_core::av::set::set_flag;
use ripstop_core::eq::{Event, EventError};
use ripstop_core::provider::{CollCall, JoinCall, Token};
use ripstop_engine::coll::{Held, Joining, Place, Request, Task};
use ripstop_engine::id::{EpId, GroupId, SlotId};
use ripstop_engine::stream::{CollAction, CollPlan, CollSend};
use ripstop_mem::{UserBuf, atomic, copy, copy_in, copy_out};
use ripstop_types::{AtomicOp, CmEvent, Collective, Datatype, Errno, FiAddr, Flags, Result};
use ripstop_wire::xnet::base::MAX_HEADER;

use crate::addr::{Addr as _, Own, Peers as _};
use crate::conn::eq_events;
use crate::state::{GroupState, State};
use crate::transport::Transport;
use crate::tx::send::CopiedPayload;

/// Set in the addresses of groups; those of peers and sets have it clear.
const GROUP_MARK: u64 = 1 << 63;

/// Bytes that are reduced at a time: they stay in the first cache.
const REDUCE_BYTES: usize = 8 * 1024;

/// The same for few bytes, for which there is no need to clear so much memory.
const REDUCE_BYTES_SMALL: usize = 256;

/// Most members of a group: as many as an address vector can have connections for.
pub(crate) const MAX_MEMBERS: usize = 1 << 20;

impl<T: Transport> State<T> {
    pub(crate) fn join_group(
        &mut self,
        ep: EpId,
        call: &JoinCall<'_>,
        token: Token,
    ) -> Result<(GroupId, FiAddr)> {
        let state = self.ep(ep).ok_or(Errno::EOPBADSTATE)?;
        if !state.has_coll {
            return Err(Errno::ENOSYS);
        }
        if !state.tx_ready {
            return Err(Errno::EOPBADSTATE);
        }
        let eq = state.msg.eq.clone().ok_or(Errno::ENOEQ)?;
        if call.members.is_empty() || call.members.len() > MAX_MEMBERS {
            return Err(Errno::EINVAL);
        }
        let (me, digest) = self.identify(ep, call.members)?;
        let group = self.next_generation();
        let addr = FiAddr(GROUP_MARK | u64::from(group & 0x3fff_ffff) << 32);
        let id = self.engine.join_group(&Joining {
            ep,
            members: call.members,
            me,
            digest,
        })?;
        let addr = FiAddr(addr.0 | u64::from(id.number()));
        let group = GroupState {
            addr,
            ep,
            eq,
            token,
            context: call.context,
            operations: call.operations,
        };
        self.groups.insert(id, group);
        self.start_timer();
        self.after();
        Ok((id, addr))
    }

    /// The rank of an endpoint among members, and a number for all of them.
    fn identify(&mut self, ep: EpId, members: &[FiAddr]) -> Result<(u32, u64)> {
        let Self { eps, avs, .. } = self;
        let rdm = eps.get(ep).and_then(|ep| ep.rdm.as_ref());
        let rdm = rdm.ok_or(Errno::ENOSYS)?;
        let av = avs.find(rdm.av).ok_or(Errno::ENOAV)?;
        let own = rdm.addr.clone().canonical();
        let (mut exact, mut local) = (None, None);
        let mut digest = Digest::new();
        for (rank, member) in (0..).zip(members) {
            let addr = av.lookup(*member).ok_or(Errno::EINVAL)?;
            addr.digest(&mut |byte| digest.byte(byte));
            match addr.is_own(&own)? {
                Own::Exact => exact = Some(rank),
                Own::Local => local = Some(rank),
                Own::No => {}
            }
        }
        let me = exact.or(local).ok_or(Errno::EINVAL)?;
        Ok((me, digest.0))
    }

    /// The engine's id of a group.
    fn group_id(&self, ep: EpId, addr: FiAddr) -> Result<GroupId> {
        let id = GroupId::new(addr.0 as u32).ok_or(Errno::EINVAL)?;
        let group = self.groups.get(id);
        let is = |group: &&GroupState| group.addr == addr && group.ep == ep;
        group.filter(is).map(|_| id).ok_or(Errno::EINVAL)
    }

    pub(crate) fn group_size(&self, ep: EpId, addr: FiAddr) -> Result<usize> {
        let id = self.group_id(ep, addr)?;
        let members = self.engine.group_members(id).ok_or(Errno::EOPBADSTATE)?;
        Ok(members.len())
    }

    /// Starts an operation of a group. It has a completion also where the queue is bound with
    /// `FI_SELECTIVE_COMPLETION` and the call has no `FI_COMPLETION`, as with C libfabric: programs wait for it.
    pub(crate) fn post_coll(
        &mut self,
        ep: EpId,
        input: UserBuf,
        result: UserBuf,
        call: &CollCall,
    ) -> Result<()> {
        let state = self.ep(ep).ok_or(Errno::EOPBADSTATE)?;
        if !state.has_coll {
            return Err(Errno::ENOSYS);
        }
        let given = call.flags.unwrap_or(state.tx_flags);
        if given.contains(Flags::TRIGGER) {
            // As for a send.
            return Err(Errno::EINVAL);
        }
        let id = self.group_id(ep, call.group)?;
        let members = self.engine.group_members(id).ok_or(Errno::EOPBADSTATE)?;
        let root = match call.coll.has_root() {
            true => members.iter().position(|member| *member == call.root),
            false => Some(0),
        };
        let root = root.ok_or(Errno::EINVAL)? as u32;
        let group = self.groups.get(id);
        let operations = group.map_or(Flags::empty(), |group| group.operations);
        if !operations.contains(set_flag(call.coll)) {
            return Err(Errno::EOPNOTSUPP);
        }
        check_elements(call.coll, call.datatype, call.op)?;
        let barrier = call.coll == Collective::Barrier;
        let request = Request {
            coll: call.coll,
            datatype: call.datatype,
            op: call.op,
            count: if barrier { 0 } else { call.count as u64 },
            root,
            input,
            result,
            context: call.context,
        };
        let started = self.engine.start_coll(id, request);
        if started == Err(Errno::EAGAIN) {
            self.progress();
        }
        started?;
        self.start_timer();
        self.after();
        Ok(())
    }

    /// Does what the engine asks for its groups. With `later` what is sent is written by
    /// [`State::after`]: a connection is being read.
    #[cold]
    #[inline(never)]
    pub(crate) fn run_coll(&mut self, later: bool) {
        while let Some(action) = self.engine.coll_next() {
            match action {
                CollAction::Send { ep, to, send } => self.send_coll(ep, to, &send, later),
                CollAction::Task(Task::Copy { op, from, to }) => {
                    if self.copy_place(&from, &to).is_err() {
                        self.engine.coll_no_memory(op);
                    }
                }
                CollAction::Task(Task::Reduce {
                    op,
                    datatype,
                    by,
                    into,
                    from,
                    flip,
                }) => {
                    let elements = (datatype, by);
                    if self.reduce_places(elements, &into, &from, flip).is_err() {
                        self.engine.coll_no_memory(op);
                    }
                }
                CollAction::Task(Task::Waits {
                    group,
                    held,
                    crossed,
                }) => {
                    self.log_waits(group, &held, crossed);
                }
                CollAction::Task(Task::Joined { group, error }) => self.tell_joined(group, error),
            }
        }
    }

    fn send_coll(&mut self, ep: EpId, to: FiAddr, send: &CollSend<UserBuf>, later: bool) {
        if let Err(error) = self.try_send_coll(ep, to, send, later) {
            log_warn!(
                T::EpData,
                "a member of a collective group cannot be reached: {error}"
            );
            self.engine.coll_unreachable(ep, to, send, error);
        }
    }

    fn try_send_coll(
        &mut self,
        ep: EpId,
        to: FiAddr,
        send: &CollSend<UserBuf>,
        later: bool,
    ) -> Result<()> {
        let id = self.route(ep, to, false)?;
        let mut header = [0; MAX_HEADER];
        let plan = self.engine.post_coll(id, send, &mut header)?;
        let CollPlan::Append(buffered) = plan else {
            // Its turn may have come already.
            self.engine.flush_later(id);
            return Ok(());
        };
        let header = header.get(..buffered.header_len).unwrap_or_default();
        let payload = match (buffered.inline, send.kept) {
            (false, _) => CopiedPayload::NOTHING,
            (true, Some((slot, at))) => CopiedPayload::Slot {
                slot,
                at,
                len: send.len(),
            },
            (true, None) => CopiedPayload::User([send.iov.segments(), &[]]),
        };
        if let Err(error) = self.stage(id, header, &payload) {
            // It is queued: the end of the connection tells the operation.
            self.engine.give_up(id, error);
            return Ok(());
        }
        // Not put off behind others of a burst: a member that is done may make no progress soon,
        // and nothing tells the program that others wait for this.
        match later {
            true => self.engine.flush_later(id),
            false => self.flush(id),
        }
        Ok(())
    }

    /// Makes sure that the memory of a slot is there.
    fn prepare(&mut self, place: &Place<UserBuf>) -> Result<()> {
        if let Place::Slot { slot, total, .. } = place {
            self.slots.make(*slot, *total)?;
        }
        Ok(())
    }

    /// The bytes of a place in a slot.
    fn kept(&mut self, slot: SlotId, at: u64, len: u64) -> &mut [u8] {
        let range = at as usize..(at + len) as usize;
        self.slots.get_mut(slot).get_mut(range).unwrap_or_default()
    }

    fn copy_place(&mut self, from: &Place<UserBuf>, to: &Place<UserBuf>) -> Result<()> {
        self.prepare(from)?;
        self.prepare(to)?;
        let &Place::Slot { slot, at, len, .. } = from else {
            if let Place::User(from) = from {
                match to {
                    Place::User(to) => copy(*to, *from),
                    Place::Slot { slot, at, len, .. } => {
                        copy_in(self.kept(*slot, *at, *len), *from)
                    }
                };
            }
            return Ok(());
        };
        let range = at as usize..(at + len) as usize;
        // Out of the table while another slot is written.
        let mut memory = self.slots.take(slot);
        match to {
            Place::User(to) => {
                copy_out(*to, memory.get(range).unwrap_or_default());
            }
            Place::Slot { slot: to, at, .. } if *to == slot => {
                memory.copy_within(range, *at as usize);
            }
            Place::Slot { slot, at, len, .. } => {
                let bytes = memory.get(range).unwrap_or_default();
                self.kept(*slot, *at, *len).copy_from_slice(bytes);
            }
        }
        self.slots.put(slot, memory);
        Ok(())
    }

    fn reduce_places(
        &mut self,
        (datatype, by): (Datatype, AtomicOp),
        into: &Place<UserBuf>,
        from: &Place<UserBuf>,
        flip: bool,
    ) -> Result<()> {
        self.prepare(into)?;
        self.prepare(from)?;
        match into.len() <= REDUCE_BYTES_SMALL as u64 {
            true => self.reduce_pieces::<REDUCE_BYTES_SMALL>((datatype, by), into, from, flip),
            false => self.reduce_pieces::<REDUCE_BYTES>((datatype, by), into, from, flip),
        }
    }

    /// Reduces `N` bytes at a time. What is in a slot stays there.
    fn reduce_pieces<const N: usize>(
        &mut self,
        (datatype, by): (Datatype, AtomicOp),
        into: &Place<UserBuf>,
        from: &Place<UserBuf>,
        flip: bool,
    ) -> Result<()> {
        let (mut left, mut right) = ([0; N], [0; N]);
        let mut at = 0;
        while at < into.len() {
            let len = (into.len() - at).min(N as u64);
            let (left, right) = (&mut left[..len as usize], &mut right[..len as usize]);
            let reduce = |into: &mut [u8], from: &[u8]| {
                atomic::reduce(datatype, by, into, from, flip).map_err(|_| Errno::EINVAL)
            };
            match (into, from) {
                (Place::Slot { slot, at: base, .. }, _) => {
                    self.read_place(from, at, right);
                    reduce(self.kept(*slot, base + at, len), right)?;
                }
                (Place::User(buffer), Place::Slot { slot, at: base, .. }) => {
                    self.read_place(into, at, left);
                    reduce(left, self.kept(*slot, base + at, len))?;
                    copy_out(buffer.skip(at as usize), left);
                }
                (Place::User(buffer), Place::User(_)) => {
                    self.read_place(into, at, left);
                    self.read_place(from, at, right);
                    reduce(left, right)?;
                    copy_out(buffer.skip(at as usize), left);
                }
            }
            at += len;
        }
        Ok(())
    }

    fn read_place(&mut self, place: &Place<UserBuf>, at: u64, bytes: &mut [u8]) {
        match place {
            Place::User(buffer) => {
                copy_in(bytes, buffer.skip(at as usize));
            }
            Place::Slot {
                slot, at: start, ..
            } => {
                let kept = self.kept(*slot, start + at, bytes.len() as u64);
                bytes.copy_from_slice(kept);
            }
        }
    }

    /// Says in the log who is waited for.
    fn log_waits(&self, id: GroupId, held: &Held, crossed: bool) {
        let Held {
            age,
            members,
            rank,
            others,
            ..
        } = *held;
        let Some(group) = self.groups.get(id) else {
            return;
        };
        let ep = self.eps.get(group.ep);
        let av = ep.and_then(|ep| self.avs.find(ep.rdm.as_ref()?.av));
        let peer = match av.and_then(|av| av.lookup(held.member)) {
            Some(peer) => format!("{peer} (rank {rank} of {members})"),
            None => format!("rank {rank} of {members}"),
        };
        let long = age.as_secs();
        if let Some((coll, number)) = held.operation {
            log_warn!(
                T::EpData,
                "{coll:?} {number} of a group has waited {long} s for {peer}"
            );
            return;
        }
        let more = match others {
            0 => String::new(),
            _ => format!(" and {others} more"),
        };
        let why = match crossed {
            true => "; it or others wait for this endpoint to join another group",
            false => "",
        };
        log_warn!(
            T::EpCtrl,
            "joining a group has waited {long} s for {peer}{more}{why}"
        );
    }

    fn tell_joined(&mut self, id: GroupId, error: Option<Errno>) {
        let Some(group) = self.groups.get(id) else {
            return;
        };
        eq_events::pushed::<T>(match error {
            None => group.eq.push(Event::Done {
                event: CmEvent::JoinComplete,
                fid: group.token,
                context: group.context,
                data: 0,
            }),
            Some(error) => group.eq.push_error(EventError {
                context: group.context,
                ..EventError::new(group.token, error)
            }),
        });
    }
}

/// Whether elements can be moved and reduced so.
pub(crate) fn check_elements(coll: Collective, datatype: Datatype, op: AtomicOp) -> Result<()> {
    let possible = Collective::allows(op, datatype) && atomic::supported(datatype);
    match coll.reduces() && !possible {
        true => Err(Errno::EOPNOTSUPP),
        false => Ok(()),
    }
}

/// A number for addresses in an order (FNV-1a), the same on every machine.
struct Digest(u64);

impl Digest {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
}
