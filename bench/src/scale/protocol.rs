//! What the measuring processes and the one that started them say to each other: one JSON value a
//! line.

use serde::{Deserialize, Serialize};

use super::record::Figures;

/// The hidden subcommand that a measuring process runs.
pub(crate) const WORKER: &str = "scale-worker";

/// What a process does, which it is told when it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(super) provider: String,
    pub(super) job: Job,
    /// The core to run on.
    pub(super) core: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Job {
    /// The endpoint that all peers are connected to.
    Hub,
    /// So many endpoints, each a peer of the hub.
    Peers(u64),
    /// So many posted receives.
    Posted(u64),
    /// So many unexpected messages.
    Unexpected(u64),
    /// So many registered regions.
    Regions(u64),
}

/// What a process is told later.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Hub: connect to the endpoints with these addresses.
    Connect(Vec<Vec<u8>>),
    /// Peers: answer the first message of the hub with this address, at each endpoint.
    Answer(Vec<u8>),
    /// Hub: send to the first endpoint, and read until it has answered, again and again.
    RoundTrips,
    /// Peers: answer at the first endpoint until the hub says that it is over.
    Serve,
    /// Hub: read the queue with nothing to find.
    Idle,
}

/// What a process answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It has opened endpoints with these addresses.
    Open(Vec<Vec<u8>>),
    /// It has done what it was told, and what that took.
    Took(Figures),
    /// It got so far and no further, and why.
    Ended(Ends),
    /// It cannot go on, and why.
    Failed(String),
}

/// Why a curve ends: how far it got, and what came then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ends {
    pub(super) at: u64,
    pub(super) why: String,
}

impl std::fmt::Display for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ends at {}: {}", grouped(self.at), self.why)
    }
}

impl std::error::Error for Ends {}

/// A result of the number `at`, counted from 0, of many: an error ends the curve there.
pub(super) fn at<T>(at: u64, result: anyhow::Result<T>) -> anyhow::Result<T> {
    result.map_err(|error| {
        let why = format!("{error:#}");
        Ends { at, why }.into()
    })
}

/// The error of one of several processes, before which `more` were counted.
pub(super) fn after(more: u64, error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<Ends>() {
        Ok(Ends { at, why }) => Ends { at: at + more, why }.into(),
        Err(error) => error,
    }
}

/// A number with commas between groups of three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn an_end_says_where_and_why() {
        let failed = at::<()>(
            4_000,
            Err(anyhow!("Too many open files").context("fi_enable")),
        );
        let text = format!("{:#}", failed.expect_err("an end"));
        assert_eq!(text, "ends at 4,000: fi_enable: Too many open files");
        assert_eq!(at(1, Ok(2)).expect("no end"), 2);
        let failed = at::<()>(5, Err(anyhow!("full"))).expect_err("an end");
        assert_eq!(after(2_500, failed).to_string(), "ends at 2,505: full");
        assert_eq!(after(2_500, anyhow!("full")).to_string(), "full");
    }

    #[test]
    fn orders_are_lines() {
        let setup = Setup {
            provider: "tcp".to_owned(),
            job: Job::Peers(3),
            core: Some(1),
        };
        let text = serde_json::to_string(&setup).expect("JSON");
        assert!(!text.contains('\n'));
        let again: Setup = serde_json::from_str(&text).expect("the same");
        assert_eq!(again, setup);
    }
}
