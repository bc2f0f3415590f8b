#![allow(unsafe_code)]
//! Writing an event to a caller's buffer, in the form that its kind has (`fi_eq(3)`).

use core::ffi::c_void;
use core::ptr;

use ripstop_abi as abi;
use ripstop_core::eq::Event;
use ripstop_core::log::{Level, Subsys};
use ripstop_core::{FidToken, Info, fi_log};
use ripstop_types::{Errno, Result};

use super::kept::Kept;
use crate::edge::{Out, arguments};
use crate::object::pointer;

arguments! {
    /// The buffer of a read: null, or that many bytes.
    #[derive(Clone, Copy)]
    pub(super) struct Buffer { at: *mut c_void, len: usize }
}

impl Buffer<'_> {
    /// Whether there is a buffer, and it has fewer bytes than these.
    fn is_short(self, bytes: usize) -> bool {
        !self.at.is_null() && self.len < bytes
    }

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

/// Where a read writes the event: the arguments of `fi_eq_read` and `fi_eq_sread`.
pub(super) struct EventOut<'a> {
    event: Out<'a, u32>,
    buf: Buffer<'a>,
    /// Whether the event is removed from the queue, as it is without `FI_PEEK`.
    pub(super) consume: bool,
}

impl<'a> EventOut<'a> {
    /// As in C, each of the two places may be null: then that part is not asked for.
    pub(super) const fn new(event: Out<'a, u32>, buf: Buffer<'a>, consume: bool) -> Self {
        Self {
            event,
            buf,
            consume,
        }
    }

    /// Writes the entry of an event, and then which event it is; returns the number of bytes, which is 0 without a
    /// buffer. `kept` is that of the queue, whose lock the caller holds.
    ///
    /// # Errors
    /// [`Errno::ETOOSMALL`] for a buffer without room for the entry; connection data behind it is cut to what fits.
    /// [`Errno::ENOMEM`] when there is none for the `fi_info` of a connection request.
    pub(super) fn write(&self, event: &Event, kept: &mut Kept) -> Result<usize> {
        let size = match event {
            Event::ConnReq { pep, info, data } => self.conn_req(*pep, info, data, kept),
            Event::Connected { ep, data } => self.buf.put(cm_entry(*ep, ptr::null_mut()), data),
            Event::Shutdown { ep } => self.buf.put(cm_entry(*ep, ptr::null_mut()), &[]),
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
            // What a program has inserted is an entry of its own form, and is never cut.
            Event::Written { bytes, .. } if self.buf.is_short(bytes.len()) => Err(Errno::ETOOSMALL),
            Event::Written { bytes, .. } => self.buf.put((), bytes),
        }?;
        self.event.put(event.code());
        Ok(size)
    }

    /// Writes a connection request, with an `fi_info` that is the program's once the event is consumed.
    fn conn_req(&self, pep: FidToken, info: &Info, data: &[u8], kept: &mut Kept) -> Result<usize> {
        if self.buf.at.is_null() {
            return Ok(0);
        }
        // Before anything is handed out, which `put` could no longer give to the program.
        if self.buf.is_short(size_of::<abi::fi_eq_cm_entry>()) {
            return Err(Errno::ETOOSMALL);
        }
        let info = kept.hand_out(info, self.consume)?;
        self.buf.put(cm_entry(pep, info), data)
    }
}

/// Whether a read removes the event from the queue, as it does without `FI_PEEK`. As in C, other flags mean nothing.
pub(super) fn consumes(call: &str, flags: u64) -> bool {
    if flags & !abi::FI_PEEK != 0 {
        fi_log!(
            "core",
            Level::Debug,
            Subsys::Eq,
            "{call}: flags other than FI_PEEK are ignored"
        );
    }
    flags & abi::FI_PEEK == 0
}

/// The entry of an event of connection management.
fn cm_entry(fid: FidToken, info: *mut abi::fi_info) -> abi::fi_eq_cm_entry {
    abi::fi_eq_cm_entry {
        fid: pointer(fid),
        info,
        data: [],
    }
}
