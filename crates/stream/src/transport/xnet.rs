//! What transports between addresses of the network say when an RDM endpoint connects, as C's tcp does (`docs/wire.md`).

use core::result::Result as CoreResult;
use std::net::SocketAddr;

use ripstop_wire::xnet::rdm::Greeting;

use crate::transport::HandshakeError;

/// The data of a request by the endpoint that listens at `own`: [`Transport::request_data`](crate::Transport::request_data).
#[must_use]
pub fn request_data(own: &SocketAddr, greeting: Greeting) -> Vec<u8> {
    let port = own.port();
    Greeting { port, ..greeting }.emit().to_vec()
}

/// What a request from this address says, and where its sender listens:
/// [`Transport::read_request`](crate::Transport::read_request).
///
/// # Errors
/// Data that is no greeting.
pub fn read_request(
    from: &SocketAddr,
    data: &[u8],
) -> CoreResult<(Greeting, SocketAddr), HandshakeError> {
    let greeting = Greeting::parse(data).map_err(HandshakeError::Wrong)?;
    Ok((greeting, SocketAddr::new(from.ip(), greeting.port)))
}
