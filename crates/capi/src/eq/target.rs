#![allow(unsafe_code)]
//! Writing an event to a caller's buffer, in the form that its kind has (`fi_eq(3)`).

use core::ffi::c_void;
use core::ptr;

use ripstop_abi as abi;
use ripstop_core::FidToken;
use ripstop_core::eq::Event;
use ripstop_types::{Errno, Result};

use super::kept::Kept;
use crate::object::{self, pointer};

/// Where an event goes.
#[derive(Clone, Copy)]
pub(super) struct Target {
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    /// Whether the event is removed.
    pub(super) consume: bool,
}

impl Target {
    /// As in C, each of the two places may be null: then that part is not asked for.
    ///
    /// # Errors
    /// [`Errno::EBADFLAGS`] for other flags than `FI_PEEK`.
    pub(super) fn new(event: *mut u32, buf: *mut c_void, len: usize, flags: u64) -> Result<Self> {
        if flags & !abi::FI_PEEK != 0 {
            let why = "flags other than FI_PEEK are unknown; leave them out";
            return Err(object::refused("fi_eq_read", why, Errno::EBADFLAGS));
        }
        let consume = flags == 0;
        Ok(Self {
            event,
            buf,
            len,
            consume,
        })
    }

    /// Writes an event, and returns the number of bytes; 0 without a buffer.
    ///
    /// # Errors
    /// [`Errno::ETOOSMALL`] for a buffer without room for the fixed part; connection data is
    /// cut to what fits.
    ///
    /// # Safety
    ///
    /// `event` and the `len` bytes of `buf` are null or valid for writes.
    pub(super) unsafe fn take(self, event: &Event, kept: &mut Kept) -> Result<usize> {
        let size = match event {
            _ if self.buf.is_null() => 0,
            Event::ConnReq { pep, info, data } => {
                self.room_for::<abi::fi_eq_cm_entry>()?;
                let info = kept.hand_out(info, self.consume)?;
                // SAFETY: the caller's guarantee, for each arm; there is room.
                unsafe { self.connection(*pep, info, data) }
            }
            Event::Connected { ep, data } => {
                self.room_for::<abi::fi_eq_cm_entry>()?;
                // SAFETY: as above.
                unsafe { self.connection(*ep, ptr::null_mut(), data) }
            }
            Event::Shutdown { ep } => {
                self.room_for::<abi::fi_eq_cm_entry>()?;
                // SAFETY: as above.
                unsafe { self.connection(*ep, ptr::null_mut(), &[]) }
            }
            &Event::Done {
                fid, context, data, ..
            } => {
                self.room_for::<abi::fi_eq_entry>()?;
                let entry = abi::fi_eq_entry {
                    fid: pointer(fid),
                    context: ptr::with_exposed_provenance_mut(context),
                    data,
                };
                // SAFETY: as above.
                unsafe { self.buf.cast::<abi::fi_eq_entry>().write_unaligned(entry) };
                size_of::<abi::fi_eq_entry>()
            }
            Event::Written { bytes, .. } => {
                if self.len < bytes.len() {
                    return Err(Errno::ETOOSMALL);
                }
                // SAFETY: as above.
                unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.buf.cast(), bytes.len()) };
                bytes.len()
            }
        };
        // SAFETY: null or valid for writes.
        if let Some(number) = unsafe { self.event.as_mut() } {
            *number = event.code();
        }
        Ok(size)
    }

    fn room_for<T>(&self) -> Result<()> {
        match self.len >= size_of::<T>() {
            true => Ok(()),
            false => Err(Errno::ETOOSMALL),
        }
    }

    /// # Safety
    ///
    /// The `len` bytes of `buf` are valid for writes and have room for the entry.
    unsafe fn connection(self, fid: FidToken, info: *mut abi::fi_info, data: &[u8]) -> usize {
        let fixed = size_of::<abi::fi_eq_cm_entry>();
        let entry = abi::fi_eq_cm_entry {
            fid: pointer(fid),
            info,
            data: [],
        };
        let to = self.buf.cast::<abi::fi_eq_cm_entry>();
        // SAFETY: the caller's guarantee.
        unsafe { to.write_unaligned(entry) };
        let fits = data.len().min(self.len.saturating_sub(fixed));
        let rest = self.buf.cast::<u8>().wrapping_add(fixed);
        // SAFETY: `fits` bytes are left in the buffer.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), rest, fits) };
        fixed.saturating_add(fits)
    }
}
