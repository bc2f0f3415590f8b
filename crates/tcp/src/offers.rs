//! What the provider offers (man page `fi_getinfo(3)`).

use ripstop_core::{Info, SHARED_CONTEXT};
use ripstop_types::{AddrFormat, EpType, Flags, Protocol};

use crate::params::Params;
use crate::socket::Tcp;
use ripstop_objects::attr::{MATCHED_RX, OPS, Offer, SOURCES, offer};

/// The offers, most basic first: connected endpoints, connected endpoints with a shared
/// receive context, reliable datagram endpoints.
pub(crate) fn offers(params: &Params) -> [Info; 3] {
    let msg = Offer {
        ep_type: EpType::Msg,
        addr_format: AddrFormat::SockaddrIp,
        protocol: Protocol::SockTcp,
        protocol_version: 0,
        domain_caps: Flags::LOCAL_COMM | Flags::REMOTE_COMM,
        ops: OPS | Flags::TAGGED,
        rx_caps: MATCHED_RX,
        rx_ctx_cnt: 1,
    };
    let shared = Offer {
        rx_ctx_cnt: SHARED_CONTEXT,
        ..msg
    };
    let rdm = Offer {
        ep_type: EpType::Rdm,
        protocol: Protocol::Xnet,
        protocol_version: 1,
        domain_caps: msg.domain_caps | Flags::SHARED_AV | Flags::AV_USER_ID | Flags::PEER,
        ops: msg.ops | Flags::COLLECTIVE,
        rx_caps: MATCHED_RX | SOURCES,
        ..msg
    };
    [msg, shared, rdm].map(|kind| offer::<Tcp>(params.as_ref(), &kind))
}
