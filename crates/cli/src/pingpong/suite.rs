//! The messages of a run, size by size.

use std::time::Instant;

use anyhow::Result;
use ripstop_core::provider::Domain;

use super::args::{Args, Sizes};
use super::control::Control;
use super::link::Link;
use super::show;
use crate::outln;

/// Sizes without `-S`.
const DEFAULTS: [usize; 6] = [64, 256, 1024, 4096, 65536, 1 << 20];
/// The largest size of `-S all`: halfway beyond 4 MiB.
const LARGEST: usize = (1 << 22) + (1 << 21);

/// The largest message of a run, given what an endpoint can send.
pub(super) fn largest(args: &Args, max_msg_size: usize) -> usize {
    match args.size {
        Some(Sizes::One(size)) => size,
        _ => LARGEST.min(max_msg_size),
    }
}

/// The sizes that are tried.
fn sizes(asked: Option<Sizes>, largest: usize) -> Vec<usize> {
    let mut sizes = match asked {
        Some(Sizes::One(size)) => vec![size],
        None => DEFAULTS.to_vec(),
        Some(Sizes::All) => {
            let powers = (1..usize::BITS - 1).map(|power| 1 << power);
            let pairs = powers.take_while(|&size| size <= LARGEST);
            [0, 1]
                .into_iter()
                .chain(pairs.flat_map(|size| [size, size + size / 2]))
                .collect()
        }
    };
    sizes.retain(|&size| size <= largest);
    sizes
}

/// Everything after the connection is there.
///
/// # Errors
/// What went wrong with a message or with the other side.
pub(super) fn run<D: Domain>(
    link: &mut Link<D>,
    control: &mut Control,
    args: &Args,
    largest: usize,
) -> Result<()> {
    if args.check {
        link.check_data();
    }
    let mut first = true;
    for size in sizes(args.size, largest) {
        control.sync(args.is_client(), &mut || link.read().map(drop))?;
        let start = Instant::now();
        for _ in 0..args.iterations {
            if args.is_client() {
                link.send(size, control)?;
                link.recv(size, control)?;
            } else {
                link.recv(size, control)?;
                link.send(size, control)?;
            }
        }
        let took = start.elapsed();
        let sent = u64::from(args.iterations);
        let acked = control.count(args.is_client(), sent, &mut || link.read().map(drop))?;
        if sent == 0 {
            continue;
        }
        if std::mem::take(&mut first) {
            outln!("{}", show::header());
        }
        outln!("{}", show::line(size, sent, acked, took));
    }
    link.finish(control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_libfabric() {
        assert_eq!(sizes(None, LARGEST), DEFAULTS);
        assert_eq!(sizes(None, 5000), [64, 256, 1024, 4096]);
        assert_eq!(sizes(Some(Sizes::One(3)), 3), [3]);
        let all = sizes(Some(Sizes::All), LARGEST);
        assert_eq!(all[..8], [0, 1, 2, 3, 4, 6, 8, 12]);
        assert_eq!(all[all.len() - 2..], [4 << 20, 6 << 20]);
    }
}
