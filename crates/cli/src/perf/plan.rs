//! What is measured, and with how many messages.

use super::args::Options;
use super::member::ELEMENT;
use super::protocol::{BATCH, Kind, Test};
use super::subject::Wanted;

/// Sizes of a whole run, in bytes.
const SIZES: [usize; 10] = [
    1,
    8,
    64,
    512,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
];

/// Sizes of a quick run, in bytes.
const QUICK_SIZES: [usize; 4] = [8, 4 << 10, 64 << 10, 1 << 20];

/// The tests of a run and how often each is done.
#[derive(Debug)]
pub(super) struct Plan {
    /// Message sizes in bytes, ascending.
    pub(super) sizes: Vec<usize>,
    /// Samples of each test.
    pub(super) rounds: u32,
    iterations: Option<u32>,
    quick: bool,
    /// Both sides at once.
    both: bool,
    /// What endpoints must do.
    pub(super) wanted: Wanted,
    /// Peers to insert into an address vector, instead of all else.
    pub(super) peers: Option<u32>,
}

impl Plan {
    pub(super) fn new(options: &Options) -> Self {
        let wanted = match (options.rma, options.collective) {
            (true, _) => Wanted::Memory,
            (_, true) => Wanted::Groups,
            _ => Wanted::Messages,
        };
        let mut sizes = match (options.sizes.as_slice(), options.quick) {
            ([], false) => SIZES.to_vec(),
            ([], true) => QUICK_SIZES.to_vec(),
            (given, _) => given.to_vec(),
        };
        if options.sizes.is_empty() && wanted == Wanted::Groups {
            sizes.retain(|size| size.is_multiple_of(ELEMENT) && *size <= 1 << 20);
        }
        sizes.sort_unstable();
        sizes.dedup();
        Self {
            sizes,
            rounds: options.pairs.unwrap_or(if options.quick { 3 } else { 5 }),
            iterations: options.iterations,
            quick: options.quick,
            both: options.both,
            wanted,
            peers: options.av,
        }
    }

    /// How often a cache line goes there and back in a sample of its handover.
    pub(super) fn handovers(&self) -> u32 {
        if self.quick { 20_000 } else { 100_000 }
    }

    /// The largest message.
    pub(super) fn largest(&self) -> usize {
        self.sizes.last().copied().unwrap_or(1)
    }

    /// Latency and stream of each size, or writes and reads; or a barrier and a reduction of
    /// each size; or only insertions.
    pub(super) fn tests(&self) -> Vec<Test> {
        if let Some(count) = self.peers {
            return vec![Test::new(Kind::Insert, 0, count)];
        }
        let kinds = match (self.wanted, self.both) {
            (Wanted::Messages, false) => [Kind::Latency, Kind::Stream],
            (Wanted::Messages, true) => [Kind::Exchange, Kind::StreamBoth],
            (Wanted::Memory, false) => [Kind::Write, Kind::Read],
            (Wanted::Memory, true) => [Kind::WriteBoth, Kind::ReadBoth],
            (Wanted::Groups, _) => {
                let sums = self
                    .sizes
                    .iter()
                    .map(|&size| self.test(Kind::Allreduce, size));
                return std::iter::once(self.test(Kind::Barrier, 0))
                    .chain(sums)
                    .collect();
            }
        };
        let both = |&size: &usize| kinds.map(|kind| self.test(kind, size));
        self.sizes.iter().flat_map(both).collect()
    }

    fn test(&self, kind: Kind, size: usize) -> Test {
        let count = self.iterations.unwrap_or_else(|| {
            let count = match kind {
                Kind::Latency | Kind::Exchange => 20_000 / (1 + size / (16 << 10)),
                Kind::Stream | Kind::StreamBoth | Kind::Gather | Kind::Write | Kind::WriteBoth => {
                    100_000 / (1 + size / (4 << 10))
                }
                // Each is a round trip, and some libraries take their time.
                Kind::Read | Kind::ReadBoth => 20_000 / (1 + size / (16 << 10)),
                // Members may be more than cores.
                Kind::Barrier | Kind::Allreduce | Kind::Insert => 4_000 / (1 + size / (16 << 10)),
            };
            u32::try_from(if self.quick { count / 5 } else { count }).unwrap_or(u32::MAX)
        });
        let count = match kind {
            Kind::Latency | Kind::Exchange | Kind::Barrier | Kind::Allreduce => count.max(20),
            // The receiver acknowledges whole batches.
            _ => count.max(BATCH).next_multiple_of(BATCH),
        };
        Test::new(kind, size, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::args::Options;

    #[test]
    fn a_whole_run_goes_from_a_byte_to_four_mebibytes() {
        let plan = Plan::new(&Options::default());
        assert_eq!(
            (plan.sizes[0], plan.largest(), plan.rounds),
            (1, 4 << 20, 5)
        );
        for test in plan.tests() {
            assert!(test.count >= 20);
            if test.kind == Kind::Stream {
                assert!(test.count.is_multiple_of(BATCH));
            }
        }
    }

    #[test]
    fn groups_begin_with_a_barrier() {
        let plan = Plan::new(&Options {
            collective: true,
            ..Options::default()
        });
        let tests = plan.tests();
        assert_eq!((tests[0].kind, tests[0].size), (Kind::Barrier, 0));
        assert_eq!(tests.len(), 1 + plan.sizes.len());
        for test in &tests[1..] {
            assert_eq!((test.kind, test.size % ELEMENT), (Kind::Allreduce, 0));
            assert!(test.count >= 20);
        }
    }

    #[test]
    fn both_sides_are_tests_of_their_own() {
        for (rma, kinds) in [
            (false, [Kind::Exchange, Kind::StreamBoth]),
            (true, [Kind::WriteBoth, Kind::ReadBoth]),
        ] {
            let plan = Plan::new(&Options {
                sizes: vec![8],
                both: true,
                rma,
                ..Options::default()
            });
            let found = plan.tests();
            assert_eq!(
                found.iter().map(|test| test.kind).collect::<Vec<_>>(),
                kinds
            );
        }
    }

    #[test]
    fn options_count() {
        let plan = Plan::new(&Options {
            sizes: vec![64, 8, 64],
            iterations: Some(100),
            pairs: Some(2),
            ..Options::default()
        });
        assert_eq!(
            (plan.sizes.as_slice(), plan.rounds),
            ([8, 64].as_slice(), 2)
        );
        let counts: Vec<u32> = plan.tests().iter().map(|test| test.count).collect();
        assert_eq!(counts, [100, 128, 100, 128]);
        assert!(
            Plan::new(&Options {
                quick: true,
                ..Options::default()
            })
            .sizes
            .len()
                < SIZES.len()
        );
    }
}
