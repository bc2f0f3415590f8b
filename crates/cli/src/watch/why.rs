//! `ripstop why`: follows what a process waits for through the processes of this machine.

use anyhow::Result;
use clap::Args;
use ripstop_core::status::{Wait, WaitKind};
use serde_json::{Value, json};

use super::follow::{Cause, Step, Way, follow};
use super::process::{self, Activity, Process};

/// What `ripstop why` is asked for.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The number of the process that waits.
    pid: u32,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs it.
///
/// # Errors
/// For a process that shows nothing.
pub(crate) fn main(options: &Options) -> Result<()> {
    let processes = process::all(options.pid);
    let process = process::find(&processes, options.pid)?;
    let way = follow(&processes, process);
    match options.json {
        true => println!("{:#}", to_json(process, &way)),
        false => print!("{}", text(process, &way)),
    }
    Ok(())
}

/// What the step waits for, of whom.
fn object(step: &Step<'_>) -> String {
    let who = match (step.to, &step.wait.peer) {
        (Some(to), _) => to.name(),
        (None, Some(peer)) => peer.clone(),
        (None, None) => "somebody".to_owned(),
    };
    match step.wait.kind {
        WaitKind::Receive => format!("a message of {who}"),
        WaitKind::AnyReceive => format!("a message of any peer, of which {who} is one"),
        WaitKind::Announced => format!("{who} to receive a message"),
        WaitKind::Unsent => format!("{who} to read what it was sent"),
        WaitKind::Connecting => format!("a connection with {who}"),
        WaitKind::Answer => format!("an answer of {who}"),
        WaitKind::Join => format!("{who} to join a group"),
        WaitKind::Collective => format!("{who} in a collective operation"),
        WaitKind::Unread | WaitKind::Threshold => who,
    }
}

const fn seconds(wait: &Wait) -> u64 {
    wait.age / 1_000_000_000
}

/// A line for each step, and one for the cause.
pub(super) fn text(process: &Process, way: &Way<'_>) -> String {
    let mut text = String::new();
    for step in &way.steps {
        let (from, wait) = (step.from.name(), step.wait);
        text += &format!(
            "{from} waits for {}, for {} s: {}\n",
            object(step),
            seconds(wait),
            wait.text()
        );
    }
    text + &cause(process, way) + "\n"
}

/// The line that names the cause.
pub(super) fn cause(process: &Process, way: &Way<'_>) -> String {
    let last = way.steps.last();
    let waiter = last.map_or_else(|| process.name(), |step| step.from.name());
    let waits_for = last.map(object).unwrap_or_default();
    match &way.cause {
        Cause::Nothing => format!(
            "{} waits for nothing that has lasted a second; it {}",
            process.name(),
            process.activity.text()
        ),
        Cause::Inactive(who) if way.steps.is_empty() => {
            format!(
                "cause: {} {}{}",
                who.name(),
                who.activity.text(),
                advice(who)
            )
        }
        Cause::Inactive(who) => format!(
            "cause: {waiter} waits for {waits_for}, whose process {}{}",
            who.activity.text(),
            advice(who)
        ),
        Cause::Unread(who, wait) => format!(
            "cause: {} has posted no receives for {} messages of {}, so that it does not read what comes \
             behind them; it {}",
            who.name(),
            wait.count,
            wait.peer.as_deref().unwrap_or("a peer"),
            who.activity.text()
        ),
        Cause::Idle(who) => format!(
            "cause: {waiter} waits for {waits_for}, which {} and waits for nobody{}: it has not {}",
            who.activity.text(),
            receives(who),
            match last.map(|step| step.wait.kind) {
                Some(WaitKind::Receive | WaitKind::AnyReceive) => "sent that message",
                Some(WaitKind::Announced) => "posted a receive that fits",
                Some(WaitKind::Join) => "joined that group",
                Some(WaitKind::Collective) => "called that operation",
                Some(WaitKind::Connecting) =>
                    "taken the connection, or is no longer at that address",
                _ => "taken or answered it",
            }
        ),
        Cause::Own(who, wait) => format!(
            "cause: {}: {} waits, and ends by {}",
            who.name(),
            wait.text(),
            wait.ends_by()
        ),
        Cause::Unknown(wait) => format!(
            "cause: {waiter} waits for {}, of which nothing is seen on this machine: it runs on another \
             one (look there), has another libfabric, or has ended long ago",
            wait.peer.as_deref().unwrap_or("a peer")
        ),
        Cause::Anybody(who, wait) => format!(
            "{} waits for a message of any peer, for {} s: {}; no peer that it has a connection with is \
             stopped, away or gone",
            who.name(),
            seconds(wait),
            wait.text()
        ),
        Cause::Circle(place) => {
            let mut names: Vec<String> = way.steps[*place..]
                .iter()
                .map(|step| step.from.name())
                .collect();
            names.extend(way.steps.last().and_then(|step| Some(step.to?.name())));
            match names.len() {
                0..=2 => format!("cause: {} waits for itself", waiter),
                _ => format!(
                    "cause: a circle, each waits for the next: {}",
                    names.join(" -> ")
                ),
            }
        }
    }
}

/// What a process has posted for any peer, those with a tag if there are some.
fn receives(who: &Process) -> String {
    let domains = who.domains.iter();
    let waits = domains.flat_map(|domain| &domain.shown.waits);
    let of_any: Vec<&Wait> = waits
        .filter(|wait| wait.kind == WaitKind::AnyReceive)
        .collect();
    let tagged = of_any.iter().find(|wait| wait.tag.is_some());
    match tagged.or(of_any.first()) {
        Some(wait) => format!(" in particular, only for any peer: {}", wait.text()),
        None => String::new(),
    }
}

/// What can be done about a process that does not poll.
fn advice(who: &Process) -> String {
    let pid = who.pid;
    match who.activity {
        Activity::Stopped(_) => format!("; kill -CONT {pid} lets it go on"),
        Activity::Traced(_) => "; the debugger lets it go on".to_owned(),
        Activity::Away(_) | Activity::Computes(_) => {
            format!("; gdb -p {pid} or /proc/{pid}/stack shows where it is")
        }
        _ => String::new(),
    }
}

fn to_json(process: &Process, way: &Way<'_>) -> Value {
    let who = |process: &Process| {
        json!({
            "pid": process.pid,
            "name": process.name(),
            "activity": process.activity.word(),
        })
    };
    let steps: Vec<Value> = way
        .steps
        .iter()
        .map(|step| {
            json!({
                "from": who(step.from),
                "operation": step.wait.text(),
                "seconds": seconds(step.wait),
                "ends_by": step.wait.ends_by(),
                "peer": step.wait.peer,
                "to": step.to.map(who),
            })
        })
        .collect();
    let (kind, culprit) = match &way.cause {
        Cause::Nothing => ("nothing", None),
        Cause::Inactive(process) => (process.activity.word(), Some(*process)),
        Cause::Unread(process, _) => ("unread", Some(*process)),
        Cause::Idle(process) => ("idle", Some(*process)),
        Cause::Own(process, _) => ("own", Some(*process)),
        Cause::Unknown(_) => ("unknown", None),
        Cause::Anybody(..) => ("anybody", None),
        Cause::Circle(_) => ("circle", None),
    };
    json!({
        "process": who(process),
        "steps": steps,
        "cause": { "kind": kind, "process": culprit.map(who), "text": cause(process, way) },
    })
}
