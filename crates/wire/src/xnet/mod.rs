//! The protocol of the tcp provider (`FI_PROTO_XNET`), as C libfabric speaks it over a TCP
//! stream since header version 3.
//!
//! A connection starts with one [`cm`] message each way. Connections under an RDM endpoint
//! put an [`rdm`] greeting into the connection data of both. After that the stream is a
//! sequence of [`base`] headers, each followed by its payload.

pub mod base;
pub mod cm;
pub mod rdm;
