//! The options of `ripstop perf`.

use std::path::PathBuf;

use clap::Args;

use super::protocol::Setup;

/// The hidden subcommand of the measuring processes.
pub const WORKER: &str = "perf-worker";

/// Largest message that can be asked for: 64 MiB.
const MAX_SIZE: usize = 64 << 20;

/// Options of the measurement.
#[derive(Args, Debug, Default)]
pub struct Options {
    /// Another libfabric.so.1 to measure beside Ripstop; given twice, the two of them.
    #[arg(long, value_name = "PATH")]
    pub(super) lib: Vec<PathBuf>,

    /// Measure only this provider.
    #[arg(short, long, value_name = "PROV")]
    pub(super) provider: Option<String>,

    /// Message sizes in bytes, such as 8,4K,1M.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    pub(super) sizes: Vec<usize>,

    /// Messages of each sample, instead of a number that suits the size.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) iterations: Option<u32>,

    /// Few sizes, short samples, three pairs.
    #[arg(long)]
    pub(super) quick: bool,

    /// How often each sample is taken; medians are printed. The default is 5.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) pairs: Option<u32>,

    /// Measure the insertion of N peers into an address vector instead.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_000_000))]
    pub(super) av: Option<u32>,

    /// Measure writes and reads of remote memory instead.
    #[arg(long, conflicts_with = "av")]
    pub(super) rma: bool,

    /// Let both sides send, or write and read, at once.
    #[arg(long, conflicts_with_all = ["av", "collective"])]
    pub(super) both: bool,

    /// Let libraries register memory from memfd_create, sealed, which peers can map, to be written
    /// and read.
    #[arg(long, requires_all = ["rma", "lib"])]
    pub(super) memfd: bool,

    /// Measure barriers and reductions of a group of processes instead.
    #[arg(long, conflicts_with_all = ["av", "rma", "cores"])]
    pub(super) collective: bool,

    /// Processes of the group; 4 by default.
    #[arg(long, value_name = "N", requires = "collective", value_parser = clap::value_parser!(u32).range(2..=64))]
    pub(super) ranks: Option<u32>,

    /// The two cores to run on, such as 0,1.
    #[arg(long, value_name = "A,B", value_parser = cores)]
    pub(super) cores: Option<(usize, usize)>,

    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub(super) json: bool,
}

/// Options of one of the measuring processes.
#[derive(Args, Debug)]
pub struct WorkerOptions {
    /// The library to load; Ripstop itself without one.
    #[arg(long)]
    pub(super) lib: Option<PathBuf>,

    /// What to open, as JSON.
    #[arg(value_parser = |text: &str| serde_json::from_str::<Setup>(text))]
    pub(super) setup: Setup,
}

/// A message size in bytes, with `K` and `M` for powers of 1024.
///
/// # Errors
/// What to give instead.
pub fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.trim().to_ascii_uppercase() {
        text if text.ends_with('K') => (text[..text.len() - 1].to_owned(), 1 << 10),
        text if text.ends_with('M') => (text[..text.len() - 1].to_owned(), 1 << 20),
        text => (text, 1),
    };
    let size = digits
        .parse::<usize>()
        .ok()
        .and_then(|n| n.checked_mul(unit));
    match size {
        Some(size @ 1..=MAX_SIZE) => Ok(size),
        _ => Err("give bytes from 1 to 64M, such as 8, 4K or 1M".to_owned()),
    }
}

fn cores(text: &str) -> Result<(usize, usize), String> {
    text.split_once(',')
        .and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)))
        .ok_or_else(|| "give two core numbers, such as 0,1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("8"), Ok(8));
        assert_eq!(size("4k"), Ok(4096));
        assert_eq!(size("1M"), Ok(1 << 20));
        for wrong in [
            "",
            "0",
            "K",
            "-1",
            "1.5K",
            "65M",
            "99999999999999999999",
            "8G",
        ] {
            assert!(size(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn two_cores_are_named() {
        assert_eq!(cores("2, 3"), Ok((2, 3)));
        assert!(cores("2").is_err());
        assert!(cores("a,b").is_err());
    }
}
