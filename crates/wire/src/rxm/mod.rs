//! `FI_PROTO_RXM`: reliable datagram endpoints in packets over connected endpoints, those of
//! [`xnet`](crate::xnet) so far. `docs/design/rxm.md` describes it in prose.
//!
//! [`cm`] is the data of connection messages. A [`Packet`] is what one message of a connected
//! endpoint holds; a [`Unit`] is a header of xnet with the packet behind it, if it has one.

mod atomic;
pub mod cm;
mod packet;
mod pieces;
#[cfg(test)]
mod tests;
mod unit;
mod whole;

pub use atomic::{ATOMIC_LEN, AtomicHead, AtomicResult};
pub use packet::{
    BASE_LEN, Body, MAX_PACKET_HEADER, Message, Packet, PacketKind, Part, Parting, Segment,
    packet_len,
};
pub use unit::{MAX_UNIT_HEADER, Unit, emit_packet};
pub use whole::{MESSAGE_LEN, emit_message, parse_message};
