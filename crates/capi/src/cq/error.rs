#![allow(unsafe_code)]
//! Error entries, which grew twice: a queue writes no more than its program knows.

use core::mem::offset_of;
use core::ptr;
use std::sync::{Mutex, PoisonError};

use ripstop_abi as abi;
use ripstop_abi::history::{fi_cq_err_entry_1_0, fi_cq_err_entry_1_1};
use ripstop_types::{CompletionError, Version};

/// The version from which the caller may bring a buffer for error data.
const WITH_BUFFER: Version = Version::new(1, 5);
/// The version from which an entry names the source.
const WITH_SOURCE: Version = Version::new(1, 20);

/// Bytes of an error entry that a program of this version has.
pub(super) fn entry_size(api: Version) -> usize {
    if api < WITH_BUFFER {
        size_of::<fi_cq_err_entry_1_0>()
    } else if api < WITH_SOURCE {
        size_of::<fi_cq_err_entry_1_1>()
    } else {
        size_of::<abi::fi_cq_err_entry>()
    }
}

/// Writes an error to a caller's entry.
///
/// A caller that gave a buffer (`err_data`, `err_data_size`) gets the error data there, cut to
/// its size; one that gave none gets a pointer to `kept`, good until its next error.
///
/// # Safety
///
/// `out` is valid for the [`entry_size`] of `api`; from API 1.5 on, its `err_data` is valid for
/// writes of `err_data_size` bytes.
pub(super) unsafe fn write(
    out: *mut abi::fi_cq_err_entry,
    error: &CompletionError,
    data: &[u8],
    api: Version,
    kept: &Mutex<Vec<u8>>,
) {
    // SAFETY: the caller's guarantee.
    let room = unsafe { buffer(out, api) };
    let (err_data, err_data_size) = match room {
        Some((buf, size)) => {
            let fits = data.len().min(size);
            // SAFETY: `fits` bytes are within both, and the caller's is not ours.
            unsafe { ptr::copy_nonoverlapping(data.as_ptr(), buf, fits) };
            (buf, fits)
        }
        None => {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            data.clone_into(&mut kept);
            match kept.is_empty() {
                true => (ptr::null_mut(), 0),
                false => (kept.as_mut_ptr(), kept.len()),
            }
        }
    };
    let entry = entry(error, (err_data, err_data_size));
    let (from, to) = (ptr::from_ref(&entry).cast::<u8>(), out.cast::<u8>());
    // SAFETY: both have at least this many bytes, and the entry is not the caller's.
    unsafe { ptr::copy_nonoverlapping(from, to, entry_size(api)) };
}

/// An error as C has it, with the bytes that describe it.
pub(crate) fn entry(
    error: &CompletionError,
    (err_data, err_data_size): (*mut u8, usize),
) -> abi::fi_cq_err_entry {
    let completion = &error.entry;
    abi::fi_cq_err_entry {
        op_context: ptr::with_exposed_provenance_mut(completion.context),
        flags: completion.flags.bits(),
        len: completion.len,
        buf: ptr::with_exposed_provenance_mut(completion.buf),
        data: completion.data,
        tag: completion.tag,
        olen: error.olen,
        err: error.err.0,
        prov_errno: error.prov_errno,
        err_data: err_data.cast(),
        err_data_size,
        src_addr: completion.src.0,
    }
}

/// The buffer for error data that a caller brought.
///
/// # Safety
///
/// As for [`write`].
unsafe fn buffer(out: *const abi::fi_cq_err_entry, api: Version) -> Option<(*mut u8, usize)> {
    if api < WITH_BUFFER {
        return None;
    }
    let size = out.wrapping_byte_add(offset_of!(abi::fi_cq_err_entry, err_data_size));
    // SAFETY: within an entry of this version.
    let size = unsafe { size.cast::<usize>().read_unaligned() };
    let buf = out.wrapping_byte_add(offset_of!(abi::fi_cq_err_entry, err_data));
    // SAFETY: as above.
    let buf = unsafe { buf.cast::<*mut u8>().read_unaligned() };
    (size != 0 && !buf.is_null()).then_some((buf, size))
}
