//! Collective operations (man page `fi_collective(3)`), whatever carries their messages;
//! `docs/design/collectives.md` says why they are as they are.
//!
//! [`Plan`] is a pure function from an operation, the size of the group and a member's rank to
//! the steps of that member. [`Collectives`] has the groups and the operations in flight. Its
//! driver, a protocol engine such as [`stream`](crate::stream), tells it what arrives, and does what
//! [`Collectives::next_action`] asks for: messages to members, copies, reductions.

mod circle;
mod early;
mod group;
mod join;
mod message;
mod operation;
mod plan;
mod probe;
mod progress;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_circle;
#[cfg(test)]
mod tests_talk;
mod waiting;

pub use group::{Collectives, Joining};
pub use message::{EAGER, Gone, Kind, Message};
pub use operation::{Action, Outcome, Place, Purpose, Request, Task, Waits};
pub use plan::{Buf, Part, Plan, Range, Step, Then};
pub use progress::Arrival;
pub use waiting::Held;
