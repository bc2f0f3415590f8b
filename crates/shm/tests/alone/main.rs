//! Tests that look at their own process: what it has mapped, its descriptors, its time on a processor. One at a time.
#![deny(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "../common/endpoints.rs"]
mod common;
#[path = "../common/freed.rs"]
mod freed;
#[path = "../common/outside.rs"]
mod outside;

mod direct;
mod mapped;
mod one_core;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time: all lines of the log are its own, and what it counts of the process.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
