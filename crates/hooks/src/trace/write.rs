//! The file of the hook `trace`.
//!
//! The process has a track, below it each endpoint, and below that as many as it has operations under way at
//! once, so that no two slices of a track overlap. What has no end to be seen is an instant event of
//! the endpoint's track. Packets are in the order of their times.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_core::log::Subsys;
use ripstop_core::{fi_info, fi_warn, params};
use ripstop_os::clock;

use super::proto::{Message, event, packet, track};
use super::ring::{End, Record};
use super::{ALL, Operations};
use crate::unwritten;

/// How many fabrics are open. Whoever closes the last one holds it while all is written, and no other is
/// opened meanwhile.
static FABRICS: Mutex<usize> = Mutex::new(0);

/// A fabric is opened.
pub(super) fn begin() {
    *FABRICS.lock() += 1;
}

/// A fabric is closed. With the last one all is written, so that the times of a file rise.
pub(super) fn closed() {
    let mut fabrics = FABRICS.lock();
    *fabrics = fabrics.saturating_sub(1);
    if *fabrics == 0 {
        write(&ALL.take(|_| true));
    }
}

/// The process ends with fabrics open: the same.
pub(crate) fn at_end() {
    write(&ALL.take_at_end());
}

/// The file: that of `FI_TRACE_FILE`, with the process's number for `%p`.
fn path() -> String {
    let given = params()
        .get::<String>(None, "trace_file")
        .unwrap_or_default();
    let name = if given.is_empty() {
        "ripstop-%p.pftrace"
    } else {
        &given
    };
    name.replace("%p", &std::process::id().to_string())
}

/// Appends to the file. A trace may be continued so: it is a sequence of packets.
fn write(all: &[Arc<Operations>]) {
    let kept: Vec<Kept> = all.iter().map(|one| Kept::of(one)).collect();
    if kept.iter().all(|kept| kept.records.is_empty()) {
        return;
    }
    let path = path();
    let is_written = unwritten::append("trace", &path, |file| {
        let mut file = BufWriter::new(file);
        let mut events = Events::default();
        for kept in &kept {
            kept.write_tracks(&mut file, &kept.collect(&mut events))?;
        }
        events.write(&mut file)?;
        file.flush()
    });
    let dropped: usize = kept.iter().map(|kept| kept.dropped).sum();
    if !is_written {
        return;
    }
    if dropped > 0 {
        fi_warn!(
            "core",
            Subsys::Core,
            "the hook trace has written {path} without the {dropped} oldest operations: raise \
             FI_TRACE_RECORDS to keep them"
        );
    } else {
        fi_info!("core", Subsys::Core, "the hook trace has written {path}");
    }
}

/// What is to be written of one domain.
struct Kept {
    provider: String,
    records: Vec<Record>,
    dropped: usize,
    unfollowed: u64,
    /// The counter and the time when it was opened, and nanoseconds a step.
    origin: (u64, u64),
    step: f64,
    now: u64,
}

impl Kept {
    fn of(operations: &Operations) -> Self {
        let mut records: Vec<Record> = operations.ring.records().collect();
        let remaining = operations.pending.remaining();
        records.extend(remaining.map(|posted| Record::of(&posted, End::Pending)));
        records.sort_by_key(|record| record.start);
        let (start, at) = operations.scale.origin();
        Self {
            provider: operations.provider.clone(),
            records,
            dropped: operations.ring.dropped(),
            unfollowed: operations.pending.unfollowed(),
            origin: (start, at.as_nanos() as u64),
            step: operations.scale.nanoseconds_a_step(),
            now: clock::counter(),
        }
    }

    /// A time of the clock `CLOCK_MONOTONIC`, in nanoseconds.
    fn time(&self, counter: u64) -> u64 {
        let steps = counter.saturating_sub(self.origin.0);
        self.origin.1 + (steps as f64 * self.step) as u64
    }

    /// Adds the events of this domain; returns its endpoints.
    fn collect<'a>(&'a self, events: &mut Events<'a>) -> BTreeMap<u64, Lanes> {
        let mut endpoints: BTreeMap<u64, Lanes> = BTreeMap::new();
        for record in &self.records {
            let lanes = endpoints.entry(record.endpoint).or_default();
            let start = self.time(record.start);
            let end = match record.end {
                End::Completed(end) | End::Failed(end) => self.time(end),
                End::Pending => self.time(self.now),
                End::Unseen | End::Refused(_) => {
                    let track = uuid(record.endpoint, 0);
                    events.push(start, Part::Instant, track, record);
                    continue;
                }
            };
            // A slice without length would end before it begins.
            let end = end.max(start + 1);
            let track = uuid(record.endpoint, lanes.take(start, end));
            events.push(start, Part::Begin, track, record);
            events.push(end, Part::End, track, record);
        }
        endpoints
    }

    /// The descriptors of all tracks.
    fn write_tracks(&self, file: &mut impl Write, of: &BTreeMap<u64, Lanes>) -> io::Result<()> {
        let pid = u64::from(std::process::id());
        let process = Message::default()
            .number(track::PROCESS_PID, pid)
            .text(track::PROCESS_NAME, &program());
        let whole = Message::default()
            .number(track::UUID, uuid(0, 0))
            .message(track::PROCESS, &process);
        describe(file, &whole)?;
        for (endpoint, lanes) in of {
            let mut name = format!("{} endpoint {endpoint}", self.provider);
            if self.dropped > 0 || self.unfollowed > 0 {
                let (dropped, unfollowed) = (self.dropped, self.unfollowed);
                name += &format!(" (of its domain {dropped} dropped, {unfollowed} not followed)");
            }
            let own = uuid(*endpoint, 0);
            let whole = Message::default()
                .number(track::UUID, own)
                .text(track::NAME, &name)
                .number(track::PARENT, uuid(0, 0));
            describe(file, &whole)?;
            for lane in 1..=lanes.free_from.len() as u64 {
                let whole = Message::default()
                    .number(track::UUID, uuid(*endpoint, lane))
                    .text(track::NAME, &format!("under way {lane}"))
                    .number(track::PARENT, own);
                describe(file, &whole)?;
            }
        }
        Ok(())
    }
}

/// The name of this program.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// A number for a track that no other track of this machine has.
fn uuid(endpoint: u64, lane: u64) -> u64 {
    let pid = u64::from(std::process::id());
    (pid << 40) | (endpoint & 0xff_ffff) << 16 | (lane & 0xffff)
}

fn describe(file: &mut impl Write, descriptor: &Message) -> io::Result<()> {
    let pid = u64::from(std::process::id());
    let packet = Message::default()
        .number(packet::SEQUENCE, pid)
        .message(packet::TRACK, descriptor);
    file.write_all(&packet.into_trace())
}

/// The tracks of one endpoint's operations.
#[derive(Default)]
struct Lanes {
    /// From when on each of them is free.
    free_from: Vec<u64>,
}

impl Lanes {
    /// The number, from 1, of a track that is free in this time, for operations in the order of their
    /// starts.
    fn take(&mut self, start: u64, end: u64) -> u64 {
        let free = self.free_from.iter().position(|from| *from <= start);
        let at = free.unwrap_or(self.free_from.len());
        match self.free_from.get_mut(at) {
            Some(from) => *from = end,
            None => self.free_from.push(end),
        }
        at as u64 + 1
    }
}

/// What an event is, in the order of those at the same time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    End,
    Begin,
    Instant,
}

/// The events of all tracks.
#[derive(Default)]
struct Events<'a>(Vec<(u64, Part, u64, &'a Record)>);

impl<'a> Events<'a> {
    fn push(&mut self, time: u64, part: Part, track: u64, record: &'a Record) {
        self.0.push((time, part, track, record));
    }

    fn write(mut self, file: &mut impl Write) -> io::Result<()> {
        self.0
            .sort_by_key(|(time, part, track, _)| (*time, *part, *track));
        let pid = u64::from(std::process::id());
        for (time, part, track, record) in self.0 {
            let of_track = Message::default().number(event::TRACK, track);
            let event = match part {
                Part::End => of_track.number(event::TYPE, event::END),
                Part::Begin => described(of_track.number(event::TYPE, event::BEGIN), record),
                Part::Instant => described(of_track.number(event::TYPE, event::INSTANT), record),
            };
            let packet = Message::default()
                .number(packet::TIMESTAMP, time)
                .number(packet::SEQUENCE, pid)
                .message(packet::EVENT, &event);
            file.write_all(&packet.into_trace())?;
        }
        Ok(())
    }
}

/// An event with what is known of its operation.
fn described(event: Message, record: &Record) -> Message {
    let number = |name, value| {
        Message::default()
            .text(event::ANNOTATION_NAME, name)
            .number(event::ANNOTATION_UINT, value)
    };
    let text = |name, value: &str| {
        Message::default()
            .text(event::ANNOTATION_NAME, name)
            .text(event::ANNOTATION_TEXT, value)
    };
    let mut event = event
        .text(event::NAME, record.call.name)
        .text(event::CATEGORY, "fi")
        .message(event::ANNOTATION, &number("bytes", record.bytes))
        .message(event::ANNOTATION, &number("tag", record.tag));
    if record.peer != ripstop_abi::FI_ADDR_UNSPEC {
        event = event.message(event::ANNOTATION, &number("peer", record.peer));
    }
    let note = match record.end {
        End::Completed(_) => return event,
        End::Failed(_) => "completed in error".to_owned(),
        End::Unseen => "without a completion that can be followed".to_owned(),
        End::Pending => "not completed".to_owned(),
        End::Refused(code) => format!("refused: {code}"),
    };
    event.message(event::ANNOTATION, &text("end", &note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_a_track_do_not_overlap() {
        let mut lanes = Lanes::default();
        assert_eq!(lanes.take(0, 10), 1);
        assert_eq!(lanes.take(1, 5), 2);
        assert_eq!(lanes.take(4, 6), 3);
        assert_eq!(lanes.take(5, 9), 2);
        assert_eq!(lanes.take(10, 11), 1);
        assert_eq!(lanes.free_from.len(), 3);
    }
}
