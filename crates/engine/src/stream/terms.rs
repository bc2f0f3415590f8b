//! What the two ends of a connection agree on in their handshake.

use ripstop_wire::ByteOrder;
use ripstop_wire::xnet::cm::Extensions;

use crate::Buffer;
use crate::id::ConnId;
use crate::stream::engine::Engine;
use crate::stream::packet_state::{Packets, ReadBy};

/// As [`Limits::eager_max`](super::Limits::eager_max), for peers that are not of this library, if that is less: a receiver
/// of the C library that looks (`FI_PEEK`) while a longer one arrives may find a bad address.
const FOREIGN_EAGER_MAX: u64 = 256 << 10;

/// What the two ends of a connection agreed on.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The byte order of headers.
    pub order: ByteOrder,
    /// The peer knows the tagged rendezvous.
    pub has_rendezvous: bool,
    /// What goes beyond the protocol of the C library.
    pub extensions: Extensions,
    /// Messages are in packets (`FI_PROTO_RXM`).
    pub packets: Option<PacketTerms>,
}

/// What the two ends of a connection for packets agreed on.
#[derive(Clone, Copy, Debug)]
pub struct PacketTerms {
    /// The number that packets to the peer say.
    pub number: u64,
    /// The longest message in bytes that is in one packet.
    pub eager_max: u64,
    /// The longest one in bytes that is written as one packet to the link, which cuts it up into segments; no more than
    /// `eager_max` for links that do not.
    pub segmented_max: u64,
    /// How the peer gets at the memory of longer ones.
    pub announced: ReadBy,
    /// Whether both sides agree on ends of connections ([`Engine::ask_to_part`]).
    pub parts: bool,
}

impl<B: Buffer> Engine<B> {
    /// The handshake is done.
    pub fn conn_up(&mut self, id: ConnId, terms: Terms) {
        if let Some(conn) = self.conns.get_mut(id) {
            conn.up = true;
            conn.packets = terms.packets.map(|agreed| {
                let PacketTerms {
                    number, announced, ..
                } = agreed;
                Packets::new(number, announced, agreed.parts, agreed.segmented_max)
            });
            conn.settle_ready();
            conn.order = terms.order;
            let eager_max = match terms {
                Terms {
                    packets: Some(packets),
                    ..
                } => packets.eager_max,
                Terms {
                    has_rendezvous: false,
                    ..
                } => u64::MAX,
                Terms { extensions, .. } if extensions.is_empty() => {
                    self.limits.eager_max.min(FOREIGN_EAGER_MAX)
                }
                _ => self.limits.eager_max,
            };
            conn.own_eager_max = eager_max;
            conn.set_eager_max(eager_max);
            conn.extensions = terms.extensions;
        }
    }
}
