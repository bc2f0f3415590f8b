//! What was measured, as it is kept: every sample of every point, and why a curve ends.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use ripstop_cli::perf::median;
use serde::{Deserialize, Serialize};

use crate::subject::Subject;

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Curve {
    /// Peers that one endpoint is connected to, of which one is active.
    Peers,
    /// Posted receives, of which the last one is matched.
    Posted,
    /// Unexpected messages, of which the last one is looked for.
    Unexpected,
    /// Registered regions.
    Regions,
    /// Processes of a group.
    Collectives,
}

/// What is measured at a point: nanoseconds or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Figure {
    /// What the process of the endpoint grows by for each peer.
    Memory,
    /// What the machine's available memory shrinks by for each peer, when both sides connect.
    MachineMemory,
    /// A connection, until a message has gone there and back.
    Connect,
    /// A read of the completion queue while the active peer answers.
    Read,
    /// The same while all peers are quiet.
    IdleRead,
    /// A message to the active peer and back.
    RoundTrip,
    /// Posting a receive behind all others.
    Post,
    /// Sending a message and receiving it in the receive that was posted last.
    MatchLast,
    /// Sending a message that no receive is posted for, until it is held at the receiver.
    Hold,
    /// Posting the receive for the message that arrived last, until it has completed.
    Find,
    /// A registration.
    Register,
    /// Closing a registration.
    Close,
    /// What the process grows by for a registration.
    RegionMemory,
    /// A write to one of the regions.
    Write,
    /// A barrier of all processes.
    Barrier,
    /// A sum over all processes.
    Allreduce,
}

/// How a figure is shown.
pub(crate) struct Shown {
    /// In tables.
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    /// Nanoseconds or bytes of the unit.
    pub(crate) divisor: f64,
}

impl Curve {
    /// All, in the order of the report.
    pub(crate) const ALL: [Self; 5] = [
        Self::Peers,
        Self::Posted,
        Self::Unexpected,
        Self::Regions,
        Self::Collectives,
    ];

    /// Its name in file names and options.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Peers => "peers",
            Self::Posted => "posted",
            Self::Unexpected => "unexpected",
            Self::Regions => "regions",
            Self::Collectives => "collectives",
        }
    }

    /// What its tables and plots are headed with.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Peers => "connected peers of one endpoint, one of them active",
            Self::Posted => "posted receives, the last one matched",
            Self::Unexpected => "unexpected messages, the last one looked for",
            Self::Regions => "registered regions of a domain",
            Self::Collectives => "processes of a group",
        }
    }

    /// What is counted across its plots.
    pub(crate) const fn across(self) -> &'static str {
        match self {
            Self::Peers => "connected peers",
            Self::Posted => "posted receives",
            Self::Unexpected => "unexpected messages",
            Self::Regions => "registered regions",
            Self::Collectives => "processes",
        }
    }

    /// The points that are measured unless the user says which.
    pub(crate) const fn points(self) -> &'static [u64] {
        match self {
            Self::Peers => &[1, 10, 100, 1_000, 10_000],
            Self::Posted | Self::Unexpected => &[1, 10, 100, 1_000, 10_000, 100_000],
            Self::Regions => &[1, 1_000, 100_000, 1_000_000],
            Self::Collectives => &[2, 4, 8, 16, 32, 64],
        }
    }

    /// What is measured at its points.
    pub(crate) const fn figures(self) -> &'static [Figure] {
        match self {
            Self::Peers => &[
                Figure::Memory,
                Figure::MachineMemory,
                Figure::Connect,
                Figure::Read,
                Figure::IdleRead,
                Figure::RoundTrip,
            ],
            Self::Posted => &[Figure::Post, Figure::MatchLast],
            Self::Unexpected => &[Figure::Hold, Figure::Find],
            Self::Regions => &[
                Figure::Register,
                Figure::Close,
                Figure::RegionMemory,
                Figure::Write,
            ],
            Self::Collectives => &[Figure::Barrier, Figure::Allreduce],
        }
    }
}

impl Figure {
    /// How it is shown.
    pub(crate) const fn shown(self) -> Shown {
        let (title, unit, divisor) = match self {
            Self::Memory => ("memory of the process, per connection", "KiB", 1024.0),
            Self::MachineMemory => ("memory of the machine, per connection", "KiB", 1024.0),
            Self::Connect => ("time to connect, per connection", "us", 1e3),
            Self::Read => ("CQ read, one peer active", "ns", 1.0),
            Self::IdleRead => ("CQ read, all quiet", "ns", 1.0),
            Self::RoundTrip => ("round trip with the active peer", "us", 1e3),
            Self::Post => ("post a receive", "ns", 1.0),
            Self::MatchLast => ("message into the last receive", "ns", 1.0),
            Self::Hold => ("unexpected message, until held", "ns", 1.0),
            Self::Find => ("receive of the last message", "ns", 1.0),
            Self::Register => ("registration", "ns", 1.0),
            Self::Close => ("close", "ns", 1.0),
            Self::RegionMemory => ("memory per region", "B", 1.0),
            Self::Write => ("RMA write of 8 B, 64 under way", "ns", 1.0),
            Self::Barrier => ("barrier", "us", 1e3),
            Self::Allreduce => ("allreduce of 8 B", "us", 1e3),
        };
        Shown {
            title,
            unit,
            divisor,
        }
    }
}

/// One sample: what was measured of a point.
pub(crate) type Figures = BTreeMap<Figure, f64>;

/// What a subject came to at a point.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) samples: Vec<Figures>,
    /// Why there is no sample, where it was tried.
    pub(crate) ended: Option<String>,
}

impl Outcome {
    /// The median of a figure.
    pub(crate) fn figure(&self, figure: Figure) -> Option<f64> {
        let samples = self.samples.iter();
        let values: Vec<f64> = samples.filter_map(|s| s.get(&figure).copied()).collect();
        (!values.is_empty()).then(|| median(&values))
    }
}

/// A point of all subjects' curves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) curve: Curve,
    pub(crate) provider: String,
    /// How many there are of what grows.
    pub(crate) count: u64,
    /// By subject.
    pub(crate) outcomes: Vec<Outcome>,
}

/// A run, or several that were put together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The processor, its number of cores and the kernel.
    pub(crate) machine: String,
    /// What made it, each run.
    pub(crate) commands: Vec<String>,
    /// Nanoseconds of a handover of a cache line between the cores, taken in each run.
    pub(crate) handovers: Vec<f64>,
    pub(crate) subjects: Vec<Subject>,
    pub(crate) points: Vec<Point>,
}

impl Record {
    /// The points of a curve, by count.
    pub(crate) fn curve(&self, curve: Curve, provider: &str) -> Vec<&Point> {
        let points = self.points.iter();
        let mut points: Vec<&Point> = points
            .filter(|point| point.curve == curve && point.provider == provider)
            .collect();
        points.sort_by_key(|point| point.count);
        points
    }

    /// The providers, in the order in which they were measured.
    pub(crate) fn providers(&self) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for point in &self.points {
            if !found.contains(&point.provider.as_str()) {
                found.push(&point.provider);
            }
        }
        found
    }

    /// Takes in what another run measured: new subjects, which are told apart by their labels, new
    /// points, and more samples of those that are there.
    ///
    /// # Errors
    /// When it was measured on another machine.
    pub(crate) fn merge(&mut self, other: Self) -> Result<()> {
        ensure!(
            other.machine == self.machine,
            "it was measured on another machine"
        );
        self.commands.extend(other.commands);
        self.handovers.extend(other.handovers);
        let places: Vec<usize> = other.subjects.into_iter().map(|s| self.place(s)).collect();
        for point in other.points {
            let same = |mine: &Point| {
                (mine.curve, &mine.provider, mine.count)
                    == (point.curve, &point.provider, point.count)
            };
            let at = self.points.iter().position(same).unwrap_or_else(|| {
                let outcomes = Vec::new();
                self.points.push(Point {
                    outcomes,
                    ..point.clone()
                });
                self.points.len() - 1
            });
            let mine = &mut self.points[at].outcomes;
            for (&place, outcome) in places.iter().zip(point.outcomes) {
                if mine.len() <= place {
                    mine.resize_with(place + 1, Outcome::default);
                }
                mine[place].samples.extend(outcome.samples);
                mine[place].ended = mine[place].ended.take().or(outcome.ended);
            }
        }
        Ok(())
    }

    /// The number of a subject, which is added if it is new.
    fn place(&mut self, subject: Subject) -> usize {
        let known = self.subjects.iter().position(|s| s.label == subject.label);
        known.unwrap_or_else(|| {
            self.subjects.push(subject);
            self.subjects.len() - 1
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::subject::Role;

    /// An outcome with these values of a figure.
    pub(crate) fn outcome(figure: Figure, values: &[f64]) -> Outcome {
        Outcome {
            samples: values.iter().map(|v| [(figure, *v)].into()).collect(),
            ended: None,
        }
    }

    /// Ours and a peer, which ends at the second of two points.
    pub(crate) fn record() -> Record {
        let subject = |role, label: &str| Subject {
            role,
            label: label.to_owned(),
            about: format!("/{label}/libfabric.so.1"),
        };
        let point = |count, outcomes| Point {
            curve: Curve::Peers,
            provider: "shm".to_owned(),
            count,
            outcomes,
        };
        let ended = Outcome {
            samples: Vec::new(),
            ended: Some("ends at 256: no room".to_owned()),
        };
        Record {
            machine: "AMD EPYC(R) 7 (family 1), 2 cores".to_owned(),
            commands: vec!["scale".to_owned()],
            handovers: vec![60.0],
            subjects: vec![subject(Role::Ours, "ours"), subject(Role::Peer, "peer")],
            points: vec![
                point(1_000, vec![outcome(Figure::Connect, &[5e3]), ended]),
                point(
                    10,
                    vec![
                        outcome(Figure::Connect, &[1e3, 2e3, 9e3]),
                        outcome(Figure::Connect, &[4e3]),
                    ],
                ),
            ],
        }
    }

    #[test]
    fn runs_are_put_together() {
        let (mut one, other) = (record(), record());
        one.merge(other).expect("the same subjects");
        assert_eq!((one.points.len(), one.handovers.len()), (2, 2));
        let curve = one.curve(Curve::Peers, "shm");
        assert_eq!(curve[0].count, 10);
        assert_eq!(curve[0].outcomes[0].samples.len(), 6);
        assert_eq!(curve[0].outcomes[0].figure(Figure::Connect), Some(2e3));
        assert_eq!(curve[1].outcomes[1].figure(Figure::Connect), None);
        assert!(curve[1].outcomes[1].ended.is_some());
        assert!(one.curve(Curve::Posted, "shm").is_empty());
        let mut elsewhere = record();
        elsewhere.machine = "another".to_owned();
        assert!(one.merge(elsewhere).is_err());
    }

    #[test]
    fn subjects_are_told_apart_by_their_labels() {
        let (mut one, mut other) = (record(), record());
        other.subjects[0].label = "another".to_owned();
        one.merge(other).expect("the same machine");
        let labels: Vec<&str> = one.subjects.iter().map(|s| s.label.as_str()).collect();
        assert_eq!(labels, ["ours", "peer", "another"]);
        let curve = one.curve(Curve::Peers, "shm");
        let samples = |subject: usize| curve[0].outcomes[subject].samples.len();
        assert_eq!([samples(0), samples(1), samples(2)], [3, 2, 3]);
    }

    #[test]
    fn a_record_is_kept_as_text() {
        let text = serde_json::to_string(&record()).expect("JSON");
        let again: Record = serde_json::from_str(&text).expect("the same");
        let point = &again.points[1].outcomes[0];
        assert_eq!(point.samples[2][&Figure::Connect], 9e3);
    }
}
