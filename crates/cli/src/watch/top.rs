//! `ripstop top`: what a process shows of itself.

use std::io::{IsTerminal as _, Write as _, stdout};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};
use ripstop_core::provider::Copied;
use ripstop_core::status::{Counter, Peer, PeerState, Snapshot, Traffic, Ways};
use serde_json::{Value, json};

use super::process::{self, Activity, Domain, Process};
use crate::out;

/// What `ripstop top` is asked for.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The number of the process.
    #[arg(value_parser = process::number)]
    pid: u32,
    /// Print what there is once, without rates.
    #[arg(long)]
    once: bool,
    /// Seconds between two prints; a process writes down its state once a second.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Print a JSON object each time.
    #[arg(long)]
    json: bool,
}

/// Runs it.
///
/// # Errors
/// For a process that shows nothing.
pub(crate) fn main(options: &Options) -> Result<()> {
    let mut before: Option<Process> = None;
    loop {
        let processes = process::all(options.pid);
        let process = match process::find(&processes, options.pid) {
            Ok(process) => process,
            // It was there, and closed all it had.
            Err(_) if before.is_some() => return Ok(()),
            Err(error) => return Err(error),
        };
        let shown = match options.json {
            true => format!("{:#}\n", to_json(process, before.as_ref())),
            false => text(process, before.as_ref()),
        };
        if !options.json && !options.once && stdout().is_terminal() {
            // Clears the screen.
            out!("\x1b[H\x1b[2J");
        }
        out!("{shown}");
        stdout().flush()?;
        if options.once || matches!(process.activity, Activity::Ended(_)) {
            return Ok(());
        }
        before = Some(process.clone());
        std::thread::sleep(Duration::from_secs(options.interval));
    }
}

/// The same domain a while before, and the seconds between the two snapshots.
#[derive(Clone, Copy)]
struct Before<'a> {
    domain: &'a Domain,
    seconds: f64,
}

impl<'a> Before<'a> {
    /// `None` where the process has written nothing since then.
    fn of(domain: &Domain, before: Option<&'a Process>) -> Option<Self> {
        let same = |other: &&Domain| other.path == domain.path;
        let earlier = before?.domains.iter().find(same)?;
        let passed = domain.written.saturating_sub(earlier.written);
        (!passed.is_zero()).then_some(Self {
            domain: earlier,
            seconds: passed.as_secs_f64(),
        })
    }

    /// How much a number has grown a second.
    fn rate(&self, now: u64, then: u64) -> f64 {
        now.saturating_sub(then) as f64 / self.seconds
    }
}

/// The traffic of a peer, found again by its endpoint and name.
fn traffic<'a>(shown: &'a Snapshot, peer: &Peer) -> Option<&'a Traffic> {
    let same = |other: &&Peer| (other.endpoint, &other.name) == (peer.endpoint, &peer.name);
    shown.peers.iter().find(same)?.traffic.as_ref()
}

/// A direction of traffic.
type Direction = fn(&Traffic) -> u64;
const SENT: Direction = |traffic| traffic.sent;
const RECEIVED: Direction = |traffic| traffic.received;

/// What some peers have sent or received together, of one unit.
struct Moved<'a> {
    unit: &'a str,
    all: u64,
    /// How much it grows a second, of those that were there before.
    a_second: Option<f64>,
}

impl<'a> Moved<'a> {
    /// Peers over several ways count in several units.
    fn by(
        peers: impl Iterator<Item = &'a Peer>,
        before: Option<Before<'_>>,
        of: Direction,
    ) -> Vec<Self> {
        let mut sums: Vec<Self> = Vec::new();
        for peer in peers {
            let Some(now) = &peer.traffic else { continue };
            let a_second = before.and_then(|before| {
                let then = traffic(&before.domain.shown, peer)?;
                Some(before.rate(of(now), of(then)))
            });
            let all = of(now);
            match sums.iter_mut().find(|sum| sum.unit == now.unit) {
                Some(sum) => {
                    sum.all = sum.all.saturating_add(all);
                    sum.a_second = a_second.map_or(sum.a_second, |more| {
                        Some(sum.a_second.unwrap_or_default() + more)
                    });
                }
                None => sums.push(Self {
                    unit: &now.unit,
                    all,
                    a_second,
                }),
            }
        }
        sums
    }

    fn text(&self) -> String {
        match self.a_second {
            Some(rate) => format!("{rate:.0} {}/s", self.unit),
            None => format!("{} {}", self.all, self.unit),
        }
    }

    fn json(&self) -> Value {
        json!({ "unit": self.unit, "all": self.all, "a_second": self.a_second })
    }
}

/// The peers of an endpoint that are shown.
fn peers_of(shown: &Snapshot, endpoint: u32) -> impl Iterator<Item = &Peer> {
    let peers = shown.peers.iter();
    peers.filter(move |peer| peer.endpoint == endpoint)
}

fn table(heading: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(heading);
    table
}

fn age(nanos: u64) -> String {
    format!("{} s", nanos / 1_000_000_000)
}

const fn state(state: PeerState) -> &'static str {
    match state {
        PeerState::Waiting => "waits to connect",
        PeerState::Connecting => "connecting",
        PeerState::Asked => "asked, no answer",
        PeerState::Up => "up",
        PeerState::Full => "up, not read",
    }
}

pub(super) fn text(process: &Process, before: Option<&Process>) -> String {
    let mut text = format!("{} {}\n", process.name(), process.activity.text());
    for domain in &process.domains {
        text += &domain_text(domain, Before::of(domain, before));
    }
    text
}

fn domain_text(domain: &Domain, before: Option<Before<'_>>) -> String {
    let shown = &domain.shown;
    let thread = match shown.has_thread {
        true => "a progress thread",
        false => "no progress thread",
    };
    let mut text = format!(
        "\n{}: {thread}, {} threads sleep in calls, the program made progress {:.1} s ago; as of \
         {:.1} s ago\n",
        shown.provider,
        domain.sleepers,
        domain.polled.as_secs_f64(),
        domain.age.as_secs_f64(),
    );
    let mut endpoints = table(&[
        "endpoint", "kind", "address", "not done", "receives", "sent", "received",
    ]);
    for ep in &shown.endpoints {
        let kind = if ep.is_msg { "msg" } else { "rdm" };
        let moved = |of| {
            let sums = Moved::by(peers_of(shown, ep.id), before, of);
            let texts: Vec<String> = sums.iter().map(Moved::text).collect();
            texts.join(", ")
        };
        endpoints.add_row([
            ep.id.to_string(),
            kind.to_owned(),
            ep.name.clone(),
            ep.outstanding.to_string(),
            ep.receives.to_string(),
            moved(SENT),
            moved(RECEIVED),
        ]);
    }
    text += &format!("{endpoints}\n");
    if !shown.peers.is_empty() {
        text += &peers_text(domain, before);
    }
    if !shown.waits.is_empty() {
        let mut waits = table(&["waits", "operation", "ends by"]);
        for wait in &shown.waits {
            waits.add_row([age(wait.age), wait.text(), wait.ends_by().to_owned()]);
        }
        text += &format!("{waits}\n");
        text += &more(shown.waits.len(), shown.all_waits, "operations");
    }
    text + &counts_text(shown, before)
}

/// How much a counter has grown a second.
fn counter_rate(counter: &Counter, before: Option<Before<'_>>) -> Option<f64> {
    let before = before?;
    let mut counters = before.domain.shown.counters.iter();
    let same = counters.find(|other| other.id == counter.id)?;
    Some(before.rate(counter.value, same.value))
}

/// Counters, queues and ways of long payloads, a line each.
fn counts_text(shown: &Snapshot, before: Option<Before<'_>>) -> String {
    let mut text = String::new();
    for counter in &shown.counters {
        let rate = counter_rate(counter, before);
        let rate = rate.map_or(String::new(), |rate| format!(", {rate:.0}/s"));
        let (id, value, errors) = (counter.id, counter.value, counter.errors);
        text += &format!("counter {id}: {value}{rate}, {errors} errors\n");
    }
    for queue in &shown.queues {
        let (id, entries) = (queue.id, queue.entries);
        text += &format!("completion queue {id}: {entries} entries not read\n");
    }
    if let Some(ways) = &shown.ways {
        for way in self::ways(ways) {
            text += &format!("long payloads {way}\n");
        }
    }
    text
}

fn more(shown: usize, all: u32, what: &str) -> String {
    match (all as usize).saturating_sub(shown) {
        0 => String::new(),
        rest => format!("and {rest} more {what}\n"),
    }
}

fn peers_text(domain: &Domain, before: Option<Before<'_>>) -> String {
    let shown = &domain.shown;
    let mut peers = table(&[
        "peer",
        "pid",
        "state",
        "way",
        "protocol of long messages",
        "sent",
        "received",
        "long payloads",
        "queued",
        "unexpected",
        "oldest",
    ]);
    for peer in &shown.peers {
        let moved = |of| {
            let sums = Moved::by(std::iter::once(peer), before, of);
            sums.first().map(Moved::text).unwrap_or_default()
        };
        peers.add_row([
            peer.name.clone(),
            peer.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            match peer.silence {
                Some(silence) => format!("{}, silent for {}", state(peer.state), age(silence)),
                None => state(peer.state).to_owned(),
            },
            peer.way.clone(),
            peer.protocol.clone(),
            moved(SENT),
            moved(RECEIVED),
            ways(&peer.ways).join(", "),
            format!("{} B", peer.queued),
            peer.unexpected.to_string(),
            peer.oldest.map(age).unwrap_or_default(),
        ]);
    }
    format!("{peers}\n") + &more(shown.peers.len(), shown.all_peers, "peers")
}

/// Long payloads with their bytes, for each way that some took.
fn ways(ways: &Ways) -> Vec<String> {
    let all = [
        ("by the stream", ways.stream),
        ("by mapped regions", ways.mapped),
        ("by cross-memory attach", ways.attach),
    ];
    let used = all.into_iter().filter(|(_, count)| count.payloads > 0);
    used.map(|(name, count)| format!("{name}: {} of {} B", count.payloads, count.bytes))
        .collect()
}

fn ways_json(ways: &Ways) -> Value {
    let copied = |way: Copied| json!({ "payloads": way.payloads, "bytes": way.bytes });
    json!({
        "stream": copied(ways.stream),
        "mapped": copied(ways.mapped),
        "attached": copied(ways.attach),
    })
}

pub(super) fn to_json(process: &Process, before: Option<&Process>) -> Value {
    let domains: Vec<Value> = process
        .domains
        .iter()
        .map(|domain| domain_json(domain, Before::of(domain, before)))
        .collect();
    json!({
        "pid": process.pid,
        "name": process.name(),
        "activity": process.activity.word(),
        "domains": domains,
    })
}

fn domain_json(domain: &Domain, before: Option<Before<'_>>) -> Value {
    let shown = &domain.shown;
    let endpoints: Vec<Value> = shown
        .endpoints
        .iter()
        .map(|ep| {
            let moved = |of| -> Vec<Value> {
                let sums = Moved::by(peers_of(shown, ep.id), before, of);
                sums.iter().map(Moved::json).collect()
            };
            json!({
                "id": ep.id,
                "kind": if ep.is_msg { "msg" } else { "rdm" },
                "address": ep.name,
                "outstanding": ep.outstanding,
                "receives": ep.receives,
                "sent": moved(SENT),
                "received": moved(RECEIVED),
            })
        })
        .collect();
    let waits: Vec<Value> = shown
        .waits
        .iter()
        .map(|wait| {
            json!({
                "operation": wait.text(),
                "peer": wait.peer,
                "seconds": wait.age as f64 / 1e9,
                "ends_by": wait.ends_by(),
            })
        })
        .collect();
    let peers: Vec<Value> = shown
        .peers
        .iter()
        .map(|peer| peer_json(peer, before))
        .collect();
    let counters: Vec<Value> = shown
        .counters
        .iter()
        .map(|counter| {
            json!({
                "id": counter.id,
                "value": counter.value,
                "errors": counter.errors,
                "a_second": counter_rate(counter, before),
            })
        })
        .collect();
    let queues: Vec<Value> = shown
        .queues
        .iter()
        .map(|queue| json!({ "id": queue.id, "entries": queue.entries }))
        .collect();
    json!({
        "provider": shown.provider,
        "program": shown.program,
        "rank": shown.rank,
        "progress_thread": shown.has_thread,
        "sleeping_threads": domain.sleepers,
        "seconds_since_progress": domain.polled.as_secs_f64(),
        "seconds_since_snapshot": domain.age.as_secs_f64(),
        "endpoints": endpoints,
        "peers": peers,
        "all_peers": shown.all_peers,
        "waits": waits,
        "all_waits": shown.all_waits,
        "counters": counters,
        "queues": queues,
        "ways": shown.ways.as_ref().map(ways_json),
    })
}

fn peer_json(peer: &Peer, before: Option<Before<'_>>) -> Value {
    let moved = |of| {
        let sums = Moved::by(std::iter::once(peer), before, of);
        sums.first().map(Moved::json)
    };
    json!({
        "endpoint": peer.endpoint,
        "address": peer.name,
        "pid": peer.pid,
        "state": state(peer.state),
        "way": peer.way,
        "protocol": peer.protocol,
        "sent": moved(SENT),
        "received": moved(RECEIVED),
        "ways": ways_json(&peer.ways),
        "queued_bytes": peer.queued,
        "unexpected": peer.unexpected,
        "oldest_seconds": peer.oldest.map(|age| age as f64 / 1e9),
        "silent_seconds": peer.silence.map(|silence| silence as f64 / 1e9),
    })
}
