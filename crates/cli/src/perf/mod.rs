//! `ripstop perf`: two processes of this machine, one core each, exchange tagged messages over
//! every local provider; or several form a group and reduce what they have.
//!
//! The processes are this program again, under a hidden subcommand. They obey the lines that
//! they read from this process (`protocol`) and are blocked in that read while they are not
//! measuring, so that a pair of one library never disturbs a pair of the other. Samples of two
//! libraries alternate: A B, then B A, and so on.

mod args;
mod av;
mod cores;
mod crew;
mod handover;
mod lane;
mod member;
mod opened;
mod plan;
mod protocol;
mod report;
mod run;
mod subject;
mod worker;

pub use args::{Options, WORKER, WorkerOptions};
pub use run::main;
pub use worker::main as worker;
