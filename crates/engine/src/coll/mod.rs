//! Collective operations (man page `fi_collective(3)`), whatever carries their messages;
//! `docs/design/collectives.md` says why they are as they are.
//!
//! [`Plan`] is a pure function from an operation, the size of the group and a member's rank to
//! the steps of that member. [`Collectives`] has the groups and the operations in flight. Its
//! driver, a protocol engine such as [`stream`](crate::stream), tells it what arrives, and does what
//! [`Collectives::next_action`] asks for: messages to members, copies, reductions.

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
