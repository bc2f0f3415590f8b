//! `ripstop why`: follows what a process waits for through the processes of this machine.

use anyhow::Result;
use clap::Args;
use ripstop_core::status::{Wait, WaitKind};
use serde_json::{Value, json};

use super::follow::{Cause, Step, Way, follow};
use super::process::{self, Activity, Process};
use crate::{out, outln};

/// What `ripstop why` is asked for.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The number of the process that waits.
    #[arg(value_parser = process::number)]
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
    let ways = follow(&processes, process);
    let Some((first, others)) = ways.split_first() else {
        return Ok(());
    };
    let others: Vec<String> = others
        .iter()
        .filter_map(|way| other(process, way))
        .collect();
    match options.json {
        true => outln!("{:#}", to_json(process, first, &others)),
        false => {
            out!("{}", text(process, first));
            for other in others {
                outln!("or: {other}");
            }
        }
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
        WaitKind::Arriving => format!("the rest of a message of {who}"),
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

/// What may be the cause as well, where that says anything.
pub(super) fn other(process: &Process, way: &Way<'_>) -> Option<String> {
    let line = cause(process, way);
    line.strip_prefix("cause: ").map(str::to_owned)
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
        Cause::Unattended(who, domain) => format!(
            "cause: {waiter} waits for {waits_for}, which has not polled that domain ({}) for {} s, though it {} \
             in another one{}",
            domain.shown.provider,
            domain.polled.as_secs(),
            who.activity.text(),
            WHERE.replace("PID", &who.pid.to_string())
        ),
        Cause::Unpolled(who, domain, wait) => format!(
            "cause: {} has not polled a domain ({}) for {} s in which it waits, though it {} in another one: {}",
            who.name(),
            domain.shown.provider,
            domain.polled.as_secs(),
            who.activity.text(),
            wait.text()
        ),
        Cause::Silent(long) => format!(
            "cause: {waiter} waits for {waits_for}, and the network does not carry what is sent between them: \
             nothing has been acknowledged for {} s, although it was sent again; look at the interface, its \
             cable and the routes (ip -s link, ip route get)",
            long.as_secs()
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
            undone(last)
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
        Cause::Circle(place) => circle(&waiter, way.steps.get(*place..).unwrap_or_default()),
    }
}

/// What a process has not done that the last step waits for.
fn undone(last: Option<&Step<'_>>) -> &'static str {
    match last.map(|step| step.wait.kind) {
        Some(WaitKind::Receive | WaitKind::AnyReceive) => "sent that message",
        Some(WaitKind::Arriving) => "sent the rest",
        Some(WaitKind::Announced) => "posted a receive that fits",
        Some(WaitKind::Join) => "joined that group",
        Some(WaitKind::Collective) => "called that operation",
        Some(WaitKind::Connecting) => "taken the connection, or is no longer at that address",
        _ => "taken or answered it",
    }
}

/// The line that names processes which wait for each other.
fn circle(waiter: &str, steps: &[Step<'_>]) -> String {
    let mut names: Vec<String> = steps.iter().map(|step| step.from.name()).collect();
    names.extend(steps.last().and_then(|step| Some(step.to?.name())));
    match names.len() {
        0..=2 => format!("cause: {waiter} waits for itself"),
        _ => format!(
            "cause: a circle, each waits for the next: {}{}",
            names.join(" -> "),
            of_circle(steps)
        ),
    }
}

/// What is wrong where processes wait for each other, if all of them wait in the same way.
fn of_circle(steps: &[Step<'_>]) -> &'static str {
    let all = |kind| steps.iter().all(|step| step.wait.kind == kind);
    let any = |kind| steps.iter().any(|step| step.wait.kind == kind);
    if all(WaitKind::Receive) {
        "; none has sent the message that the one before it waits for"
    } else if all(WaitKind::Join) {
        "; they join different groups: all members must join the same ones, with the same members in the \
         same order"
    } else if all(WaitKind::Collective) {
        "; they are in different operations: all members must call the same ones in the same order"
    } else if any(WaitKind::Announced) && any(WaitKind::Receive) {
        "; a message was sent, and its receiver waits for another one (compare the tags)"
    } else {
        ""
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

/// How to see what a process does instead of polling.
const WHERE: &str = "; gdb -p PID or /proc/PID/stack shows where it is";

/// What can be done about a process that does not poll.
fn advice(who: &Process) -> String {
    let pid = who.pid;
    match who.activity {
        Activity::Stopped(_) => format!("; kill -CONT {pid} lets it go on"),
        Activity::Traced(_) => "; the debugger lets it go on".to_owned(),
        Activity::Away(_) | Activity::Computes(_) => WHERE.replace("PID", &pid.to_string()),
        _ => String::new(),
    }
}

fn to_json(process: &Process, way: &Way<'_>, others: &[String]) -> Value {
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
    json!({
        "process": who(process),
        "steps": steps,
        "cause": {
            "kind": way.cause.kind(),
            "process": way.cause.process().map(who),
            "text": cause(process, way),
        },
        "others": others,
    })
}
