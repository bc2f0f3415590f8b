//! Runs every body for a while on bytes from a generator: well-formed inputs, damaged ones, and
//! noise. `RIPSTOP_SMOKE_ROUNDS` overrides how many. The seed is another each time and is printed
//! where a body does not hold; `RIPSTOP_SMOKE_SEED` repeats it.

use fastrand::Rng;
use ripstop_fuzz_bodies::{BODIES, Body};
use ripstop_wire::ByteOrder;

/// Between a tenth of a second and a few seconds a body.
const ROUNDS: u32 = 1_000_000;

const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

/// Bytes with which damage finds the branches sooner than with any others.
const EDGES: [u8; 12] = [0, 1, 2, 3, 4, 5, 7, 8, 16, 0x7f, 0x80, 0xff];

/// The number that a variable holds, if there is such a variable.
fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    let number = text.parse().ok();
    Some(number.unwrap_or_else(|| panic!("{name}: expected a number, not {text}")))
}

fn input(seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    if rng.u8(..8) == 0 {
        let len = rng.usize(..192);
        return std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
    }
    let mut bytes = seeds[rng.usize(..seeds.len())].clone();
    for _ in 0..rng.u8(..6) {
        damage(&mut bytes, rng);
    }
    bytes
}

fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    if bytes.is_empty() {
        return;
    }
    let at = rng.usize(..bytes.len());
    match rng.u8(..6) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, rng.u8(..)),
        2 => bytes[at] ^= 1 << rng.u8(..8),
        3 => bytes[at] = rng.u8(..),
        _ => bytes[at] = EDGES[rng.usize(..EDGES.len())],
    }
}

fn check(body: &Body, bytes: &[u8]) {
    let outcome = std::panic::catch_unwind(|| (body.run)(bytes));
    assert!(
        outcome.is_ok(),
        "{} does not hold on {bytes:02x?}",
        body.name
    );
}

#[test]
fn bodies_hold_on_damaged_input_and_noise() {
    let seed = number("RIPSTOP_SMOKE_SEED").unwrap_or_else(|| fastrand::u64(..));
    let rounds = number("RIPSTOP_SMOKE_ROUNDS").unwrap_or(ROUNDS);
    // Shown by the harness with what fails.
    println!("RIPSTOP_SMOKE_SEED={seed}");
    for body in BODIES {
        let seeds = (body.seeds)();
        seeds.iter().for_each(|seed| check(body, seed));
        let mut rng = Rng::with_seed(seed);
        for _ in 0..rounds {
            check(body, &input(&seeds, &mut rng));
        }
    }
}

/// So that a body cannot pass by refusing everything.
#[test]
fn seeds_are_well_formed() {
    for Body { name, seeds, .. } in BODIES {
        let seeds = seeds();
        assert!(!seeds.is_empty(), "{name}");
        for seed in seeds {
            let accepted = match *name {
                "xnet_base" => ripstop_wire::xnet::base::peek_len(&seed).is_ok(),
                "xnet_cm" => ripstop_wire::xnet::cm::Header::parse(&seed).is_ok(),
                "xnet_rdm" => ripstop_wire::xnet::rdm::Greeting::parse(&seed).is_ok(),
                "rxm_unit" => ORDERS
                    .iter()
                    .any(|order| ripstop_wire::rxm::Unit::parse(*order, &seed).is_ok()),
                _ => !seed.is_empty(),
            };
            assert!(accepted, "{name}: {seed:02x?}");
        }
    }
}
