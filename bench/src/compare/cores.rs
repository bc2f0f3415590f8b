//! Which cores the two sides run on.

use anyhow::{Context as _, Result};
use ripstop_cli::perf::{Subject, Wanted, allowed_cores, choose_cores};

use super::columns::Place;

/// How often a cache line goes there and back to tell pairs of cores apart.
const HANDOVERS: u32 = 10_000;

/// What `--cores` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cores {
    /// These two, which may be one.
    Pair(usize, usize),
    /// The first core and the one to which it hands a cache line over fastest.
    Near,
    /// The first core and the one to which that takes longest.
    Far,
    /// Both sides on the first core.
    One,
}

impl Cores {
    /// From the command line.
    ///
    /// # Errors
    /// What to give instead.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let pair = |(a, b): (&str, &str)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?));
        match text.trim() {
            "near" => Ok(Self::Near),
            "far" => Ok(Self::Far),
            "one" => Ok(Self::One),
            other => match other.split_once(',').and_then(pair) {
                Some((a, b)) => Ok(Self::Pair(a, b)),
                None => Err("give near, far, one, or two core numbers, such as 0,1".to_owned()),
            },
        }
    }

    /// The two cores; `None` where only one may be used and both sides were not to share it.
    ///
    /// # Errors
    /// For cores that may not be used, or when a cache line cannot be handed over.
    pub(super) fn choose(asked: Option<Self>) -> Result<Option<(usize, usize)>> {
        let least = |one: f64, other: f64| one < other;
        match asked {
            None => choose_cores(None),
            Some(Self::Pair(a, b)) => choose_cores(Some((a, b))),
            Some(Self::One) => {
                let first = allowed_cores()?.first().copied();
                let first = first.context("no core may be used")?;
                Ok(Some((first, first)))
            }
            Some(Self::Near) => measured(least),
            Some(Self::Far) => measured(|one, other| least(other, one)),
        }
    }
}

/// The first core and another one, of all the one whose handover is better than all others'.
fn measured(is_better: impl Fn(f64, f64) -> bool) -> Result<Option<(usize, usize)>> {
    let allowed = allowed_cores()?;
    let Some((&first, rest)) = allowed.split_first() else {
        return Ok(None);
    };
    let mut best = None;
    for &other in rest {
        let nanos = handover(first, other)?;
        if best.is_none_or(|(_, before)| is_better(nanos, before)) {
            best = Some((other, nanos));
        }
    }
    if let Some((other, nanos)) = best {
        let of = rest.len();
        eprintln!(
            "cores {first} and {other} of {of} pairs: a cache line is handed over in {nanos:.0} ns"
        );
    }
    Ok(best.map(|(other, _)| (first, other)))
}

/// Nanoseconds of a handover between two cores.
fn handover(a: usize, b: usize) -> Result<f64> {
    let place = Place {
        provider: "shm",
        wanted: Wanted::Messages,
        largest: 1,
        cores: vec![a, b],
        peers: 1,
    };
    let nanos = place.start(&Subject::Machine)?.hand_over(HANDOVERS)?;
    Ok(nanos as f64 / f64::from(HANDOVERS) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_named_or_numbered() {
        assert_eq!(Cores::parse("0,1"), Ok(Cores::Pair(0, 1)));
        assert_eq!(Cores::parse(" 3, 3"), Ok(Cores::Pair(3, 3)));
        assert_eq!(Cores::parse("near"), Ok(Cores::Near));
        assert_eq!(Cores::parse("far"), Ok(Cores::Far));
        assert_eq!(Cores::parse("one"), Ok(Cores::One));
        for wrong in ["", "1", "0 1", "middle", "0,x"] {
            assert!(Cores::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn one_core_is_for_both_sides() {
        let (a, b) = Cores::choose(Some(Cores::One))
            .expect("a core")
            .expect("a core");
        assert_eq!(a, b);
    }
}
