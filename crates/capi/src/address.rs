#![allow(unsafe_code)]
//! Addresses that pass between C programs and providers.

use core::ffi::{CStr, c_int, c_void};
use core::{ptr, slice};

use ripstop_abi as abi;
use ripstop_core::{Address, sockaddr};
use ripstop_types::{AddrFormat, Errno, Result};

use crate::edge::arguments;
use crate::errno::{self, code, fail};
use crate::text::Text;
use crate::tostr::address::{printed, size_of_address};

/// More bytes than any address has: a length above it is refused before that many bytes are read.
pub(crate) const MAX_ADDRESS_BYTES: usize = 4096;

arguments! {
    /// An address that a call is given without its length, which the format and the family tell
    /// (`struct sockaddr_in` for `AF_INET`, ...); or null.
    #[derive(Clone, Copy)]
    pub(crate) struct AddressIn { at: *const c_void }
}

impl<'a> AddressIn<'a> {
    /// Its first byte.
    const fn as_ptr(self) -> *const u8 {
        self.at.cast()
    }

    /// The address as text, if it is not null and has a text form in this format.
    pub(crate) fn printed(self, format: u32) -> Option<Text> {
        if self.at.is_null() {
            return None;
        }
        // SAFETY: not null, and then a whole address, as `from_c` was promised.
        unsafe { printed(format, self.as_ptr(), None) }
    }

    /// # Errors
    /// [`Errno::EINVAL`] for null, or for a family that the format does not have.
    pub(crate) fn read(self, format: AddrFormat) -> Result<Address> {
        if self.at.is_null() {
            return Err(errno::missing("a call that takes an address", "addr"));
        }
        let bytes = self.bytes(format)?;
        Address::from_bytes(format, bytes).map_err(|_| Errno::EINVAL)
    }

    /// The bytes of an address that is not null.
    fn bytes(self, format: AddrFormat) -> Result<&'a [u8]> {
        let raw = match format {
            // Without a format the family decides.
            AddrFormat::Unspec => abi::FI_SOCKADDR,
            AddrFormat::Str => {
                // SAFETY: an address of this format is a C string, and `from_c` was promised one.
                let text = unsafe { CStr::from_ptr(self.at.cast()) };
                return Ok(text.to_bytes_with_nul());
            }
            format => format.raw(),
        };
        let at = self.as_ptr();
        // SAFETY: an address of this format, as `from_c` was promised, so a socket address has a
        // family.
        let size = unsafe { size_of_address(raw, at, None) }.ok_or(Errno::EINVAL)?;
        // SAFETY: an address of this format has that many bytes.
        Ok(unsafe { slice::from_raw_parts(at, size) })
    }
}

arguments! {
    /// An address that a call is given with its length: null, or that many bytes, if they are no more than
    /// [`MAX_ADDRESS_BYTES`].
    pub(crate) struct AddressOfLen { at: *mut c_void, len: usize }
}

impl AddressOfLen<'_> {
    /// # Errors
    /// [`Errno::EINVAL`] for null, a short address or one of another format.
    pub(crate) fn read(self, format: AddrFormat) -> Result<Address> {
        if self.at.is_null() {
            return Err(errno::missing("a call that takes an address", "addr"));
        }
        if self.len > MAX_ADDRESS_BYTES {
            let why = "no address is as long as addrlen";
            return Err(errno::refused(
                "a call that takes an address",
                why,
                Errno::EINVAL,
            ));
        }
        // SAFETY: not null and not too long, and then that many bytes: `from_c` was promised that.
        let bytes = unsafe { slice::from_raw_parts(self.at.cast_const().cast::<u8>(), self.len) };
        Address::from_bytes(format, bytes).map_err(|_| Errno::EINVAL)
    }
}

arguments! {
    /// Where a call gives an address: null, or as much room as the length beside it says; that may be
    /// null too.
    pub(crate) struct AddressOut { at: *mut c_void, len: Option<&'a mut usize> }
}

impl AddressOut<'_> {
    /// Hands an address out: writes what fits, and to the length how much there would be;
    /// `-FI_ETOOSMALL` when that is more.
    pub(crate) fn give(self, address: Result<Address>) -> c_int {
        let Some(len) = self.len else {
            return fail(errno::missing("a call that gives an address", "addrlen"));
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
        if self.at.is_null() {
            // The caller asks for the length, or forgot the buffer.
            let error = if room < bytes.len() {
                Errno::ETOOSMALL
            } else {
                Errno::EINVAL
            };
            return fail(error);
        }
        // SAFETY: `fits` bytes of ours, and no more than the caller has said that it has; they do
        // not overlap.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.cast(), fits) };
        match fits < bytes.len() {
            true => fail(Errno::ETOOSMALL),
            false => code(Ok(())),
        }
    }
}
