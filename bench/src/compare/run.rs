//! Taking the samples, in turns.

use anyhow::{Result, ensure};
use ripstop_cli::perf::{self, Crew, Kind, Test, WINDOW, Wanted, batch, warn_of_load};

use super::columns::{Column, Place, Taker, columns};
use super::cores::Cores;
use super::samples::{Record, Round, Sweep, Taken};
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

/// Sizes of the sweeps of depths and of peers, in bytes.
const DEPTH_SIZES: [usize; 3] = [8, 4 << 10, 64 << 10];
const PEERS_SIZES: [usize; 2] = [8, 4 << 10];

/// Rounds of a whole run and of a quick one.
const ROUNDS: u32 = 7;
const QUICK_ROUNDS: u32 = 3;

/// How often a cache line goes there and back beside each sample: about a millisecond with what comes
/// before it.
const HANDOVERS: u32 = 3_000;

/// Tests of the same processes.
struct Part {
    wanted: Wanted,
    /// Processes beside the first.
    peers: u32,
    tests: Vec<(Sweep, Test)>,
}

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
    let cores = Cores::choose(options.cores)?;
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
    let providers = match options.comparison.provider.as_slice() {
        [] => vec!["tcp", "shm"],
        given => given.iter().map(String::as_str).collect(),
    };
    for provider in providers {
        for part in plan.parts() {
            record.tests.extend(plan.measure(provider, &part)?);
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
    /// Messages, memory, and each number of peers.
    fn parts(&self) -> Vec<Part> {
        let peers = self.options.peers.iter();
        let peers = peers.map(|&peers| (Wanted::Messages, peers, &[Tests::Peers][..]));
        let messages = &[Tests::Latency, Tests::Messages, Tests::Depth][..];
        let memory = &[Tests::Writes, Tests::Reads, Tests::Depth][..];
        let pairs = [(Wanted::Messages, 1, messages), (Wanted::Memory, 1, memory)];
        let parts = pairs.into_iter().chain(peers);
        let parts = parts.map(|(wanted, peers, tests)| Part {
            wanted,
            peers,
            tests: self.tests(wanted, peers, tests),
        });
        parts.filter(|part| !part.tests.is_empty()).collect()
    }

    /// What is done of these tests by endpoints that do what is wanted.
    fn tests(&self, wanted: Wanted, peers: u32, tests: &[Tests]) -> Vec<(Sweep, Test)> {
        let asked = &self.options.test;
        let tests = tests
            .iter()
            .filter(|test| asked.is_empty() || asked.contains(test));
        let mut found = Vec::new();
        for &test in tests {
            let (sweep, sizes, depths) = match test {
                Tests::Depth => (
                    Sweep::Depth,
                    self.few(&DEPTH_SIZES),
                    &self.options.depth[..],
                ),
                Tests::Peers => (Sweep::Peers, self.few(&PEERS_SIZES), &[WINDOW][..]),
                _ => (Sweep::Size, self.sizes.clone(), &[WINDOW][..]),
            };
            let writes = |kind: &&Kind| matches!(kind, Kind::Write) == (wanted == Wanted::Memory);
            let kinds = test.kinds().iter();
            for &kind in kinds.filter(|kind| sweep != Sweep::Depth || writes(kind)) {
                for &size in &sizes {
                    let at = |&depth: &u32| {
                        let test = Test {
                            depth,
                            ..Test::new(kind, size, 0)
                        };
                        (
                            sweep,
                            Test {
                                count: self.count(test, peers),
                                ..test
                            },
                        )
                    };
                    found.extend(depths.iter().map(at));
                }
            }
        }
        found
    }

    /// The sizes of a sweep of something else: these, or those that were asked for.
    fn few(&self, sizes: &[usize]) -> Vec<usize> {
        match self.options.sizes.is_empty() {
            true => sizes.to_vec(),
            false => self.sizes.clone(),
        }
    }

    /// How many of a test make a sample.
    fn count(&self, test: Test, peers: u32) -> u32 {
        let shared = matches!(self.cores[..], [a, b] if a == b);
        count(test, peers, self.options.quick, shared)
    }

    /// All rounds of a part; processes are started anew in each.
    fn measure(&self, provider: &str, part: &Part) -> Result<Vec<Taken>> {
        let new = |(sweep, test): &(Sweep, Test)| Taken {
            provider: provider.to_owned(),
            kind: test.kind,
            size: test.size,
            sweep: *sweep,
            depth: test.depth,
            peers: part.peers,
            count: test.count,
            rounds: Vec::new(),
        };
        let mut taken: Vec<Taken> = part.tests.iter().map(new).collect();
        let bar = bar(provider, part.tests.len() * self.rounds as usize);
        let largest = part.tests.iter().map(|(_, test)| test.size).max();
        let place = Place {
            provider,
            wanted: part.wanted,
            largest: largest.unwrap_or(1),
            cores: self.cores_of(part.peers),
            peers: part.peers,
        };
        for round in 0..self.rounds {
            let mut probe = self.probe()?;
            let takers = self.columns.iter().map(|column| column.start(&place));
            let mut takers = takers.collect::<Result<Vec<_>>>()?;
            for ((_, test), taken) in part.tests.iter().zip(&mut taken) {
                bar.set_message(taken.name());
                let found = self.round(&mut takers, &mut probe, *test, round)?;
                taken.rounds.push(found);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(taken)
    }

    /// The cores by rank: all but the first process share the second core.
    fn cores_of(&self, peers: u32) -> Vec<usize> {
        let [first, second] = self.cores[..] else {
            return Vec::new();
        };
        let rest = std::iter::repeat_n(second, peers as usize);
        std::iter::once(first).chain(rest).collect()
    }

    /// The processes that hand a cache line over beside each sample.
    fn probe(&self) -> Result<Crew> {
        let place = Place {
            provider: "shm",
            wanted: Wanted::Messages,
            largest: 1,
            cores: self.cores.clone(),
            peers: 1,
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
            one_core: matches!(self.cores[..], [a, b] if a == b),
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

/// Messages or operations of a sample, of each sender: tens of milliseconds. Where both sides share a
/// core, each waits for the other's turn.
fn count(test: Test, peers: u32, quick: bool, shared: bool) -> u32 {
    let Test {
        kind, size, depth, ..
    } = test;
    let waits = matches!(kind, Kind::Latency | Kind::Exchange);
    let count = match kind {
        Kind::Latency | Kind::Exchange | Kind::Read | Kind::ReadBoth => {
            8_000 / (1 + size / (16 << 10))
        }
        _ => 40_000 / (1 + size / (4 << 10)),
    };
    let count = match (shared, waits || depth < WINDOW) {
        (false, _) => count,
        (true, true) => count / 40,
        (true, false) => count / 10,
    };
    let count = if quick { count / 4 } else { count };
    let count = u32::try_from(count).unwrap_or(u32::MAX) / peers;
    match waits {
        true => count.max(10),
        // The receiver acknowledges whole batches.
        false => count.max(1).next_multiple_of(batch(depth)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_whole_batches() {
        for (size, depth) in SIZES
            .into_iter()
            .zip([1, 2, 3, 4, 16, 64, 256].into_iter().cycle())
        {
            let test = |kind| Test {
                depth,
                ..Test::new(kind, size, 0)
            };
            for kind in [Kind::Stream, Kind::WriteBoth, Kind::Read, Kind::Gather] {
                for (quick, shared, peers) in
                    [(false, false, 1), (true, false, 64), (true, true, 1)]
                {
                    let count = count(test(kind), peers, quick, shared);
                    assert!(count > 0 && count.is_multiple_of(batch(depth)));
                }
            }
            assert!(count(test(Kind::Latency), 1, true, true) >= 10);
        }
    }
}
