//! Taking all samples, in turns.

use anyhow::{Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use super::args::{Options, Side};
use super::cores;
use super::member::ELEMENT;
use super::pair::{Crew, Pair, Process, Role, Start};
use super::plan::Plan;
use super::protocol::Test;
use super::report::{self, Growth, Insertion, Library, Measured, Report, Series};
use super::subject::{Lacks, Subject, Wanted};
use super::team::Team;

/// The providers that Ripstop measures by default.
const PROVIDERS: [&str; 2] = ["tcp", "shm"];

/// Processes of a group, unless the user says how many.
const RANKS: u32 = 4;

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
    let ranks = options.collective.then(|| options.ranks.unwrap_or(RANKS));
    let processes = match (ranks, cores) {
        (Some(ranks), _) => group_cores(options, ranks as usize)?,
        (None, Some((client, server))) => vec![client, server],
        (None, None) => Vec::new(),
    };
    let mut report = Report {
        cores,
        ranks,
        memfd: options.memfd,
        rounds: plan.rounds,
        libraries: Vec::new(),
        series: Vec::new(),
        insertions: Vec::new(),
    };
    let lacking = each(&providers, options.provider.is_some(), |provider| {
        let starts: Vec<Start<'_>> = subjects
            .iter()
            .map(|subject| Start {
                subject,
                provider,
                cores: processes.clone(),
                largest: plan.largest(),
                wanted: plan.wanted,
                memfd: options.memfd,
            })
            .collect();
        match (options.av, ranks) {
            (Some(count), _) => insert(&starts, &plan, count, &mut report),
            (_, Some(ranks)) => gather(&starts, &plan, ranks as usize, &mut report),
            _ => exchange(&starts, &plan, &mut report),
        }
    })?;
    for what in lacking {
        eprintln!("note: {what}");
    }
    if options.json {
        println!("{:#}", report::json(&report));
    } else {
        report::print(&report);
    }
    Ok(())
}

/// Measures each provider. Those that were not asked for may be lacking in a library: gives what
/// to say of them, unless there is no other.
fn each(
    providers: &[&str],
    asked: bool,
    mut measure: impl FnMut(&str) -> Result<()>,
) -> Result<Vec<String>> {
    let mut lacking = Vec::new();
    for provider in providers {
        match measure(provider) {
            Err(error) if !asked && error.is::<Lacks>() => {
                lacking.push(format!("{error}, so {provider} was left out"));
            }
            other => other?,
        }
    }
    ensure!(lacking.len() < providers.len(), "{}", lacking.join("; "));
    Ok(lacking)
}

/// The cores of a group of so many, by rank; none when there are not enough.
///
/// # Errors
/// For sizes that are no whole elements.
fn group_cores(options: &Options, ranks: usize) -> Result<Vec<usize>> {
    for size in &options.sizes {
        ensure!(
            size.is_multiple_of(ELEMENT),
            "--sizes: {size} bytes are no whole elements of {ELEMENT}: give sizes such as 8,4K,1M"
        );
    }
    let mut cores = cores::allowed()?;
    if cores.len() < ranks {
        eprintln!(
            "note: {ranks} processes take turns on {} cores, so times say little; ratios say more",
            cores.len()
        );
        cores.clear();
    }
    cores.truncate(ranks);
    Ok(cores)
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
    // Two processes that take turns on one core hand nothing over between caches.
    let bare =
        starts[0].provider == "shm" && starts[0].cores.len() == 2 && plan.wanted != Wanted::Groups;
    let mut handovers = Vec::new();
    let series = rounds(starts, plan, report, Pair::start, |pair| {
        if bare {
            let took = pair.hand_over(plan.handovers())?;
            handovers.push(took as f64 / f64::from(plan.handovers()) / 2.0);
        }
        Ok(())
    })?;
    report.series.push(Series {
        handovers,
        ..series
    });
    Ok(())
}

/// Barriers and reductions in a group of processes of each subject.
fn gather(starts: &[Start<'_>], plan: &Plan, ranks: usize, report: &mut Report) -> Result<()> {
    let start = |start: &Start<'_>| Team::start(start, ranks);
    let series = rounds(starts, plan, report, start, |_| Ok(()))?;
    report.series.push(series);
    Ok(())
}

/// All samples: processes are started anew in each round, in which `before` gets those of the
/// first subject.
fn rounds<C: Crew>(
    starts: &[Start<'_>],
    plan: &Plan,
    report: &mut Report,
    start: impl Fn(&Start<'_>) -> Result<C>,
    mut before: impl FnMut(&mut C) -> Result<()>,
) -> Result<Series> {
    let tests = plan.tests();
    let bar = bar(plan.rounds as usize * tests.len() * starts.len(), starts);
    let mut nanos = vec![vec![Vec::new(); tests.len()]; starts.len()];
    let mut libraries = Vec::new();
    let cleared = |_: &anyhow::Error| bar.finish_and_clear();
    for round in 0..plan.rounds {
        bar.set_message(format!("round {}, processes start", round + 1));
        let crews: Result<Vec<C>> = starts.iter().map(&start).collect();
        let mut crews = crews.inspect_err(cleared)?;
        if round == 0 {
            let about = starts.iter().zip(&crews);
            libraries = about
                .map(|(start, crew)| library(start, crew.one()))
                .collect();
        }
        before(&mut crews[0]).inspect_err(cleared)?;
        for (number, test) in tests.iter().enumerate() {
            bar.set_message(format!("round {}, {}", round + 1, describe(test)));
            for subject in turns(starts.len(), round) {
                let took = crews[subject].take(*test);
                nanos[subject][number].push(took.inspect_err(cleared)?);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    report.add(libraries);
    Ok(Series {
        provider: starts[0].provider.to_owned(),
        tests,
        nanos,
        handovers: Vec::new(),
    })
}

/// Peers into the address vector of one process of each subject.
fn insert(starts: &[Start<'_>], plan: &Plan, count: u32, report: &mut Report) -> Result<()> {
    let bar = bar(plan.rounds as usize * starts.len(), starts);
    let mut growth = vec![Vec::new(); starts.len()];
    let mut libraries = vec![None; starts.len()];
    for round in 0..plan.rounds {
        bar.set_message(format!("round {}, {count} peers", round + 1));
        for subject in turns(starts.len(), round) {
            let mut process = Process::start(&starts[subject], Role::Side(Side::Client))?;
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
    report.add(libraries.into_iter().flatten().collect());
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
        providers: vec![Measured {
            name: process.provider.clone(),
            api: process.api.clone(),
        }],
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
    fn what_a_library_lacks_is_left_out() {
        let lacks = |what: &str| Err(Lacks(format!("no {what}")).into());
        let left_out = each(&["tcp", "shm"], false, |provider| match provider {
            "shm" => lacks(provider),
            _ => Ok(()),
        });
        assert_eq!(left_out.expect("tcp"), ["no shm, so shm was left out"]);
        let nothing = each(&["tcp", "shm"], false, lacks).expect_err("neither");
        assert!(nothing.to_string().contains("no tcp"), "{nothing}");
        assert!(each(&["shm"], true, lacks).is_err(), "asked for");
        let broken = each(&["tcp", "shm"], false, |_| Err(anyhow::anyhow!("broken")));
        assert_eq!(broken.expect_err("broken").to_string(), "broken");
    }

    #[test]
    fn subjects_take_turns() {
        assert_eq!(turns(2, 0), [0, 1]);
        assert_eq!(turns(2, 1), [1, 0]);
        assert_eq!(turns(1, 1), [0]);
    }
}
