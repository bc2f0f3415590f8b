#![allow(unsafe_code)]
//! Writing an event to a caller's buffer, in the form that its kind has (`fi_eq(3)`).

use core::ffi::c_void;
use core::ptr;

use ripstop_abi as abi;
use ripstop_core::FidToken;
use ripstop_core::eq::Event;
use ripstop_types::{Errno, Result};

use super::kept::Kept;
use crate::edge::{Out, arguments};
use crate::errno;
use crate::object::pointer;

arguments! {
    /// The buffer of a read: null, or that many bytes.
    #[derive(Clone, Copy)]
    pub(super) struct Buffer { at: *mut c_void, len: usize }
}

impl Buffer<'_> {
    /// Writes an entry, and what follows it, cut to what fits; returns the number of bytes, which is
    /// 0 without a buffer.
    ///
    /// # Errors
    /// [`Errno::ETOOSMALL`] for a buffer without room for the entry.
    fn put<T>(self, entry: T, data: &[u8]) -> Result<usize> {
        if self.at.is_null() {
            return Ok(0);
        }
        let left = self.len.checked_sub(size_of::<T>());
        let fits = data.len().min(left.ok_or(Errno::ETOOSMALL)?);
        // SAFETY: not null, and enough bytes for the entry.
        unsafe { self.at.cast::<T>().write_unaligned(entry) };
        let rest = self.at.cast::<u8>().wrapping_add(size_of::<T>());
        // SAFETY: `fits` bytes are left behind the entry, and they are not ours.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), rest, fits) };
        Ok(size_of::<T>().saturating_add(fits))
    }
}

/// Where an event goes.
pub(super) struct Target<'a> {
    event: Out<'a, u32>,
    buf: Buffer<'a>,
    /// Whether the event is removed.
    pub(super) consume: bool,
}

impl<'a> Target<'a> {
    /// As in C, each of the two places may be null: then that part is not asked for.
    ///
    /// # Errors
    /// [`Errno::EBADFLAGS`] for other flags than `FI_PEEK`.
    pub(super) fn new(event: Out<'a, u32>, buf: Buffer<'a>, flags: u64) -> Result<Self> {
        if flags & !abi::FI_PEEK != 0 {
            let why = "flags other than FI_PEEK are unknown; leave them out";
            return Err(errno::refused("fi_eq_read", why, Errno::EBADFLAGS));
        }
        let consume = flags == 0;
        Ok(Self {
            event,
            buf,
            consume,
        })
    }

    /// Writes an event, and returns the number of bytes; 0 without a buffer.
    ///
    /// # Errors
    /// [`Errno::ETOOSMALL`] for a buffer without room for the fixed part; connection data is
    /// cut to what fits.
    pub(super) fn take(&self, event: &Event, kept: &mut Kept) -> Result<usize> {
        let size = match event {
            Event::ConnReq { pep, info, data } => {
                let info = match self.buf.at.is_null() {
                    true => ptr::null_mut(),
                    false if self.buf.len < size_of::<abi::fi_eq_cm_entry>() => {
                        return Err(Errno::ETOOSMALL);
                    }
                    false => kept.hand_out(info, self.consume)?,
                };
                self.buf.put(connection(*pep, info), data)
            }
            Event::Connected { ep, data } => self.buf.put(connection(*ep, ptr::null_mut()), data),
            Event::Shutdown { ep } => self.buf.put(connection(*ep, ptr::null_mut()), &[]),
            &Event::Done {
                fid, context, data, ..
            } => {
                let entry = abi::fi_eq_entry {
                    fid: pointer(fid),
                    context: ptr::with_exposed_provenance_mut(context),
                    data,
                };
                self.buf.put(entry, &[])
            }
            Event::Written { bytes, .. }
                if self.buf.len < bytes.len() && !self.buf.at.is_null() =>
            {
                Err(Errno::ETOOSMALL)
            }
            Event::Written { bytes, .. } => self.buf.put((), bytes),
        };
        let size = size?;
        self.event.put(event.code());
        Ok(size)
    }
}

fn connection(fid: FidToken, info: *mut abi::fi_info) -> abi::fi_eq_cm_entry {
    abi::fi_eq_cm_entry {
        fid: pointer(fid),
        info,
        data: [],
    }
}
