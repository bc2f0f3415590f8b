//! Taking all samples, in turns.

use anyhow::{Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use super::args::Options;
use super::cores;
use super::crew::{Crew, Start};
use super::member::ELEMENT;
use super::opened::MAPS;
use super::plan::Plan;
use super::protocol::{Kind, Setup, Test};
use super::report::{self, Library, Report, Series, Taken};
use super::subject::{Lacks, Subject, Wanted};
use crate::outln;
use crate::providers::note_hooks;

/// The providers that Ripstop measures by default.
const PROVIDERS: [&str; 2] = ["tcp", "shm"];

/// Those that can be asked for: lnx takes the way of shm between processes of one machine, and `verbs;ofi_rxm` needs a device.
const KNOWN: [&str; 4] = ["tcp", "shm", "lnx", "verbs;ofi_rxm"];

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
    if subjects.contains(&Subject::Native) {
        note_hooks(match options.lib.is_empty() {
            true => "give one with --lib",
            false => "A is measured without it",
        });
    }
    let providers = providers(options, &subjects)?;
    let plan = Plan::new(options);
    let cores = cores::choose(options.cores)?;
    cores::warn(cores);
    let ranks = options.collective.then(|| options.ranks.unwrap_or(RANKS));
    let (processes, places) = match (ranks, cores) {
        (Some(ranks), _) => (ranks as usize, group_cores(options, ranks as usize)?),
        (None, Some((client, server))) => (2, vec![client, server]),
        (None, None) => (2, Vec::new()),
    };
    let mut report = Report {
        cores,
        ranks,
        memfd: options.memfd,
        both: options.both,
        rounds: plan.rounds,
        libraries: Vec::new(),
        series: Vec::new(),
    };
    let lacking = each(&providers, options.provider.is_some(), |provider| {
        let start = |subject| Start {
            subject,
            // Peers are inserted by one alone.
            processes: if plan.peers.is_some() { 1 } else { processes },
            cores: places.clone(),
            setup: Setup {
                provider: provider.to_owned(),
                wanted: plan.wanted,
                rank: 0,
                core: None,
                largest: plan.largest(),
                bare: *subject == Subject::Machine,
                // What a program in Rust does that wants its memory reached: peers map it.
                memfd: match subject {
                    Subject::Native => MAPS.contains(&provider),
                    Subject::Library(_) => options.memfd,
                    Subject::Machine => false,
                },
            },
        };
        let starts: Vec<Start<'_>> = subjects.iter().map(start).collect();
        rounds(&starts, &plan, &mut report)
    })?;
    for what in lacking {
        eprintln!("note: {what}");
    }
    if options.json {
        outln!("{:#}", report::json(&report));
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
        !ours || KNOWN.contains(&asked.as_str()),
        "Ripstop has no provider {asked}: choose {}",
        KNOWN.join(", ")
    );
    Ok(vec![asked])
}

/// All samples of a provider: processes are started anew in each round.
fn rounds(starts: &[Start<'_>], plan: &Plan, report: &mut Report) -> Result<()> {
    let Setup {
        provider, wanted, ..
    } = &starts[0].setup;
    // Two processes that take turns on one core hand nothing over between caches.
    let pair = *wanted != Wanted::Groups && starts[0].processes == 2 && starts[0].cores.len() == 2;
    let tests = plan.tests();
    let bar = bar(plan.rounds as usize * tests.len() * starts.len(), provider);
    let new = |test| Taken {
        test,
        samples: vec![Vec::new(); starts.len()],
    };
    let mut series = Series {
        provider: provider.clone(),
        taken: tests.into_iter().map(new).collect(),
        handovers: Vec::new(),
    };
    let mut libraries = Vec::new();
    let measured = (0..plan.rounds).try_for_each(|round| {
        bar.set_message(format!("round {}, processes start", round + 1));
        let mut crews = starts.iter().map(Crew::start).collect::<Result<Vec<_>>>()?;
        if round == 0 {
            let library = |(start, crew): (&Start<'_>, &Crew)| Library {
                name: start.subject.to_string(),
                path: start.subject.path().map(ToOwned::to_owned),
                providers: vec![crew.provider().clone()],
            };
            libraries = starts.iter().zip(&crews).map(library).collect();
        }
        if pair && provider == "shm" {
            let took = crews[0].hand_over(plan.handovers())?;
            let each = took as f64 / f64::from(plan.handovers()) / 2.0;
            series.handovers.push(each);
        }
        for Taken { test, samples } in &mut series.taken {
            bar.set_message(format!("round {}, {}", round + 1, describe(test)));
            for subject in turns(starts.len(), round) {
                samples[subject].push(crews[subject].take(*test)?);
                bar.inc(1);
            }
        }
        anyhow::Ok(())
    });
    bar.finish_and_clear();
    measured?;
    report.add(libraries);
    report.series.push(series);
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

fn describe(test: &Test) -> String {
    match test.kind {
        Kind::Insert => format!("{} peers", test.count),
        kind => format!("{} of {} B", kind.word(), test.size),
    }
}

/// A bar on standard error, if that is a terminal. It moves only between samples: drawing in
/// the middle of one would take time from a core.
fn bar(steps: usize, provider: &str) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(provider.to_owned());
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
