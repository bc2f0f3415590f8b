//! Taking all samples, in turns.

use anyhow::{Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use super::args::{Options, Side};
use super::cores;
use super::pair::{Pair, Process, Start};
use super::plan::Plan;
use super::protocol::Test;
use super::report::{self, Growth, Insertion, Library, Report, Series};
use super::subject::Subject;

/// The providers that Ripstop measures by default.
const PROVIDERS: [&str; 2] = ["tcp", "shm"];

/// Those whose address vectors take the addresses that are inserted.
const IP: [&str; 1] = ["tcp"];

/// The subcommand.
///
/// # Errors
/// For options that ask for what is not there, and when a process fails.
pub fn main(options: &Options) -> Result<()> {
    let subjects = Subject::list(&options.lib)?;
    let providers = providers(options, &subjects)?;
    let plan = Plan::new(options);
    let cores = cores::choose(options.cores)?;
    cores::warn(cores);
    let mut report = Report {
        cores,
        rounds: plan.rounds,
        libraries: Vec::new(),
        series: Vec::new(),
        insertions: Vec::new(),
    };
    for provider in providers {
        let starts: Vec<Start<'_>> = subjects
            .iter()
            .map(|subject| Start {
                subject,
                provider,
                cores,
                largest: plan.largest(),
                rma: options.rma,
            })
            .collect();
        match options.av {
            Some(count) => insert(&starts, &plan, count, &mut report)?,
            None => exchange(&starts, &plan, &mut report)?,
        }
    }
    if options.json {
        println!("{:#}", report::json(&report));
    } else {
        report::print(&report);
    }
    Ok(())
}

fn providers<'a>(options: &'a Options, subjects: &[Subject]) -> Result<Vec<&'a str>> {
    let Some(asked) = &options.provider else {
        return Ok(match options.av {
            Some(_) => IP.to_vec(),
            None => PROVIDERS.to_vec(),
        });
    };
    let ours = subjects.contains(&Subject::Native);
    ensure!(
        !ours || PROVIDERS.contains(&asked.as_str()),
        "Ripstop has no provider {asked}: choose {}",
        PROVIDERS.join(" or ")
    );
    Ok(vec![asked])
}

/// Messages between two processes of each subject.
fn exchange(starts: &[Start<'_>], plan: &Plan, report: &mut Report) -> Result<()> {
    let tests = plan.tests();
    let bar = bar(plan.rounds as usize * tests.len() * starts.len(), starts);
    // Two processes that take turns on one core hand nothing over between caches.
    let bare = starts[0].provider == "shm" && starts[0].cores.is_some() && !plan.rma;
    let mut handovers = Vec::new();
    let mut nanos = vec![vec![Vec::new(); tests.len()]; starts.len()];
    let mut libraries = Vec::new();
    for round in 0..plan.rounds {
        let mut pairs = starts.iter().map(Pair::start).collect::<Result<Vec<_>>>()?;
        if round == 0 {
            libraries = starts
                .iter()
                .zip(&pairs)
                .map(|(start, pair)| library(start, pair.client()))
                .collect();
        }
        if bare {
            bar.set_message(format!("round {}, handover of a cache line", round + 1));
            let took = pairs[0].hand_over(plan.handovers());
            let took = took.inspect_err(|_| bar.finish_and_clear())?;
            handovers.push(took as f64 / f64::from(plan.handovers()) / 2.0);
        }
        for (number, test) in tests.iter().enumerate() {
            bar.set_message(format!("round {}, {}", round + 1, describe(test)));
            for subject in turns(starts.len(), round) {
                let took = pairs[subject].take(*test);
                nanos[subject][number].push(took.inspect_err(|_| bar.finish_and_clear())?);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    report.series.push(Series {
        provider: starts[0].provider.to_owned(),
        tests,
        nanos,
        handovers,
    });
    report.libraries = libraries;
    Ok(())
}

/// Peers into the address vector of one process of each subject.
fn insert(starts: &[Start<'_>], plan: &Plan, count: u32, report: &mut Report) -> Result<()> {
    let bar = bar(plan.rounds as usize * starts.len(), starts);
    let mut growth = vec![Vec::new(); starts.len()];
    let mut libraries = vec![None; starts.len()];
    for round in 0..plan.rounds {
        bar.set_message(format!("round {}, {count} peers", round + 1));
        for subject in turns(starts.len(), round) {
            let mut process = Process::start(&starts[subject], Side::Client)?;
            let (nanos, bytes) = process
                .insert(count)
                .inspect_err(|_| bar.finish_and_clear())?;
            growth[subject].push(Growth { nanos, bytes });
            libraries[subject] = Some(library(&starts[subject], &process));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    report.insertions.push(Insertion {
        provider: starts[0].provider.to_owned(),
        count,
        growth,
    });
    report.libraries = libraries.into_iter().flatten().collect();
    Ok(())
}

/// The order of subjects in a round: A B, then B A, so that neither always comes second.
fn turns(subjects: usize, round: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..subjects).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

fn library(start: &Start<'_>, process: &Process) -> Library {
    Library {
        name: start.subject.to_string(),
        path: start.subject.path().map(ToOwned::to_owned),
        provider: process.provider.clone(),
        api: process.api.clone(),
    }
}

fn describe(test: &Test) -> String {
    format!("{} of {} B", test.kind.word(), test.size)
}

/// A bar on standard error, if that is a terminal. It moves only between samples: drawing in
/// the middle of one would take time from a core.
fn bar(steps: usize, starts: &[Start<'_>]) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(starts[0].provider.to_owned());
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_take_turns() {
        assert_eq!(turns(2, 0), [0, 1]);
        assert_eq!(turns(2, 1), [1, 0]);
        assert_eq!(turns(1, 1), [0]);
    }
}
