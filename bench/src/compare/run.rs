//! Taking the samples, in turns.

use anyhow::{Result, ensure};
use ripstop_cli::perf::{self, BATCH, Crew, Kind, Test, Wanted, bytes, choose_cores, warn_of_load};

use super::columns::{Column, Place, Taker, columns};
use super::samples::{Record, Round, Taken};
use super::{Options, Tests};
use crate::machine;
use crate::progress::bar;

/// Sizes of a whole run, in bytes.
const SIZES: [usize; 12] = [
    1,
    8,
    64,
    512,
    4 << 10,
    8 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
];

/// Sizes of a quick run, in bytes.
const QUICK_SIZES: [usize; 4] = [8, 4 << 10, 64 << 10, 1 << 20];

/// Rounds of a whole run and of a quick one.
const ROUNDS: u32 = 7;
const QUICK_ROUNDS: u32 = 3;

/// How often a cache line goes there and back beside each sample: about a millisecond with what comes
/// before it.
const HANDOVERS: u32 = 3_000;

/// What is done, and how often.
struct Plan<'a> {
    options: &'a Options,
    columns: Vec<Column>,
    sizes: Vec<usize>,
    rounds: u32,
    cores: Vec<usize>,
}

/// Measures all that the options ask for.
///
/// # Errors
/// When a library is not there or a process fails.
pub(super) fn measure(options: &Options) -> Result<Record> {
    let asked = match options.cores[..] {
        [a, b] => Some((a, b)),
        _ => None,
    };
    let cores = choose_cores(asked)?;
    warn_of_load(cores);
    let plan = Plan {
        options,
        columns: columns(options)?,
        sizes: sizes(options),
        rounds: options.pairs.unwrap_or(match options.quick {
            true => QUICK_ROUNDS,
            false => ROUNDS,
        }),
        cores: cores.map_or_else(Vec::new, |(a, b)| vec![a, b]),
    };
    let mut record = Record {
        machine: machine::describe(),
        command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        cores,
        subjects: plan.columns.iter().map(|c| c.shown.clone()).collect(),
        tests: Vec::new(),
    };
    let providers = match options.provider.as_slice() {
        [] => vec!["tcp", "shm"],
        given => given.iter().map(String::as_str).collect(),
    };
    for provider in providers {
        for wanted in [Wanted::Messages, Wanted::Memory] {
            record.tests.extend(plan.measure(provider, wanted)?);
        }
    }
    ensure!(!record.tests.is_empty(), "there is nothing to measure");
    Ok(record)
}

fn sizes(options: &Options) -> Vec<usize> {
    let mut sizes = match (options.sizes.as_slice(), options.quick) {
        ([], false) => SIZES.to_vec(),
        ([], true) => QUICK_SIZES.to_vec(),
        (given, _) => given.to_vec(),
    };
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

impl Plan<'_> {
    /// The tests of endpoints that do what is wanted.
    fn tests(&self, wanted: Wanted) -> Vec<Test> {
        let all = match wanted {
            Wanted::Messages => [Tests::Latency, Tests::Messages],
            _ => [Tests::Writes, Tests::Reads],
        };
        let asked = &self.options.test;
        let tests = all
            .into_iter()
            .filter(|test| asked.is_empty() || asked.contains(test));
        let kinds = tests.flat_map(Tests::kinds).collect::<Vec<_>>();
        let of = |kind: &Kind| {
            let (kind, quick) = (*kind, self.options.quick);
            self.sizes.iter().map(move |&size| Test {
                kind,
                size,
                count: count(kind, size, quick),
            })
        };
        kinds.iter().flat_map(of).collect()
    }

    /// All rounds of a provider; processes are started anew in each.
    fn measure(&self, provider: &str, wanted: Wanted) -> Result<Vec<Taken>> {
        let tests = self.tests(wanted);
        let new = |test: &Test| Taken {
            provider: provider.to_owned(),
            kind: test.kind,
            size: test.size,
            count: test.count,
            rounds: Vec::new(),
        };
        let mut taken: Vec<Taken> = tests.iter().map(new).collect();
        let bar = bar(provider, tests.len() * self.rounds as usize);
        for round in 0..self.rounds {
            if tests.is_empty() {
                break;
            }
            let place = Place {
                provider,
                wanted,
                largest: self.sizes.last().copied().unwrap_or(1),
                cores: &self.cores,
            };
            let mut probe = self.probe()?;
            let takers = self.columns.iter().map(|column| column.start(&place));
            let mut takers = takers.collect::<Result<Vec<_>>>()?;
            for (test, taken) in tests.iter().zip(&mut taken) {
                bar.set_message(format!("{} {}", test.kind.word(), bytes(test.size)));
                taken
                    .rounds
                    .push(self.round(&mut takers, &mut probe, *test, round)?);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(taken)
    }

    /// The processes that hand a cache line over beside each sample.
    fn probe(&self) -> Result<Crew> {
        let place = Place {
            provider: "shm",
            wanted: Wanted::Messages,
            largest: 1,
            cores: &self.cores,
        };
        place.start(&perf::Subject::Machine)
    }

    /// A sample of each, the handover before each and after the last.
    fn round(
        &self,
        takers: &mut [Option<Taker<'_>>],
        probe: &mut Crew,
        test: Test,
        round: u32,
    ) -> Result<Round> {
        let mut order: Vec<usize> = (0..takers.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        let mut found = Round {
            handovers: Vec::new(),
            nanos: vec![None; takers.len()],
        };
        for subject in order {
            let Some(taker) = &mut takers[subject] else {
                continue;
            };
            found.handovers.extend(self.handover(probe)?);
            found.nanos[subject] = taker.take(test)?;
        }
        found.handovers.extend(self.handover(probe)?);
        Ok(found)
    }

    /// Nanoseconds of a handover; none where both sides share a core, or there is no telling.
    fn handover(&self, probe: &mut Crew) -> Result<Option<f64>> {
        let [a, b] = self.cores[..] else {
            return Ok(None);
        };
        if a == b {
            return Ok(None);
        }
        let nanos = probe.hand_over(HANDOVERS)? as f64;
        Ok(Some(nanos / f64::from(HANDOVERS) / 2.0))
    }
}

/// Messages or operations of a sample: tens of milliseconds.
fn count(kind: Kind, size: usize, quick: bool) -> u32 {
    let waits = matches!(kind, Kind::Latency | Kind::Exchange);
    let count = match kind {
        Kind::Latency | Kind::Exchange | Kind::Read | Kind::ReadBoth => {
            8_000 / (1 + size / (16 << 10))
        }
        _ => 40_000 / (1 + size / (4 << 10)),
    };
    let count = u32::try_from(if quick { count / 4 } else { count }).unwrap_or(u32::MAX);
    match waits {
        true => count.max(10),
        // The receiver acknowledges whole batches.
        false => count.max(BATCH).next_multiple_of(BATCH),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_whole_batches() {
        for size in SIZES {
            for kind in [Kind::Stream, Kind::WriteBoth, Kind::Read] {
                for quick in [false, true] {
                    assert!(count(kind, size, quick).is_multiple_of(BATCH));
                }
            }
            assert!(count(Kind::Latency, size, true) >= 10);
        }
    }
}
