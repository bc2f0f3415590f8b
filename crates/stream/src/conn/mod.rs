//! Connections: how they are made and accepted, and how they end.

pub(crate) mod accept;
pub(crate) mod deadlines;
pub(crate) mod end;
pub(crate) mod events;
pub(crate) mod handshake;
pub(crate) mod msg;
pub(crate) mod part;
pub(crate) mod rdm;
