#![allow(unsafe_code)]
//! Tables that lie over those of an object.
//!
//! Only the pointers of an object change, those to its operation tables: each leads to a [`Laid`],
//! which begins with our table. So a function of ours finds what it needs behind the pointer that it
//! was reached by, without a search, and the object is the provider's own in every other way. A
//! pointer that was null stays null, and an operation that the provider's table does not have is not
//! in ours: what the caller finds to be there is what the provider has.
//!
//! Closing an object puts the pointers back before the provider is asked.

use core::ptr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_abi as abi;

use crate::call::{Call, CallInfo, Detail};
use crate::hook::{Begins, Ends, Hooks, Opened, Watch, With, own};
use crate::{perf, trace};

/// A table of operations.
pub(crate) trait Interposed: Copy + Default {
    /// A table of our functions, one for each that this one has.
    fn interposed(&self) -> Self;
}

/// Our table of one kind for one object.
#[repr(C)]
pub(crate) struct Laid<T> {
    /// What the pointer of the object leads to. The first field: see [`Over::of`].
    ours: T,
    /// The provider's operations, none where its table is shorter than the type.
    theirs: T,
    /// The provider's table.
    table: *mut T,
    over: *const Over,
}

impl<T: Interposed> Laid<T> {
    /// Puts a table of ours in the place of another, unless it is null or already ours.
    ///
    /// # Safety
    ///
    /// `place` is a field of an open object, null or a table that begins with its size, and `over`
    /// is what lies over this object.
    unsafe fn lay(laid: &mut Option<Box<Self>>, place: *mut *mut T, over: *const Over) {
        // SAFETY: a field of an open object.
        let table = unsafe { place.read() };
        let present = laid.as_deref_mut().map(ptr::from_mut);
        if table.is_null() || present.is_some_and(|laid| ptr::eq(laid.cast(), table)) {
            return;
        }
        // SAFETY: every table begins with its size.
        let size = unsafe { table.cast::<usize>().read() }.min(size_of::<T>());
        let mut theirs = T::default();
        let to = ptr::from_mut(&mut theirs).cast::<u8>();
        // SAFETY: so many bytes are the table's, and no more than the type has.
        unsafe { ptr::copy_nonoverlapping(table.cast::<u8>(), to, size) };
        let ours = theirs.interposed();
        let new = Self {
            ours,
            theirs,
            table,
            over,
        };
        let there = match present {
            Some(there) => {
                // SAFETY: what is laid over this object, from a box that is kept.
                unsafe { there.write(new) };
                there
            }
            None => ptr::from_mut(&mut **laid.insert(Box::new(new))),
        };
        // SAFETY: a field of an open object.
        unsafe { place.write(there.cast()) };
    }

    /// Puts the provider's table back, unless another one has taken our place.
    ///
    /// # Safety
    ///
    /// `place` is the field of an open object that `laid` was laid over.
    unsafe fn lift(laid: Option<&Self>, place: *mut *mut T) {
        let Some(laid) = laid else { return };
        // SAFETY: a field of an open object.
        let table = unsafe { place.read() };
        if ptr::eq(table.cast_const(), ptr::from_ref(laid).cast()) {
            // SAFETY: as above.
            unsafe { place.write(laid.table) };
        }
    }
}

/// The tables of one object.
trait Tables {
    /// Puts ours in the place of all that are not ours.
    ///
    /// # Safety
    ///
    /// `fid` is the open object that these are of, and `over` is what lies over it.
    unsafe fn lay(&mut self, fid: *mut abi::fid, over: *const Over);

    /// Puts the provider's back.
    ///
    /// # Safety
    ///
    /// `fid` is the open object that these are of.
    unsafe fn lift(&self, fid: *mut abi::fid);
}

/// A public struct of the C interface, and the tables that it has.
pub(crate) trait Head {
    #[expect(private_interfaces, reason = "made and used here only")]
    fn tables() -> Box<dyn Tables>;
}

macro_rules! heads {
    ($($head:ident as $tables:ident { $($field:ident: $ops:ident)* })*) => { $(
        struct $tables {
            fid: Option<Box<Laid<abi::fi_ops>>>,
            $($field: Option<Box<Laid<abi::$ops>>>,)*
        }

        impl Head for abi::$head {
            #[expect(private_interfaces, reason = "made and used here only")]
            fn tables() -> Box<dyn Tables> {
                Box::new($tables { fid: None, $($field: None,)* })
            }
        }

        impl Tables for $tables {
            unsafe fn lay(&mut self, fid: *mut abi::fid, over: *const Over) {
                let head = fid.cast::<abi::$head>();
                // SAFETY: an open object of this class, by the contract of this function.
                let ops = unsafe { &raw mut (*head).fid.ops };
                // SAFETY: a field of this object, which `over` lies over.
                unsafe { Laid::lay(&mut self.fid, ops, over) };
                $(
                    // SAFETY: an open object of this class.
                    let field = unsafe { &raw mut (*head).$field };
                    // SAFETY: a field of this object, which `over` lies over.
                    unsafe { Laid::lay(&mut self.$field, field, over) };
                )*
            }

            unsafe fn lift(&self, fid: *mut abi::fid) {
                let head = fid.cast::<abi::$head>();
                // SAFETY: an open object of this class, by the contract of this function.
                let ops = unsafe { &raw mut (*head).fid.ops };
                // SAFETY: the field that it was laid over.
                unsafe { Laid::lift(self.fid.as_deref(), ops) };
                $(
                    // SAFETY: an open object of this class.
                    let field = unsafe { &raw mut (*head).$field };
                    // SAFETY: the field that it was laid over.
                    unsafe { Laid::lift(self.$field.as_deref(), field) };
                )*
            }
        }
    )* };
}

heads! {
    fid_fabric as FabricTables { ops: fi_ops_fabric }
    fid_domain as DomainTables { ops: fi_ops_domain mr: fi_ops_mr }
    fid_ep as EpTables {
        ops: fi_ops_ep cm: fi_ops_cm msg: fi_ops_msg rma: fi_ops_rma tagged: fi_ops_tagged
        atomic: fi_ops_atomic collective: fi_ops_collective
    }
    fid_pep as PepTables { ops: fi_ops_ep cm: fi_ops_cm }
    fid_stx as StxTables { ops: fi_ops_ep }
    fid_mr as MrTables {}
    fid_mc as McTables {}
    fid_av as AvTables { ops: fi_ops_av }
    fid_av_set as AvSetTables { ops: fi_ops_av_set }
    fid_cq as CqTables { ops: fi_ops_cq }
    fid_cntr as CntrTables { ops: fi_ops_cntr }
    fid_eq as EqTables { ops: fi_ops_eq }
    fid_wait as WaitTables { ops: fi_ops_wait }
    fid_poll as PollTables { ops: fi_ops_poll }
}

/// Who is told of calls on an object.
///
/// Hooks that promise to take little time are called without `dyn` where they are alone, so that the
/// compiler sees which arguments they look at.
enum Told {
    /// No hook wants to know.
    Nobody,
    /// Only `perf`.
    Perf(Arc<perf::Object>),
    /// Only `trace`.
    Trace(Arc<trace::Object>),
    /// All of [`Over::watches`].
    All,
}

impl Told {
    /// Who that is, of hooks that are told of these calls.
    fn of(watches: &[Arc<dyn Watch>], begins: Begins, ends: Ends) -> Self {
        if begins == Begins::None && ends == Ends::None {
            return Self::Nobody;
        }
        let [watch] = watches else { return Self::All };
        let perf = own(watch).map(Self::Perf);
        let direct = perf.or_else(|| own(watch).map(Self::Trace));
        direct.unwrap_or(Self::All)
    }
}

/// What lies over one object.
pub(crate) struct Over {
    /// One of each hook, the lowest first.
    watches: Box<[Arc<dyn Watch>]>,
    told: Told,
    /// The hooks, for what is opened from the object.
    hooks: Hooks,
    /// The calls that they are told of before.
    begins: Begins,
    /// The calls that they are told of behind.
    ends: Ends,
    /// The provider below.
    provider: Arc<str>,
    /// How often the provider has handed it out: some count how often a fabric is open.
    opened: AtomicUsize,
    tables: *mut dyn Tables,
}

impl Over {
    /// What lies over the object whose table this is, and the provider's own operations, to be read
    /// at once: [`renew`](Self::renew) changes them.
    ///
    /// # Safety
    ///
    /// `table` is the pointer of an open object by which a function of ours was reached, and the
    /// object stays open as long as `'a`.
    #[inline(always)]
    pub(crate) unsafe fn of<'a, T>(table: *mut T) -> (&'a Self, *const T) {
        let laid = table.cast::<Laid<T>>();
        // SAFETY: the pointer leads to `ours`, the first field of this struct.
        let theirs = unsafe { &raw const (*laid).theirs };
        // SAFETY: as above.
        let over = unsafe { (*laid).over };
        // SAFETY: what lies over an object lives until the object is closed.
        (unsafe { &*over }, theirs)
    }

    /// Runs a call: tells all hooks before, the last one first, and behind it in the other order.
    ///
    /// Each arm makes its own [`Call`]: one that a hook sees directly never has to be in memory.
    #[inline(always)]
    pub(crate) fn call<R: Answer>(
        &self,
        info: &'static CallInfo,
        detail: Detail,
        run: impl FnOnce() -> R,
    ) -> R {
        match &self.told {
            Told::Nobody => run(),
            Told::Perf(perf) => {
                let call = Call { info, detail };
                perf.before(&call);
                let answer = run();
                perf.after(&call, answer.result());
                answer
            }
            Told::Trace(trace) => {
                let call = Call { info, detail };
                trace.before(&call);
                let answer = run();
                trace.after(&call, answer.result());
                answer
            }
            Told::All => {
                let call = Call { info, detail };
                self.before(&call);
                let answer = run();
                self.after(&call, answer.result());
                answer
            }
        }
    }

    /// Tells all hooks that a call begins, if one of them wants to know.
    fn before(&self, call: &Call) {
        let needed = match call.detail {
            Detail::Transfer(_) => Begins::OfTransfers,
            _ => Begins::All,
        };
        if self.begins < needed {
            return;
        }
        for watch in self.watches.iter().rev() {
            watch.before(call);
        }
    }

    /// Tells all hooks that a call has returned, if one of them wants to know.
    fn after(&self, call: &Call, result: isize) {
        if self.ends == Ends::None {
            return;
        }
        for watch in &self.watches {
            watch.after(call, result);
        }
    }

    /// Lays tables over an object that this one's provider has just opened.
    ///
    /// # Safety
    ///
    /// `made` is null or an open object that nobody else uses yet.
    pub(crate) unsafe fn lay<H: Head>(&self, made: *mut H, with: With<'_>) {
        if matches!(with, With::Owner) {
            for hook in self.hooks.iter() {
                hook.passed_by(made.addr());
            }
            return;
        }
        // SAFETY: the same contract.
        unsafe { lay(made, &self.hooks, &self.provider, Some(self), with) };
    }

    /// Tells the hooks that another object was bound to this one.
    pub(crate) fn bound(&self, other: &Self, flags: u64) {
        for (watch, other) in self.watches.iter().zip(&other.watches) {
            watch.bound(other, flags);
        }
    }

    /// Puts our tables where the provider has meanwhile put others of its own, as some do when an
    /// endpoint is enabled.
    ///
    /// # Safety
    ///
    /// `fid` is the open object that this lies over, and its caller has not yet begun to use what
    /// the provider has changed.
    pub(crate) unsafe fn renew(&self, fid: *mut abi::fid) {
        // SAFETY: made in `lay`, and ended with this; the caller of the object serialises what
        // changes it.
        let tables = unsafe { &mut *self.tables };
        // SAFETY: the object that it is over.
        unsafe { tables.lay(fid, self) };
    }
}

/// What is over an object with this address, if anything is.
///
/// # Safety
///
/// `fid` is null or an open object.
pub(crate) unsafe fn over<'a>(fid: *mut abi::fid) -> Option<&'a Over> {
    // SAFETY: null or an open object.
    let ops = unsafe { fid.as_ref() }?.ops;
    // SAFETY: the operations of an object are null or a table, which begins with its size.
    let size = unsafe { ops.cast::<usize>().as_ref() }?;
    if *size <= core::mem::offset_of!(abi::fi_ops, close) {
        return None;
    }
    // SAFETY: the table is long enough to have this field.
    let close = unsafe { (*ops).close };
    let any = abi::fi_ops {
        close,
        ..Default::default()
    };
    // One function stands there in all tables of ours, and in no others.
    let ours = any.interposed().close;
    let is_ours = close
        .zip(ours)
        .is_some_and(|(close, ours)| ptr::fn_addr_eq(close, ours));
    // SAFETY: a table of ours, of an open object.
    is_ours.then(|| unsafe { Over::of(ops) }.0)
}

/// `fi_close` of an object of ours.
///
/// # Safety
///
/// `fid` is an open object that was reached by a table of ours, and no other call uses it.
pub(crate) unsafe fn close(fid: *mut abi::fid, info: &'static CallInfo) -> core::ffi::c_int {
    // SAFETY: an open object.
    let ops = unsafe { (*fid).ops };
    // SAFETY: its table, by which this function was reached.
    let (over, theirs) = unsafe { Over::of(ops) };
    // SAFETY: the operations of an open object.
    let Some(own) = (unsafe { (*theirs).close }) else {
        return -abi::FI_ENOSYS;
    };
    let call = Call {
        info,
        detail: Detail::Close,
    };
    over.before(&call);
    let counting = COUNTING.lock();
    if over.opened.load(Ordering::Relaxed) > 1 {
        over.opened.fetch_sub(1, Ordering::Relaxed);
        drop(counting);
        // SAFETY: the provider's operation on its own object.
        let code = unsafe { own(fid) };
        if code != 0 {
            over.opened.fetch_add(1, Ordering::Relaxed);
        }
        over.after(&call, code as isize);
        return code;
    }
    let tables = over.tables;
    // SAFETY: made in `lay`, and ended below.
    let lifted = unsafe { &*tables };
    // SAFETY: the object that it is over.
    unsafe { lifted.lift(fid) };
    drop(counting);
    let is_told = over.hooks.iter().any(|hook| hook.tells_of_closed());
    // SAFETY: the provider's operation on its own object, whose tables are the provider's again.
    let code = unsafe { crate::closed::close_last(fid, own, is_told) };
    over.after(&call, code as isize);
    if code != 0 {
        // SAFETY: made in `lay`; no other call uses the object.
        let tables = unsafe { &mut *tables };
        // SAFETY: the object was not closed.
        unsafe { tables.lay(fid, over) };
        return code;
    }
    for watch in &over.watches {
        watch.closed();
    }
    let over = ptr::from_ref(over).cast_mut();
    // SAFETY: `lay` has made it from a box, and the object that led to it is gone.
    drop(unsafe { Box::from_raw(over) });
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(tables) });
    0
}

/// Held while an object is recognised and counted, and while it is counted down and its tables are lifted: a
/// provider that keeps registrations may hand out one to several threads.
static COUNTING: Mutex<()> = Mutex::new(());

/// A number for each object.
static IDS: AtomicU64 = AtomicU64::new(1);

/// Lays tables over an object.
///
/// # Safety
///
/// `made` is null or an open object that nobody else uses yet.
unsafe fn lay<H: Head>(
    made: *mut H,
    hooks: &Hooks,
    provider: &Arc<str>,
    parent: Option<&Over>,
    with: With<'_>,
) {
    let fid = made.cast::<abi::fid>();
    let _counting = COUNTING.lock();
    // SAFETY: null or an open object.
    if let Some(over) = unsafe { over(fid) } {
        over.opened.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // SAFETY: null or an open object, whose struct begins with a `fid`.
    let Some(class) = (unsafe { fid.as_ref() }).map(|fid| fid.fclass) else {
        return;
    };
    let opened = Opened {
        class,
        id: IDS.fetch_add(1, Ordering::Relaxed),
        addr: fid.addr(),
        provider,
        with,
    };
    let each = hooks.iter().enumerate();
    let watches = each.map(|(at, hook)| {
        let parent = parent.and_then(|parent| parent.watches.get(at));
        hook.open(&opened, parent)
    });
    let watches: Box<[_]> = watches.collect();
    let begins = hooks.iter().map(|hook| hook.begins()).max();
    let begins = begins.unwrap_or(Begins::None);
    let ends = hooks.iter().map(|hook| hook.ends()).max();
    let ends = ends.unwrap_or(Ends::None);
    let told = Told::of(&watches, begins, ends);
    let tables = Box::into_raw(H::tables());
    let over = Box::into_raw(Box::new(Over {
        watches,
        told,
        hooks: Arc::clone(hooks),
        begins,
        ends,
        provider: Arc::clone(provider),
        opened: AtomicUsize::new(1),
        tables,
    }));
    // SAFETY: just made, and nobody else has it.
    let tables = unsafe { &mut *tables };
    // SAFETY: an open object of this type, which this lies over.
    unsafe { tables.lay(fid, over) };
}

/// Puts hooks above a fabric of this provider that was just opened, the first one lowest.
///
/// # Safety
///
/// The fabric is open, and nobody else uses it yet.
pub unsafe fn install(fabric: *mut abi::fid_fabric, hooks: &Hooks, provider: &str) {
    let provider = Arc::from(provider);
    // SAFETY: the same contract.
    unsafe { lay(fabric, hooks, &provider, None, With::Nothing) };
}

/// What a call returns.
pub(crate) trait Answer: Copy {
    /// What hooks are told of it.
    fn result(self) -> isize;
    /// There is no such operation.
    const ENOSYS: Self;
}

impl Answer for isize {
    #[inline(always)]
    fn result(self) -> isize {
        self
    }
    const ENOSYS: Self = -abi::FI_ENOSYS as isize;
}

impl Answer for core::ffi::c_int {
    #[inline(always)]
    fn result(self) -> isize {
        self as isize
    }
    const ENOSYS: Self = -abi::FI_ENOSYS;
}

impl Answer for u64 {
    #[inline(always)]
    fn result(self) -> isize {
        0
    }
    const ENOSYS: Self = 0;
}

impl Answer for *const core::ffi::c_char {
    #[inline(always)]
    fn result(self) -> isize {
        0
    }
    const ENOSYS: Self = ptr::null();
}
