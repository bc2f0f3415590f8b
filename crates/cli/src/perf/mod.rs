//! `ripstop perf`: two processes of this machine, one core each, exchange tagged messages over
//! every local provider; or several form a group and reduce what they have.
//!
//! The processes are this program again, under a hidden subcommand. They obey the lines that
//! they read from this process (`protocol`) and are blocked in that read while they are not
//! measuring, so that a pair of one library never disturbs a pair of the other. Samples of two
//! libraries alternate: A B, then B A, and so on.
//!
//! Programs that measure more than two at once use the same processes: [`Crew`] starts them, also
//! those that show what the machine itself can do ([`Subject::Machine`]), and takes samples. They run
//! the program that calls it, which must have the subcommand [`WORKER`].

mod args;
mod av;
mod bare;
mod cores;
mod crew;
mod handover;
mod lane;
mod member;
mod opened;
mod pages;
mod plan;
mod protocol;
mod report;
mod run;
mod subject;
mod worker;

pub use args::{Options, WORKER, WorkerOptions, size};
pub use av::resident;
pub use cores::{allowed as allowed_cores, choose as choose_cores, pin, warn as warn_of_load};
pub use crew::{Crew, Start};
pub use opened::address;
pub use protocol::{BATCH, Kind, Measured, Sample, Setup, Test, WINDOW, batch};
pub use report::{bytes, digits, median};
pub use run::main;
pub use subject::{Lacks, Subject, Wanted, find as find_library};
pub use worker::main as worker;
