#![allow(unsafe_code)]
//! Logging (`fi_provider(3)`, `fabric(7)`): lines of C callers, and a C program that takes the
//! lines itself (`fi_import_log`).

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use ripstop_abi as abi;
use ripstop_core::log::{self, Imported, Level, Meta, Record, Sink, Subsys};
use ripstop_types::{Errno, Result};

use crate::edge::{AnyFid, Arg, In, Whole, trampolines};
use crate::errno::{code, fail};
use crate::format::Format;
use crate::tables::{Table, table};

/// The core's name as a provider.
const CORE: &CStr = c"core";

/// A provider, or null.
pub(crate) type Provider<'a> = In<'a, *const abi::fi_provider>;

/// The name of a provider, the core's for null or a provider without a name.
pub(crate) fn provider_name<'a>(prov: Option<Whole<'a, abi::fi_provider>>) -> &'a CStr {
    prov.and_then(Whole::<abi::fi_provider>::name)
        .unwrap_or(CORE)
}

/// Runs `f` with who logs what; `None` for a level or subsystem that does not exist.
fn with_meta<T>(
    prov: Provider<'_>,
    level: abi::fi_log_level,
    subsys: abi::fi_log_subsys,
    f: impl FnOnce(&Meta<'_>) -> T,
) -> Option<T> {
    let (level, subsys) = (Level::from_raw(level)?, Subsys::from_raw(subsys)?);
    let name = provider_name(prov.get()).to_string_lossy();
    let prov = &*name;
    Some(f(&Meta {
        prov,
        level,
        subsys,
    }))
}

/// The `showtime` of a place that logs: null, or a `uint64_t` that only this library uses.
struct Showtime<'a>(Option<&'a AtomicU64>);

impl Arg for Showtime<'_> {
    type C = *mut u64;

    unsafe fn from_c(at: *mut u64) -> Self {
        // SAFETY: a `uint64_t` that is not null is aligned, and shared with nobody else, by the
        // contract of `from_c`.
        Self((!at.is_null()).then(|| unsafe { AtomicU64::from_ptr(at) }))
    }
}

trampolines! { []
    /// Exported as `fi_log_enabled@@FABRIC_1.0`: whether lines of this kind are logged; 1 or 0.
    ///
    /// # Safety
    ///
    /// `prov` is null or a provider with a name.
    #[unsafe(no_mangle)]
    pub extern "C" fn ripstop_fi_log_enabled_1_0(
        prov: Provider as *const abi::fi_provider,
        level as abi::fi_log_level,
        subsys as abi::fi_log_subsys,
    ) -> c_int {
        ripstop_core::init();
        let enabled = |meta: &Meta<'_>| log::enabled(meta.prov, meta.level, meta.subsys);
        with_meta(prov, level, subsys, enabled).map_or(0, c_int::from)
    }

    /// Exported as `fi_log_ready@@FABRIC_1.6`: whether a line that appears now and then is due; 1
    /// or 0. `showtime` belongs to the place that logs, starts at 0 and is moved on when it is.
    ///
    /// # Safety
    ///
    /// - `prov` is null or a provider with a name.
    /// - `showtime` is null or valid.
    #[unsafe(no_mangle)]
    pub extern "C" fn ripstop_fi_log_ready_1_6(
        prov: Provider as *const abi::fi_provider,
        level as abi::fi_log_level,
        subsys as abi::fi_log_subsys,
        showtime: Showtime as *mut u64,
    ) -> c_int {
        ripstop_core::init();
        let Showtime(Some(next)) = showtime else {
            return 0;
        };
        let ready = |meta: &Meta<'_>| log::ready(meta.prov, meta.level, meta.subsys, next);
        with_meta(prov, level, subsys, ready).map_or(0, c_int::from)
    }

    /// What `fi_log` does with its arguments.
    pub(crate) extern "C" fn write(
        prov: Provider, level: abi::fi_log_level, subsys: abi::fi_log_subsys,
        func: Option<&CStr>, line: c_int, format: Format(format, args),
    ) -> () {
        let Some(message) = format.print() else {
            return;
        };
        let func = func.unwrap_or(c"?");
        let message = message.strip_suffix('\n').unwrap_or(&message);
        let put = |meta: &Meta<'_>| {
            log::write(&Record {
                meta: *meta,
                func: &func.to_string_lossy(),
                line: line.unsigned_abs(),
                message: format_args!("{message}"),
            });
        };
        let _no_such_level = with_meta(prov, level, subsys, put);
    }
}

/// A C program's logger.
struct Logger(abi::fi_ops_log);

impl Sink for Logger {
    fn enabled(&self, meta: &Meta<'_>) -> bool {
        let Some(enabled) = self.0.enabled else {
            return log::enabled_by_environment(meta);
        };
        let (prov, flags) = (c_provider(meta.prov), filtered(meta));
        // SAFETY: the program's function, with a provider that lasts for ever.
        let wanted = unsafe { enabled(prov, meta.level as u32, meta.subsys as u32, flags) };
        wanted != 0
    }

    fn ready(&self, meta: &Meta<'_>, next: &AtomicU64) -> bool {
        let Some(ready) = self.0.ready else {
            return Unready(self).ready(meta, next);
        };
        let (prov, flags) = (c_provider(meta.prov), filtered(meta));
        let mut showtime = next.load(Ordering::Relaxed);
        let at = &raw mut showtime;
        // SAFETY: the program's function, with a provider that lasts for ever and a time that is valid
        // for the call.
        let due = unsafe { ready(prov, meta.level as u32, meta.subsys as u32, flags, at) };
        next.store(showtime, Ordering::Relaxed);
        due != 0
    }

    fn log(&self, record: &Record<'_>) {
        let Some(write) = self.0.log else {
            return log::write_by_default(record);
        };
        let meta = &record.meta;
        let line = c_int::try_from(record.line).unwrap_or(c_int::MAX);
        // C programs expect a whole line.
        let message = c_string(format!("{}\n", record.message));
        let func = c_string(record.func.to_owned());
        let (prov, level, subsys) = (c_provider(meta.prov), meta.level as u32, meta.subsys as u32);
        // SAFETY: the program's function, with strings valid for the call.
        unsafe { write(prov, level, subsys, func.as_ptr(), line, message.as_ptr()) };
    }
}

/// A logger that leaves it to the library when rate-limited lines are due.
struct Unready<'a>(&'a Logger);

impl Sink for Unready<'_> {
    fn enabled(&self, meta: &Meta<'_>) -> bool {
        self.0.enabled(meta)
    }

    fn log(&self, record: &Record<'_>) {
        self.0.log(record);
    }
}

fn filtered(meta: &Meta<'_>) -> u64 {
    match log::provider_filtered(meta.prov) {
        true => abi::FI_LOG_PROV_FILTERED,
        false => 0,
    }
}

/// Text as a C string, without NULs.
fn c_string(text: String) -> CString {
    let mut bytes = text.into_bytes();
    bytes.retain(|&byte| byte != 0);
    CString::new(bytes).unwrap_or_default()
}

/// A C provider for a name, as loggers are told who logs. It lasts for ever; there are as many
/// as there are names of providers.
pub(crate) fn c_provider(name: &str) -> *const abi::fi_provider {
    struct Known(&'static abi::fi_provider);
    // SAFETY: never written after it was made, and its pointers are to static memory.
    unsafe impl Send for Known {}
    static KNOWN: LazyLock<Mutex<HashMap<String, Known>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock();
    let make = || {
        let c_name: &'static CStr = Box::leak(c_string(name.to_owned()).into_boxed_c_str());
        Known(Box::leak(Box::new(abi::fi_provider {
            fi_version: ripstop_types::Version::CURRENT.0,
            name: c_name.as_ptr(),
            ..Default::default()
        })))
    };
    if let Some(provider) = known.get(name) {
        return provider.0;
    }
    known.entry(name.to_owned()).or_insert_with(make).0
}

/// Keeps a program's logger in place.
static IMPORTED: Mutex<Option<Imported>> = Mutex::new(None);

/// The object that `fi_open("logging")` gives out.
static LOGGING_OPS: abi::fi_ops = abi::fi_ops {
    close: Some(close_nothing),
    bind: Some(import),
    ..*Table::NONE
};

/// Operations of a program's logger while it is imported.
static IMPORTED_OPS: abi::fi_ops = abi::fi_ops {
    close: Some(close_import),
    ..*Table::NONE
};

/// The logging object. There is one, and it has no state but its context.
struct Logging(abi::fid_logging);

// SAFETY: the pointers inside are to static tables, and a context that is only handed back.
unsafe impl Send for Logging {}

static LOGGING: Mutex<Logging> = Mutex::new(Logging(abi::fid_logging {
    fid: abi::fid {
        fclass: abi::FI_CLASS_LOG,
        context: ptr::null_mut(),
        ops: table(&LOGGING_OPS),
    },
    ops: ptr::null_mut(),
}));

/// `fi_open` of `logging`.
///
/// # Errors
/// [`Errno::EALREADY`] while a program has a logger in place.
pub(crate) fn open(context: *mut c_void) -> Result<*mut abi::fid> {
    if log::is_imported() {
        return Err(Errno::EALREADY);
    }
    let mut logging = LOGGING.lock();
    logging.0.fid.context = context;
    Ok(&raw mut logging.0.fid)
}

trampolines! { []
    extern "C" fn close_nothing(_fid: *mut abi::fid) -> c_int {
        0
    }

    /// `fi_import_fid`: `other` is the program's `fid_logging`.
    extern "C" fn import(_fid: *mut abi::fid, other: AnyFid, flags: u64) -> c_int {
        if flags != 0 || other.class() != Some(abi::FI_CLASS_LOG) {
            return fail(Errno::EINVAL);
        }
        code(install(other))
    }

    extern "C" fn close_import(_fid: *mut abi::fid) -> c_int {
        drop(IMPORTED.lock().take());
        0
    }
}

/// Puts a logger in place, which is an object of class `FI_CLASS_LOG`.
fn install(logger: AnyFid<'_>) -> Result<()> {
    // SAFETY: an open object of this class, which is a `fid_logging`.
    let logger = unsafe { &mut *logger.as_ptr().cast::<abi::fid_logging>() };
    if logger.ops.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: not null, and then a table, which begins with its size.
    if unsafe { (*logger.ops).size } < size_of::<abi::fi_ops_log>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: by its size the table is whole.
    let sink = Logger(unsafe { logger.ops.read() });
    let new = log::import(Arc::new(sink))?;
    *IMPORTED.lock() = Some(new);
    // From here on closing the program's object removes its logger.
    logger.fid.ops = table(&IMPORTED_OPS);
    Ok(())
}
