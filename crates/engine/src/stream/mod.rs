//! The stream engine: messages, RMA, atomics and collectives over connections that carry a reliable
//! stream of bytes each way, such as sockets or rings in shared memory. It speaks the xnet protocol
//! (`FI_PROTO_XNET`, `FI_PROTO_SOCK_TCP`; `docs/wire.md`).
//!
//! [`Engine`] holds the objects of one domain. A driver owns the byte streams and the memory:
//!
//! * Sending: [`Engine::send`] says which header to put into the connection's transmit buffer
//!   and whether the payload goes there too ([`SendPlan`]). [`Engine::transmit`] lists what to
//!   write next, [`Engine::sent`] takes how much was written and reports completions.
//!   [`Engine::try_send_now`] is the fast path of a small message when nothing waits, and
//!   [`Engine::coalesce`] that of one behind others. [`Engine::try_write_now`] is that of a plain write.
//!   [`Engine::read_now`] is that of a plain read which a device carries out.
//! * Receiving: while [`Engine::rx_in_header`], feed bytes to [`Engine::rx_header`]; else
//!   [`Engine::rx_want`] says where the next bytes go and [`Engine::rx_placed`] takes how many
//!   went there. A blocked connection is not read until [`Engine::pop_resumed`] names it.
//! * Payload of unexpected messages lies in slots, which the driver backs with memory;
//!   [`Engine::pop_freed`] names those no longer needed.
//! * Messages whose payload this side gets from the memory of a peer: [`Output::Get`], then
//!   [`Engine::get`].
//! * Receives that another provider has: [`Engine::next_arrival`] names the messages to ask about.
//! * Who wonders why nothing happens looks at what waits: [`Conn::pending`], [`Engine::visit_posted`],
//!   [`Engine::visit_announced`], [`Engine::visit_groups`].
//! * Completions are read from [`Engine::cq_mut`].

mod arriving;
mod atomic;
mod awaited;
mod cancel;
pub mod cm;
mod coll;
mod conn;
mod departed;
mod device_reads;
mod eager;
mod engine;
mod fast_send;
mod fast_write;
mod get;
mod indices;
mod message_header;
mod output;
mod owned;
mod packet_atomics;
mod packet_state;
mod packets;
mod parting;
pub mod rdm;
mod records;
mod recv;
mod request;
mod rma;
mod rx;
mod rx_want;
mod segments;
mod target;
mod terms;
#[cfg(test)]
mod tests;
mod tx;
mod unexpected;
mod watch;
mod work;

pub use atomic::Job;
pub use coll::{CollAction, CollPlan};
pub use conn::{
    CONTROLS_AT_ONCE, Chunk, Conn, ConnConfig, LONG_PAYLOAD_BYTES, LongQueued, PEER_NAME,
};
pub use engine::{Engine, EpConfig, Limits};
pub use fast_send::SmallMessage;
pub use fast_write::ShortWrites;
pub use get::{Get, GetPlace};
pub use owned::Arrival;
pub use packet_state::ReadBy;
pub use records::{Output, Refusal, Work};
pub use recv::{CopyOut, RecvFlags};
pub use request::{
    Atomic, CollSend, Level, MAX_ATOMIC, Posted, Postponed, Rma, RmaKind, SEND_HEADER, Send,
    SendPlan,
};
pub use rma::{Appended, RmaPlan};
pub use rx::Whole;
pub use rx_want::RxWant;
pub use terms::{PacketTerms, Terms};
pub use tx::StartedPostponed;
pub use watch::{Announced, LongMessages, Pending, Queued, Waiting};
pub use work::Unposted;
