//! What the fuzz targets do with their bytes.
//!
//! A body takes any bytes, feeds them to one decoder, and panics if what comes out breaks a
//! promise of that decoder. The targets in `fuzz/fuzz_targets` hand it libFuzzer's bytes, the
//! test in `tests/smoke.rs` those of a random generator with a fixed seed, so that
//! `cargo test` on stable Rust covers a little of what fuzzing covers.
#![forbid(unsafe_code)]

pub mod engine;
pub mod rxm;
pub mod xnet;

/// One body with what a random generator starts from.
pub struct Body {
    /// The name of the fuzz target.
    pub name: &'static str,
    /// The body. Panics if a decoder breaks a promise.
    pub run: fn(&[u8]),
    /// Well-formed inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every body.
pub const BODIES: &[Body] = &[
    Body {
        name: "xnet_base",
        run: xnet::base,
        seeds: xnet::base_seeds,
    },
    Body {
        name: "xnet_base_emit",
        run: xnet::base_emit,
        seeds: xnet::base_emit_seeds,
    },
    Body {
        name: "xnet_stream",
        run: xnet::stream,
        seeds: xnet::stream_seeds,
    },
    Body {
        name: "xnet_cm",
        run: xnet::cm,
        seeds: xnet::cm_seeds,
    },
    Body {
        name: "xnet_rdm",
        run: xnet::rdm,
        seeds: xnet::rdm_seeds,
    },
    Body {
        name: "xnet_engine",
        run: engine::receive,
        seeds: engine::receive_seeds,
    },
    Body {
        name: "rxm_unit",
        run: rxm::unit,
        seeds: rxm::unit_seeds,
    },
    Body {
        name: "rxm_cm",
        run: rxm::cm,
        seeds: rxm::cm_seeds,
    },
    Body {
        name: "rxm_engine",
        run: engine::receive_packets,
        seeds: engine::receive_packets_seeds,
    },
];
