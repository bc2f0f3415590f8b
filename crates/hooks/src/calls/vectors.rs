#![allow(unsafe_code)]
//! What an operation is, from the arguments of its call.

use core::ffi::c_void;
use core::ptr;

use ripstop_abi as abi;
use ripstop_mem::UserBuf;

use crate::call::{Buffers, Detail, Kind, Registration, Transfer};

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
        is_tagged: false,
        is_injected: false,
    })
}

/// One of several buffers.
///
/// # Safety
///
/// `iov` is null or so many elements, and `desc_list` is null or as many.
pub(super) unsafe fn many(
    kind: Kind,
    iov: *const abi::iovec,
    desc_list: *mut *mut c_void,
    count: usize,
) -> Operation {
    // SAFETY: the same contract.
    let bytes = unsafe { sum(iov, count, |iov| iov.iov_len) };
    // SAFETY: the same contract.
    let desc = unsafe { first(desc_list, count) };
    let mut operation = one(kind, ptr::null(), 0, desc);
    operation.0.bytes = bytes;
    operation.0.buffers = Buffers::Many {
        iov,
        count,
        descs: desc_list.cast_const(),
    };
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
        (self.0.tag, self.0.is_tagged) = (tag, true);
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

/// One buffer of an operation or a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// The memory.
    pub(crate) buf: UserBuf,
    /// Its descriptor, or null.
    pub(crate) desc: *mut c_void,
}

impl Buffers {
    /// Each buffer that has bytes; `desc` is that of a single one. Called while the call is under way that these are of.
    pub(crate) fn each(self, desc: *mut c_void, mut use_it: impl FnMut(Piece)) {
        let mut one = |start: *const c_void, len: usize, desc| {
            if len > 0 && !start.is_null() {
                // SAFETY: the memory of an operation, which its caller leaves alone until it has
                // completed (`fi_msg(3)`), or of a region, which is only compared by its address.
                let buf = unsafe { UserBuf::from_const(start.cast(), len) };
                use_it(Piece { buf, desc });
            }
        };
        match self {
            Self::None => {}
            Self::One(start, len) => one(start, len, desc),
            Self::Many { iov, count, descs } if !iov.is_null() => {
                // SAFETY: not null, and then as many elements as the caller has said.
                let iov = unsafe { core::slice::from_raw_parts(iov, count) };
                let descs = match descs.is_null() {
                    true => &[],
                    // SAFETY: not null, and then as many elements as there are buffers.
                    false => unsafe { core::slice::from_raw_parts(descs, count) },
                };
                for (at, iov) in iov.iter().enumerate() {
                    let desc = descs.get(at).copied().unwrap_or(ptr::null_mut());
                    one(iov.iov_base, iov.iov_len, desc);
                }
            }
            Self::Many { .. } => {}
        }
    }
}

/// The memory that `fi_mr_regattr` is to register.
///
/// # Safety
///
/// `attr` is null or valid.
pub(super) unsafe fn registration(attr: *const abi::fi_mr_attr, flags: u64) -> Registration {
    // SAFETY: null or valid.
    let Some(attr) = (unsafe { attr.as_ref() }) else {
        return Registration::of(Buffers::None, 0, 0);
    };
    let named = flags & abi::FI_MR_DMABUF == 0;
    let count = attr.iov_count;
    let iov = match named {
        // SAFETY: without this flag the union has this field.
        true => unsafe { attr.mr.mr_iov },
        false => ptr::null(),
    };
    // SAFETY: null or so many elements.
    let bytes = unsafe { sum(iov, count, |iov| iov.iov_len) };
    let descs = ptr::null();
    let buffers = match named {
        true => Buffers::Many { iov, count, descs },
        false => Buffers::None,
    };
    let iface = attr.iface;
    Registration {
        iface,
        ..Registration::of(buffers, bytes, attr.access)
    }
}

/// That of `fi_mr_regv`.
///
/// # Safety
///
/// `iov` is null or so many elements.
pub(super) unsafe fn registration_of(
    iov: *const abi::iovec,
    count: usize,
    access: u64,
) -> Registration {
    // SAFETY: the same contract.
    let bytes = unsafe { sum(iov, count, |iov| iov.iov_len) };
    let descs = ptr::null();
    Registration::of(Buffers::Many { iov, count, descs }, bytes, access)
}

impl Registration {
    /// Of usual memory.
    pub(super) const fn of(buffers: Buffers, bytes: usize, access: u64) -> Self {
        Self {
            buffers,
            bytes,
            iface: abi::FI_HMEM_SYSTEM,
            access,
        }
    }
}
