#![allow(unsafe_code)]
//! The entries that a read of a completion queue has stored.

use core::ffi::c_void;

use ripstop_abi as abi;

use crate::call::Entries;

/// What hooks look at of one entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// The context of the operation.
    pub(crate) context: *mut c_void,
    /// The flags of the entry; 0 where the format has none.
    pub(crate) flags: u64,
    /// The bytes of the message; 0 where the format has none.
    pub(crate) len: usize,
}

/// The length of an entry of this format; 0 for one that is not known.
pub(crate) const fn length(format: abi::fi_cq_format) -> usize {
    match format {
        // Without a choice of the program providers take the shortest.
        abi::FI_CQ_FORMAT_UNSPEC | abi::FI_CQ_FORMAT_CONTEXT => size_of::<abi::fi_cq_entry>(),
        abi::FI_CQ_FORMAT_MSG => size_of::<abi::fi_cq_msg_entry>(),
        abi::FI_CQ_FORMAT_DATA => size_of::<abi::fi_cq_data_entry>(),
        abi::FI_CQ_FORMAT_TAGGED => size_of::<abi::fi_cq_tagged_entry>(),
        _ => 0,
    }
}

impl Entries {
    /// Each of the entries that a call has stored, by its result.
    #[inline]
    pub(crate) fn each(self, length: usize, result: isize, mut use_it: impl FnMut(Completion)) {
        let count = match usize::try_from(result) {
            Ok(count) if length > 0 && !self.buf.is_null() => count,
            _ => return,
        };
        for at in 0..count {
            let entry = self.buf.wrapping_byte_add(at * length);
            // SAFETY: the call has stored so many entries of this length, and all begin with this.
            let context = unsafe { entry.cast::<*mut c_void>().read_unaligned() };
            let (flags, len) = if length >= size_of::<abi::fi_cq_msg_entry>() {
                // SAFETY: all longer formats begin as this one.
                let entry = unsafe { entry.cast::<abi::fi_cq_msg_entry>().read_unaligned() };
                (entry.flags, entry.len)
            } else {
                (0, 0)
            };
            use_it(Completion {
                context,
                flags,
                len,
            });
        }
    }
}

/// The completion in error that a call has stored, by its result.
pub(crate) fn in_error(entry: *const abi::fi_cq_err_entry, result: isize) -> Option<Completion> {
    if result <= 0 || entry.is_null() {
        return None;
    }
    // SAFETY: the call has stored an entry, which begins as a tagged one does in each release.
    let entry = unsafe { entry.cast::<abi::fi_cq_msg_entry>().read() };
    Some(Completion {
        context: entry.op_context,
        flags: entry.flags,
        len: entry.len,
    })
}
