#![allow(unsafe_code)]
//! The other provider of a receive context: its functions, and the entries that it gives.

use core::ffi::c_int;
use core::ptr;

use ripstop_abi as abi;
use ripstop_core::provider::Arrival;
use ripstop_types::{Errno, Result};

use super::context::{Context, table_of};
use crate::edge::{Arg, Whole};
use crate::tables::table;

type Get = unsafe extern "C" fn(
    srx: *mut abi::fid_peer_srx,
    attr: *mut abi::fi_peer_match_attr,
    entry: *mut *mut abi::fi_peer_rx_entry,
) -> c_int;
type Queue = unsafe extern "C" fn(entry: *mut abi::fi_peer_rx_entry) -> c_int;
type Free = unsafe extern "C" fn(entry: *mut abi::fi_peer_rx_entry);
type GetAddr = unsafe extern "C" fn(entry: *mut abi::fi_peer_rx_entry) -> abi::fi_addr_t;
type ForEach = unsafe extern "C" fn(srx: *mut abi::fid_peer_srx, get_addr: Option<GetAddr>);

/// An entry for a receive of the owner (`struct fi_peer_rx_entry`), which gives it to us: it is
/// whole, and ours alone until it is queued, from its start until it is freed its buffers are valid.
#[derive(Clone, Copy)]
pub(crate) struct RxEntry(*mut abi::fi_peer_rx_entry);

impl Arg for Option<RxEntry> {
    type C = *mut abi::fi_peer_rx_entry;

    unsafe fn from_c(at: *mut abi::fi_peer_rx_entry) -> Self {
        (!at.is_null()).then_some(RxEntry(at))
    }
}

// SAFETY: entries are used under the rules of `fi_peer(3)`, which give each to one side at a time.
unsafe impl Send for RxEntry {}

impl RxEntry {
    /// The entry, with its buffers.
    pub(super) fn whole(&self) -> Whole<'_, abi::fi_peer_rx_entry> {
        // SAFETY: an entry is valid until it is freed, which nobody does who still has it here.
        let entry = unsafe { &*self.0 };
        // SAFETY: its buffers are valid as long as the entry.
        unsafe { Whole::new(entry) }
    }

    /// Notes on an entry for a message that waits, and that is not queued yet, what it is.
    pub(super) fn note(self, number: usize, data: Option<u64>) {
        // SAFETY: until it is queued the entry is ours alone.
        let entry = unsafe { &mut *self.0 };
        entry.peer_context = ptr::without_provenance_mut(number);
        if let Some(data) = data {
            entry.cq_data = data;
            entry.flags |= abi::FI_REMOTE_CQ_DATA;
        }
    }
}

/// What the owner answers about a message.
pub(super) enum Answer {
    /// It has a receive for it.
    Begin(RxEntry),
    /// It has none: the message waits there.
    Wait(RxEntry),
    /// It is to be asked again.
    Later,
    /// It fails.
    Failed(c_int),
}

/// The other provider: its context and its functions, for plain messages and for tagged ones. They
/// may be called from every thread that calls ours until our context is closed.
pub(super) struct Owner {
    srx: *mut abi::fid_peer_srx,
    get: [Get; 2],
    queue: [Queue; 2],
    free: Free,
    each: ForEach,
}

// SAFETY: the context and the functions may be used from every thread, which `Context` says.
unsafe impl Send for Owner {}
// SAFETY: the context and the functions may be used by several threads at once, which `Context` says.
unsafe impl Sync for Owner {}

impl Owner {
    /// The owner that the context of `fi_srx_context` with `FI_PEER` names.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null, a context that is too short, or an owner without callbacks.
    ///
    /// # Safety
    ///
    /// The call has `FI_PEER` in its flags.
    pub(super) unsafe fn of(context: Context) -> Result<Self> {
        // SAFETY: the call has `FI_PEER`, and takes this struct with it.
        let srx = unsafe { context.peer::<abi::fi_peer_srx_context>() }?.srx;
        // SAFETY: the struct names no context, or one of the owner's.
        let ops = unsafe { srx.as_ref() }.ok_or(Errno::EINVAL)?.owner_ops;
        // SAFETY: the context has no operations, or a table of them.
        let ops = unsafe { table_of(ops) }?;
        let none = Errno::EINVAL;
        Ok(Self {
            srx,
            get: [ops.get_msg.ok_or(none)?, ops.get_tag.ok_or(none)?],
            queue: [ops.queue_msg.ok_or(none)?, ops.queue_tag.ok_or(none)?],
            free: ops.free_entry.ok_or(none)?,
            each: ops.foreach_unspec_addr.ok_or(none)?,
        })
    }

    /// Tells the owner of our functions.
    pub(super) fn tell(&self, ops: &'static abi::fi_ops_srx_peer) {
        // SAFETY: the owner's context, as `of` has found it.
        let theirs = unsafe { &raw mut (*self.srx).peer_ops };
        // SAFETY: the owner leaves this field to us.
        unsafe { theirs.write(table(ops)) };
    }

    /// Asks about a message.
    pub(super) fn ask(&self, arrival: &Arrival) -> Answer {
        let mut attr = abi::fi_peer_match_attr {
            addr: arrival.src.0,
            msg_size: usize::try_from(arrival.len).unwrap_or(usize::MAX),
            tag: arrival.tag.unwrap_or_default(),
        };
        let mut entry = ptr::null_mut();
        let [plain, tagged] = self.get;
        let get = match arrival.tag {
            None => plain,
            Some(_) => tagged,
        };
        // SAFETY: the owner's function with its context, and variables of ours.
        let answer = unsafe { get(self.srx, &raw mut attr, &raw mut entry) };
        // SAFETY: the owner has given none, or an entry of its own.
        match (-answer, unsafe { <Option<RxEntry>>::from_c(entry) }) {
            (0, Some(entry)) => Answer::Begin(entry),
            (abi::FI_ENOENT, Some(entry)) => Answer::Wait(entry),
            (abi::FI_ENOMEM | abi::FI_EAGAIN, _) => Answer::Later,
            (error, _) => Answer::Failed(error),
        }
    }

    /// Has the owner queue an entry; what it answers.
    pub(super) fn queue(&self, entry: RxEntry, tagged: bool) -> c_int {
        let [plain, with_tag] = self.queue;
        let queue = if tagged { with_tag } else { plain };
        // SAFETY: the owner's function with an entry that it has given.
        unsafe { queue(entry.0) }
    }

    /// Gives an entry back, which is in no queue, and into whose buffers nothing goes any more.
    pub(super) fn free(&self, entry: RxEntry) {
        // SAFETY: the owner's function with an entry that it has given.
        unsafe { (self.free)(entry.0) };
    }

    /// Has the owner ask for the addresses of its entries once more.
    pub(super) fn refresh(&self, get_addr: GetAddr) {
        // SAFETY: the owner's function with its context, and a function that takes its entries.
        unsafe { (self.each)(self.srx, Some(get_addr)) };
    }
}
