//! Event queues (man page `fi_eq(3)`): connection management and asynchronous control
//! operations report here. One type serves all providers.
//!
//! A provider [`push`](EventQueue::push)es events. It also registers its domains as
//! [`ProgressSource`]s: reading an empty queue makes them progress, and waiting on the queue
//! waits on their descriptors as well.
//!
//! Providers push from inside their progress, under locks of their own; the queue holds no
//! lock while it calls them.

mod event;
mod queue;
mod source;
mod wait;

pub use event::{Event, EventError};
pub use queue::{EqAttr, EventQueue};
pub use source::ProgressSource;

#[cfg(test)]
mod tests;
