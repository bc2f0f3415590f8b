//! Collective operations (man page `fi_collective(3)`), whatever carries their messages;
//! `docs/design/collectives.md` says why they are as they are.
//!
//! [`Plan`] is a pure function from an operation, the size of the group and a member's rank to
//! the steps of that member. [`Collectives`] has the groups and the operations in flight. Its
//! driver, a protocol engine such as [`stream`](crate::stream), tells it what arrives, and does what
//! [`Collectives::next_action`] asks for: messages to members, copies, reductions.
//!
//! | to mend | modules |
//! |---|---|
//! | a join that does not end | `join`; `circle` with `probe`, where members wait for each other |
//! | an operation that hangs | `progress` (its steps, sends and grants), `arrivals` (what a message does), `keep` (`early` messages), `waiting` (queries, lines for the log) |
//! | a wrong result | `plan` |
//! | what the driver is asked to do | `action`, `queue` |
//!
//! `collectives` starts and ends operations; `group`, `operation` and `message` are what the others work on.

mod action;
mod arrivals;
mod circle;
mod collectives;
mod early;
mod group;
mod join;
mod keep;
mod message;
mod operation;
mod plan;
mod probe;
mod progress;
mod queue;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_circle;
#[cfg(test)]
mod tests_talk;
mod waiting;

pub use action::{Action, Held, Outcome, Place, Purpose, Task};
pub use arrivals::Arrival;
pub use collectives::Collectives;
pub use group::Joining;
pub use message::{EAGER, Gone, Kind, Message};
pub use operation::Request;
pub use plan::{Buf, Part, Plan, Range, Step, Then};
