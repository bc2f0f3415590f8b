//! What transports whose messages are in packets of `ofi_rxm` say when they connect (`docs/design/rxm.md`).

mod settings;

pub use settings::Settings;

use core::result::Result as CoreResult;
use std::net::SocketAddr;

use ripstop_engine::stream::{PacketTerms, ReadBy};
use ripstop_types::Result;
use ripstop_wire::rxm::cm::{Answer, Extensions, FlowControl, Number, Reason, Request};
use ripstop_wire::xnet::rdm::Greeting;
use ripstop_wire::{ByteOrder, WireError, xnet};

use crate::transport::HandshakeError;

/// What connection data says of this side.
#[derive(Clone, Copy, Debug)]
pub struct Says {
    /// The size of the receive queue. Nobody reads it.
    pub rx_size: u32,
    /// Whether it gives credits, and wants some.
    pub flow_control: FlowControl,
    /// What it speaks beyond the protocol of the C library.
    pub extensions: Extensions,
}

/// What this side calls a connection. The lower half is for receivers that read several connections
/// at one place; here each is read by itself.
const fn number(pid: u32) -> Number {
    Number { pid, index: 0 }
}

/// What a peer says of itself, in the terms of a greeting of xnet. It has no rendezvous of those.
const fn greeting(port: u16, number: Number) -> Greeting {
    Greeting {
        version: 0,
        features: 0,
        port,
        pid: number.pid,
    }
}

fn emitted<const N: usize>(bytes: CoreResult<[u8; N], WireError>) -> Result<Vec<u8>> {
    bytes
        .map(|bytes| bytes.to_vec())
        .map_err(|error| error.errno())
}

impl Says {
    /// The data of a request by the endpoint that listens on this port. `eager_max`: the longest message that is
    /// sent in one packet, in bytes; peers have the same.
    ///
    /// # Errors
    /// What cannot be said.
    pub fn request(self, eager_max: u32, port: u16, pid: u32) -> Result<Vec<u8>> {
        let request = Request {
            port,
            flow_control: self.flow_control,
            eager_max,
            rx_size: self.rx_size,
            extensions: self.extensions,
            number: number(pid),
        };
        emitted(request.emit(ByteOrder::NATIVE))
    }

    /// The data of an answer.
    ///
    /// # Errors
    /// What cannot be said.
    pub fn reply(self, pid: u32) -> Result<Vec<u8>> {
        let answer = Answer {
            number: number(pid),
            rx_size: self.rx_size,
            flow_control: self.flow_control,
            extensions: self.extensions,
        };
        emitted(answer.emit(ByteOrder::NATIVE))
    }
}

/// What a request from this address says, and where its sender listens. `eager_max` is this side's.
///
/// # Errors
/// Data that is none, or of a peer whose eager messages have another length.
pub fn read_request(
    eager_max: u32,
    from: &SocketAddr,
    data: &[u8],
) -> CoreResult<(Greeting, SocketAddr), HandshakeError> {
    let request = Request::parse(ByteOrder::NATIVE, data).map_err(HandshakeError::Wrong)?;
    if request.eager_max != eager_max {
        return Err(HandshakeError::Wrong(WireError::RxmEagerMax {
            found: request.eager_max,
            expected: eager_max,
        }));
    }
    let peer = SocketAddr::new(from.ip(), request.port);
    Ok((greeting(request.port, request.number), peer))
}

/// What an answer says.
///
/// # Errors
/// Data that is none.
pub fn read_reply(data: &[u8]) -> CoreResult<Greeting, HandshakeError> {
    let answer = Answer::parse(ByteOrder::NATIVE, data).map_err(HandshakeError::Wrong)?;
    Ok(greeting(0, answer.number))
}

/// What a peer calls the connection, and what it speaks, by its request or answer.
fn said(data: &[u8]) -> Option<(Number, Extensions)> {
    let asked = Request::parse(ByteOrder::NATIVE, data).map(|said| (said.number, said.extensions));
    let said = asked.or_else(|_| {
        Answer::parse(ByteOrder::NATIVE, data).map(|said| (said.number, said.extensions))
    });
    said.ok()
}

/// What a peer speaks, by its request or answer: what the header of a message of the handshake says over tcp.
#[must_use]
pub fn extensions(data: &[u8]) -> xnet::cm::Extensions {
    let Some((_, said)) = said(data) else {
        return xnet::cm::Extensions::empty();
    };
    match said.contains(Extensions::COLL) {
        true => xnet::cm::Extensions::COLL,
        false => xnet::cm::Extensions::empty(),
    }
}

/// The terms of a connection, by the peer's request or answer. `eager_max` is that of both sides; `segmented_max`: the
/// longest message in bytes that the link sends in segments.
#[must_use]
pub fn terms(
    data: &[u8],
    (eager_max, segmented_max): (u32, u64),
    announced: ReadBy,
    says: Says,
) -> Option<PacketTerms> {
    let (number, extensions) = said(data)?;
    Some(PacketTerms {
        number: number.in_packets(),
        eager_max: eager_max.into(),
        segmented_max,
        announced,
        parts: (extensions & says.extensions).contains(Extensions::PARTS),
    })
}

/// The data of a refusal.
#[must_use]
pub fn refusal(connected: bool) -> Vec<u8> {
    let reason = match connected {
        true => Reason::Connected,
        false => Reason::Refused,
    };
    reason.emit().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_asked_for_the_length_of_this_side() {
        let says = Says {
            rx_size: 1,
            flow_control: FlowControl::Off,
            extensions: Extensions::all(),
        };
        let from = SocketAddr::from(([127, 0, 0, 1], 9));
        let data = says.request(4096, 7, 3).expect("fits");
        let (greeting, peer) = read_request(4096, &from, &data).expect("the same");
        assert_eq!((greeting.pid, peer.port()), (3, 7));
        assert!(read_request(16384, &from, &data).is_err());
        let agreed = terms(&data, (4096, 0), ReadBy::Stream, says).expect("a request");
        assert_eq!((agreed.eager_max, agreed.parts), (4096, true));
        let says = Says {
            extensions: Extensions::COLL,
            ..says
        };
        let agreed = terms(&data, (4096, 0), ReadBy::Stream, says).expect("a request");
        assert!(!agreed.parts);
        assert_eq!(extensions(&data), xnet::cm::Extensions::COLL);
        let data = says.reply(3).expect("fits");
        assert_eq!(extensions(&data), xnet::cm::Extensions::COLL);
        assert!(extensions(&data[1..]).is_empty());
    }
}
