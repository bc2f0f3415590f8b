#![allow(unsafe_code)]
//! Collective groups and their operations (`fi_collective(3)`).

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::provider::{CollCall, Direction, Domain, Endpoint, Group, JoinCall};
use ripstop_types::{AtomicOp, Collective, Datatype, Errno, FiAddr, Flags, Result};

use super::body::{Defaults, Ep, EpBody};
use crate::av::set::AvSetBody;
use crate::buffers::{Elements, IocMut};
use crate::edge::{Array, In, Out, Whole, arguments, trampolines};
use crate::eq::BoundEq;
use crate::errno::{self, answer, fail, status};
use crate::object::domain::{DomainBody, same_domain};
use crate::object::{self, Body, Room, This};
use crate::tables::operations;

impl<D: Domain, M: Defaults> EpBody<D, M> {
    pub(super) const COLLECTIVE: &'static abi::fi_ops_collective = operations!(fi_ops_collective [D, M] {
        barrier broadcast alltoall allreduce allgather reduce_scatter reduce scatter gather msg
        barrier2
    });
}

/// What the object of a group holds.
struct McBody<D: Domain> {
    /// Held until the object is closed.
    _group: Arc<D::Group>,
    /// Goes after the group, whose events it takes along.
    _events: BoundEq,
}

impl<D: Domain> Body for McBody<D> {
    type Head = abi::fid_mc;

    fn in_use(&self) -> bool {
        false
    }
}

trampolines! { [D: Domain, M: Defaults]
    /// `fi_join`: only collective groups can be joined.
    pub(super) extern "C" fn join(
        this: Ep<D, M>, addr: JoinAddress, flags: u64, mc: Out<*mut abi::fid_mc>,
        context: *mut c_void,
    ) -> c_int {
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
        mc.open(|| join_group(&this, addr, context))
    }
}

arguments! {
    /// The address of `fi_join` with `FI_COLLECTIVE`, which `fi_join_collective` passes.
    pub(super) struct JoinAddress { at: *const c_void }
}

/// Joins the group of an address set; only for a call with `FI_COLLECTIVE`.
fn join_group<D: Domain, M: Defaults>(
    this: &EpBody<D, M>,
    addr: JoinAddress<'_>,
    context: *mut c_void,
) -> Result<*mut abi::fid_mc> {
    // SAFETY: null or what `fi_join_collective` passes, as the flags of the call say.
    let addr = unsafe { Whole::<abi::fi_collective_addr>::behind(addr.at.cast()) };
    let addr = addr.ok_or_else(|| errno::missing("fi_join", "addr"))?;
    let set = addr.set().cast::<AvSetBody<D>>(abi::FI_CLASS_AV_SET)?;
    same_domain("the address vector set", &this.domain, &set.domain)?;
    let parent = FiAddr(addr.coll_addr);
    let known =
        !parent.is_specified() || parent == set.set.addr() || this.ep.group_size(parent).is_ok();
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
    let events = BoundEq::new(room.token());
    let group = this.ep.join(&call, room.token())?;
    if let Some(queue) = this.events.queue() {
        events.set(&queue);
    }
    let head = abi::fid_mc {
        fid: object::fid(abi::FI_CLASS_MC, context, McBody::<D>::CLOSING),
        fi_addr: group.addr().0,
    };
    let body = McBody {
        _group: group,
        _events: events,
    };
    Ok(room.fill(head, body))
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

/// Memory of a collective operation: null, or what `fi_collective(3)` asks of the operation.
type Input<'a> = Elements<'a, *const c_void>;
/// As [`Input`], for the result.
type Output<'a> = Elements<'a, *mut c_void>;

/// Starts an operation with the memory that the same call was given.
fn post<D: Domain, M: Defaults>(
    this: &EpBody<D, M>,
    input: Input<'_>,
    result: Output<'_>,
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
    let len = bytes(input_blocks, input.is_null())?;
    // SAFETY: as many blocks as the operation of the call reads.
    let input = unsafe { input.bytes(len) }?;
    let len = bytes(result_blocks, result.is_null())?;
    // SAFETY: as many blocks as the operation of the call writes.
    let result = unsafe { result.bytes(len) }?;
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

/// Starts a barrier.
fn wait_for_all<D: Domain, M: Defaults>(
    this: &EpBody<D, M>,
    group: abi::fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> isize {
    let call = Call {
        coll: Collective::Barrier,
        datatype: abi::FI_VOID,
        op: abi::FI_NOOP,
        count: 0,
        group,
        root: abi::FI_ADDR_UNSPEC,
        flags,
        context,
    };
    status(post(this, Elements::none(), Elements::none(), &call))
}

trampolines! { [D: Domain, M: Defaults]
    extern "C" fn barrier(this: Ep<D, M>, group: u64, context: *mut c_void) -> isize {
        wait_for_all(&this, group, 0, context)
    }

    extern "C" fn barrier2(this: Ep<D, M>, group: u64, flags: u64, context: *mut c_void) -> isize {
        wait_for_all(&this, group, flags, context)
    }

    extern "C" fn broadcast(
        this: Ep<D, M>, buf: Output, count: usize, _desc: *mut c_void, group: u64, root: u64,
        datatype: u32, flags: u64, context: *mut c_void,
    ) -> isize {
        let (coll, op) = (Collective::Broadcast, abi::FI_NOOP);
        let call = Call { coll, datatype, op, count, group, root, flags, context };
        status(post(&this, Elements::none(), buf, &call))
    }
}

/// Operations with an input and a result: `(root)` where one member is named, `(op)` where elements
/// are reduced.
macro_rules! collectives {
    ($($name:ident: $coll:ident ($($root:ident)?) ($($op:ident)?);)*) => { $(
        trampolines! { [D: Domain, M: Defaults]
            extern "C" fn $name(
                this: Ep<D, M>, input: Input, count: usize, _desc: *mut c_void, result: Output,
                _result_desc: *mut c_void, group: u64, $($root: u64,)? datatype: u32,
                $($op: u32,)? flags: u64, context: *mut c_void,
            ) -> isize {
                let (coll, root, op) = (
                    Collective::$coll,
                    or!(abi::FI_ADDR_UNSPEC, $($root)?),
                    or!(abi::FI_NOOP, $($op)?),
                );
                let call = Call { coll, datatype, op, count, group, root, flags, context };
                status(post(&this, input, result, &call))
            }
        }
    )* };
}

/// The second of two, if it is there.
macro_rules! or {
    ($none:expr,) => {
        $none
    };
    ($none:expr, $some:ident) => {
        $some
    };
}

collectives! {
    alltoall: Alltoall () ();
    allreduce: Allreduce () (op);
    allgather: Allgather () ();
    reduce_scatter: ReduceScatter () (op);
    reduce: Reduce (root) (op);
    scatter: Scatter (root) ();
    gather: Gather (root) ();
}

/// One piece of memory of a vector, or none.
fn only(vector: Array<'_, abi::fi_ioc>) -> Result<Option<&abi::fi_ioc>> {
    let pieces = match vector.count() {
        0 => Some(&[][..]),
        _ => vector.at_most(1),
    };
    Ok(pieces.ok_or(Errno::EINVAL)?.first())
}

trampolines! { [D: Domain, M: Defaults]
    /// Any operation, as deferred work describes it. There is one piece of memory on each side; the
    /// count of the first is that of the operation.
    extern "C" fn msg(
        this: Ep<D, M>, msg: In<*const abi::fi_msg_collective>,
        result: IocMut(resultv, desc, count), flags: u64,
    ) -> isize {
        let posted = || {
            let msg = msg.needed("a collective operation", "msg")?;
            let input = only(msg.msg_iov())?;
            let result = only(result.0)?;
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
            // The buffer of a broadcast is both.
            let result = match coll {
                Collective::Broadcast => input,
                _ => result,
            };
            let input = input.map_or_else(Elements::none, Elements::of);
            let result = result.map_or_else(Elements::none, Elements::of);
            post(&this, input.read_only(), result, &call)
        };
        status(posted())
    }
}

trampolines! { [D: Domain]
    /// `fi_query_collective`.
    pub(crate) extern "C" fn query(
        this: This<DomainBody<D>>, coll: abi::fi_collective_op,
        attr: Option<&mut abi::fi_collective_attr>, flags: u64,
    ) -> c_int {
        let attr = attr.ok_or_else(|| errno::missing("fi_query_collective", "attr"));
        answer(attr.and_then(|attr| limits::<D>(&this, coll, attr, flags)))
    }
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
