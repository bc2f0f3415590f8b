//! The provider through the object model: one program, since each would be built with all of the provider.
//! Tests that look at their own process (what it has mapped, its time on a processor) are in the program beside it.
#![deny(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod common;
#[path = "../common/freed.rs"]
mod freed;
#[path = "../common/outside.rs"]
mod outside;

mod attach;
mod get;
mod joint;
mod joint_access;
mod kill;
mod limits;
mod pairs;
mod processes;
