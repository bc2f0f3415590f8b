//! Receive: from the bytes of a link to the buffer of a posted receive, or to registered memory.
//!
//! Bytes come in two ways, by a fast poll of an active connection, or by a read of any connection that
//! is ready. Each step takes what it can and leaves the rest to the one below it:
//!
//! ```text
//! fast poll found something (progress/poll.rs)        a connection is ready (progress/mod.rs)
//!  |                                                   |
//!  | in a read of a completion queue (api/cq.rs):      |
//!  +-> fast_receive (fast.rs)                          |
//!  |     one small message is all that has come, and   |
//!  |     its completion belongs to that empty queue    |
//!  +-> receive_short_writes (fast.rs)                  |
//!  |     plain writes of a few ring entries each       |
//!  v                                                   v
//! handle_found (small_messages.rs)                    read_connection (read.rs)
//!  |     reads into the receive buffer                 |     reads until there is no more: payload
//!  v                                                   |     straight to its place, the rest into
//! take_whole, consume_whole (small_messages.rs)        |     the receive buffer
//!  |     whole small messages with a posted receive    |
//!  v                                                   v
//! receive_in_place (small_messages.rs), of links that share memory
//!  |     plain writes, messages between them, and one whose payload is still in the link
//!  v
//! consume (read.rs)
//!        all else: header by header through the engine, payload to where the engine says
//! ```
//!
//! [`get`] is for payloads that are not in the stream but in the memory of their sender.
//! [`post`] is the other side of it: receives that callers post, and what had come before them.

pub(crate) mod fast;
pub(crate) mod get;
mod joint;
pub(crate) mod post;
pub(crate) mod read;
pub(crate) mod small_messages;
