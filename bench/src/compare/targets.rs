//! What Ripstop aims at, beside what was measured.

use ripstop_cli::perf::Kind;
use serde::Serialize;

use super::mpi::{MPICH_ON_SHM, OPEN_MPI_ON_LNX};
use super::samples::{Distance, Record, Sweep, Taken};
use crate::subject::Role;

/// What a figure of ours is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Against {
    /// Another libfabric, each of them.
    Peers,
    /// UCX.
    Ucx,
    /// MPICH over our shm; what is compared with it is Open MPI over our lnx.
    BareShm,
    /// The machine in the same test.
    Machine,
    /// The machine's cross-memory attach of the same size and directions.
    SingleCopy,
    /// A bare handover of a cache line.
    Handover,
    /// Ours from Rust.
    Rust,
}

/// How the figure and its bound compare.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// Our time is at most so many times the other's.
    TimeAtMost(f64),
    /// Our rate is at least so many times the other's.
    RateAtLeast(f64),
    /// Our time differs from the other's by this part at most.
    Within(f64),
}

/// A row of the table of targets.
struct Target {
    what: &'static str,
    provider: &'static str,
    kinds: &'static [Kind],
    /// Sizes in bytes, from the first to the last.
    sizes: (usize, usize),
    against: Against,
    bound: Bound,
    /// Only for this distance of the cores.
    only: Option<Distance>,
}

const LATENCY: &[Kind] = &[Kind::Latency];
const SMALL: &[Kind] = &[Kind::Stream, Kind::Write];
const SMALL_BOTH: &[Kind] = &[Kind::StreamBoth, Kind::WriteBoth];
const RATES: &[Kind] = &[
    Kind::Stream,
    Kind::StreamBoth,
    Kind::Write,
    Kind::WriteBoth,
    Kind::Read,
    Kind::ReadBoth,
];
/// All kinds, one direction before both.
pub(super) const ALL: &[Kind] = &[
    Kind::Latency,
    Kind::Exchange,
    Kind::Stream,
    Kind::StreamBoth,
    Kind::Write,
    Kind::WriteBoth,
    Kind::Read,
    Kind::ReadBoth,
    Kind::Gather,
];

const EIGHT: (usize, usize) = (8, 8);
const MIDDLE: (usize, usize) = (4 << 10, 64 << 10);
const LARGE: (usize, usize) = (256 << 10, 16 << 20);
const ANY: (usize, usize) = (1, 16 << 20);

macro_rules! targets {
    ($($what:literal $provider:literal $kinds:ident $sizes:ident $against:ident
        $bound:ident($most:literal) $(if $only:ident)?;)+) => {
        const TARGETS: &[Target] = &[$(Target {
            what: $what,
            provider: $provider,
            kinds: $kinds,
            sizes: $sizes,
            against: Against::$against,
            bound: Bound::$bound($most),
            only: targets!(@only $($only)?),
        }),+];
    };
    (@only) => { None };
    (@only $only:ident) => { Some(Distance::$only) };
}

targets! {
    "8 B half round trip" "tcp" LATENCY EIGHT Peers TimeAtMost(0.85);
    "8 B half round trip" "tcp" LATENCY EIGHT Machine TimeAtMost(1.1);
    "8 B half round trip" "shm" LATENCY EIGHT Peers TimeAtMost(0.6);
    "8 B half round trip" "shm" LATENCY EIGHT Handover TimeAtMost(2.5) if Near;
    "8 B half round trip" "shm" LATENCY EIGHT Handover TimeAtMost(1.6) if Far;
    "8 B half round trip, Open MPI on lnx" "shm" LATENCY EIGHT BareShm TimeAtMost(1.2);
    "8 B 64 deep, one direction" "tcp" SMALL EIGHT Peers RateAtLeast(10.0);
    "8 B 64 deep, both directions" "tcp" SMALL_BOTH EIGHT Peers RateAtLeast(10.0);
    "8 B 64 deep, one direction" "shm" SMALL EIGHT Peers RateAtLeast(2.0);
    "8 B 64 deep, both directions" "shm" SMALL_BOTH EIGHT Peers RateAtLeast(2.0);
    "8 B 64 deep, one direction" "shm" SMALL EIGHT Ucx RateAtLeast(1.0);
    "4 to 64 KiB, rate" "tcp" RATES MIDDLE Peers RateAtLeast(1.3);
    "4 to 64 KiB, rate" "shm" RATES MIDDLE Peers RateAtLeast(1.2);
    "256 KiB to 16 MiB, rate" "tcp" RATES LARGE Peers RateAtLeast(1.0);
    "256 KiB to 16 MiB, rate" "tcp" RATES LARGE Ucx RateAtLeast(1.0);
    "256 KiB to 16 MiB, rate" "tcp" RATES LARGE Machine RateAtLeast(0.97);
    "256 KiB to 16 MiB, rate" "shm" RATES LARGE Peers RateAtLeast(1.3);
    "256 KiB to 16 MiB, rate" "shm" RATES LARGE Ucx RateAtLeast(1.3);
    "256 KiB to 16 MiB, rate" "shm" RATES LARGE SingleCopy RateAtLeast(0.95);
    "any size, anything" "tcp" ALL ANY Peers RateAtLeast(0.97);
    "any size, anything" "shm" ALL ANY Peers RateAtLeast(0.97);
    "C interface beside Rust" "tcp" ALL ANY Rust Within(0.03);
    "C interface beside Rust" "shm" ALL ANY Rust Within(0.03);
}

/// Rows that other programs measure: what, and which.
pub(crate) const ELSEWHERE: [(&str, &str); 3] = [
    (
        "instructions of an 8 B message, of an empty read",
        "bench/budget",
    ),
    (
        "10,000 posted or unexpected messages beside 10",
        "ripstop-bench scale",
    ),
    (
        "awaited on tokio",
        "cargo run --release -p ripstop --example awaited",
    ),
];

/// Rows that lack a subject: what, and what to install or to ask for.
pub(crate) fn missing(record: &Record) -> impl Iterator<Item = (&'static str, &'static str)> {
    let subjects: [(Role, _); 3] = [
        (
            Role::Peer,
            ("C libfabric", "give its libfabric.so.1 with --peer"),
        ),
        (
            Role::Ucx,
            (
                "UCX",
                "apt-get install ucx-utils, or give a newer ucx_perftest with --ucx (PyPI: libucx-cu12)",
            ),
        ),
        (
            Role::OnOurs,
            (
                "Open MPI on lnx beside MPICH on shm, and their own shared memory",
                "give --mpi",
            ),
        ),
    ];
    let lacks = |role| record.subject(role).is_none();
    let lacking = subjects.into_iter().filter(move |(role, _)| lacks(*role));
    lacking.map(|(_, what)| what)
}

/// What a figure that was compared is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) what: &'static str,
    pub(crate) provider: &'static str,
    pub(crate) distance: Distance,
    /// What it is compared with, such as a library.
    pub(crate) against: String,
    /// The bound, in words.
    pub(crate) target: String,
    /// The figure that is furthest from holding, or closest to not.
    pub(crate) figure: f64,
    /// The test that it is of.
    pub(crate) worst: String,
    /// By how many percent it falls short; 0 where it holds.
    pub(crate) short_percent: f64,
    /// Tests that fall short, and all.
    pub(crate) short: usize,
    pub(crate) tests: usize,
}

impl Verdict {
    /// Whether the target is met.
    pub(crate) fn holds(&self) -> bool {
        self.short == 0
    }

    /// `holds`, or by how much it does not.
    pub(crate) fn text(&self) -> String {
        match self.holds() {
            true => "holds".to_owned(),
            false => format!("falls short by {:.1} %", self.short_percent),
        }
    }
}

impl Bound {
    /// The figure, which is what the bound is about, of a ratio of times.
    fn figure(self, times: f64) -> f64 {
        match self {
            Self::RateAtLeast(_) => 1.0 / times,
            Self::TimeAtMost(_) | Self::Within(_) => times,
        }
    }

    /// How far beyond the bound a figure is, as a part of the bound; not above 0 where it holds.
    fn beyond(self, figure: f64) -> f64 {
        match self {
            Self::TimeAtMost(most) => figure / most - 1.0,
            Self::RateAtLeast(least) => 1.0 - figure / least,
            Self::Within(part) => (figure - 1.0).abs() - part,
        }
    }

    fn text(self) -> String {
        match self {
            Self::TimeAtMost(most) => format!("time at most {most}"),
            Self::RateAtLeast(least) => format!("rate at least {least}"),
            Self::Within(part) => format!("time within {:.0} %", part * 100.0),
        }
    }
}

impl Target {
    /// The subjects it is compared with; one that is none of them for a handover.
    fn others(&self, record: &Record) -> Vec<Option<usize>> {
        let of = |role| record.subject(role).map(Some).into_iter().collect();
        match self.against {
            Against::Handover => vec![None],
            Against::Machine | Against::SingleCopy => of(Role::Machine),
            Against::Rust => of(Role::Rust),
            Against::Ucx => of(Role::Ucx),
            Against::BareShm => record
                .labelled(MPICH_ON_SHM)
                .map(Some)
                .into_iter()
                .collect(),
            Against::Peers => {
                let subjects = record.subjects.iter().enumerate();
                let peers = subjects.filter(|(_, subject)| subject.role == Role::Peer);
                peers.map(|(number, _)| Some(number)).collect()
            }
        }
    }

    fn name(&self, record: &Record, other: Option<usize>) -> String {
        match (self.against, other) {
            (Against::SingleCopy, _) => "attach".to_owned(),
            (Against::Machine, _) => "bare sockets".to_owned(),
            (_, Some(other)) => record.subjects[other].label.clone(),
            (_, None) => "handovers".to_owned(),
        }
    }

    /// Whether it is about a test that was taken often enough.
    fn covers(&self, taken: &Taken, distance: Distance) -> bool {
        let (first, last) = self.sizes;
        // What holds for anything holds for any depth and any number of peers, too.
        let sweeps = self.against == Against::Peers && self.sizes == ANY;
        (taken.sweep == Sweep::Size || sweeps)
            && taken.provider == self.provider
            && self.kinds.contains(&taken.kind)
            && (first..=last).contains(&taken.size)
            && taken.is_enough(distance)
    }

    /// Our time over the other's.
    fn times(
        &self,
        record: &Record,
        taken: &Taken,
        distance: Distance,
        (ours, other): (usize, Option<usize>),
    ) -> Option<f64> {
        match (self.against, other) {
            (Against::SingleCopy, Some(machine)) => {
                let attach = |other: &&Taken| {
                    (other.provider == taken.provider && other.size == taken.size)
                        && other.sweep == Sweep::Size
                        && other.kind == single_copy(taken.kind)
                };
                // Two tests of one run: medians, since they are no pairs.
                let attach = record.tests.iter().find(attach)?;
                let attach = super::samples::Spread::of(&attach.nanos(distance, machine))?;
                let own = super::samples::Spread::of(&taken.nanos(distance, ours))?;
                Some(own.median / attach.median)
            }
            (_, Some(other)) => taken.ratio(distance, ours, other),
            (_, None) => taken.in_handovers(distance, ours),
        }
    }

    fn verdict(
        &self,
        record: &Record,
        distance: Distance,
        other: Option<usize>,
    ) -> Option<Verdict> {
        let ours = match self.against {
            Against::BareShm => record.labelled(OPEN_MPI_ON_LNX)?,
            _ => record.subject(Role::Ours)?,
        };
        let (mut short, mut tests, mut worst) = (0, 0, None::<(f64, f64, String)>);
        for taken in record
            .tests
            .iter()
            .filter(|taken| self.covers(taken, distance))
        {
            let Some(times) = self.times(record, taken, distance, (ours, other)) else {
                continue;
            };
            let figure = self.bound.figure(times);
            let beyond = self.bound.beyond(figure);
            tests += 1;
            short += usize::from(beyond > 0.0);
            if worst.as_ref().is_none_or(|(most, ..)| beyond > *most) {
                worst = Some((beyond, figure, taken.name()));
            }
        }
        let (beyond, figure, worst) = worst?;
        Some(Verdict {
            what: self.what,
            provider: self.provider,
            distance,
            against: self.name(record, other),
            target: self.bound.text(),
            figure,
            worst,
            short_percent: beyond.max(0.0) * 100.0,
            short,
            tests,
        })
    }
}

/// The attach test of the same directions.
fn single_copy(kind: Kind) -> Kind {
    match kind {
        Kind::Exchange | Kind::StreamBoth | Kind::WriteBoth | Kind::ReadBoth => Kind::ReadBoth,
        _ => Kind::Read,
    }
}

/// Every target that this run has measured, by distance.
pub(crate) fn verdicts(record: &Record) -> Vec<Verdict> {
    let mut found = Vec::new();
    for distance in record.distances() {
        for target in TARGETS {
            if target.only.is_none_or(|only| only == distance) {
                let others = target.others(record).into_iter();
                found.extend(others.filter_map(|other| target.verdict(record, distance, other)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::samples::tests::{record, taken};
    use super::*;
    use crate::subject::Subject;

    fn found(tests: Vec<Taken>) -> Vec<Verdict> {
        verdicts(&record(tests))
    }

    fn one<'a>(found: &'a [Verdict], what: &str, against: &str) -> &'a Verdict {
        let mut of = found.iter();
        let this = of.find(|v| v.what.contains(what) && v.against.contains(against));
        this.unwrap_or_else(|| panic!("no {what} against {against} in {found:#?}"))
    }

    #[test]
    fn latency_is_compared_with_peers_and_handovers() {
        // 90 ns against 100 of the peer, and 2.25 handovers of 40 ns.
        let found = found(vec![taken(
            Kind::Latency,
            8,
            &[(40.0, &[90.0, 89.0, 100.0, 80.0])],
        )]);
        let peer = one(&found, "8 B half", "Peer");
        assert!(!peer.holds());
        assert_eq!(peer.text(), "falls short by 50.0 %");
        let line = one(&found, "8 B half", "handovers");
        assert!((line.figure - 2.25).abs() < 1e-9);
        assert_eq!(line.text(), "holds");
        assert!(one(&found, "beside Rust", "Rust").holds());
    }

    #[test]
    fn open_mpi_on_lnx_is_compared_with_mpich_on_shm() {
        let rounds: (f64, &[f64]) = (40.0, &[90.0, 90.0, 100.0, 80.0, 200.0, 250.0]);
        let mut record = record(vec![taken(Kind::Latency, 8, &[rounds])]);
        let what = "8 B half round trip, Open MPI on lnx";
        assert!(verdicts(&record).iter().all(|verdict| verdict.what != what));
        let lacking: Vec<_> = missing(&record).map(|(what, _)| what).collect();
        assert!(
            lacking.contains(&"UCX") && lacking.len() == 2,
            "{lacking:?}"
        );
        for label in [MPICH_ON_SHM, OPEN_MPI_ON_LNX] {
            record.subjects.push(Subject {
                role: Role::OnOurs,
                label: label.to_owned(),
                about: String::new(),
            });
        }
        let found = verdicts(&record);
        let lnx = one(&found, what, MPICH_ON_SHM);
        assert!((lnx.figure - 1.25).abs() < 1e-9, "{lnx:?}");
        assert_eq!(lnx.text(), "falls short by 4.2 %");
    }

    #[test]
    fn the_far_bound_is_only_for_far_cores() {
        let found = found(vec![taken(
            Kind::Latency,
            8,
            &[(200.0, &[400.0, 400.0, 800.0])],
        )]);
        let line = one(&found, "8 B half", "handovers");
        assert_eq!(line.target, "time at most 1.6");
        assert_eq!(line.distance, Distance::Far);
        assert_eq!(line.text(), "falls short by 25.0 %");
    }

    #[test]
    fn the_worst_of_all_sizes_counts() {
        let found = found(vec![
            taken(Kind::Stream, 4 << 10, &[(40.0, &[100.0, 100.0, 200.0])]),
            taken(Kind::Stream, 64 << 10, &[(40.0, &[200.0, 200.0, 180.0])]),
        ]);
        let rate = one(&found, "4 to 64 KiB", "Peer");
        assert_eq!((rate.short, rate.tests), (1, 2));
        assert!((rate.figure - 0.9).abs() < 1e-9);
        assert_eq!(rate.worst, "64K stream");
        assert_eq!(rate.text(), "falls short by 25.0 %");
        assert_eq!(one(&found, "any size", "Peer").worst, "64K stream");
    }

    #[test]
    fn a_large_message_is_compared_with_attach_of_its_size() {
        let size = 1 << 20;
        let found = found(vec![
            taken(Kind::Stream, size, &[(40.0, &[100.0, 100.0, 200.0, 50.0])]),
            taken(Kind::Read, size, &[(40.0, &[90.0, 90.0, 200.0, 96.0])]),
        ]);
        let copy = one(&found, "256 KiB to 16 MiB", "attach");
        assert!((copy.figure - 0.96).abs() < 1e-9, "{copy:?}");
        assert!(copy.holds());
        assert_eq!(copy.worst, "1M stream");
    }

    #[test]
    fn a_round_of_many_is_no_verdict() {
        let far: (f64, &[f64]) = (200.0, &[400.0, 400.0, 800.0]);
        let near: (f64, &[f64]) = (40.0, &[90.0, 90.0, 200.0]);
        let rounds = [near, near, near, far];
        let found = found(vec![taken(Kind::Latency, 8, &rounds)]);
        assert!(
            found
                .iter()
                .all(|verdict| verdict.distance == Distance::Near)
        );
        assert!(!found.is_empty());
    }

    #[test]
    fn what_was_not_measured_has_no_verdict() {
        assert_eq!(found(Vec::new()), []);
        let only = found(vec![taken(Kind::Latency, 8, &[(40.0, &[90.0])])]);
        assert!(only.iter().all(|verdict| verdict.against == "handovers"));
    }
}
