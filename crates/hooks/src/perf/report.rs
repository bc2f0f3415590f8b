//! What `perf` writes, and when.

use core::fmt::Write as _;
use core::sync::atomic::Ordering;
use std::io::{Write as _, stderr};
use std::sync::{Arc, Once};

use ripstop_core::log::Subsys;
use ripstop_core::{fi_warn, params};
use ripstop_os::Signal;

use super::histogram::Snapshot;
use super::rows::{OTHERS, Row};
use super::{ALL, NO_PEER, Stats};
use crate::unwritten;

/// Has a thread write all tables whenever the signal comes that `FI_PERF_SIGNAL` names.
pub(super) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let name = params().get::<String>(None, "perf_signal").unwrap_or_default();
        if name.is_empty() {
            return;
        }
        let Some(number) = Signal::number(&name) else {
            fi_warn!(
                "core",
                Subsys::Core,
                "FI_PERF_SIGNAL={name} is no signal: give a name, such as USR2, or a number"
            );
            return;
        };
        match Signal::take(number) {
            Ok(signal) => {
                let write_each = move || {
                    while signal.wait().is_ok() {
                        write(&ALL.all());
                    }
                };
                let thread = std::thread::Builder::new().name("ripstop-perf".to_owned());
                if let Err(error) = thread.spawn(write_each) {
                    fi_warn!("core", Subsys::Core, "no thread for FI_PERF_SIGNAL: {error}");
                }
            }
            Err(error) => fi_warn!(
                "core",
                Subsys::Core,
                "FI_PERF_SIGNAL={name}: {error}; the program handles this signal itself, or it cannot \
                 be handled: name another one"
            ),
        }
    });
}

/// A fabric is closed: what was counted of it is written for the last time.
pub(super) fn closed(fabric: u64) {
    write(&ALL.take(|stats| stats.fabric == fabric));
}

/// The process ends: the same for all fabrics that are open.
pub(crate) fn at_end() {
    write(&ALL.take_at_end());
}

/// Writes the tables to the file of `FI_PERF_FILE`, or to stderr.
fn write(all: &[Arc<Stats>]) {
    let json = params().get::<bool>(None, "perf_json") == Ok(true);
    let mut text = String::new();
    for stats in all {
        let lines = Line::all(stats);
        if lines.is_empty() {
            continue;
        }
        text += &if json {
            as_json(stats, &lines)
        } else {
            as_table(stats, &lines)
        };
    }
    if text.is_empty() {
        return;
    }
    let file = params()
        .get::<String>(None, "perf_file")
        .unwrap_or_default();
    if file.is_empty() {
        // Where it cannot be written, nor can the log.
        let _ = stderr().write_all(text.as_bytes());
    } else {
        unwritten::append("perf", &file, |mut file| file.write_all(text.as_bytes()));
    }
}

/// A row as it is written.
struct Line {
    call: &'static str,
    peer: u64,
    calls: u64,
    refused: u64,
    in_error: u64,
    bytes: u64,
    took: Option<Snapshot>,
}

impl Line {
    fn all(stats: &Stats) -> Vec<Self> {
        let mut lines: Vec<Self> = stats.rows.used().filter_map(Self::of).collect();
        lines.sort_by_key(|line| (line.took.is_none(), line.call, line.peer));
        lines
    }

    fn of(row: &Row) -> Option<Self> {
        let (call, peer) = row.key()?;
        let line = Self {
            call: call.name,
            peer,
            calls: row.calls.load(Ordering::Relaxed),
            refused: row.refused.load(Ordering::Relaxed),
            in_error: row.in_error.load(Ordering::Relaxed),
            bytes: row.bytes.load(Ordering::Relaxed),
            took: row.took.get().map(|took| took.snapshot()),
        };
        (line.calls != 0 || line.refused != 0).then_some(line)
    }

    fn peer(&self) -> String {
        match self.peer {
            NO_PEER => "-".to_owned(),
            OTHERS => "others".to_owned(),
            peer => peer.to_string(),
        }
    }
}

fn as_table(stats: &Stats, lines: &[Line]) -> String {
    let step = stats.scale.nanoseconds_a_step();
    let mut text = format!(
        "FI_HOOK=perf, process {}: {}\n{:<24}{:>8}{:>12}{:>12}{:>9}{:>16}{:>11}{:>11}{:>11}{:>11}\n",
        std::process::id(),
        stats.title,
        "call",
        "peer",
        "calls",
        "refused",
        "failed",
        "bytes",
        "mean us",
        "p50 us",
        "p99 us",
        "max us",
    );
    for line in lines {
        let (name, peer) = (line.call, line.peer());
        let (calls, refused, failed, bytes) = (line.calls, line.refused, line.in_error, line.bytes);
        let _ = write!(
            text,
            "{name:<24}{peer:>8}{calls:>12}{refused:>12}{failed:>9}{bytes:>16}"
        );
        if let Some(took) = line.took.as_ref().filter(|took| took.count > 0) {
            let mean = took.sum as f64 / took.count as f64;
            let values = [
                mean,
                took.quantile(500) as f64,
                took.quantile(990) as f64,
                took.max as f64,
            ];
            for value in values {
                let _ = write!(text, "{:>11.3}", value * step / 1000.0);
            }
        }
        text.push('\n');
    }
    text += "refused: returned an error, such as -FI_EAGAIN; failed: ended in error; times: from post to \
             the read of the completion, of some where there are many\n";
    let (unfollowed, unlisted) = (stats.pending.unfollowed(), stats.rows.unlisted());
    if unfollowed + unlisted > 0 {
        let _ = writeln!(
            text,
            "{unfollowed} operations without a time: no context of their own, or too many under way; \
             {unlisted} calls in no row: too many peers"
        );
    }
    text
}

fn as_json(stats: &Stats, lines: &[Line]) -> String {
    let step = stats.scale.nanoseconds_a_step();
    let nanoseconds = |value: u64| (value as f64 * step) as u64;
    let rows = lines.iter().map(|line| {
        let mut text = format!(
            "{{\"call\":\"{}\",\"peer\":\"{}\",\"calls\":{},\"refused\":{},\"failed\":{},\"bytes\":{}",
            line.call,
            line.peer(),
            line.calls,
            line.refused,
            line.in_error,
            line.bytes
        );
        if let Some(took) = &line.took {
            let buckets = took.filled();
            let pairs = buckets.map(|(from, count)| format!("[{},{count}]", nanoseconds(from)));
            let _ = write!(
                text,
                ",\"completed\":{},\"sum_ns\":{},\"max_ns\":{},\"histogram_ns\":[{}]",
                took.count,
                nanoseconds(took.sum),
                nanoseconds(took.max),
                pairs.collect::<Vec<_>>().join(",")
            );
        }
        text + "}"
    });
    format!(
        "{{\"hook\":\"perf\",\"process\":{},\"of\":\"{}\",\"unfollowed\":{},\"unlisted\":{},\"rows\":[{}]}}\n",
        std::process::id(),
        stats.title.replace(['"', '\\'], ""),
        stats.pending.unfollowed(),
        stats.rows.unlisted(),
        rows.collect::<Vec<_>>().join(",")
    )
}
