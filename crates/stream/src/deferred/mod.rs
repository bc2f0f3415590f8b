//! Operations that wait for others: triggered ones, and the steps of collectives.

pub(crate) mod coll;
pub(crate) mod triggered;
