//! Logging (man page `fabric(7)`, section "LOGGING INTERFACE").
//!
//! `FI_LOG_LEVEL` (`warn`, `trace`, `info`, `debug`; default `warn`) selects how much is
//! logged, `FI_LOG_PROV` and `FI_LOG_SUBSYS` by whom (lists, after `^` of whom not),
//! `FI_LOG_LOCATION` and `FI_LOG_LOCATION_MODE` where to, and `FI_LOG_INTERVAL` how often
//! rate-limited lines appear. A line is
//! `libfabric:PID:SECONDS::PROVIDER:SUBSYSTEM:FUNCTION():LINE<LEVEL> MESSAGE`.
//!
//! Code logs through [`fi_warn!`](crate::fi_warn) and [`fi_info!`](crate::fi_info), or
//! [`fi_log!`](crate::fi_log) at any level, which cost one atomic load while the line is not wanted.
//! A program can take the lines itself: [`import`].

mod lacking;
mod macros;
pub use lacking::no_descriptor;
#[doc(hidden)]
pub use macros::function_name;
mod output;
pub(crate) use output::set_location;
pub use output::write as write_by_default;

use core::cell::Cell;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use ripstop_types::Errno;

use crate::filter::Filter;

/// An enumeration of C, whose values count from 0 and have words in the environment and in lines.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All, in the order of their C values.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The word for it in the environment and in log lines.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The one with this C value.
            #[must_use]
            pub fn from_raw(raw: u32) -> Option<Self> {
                Self::ALL.get(raw as usize).copied()
            }
        }
    };
}

words! {
    /// How important a line is (`enum fi_log_level`); each level includes those before it.
    Level {
        /// Errors and what the user should look at.
        Warn = "warn",
        /// The course of the program.
        Trace = "trace",
        /// Details.
        Info = "info",
        /// Everything.
        Debug = "debug",
    }
}

words! {
    /// What a line is about (`enum fi_log_subsys`).
    Subsys {
        /// The framework and its providers.
        Core = "core",
        /// Fabrics.
        Fabric = "fabric",
        /// Domains.
        Domain = "domain",
        /// Control operations of endpoints, such as connecting.
        EpCtrl = "ep_ctrl",
        /// Data transfers.
        EpData = "ep_data",
        /// Address vectors.
        Av = "av",
        /// Completion queues.
        Cq = "cq",
        /// Event queues.
        Eq = "eq",
        /// Memory registration.
        Mr = "mr",
        /// Counters.
        Cntr = "cntr",
    }
}

/// Who logs what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// Name of the provider, or `core`.
    pub prov: &'a str,
    /// How important it is.
    pub level: Level,
    /// What it is about.
    pub subsys: Subsys,
}

/// A line to be logged.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Who logs what.
    pub meta: Meta<'a>,
    /// The function that logs.
    pub func: &'a str,
    /// The line in its source.
    pub line: u32,
    /// The message, without an end of line.
    pub message: fmt::Arguments<'a>,
}

/// Somebody who takes log lines instead of this library (`struct fi_ops_log`).
pub trait Sink: Send + Sync {
    /// Whether a line is wanted. By default the environment decides, as without a sink.
    fn enabled(&self, meta: &Meta<'_>) -> bool {
        enabled_by_environment(meta)
    }

    /// Whether a rate-limited line is wanted now; `next` is when, in the milliseconds of
    /// [`now_ms`], it may appear again. By default once per `FI_LOG_INTERVAL`.
    fn ready(&self, meta: &Meta<'_>, next: &AtomicU64) -> bool {
        self.enabled(meta) && due(next)
    }

    /// Takes a line.
    fn log(&self, record: &Record<'_>);
}

/// Bit of a level in [`WANTED`].
const fn level_bit(level: Level) -> u64 {
    1 << level as u32
}

/// Bit of a subsystem in [`WANTED`].
const fn subsys_bit(subsys: Subsys) -> u64 {
    1 << (4 + subsys as u32)
}

/// Some providers are not wanted: ask [`PROVIDERS`].
const BY_PROVIDER: u64 = 1 << 62;

/// A program takes the lines: ask [`SINK`].
const IMPORTED: u64 = 1 << 63;

const ALL_SUBSYSTEMS: u64 = 0x3ff << 4;

impl Level {
    /// The level of this name, in any case.
    pub(crate) fn named(word: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|level| word.eq_ignore_ascii_case(level.name()))
    }
}

/// What is wanted: bits of levels, bits of subsystems, and the two above.
static WANTED: AtomicU64 = AtomicU64::new(level_bit(Level::Warn) | ALL_SUBSYSTEMS);
static PROVIDERS: RwLock<Option<Filter>> = RwLock::new(None);
static SINK: RwLock<Option<Arc<dyn Sink>>> = RwLock::new(None);

/// Milliseconds between rate-limited lines.
static INTERVAL: AtomicU64 = AtomicU64::new(2000);

/// Whether a line is wanted. One atomic load, unless lines are selected by provider or a
/// program takes them.
#[inline]
#[must_use]
pub fn enabled(prov: &str, level: Level, subsys: Subsys) -> bool {
    let wanted = WANTED.load(Ordering::Relaxed);
    let plain = level_bit(level) | subsys_bit(subsys);
    if wanted & (BY_PROVIDER | IMPORTED) == 0 {
        return wanted & plain == plain;
    }
    let meta = Meta {
        prov,
        level,
        subsys,
    };
    enabled_slowly(&meta, wanted)
}

#[cold]
fn enabled_slowly(meta: &Meta<'_>, wanted: u64) -> bool {
    if wanted & IMPORTED != 0
        && let Some(sink) = sink()
    {
        return sink.enabled(meta);
    }
    enabled_by_environment(meta)
}

/// Whether a rate-limited line is wanted now. `next` belongs to the place that logs and
/// starts at 0.
#[must_use]
pub fn ready(prov: &str, level: Level, subsys: Subsys, next: &AtomicU64) -> bool {
    let meta = Meta {
        prov,
        level,
        subsys,
    };
    match sink() {
        Some(sink) => sink.ready(&meta, next),
        None => enabled(prov, level, subsys) && due(next),
    }
}

/// Whether the environment wants a line, whoever takes it.
#[must_use]
pub fn enabled_by_environment(meta: &Meta<'_>) -> bool {
    let wanted = WANTED.load(Ordering::Relaxed);
    let plain = level_bit(meta.level) | subsys_bit(meta.subsys);
    wanted & plain == plain && !provider_filtered(meta.prov)
}

/// Whether `FI_LOG_PROV` keeps this provider out (`FI_LOG_PROV_FILTERED`).
#[must_use]
pub fn provider_filtered(prov: &str) -> bool {
    let providers = PROVIDERS.read();
    providers
        .as_ref()
        .is_some_and(|filter| !filter.allows(prov))
}

/// Milliseconds since some start, for rate limits.
#[must_use]
pub fn now_ms() -> u64 {
    u64::try_from(ripstop_os::clock::now().as_millis()).unwrap_or(u64::MAX)
}

/// Whether `next` has come; if so, sets it to an interval from now.
fn due(next: &AtomicU64) -> bool {
    let now = now_ms();
    let planned = next.load(Ordering::Relaxed);
    let following = now.saturating_add(INTERVAL.load(Ordering::Relaxed));
    now >= planned
        && next
            .compare_exchange(planned, following, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
}

thread_local! {
    /// Warnings that this thread has logged.
    static WARNINGS: Cell<u64> = const { Cell::new(0) };
}

/// How many warnings this thread has logged.
#[must_use]
pub fn warnings() -> u64 {
    WARNINGS.get()
}

/// Logs a line, which the caller has found to be [`enabled`].
pub fn write(record: &Record<'_>) {
    if record.meta.level == Level::Warn {
        WARNINGS.set(WARNINGS.get().wrapping_add(1));
    }
    match sink() {
        Some(sink) => sink.log(record),
        None => output::write(record),
    }
}

fn sink() -> Option<Arc<dyn Sink>> {
    SINK.read().clone()
}

/// Hands all lines to `sink` until the guard is dropped (`fi_import`, "logging").
///
/// # Errors
/// [`Errno::EALREADY`] while another sink has them.
pub fn import(sink: Arc<dyn Sink>) -> Result<Imported, Errno> {
    let mut current = SINK.write();
    if current.is_some() {
        return Err(Errno::EALREADY);
    }
    *current = Some(sink);
    WANTED.fetch_or(IMPORTED, Ordering::Relaxed);
    Ok(Imported(()))
}

/// Whether a sink has the lines.
#[must_use]
pub fn is_imported() -> bool {
    WANTED.load(Ordering::Relaxed) & IMPORTED != 0
}

/// Keeps a sink in place; see [`import`].
#[derive(Debug)]
#[must_use = "dropping the guard removes the sink"]
pub struct Imported(());

impl Drop for Imported {
    fn drop(&mut self) {
        WANTED.fetch_and(!IMPORTED, Ordering::Relaxed);
        *SINK.write() = None;
    }
}

/// Sets the milliseconds between lines that are limited in rate (`FI_LOG_INTERVAL`).
pub(crate) fn set_interval(milliseconds: u64) {
    INTERVAL.store(milliseconds, Ordering::Relaxed);
}

/// Selects what is logged: the level, and lists of providers and subsystems. A level that is no
/// level is `warn`; without a list all are logged.
pub(crate) fn select(level: Option<&str>, prov: Option<&str>, subsys: Option<&str>) {
    let level = level.and_then(Level::named).unwrap_or(Level::Warn);
    let mut wanted = (level_bit(level) << 1) - 1;
    let subsys = Filter::parse(subsys);
    let listed = Subsys::ALL.iter().filter(|each| subsys.allows(each.name()));
    wanted |= listed.fold(0, |bits, each| bits | subsys_bit(*each));
    let prov = Some(Filter::parse(prov)).filter(|filter| !filter.is_open());
    if prov.is_some() {
        wanted |= BY_PROVIDER;
    }
    *PROVIDERS.write() = prov;
    let imported = WANTED.load(Ordering::Relaxed) & IMPORTED;
    WANTED.store(wanted | imported, Ordering::Relaxed);
}

/// Formats a line as libfabric does, with the end of line.
fn format_line(record: &Record<'_>) -> String {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let Record {
        meta: Meta {
            prov,
            level,
            subsys,
        },
        func,
        line,
        message,
    } = record;
    let pid = ripstop_os::pid();
    let (level, subsys) = (level.name(), subsys.name());
    format!("libfabric:{pid}:{seconds}::{prov}:{subsys}:{func}():{line}<{level}> {message}\n")
}

#[cfg(test)]
mod tests;
