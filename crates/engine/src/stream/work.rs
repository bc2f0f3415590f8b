//! What becomes of operations of deferred work (man page `fi_trigger(3)`): they are told to a
//! counter of their own, and to the endpoint's queue and counters only if asked.

use ripstop_types::{Completion, Context, Errno, Flags, Result};

use crate::Buffer;
use crate::cq::ErrorEntry;
use crate::id::{ConnId, CounterId, CqId, EpId, WorkId};
use crate::stream::conn::Conn;
use crate::stream::engine::{Engine, error_entry};
use crate::stream::records::Work;
use crate::stream::request::{TxInfo, WORK};

impl<B: Buffer> Engine<B> {
    /// Announces deferred work: its id is the context of an operation that says it is work, or
    /// is given to a receive by [`Recv::for_work`](crate::matching::Recv::for_work).
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn open_work(&mut self, work: Work) -> Result<WorkId> {
        self.works.insert(work)
    }

    /// Takes back deferred work whose operation was not accepted: nothing is told.
    pub fn forget_work(&mut self, id: WorkId) {
        self.works.remove(id);
    }

    /// Whether deferred work that has begun is to be told to this counter.
    #[must_use]
    pub fn counts_work(&self, counter: CounterId) -> bool {
        let told = |work: &Work| work.counter == Some(counter);
        self.works.position(told).is_some()
    }

    /// A counter goes: work does not tell it.
    pub(super) fn untell(&mut self, counter: CounterId) {
        for id in self.works.every_id() {
            if let Some(work) = self.works.get_mut(id)
                && work.counter == Some(counter)
            {
                work.counter = None;
            }
        }
    }

    /// The operation of an endpoint that was put off cannot be posted any more: says so as if it
    /// had been. `entry` has its context and flags; `work` is the counter of deferred work, whose
    /// entry it then is if there is to be one.
    pub fn fail_unposted(&mut self, ep: EpId, entry: &Unposted, error: Errno) {
        let Some(context) = self.tell_unposted(entry) else {
            return;
        };
        let Some(config) = self.eps.get(ep).map(|ep| ep.config) else {
            return;
        };
        let receives = entry.flags.contains(Flags::RECV);
        let (cq, counter) = match receives {
            true => (config.rx_cq, config.rx_counter),
            false => (config.tx_cq, config.counter_of(entry.flags)),
        };
        let told = entry.work.and_then(|work| work.counter);
        if counter != told
            && let Some(counter) = self.counters.find_mut(counter)
        {
            counter.failure();
        }
        self.report_unposted(cq, context, entry, error);
    }

    /// As [`Engine::fail_unposted`], of a receive on a shared context, whose errors go to `cq`.
    pub fn fail_unposted_shared(&mut self, cq: Option<CqId>, entry: &Unposted, error: Errno) {
        if let Some(context) = self.tell_unposted(entry) {
            self.report_unposted(cq, context, entry, error);
        }
    }

    /// Counts the failure of deferred work; returns the context of the entry there is to be.
    fn tell_unposted(&mut self, entry: &Unposted) -> Option<Context> {
        let Some(work) = entry.work else {
            return Some(entry.context);
        };
        if let Some(counter) = self.counters.find_mut(work.counter) {
            counter.failure();
        }
        work.entry
    }

    fn report_unposted(
        &mut self,
        cq: Option<CqId>,
        context: Context,
        entry: &Unposted,
        error: Errno,
    ) {
        let completion = Completion {
            context,
            flags: entry.flags,
            tag: entry.tag,
            ..Completion::BLANK
        };
        self.push_error(cq, completion, error);
    }

    pub(super) fn push_error(&mut self, cq: Option<CqId>, entry: Completion, error: Errno) {
        self.report(cq, Err(ErrorEntry::new(entry, error)));
    }

    /// Work that sends, reads or writes is done, or has failed.
    #[cold]
    #[inline(never)]
    pub(super) fn end_work(&mut self, conn_id: ConnId, info: &TxInfo, outcome: Result<()>) {
        let work = u32::try_from(info.context)
            .ok()
            .and_then(WorkId::new)
            .and_then(|id| self.works.remove(id));
        let ep = self.conns.get(conn_id).map(Conn::ep);
        let config = self.eps.find_mut(ep).map(|ep| {
            ep.outstanding = ep.outstanding.wrapping_sub(1);
            ep.config
        });
        let Some(work) = work else { return };
        let flags = info.flags.difference(WORK);
        let own = config.and_then(|config| config.counter_of(flags));
        self.tell(&work, own, info.len, outcome.is_ok());
        let (Some(context), Some(config), Some(conn)) =
            (work.entry, config, self.conns.get(conn_id))
        else {
            return;
        };
        let completion = Completion {
            context,
            flags,
            ..Completion::BLANK
        };
        let entry = match outcome {
            Ok(()) => Ok(completion),
            Err(error) => Err(error_entry(completion, error, conn)),
        };
        self.report(config.tx_cq, entry);
    }

    /// Work that receives is done, or has failed: `entry` is what its endpoint would report, to
    /// `cq` and to the counter `own`.
    #[cold]
    #[inline(never)]
    pub(super) fn end_recv_work(
        &mut self,
        id: WorkId,
        (cq, own): (Option<CqId>, Option<CounterId>),
        len: u64,
        entry: core::result::Result<Completion, ErrorEntry>,
    ) {
        let Some(work) = self.works.remove(id) else {
            return;
        };
        self.tell(&work, own, len, entry.is_ok());
        let Some(context) = work.entry else { return };
        let entry = match entry {
            Ok(entry) => Ok(Completion { context, ..entry }),
            Err(mut failed) => {
                failed.error.entry.context = context;
                Err(failed)
            }
        };
        self.report(cq, entry);
    }

    /// Counts the end of work, and at the endpoint's counter `own` if it is to be reported.
    fn tell(&mut self, work: &Work, own: Option<CounterId>, len: u64, done: bool) {
        let own = match work.entry {
            Some(_) if own != work.counter => own,
            _ => None,
        };
        for id in [work.counter, own] {
            if let Some(counter) = self.counters.find_mut(id) {
                match done {
                    true => counter.success(len),
                    false => counter.failure(),
                }
            }
        }
    }

    /// Puts a success or an error into a queue, if there is one.
    pub(super) fn report(
        &mut self,
        cq: Option<CqId>,
        entry: core::result::Result<Completion, ErrorEntry>,
    ) {
        if let Some(cq) = self.cqs.find_mut(cq) {
            match entry {
                Ok(completion) => cq.push(completion),
                Err(error) => cq.push_error(error),
            }
        }
    }
}

/// An operation that was put off and never posted.
#[derive(Clone, Copy, Debug)]
pub struct Unposted {
    /// The caller's context.
    pub context: Context,
    /// What it is, as in a completion.
    pub flags: Flags,
    /// The tag of a tagged receive.
    pub tag: u64,
    /// The deferred work it is of.
    pub work: Option<Work>,
}
