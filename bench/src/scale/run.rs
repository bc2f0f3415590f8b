//! Measuring all points, in turns.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ripstop_cli::perf::{self, Crew, Setup, Wanted, choose_cores, find_library, warn_of_load};

use super::protocol::{Job, grouped};
use super::record::{Curve, Figures, Outcome, Point, Record};
use super::team::Start;
use super::{Options, groups, mpi};
use crate::machine;
use crate::progress::bar;
use crate::subject::{Role, Subject, peer_label};

/// Samples of a point, and the largest one that has as many: larger ones have one.
const ROUNDS: u32 = 3;
const SMALL: u64 = 1_000;

/// How often a cache line goes there and back to see how far the cores are from each other.
const HANDOVERS: u32 = 20_000;

/// What a column of figures comes from.
enum Source {
    Library(PathBuf),
    Mpi(PathBuf),
}

struct Plan<'a> {
    options: &'a Options,
    sources: Vec<Source>,
    cores: Option<(usize, usize)>,
}

/// Measures all that the options ask for.
///
/// # Errors
/// When a library is not there, or processes cannot be started at all.
pub(super) fn measure(options: &Options) -> Result<Record> {
    let asked = match options.cores[..] {
        [a, b] => Some((a, b)),
        _ => None,
    };
    let cores = choose_cores(asked)?;
    warn_of_load(cores);
    let (subjects, sources) = subjects(options)?.into_iter().unzip();
    let plan = Plan {
        options,
        sources,
        cores,
    };
    let mut record = Record {
        machine: machine::describe(),
        commands: vec![std::env::args().skip(1).collect::<Vec<_>>().join(" ")],
        handovers: plan.handover()?.into_iter().collect(),
        subjects,
        points: Vec::new(),
    };
    let asked = |curve: &Curve| options.curve.is_empty() || options.curve.contains(curve);
    for curve in Curve::ALL.into_iter().filter(asked) {
        for provider in ["tcp", "shm"] {
            if options.comparison.provider.is_empty()
                || options.comparison.provider.iter().any(|p| p == provider)
            {
                record.points.extend(plan.curve(curve, provider));
            }
        }
    }
    record.handovers.extend(plan.handover()?);
    Ok(record)
}

/// Ours, the peers, and an MPI.
fn subjects(options: &Options) -> Result<Vec<(Subject, Source)>> {
    let subject = |role, label: &str, path: PathBuf| {
        let shown = Subject {
            role,
            label: label.to_owned(),
            about: path.display().to_string(),
        };
        let source = match role {
            Role::Mpi => Source::Mpi(path),
            _ => Source::Library(path),
        };
        (shown, source)
    };
    let ours = options.comparison.ours()?;
    let mut subjects = vec![subject(Role::Ours, "ours", ours)];
    for (number, peer) in options.comparison.peer.iter().enumerate() {
        let found = find_library(peer)?;
        subjects.push(subject(Role::Peer, &peer_label(number), found));
    }
    if let Some(venv) = &options.mpi {
        mpi::check(venv)?;
        subjects.push(subject(Role::Mpi, "MPICH", venv.clone()));
    }
    Ok(subjects)
}

impl Plan<'_> {
    fn points(&self, curve: Curve) -> Vec<u64> {
        let mut points = match self.options.points.as_slice() {
            [] => curve.points().to_vec(),
            given => given.to_vec(),
        };
        // A group has two processes at least.
        points.retain(|&point| {
            (!self.options.quick || point <= SMALL) && (curve != Curve::Collectives || point > 1)
        });
        points.sort_unstable();
        points.dedup();
        points
    }

    const fn rounds(&self, count: u64) -> u32 {
        match self.options.rounds {
            _ if count > SMALL || self.options.quick => 1,
            Some(rounds) => rounds,
            None => ROUNDS,
        }
    }

    /// All points of a curve. A subject that has not reached one is left out at larger ones.
    fn curve(&self, curve: Curve, provider: &str) -> Vec<Point> {
        let points = self.points(curve);
        let steps: u32 = points.iter().map(|&count| self.rounds(count)).sum();
        let bar = bar(provider, steps as usize * self.sources.len());
        let mut ended = vec![false; self.sources.len()];
        let mut found = Vec::new();
        for count in points {
            let mut point = Point {
                curve,
                provider: provider.to_owned(),
                count,
                outcomes: vec![Outcome::default(); self.sources.len()],
            };
            for round in 0..self.rounds(count) {
                let mut order: Vec<usize> = (0..self.sources.len()).collect();
                if round % 2 == 1 {
                    order.reverse();
                }
                for subject in order {
                    bar.set_message(format!("{} {}", curve.word(), grouped(count)));
                    if !ended[subject] && self.has(subject, curve, provider) {
                        let sample = self.sample(subject, curve, provider, count);
                        ended[subject] = take(&mut point.outcomes[subject], sample);
                    }
                    bar.inc(1);
                }
            }
            found.push(point);
        }
        bar.finish_and_clear();
        found
    }

    /// Whether there is anything to measure of a subject. An MPI has collectives and its own shared
    /// memory.
    fn has(&self, subject: usize, curve: Curve, provider: &str) -> bool {
        match self.sources[subject] {
            Source::Library(_) => true,
            Source::Mpi(_) => curve == Curve::Collectives && provider == "shm",
        }
    }

    fn sample(&self, subject: usize, curve: Curve, provider: &str, count: u64) -> Result<Figures> {
        let until = Instant::now() + Duration::from_secs(self.options.limit);
        let lib = match &self.sources[subject] {
            Source::Library(lib) => lib,
            Source::Mpi(venv) => return mpi::sample(venv, count, until),
        };
        let start = Start {
            lib,
            provider,
            cores: self.cores,
            until,
        };
        match curve {
            Curve::Peers => start.peers(count),
            Curve::Posted => start.alone(Job::Posted(count)),
            Curve::Unexpected => start.alone(Job::Unexpected(count)),
            Curve::Regions => start.alone(Job::Regions(count)),
            Curve::Collectives => groups::sample(lib, provider, count),
        }
    }

    /// Nanoseconds of a handover of a cache line; none where both sides share a core.
    fn handover(&self) -> Result<Option<f64>> {
        let Some((a, b)) = self.cores.filter(|(a, b)| a != b) else {
            return Ok(None);
        };
        let mut crew = Crew::start(&perf::Start {
            subject: &perf::Subject::Machine,
            processes: 2,
            cores: vec![a, b],
            setup: Setup {
                provider: "shm".to_owned(),
                wanted: Wanted::Messages,
                rank: 0,
                core: None,
                largest: 1,
                bare: true,
                memfd: false,
            },
        })
        .context("cannot measure the handover of a cache line")?;
        let nanos = crew.hand_over(HANDOVERS)? as f64;
        Ok(Some(nanos / f64::from(HANDOVERS) / 2.0))
    }
}

/// Takes a sample into an outcome; whether that is the end of the curve.
fn take(outcome: &mut Outcome, sample: Result<Figures>) -> bool {
    match sample {
        Ok(figures) => outcome.samples.push(figures),
        Err(error) => outcome.ended = Some(format!("{error:#}")),
    }
    outcome.ended.is_some()
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn an_error_ends_a_curve() {
        let mut outcome = Outcome::default();
        assert!(!take(&mut outcome, Ok(Figures::new())));
        let error = anyhow!("Too many open files").context("fi_enable");
        assert!(take(&mut outcome, Err(error)));
        assert_eq!(outcome.samples.len(), 1);
        let why = outcome.ended.expect("an end");
        assert_eq!(why, "fi_enable: Too many open files");
    }
}
