#![allow(unsafe_code)]
//! Atomics on a peer's memory (`fi_atomic(3)`).

use core::ffi::{c_int, c_void};

use ripstop_abi as abi;
use ripstop_core::provider::{AtomicCall, Domain, Endpoint, EpOption};
use ripstop_mem::{IOV_LIMIT, UserBuf};
use ripstop_types::{AtomicKind, AtomicOp, Datatype, Errno, FiAddr, Flags, Result, RmaIov};

use super::body::{Defaults, Ep, EpBody};
use super::rma;
use super::send::data_of;
use crate::buffers::{Elements, IocMut, Segments, no_vector};
use crate::edge::{Array, In, Out, Pointer, Whole, trampolines};
use crate::errno::{answer, code, status};
use crate::object::This;
use crate::object::domain::DomainBody;
use crate::tables::operations;

impl<D: Domain, M: Defaults> EpBody<D, M> {
    pub(super) const ATOMIC: &'static abi::fi_ops_atomic = operations!(fi_ops_atomic [D, M] {
        write writev writemsg inject readwrite readwritev readwritemsg compwrite compwritev
        compwritemsg writevalid readwritevalid compwritevalid
    });
}

/// A datatype and an operation.
#[derive(Clone, Copy)]
struct What {
    datatype: Datatype,
    op: AtomicOp,
}

impl What {
    /// Those of two C numbers.
    ///
    /// # Errors
    /// [`Errno::EOPNOTSUPP`] for numbers that are none.
    fn of(datatype: abi::fi_datatype, op: abi::fi_op) -> Result<Self> {
        Datatype::from_number(datatype)
            .zip(AtomicOp::from_number(op))
            .map(|(datatype, op)| Self { datatype, op })
            .ok_or(Errno::EOPNOTSUPP)
    }

    /// Bytes of `count` elements.
    fn len(self, count: usize) -> Result<usize> {
        count.checked_mul(self.datatype.size()).ok_or(Errno::EINVAL)
    }

    /// The `count` elements of a call, which is of this datatype.
    fn buf<P: Pointer<Target = c_void>>(
        self,
        elements: Elements<'_, P>,
        count: usize,
    ) -> Result<UserBuf> {
        let len = self.len(count)?;
        // SAFETY: the length of as many elements of the datatype as the call has: each caller
        // passes what the same call was given.
        unsafe { elements.bytes(len) }
    }

    /// Operands: a program may leave them out where the operation has none.
    fn operand(self, elements: Elements<'_, *const c_void>, count: usize) -> Result<UserBuf> {
        match self.op {
            AtomicOp::AtomicRead => Ok(UserBuf::EMPTY),
            _ => self.buf(elements, count),
        }
    }

    /// The elements of a vector.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for more than [`IOV_LIMIT`], a null vector, or null with a count.
    fn bufs(self, vector: Ioc<'_>) -> Result<Segments> {
        Segments::of(vector, |ioc| self.buf(Elements::of(ioc), ioc.count))
    }

    /// Operands of a vector, which may be left out where the operation has none.
    fn operands(self, vector: Ioc<'_>) -> Result<Segments> {
        match self.op {
            AtomicOp::AtomicRead => Ok(Segments::NONE),
            _ => self.bufs(vector),
        }
    }

    /// The peer's memory of a call that names one place.
    fn place(self, addr: u64, key: u64, count: usize) -> Result<RmaIov> {
        let len = self.len(count)? as u64;
        Ok(RmaIov { addr, len, key })
    }
}

/// A vector of elements.
type Ioc<'a> = Array<'a, abi::fi_ioc>;

/// How many elements a C vector has in all.
fn elements(vector: Ioc<'_>) -> Result<usize> {
    let given = match vector.at_most(IOV_LIMIT) {
        Some(given) if !vector.is_null() => given,
        _ => return Err(no_vector(vector.is_null())),
    };
    given.iter().try_fold(0usize, |sum, ioc| {
        sum.checked_add(ioc.count).ok_or(Errno::EINVAL)
    })
}

/// What calls for one place share.
struct Place {
    dest: FiAddr,
    addr: u64,
    key: u64,
    context: *mut c_void,
}

/// Posts what a call for one place describes.
fn post<D: Domain, M: Defaults>(
    this: &EpBody<D, M>,
    kind: AtomicKind,
    what: What,
    at: &Place,
    count: usize,
    [operand, compare, result]: [&[UserBuf]; 3],
) -> Result<()> {
    let remote = what.place(at.addr, at.key, count)?;
    this.atomic(
        operand,
        &AtomicCall {
            kind,
            datatype: what.datatype,
            op: what.op,
            compare,
            result,
            remote: &[remote],
            peer: at.dest,
            data: None,
            context: at.context.expose_provenance(),
            flags: this.defaults.tx(),
        },
    )
}

trampolines! { [D: Domain, M: Defaults]
    extern "C" fn write(
        this: Ep<D, M>, buf: Elements<*const c_void>, count: usize, _desc: *mut c_void,
        dest: FiAddr, addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void,
    ) -> isize {
        status(What::of(datatype, op).and_then(|what| {
            let buf = what.operand(buf, count)?;
            let at = Place { dest, addr, key, context };
            post(&this, AtomicKind::Plain, what, &at, count, [&[buf], &[], &[]])
        }))
    }

    extern "C" fn writev(
        this: Ep<D, M>, iov: Ioc(iov, desc, count), dest: FiAddr, addr: u64, key: u64,
        datatype: u32, op: u32, context: *mut c_void,
    ) -> isize {
        status(What::of(datatype, op).and_then(|what| {
            let (bufs, count) = (what.bufs(iov)?, elements(iov)?);
            let at = Place { dest, addr, key, context };
            post(&this, AtomicKind::Plain, what, &at, count, [bufs.as_slice(), &[], &[]])
        }))
    }

    extern "C" fn inject(
        this: Ep<D, M>, buf: Elements<*const c_void>, count: usize, dest: FiAddr, addr: u64,
        key: u64, datatype: u32, op: u32,
    ) -> isize {
        status(What::of(datatype, op).and_then(|what| {
            let buf = what.operand(buf, count)?;
            let remote = what.place(addr, key, count)?;
            this.ep.inject_atomic(buf, what.datatype, what.op, remote, dest)
        }))
    }

    extern "C" fn readwrite(
        this: Ep<D, M>, buf: Elements<*const c_void>, count: usize, _desc: *mut c_void,
        result: Elements<*mut c_void>, _result_desc: *mut c_void,
        dest: FiAddr, addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void,
    ) -> isize {
        status(What::of(datatype, op).and_then(|what| {
            let (buf, result) = (what.operand(buf, count)?, what.buf(result, count)?);
            let at = Place { dest, addr, key, context };
            post(&this, AtomicKind::Fetch, what, &at, count, [&[buf], &[], &[result]])
        }))
    }

    extern "C" fn readwritev(
        this: Ep<D, M>, iov: Ioc(iov, desc, count), result: IocMut(resultv, desc, count),
        dest: FiAddr, addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void,
    ) -> isize {
        status(What::of(datatype, op).and_then(|what| {
            let IocMut(result) = result;
            let (bufs, into) = (what.operands(iov)?, what.bufs(result)?);
            let at = Place { dest, addr, key, context };
            let bufs = [bufs.as_slice(), &[], into.as_slice()];
            post(&this, AtomicKind::Fetch, what, &at, elements(result)?, bufs)
        }))
    }

    extern "C" fn compwrite(
        this: Ep<D, M>, buf: Elements<*const c_void>, count: usize, _desc: *mut c_void,
        compare: Elements<*const c_void>, _compare_desc: *mut c_void,
        result: Elements<*mut c_void>, _result_desc: *mut c_void,
        dest: FiAddr, addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void,
    ) -> isize {
        status(What::of(datatype, op).and_then(|what| {
            let (buf, compare) = (what.operand(buf, count)?, what.buf(compare, count)?);
            let result = what.buf(result, count)?;
            let at = Place { dest, addr, key, context };
            post(&this, AtomicKind::Compare, what, &at, count, [&[buf], &[compare], &[result]])
        }))
    }

    extern "C" fn compwritev(
        this: Ep<D, M>, iov: Ioc(iov, desc, count), compare: Ioc(comparev, desc, count),
        result: IocMut(resultv, desc, count),
        dest: FiAddr, addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void,
    ) -> isize {
        status(What::of(datatype, op).and_then(|what| {
            let (bufs, compare) = (what.bufs(iov)?, what.bufs(compare)?);
            let result = what.bufs(result.0)?;
            let at = Place { dest, addr, key, context };
            let bufs = [bufs.as_slice(), compare.as_slice(), result.as_slice()];
            post(&this, AtomicKind::Compare, what, &at, elements(iov)?, bufs)
        }))
    }

    extern "C" fn writemsg(this: Ep<D, M>, msg: In<*const abi::fi_msg_atomic>, flags: Flags) -> isize {
        let more = [Ioc::NONE; 2];
        status(post_message(&this, AtomicKind::Plain, msg, more, flags))
    }

    extern "C" fn readwritemsg(
        this: Ep<D, M>, msg: In<*const abi::fi_msg_atomic>,
        result: IocMut(resultv, desc, count), flags: Flags,
    ) -> isize {
        let more = [Ioc::NONE, result.0];
        status(post_message(&this, AtomicKind::Fetch, msg, more, flags))
    }

    extern "C" fn compwritemsg(
        this: Ep<D, M>, msg: In<*const abi::fi_msg_atomic>,
        compare: Ioc(comparev, desc, count), result: IocMut(resultv, desc, count), flags: Flags,
    ) -> isize {
        let more = [compare, result.0];
        status(post_message(&this, AtomicKind::Compare, msg, more, flags))
    }

    extern "C" fn writevalid(this: Ep<D, M>, datatype: u32, op: u32, count: Out<usize>) -> c_int {
        answer(valid(&this, AtomicKind::Plain, What::of(datatype, op), count))
    }

    extern "C" fn readwritevalid(this: Ep<D, M>, datatype: u32, op: u32, count: Out<usize>) -> c_int {
        answer(valid(&this, AtomicKind::Fetch, What::of(datatype, op), count))
    }

    extern "C" fn compwritevalid(this: Ep<D, M>, datatype: u32, op: u32, count: Out<usize>) -> c_int {
        answer(valid(&this, AtomicKind::Compare, What::of(datatype, op), count))
    }
}

fn post_message<D: Domain, M: Defaults>(
    this: &EpBody<D, M>,
    kind: AtomicKind,
    msg: In<'_, *const abi::fi_msg_atomic>,
    more: [Ioc<'_>; 2],
    flags: Flags,
) -> Result<()> {
    let msg = msg.needed(MSG_CALL, "msg")?;
    let message = Message::read(kind, msg, more, flags)?;
    let (operand, call) = message.call();
    this.atomic(operand, &call)
}

/// What the log calls a call with a message.
const MSG_CALL: &str = "fi_atomicmsg or one of its forms";

/// An atomic as a message describes it.
pub(crate) struct Message {
    kind: AtomicKind,
    what: What,
    operand: Segments,
    compare: Segments,
    result: Segments,
    remote: [RmaIov; IOV_LIMIT],
    count: usize,
    peer: FiAddr,
    data: Option<u64>,
    context: usize,
    flags: Flags,
}

impl Message {
    /// Reads a message, and what stands beside it: what is compared, and the place for the result.
    ///
    /// # Errors
    /// [`Errno::EOPNOTSUPP`] for what is no datatype or operation, [`Errno::EINVAL`] for vectors
    /// that are null or too long.
    pub(crate) fn read(
        kind: AtomicKind,
        msg: Whole<'_, abi::fi_msg_atomic>,
        [compare, result]: [Ioc<'_>; 2],
        flags: Flags,
    ) -> Result<Self> {
        let what = What::of(msg.datatype, msg.op)?;
        let operand = what.operands(msg.msg_iov())?;
        let compare = what.bufs(compare)?;
        let result = what.bufs(result)?;
        let given = rma::vector(MSG_CALL, msg.rma_iov())?;
        let mut remote = [RmaIov::default(); IOV_LIMIT];
        for (iov, ioc) in remote.iter_mut().zip(given) {
            *iov = what.place(ioc.addr, ioc.key, ioc.count)?;
        }
        Ok(Self {
            kind,
            what,
            operand,
            compare,
            result,
            remote,
            count: given.len(),
            peer: FiAddr(msg.addr),
            data: data_of(flags, msg.data),
            context: msg.context.expose_provenance(),
            flags,
        })
    }

    /// The operands, and the call.
    pub(crate) fn call(&self) -> (&[UserBuf], AtomicCall<'_>) {
        let call = AtomicCall {
            kind: self.kind,
            datatype: self.what.datatype,
            op: self.what.op,
            compare: self.compare.as_slice(),
            result: self.result.as_slice(),
            remote: self.remote.get(..self.count).unwrap_or_default(),
            peer: self.peer,
            data: self.data,
            context: self.context,
            flags: Some(self.flags),
        };
        (self.operand.as_slice(), call)
    }
}

/// Stores how many elements one atomic may have.
fn valid<D: Domain, M: Defaults>(
    this: &EpBody<D, M>,
    kind: AtomicKind,
    what: Result<What>,
    count: Out<'_, usize>,
) -> Result<()> {
    let What { datatype, op } = what?;
    let limit = this.domain.atomic_limit(kind, datatype, op)?;
    count.put(match this.ep.option(EpOption::MaxAtomicSize) {
        Ok(longest) => limit.min(longest.checked_div(datatype.size()).unwrap_or(0)),
        // The provider has no bound that a program can change.
        Err(Errno::ENOPROTOOPT) => limit,
        Err(error) => return Err(error),
    });
    Ok(())
}

trampolines! { [D: Domain]
    /// `fi_query_atomic`.
    pub(crate) extern "C" fn query(
        this: This<DomainBody<D>>, datatype: u32, op: u32, attr: Out<abi::fi_atomic_attr>,
        flags: u64,
    ) -> c_int {
        let kind = match flags {
            0 => AtomicKind::Plain,
            abi::FI_FETCH_ATOMIC => AtomicKind::Fetch,
            abi::FI_COMPARE_ATOMIC => AtomicKind::Compare,
            // Atomics on tagged receive buffers are nowhere.
            _ if flags & Flags::TAGGED.bits() != 0 => return answer(Err(Errno::EOPNOTSUPP)),
            _ => return code(Err(Errno::EBADFLAGS)),
        };
        answer(What::of(datatype, op).and_then(|What { datatype, op }| {
            let count = this.domain.atomic_limit(kind, datatype, op)?;
            let size = datatype.size();
            attr.put(abi::fi_atomic_attr { count, size });
            Ok(())
        }))
    }
}
