#![allow(unsafe_code)]
//! What an operation is, from the arguments of its call.

use core::ffi::c_void;
use core::ptr;

use ripstop_abi as abi;

use crate::call::{Buffers, Detail, Kind, Transfer};

/// An operation that is put together.
#[derive(Clone, Copy)]
pub(super) struct Operation(Transfer);

/// One of one buffer.
#[inline(always)]
pub(super) const fn one(
    kind: Kind,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
) -> Operation {
    Operation(Transfer {
        kind,
        buffers: Buffers::One(buf, len),
        bytes: len,
        desc,
        peer: abi::FI_ADDR_UNSPEC,
        context: ptr::null_mut(),
        flags: None,
        tag: 0,
        is_injected: false,
    })
}

/// One of several buffers.
///
/// # Safety
///
/// `iov` is null or so many elements, and `desc` is null or as many.
pub(super) unsafe fn many(
    kind: Kind,
    iov: *const abi::iovec,
    desc: *mut *mut c_void,
    count: usize,
) -> Operation {
    // SAFETY: the same contract.
    let bytes = unsafe { sum(iov, count, |iov| iov.iov_len) };
    // SAFETY: the same contract.
    let desc = unsafe { first(desc, count) };
    let mut operation = one(kind, ptr::null(), 0, desc);
    operation.0.bytes = bytes;
    operation.0.buffers = Buffers::Many(iov, count);
    operation
}

/// The sum of something of all elements of an array, 0 for null.
///
/// # Safety
///
/// `array` is null or so many elements.
pub(super) unsafe fn sum<T>(array: *const T, count: usize, of: impl Fn(&T) -> usize) -> usize {
    if array.is_null() {
        return 0;
    }
    // SAFETY: not null, and then so many elements.
    let all = unsafe { core::slice::from_raw_parts(array, count) };
    all.iter().map(of).fold(0, usize::saturating_add)
}

/// The first of an array of descriptors, or null.
///
/// # Safety
///
/// `desc` is null or so many elements.
pub(super) unsafe fn first(desc: *mut *mut c_void, count: usize) -> *mut c_void {
    if desc.is_null() || count == 0 {
        return ptr::null_mut();
    }
    // SAFETY: not null, and then at least one element.
    unsafe { desc.read() }
}

/// The bytes of so many elements of this type; as many as elements for a type that is not known.
pub(super) const fn size_of_elements(datatype: abi::fi_datatype, count: usize) -> usize {
    let each = match datatype {
        abi::FI_INT16 | abi::FI_UINT16 | abi::FI_FLOAT16 | abi::FI_BFLOAT16 => 2,
        abi::FI_INT32 | abi::FI_UINT32 | abi::FI_FLOAT => 4,
        abi::FI_INT64 | abi::FI_UINT64 | abi::FI_DOUBLE | abi::FI_FLOAT_COMPLEX => 8,
        abi::FI_DOUBLE_COMPLEX | abi::FI_LONG_DOUBLE | abi::FI_INT128 | abi::FI_UINT128 => 16,
        abi::FI_LONG_DOUBLE_COMPLEX => 32,
        _ => 1,
    };
    count.saturating_mul(each)
}

impl Operation {
    /// One that takes its payload at once and has no completion.
    #[inline(always)]
    pub(super) const fn injected(
        kind: Kind,
        buf: *const c_void,
        len: usize,
        peer: abi::fi_addr_t,
    ) -> Self {
        let mut operation = one(kind, buf, len, ptr::null_mut());
        operation.0.peer = peer;
        operation.0.is_injected = true;
        operation
    }

    /// One whose buffers hooks do not look into.
    pub(super) const fn of_bytes(kind: Kind, bytes: usize, desc: *mut c_void) -> Self {
        let mut operation = one(kind, ptr::null(), 0, desc);
        operation.0.buffers = Buffers::None;
        operation.0.bytes = bytes;
        operation
    }

    /// With this peer, and this context.
    #[inline(always)]
    pub(super) const fn to(mut self, peer: abi::fi_addr_t, context: *mut c_void) -> Self {
        self.0.peer = peer;
        self.0.context = context;
        self
    }

    /// With this context.
    #[inline(always)]
    pub(super) const fn context(mut self, context: *mut c_void) -> Self {
        self.0.context = context;
        self
    }

    /// With the flags of its call.
    pub(super) const fn flags(mut self, flags: u64) -> Self {
        self.0.flags = Some(flags);
        self
    }

    /// With this tag.
    #[inline(always)]
    pub(super) const fn tag(mut self, tag: u64) -> Self {
        self.0.tag = tag;
        self
    }

    /// That the call ends it.
    pub(super) const fn at_once(mut self) -> Self {
        self.0.is_injected = true;
        self
    }

    #[inline(always)]
    pub(super) const fn detail(self) -> Detail {
        Detail::Transfer(self.0)
    }
}
