#![allow(unsafe_code)]
//! Collective groups and their operations (`fi_collective(3)`).
//!
//! These operations belong to endpoints of type `D` and are called through them; buffers are
//! null or valid as `fi_collective(3)` asks. Every `SAFETY` remark below rests on this.

use core::ffi::{c_int, c_void};
use core::slice;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::provider::{CollCall, Direction, Domain, Endpoint, Group, JoinCall};
use ripstop_mem::UserBuf;
use ripstop_types::{AtomicOp, Collective, Datatype, Errno, FiAddr, Flags, Result};

use super::{Defaults, EpBody, Tables};
use crate::av_set;
use crate::buffers;
use crate::domain::DomainBody;
use crate::eq::Bound;
use crate::errno::{answer, fail, status};
use crate::object::{self, Body, Room, body};
use crate::tables;

impl<D: Domain, M: Defaults> Tables<D, M> {
    pub(super) const COLLECTIVE: &'static abi::fi_ops_collective = &abi::fi_ops_collective {
        barrier: Some(barrier::<D, M>),
        broadcast: Some(broadcast::<D, M>),
        alltoall: Some(alltoall::<D, M>),
        allreduce: Some(allreduce::<D, M>),
        allgather: Some(allgather::<D, M>),
        reduce_scatter: Some(reduce_scatter::<D, M>),
        reduce: Some(reduce::<D, M>),
        scatter: Some(scatter::<D, M>),
        gather: Some(gather::<D, M>),
        msg: Some(msg::<D, M>),
        barrier2: Some(barrier2::<D, M>),
        ..tables::NO_COLLECTIVE_OPS
    };
}

/// What the object of a group holds.
struct McBody<D: Domain> {
    /// Held until the object is closed.
    _group: Arc<D::Group>,
    /// Goes after the group, whose events it takes along.
    _events: Bound,
}

impl<D: Domain> Body for McBody<D> {
    type Head = abi::fid_mc;

    fn in_use(&self) -> bool {
        false
    }
}

struct McTables<D>(core::marker::PhantomData<D>);

impl<D: Domain> McTables<D> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        close: Some(object::close::<McBody<D>>),
        ..tables::NO_FID_OPS
    };
}

/// `fi_join`: only collective groups can be joined.
pub(super) unsafe extern "C" fn join<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    addr: *const c_void,
    flags: u64,
    mc: *mut *mut abi::fid_mc,
    context: *mut c_void,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    if flags & abi::FI_COLLECTIVE == 0 {
        return fail(Errno::ENOSYS);
    }
    // Members that only send or only receive can take part in nothing.
    if flags & !(abi::FI_COLLECTIVE | abi::FI_SEND | abi::FI_RECV) != 0 {
        return fail(Errno::EBADFLAGS);
    }
    let one_way = flags & (abi::FI_SEND | abi::FI_RECV);
    if one_way != 0 && one_way != abi::FI_SEND | abi::FI_RECV {
        return fail(Errno::EOPNOTSUPP);
    }
    let make = || {
        // SAFETY: null, or what `fi_join_collective` passes.
        let addr = unsafe { addr.cast::<abi::fi_collective_addr>().as_ref() };
        let addr = addr.ok_or_else(|| object::missing("fi_join", "addr"))?;
        // SAFETY: null or an open set.
        let set = unsafe { av_set::of::<D>(addr.set) }?;
        let parent = FiAddr(addr.coll_addr);
        let known = !parent.is_specified()
            || parent == set.set.addr()
            || this.ep.group_size(parent).is_ok();
        if !known {
            return Err(Errno::EINVAL);
        }
        let room = Room::<McBody<D>>::new();
        let members = set.set.members();
        let call = JoinCall {
            members: &members,
            operations: set.set.operations(),
            context: context.expose_provenance(),
        };
        let events = Bound::new(room.token());
        let group = this.ep.join(&call, room.token())?;
        if let Some(queue) = this.events.queue() {
            events.to(&queue);
        }
        let head = abi::fid_mc {
            fid: object::fid(abi::FI_CLASS_MC, context, McTables::<D>::FID),
            fi_addr: group.addr().0,
        };
        let body = McBody {
            _group: group,
            _events: events,
        };
        Ok(room.fill(head, body))
    };
    // SAFETY: null or valid for writes.
    unsafe { object::open(mc, make) }
}

/// The arguments that all operations share.
struct Call {
    coll: Collective,
    datatype: abi::fi_datatype,
    op: abi::fi_op,
    count: usize,
    group: abi::fi_addr_t,
    root: abi::fi_addr_t,
    flags: u64,
    context: *mut c_void,
}

impl Call {
    /// What elements are, and how they are reduced; anything where that does not matter.
    ///
    /// # Errors
    /// [`Errno::EOPNOTSUPP`] for numbers that are none.
    fn elements(&self) -> Result<(Datatype, AtomicOp)> {
        let datatype = match self.coll {
            Collective::Barrier => Some(Datatype::Uint8),
            _ => Datatype::from_number(self.datatype),
        };
        let op = match self.coll.reduces() {
            true => AtomicOp::from_number(self.op),
            false => Some(AtomicOp::Sum),
        };
        datatype.zip(op).ok_or(Errno::EOPNOTSUPP)
    }

    /// How many blocks the root or every member puts in and gets, of a group of `n`.
    const fn blocks(&self, n: usize) -> (usize, usize) {
        match self.coll {
            Collective::Barrier => (0, 0),
            Collective::Broadcast => (0, 1),
            Collective::Alltoall => (n, n),
            Collective::Allgather | Collective::Gather => (1, n),
            Collective::ReduceScatter | Collective::Scatter => (n, 1),
            Collective::Allreduce | Collective::Reduce => (1, 1),
        }
    }
}

/// Starts an operation.
///
/// # Safety
///
/// `input` and `result` are null or as `fi_collective(3)` asks of the operation.
unsafe fn post<D: Domain, M: Defaults>(
    this: &EpBody<D, M>,
    input: *const c_void,
    result: *mut c_void,
    call: &Call,
) -> Result<()> {
    let (datatype, op) = call.elements()?;
    let group = FiAddr(call.group);
    let (input_blocks, result_blocks) = call.blocks(this.ep.group_size(group)?);
    let bytes = |blocks: usize, null: bool| match null {
        // It may be one that is not looked at here; otherwise it is too short.
        true => Ok(0),
        false => call
            .count
            .checked_mul(blocks)
            .and_then(|count| count.checked_mul(datatype.size()))
            .filter(|len| isize::try_from(*len).is_ok())
            .ok_or(Errno::EMSGSIZE),
    };
    // SAFETY: the caller's guarantee; the memory is only read.
    let input = unsafe { UserBuf::from_const(input.cast(), bytes(input_blocks, input.is_null())?) };
    // SAFETY: the caller's guarantee.
    let result = unsafe { buffers::result(result, bytes(result_blocks, result.is_null())?) }?;
    let own = this.defaults.tx();
    let flags = match call.flags {
        0 => own,
        flags => {
            let own = own.unwrap_or_else(|| this.ep.op_flags(Direction::Tx));
            Some(own | Flags::from_bits_retain(flags))
        }
    };
    let call = CollCall {
        coll: call.coll,
        datatype,
        op,
        count: call.count,
        group,
        root: FiAddr(call.root),
        context: call.context.expose_provenance(),
        flags,
    };
    this.collective(input, result, &call)
}

unsafe extern "C" fn barrier<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    coll_addr: abi::fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: the same endpoint.
    unsafe { barrier2::<D, M>(ep, coll_addr, 0, context) }
}

unsafe extern "C" fn barrier2<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    coll_addr: abi::fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    let call = Call {
        coll: Collective::Barrier,
        datatype: abi::FI_VOID,
        op: abi::FI_NOOP,
        count: 0,
        group: coll_addr,
        root: abi::FI_ADDR_UNSPEC,
        flags,
        context,
    };
    // SAFETY: there are no buffers.
    status(unsafe { post(this, core::ptr::null(), core::ptr::null_mut(), &call) })
}

unsafe extern "C" fn broadcast<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *mut c_void,
    count: usize,
    _desc: *mut c_void,
    coll_addr: abi::fi_addr_t,
    root_addr: abi::fi_addr_t,
    datatype: abi::fi_datatype,
    flags: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    let call = Call {
        coll: Collective::Broadcast,
        datatype,
        op: abi::FI_NOOP,
        count,
        group: coll_addr,
        root: root_addr,
        flags,
        context,
    };
    // SAFETY: see the module.
    status(unsafe { post(this, core::ptr::null(), buf, &call) })
}

macro_rules! without_root {
    ($($name:ident: $coll:ident $(, $op:ident)?;)*) => { $(
        unsafe extern "C" fn $name<D: Domain, M: Defaults>(
            ep: *mut abi::fid_ep,
            buf: *const c_void,
            count: usize,
            _desc: *mut c_void,
            result: *mut c_void,
            _result_desc: *mut c_void,
            coll_addr: abi::fi_addr_t,
            datatype: abi::fi_datatype,
            $($op: abi::fi_op,)?
            flags: u64,
            context: *mut c_void,
        ) -> isize {
            // SAFETY: see the module.
            let this = unsafe { body::<EpBody<D, M>>(ep) };
            let call = Call {
                coll: Collective::$coll,
                datatype,
                op: operation!($($op)?),
                count,
                group: coll_addr,
                root: abi::FI_ADDR_UNSPEC,
                flags,
                context,
            };
            // SAFETY: see the module.
            status(unsafe { post(this, buf, result, &call) })
        }
    )* };
}

macro_rules! with_root {
    ($($name:ident: $coll:ident $(, $op:ident)?;)*) => { $(
        unsafe extern "C" fn $name<D: Domain, M: Defaults>(
            ep: *mut abi::fid_ep,
            buf: *const c_void,
            count: usize,
            _desc: *mut c_void,
            result: *mut c_void,
            _result_desc: *mut c_void,
            coll_addr: abi::fi_addr_t,
            root_addr: abi::fi_addr_t,
            datatype: abi::fi_datatype,
            $($op: abi::fi_op,)?
            flags: u64,
            context: *mut c_void,
        ) -> isize {
            // SAFETY: see the module.
            let this = unsafe { body::<EpBody<D, M>>(ep) };
            let call = Call {
                coll: Collective::$coll,
                datatype,
                op: operation!($($op)?),
                count,
                group: coll_addr,
                root: root_addr,
                flags,
                context,
            };
            // SAFETY: see the module.
            status(unsafe { post(this, buf, result, &call) })
        }
    )* };
}

macro_rules! operation {
    () => {
        abi::FI_NOOP
    };
    ($op:ident) => {
        $op
    };
}

without_root! {
    alltoall: Alltoall;
    allreduce: Allreduce, op;
    allgather: Allgather;
    reduce_scatter: ReduceScatter, op;
}

with_root! {
    reduce: Reduce, op;
    scatter: Scatter;
    gather: Gather;
}

/// One piece of memory of a vector, or none.
///
/// # Safety
///
/// `iov` is null or valid for `count` elements.
unsafe fn only(iov: *const abi::fi_ioc, count: usize) -> Result<Option<abi::fi_ioc>> {
    match (iov.is_null(), count) {
        (_, 0) => Ok(None),
        (false, 1) => {
            // SAFETY: not null, and the caller's guarantee.
            let iov = unsafe { slice::from_raw_parts(iov, 1) };
            Ok(iov.first().copied())
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Any operation, as deferred work describes it. There is one piece of memory on each side; the
/// count of the first is that of the operation.
unsafe extern "C" fn msg<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    msg: *const abi::fi_msg_collective,
    resultv: *mut abi::fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return status(Err(object::missing("a collective operation", "msg")));
    };
    let posted = || {
        // SAFETY: see the module.
        let input = unsafe { only(msg.msg_iov, msg.iov_count) }?;
        // SAFETY: see the module.
        let result = unsafe { only(resultv, result_count) }?;
        let coll = Collective::from_number(msg.coll).ok_or(Errno::EOPNOTSUPP)?;
        let call = Call {
            coll,
            datatype: msg.datatype,
            op: msg.op,
            count: input.or(result).map_or(0, |ioc| ioc.count),
            group: msg.coll_addr,
            root: msg.root_addr,
            flags,
            context: msg.context,
        };
        let addr = |ioc: Option<abi::fi_ioc>| ioc.map_or(core::ptr::null_mut(), |ioc| ioc.addr);
        // The buffer of a broadcast is both.
        let result = match coll {
            Collective::Broadcast => addr(input),
            _ => addr(result),
        };
        // SAFETY: see the module.
        unsafe { post(this, addr(input), result, &call) }
    };
    status(posted())
}

/// `fi_query_collective`: `domain` is a domain of this type; `attr` is null or valid, also for
/// writes.
pub(crate) unsafe extern "C" fn query<D: Domain>(
    domain: *mut abi::fid_domain,
    coll: abi::fi_collective_op,
    attr: *mut abi::fi_collective_attr,
    flags: u64,
) -> c_int {
    // SAFETY: this operation belongs to domains of this type.
    let this = unsafe { body::<DomainBody<D>>(domain) };
    // SAFETY: null or valid.
    let Some(attr) = (unsafe { attr.as_mut() }) else {
        return fail(object::missing("fi_query_collective", "attr"));
    };
    answer(limits::<D>(this, coll, attr, flags))
}

fn limits<D: Domain>(
    this: &DomainBody<D>,
    coll: abi::fi_collective_op,
    attr: &mut abi::fi_collective_attr,
    flags: u64,
) -> Result<()> {
    let coll = Collective::from_number(coll).ok_or(Errno::EOPNOTSUPP)?;
    // `FI_SCATTER`, the operation of that number, makes a reduction one of all to each.
    let coll = match (flags, coll) {
        (0, coll) => coll,
        (flags, Collective::Reduce | Collective::ReduceScatter)
            if flags == u64::from(abi::FI_SCATTER) =>
        {
            Collective::ReduceScatter
        }
        _ => return Err(Errno::EBADFLAGS),
    };
    if attr.mode != 0 {
        return Err(Errno::EINVAL);
    }
    // What the collective has none of is not looked at: programs leave it as it is, whatever it is.
    let datatype = match coll {
        Collective::Barrier => None,
        _ => Some(Datatype::from_number(attr.datatype).ok_or(Errno::EOPNOTSUPP)?),
    };
    let op = match coll.reduces() {
        false => None,
        true => Some(AtomicOp::from_number(attr.op).ok_or(Errno::EOPNOTSUPP)?),
    };
    let limit = this.domain.collective_limit(coll, datatype, op)?;
    attr.datatype_attr = abi::fi_atomic_attr {
        count: limit.count,
        size: datatype.map_or(0, Datatype::size),
    };
    attr.max_members = limit.members;
    Ok(())
}
