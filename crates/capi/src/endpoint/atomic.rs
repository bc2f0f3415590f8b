#![allow(unsafe_code)]
//! Atomics on a peer's memory (`fi_atomic(3)`).
//!
//! These operations belong to endpoints of type `D` and are called through them; buffers,
//! vectors and messages are null or valid as `fi_atomic(3)` asks. Every `SAFETY` remark below
//! rests on this.

use core::ffi::{c_int, c_void};
use core::{ptr, slice};

use ripstop_abi as abi;
use ripstop_core::provider::{AtomicCall, Domain, Endpoint, EpOption};
use ripstop_mem::{IOV_LIMIT, UserBuf};
use ripstop_types::{AtomicKind, AtomicOp, Datatype, Errno, FiAddr, Flags, Result, RmaIov};

use super::msg::data_of;
use super::{Defaults, EpBody, Tables};
use crate::buffers;
use crate::domain::DomainBody;
use crate::errno::{answer, code, status};
use crate::object::{self, body};
use crate::tables;

impl<D: Domain, M: Defaults> Tables<D, M> {
    pub(super) const ATOMIC: &'static abi::fi_ops_atomic = &abi::fi_ops_atomic {
        write: Some(write::<D, M>),
        writev: Some(writev::<D, M>),
        writemsg: Some(writemsg::<D, M>),
        inject: Some(inject::<D, M>),
        readwrite: Some(readwrite::<D, M>),
        readwritev: Some(readwritev::<D, M>),
        readwritemsg: Some(readwritemsg::<D, M>),
        compwrite: Some(compwrite::<D, M>),
        compwritev: Some(compwritev::<D, M>),
        compwritemsg: Some(compwritemsg::<D, M>),
        writevalid: Some(writevalid::<D, M>),
        readwritevalid: Some(readwritevalid::<D, M>),
        compwritevalid: Some(compwritevalid::<D, M>),
        ..tables::NO_ATOMIC_OPS
    };
}

/// A datatype and an operation by their C numbers.
///
/// # Errors
/// [`Errno::EOPNOTSUPP`] for numbers that are none.
fn what(datatype: abi::fi_datatype, op: abi::fi_op) -> Result<(Datatype, AtomicOp)> {
    Datatype::from_number(datatype)
        .zip(AtomicOp::from_number(op))
        .ok_or(Errno::EOPNOTSUPP)
}

/// Up to [`IOV_LIMIT`] buffers.
#[derive(Clone, Copy)]
struct Buffers {
    parts: [UserBuf; IOV_LIMIT],
    count: usize,
}

impl Buffers {
    const NONE: Self = Self {
        parts: [UserBuf::EMPTY; IOV_LIMIT],
        count: 0,
    };

    fn as_slice(&self) -> &[UserBuf] {
        self.parts.get(..self.count).unwrap_or_default()
    }

    /// The elements of a C vector.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for more than [`IOV_LIMIT`], a null vector, or null with a count.
    ///
    /// # Safety
    ///
    /// `iov` is null or valid for `count` elements, and they are as `buffers::result` asks.
    unsafe fn of(iov: *const abi::fi_ioc, count: usize, datatype: Datatype) -> Result<Self> {
        if count > IOV_LIMIT || (iov.is_null() && count != 0) {
            return Err(buffers::no_vector(iov.is_null()));
        }
        let mut found = Self::NONE;
        if count == 0 {
            return Ok(found);
        }
        // SAFETY: not null, and the caller's guarantee.
        let given = unsafe { slice::from_raw_parts(iov, count) };
        for (part, ioc) in found.parts.iter_mut().zip(given) {
            // SAFETY: the caller's guarantee.
            *part = unsafe { buffer(ioc.addr, ioc.count, datatype) }?;
        }
        found.count = count;
        Ok(found)
    }
}

/// A buffer of `count` elements.
///
/// # Safety
///
/// As `buffers::result` asks.
unsafe fn buffer(addr: *mut c_void, count: usize, datatype: Datatype) -> Result<UserBuf> {
    let len = count.checked_mul(datatype.size()).ok_or(Errno::EINVAL)?;
    // SAFETY: the caller's guarantee.
    unsafe { buffers::result(addr, len) }
}

/// Operands: a program may leave them out where the operation has none.
///
/// # Safety
///
/// As for [`buffer`].
unsafe fn operand(
    addr: *const c_void,
    count: usize,
    datatype: Datatype,
    op: AtomicOp,
) -> Result<UserBuf> {
    if op == AtomicOp::AtomicRead {
        return Ok(UserBuf::EMPTY);
    }
    // SAFETY: the caller's guarantee; the memory is only read.
    unsafe { buffer(addr.cast_mut(), count, datatype) }
}

/// The peer's memory of a call that names one place.
fn place(addr: u64, key: u64, count: usize, datatype: Datatype) -> Result<RmaIov> {
    let len = count.checked_mul(datatype.size()).ok_or(Errno::EINVAL)?;
    let len = len as u64;
    Ok(RmaIov { addr, len, key })
}

/// How many elements a C vector has in all.
///
/// # Safety
///
/// `iov` is null or valid for `count` elements.
unsafe fn elements(iov: *const abi::fi_ioc, count: usize) -> Result<usize> {
    if iov.is_null() || count > IOV_LIMIT {
        return Err(buffers::no_vector(iov.is_null()));
    }
    // SAFETY: not null, and the caller's guarantee.
    let given = unsafe { slice::from_raw_parts(iov, count) };
    given.iter().try_fold(0usize, |sum, ioc| {
        sum.checked_add(ioc.count).ok_or(Errno::EINVAL)
    })
}

/// The arguments that calls for one place share.
struct Place {
    dest: abi::fi_addr_t,
    addr: u64,
    key: u64,
    datatype: Datatype,
    op: AtomicOp,
    context: *mut c_void,
}

fn post<D: Domain, M: Defaults>(
    this: &EpBody<D, M>,
    kind: AtomicKind,
    at: &Place,
    count: usize,
    [operand, compare, result]: [&[UserBuf]; 3],
) -> Result<()> {
    let remote = place(at.addr, at.key, count, at.datatype)?;
    this.atomic(
        operand,
        &AtomicCall {
            kind,
            datatype: at.datatype,
            op: at.op,
            compare,
            result,
            remote: &[remote],
            peer: FiAddr(at.dest),
            data: None,
            context: at.context.expose_provenance(),
            flags: this.defaults.tx(),
        },
    )
}

unsafe extern "C" fn write<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    dest: abi::fi_addr_t,
    addr: u64,
    key: u64,
    datatype: abi::fi_datatype,
    op: abi::fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    status(what(datatype, op).and_then(|(datatype, op)| {
        // SAFETY: see the module.
        let buf = unsafe { operand(buf, count, datatype, op) }?;
        let at = Place {
            dest,
            addr,
            key,
            datatype,
            op,
            context,
        };
        post(this, AtomicKind::Plain, &at, count, [&[buf], &[], &[]])
    }))
}

unsafe extern "C" fn writev<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    iov: *const abi::fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    dest: abi::fi_addr_t,
    addr: u64,
    key: u64,
    datatype: abi::fi_datatype,
    op: abi::fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    status(what(datatype, op).and_then(|(datatype, op)| {
        // SAFETY: see the module.
        let bufs = unsafe { Buffers::of(iov, count, datatype) }?;
        // SAFETY: see the module.
        let count = unsafe { elements(iov, count) }?;
        let at = Place {
            dest,
            addr,
            key,
            datatype,
            op,
            context,
        };
        let bufs = [bufs.as_slice(), &[], &[]];
        post(this, AtomicKind::Plain, &at, count, bufs)
    }))
}

unsafe extern "C" fn inject<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *const c_void,
    count: usize,
    dest: abi::fi_addr_t,
    addr: u64,
    key: u64,
    datatype: abi::fi_datatype,
    op: abi::fi_op,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    status(what(datatype, op).and_then(|(datatype, op)| {
        // SAFETY: see the module.
        let buf = unsafe { operand(buf, count, datatype, op) }?;
        let remote = place(addr, key, count, datatype)?;
        let peer = FiAddr(dest);
        this.ep.inject_atomic(buf, datatype, op, remote, peer)
    }))
}

unsafe extern "C" fn readwrite<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    dest: abi::fi_addr_t,
    addr: u64,
    key: u64,
    datatype: abi::fi_datatype,
    op: abi::fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    status(what(datatype, op).and_then(|(datatype, op)| {
        // SAFETY: see the module.
        let buf = unsafe { operand(buf, count, datatype, op) }?;
        // SAFETY: see the module.
        let result = unsafe { buffer(result, count, datatype) }?;
        let at = Place {
            dest,
            addr,
            key,
            datatype,
            op,
            context,
        };
        let bufs: [&[UserBuf]; 3] = [&[buf], &[], &[result]];
        post(this, AtomicKind::Fetch, &at, count, bufs)
    }))
}

unsafe extern "C" fn readwritev<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    iov: *const abi::fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    resultv: *mut abi::fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    dest: abi::fi_addr_t,
    addr: u64,
    key: u64,
    datatype: abi::fi_datatype,
    op: abi::fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    status(what(datatype, op).and_then(|(datatype, op)| {
        // SAFETY: see the module.
        let bufs = unsafe { operands(iov, count, datatype, op) }?;
        // SAFETY: see the module.
        let result = unsafe { Buffers::of(resultv, result_count, datatype) }?;
        // SAFETY: see the module.
        let count = unsafe { elements(resultv, result_count) }?;
        let at = Place {
            dest,
            addr,
            key,
            datatype,
            op,
            context,
        };
        let bufs = [bufs.as_slice(), &[], result.as_slice()];
        post(this, AtomicKind::Fetch, &at, count, bufs)
    }))
}

unsafe extern "C" fn compwrite<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    compare: *const c_void,
    _compare_desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    dest: abi::fi_addr_t,
    addr: u64,
    key: u64,
    datatype: abi::fi_datatype,
    op: abi::fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    status(what(datatype, op).and_then(|(datatype, op)| {
        // SAFETY: see the module.
        let buf = unsafe { operand(buf, count, datatype, op) }?;
        // SAFETY: see the module.
        let compare = unsafe { buffer(compare.cast_mut(), count, datatype) }?;
        // SAFETY: see the module.
        let result = unsafe { buffer(result, count, datatype) }?;
        let at = Place {
            dest,
            addr,
            key,
            datatype,
            op,
            context,
        };
        let bufs: [&[UserBuf]; 3] = [&[buf], &[compare], &[result]];
        post(this, AtomicKind::Compare, &at, count, bufs)
    }))
}

unsafe extern "C" fn compwritev<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    iov: *const abi::fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    comparev: *const abi::fi_ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut abi::fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    dest: abi::fi_addr_t,
    addr: u64,
    key: u64,
    datatype: abi::fi_datatype,
    op: abi::fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    status(what(datatype, op).and_then(|(datatype, op)| {
        // SAFETY: see the module.
        let bufs = unsafe { Buffers::of(iov, count, datatype) }?;
        // SAFETY: see the module.
        let compare = unsafe { Buffers::of(comparev, compare_count, datatype) }?;
        // SAFETY: see the module.
        let result = unsafe { Buffers::of(resultv, result_count, datatype) }?;
        // SAFETY: see the module.
        let count = unsafe { elements(iov, count) }?;
        let at = Place {
            dest,
            addr,
            key,
            datatype,
            op,
            context,
        };
        let bufs = [bufs.as_slice(), compare.as_slice(), result.as_slice()];
        post(this, AtomicKind::Compare, &at, count, bufs)
    }))
}

/// Operands of a vector, which may be left out where the operation has none.
///
/// # Safety
///
/// As for [`Buffers::of`].
unsafe fn operands(
    iov: *const abi::fi_ioc,
    count: usize,
    datatype: Datatype,
    op: AtomicOp,
) -> Result<Buffers> {
    if op == AtomicOp::AtomicRead {
        return Ok(Buffers::NONE);
    }
    // SAFETY: the caller's guarantee.
    unsafe { Buffers::of(iov, count, datatype) }
}

unsafe extern "C" fn writemsg<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    msg: *const abi::fi_msg_atomic,
    flags: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    let more = More::default();
    // SAFETY: see the module.
    status(unsafe { post_message(this, AtomicKind::Plain, msg, &more, flags) })
}

unsafe extern "C" fn readwritemsg<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    msg: *const abi::fi_msg_atomic,
    resultv: *mut abi::fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    let more = More {
        result: (resultv, result_count),
        ..More::default()
    };
    // SAFETY: see the module.
    status(unsafe { post_message(this, AtomicKind::Fetch, msg, &more, flags) })
}

unsafe extern "C" fn compwritemsg<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    msg: *const abi::fi_msg_atomic,
    comparev: *const abi::fi_ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut abi::fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    let more = More {
        compare: (comparev, compare_count),
        result: (resultv, result_count),
    };
    // SAFETY: see the module.
    status(unsafe { post_message(this, AtomicKind::Compare, msg, &more, flags) })
}

/// The vectors that stand beside a message.
pub(crate) struct More {
    pub(crate) compare: (*const abi::fi_ioc, usize),
    pub(crate) result: (*const abi::fi_ioc, usize),
}

impl Default for More {
    fn default() -> Self {
        Self {
            compare: (ptr::null(), 0),
            result: (ptr::null(), 0),
        }
    }
}

/// # Safety
///
/// `msg` is null or valid with its vectors, and so are those of `more`.
unsafe fn post_message<D: Domain, M: Defaults>(
    this: &EpBody<D, M>,
    kind: AtomicKind,
    msg: *const abi::fi_msg_atomic,
    more: &More,
    flags: u64,
) -> Result<()> {
    // SAFETY: the caller's guarantee, for this and the block below.
    let msg = unsafe { msg.as_ref() };
    let msg = msg.ok_or_else(|| object::missing("fi_atomicmsg or one of its forms", "msg"))?;
    // SAFETY: as above.
    let message = unsafe { Message::read(kind, msg, more, flags) }?;
    let (operand, call) = message.call();
    this.atomic(operand, &call)
}

/// An atomic as a message describes it.
pub(crate) struct Message {
    kind: AtomicKind,
    datatype: Datatype,
    op: AtomicOp,
    operand: Buffers,
    compare: Buffers,
    result: Buffers,
    remote: [RmaIov; IOV_LIMIT],
    count: usize,
    peer: FiAddr,
    data: Option<u64>,
    context: usize,
    flags: Flags,
}

impl Message {
    /// # Errors
    /// [`Errno::EOPNOTSUPP`] for what is no datatype or operation, [`Errno::EINVAL`] for vectors
    /// that are null or too long.
    ///
    /// # Safety
    ///
    /// The vectors of `msg` and `more` are null or valid.
    pub(crate) unsafe fn read(
        kind: AtomicKind,
        msg: &abi::fi_msg_atomic,
        more: &More,
        flags: u64,
    ) -> Result<Self> {
        let (datatype, op) = what(msg.datatype, msg.op)?;
        // SAFETY: the caller's guarantee, for this and the blocks below.
        let operand = unsafe { operands(msg.msg_iov, msg.iov_count, datatype, op) }?;
        // SAFETY: as above.
        let compare = unsafe { Buffers::of(more.compare.0, more.compare.1, datatype) }?;
        // SAFETY: as above.
        let result = unsafe { Buffers::of(more.result.0, more.result.1, datatype) }?;
        let count = msg.rma_iov_count;
        if msg.rma_iov.is_null() {
            return Err(object::missing(
                "fi_atomicmsg or one of its forms",
                "rma_iov of msg",
            ));
        }
        if count == 0 || count > IOV_LIMIT {
            let why = "rma_iov_count is 0 or above rma_iov_limit of the endpoint";
            return Err(object::refused(
                "fi_atomicmsg or one of its forms",
                why,
                Errno::EINVAL,
            ));
        }
        // SAFETY: not null, and as above.
        let given = unsafe { slice::from_raw_parts(msg.rma_iov, count) };
        let mut remote = [RmaIov::default(); IOV_LIMIT];
        for (iov, ioc) in remote.iter_mut().zip(given) {
            *iov = place(ioc.addr, ioc.key, ioc.count, datatype)?;
        }
        let flags = Flags::from_bits_retain(flags);
        Ok(Self {
            kind,
            datatype,
            op,
            operand,
            compare,
            result,
            remote,
            count,
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
            datatype: self.datatype,
            op: self.op,
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
///
/// # Safety
///
/// `count` is null or valid for writes.
unsafe fn valid<D: Domain, M: Defaults>(
    this: &EpBody<D, M>,
    kind: AtomicKind,
    datatype: abi::fi_datatype,
    op: abi::fi_op,
    count: *mut usize,
) -> Result<()> {
    let (datatype, op) = what(datatype, op)?;
    let limit = this.domain.atomic_limit(kind, datatype, op)?;
    let longest = this.ep.option(EpOption::MaxAtomicSize)?;
    let limit = limit.min(longest.checked_div(datatype.size()).unwrap_or(0));
    // SAFETY: the caller's guarantee.
    if let Some(count) = unsafe { count.as_mut() } {
        *count = limit;
    }
    Ok(())
}

unsafe extern "C" fn writevalid<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    datatype: abi::fi_datatype,
    op: abi::fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    answer(unsafe { valid(this, AtomicKind::Plain, datatype, op, count) })
}

unsafe extern "C" fn readwritevalid<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    datatype: abi::fi_datatype,
    op: abi::fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    answer(unsafe { valid(this, AtomicKind::Fetch, datatype, op, count) })
}

unsafe extern "C" fn compwritevalid<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    datatype: abi::fi_datatype,
    op: abi::fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    answer(unsafe { valid(this, AtomicKind::Compare, datatype, op, count) })
}

/// `fi_query_atomic`: `domain` is a domain of this type; `attr` is null or valid for writes.
pub(crate) unsafe extern "C" fn query<D: Domain>(
    domain: *mut abi::fid_domain,
    datatype: abi::fi_datatype,
    op: abi::fi_op,
    attr: *mut abi::fi_atomic_attr,
    flags: u64,
) -> c_int {
    // SAFETY: this operation belongs to domains of this type.
    let this = unsafe { body::<DomainBody<D>>(domain) };
    let kind = match flags {
        0 => AtomicKind::Plain,
        abi::FI_FETCH_ATOMIC => AtomicKind::Fetch,
        abi::FI_COMPARE_ATOMIC => AtomicKind::Compare,
        // Atomics on tagged receive buffers are nowhere.
        _ if flags & Flags::TAGGED.bits() != 0 => return answer(Err(Errno::EOPNOTSUPP)),
        _ => return code(Err(Errno::EBADFLAGS)),
    };
    answer(what(datatype, op).and_then(|(datatype, op)| {
        let count = this.domain.atomic_limit(kind, datatype, op)?;
        // SAFETY: null or valid for writes.
        if let Some(attr) = unsafe { attr.as_mut() } {
            *attr = abi::fi_atomic_attr {
                count,
                size: datatype.size(),
            };
        }
        Ok(())
    }))
}
