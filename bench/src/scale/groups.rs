//! Collectives of processes of a library, with the processes of `ripstop perf --collective`. A member
//! gives up itself when nothing happens for 20 seconds.

use std::path::Path;

use anyhow::Result;
use ripstop_cli::perf::{Crew, Kind, Setup, Start, Subject, Test, Wanted};

use super::record::{Figure, Figures};

/// Bytes of an element, which is all that is summed.
const SIZE: usize = 8;
/// Operations from which it is seen how long one takes, and of a sample at most.
const FIRST: u32 = 20;
const MOST: u32 = 4_000;
/// Nanoseconds that a sample is to take.
const TIME: u64 = 400_000_000;

/// The time of a barrier and of a sum over so many processes.
///
/// # Errors
/// What a process says.
pub(super) fn sample(lib: &Path, provider: &str, processes: u64) -> Result<Figures> {
    let subject = Subject::Library(lib.to_owned());
    let mut crew = Crew::start(&Start {
        subject: &subject,
        processes: usize::try_from(processes)?,
        cores: Vec::new(),
        setup: Setup {
            provider: provider.to_owned(),
            wanted: Wanted::Groups,
            rank: 0,
            core: None,
            largest: SIZE,
            bare: false,
            memfd: false,
        },
    })?;
    let mut figures = Figures::new();
    for (kind, figure) in [
        (Kind::Barrier, Figure::Barrier),
        (Kind::Allreduce, Figure::Allreduce),
    ] {
        let mut take = |count| -> Result<u64> {
            let size = if kind == Kind::Barrier { 0 } else { SIZE };
            Ok(crew.take(Test::new(kind, size, count))?.nanos)
        };
        let count = enough(take(FIRST)?);
        figures.insert(figure, take(count)? as f64 / f64::from(count));
    }
    Ok(figures)
}

/// Operations of a sample when [`FIRST`] take so many nanoseconds.
fn enough(nanos: u64) -> u32 {
    let count = TIME * u64::from(FIRST) / nanos.max(1);
    u32::try_from(count).unwrap_or(MOST).clamp(FIRST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_operations_are_few() {
        assert_eq!(enough(0), MOST);
        assert_eq!(enough(20_000_000), 400);
        assert_eq!(enough(u64::MAX), FIRST);
    }
}
