//! What is compared: ours, others and the machine.

use serde::{Deserialize, Serialize};

use crate::plot::Tint;

/// What a column of samples belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Our libfabric.so.1 through the C interface.
    Ours,
    /// Ours from Rust.
    Rust,
    /// Another libfabric.so.1.
    Peer,
    /// UCX.
    Ucx,
    /// The machine's limit.
    Machine,
    /// An MPI with its own transports.
    Mpi,
    /// An MPI over our library.
    OnOurs,
}

/// One of the things compared.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Subject {
    pub(crate) role: Role,
    /// The heading of its column.
    pub(crate) label: String,
    /// The library's path, or what was done.
    pub(crate) about: String,
}

/// The label of a peer, counted from 0.
pub(crate) fn peer_label(number: usize) -> String {
    match number {
        0 => "peer".to_owned(),
        number => format!("peer {}", number + 1),
    }
}

/// Whether two runs compared the same.
pub(crate) fn same(one: &[Subject], other: &[Subject]) -> bool {
    let labels = |of: &[Subject]| of.iter().map(|s| s.label.clone()).collect::<Vec<_>>();
    labels(one) == labels(other)
}

impl Role {
    /// What the line of a subject is drawn in; peers differ by their numbers, and so do MPIs.
    pub(crate) fn color(self, number: usize) -> Tint {
        const PEERS: [Tint; 3] = [Tint(210, 50, 30), Tint(230, 140, 0), Tint(130, 60, 160)];
        const MPIS: [Tint; 4] = [
            Tint(30, 150, 60),
            Tint(200, 80, 150),
            Tint(90, 190, 170),
            Tint(90, 80, 180),
        ];
        match self {
            Self::Ours => Tint(0, 90, 200),
            Self::Rust => Tint(0, 160, 220),
            Self::Machine => Tint(130, 130, 130),
            Self::Ucx => Tint(150, 100, 40),
            Self::Mpi | Self::OnOurs => MPIS[number % MPIS.len()],
            Self::Peer => PEERS[number % PEERS.len()],
        }
    }
}
