#![allow(unsafe_code)]
//! Endpoint options (`fi_getopt`, `fi_setopt`, `fi_endpoint(3)`).

use core::ffi::{c_int, c_void};

use ripstop_abi as abi;
use ripstop_core::provider::{Domain, Endpoint, EpOption};
use ripstop_types::{Errno, Result};

use super::{Defaults, EpBody};
use crate::errno::code;
use crate::object::{body, missing, refused};

/// The option of a C name; all of them are a `size_t`.
fn option(level: c_int, name: c_int) -> Result<EpOption> {
    if level != abi::FI_OPT_ENDPOINT {
        return Err(Errno::ENOPROTOOPT);
    }
    Ok(match name {
        abi::FI_OPT_MIN_MULTI_RECV => EpOption::MinMultiRecv,
        abi::FI_OPT_CM_DATA_SIZE => EpOption::CmDataSize,
        abi::FI_OPT_MAX_MSG_SIZE => EpOption::MaxMsgSize,
        abi::FI_OPT_MAX_TAGGED_SIZE => EpOption::MaxTaggedSize,
        abi::FI_OPT_MAX_RMA_SIZE => EpOption::MaxRmaSize,
        abi::FI_OPT_MAX_ATOMIC_SIZE => EpOption::MaxAtomicSize,
        abi::FI_OPT_INJECT_MSG_SIZE => EpOption::InjectMsgSize,
        abi::FI_OPT_INJECT_TAGGED_SIZE => EpOption::InjectTaggedSize,
        abi::FI_OPT_INJECT_RMA_SIZE => EpOption::InjectRmaSize,
        abi::FI_OPT_INJECT_ATOMIC_SIZE => EpOption::InjectAtomicSize,
        _ => return Err(Errno::ENOPROTOOPT),
    })
}

/// Reads an option into a caller's buffer.
///
/// # Errors
/// [`Errno::ENOPROTOOPT`] for an unknown option, [`Errno::ETOOSMALL`] with the needed length
/// for a short buffer, [`Errno::EINVAL`] for null.
///
/// # Safety
///
/// `len` is null or valid; `value` is null or valid for writes of `*len` bytes.
pub(crate) unsafe fn get_option(
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
    get: impl FnOnce(EpOption) -> Result<usize>,
) -> Result<()> {
    let option = option(level, name)?;
    // SAFETY: the caller's guarantee.
    let len = unsafe { len.as_mut() }.ok_or_else(|| missing("fi_getopt", "optlen"))?;
    let found = get(option)?;
    let room = core::mem::replace(len, size_of::<usize>());
    if room < size_of::<usize>() {
        return Err(Errno::ETOOSMALL);
    }
    if value.is_null() {
        return Err(missing("fi_getopt", "optval"));
    }
    // SAFETY: not null, and long enough.
    unsafe { value.cast::<usize>().write_unaligned(found) };
    Ok(())
}

/// Sets an option from a caller's buffer.
///
/// # Errors
/// [`Errno::ENOPROTOOPT`] for an unknown option, [`Errno::EINVAL`] for null or a length that
/// is not that of a `size_t`.
///
/// # Safety
///
/// `value` is null or valid for reads of `len` bytes.
pub(crate) unsafe fn set_option(
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
    set: impl FnOnce(EpOption, usize) -> Result<()>,
) -> Result<()> {
    let option = option(level, name)?;
    if value.is_null() {
        return Err(missing("fi_setopt", "optval"));
    }
    if len != size_of::<usize>() {
        let why = "optlen is not the size of a size_t, which is what all options are";
        return Err(refused("fi_setopt", why, Errno::EINVAL));
    }
    // SAFETY: not null, and of this length.
    let wanted = unsafe { value.cast::<usize>().read_unaligned() };
    set(option, wanted)
}

/// `fi_getopt` of an endpoint.
pub(super) unsafe extern "C" fn getopt<D: Domain, M: Defaults>(
    fid: abi::fid_t,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: this operation belongs to endpoints of this type.
    let this = unsafe { body::<EpBody<D, M>>(fid.cast()) };
    let get = |option| this.ep.option(option);
    // SAFETY: the buffer is as `fi_getopt` asks.
    code(unsafe { get_option(level, name, value, len, get) })
}

/// `fi_setopt` of an endpoint.
pub(super) unsafe extern "C" fn setopt<D: Domain, M: Defaults>(
    fid: abi::fid_t,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: this operation belongs to endpoints of this type.
    let this = unsafe { body::<EpBody<D, M>>(fid.cast()) };
    let set = |option, value| this.ep.set_option(option, value);
    // SAFETY: the buffer is as `fi_setopt` asks.
    code(unsafe { set_option(level, name, value, len, set) })
}
