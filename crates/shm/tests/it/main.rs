//! The provider through the object model: one program, since each would be built with all of the provider.
//! Tests that look at their own process (what it has mapped, its time on a processor) are programs beside it.
#![deny(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

#[expect(dead_code, reason = "the programs beside this one use the rest")]
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/freed.rs"]
mod freed;

mod attach;
mod get;
mod joint;
mod kill;
mod limits;
mod pairs;
mod processes;
