#![allow(unsafe_code)]
//! Receive contexts that belong to another provider (`fi_peer(3)`, peer SRX): it is asked for a
//! receive for every message, and has those that wait started.
//!
//! Both sides name a message that waits by a number in `peer_context`, which is never that of
//! another: an owner that asks about its entries too late, or about those of other peers, is told
//! that there is nothing, and nothing is followed that may be gone.

use core::ffi::c_int;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use ripstop_abi as abi;
use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_core::provider::{Arrival, Domain, Done, PeerRx};
use ripstop_core::weak::WeakList;
use ripstop_types::{Completion, CompletionError, Errno, FiAddr, Flags, Result};

use super::context::Context;
use super::owner::{Answer, Owner, RxEntry};
use super::{CqOwner, Driven, Entry, Peers, Untold};
use crate::edge::trampolines;
use crate::errno::code;
use crate::object;

/// Messages that the owner is asked about in one call at most.
const MAX_ASKS: usize = 256;

/// An entry of the owner that a message was given.
struct Given {
    entry: RxEntry,
    message: u32,
    /// The message is on its way into the entry's buffers.
    started: bool,
}

/// A receive context of ours that belongs to another provider.
pub(crate) struct SrxOwner<D: Domain> {
    pub(crate) rx: Arc<D::PeerRx>,
    owner: Owner,
    given: Mutex<HashMap<usize, Given>>,
    asking: Mutex<()>,
    /// Receives that could not be started, which is still to be told.
    failed: Mutex<Vec<(usize, CompletionError)>>,
    /// One endpoint at a time is enabled with the context.
    joining: Mutex<()>,
    /// Where ends are reported, and whether only those that ask for it.
    reports: Mutex<Option<(Weak<CqOwner>, bool)>>,
    /// The address vectors whose insertions are told to it.
    avs: Mutex<Vec<Weak<WeakList<dyn Driven>>>>,
    this: Weak<Self>,
}

// SAFETY: the provider's context belongs to a domain that locks, or to one all of whose calls the
// program serialises, those that come through its owner included; the rest may go to any thread.
unsafe impl<D: Domain> Send for SrxOwner<D> {}
// SAFETY: the provider's context is that of a domain that locks, or is called by one thread at a time
// for the same reason; the rest is behind locks.
unsafe impl<D: Domain> Sync for SrxOwner<D> {}

/// The messages of all contexts that wait for their owners.
static WAITING: LazyLock<Mutex<HashMap<usize, Weak<dyn Driven>>>> = LazyLock::new(Mutex::default);

/// The number of the next entry.
static NUMBER: AtomicUsize = AtomicUsize::new(1);

/// Whose message an entry is for, and its number.
fn waiting(entry: Option<RxEntry>) -> Option<(RxEntry, Arc<dyn Driven>, usize)> {
    let entry = entry?;
    let number = entry.whole().peer_context.addr();
    let home = WAITING.lock().get(&number)?.upgrade()?;
    Some((entry, home, number))
}

trampolines! { []
    /// `fi_ops_srx_peer::start_msg` and `start_tag`: the entry has its buffers now.
    extern "C" fn start(entry: Option<RxEntry>) -> c_int {
        let found = waiting(entry).ok_or(Errno::EINVAL);
        code(found.and_then(|(entry, home, number)| home.start(number, entry)))
    }

    /// `fi_ops_srx_peer::discard_msg` and `discard_tag`.
    extern "C" fn discard(entry: Option<RxEntry>) -> c_int {
        match waiting(entry) {
            Some((_, home, number)) => code(home.discard(number)),
            // It went with its context.
            None => 0,
        }
    }

    /// What `fi_ops_srx_owner::foreach_unspec_addr` is given; the entry may be for another peer.
    extern "C" fn get_addr(entry: Option<RxEntry>) -> abi::fi_addr_t {
        match waiting(entry) {
            Some((_, home, number)) => home.source(number).0,
            None => abi::FI_ADDR_UNSPEC,
        }
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
    /// The owner that the context of `fi_srx_context` names, which is told of our functions; `None`
    /// without `FI_PEER` in the flags of the call.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null, a context that is too short, or an owner without callbacks;
    /// those of the provider.
    pub(crate) fn of(flags: u64, domain: &Arc<D>, context: Context) -> Result<Option<Arc<Self>>> {
        if flags & abi::FI_PEER == 0 {
            return Ok(None);
        }
        // SAFETY: the flags have `FI_PEER`.
        let owner = unsafe { Owner::of(context) }?;
        let rx = domain.peer_rx()?;
        owner.tell(&PEER_OPS);
        Ok(Some(Arc::new_cyclic(|this| Self {
            rx,
            owner,
            given: Mutex::default(),
            asking: Mutex::default(),
            failed: Mutex::default(),
            joining: Mutex::default(),
            reports: Mutex::default(),
            avs: Mutex::default(),
            this: Weak::clone(this),
        })))
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
        let _one = self.joining.lock();
        // Not locked in `enable`: the provider's lock is taken there, which `untold` runs under.
        match self.reports() {
            None => {
                enable()?;
                *self.reports.lock() = Some((Arc::downgrade(cq), selective));
            }
            Some((known, same)) if Arc::ptr_eq(&known, cq) && same == selective => enable()?,
            Some(_) => return Err(Errno::EINVAL),
        }
        cq.drive(&self.driven());
        Ok(())
    }

    /// The open queue where ends are reported, and whether only those that ask for it.
    fn reports(&self) -> Option<(Arc<CqOwner>, bool)> {
        let reports = self.reports.lock();
        let (known, selective) = reports.as_ref()?;
        Some((known.upgrade()?, *selective))
    }

    /// Tells the owner of insertions into an address vector.
    pub(crate) fn learn_from(&self, av: &Peers) {
        if av.add(&self.driven()) {
            self.avs.lock().push(Arc::downgrade(av));
        }
    }

    /// Whether endpoints use the context, or calls of other threads do for too long. If not, none
    /// reaches it any more: it is taken out of all that calls it, so its owner, too, is called last
    /// when it closes.
    pub(crate) fn stays_in_use(self: &Arc<Self>) -> bool {
        if Arc::strong_count(&self.rx) > 1 {
            return true;
        }
        let this = self.driven();
        for av in self.avs.lock().drain(..) {
            av.upgrade().map(|av| av.remove(&this));
        }
        let mut waiting = WAITING.lock();
        for number in self.given.lock().keys() {
            waiting.remove(number);
        }
        drop(waiting);
        let released = self.reports().is_none_or(|(cq, _)| cq.release(&this));
        !released || object::stays_held(self)
    }

    fn is_selective(&self) -> bool {
        self.reports
            .lock()
            .as_ref()
            .is_some_and(|(_, selective)| *selective)
    }

    /// The same, as what a queue drives.
    pub(crate) fn driven(&self) -> Weak<dyn Driven> {
        let this: Weak<Self> = Weak::clone(&self.this);
        this
    }

    fn give(&self, entry: RxEntry, message: u32, started: bool) -> usize {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let given = Given {
            entry,
            message,
            started,
        };
        self.given.lock().insert(number, given);
        number
    }

    /// Asks the owner about a message; returns whether it has answered.
    fn ask_about(&self, arrival: &Arrival) -> bool {
        match self.owner.ask(arrival) {
            Answer::Begin(entry) => self.begin(entry, arrival),
            Answer::Wait(entry) => self.wait(entry, arrival),
            Answer::Later => return false,
            Answer::Failed(error) => {
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
    fn begin(&self, entry: RxEntry, arrival: &Arrival) {
        let number = self.give(entry, arrival.message, true);
        if let Err(err) = self.start_given(number, entry, arrival.message) {
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
            self.failed.lock().push((number, error));
        }
    }

    fn start_given(&self, number: usize, entry: RxEntry, message: u32) -> Result<()> {
        let segs = entry.whole().iov().rooms()?;
        self.rx.start(message, segs.as_slice(), number)
    }

    /// The owner has no receive for a message: it waits there.
    fn wait(&self, entry: RxEntry, arrival: &Arrival) {
        let number = self.give(entry, arrival.message, false);
        WAITING.lock().insert(number, self.driven());
        entry.note(number, arrival.data);
        let _ = self.rx.let_wait(arrival.message);
        let answer = self.owner.queue(entry, arrival.tag.is_some());
        if answer < 0 {
            fi_warn!(
                "core",
                Subsys::EpData,
                "a message of {} bytes is dropped: its owner does not queue it ({})",
                arrival.len,
                -answer
            );
            let _ = self.discard(number);
            self.owner.free(entry);
        }
    }

    /// What is told of a receive that succeeded: nothing, where that was not asked for.
    fn told(&self, mut done: Completion) -> Option<Entry> {
        let entry = self.given.lock().get(&done.context)?.entry;
        let entry = entry.whole();
        let quiet = self.is_selective() && entry.flags & abi::FI_COMPLETION == 0;
        done.context = entry.context.expose_provenance();
        Some(match quiet {
            true => Entry::Quiet,
            false => Entry::Done(done),
        })
    }

    /// What is told of a receive that failed.
    fn told_failed(&self, number: usize, mut error: CompletionError, data: Vec<u8>) -> Untold {
        if let Some(entry) = self.given.lock().get(&number).map(|given| given.entry) {
            error.entry.context = entry.whole().context.expose_provenance();
        }
        Untold {
            entry: Entry::Failed(error, data),
            of: Some((self.driven(), number)),
        }
    }

    fn untold(&self, done: Done) -> Option<Untold> {
        let received = |flags: Flags| flags.contains(Flags::RECV);
        Some(match done {
            Done::Ok(done) if received(done.flags) => Untold {
                of: Some((self.driven(), done.context)),
                entry: self.told(done)?,
            },
            Done::Failed(error, data) if received(error.entry.flags) => {
                self.told_failed(error.entry.context, error, data)
            }
            // What peers have done to memory.
            Done::Ok(done) => Untold::plain(Entry::Done(done)),
            Done::Failed(error, data) => Untold::plain(Entry::Failed(error, data)),
        })
    }
}

impl<D: Domain> Driven for SrxOwner<D> {
    fn ask(&self) {
        let Some(_alone) = self.asking.try_lock() else {
            // Another thread does the work already.
            return;
        };
        for _ in 0..MAX_ASKS {
            match self.rx.next_arrival() {
                Some(arrival) if self.ask_about(&arrival) => {}
                _ => break,
            }
        }
    }

    fn collect(&self, untold: &mut VecDeque<Untold>) {
        for (number, error) in self.failed.lock().drain(..) {
            untold.push_back(self.told_failed(number, error, Vec::new()));
        }
        self.rx.take_done(super::MAX_ENTRIES_AT_ONCE, |done| {
            untold.extend(self.untold(done))
        });
    }

    fn release(&self, number: usize) {
        let given = self.given.lock().remove(&number);
        if let Some(given) = given {
            self.owner.free(given.entry);
        }
    }

    fn refresh(&self) {
        self.owner.refresh(get_addr);
    }

    fn start(&self, number: usize, entry: RxEntry) -> Result<()> {
        let message = {
            let mut given = self.given.lock();
            let given = given.get_mut(&number).ok_or(Errno::EINVAL)?;
            given.started = true;
            given.entry = entry;
            given.message
        };
        WAITING.lock().remove(&number);
        let started = self.start_given(number, entry, message);
        if started.is_err() {
            // The entry stays the owner's, and the message waits as before.
            if let Some(given) = self.given.lock().get_mut(&number) {
                given.started = false;
            }
            WAITING.lock().insert(number, self.driven());
        }
        started
    }

    fn discard(&self, number: usize) -> Result<()> {
        WAITING.lock().remove(&number);
        let given = self.given.lock().remove(&number);
        self.rx.discard(given.ok_or(Errno::EINVAL)?.message)
    }

    fn source(&self, number: usize) -> FiAddr {
        let message = self.given.lock().get(&number).map(|given| given.message);
        message.map_or(FiAddr::NOTAVAIL, |message| self.rx.source(message))
    }
}

impl<D: Domain> Drop for SrxOwner<D> {
    fn drop(&mut self) {
        for (number, given) in self.given.get_mut().drain() {
            if given.started {
                // Nothing goes there any more: the endpoints of the context are closed.
                self.owner.free(given.entry);
            } else {
                WAITING.lock().remove(&number);
            }
        }
    }
}
