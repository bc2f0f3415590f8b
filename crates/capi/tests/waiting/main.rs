//! C programs with many threads that wait for one object. What they wait for comes from another
//! domain, one after the other: the next only when the one before was noticed, so that nothing
//! makes up for a wake-up that was lost. No wait has an end.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

#[path = "../c/mod.rs"]
mod c;
mod counters;
mod end;
mod interrupts;
mod queues;
mod sets;
