//! The things compared, and how each of them takes a sample.

use std::path::Path;

use anyhow::Result;
use ripstop_cli::perf::{self, Crew, Kind, Lacks, Setup, Start, Test, Wanted, find_library};

use super::Options;
use super::mpi::{Mpi, Ranks};
use super::ucx::Ucx;
use crate::subject::{Role, Subject, peer_label};

/// One of the columns, and what its processes run.
pub(super) struct Column {
    pub(super) shown: Subject,
    runs: Runs,
}

enum Runs {
    /// Processes of `ripstop perf`.
    Perf(perf::Subject),
    /// `ucx_perftest`.
    Ucx(Ucx),
    /// Two ranks of an MPI.
    Mpi(Mpi),
}

/// What the processes of one round are for.
pub(super) struct Place<'a> {
    pub(super) provider: &'a str,
    pub(super) wanted: Wanted,
    /// The largest message.
    pub(super) largest: usize,
    /// One for each process, by rank, or none.
    pub(super) cores: Vec<usize>,
    /// Processes beside the first.
    pub(super) peers: u32,
}

impl Place<'_> {
    /// Starts the processes of a subject of `ripstop perf`.
    ///
    /// # Errors
    /// What any of them says.
    pub(super) fn start(&self, subject: &perf::Subject) -> Result<Crew> {
        Crew::start(&Start {
            subject,
            processes: 1 + self.peers as usize,
            cores: self.cores.clone(),
            setup: Setup {
                provider: self.provider.to_owned(),
                wanted: self.wanted,
                rank: 0,
                core: None,
                largest: self.largest,
                bare: *subject == perf::Subject::Machine,
                // All reach ordinary memory, so that all do the same.
                memfd: false,
            },
        })
    }
}

/// The processes of a column in one round.
pub(super) enum Taker<'a> {
    /// They wait for orders.
    Crew(Crew, &'a Place<'a>),
    /// They are started for each sample.
    Ucx(&'a Ucx, &'a Place<'a>),
    /// They wait for orders.
    Mpi(&'a Mpi, Ranks),
}

impl Column {
    /// Starts what stays for a round; `None` where a library has not what is measured.
    ///
    /// # Errors
    /// What a process says.
    pub(super) fn start<'a>(&'a self, place: &'a Place<'a>) -> Result<Option<Taker<'a>>> {
        match &self.runs {
            // Others have no test of more than two processes.
            Runs::Perf(perf::Subject::Machine) | Runs::Ucx(_) | Runs::Mpi(_) if place.peers > 1 => {
                Ok(None)
            }
            Runs::Perf(subject) => match place.start(subject) {
                Err(error) if error.is::<Lacks>() => {
                    eprintln!("note: {error}, so it is left out");
                    Ok(None)
                }
                other => other.map(|crew| Some(Taker::Crew(crew, place))),
            },
            Runs::Ucx(ucx) => Ok(Some(Taker::Ucx(ucx, place))),
            // It has tests of messages within a machine.
            Runs::Mpi(_) if place.provider != "shm" || place.wanted != Wanted::Messages => Ok(None),
            Runs::Mpi(mpi) => match mpi.start(&place.cores) {
                Ok(ranks) => Ok(Some(Taker::Mpi(mpi, ranks))),
                Err(error) => {
                    eprintln!("note: {}: {error:#}, so it is left out", mpi.label());
                    Ok(None)
                }
            },
        }
    }
}

impl Taker<'_> {
    /// A sample: nanoseconds of one message, operation, exchange or half of a round trip; `None` for
    /// what is not possible, or did not succeed with a program that is not ours, which is said.
    ///
    /// # Errors
    /// When a process of ours fails.
    pub(super) fn take(&mut self, test: Test) -> Result<Option<f64>> {
        match self {
            Self::Crew(crew, place) => {
                let sample = crew.take(test)?;
                Ok((sample.nanos > 0).then(|| each(sample.nanos, test, place.peers)))
            }
            Self::Ucx(ucx, place) => {
                let taken = ucx.take(place.provider, test, &place.cores);
                Ok(taken.unwrap_or_else(|error| {
                    eprintln!("note: UCX, {}: {error:#}", place.provider);
                    None
                }))
            }
            Self::Mpi(mpi, ranks) => Ok(ranks.take(test).unwrap_or_else(|error| {
                eprintln!("note: {}: {error:#}", mpi.label());
                None
            })),
        }
    }
}

/// Nanoseconds of one: half of a round trip, all of anything else.
fn each(nanos: u64, test: Test, peers: u32) -> f64 {
    let parts = if test.kind == Kind::Latency { 2 } else { peers };
    nanos as f64 / f64::from(test.count) / f64::from(parts)
}

/// Ours, ours from Rust, the peers, UCX, the MPIs and the machine.
///
/// # Errors
/// When something that was asked for is not there.
pub(super) fn columns(options: &Options) -> Result<Vec<Column>> {
    let ours = options.comparison.ours()?;
    let column = |role, label: &str, about: String, runs| Column {
        shown: Subject {
            role,
            label: label.to_owned(),
            about,
        },
        runs,
    };
    let path = |path: &Path| path.display().to_string();
    let mut columns = vec![
        column(
            Role::Ours,
            "ours",
            format!("{}, through the C interface", path(&ours)),
            Runs::Perf(perf::Subject::Library(ours.clone())),
        ),
        column(
            Role::Rust,
            "Rust",
            "the same sources from Rust".to_owned(),
            Runs::Perf(perf::Subject::Native),
        ),
    ];
    for (number, peer) in options.comparison.peer.iter().enumerate() {
        let found = find_library(peer)?;
        let about = format!("{}, through the C interface", path(&found));
        columns.push(column(
            Role::Peer,
            &peer_label(number),
            about,
            Runs::Perf(perf::Subject::Library(found)),
        ));
    }
    if let Some(ucx) = Ucx::find(options.ucx.as_deref())? {
        columns.push(column(Role::Ucx, "UCX", ucx.about(), Runs::Ucx(ucx)));
    }
    if options.mpi {
        match Mpi::all(&ours) {
            Ok(ways) => columns.extend(ways.into_iter().map(|(shown, mpi)| Column {
                shown,
                runs: Runs::Mpi(mpi),
            })),
            Err(error) => eprintln!("note: no MPI: {error:#}"),
        }
    }
    columns.push(column(
        Role::Machine,
        "machine",
        "tcp: plain sockets, polled; shm: memcpy through a shared buffer for messages, attach (process_vm) \
         for writes and reads"
            .to_owned(),
        Runs::Perf(perf::Subject::Machine),
    ));
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_round_trip_is_half() {
        let test = |kind| Test::new(kind, 8, 10);
        assert_eq!(each(1000, test(Kind::Latency), 1), 50.0);
        assert_eq!(each(1000, test(Kind::Exchange), 1), 100.0);
        assert_eq!(each(1000, test(Kind::StreamBoth), 1), 100.0);
        // Each of four has sent ten.
        assert_eq!(each(1000, test(Kind::Gather), 4), 25.0);
    }
}
