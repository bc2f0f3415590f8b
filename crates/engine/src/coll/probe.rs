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
    /// So many rounds.
    pub(super) holds: u32,
    /// It went on in this round.
    pub(super) passed: bool,
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
            (known.rank, known.holds) = (probe.rank, probe.holds);
            return true;
        }
        if self.known.len() < MAX_KEPT_PROBES {
            return try_push(&mut self.known, probe).is_ok();
        }
        let least = self.known.iter_mut().min_by_key(|known| known.number);
        match least.filter(|least| least.number < probe.number) {
            Some(least) => {
                *least = probe;
                true
            }
            None => false,
        }
    }

    /// A round is over. If the probe `own` has come back in it, returns in how many in a row its
    /// word held, else 0.
    pub(super) fn next_round(&mut self, own: u64) -> u32 {
        let back = self.known.iter().filter(|known| known.number == own);
        let longest = back.map(|known| known.holds).max();
        self.back = match longest {
            Some(_) => self.back.saturating_add(1),
            None => 0,
        };
        for known in &mut self.known {
            known.holds = known.holds.saturating_sub(1);
            known.passed = false;
        }
        self.known.retain(|known| known.holds > 0);
        self.passed = 0;
        match longest {
            Some(PROBE_ROUNDS) => self.back,
            _ => 0,
        }
    }
}

/// Probes that are passed on for a join in a round.
pub(super) const MAX_PASSED_PROBES: u32 = 32;

/// Rounds for which a probe's word holds.
pub(super) const PROBE_ROUNDS: u32 = 2;
