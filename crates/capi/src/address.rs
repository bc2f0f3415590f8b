#![allow(unsafe_code)]
//! Addresses that pass between C programs and providers.

use core::ffi::{c_int, c_void};
use core::{ptr, slice};

use ripstop_abi as abi;
use ripstop_core::{Address, sockaddr};
use ripstop_types::{AddrFormat, Errno, Result};

use crate::errno::{code, fail};
use crate::object;
use crate::tostr::address::size_of_address;

/// Reads an address whose length its format and family tell.
///
/// # Errors
/// [`Errno::EINVAL`] for null, or for a family that the format does not have.
///
/// # Safety
///
/// `addr` is null or a whole address of this format (`struct sockaddr_in` for `AF_INET`, ...).
pub(crate) unsafe fn read(format: AddrFormat, addr: *const c_void) -> Result<Address> {
    if addr.is_null() {
        return Err(object::missing("a call that takes an address", "addr"));
    }
    // SAFETY: the caller's guarantee: every address is readable for its family.
    let size = unsafe { size(format, addr.cast()) }?;
    // SAFETY: the caller's guarantee, for as many bytes as the format has.
    unsafe { read_sized(format, addr, size) }
}

/// Longer than any address: a length that is none is found before that many bytes are read.
pub(crate) const MOST_ADDRESS: usize = 4096;

/// Reads an address of a stated length.
///
/// # Errors
/// [`Errno::EINVAL`] for null, a short address or one of another format.
///
/// # Safety
///
/// `addr` is null or valid for reads of `len` bytes, if they are no more than [`MOST_ADDRESS`].
pub(crate) unsafe fn read_sized(
    format: AddrFormat,
    addr: *const c_void,
    len: usize,
) -> Result<Address> {
    if addr.is_null() {
        return Err(object::missing("a call that takes an address", "addr"));
    }
    if len > MOST_ADDRESS {
        let why = "no address is as long as addrlen";
        return Err(object::refused(
            "a call that takes an address",
            why,
            Errno::EINVAL,
        ));
    }
    // SAFETY: the caller's guarantee.
    let bytes = unsafe { slice::from_raw_parts(addr.cast::<u8>(), len) };
    Address::from_bytes(format, bytes).map_err(|_| Errno::EINVAL)
}

/// How long the address at `addr` is.
///
/// # Errors
/// [`Errno::EINVAL`] for a family that the format does not have.
///
/// # Safety
///
/// As for [`read`], not null.
pub(crate) unsafe fn size(format: AddrFormat, addr: *const u8) -> Result<usize> {
    let raw = match format {
        // Without a format the family decides.
        AddrFormat::Unspec => abi::FI_SOCKADDR,
        AddrFormat::Str => {
            // SAFETY: the caller's guarantee: a C string.
            let text = unsafe { core::ffi::CStr::from_ptr(addr.cast()) };
            return Ok(text.count_bytes().saturating_add(1));
        }
        format => format.raw(),
    };
    // SAFETY: the caller's guarantee.
    unsafe { size_of_address(raw, addr, None) }.ok_or(Errno::EINVAL)
}

/// Hands an address to a caller, who said in `len` how much room there is.
///
/// Writes what fits, and to `len` how much there would be; `-FI_ETOOSMALL` when that is more.
///
/// # Safety
///
/// `len` is null or valid; `addr` is null or valid for writes of `*len` bytes.
pub(crate) unsafe fn give(address: Result<Address>, addr: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: the caller's guarantee.
    let Some(len) = (unsafe { len.as_mut() }) else {
        return fail(object::missing("a call that gives an address", "addrlen"));
    };
    let (on_stack, on_heap);
    let bytes: &[u8] = match address {
        Ok(Address::Ip(addr)) => {
            on_stack = sockaddr::encode(&addr);
            &on_stack
        }
        Ok(address) => {
            on_heap = address.to_bytes();
            &on_heap
        }
        Err(error) => return fail(error),
    };
    let room = *len;
    let fits = bytes.len().min(room);
    *len = bytes.len();
    if addr.is_null() {
        // The caller asks for the length, or forgot the buffer.
        let error = if room < bytes.len() {
            Errno::ETOOSMALL
        } else {
            Errno::EINVAL
        };
        return fail(error);
    }
    // SAFETY: `fits` bytes are within both, and they do not overlap.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), addr.cast(), fits) };
    match fits < bytes.len() {
        true => fail(Errno::ETOOSMALL),
        false => code(Ok(())),
    }
}
