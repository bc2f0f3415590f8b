#![allow(unsafe_code)]
//! Receive contexts that belong to another provider (`fi_peer(3)`, peer SRX): it is asked for a
//! receive for every message, and has those that wait started.
//!
//! Both sides name a message that waits by a number in `peer_context`, which is never that of
//! another: an owner that asks about its entries too late, or about those of other peers, is told
//! that there is nothing, and nothing is followed that may be gone.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::ptr;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use ripstop_abi as abi;
use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_core::provider::{Arrival, Domain, Done, PeerRx};
use ripstop_types::{Completion, CompletionError, Errno, FiAddr, Flags, Result};

use super::{CqOwner, Entry, Late, Peers, alone, context, lock};
use crate::buffers;
use crate::errno::code;
use crate::tables::table;

/// Messages that the owner is asked about in one call at most.
const ASKS: usize = 256;

type Get = unsafe extern "C" fn(
    srx: *mut abi::fid_peer_srx,
    attr: *mut abi::fi_peer_match_attr,
    entry: *mut *mut abi::fi_peer_rx_entry,
) -> c_int;
type Queue = unsafe extern "C" fn(entry: *mut abi::fi_peer_rx_entry) -> c_int;
type Free = unsafe extern "C" fn(entry: *mut abi::fi_peer_rx_entry);
type ForEach = unsafe extern "C" fn(
    srx: *mut abi::fid_peer_srx,
    get_addr: Option<unsafe extern "C" fn(entry: *mut abi::fi_peer_rx_entry) -> abi::fi_addr_t>,
);

/// What the owner does, for plain messages and for tagged ones.
struct Ops {
    get: [Get; 2],
    queue: [Queue; 2],
    free: Free,
    each: ForEach,
}

/// An entry of the owner that a message was given.
struct Given {
    entry: *mut abi::fi_peer_rx_entry,
    message: u32,
    /// The message is on its way into the entry's buffers.
    started: bool,
}

/// A receive context of ours that belongs to another provider.
pub(crate) struct SrxOwner<D: Domain> {
    pub(crate) rx: Arc<D::PeerRx>,
    srx: *mut abi::fid_peer_srx,
    ops: Ops,
    given: Mutex<HashMap<usize, Given>>,
    asking: Mutex<()>,
    /// Receives that could not be started, which is still to be told.
    failed: Mutex<Vec<(usize, CompletionError)>>,
    /// One endpoint at a time is enabled with the context.
    joining: Mutex<()>,
    /// Where ends are reported, and whether only those that ask for it.
    reports: Mutex<Option<(Weak<CqOwner>, bool)>>,
    this: Weak<Self>,
}

// SAFETY: the owner's context and functions may be used from every thread that calls ours, which
// is the guarantee of `new`; the entries are used under the rules of `fi_peer(3)`, which give each
// to one side at a time. The provider's context belongs to a domain that locks, or to one all of
// whose calls the program serialises, those that come through its owner included.
unsafe impl<D: Domain> Send for SrxOwner<D> {}
// SAFETY: as above.
unsafe impl<D: Domain> Sync for SrxOwner<D> {}

/// What a read of a queue that belongs to another provider drives besides.
pub(crate) trait Driven: Send + Sync {
    /// Asks the owner about messages that have come. Called without any lock of the provider.
    fn ask(&self);

    /// Adds what has ended to what the owner of the queue is to be told.
    fn collect(&self, late: &mut VecDeque<Late>);

    /// The owner was told of the end of the receive with this number.
    fn release(&self, number: usize);

    /// Addresses have become known.
    fn refresh(&self);

    /// Begins the receive of a message that waits.
    ///
    /// # Safety
    ///
    /// `entry` is whole, and its buffers are valid until it is released.
    unsafe fn start(&self, number: usize, entry: *mut abi::fi_peer_rx_entry) -> Result<()>;

    /// Nobody will receive a message that waits.
    fn discard(&self, number: usize) -> Result<()>;

    /// The sender of a message that waits.
    fn source(&self, number: usize) -> FiAddr;
}

/// The messages of all contexts that wait for their owners.
static WAITING: LazyLock<Mutex<HashMap<usize, Weak<dyn Driven>>>> = LazyLock::new(Mutex::default);

/// The number of the next entry.
static NUMBER: AtomicUsize = AtomicUsize::new(1);

/// Whose message an entry is for, and its number.
///
/// # Safety
///
/// `entry` is null or whole.
unsafe fn waiting(entry: *mut abi::fi_peer_rx_entry) -> Option<(Arc<dyn Driven>, usize)> {
    // SAFETY: the caller's guarantee.
    let number = unsafe { entry.as_ref() }?.peer_context.addr();
    let home = lock(&WAITING).get(&number)?.upgrade()?;
    Some((home, number))
}

/// `fi_ops_srx_peer::start_msg` and `start_tag`.
unsafe extern "C" fn start(entry: *mut abi::fi_peer_rx_entry) -> c_int {
    // SAFETY: the owner calls with an entry of its own.
    let found = unsafe { waiting(entry) }.ok_or(Errno::EINVAL);
    // SAFETY: as above, and the entry has its buffers now.
    code(found.and_then(|(home, number)| unsafe { home.start(number, entry) }))
}

/// `fi_ops_srx_peer::discard_msg` and `discard_tag`.
unsafe extern "C" fn discard(entry: *mut abi::fi_peer_rx_entry) -> c_int {
    // SAFETY: the owner calls with an entry of its own.
    match unsafe { waiting(entry) } {
        Some((home, number)) => code(home.discard(number)),
        // It went with its context.
        None => 0,
    }
}

/// What `fi_ops_srx_owner::foreach_unspec_addr` is given.
unsafe extern "C" fn get_addr(entry: *mut abi::fi_peer_rx_entry) -> abi::fi_addr_t {
    // SAFETY: the owner calls with an entry of its own, for whichever peer.
    match unsafe { waiting(entry) } {
        Some((home, number)) => home.source(number).0,
        None => abi::FI_ADDR_UNSPEC,
    }
}

static PEER_OPS: abi::fi_ops_srx_peer = abi::fi_ops_srx_peer {
    size: size_of::<abi::fi_ops_srx_peer>(),
    start_msg: Some(start),
    start_tag: Some(start),
    discard_msg: Some(discard),
    discard_tag: Some(discard),
};

impl<D: Domain> SrxOwner<D> {
    /// The owner that the context of `fi_srx_context` names, which is told of our functions.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null, a context that is too short, or an owner without callbacks;
    /// those of the provider.
    ///
    /// # Safety
    ///
    /// `argument` is null or a `fi_peer_srx_context`; what it names is whole and stays so as long
    /// as the context, and may be called from every thread that reads the queue for receives.
    pub(crate) unsafe fn new(domain: &Arc<D>, argument: *mut c_void) -> Result<Arc<Self>> {
        // SAFETY: the caller's guarantee.
        let srx = unsafe { context::<abi::fi_peer_srx_context>(argument) }?.srx;
        // SAFETY: as above.
        let ops = unsafe { srx.as_ref() }.ok_or(Errno::EINVAL)?.owner_ops;
        // SAFETY: as above.
        let ops = unsafe { ops.as_ref() }.ok_or(Errno::EINVAL)?;
        if ops.size <= offset_of!(abi::fi_ops_srx_owner, free_entry) {
            return Err(Errno::EINVAL);
        }
        let none = Errno::EINVAL;
        let ops = Ops {
            get: [ops.get_msg.ok_or(none)?, ops.get_tag.ok_or(none)?],
            queue: [ops.queue_msg.ok_or(none)?, ops.queue_tag.ok_or(none)?],
            free: ops.free_entry.ok_or(none)?,
            each: ops.foreach_unspec_addr.ok_or(none)?,
        };
        let rx = domain.peer_rx()?;
        // SAFETY: as above.
        let theirs = unsafe { &raw mut (*srx).peer_ops };
        // SAFETY: as above; the owner leaves this to us.
        unsafe { theirs.write(table(&PEER_OPS)) };
        Ok(Arc::new_cyclic(|this| Self {
            rx,
            srx,
            ops,
            given: Mutex::default(),
            asking: Mutex::default(),
            failed: Mutex::default(),
            joining: Mutex::default(),
            reports: Mutex::default(),
            this: Weak::clone(this),
        }))
    }

    /// Has a queue, which must be the same for all endpoints with the context as long as it is
    /// open, drive it, and get what ends there; with `selective` only what asks for it. Nothing
    /// is changed unless `enable`, which enables an endpoint with the context, succeeds.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for another queue than before, or another choice; those of `enable`.
    pub(crate) fn report_to(
        &self,
        cq: &Arc<CqOwner>,
        selective: bool,
        enable: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let _one = lock(&self.joining);
        // Not locked in `enable`: the provider's lock is taken there, which `late` runs under.
        match self.reports() {
            None => {
                enable()?;
                *lock(&self.reports) = Some((Arc::downgrade(cq), selective));
                cq.drive(&self.driven());
                Ok(())
            }
            Some((known, same)) if Arc::ptr_eq(&known, cq) && same == selective => enable(),
            Some(_) => Err(Errno::EINVAL),
        }
    }

    /// The open queue where ends are reported, and whether only those that ask for it.
    fn reports(&self) -> Option<(Arc<CqOwner>, bool)> {
        let reports = lock(&self.reports);
        let (known, selective) = reports.as_ref()?;
        Some((known.upgrade()?, *selective))
    }

    /// Tells the owner of insertions into an address vector.
    pub(crate) fn learn_from(&self, av: &Peers) {
        av.add(&self.driven());
    }

    fn is_selective(&self) -> bool {
        lock(&self.reports)
            .as_ref()
            .is_some_and(|(_, selective)| *selective)
    }

    /// The same, as what a queue drives.
    pub(crate) fn driven(&self) -> Weak<dyn Driven> {
        let this: Weak<Self> = Weak::clone(&self.this);
        this
    }

    fn give(&self, entry: *mut abi::fi_peer_rx_entry, message: u32, started: bool) -> usize {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let given = Given {
            entry,
            message,
            started,
        };
        lock(&self.given).insert(number, given);
        number
    }

    /// Asks the owner about a message; returns whether it has answered.
    fn ask_about(&self, arrival: &Arrival) -> bool {
        let mut attr = abi::fi_peer_match_attr {
            addr: arrival.src.0,
            msg_size: usize::try_from(arrival.len).unwrap_or(usize::MAX),
            tag: arrival.tag.unwrap_or_default(),
        };
        let mut entry = ptr::null_mut();
        let [plain, tagged] = self.ops.get;
        let get = match arrival.tag {
            None => plain,
            Some(_) => tagged,
        };
        // SAFETY: the guarantee of `new`.
        let answer = unsafe { get(self.srx, &raw mut attr, &raw mut entry) };
        match -answer {
            0 if !entry.is_null() => {
                // SAFETY: the owner has given a whole entry with its buffers.
                unsafe { self.begin(entry, arrival) };
            }
            // SAFETY: the owner has given a whole entry.
            abi::FI_ENOENT if !entry.is_null() => unsafe { self.wait(entry, arrival) },
            abi::FI_ENOMEM | abi::FI_EAGAIN => return false,
            error => {
                fi_warn!(
                    "core",
                    Subsys::EpData,
                    "a message of {} bytes is dropped: its owner answers {error}",
                    arrival.len
                );
                let _ = self.rx.discard(arrival.message);
            }
        }
        true
    }

    /// The owner has a receive for a message.
    ///
    /// # Safety
    ///
    /// `entry` is whole, and its buffers are valid until it is freed.
    unsafe fn begin(&self, entry: *mut abi::fi_peer_rx_entry, arrival: &Arrival) {
        let number = self.give(entry, arrival.message, true);
        // SAFETY: the caller's guarantee.
        if let Err(err) = unsafe { self.start_given(number, entry, arrival.message) } {
            let _ = self.rx.discard(arrival.message);
            let flags = match arrival.tag {
                None => Flags::MSG | Flags::RECV,
                Some(_) => Flags::TAGGED | Flags::RECV,
            };
            let error = CompletionError {
                entry: Completion {
                    context: 0,
                    flags,
                    len: 0,
                    buf: 0,
                    data: 0,
                    tag: arrival.tag.unwrap_or_default(),
                    src: arrival.src,
                },
                olen: 0,
                err,
                prov_errno: err.0,
            };
            lock(&self.failed).push((number, error));
        }
    }

    /// # Safety
    ///
    /// As for [`SrxOwner::begin`].
    unsafe fn start_given(
        &self,
        number: usize,
        entry: *mut abi::fi_peer_rx_entry,
        message: u32,
    ) -> Result<()> {
        // SAFETY: the caller's guarantee.
        let with = unsafe { &*entry };
        // SAFETY: as above.
        let segs = unsafe { buffers::destinations(with.iov, with.count) }?;
        self.rx.start(message, segs.as_slice(), number)
    }

    /// The owner has no receive for a message: it waits there.
    ///
    /// # Safety
    ///
    /// `entry` is whole.
    unsafe fn wait(&self, entry: *mut abi::fi_peer_rx_entry, arrival: &Arrival) {
        let number = self.give(entry, arrival.message, false);
        lock(&WAITING).insert(number, self.driven());
        {
            // SAFETY: the caller's guarantee; until it is queued it is ours.
            let entry = unsafe { &mut *entry };
            entry.peer_context = ptr::without_provenance_mut(number);
            if let Some(data) = arrival.data {
                entry.cq_data = data;
                entry.flags |= abi::FI_REMOTE_CQ_DATA;
            }
        }
        let _ = self.rx.let_wait(arrival.message);
        let [plain, tagged] = self.ops.queue;
        let queue = match arrival.tag {
            None => plain,
            Some(_) => tagged,
        };
        // SAFETY: the guarantee of `new`.
        let answer = unsafe { queue(entry) };
        if answer < 0 {
            fi_warn!(
                "core",
                Subsys::EpData,
                "a message of {} bytes is dropped: its owner does not queue it ({})",
                arrival.len,
                -answer
            );
            let _ = self.discard(number);
            // SAFETY: the guarantee of `new`; the entry is in no queue.
            unsafe { (self.ops.free)(entry) };
        }
    }

    /// What is told of a receive that succeeded: nothing, where that was not asked for.
    fn told(&self, mut done: Completion) -> Option<Entry> {
        let entry = lock(&self.given).get(&done.context)?.entry;
        // SAFETY: started entries are whole until they are freed.
        let entry = unsafe { &*entry };
        let quiet = self.is_selective() && entry.flags & abi::FI_COMPLETION == 0;
        done.context = entry.context.expose_provenance();
        Some(match quiet {
            true => Entry::Quiet,
            false => Entry::Done(done),
        })
    }

    /// What is told of a receive that failed.
    fn told_failed(&self, number: usize, mut error: CompletionError, data: Vec<u8>) -> Late {
        if let Some(entry) = lock(&self.given).get(&number).map(|given| given.entry) {
            // SAFETY: started entries are whole until they are freed.
            error.entry.context = unsafe { (*entry).context }.expose_provenance();
        }
        Late {
            entry: Entry::Failed(error, data),
            of: Some((self.driven(), number)),
        }
    }

    fn late(&self, done: Done) -> Option<Late> {
        let received = |flags: Flags| flags.contains(Flags::RECV);
        Some(match done {
            Done::Ok(done) if received(done.flags) => Late {
                of: Some((self.driven(), done.context)),
                entry: self.told(done)?,
            },
            Done::Failed(error, data) if received(error.entry.flags) => {
                self.told_failed(error.entry.context, error, data)
            }
            // What peers have done to memory.
            Done::Ok(done) => Late::plain(Entry::Done(done)),
            Done::Failed(error, data) => Late::plain(Entry::Failed(error, data)),
        })
    }
}

impl<D: Domain> Driven for SrxOwner<D> {
    fn ask(&self) {
        let Some(_alone) = alone(&self.asking) else {
            return;
        };
        for _ in 0..ASKS {
            match self.rx.next_arrival() {
                Some(arrival) if self.ask_about(&arrival) => {}
                _ => break,
            }
        }
    }

    fn collect(&self, late: &mut VecDeque<Late>) {
        for (number, error) in lock(&self.failed).drain(..) {
            late.push_back(self.told_failed(number, error, Vec::new()));
        }
        self.rx
            .take_done(super::BATCH, |done| late.extend(self.late(done)));
    }

    fn release(&self, number: usize) {
        let given = lock(&self.given).remove(&number);
        if let Some(given) = given {
            // SAFETY: the guarantee of `new`; the entry was started, and has ended.
            unsafe { (self.ops.free)(given.entry) };
        }
    }

    fn refresh(&self) {
        // SAFETY: the guarantee of `new`.
        unsafe { (self.ops.each)(self.srx, Some(get_addr)) };
    }

    unsafe fn start(&self, number: usize, entry: *mut abi::fi_peer_rx_entry) -> Result<()> {
        let message = {
            let mut given = lock(&self.given);
            let given = given.get_mut(&number).ok_or(Errno::EINVAL)?;
            given.started = true;
            given.entry = entry;
            given.message
        };
        lock(&WAITING).remove(&number);
        // SAFETY: the caller's guarantee.
        let started = unsafe { self.start_given(number, entry, message) };
        if started.is_err() {
            // The entry stays the owner's, and the message waits as before.
            if let Some(given) = lock(&self.given).get_mut(&number) {
                given.started = false;
            }
            lock(&WAITING).insert(number, self.driven());
        }
        started
    }

    fn discard(&self, number: usize) -> Result<()> {
        lock(&WAITING).remove(&number);
        let given = lock(&self.given).remove(&number);
        self.rx.discard(given.ok_or(Errno::EINVAL)?.message)
    }

    fn source(&self, number: usize) -> FiAddr {
        let message = lock(&self.given).get(&number).map(|given| given.message);
        message.map_or(FiAddr::NOTAVAIL, |message| self.rx.source(message))
    }
}

impl<D: Domain> Drop for SrxOwner<D> {
    fn drop(&mut self) {
        let given = self.given.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (number, given) in given.drain() {
            if given.started {
                // SAFETY: the guarantee of `new`; nothing goes there any more, as the endpoints
                // of the context are closed.
                unsafe { (self.ops.free)(given.entry) };
            } else {
                lock(&WAITING).remove(&number);
            }
        }
    }
}
