//! The committed budget: `bench/budget.toml`, whose numbers may only fall.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use ripstop_cli::outln;
use serde::{Deserialize, Serialize};

use crate::callgrind::Cost;
use crate::device::{Device, DoesNotCompile};
use crate::operation::Operation;
use crate::{callgrind, existing, fresh, top};

/// The file, seen from the top of the tree.
const FILE: &str = "bench/budget.toml";

/// The comment at its top.
const HEADER: &str = "\
# Most user-space instructions that libfabric.so.1 may spend on a message of 8 bytes, by provider:
# two endpoints in one domain, FI_THREAD_DOMAIN, manual progress, counted by callgrind. What ends in
# -calls is the most system calls of 1,000 of them, but for the time, which valgrind asks for.
# Numbers may only fall: `bench/budget --lower` writes what is counted now.
";

/// What stands behind the key of an operation where its system calls are counted.
const CALLS: &str = "-calls";

/// So many operations together may make as many system calls as the budget says.
const PER: f64 = 1000.0;

/// The system calls of so many operations may be over by this: what is rare is looked for once in so
/// many polls, also while the two connect, which takes longer in one run than in another.
const CALLS_SLACK: f64 = 4.0;

/// And by this part of them.
const CALLS_PART: f64 = 0.01;

/// A count may be over by this part of it: addresses differ from run to run, and with them a
/// few branches of copies and allocations.
const SLACK: f64 = 0.02;

/// A small count may be over by this part of it, up to [`MOVED`] instructions: which registers
/// the compiler spills in a function, and what it inlines there, changes with code that has nothing
/// to do with it.
const SMALL_SLACK: f64 = 0.1;

/// The most that was seen of that between builds is 8, and of both halves of a message 11.
const MOVED: f64 = 20.0;

/// What no count may exceed, whatever the budget and its slack.
const LIMITS: [(&str, &str, f64); 5] = [
    ("shm", "inject-message", 650.0),
    ("shm", "send-message", 850.0),
    ("tcp", "inject-message", 900.0),
    ("tcp", "send-message", 1100.0),
    ("tcp", "empty-read", 60.0),
];

/// Counts of operations by their key, by provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Budget(BTreeMap<String, BTreeMap<String, u32>>);

impl Budget {
    fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).with_context(|| format!("{FILE} makes no sense"))
    }

    fn text(&self) -> Result<String> {
        Ok(format!("{HEADER}\n{}", toml::to_string(self)?))
    }

    /// Entries that are higher than in an earlier version, or gone.
    fn raised_since(&self, earlier: &Self) -> Vec<String> {
        let mut raised = Vec::new();
        for (provider, entries) in &earlier.0 {
            for (key, was) in entries {
                match self.0.get(provider).and_then(|entries| entries.get(key)) {
                    Some(is) if is <= was => {}
                    Some(is) => raised.push(format!("{provider} {key} from {was} to {is}")),
                    None => raised.push(format!("{provider} {key}, which is gone")),
                }
            }
        }
        raised
    }
}

/// Counts everything in the budget and prints `PASS`, `FAIL` and `SKIP` lines; `false` when
/// something is over.
///
/// # Errors
/// When the file or the library is not there, that of target/dist is old, or counting fails.
pub(crate) fn check(lib: Option<&Path>, lower: bool) -> Result<bool> {
    let path = top().join(FILE);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {FILE}"))?;
    let mut budget = Budget::parse(&text)?;
    let mut good = has_only_fallen(&budget);
    if !callgrind::is_there() {
        outln!("SKIP counts: valgrind is not installed");
        return Ok(good);
    }
    let lib = match lib {
        Some(lib) => existing(lib)?,
        None => fresh::built()?,
    };
    for (provider, entries) in &mut budget.0 {
        let device = match Device::of(provider) {
            Ok(device) => device,
            Err(why) if why.is::<DoesNotCompile>() => return Err(why),
            Err(why) => {
                outln!("SKIP {provider}: {why:#}");
                continue;
            }
        };
        let mut costs = BTreeMap::new();
        for (key, allowed) in entries {
            let (operation, quantity) = parse_key(key)?;
            let cost = match costs.entry(operation) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let cost = callgrind::measure(&lib, provider, device.as_ref(), operation);
                    *new.insert(cost?)
                }
            };
            good &= check_one(provider, key, quantity, cost, allowed);
        }
    }
    if lower {
        std::fs::write(&path, budget.text()?)?;
    }
    Ok(good)
}

/// What is counted of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Instructions,
    /// System calls of 1,000.
    Calls,
}

impl Quantity {
    const fn name(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Calls => "system calls of 1,000",
        }
    }

    fn of(self, cost: Cost) -> f64 {
        match self {
            Self::Instructions => cost.instructions,
            Self::Calls => cost.calls * PER,
        }
    }

    /// How much more than a budget is nobody's doing.
    fn slack(self, budget: f64) -> f64 {
        match self {
            Self::Instructions => (budget * SLACK).max((budget * SMALL_SLACK).min(MOVED)),
            Self::Calls => CALLS_SLACK + budget * CALLS_PART,
        }
    }
}

/// What an entry of the budget is about.
fn parse_key(key: &str) -> Result<(Operation, Quantity)> {
    let (name, quantity) = match key.strip_suffix(CALLS) {
        Some(name) => (name, Quantity::Calls),
        None => (key, Quantity::Instructions),
    };
    let operation = Operation::ALL
        .into_iter()
        .find(|operation| operation.key() == name);
    let operation = operation.with_context(|| format!("{FILE}: there is no operation {key}"))?;
    Ok((operation, quantity))
}

/// Compares one count, and takes it into the budget if it is lower.
fn check_one(provider: &str, key: &str, quantity: Quantity, cost: Cost, allowed: &mut u32) -> bool {
    let (count, most) = (quantity.of(cost), f64::from(*allowed));
    let slack = quantity.slack(most);
    let good = count <= (most + slack).min(limit(provider, key));
    let (word, what) = (if good { "PASS" } else { "FAIL" }, quantity.name());
    outln!("{word} {provider} {key}: {count:.0} {what}, budget {allowed}");
    if cost.late > 0.01 {
        outln!("     {:.0} % of the messages were late", cost.late * 100.0);
    }
    if count < most - slack {
        outln!("     the budget can fall: bench/budget --lower");
    }
    // The slack is not handed on: only what was counted enters the file.
    *allowed = (*allowed).min(count.max(0.0).ceil() as u32);
    good
}

/// What an operation may cost at most.
fn limit(provider: &str, key: &str) -> f64 {
    let limits = LIMITS.iter();
    let mut of_this = limits.filter(|(of, what, _)| (*of, *what) == (provider, key));
    of_this.next().map_or(f64::INFINITY, |(_, _, limit)| *limit)
}

/// Compares the file with the versions that were committed last, where git is there.
fn has_only_fallen(budget: &Budget) -> bool {
    let mut later = budget.clone();
    let (mut good, mut compared) = (true, false);
    for commit in git(&["log", "-2", "--format=%H", "--", FILE])
        .unwrap_or_default()
        .lines()
    {
        let Some(text) = git(&["show", &format!("{commit}:{FILE}")]) else {
            continue;
        };
        let Ok(earlier) = Budget::parse(&text) else {
            continue;
        };
        for raised in later.raised_since(&earlier) {
            outln!("FAIL the budget may only fall: {raised} since {commit}");
            good = false;
        }
        later = earlier;
        compared = true;
    }
    match (good, compared) {
        (true, true) => outln!("PASS the budget has not risen"),
        (true, false) => outln!("SKIP the budget since: git has no version of it here"),
        (false, _) => {}
    }
    good
}

/// What git prints at the top of the tree.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(top())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(text: &str) -> Budget {
        Budget::parse(text).expect("a budget")
    }

    #[test]
    fn only_falling_is_fine() {
        let was = budget("[tcp]\ntsend = 100\ntrecv = 50\n");
        assert_eq!(
            budget("[tcp]\ntsend = 90\ntrecv = 50\nx = 1\n")
                .raised_since(&was)
                .len(),
            0
        );
        assert_eq!(
            budget("[tcp]\ntsend = 101\ntrecv = 50\n")
                .raised_since(&was)
                .len(),
            1
        );
        assert_eq!(budget("[tcp]\ntsend = 100\n").raised_since(&was).len(), 1);
        assert_eq!(budget("").raised_since(&was).len(), 2);
    }

    #[test]
    fn what_is_over_fails_and_what_is_under_can_be_written() {
        let cost = Cost {
            instructions: 720.4,
            calls: 0.0305,
            late: 0.0,
        };
        for (key, was, good, is) in [
            ("send-message", 706, true, 706),
            ("send-message", 700, false, 700),
            ("send-message", 800, true, 721),
            ("send-message-calls", 27, true, 27),
            ("send-message-calls", 26, false, 26),
            ("send-message-calls", 40, true, 31),
        ] {
            let (operation, quantity) = parse_key(key).expect("an entry");
            assert_eq!(operation, Operation::SendMessage);
            let mut allowed = was;
            let found = check_one("none", key, quantity, cost, &mut allowed);
            assert_eq!((found, allowed), (good, is), "{key} {was}");
        }
        for key in ["calls", "-calls", "send-message-", "send-messagecalls"] {
            assert!(parse_key(key).is_err(), "{key}");
        }
    }

    #[test]
    fn little_is_allowed_beyond_a_budget() {
        for (budget, most) in [
            (40.0, 4.0),
            (100.0, 10.0),
            (700.0, 20.0),
            (50_000.0, 1000.0),
        ] {
            let slack = Quantity::Instructions.slack(budget);
            assert!((slack - most).abs() < 1e-6, "{budget}");
        }
        for (budget, most) in [(0.0, 4.0), (30.0, 4.3), (3000.0, 34.0)] {
            assert!(
                (Quantity::Calls.slack(budget) - most).abs() < 1e-6,
                "{budget}"
            );
        }
    }

    #[test]
    fn limits_are_those_of_operations_in_the_budget() {
        let text = std::fs::read_to_string(top().join(FILE)).expect("the file");
        let committed = budget(&text);
        for (provider, key, limit) in LIMITS {
            assert!(f64::from(committed.0[provider][key]) <= limit, "{key}");
        }
        assert!(limit("shm", "empty-read").is_infinite());
    }

    #[test]
    fn the_file_is_a_budget_of_known_operations() {
        let text = std::fs::read_to_string(top().join(FILE)).expect("the file");
        let committed = budget(&text);
        for provider in ["tcp", "shm"] {
            assert!(committed.0.contains_key(provider));
        }
        for key in committed.0.values().flat_map(BTreeMap::keys) {
            assert!(parse_key(key).is_ok(), "{key}");
        }
        assert_eq!(budget(&committed.text().expect("text")), committed);
    }
}
