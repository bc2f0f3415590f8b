//! One member of a group of processes and what is timed in it, whatever library is below.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::cores;
use super::protocol::{Kind, Test};

/// Bytes of an element, which is an `FI_DOUBLE`.
pub(super) const ELEMENT: usize = size_of::<f64>();

/// How long nothing may happen before a test is given up.
const PATIENCE: Duration = Duration::from_secs(20);
/// Empty reads between two looks at the clock.
const GLANCE: u32 = 1 << 12;

/// What a member's operations are.
const BARRIER: Test = Test::new(Kind::Barrier, 0, 1);

/// An endpoint that is in one group.
///
/// All operands are one buffer of elements that are the member's rank and one; all results go
/// to another.
pub(super) trait Member {
    /// Its address, as bytes.
    fn address(&self) -> Result<Vec<u8>>;
    /// Begins to join the group of the endpoints with these addresses, by rank.
    fn join(&mut self, addresses: &[Vec<u8>]) -> Result<()>;
    /// Reads the queues once; whether all have joined.
    fn joined(&mut self) -> Result<bool>;
    /// Starts an operation; `false` when a queue is full.
    fn start(&mut self, kind: Kind, size: usize) -> Result<bool>;
    /// Reads the completion queue once; whether the operation is over.
    fn ended(&mut self) -> Result<bool>;
    /// The last element of a result of so many bytes.
    fn last(&self, size: usize) -> f64;
}

/// The operand of a member: so many bytes of elements.
pub(super) fn operand(rank: usize, largest: usize) -> Vec<u8> {
    let element = (rank as f64 + 1.0).to_ne_bytes();
    element.repeat(largest.div_ceil(ELEMENT).max(1))
}

/// The last whole element of these bytes, or 0.
pub(super) fn last(bytes: &[u8]) -> f64 {
    let element = bytes.last_chunk::<ELEMENT>();
    element.map_or(0.0, |bytes| f64::from_ne_bytes(*bytes))
}

/// A member, and how many there are.
pub(super) struct InGroup<M> {
    member: M,
    ranks: usize,
    /// There are more members than cores, so whoever waits lets others run.
    crowded: bool,
}

impl<M: Member> InGroup<M> {
    /// One that has not joined.
    pub(super) fn new(member: M) -> Self {
        Self {
            member,
            ranks: 0,
            crowded: false,
        }
    }

    pub(super) fn address(&self) -> Result<Vec<u8>> {
        self.member.address()
    }

    /// Joins, and waits for all others.
    ///
    /// # Errors
    /// What the library says, or that the others do not come.
    pub(super) fn join(&mut self, addresses: &[Vec<u8>]) -> Result<()> {
        self.ranks = addresses.len();
        self.crowded = cores::allowed()?.len() < self.ranks;
        self.member.join(addresses)?;
        self.wait("the others have not joined", M::joined)
    }

    /// Takes a sample: all operations one after the other.
    ///
    /// # Errors
    /// What the library says, also when a result is wrong.
    pub(super) fn take(&mut self, test: Test) -> Result<Duration> {
        self.run(test, test.count / 10 + 5)?;
        if test.kind == Kind::Allreduce {
            let (sum, found) = (self.sum(), self.member.last(test.size));
            ensure!(sum == found, "the sum is {found} and should be {sum}");
        }
        self.run(BARRIER, 1)?;
        let start = Instant::now();
        self.run(test, test.count)?;
        Ok(start.elapsed())
    }

    /// The sum of the elements of all members.
    fn sum(&self) -> f64 {
        (1..=self.ranks).map(|element| element as f64).sum()
    }

    fn run(&mut self, test: Test, count: u32) -> Result<()> {
        for _ in 0..count {
            while !self.member.start(test.kind, test.size)? {
                ensure!(
                    !self.member.ended()?,
                    "an operation ended that had not begun"
                );
            }
            self.wait("the operation does not end", M::ended)?;
        }
        Ok(())
    }

    fn wait(&mut self, what: &str, mut over: impl FnMut(&mut M) -> Result<bool>) -> Result<()> {
        let (mut misses, mut since) = (0_u32, None);
        while !over(&mut self.member)? {
            misses = misses.wrapping_add(1);
            if self.crowded {
                std::thread::yield_now();
            }
            if misses.is_multiple_of(GLANCE) {
                let since = since.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
                    bail!("{what} for {} s", PATIENCE.as_secs());
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group of its own, whose queue is full every second time.
    struct Alone {
        full: bool,
        result: f64,
        reads: u32,
    }

    impl Member for Alone {
        fn address(&self) -> Result<Vec<u8>> {
            Ok(Vec::new())
        }

        fn join(&mut self, _: &[Vec<u8>]) -> Result<()> {
            Ok(())
        }

        fn joined(&mut self) -> Result<bool> {
            self.reads += 1;
            Ok(self.reads > 3)
        }

        fn start(&mut self, _: Kind, _: usize) -> Result<bool> {
            self.full = !self.full;
            self.reads = 0;
            Ok(!self.full)
        }

        fn ended(&mut self) -> Result<bool> {
            self.reads += 1;
            Ok(!self.full && self.reads > 1)
        }

        fn last(&self, _: usize) -> f64 {
            self.result
        }
    }

    fn sample(result: f64) -> Result<Duration> {
        let mut group = InGroup::new(Alone {
            full: false,
            result,
            reads: 0,
        });
        group.join(&[Vec::new(), Vec::new(), Vec::new()])?;
        group.take(Test::new(Kind::Allreduce, 8, 10))
    }

    #[test]
    fn a_wrong_sum_is_no_sample() {
        assert!(sample(6.0).expect("1 and 2 and 3") > Duration::ZERO);
        let error = sample(5.0).expect_err("a wrong sum");
        assert!(error.to_string().contains("should be 6"), "{error}");
    }

    #[test]
    fn operands_are_whole_elements() {
        assert_eq!(operand(2, 20).len(), 24);
        assert_eq!(operand(2, 0).len(), 8);
        assert_eq!(last(&operand(2, 16)), 3.0);
        assert_eq!(last(&[1]), 0.0);
    }
}
