//! What was measured, as it is kept: every sample, with the handovers taken around it.

use anyhow::{Result, ensure};
use ripstop_cli::perf::{Kind, WINDOW, bytes, median};
use serde::{Deserialize, Serialize};

use crate::subject::{Role, Subject, same};

/// A handover of a cache line that takes this many nanoseconds or more is between far cores, any other between near
/// ones. Near cores of the machines seen took 26 to 137, far ones 158 to 374.
pub(crate) const FAR_FROM_NS: f64 = 150.0;
/// Handovers of one round that differ by more than this factor, and lie in different groups, say that
/// the cores moved meanwhile.
const MOVED: f64 = 1.3;

/// How far the two cores are from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Distance {
    /// Below [`FAR_FROM_NS`].
    Near,
    /// From [`FAR_FROM_NS`] on.
    Far,
    /// Both sides on one core: there is no handover.
    One,
    /// On any cores: no handover was taken.
    Unknown,
}

impl Distance {
    /// Of one handover.
    pub(crate) fn of(nanos: f64) -> Self {
        match nanos {
            nanos if nanos < FAR_FROM_NS => Self::Near,
            _ => Self::Far,
        }
    }

    /// Its name in tables and file names.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
            Self::One => "one",
            Self::Unknown => "unknown",
        }
    }
}

/// A run, or several that were put together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The processor, its number of cores and the kernel.
    pub(crate) machine: String,
    /// What made it.
    pub(crate) command: String,
    pub(crate) cores: Option<(usize, usize)>,
    pub(crate) subjects: Vec<Subject>,
    pub(crate) tests: Vec<Taken>,
}

/// What a test is one of many of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sweep {
    /// Of sizes.
    #[default]
    Size,
    /// Of how many messages or operations are under way.
    Depth,
    /// Of how many processes send to one.
    Peers,
}

const fn window() -> u32 {
    WINDOW
}

const fn one() -> u32 {
    1
}

/// A test of one provider and size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Taken {
    pub(crate) provider: String,
    pub(crate) kind: Kind,
    pub(crate) size: usize,
    #[serde(default)]
    pub(crate) sweep: Sweep,
    /// Messages or operations under way, of each sender.
    #[serde(default = "window")]
    pub(crate) depth: u32,
    /// Processes that send, where it is a sweep of them.
    #[serde(default = "one")]
    pub(crate) peers: u32,
    /// Messages or operations of a sample, of each sender.
    pub(crate) count: u32,
    pub(crate) rounds: Vec<Round>,
}

/// One sample of every subject, taken one after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Nanoseconds of a handover before each sample and after the last.
    pub(crate) handovers: Vec<f64>,
    /// Both sides were on one core.
    #[serde(default)]
    pub(crate) one_core: bool,
    /// Nanoseconds of each subject: half a round trip, an exchange, a message or an operation. `None`
    /// where it cannot do that.
    pub(crate) nanos: Vec<Option<f64>>,
}

impl Round {
    /// The group it is in; `None` when the cores moved while it was taken.
    pub(crate) fn distance(&self) -> Option<Distance> {
        if self.one_core {
            return Some(Distance::One);
        }
        let Some(least) = self.handovers.iter().copied().min_by(f64::total_cmp) else {
            return Some(Distance::Unknown);
        };
        let most = self.handovers.iter().copied().fold(least, f64::max);
        let moved = Distance::of(least) != Distance::of(most) && most > least * MOVED;
        (!moved).then(|| Distance::of(self.handover().unwrap_or(least)))
    }

    /// The handover that it is compared with, in nanoseconds.
    pub(crate) fn handover(&self) -> Option<f64> {
        (!self.handovers.is_empty()).then(|| median(&self.handovers))
    }
}

impl Taken {
    /// The rounds of a group.
    pub(crate) fn of(&self, distance: Distance) -> Vec<&Round> {
        let rounds = self.rounds.iter();
        rounds
            .filter(|round| round.distance() == Some(distance))
            .collect()
    }

    /// Whether a group has a third of the rounds at least: fewer are too few to judge by. Rounds on one
    /// core and on two count apart, since they are runs of their own.
    pub(crate) fn is_enough(&self, distance: Distance) -> bool {
        let rounds = self.of(distance).len();
        let one = distance == Distance::One;
        let all = self.rounds.iter().filter(|round| round.one_core == one);
        rounds > 0 && rounds * 3 >= all.count()
    }

    /// What it is, in words.
    pub(crate) fn name(&self) -> String {
        let (size, kind) = (bytes(self.size), self.kind.word());
        match self.sweep {
            Sweep::Size => format!("{size} {kind}"),
            Sweep::Depth => format!("{size} {kind}, {} deep", self.depth),
            Sweep::Peers => format!("{size} {kind}, {} peers", self.peers),
        }
    }

    /// What tells it apart from other tests of a run.
    fn key(&self) -> (&str, Kind, usize, Sweep, u32, u32) {
        let Self {
            kind, size, sweep, ..
        } = *self;
        (&self.provider, kind, size, sweep, self.depth, self.peers)
    }

    /// The nanoseconds of a subject in a group.
    pub(crate) fn nanos(&self, distance: Distance, subject: usize) -> Vec<f64> {
        let rounds = self.of(distance).into_iter();
        let nanos = rounds.filter_map(|round| round.nanos.get(subject).copied().flatten());
        nanos.collect()
    }

    /// The median of one subject's time over another's in the same round; `None` without both.
    pub(crate) fn ratio(&self, distance: Distance, of: usize, over: usize) -> Option<f64> {
        let rounds = self.of(distance).into_iter();
        let ratios = rounds.filter_map(|round| {
            let nanos = |subject: usize| round.nanos.get(subject).copied().flatten();
            Some(nanos(of)? / nanos(over)?)
        });
        let ratios: Vec<f64> = ratios.collect();
        (!ratios.is_empty()).then(|| median(&ratios))
    }

    /// The median of a subject's time in handovers.
    pub(crate) fn in_handovers(&self, distance: Distance, subject: usize) -> Option<f64> {
        let rounds = self.of(distance).into_iter();
        let times = rounds.filter_map(|round| {
            let nanos = round.nanos.get(subject).copied().flatten()?;
            Some(nanos / round.handover()?)
        });
        let times: Vec<f64> = times.collect();
        (!times.is_empty()).then(|| median(&times))
    }
}

impl Record {
    /// The groups that occurred, near first.
    pub(crate) fn distances(&self) -> Vec<Distance> {
        let rounds = self.tests.iter().flat_map(|taken| &taken.rounds);
        let mut found: Vec<Distance> = rounds.filter_map(Round::distance).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Rounds that are in no group since the cores moved.
    pub(crate) fn moved(&self) -> usize {
        let rounds = self.tests.iter().flat_map(|taken| &taken.rounds);
        rounds.filter(|round| round.distance().is_none()).count()
    }

    /// The median handover of a group, and its quartiles.
    pub(crate) fn handover(&self, distance: Distance) -> Option<Spread> {
        let rounds = self.tests.iter().flat_map(|taken| taken.of(distance));
        Spread::of(&rounds.filter_map(Round::handover).collect::<Vec<_>>())
    }

    /// The providers, in the order in which they were measured.
    pub(crate) fn providers(&self) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for taken in &self.tests {
            if !found.contains(&taken.provider.as_str()) {
                found.push(&taken.provider);
            }
        }
        found
    }

    /// The first subject of a role.
    pub(crate) fn subject(&self, role: Role) -> Option<usize> {
        self.subjects
            .iter()
            .position(|subject| subject.role == role)
    }

    /// The subject with a label.
    pub(crate) fn labelled(&self, label: &str) -> Option<usize> {
        self.subjects
            .iter()
            .position(|subject| subject.label == label)
    }

    /// Takes in what another run measured of the same subjects: new tests, and more rounds of those
    /// that are there.
    ///
    /// # Errors
    /// When it was measured with other libraries or on another machine.
    pub(crate) fn merge(&mut self, other: Self) -> Result<()> {
        ensure!(
            same(&self.subjects, &other.subjects) && other.machine == self.machine,
            "it was measured with other libraries or on another machine"
        );
        for taken in other.tests {
            let same = |mine: &&mut Taken| mine.key() == taken.key();
            match self.tests.iter_mut().find(same) {
                Some(mine) => mine.rounds.extend(taken.rounds),
                None => self.tests.push(taken),
            }
        }
        Ok(())
    }
}

/// The middle of samples and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    /// A quarter of the samples is below, a quarter above.
    pub(crate) quartiles: (f64, f64),
    pub(crate) range: (f64, f64),
    pub(crate) samples: usize,
}

impl Spread {
    /// `None` without samples.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            median: median(&sorted),
            quartiles: (quantile(&sorted, 0.25)?, quantile(&sorted, 0.75)?),
            range: (*sorted.first()?, *sorted.last()?),
            samples: sorted.len(),
        })
    }
}

/// The value below which a part of sorted samples lies, between two of them where it must be.
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let at = part * (sorted.len().checked_sub(1)? as f64);
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Rounds with these handovers and times of each subject.
    pub(crate) fn taken(kind: Kind, size: usize, rounds: &[(f64, &[f64])]) -> Taken {
        let round = |(handover, nanos): &(f64, &[f64])| Round {
            handovers: vec![*handover; 3],
            one_core: false,
            nanos: nanos.iter().copied().map(Some).collect(),
        };
        Taken {
            provider: "shm".to_owned(),
            kind,
            size,
            sweep: Sweep::Size,
            depth: WINDOW,
            peers: 1,
            count: 1,
            rounds: rounds.iter().map(round).collect(),
        }
    }

    /// Ours through C, ours from Rust, a peer and the machine.
    pub(crate) fn record(tests: Vec<Taken>) -> Record {
        let roles = [Role::Ours, Role::Rust, Role::Peer, Role::Machine];
        let subject = |role| Subject {
            role,
            label: format!("{role:?}"),
            about: String::new(),
        };
        Record {
            machine: "a machine".to_owned(),
            command: "compare".to_owned(),
            cores: Some((0, 1)),
            subjects: roles.map(subject).to_vec(),
            tests,
        }
    }

    #[test]
    fn spread_has_quartiles() {
        let spread = Spread::of(&[5.0, 1.0, 2.0, 4.0, 3.0]).expect("samples");
        assert_eq!((spread.median, spread.quartiles), (3.0, (2.0, 4.0)));
        assert_eq!((spread.range, spread.samples), ((1.0, 5.0), 5));
        let two = Spread::of(&[1.0, 3.0]).expect("samples");
        assert_eq!((two.median, two.quartiles), (2.0, (1.5, 2.5)));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn near_and_far_are_never_mixed() {
        let taken = taken(
            Kind::Latency,
            8,
            &[
                (30.0, &[1.0, 4.0]),
                (200.0, &[3.0, 6.0]),
                (40.0, &[2.0, 4.0]),
            ],
        );
        assert_eq!(taken.nanos(Distance::Near, 0), [1.0, 2.0]);
        assert_eq!(taken.nanos(Distance::Far, 1), [6.0]);
        assert_eq!(taken.ratio(Distance::Near, 0, 1), Some(0.375));
        assert_eq!(taken.ratio(Distance::One, 0, 1), None);
        let far = taken.in_handovers(Distance::Far, 0).expect("a round");
        assert!((far - 0.015).abs() < 1e-9);
        assert!(taken.is_enough(Distance::Near) && taken.is_enough(Distance::Far));
        assert!(!taken.is_enough(Distance::One));
        let record = record(vec![taken]);
        assert_eq!(record.distances(), [Distance::Near, Distance::Far]);
    }

    #[test]
    fn a_round_in_which_the_cores_moved_is_in_no_group() {
        let round = |handovers: &[f64]| {
            let round = Round {
                handovers: handovers.to_vec(),
                one_core: false,
                nanos: vec![Some(1.0)],
            };
            round.distance()
        };
        assert_eq!(round(&[30.0, 31.0, 160.0]), None);
        assert_eq!(round(&[60.0, 99.0, 137.0]), Some(Distance::Near));
        assert_eq!(round(&[145.0, 140.0, 155.0]), Some(Distance::Near));
        assert_eq!(round(&[158.0, 374.0]), Some(Distance::Far));
        assert_eq!(round(&[]), Some(Distance::Unknown));
    }

    #[test]
    fn rounds_on_one_core_are_a_group_of_their_own() {
        let near: (f64, &[f64]) = (30.0, &[1.0]);
        let mut taken = taken(Kind::Latency, 8, &[near, near, near, near]);
        for round in &mut taken.rounds[..3] {
            (round.one_core, round.handovers) = (true, Vec::new());
        }
        assert_eq!(taken.of(Distance::One).len(), 3);
        assert!(taken.is_enough(Distance::Near) && taken.is_enough(Distance::One));
        let record = record(vec![taken]);
        assert_eq!(record.distances(), [Distance::Near, Distance::One]);
    }

    #[test]
    fn depths_and_peers_are_tests_of_their_own() {
        let all = taken(Kind::Stream, 8, &[(30.0, &[1.0])]);
        let deep = Taken {
            sweep: Sweep::Depth,
            depth: 4,
            ..all.clone()
        };
        let deeper = Taken {
            depth: 16,
            ..deep.clone()
        };
        let many = Taken {
            sweep: Sweep::Peers,
            kind: Kind::Gather,
            peers: 2,
            ..all.clone()
        };
        assert_eq!(deep.name(), "8 stream, 4 deep");
        assert_eq!(many.name(), "8 messages of peers, 2 peers");
        let mut one = record(vec![all, deep.clone()]);
        one.merge(record(vec![deep, deeper, many]))
            .expect("the same subjects");
        let rounds: Vec<_> = one.tests.iter().map(|taken| taken.rounds.len()).collect();
        assert_eq!(rounds, [1, 2, 1, 1]);
    }

    #[test]
    fn runs_are_put_together() {
        let mut one = record(vec![taken(Kind::Latency, 8, &[(30.0, &[1.0])])]);
        one.merge(record(vec![
            taken(Kind::Latency, 8, &[(30.0, &[3.0])]),
            taken(Kind::Stream, 8, &[(30.0, &[2.0])]),
        ]))
        .expect("the same subjects");
        let mut elsewhere = record(Vec::new());
        elsewhere.machine = "another".to_owned();
        assert!(one.merge(elsewhere).is_err());
        assert_eq!(one.tests.len(), 2);
        assert_eq!(one.tests[0].nanos(Distance::Near, 0), [1.0, 3.0]);
        let text = serde_json::to_string(&one).expect("JSON");
        let again: Record = serde_json::from_str(&text).expect("the same");
        assert_eq!(again.tests.len(), 2);
    }
}
