//! The four entry formats of a completion queue (`fi_cq(3)`).

use core::ptr;

use ripstop_abi as abi;
use ripstop_types::Completion;

/// A format, chosen when the queue opens and so known to its operations.
pub(crate) trait Format: 'static {
    /// One element of the array that the caller reads into.
    type Entry;

    /// A completion in this format.
    fn entry(completion: &Completion) -> Self::Entry;
}

/// `FI_CQ_FORMAT_CONTEXT`.
pub(crate) struct Context;
/// `FI_CQ_FORMAT_MSG`.
pub(crate) struct Msg;
/// `FI_CQ_FORMAT_DATA`.
pub(crate) struct Data;
/// `FI_CQ_FORMAT_TAGGED`.
pub(crate) struct Tagged;

impl Format for Context {
    type Entry = abi::fi_cq_entry;

    #[inline(always)]
    fn entry(completion: &Completion) -> Self::Entry {
        abi::fi_cq_entry {
            op_context: ptr::with_exposed_provenance_mut(completion.context),
        }
    }
}

impl Format for Msg {
    type Entry = abi::fi_cq_msg_entry;

    #[inline(always)]
    fn entry(completion: &Completion) -> Self::Entry {
        abi::fi_cq_msg_entry {
            op_context: ptr::with_exposed_provenance_mut(completion.context),
            flags: completion.flags.bits(),
            len: completion.len,
        }
    }
}

impl Format for Data {
    type Entry = abi::fi_cq_data_entry;

    #[inline(always)]
    fn entry(completion: &Completion) -> Self::Entry {
        abi::fi_cq_data_entry {
            op_context: ptr::with_exposed_provenance_mut(completion.context),
            flags: completion.flags.bits(),
            len: completion.len,
            buf: ptr::with_exposed_provenance_mut(completion.buf),
            data: completion.data,
        }
    }
}

impl Format for Tagged {
    type Entry = abi::fi_cq_tagged_entry;

    #[inline(always)]
    fn entry(completion: &Completion) -> Self::Entry {
        abi::fi_cq_tagged_entry {
            op_context: ptr::with_exposed_provenance_mut(completion.context),
            flags: completion.flags.bits(),
            len: completion.len,
            buf: ptr::with_exposed_provenance_mut(completion.buf),
            data: completion.data,
            tag: completion.tag,
        }
    }
}
