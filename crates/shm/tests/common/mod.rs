//! What unit tests of the crate have in common: endpoints, other processes, and groups of processes under load.

mod endpoints;
mod flow;
pub(crate) mod group;
mod hostile_group;
pub(crate) mod load;
mod talk;

pub(crate) use endpoints::*;
