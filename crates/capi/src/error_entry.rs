#![allow(unsafe_code)]
//! Error entries, which grew twice: a queue writes no more than its program knows.

use core::mem::offset_of;
use core::ptr;

use parking_lot::Mutex;
use ripstop_abi as abi;
use ripstop_abi::history::{fi_cq_err_entry_1_0, fi_cq_err_entry_1_1};
use ripstop_types::{CompletionError, Version};

use crate::edge::arguments;

/// The version from which the caller may bring a buffer for error data.
pub(crate) const WITH_BUFFER: Version = Version::new(1, 5);
/// The version from which an entry names the source.
const WITH_SOURCE: Version = Version::new(1, 20);

/// Bytes of an error entry that a program of this version has.
pub(crate) fn entry_size(api: Version) -> usize {
    if api < WITH_BUFFER {
        size_of::<fi_cq_err_entry_1_0>()
    } else if api < WITH_SOURCE {
        size_of::<fi_cq_err_entry_1_1>()
    } else {
        size_of::<abi::fi_cq_err_entry>()
    }
}

arguments! {
    /// The entry that `fi_cq_readerr` fills: null, or valid for the [`entry_size`] of the program; from
    /// API 1.5 on, its `err_data` is null or has `err_data_size` bytes.
    #[derive(Clone, Copy)]
    pub(crate) struct ErrorEntry { at: *mut abi::fi_cq_err_entry }
}

impl ErrorEntry<'_> {
    /// Whether there is none.
    pub(crate) fn is_null(self) -> bool {
        self.at.is_null()
    }

    /// Writes an error to the entry, which is not null; `api` is the version of the program.
    ///
    /// Its data goes to `err_data` or `kept`, as [`give_data`] says.
    pub(crate) fn write(
        self,
        error: &CompletionError,
        data: &[u8],
        api: Version,
        kept: &Mutex<Vec<u8>>,
    ) {
        let buffer = self.buffer(api);
        // SAFETY: `from_c` was promised that many bytes of entries of this version.
        let err_data = unsafe { give_data(data, buffer, &mut kept.lock()) };
        let entry = entry(error, err_data);
        let (from, to) = (ptr::from_ref(&entry).cast::<u8>(), self.at.cast::<u8>());
        // SAFETY: both have that many bytes: ours is whole, and `from_c` was promised it of the
        // caller's.
        unsafe { ptr::copy_nonoverlapping(from, to, entry_size(api)) };
    }

    /// The buffer for error data that a caller brought.
    fn buffer(self, api: Version) -> Option<(*mut u8, usize)> {
        if api < WITH_BUFFER {
            return None;
        }
        let size = self
            .at
            .wrapping_byte_add(offset_of!(abi::fi_cq_err_entry, err_data_size));
        // SAFETY: entries of this version go beyond it, and `from_c` was promised a whole one.
        let size = unsafe { size.cast::<usize>().read_unaligned() };
        let buf = self
            .at
            .wrapping_byte_add(offset_of!(abi::fi_cq_err_entry, err_data));
        // SAFETY: it is in front of the size, which was just read.
        let buf = unsafe { buf.cast::<*mut u8>().read_unaligned() };
        (size != 0 && !buf.is_null()).then_some((buf, size))
    }
}

/// Gives a caller the data of an error. One that brought a buffer gets it there, cut to its size; one
/// that brought none gets what is `kept` until its next error.
///
/// # Safety
///
/// The buffer has as many bytes as stand beside it.
pub(crate) unsafe fn give_data(
    data: &[u8],
    buffer: Option<(*mut u8, usize)>,
    kept: &mut Vec<u8>,
) -> (*mut u8, usize) {
    if let Some((buf, size)) = buffer {
        let fits = data.len().min(size);
        // SAFETY: `fits` bytes are within both, and the caller's are not ours.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), buf, fits) };
        return (buf, fits);
    }
    data.clone_into(kept);
    match kept.is_empty() {
        true => (ptr::null_mut(), 0),
        false => (kept.as_mut_ptr(), kept.len()),
    }
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
