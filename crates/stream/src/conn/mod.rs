//! Connections: how they are made and accepted, and how they end.

pub(crate) mod accept;
pub(crate) mod deadlines;
pub(crate) mod end;
pub(crate) mod eq_events;
pub(crate) mod handshake;
pub(crate) mod msg;
pub(crate) mod parting;
pub(crate) mod rdm;
