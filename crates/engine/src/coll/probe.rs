//! Probes for members that wait for each other in a circle, as a group keeps them.

use alloc::vec::Vec;

use ripstop_types::FiAddr;

use crate::ring::try_push;

/// Probes that a member keeps for each join, the greatest.
pub(super) const MAX_KEPT_PROBES: usize = 16;

/// A probe that has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) number: u64,
    /// The member that waits for this one.
    pub(super) src: FiAddr,
    /// To join this set.
    pub(super) digest: u64,
    /// In which this one has this rank.
    pub(super) rank: u32,
    /// Rounds that have ended since it last came.
    pub(super) age: u32,
    /// It went on in this round.
    pub(super) passed: bool,
}

impl Probe {
    /// Whether the member that it came from can be taken to wait still.
    pub(super) const fn is_current(&self) -> bool {
        self.age < CURRENT_ROUNDS
    }
}

/// The probes of a join.
#[derive(Debug, Default)]
pub(super) struct Probes {
    pub(super) known: Vec<Probe>,
    /// How many went on in this round.
    pub(super) passed: u32,
    /// Rounds in a row in which that of this member had come back.
    back: u32,
}

impl Probes {
    /// Notes one; returns whether it is to go on now.
    pub(super) fn note(&mut self, probe: Probe, own: u64) -> bool {
        let first = probe.number != own
            && self.passed < MAX_PASSED_PROBES
            && !self
                .known
                .iter()
                .any(|known| known.passed && known.number == probe.number);
        let probe = Probe {
            passed: first,
            ..probe
        };
        if !self.keep(probe) {
            return false;
        }
        self.passed = self.passed.saturating_add(u32::from(first));
        first
    }

    fn keep(&mut self, probe: Probe) -> bool {
        let same =
            |of: &Probe| (of.number, of.src, of.digest) == (probe.number, probe.src, probe.digest);
        if let Some(known) = self.known.iter_mut().find(|known| same(known)) {
            known.passed |= probe.passed;
            (known.rank, known.age) = (probe.rank, probe.age);
            return true;
        }
        if self.known.len() < MAX_KEPT_PROBES {
            return try_push(&mut self.known, probe).is_ok();
        }
        // One that no longer comes makes room first.
        let worth = |of: &Probe| (of.is_current(), of.number);
        let least = self.known.iter_mut().min_by_key(|known| worth(known));
        match least.filter(|least| worth(least) < worth(&probe)) {
            Some(least) => {
                *least = probe;
                true
            }
            None => false,
        }
    }

    /// A round is over. If the probe `own` has come back in it, returns in how many in a row it is
    /// known to go round, else 0.
    pub(super) fn next_round(&mut self, own: u64) -> u32 {
        let back = self.known.iter().filter(|known| known.number == own);
        let latest = back.map(|known| known.age).min();
        self.back = match latest {
            Some(age) if age < CURRENT_ROUNDS => self.back.saturating_add(1),
            _ => 0,
        };
        for known in &mut self.known {
            known.age = known.age.saturating_add(1);
            known.passed = false;
        }
        self.known.retain(|known| known.age < KEPT_ROUNDS);
        self.passed = 0;
        match latest {
            Some(0) => self.back,
            _ => 0,
        }
    }
}

/// Probes that are passed on for a join in a round.
pub(super) const MAX_PASSED_PROBES: u32 = 32;

/// Rounds for which a probe shows that its way is still there. A member passes it on once in a
/// round of its own, which is as long as it is not polled: twice the 3 s of the slowest member for
/// which this is tested, and some more.
const CURRENT_ROUNDS: u32 = 8;

/// Rounds for which a member knows what it passed on: the word that it was a circle comes back
/// after the round of the member that found it, which may be polled far less often than this one.
const KEPT_ROUNDS: u32 = 30;
